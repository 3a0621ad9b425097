/* validate_time.c - prints reports/validation/time-published.md: published step times beside
 * simulated ones. */
#include "families/families.h"
#include "tests/support/mpt.h"
#include "tests/validation/errors.h"

#include "base/arena.h"
#include "job/step_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    char name[96];
    const char *gpu;
    const char *profile;             /* file that it is simulated with instead; NULL: none */
    enum attention_kernel attention; /* that ran, where the source says it */
    double measured_s, simulated_s, mfu, measured_mfu;
    double low_s, high_s;      /* the range that is printed */
    double slower_s;           /* the slowest rank's step, beyond that of the mean one */
    double spent[SPENT_COUNT]; /* shares of the simulated step */
    uint32_t gpus;
    char job[96];       /* what is the same where GPUs alone differ; "": not looked at */
    bool after_release; /* fits only by giving cached segments back */
};

static void fail(const struct err *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(2);
}

/* The step if all ranks were as the mean one. */
static double alike_seconds(const struct step_time *time)
{
    struct timeline t = timeline_new(time->simulation);
    simulate(time->simulation, &time->costs, NULL, &t);
    const double step_s = t.step_s;
    timeline_free(&t);
    return step_s;
}

static void simulate_job(const struct job *job, struct row *row)
{
    struct err err = {0};
    struct prediction prediction;
    struct machine machine = {.gpus_per_node = 8};
    struct step_time time;
    if (profile_find(row->gpu, &machine.profile, &err) != ERR_OK)
        fail(&err);
    if (row->profile && profile_read(row->profile, &machine.profile, &err) != ERR_OK)
        fail(&err);
    machine.profile.attention = row->attention;
    if (predict(job, &machine, &prediction, &err) != ERR_OK ||
        step_time(&prediction, job, &machine, STEP_TIME_DRAWS, &time, &err) != ERR_OK)
        fail(&err);
    row->simulated_s = time.timeline.step_s;
    row->low_s = time.low_s;
    row->high_s = time.high_s;
    row->after_release = prediction.after_release;
    row->slower_s = row->simulated_s - alike_seconds(&time);
    row->gpus = job->strategy.world;
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

/* Which rows of a table are meant: of a GPU (NULL: any), and whether they fit (-1: either way)
 * only by giving cached segments back. */
static void print_some(const char *name, const struct row *rows, size_t count, const char *gpu,
                       int after_release)
{
    struct errors all = {0};
    double squares = 0;
    size_t within = 0, inside = 0;
    for (size_t i = 0; i < count; i++) {
        const double error = error_of(&rows[i]);
        if ((gpu && strcmp(rows[i].gpu, gpu) != 0) ||
            (after_release >= 0 && rows[i].after_release != after_release))
            continue;
        errors_add(&all, error);
        squares += log1p(error) * log1p(error);
        within += fabs(error) <= 0.08;
        inside += rows[i].measured_s >= rows[i].low_s && rows[i].measured_s <= rows[i].high_s;
    }
    const double n = (double)all.count;
    printf("| %s | %zu | %.1f %% | %+.1f %% | %.3f | %+.1f %% | %zu | %.0f %% |\n", name, all.count,
           errors_mean(&all), errors_bias(&all), sqrt(squares / n), errors_largest(&all), within,
           100 * (double)inside / n);
}

static void print_summary(const char *name, const struct row *rows, size_t count, const char *gpu)
{
    print_some(name, rows, count, gpu, -1);
}

/* How wide the ranges are, about the simulated steps: geometric means. */
static void print_widths(const char *name, const struct row *rows, size_t count)
{
    double low = 0, high = 0;
    for (size_t i = 0; i < count; i++) {
        low += log(rows[i].low_s / rows[i].simulated_s) / (double)count;
        high += log(rows[i].high_s / rows[i].simulated_s) / (double)count;
    }
    printf("\nRanges %s: %.0f to %+.0f %%, in the middle.\n", name, 100 * expm1(low),
           100 * expm1(high));
}

/* ---- more GPUs ---- */

/* The row of the same job on the fewest or the most GPUs. */
static const struct row *at_end(const struct row *rows, size_t count, const struct row *row,
                                bool most)
{
    const struct row *found = row;
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].job, row->job) == 0 &&
            (most ? rows[i].gpus > found->gpus : rows[i].gpus < found->gpus))
            found = &rows[i];
    return found;
}

static void print_scaling(const struct row *rows, size_t count)
{
    printf("| the same job, a GPU | on GPUs | step measured | simulated | of it slower ranks |\n"
           "|---|---|---:|---:|---:|\n");
    for (size_t i = 0; i < count; i++) {
        const struct row *least = at_end(rows, count, &rows[i], false);
        const struct row *most = at_end(rows, count, &rows[i], true);
        if (least == most || most != &rows[i])
            continue;
        printf("| %s | %u to %u | %+.1f %% | %+.1f %% | %+.1f %% |\n", most->job, least->gpus,
               most->gpus, 100 * (most->measured_s / least->measured_s - 1),
               100 * (most->simulated_s / least->simulated_s - 1),
               100 * (most->slower_s - least->slower_s) / least->simulated_s);
    }
}

/* ---- the one number that was fitted to steps ---- */

/* Rows of every second place, of one card and of runs up to so many GPUs: what was fitted, and what
 * was left. */
static void print_halves(const char *name, const struct row *rows, size_t count, const char *gpu,
                         uint32_t most)
{
    for (int half = 0; half < 2; half++) {
        double sum = 0, absolute = 0;
        size_t n = 0, at = 0;
        for (size_t i = 0; i < count; i++) {
            if (strcmp(rows[i].gpu, gpu) != 0 || rows[i].gpus > most || at++ % 2 != (size_t)half)
                continue;
            sum += error_of(&rows[i]);
            absolute += fabs(error_of(&rows[i]));
            n++;
        }
        printf("| %s, %s half | %zu | %.1f %% | %+.1f %% |\n", name, half ? "other" : "fitted", n,
               100 * absolute / (double)n, 100 * sum / (double)n);
    }
}

/* ---- the tables' rows ---- */

static struct row *mpt_rows(const char *path, const char *profile, size_t *count)
{
    struct csv csv = csv_read(path);
    size_t used = 0;
    struct row *rows = xmalloc(csv.rows * sizeof *rows);
    for (size_t i = 0; i < csv.rows; i++) {
        const struct job job = mpt_timed_job(&csv, i);
        const char *gpu = csv_text(&csv, i, "gpu");
        const bool small = strcmp(gpu, "a100_40gb") == 0, hopper = strcmp(gpu, "h100_80gb") == 0;
        if (strstr(csv_text(&csv, i, "precision"), "fp8"))
            continue;
        struct row *row = &rows[used++];
        *row = (struct row){
            .gpu = mpt_gpu(&csv, i),
            .profile = profile,
            .attention = MPT_ATTENTION,
            .measured_s = csv_number(&csv, i, "derived_step_time_s"),
            .measured_mfu = csv_number(&csv, i, "mfu_pct"),
        };
        snprintf(row->name, sizeof row->name, "MPT-%s, %u x %u x %u, %u x %s, %s%s",
                 csv_text(&csv, i, "model"), job.model.batch, job.model.seq,
                 job.strategy.accumulate, job.strategy.world,
                 hopper  ? "H100"
                 : small ? "A100 40 GB"
                         : "A100 80 GB",
                 csv_text(&csv, i, "mp_mode"), job.tape.checkpointing ? ", checkpointed" : "");
        snprintf(row->job, sizeof row->job, "MPT-%s, %u x %u x %u, %s", csv_text(&csv, i, "model"),
                 job.model.batch, job.model.seq, job.strategy.accumulate, row->gpu);
        simulate_job(&job, row);
    }
    *count = used;
    csv_free(&csv);
    return rows;
}

/* Lightning's benchmark_litgpt.py: pure bf16, fused AdamW, reshard_after_forward False. litgpt
 * turns queries and keys as Hugging Face does. Only eager PyTorch is what shardplan plans. */
static struct row thunder_row(const struct csv *csv, size_t i, bool compiled)
{
    struct err err = {0};
    struct model_config config;
    struct job job;
    struct row row = {.gpu = "h100-sxm",
                      .attention = ATTENTION_CUDNN,
                      .measured_s = csv_number(csv, i, "step_time_s")};
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
    job.tape.compiled = compiled;
    snprintf(row.name, sizeof row.name, "%.40s, %u x %u, %u x H100", csv_text(csv, i, "row_id"),
             job.model.batch, job.model.seq, job.strategy.world);
    simulate_job(&job, &row);
    row.measured_mfu = row.mfu * row.simulated_s / row.measured_s;
    return row;
}

/* torch.compile beside FSDP2, without fp8: what --compile on plans. */
static bool is_compiled(const struct csv *csv, size_t i)
{
    return strcmp(csv_text(csv, i, "compile"), "torch.compile") == 0 &&
           strncmp(csv_text(csv, i, "sharding"), "FSDP2", 5) == 0;
}

struct compiled_row { /* a row that was measured compiled, planned as eager PyTorch and compiled */
    struct row eager, compiled;
};

static size_t thunder_compiled(struct compiled_row *rows)
{
    struct csv csv = csv_read("tests/data/published/lightning_thunder_fsdp.csv");
    size_t count = 0;
    for (size_t i = 0; i < csv.rows; i++)
        if (csv_number(&csv, i, "step_time_s") > 0 && is_compiled(&csv, i))
            rows[count++] =
                (struct compiled_row){thunder_row(&csv, i, false), thunder_row(&csv, i, true)};
    csv_free(&csv);
    return count;
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
            rows[(*count)++] = thunder_row(&csv, i, false);
        else
            *left_out += !is_compiled(&csv, i);
    }
    csv_free(&csv);
    return rows;
}

/* torchtitan, benchmarks/llama3_h100_202412: Llama-3.1-8B, batch 2, sequence 8192, selective
 * checkpointing, tokens a second and GPU. The eager ones are planned as torch 2.6, which was
 * branched in that month; compiled blocks are known of the newest alone. */
enum { BRANCHED_THEN = 6 };

static struct row torchtitan_row(uint32_t gpus, double tokens_per_s, uint32_t torch, bool compiled)
{
    struct err err = {0};
    struct model_config config;
    struct job job;
    struct row row = {.gpu = "h100-sxm-96gb",
                      .attention = ATTENTION_FLASH,
                      .measured_s = 2 * 8192 / tokens_per_s};
    if (model_find("llama-3.1-8b", &config, &err) != ERR_OK)
        fail(&err);
    job_defaults(&job, &config);
    job.model.batch = 2;
    job.model.seq = 8192;
    job.model.torch = torch;
    job.tape.checkpointing = CHECKPOINTING_SELECTIVE;
    job.strategy.world = gpus;
    job.strategy.units = UNITS_TORCHTITAN;
    job.strategy.impl = IMPL_FUSED;
    job.strategy.max_norm = 1;
    job.tape.compiled = compiled;
    snprintf(row.name, sizeof row.name, "torchtitan Llama-3.1-8B, 2 x 8192, %u x H100 96 GB", gpus);
    simulate_job(&job, &row);
    row.measured_mfu = row.mfu * row.simulated_s / row.measured_s;
    return row;
}

static void print_compiled(const struct compiled_row *rows, size_t count)
{
    double before = 0, after = 0;
    printf(
        "\n## Compiled\n\nMeasured with torch.compile on each block, and what is simulated of the "
        "same jobs: as eager PyTorch of this version,\nand with --compile on; the loss is eager in "
        "both, as torchtitan's was then. Nothing was fitted to these rows.\n\n"
        "| configuration | measured s | eager s | error | compiled s | error |\n"
        "|---|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < count; i++) {
        const struct row *e = &rows[i].eager, *c = &rows[i].compiled;
        printf("| compiled: %s | %.3f | %.3f | %+.1f %% | %.3f | %+.1f %% |\n", c->name,
               c->measured_s, e->simulated_s, 100 * error_of(e), c->simulated_s, 100 * error_of(c));
        before += fabs(error_of(e)) / (double)count;
        after += fabs(error_of(c)) / (double)count;
    }
    printf("| mean, absolute | | | %.1f %% | | %.1f %% |\n", 100 * before, 100 * after);
}

int main(void)
{
    size_t mpts, hoppers, carrieds, thunders, left_out;
    struct compiled_row compiled[8] = {
        {torchtitan_row(8, 6667, TORCH_WHOLE, false), torchtitan_row(8, 6667, TORCH_WHOLE, true)},
        {torchtitan_row(128, 6514, TORCH_WHOLE, false),
         torchtitan_row(128, 6514, TORCH_WHOLE, true)},
    };
    const size_t compileds = 2 + thunder_compiled(compiled + 2);
    struct row *mpt = mpt_rows("tests/data/published/llmfoundry_a100.csv", NULL, &mpts);
    struct row *hopper = mpt_rows("tests/data/published/llmfoundry_h100_part.csv", NULL, &hoppers);
    struct row *carried = mpt_rows("tests/data/published/llmfoundry_h100_part.csv",
                                   "tests/data/carried/h100-from-a100.json", &carrieds);
    struct row *thunder = thunder_rows(&thunders, &left_out);
    const struct row titan[] = {torchtitan_row(8, 5762, BRANCHED_THEN, false),
                                torchtitan_row(128, 5605, BRANCHED_THEN, false)};
    printf("## Summary\n\n| rows | count | mean error, absolute | bias | rms of ln | largest | "
           "within 8 %% | "
           "inside "
           "the range |\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    print_summary("llm-foundry, all", mpt, mpts, NULL);
    print_summary("llm-foundry, A100 80 GB", mpt, mpts, "a100-sxm-80gb");
    print_summary("llm-foundry, A100 40 GB", mpt, mpts, "a100-sxm-40gb");
    print_some("llm-foundry, A100, cached segments given back", mpt, mpts, NULL, true);
    print_some("llm-foundry, A100 80 GB, others", mpt, mpts, "a100-sxm-80gb", false);
    print_some("llm-foundry, A100 40 GB, others", mpt, mpts, "a100-sxm-40gb", false);
    print_summary("llm-foundry, H100 80 GB", hopper, hoppers, NULL);
    print_summary("lightning-thunder, eager", thunder, thunders, NULL);
    print_summary("torchtitan, eager", titan, 2, NULL);
    printf(
        "\n## Carried over\n\nH100's rows by a profile of its datasheet and A100's measured "
        "numbers (tests/data/carried), as one made before\nanybody had measured a card: what its "
        "range is worth. Numbers that are carried to another generation have the\nspread that "
        "carrying over has shown (planner/machine/profile.c).\n\n"
        "| rows | count | mean error, absolute | bias | rms of ln | largest | within 8 %% | inside "
        "the range "
        "|\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    print_summary("llm-foundry, H100 80 GB, by A100's numbers", carried, carrieds, NULL);
    print_widths("by A100's numbers", carried, carrieds);
    print_widths("by its own", hopper, hoppers);
    printf("\nA100 and H100 are among the pairs of cards that this spread was taken from; there "
           "are no "
           "published runs on\nanother pair.\n");
    printf(
        "\n## What was fitted to steps\n\nTwo numbers, each to every second row, for the least "
        "bias: what a card draws in training beside the\nsame card alone (planner/cost/clock.c), "
        "to A100 80 GB, whose draw alone is from a bench; what H100's\nmatrix units draw, to its "
        "rows of at most 64 GPUs. A100 40 GB has no number of its own. These\nsteps "
        "wait for the slowest rank, in the rows as in the simulation: how far ranks differ was "
        "not fitted\nto them but measured on single cards (tests/data/gpu/rank_spread.csv). "
        "That\nTriton's attention with heads of 128 is half as fast as FlashAttention-2 (of 64: "
        "over 1.8) was seen in\nall "
        "long A100 rows, and holds for H100 as it is.\n\n"
        "| rows | count | mean error, absolute | bias |\n|---|---:|---:|---:|\n");
    print_halves("llm-foundry, A100 80 GB", mpt, mpts, "a100-sxm-80gb", 1024);
    print_halves("llm-foundry, H100, up to 64 GPUs", hopper, hoppers, "h100-sxm", 64);
    printf(
        "\n## More GPUs\n\nAll pairs of rows that differ in the number of GPUs alone: the fewest "
        "and the most.\n\n");
    print_scaling(mpt, mpts);
    print_compiled(compiled, compileds);
    printf("\n## H100\n\n%zu rows of lightning-thunder with a speed are compiled by thunder, "
           "whole, under "
           "FSDP1, or\nfp8, which shardplan does not plan, and are left out.\n\n",
           left_out);
    print_rows(hopper, hoppers);
    putchar('\n');
    print_rows(thunder, thunders);
    putchar('\n');
    print_rows(titan, 2);
    printf("\n## llm-foundry, row by row\n\nSeconds of a step; the last columns are what the "
           "simulated step is spent on, in %%.\n\n");
    print_rows(mpt, mpts);
    free(mpt);
    free(hopper);
    free(carried);
    free(thunder);
    return 0;
}
