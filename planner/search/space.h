/* space.h - every combination of settings that a search may choose from.
 *
 * A grid is a sharding system, an axis of it a setting: the rows of the settings' table with values
 * worth a search. What is given is no axis, nor what changes numerics, unless that is allowed.
 *
 * The tokens of a step stay what they are: micro-batch is an axis over the divisors of a GPU's
 * sequences a step, and accumulation follows from it. */
#ifndef SHARDPLAN_SPACE_H
#define SHARDPLAN_SPACE_H

#include "search/numerics.h"
#include "settings/settings.h"

enum { AXES_MOST = 32 };

struct grid_value {
    const char *text;
    struct settings with; /* its fields are copied from here */
};

struct grid_axis {
    const struct setting *row;
    const struct setting *follows; /* is set with it: accumulate with micro-batch; NULL: nothing */
    struct grid_value *values;
    uint32_t count;
    uint32_t usual;   /* which of them is the framework's default; count: none */
    uint32_t present; /* ... and which one was asked for; count: none */
};

struct grid { /* points are numbers in mixed radix, the last axis running fastest */
    struct settings base;
    struct grid_axis axes[AXES_MOST];
    uint32_t axis_count;
    bool other_system; /* than was asked for: a change of every point, beside those of axes */
    uint32_t inner;    /* the first of the axes, at the end, that leave the work of a step as it is:
                          how far ahead things are fetched, and how memory is handed out */
    uint64_t outer_points, inner_points; /* before and from there on: what a point / inner_points
                                            and point % inner_points count */
};

/* Who is to be told the answer may not have a word for every setting: fills in a bit for each row
 * of the settings' table that cannot be said, and their names; in `idle` a bit for each that would
 * be otherwise, too, but has no effect beside the others. ERR_UNSUPPORTED: not the system at all.
 */
typedef enum err_code space_refuses(void *context, const struct settings *settings,
                                    uint64_t rows[SETTINGS_ROW_WORDS],
                                    uint64_t idle[SETTINGS_ROW_WORDS], char *list, size_t size,
                                    struct err *err);

/* What the reader would make of settings: *would, whose texts are in the arena. */
typedef enum err_code space_would(void *context, const struct settings *settings,
                                  struct settings *would, struct arena *arena, struct err *err);

struct left_out { /* a system that is not searched: it trains otherwise, or lacks what was given */
    enum system_kind system;
    struct numerics numerics; /* how, and which settings let it in once they are allowed: none where
                                 it lacks one */
};

struct space {
    struct grid *grids; /* (grid_count) owned, as the rest: space_free */
    uint32_t grid_count;
    uint32_t blocks;     /* of the model; 0: not known before a micro-batch is chosen */
    uint64_t points;     /* of all grids */
    const char *reader;  /* of space_options */
    const char *unsaid;  /* "--strategy ddp, --units 2|4": what is not searched because it cannot be
                            said; "": nothing */
    const char *adopted; /* "--clip 1": what nobody gave and the reader has otherwise, so that it is
                            as the reader has it; "": nothing */
    struct left_out left_out[SYSTEM_COUNT]; /* (left_out_count) */
    uint32_t left_out_count;
    struct err refused; /* why the first system that is not there cannot be */
    struct arena arena;
};

struct space_options {
    bool refixed;  /* search what is given, too: other answers to the same question */
    bool saves;    /* not what only spends memory for time */
    bool numerics; /* search all that changes numerics, but for the model and its inputs */
    bool rest;     /* search settings that otherwise only --allow opens, where none of their values
                      changes numerics */
    const struct model_config *config; /* the model's: lent as long as the space */
    uint64_t global_batch;             /* sequences a step; 0: as the settings say */
    space_refuses *refuses;            /* NULL: nothing */
    space_would *would;                /* ... and what would be instead; NULL: that is not known */
    const char *reader; /* ... whose words these are: "torchtitan"; lent as long as the space */
    void *context;
};

/* The space around settings whose `fix` and `allow` are heeded. Systems that train in other dtypes
 * are brought to the settings' own where they have words for them, and left out where they have
 * not, unless that is allowed. ERR_INVALID: --fix or --allow names
 * what is not there, or the batch cannot be split among the GPUs. ERR_UNSUPPORTED: nothing of it
 * can be said. The caller owns *out. */
enum err_code space_new(const struct settings *settings, const struct space_options *options,
                        struct space *out, struct err *err);
void space_free(struct space *space);

/* Whether a space of these options chooses a setting of the system's. */
bool space_searches(const struct settings *settings, const struct space_options *options,
                    const struct setting *row);

struct untried { /* names of settings by commas, of the systems that are searched: in the arena */
    const char *opened; /* left as they are, unless --allow names them */
    const char *wider;  /* searched, and with more values where --allow names them */
    const char *kept;   /* of how a system trains, with no values to search: as given or by default.
                           What names things or changes numerics by itself is none: it is the job */
};

/* What a search of the space leaves out, by the settings' table: what `unsaid` says aside, which
 * --allow does not open. */
struct untried space_untried(const struct space *space, struct arena *arena);

/* Digit of a point on an axis. */
uint32_t grid_digit(const struct grid *grid, uint64_t point, uint32_t axis);
/* The point with another digit there. */
uint64_t grid_with(const struct grid *grid, uint64_t point, uint32_t axis, uint32_t digit);

/* The settings of a point: values only, not which of them are given. */
void grid_settings(const struct grid *grid, uint64_t point, struct settings *out);
/* Makes settings of a point those of another one with the same outer part: point %
 * grid.inner_points is `inner`. */
void grid_settings_within(const struct grid *grid, uint64_t inner, struct settings *out);
/* The same to be shown: what is not at its default is given. Texts are lent by the space. */
void grid_chosen(const struct grid *grid, uint64_t point, struct settings *out);

/* Of all outer points of a space, one grid's after the other, the place of one; of the grid behind
 * the last: how many there are. */
uint64_t space_place(const struct space *space, uint32_t grid, uint64_t outer);

/* Axes on which a point is not at the framework's default; not as asked for. */
uint32_t grid_departures(const struct grid *grid, uint64_t point);
uint32_t grid_changes(const struct grid *grid, uint64_t point);
/* The same of one part of a point: point % inner_points. */
uint32_t grid_inner_departures(const struct grid *grid, uint64_t inner);
/* Of outer points, from `outer` on, the first with that many changes at most; outer_points: none.
 * Those with more are passed over together, where they begin alike. */
uint64_t grid_outer_within(const struct grid *grid, uint64_t outer, uint32_t most);

#endif
