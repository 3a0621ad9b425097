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
    ledger->place_count = 0;
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
