/* backends.h - the places a piece of work can run, for the conformance suite: each test of it runs
 * once on every backend that is here, and is listed as skipped, with the reason, for one that is
 * not.
 *
 * `on_backends` runs a list of tests so. A test gives its work to `run_on_backend`, with operands
 * in the test's own memory: the host takes them as they are; for a device they are copied there and
 * back, each stretch of memory to a segment of exactly its size, so that a checker of addresses
 * sees a kernel leave it. */
#ifndef SHARDPLAN_TESTS_BACKENDS_H
#define SHARDPLAN_TESTS_BACKENDS_H

#include "base/arena.h"
#include "base/layout.h"
#include "runtime/host/host_device.h"
#include "runtime/host/host_ops.h"
#include "runtime/loader/cuda_load.h"
#include "runtime/work/operand.h"
#include "tests/support/lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct backend {
    const char *name;
    const char *missing; /* why it is skipped; NULL: it is there */
    enum err_code (*open)(uint64_t memory_bytes, uint32_t events, struct lane_list lanes,
                          struct comm *comm, struct device **out, struct err *err);
};

enum { BACKENDS = 3, MOST_TESTS = 64 };

static inline enum err_code open_cuda(uint64_t memory_bytes, uint32_t events,
                                      struct lane_list lanes, struct comm *comm,
                                      struct device **out, struct err *err)
{
    const struct cuda_settings settings = {
        .memory_bytes = memory_bytes,
        .events = events,
        .lanes = lanes,
        .comm = comm,
        .ranks = 1,
        .timeout_s = 60,
        .deterministic = true,
    };
    return device_open_cuda(&settings, out, err);
}

/* The cuda backend's sources over tests/emulate: where no GPU is, they run all the same. */
static inline enum err_code open_emulated(uint64_t memory_bytes, uint32_t events,
                                          struct lane_list lanes, struct comm *comm,
                                          struct device **out, struct err *err)
{
    const char *file = getenv("SHARDRUN_EMULATED"), *before = getenv(CUDA_BACKEND_VARIABLE);
    char kept[4096];
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    *out = NULL;
    if (!file)
        return err_set(err, ERR_UNSUPPORTED, "SHARDRUN_EMULATED names no file");
    setenv(CUDA_BACKEND_VARIABLE, file, 1);
    const enum err_code rc = open_cuda(memory_bytes, events, lanes, comm, out, err);
    if (before)
        setenv(CUDA_BACKEND_VARIABLE, kept, 1);
    else
        unsetenv(CUDA_BACKEND_VARIABLE);
    return rc;
}

/* The table, asked once: a backend is looked for by opening it. */
static inline const struct backend *all_backends(void)
{
    static struct backend all[BACKENDS] = {
        {"host", NULL, device_open_host},
        {"cuda", NULL, open_cuda},
        {"cuda, emulated", NULL, open_emulated},
    };
    static struct err err[BACKENDS];
    static bool asked;
    for (int b = 1; b < BACKENDS && !asked; b++) {
        struct device *dev = NULL;
        if (all[b].open(0, 1, test_lanes, NULL, &dev, &err[b]) != ERR_OK)
            all[b].missing = err[b].text;
        device_close(dev);
    }
    asked = true;
    return all;
}

/* ---- work in the test's memory ---- */

static const struct backend *backend_in_use;

struct stretch { /* of the test's memory, and where it is on the device */
    char *begin, *end;
    uint64_t address;
};

static inline struct stretch stretch_of(const struct work_operand *x)
{
    const struct strides layout = layout_of(&x->shape, x->pitch, x->layout);
    uint64_t elements;
    assert_true(layout_reach(&x->shape, &layout, &elements));
    return (struct stretch){x->data, (char *)x->data + elements * dtype_bytes((enum dtype)x->dtype),
                            0};
}

/* Adds a stretch, joined with those that it touches. */
static inline uint32_t add_stretch(struct stretch *all, uint32_t count, struct stretch add)
{
    for (uint32_t i = 0; i < count;) {
        if (add.begin >= all[i].end || all[i].begin >= add.end) {
            i++;
            continue;
        }
        add.begin = all[i].begin < add.begin ? all[i].begin : add.begin;
        add.end = all[i].end > add.end ? all[i].end : add.end;
        all[i] = all[--count];
        i = 0;
    }
    all[count] = add;
    return count + 1;
}

static inline void *move_pointer(const struct stretch *all, uint32_t count, void *data)
{
    for (uint32_t i = 0; i < count; i++)
        if ((char *)data >= all[i].begin && (char *)data < all[i].end)
            return (void *)(uintptr_t)(all[i].address + (uint64_t)((char *)data - all[i].begin));
    return NULL; /* an operand without elements */
}

static inline enum err_code run_on_device(struct device *dev, const struct work *work,
                                          struct err *err)
{
    const uint32_t operands = work->ins + work->outs;
    struct stretch *all = xmalloc((operands + 1) * sizeof *all);
    struct work_operand *moved = xmalloc((operands + 1) * sizeof *moved);
    uint32_t count = 0;
    for (uint32_t i = 0; i < operands; i++) {
        const struct stretch own = stretch_of(&work->operand[i]);
        if (own.begin && own.end > own.begin)
            count = add_stretch(all, count, own);
    }
    enum err_code rc = ERR_OK;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t bytes = (uint64_t)(all[i].end - all[i].begin);
        all[i].address = device_segment_new(dev, bytes);
        assert_true(all[i].address != 0);
        assert_int_equal(device_write(dev, all[i].address, all[i].begin, bytes, err), ERR_OK);
    }
    struct work there = *work;
    there.operand = moved;
    for (uint32_t i = 0; i < operands; i++) {
        moved[i] = work->operand[i];
        moved[i].data = move_pointer(all, count, work->operand[i].data);
    }
    rc = device_launch(dev, LANE_COMPUTE, &there, err);
    if (rc == ERR_OK)
        rc = device_sync(dev, err);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t bytes = (uint64_t)(all[i].end - all[i].begin);
        if (rc == ERR_OK)
            rc = device_read(dev, all[i].begin, all[i].address, bytes, err);
        device_segment_drop(dev, all[i].address, bytes);
    }
    free(moved);
    free(all);
    return rc;
}

/* As host_run, on the backend whose turn it is. A failure stays on a device, so it has a new one.
 */
static inline enum err_code run_on_backend(const struct work *work, struct err *err)
{
    static struct device *dev; /* of the program: closed when it ends */
    struct err own = {0};
    if (!backend_in_use || strcmp(backend_in_use->name, "host") == 0)
        return host_run(work, err);
    if (!dev && backend_in_use->open(0, 1, test_lanes, NULL, &dev, &own) != ERR_OK)
        fail_msg("%s", own.text);
    const enum err_code rc = run_on_device(dev, work, &own);
    if (rc == ERR_OK)
        return ERR_OK;
    device_close(dev);
    dev = NULL;
    return err_set(err, rc, "%s", own.text);
}

/* ---- running a list of tests on each ---- */

static inline void the_backend_is_there(void **state)
{
    const struct backend *backend = *state;
    if (!backend->missing)
        return;
    printf("note: %s: %s\n", backend->name, backend->missing);
    skip();
}

static inline int use_backend(void **state)
{
    backend_in_use = *state;
    return 0;
}

/* Tests without set-up of their own, whose state is not used. */
static inline int on_backends(const char *name, const struct CMUnitTest *tests, size_t count)
{
    static char names[BACKENDS * (MOST_TESTS + 1)][128];
    struct CMUnitTest all[BACKENDS * (MOST_TESTS + 1)];
    size_t n = 0;
    assert_true(count <= MOST_TESTS);
    for (int b = 0; b < BACKENDS; b++) {
        const struct backend *backend = &all_backends()[b];
        for (size_t i = 0; i <= (backend->missing ? 0 : count); i++, n++) {
            all[n] = (struct CMUnitTest){.test_func = the_backend_is_there};
            if (i > 0)
                all[n] = tests[i - 1];
            snprintf(names[n], sizeof names[n], "%s: %s", backend->name,
                     i > 0 ? tests[i - 1].name : "the_backend_is_there");
            all[n].name = names[n];
            all[n].setup_func = use_backend;
            all[n].initial_state = (void *)(uintptr_t)backend;
        }
    }
    return _cmocka_run_group_tests(name, all, n, NULL, NULL);
}

#endif
