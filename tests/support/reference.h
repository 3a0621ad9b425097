/* reference.h - runs of the reference models (tests/data/numerics/reference.json: 20 AdamW steps of
 * a small Llama and a small GPT-2 in fp32, each with and without clipping, recorded from PyTorch),
 * for the tests that execute plans. Failures are the test's. */
#ifndef SHARDPLAN_TEST_REFERENCE_H
#define SHARDPLAN_TEST_REFERENCE_H

#include <jansson.h>
#include <stddef.h>

struct variation {
    int ranks, batch; /* batch: sequences a rank and micro-batch; ranks·batch·accumulate = 8 */
    const char *options;
};

/* Set-up of a group of tests: the references, and a folder that goes with them; its tear-down is
 * trajectories_close. */
int reference_open(void **state);
const json_t *reference_models(void); /* lent */
const char *reference_folder(void);

/* config.json and initial.safetensors in the folder. */
void reference_write_config(const json_t *reference);
void reference_write_initial(const json_t *reference);

/* What a parameter of the reference is called in a plan. */
void reference_name(const char *name, char *out, size_t size);

/* Plans the model whose config.json was written last into the folder's plan/. */
void reference_plan(const json_t *reference, const struct variation *variation, const char *dtypes);
/* What the run in the folder's run/ recorded is what was planned, rank by rank, to the byte. */
void reference_check_memory(int ranks, const char *what);

/* Plans and runs every reference in every variation (the first reference by mpirun): losses and
 * gradient norms are PyTorch's within `tolerance`, memory is the planned. All recorded steps of the
 * first reference, and of the others in the first variation; elsewhere TRAJECTORY_SOME, on another
 * device (reference_on) and in a soak alone. */
void reference_check_all(const struct variation *variations, size_t count, const char *dtypes,
                         double tolerance);
/* The same of some steps (TRAJECTORY_SOME) of one model in each variation, or, in a soak, of both,
 * one of them clipped, in turns; ranks start as torchrun's instead of mpirun's (local_ranks.h). */
void reference_check_each(const struct variation *variations, size_t count, const char *dtypes,
                          double tolerance);
/* Ten steps are saved by one run, and the next ten are another's, of the clipped Llama. */
void reference_check_continued(const struct variation *first, const struct variation *second,
                               const char *dtypes);
/* Options of the runs from now on: where they run. Lent. */
void reference_on(const char *options);

#endif
