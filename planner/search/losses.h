/* losses.h - other ways to compute the same loss, where the peak is in it.
 *
 * Logits of a large vocabulary, in fp32, with their softmax and their gradient, may be more than
 * all the rest. Chunks, a kernel for all of it, or torch.compile compute the same function of them
 * in the same dtypes, and have fewer of them at a time: what is rounded, and in which order it is
 * added, differs. */
#ifndef SHARDPLAN_LOSSES_H
#define SHARDPLAN_LOSSES_H

#include "job/predict.h"
#include "settings/settings.h"

/* Whether it is cross-entropy of logits in fp32, averaged over tokens, by whatever kernels. */
bool loss_is_plain(enum cross_entropy loss);

/* In words what such a loss does otherwise than the others: "the same loss, in chunks of tokens".
 */
const char *loss_how(enum cross_entropy loss);

/* Whether the peak is in a loss that has others: then what is said here is worth saying. */
bool losses_have_peak(const struct job *job, const struct prediction *prediction);

/* The settings with the code that has Liger's and others' losses, in *out; false: they have it
 * already, or the model has it not. */
bool losses_in_transformers(const struct settings *settings, const struct model_config *config,
                            struct settings *out);

enum { LOSSES_MOST = 4 };

struct other_loss {
    const char *code; /* where it takes another one; else NULL */
    const char *loss;
    uint64_t device_bytes;
};

/* Those that take least of a device, the least first, and less than the prediction; plans each.
 * What fits only by giving cached memory back takes all there is, and is none. Returns their
 * number, 0 where losses_have_peak says no. */
uint32_t losses_find(const struct settings *settings, const struct job *job,
                     const struct machine *machine, const struct prediction *prediction,
                     struct other_loss out[LOSSES_MOST]);

#endif
