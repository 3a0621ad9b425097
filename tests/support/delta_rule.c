/* delta_rule.c - see delta_rule.h. */
#include "tests/support/delta_rule.h"

#include "cost/cost.h"
#include "families/families.h"
#include "graph/tape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "delta_rule.csv: %s\n", what);
    exit(2);
}

/* What the benchmark times: without the norm of heads, and copies of what was no row of its own. */
static bool is_timed(const struct kernel *kernel, const struct delta_row *row)
{
    const struct operand *out = &kernel->operands[kernel->ins];
    if (kernel->backward != row->backward)
        return false;
    if (kernel->work == WORK_FILL)
        return out->shape.rank == 4 && out->shape.dim[3] == 64; /* A */
    return kernel->work == WORK_CHUNK_SUM ||
           (kernel->work >= WORK_DELTA_SOLVE && kernel->work <= WORK_DELTA_FACTORS_BACKWARD);
}

/* Of a model with one layer, which has it. */
static double predict(const struct delta_row *row, const struct profile *profile)
{
    struct model_config config;
    const struct model_job job = {.batch = row->sequences,
                                  .seq = row->tokens,
                                  .code = CODE_HF,
                                  .compute = DTYPE_BF16,
                                  .made = DTYPE_FP32};
    struct err err = {0};
    struct graph *graph;
    require(model_preset_find("qwen3.5-9b-text", &config, &err) == ERR_OK, err.text);
    config.layers = 1;
    config.hidden = config.ffn = config.vocab = 128;
    config.delta_key_heads = row->heads_k;
    config.delta_value_heads = row->heads_v;
    config.delta_key_dim = config.delta_value_dim = row->head_dim;
    require(model_build(&config, &job, &graph, &err) == ERR_OK, err.text);
    struct stream *stream = tape_run(graph, &(struct tape_options){0});
    double seconds = 0;
    for (uint32_t k = 0; k < stream->kernels->kernel_count; k++)
        if (is_timed(&stream->kernels->kernels[k], row))
            seconds += kernel_seconds(&stream->kernels->kernels[k], profile);
    stream_free(stream);
    graph_free(graph);
    return seconds;
}

struct delta_row *delta_rows_read(size_t *count)
{
    enum { ROWS_MOST = 512 };
    FILE *file = fopen("tests/data/gpu/delta_rule.csv", "r");
    struct delta_row *rows = calloc(ROWS_MOST, sizeof *rows);
    char line[256], pass[16];
    double us;
    require(file && rows && fgets(line, sizeof line, file), "no rows");
    for (*count = 0; fgets(line, sizeof line, file); ++*count) {
        struct delta_row *row = &rows[*count];
        struct profile profile;
        require(*count < ROWS_MOST &&
                    sscanf(line, "%31[^,],%15[^,],%u,%u,%u,%u,%u,%lf,%15[^,\n]", row->gpu, pass,
                           &row->sequences, &row->tokens, &row->heads_k, &row->heads_v,
                           &row->head_dim, &us, row->source) == 9,
                line);
        row->backward = strcmp(pass, "backward") == 0;
        row->measured_s = us * 1e-6;
        require(profile_find(row->gpu, &profile, NULL) == ERR_OK, row->gpu);
        profile.clock = CLOCK_BURST;
        row->predicted_s = predict(row, &profile);
        profile_free(&profile);
    }
    fclose(file);
    return rows;
}

void delta_groups(const struct delta_row *rows, size_t count,
                  struct delta_group groups[DELTA_GROUPS])
{
    static const struct delta_group all[DELTA_GROUPS] = {
        {"h200", "flashqla", false, 0, 0, 0, 0}, {"h200", "flashqla", true, 0, 0, 0, 0},
        {"h200", "tileops", false, 0, 0, 0, 0},  {"gb200", "flashqla", false, 0, 0, 0, 0},
        {"gb200", "flashqla", true, 0, 0, 0, 0}, {"rtx-5090", "flashqla", false, 0, 0, 0, 0},
    };
    for (size_t g = 0; g < DELTA_GROUPS; g++) {
        struct delta_group *group = &groups[g];
        *group = all[g];
        for (size_t i = 0; i < count; i++) {
            const struct delta_row *row = &rows[i];
            const double error = row->predicted_s / row->measured_s - 1;
            if (strcmp(row->gpu, group->gpu) != 0 || strcmp(row->source, group->source) != 0 ||
                row->backward != group->backward)
                continue;
            group->count++;
            group->error += fabs(error);
            group->bias += error;
            if (fabs(error) > fabs(group->worst))
                group->worst = error;
        }
        group->error /= (double)group->count;
        group->bias /= (double)group->count;
    }
}
