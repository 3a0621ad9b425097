/* validate_gpu.c - prints the tables of reports/validation/memory-gpu.md: memory that real GPUs
 * needed, beside what is planned. */
#include "job/predict.h"
#include "tests/support/csv.h"
#include "tests/support/gpu_truth.h"
#include "tests/support/mpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB 0x1p30

static void print_steps(void)
{
    printf("\n## A training step, event by event\n\n"
           "| recording | events of forward and backward | in order and alike | two kernels' own | "
           "measured peak | planned peak | error |\n|---|---:|---:|---:|---:|---:|---:|\n");
    for (uint32_t i = 0; i < GPU_STEPS; i++) {
        const struct gpu_step s = gpu_step(i);
        printf("| %s | %u | %u | %u | %" PRIu64 " | %" PRIu64 " | %+.4f %% |\n", s.name, s.events,
               s.equal, s.workspaces, s.peak, s.planned_peak,
               100 * ((double)s.planned_peak / (double)s.peak - 1));
    }
}

static void print_replays(void)
{
    printf("\n## The caching allocator, allocation by allocation\n\n"
           "| recording | allocations | at PyTorch's address | peak of requested bytes | segments "
           "measured, bytes | segments planned, bytes | error "
           "|\n|---|---:|---:|---:|---:|---:|---:|\n");
    for (uint32_t i = 0; gpu_recordings[i]; i++) {
        const struct gpu_replay r = gpu_replay(gpu_recordings[i]);
        printf("| %s | %u | %s | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %+.4f %% |\n",
               gpu_recordings[i], r.allocs, r.differs[0] ? r.differs : "all", r.peak, r.reserved,
               r.planned, 100 * ((double)r.planned / (double)r.reserved - 1));
    }
}

struct verdicts {
    size_t rows, fit, after_release;
};

static void print_run(const struct csv *csv, size_t row, struct verdicts *sums)
{
    const struct job job = mpt_job(csv, row);
    struct machine machine = {.gpus_per_node = 8};
    struct prediction p = {0};
    struct err err = {0};
    if (profile_find(mpt_gpu(csv, row), &machine.profile, &err) != ERR_OK ||
        predict(&job, &machine, &p, &err) != ERR_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    printf("| MPT-%s, %u x %u, %u x %s, %s | ran | %.2f | %.2f | %.2f | %s |\n",
           csv_text(csv, row, "model"), job.model.batch, job.model.seq, job.strategy.world,
           csv_text(csv, row, "gpu"), csv_text(csv, row, "precision"), (double)p.least_bytes / GIB,
           (double)p.unconstrained_bytes / GIB,
           profile_value(&machine.profile, PROFILE_CAPACITY) / GIB,
           !p.fits           ? "does not fit"
           : p.after_release ? "fits by giving segments back"
           : p.tight         ? "fits, tight"
                             : "fits");
    sums->rows++;
    sums->fit += p.fits;
    sums->after_release += p.after_release;
    prediction_free(&p);
    profile_free(&machine.profile);
}

static void print_verdicts(void)
{
    static const char *const files[] = {"llmfoundry_a100.csv", "llmfoundry_h100_part.csv"};
    struct verdicts sums = {0};
    printf("\n## Whether it fits\n\n"
           "| run | measured | needed at the least, GiB | held without end, GiB | device, GiB | "
           "verdict |\n|---|---|---:|---:|---:|---|\n");
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        char path[96];
        snprintf(path, sizeof path, "tests/data/published/%s", files[f]);
        struct csv csv = csv_read(path);
        for (size_t i = 0; i < csv.rows; i++)
            print_run(&csv, i, &sums);
        csv_free(&csv);
    }
    printf("\n%zu of %zu runs fit, %zu of them by giving segments back.\n", sums.fit, sums.rows,
           sums.after_release);
}

static const char *why_not(const struct csv *csv, size_t row)
{
    const char *compiler = csv_text(csv, row, "compile");
    const bool fp8 = strstr(csv_text(csv, row, "precision"), "fp8") ||
                     strstr(csv_text(csv, row, "precision"), "float8");
    return fp8 && strstr(compiler, "torch.compile") ? "torchao's float8 under torch.compile"
           : fp8                                    ? "TransformerEngine's fp8"
           : strstr(compiler, "thunder")            ? "thunder's own compiler chooses what is kept"
                                                    : "torch.compile of the whole model";
}

/* The eager one is in the table before, from `shardplan fit`. */
static void print_thunder(void)
{
    struct csv csv = csv_read("tests/data/published/lightning_thunder_fsdp.csv");
    printf("\n## Measured, and not planned\n\n"
           "| run | measured, GB | what of it is not planned |\n|---|---:|---|\n");
    for (size_t i = 0; i < csv.rows; i++)
        if (strcmp(csv_text(&csv, i, "compile"), "no") != 0 && *csv_text(&csv, i, "peak_mem"))
            printf("| %s | %s | %s |\n", csv_text(&csv, i, "row_id"), csv_text(&csv, i, "peak_mem"),
                   why_not(&csv, i));
    csv_free(&csv);
}

int main(void)
{
    print_steps();
    print_replays();
    print_verdicts();
    print_thunder();
    return 0;
}
