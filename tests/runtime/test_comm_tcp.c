/* test_comm_tcp.c - comm.h over TCP: ranks are processes forked here, on the loopback. Numbers are
 * small integers, so that every sum is exact. */
#include "runtime/comm/comm.h"
#include "runtime/device/clock.h"
#include "tests/support/free_port.h"
#include "tests/support/require.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_RANKS = 6, COUNT = 5 };

typedef void rank_main(uint32_t rank, uint32_t ranks, uint16_t port);

/* Each rank's exit status; all are there at once. */
static void run_ranks(uint32_t ranks, rank_main *run, int statuses[MOST_RANKS])
{
    pid_t child[MOST_RANKS];
    const uint16_t port = free_port();
    fflush(stdout);
    for (uint32_t r = 0; r < ranks; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] == 0) {
            alarm(60);
            run(r, ranks, port);
            _exit(0);
        }
    }
    for (uint32_t r = 0; r < ranks; r++) {
        int status = 0;
        assert_int_equal(waitpid(child[r], &status, 0), child[r]);
        statuses[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
}

static void all_succeed(uint32_t ranks, rank_main *run)
{
    int statuses[MOST_RANKS];
    run_ranks(ranks, run, statuses);
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(statuses[r], 0);
}

static struct comm *join(uint32_t rank, uint32_t ranks, uint16_t port,
                         const struct comm_group *groups, uint32_t count)
{
    struct comm *comm = NULL;
    const struct comm_meeting at = {"127.0.0.1", port, "a job's"};
    REQUIRE_OK(comm_open_tcp(&at, rank, ranks, groups, count, 20, &comm, &err));
    REQUIRE(comm_rank(comm) == rank && comm_ranks(comm) == ranks);
    return comm;
}

/* Groups of all, of neighbours, and of those two apart. */
static const struct comm_group four_ranks[] = {{4, 1}, {2, 1}, {2, 2}};

static uint32_t member(const struct comm_group *group, uint32_t rank, uint32_t k)
{
    const uint32_t span = group->ranks * group->stride;
    return rank / span * span + rank % group->stride + k * group->stride;
}

static float number(uint32_t rank, uint32_t i)
{
    return (float)(rank * 100 + i);
}

static void collect_in_groups(uint32_t rank, uint32_t ranks, uint16_t port)
{
    struct comm *comm = join(rank, ranks, port, four_ranks, 3);
    for (int g = 0; g < 3; g++) {
        const struct comm_group *group = &four_ranks[g];
        float gathered[4 * COUNT], whole[4 * COUNT], sum[COUNT], slice[COUNT];
        uint32_t place = 0;
        while (member(group, rank, place) != rank)
            place++;
        for (uint32_t i = 0; i < COUNT; i++) {
            gathered[place * COUNT + i] = sum[i] = number(rank, i);
            for (uint32_t k = 0; k < group->ranks; k++)
                whole[k * COUNT + i] = number(rank, k * COUNT + i);
        }
        REQUIRE(comm_all_gather(comm, g, comm_ticket(comm, g), gathered, COUNT, DTYPE_FP32, 1,
                                NULL) == ERR_OK);
        REQUIRE(comm_all_reduce(comm, g, comm_ticket(comm, g), sum, sum, COUNT, DTYPE_FP32, false,
                                2, NULL) == ERR_OK);
        REQUIRE(comm_reduce_scatter(comm, g, comm_ticket(comm, g), whole, slice, COUNT, DTYPE_FP32,
                                    true, 3, NULL) == ERR_OK);
        for (uint32_t i = 0; i < COUNT; i++) {
            float total = 0, scattered = 0;
            for (uint32_t k = 0; k < group->ranks; k++) {
                const uint32_t other = member(group, rank, k);
                REQUIRE(gathered[k * COUNT + i] == number(other, i));
                total += number(other, i);
                scattered += number(other, place * COUNT + i);
            }
            REQUIRE(sum[i] == total);
            REQUIRE(slice[i] == scattered / (float)group->ranks);
        }
        for (uint32_t root = 0; root < group->ranks; root++) {
            double said[COUNT]; /* as many bytes as a complex number has */
            for (uint32_t i = 0; i < COUNT; i++)
                said[i] = (double)number(rank, i);
            REQUIRE(comm_group_broadcast(comm, g, comm_ticket(comm, g), said, COUNT,
                                         DTYPE_COMPLEX64, root, 4, NULL) == ERR_OK);
            for (uint32_t i = 0; i < COUNT; i++)
                REQUIRE(said[i] == (double)number(member(group, rank, root), i));
        }
    }
    comm_close(comm);
}

static void collectives_of_groups_give_each_rank_its_part(void **state)
{
    (void)state;
    all_succeed(4, collect_in_groups);
}

static void talk_to_all(uint32_t rank, uint32_t ranks, uint16_t port)
{
    struct comm *comm = join(rank, ranks, port, NULL, 0);
    for (uint32_t root = 0; root < ranks; root++) {
        uint64_t said = root == rank ? 4711 + root : 0, all[MOST_RANKS] = {0}, own = rank + 10;
        REQUIRE(comm_broadcast(comm, &said, sizeof said, root, NULL) == ERR_OK);
        REQUIRE(said == 4711 + root);
        REQUIRE(comm_gather(comm, &own, sizeof own, all, root, NULL) == ERR_OK);
        for (uint32_t r = 0; r < ranks && rank == root; r++)
            REQUIRE(all[r] == r + 10);
        REQUIRE(comm_barrier(comm, NULL) == ERR_OK);
    }
    const size_t large = 3 << 20; /* more than a socket holds */
    char *data = malloc(large);
    REQUIRE(data);
    memset(data, rank == 2 ? 7 : 0, large);
    REQUIRE(comm_broadcast(comm, data, large, 2, NULL) == ERR_OK);
    REQUIRE(data[0] == 7 && data[large - 1] == 7);
    free(data);
    comm_close(comm);
}

static void every_rank_may_be_the_root(void **state)
{
    (void)state;
    all_succeed(MOST_RANKS, talk_to_all);
}

/* ---- faults ---- */

static void leave_early(uint32_t rank, uint32_t ranks, uint16_t port)
{
    struct comm *comm = join(rank, ranks, port, NULL, 0);
    struct err err = {0};
    REQUIRE(comm_check_whole(comm, &err) == ERR_OK);
    REQUIRE(comm_barrier(comm, NULL) == ERR_OK);
    if (rank == 2)
        _exit(9);
    while (rank == 0 && comm_check_whole(comm, &err) == ERR_OK)
        usleep(1000); /* without a word to anyone */
    if (rank == 0)
        REQUIRE(strstr(err.text, "rank 2: its process has ended"));
    err = (struct err){0};
    const enum err_code rc = comm_barrier(comm, &err);
    REQUIRE(rc == ERR_DEVICE);
    if (rank == 0)
        REQUIRE(strstr(err.text, "barrier: rank 2: its process has ended"));
    REQUIRE(comm_barrier(comm, NULL) != ERR_OK); /* and stays so */
}

static void a_rank_that_ends_is_named(void **state)
{
    (void)state;
    int statuses[MOST_RANKS];
    run_ranks(3, leave_early, statuses);
    assert_int_equal(statuses[2], 9);
    assert_int_equal(statuses[0], 0);
}

static int connect_to(const char *address, uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    REQUIRE(inet_pton(AF_INET, address, &at.sin_addr) == 1);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    close(fd);
    return -1;
}

static int come_first(uint16_t port)
{
    int fd;
    while ((fd = connect_to("127.0.0.1", port)) < 0)
        usleep(1000);
    return fd;
}

/* What all ranks but the last do, which is none; rank 0 has long been listening when rank 1 comes.
 */
static void join_without_the_last(uint32_t rank, uint32_t ranks, uint16_t port)
{
    if (rank > 0)
        usleep(300000);
    const double begin = clock_now_s();
    struct comm *comm = join(rank, ranks - 1, port, NULL, 0);
    REQUIRE(comm_barrier(comm, NULL) == ERR_OK);
    REQUIRE(clock_now_s() - begin < 4.5); /* strangers have 5 s, and came 0.3 s before */
    comm_close(comm);
}

/* It connects first, says something else, and stays. */
static void join_beside_a_stranger(uint32_t rank, uint32_t ranks, uint16_t port)
{
    char text[128] = "GET / HTTP/1.1";
    if (rank + 1 < ranks) {
        join_without_the_last(rank, ranks, port);
        return;
    }
    const int fd = come_first(port);
    REQUIRE(send(fd, text, sizeof text, MSG_NOSIGNAL) == sizeof text);
    REQUIRE(recv(fd, text, sizeof text, 0) <= 0); /* it was turned away */
}

static void a_stranger_does_not_stop_the_start(void **state)
{
    (void)state;
    all_succeed(3, join_beside_a_stranger);
}

/* Hundreds of them, of which some never say a word and some say nonsense. */
static void join_beside_a_crowd(uint32_t rank, uint32_t ranks, uint16_t port)
{
    enum { CROWD = 300 };
    if (rank + 1 < ranks) {
        join_without_the_last(rank, ranks, port);
        return;
    }
    close(come_first(port));
    for (int i = 0; i < CROWD; i++) {
        const int fd = connect_to("127.0.0.1", port); /* kept until the process ends */
        if (fd >= 0 && i % 3 == 0)
            send(fd, "garbage", 7, MSG_NOSIGNAL);
    }
    sleep(1);
}

static void a_crowd_of_strangers_does_not_stop_the_start(void **state)
{
    (void)state;
    all_succeed(3, join_beside_a_crowd);
}

/* Somebody who knows the words, but not the token, wants to be rank 1 of these. */
static void join_beside_an_impostor(uint32_t rank, uint32_t ranks, uint16_t port)
{
    if (rank + 1 < ranks) {
        join_without_the_last(rank, ranks, port);
        return;
    }
    close(come_first(port));
    struct comm *comm = NULL;
    struct err err = {0};
    const struct comm_meeting at = {"127.0.0.1", port, "a job'z"};
    REQUIRE(comm_open_tcp(&at, 1, ranks - 1, NULL, 0, 5, &comm, &err) == ERR_DEVICE);
    REQUIRE(strstr(err.text, "no welcome") && !comm);
}

static void who_has_not_the_token_takes_nobodys_place(void **state)
{
    (void)state;
    all_succeed(3, join_beside_an_impostor);
}

/* 127.0.0.2 is this machine's, too. */
static void look_for_rank_0(uint32_t rank, uint32_t ranks, uint16_t port)
{
    if (rank + 1 < ranks) {
        join_without_the_last(rank, ranks, port);
        return;
    }
    close(come_first(port));
    REQUIRE(connect_to("127.0.0.2", port) < 0);
}

static void rank_0_listens_where_it_is_told_and_nowhere_else(void **state)
{
    (void)state;
    all_succeed(3, look_for_rank_0);
}

static void wait_for_one_more(uint32_t rank, uint32_t ranks, uint16_t port)
{
    struct comm *comm = NULL;
    struct err err = {0};
    const struct comm_meeting at = {"127.0.0.1", port, ""};
    REQUIRE(comm_open_tcp(&at, rank, ranks + 1, NULL, 0, 0.5, &comm, &err) ==
            (rank == 0 ? ERR_DEVICE : ERR_OK));
    if (rank == 0)
        REQUIRE(strstr(err.text, "2 of 3 ranks have come"));
    comm_close(comm);
}

static void a_rank_that_never_comes_is_missed(void **state)
{
    (void)state;
    all_succeed(2, wait_for_one_more);
}

static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    static const struct comm_group three = {3, 1};
    struct comm *comm = NULL;
    struct err err = {0};
    char text[COMM_TOKEN_BYTES + 1] = "";
    struct comm_meeting at = {"127.0.0.1", 1, text};
    assert_int_equal(comm_open_tcp(&at, 4, 4, NULL, 0, 1, &comm, &err), ERR_INVALID);
    memset(text, 'x', COMM_TOKEN_BYTES);
    err = (struct err){0};
    assert_int_equal(comm_open_tcp(&at, 1, 4, NULL, 0, 1, &comm, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "at most 63"));
    err = (struct err){0};
    assert_int_equal(comm_open_tcp(&at, 0, 4, &three, 1, 1, &comm, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "do not divide the 4 ranks"));
    assert_null(comm);
}

/* ---- a run that torchrun might have started ---- */

static void start_a_run_with(const char *also)
{
    /* Rank 0 listens one port above PyTorch's store. */
    char folder[] = "/tmp/shardplan_tcp.XXXXXX", command[2048];
    const char *program = getenv("SHARDPLAN") ? getenv("SHARDPLAN") : "build/shardplan";
    assert_non_null(mkdtemp(folder));
    snprintf(
        command, sizeof command,
        "set -e; %s plan tests/data/configs/tiny-llama --gpus 2 --seq 32 --micro-batch 1 -q -o "
        "%s; cd $(dirname %s); export WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=%u; "
        "unset OMPI_COMM_WORLD_SIZE PMIX_RANK; export %s; "
        "RANK=1 ./shardrun %s/plan.json --timeout 20 & "
        "RANK=0 ./shardrun %s/plan.json --timeout 20 >%s/tcp; wait $!; "
        "./shardplan run %s/plan.json >%s/mpi; "
        "cut -d' ' -f1-13 %s/tcp >%s/a; cut -d' ' -f1-13 %s/mpi >%s/b; cmp %s/a %s/b; "
        "grep -q 'step *3/3' %s/a",
        program, folder, program, free_port() - 1u, also, folder, folder, folder, folder, folder,
        folder, folder, folder, folder, folder, folder, folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void variables_of_a_launcher_start_a_run(void **state)
{
    (void)state;
    start_a_run_with("LOCAL_RANK=0");
}

/* Its MPI is one of torchruns, not of ranks. */
static void torchrun_under_srun_is_no_mpi(void **state)
{
    (void)state;
    start_a_run_with("TORCHELASTIC_RUN_ID=none PMI_RANK=0 PMIX_RANK=0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_of_groups_give_each_rank_its_part),
        cmocka_unit_test(every_rank_may_be_the_root),
        cmocka_unit_test(a_rank_that_ends_is_named),
        cmocka_unit_test(a_stranger_does_not_stop_the_start),
        cmocka_unit_test(a_crowd_of_strangers_does_not_stop_the_start),
        cmocka_unit_test(who_has_not_the_token_takes_nobodys_place),
        cmocka_unit_test(rank_0_listens_where_it_is_told_and_nowhere_else),
        cmocka_unit_test(a_rank_that_never_comes_is_missed),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(variables_of_a_launcher_start_a_run),
        cmocka_unit_test(torchrun_under_srun_is_no_mpi),
    };
    return cmocka_run_group_tests_name("comm_tcp", tests, NULL, NULL);
}
