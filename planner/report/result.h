/* result.h - a prediction for people and for programs. */
#ifndef SHARDPLAN_RESULT_H
#define SHARDPLAN_RESULT_H

#include "report/style.h"
#include "search/padding.h"
#include "search/remedy.h"
#include "search/saved_views.h"
#include "settings/settings.h"

#include <stdio.h>

/* The object of `fit --json`, also the `memory` of plan.json. The caller owns it. */
json_t *result_json(const struct settings *settings, const struct job *job,
                    const struct machine *machine, const struct prediction *prediction,
                    const struct remedy *remedies, uint32_t remedy_count);

/* The same as tables. Colour only when `file` is a terminal. */
void result_print(FILE *file, const struct settings *settings, const struct job *job,
                  const struct machine *machine, const struct prediction *prediction,
                  const struct remedy *remedies, uint32_t remedy_count);

/* Beside a verdict: what the file that settings came from asks for and no plan has. */
void result_print_unplanned(FILE *file, const struct settings *settings);

/* Remedies alone: the array, which the caller owns, and a line each. */
json_t *remedies_json(const struct remedy *remedies, uint32_t count);
/* Where there are none: the settings among which none was looked for. */
void remedies_unsearched_print(FILE *file, const struct settings *settings);
void remedies_print(FILE *file, const struct style *style, const struct remedy *remedies,
                    uint32_t count);

/* What padding costs: the object of `fit --json`, which the caller owns, and a paragraph; `device`
 * is the prediction's device_bytes. */
json_t *padding_json(const struct padding *padding);
void padding_print(FILE *file, const struct padding *padding, uint64_t device_bytes);

/* Likewise what views of gathered parameters hold. */
json_t *saved_views_json(const struct saved_views *views);
void saved_views_print(FILE *file, const struct saved_views *views, uint64_t device_bytes);

/* What is being allocated at an instruction, in words: "_log_softmax_backward_data [8192, 128256]
 * float32, in bwd". Writes into text and returns it. */
const char *result_what(const struct plan *plan, uint32_t instruction, char *text, size_t size);

#endif
