/* model_notes.c - see model_notes.h. */
#include "report/model_notes.h"

#include "families/families.h"

enum { NOTE = 512 };

void model_notes_print(FILE *file, const char *prefix, const struct job *job)
{
    char text[NOTE];
    for (uint32_t i = 0; model_note(&job->config, &job->model, i, text, sizeof text); i++)
        fprintf(file, "%snote: %s\n", prefix, text);
}

void model_notes_set(json_t *object, const struct job *job)
{
    char text[NOTE];
    json_t *notes = json_array();
    for (uint32_t i = 0; model_note(&job->config, &job->model, i, text, sizeof text); i++)
        json_array_append_new(notes, json_string(text));
    if (json_array_size(notes))
        json_object_set(object, "notes", notes);
    json_decref(notes);
}
