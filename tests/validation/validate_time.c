/* validate_time.c - prints reports/validation/time-published.md: published step times beside
 * simulated ones. */
#include "tests/support/mpt.h"

#include "base/arena.h"
#include "job/step_time.h"

#include <gsl/gsl_multifit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    char name[96];
    const char *gpu;
    double measured_s, simulated_s, mfu, measured_mfu;
    double spent[SPENT_COUNT];            /* shares of the simulated step */
    double gemm_s, attention_s, others_s; /* of kernels alone; others: the rest of the step */
};

static void fail(const struct err *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(2);
}

static void simulate_job(const struct job *job, struct row *row)
{
    struct err err = {0};
    struct prediction prediction;
    struct machine machine = {.gpus_per_node = 8};
    struct step_time time;
    if (profile_find(row->gpu, &machine.profile, &err) != ERR_OK ||
        predict(job, &machine, &prediction, &err) != ERR_OK ||
        step_time(&prediction, job, &machine, 0, &time, &err) != ERR_OK)
        fail(&err);
    for (uint32_t i = 0; i < simulation_tasks(time.simulation); i++) {
        const struct plan_instruction *in =
            &prediction.plan->instructions[simulation_instruction(time.simulation, i)];
        if (!plan_op_is_kernel((enum plan_op)in->op))
            continue;
        const struct cost *cost = &time.costs.kernels[in->arg];
        row->gemm_s += cost->class == COST_GEMM ? cost->device_s : 0;
        row->attention_s += cost->class == COST_ATTENTION ? cost->device_s : 0;
    }
    row->simulated_s = time.timeline.step_s;
    row->others_s = row->simulated_s - row->gemm_s - row->attention_s;
    row->mfu = 100 * time.mfu;
    for (int i = 0; i < SPENT_COUNT; i++)
        row->spent[i] = time.timeline.spent_s[i] / row->simulated_s;
    step_time_free(&time);
    profile_free(&machine.profile);
    prediction_free(&prediction);
}

static double error_of(const struct row *row)
{
    return row->simulated_s / row->measured_s - 1;
}

/* ---- tables ---- */

static void print_rows(const struct row *rows, size_t count)
{
    printf("| configuration | measured s | simulated s | error | MFU measured | simulated |");
    for (int i = 0; i < SPENT_COUNT; i++)
        printf(" %s |", spent_name((enum spent)i));
    printf("\n|---|---:|---:|---:|---:|---:|");
    for (int i = 0; i < SPENT_COUNT; i++)
        printf("---:|");
    putchar('\n');
    for (size_t i = 0; i < count; i++) {
        const struct row *r = &rows[i];
        printf("| %s | %.3f | %.3f | %+.1f %% | %.1f | %.1f |", r->name, r->measured_s,
               r->simulated_s, 100 * error_of(r), r->measured_mfu, r->mfu);
        for (int k = 0; k < SPENT_COUNT; k++)
            printf(" %.0f |", 100 * r->spent[k]);
        putchar('\n');
    }
}

static void print_summary(const char *name, const struct row *rows, size_t count, const char *gpu)
{
    double sum = 0, absolute = 0, largest = 0;
    size_t n = 0, within = 0;
    for (size_t i = 0; i < count; i++) {
        const double error = error_of(&rows[i]);
        if (gpu && strcmp(rows[i].gpu, gpu) != 0)
            continue;
        sum += error;
        absolute += fabs(error);
        largest = fabs(error) > fabs(largest) ? error : largest;
        within += fabs(error) <= 0.08;
        n++;
    }
    printf("| %s | %zu | %.1f %% | %+.1f %% | %+.1f %% | %zu |\n", name, n,
           100 * absolute / (double)n, 100 * sum / (double)n, 100 * largest, within);
}

/* ---- where two numbers of the A100 profiles come from ---- */

/* Factors on the times of GEMMs and of attention that bring the rows of a card nearest to what was
 * measured: robust (bisquare) on relative error, the rest of the step as it is. Rows with index %
 * 2 == skip are left out; -1: none. */
static void fit_factors(const struct row *rows, size_t count, const char *gpu, int skip,
                        double factors[2])
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        n += strcmp(rows[i].gpu, gpu) == 0 && (int)(i % 2) != skip;
    gsl_matrix *x = gsl_matrix_alloc(n, 2), *covariance = gsl_matrix_alloc(2, 2);
    gsl_vector *y = gsl_vector_alloc(n), *c = gsl_vector_alloc(2);
    for (size_t i = 0; i < count; i++) {
        const struct row *r = &rows[i];
        if (strcmp(r->gpu, gpu) != 0 || (int)(i % 2) == skip)
            continue;
        gsl_matrix_set(x, at, 0, r->gemm_s / r->measured_s);
        gsl_matrix_set(x, at, 1, r->attention_s / r->measured_s);
        gsl_vector_set(y, at++, 1 - r->others_s / r->measured_s);
    }
    gsl_multifit_robust_workspace *w =
        gsl_multifit_robust_alloc(gsl_multifit_robust_bisquare, n, 2);
    gsl_multifit_robust(x, y, c, covariance, w);
    factors[0] = gsl_vector_get(c, 0);
    factors[1] = gsl_vector_get(c, 1);
    gsl_multifit_robust_free(w);
    gsl_matrix_free(x);
    gsl_matrix_free(covariance);
    gsl_vector_free(y);
    gsl_vector_free(c);
}

static void print_fit(const struct row *rows, size_t count, const char *gpu)
{
    double all[2], half[2], absolute = 0, sum = 0;
    size_t n = 0;
    fit_factors(rows, count, gpu, -1, all);
    for (int skip = 0; skip < 2; skip++) {
        fit_factors(rows, count, gpu, skip, half);
        for (size_t i = 0; i < count; i++) {
            const struct row *r = &rows[i];
            if (strcmp(r->gpu, gpu) != 0 || (int)(i % 2) != skip)
                continue;
            const double error =
                (half[0] * r->gemm_s + half[1] * r->attention_s + r->others_s) / r->measured_s - 1;
            absolute += fabs(error);
            sum += error;
            n++;
        }
    }
    printf("| %s | %.3f | %.3f | %.1f %% | %+.1f %% |\n", gpu, all[0], all[1],
           100 * absolute / (double)n, 100 * sum / (double)n);
}

/* ---- the tables' rows ---- */

static struct row *mpt_rows(size_t *count)
{
    struct csv csv = csv_read("tests/data/published/llmfoundry_a100.csv");
    struct row *rows = xmalloc(csv.rows * sizeof *rows);
    for (size_t i = 0; i < csv.rows; i++) {
        const struct job job = mpt_job(&csv, i);
        const bool small = strcmp(csv_text(&csv, i, "gpu"), "a100_40gb") == 0;
        rows[i] = (struct row){
            .gpu = small ? "a100-sxm-40gb" : "a100-sxm-80gb",
            .measured_s = csv_number(&csv, i, "derived_step_time_s"),
            .measured_mfu = csv_number(&csv, i, "mfu_pct"),
        };
        snprintf(rows[i].name, sizeof rows[i].name, "MPT-%s, %u x %u x %u, %u x A100 %s, %s%s",
                 csv_text(&csv, i, "model"), job.model.batch, job.model.seq,
                 job.strategy.accumulate, job.strategy.world, small ? "40 GB" : "80 GB",
                 csv_text(&csv, i, "mp_mode"), job.tape.checkpointing ? ", checkpointed" : "");
        simulate_job(&job, &rows[i]);
    }
    *count = csv.rows;
    csv_free(&csv);
    return rows;
}

/* Lightning's benchmark_litgpt.py: pure bf16, fused AdamW, reshard_after_forward False. litgpt
 * turns queries and keys as Hugging Face does. Only eager PyTorch is what shardplan plans. */
static struct row thunder_row(const struct csv *csv, size_t i)
{
    struct err err = {0};
    struct model_config config;
    struct job job;
    struct row row = {.gpu = "h100-sxm", .measured_s = csv_number(csv, i, "step_time_s")};
    const bool llama3 = strstr(csv_text(csv, i, "model"), "Llama-3") != NULL;
    if (model_find(llama3 ? "llama-3-8b" : "llama-2-7b", &config, &err) != ERR_OK)
        fail(&err);
    job_defaults(&job, &config);
    job.model.code = CODE_HF;
    job.model.batch = (uint32_t)csv_number(csv, i, "micro_batch_per_gpu_seqs");
    job.model.seq = (uint32_t)csv_number(csv, i, "seq_len_tokens");
    job.strategy.world = (uint32_t)csv_number(csv, i, "n_gpus");
    job.strategy.store = job.strategy.reduce = DTYPE_BF16;
    job.strategy.reshard = RESHARD_NEVER;
    job.strategy.impl = IMPL_FUSED;
    snprintf(row.name, sizeof row.name, "%.40s, %u x %u, %u x H100", csv_text(csv, i, "row_id"),
             job.model.batch, job.model.seq, job.strategy.world);
    simulate_job(&job, &row);
    row.measured_mfu = row.mfu * row.simulated_s / row.measured_s;
    return row;
}

static struct row *thunder_rows(size_t *count, size_t *left_out)
{
    struct csv csv = csv_read("tests/data/published/lightning_thunder_fsdp.csv");
    struct row *rows = xmalloc((csv.rows + 1) * sizeof *rows);
    *count = *left_out = 0;
    for (size_t i = 0; i < csv.rows; i++) {
        if (csv_number(&csv, i, "step_time_s") <= 0)
            continue;
        if (strcmp(csv_text(&csv, i, "compile"), "no") == 0)
            rows[(*count)++] = thunder_row(&csv, i);
        else
            ++*left_out;
    }
    csv_free(&csv);
    return rows;
}

/* torchtitan, benchmarks/llama3_h100_202412: Llama-3.1-8B, batch 2, sequence 8192, selective
 * checkpointing, eager, tokens a second and GPU. */
static struct row torchtitan_row(uint32_t gpus, double tokens_per_s)
{
    struct err err = {0};
    struct model_config config;
    struct job job;
    struct row row = {.gpu = "h100-sxm-96gb", .measured_s = 2 * 8192 / tokens_per_s};
    if (model_find("llama-3.1-8b", &config, &err) != ERR_OK)
        fail(&err);
    job_defaults(&job, &config);
    job.model.batch = 2;
    job.model.seq = 8192;
    job.tape.checkpointing = CHECKPOINTING_SELECTIVE;
    job.strategy.world = gpus;
    job.strategy.units = UNITS_TORCHTITAN;
    job.strategy.impl = IMPL_FUSED;
    job.strategy.max_norm = 1;
    snprintf(row.name, sizeof row.name, "torchtitan Llama-3.1-8B, 2 x 8192, %u x H100 96 GB", gpus);
    simulate_job(&job, &row);
    row.measured_mfu = row.mfu * row.simulated_s / row.measured_s;
    return row;
}

int main(void)
{
    size_t mpts, thunders, left_out;
    struct row *mpt = mpt_rows(&mpts), *thunder = thunder_rows(&thunders, &left_out);
    const struct row titan[] = {torchtitan_row(8, 5762), torchtitan_row(128, 5605)};
    printf("## Summary\n\n| rows | count | mean error, absolute | bias | largest | within 8 %% |\n"
           "|---|---:|---:|---:|---:|---:|\n");
    print_summary("llm-foundry, all", mpt, mpts, NULL);
    print_summary("llm-foundry, A100 80 GB", mpt, mpts, "a100-sxm-80gb");
    print_summary("llm-foundry, A100 40 GB", mpt, mpts, "a100-sxm-40gb");
    print_summary("lightning-thunder, eager", thunder, thunders, NULL);
    print_summary("torchtitan, eager", titan, 2, NULL);
    printf("\n## Where the A100 profiles' efficiencies come from\n\n"
           "Factors on the times of GEMMs and of attention that another robust fit (bisquare: "
           "outliers do not\ncount) over a card's rows asks for; 1 would be the profile's value. "
           "Then the error when each half of\nthe rows is simulated with the factors of the other "
           "half: how much of the agreement is fitting.\n\n"
           "| profile | GEMM | attention | other half: mean error | bias |\n"
           "|---|---:|---:|---:|---:|\n");
    print_fit(mpt, mpts, "a100-sxm-80gb");
    print_fit(mpt, mpts, "a100-sxm-40gb");
    printf("\n## H100\n\n%zu rows of lightning-thunder with a speed are compiled (torch.compile, "
           "thunder) or fp8, which\nshardplan does not plan, and are left out.\n\n",
           left_out);
    print_rows(thunder, thunders);
    putchar('\n');
    print_rows(titan, 2);
    printf("\n## llm-foundry, row by row\n\nSeconds of a step; the last columns are what the "
           "simulated step is spent on, in %%.\n\n");
    print_rows(mpt, mpts);
    free(mpt);
    free(thunder);
    return 0;
}
