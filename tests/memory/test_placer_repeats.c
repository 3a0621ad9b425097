/* test_placer_repeats.c - a pool of many micro-batches from a ledger of few, where the placer says
 * that they are steady: random micro-batches, few of them beside all. */
#include "memory/placer.h"

#include <gsl/gsl_rng.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { STEPS = 2000, BUFFERS = 40, FEW = 5, ALL = 41, SEED = 20261124 };

static gsl_rng *rng;

static uint32_t below(uint32_t n)
{
    return (uint32_t)gsl_rng_uniform_int(rng, n);
}

/* Of each micro-batch: at `at` one of its buffers is born, and dies at a later place, of the next
 * micro-batch where that is beyond the end. Some are born once and stay. */
struct pattern {
    struct buffer buffer[BUFFERS];
    uint32_t death[BUFFERS];
    bool once[BUFFERS];
    uint64_t last_bytes; /* of a buffer that only the last micro-batch has */
};

static void draw(struct pattern *p)
{
    const uint64_t sizes[] = {(uint64_t)2 << 20, (uint64_t)5 << 20, (uint64_t)30 << 20,
                              (uint64_t)(1 + below(1 << 16)) << 10};
    for (uint32_t i = 0; i < BUFFERS; i++) {
        p->buffer[i] = (struct buffer){.bytes = sizes[below(4)], .pool = LANE_COMPUTE};
        p->once[i] = below(12) == 0;
        p->death[i] = i + 1 + below(below(4) ? 6 : BUFFERS / 2);
    }
    p->last_bytes = sizes[below(4)] * 3;
}

static void die(struct ledger *ledger, const struct pattern *p, uint32_t first, uint32_t place)
{
    for (uint32_t i = 0; i < BUFFERS; i++)
        if (!p->once[i] && p->death[i] == place)
            ledger_note(ledger, first + i, &p->buffer[i], LEDGER_FREE);
}

static void put_micro_batch(struct ledger *ledger, const struct pattern *p, uint32_t index)
{
    const uint32_t first = index * BUFFERS;
    ledger_micro_batch(ledger);
    for (uint32_t i = 0; i < BUFFERS; i++) {
        if (index > 0)
            die(ledger, p, first - BUFFERS, BUFFERS + i);
        die(ledger, p, first, i);
        if (!p->once[i] || index == 0)
            ledger_note(ledger, first + i, &p->buffer[i], p->once[i] ? LEDGER_FIRST_STEP : 0);
    }
}

/* The step ends as it began: what is left over dies. */
static void put_step(struct ledger *ledger, const struct pattern *p, uint32_t micro_batches)
{
    static const uint32_t none[LEDGER_POOLS];
    const struct buffer last = {.bytes = p->last_bytes, .pool = LANE_COMPUTE};
    const uint32_t index = micro_batches * BUFFERS;
    ledger_begin(ledger, none);
    for (uint32_t m = 0; m < micro_batches; m++)
        put_micro_batch(ledger, p, m);
    ledger_note(ledger, index, &last, 0);
    for (uint32_t place = BUFFERS; place < 2 * BUFFERS; place++)
        die(ledger, p, index - BUFFERS, place);
    ledger_note(ledger, index, &last, LEDGER_FREE);
}

/* *steady: of all pools. */
static uint64_t reserved(struct placer *placer, const struct ledger *ledger, bool expandable,
                         bool *steady)
{
    const struct placer_options options = {
        .expandable_segments = expandable, .device_bytes = (uint64_t)80 << 30, .repeats = true};
    uint64_t sum = 0;
    *steady = true;
    for (uint32_t i = 0; i < LEDGER_POOLS; i++) {
        uint64_t bytes;
        assert_true(placer_pool(placer, &ledger->pools[i], i % 2, &options, &bytes));
        *steady = *steady && placer_is_steady(placer);
        sum += bytes;
    }
    return sum;
}

static void steady_micro_batches_stand_for_more_of_them(void **state)
{
    struct placer *placer = placer_new();
    struct ledger few = {.places = NULL}, all = {.places = NULL};
    uint32_t steady_count = 0, unsteady_count = 0, grown_count = 0;
    (void)state;
    for (int i = 0; i < STEPS; i++) {
        struct pattern p;
        bool steady, ignored;
        draw(&p);
        put_step(&few, &p, FEW);
        put_step(&all, &p, ALL);
        assert_true(ledger_repeats(&few) && ledger_repeats(&all));
        const uint64_t of_few = reserved(placer, &few, i % 2, &steady);
        const uint64_t of_all = reserved(placer, &all, i % 2, &ignored);
        steady_count += steady;
        unsteady_count += !steady;
        grown_count += of_few != of_all;
        if (steady)
            assert_int_equal(of_few, of_all);
    }
    assert_true(steady_count > STEPS / 10 && unsteady_count > STEPS / 10 && grown_count > 0);
    ledger_free(&few);
    ledger_free(&all);
    placer_free(placer);
}

/* One event more, of another size, or in another's place. */
static void micro_batches_that_differ_do_not_repeat(void **state)
{
    struct ledger ledger = {.places = NULL};
    struct pattern p;
    (void)state;
    draw(&p);
    for (uint32_t i = 0; i < BUFFERS; i++)
        p.buffer[i].bytes = (uint64_t)4 << 20;
    put_step(&ledger, &p, FEW);
    struct ledger_pool *pool = &ledger.pools[ledger_pool_of(LANE_COMPUTE, p.buffer[0].bytes)];
    assert_true(ledger_repeats(&ledger));
    for (uint32_t e = pool->begins[0].event; e < pool->begins[2].event; e++) {
        const struct ledger_event as_it_was = pool->step.at[e];
        pool->step.at[e].units++;
        assert_false(ledger_repeats(&ledger));
        pool->step.at[e] = as_it_was;
        pool->step.at[e].what ^= LEDGER_LATER_STEPS;
        assert_false(ledger_repeats(&ledger));
        pool->step.at[e] = as_it_was;
        pool->step.at[e].what += 1U << LEDGER_SHIFT;
        assert_false(ledger_repeats(&ledger));
        pool->step.at[e] = as_it_was;
    }
    pool->begins[2].event--;
    assert_false(ledger_repeats(&ledger));
    ledger_free(&ledger);
}

int main(void)
{
    rng = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(rng, SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steady_micro_batches_stand_for_more_of_them),
        cmocka_unit_test(micro_batches_that_differ_do_not_repeat),
    };
    const int failed = cmocka_run_group_tests_name("placer_repeats", tests, NULL, NULL);
    gsl_rng_free(rng);
    return failed;
}
