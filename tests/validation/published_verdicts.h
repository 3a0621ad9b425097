/* published_verdicts.h - the rows of tests/data/published/verdicts.csv and vram.csv: jobs of which
 * others published that they ran out of memory or trained, or what they took, and what fit says of
 * them. */
#ifndef SHARDPLAN_TESTS_VALIDATION_PUBLISHED_VERDICTS_H
#define SHARDPLAN_TESTS_VALIDATION_PUBLISHED_VERDICTS_H

#include "job/job.h"
#include "tests/support/csv.h"

#include <stdbool.h>
#include <stdint.h>

enum fit_answer {
    ANSWER_FITS,
    ANSWER_TIGHT,     /* with less free than predictions have been off by */
    ANSWER_BY_CLOCK,  /* as blocks that another stream uses come back by the machine's clock */
    ANSWER_RELEASING, /* only by giving cached memory back in every step */
    ANSWER_NO,
    ANSWERS
};

enum figure { FIGURE_ALLOCATED, FIGURE_RESERVED, FIGURE_DEVICE, FIGURES };

struct published_verdict {
    const char *group, *name, *apart, *note; /* lent by the table; apart: "" or why it is not
                                              * counted */
    enum system_kind system;
    bool trained;                  /* or it ran out of the GPU's memory */
    enum fit_answer answer, other; /* other: with the source's missing setting as it may have been,
                                    * too; the same where nothing is missing that matters */
    bool has_other;
    double least_gib, held_gib, card_gib;       /* as fit prints them */
    double reported[FIGURES], planned[FIGURES]; /* GiB; reported 0: nothing */
};

static inline bool answer_fits(enum fit_answer answer)
{
    return answer != ANSWER_NO;
}

/* What the source leaves open decides. */
bool published_verdict_is_open(const struct published_verdict *row);
bool published_verdict_counts(const struct published_verdict *row);
/* Whether fit says what happened. */
bool published_verdict_is_right(const struct published_verdict *row);

/* Reads and predicts all. The table is lent as long as the rows, which are the caller's: free. Ends
 * the program where a row cannot be predicted. */
struct published_verdict *published_verdicts(const struct csv *csv);

#endif
