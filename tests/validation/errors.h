/* errors.h - what a table says of the errors of its rows: how many, their mean, their bias, the
 * largest. An error is predicted over measured, less 1. */
#ifndef SHARDPLAN_TESTS_ERRORS_H
#define SHARDPLAN_TESTS_ERRORS_H

#include <math.h>
#include <stddef.h>

struct errors {
    size_t count;
    double sum, absolute, largest; /* largest: with its sign */
};

static inline void errors_add(struct errors *e, double error)
{
    e->count++;
    e->sum += error;
    e->absolute += fabs(error);
    e->largest = fabs(error) > fabs(e->largest) ? error : e->largest;
}

/* In percent: of the errors' sizes, and of the errors. NaN of none. */
static inline double errors_mean(const struct errors *e)
{
    return 100 * e->absolute / (double)e->count;
}

static inline double errors_bias(const struct errors *e)
{
    return 100 * e->sum / (double)e->count;
}

static inline double errors_largest(const struct errors *e)
{
    return 100 * e->largest;
}

#endif
