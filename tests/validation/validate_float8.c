/* validate_float8.c - prints reports/validation/float8.md: published runs in float8 under
 * torch.compile, and bf16 beside them, with what is predicted of their time and memory. */
#include "families/families.h"
#include "tests/support/csv.h"

#include "base/arena.h"
#include "job/step_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH "tests/data/published/torchtitan_float8.csv"

static void fail(const struct err *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(2);
}

struct result {
    double step_s, reserved_gib;
};

struct sums { /* of errors, as shares */
    double time, time_absolute, memory, memory_absolute;
    uint32_t count;
};

static enum float8 recipe_of(const char *name)
{
    return strcmp(name, "tensorwise") == 0 ? FLOAT8_TENSORWISE
           : strcmp(name, "rowwise") == 0  ? FLOAT8_ROWWISE
                                           : FLOAT8_NONE;
}

/* torchtitan's llama3_8b.toml; attention is FlashAttention-2, which PyTorch took then. */
static void read_job(const struct csv *csv, size_t i, struct job *job)
{
    struct err err = {0};
    struct model_config config;
    if (model_find(csv_text(csv, i, "model"), &config, &err) != ERR_OK)
        fail(&err);
    job_defaults(job, &config);
    job->model.batch = (uint32_t)csv_number(csv, i, "micro_batch_per_gpu_seqs");
    job->model.seq = (uint32_t)csv_number(csv, i, "seq_len_tokens");
    job->model.float8 = recipe_of(csv_text(csv, i, "float8"));
    if (strcmp(csv_text(csv, i, "float8_all_gather"), "precomputed scales") == 0)
        job->model.float8_gather = FLOAT8_GATHER_PRECOMPUTED;
    if (strcmp(csv_text(csv, i, "float8_all_gather"), "dynamic scales") == 0)
        job->model.float8_gather = FLOAT8_GATHER_DYNAMIC;
    job->tape.checkpointing = strcmp(csv_text(csv, i, "act_ckpt"), "full") == 0
                                  ? CHECKPOINTING_FULL
                                  : CHECKPOINTING_SELECTIVE;
    job->tape.compiled = true;
    if (strcmp(csv_text(csv, i, "compile"), "blocks and loss") == 0)
        job->model.loss = CROSS_ENTROPY_COMPILED;
    job->strategy.world = (uint32_t)csv_number(csv, i, "n_gpus");
    /* Until July 2025 torchtitan's units were blocks, the last of which stayed unsharded; until
     * February its AdamW was torch's default (pytorch/torchtitan 83e6941, 6e49885). */
    job->strategy.keep_last = 1;
    job->strategy.impl =
        strstr(csv_text(csv, i, "versions"), "(2025-06)") ? IMPL_FUSED : IMPL_FOREACH;
    job->strategy.max_norm = 1;
}

static struct result predicted(const struct csv *csv, size_t i)
{
    struct err err = {0};
    struct job job;
    struct prediction prediction;
    struct step_time time;
    /* torchtitan's script for one node sets expandable segments; those for several, and what Trainy
     * published of its own call, do not. */
    struct machine machine = {.gpus_per_node = 8,
                              .expandable_segments =
                                  strstr(csv_text(csv, i, "versions"), "pull request") != NULL};
    read_job(csv, i, &job);
    if (profile_find(csv_text(csv, i, "gpu"), &machine.profile, &err) != ERR_OK)
        fail(&err);
    machine.profile.attention = ATTENTION_FLASH;
    if (predict(&job, &machine, &prediction, &err) != ERR_OK ||
        step_time(&prediction, &job, &machine, STEP_TIME_DRAWS, &time, &err) != ERR_OK)
        fail(&err);
    const struct result out = {
        .step_s = time.timeline.step_s,
        .reserved_gib =
            (double)(prediction.device_bytes - prediction.outside_bytes) / (double)(1U << 30),
    };
    step_time_free(&time);
    profile_free(&machine.profile);
    prediction_free(&prediction);
    return out;
}

static void add(struct sums *sums, double time, double memory)
{
    sums->time += time;
    sums->time_absolute += fabs(time);
    sums->memory += memory;
    sums->memory_absolute += fabs(memory);
    sums->count++;
}

static void print_sums(const char *name, const struct sums *s)
{
    printf("| %s | %u | %.1f %% | %+.1f %% | %.1f %% | %+.1f %% |\n", name, s->count,
           100 * s->time_absolute / s->count, 100 * s->time / s->count,
           100 * s->memory_absolute / s->count, 100 * s->memory / s->count);
}

/* What float8 gains, of pairs of rows that differ in nothing else: tokens a second over those of
 * bf16. */
static void print_gain(const struct csv *csv, const struct result *results, size_t bf16, size_t i)
{
    const char *column = "tokens_per_s_per_gpu";
    printf("| %s over %s | %.2f | %.2f |\n", csv_text(csv, i, "row_id"),
           csv_text(csv, bf16, "row_id"),
           csv_number(csv, i, column) / csv_number(csv, bf16, column),
           results[bf16].step_s / results[i].step_s);
}

static bool differ_in_float8(const struct csv *csv, size_t x, size_t y)
{
    const char *same[] = {"model",          "gpu",      "n_gpus",  "micro_batch_per_gpu_seqs",
                          "seq_len_tokens", "act_ckpt", "versions"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (strcmp(csv_text(csv, x, same[i]), csv_text(csv, y, same[i])) != 0)
            return false;
    return recipe_of(csv_text(csv, x, "float8")) == FLOAT8_NONE &&
           recipe_of(csv_text(csv, y, "float8")) != FLOAT8_NONE;
}

static void print_row(const struct csv *csv, size_t i, const struct result *r, struct sums *sums)
{
    const uint32_t tokens = (uint32_t)(csv_number(csv, i, "micro_batch_per_gpu_seqs") *
                                       csv_number(csv, i, "seq_len_tokens"));
    const double measured_s = tokens / csv_number(csv, i, "tokens_per_s_per_gpu");
    const double gib = csv_number(csv, i, "reserved_gib");
    const double time = r->step_s / measured_s - 1, memory = r->reserved_gib / gib - 1;
    printf("| %s | %s | %.3f | %.3f | %+.1f %% | %.2f | %.2f | %+.1f %% |\n",
           csv_text(csv, i, "row_id"), csv_text(csv, i, "float8"), measured_s, r->step_s,
           100 * time, gib, r->reserved_gib, 100 * memory);
    add(&sums[recipe_of(csv_text(csv, i, "float8")) != FLOAT8_NONE], time, memory);
}

int main(void)
{
    struct csv csv = csv_read(PATH);
    struct result *results = xcalloc(csv.rows + 1, sizeof *results);
    struct sums sums[2] = {{.count = 0}};
    for (size_t i = 0; i < csv.rows; i++)
        results[i] = predicted(&csv, i);
    printf("| row | float8 | measured s | predicted s | error | reserved GiB | predicted | error "
           "|\n|---|---|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < csv.rows; i++)
        print_row(&csv, i, &results[i], sums);
    printf("\n| rows | count | time: mean error, absolute | bias | memory: mean error, absolute | "
           "bias |\n|---|---:|---:|---:|---:|---:|\n");
    print_sums("bf16", &sums[0]);
    print_sums("float8", &sums[1]);
    printf("\n| tokens a second | measured | predicted |\n|---|---:|---:|\n");
    for (size_t i = 0; i < csv.rows; i++)
        for (size_t k = 0; k < csv.rows; k++)
            if (differ_in_float8(&csv, k, i))
                print_gain(&csv, results, k, i);
    free(results);
    csv_free(&csv);
    return 0;
}
