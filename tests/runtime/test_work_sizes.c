/* test_work_sizes.c - operands of more than 2^31 elements, for a GPU that has room for them:
 * indices that are 32 bits wide anywhere go round, and blocks loop. Numbers are chosen so that
 * every result is exact in bfloat16. */
#include "tests/support/backends.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS = 32776, COLUMNS = 65536 };

#define COUNT ((uint64_t)ROWS * COLUMNS) /* 2^31 + 2^19 */

static struct device *open_gpu(void)
{
    struct device *dev = NULL;
    struct err err = {0};
    if (open_cuda(0, 1, test_lanes, NULL, &dev, &err) == ERR_OK)
        return dev;
    printf("note: cuda: %s\n", err.text);
    skip();
    return NULL;
}

static struct work_operand bf16_at(uint64_t address, struct shape shape)
{
    return (struct work_operand){
        .data = (void *)(uintptr_t)address, .shape = shape, .dtype = DTYPE_BF16};
}

static void launch(struct device *dev, enum work_kind kind, float p, uint32_t ins, uint32_t outs,
                   const struct work_operand *operand)
{
    const struct work work = {.kind = kind,
                              .ins = ins,
                              .outs = outs,
                              .operand = operand,
                              .attr.p = p,
                              .ranks = 1,
                              .group = -1};
    struct err err = {0};
    if (device_launch(dev, LANE_COMPUTE, &work, &err) != ERR_OK || device_sync(dev, &err) != ERR_OK)
        fail_msg("%s: %s", work_name(kind), err.text);
}

/* Ends, and places on both sides of 2^31 elements and of 2^32 bytes. */
static void expect_all(struct device *dev, uint64_t address, uint16_t wanted, const char *what)
{
    const uint64_t half = (uint64_t)1 << 31;
    const uint64_t places[] = {0, 7, COUNT / 2, half - 1, half, half + 1, COUNT - 9, COUNT - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint16_t got = 0;
        assert_int_equal(device_read(dev, &got, address + 2 * places[i], sizeof got, NULL), ERR_OK);
        if (got != wanted)
            fail_msg("%s: element %llu is %04x instead of %04x", what,
                     (unsigned long long)places[i], got, wanted);
    }
}

static void more_than_2_to_the_31_elements(void **state)
{
    (void)state;
    struct device *dev = open_gpu();
    if (!dev)
        return;
    const struct shape all = SHAPE(ROWS, COLUMNS), row = SHAPE(1, COLUMNS);
    const uint64_t x = device_segment_new(dev, 2 * COUNT), y = device_segment_new(dev, 2 * COUNT);
    const uint64_t small = device_segment_new(dev, 4 * (uint64_t)COLUMNS);
    if (!x || !y || !small) {
        printf("note: the GPU has no room for %llu bytes\n", 4 * (unsigned long long)COUNT);
        device_close(dev);
        skip();
        return;
    }
    const struct work_operand big = bf16_at(x, all), other = bf16_at(y, all);
    launch(dev, WORK_FILL, 1.0F, 0, 1, &big);
    expect_all(dev, x, 0x3f80, "fill");
    launch(dev, WORK_MUL_NUMBER, 3.0F, 1, 1, (struct work_operand[]){big, other});
    expect_all(dev, y, 0x4040, "mul_number");
    launch(dev, WORK_ADD_IN_PLACE, 0, 1, 1, (struct work_operand[]){big, other});
    expect_all(dev, y, 0x4080, "add_in_place");
    launch(dev, WORK_SQUARE, 0, 1, 1, (struct work_operand[]){other, big});
    expect_all(dev, x, 0x4180, "square"); /* 16 */
    launch(dev, WORK_FILL, 1.0F, 0, 1, (struct work_operand[]){bf16_at(small, row)});
    launch(dev, WORK_ADD, 0, 2, 1, (struct work_operand[]){big, bf16_at(small, row), other});
    expect_all(dev, y, 0x4188, "add"); /* 17 */
    launch(dev, WORK_FILL, 1.0F, 0, 1, &big);
    launch(dev, WORK_SUM, 0, 1, 1, (struct work_operand[]){big, bf16_at(small, row)});
    uint16_t sums[2] = {0};
    assert_int_equal(device_read(dev, sums, small + 2 * (COLUMNS - 2), sizeof sums, NULL), ERR_OK);
    assert_int_equal(sums[0], 0x4700); /* 32776, rounded to 32768 */
    assert_int_equal(sums[1], 0x4700);
    float norm = 0;
    const struct work_operand of = {
        .data = (void *)(uintptr_t)small, .shape = {.rank = 0}, .dtype = DTYPE_FP32};
    launch(dev, WORK_NORMS, 0, 1, 1, (struct work_operand[]){big, of});
    assert_int_equal(device_read(dev, &norm, small, sizeof norm, NULL), ERR_OK);
    assert_true(fabs((double)norm / sqrt((double)COUNT) - 1) < 1e-6);
    device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "cuda: more_than_2_to_the_31_elements",
         .test_func = more_than_2_to_the_31_elements},
    };
    return cmocka_run_group_tests_name("work_sizes", tests, NULL, NULL);
}
