/* recording_steps.h - for this folder alone: the text of a variant's steps, taken apart. */
#ifndef SHARDPLAN_RECORDING_STEPS_H
#define SHARDPLAN_RECORDING_STEPS_H

#include "recorded/recording_parts.h"

/* Where a storage of a call is: an operand's `place`, buffers by the recording's numbers. */
struct recorded_step {
    enum recorded_step_kind {
        RECORDED_BIRTH,       /* arg: type; buffer: the number it gets */
        RECORDED_DEATH,       /* buffer */
        RECORDED_CALL,        /* arg: call; places */
        RECORDED_GRADIENT,    /* arg: parameter; buffer */
        RECORDED_PRE_FORWARD, /* arg: module; likewise the next three */
        RECORDED_POST_FORWARD,
        RECORDED_PRE_BACKWARD,
        RECORDED_POST_BACKWARD,
        RECORDED_BACK,   /* arg: module */
        RECORDED_CALLED, /* arg: module of `called`; likewise the next three */
        RECORDED_RETURNED,
        RECORDED_CALLED_BACK,
        RECORDED_RETURNED_BACK,
        RECORDED_SAVED, /* arg: parameter; likewise the next */
        RECORDED_UNSAVED,
        RECORDED_LOGITS,
        RECORDED_LOSS,
        RECORDED_BLOCKS,
        RECORDED_FINAL,
    } kind;
    uint32_t arg, buffer;
    uint32_t first_place; /* of recorded_steps.places; as many as the call has */
    bool recomputed, sums;
};

struct recorded_steps {
    struct recorded_step *of;
    uint32_t *places;
    uint32_t count, cap, place_count, place_cap, buffers;
    bool unbegun; /* backward never begins at the root's border: hooks found no tensor there */
};

struct recorded_limits { /* numbers in a text are below these */
    uint32_t params, modules, called, inputs, constants;
    const bool *trained; /* (params) lent: the others get no gradients */
};

/* Takes the text apart and holds it to the recording: numbers are of something, buffers are alive
 * when they are used, die once, and gradients are given once, to what is trained. Errors name line
 * and step. The caller frees *out with recorded_steps_free, also after an error. */
enum err_code recorded_steps_read(const struct recording *recording, uint32_t line,
                                  const char *text, const struct recorded_limits *limits,
                                  struct recorded_steps *out, struct err *err);
void recorded_steps_free(struct recorded_steps *steps);

#endif
