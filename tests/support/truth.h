/* truth.h - for the tests that compare with recordings of PyTorch itself: reading a row of
 * tests/data/truth, and comparing its events and numbers with a plan of ours. */
#ifndef SHARDPLAN_TRUTH_H
#define SHARDPLAN_TRUTH_H

#include "job/job.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Members of a JSON object, or `otherwise` where absent or of another type. */
const char *truth_text(const json_t *object, const char *key, const char *otherwise);
uint32_t truth_number(const json_t *object, const char *key, uint32_t otherwise);
bool truth_bool(const json_t *object, const char *key, bool otherwise);

/* A recipe by its name in torchao; FLOAT8_NONE: it is none. */
enum float8 truth_float8(const char *recipe);
enum float8_gather truth_float8_gather(const char *scales);

/* Reads a row's "model" into *config and *job (batch, sequence, code). False, with a printed
 * reason: it cannot be read. */
typedef bool (*truth_read_model)(const json_t *row, struct model_config *config,
                                 struct model_job *job);

/* A line as a row. The caller owns it; NULL: it is no JSON. */
json_t *truth_row(const char *line);

/* The same, but for its events: a list of them is empty. They are most of a line, and take
 * long to be read. */
json_t *truth_row_head(const char *line);

/* Whether a row is of a system. */
bool truth_is_of(const json_t *row, enum system_kind system);

/* Whether a row is of what this version plans. */
bool truth_is_planned(const json_t *row);

/* Plans a row as recorded: `read` reads its model, the strategy is read here. NULL, with a printed
 * reason: it cannot be planned. The caller owns the plan: plan_free. */
struct plan *truth_plan(const json_t *row, truth_read_model read);

/* The row's strategy alone. */
void truth_strategy(const json_t *row, struct strategy *out);

/* Whether an alloc or a free of a plan is `event` of a row's list (NULL: it has none); both as
 * text.
 */
enum { TRUTH_EVENT = 512 };
bool truth_same_event(const json_t *row, const json_t *event, const struct plan *plan,
                      const struct plan_instruction *i, char ours[TRUTH_EVENT],
                      char theirs[TRUTH_EVENT]);

/* Number of events that differ from the recorded ones; prints the first. */
size_t truth_compare_events(const json_t *row, const struct plan *plan);

/* The same for a row of a first step: of the states that its optimizer makes there, in order. */
size_t truth_compare_states(const json_t *row, const struct plan *plan);

/* The same for a row of record_real.py, which knows bytes and signs and leaves out the smallest. */
size_t truth_compare_bytes(const json_t *row, const struct plan *plan);

/* The readers of both kinds of rows: models written for the recorder, and Hugging Face's. */
bool truth_read_written(const json_t *row, struct model_config *config, struct model_job *job);
bool truth_read_hf(const json_t *row, struct model_config *config, struct model_job *job);
bool truth_read_either(const json_t *row, struct model_config *config, struct model_job *job);
/* Of models that tools/record.py recorded: the recording that the row names. */
bool truth_read_recorded(const json_t *row, struct model_config *config, struct model_job *job);

struct truth_result { /* one row, recorded beside planned; lent for the visit */
    const char *name;
    uint64_t recorded_peak, planned_peak; /* requested bytes */
    uint32_t events;                      /* planned */
    size_t wrong_events;                  /* that differ; not 0 when it could not be planned */
    size_t unequal;                       /* numbers that differ: peak, marks, segment peaks */
    double worst_error;                   /* of those, relative */
};

/* Plans every row of a system in a file and hands the comparison to `visit`; a row that several
 * versions of PyTorch recorded alike ("torch_also"), as each of them. False: no such file. */
bool truth_each(const char *path, enum system_kind system, bool events, truth_read_model read,
                void (*visit)(void *context, const struct truth_result *result), void *context);

/* Plans and compares every row of a system in a file and fails the test where events (if `events`)
 * or numbers are not the recorded ones. */
void truth_check_file(const char *path, enum system_kind system, bool events,
                      truth_read_model read);

#endif
