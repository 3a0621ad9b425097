/* test_compiled_loss.c - a loss by torch.compile beside the programs that Inductor made of it
 * (tests/data/truth/compile_loss.jsonl): what is saved, births, kernels and deaths in order; and of
 * models with their loss inside (compile_inside.jsonl) what is saved. */
#include "families/families.h"
#include "tests/support/small_jobs.h"
#include "tests/support/truth.h"

#include "compile/compile.h"
#include "compile/region.h"
#include "graph/tape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PATH "tests/data/truth/compile_loss.jsonl"

enum { TEXT = 1024 };

/* The smallest model with such a loss. */
static struct graph *graph_of(const json_t *row)
{
    struct err err = {0};
    const json_t *m = json_object_get(row, "model");
    const char *store = truth_text(json_object_get(row, "strategy"), "store_dtype", "");
    struct job job = small_job(ARCH_LLAMA);
    struct graph *graph = NULL;
    job.config.vocab = truth_number(m, "vocab", 0);
    job.model.batch = truth_number(m, "batch", 0);
    job.model.seq = truth_number(m, "seq", 0);
    job.model.compute = strcmp(store, "fp32") == 0 ? DTYPE_FP32 : DTYPE_BF16;
    job.model.loss = CROSS_ENTROPY_COMPILED;
    if (model_build(&job.config, &job.model, &graph, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return graph;
}

static const struct tape_options loss_alone = {.compiled_loss = true};

/* ---- recorded ---- */

/* "+1024 +1024 k +4 +4 k -16": births by their bytes, kernels, deaths of what was born there (those
 * of what is from outside are Python's to let happen), each run of births or deaths by size. */
struct text {
    char of[TEXT];
    uint64_t run[64];
    size_t count;
    char sign;
};

static int by_size(const void *x, const void *y)
{
    const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

static void end_run(struct text *t)
{
    qsort(t->run, t->count, sizeof *t->run, by_size);
    for (size_t i = 0; i < t->count; i++) {
        const size_t at = strlen(t->of);
        snprintf(t->of + at, TEXT - at, "%c%llu ", t->sign, (unsigned long long)t->run[i]);
    }
    t->count = 0;
}

static void add(struct text *t, char sign, uint64_t bytes)
{
    if (sign != t->sign)
        end_run(t);
    t->sign = sign;
    assert_true(t->count < 64);
    t->run[t->count++] = bytes;
}

static void add_kernel(struct text *t)
{
    end_run(t);
    strncat(t->of, "k ", TEXT - strlen(t->of) - 1);
}

static void recorded_program(const json_t *events, struct text *t)
{
    size_t i;
    const json_t *event, *born[64];
    size_t count = 0;
    *t = (struct text){.count = 0};
    json_array_foreach(events, i, event)
    {
        const char *what = json_string_value(json_array_get(event, 0));
        const char *name = json_string_value(json_array_get(event, 1));
        if (strcmp(what, "+") == 0) {
            add(t, '+', (uint64_t)json_integer_value(json_array_get(event, 2)));
            born[count++] = event;
        } else if (strcmp(what, "kernel") == 0) {
            add_kernel(t);
        }
        for (size_t k = 0; strcmp(what, "-") == 0 && k < count; k++)
            if (strcmp(json_string_value(json_array_get(born[k], 1)), name) == 0)
                add(t, '-', (uint64_t)json_integer_value(json_array_get(born[k], 2)));
    }
    end_run(t);
}

/* ---- planned ---- */

static void planned_program(const struct compiled_region *region, const struct program *p,
                            struct text *t)
{
    *t = (struct text){.count = 0};
    for (uint32_t i = 0; i < p->act_count; i++) {
        const struct program_act *act = &p->acts[i];
        for (uint32_t w = 0; w < act->write_count; w++)
            if (act->over[w] == JOINT_NONE)
                add(t, '+', program_bytes(region->joint, p, act->writes[w]));
        add_kernel(t);
        for (uint32_t d = 0; d < act->die_count; d++)
            if (!p->memory[act->dies[d]].outside)
                add(t, '-', program_bytes(region->joint, p, act->dies[d]));
    }
    end_run(t);
}

static uint64_t bytes_of_entry(const json_t *entry)
{
    const char *dtype = json_string_value(json_array_get(entry, 0));
    uint64_t bytes = strcmp(dtype, "bfloat16") == 0 ? 2 : strcmp(dtype, "float32") == 0 ? 4 : 8;
    size_t d;
    const json_t *dim;
    json_array_foreach(json_array_get(entry, 1), d, dim) bytes *= (uint64_t)json_integer_value(dim);
    return bytes;
}

static void compare_saved(const json_t *row, const struct compiled_region *region)
{
    struct text recorded = {.count = 0}, planned = {.count = 0};
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(row, "saved"), i, entry)
    {
        add(&recorded, '+', bytes_of_entry(entry));
    }
    for (uint32_t k = 0; k < region->partition.saved_count; k++)
        add(&planned, '+', joint_bytes(joint_at(region->joint, region->partition.saved[k])));
    end_run(&recorded);
    end_run(&planned);
    assert_string_equal(planned.of, recorded.of);
}

static void compare_programs(const json_t *row, const struct compiled_region *region)
{
    struct text recorded, planned;
    for (int backward = 0; backward < 2; backward++) {
        recorded_program(json_object_get(row, backward ? "backward" : "forward"), &recorded);
        planned_program(region, backward ? region->backward : region->forward, &planned);
        if (strcmp(planned.of, recorded.of) != 0)
            fail_msg("%s: planned %s, recorded %s", truth_text(row, "name", ""), planned.of,
                     recorded.of);
    }
}

static void compare_row(const json_t *row)
{
    struct err err = {0};
    struct tape_regions regions;
    struct compiled_region region;
    struct graph *graph = graph_of(row);
    tape_run_regions(graph, &loss_alone, &regions);
    assert_int_equal(regions.count, 1);
    if (compiled_region_trace(graph, &regions, &regions.of[0], CHECKPOINT_NOT, &region, &err) !=
            ERR_OK ||
        compiled_region_finish(&region, &err) != ERR_OK)
        fail_msg("%s: %s", truth_text(row, "name", ""), err.text);
    compare_saved(row, &region);
    compare_programs(row, &region);
    compiled_region_free(&region);
    tape_regions_free(&regions);
    graph_free(graph);
}

static void losses_are_inductors(void **state)
{
    (void)state;
    char *line = NULL;
    size_t size = 0, rows = 0;
    FILE *file = fopen(PATH, "r");
    assert_non_null(file);
    for (; getline(&line, &size, file) > 0; rows++) {
        json_t *row = truth_row(line);
        assert_non_null(row);
        compare_row(row);
        json_decref(row);
    }
    free(line);
    fclose(file);
    assert_true(rows >= 8);
}

/* ---- inside of a model that is compiled whole ---- */

enum { BLOCKS_MOST = 8 };

struct sums { /* over a model and its loss, apart */
    long long saved, bytes, forward, backward;
};

static void add_region(const struct compiled_region *region, struct sums *sums)
{
    for (uint32_t i = 0; i < region->partition.saved_count; i++) {
        const struct joint_node *node = joint_at(region->joint, region->partition.saved[i]);
        const uint32_t place = node->of & PLACE_MASK;
        if (node->name == JOINT_INPUT && (place == PLACE_MODULE_BUFFER ||
                                          (node->source == SOURCE_PARAM && place != PLACE_INPUT)))
            continue; /* parameters and modules' buffers */
        sums->saved++;
        sums->bytes += (long long)joint_bytes(node);
    }
    sums->forward += region->forward->act_count;
    sums->backward += region->backward->act_count;
}

static struct sums apart(const json_t *row)
{
    const json_t *strategy = json_object_get(row, "strategy");
    const bool autocast = *truth_text(strategy, "autocast", "");
    const bool again = *truth_text(strategy, "ac", "");
    const struct tape_options options = {.compiled = COMPILED_MODEL, .compiled_loss = true};
    struct model_job job = {.compute = autocast ? DTYPE_FP32 : DTYPE_BF16,
                            .autocast = autocast,
                            .attention = ATTENTION_FLASH,
                            .loss = CROSS_ENTROPY_COMPILED};
    enum joint_checkpoint how[BLOCKS_MOST];
    struct err err = {0};
    struct model_config config;
    struct graph *graph = NULL;
    struct tape_regions regions;
    struct sums sums = {0};
    assert_true(truth_read_written(row, &config, &job));
    assert_true(config.layers <= BLOCKS_MOST);
    for (size_t i = 0; i < BLOCKS_MOST; i++)
        how[i] = again ? CHECKPOINT_AGAIN : CHECKPOINT_NOT;
    assert_int_equal(model_build(&config, &job, &graph, &err), ERR_OK);
    tape_run_regions(graph, &options, &regions);
    assert_int_equal(regions.count, 2);
    for (uint32_t i = 0; i < regions.count; i++) {
        struct compiled_region region;
        assert_int_equal(compiled_region_trace(graph, &regions, &regions.of[i], how, &region, &err),
                         ERR_OK);
        assert_int_equal(compiled_region_finish(&region, &err), ERR_OK);
        add_region(&region, &sums);
        compiled_region_free(&region);
    }
    tape_regions_free(&regions);
    graph_free(graph);
    return sums;
}

/* A model that computes its loss itself, as one graph, saves what it and its loss save apart.
 * Kernels are as many but where a row over many columns is reduced in two (256 x 32,000). */
static void losses_inside_save_what_they_save_apart(void **state)
{
    (void)state;
    char *line = NULL;
    size_t size = 0, rows = 0, same = 0;
    FILE *file = fopen("tests/data/truth/compile_inside.jsonl", "r");
    assert_non_null(file);
    for (; getline(&line, &size, file) > 0; rows++) {
        json_t *row = truth_row(line);
        const json_t *saved = json_object_get(row, "saved");
        const json_t *kernels = json_object_get(row, "kernels");
        const struct sums sums = apart(row);
        assert_int_equal(sums.saved, json_integer_value(json_array_get(saved, 0)));
        assert_int_equal(sums.bytes, json_integer_value(json_array_get(saved, 1)));
        same += sums.forward == json_integer_value(json_array_get(kernels, 0)) &&
                sums.backward == json_integer_value(json_array_get(kernels, 1));
        json_decref(row);
    }
    free(line);
    fclose(file);
    assert_true(rows >= 5);
    assert_true(same >= 4);
}

/* ---- in a step ---- */

/* Of the logits there is never a copy in fp32, and with them their gradient. */
static void logits_are_read_as_they_are(void **state)
{
    (void)state;
    struct err err = {0};
    struct job job = small_job(ARCH_LLAMA);
    struct graph *graph;
    struct stream *s;
    job.model.loss = CROSS_ENTROPY_COMPILED;
    assert_int_equal(model_build(&job.config, &job.model, &graph, &err), ERR_OK);
    assert_int_equal(compile_run(graph, &loss_alone, &s, &err), ERR_OK);
    const uint64_t logits = 1ULL * job.model.batch * job.model.seq * job.config.vocab;
    uint32_t whole = 0;
    for (uint32_t i = 0; i < s->buffer_count; i++)
        if (shape_elements(&s->buffers[i].shape) == logits) {
            assert_int_equal(s->buffers[i].dtype, job.model.compute);
            whole++;
        }
    assert_int_equal(whole, 2);
    stream_free(s);
    graph_free(graph);
}

/* Under every system, with eager blocks, checkpointed or not, and with compiled ones. */
static void every_kind_of_job_holds_together(void **state)
{
    (void)state;
    uint32_t planned = 0;
    for (int kind = 0; kind < SMALL_JOBS; kind++)
        for (int compiled = 0; compiled < 2; compiled++) {
            struct err err = {0};
            struct plan *plan;
            struct job job = small_job_of_kind(kind);
            if (compiled && job.strategy.system != SYSTEM_FSDP2)
                continue;
            job.model.loss = CROSS_ENTROPY_COMPILED;
            job.tape.compiled = compiled;
            const enum err_code rc = job_plan(&job, &plan, NULL, &err);
            if (rc == ERR_UNSUPPORTED)
                continue;
            if (rc != ERR_OK || plan_verify(plan, &err) != ERR_OK)
                fail_msg("kind %d: %s", kind, err.text);
            plan_free(plan);
            planned++;
        }
    assert_true(planned > SMALL_JOBS);
}

static void what_is_not_planned_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    struct plan *plan;
    struct job job = small_job(ARCH_LLAMA);
    job.model.loss = CROSS_ENTROPY_COMPILED;
    job.model.code = CODE_HF;
    assert_int_equal(job_plan(&job, &plan, NULL, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--loss compiled"));
    err = (struct err){0};
    job.model.code = CODE_TORCHTITAN;
    job.model.torch = 6;
    assert_int_equal(job_plan(&job, &plan, NULL, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "torch 2."));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_inductors),
        cmocka_unit_test(losses_inside_save_what_they_save_apart),
        cmocka_unit_test(logits_are_read_as_they_are),
        cmocka_unit_test(every_kind_of_job_holds_together),
        cmocka_unit_test(what_is_not_planned_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
