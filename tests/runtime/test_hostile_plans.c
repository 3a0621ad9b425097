/* test_hostile_plans.c - a plan.json that can be read can be run: whatever is in it, no step
 * touches memory that is not a live buffer's. Real plans with places changed at random, and those
 * changes that once got through. tests/fuzz/fuzz_execute.c does the same for longer. */
#include "tests/support/guarded_run.h"
#include "tests/support/mutation.h"
#include "tests/support/small_jobs.h"
#include "tests/support/soak.h"
#include "tests/support/temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 20261122, MUTANTS = 30, SOAK_MUTANTS = 400 };

static int make_folder(void **state)
{
    (void)state;
    return temp_folder_make("hostile");
}

static int remove_folder(void **state)
{
    (void)state;
    return temp_folder_remove();
}

/* Programs as unlike each other as systems make them, of the least model. */
static const struct {
    enum arch arch;
    enum system_kind system;
    uint32_t world;
    enum code code;
} kinds[] = {
    {ARCH_GPT2, SYSTEM_FSDP2, 1, CODE_NANOGPT},     {ARCH_LLAMA, SYSTEM_FSDP2, 2, CODE_TORCHTITAN},
    {ARCH_LLAMA, SYSTEM_FSDP1, 2, CODE_TORCHTITAN}, {ARCH_GPT2, SYSTEM_DDP, 2, CODE_NANOGPT},
    {ARCH_LLAMA, SYSTEM_ZERO2, 2, CODE_TORCHTITAN}, {ARCH_LLAMA, SYSTEM_ZERO3, 2, CODE_TORCHTITAN},
    {ARCH_LLAMA, SYSTEM_FSDP2, 2, CODE_HF},         {ARCH_GPT2, SYSTEM_FSDP2, 1, CODE_HF},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The caller owns it. */
static json_t *seed_of(int kind)
{
    struct job job = small_job(kinds[kind].arch);
    struct err err = {0};
    job.model.code = kinds[kind].code;
    job.config.hidden = 16;
    job.config.heads = job.config.kv_heads = 2;
    job.config.head_dim = 8;
    job.config.ffn = 20;
    job.config.layers = 1;
    job.config.vocab = 40;
    job.config.dropout = 0;
    job.model.batch = 1;
    job.model.seq = 6;
    job.strategy.world = kinds[kind].world;
    job.strategy.system = kinds[kind].system;
    if (kinds[kind].system == SYSTEM_DDP)
        job.model.compute = job.strategy.compute = job.strategy.reduce = DTYPE_FP32;
    if (kinds[kind].system == SYSTEM_ZERO2 || kinds[kind].system == SYSTEM_ZERO3)
        job.strategy.zero = zero_defaults(kinds[kind].system == SYSTEM_ZERO2 ? 2 : 3);
    job.strategy.zero.reduce_bucket_size = 1000;
    struct plan *plan = small_plan_of(&job);
    if (plan_write_json(plan, NULL, path_of("a.json"), &err) != ERR_OK)
        fail_msg("%s", err.text);
    plan_free(plan);
    json_error_t at;
    json_t *tree = json_load_file(path_of("a.json"), 0, &at);
    assert_non_null(tree);
    return tree;
}

static enum err_code run_tree(const json_t *tree, uint32_t rank, struct err *err)
{
    bool ran;
    char *text = json_dumps(tree, JSON_COMPACT);
    assert_non_null(text);
    const enum err_code rc = guarded_run(text, strlen(text), rank, &ran, err);
    free(text);
    return rc;
}

static void plans_run_within_their_buffers(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        json_t *tree = seed_of(kind);
        for (uint32_t rank = 0; rank < kinds[kind].world; rank++) {
            struct err err = {0};
            if (run_tree(tree, rank, &err) != ERR_OK)
                fail_msg("%s, rank %u: %s", system_name(kinds[kind].system), rank, err.text);
        }
        json_decref(tree);
    }
}

static void what_is_changed_is_refused_or_harmless(void **state)
{
    (void)state;
    const uint32_t mutants = is_soak() ? SOAK_MUTANTS : MUTANTS;
    uint64_t place = SEED;
    uint32_t ended[2] = {0, 0};
    for (int kind = 0; kind < KINDS; kind++) {
        json_t *tree = seed_of(kind);
        for (uint32_t i = 0; i < mutants; i++) {
            json_t *mutant = json_deep_copy(tree);
            struct err err = {0};
            mutate_json(mutant, &place);
            const enum err_code rc = run_tree(mutant, i % kinds[kind].world, &err);
            assert_true(rc == ERR_OK || rc == ERR_UNSUPPORTED || err.text[0]);
            ended[rc == ERR_OK]++;
            json_decref(mutant);
        }
        json_decref(tree);
    }
    assert_true(ended[0] > KINDS * mutants / 10 && ended[1] > KINDS * mutants / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_run_within_their_buffers),
        cmocka_unit_test(what_is_changed_is_refused_or_harmless),
    };
    return cmocka_run_group_tests_name("hostile_plans", tests, make_folder, remove_folder);
}
