/* nccl_tests_text.c - the table nccl-tests prints: see nccl_tests.h.
 *
 * Columns are found by the names in the header line, as they changed over the years. Lines that are
 * neither comments nor begin with a whole number are other programs' and are passed over. */
#include "base/number.h"
#include "nccl/nccl_tests_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS 32

struct columns {
    size_t count; /* 0: no header yet */
    size_t size, redop, root, time[2], algbw, busbw, wrong[2];
    bool in_place; /* there are two blocks */
};
#define NO_COLUMN ((size_t)-1)

/* One run: the lines between two device lists. */
struct run {
    enum program program;
    enum collective collective;
    uint32_t ranks;
    struct host_set hosts;
    int group;
    struct columns columns;
    size_t first; /* index of its first point */
    /* of the row with the most bytes: for a run that does not say what it is */
    bool sums, rooted;
    double ratio; /* busbw / algbw; 0 where algbw is too small to divide by */
};

struct text {
    struct nccl_tests_builder *builder;
    size_t line;
    struct run run;
};

static enum err_code bad(const struct text *t, struct err *err, const char *found,
                         const char *expected)
{
    return err_set(err, ERR_INVALID, "%s:%zu: %s; expected %s", t->builder->path, t->line, found,
                   expected);
}

static size_t tokens_of(char *line, char *tokens[MAX_TOKENS])
{
    size_t n = 0;
    char *rest = NULL;
    for (char *token = strtok_r(line, " \t\r", &rest); token && n < MAX_TOKENS;
         token = strtok_r(NULL, " \t\r", &rest))
        tokens[n++] = token;
    return n;
}

/* Which collective an unnamed run is: sums without a root are all_reduce or reduce_scatter, which
 * differ by 2 in bus bandwidth; a root without sums is broadcast. Copies without a root may be
 * all_gather or alltoall: those have to be named. */
static enum err_code infer(const struct text *t, enum collective *out, struct err *err)
{
    const struct run *run = &t->run;
    const enum collective known = t->builder->known.collective;
    if (known != COLLECTIVE_COUNT)
        *out = known;
    else if (run->rooted && !run->sums)
        *out = COLLECTIVE_BROADCAST;
    else if (!run->rooted && run->sums && run->ratio > 0)
        *out = run->ratio > 1.4 * (run->ranks - 1.0) / run->ranks ? COLLECTIVE_ALL_REDUCE
                                                                  : COLLECTIVE_REDUCE_SCATTER;
    else
        return bad(t, err, "the run that ends here does not say which collective it is",
                   "a line \"# Collective test starting: all_gather_perf\" (or reduce_scatter, "
                   "all_reduce, broadcast) before its table");
    return ERR_OK;
}

static enum err_code finish_run(struct text *t, struct err *err)
{
    struct run *run = &t->run;
    struct nccl_tests *out = t->builder->out;
    if (run->program == PROGRAM_UNKNOWN && out->count > run->first) {
        enum collective collective = COLLECTIVE_COUNT;
        TRY(infer(t, &collective, err));
        for (size_t i = run->first; i < out->count; i++)
            out->points[i].collective = collective;
    }
    host_set_free(&run->hosts);
    *run = (struct run){.first = out->count, .group = -1};
    return ERR_OK;
}

static enum err_code device_line(struct text *t, char *line, struct err *err)
{
    struct run *run = &t->run;
    char *token[MAX_TOKENS];
    const size_t n = tokens_of(line, token); /* # Rank 0 Group 0 Pid 41 on host device 0 ... */
    size_t on = 0, group = 0;
    for (size_t i = 1; i < n; i++) {
        if (on == 0 && strcmp(token[i], "on") == 0)
            on = i;
        if (group == 0 && strcmp(token[i], "Group") == 0)
            group = i;
    }
    if (on == 0 || on + 1 >= n)
        return bad(t, err, "a rank without a host", "\"#  Rank 0 Group 0 Pid 1 on HOST device 0\"");
    if (group > 0 && group + 1 < n) {
        const int number = atoi(token[group + 1]);
        if (run->group >= 0 && number != run->group)
            return err_set(err, ERR_UNSUPPORTED,
                           "%s:%zu: ranks in groups %d and %d: only runs of one group can be read",
                           t->builder->path, t->line, run->group, number);
        run->group = number;
    }
    run->ranks++;
    host_set_add(&run->hosts, token[on + 1]);
    return ERR_OK;
}

static enum err_code header_line(struct text *t, char *line, struct err *err)
{
    char *token[MAX_TOKENS];
    const size_t n = tokens_of(line, token);
    struct columns c = {.redop = NO_COLUMN, .root = NO_COLUMN};
    size_t times = 0, wrongs = 0;
    for (size_t i = 1; i < n; i++) { /* token 0 is the # */
        const size_t at = i - 1;
        if (strcmp(token[i], "redop") == 0)
            c.redop = at;
        else if (strcmp(token[i], "root") == 0)
            c.root = at;
        else if ((strcmp(token[i], "time") == 0 || strcmp(token[i], "cputime") == 0) && times < 2)
            c.time[times++] = at;
        else if (strcmp(token[i], "algbw") == 0 && c.algbw == 0)
            c.algbw = at;
        else if (strcmp(token[i], "busbw") == 0 && c.busbw == 0)
            c.busbw = at;
        else if ((strcmp(token[i], "#wrong") == 0 || strcmp(token[i], "error") == 0) && wrongs < 2)
            c.wrong[wrongs++] = at;
        c.count = at + 1;
    }
    if (times == 0 || c.algbw == 0 || c.busbw == 0)
        return bad(t, err, "a table without the columns time, algbw and busbw",
                   "\"#  size  count  type  redop  root  time  algbw  busbw  #wrong\"");
    c.in_place = times == 2;
    for (; wrongs < 2; wrongs++)
        c.wrong[wrongs] = NO_COLUMN;
    t->run.columns = c;
    return ERR_OK;
}

static enum err_code comment_line(struct text *t, char *line, struct err *err)
{
    const char *body = line + 1 + strspn(line + 1, " \t");
    if (strncmp(body, "Collective test starting", 24) == 0) {
        TRY(finish_run(t, err));
        t->run.program = nccl_tests_program(body, &t->run.collective);
        return ERR_OK;
    }
    /* The settings follow the name; in older versions, which have none, they begin a run. */
    if (strncmp(body, "nThread", 7) == 0 && (t->run.columns.count > 0 || t->run.ranks > 0))
        return finish_run(t, err);
    if (strncmp(body, "Rank ", 5) == 0)
        return device_line(t, line, err);
    if (strncmp(body, "size ", 5) == 0)
        return header_line(t, line, err);
    return ERR_OK;
}

/* The time of a block: 0 when it is N/A. */
static enum err_code time_of(const struct text *t, char *token[], int block, double *us,
                             struct err *err)
{
    const struct columns *c = &t->run.columns;
    const char *text = token[c->time[block]];
    if (strcmp(text, "N/A") == 0) {
        *us = 0;
        return ERR_OK;
    }
    if (!number_real(text, us) || *us < 0)
        return bad(t, err, text, "a time in microseconds, 0 or more");
    double wrong;
    if (c->wrong[block] != NO_COLUMN && number_real(token[c->wrong[block]], &wrong) && wrong >= 1)
        return bad(t, err, "a row whose results were wrong", "0 or N/A in the column #wrong");
    return ERR_OK;
}

static void remember_kind(struct run *run, char *token[])
{
    const struct columns *c = &run->columns;
    double root = -1, algbw = 0, busbw = 0;
    run->sums = c->redop != NO_COLUMN && strcmp(token[c->redop], "none") != 0;
    run->rooted = c->root != NO_COLUMN && number_real(token[c->root], &root) && root >= 0;
    if (number_real(token[c->algbw], &algbw) && number_real(token[c->busbw], &busbw) && algbw >= .1)
        run->ratio = busbw / algbw;
}

/* The point that a row of these many bytes is; what the file does not say, the caller knows. */
static struct collective_point point_of(const struct text *t, uint64_t bytes, double seconds)
{
    const struct run *run = &t->run;
    const struct nccl_tests_known *known = &t->builder->known;
    return (struct collective_point){
        .collective = run->collective,
        .ranks = run->ranks ? run->ranks : known->ranks,
        .nodes = run->hosts.count ? run->hosts.count : known->nodes,
        .bytes = bytes,
        .seconds = seconds,
    };
}

static enum err_code row_line(struct text *t, char *line, struct err *err)
{
    struct run *run = &t->run;
    char *token[MAX_TOKENS], *end;
    const size_t n = tokens_of(line, token);
    errno = 0;
    const uint64_t bytes = n > 0 ? strtoull(token[0], &end, 10) : 0;
    if (n == 0 || *end != '\0' || run->columns.count == 0)
        return ERR_OK; /* not a row: it begins with no whole number, or no table has begun */
    if (errno != 0)
        return bad(t, err, "a size beyond 64 bits", "bytes");
    if (n < run->columns.count) {
        char found[64];
        snprintf(found, sizeof found, "a row of %zu columns", n);
        return bad(t, err, found,
                   "as many as the header has, one or two blocks of time, algbw, "
                   "busbw, #wrong");
    }
    double us[2] = {0};
    TRY(time_of(t, token, 0, &us[0], err));
    if (run->columns.in_place)
        TRY(time_of(t, token, 1, &us[1], err));
    const bool in_place = us[1] > 0;
    const double seconds = 1e-6 * (in_place ? us[1] : us[0]);
    const struct collective_point point = point_of(t, bytes, seconds);
    if (run->program == PROGRAM_OTHER || bytes == 0 || !(seconds > 0)) {
        t->builder->out->left_out++;
        return ERR_OK;
    }
    if (point.ranks == 0 || point.nodes == 0)
        return bad(t, err, "a table whose ranks and hosts are not known",
                   "lines \"#  Rank 0 Group 0 Pid 1 on HOST device 0\" before it");
    run->ranks = point.ranks;
    remember_kind(run, token);
    nccl_tests_add(t->builder, point, in_place);
    return ERR_OK;
}

/* mpirun --tag-output puts "[1,0]<stdout>:" before every line. */
static char *without_tag(char *line)
{
    if (*line == '[') {
        char *tag = strstr(line, "<stdout>:");
        if (tag)
            line = tag + 9;
    }
    return line + strspn(line, " \t");
}

static enum err_code one_line(struct text *t, char *line, struct err *err)
{
    line = without_tag(line);
    if (*line == '#')
        return comment_line(t, line, err);
    if (*line >= '0' && *line <= '9')
        return row_line(t, line, err);
    enum collective collective;
    const enum program program = nccl_tests_program(line, &collective);
    if (program != PROGRAM_UNKNOWN && t->run.columns.count == 0 &&
        t->run.program == PROGRAM_UNKNOWN) { /* the command, kept above its output */
        t->run.program = program;
        t->run.collective = collective;
    }
    return ERR_OK;
}

enum err_code nccl_tests_text(struct nccl_tests_builder *builder, char *text, size_t length,
                              struct err *err)
{
    struct text t = {.builder = builder, .run = {.group = -1}};
    enum err_code rc = ERR_OK;
    for (char *line = text, *end = text + length; line < end && rc == ERR_OK;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            stop = end;
        *stop = '\0';
        t.line++;
        rc = one_line(&t, line, err);
        line = stop + 1;
    }
    if (rc == ERR_OK)
        rc = finish_run(&t, err);
    host_set_free(&t.run.hosts);
    return rc;
}
