/* test_tape.c - a tape's own account of who holds what, after every item of the script; and that
 * the account is not blind. What comes out of a tape is held to PyTorch's recordings elsewhere
 * (tests/lower). */
#include "base/err.h"
#include "graph/ops.h"
#include "graph/tape.h"
#include "graph/tape_state.h"
#include "tests/support/small_graphs.h"
#include "tests/support/soak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NAME = 128 };

static void assert_sound(const struct tape *tape, const char *name, uint32_t item)
{
    struct err err = {0};
    if (tape_check(tape, &err) != ERR_OK)
        fail_msg("%s, %s item %u: %s", name, tape->backward ? "backward of" : "after", item,
                 err.text);
}

/* tape_run in steps. What is wrong at the end shows there; where it began, with `always`. */
static struct stream *run_checked(const struct graph *graph, const struct tape_options *options,
                                  const char *name, bool always)
{
    struct tape tape;
    tape_open(&tape, graph, options);
    for (uint32_t i = 0; i < graph->item_count; i++) {
        tape_forward_item(&tape, graph->items[i]);
        if (always)
            assert_sound(&tape, name, i);
    }
    tape_begin_backward(&tape);
    assert_sound(&tape, name, graph->item_count);
    for (uint32_t i = graph->item_count; i-- > 0;) {
        tape_backward_item(&tape, graph->items[i]);
        if (always)
            assert_sound(&tape, name, i);
    }
    tape_end_backward(&tape);
    assert_sound(&tape, name, 0);
    return tape_close(&tape);
}

static void every_item_leaves_each_buffer_its_holders(void **state)
{
    (void)state;
    static const struct tape_options options[] = {
        {.checkpointing = CHECKPOINTING_NONE},
        {.checkpointing = CHECKPOINTING_FULL},
        {.checkpointing = CHECKPOINTING_FULL, .no_early_stop = true},
        {.checkpointing = CHECKPOINTING_SELECTIVE},
        {.checkpointing = CHECKPOINTING_SELECTIVE, .no_early_stop = true},
        {.checkpointing = CHECKPOINTING_FULL, .reentrant = true},
        {.checkpointing = CHECKPOINTING_FULL,
         .reentrant = true,
         .checkpointed = CHECKPOINTED_FIRST,
         .checkpointed_number = 1},
    };
    for (int i = 0; i < SMALL_GRAPHS; i++) {
        char name[NAME];
        struct graph *graph = small_graph(i, name, sizeof name);
        for (size_t o = 0; o < sizeof options / sizeof options[0]; o++)
            if (is_taken((size_t)i + o, 2, 0) &&
                (!options[o].reentrant || strncmp(name, "t5", 2) != 0)) /* job/reentrant.h */
                stream_free(run_checked(graph, &options[o], name, true));
        graph_free(graph);
    }
}

/* What is born dies, but for the gradients of parameters; each parameter's is given out once. */
static void only_gradients_outlive_the_step(void **state)
{
    (void)state;
    for (int i = 0; i < SMALL_GRAPHS; i++) {
        char name[NAME];
        struct graph *graph = small_graph(i, name, sizeof name);
        struct stream *stream = tape_run(graph, &(struct tape_options){0});
        uint8_t *alive = calloc(stream->buffer_count + 1, 1);
        uint8_t *given = calloc(graph->param_count + 1, 1);
        for (uint32_t s = 0; s < stream->step_count; s++) {
            const struct stream_step step = stream->steps[s];
            if (step.kind == STEP_BIRTH || step.kind == STEP_DEATH) {
                assert_int_equal(alive[step.arg], step.kind == STEP_DEATH);
                alive[step.arg] = step.kind == STEP_BIRTH;
            }
        }
        for (uint32_t g = 0; g < stream->grad_count; g++) {
            assert_int_equal(alive[stream->grads[g].buffer], 1);
            alive[stream->grads[g].buffer] = 0;
            given[stream->grads[g].param]++;
        }
        for (uint32_t b = 0; b < stream->buffer_count; b++)
            assert_int_equal(alive[b], 0);
        for (uint32_t p = 0; p < graph->param_count; p++)
            assert_int_equal(given[p], 1);
        free(alive);
        free(given);
        stream_free(stream);
        graph_free(graph);
    }
}

/* The names of all parameters but `stays`, as patterns. The caller frees it. */
static char *patterns_but(const struct graph *graph, uint32_t stays)
{
    size_t size = 1, used = 0;
    for (uint32_t p = 0; p < graph->param_count; p++)
        size += strlen(graph->params[p].name) + 1;
    char *text = calloc(size, 1);
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (p != stays)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "," : "",
                                     graph->params[p].name);
    return text;
}

static void train(int i, const char *frozen, uint32_t gradients)
{
    static const struct tape_options options[] = {
        {.checkpointing = CHECKPOINTING_NONE},
        {.checkpointing = CHECKPOINTING_FULL},
    };
    char name[NAME];
    struct graph *graph = small_graph_frozen(i, frozen, name, sizeof name);
    for (size_t o = 0; o < sizeof options / sizeof options[0]; o++) {
        struct stream *stream = run_checked(graph, &options[o], name, false);
        assert_int_equal(stream->grad_count, gradients);
        stream_free(stream);
    }
    graph_free(graph);
}

/* One parameter alone is trained, and each one alone is not. */
static void frozen_parameters_get_no_gradient_and_leave_nothing_behind(void **state)
{
    (void)state;
    for (int i = 0; i < SMALL_GRAPHS; i++) {
        char name[NAME];
        struct graph *graph = small_graph(i, name, sizeof name);
        for (uint32_t p = 0; p < graph->param_count; p++) {
            char *others = patterns_but(graph, p);
            if (is_taken(p, 2, 0))
                train(i, others, 1);
            if (is_taken(p, 2, 1))
                train(i, graph->params[p].name, graph->param_count - 1);
            free(others);
        }
        graph_free(graph);
    }
}

/* A module that is called with a parameter: whether its hook has a node or not, the gradient comes
 * once, when it is complete. */
static void a_parameter_behind_a_hooks_node_gets_its_gradient(void **state)
{
    (void)state;
    static const struct tape_options options[] = {{.input_nodes = false}, {.input_nodes = true}};
    struct graph *graph = graph_new(DTYPE_FP32, NULL);
    const uint32_t ids =
        graph_input(graph, SHAPE(8), (struct input_values){.kind = INPUT_TOKENS, .vocab = 16});
    const uint32_t table = graph_param(graph, PARAM_WEIGHT, SHAPE(16, 16), "table");
    const uint32_t x = op_embedding(graph, ids, table);
    const uint32_t logits = op_linear(graph, x, op_module_input(graph, table), GRAPH_NONE);
    graph_drop(graph, x);
    graph_mark(graph, MARK_ROOT_EXIT);
    graph_mark(graph, MARK_LOGITS);
    graph->loss = op_cross_entropy(graph, logits, ids);
    graph_drop(graph, logits);
    graph_mark(graph, MARK_LOSS);
    for (size_t o = 0; o < sizeof options / sizeof options[0]; o++) {
        struct stream *stream = run_checked(graph, &options[o], "a shared table", true);
        assert_int_equal(stream->grad_count, 1);
        assert_int_equal(stream->grads[0].param, 0);
        stream_free(stream);
    }
    graph_free(graph);
}

/* ---- the checker sees ---- */

static void expect_broken(const struct tape *tape, const char *expected)
{
    struct err err = {0};
    assert_int_equal(tape_check(tape, &err), ERR_INTERNAL);
    if (!strstr(err.text, expected))
        fail_msg("\"%s\" does not say \"%s\"", err.text, expected);
}

/* With `wrong` in a field of the tape the checker says `expected`. */
#define EXPECT_SEEN(tape, field, wrong, expected)                                                  \
    do {                                                                                           \
        const __typeof__(field) right = (field);                                                   \
        (field) = (wrong);                                                                         \
        expect_broken(tape, expected);                                                             \
        (field) = right;                                                                           \
    } while (0)

/* The first of `count` flags that is set. */
static uint32_t first_set(const uint8_t *flags, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (flags[i])
            return i;
    fail_msg("none is set");
    return 0;
}

static void a_tape_that_forgets_or_invents_a_holder_is_found_out(void **state)
{
    (void)state;
    char name[NAME];
    struct graph *graph = small_graph(0, name, sizeof name);
    const struct tape_options options = {.checkpointing = CHECKPOINTING_SELECTIVE};
    struct tape tape;
    tape_open(&tape, graph, &options);
    uint32_t items = 0; /* into the second block: the first one's region holds */
    while (tape.next_region < 2 || !first_set(tape.python, graph->storage_count))
        tape_forward_item(&tape, graph->items[items++]);
    for (uint32_t ops = 0; ops < 6; items++) {
        tape_forward_item(&tape, graph->items[items]);
        ops += graph->items[items].kind == ITEM_OP;
    }
    assert_sound(&tape, name, items);

    const uint32_t storage = first_set(tape.python, graph->storage_count);
    const uint32_t where = tape.where[storage];
    const uint32_t cached = first_set(tape.cached, graph->storage_count);
    uint32_t inside = 0; /* an op of the first region that would save, were it run again */
    while (tape.op_region[inside] == GRAPH_NONE)
        inside++;
    const uint16_t one_more = (uint16_t)(tape.holds[where] + 1);
    EXPECT_SEEN(&tape, tape.holds[where], one_more, " holders instead of ");
    EXPECT_SEEN(&tape, tape.python[storage], 0, " holders instead of ");
    EXPECT_SEEN(&tape, tape.where[storage], NO_BUFFER, "Python's name of storage");
    EXPECT_SEEN(&tape, tape.cached[cached], 0, " holders instead of ");
    EXPECT_SEEN(&tape, tape.node_holds[inside], 1, "before its region ran again");
    EXPECT_SEEN(&tape, tape.regions[0].holds_inputs, false, " holders instead of ");
    EXPECT_SEEN(&tape, tape.slot[graph->loss], where, " holders instead of ");
    assert_sound(&tape, name, items);
    stream_free(tape_close(&tape));
    graph_free(graph);
}

static void a_node_that_lets_go_too_early_is_found_out(void **state)
{
    (void)state;
    char name[NAME];
    struct graph *graph = small_graph(0, name, sizeof name);
    const struct tape_options options = {.checkpointing = CHECKPOINTING_NONE};
    struct tape tape;
    tape_open(&tape, graph, &options);
    for (uint32_t i = 0; i < graph->item_count; i++)
        tape_forward_item(&tape, graph->items[i]);
    uint32_t found = 0;
    for (uint32_t op = 0; op < graph->op_count; op++) {
        uint32_t saved[SAVED_MOST], activations = 0;
        if (!tape.node_holds[op])
            continue;
        for (uint32_t i = tape_saved(&tape, &graph->ops[op], saved); i-- > 0;)
            activations += tape_is_activation(&tape, saved[i]);
        if (activations == 0)
            continue; /* parameters and inputs are not counted */
        EXPECT_SEEN(&tape, tape.node_holds[op], 0, " holders instead of ");
        found++;
    }
    assert_true(found > graph->op_count / 2);
    assert_sound(&tape, name, graph->item_count);
    stream_free(tape_close(&tape));
    graph_free(graph);
}

/* A script that forgets to drop a name. */
static void what_is_left_at_the_end_is_named(void **state)
{
    (void)state;
    char name[NAME];
    struct graph *graph = small_graph(0, name, sizeof name);
    const struct tape_options options = {.checkpointing = CHECKPOINTING_NONE};
    struct tape tape;
    tape_open(&tape, graph, &options);
    uint32_t dropped = GRAPH_NONE;
    for (uint32_t i = 0; i < graph->item_count; i++) {
        if (dropped == GRAPH_NONE && graph->items[i].kind == ITEM_DROP)
            dropped = graph->tensors[graph->items[i].arg].storage; /* forgotten */
        else
            tape_forward_item(&tape, graph->items[i]);
    }
    tape_begin_backward(&tape);
    for (uint32_t i = graph->item_count; i-- > 0;)
        tape_backward_item(&tape, graph->items[i]);
    tape_end_backward(&tape);
    char expected[64];
    snprintf(expected, sizeof expected, "storage %u is still Python's", dropped);
    expect_broken(&tape, expected);
    stream_free(tape_close(&tape));
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_leaves_each_buffer_its_holders),
        cmocka_unit_test(only_gradients_outlive_the_step),
        cmocka_unit_test(frozen_parameters_get_no_gradient_and_leave_nothing_behind),
        cmocka_unit_test(a_parameter_behind_a_hooks_node_gets_its_gradient),
        cmocka_unit_test(a_tape_that_forgets_or_invents_a_holder_is_found_out),
        cmocka_unit_test(a_node_that_lets_go_too_early_is_found_out),
        cmocka_unit_test(what_is_left_at_the_end_is_named),
    };
    return cmocka_run_group_tests_name("tape", tests, NULL, NULL);
}
