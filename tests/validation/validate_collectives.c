/* validate_collectives.c - prints reports/validation/collectives.md: predicted beside published. */
#include "tests/support/published.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE (16U << 20)
#define MAX_TABLES 64
#define MAX_ROWS 512

struct row {
    struct published_row published;
    struct collective_cost cost;
    double predicted;
};

struct report {
    struct row rows[MAX_ROWS];
    size_t count;
};

static void add(void *context, const struct published_row *published)
{
    struct report *report = context;
    if (report->count == MAX_ROWS) {
        fprintf(stderr, "more than %d published rows\n", MAX_ROWS);
        exit(1);
    }
    struct row *row = &report->rows[report->count++];
    row->published = *published;
    if (!published->unknown)
        row->predicted = published_predict(published, &row->cost);
}

struct tally {
    size_t large, large_in, small, small_in;
    double bias, worst; /* of the large rows */
};

static void count(struct tally *t, const struct row *r)
{
    const double ratio = r->predicted / r->published.seconds;
    if (r->published.bytes > LARGE) {
        t->large++;
        t->large_in += fabs(ratio - 1) <= .10;
        t->bias += ratio - 1;
        if (fabs(ratio - 1) > fabs(t->worst))
            t->worst = ratio - 1;
    } else {
        t->small++;
        t->small_in += ratio <= 1.5 && ratio >= 1 / 1.5;
    }
}

static void print_tally(const char *name, const struct tally *t, const char *remark)
{
    printf("| %s | ", name);
    if (t->large)
        printf("%zu of %zu | %+.1f %% | %+.1f %% | ", t->large_in, t->large,
               100 * t->bias / (double)t->large, 100 * t->worst);
    else
        printf("- | - | - | ");
    if (t->small)
        printf("%zu of %zu | ", t->small_in, t->small);
    else
        printf("- | ");
    printf("%s |\n", remark ? remark : "");
}

/* Sweeps of collective_points.csv are told apart by the prefix of their machine. */
static const char *table_of(const struct row *r)
{
    return r->published.machine->prefix;
}

static void print_summary(const struct report *report)
{
    const char *done[MAX_TABLES];
    size_t tables = 0;
    struct tally all = {0};
    printf("| table | above 16 MiB within 10 %% | bias | worst | up to 16 MiB within x1.5 | "
           "remark |\n|---|---:|---:|---:|---:|---|\n");
    for (size_t i = 0; i < report->count; i++) {
        const char *name = table_of(&report->rows[i]);
        size_t seen = 0;
        while (seen < tables && strcmp(done[seen], name) != 0)
            seen++;
        if (seen < tables || report->rows[i].published.unknown || tables == MAX_TABLES)
            continue;
        done[tables++] = name;
        struct tally tally = {0};
        for (size_t j = i; j < report->count; j++)
            if (!report->rows[j].published.unknown &&
                strcmp(table_of(&report->rows[j]), name) == 0) {
                count(&tally, &report->rows[j]);
                count(&all, &report->rows[j]);
            }
        print_tally(name, &tally, report->rows[i].published.machine->remark);
    }
    print_tally("all", &all, NULL);
}

static void print_rows(const struct report *report)
{
    printf("\n## Every row\n\n| row | collective | ranks | nodes | bytes | way | measured us | "
           "predicted us | error |\n|---|---|---:|---:|---:|---|---:|---:|---:|\n");
    for (size_t i = 0; i < report->count; i++) {
        const struct row *r = &report->rows[i];
        const struct published_row *p = &r->published;
        if (!p->unknown)
            printf("| %s | %s | %u | %u | %" PRIu64 " | %s %s | %.2f | %.2f | %+.1f %% |\n", p->id,
                   p->collective, p->ranks, p->nodes, p->bytes,
                   nccl_algorithm_name(r->cost.algorithm), nccl_protocol_name(r->cost.protocol),
                   1e6 * p->seconds, 1e6 * r->predicted, 100 * (r->predicted / p->seconds - 1));
    }
}

static void print_unknown(const struct report *report)
{
    printf("\n## Not predicted\n\n| row | bytes | why |\n|---|---:|---|\n");
    for (size_t i = 0; i < report->count; i++) {
        const struct published_row *p = &report->rows[i].published;
        if (p->unknown)
            printf("| %s | %" PRIu64 " | %s |\n", p->id, p->bytes, p->unknown);
    }
}

int main(void)
{
    struct report *report = calloc(1, sizeof *report);
    if (!report)
        return 1;
    published_each(add, report);
    print_summary(report);
    print_rows(report);
    print_unknown(report);
    free(report);
    return 0;
}
