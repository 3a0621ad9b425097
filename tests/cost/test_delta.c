/* test_delta.c - the gated delta rule's kernels beside what they took on real GPUs. */
#include "tests/support/delta_rule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* H200's and GB200's forward were fitted to; backward, heads of 64 and all but a share of RTX 5090
 * were not. */
static void kernels_take_as_long_as_they_did(void **state)
{
    (void)state;
    static const struct {
        size_t count;
        double most;
    } expected[DELTA_GROUPS] = {{81, 0.06}, {8, 0.15}, {2, 0.15}, {81, 0.06}, {8, 0.15}, {81, 0.2}};
    struct delta_group groups[DELTA_GROUPS];
    size_t count;
    struct delta_row *rows = delta_rows_read(&count);
    delta_groups(rows, count, groups);
    for (size_t g = 0; g < DELTA_GROUPS; g++) {
        print_message("note: %s, %s, %s: %zu rows, %.1f %%, bias %+.1f %%, worst %+.1f %%\n",
                      groups[g].gpu, groups[g].backward ? "backward" : "forward", groups[g].source,
                      groups[g].count, 100 * groups[g].error, 100 * groups[g].bias,
                      100 * groups[g].worst);
        assert_int_equal(groups[g].count, expected[g].count);
        assert_true(groups[g].error <= expected[g].most);
    }
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_take_as_long_as_they_did)};
    return cmocka_run_group_tests_name("delta", tests, NULL, NULL);
}
