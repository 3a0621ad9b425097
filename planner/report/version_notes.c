/* version_notes.c - see version_notes.h. */
#include "report/version_notes.h"

#include "base/torch.h"
#include "job/recorded_under.h"

enum { LINES = 4 }; /* more are folded */

/* The job's version does it otherwise than the default, and its system can meet that. */
static bool is_met(const struct job *job, enum torch_change change)
{
    const enum torch_whose whose = torch_row(change)->whose;
    return torch_does(job->model.torch, change) != torch_does(TORCH_WHOLE, change) &&
           (whose == TORCH_OF_ALL ||
            job->strategy.system == (whose == TORCH_OF_FSDP1 ? SYSTEM_FSDP1 : SYSTEM_FSDP2));
}

/* What a version does, and between which it does. */
struct note {
    const char *does;
    const char *word; /* "until", "from" */
    uint32_t version; /* 2.x */
};

static struct note note_of(uint32_t torch, enum torch_change change)
{
    const struct torch_row *row = torch_row(change);
    if (!torch_does(torch, change))
        return (struct note){row->then, "until", row->until};
    return torch < row->from ? (struct note){row->now, "until", row->from}
                             : (struct note){row->now, "from", row->until};
}

/* 0: the newest DeepSpeed, or none. */
static uint32_t older_deepspeed(const struct job *job)
{
    const struct strategy *s = &job->strategy;
    return system_zero_stage(s->system) && s->zero.version != ZERO_NEWEST ? s->zero.version : 0;
}

#define DEEPSPEED_TEXT                                                                             \
    "keys and defaults are its own; what it allocates, and when, was recorded of " ZERO_VERSION    \
    " alone and is planned as there"

bool version_notes_any(const struct job *job)
{
    const uint32_t torch = job->model.torch;
    return (torch != 0 && torch != TORCH_WHOLE) || older_deepspeed(job);
}

/* "torch 2.16: --compile is planned as 2.15 does it, under which it was recorded last" */
static void print_not_recorded(FILE *file, const struct job *job, const char *indent,
                               const struct recorded_under *row)
{
    const uint32_t torch = job->model.torch, instead = recorded_under_instead(row, torch);
    fprintf(file, "%storch 2.%u: %s is planned as 2.%u does it, under which it was recorded %s\n",
            indent, torch, row->what, instead, torch > instead ? "last" : "first");
}

void version_notes_print_start_up(FILE *file, const struct job *job)
{
    const struct recorded_under *row = recorded_under_start_up(job);
    if (row)
        print_not_recorded(file, job, "  ", row);
}

void version_notes_print(FILE *file, const struct job *job, bool all)
{
    const struct recorded_under *row;
    uint32_t count = 0;
    const uint32_t deepspeed = older_deepspeed(job);
    if (deepspeed)
        fprintf(file, "DeepSpeed 0.%u.%u: %s\n", deepspeed / 100, deepspeed % 100, DEEPSPEED_TEXT);
    for (uint32_t i = 0; (row = recorded_under_not(job, i)) != NULL; i++)
        print_not_recorded(file, job, "", row);
    for (int i = 0; i < TORCH_CHANGES; i++)
        count += is_met(job, (enum torch_change)i);
    if (!all && count > LINES) {
        fprintf(file,
                "torch 2.%u: %u things are planned as it does them, not as 2.%u does: "
                "--explain and --json list them\n",
                job->model.torch, count, (unsigned)TORCH_WHOLE);
        return;
    }
    for (int i = 0; i < TORCH_CHANGES; i++) {
        const struct note note = note_of(job->model.torch, (enum torch_change)i);
        if (is_met(job, (enum torch_change)i))
            fprintf(file, "torch 2.%u: %s (%s 2.%u)\n", job->model.torch, note.does, note.word,
                    note.version);
    }
}

static json_t *not_recorded_json(const struct job *job, const struct recorded_under *row)
{
    char instead[24];
    snprintf(instead, sizeof instead, "2.%u", recorded_under_instead(row, job->model.torch));
    return json_pack("{s:s, s:s, s:s}", "what", row->what, "planned_as", instead, "source",
                     row->source);
}

json_t *version_notes_start_up(const struct job *job)
{
    const struct recorded_under *row = recorded_under_start_up(job);
    return row ? not_recorded_json(job, row) : NULL;
}

static json_t *all_not_recorded(const struct job *job)
{
    const struct recorded_under *row;
    json_t *list = json_array();
    for (uint32_t i = 0; (row = recorded_under_not(job, i)) != NULL; i++)
        json_array_append_new(list, not_recorded_json(job, row));
    return list;
}

void version_notes_set(json_t *object, const struct job *job)
{
    const uint32_t torch = job->model.torch, deepspeed = older_deepspeed(job);
    char version[24];
    json_t *otherwise = json_array();
    for (int i = 0; i < TORCH_CHANGES; i++) {
        const struct note note = note_of(torch, (enum torch_change)i);
        if (!is_met(job, (enum torch_change)i))
            continue;
        snprintf(version, sizeof version, "2.%u", note.version);
        json_array_append_new(otherwise,
                              json_pack("{s:s, s:s, s:s}", "does", note.does, note.word, version,
                                        "source", torch_row((enum torch_change)i)->source));
    }
    snprintf(version, sizeof version, "0.%u.%u", deepspeed / 100, deepspeed % 100);
    if (deepspeed)
        json_object_set_new(object, "deepspeed",
                            json_pack("{s:s, s:s}", "version", version, "note", DEEPSPEED_TEXT));
    snprintf(version, sizeof version, "2.%u", torch ? torch : TORCH_WHOLE);
    json_object_set_new(object, "torch",
                        json_pack("{s:s, s:o, s:o}", "version", version, "otherwise", otherwise,
                                  "not_recorded", all_not_recorded(job)));
}
