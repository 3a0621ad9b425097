/* values.c - see values.h. */
#include "runtime/execution/values.h"

#include "base/ending_signals.h"
#include "runtime/execution/rope_table.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* ---- parameters ---- */

static void fill(float value, uint64_t count, float *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = value;
}

static void fill_uniform(double bound, uint32_t p, uint64_t first, uint64_t count, float *out)
{
    const uint32_t start =
        (uint32_t)(first * 2654435761U + (uint64_t)(p + 1) * 40503U * 65537U + 12345U);
    const double width = 2 * bound;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t x = start + (uint32_t)i * 2654435761U;
        x = (x ^ (x >> 16)) * 2246822519U;
        out[i] = (float)(((double)x / 4294967296.0 - 0.5) * width);
    }
}

/* Steele, Lea, Flood 2014: splitmix64's finalizer. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/* Box and Muller: two numbers from the halves of one. */
static void draw_pair(double std, uint64_t bits, float out[2])
{
    const float u = ((float)(bits >> 40) + 0.5F) * 0x1p-24F;
    const float v = (float)(bits & 0xffffffU) * 0x1p-24F;
    const float radius = (float)std * sqrtf(-2.0F * logf(u));
    sincosf(6.2831853F * v, &out[1], &out[0]);
    out[0] *= radius;
    out[1] *= radius;
}

/* An element that was drawn beyond the limit. */
static float draw_within(const struct param_init *init, uint64_t bits)
{
    float again[2];
    do {
        bits = mix(bits);
        draw_pair(init->number, bits, again);
    } while (fabs((double)again[0]) > init->limit);
    return again[0];
}

static void fill_normal(const struct param_init *init, uint64_t seed, uint64_t first,
                        uint64_t count, float *out)
{
    const double std = init->number;
    float pair[2];
    uint64_t i = 0;
    if (first % 2 && count) {
        draw_pair(std, mix(seed + first / 2), pair);
        out[i++] = pair[1];
    }
    for (; i + 1 < count; i += 2)
        draw_pair(std, mix(seed + (first + i) / 2), out + i);
    if (i < count) {
        draw_pair(std, mix(seed + (first + i) / 2), pair);
        out[i] = pair[0];
    }
    for (i = 0; init->limit > 0 && i < count; i++)
        if (fabs((double)out[i]) > init->limit)
            out[i] = draw_within(init, seed + first + i);
}

static void fill_part(const struct param_init *init, uint32_t p, uint64_t first, uint64_t count,
                      float *out)
{
    switch (init->kind) {
    case INIT_UNIFORM:
        fill_uniform(init->number, p, first, count, out);
        break;
    case INIT_NORMAL:
        fill_normal(init, mix((uint64_t)p + 1), first, count, out);
        break;
    case INIT_NUMBER:
        fill((float)init->number, count, out);
        break;
    default:
        fill(init->kind == INIT_ONES ? 1.0F : 0.0F, count, out);
        break;
    }
}

/* ---- many elements: a thread each for parts of them ---- */

enum { MOST_THREADS = 16, LEAST_A_THREAD = 1 << 17 };

struct part_job {
    const struct param_init *init;
    uint32_t p;
    uint64_t first, count;
    float *out;
};

static void *fill_job(void *context)
{
    const struct part_job *job = context;
    fill_part(job->init, job->p, job->first, job->count, job->out);
    return NULL;
}

static uint64_t threads_for(uint64_t count)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const uint64_t most = cores < 1 ? 1 : cores < MOST_THREADS ? (uint64_t)cores : MOST_THREADS;
    const uint64_t wanted = count / LEAST_A_THREAD;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

void values_of_param(const struct param_init *init, uint32_t p, uint64_t first, uint64_t count,
                     float *out)
{
    const uint64_t parts = threads_for(count), each = (count + parts - 1) / parts;
    pthread_t thread[MOST_THREADS];
    struct part_job job[MOST_THREADS];
    bool started[MOST_THREADS] = {false};
    for (uint64_t i = 0; i < parts; i++) {
        const uint64_t at = i * each, end = at + each < count ? at + each : count;
        job[i] = (struct part_job){init, p, first + at, end - at, out + at};
        if (i + 1 < parts)
            started[i] = ending_signals_thread(&thread[i], fill_job, &job[i]) == 0;
        if (!started[i]) /* the last one, or where no thread is to be had */
            fill_job(&job[i]);
    }
    for (uint64_t i = 0; i < parts; i++)
        if (started[i])
            pthread_join(thread[i], NULL);
}

/* ---- modules' buffers ---- */

static void fill_range(const struct shape *shape, int64_t *out)
{
    const uint64_t count = shape_elements(shape);
    const uint32_t width = shape->rank ? shape->dim[shape->rank - 1] : 1;
    for (uint64_t i = 0; i < count; i++)
        out[i] = (int64_t)(i % width);
}

static void fill_integers(int64_t number, uint64_t count, int64_t *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = number;
}

/* Of row t the places k <= t, and of these those with k > t - window, unless that is 0. */
static void fill_window(const struct shape *shape, float window, uint8_t *out)
{
    const uint64_t n = shape->dim[shape->rank - 1], count = shape_elements(shape);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t t = i / n % n, k = i % n;
        out[i] = k <= t && (!(window > 0) || (float)(t - k) < window);
    }
}

/* Of each row so many of one number, then so many of another. */
static void fill_parts(const struct buffer_values *values, uint64_t count, float *out)
{
    for (uint64_t at = 0; at < count;)
        for (uint32_t part = 0; part < values->parts; at += values->widths[part++])
            fill(values->numbers[part], values->widths[part], out + at);
}

void values_of_buffer(const struct buffer_values *values, const struct shape *shape,
                      enum dtype dtype, void *out)
{
    if (values->kind == VALUES_RANGE)
        fill_range(shape, out);
    else if (values->kind == VALUES_WINDOW)
        fill_window(shape, values->number, out);
    else if (values->kind == VALUES_NUMBER && dtype == DTYPE_INT64)
        fill_integers((int64_t)values->number, shape_elements(shape), out);
    else if (values->kind == VALUES_PARTS)
        fill_parts(values, shape_elements(shape), out);
    else if (values->kind == VALUES_NUMBER)
        fill(values->number, shape_elements(shape), out);
    else if (values->kind == VALUES_ROPE && values->layout == ROPE_COMPLEX)
        rope_table(&values->rope, shape->dim[1], out);
    else if (values->kind == VALUES_ROPE && values->layout == ROPE_SINES)
        rope_sines(&values->rope, shape->dim[0], out);
    else if (values->kind == VALUES_ROPE && values->layout == ROPE_TURNS)
        rope_turns(&values->rope, shape->dim[0], out);
    else if (values->kind == VALUES_ROPE)
        rope_frequencies(&values->rope, out);
    else
        memset(out, 0, shape_bytes(shape, dtype));
}
