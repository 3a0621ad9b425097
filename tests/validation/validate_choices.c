/* validate_choices.c - prints reports/validation/choices.md: of settings of one job that were all
 * measured, the order that is predicted beside the order that was. */
#include "tests/support/mpt.h"
#include "tests/support/published_runs.h"

#include "base/arena.h"
#include "job/step_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_MOST = 16 };

struct row {
    char job[160], setting[160];
    double measured, predicted; /* tokens a second and GPU */
};

static void fail(const struct err *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(2);
}

static double predict_tokens(const struct job *job, const char *gpu)
{
    struct err err = {0};
    struct prediction prediction;
    struct machine machine = {.gpus_per_node = 8};
    struct step_time time;
    if (profile_find(gpu, &machine.profile, &err) != ERR_OK)
        fail(&err);
    machine.profile.attention = MPT_ATTENTION;
    if (predict(job, &machine, &prediction, &err) != ERR_OK ||
        step_time(&prediction, job, &machine, 0, &time, &err) != ERR_OK)
        fail(&err);
    const double tokens = time.tokens_per_s;
    step_time_free(&time);
    prediction_free(&prediction);
    profile_free(&machine.profile);
    return tokens;
}

static struct row *read_rows(size_t *count)
{
    struct csv csv = csv_read("tests/data/published/llmfoundry_a100.csv");
    struct row *rows = xmalloc(csv.rows * sizeof *rows);
    for (size_t i = 0; i < csv.rows; i++) {
        const struct job job = mpt_timed_job(&csv, i);
        const bool small = strcmp(csv_text(&csv, i, "gpu"), "a100_40gb") == 0;
        rows[i] = (struct row){
            .measured = csv_number(&csv, i, "throughput_tokens_per_s_per_gpu"),
            .predicted = predict_tokens(&job, small ? "a100-sxm-40gb" : "a100-sxm-80gb"),
        };
        snprintf(rows[i].job, sizeof rows[i].job, "MPT-%s, %u tokens, A100 %s",
                 csv_text(&csv, i, "model"), job.model.seq, small ? "40 GB" : "80 GB");
        snprintf(rows[i].setting, sizeof rows[i].setting, "%u GPUs, %u x %u", job.strategy.world,
                 job.model.batch, job.strategy.accumulate);
    }
    *count = csv.rows;
    csv_free(&csv);
    return rows;
}

static bool is_known(const struct row *rows, size_t count, const struct row *row)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].job, row->job) == 0 && rows[i].predicted == row->predicted)
            return true;
    return false;
}

/* Other programs' runs. Two that come to one plan are one setting, measured twice: the first. */
static struct row *read_runs(size_t *count)
{
    struct csv csv = csv_read("tests/data/published/runs.csv");
    struct published_run *runs = published_runs(&csv);
    struct row *rows = xmalloc((csv.rows + 1) * sizeof *rows);
    size_t n = 0;
    for (size_t i = 0; i < csv.rows; i++) {
        const struct published_run *run = &runs[i];
        const char *slash = strrchr(run->model, '/');
        struct row *row = &rows[n];
        *row = (struct row){.measured = run->tokens / run->measured_s,
                            .predicted = run->tokens / run->simulated_s};
        snprintf(row->job, sizeof row->job, "%s, %u tokens, %u GPUs, %s",
                 slash ? slash + 1 : run->model, run->seq, run->gpus, run->group);
        snprintf(row->setting, sizeof row->setting, "%s", run->name);
        n += !published_run_is_apart(run) && !is_known(rows, n, row);
    }
    *count = n;
    free(runs);
    csv_free(&csv);
    return rows;
}

struct agreement { /* of pairs and of groups */
    uint32_t concordant, discordant, tied, groups;
    double regret, worst;
    double apart; /* by which predictions of discordant ones differ, at most */
};

/* Kendall's tau-b: pairs in the same order less pairs in the other, of those that are not tied. */
static double tau(const struct agreement *a)
{
    const double pairs = a->concordant + a->discordant;
    const double all = pairs + a->tied;
    return all > 0 ? (a->concordant - (double)a->discordant) / sqrt(pairs * all) : NAN;
}

static void compare_pair(const struct row *a, const struct row *b, struct agreement *out)
{
    const double order = (a->measured - b->measured) * (a->predicted - b->predicted);
    if (order > 0)
        out->concordant++;
    else if (order == 0)
        out->tied++;
    if (order >= 0)
        return;
    out->discordant++;
    out->apart =
        fmax(out->apart, fmax(a->predicted / b->predicted, b->predicted / a->predicted) - 1);
}

static void add(const struct agreement *group, struct agreement *all)
{
    all->concordant += group->concordant;
    all->discordant += group->discordant;
    all->tied += group->tied;
    all->groups++;
    all->regret += group->regret;
    all->worst = fmax(all->worst, group->regret);
    all->apart = fmax(all->apart, group->apart);
}

static struct agreement compare_group(struct row *const *rows, uint32_t count)
{
    struct agreement group = {.groups = 1};
    const struct row *best = rows[0], *chosen = rows[0];
    for (uint32_t i = 0; i < count; i++) {
        best = rows[i]->measured > best->measured ? rows[i] : best;
        chosen = rows[i]->predicted > chosen->predicted ? rows[i] : chosen;
        for (uint32_t j = 0; j < i; j++)
            compare_pair(rows[i], rows[j], &group);
    }
    group.regret = 1 - chosen->measured / best->measured;
    return group;
}

static void print_group(struct row *const *rows, uint32_t count, const struct agreement *group)
{
    printf("| %s |", rows[0]->job);
    for (uint32_t i = 0; i < count; i++)
        printf("%s %s: %.0f (%.0f)", i ? ";" : "", rows[i]->setting, rows[i]->measured,
               rows[i]->predicted);
    printf(" | %.2f | %.1f %% |\n", tau(group), 100 * group->regret);
}

/* Rows of one job that differ in settings; with `same_gpus`, of as many GPUs. */
static struct agreement compare(struct row *rows, size_t count, bool same_gpus)
{
    struct agreement all = {.groups = 0};
    bool *done = calloc(count + 1, sizeof *done);
    for (size_t i = 0; i < count; i++) {
        struct row *group[GROUP_MOST];
        uint32_t members = 0;
        for (size_t j = i; j < count && members < GROUP_MOST; j++)
            if (!done[j] && strcmp(rows[i].job, rows[j].job) == 0 &&
                (!same_gpus || atoi(rows[i].setting) == atoi(rows[j].setting))) {
                done[j] = true;
                group[members++] = &rows[j];
            }
        if (members < 2)
            continue;
        const struct agreement one = compare_group(group, members);
        print_group(group, members, &one);
        add(&one, &all);
    }
    free(done);
    return all;
}

static void print_all(const struct agreement *a)
{
    printf("\n%u groups, %u pairs: tau %.2f (%u in the measured order, %u not, %u tied); regret of "
           "what is predicted\nto be the fastest: mean %.1f %%, largest %.1f %%\n",
           a->groups, a->concordant + a->discordant + a->tied, tau(a), a->concordant, a->discordant,
           a->tied, 100 * a->regret / a->groups, 100 * a->worst);
    if (a->discordant)
        printf("Those in the other order are predicted to differ by %.1f %% at most.\n",
               100 * a->apart);
}

int main(void)
{
    size_t count;
    struct row *rows = read_rows(&count);
    static const char head[] = "| job | setting: measured (predicted) tokens/s a GPU | tau | "
                               "regret |\n|---|---|---:|---:|\n";
    printf("## Settings of one job on the same GPUs\n\n%s", head);
    struct agreement agreement = compare(rows, count, true);
    print_all(&agreement);
    printf("\n## Micro-batch and number of GPUs\n\n%s", head);
    agreement = compare(rows, count, false);
    print_all(&agreement);
    free(rows);
    rows = read_runs(&count);
    printf("\n## Settings of one job in other programs\n\n%s", head);
    agreement = compare(rows, count, false);
    print_all(&agreement);
    free(rows);
    return 0;
}
