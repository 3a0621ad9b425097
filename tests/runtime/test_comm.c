/* test_comm.c - collectives among processes, against plain sums.
 *
 * The program starts itself under mpirun; a copy that finds SHARDPLAN_COMM_TEST in its environment
 * is a rank and runs the check of that name. Its exit status is the verdict.
 *
 * What rank r contributes at index i is a small integer (or one chosen so that rounding shows), so
 * that expected values are exact and every check is equality of bits. */
#include "base/arena.h"
#include "tests/support/ranks.h"
#include "tests/support/soak.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* ---- a rank: helpers ---- */

/* Bits of an integer of at most 8 significant bits below 2^15: exact in each dtype. */
static uint32_t bits_of(float value, enum dtype dtype)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == DTYPE_FP32)
        return bits;
    if (dtype == DTYPE_BF16)
        return bits >> 16;
    const uint32_t sign = bits >> 16 & 0x8000;
    return value == 0 ? sign : sign | (((bits & 0x7fffffff) - 0x38000000) >> 13 & 0x7fff);
}

static void put(void *data, uint64_t i, float value, enum dtype dtype)
{
    const uint32_t bits = bits_of(value, dtype);
    memcpy((char *)data + i * dtype_bytes(dtype), &bits, dtype_bytes(dtype)); /* little endian */
}

enum { PERIOD = 16 }; /* of what ranks contribute, and so of sums */

static void require_values(const void *data, uint64_t first, uint64_t count, enum dtype dtype,
                           float (*expected)(uint64_t i, const void *context), const void *context)
{
    const bool wide = dtype == DTYPE_FP32;
    uint32_t period[PERIOD];
    for (uint64_t i = 0; i < PERIOD; i++)
        period[i] = bits_of(expected(i, context), dtype);
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t wanted = period[i % PERIOD];
        const uint32_t bits =
            wide ? ((const uint32_t *)data)[first + i] : ((const uint16_t *)data)[first + i];
        if (bits != wanted) {
            fprintf(stderr, "%s: element %llu is 0x%x, not 0x%x\n", dtype_name(dtype),
                    (unsigned long long)i, bits, wanted);
            _exit(1);
        }
    }
}

/* -3 ... 12: sums over four ranks are exact in 8 bits. Members of a group are given by their rank
 * in the world, so that a message from outside the group shows. */
static float contribution(uint32_t rank, uint64_t i)
{
    return (float)((i * 7 + rank * 5) % PERIOD) - 3;
}

struct members { /* of a group, as comm.h defines it */
    uint32_t first, ranks, stride;
    uint32_t place;  /* of this rank */
    uint64_t offset; /* of a slice in the whole vector */
    float divisor;
};

static struct members members_of(const struct comm_group *group, uint32_t rank)
{
    const uint32_t span = group->ranks * group->stride;
    return (struct members){.first = rank / span * span + rank % group->stride,
                            .ranks = group->ranks,
                            .stride = group->stride,
                            .place = rank % span / group->stride,
                            .divisor = 1};
}

static float sum_at(uint64_t i, const void *context)
{
    const struct members *m = context;
    float sum = 0;
    for (uint32_t k = 0; k < m->ranks; k++)
        sum += contribution(m->first + k * m->stride, m->offset + i);
    return sum / m->divisor;
}

static float slice_at(uint64_t i, const void *context) /* offset: which member's */
{
    const struct members *m = context;
    return contribution(m->first + (uint32_t)m->offset * m->stride, i);
}

/* ---- a rank: sums over groups ---- */

static void *vector(uint32_t rank, uint64_t first, uint64_t count, uint64_t room, enum dtype dtype)
{
    void *data = xmalloc((room + 1) * dtype_bytes(dtype));
    memset(data, 0xee, (room + 1) * dtype_bytes(dtype));
    for (uint64_t i = 0; i < count; i++)
        put(data, first + i, contribution(rank, i), dtype);
    return data;
}

static void check_group(struct comm *comm, int id, const struct comm_group *group, uint64_t count,
                        enum dtype dtype)
{
    const uint32_t rank = comm_rank(comm);
    struct members m = members_of(group, rank);
    const uint64_t all = count * m.ranks;

    void *gathered = vector(rank, m.place * count, count, all, dtype);
    REQUIRE_OK(comm_all_gather(comm, id, comm_ticket(comm, id), gathered, count, dtype, 1, &err));
    for (m.offset = 0; m.offset < m.ranks; m.offset++)
        require_values(gathered, m.offset * count, count, dtype, slice_at, &m);
    free(gathered);

    void *in = vector(rank, 0, all, all, dtype), *out = vector(rank, 0, 0, all, dtype);
    const bool exact_average = (m.ranks & (m.ranks - 1)) == 0;
    for (int average = 0; average <= (exact_average ? 1 : 0); average++) {
        m.divisor = average ? (float)m.ranks : 1;
        m.offset = m.place * count;
        REQUIRE_OK(comm_reduce_scatter(comm, id, comm_ticket(comm, id), in, out, count, dtype,
                                       average, 2, &err));
        require_values(out, 0, count, dtype, sum_at, &m);
        m.offset = 0;
        REQUIRE_OK(comm_all_reduce(comm, id, comm_ticket(comm, id), in, out, all, dtype, average, 3,
                                   &err));
        require_values(out, 0, all, dtype, sum_at, &m);
    }
    const uint64_t odd = all > 1 ? all - 1 : all; /* not a multiple of the ranks; in place */
    REQUIRE_OK(
        comm_all_reduce(comm, id, comm_ticket(comm, id), in, in, odd, dtype, false, 4, &err));
    m.divisor = 1;
    require_values(in, 0, odd, dtype, sum_at, &m);
    free(in);
    free(out);
}

/* Of any dtype, from each rank of the group: bytes that say whose they are. */
static void check_broadcasts(struct comm *comm, int id, const struct comm_group *group,
                             uint64_t count, enum dtype dtype)
{
    const struct members m = members_of(group, comm_rank(comm));
    const uint64_t bytes = count * dtype_bytes(dtype);
    unsigned char *data = xmalloc(bytes + 1);
    for (uint32_t root = 0; root < m.ranks; root++) {
        for (uint64_t i = 0; i < bytes; i++)
            data[i] = (unsigned char)(i * 7 + comm_rank(comm) * 31);
        data[bytes] = 0xee;
        REQUIRE_OK(comm_group_broadcast(comm, id, comm_ticket(comm, id), data, count, dtype, root,
                                        5, &err));
        for (uint64_t i = 0; i < bytes; i++)
            REQUIRE(data[i] == (unsigned char)(i * 7 + (m.first + root * m.stride) * 31));
        REQUIRE(data[bytes] == 0xee);
    }
    free(data);
}

static const enum dtype float_dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};

static void check_sums(const struct comm_group *groups, uint32_t group_count)
{
    static const uint64_t counts[] = {0, 1, 3, 1000, 70001};
    struct comm *comm = open_comm(groups, group_count, 60);
    for (uint32_t g = 0; g < group_count; g++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            for (size_t d = 0; d < 3; d++)
                check_group(comm, (int)g, &groups[g], counts[c], float_dtypes[d]);
            for (int d = 0; d < DTYPE_COUNT; d++)
                check_broadcasts(comm, (int)g, &groups[g], counts[c], (enum dtype)d);
        }
    check_group(comm, 0, &groups[0], 2500000, DTYPE_BF16); /* more than one piece */
    comm_close(comm);
}

static void rank_sums(uint32_t ranks)
{
    check_sums(&(struct comm_group){.ranks = ranks, .stride = 1}, 1);
}

static void rank_groups(uint32_t ranks)
{
    const struct comm_group groups[] = {
        {.ranks = 2, .stride = 1}, {.ranks = ranks / 2, .stride = 2}, {.ranks = 1, .stride = 1}};
    check_sums(groups, 3);
}

/* 256 + 1 + 1 + 1 in bf16: 256 when rounded at each step, 260 when rounded once. In fp16 the same
 * with 2048: 2052. A quarter of it, rounded once: 64.75; 512.75. In fp32: 2^24 + 3 -> 2^24 + 4. */
static void rank_rounding(uint32_t ranks)
{
    const struct comm_group world = {.ranks = ranks, .stride = 1};
    const uint16_t first[] = {0x4380, 0x6800}, one[] = {0x3f80, 0x3c00};
    const uint16_t sums[] = {0x4382, 0x6802}, averages[] = {0x4282, 0x6002};
    struct comm *comm = open_comm(&world, 1, 60);
    for (size_t d = 0; d < 2; d++) {
        const uint16_t in = comm_rank(comm) == 0 ? first[d] : one[d];
        uint16_t out = 0;
        REQUIRE_OK(comm_all_reduce(comm, 0, comm_ticket(comm, 0), &in, &out, 1, float_dtypes[d + 1],
                                   false, 1, &err));
        REQUIRE(out == sums[d]);
        REQUIRE_OK(comm_all_reduce(comm, 0, comm_ticket(comm, 0), &in, &out, 1, float_dtypes[d + 1],
                                   true, 1, &err));
        REQUIRE(out == averages[d]);
    }
    float x = comm_rank(comm) == 0 ? 0x1p24F : 1;
    REQUIRE_OK(
        comm_all_reduce(comm, 0, comm_ticket(comm, 0), &x, &x, 1, DTYPE_FP32, false, 1, &err));
    REQUIRE(x == 0x1p24F + 4);
    int64_t whole = 1;
    struct err err = {0};
    REQUIRE(comm_all_reduce(comm, 0, comm_ticket(comm, 0), &whole, &whole, 1, DTYPE_INT64, false,
                            55, &err) == ERR_UNSUPPORTED);
    REQUIRE(strstr(err.text, "instruction 55"));
    comm_close(comm);
}

/* Subnormals, infinities and what rounds to them: each 16-bit number plus zeros is itself. */
static void rank_halves(uint32_t ranks)
{
    enum { NUMBERS = 65536 };
    const struct comm_group world = {.ranks = ranks, .stride = 1};
    struct comm *comm = open_comm(&world, 1, 60);
    uint16_t *number = xmalloc(NUMBERS * sizeof *number);
    for (size_t d = 1; d < 3; d++) {
        const uint32_t infinity = d == 1 ? 0x7f80 : 0x7c00;
        for (uint32_t i = 0; i < NUMBERS; i++)
            number[i] = (uint16_t)(comm_rank(comm) == 0 && i != 0x8000 ? i : 0);
        REQUIRE_OK(comm_all_reduce(comm, 0, comm_ticket(comm, 0), number, number, NUMBERS,
                                   float_dtypes[d], false, 1, &err));
        for (uint32_t i = 0; i < NUMBERS; i++)
            REQUIRE((i & 0x7fff) > infinity ? (number[i] & 0x7fffU) > infinity
                                            : number[i] == (i == 0x8000 ? 0 : i));
    }
    free(number);
    comm_close(comm);
}

/* ---- a rank: the world ---- */

static void rank_world(uint32_t ranks)
{
    const struct comm_group none = {.ranks = 1, .stride = 1};
    struct comm *comm = open_comm(&none, 1, 60);
    const uint32_t rank = comm_rank(comm);
    REQUIRE(comm_ranks(comm) == ranks && rank < ranks);
    for (uint32_t root = 0; root < ranks; root++) {
        uint32_t word = rank == root ? 1000 + root : 0;
        REQUIRE_OK(comm_broadcast(comm, &word, sizeof word, root, &err));
        REQUIRE(word == 1000 + root);
        uint32_t all[64] = {0};
        word = rank * rank;
        REQUIRE_OK(comm_gather(comm, &word, sizeof word, rank == root ? all : NULL, root, &err));
        for (uint32_t r = 0; r < ranks && rank == root; r++)
            REQUIRE(all[r] == r * r);
        REQUIRE_OK(comm_barrier(comm, &err));
    }
    comm_close(comm);
}

/* ---- a rank: turns ---- */

enum { THREADS = 4, ROUNDS = 60 };

struct caller {
    struct comm *comm;
    uint64_t ticket[ROUNDS];
    float value[ROUNDS];
    uint32_t delay_us;
};

static void *call_in_turn(void *arg)
{
    struct caller *caller = arg;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        usleep(caller->delay_us * (i % 3));
        REQUIRE_OK(comm_all_reduce(caller->comm, 0, caller->ticket[i], &caller->value[i],
                                   &caller->value[i], 1, DTYPE_FP32, false, i, &err));
    }
    return NULL;
}

/* Tickets go to threads in the same order everywhere; threads start in another on each rank. Were
 * the order of calls not that of tickets, values of different rounds would be summed. */
static void rank_tickets(uint32_t ranks)
{
    const struct comm_group world = {.ranks = ranks, .stride = 1};
    struct comm *comm = open_comm(&world, 1, 60);
    const uint32_t rank = comm_rank(comm);
    struct caller caller[THREADS];
    for (uint32_t i = 0; i < ROUNDS; i++)
        for (uint32_t k = 0; k < THREADS; k++) {
            const uint32_t t = (k * 3 + i) % THREADS;
            caller[t].ticket[i] = comm_ticket(comm, 0);
            caller[t].value[i] = (float)(i * THREADS + t) + (float)rank * 1000;
        }
    pthread_t thread[THREADS];
    for (uint32_t k = 0; k < THREADS; k++) {
        const uint32_t t = (k * (rank % 2 ? 3 : 1) + rank) % THREADS;
        caller[t].comm = comm;
        caller[t].delay_us = (t + rank) % THREADS * 100;
        REQUIRE(pthread_create(&thread[t], NULL, call_in_turn, &caller[t]) == 0);
        usleep(2000);
    }
    const float others = 500.0F * (float)(ranks * (ranks - 1));
    for (uint32_t t = 0; t < THREADS; t++) {
        pthread_join(thread[t], NULL);
        for (uint32_t i = 0; i < ROUNDS; i++)
            REQUIRE(caller[t].value[i] == (float)((i * THREADS + t) * ranks) + others);
    }
    comm_close(comm);
}

/* Rank 0 skips the first collective and comes to the second; the others are still in the first. */
static void rank_skip(uint32_t ranks)
{
    const struct comm_group world = {.ranks = ranks, .stride = 1};
    struct comm *comm = open_comm(&world, 1, 2.0);
    struct err err = {0};
    float x = 1;
    if (comm_rank(comm) == 0) {
        comm_skip(comm, 0, comm_ticket(comm, 0), 1);
        REQUIRE(comm_all_reduce(comm, 0, comm_ticket(comm, 0), &x, &x, 1, DTYPE_FP32, false, 2,
                                &err) == ERR_DEVICE);
        REQUIRE(strstr(err.text, "instruction 2"));
        for (;;)
            pause();
    }
    comm_all_reduce(comm, 0, comm_ticket(comm, 0), &x, &x, 1, DTYPE_FP32, false, 1, NULL);
    _exit(0); /* not reached: it has no data to take for those of the first */
}

/* ---- a rank: time-outs ---- */

static void rank_timeout(uint32_t ranks)
{
    const struct comm_group world = {.ranks = ranks, .stride = 1};
    struct comm *comm = open_comm(&world, 1, 1.0);
    float x = 1;
    if (comm_rank(comm) == 1) /* never comes */
        for (;;)
            pause();
    comm_all_reduce(comm, 0, comm_ticket(comm, 0), &x, &x, 1, DTYPE_FP32, false, 321, NULL);
    _exit(0); /* not reached: the call ends the run */
}

static void rank_lost_turn(uint32_t ranks)
{
    const struct comm_group world = {.ranks = ranks, .stride = 1};
    struct comm *comm = open_comm(&world, 1, 1.0);
    float x = 1;
    comm_ticket(comm, 0); /* nobody uses this turn */
    comm_all_reduce(comm, 0, comm_ticket(comm, 0), &x, &x, 1, DTYPE_FP32, false, 322, NULL);
    _exit(0);
}

static const struct rank_check checks[] = {
    {"sums", rank_sums},           {"groups", rank_groups},
    {"rounding", rank_rounding},   {"halves", rank_halves},
    {"world", rank_world},         {"tickets", rank_tickets},
    {"skip", rank_skip},           {"timeout", rank_timeout},
    {"lost_turn", rank_lost_turn}, {NULL, NULL},
};

/* ---- the tests ---- */

static void sums_over_the_world_are_exact(void **state)
{
    (void)state;
    for (int ranks = is_soak() ? 1 : 3; ranks <= 4; ranks++)
        among(ranks, "sums");
}

static void sums_over_groups_stay_within_them(void **state)
{
    (void)state;
    among(4, "groups");
}

static void sums_are_rounded_once(void **state)
{
    (void)state;
    among(4, "rounding");
}

static void every_half_survives_a_sum_with_zeros(void **state)
{
    (void)state;
    among(2, "halves");
}

static void set_up_collectives_reach_everyone(void **state)
{
    (void)state;
    among(1, "world");
    among(4, "world");
}

static void calls_run_in_the_order_of_their_tickets(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        among(ranks, "tickets");
}

static void a_skipped_collective_is_not_taken_for_the_next(void **state)
{
    (void)state;
    expect_end("skip", 2, 3, "rank 1: instruction 1: all_reduce");
}

static void a_rank_that_never_comes_ends_the_run(void **state)
{
    (void)state;
    expect_end("timeout", 2, 3, "rank 0: instruction 321: all_reduce");
}

static void a_turn_that_is_never_used_ends_the_run(void **state)
{
    (void)state;
    expect_end("lost_turn", 1, 3, "rank 0: instruction 322: all_reduce");
}

int main(void)
{
    const char *check = getenv(RANK_VARIABLE);
    if (check)
        return run_as_rank(checks, check);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_over_the_world_are_exact),
        cmocka_unit_test(sums_over_groups_stay_within_them),
        cmocka_unit_test(sums_are_rounded_once),
        cmocka_unit_test(every_half_survives_a_sum_with_zeros),
        cmocka_unit_test(set_up_collectives_reach_everyone),
        cmocka_unit_test(calls_run_in_the_order_of_their_tickets),
        cmocka_unit_test(a_skipped_collective_is_not_taken_for_the_next),
        cmocka_unit_test(a_rank_that_never_comes_ends_the_run),
        cmocka_unit_test(a_turn_that_is_never_used_ends_the_run),
    };
    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}
