/* test_liger.c - which of Liger's kernels a family gets, and what a loss of its takes. */
#include "graph/tape.h"
#include "tests/support/refused.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct model_job job_of(const char *kernels, enum cross_entropy loss)
{
    return (struct model_job){.batch = 1,
                              .seq = 512,
                              .code = CODE_HF,
                              .compute = DTYPE_BF16,
                              .liger = kernels,
                              .loss = loss};
}

/* Each with a sentence that names what is wrong. */
static void others_are_refused(void **state)
{
    static const struct {
        const char *preset, *kernels;
        enum cross_entropy loss;
        const char *says;
    } cases[] = {
        {"llama-3.1-8b", "rope,norm", CROSS_ENTROPY_EAGER, "expected all, or by commas"},
        {"llama-3.1-8b", "geglu", CROSS_ENTROPY_EAGER, "of llama it is called swiglu"},
        {"gemma-2-9b", "swiglu", CROSS_ENTROPY_EAGER, "of gemma2 it is called geglu"},
        {"gpt2", "all", CROSS_ENTROPY_EAGER, "has no kernels for gpt2"},
        {"gpt2", NULL, CROSS_ENTROPY_LIGER, "no fused linear cross-entropy for gpt2"},
        {"mistral-7b", NULL, CROSS_ENTROPY_LIGER_LOGITS, "that transformers 5.23 would call"},
        {"mixtral-8x7b", "swiglu", CROSS_ENTROPY_EAGER, "is not planned"},
        {"olmo-2-7b", "rms_norm", CROSS_ENTROPY_EAGER, "is not planned"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct model_job job = job_of(cases[i].kernels, cases[i].loss);
        expect_refused(cases[i].preset, &job, cases[i].says);
    }
    struct model_job job = job_of(NULL, CROSS_ENTROPY_LIGER);
    job.code = CODE_TORCHTITAN;
    expect_refused("llama-3.1-8b", &job, "--code hf");
    job = job_of("all", CROSS_ENTROPY_EAGER);
    job.compiled = true;
    expect_refused("llama-3.1-8b", &job, "--liger with --compile");
}

/* Of a kernel of the loss: how many rows of logits it has. */
static uint32_t rows_of_chunk(const char *preset, uint32_t seq)
{
    struct graph *graph;
    struct err err = {0};
    struct model_job job = job_of(NULL, CROSS_ENTROPY_LIGER);
    job.seq = seq;
    assert_int_equal(preset_build(preset, &job, &graph, &err), ERR_OK);
    struct stream *stream = tape_run(graph, &(struct tape_options){0});
    const struct kernel_table *table = stream->kernels;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < table->kernel_count && rows == 0; i++)
        if (table->kernels[i].work == WORK_CROSS_ENTROPY_SLOPES)
            rows = table->kernels[i].operands[0].shape.dim[0];
    stream_free(stream);
    graph_free(graph);
    return rows;
}

/* The next power of two of tokens / ceil(vocabulary / hidden): 128,256 / 4,096 is 32 at most,
 * 151,936 / 4,096 is 38; of gpt-oss, 201,088 / (8 · 2,880) is 9. Never more than there are. */
static void chunks_are_ligers(void **state)
{
    (void)state;
    assert_int_equal(rows_of_chunk("llama-3.1-8b", 8192), 256);
    assert_int_equal(rows_of_chunk("qwen3-8b", 4096), 128);
    assert_int_equal(rows_of_chunk("gpt-oss-20b", 4096), 512);
    assert_int_equal(rows_of_chunk("llama-3.1-8b", 33), 2);
    assert_int_equal(rows_of_chunk("llama-3.1-8b", 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(chunks_are_ligers),
    };
    return cmocka_run_group_tests_name("liger", tests, NULL, NULL);
}
