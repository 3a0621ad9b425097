/* called.h - what a name on the Hub says beside the shape of its model: for the files of this
 * folder only.
 *
 * "unsloth/Qwen2.5-7B-Instruct-bnb-4bit" has the shape of Qwen2.5-7B, with other weights, in 4
 * bits. */
#ifndef SHARDPLAN_FAMILIES_CALLED_H
#define SHARDPLAN_FAMILIES_CALLED_H

#include <stdbool.h>
#include <stdint.h>

enum { CALLED_WORDS = 16 };

struct called {
    char text[128];              /* the name without its owner; "" where it is longer */
    uint8_t begin[CALLED_WORDS]; /* of words that other weights of the same shape have, in order */
    uint8_t length[CALLED_WORDS];
    uint32_t count;
    bool bits4;      /* bitsandbytes' weights, whose modules are the unquantized model's */
    char format[16]; /* of weights that are quantized for another kind of module, "GPTQ"; "" */
    uint32_t plain;  /* where that begins */
};

struct called called_read(const char *name);

struct stem {
    char text[128];
};
/* The name without the last `dropped` of those words, "qwen2.5-7b"; and without the format. */
struct stem called_stem(const struct called *called, uint32_t dropped);

#endif
