/* test_lm_head.c - whom TRL's fused LM head is planned of, and what a step of it has. */
#include "graph/tape.h"
#include "tests/support/refused.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct model_job job_of(enum dtype compute)
{
    return (struct model_job){
        .batch = 2, .seq = 512, .code = CODE_HF, .compute = compute, .loss = CROSS_ENTROPY_LM_HEAD};
}

static void others_are_refused(void **state)
{
    (void)state;
    struct model_job job = job_of(DTYPE_BF16);
    expect_refused("llama-4-scout-17b-16e", &job, "TRL 1.16.0 fails with llama4_text");
    expect_refused("t5-small", &job, "--loss fused-lm-head of t5 is not planned");
    job.code = CODE_TORCHTITAN;
    expect_refused("llama-3.1-8b", &job, "--code hf");
    job = job_of(DTYPE_BF16);
    job.compiled = true;
    expect_refused("llama-3.1-8b", &job, "--loss fused-lm-head with --compile");
    job = job_of(DTYPE_BF16);
    job.seq = 1;
    expect_refused("llama-3.1-8b", &job, "each token's target is the next one");
    job = job_of(DTYPE_BF16);
    job.lora = "8,lm_head";
    expect_refused("llama-3.1-8b", &job,
                   "--loss fused-lm-head reads lm_head.base_layer.weight past an adapter");
    job = job_of(DTYPE_BF16);
    job.outputs_kept = OUTPUTS_UNTIL_BACKWARD;
    expect_refused("llama-3.1-8b", &job, "returns no logits");
}

/* 2 x 2,999 tokens with a target and 128,256 words: two tiles one way and four the other, in
 * forward and in backward, where each is computed again, and two products more of each. A tile is
 * all that there is of logits. */
static void tiles_are_all_there_is_of_logits(void **state)
{
    (void)state;
    struct graph *graph;
    struct err err = {0};
    struct model_job job = job_of(DTYPE_BF16);
    job.seq = 3000;
    assert_int_equal(preset_build("llama-3.2-1b", &job, &graph, &err), ERR_OK);
    struct stream *stream = tape_run(graph, &(struct tape_options){0});
    const struct kernel_table *table = stream->kernels;
    uint32_t folds[2] = {0}, added[2] = {0};
    uint64_t columns = 0;
    uint32_t again = 0;
    for (uint32_t i = 0; i < table->kernel_count; i++) {
        const struct kernel *k = &table->kernels[i];
        const struct operand *out = &k->operands[k->ins];
        for (uint32_t o = 0; o < k->outs; o++)
            assert_true(shape_elements(&out[o].shape) <= 128256ULL * 2048);
        again += k->recomputed && k->work == WORK_MATMUL_NT;
        folds[0] += k->work == WORK_LOG_PROBS;
        folds[1] += k->work == WORK_LOG_PROBS_BACKWARD;
        added[0] += k->work == WORK_MATMUL_NN_ADD;
        added[1] += k->work == WORK_MATMUL_TN_ADD;
        if (k->work == WORK_LOG_PROBS) {
            columns += shape_elements(&k->operands[0].shape);
            assert_true(k->operands[0].shape.dim[0] <= 4096);
            assert_true(k->operands[0].shape.dim[1] <= 32768);
        }
        if (k->work == WORK_MATMUL_TN_ADD)
            assert_int_equal(out->dtype, DTYPE_FP32);
    }
    assert_int_equal(again, 2 * 4);
    assert_int_equal(columns, 2 * 2999 * 128256ULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(folds[i], 2 * 4);
        assert_int_equal(added[i], 2 * 4);
    }
    stream_free(stream);
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(tiles_are_all_there_is_of_logits),
    };
    return cmocka_run_group_tests_name("lm_head", tests, NULL, NULL);
}
