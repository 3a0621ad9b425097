/* test_dpo.c - whom the step of a trainer of preferences is planned of, and what its second call of
 * the model has. */
#include "families/families.h"
#include "graph/ops.h"
#include "graph/tape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct model_job job_of(const char *lora)
{
    return (struct model_job){.batch = 4,
                              .seq = 64,
                              .code = CODE_HF,
                              .compute = DTYPE_BF16,
                              .loss = CROSS_ENTROPY_DPO,
                              .lora = lora};
}

static enum err_code build(const char *preset, const struct model_job *job, struct graph **graph,
                           struct err *err)
{
    struct model_config config;
    *graph = NULL;
    assert_int_equal(model_preset_find(preset, &config, err), ERR_OK);
    return model_build(&config, job, graph, err);
}

static void expect_refused(const struct model_job *job, const char *says)
{
    struct graph *graph;
    struct err err = {0};
    if (build("llama-3.2-1b", job, &graph, &err) == ERR_OK || !strstr(err.text, says))
        fail_msg("%s: %s", says, err.text);
    graph_free(graph);
}

static void others_are_refused(void **state)
{
    (void)state;
    struct model_job job = job_of("8");
    job.batch = 3;
    expect_refused(&job, "a pair is two sequences");
    job = job_of("8");
    job.sample_tokens = 16;
    job.attention = ATTENTION_FLASH_ATTN;
    expect_refused(&job, "joins no samples");
    job = job_of("8");
    job.compiled = true;
    expect_refused(&job, "--loss dpo with --compile is not planned");
    job = job_of("8");
    job.lora_kernels = "mlp";
    expect_refused(&job, "--loss dpo with --lora-kernels is not planned");
    job = job_of("8");
    job.code = CODE_TORCHTITAN;
    expect_refused(&job, "--code hf");
}

/* Whether an op uses a parameter of an adapter. */
static bool is_adapted(const struct graph *graph, const struct graph_op *op)
{
    for (uint32_t i = 0; i < op->ins; i++) {
        const struct graph_param *param =
            op->in[i] == GRAPH_NONE ? NULL : graph_param_of(graph, op->in[i]);
        if (param && strstr(param->name, ".lora_"))
            return true;
    }
    return false;
}

/* It is the same model, without its adapters and without a node; and each module is entered and
 * left as often as the first time. */
static void the_reference_is_the_model_again(void **state)
{
    (void)state;
    struct graph *graph;
    struct err err = {0};
    const struct model_job job = job_of("8,q_proj,v_proj");
    assert_int_equal(build("llama-3.2-1b", &job, &graph, &err), ERR_OK);
    uint32_t products[2] = {0}, adapted[2] = {0}, borders[2] = {0};
    for (uint32_t i = 0; i < graph->op_count; i++) {
        const struct graph_op *op = &graph->ops[i];
        products[op->no_grad] += op->kind == OP_LINEAR || op->kind == OP_LOG_PROBS;
        adapted[op->no_grad] += is_adapted(graph, op);
        assert_false(op->no_grad && op->requires_grad);
    }
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const uint32_t kind = graph->items[i].kind;
        borders[0] += kind == ITEM_ENTER || kind == ITEM_EXIT;
        borders[1] += kind == ITEM_ENTER_AGAIN || kind == ITEM_EXIT_AGAIN;
    }
    assert_int_equal(adapted[0], 2 * 2 * 16); /* A and B of two layers of each block */
    assert_int_equal(adapted[1], 0);
    assert_int_equal(products[0], products[1] + adapted[0]);
    assert_int_equal(borders[0], borders[1]);
    graph_free(graph);
}

/* Another model has parameters of its own, as many, which are no parameters of what is trained. */
static void the_reference_is_a_second_model(void **state)
{
    (void)state;
    struct graph *graph;
    struct err err = {0};
    const struct model_job job = job_of(NULL);
    assert_int_equal(build("llama-3.2-1b", &job, &graph, &err), ERR_OK);
    const uint32_t own = graph_own_params(graph), modules = graph_own_modules(graph);
    uint64_t elements = 0;
    assert_int_equal(graph->param_count, 2 * own);
    for (uint32_t p = own; p < graph->param_count; p++) {
        elements += shape_elements(&graph->params[p].shape);
        assert_false(graph->params[p].trainable);
        assert_true(graph->params[p].module >= modules);
    }
    assert_true(elements == graph_parameter_elements(graph));
    assert_int_equal(graph->module_count, 2 * modules + 1); /* its root has a number */
    for (uint32_t m = modules + 1; m < graph->module_count; m++)
        assert_int_equal(graph->modules[m].like, m - modules - 1);
    for (uint32_t i = 0; i < graph->op_count; i++)
        for (uint32_t in = 0; in < graph->ops[i].ins; in++) {
            const uint32_t tensor = graph->ops[i].in[in];
            const struct graph_param *param =
                tensor == GRAPH_NONE ? NULL : graph_param_of(graph, tensor);
            if (param)
                assert_int_equal(graph->ops[i].no_grad, param >= graph->params + own);
        }
    graph_free(graph);
}

static void computed_before_it_is_two_columns(void **state)
{
    (void)state;
    struct graph *graph;
    struct err err = {0};
    struct model_job job = job_of(NULL);
    job.precomputed = true;
    assert_int_equal(build("llama-3.2-1b", &job, &graph, &err), ERR_OK);
    assert_int_equal(graph->input_count, 5); /* tokens, two masks, two columns */
    for (uint32_t i = 0; i < graph->item_count; i++)
        assert_true(graph->items[i].kind < ITEM_ENTER_AGAIN);
    struct stream *stream = tape_run(graph, &(struct tape_options){0});
    uint32_t reads = 0;
    for (uint32_t i = 0; i < stream->step_count; i++)
        reads += stream->steps[i].kind == STEP_READ;
    assert_int_equal(reads, 15); /* numbers that the trainer logs, and asks for */
    stream_free(stream);
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(the_reference_is_the_model_again),
        cmocka_unit_test(the_reference_is_a_second_model),
        cmocka_unit_test(computed_before_it_is_two_columns),
    };
    return cmocka_run_group_tests_name("dpo", tests, NULL, NULL);
}
