/* planned.h - a job's memory and time on a machine of which a test changes some numbers first. */
#ifndef SHARDPLAN_TESTS_PLANNED_H
#define SHARDPLAN_TESTS_PLANNED_H

#include "job/step_time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct planned {
    struct job job;
    struct machine machine;
    struct prediction prediction;
    struct step_time time;
};

/* A machine of eight such GPUs a node, with room for anything: planned_job follows. */
static inline struct planned planned_on(const char *gpu)
{
    struct planned p = {.machine = {.gpus_per_node = 8}};
    struct err err = {0};
    assert_int_equal(profile_find(gpu, &p.machine.profile, &err), ERR_OK);
    p.machine.profile.of[PROFILE_CAPACITY].value = 1e12;
    return p;
}

/* Fails the test where the job cannot be planned. The caller calls planned_free. */
static inline void planned_job(struct planned *p, const struct job *job)
{
    struct err err = {0};
    p->job = *job;
    if (predict(job, &p->machine, &p->prediction, &err) != ERR_OK ||
        step_time(&p->prediction, job, &p->machine, 0, &p->time, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static inline void planned_free(struct planned *p)
{
    step_time_free(&p->time);
    prediction_free(&p->prediction);
    profile_free(&p->machine.profile);
}

#endif
