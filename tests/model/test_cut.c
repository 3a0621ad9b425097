/* test_cut.c - whom cut cross entropy is planned of, and what it asks of them. */
#include "graph/tape.h"
#include "tests/support/refused.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct model_job job_of(enum dtype compute)
{
    return (struct model_job){
        .batch = 2, .seq = 512, .code = CODE_HF, .compute = compute, .loss = CROSS_ENTROPY_CUT};
}

static void others_are_refused(void **state)
{
    (void)state;
    struct model_job job = job_of(DTYPE_BF16);
    expect_refused("gpt2", &job, "axolotl's patch of gpt2 is not planned, or there is none");
    job.code = CODE_TORCHTITAN;
    expect_refused("llama-3.1-8b", &job, "--code hf");
    job = job_of(DTYPE_BF16);
    job.compiled = true;
    expect_refused("llama-3.1-8b", &job, "--loss cut-cross-entropy with --compile");
    job = job_of(DTYPE_BF16);
    job.seq = 1;
    expect_refused("llama-3.1-8b", &job, "each token's target is the next one");
    job = job_of(DTYPE_BF16);
    job.lora = "8,lm_head";
    expect_refused("llama-3.1-8b", &job,
                   "--loss cut-cross-entropy reads lm_head.base_layer.weight past an adapter");
    job = job_of(DTYPE_FP32);
    expect_refused("llama-3.1-8b", &job, "the hidden states are in fp32");
    job = job_of(DTYPE_BF16);
    job.outputs_kept = OUTPUTS_UNTIL_BACKWARD;
    expect_refused("llama-3.1-8b", &job, "returns no logits");
}

/* Most bytes of a tensor that is born in a step: never the logits, 2 x 512 x 128,256 of them, and
 * no copy of theirs; the gradient of the head is the largest. */
static void logits_are_never_there(void **state)
{
    (void)state;
    struct graph *graph;
    struct err err = {0};
    const struct model_job job = job_of(DTYPE_BF16);
    assert_int_equal(preset_build("llama-3.2-1b", &job, &graph, &err), ERR_OK);
    struct stream *stream = tape_run(graph, &(struct tape_options){0});
    const struct kernel_table *table = stream->kernels;
    uint32_t products = 0;
    for (uint32_t i = 0; i < table->kernel_count; i++) {
        const struct kernel *k = &table->kernels[i];
        for (uint32_t o = 0; o < k->outs; o++)
            assert_true(shape_elements(&k->operands[k->ins + o].shape) <= 128256ULL * 2048);
        products += k->work == WORK_CUT_CROSS_ENTROPY;
        if (k->work == WORK_CUT_CROSS_ENTROPY) /* the last token of a sequence has no target */
            assert_int_equal(k->operands[k->ins].shape.dim[0], 2 * 511);
    }
    assert_int_equal(products, 1);
    stream_free(stream);
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(logits_are_never_there),
    };
    return cmocka_run_group_tests_name("cut", tests, NULL, NULL);
}
