/* reference.c - see reference.h. */
#include "tests/support/reference.h"

#include "tests/support/folder.h"
#include "tests/support/local_ranks.h"
#include "tests/support/program.h"
#include "tests/support/trajectory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static const char *folder; /* that of trajectory.h, with its rows */
static const json_t *references;
static const char *device = ""; /* options of every run */

/* ---- the reference models ---- */

static int integer(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

static bool is_llama(const json_t *reference)
{
    return strcmp(json_string_value(json_object_get(reference, "kind")), "llama") == 0;
}

void reference_write_config(const json_t *reference)
{
    char path[256];
    const json_t *c = json_object_get(reference, "config");
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    if (is_llama(reference))
        fprintf(file,
                "{\"model_type\": \"llama\", \"hidden_size\": %d, \"num_hidden_layers\": %d, "
                "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
                "\"intermediate_size\": %d, \"vocab_size\": %d, \"max_position_embeddings\": %d, "
                "\"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}",
                integer(c, "dim"), integer(c, "layers"), integer(c, "heads"),
                integer(c, "kv_heads"), integer(c, "ffn"), integer(c, "vocab"), integer(c, "seq"));
    else
        fprintf(file,
                "{\"model_type\": \"gpt2\", \"n_embd\": %d, \"n_layer\": %d, \"n_head\": %d, "
                "\"vocab_size\": %d, \"n_positions\": %d, \"tie_word_embeddings\": true}",
                integer(c, "dim"), integer(c, "layers"), integer(c, "heads"), integer(c, "vocab"),
                integer(c, "seq"));
    fclose(file);
}

/* The reference leaves out the names of the modules in between: "h.0.c_proj.weight" is
 * "h.0.attn.c_proj.weight", and "m_proj" the MLP's c_proj. */
void reference_name(const char *name, char *out, size_t size)
{
    static const char *const moved[][2] = {
        {".wq.", ".attention.wq."},    {".wk.", ".attention.wk."},    {".wv.", ".attention.wv."},
        {".wo.", ".attention.wo."},    {".w1.", ".feed_forward.w1."}, {".w2.", ".feed_forward.w2."},
        {".w3.", ".feed_forward.w3."}, {".c_attn.", ".attn.c_attn."}, {".c_proj.", ".attn.c_proj."},
        {".c_fc.", ".mlp.c_fc."},      {".m_proj.", ".mlp.c_proj."},
    };
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++) {
        const char *at = strstr(name, moved[i][0]);
        if (!at)
            continue;
        snprintf(out, size, "%.*s%s%s", (int)(at - name), name, moved[i][1],
                 at + strlen(moved[i][0]));
        return;
    }
    snprintf(out, size, "%s", name);
}

/* The formula of tests/data/numerics/README.md. */
static float initial_value(const char *name, size_t rank, uint64_t p, uint64_t i)
{
    const size_t length = strlen(name);
    if (strcmp(name + length - 4, "bias") == 0)
        return 0.0F;
    if (rank == 1)
        return 1.0F;
    uint32_t x = (uint32_t)(i * 2654435761U + (p + 1) * 40503U * 65537U + 12345U);
    x = (x ^ (x >> 16)) * 2246822519U;
    return (float)(((double)x / 4294967296.0 - 0.5) * 0.2);
}

static uint64_t elements(const json_t *shape)
{
    uint64_t count = 1;
    for (size_t i = 0; i < json_array_size(shape); i++)
        count *= (uint64_t)json_integer_value(json_array_get(shape, i));
    return count;
}

/* Initial parameters as one safetensors file. */
void reference_write_initial(const json_t *reference)
{
    char path[256], name[256];
    const json_t *parameters = json_object_get(reference, "parameters");
    json_t *header = json_object();
    json_int_t offset = 0;
    for (size_t p = 0; p < json_array_size(parameters); p++) {
        const json_t *entry = json_array_get(parameters, p);
        json_t *shape = json_array_get(entry, 1);
        const json_int_t bytes = 4 * (json_int_t)elements(shape);
        reference_name(json_string_value(json_array_get(entry, 0)), name, sizeof name);
        json_object_set_new(header, name,
                            json_pack("{s:s, s:O, s:[I,I]}", "dtype", "F32", "shape", shape,
                                      "data_offsets", offset, offset + bytes));
        offset += bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    const uint64_t length = strlen(text);
    snprintf(path, sizeof path, "%s/initial.safetensors", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(&length, sizeof length, 1, file);
    fwrite(text, 1, length, file);
    for (size_t p = 0; p < json_array_size(parameters); p++) {
        const json_t *entry = json_array_get(parameters, p);
        const json_t *shape = json_array_get(entry, 1);
        const char *plain = json_string_value(json_array_get(entry, 0));
        for (uint64_t i = 0; i < elements(shape); i++) {
            const float value = initial_value(plain, json_array_size(shape), p, i);
            fwrite(&value, sizeof value, 1, file);
        }
    }
    fclose(file);
    free(text);
    json_decref(header);
}

/* ---- one run ---- */

void reference_check_memory(int ranks, const char *what)
{
    for (int r = 0; r < ranks; r++) {
        char name[32] = "trace.json";
        if (r > 0)
            snprintf(name, sizeof name, "trace-%d.json", r);
        if (shardplan("compare %s/plan/plan.json %s/run/%s --quiet", folder, folder, name) != 0)
            fail_msg("%s: rank %d: %s", what, r, program_output());
    }
}

void reference_plan(const json_t *reference, const struct variation *v, const char *dtypes)
{
    char clip[48] = "";
    const json_t *max_norm = json_object_get(reference, "clip");
    if (json_is_number(max_norm))
        snprintf(clip, sizeof clip, "--clip %g", json_number_value(max_norm));
    const int seq = integer(json_object_get(reference, "config"), "seq");
    if (shardplan("plan %s/config.json --files plan --gpus %d --seq %d --micro-batch %d %s %s %s "
                  "-q -o %s/plan",
                  folder, v->ranks, seq, v->batch, dtypes, v->options, clip, folder) != 0)
        fail_msg("%s: %s", v->options, program_output());
}

static void check_run(const json_t *reference, const struct variation *v, const char *dtypes,
                      bool by_mpirun, int steps, double tolerance)
{
    char run[512];
    size_t seen;
    reference_plan(reference, v, dtypes);
    snprintf(run, sizeof run,
             "%s/plan/plan.json --steps %d --json -o %s/run --load-full %s/initial.safetensors %s",
             folder, steps, folder, folder, device);
    if ((by_mpirun ? shardplan("run %s -n %d", run, v->ranks) : local_ranks(v->ranks, "%s", run)) !=
        0)
        fail_msg("%d ranks %s: %s", v->ranks, v->options, program_output());
    const double worst = compare_steps(reference, &seen);
    assert_int_equal(seen, steps);
    if (!(worst <= tolerance))
        fail_msg("%d ranks %s: largest error %.3g", v->ranks, v->options, worst);
    reference_check_memory(v->ranks, v->options);
}

void reference_check_all(const struct variation *variations, size_t count, const char *dtypes,
                         double tolerance)
{
    for (size_t r = 0; r < json_array_size(references); r++) {
        const json_t *reference = json_array_get(references, r);
        reference_write_config(reference);
        reference_write_initial(reference);
        for (size_t i = 0; i < count; i++)
            if (r == 0 || *device || is_taken(i, count, 0))
                check_run(reference, &variations[i], dtypes, r == 0,
                          r == 0 || i == 0 ? TRAJECTORY_STEPS : TRAJECTORY_SOME, tolerance);
    }
}

void reference_check_each(const struct variation *variations, size_t count, const char *dtypes,
                          double tolerance)
{
    for (size_t r = 0; r < json_array_size(references); r++) {
        const json_t *reference = json_array_get(references, r);
        const bool clipped = json_is_number(json_object_get(reference, "clip"));
        reference_write_config(reference);
        reference_write_initial(reference);
        for (size_t i = is_llama(reference) == clipped; i < count; i += 2)
            if (is_taken(i / 2, 2, is_llama(reference)))
                check_run(reference, &variations[i], dtypes, false, TRAJECTORY_SOME, tolerance);
    }
}

void reference_check_continued(const struct variation *first, const struct variation *second,
                               const char *dtypes)
{
    const json_t *reference = json_array_get(references, 1);
    char command[128];
    size_t steps;
    reference_write_config(reference);
    reference_write_initial(reference);
    reference_plan(reference, first, dtypes);
    if (local_ranks(first->ranks,
                    "%s/plan/plan.json --steps 10 --quiet --save %s/saved "
                    "--load-full %s/initial.safetensors",
                    folder, folder, folder) != 0)
        fail_msg("%s", program_output());
    reference_plan(reference, second, dtypes);
    if (local_ranks(second->ranks, "%s/plan/plan.json --steps 20 --json --load %s/saved", folder,
                    folder) != 0)
        fail_msg("%s", program_output());
    assert_true(compare_steps(reference, &steps) <= 1e-5);
    assert_int_equal(steps, 10); /* 10 ... 19 */
    snprintf(command, sizeof command, "rm -rf %s/saved", folder);
    assert_int_equal(system(command), 0);
}

void reference_on(const char *options)
{
    device = options;
}

const char *reference_folder(void)
{
    return folder;
}

const json_t *reference_models(void)
{
    return references;
}

int reference_open(void **state)
{
    (void)state;
    const int rc = trajectories_open("reference");
    folder = trajectories_folder();
    references = trajectories();
    return rc == 0 ? mkdir(file_in(folder, "run"), 0777) : rc;
}
