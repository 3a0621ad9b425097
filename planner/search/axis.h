/* axis.h - a setting, or a number of the profile, and the values that it is to take.
 *
 *     reshard=default,never,8     these values
 *     reshard                     the values of its own that the table of settings has
 *     micro-batch=1..8            every integer
 *     seq=2048..16384+2048        ... and in steps of 2048
 *     gpus=8..1024x2              ... and each twice the one before
 *     seq=2k..128kx2              ... in thousands, where a setting has these
 *     profile.nic_bytes_per_s=x0.5,x1,25e9
 *                                 a number of the profile (machine/profile.h): as often the one
 *                                 that is there, or in its place; multiprocessors (profile.sms)
 *                                 take the peaks of all of them along
 *
 * A choice is what a prediction depends on, with one value of each axis put in. */
#ifndef SHARDPLAN_AXIS_H
#define SHARDPLAN_AXIS_H

#include "base/arena.h"
#include "machine/profile.h"
#include "settings/settings.h"

enum { AXIS_MOST_VALUES = 1 << 16, CHOICE_NUMBERS = 4 };

struct axis {
    const char *name;          /* as the setting's row or the profile's key has it; in the arena */
    const struct setting *row; /* NULL: a number of the profile ... */
    enum profile_key key;      /* ... this one */
    const char **values;       /* (count) as they would be typed; in the arena */
    uint32_t count;            /* 0: none were given, and it has none of its own */
};

/* Reads an axis of the base settings' command. ERR_INVALID: the name or a value is none, or there
 * are more values than AXIS_MOST_VALUES. A setting of another system than the base's is an axis,
 * too: `strategy` may be another. */
enum err_code axis_read(const struct settings *base, const char *text, struct arena *arena,
                        struct axis *out, struct err *err);

struct choice_number { /* of the profile */
    enum profile_key key;
    double value;
    bool scales; /* the value is times what is there */
};

struct choice { /* copied freely; texts are lent */
    struct settings settings;
    struct choice_number numbers[CHOICE_NUMBERS];
    uint32_t number_count;
};

/* Puts values[i] of each axis into a copy of the base, the system before all else. ERR_INVALID: the
 * system does not have the setting, or one that the base was given. */
enum err_code axis_choose(const struct settings *base, const struct axis *axes,
                          const char *const *values, uint32_t count, struct choice *out,
                          struct err *err);

/* Puts the numbers into a machine's profile. ERR_INVALID as profile_set_number. */
enum err_code choice_set_numbers(const struct choice *choice, struct profile *profile,
                                 struct err *err);

#endif
