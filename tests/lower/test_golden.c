/* test_golden.c - four byte sequences of FSDP2's own allocations, recorded from torch 2.14.1.
 *
 * The model is small enough to add up by hand: an embedding (V, D), three blocks of w1 (4D, D) and
 * w2 (D, 4D) with ReLU and a residual, a head (V, D). Listed is every allocation and free inside
 * FSDP's calls in the second step, in host order; births of gradients and activations are not. */
#include "graph/ops.h"
#include "graph/tape.h"
#include "lower/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 2, SEQ = 8, BLOCKS = 3 };

static uint32_t add_block(struct graph *graph, uint32_t index, uint32_t d, uint32_t x)
{
    const uint32_t module = graph_module(graph, ROLE_BLOCK, "layers.%u", index);
    const uint32_t w1 = graph_param(graph, PARAM_WEIGHT, SHAPE(4 * d, d), "layers.%u.w1", index);
    const uint32_t w2 = graph_param(graph, PARAM_WEIGHT, SHAPE(d, 4 * d), "layers.%u.w2", index);
    graph_enter(graph, module, x);
    const uint32_t wide = op_linear(graph, x, w1, GRAPH_NONE);
    const uint32_t relu = op_unary(graph, OP_RELU, wide);
    graph_drop(graph, wide);
    const uint32_t narrow = op_linear(graph, relu, w2, GRAPH_NONE);
    graph_drop(graph, relu);
    const uint32_t out = op_add(graph, x, narrow);
    graph_drop(graph, narrow);
    graph_exit(graph, module, out);
    graph_drop(graph, x);
    return out;
}

static struct graph *toy(uint32_t v, uint32_t d)
{
    struct graph *graph = graph_new(DTYPE_BF16, NULL);
    const uint32_t tokens = graph_input(graph, SHAPE(BATCH, SEQ),
                                        (struct input_values){.kind = INPUT_TOKENS, .vocab = v});
    const uint32_t targets = graph_input(graph, SHAPE(BATCH * SEQ),
                                         (struct input_values){.kind = INPUT_TARGETS, .vocab = v});
    const uint32_t table = graph_param(graph, PARAM_WEIGHT, SHAPE(v, d), "embedding");
    uint32_t x = op_embedding(graph, tokens, table);
    for (uint32_t i = 0; i < BLOCKS; i++)
        x = add_block(graph, i, d, x);
    const uint32_t head = graph_param(graph, PARAM_WEIGHT, SHAPE(v, d), "head");
    const uint32_t logits = op_linear(graph, x, head, GRAPH_NONE);
    graph_drop(graph, x);
    graph_mark(graph, MARK_ROOT_EXIT);
    graph_mark(graph, MARK_LOGITS);
    const uint32_t upcast =
        op_to(graph, graph_view(graph, logits, SHAPE(BATCH * SEQ, v)), DTYPE_FP32);
    graph->loss = op_cross_entropy(graph, upcast, targets);
    graph_drop(graph, upcast);
    graph_drop(graph, logits);
    graph_mark(graph, MARK_LOSS);
    return graph;
}

static struct strategy strategy(uint32_t world)
{
    return (struct strategy){
        .world = world,
        .replicate = 1,
        .per_unit = 1,
        .store = DTYPE_FP32,
        .compute = DTYPE_BF16,
        .reduce = DTYPE_FP32,
        .accumulate = 1,
        .impl = IMPL_FUSED,
    };
}

static bool is_fsdp_event(const struct plan *plan, const struct plan_instruction *i)
{
    if ((i->op != PLAN_ALLOC && i->op != PLAN_FREE) || i->phase == PLAN_STEP)
        return false;
    const enum category category = (enum category)plan->buffers[i->arg].category;
    return i->scope != 0 || category == CATEGORY_ALL_GATHER || category == CATEGORY_REDUCE_SCATTER;
}

static void check(uint32_t v, uint32_t d, const struct strategy *s, const int64_t *expected,
                  size_t count)
{
    struct err err = {0};
    struct graph *graph = toy(v, d);
    const struct tape_options options = {.checkpointing = CHECKPOINTING_NONE};
    struct stream *stream = tape_run(graph, &options);
    struct plan *plan = NULL;
    assert_int_equal(lower_plan(graph, stream, s, &plan, &err), ERR_OK);
    size_t next = 0;
    for (uint32_t n = 0; n < plan->instruction_count; n++) {
        const struct plan_instruction *i = &plan->instructions[n];
        if (!is_fsdp_event(plan, i))
            continue;
        const int64_t bytes = (int64_t)plan->buffers[i->arg].bytes;
        assert_true(next < count);
        assert_int_equal(i->op == PLAN_FREE ? -bytes : bytes, expected[next]);
        next++;
    }
    assert_int_equal(next, count);
    plan_free(plan);
    stream_free(stream);
    graph_free(graph);
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* clang-format off */
static const int64_t mixed_on_4[] = {
2048, 8192, -2048, 4096, 4096, 4096, 16384, -4096, 8192, 8192, -8192, -8192, -8192, 4096, 16384, -4096, 8192, 8192, -16384, -8192,
-8192, 4096, 16384, -4096, 8192, 8192, -16384, -8192, -8192, -16384, 4096, 16384, -4096, 8192, 8192, -16384, 4096, 16384, -4096, -8192,
-8192, 32768, -8192, 8192, -8192, 8192, 8192, -16384, 4096, 16384, -4096, -8192, -8192, -32768, 32768, -8192, 8192, -8192, 8192, 8192,
-16384, -8192, -8192, -32768, 32768, -8192, 8192, -8192, -4096, -4096, -32768, 16384, -4096, 4096, -4096, -16384};

static const int64_t reshard_2_of_8[] = {
1024, 8192, -1024, 4096, 4096, 2048, 16384, -2048, 8192, 8192, -8192, 4096, -8192, 4096, -8192, 2048, 16384, -2048, 8192, 8192,
-16384, 4096, -8192, 4096, -8192, 2048, 16384, -2048, 8192, 8192, -16384, 4096, -8192, 4096, -8192, 2048, -4096, 2048, -4096, -16384,
4096, 8192, -4096, 4096, 4096, -2048, -2048, -8192, 8192, 16384, -8192, 8192, 8192, -4096, -4096, -16384, 8192, 16384, -8192, -8192,
-8192, 32768, -8192, 4096, -8192, 8192, 8192, -4096, -4096, -16384, 8192, 16384, -8192, -8192, -8192, -32768, 32768, -8192, 4096, -8192,
8192, 8192, -4096, -4096, -16384, -8192, -8192, -32768, 32768, -8192, 4096, -8192, -4096, -4096, -32768, 16384, -4096, 2048, -4096, -16384};

static const int64_t hsdp_2x2_bf16[] = {
4096, 8192, -4096, 4096, 4096, 8192, 16384, -8192, 8192, 8192, -8192, -8192, -8192, 8192, 16384, -8192, 8192, 8192, -16384, -8192,
-8192, 8192, 16384, -8192, 8192, 8192, -16384, -8192, -8192, -16384, 8192, 16384, -8192, 8192, 8192, -16384, 8192, 16384, -8192, -8192,
-8192, 16384, -8192, 8192, 16384, -8192, 8192, 8192, -16384, 8192, 16384, -8192, -8192, -8192, -16384, 16384, -8192, 8192, 16384, -8192,
8192, 8192, -16384, -8192, -8192, -16384, 16384, -8192, 8192, 16384, -8192, -4096, -4096, -16384, 8192, -4096, 4096, 8192, -4096, -4096,
-8192, -8192, -8192, -8192};

static const int64_t rows_that_do_not_divide[] = {
12, 96, -12, 48, 48, 36, 288, -36, 96, 192, -96, -96, -192, 36, 288, -36, 96, 192, -288, -96, -192, 36, 288, -36, 96, 192, -288, -96, -192,
-288, 36, 288, -36, 96, 192, -288, 36, 288, -36, -96, -192, 576, -72, 72, -72, 96, 192, -288, 36, 288, -36, -96, -192, -576, 576, -72, 72,
-72, 96, 192, -288, -96, -192, -576, 576, -72, 72, -72, -48, -48, -576, 192, -30, 24, -30, -192};
/* clang-format on */

static void mixed_precision_on_four_ranks(void **state)
{
    (void)state;
    const struct strategy s = strategy(4);
    check(64, 32, &s, mixed_on_4, COUNT(mixed_on_4));
}

static void resharding_to_two_of_eight_ranks(void **state)
{
    (void)state;
    struct strategy s = strategy(8);
    s.reshard = RESHARD_INT;
    s.reshard_ranks = 2;
    check(64, 32, &s, reshard_2_of_8, COUNT(reshard_2_of_8));
}

static void hsdp_with_bf16_reduction(void **state)
{
    (void)state;
    struct strategy s = strategy(4);
    s.replicate = 2;
    s.reduce = DTYPE_BF16;
    check(64, 32, &s, hsdp_2x2_bf16, COUNT(hsdp_2x2_bf16));
}

static void rows_fewer_than_or_not_divisible_by_the_ranks(void **state)
{
    (void)state;
    const struct strategy s = strategy(8);
    check(5, 3, &s, rows_that_do_not_divide, COUNT(rows_that_do_not_divide));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_precision_on_four_ranks),
        cmocka_unit_test(resharding_to_two_of_eight_ranks),
        cmocka_unit_test(hsdp_with_bf16_reduction),
        cmocka_unit_test(rows_fewer_than_or_not_divisible_by_the_ranks),
    };
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
