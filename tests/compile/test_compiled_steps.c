/* test_compiled_steps.c - whole steps of models whose blocks are compiled, or that are as a whole,
 * beside recordings of them under FSDP2, DDP, FSDP1 and ZeRO
 * (tests/data/truth/compile_steps*.jsonl): every event of the sharding system, and how many bytes
 * live behind it. So who holds what crosses a program's border, and when that dies, is PyTorch's
 * own. */
#include "families/families.h"
#include "tests/support/truth.h"

#include "compile/compile.h"
#include "graph/tape_regions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const paths[] = {"tests/data/truth/compile_steps.jsonl",
                                    "tests/data/truth/compile_steps_float8.jsonl",
                                    "tests/data/truth/compile_steps_model.jsonl",
                                    "tests/data/truth/compile_steps_parts.jsonl",
                                    "tests/data/truth/compile_steps_frames.jsonl",
                                    "tests/data/truth/compile_steps_zero.jsonl",
                                    "tests/data/truth/compile_steps_hf.jsonl",
                                    "tests/data/truth/version_compile_steps.jsonl",
                                    "tests/data/truth/compile_steps_accelerate.jsonl",
                                    "tests/data/truth/compile_steps_more.jsonl",
                                    "tests/data/truth/compile_steps_frozen.jsonl",
                                    "tests/data/truth/compile_steps_families.jsonl",
                                    "tests/data/truth/compile_steps_moe.jsonl",
                                    "tests/data/truth/compile_steps_peft.jsonl",
                                    "tests/data/truth/compile_steps_titan.jsonl"};

/* Programs' own memory is Inductor's business (test_program.c). */
static bool is_border(const struct plan *plan, const struct plan_instruction *i)
{
    const struct buffer *b = &plan->buffers[i->arg];
    return b->category != CATEGORY_ACTIVATION && b->category != CATEGORY_BACKWARD;
}

/* Blocks of torchtitan's mixtures are eager around what they call: what is born there, before a
 * kernel that no program has. */
static bool is_eager_birth(const json_t *row, const struct plan *plan, uint32_t at)
{
    const char *code = truth_text(json_object_get(row, "strategy"), "code", "");
    if (strcmp(code, "torchtitan") != 0 || plan->instructions[at].op != PLAN_ALLOC)
        return false;
    while (at < plan->instruction_count && plan->instructions[at].op != PLAN_COMPUTE)
        at++;
    return at < plan->instruction_count && !plan_kernel(plan, plan->instructions[at].arg)->compiled;
}

/* Of weights that are gathered in float8 what has less is left out: scales, which are written in
 * place here (lower/fsdp2_float8.c), and lists of them, held to real tensors in tests/lower. */
enum { LEAST = 200 };

static uint64_t least_of(const json_t *row)
{
    const json_t *strategy = json_object_get(row, "strategy");
    return *truth_text(strategy, "float8_all_gather", "") ? LEAST : 1;
}

static bool is_event(const struct plan *plan, const struct plan_instruction *i, uint64_t least)
{
    return (i->op == PLAN_ALLOC || i->op == PLAN_FREE) && !(i->flags & PLAN_FIRST_STEP) &&
           !plan->buffers[i->arg].scratch && plan->buffers[i->arg].bytes >= least;
}

/* What dies may be a program's, whose memory has no operator's name, or that of an earlier use:
 * then how much of it dies where. */
static bool is_same_event(const json_t *row, const json_t *event, const struct plan *plan,
                          const struct plan_instruction *i, char ours[TRUTH_EVENT],
                          char theirs[TRUTH_EVENT])
{
    const bool same = truth_same_event(row, event, plan, i, ours, theirs);
    const char *where = strchr(ours, ' ');
    const char *what = where ? strchr(where + 1, ' ') : NULL;
    return same ||
           (i->op == PLAN_FREE && what && strncmp(ours, theirs, (size_t)(what + 1 - ours)) == 0);
}

/* What is born or dies in DeepSpeed's calls or the optimizer's step: where, and what. */
static size_t compare_zero(const json_t *row, const struct plan *plan)
{
    const json_t *list = json_object_get(row, "border");
    size_t next = 0, wrong = 0;
    long long live = 0;
    for (uint32_t n = 0; n < plan->instruction_count; n++) {
        const struct plan_instruction *i = &plan->instructions[n];
        char scope[256], ours[TRUTH_EVENT], theirs[TRUTH_EVENT];
        if (!is_event(plan, i, 1))
            continue;
        const struct buffer *b = &plan->buffers[i->arg];
        live += i->op == PLAN_FREE ? -(long long)b->bytes : (long long)b->bytes;
        plan_scope_text(plan, i, scope, sizeof scope);
        if (!strstr(scope, "ds_") && strncmp(scope, "opt", 3) != 0)
            continue;
        const json_t *event = json_array_get(list, next++);
        const long long their_live = json_integer_value(json_array_get(event, 4));
        if ((!is_same_event(row, event, plan, i, ours, theirs) || live != their_live) &&
            wrong++ < 5)
            print_error("%s: event %zu\n  recorded %s, then %lld live\n  planned  %s, then %lld "
                        "live\n",
                        truth_text(row, "name", ""), next - 1, theirs, their_live, ours, live);
    }
    return wrong + (next != json_array_size(list));
}

static size_t compare_border(const json_t *row, const struct plan *plan)
{
    const json_t *list = json_object_get(row, "border");
    size_t next = 0, wrong = 0;
    long long live = 0;
    for (uint32_t n = 0; n < plan->instruction_count; n++) {
        const struct plan_instruction *i = &plan->instructions[n];
        if (!is_event(plan, i, least_of(row)))
            continue;
        const struct buffer *b = &plan->buffers[i->arg];
        const long long delta = i->op == PLAN_FREE ? -(long long)b->bytes : (long long)b->bytes;
        live += delta;
        if (!is_border(plan, i) && !is_eager_birth(row, plan, n))
            continue;
        const json_t *event = json_array_get(list, next++);
        const long long their_delta = json_integer_value(json_array_get(event, 0));
        const long long their_live = json_integer_value(json_array_get(event, 2));
        const char *category = json_string_value(json_array_get(event, 1));
        const char *ours = category_name((enum category)b->category);
        if ((delta != their_delta || live != their_live || !category ||
             strcmp(category, ours) != 0) &&
            wrong++ < 5)
            print_error("%s: event %zu\n  recorded %lld %s, then %lld live\n  planned  %lld %s, "
                        "then %lld live\n",
                        truth_text(row, "name", ""), next - 1, their_delta,
                        category ? category : "none", their_live, delta, ours, live);
    }
    return wrong + (next != json_array_size(list));
}

/* As the recorded GPT-2 spells it, whose blocks have no modules inside. */
static const char *recorded_name(const char *ours, char *out, size_t room)
{
    static const char *const pairs[][2] = {
        {".attn.", "."}, {".mlp.c_proj", ".c_out"}, {".mlp.", "."}, {"transformer.", ""}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *at = strstr(ours, pairs[i][0]);
        if (!at)
            continue;
        snprintf(out, room, "%.*s%s%s", (int)(at - ours), ours, pairs[i][1],
                 at + strlen(pairs[i][0]));
        return out;
    }
    return ours;
}

static bool is_hf(const json_t *row)
{
    return strcmp(truth_text(json_object_get(row, "strategy"), "code", ""), "hf") == 0;
}

static bool is_model(const json_t *row)
{
    return strcmp(truth_text(json_object_get(row, "strategy"), "compile", ""), "model") == 0;
}

/* The row's model on its own. The caller frees it. */
static struct graph *graph_of(const json_t *row, enum dtype compute, bool autocast)
{
    struct err err = {0};
    struct model_config config = {0};
    struct model_job job = {
        .compute = compute,
        .autocast = autocast,
        .outputs_fp32 = *truth_text(json_object_get(row, "strategy"), "outputs", ""),
        .attention = ATTENTION_FLASH,
        .frozen = truth_text(json_object_get(row, "strategy"), "freeze", NULL),
        .lora = truth_text(json_object_get(row, "strategy"), "lora", NULL),
        .lora_dropout = (float)json_number_value(
            json_object_get(json_object_get(row, "strategy"), "lora_dropout")),
        .wide_trained = *truth_text(json_object_get(row, "strategy"), "lora_dtype", ""),
        .compiled = true,
        .traced = is_model(row)};
    struct graph *graph;
    assert_true(truth_read_either(row, &config, &job));
    assert_int_equal(model_build(&config, &job, &graph, &err), ERR_OK);
    return graph;
}

/* In which order gradients of parameters are complete, which fills DDP's buckets. */
static size_t compare_gradients(const json_t *row)
{
    const json_t *names = json_object_get(row, "gradients");
    struct err err = {0};
    struct stream *s;
    const json_t *strategy = json_object_get(row, "strategy");
    const bool again = *truth_text(strategy, "ac", "");
    const struct tape_options options = {
        .compiled = is_model(row) ? COMPILED_MODEL : COMPILED_BLOCKS,
        .checkpointing = again ? CHECKPOINTING_FULL : CHECKPOINTING_NONE,
        .bucket_bytes = (uint64_t)truth_number(strategy, "bucket_cap_mb", 25) << 20,
        .whole_graphs = !truth_bool(strategy, "optimize_ddp", false)};
    size_t next = 0, wrong = 0;
    if (json_array_size(names) == 0)
        return 0;
    const bool low = *truth_text(strategy, "store_dtype", "");
    struct graph *graph =
        graph_of(row, low ? DTYPE_BF16 : DTYPE_FP32, *truth_text(strategy, "autocast", ""));
    assert_int_equal(compile_run(graph, &options, &s, &err), ERR_OK);
    for (uint32_t i = 0; i < s->step_count; i++) {
        if (s->steps[i].kind != STEP_GRAD)
            continue;
        char name[128];
        const char *own = graph->params[s->grads[s->steps[i].arg].param].name;
        const char *ours = is_hf(row) ? own : recorded_name(own, name, sizeof name);
        const char *theirs = json_string_value(json_array_get(names, next++));
        if ((!theirs || strcmp(ours, theirs) != 0) && wrong++ < 3)
            print_error("%s: gradient %zu is of %s, recorded %s\n", truth_text(row, "name", ""),
                        next - 1, ours, theirs ? theirs : "none");
    }
    stream_free(s);
    graph_free(graph);
    return wrong + (next != json_array_size(names));
}

static bool is_product(const struct kernel *kernel)
{
    const enum work_kind work = (enum work_kind)kernel->work;
    return kernel->compiled &&
           ((work_is_matmul(work) && (work < WORK_BMM_NN || work > WORK_BMM_TN)) ||
            work == WORK_ATTENTION || work == WORK_ATTENTION_BACKWARD);
}

/* What of backward has run before each bucket is reduced: what the part that filled it has in it,
 * and those behind. */
static size_t compare_reductions(const json_t *row, const struct plan *plan)
{
    const json_t *list = json_object_get(row, "reduced");
    size_t next = 0, wrong = 0;
    long long products = 0;
    for (uint32_t n = 0; list && n < plan->instruction_count; n++) {
        const struct plan_instruction *i = &plan->instructions[n];
        if (i->flags & PLAN_FIRST_STEP)
            continue;
        if (i->op == PLAN_COMPUTE)
            products += is_product(plan_kernel(plan, i->arg));
        if (i->op != PLAN_ALL_REDUCE)
            continue;
        const struct kernel *reduction = plan_kernel(plan, i->arg);
        const json_t *bucket = json_array_get(list, next++);
        const long long bytes = (long long)shape_bytes(&reduction->operands->shape,
                                                       (enum dtype)reduction->operands->dtype);
        const long long their_bytes = json_integer_value(json_array_get(bucket, 0));
        const long long their_products = json_integer_value(json_array_get(bucket, 1));
        if ((bytes != their_bytes || products != their_products) && wrong++ < 5)
            print_error("%s: all-reduce %zu has %lld bytes behind %lld products, recorded %lld "
                        "behind %lld\n",
                        truth_text(row, "name", ""), next - 1, bytes, products, their_bytes,
                        their_products);
    }
    return wrong + (next != json_array_size(list));
}

/* Into how many graphs hooks break a model that is compiled whole. */
static size_t compare_runs(const json_t *row)
{
    const json_t *recorded = json_object_get(row, "runs");
    const json_t *s = json_object_get(row, "strategy");
    struct strategy strategy;
    struct tape_options options = {.compiled = COMPILED_MODEL};
    struct tape_regions regions;
    if (!recorded)
        return 0;
    truth_strategy(row, &strategy);
    system_tape(&strategy, &options);
    options.whole_graphs = !truth_bool(s, "optimize_ddp", false);
    if (*truth_text(s, "ac", ""))
        options.checkpointing = CHECKPOINTING_FULL;
    struct graph *graph = graph_of(
        row, strategy.compute, *truth_text(s, "autocast", "") && strategy.system != SYSTEM_FSDP1);
    tape_run_regions(graph, &options, &regions);
    long long runs = regions.count;
    for (uint32_t i = 0; i < regions.count; i++)
        runs += regions.of[i].backward_first < regions.of[i].backward_end;
    runs += options.head_hooks && is_hf(row); /* the slice before the head has no kernel */
    runs *= truth_number(s, "accumulate", 1);
    const bool same = runs == json_integer_value(recorded);
    if (!same)
        print_error("%s: %lld graphs run, recorded %lld\n", truth_text(row, "name", ""), runs,
                    json_integer_value(recorded));
    tape_regions_free(&regions);
    graph_free(graph);
    return !same;
}

struct count {
    size_t rows, events, wrong;
};

static void compare_file(const char *path, struct count *count)
{
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (; getline(&line, &size, file) > 0; count->rows++) {
        json_t *row = truth_row(line);
        struct plan *plan = truth_plan(row, truth_read_either);
        assert_non_null(plan);
        const char *system = truth_text(json_object_get(row, "strategy"), "system", "");
        const bool zero = strcmp(system, "deepspeed") == 0;
        count->wrong += zero ? compare_zero(row, plan)
                             : compare_border(row, plan) + compare_gradients(row) +
                                   compare_reductions(row, plan) + compare_runs(row);
        count->events += json_array_size(json_object_get(row, "border"));
        plan_free(plan);
        json_decref(row);
    }
    free(line);
    fclose(file);
}

/* COMPILED_STEPS: a file of one's own instead (tests/truth/random_compiled.py). */
static void steps_are_as_recorded(void **state)
{
    (void)state;
    struct count count = {0};
    const char *own = getenv("COMPILED_STEPS");
    for (size_t i = 0; i < (own ? 1 : sizeof paths / sizeof *paths); i++)
        compare_file(own ? own : paths[i], &count);
    print_message("%zu steps, %zu events, %zu differ\n", count.rows, count.events, count.wrong);
    assert_int_equal(count.wrong, 0);
    assert_true(own || count.rows >= 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_are_as_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
