/* result.h - a prediction for people and for programs. */
#ifndef SHARDPLAN_RESULT_H
#define SHARDPLAN_RESULT_H

#include "report/style.h"
#include "search/remedy.h"
#include "settings/settings.h"

#include <stdio.h>

/* The object of `fit --json`, also the `memory` of plan.json. The caller owns it. */
json_t *result_json(const struct settings *settings, const struct job *job,
                    const struct machine *machine, const struct prediction *prediction,
                    const struct remedy *remedies, uint32_t remedy_count);

/* The same as tables. Colour only when `file` is a terminal. */
void result_print(FILE *file, const struct settings *settings, const struct job *job,
                  const struct machine *machine, const struct prediction *prediction);

/* Below it, of a job that does not fit: what would make it, or that nothing would. */
void result_print_remedies(FILE *file, const struct settings *settings,
                           const struct remedy *remedies, uint32_t remedy_count);

/* Beside a verdict: what the file that settings came from asks for and no plan has. */
void result_print_unplanned(FILE *file, const struct settings *settings);

/* Remedies alone: the array, which the caller owns, and a line each, those that train the same
 * apart from the others, below `title`: "what would fit". */
json_t *remedies_json(const struct remedy *remedies, uint32_t count);
/* Where there are none: the settings among which none was looked for. */
void remedies_unsearched_print(FILE *file, const struct settings *settings);
void remedies_print(FILE *file, const struct style *style, const char *title,
                    const struct remedy *remedies, uint32_t count);

/* What costs memory beyond the model's own, if anything does: padding (search/padding.h) and views
 * of gathered parameters (search/saved_views.h). Keys of `fit --json`'s object, and paragraphs. */
void result_json_causes(json_t *root, const struct settings *settings, const struct job *job,
                        const struct machine *machine, const struct prediction *prediction);
void result_print_causes(FILE *file, const struct settings *settings, const struct job *job,
                         const struct machine *machine, const struct prediction *prediction);

/* What is being allocated at an instruction, in words: "_log_softmax_backward_data [8192, 128256]
 * float32, in bwd". Writes into text and returns it. */
const char *result_what(const struct plan *plan, uint32_t instruction, char *text, size_t size);

#endif
