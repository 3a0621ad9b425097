/* test_kernel.c - shapes of more elements than one dim holds. */
#include "base/kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void a_column_has_all_elements(void **state)
{
    static const struct {
        uint64_t elements;
        uint32_t row;
    } cases[] = {
        {0, 1},
        {1, 1},
        {UINT32_MAX, 1},
        {UINT32_MAX + 1ULL, 2},
        {65537ULL * 65537, 65537},        /* a mask of 65,537 tokens */
        {16777216ULL * 16777216, 131072}, /* of the longest sequence that there is */
        {128ULL * 5120 * 8192, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct shape shape = shape_column(cases[i].elements);
        assert_int_equal(shape.rank, 2);
        assert_int_equal(shape_elements(&shape), cases[i].elements);
        assert_int_equal(shape.dim[1], cases[i].row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_column_has_all_elements)};
    return cmocka_run_group_tests_name("kernel", tests, NULL, NULL);
}
