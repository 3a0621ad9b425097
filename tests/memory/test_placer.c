/* test_placer.c - the placer beside the allocator that it stands for: random ledgers, call by call.
 */
#include "memory/placer.h"

#include "memory/allocator.h"

#include <gsl/gsl_rng.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { LEDGERS = 3000, SLOTS = 160, KEPT = 8, SEED = 20261122 };

static gsl_rng *rng;

static uint32_t below(uint32_t n)
{
    return (uint32_t)gsl_rng_uniform_int(rng, n);
}

/* ---- ledgers ---- */

/* Few sizes, as in a model, so that blocks are found again; now and then any size. */
static uint32_t draw_units(bool small, const uint32_t *sizes, uint32_t count)
{
    const uint32_t most = small ? 2048 : 1 << (12 + below(8));
    const uint32_t least = small ? 1 : 2049;
    if (below(8))
        return sizes[below(count)];
    return least + below(most);
}

static void add(struct ledger_list *list, uint32_t slot, uint32_t flags, uint32_t units)
{
    ledger_add(list, (struct ledger_event){slot << LEDGER_SHIFT | flags, units});
}

enum life { DEAD, ALIVE, RESIDENT };

struct drawn {
    struct ledger_pool pool;
    enum life life[SLOTS];
    uint32_t units[SLOTS], sizes[6], size_count;
    bool small;
};

static void change_one(struct drawn *d, uint32_t slot, uint32_t growth)
{
    struct ledger_list *step = &d->pool.step;
    const uint32_t units = draw_units(d->small, d->sizes, d->size_count);
    switch (d->life[slot]) {
    case DEAD:
        if (below(growth) == 0)
            return;
        add(step, slot, 0, units);
        d->life[slot] = ALIVE;
        break;
    case ALIVE:
        add(step, slot, LEDGER_FREE, 0);
        d->life[slot] = DEAD;
        break;
    case RESIDENT: /* given up for a while: comes back as large as it was */
        if (below(4))
            return;
        add(step, slot, LEDGER_FREE, 0);
        for (uint32_t i = below(5); i-- > 0;)
            change_one(d, SLOTS / 2 + below(SLOTS / 2), growth);
        add(step, slot, 0, d->units[slot]);
        break;
    }
}

/* What the first step allocates for good, and what each step leaves to the next: in slots behind
 * the others'. */
static void keep_one(struct drawn *d, uint32_t kept)
{
    const uint32_t units = draw_units(d->small, d->sizes, d->size_count);
    const bool carried = below(2);
    if (carried)
        add(&d->pool.step, SLOTS + kept, LEDGER_FREE | LEDGER_LATER_STEPS, 0);
    add(&d->pool.step, SLOTS + kept, carried ? 0 : LEDGER_FIRST_STEP, units);
}

static void draw(struct drawn *d)
{
    *d = (struct drawn){.small = below(2), .size_count = 1 + below(6)};
    d->pool.slots = SLOTS + KEPT;
    for (uint32_t i = 0; i < d->size_count; i++)
        d->sizes[i] = d->small ? 1 + below(2048) : 2049 + below(1U << (12 + below(8)));
    for (uint32_t slot = 0; slot < SLOTS / 4; slot++) {
        if (below(2))
            continue;
        d->units[slot] = draw_units(d->small, d->sizes, d->size_count);
        d->life[slot] = RESIDENT;
        add(&d->pool.before, slot, 0, d->units[slot]);
    }
    const uint32_t changes = 50 + below(800), growth = 1 + below(4);
    for (uint32_t i = 0, kept = 0; i < changes; i++) {
        change_one(d, below(SLOTS), growth);
        if (kept < KEPT && below(changes) < KEPT)
            keep_one(d, kept++);
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        if (d->life[slot] == ALIVE)
            change_one(d, slot, growth);
}

static void drop(struct drawn *d)
{
    free(d->pool.before.at);
    free(d->pool.step.at);
}

/* ---- the longer way ---- */

struct longer {
    struct allocator *allocator;
    struct allocator_block *blocks[SLOTS + KEPT];
};

static void follow(struct longer *l, const struct ledger_list *list, uint32_t skipped)
{
    struct err err = {0};
    for (uint32_t i = 0; i < list->count; i++) {
        const struct ledger_event event = list->at[i];
        struct allocator_block **block = &l->blocks[event.what >> LEDGER_SHIFT];
        const uint64_t bytes = (uint64_t)event.units * LEDGER_UNIT;
        if (event.what & skipped)
            continue;
        if (event.what & LEDGER_FREE)
            allocator_free_block(l->allocator, *block);
        else /* rounded as the units are */
            assert_int_equal(
                allocator_alloc(l->allocator, bytes - below(LEDGER_UNIT), 0, block, &err), ERR_OK);
    }
}

static uint64_t reserved_by_allocator(const struct ledger_pool *pool,
                                      const struct placer_options *options)
{
    const struct allocator_settings settings = {
        .expandable_segments = options->expandable_segments,
        .device_bytes = options->device_bytes,
    };
    struct longer l = {.allocator = allocator_new(&settings)};
    follow(&l, &pool->before, 0);
    follow(&l, &pool->step, LEDGER_LATER_STEPS);
    follow(&l, &pool->step, LEDGER_FIRST_STEP);
    const uint64_t reserved = allocator_stats(l.allocator)->reserved_peak;
    allocator_free(l.allocator);
    return reserved;
}

/* Asked for no more than matters: of a pool that is remembered, and of one that is not. */
static void assert_enough_is_enough(struct placer *placer, const struct drawn *d,
                                    struct placer_options options, uint64_t expected)
{
    struct placer *fresh = placer_new();
    struct placer *const asked[] = {placer, fresh};
    const uint64_t some[] = {expected / 2, expected - LEDGER_UNIT, expected};
    for (size_t k = 0; k < 3 && expected > 2 * LEDGER_UNIT; k++)
        for (size_t i = 0; i < 2; i++) {
            uint64_t found = 0;
            options.enough_bytes = some[k];
            assert_true(placer_pool(asked[i], &d->pool, d->small, &options, &found));
            assert_int_equal(found, some[k] < expected ? UINT64_MAX : expected);
        }
    placer_free(fresh);
}

static void random_ledgers_reserve_the_same(void **state)
{
    struct placer *placer = placer_new();
    uint64_t differing = 0, largest = 0;
    (void)state;
    for (int i = 0; i < LEDGERS; i++) {
        struct drawn d;
        draw(&d);
        uint64_t before = 0;
        for (int expandable = 0; expandable < 2; expandable++) {
            const struct placer_options options = {.expandable_segments = expandable,
                                                   .device_bytes = (uint64_t)80 << 30};
            const uint64_t expected = reserved_by_allocator(&d.pool, &options);
            uint64_t found = 0, again = 0;
            assert_true(placer_pool(placer, &d.pool, d.small, &options, &found));
            assert_int_equal(found, expected);
            assert_true(placer_pool(placer, &d.pool, d.small, &options, &again)); /* remembered */
            assert_int_equal(again, expected);
            assert_enough_is_enough(placer, &d, options, expected);
            differing += expandable && before != expected;
            largest = expected > largest ? expected : largest;
            before = expected;
        }
        drop(&d);
    }
    assert_true(differing > LEDGERS / 4 && largest > (uint64_t)1
                                                         << 30); /* what is to be told apart */
    placer_free(placer);
}

/* One event less, or another size: nothing that was remembered is taken for it. */
static void what_is_remembered_is_told_apart(void **state)
{
    struct placer *placer = placer_new();
    const struct placer_options options = {.device_bytes = (uint64_t)80 << 30};
    (void)state;
    for (int i = 0; i < LEDGERS / 10; i++) {
        struct drawn d;
        uint64_t found;
        draw(&d);
        assert_true(placer_pool(placer, &d.pool, d.small, &options, &found));
        for (uint32_t k = 0; k < d.pool.step.count; k += 7)
            if (!(d.pool.step.at[k].what & LEDGER_FREE))
                d.pool.step.at[k].units += d.small ? 0 : 1;
        add(&d.pool.before, d.pool.slots++, 0, d.small ? 2048 : 40000);
        struct placer *fresh = placer_new();
        uint64_t expected;
        assert_true(placer_pool(fresh, &d.pool, d.small, &options, &expected));
        assert_true(placer_pool(placer, &d.pool, d.small, &options, &found));
        assert_int_equal(found, expected);
        placer_free(fresh);
        drop(&d);
    }
    placer_free(placer);
}

/* What a range of expandable segments has no room for is not planned, nor is a device of 3 TiB. */
static void what_is_too_large_is_refused(void **state)
{
    struct placer *placer = placer_new();
    struct ledger_pool pool = {.slots = 16};
    uint64_t bytes;
    (void)state;
    for (uint32_t slot = 0; slot < 16; slot++)
        add(&pool.before, slot, 0, 1U << 28); /* 128 GiB each */
    const struct placer_options ranges = {.expandable_segments = true,
                                          .device_bytes = (uint64_t)80 << 30};
    assert_false(placer_pool(placer, &pool, false, &ranges, &bytes));
    const struct placer_options segments = {.device_bytes = (uint64_t)80 << 30};
    assert_false(placer_pool(placer, &pool, false, &segments, &bytes));
    pool.before.count = 15;
    assert_true(placer_pool(placer, &pool, false, &segments, &bytes));
    assert_int_equal(bytes, (uint64_t)15 << 37);
    free(pool.before.at);
    placer_free(placer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_ledgers_reserve_the_same),
        cmocka_unit_test(what_is_remembered_is_told_apart),
        cmocka_unit_test(what_is_too_large_is_refused),
    };
    rng = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(rng, SEED);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gsl_rng_free(rng);
    return failed;
}
