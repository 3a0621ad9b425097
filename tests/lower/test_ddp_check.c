/* test_ddp_check.c - DDP's reducer waits for a gradient of every trained parameter (reducer.cpp,
 * ensure_prior_reduction_finished): a model whose backward leaves one out is refused by name. */
#include "graph/ops.h"
#include "graph/tape.h"
#include "lower/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 2, SEQ = 8, WIDTH = 16, WORDS = 32 };

/* An embedding and a head; and what two more parameters do beside them. */
enum side {
    SIDE_IN_LOSS,   /* their product is added to what the head sees */
    SIDE_DROPPED,   /* it is computed and thrown away */
    SIDE_DETACHED,  /* `side` is used by the loss, `spare` by an op outside of autograd */
    SIDE_UNTOUCHED, /* `spare` is in no operator */
};

static uint32_t add_side(struct graph *graph, enum side side, uint32_t x)
{
    const uint32_t first = graph_param(graph, PARAM_WEIGHT, SHAPE(WIDTH, WIDTH), "side");
    const uint32_t second = graph_param(graph, PARAM_WEIGHT, SHAPE(WIDTH, WIDTH), "spare");
    const uint32_t wide = op_linear(graph, x, first, GRAPH_NONE);
    uint32_t out = wide;
    if (side == SIDE_IN_LOSS || side == SIDE_DROPPED)
        out = op_linear(graph, wide, second, GRAPH_NONE);
    if (side == SIDE_DETACHED)
        graph_drop(graph, op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32,
                                     SHAPE(WIDTH, WIDTH), 1, &second));
    if (out != wide)
        graph_drop(graph, wide);
    if (side == SIDE_DROPPED) {
        graph_drop(graph, out);
        return x;
    }
    const uint32_t sum = op_add(graph, x, out);
    graph_drop(graph, out);
    graph_drop(graph, x);
    return sum;
}

static struct graph *model_with(enum side side, const char *frozen)
{
    struct graph *graph = graph_new(DTYPE_FP32, frozen);
    const uint32_t tokens = graph_input(
        graph, SHAPE(BATCH, SEQ), (struct input_values){.kind = INPUT_TOKENS, .vocab = WORDS});
    const uint32_t targets = graph_input(
        graph, SHAPE(BATCH * SEQ), (struct input_values){.kind = INPUT_TARGETS, .vocab = WORDS});
    const uint32_t table = graph_param(graph, PARAM_WEIGHT, SHAPE(WORDS, WIDTH), "table");
    const uint32_t x = add_side(graph, side, op_embedding(graph, tokens, table));
    const uint32_t head = graph_param(graph, PARAM_WEIGHT, SHAPE(WORDS, WIDTH), "head");
    const uint32_t logits = op_linear(graph, x, head, GRAPH_NONE);
    graph_drop(graph, x);
    graph_mark(graph, MARK_ROOT_EXIT);
    graph_mark(graph, MARK_LOGITS);
    graph->loss =
        op_cross_entropy(graph, graph_view(graph, logits, SHAPE(BATCH * SEQ, WORDS)), targets);
    graph_drop(graph, logits);
    graph_mark(graph, MARK_LOSS);
    return graph;
}

static enum err_code lower_ddp(enum side side, const char *frozen, struct err *err)
{
    const struct strategy strategy = {
        .system = SYSTEM_DDP,
        .world = 2,
        .replicate = 1,
        .store = DTYPE_FP32,
        .compute = DTYPE_FP32,
        .reduce = DTYPE_FP32,
        .accumulate = 1,
        .bucket_view = true,
    };
    const struct tape_options options = {.checkpointing = CHECKPOINTING_NONE};
    struct graph *graph = model_with(side, frozen);
    struct stream *stream = tape_run(graph, &options);
    struct plan *plan;
    const enum err_code rc = lower_plan(graph, stream, &strategy, &plan, err);
    plan_free(plan);
    stream_free(stream);
    graph_free(graph);
    return rc;
}

static void expect_refused(enum side side, const char *name)
{
    struct err err = {0};
    assert_int_equal(lower_ddp(side, NULL, &err), ERR_INVALID);
    if (strncmp(err.text, name, strlen(name)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", err.text, name);
}

static void every_gradient_comes_when_the_loss_needs_every_parameter(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(lower_ddp(SIDE_IN_LOSS, NULL, &err), ERR_OK);
}

static void a_parameter_in_no_operator_is_refused(void **state)
{
    (void)state;
    expect_refused(SIDE_UNTOUCHED, "spare is trained");
}

static void one_whose_operator_does_not_reach_the_loss_is_too(void **state)
{
    (void)state;
    expect_refused(SIDE_DROPPED, "side is trained");
}

static void one_that_is_only_used_outside_of_autograd_is_too(void **state)
{
    (void)state;
    expect_refused(SIDE_DETACHED, "spare is trained");
}

static void frozen_parameters_may_go_without(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(lower_ddp(SIDE_UNTOUCHED, "spare", &err), ERR_OK);
    assert_int_equal(lower_ddp(SIDE_DROPPED, "s*", &err), ERR_OK);
    assert_int_equal(lower_ddp(SIDE_DETACHED, "spare", &err), ERR_OK);
}

/* Of every system, and of the rest of them whose parameters have nothing in them. */
static void what_trains_nothing_is_refused(void **state)
{
    (void)state;
    for (int empty = 0; empty < 2; empty++) {
        struct graph *graph = model_with(SIDE_IN_LOSS, empty ? "side,spare,head" : "*");
        struct stream *stream =
            tape_run(graph, &(struct tape_options){.checkpointing = CHECKPOINTING_NONE});
        if (empty)
            graph->params[0].shape.dim[0] = 0;
        for (uint32_t kind = 0; kind < SYSTEM_COUNT; kind++) {
            struct err err = {0};
            const struct strategy strategy = {
                .system = (enum system_kind)kind, .world = 2, .replicate = 1, .accumulate = 1};
            if (!system_is_planned((enum system_kind)kind))
                continue;
            assert_int_equal(lower_check(graph, stream, &strategy, &err), ERR_INVALID);
            assert_non_null(strstr(err.text, "nothing is trained"));
        }
        stream_free(stream);
        graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gradient_comes_when_the_loss_needs_every_parameter),
        cmocka_unit_test(a_parameter_in_no_operator_is_refused),
        cmocka_unit_test(one_whose_operator_does_not_reach_the_loss_is_too),
        cmocka_unit_test(one_that_is_only_used_outside_of_autograd_is_too),
        cmocka_unit_test(frozen_parameters_may_go_without),
        cmocka_unit_test(what_trains_nothing_is_refused),
    };
    return cmocka_run_group_tests_name("ddp_check", tests, NULL, NULL);
}
