/* tune.h - the question "which settings?", answered: the fastest that fit, which of those that are
 * as good to take, and why. */
#ifndef SHARDPLAN_TUNE_H
#define SHARDPLAN_TUNE_H

#include "job/step_time.h"
#include "search/least.h"
#include "search/per_unit.h"
#include "search/remedy.h"
#include "search/search.h"
#include "search/why.h"

enum { TUNE_RUNNERS = 4, TUNE_DRAWS = 20 };

struct tuned {
    bool alone;               /* of one GPU, of which nobody said how: `single` alone is searched */
    struct settings settings; /* as asked, resolved */
    struct job job;
    struct machine machine;
    struct space space;
    struct candidates candidates;
    struct search search; /* front[0] is the fastest that fits */
    uint64_t most_bytes;  /* of a GPU that there are, as asked for */
    uint64_t limit_bytes; /* what a job may take of them: less the headroom */
    struct found chosen;  /* among those as fast as far as the profile's numbers are known; none
                             that is told is as fast, as far as is shown, with less memory */
    double low_s, high_s; /* of its step: as step_time's */
    bool by_clock;        /* it fits as blocks come back by the machine's clock (predict.h) ... */
    uint64_t late_bytes;  /* ... of a device, where they did as waits show it */
    bool offloads;        /* it does, and takes of a host: */
    uint64_t host_needed_bytes, host_capacity_bytes; /* as prediction's */
    uint32_t host_ranks;
    struct per_unit per_unit; /* ... which it may come of */
    struct settings choice;   /* its settings, those off their defaults given */
    struct tuned_setting reasons[AXES_MOST + 1];
    uint32_t reason_count;
    struct simpler simpler;
    struct found *front; /* (front_count) search.front as it is told: with what gains nothing that
                            is shown put back (nearer.h) */
    uint32_t front_count;
    struct found runners[TUNE_RUNNERS]; /* the next fastest of those that were simulated and fit,
                                           each in another way than by what is fetched when */
    uint32_t runner_count;
    struct least least;     /* where nothing fits, as the next */
    struct tight_fit tight; /* of most_bytes; not judged where the search was ended early */
    struct remedy remedies[REMEDIES]; /* where nothing fits: the nearest that does */
    uint32_t remedy_count;
    double seconds; /* that all this took */
};

struct tune_options {
    uint32_t threads;     /* 0: as many as there are cores */
    uint64_t grain_bytes; /* of the front (search.h); 0: a 64th of the device */
    const volatile int *stop;
    void (*progress)(void *context, const char *what, double share);
    void *context;
    space_refuses *refuses; /* what it refuses is not searched (space.h); NULL: nothing */
    space_would *would;     /* what would be instead; NULL: that is not known */
    void *refuses_context;
    const char *reader; /* whose words these are: lent as long as the answer */
};

/* Answers for settings of COMMAND_TUNE. That nothing fits is an answer: search.front_count is 0.
 * ERR_INVALID, ERR_UNSUPPORTED: bad settings, or no job of the space is possible. The caller owns
 * *out: tune_free. */
enum err_code tune(const struct settings *settings, const struct tune_options *options,
                   struct tuned *out, struct err *err);
void tune_free(struct tuned *tuned);

struct tuned_prediction { /* of one choice of settings, as the commands predict it */
    struct job job;       /* lends from tuned */
    struct machine machine;
    struct prediction prediction;
    struct step_time time;
};

/* Predicts settings of the space as the commands do, on their machine: `whole` with every
 * instruction of the step, or as predict_few. `draws`: of step_time. Errors are settings_job's,
 * predict's and step_time's. The caller owns *out: tuned_prediction_free. */
enum err_code tuned_predict(const struct tuned *tuned, const struct settings *settings, bool whole,
                            uint32_t draws, struct tuned_prediction *out, struct err *err);
void tuned_prediction_free(struct tuned_prediction *prediction);

/* Settings of one that was found, those off their defaults given; texts are lent by the space. */
void tuned_settings(const struct tuned *tuned, const struct found *found, struct settings *out);

#endif
