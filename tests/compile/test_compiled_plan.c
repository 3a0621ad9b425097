/* test_compiled_plan.c - plans whose blocks are compiled: they hold together, a block keeps what
 * AOTAutograd saved of it (tests/data/truth/compile.jsonl), and what is not planned is refused. */
#include "tests/support/compiled_block.h"
#include "tests/support/small_jobs.h"

#include "base/layout.h"
#include "compile/compile.h"
#include "families/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- what a block keeps ---- */

static uint64_t live_at_exit(const struct stream *s, uint32_t module)
{
    uint64_t live = 0;
    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct stream_step step = s->steps[i];
        if (step.kind == STEP_BIRTH)
            live += s->buffers[step.arg].bytes;
        if (step.kind == STEP_DEATH)
            live -= s->buffers[step.arg].bytes;
        if (step.kind == STEP_POST_FORWARD && step.arg == module)
            return live;
    }
    fail_msg("module %u is never left", module);
    return 0;
}

/* Bytes of saved memory that is the block's own, each once, and of its result. */
static uint64_t recorded_bytes(const json_t *row)
{
    const json_t *forward = json_object_get(row, "forward"), *event, *name;
    const json_t *out = json_array_get(json_array_get(forward, json_array_size(forward) - 1), 1);
    const char *kept[128] = {NULL};
    size_t i, count = 0;
    uint64_t bytes = 0;
    json_array_foreach(out, i, name)
    {
        bool known = false;
        for (size_t k = 0; k < count; k++)
            known |= strcmp(kept[k], json_string_value(name)) == 0;
        if (!known)
            kept[count++] = json_string_value(name);
    }
    json_array_foreach(forward, i, event) for (size_t k = 0; k < count; k++)
    {
        if (strcmp(json_string_value(json_array_get(event, 0)), "+") == 0 &&
            strcmp(json_string_value(json_array_get(event, 1)), kept[k]) == 0)
            bytes += (uint64_t)json_integer_value(json_array_get(event, 2));
    }
    return bytes;
}

static void blocks_keep_what_was_saved(void **state)
{
    (void)state;
    struct compiled_block block;
    size_t rows = 0;
    for (; compiled_block_read(rows, &block); rows++) {
        struct err err = {0};
        struct stream *stream;
        /* What comes to the first one may not be saved where nothing is trained before it. */
        const bool differ = json_object_get(block.row, "part");
        if (block.options.compiled == COMPILED_MODEL || differ) { /* no borders inside */
            compiled_block_free(&block);
            continue;
        }
        assert_int_equal(compile_run(block.graph, &block.options, &stream, &err), ERR_OK);
        assert_true(block.regions.count == 2);
        const uint64_t kept = live_at_exit(stream, block.regions.of[1].module) -
                              live_at_exit(stream, block.regions.of[0].module);
        if (kept != recorded_bytes(block.row))
            fail_msg("%s: a block keeps %llu bytes, recorded %llu",
                     truth_text(block.row, "name", ""), (unsigned long long)kept,
                     (unsigned long long)recorded_bytes(block.row));
        stream_free(stream);
        compiled_block_free(&block);
    }
    assert_true(rows >= 15);
}

/* ---- plans ---- */

#define TITAN_STEPS "tests/data/truth/compile_steps_titan.jsonl"

/* Strides are the plan's own, and not of a graph that is gone. */
static void check_strides(const struct plan *plan)
{
    for (uint32_t k = 0; k < plan->kernel_count; k++) {
        const struct kernel *kernel = plan_kernel(plan, k);
        for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
            const struct operand *o = &kernel->operands[i];
            for (uint32_t d = 0; o->layout && !layout_is_unknown(o->layout) && d < o->shape.rank;
                 d++)
                assert_true(o->layout->of[d] < 1 << 30);
        }
    }
}

static void check_plan(const struct job *job)
{
    struct err err = {0};
    struct plan *plan;
    if (job_plan(job, &plan, NULL, &err) != ERR_OK || plan_verify(plan, &err) != ERR_OK)
        fail_msg("%s", err.text);
    check_strides(plan);
    plan_free(plan);
}

static void plans_hold_together(void **state)
{
    (void)state;
    static const enum arch archs[] = {ARCH_LLAMA, ARCH_GPT2};
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++)
        for (int how = 0; how <= CHECKPOINTING_SELECTIVE; how++) {
            struct job job = small_job(archs[a]);
            job.tape.compiled = true;
            job.tape.checkpointing = (enum checkpointing)how;
            check_plan(&job);
            job.strategy.accumulate = 2;
            check_plan(&job);
            job.tape.checkpointed = CHECKPOINTED_FIRST;
            job.tape.checkpointed_number = 1;
            check_plan(&job);
            if (archs[a] == ARCH_GPT2)
                continue;             /* it has dropouts there */
            job.config.head_dim = 16; /* a multiple of 8: nothing is padded */
            job.config.hidden = 16 * job.config.heads;
            const uint32_t shared = job.config.kv_heads;
            job.config.kv_heads = 1; /* read again and again: by strides of 0 */
            check_plan(&job);
            job.config.kv_heads = shared;
            job.model.code = CODE_HF;
            check_plan(&job);
        }
}

/* Whatever else a job has: HSDP, accumulation, offload, frozen parameters, ... */
static void every_kind_of_job_holds_together(void **state)
{
    (void)state;
    static const char *const frozen[] = {NULL, "layers.*.attention.*",
                                         "tok_embeddings.*,layers.0.*", "layers.1.*", "*norm*"};
    uint32_t planned = 0;
    for (int kind = 0; kind < SMALL_JOBS; kind++)
        for (size_t i = 0; i < sizeof frozen / sizeof *frozen; i++) {
            struct err err = {0};
            struct plan *plan;
            struct job job = small_job_of_kind(kind);
            if (job.strategy.system > SYSTEM_DDP)
                continue;
            job.strategy.use_orig_params |= job.strategy.system == SYSTEM_FSDP1;
            job.tape.compiled = true;
            job.model.frozen = frozen[i];
            const enum err_code rc = job_plan(&job, &plan, NULL, &err);
            if (rc == ERR_UNSUPPORTED || (rc != ERR_OK && frozen[i])) /* no such name there */
                continue;
            if (rc != ERR_OK || plan_verify(plan, &err) != ERR_OK)
                fail_msg("kind %d, frozen %s: %s", kind, frozen[i] ? frozen[i] : "none", err.text);
            plan_free(plan);
            planned++;
        }
    assert_true(planned > SMALL_JOBS);
}

/* Blocks that are eager around what they call, and run that again where they are checkpointed: what
 * programs read is alive then, and written. */
static void torchtitans_mixtures_hold_together(void **state)
{
    (void)state;
    char *line = NULL;
    size_t size = 0, rows = 0;
    FILE *file = fopen(TITAN_STEPS, "r");
    assert_non_null(file);
    for (; getline(&line, &size, file) > 0; rows++) {
        struct err err = {0};
        json_t *row = truth_row(line);
        struct plan *plan = truth_plan(row, truth_read_either);
        assert_non_null(plan);
        if (plan_verify(plan, &err) != ERR_OK)
            fail_msg("%s: %s", truth_text(row, "name", ""), err.text);
        check_strides(plan);
        plan_free(plan);
        json_decref(row);
    }
    free(line);
    fclose(file);
    assert_true(rows >= 37);
}

/* Casts that eager autocast keeps for the whole forward are a block's own. */
static void casts_are_compiled_with_their_blocks(void **state)
{
    (void)state;
    static const enum arch archs[] = {ARCH_LLAMA, ARCH_GPT2};
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++)
        for (int how = 0; how <= CHECKPOINTING_FULL; how++) {
            struct job job = small_job(archs[a]);
            job.strategy.system = SYSTEM_DDP;
            job.model.autocast = true;
            job.model.compute = DTYPE_FP32;
            job.tape.compiled = true;
            job.tape.checkpointing = (enum checkpointing)how;
            check_plan(&job);
            job.strategy.accumulate = 2;
            check_plan(&job);
        }
}

/* Every buffer that is not a parameter's gradient dies in the step that it is born in. */
static void nothing_is_left(void **state)
{
    (void)state;
    struct compiled_block block;
    for (size_t i = 0; compiled_block_read(i, &block); i++) {
        struct err err = {0};
        struct stream *s;
        assert_int_equal(compile_run(block.graph, &block.options, &s, &err), ERR_OK);
        int *alive = calloc(s->buffer_count + 1, sizeof *alive);
        assert_non_null(alive);
        for (uint32_t k = 0; k < s->step_count; k++) {
            const struct stream_step step = s->steps[k];
            if (step.kind == STEP_BIRTH || step.kind == STEP_DEATH)
                alive[step.arg] += step.kind == STEP_BIRTH ? 1 : -1;
        }
        for (uint32_t g = 0; g < s->grad_count; g++)
            alive[s->grads[g].buffer]--;
        for (uint32_t b = 0; b < s->buffer_count; b++)
            assert_int_equal(alive[b], 0);
        free(alive);
        stream_free(s);
        compiled_block_free(&block);
    }
}

/* ---- refusals ---- */

static void expect_refusal(const struct job *job, const char *text)
{
    struct err err = {0};
    struct plan *plan;
    assert_int_equal(job_plan(job, &plan, NULL, &err), ERR_UNSUPPORTED);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void what_is_not_planned_is_refused(void **state)
{
    (void)state;
    struct job job = small_job(ARCH_MIXTRAL);
    job.config.experts = 4;
    job.config.experts_per_token = 2;
    job.tape.compiled = true;
    expect_refusal(&job, "--compile");
    job = small_job(ARCH_LLAMA);
    job.tape.compiled = true;
    job.strategy.system = SYSTEM_FSDP1;
    expect_refusal(&job, "--use-orig-params");

    struct err err = {0};
    struct graph *graph;
    struct model_config config = {0};
    struct model_job whole = {.compute = DTYPE_BF16, .compiled = true, .traced = true};
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(TITAN_STEPS, "r");
    assert_non_null(file);
    assert_true(getline(&line, &size, file) > 0);
    json_t *row = truth_row(line);
    assert_true(truth_read_hf(row, &config, &whole));
    assert_int_equal(model_build(&config, &whole, &graph, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--compile model (with --compile on they are)"));
    json_decref(row);
    free(line);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_keep_what_was_saved),
        cmocka_unit_test(plans_hold_together),
        cmocka_unit_test(every_kind_of_job_holds_together),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(casts_are_compiled_with_their_blocks),
        cmocka_unit_test(torchtitans_mixtures_hold_together),
        cmocka_unit_test(what_is_not_planned_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
