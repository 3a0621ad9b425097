/* test_grpo.c - what a step of a trainer of policies has of its batch, and of what rows its head
 * finds log-probabilities. */
#include "families/families.h"
#include "graph/ops.h"
#include "model/grpo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 4, SEQ = 64, PROMPT = 24 };

static struct model_job job_of(void)
{
    return (struct model_job){.batch = BATCH,
                              .seq = SEQ,
                              .prompt_tokens = PROMPT,
                              .code = CODE_HF,
                              .compute = DTYPE_BF16,
                              .micro_batches = 1,
                              .ranks = 8,
                              .loss = CROSS_ENTROPY_GRPO};
}

static struct graph *build(const struct model_job *job)
{
    struct graph *graph;
    struct model_config config;
    struct err err = {0};
    assert_int_equal(model_preset_find("llama-3.2-1b", &config, &err), ERR_OK);
    if (model_build(&config, job, &graph, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return graph;
}

/* Rows of the head, and how many of an operator there are. */
static uint32_t rows_of(const struct graph *graph)
{
    for (uint32_t i = 0; i < graph->op_count; i++)
        if (graph->ops[i].kind == OP_LOG_PROBS)
            return graph->tensors[graph->ops[i].in[0]].shape.dim[0];
    return 0;
}

static uint32_t count(const struct graph *graph, enum op_kind kind)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < graph->op_count; i++)
        found += graph->ops[i].kind == kind;
    return found;
}

static void completions_alone_are_scored(void **state)
{
    struct model_job job = job_of();
    struct graph *graph = build(&job);
    (void)state;
    assert_int_equal(rows_of(graph), BATCH * (SEQ - PROMPT));
    assert_int_equal(count(graph, OP_EFFICIENT_ATTENTION), 0); /* a mask of ones is none */
    graph_free(graph);
    job.padding_tokens = 30;
    graph = build(&job);
    assert_int_equal(rows_of(graph), BATCH * (SEQ - PROMPT) - 30);
    assert_int_equal(count(graph, OP_FLASH_ATTENTION), 0);
    graph_free(graph);
    job = job_of();
    job.loss = CROSS_ENTROPY_LM_HEAD;
    graph = build(&job);
    assert_int_equal(rows_of(graph), BATCH * (SEQ - PROMPT));
    graph_free(graph);
}

/* The host waits for the entropy; of what is clipped for three means, and twice for an extreme and
 * whether there is one; and for the divergence. */
static void numbers_are_logged(void **state)
{
    static const struct {
        enum grpo_loss loss;
        float beta;
        uint32_t reads;
    } cases[] = {{GRPO_DAPO, 0, 8}, {GRPO_DR_GRPO, 0, 8}, {GRPO_CISPO, 0, 2}, {GRPO_GRPO, 1, 9}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_job job = job_of();
        job.grpo.loss = cases[i].loss;
        job.grpo.beta = cases[i].beta;
        job.lora = "8";
        struct graph *graph = build(&job);
        assert_int_equal(count(graph, OP_READ), cases[i].reads);
        graph_free(graph);
    }
}

static uint64_t input_bytes(const struct model_job *job)
{
    uint64_t bytes = 0;
    struct graph *graph = build(job);
    for (uint32_t i = 0; i < graph->given_count; i++)
        if (graph->storages[graph->given[i]].kind == STORAGE_INPUT)
            bytes += graph->storages[graph->given[i]].bytes;
    graph_free(graph);
    return bytes;
}

/* Two of int64 a token, a number of fp32 a sequence, and how many tokens there are. */
static void what_is_generated_at_once_stays(void **state)
{
    enum { ONE = BATCH * (SEQ * 16 + 4), COLUMN = BATCH * (SEQ - PROMPT) * 4 };
    struct model_job job = job_of();
    (void)state;
    assert_true(input_bytes(&job) == ONE + 8);
    job.micro_batches = 3;
    assert_true(input_bytes(&job) == 3 * ONE + 8);
    assert_false(grpo_has_old(&job));
    job.grpo.steps = 2; /* the second batch begins within a step */
    assert_true(grpo_has_old(&job));
    assert_true(input_bytes(&job) == 2 * (ONE + COLUMN) + 8);
    job.grpo.steps = 0;
    job.grpo.iterations = 2;
    assert_true(grpo_has_old(&job));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completions_alone_are_scored),
        cmocka_unit_test(numbers_are_logged),
        cmocka_unit_test(what_is_generated_at_once_stays),
    };
    return cmocka_run_group_tests_name("grpo", tests, NULL, NULL);
}
