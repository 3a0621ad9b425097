/* test_room.c - parts of memory laid into areas (runtime/cuda/cuda_room.h), against what must hold
 * of any layout: each part lies whole in one area, aligned, and none touches another. */
#include "runtime/cuda/cuda_room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { PARTS = 4, AREAS = 3 };

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525U + 1013904223U;
    return (uint32_t)((uint64_t)*state * below >> 32);
}

static bool lies_in(const struct room_part *part, const struct room_area *area)
{
    return area->begin && part->at >= area->begin &&
           part->at + part->bytes <= area->begin + area->bytes;
}

static void parts_lie_in_areas_and_do_not_touch(void **state)
{
    (void)state;
    static char memory[AREAS][1 << 16];
    uint32_t random = 1;
    for (int round = 0; round < 20000; round++) {
        struct room_part parts[PARTS];
        struct room_area areas[AREAS];
        uint64_t left = 0, wanted = 0;
        for (int i = 0; i < PARTS; i++)
            parts[i] = (struct room_part){draw(&random, 9000), NULL};
        for (int i = 0; i < AREAS; i++) {
            const uint32_t skew = draw(&random, 300);
            areas[i] = (struct room_area){draw(&random, 5) ? memory[i] + skew : NULL,
                                          draw(&random, 40000), 0};
            left = room_lay(parts, PARTS, &areas[i]);
        }
        for (int i = 0; i < PARTS; i++) {
            bool inside = false;
            wanted += parts[i].at ? 0 : room_round(parts[i].bytes);
            for (int k = 0; k < AREAS && parts[i].at; k++)
                inside |= lies_in(&parts[i], &areas[k]);
            assert_true(inside || !parts[i].at);
            assert_int_equal((uintptr_t)parts[i].at % ROOM_ALIGNMENT, 0);
            for (int k = 0; k < i && parts[i].at; k++)
                assert_true(!parts[k].at || parts[k].at + parts[k].bytes <= parts[i].at ||
                            parts[i].at + parts[i].bytes <= parts[k].at);
        }
        assert_int_equal(left, wanted);
    }
}

/* An area of exactly the bytes that were left takes all of them, if it is aligned. */
static void what_is_left_fits_into_so_many_bytes(void **state)
{
    (void)state;
    static _Alignas(ROOM_ALIGNMENT) char memory[1 << 16];
    uint32_t random = 7;
    for (int round = 0; round < 1000; round++) {
        struct room_part parts[PARTS];
        struct room_area none = {NULL, 0, 0};
        for (int i = 0; i < PARTS; i++)
            parts[i] = (struct room_part){draw(&random, 9000), NULL};
        struct room_area all = {memory, room_lay(parts, PARTS, &none), 0};
        assert_int_equal(room_lay(parts, PARTS, &all), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_lie_in_areas_and_do_not_touch),
        cmocka_unit_test(what_is_left_fits_into_so_many_bytes),
    };
    return cmocka_run_group_tests_name("room", tests, NULL, NULL);
}
