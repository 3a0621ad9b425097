/* version_notes.c - see version_notes.h. */
#include "report/version_notes.h"

#include "base/torch.h"

void version_notes_print(FILE *file, uint32_t torch)
{
    for (int i = 0; i < TORCH_CHANGES; i++) {
        const struct torch_row *row = torch_row((enum torch_change)i);
        if (!torch_does(torch, (enum torch_change)i))
            fprintf(file, "torch 2.%u: %s (until 2.%u)\n", torch, row->then, row->until);
    }
}

void version_notes_set(json_t *object, uint32_t torch)
{
    char version[16];
    json_t *otherwise = json_array();
    for (int i = 0; i < TORCH_CHANGES; i++) {
        const struct torch_row *row = torch_row((enum torch_change)i);
        if (torch_does(torch, (enum torch_change)i))
            continue;
        snprintf(version, sizeof version, "2.%u", row->until);
        json_array_append_new(otherwise, json_pack("{s:s, s:s, s:s}", "does", row->then, "until",
                                                   version, "source", row->source));
    }
    snprintf(version, sizeof version, "2.%u", torch ? torch : TORCH_NEWEST);
    json_object_set_new(object, "torch",
                        json_pack("{s:s, s:o}", "version", version, "otherwise", otherwise));
}
