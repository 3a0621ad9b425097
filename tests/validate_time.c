/* validate_time.c - prints reports/validation/time-published.md: published step times beside
 * simulated ones. */
#include "csv.h"

#include "job/job.h"
#include "simulate/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sums {
    double signed_sum, absolute_sum, largest;
    size_t rows, within;
};

static void fail(const struct err *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(2);
}

static struct timeline simulate_job(const struct job *job, const char *gpu, double *mfu)
{
    struct err err = {0};
    struct plan *plan = NULL;
    struct profile profile;
    struct costs costs;
    uint64_t parameters;
    if (profile_find(gpu, &profile, &err) != ERR_OK ||
        job_plan(job, &plan, &parameters, &err) != ERR_OK ||
        costs_of_plan(plan, &profile, 8, &costs, &err) != ERR_OK)
        fail(&err);
    struct simulation *simulation = simulation_new(plan);
    struct timeline timeline = timeline_new(simulation);
    simulate(simulation, &costs, NULL, &timeline);
    *mfu = 100 * costs.model_flops / timeline.step_s / costs.peak_flops;
    simulation_free(simulation);
    costs_free(&costs);
    profile_free(&profile);
    plan_free(plan);
    return timeline;
}

static void add_error(struct sums *sums, double error)
{
    sums->signed_sum += error;
    sums->absolute_sum += fabs(error);
    sums->largest = fabs(error) > fabs(sums->largest) ? error : sums->largest;
    sums->rows++;
    sums->within += fabs(error) <= 0.08;
}

static void print_spent(const struct timeline *t)
{
    for (int i = 0; i < SPENT_COUNT; i++)
        printf(" %.0f |", 100 * t->spent_s[i] / t->step_s);
}

/* MPT is GPT-2 as nanoGPT writes it: tied embeddings, learned positions, biases. */
static struct job mpt_job(const struct csv *csv, size_t row)
{
    struct job job;
    const uint32_t hidden = (uint32_t)csv_number(csv, row, "d_model");
    const uint32_t heads = (uint32_t)csv_number(csv, row, "n_heads");
    const uint32_t seq = (uint32_t)csv_number(csv, row, "seq_len_tokens");
    const struct model_config config = {
        .arch = ARCH_GPT2,
        .hidden = hidden,
        .layers = (uint32_t)csv_number(csv, row, "n_layers"),
        .heads = heads,
        .kv_heads = heads,
        .head_dim = hidden / heads,
        .ffn = 4 * hidden,
        .vocab = (uint32_t)csv_number(csv, row, "vocab_size"),
        .max_positions = seq,
        .tied = true,
        .attention_bias = true,
        .mlp_bias = true,
        .activation = "gelu_new",
        .norm_eps = 1e-5F,
    };
    job_defaults(&job, &config);
    job.model.batch = (uint32_t)csv_number(csv, row, "micro_batch_size_seqs");
    job.model.seq = seq;
    job.strategy.world = (uint32_t)csv_number(csv, row, "n_gpus");
    job.strategy.accumulate = (uint32_t)csv_number(csv, row, "grad_accum");
    job.strategy.accumulate_sync = true; /* Composer does not enter no_sync with FSDP */
    job.strategy.max_norm = 1;
    if (strcmp(csv_text(csv, row, "mp_mode"), "PURE") == 0)
        job.strategy.reduce = DTYPE_BF16;
    if (strcmp(csv_text(csv, row, "activation_checkpointing"), "True") == 0)
        job.tape.checkpointing = CHECKPOINTING_FULL;
    return job;
}

int main(void)
{
    struct csv csv = csv_read("tests/data/published/llmfoundry_a100.csv");
    struct sums sums = {0};
    for (size_t row = 0; row < csv.rows; row++) {
        const struct job job = mpt_job(&csv, row);
        const char *gpu = strcmp(csv_text(&csv, row, "gpu"), "a100_40gb") == 0 ? "a100-sxm-40gb"
                                                                               : "a100-sxm-80gb";
        double mfu;
        struct timeline t = simulate_job(&job, gpu, &mfu);
        const double measured = csv_number(&csv, row, "derived_step_time_s");
        const double error = t.step_s / measured - 1;
        add_error(&sums, error);
        printf("| %s, %u x %u x %u, %u GPUs, %s%s | %.3f | %.3f | %+.1f %% | %.1f | %s |",
               csv_text(&csv, row, "model"), job.model.batch, job.model.seq,
               job.strategy.accumulate, job.strategy.world, gpu,
               job.tape.checkpointing ? ", AC" : "", measured, t.step_s, 100 * error, mfu,
               csv_text(&csv, row, "mfu_pct"));
        print_spent(&t);
        putchar('\n');
        timeline_free(&t);
    }
    printf("\nrows %zu mean |error| %.1f %% bias %+.1f %% largest %+.1f %% within 8 %%: %zu\n",
           sums.rows, 100 * sums.absolute_sum / (double)sums.rows,
           100 * sums.signed_sum / (double)sums.rows, 100 * sums.largest, sums.within);
    csv_free(&csv);
    return 0;
}
