/* test_reuse.c - what lies between two uses of an operand, beside the same looked up step by step:
 * from each kernel back to the one that touched its input last, and on to the last that reads its
 * output. */
#include "graph/reuse.h"
#include "graph/tape.h"
#include "tests/support/small_graphs.h"
#include "tests/support/soak.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

struct script { /* a stream's kernels, in the order in which they run */
    struct kernel **kernels;
    uint32_t count;
};

static struct script script_of(const struct stream *stream)
{
    struct script script = {calloc(stream->step_count + 1, sizeof(struct kernel *)), 0};
    assert_non_null(script.kernels);
    for (uint32_t i = 0; i < stream->step_count; i++)
        if (stream->steps[i].kind == STEP_KERNEL)
            script.kernels[script.count++] = &stream->kernels->kernels[stream->steps[i].arg];
    return script;
}

static double touched_by(const struct kernel *kernel)
{
    double bytes = 0;
    for (int i = 0; i < kernel->ins + kernel->outs; i++)
        bytes +=
            (double)shape_bytes(&kernel->operands[i].shape, (enum dtype)kernel->operands[i].dtype);
    return bytes;
}

/* The last of the kernel's operands from `first` to `end` that is there; NULL: none is. */
static const struct operand *last_in(const struct kernel *kernel, int first, int end,
                                     uint32_t place)
{
    for (int i = end; i-- > first;)
        if (kernel->operands[i].place == place)
            return &kernel->operands[i];
    return NULL;
}

static const struct operand *read_by(const struct kernel *kernel, uint32_t place)
{
    return last_in(kernel, 0, kernel->ins, place);
}

static const struct operand *written_by(const struct kernel *kernel, uint32_t place)
{
    return last_in(kernel, kernel->ins, kernel->ins + kernel->outs, place);
}

static double size_of(const struct operand *operand)
{
    return (double)shape_bytes(&operand->shape, (enum dtype)operand->dtype);
}

static bool is_known(uint32_t place)
{
    return place != PLACE_NONE &&
           ((place & PLACE_MASK) == PLACE_BUFFER || (place & PLACE_MASK) == PLACE_PARAM);
}

/* Of an input of kernel `at`: what kernels touched since one touched it, from its first byte on; if
 * another part of it was read last, since it was written. */
static double since_input(const struct script *s, uint32_t at, const struct operand *operand)
{
    double bytes = 0;
    bool other = false;
    for (uint32_t i = at; i-- > 0; bytes += touched_by(s->kernels[i])) {
        const struct operand *written = written_by(s->kernels[i], operand->place);
        const struct operand *read = read_by(s->kernels[i], operand->place);
        if (written)
            return 1 + bytes + size_of(written);
        if (read && !other && read->offset == operand->offset)
            return 1 + bytes + touched_by(s->kernels[i]);
        other |= read != NULL;
    }
    return 0;
}

/* Of an output of kernel `at`: until the last that reads it, before it is written again. */
static double until_last(const struct script *s, uint32_t at, uint32_t place)
{
    double bytes = size_of(written_by(s->kernels[at], place)), until = 0;
    for (uint32_t i = at + 1; i < s->count; bytes += touched_by(s->kernels[i++])) {
        if (read_by(s->kernels[i], place))
            until = 1 + bytes;
        if (written_by(s->kernels[i], place))
            break;
    }
    return until;
}

static void compare(const struct stream *stream, const char *name, uint32_t *reused)
{
    const struct script s = script_of(stream);
    for (uint32_t at = 0; at < s.count; at++) {
        const struct kernel *kernel = s.kernels[at];
        for (int i = 0; i < kernel->ins + kernel->outs; i++) {
            const struct operand *operand = &kernel->operands[i];
            if (!is_known(operand->place) ||
                last_in(kernel, i < kernel->ins ? 0 : kernel->ins, i, operand->place))
                continue; /* of two in one kernel the first */
            const double want =
                i < kernel->ins ? since_input(&s, at, operand) : until_last(&s, at, operand->place);
            if (fabs(want - (double)operand->since) > 1e-5 * want)
                fail_msg("%s, kernel %u, operand %d: %g bytes instead of %g", name, at, i,
                         (double)operand->since, want);
            *reused += want > 0;
        }
    }
    free(s.kernels);
}

static void uses_lie_as_far_apart_as_looked_up(void **state)
{
    (void)state;
    static const struct tape_options options[] = {{.checkpointing = CHECKPOINTING_NONE},
                                                  {.checkpointing = CHECKPOINTING_FULL}};
    uint32_t reused = 0;
    for (int i = 0; i < SMALL_GRAPHS; i++) {
        char name[128];
        if (!is_taken((size_t)i, 8, 1))
            continue;
        struct graph *graph = small_graph(i, name, sizeof name);
        struct stream *stream = tape_run(graph, &options[i / 8 % 2]);
        stream_find_reuse(stream);
        compare(stream, name, &reused);
        stream_free(stream);
        graph_free(graph);
    }
    assert_true(reused > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uses_lie_as_far_apart_as_looked_up),
    };
    return cmocka_run_group_tests_name("reuse", tests, NULL, NULL);
}
