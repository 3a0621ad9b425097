/* ledger.c - see ledger.h. */
#include "plan/ledger.h"

#include <stdlib.h>

enum { NO_SLOT = UINT32_MAX };

void ledger_begin(struct ledger *ledger, const uint32_t *own_slots)
{
    for (uint32_t i = 0; i < LEDGER_POOLS; i++) {
        struct ledger_pool *pool = &ledger->pools[i];
        pool->before.count = pool->step.count = 0;
        pool->slots = own_slots[i];
    }
    ledger->place_count = ledger->micro_batches = 0;
    ledger->broken = false;
}

static struct ledger_place *place_of(struct ledger *ledger, uint32_t index)
{
    while (index >= ledger->place_count) {
        ARRAY_GROW(ledger->places, ledger->place_count, ledger->place_cap);
        ledger->places[ledger->place_count++] = (struct ledger_place){.slot = NO_SLOT};
    }
    return &ledger->places[index];
}

static struct ledger_pool *pool_of(struct ledger *ledger, const struct buffer *buffer)
{
    return &ledger->pools[ledger_pool_of(buffer->pool, buffer->bytes)];
}

uint32_t ledger_slot(struct ledger *ledger, uint32_t index, const struct buffer *buffer)
{
    struct ledger_place *place = place_of(ledger, index);
    if (place->slot == NO_SLOT)
        place->slot = pool_of(ledger, buffer)->slots++;
    return place->slot;
}

void ledger_note(struct ledger *ledger, uint32_t index, const struct buffer *buffer, uint32_t flags)
{
    if (!ledger_has(buffer))
        return;
    const uint32_t slot = ledger_slot(ledger, index, buffer);
    struct ledger_place *place = &ledger->places[index];
    const bool frees = flags & LEDGER_FREE;
    if (place->begin == LEDGER_NOTHING)
        place->begin = frees ? LEDGER_FREED : LEDGER_ALLOCATED;
    ledger->broken |= buffer->bytes > LEDGER_LARGEST;
    ledger_add(&pool_of(ledger, buffer)->step,
               (struct ledger_event){.what = slot << LEDGER_SHIFT | flags,
                                     .units = frees ? 0 : ledger_units(buffer->bytes)});
}

void ledger_micro_batch(struct ledger *ledger)
{
    ledger->micro_batches++;
    for (uint32_t i = 0; i < LEDGER_POOLS; i++) {
        struct ledger_pool *pool = &ledger->pools[i];
        pool->begins[0] = pool->begins[1];
        pool->begins[1] = pool->begins[2];
        pool->begins[2] = (struct ledger_mark){pool->step.count, pool->slots};
    }
}

/* A slot that was there before both micro-batches, or one of each; one of the micro-batch before
 * may be either, as plan_repeats has it. */
static bool is_same_slot(uint32_t a, uint32_t b, uint32_t first, uint32_t shift)
{
    return a + shift == b || (a < first && a == b);
}

static bool pool_repeats(const struct ledger_pool *pool)
{
    const struct ledger_mark *at = pool->begins;
    const uint32_t count = at[1].event - at[0].event, shift = at[1].slot - at[0].slot;
    const struct ledger_event *events = pool->step.at + at[0].event;
    if (at[2].event - at[1].event != count || at[2].slot - at[1].slot != shift)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct ledger_event a = events[i], b = events[count + i];
        const uint32_t flags = (1U << LEDGER_SHIFT) - 1;
        if (a.units != b.units || (a.what & flags) != (b.what & flags) ||
            !is_same_slot(a.what >> LEDGER_SHIFT, b.what >> LEDGER_SHIFT, at[0].slot, shift))
            return false;
    }
    return true;
}

bool ledger_repeats(const struct ledger *ledger)
{
    bool repeats = ledger->micro_batches > 3; /* the first one is like no other */
    for (uint32_t i = 0; i < LEDGER_POOLS && repeats; i++)
        repeats = pool_repeats(&ledger->pools[i]);
    return repeats;
}

void ledger_close(struct ledger *ledger, const struct plan *plan)
{
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        const struct buffer *buffer = &plan->buffers[b];
        if (!buffer->resident || !ledger_has(buffer) ||
            place_of(ledger, b)->begin == LEDGER_ALLOCATED)
            continue;
        ledger->broken |= buffer->bytes > LEDGER_LARGEST;
        const uint32_t slot = ledger_slot(ledger, b, buffer);
        ledger_add(&pool_of(ledger, buffer)->before,
                   (struct ledger_event){.what = slot << LEDGER_SHIFT,
                                         .units = ledger_units(buffer->bytes)});
    }
}

void ledger_free(struct ledger *ledger)
{
    for (uint32_t i = 0; i < LEDGER_POOLS; i++) {
        free(ledger->pools[i].before.at);
        free(ledger->pools[i].step.at);
    }
    free(ledger->places);
    *ledger = (struct ledger){.places = NULL};
}
