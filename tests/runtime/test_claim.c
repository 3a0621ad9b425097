/* test_claim.c - before the first step: a folder is one run's, and what cannot be written to is
 * known. */
#include "runtime/state/claim.h"
#include "tests/support/fake_execution.h"
#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct plan *make_plan(void)
{
    return mesh_plan((struct mesh){ROWS, 1, 1}, 0, ADAMW);
}

/* The places a run writes to, all below one folder; NULL: none. */
static enum err_code claims(const struct plan *plan, const char *save, const char *full,
                            const char *output, struct claim **out, struct err *err)
{
    return claim_open(plan, NULL, &(struct claim_places){save, full, output}, out, err);
}

/* As a checkpoint's, and as that of traces: what a second run of the kind hears. */
static void one_runs(bool save, const char *hears)
{
    char *folder = folder_new("claim");
    const char *a = file_in(folder, "a"), *b = file_in(folder, "b");
    struct plan *plan = make_plan();
    struct claim *first, *second;
    struct err err = {0};
    assert_int_equal(claims(plan, save ? a : NULL, NULL, save ? NULL : a, &first, &err), ERR_OK);
    assert_int_equal(claims(plan, save ? b : NULL, NULL, save ? NULL : b, &second, &err), ERR_OK);
    claim_release(second);
    assert_int_equal(claims(plan, save ? a : NULL, NULL, save ? NULL : a, &second, &err), ERR_IO);
    assert_non_null(strstr(err.text, hears));
    assert_null(second);
    assert_int_equal(claims(plan, save ? NULL : a, NULL, save ? a : NULL, &second, &err), ERR_OK);
    claim_release(second);
    claim_release(first);
    err = (struct err){0};
    assert_int_equal(claims(plan, a, NULL, a, &second, &err), ERR_OK);
    claim_release(second);
    assert_int_equal(rmdir(a), 0); /* nothing is left in it */
    assert_int_equal(rmdir(b), 0);
    plan_free(plan);
    folder_drop(folder);
}

static void a_folder_is_one_runs(void **state)
{
    (void)state;
    one_runs(true, "another run saves there");
    one_runs(false, "another run leaves its trace there");
}

static void what_cannot_be_written_is_known_before(void **state)
{
    (void)state;
    struct plan *plan = make_plan();
    struct claim *claim;
    static const struct claim_places places[] = {
        {.save = "/proc/here"},   {.save = "/dev/null"},         {.save = "/nonexistent/here"},
        {.output = "/proc/here"}, {.full = "/nonexistent/full"},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct err err = {0};
        assert_int_equal(claim_open(plan, NULL, &places[i], &claim, &err), ERR_IO);
        assert_non_null(strstr(err.text, "create "));
    }
    char *folder = folder_new("claim");
    struct err err = {0};
    plan->params[0].shape = SHAPE(UINT32_MAX, UINT32_MAX / 64);
    assert_int_equal(claims(plan, folder, NULL, NULL, &claim, &err), ERR_IO);
    assert_non_null(strstr(err.text, " has room for "));
    assert_int_equal(files_in(folder), 0);
    plan_free(plan);
    folder_drop(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_one_runs),
        cmocka_unit_test(what_cannot_be_written_is_known_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
