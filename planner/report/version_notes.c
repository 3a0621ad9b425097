/* version_notes.c - see version_notes.h. */
#include "report/version_notes.h"

#include "base/torch.h"

enum { LINES = 4 }; /* more are folded */

/* The job's version does it otherwise, and its system can meet that. */
static bool is_met(const struct job *job, enum torch_change change)
{
    const enum torch_whose whose = torch_row(change)->whose;
    return !torch_does(job->model.torch, change) &&
           (whose == TORCH_OF_ALL ||
            job->strategy.system == (whose == TORCH_OF_FSDP1 ? SYSTEM_FSDP1 : SYSTEM_FSDP2));
}

void version_notes_print(FILE *file, const struct job *job, bool all)
{
    uint32_t count = 0;
    for (int i = 0; i < TORCH_CHANGES; i++)
        count += is_met(job, (enum torch_change)i);
    if (!all && count > LINES) {
        fprintf(file,
                "torch 2.%u: %u things are planned as it does them, not as 2.%u does: "
                "--explain and --json list them\n",
                job->model.torch, count, (unsigned)TORCH_NEWEST);
        return;
    }
    for (int i = 0; i < TORCH_CHANGES; i++) {
        const struct torch_row *row = torch_row((enum torch_change)i);
        if (is_met(job, (enum torch_change)i))
            fprintf(file, "torch 2.%u: %s (until 2.%u)\n", job->model.torch, row->then, row->until);
    }
}

void version_notes_set(json_t *object, const struct job *job)
{
    const uint32_t torch = job->model.torch;
    char version[16];
    json_t *otherwise = json_array();
    for (int i = 0; i < TORCH_CHANGES; i++) {
        const struct torch_row *row = torch_row((enum torch_change)i);
        if (!is_met(job, (enum torch_change)i))
            continue;
        snprintf(version, sizeof version, "2.%u", row->until);
        json_array_append_new(otherwise, json_pack("{s:s, s:s, s:s}", "does", row->then, "until",
                                                   version, "source", row->source));
    }
    snprintf(version, sizeof version, "2.%u", torch ? torch : TORCH_NEWEST);
    json_object_set_new(object, "torch",
                        json_pack("{s:s, s:o}", "version", version, "otherwise", otherwise));
}
