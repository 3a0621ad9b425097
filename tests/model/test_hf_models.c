/* test_hf_models.c - BERT, T5 and Mixtral: their sizes as published, and Mixtral's experts added up
 * by hand. (Their events are compared with PyTorch's in test_truth_hf.c.) */
#include "families/families.h"
#include "graph/tape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct graph *build(const struct model_config *config, uint32_t batch, uint32_t seq)
{
    struct err err = {0};
    struct graph *graph = NULL;
    const struct model_job job = {
        .batch = batch, .seq = seq, .code = CODE_HF, .compute = DTYPE_BF16};
    assert_int_equal(model_build(config, &job, &graph, &err), ERR_OK);
    return graph;
}

static void builders_have_as_many_parameters_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        uint64_t parameters;
    } published[] = {
        {"bert-base", 109514298}, {"bert-large", 335174458},     {"t5-small", 60506624},
        {"t5-base", 222903552},   {"t5-large", 737668096},       {"t5-3b", 2851598336},
        {"t5-11b", 11307321344},  {"mixtral-8x7b", 46702792704},
    };
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        struct err err = {0};
        struct model_config config;
        assert_int_equal(model_preset_find(published[i].preset, &config, &err), ERR_OK);
        struct graph *graph = build(&config, 1, 16);
        assert_int_equal(graph_parameter_elements(graph), published[i].parameters);
        graph_free(graph);
    }
}

static const struct model_config mixtral = {
    .arch = ARCH_MIXTRAL,
    .hidden = 64,
    .layers = 1,
    .heads = 4,
    .kv_heads = 4,
    .head_dim = 16,
    .ffn = 96,
    .vocab = 100,
    .experts = 8,
    .experts_per_token = 2,
    .activation = "silu",
    .norm_eps = 1e-5F,
    .rope = {.theta = 1e4F, .attention_factor = 1},
};

/* Bytes born in forward by calls of that name. */
static uint64_t born(const struct stream *stream, enum aten label)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < stream->buffer_count; i++)
        if (stream->buffers[i].label == label && stream->buffers[i].category == CATEGORY_ACTIVATION)
            bytes += stream->buffers[i].bytes;
    return bytes;
}

/* t = 2 sequences of 16 = 32 tokens, k = 2 experts each: 64 rows, 8 an expert when balanced. */
static void experts_take_k_rows_a_token_however_they_are_routed(void **state)
{
    (void)state;
    struct graph *graph = build(&mixtral, 2, 16);
    struct stream *stream = tape_run(graph, &(struct tape_options){0});
    /* gate and up (64, 2·96) and down (64, 64) in bf16: 64 · (192 + 64) · 2 */
    assert_int_equal(born(stream, ATEN_GROUPED_MM), 32768);
    /* rows to experts (64, 64) bf16, their weights (64) fp32, and back (64, 64) fp32 */
    assert_int_equal(born(stream, ATEN_INDEX), 64 * 64 * 2 + 64 * 4 + 64 * 64 * 4);
    /* values (32, 2) fp32 and indices (32, 2) int64 */
    assert_int_equal(born(stream, ATEN_TOPK), 32 * 2 * (4 + 8));
    /* sorted indices and permutation (64) int64 */
    assert_int_equal(born(stream, ATEN_SORT), 2 * 64 * 8);
    stream_free(stream);
    graph_free(graph);
}

static void experts_compute_what_their_rows_need(void **state)
{
    (void)state;
    struct graph *graph = build(&mixtral, 2, 16);
    struct stream *stream = tape_run(graph, &(struct tape_options){0});
    double forward = 0.0, backward = 0.0;
    for (uint32_t i = 0; i < stream->kernels->kernel_count; i++)
        if (stream->kernels->kernels[i].label == ATEN_GROUPED_MM)
            *(stream->kernels->kernels[i].backward ? &backward : &forward) +=
                stream->kernels->kernels[i].flops;
    /* 2 · 64 rows · (64 · 192 + 96 · 64): not 8 experts' worth */
    assert_true(forward == 2.0 * 64 * (64 * 192 + 96 * 64));
    assert_true(backward == 2.0 * forward);
    stream_free(stream);
    graph_free(graph);
}

static void batched_experts_copy_matrices_for_each_row(void **state)
{
    (void)state;
    struct model_config config = mixtral;
    config.batched_experts = true;
    struct graph *graph = build(&config, 2, 16);
    struct stream *stream = tape_run(graph, &(struct tape_options){0});
    /* 64 rows · (192·64 + 64·96) elements of bf16 */
    assert_int_equal(born(stream, ATEN_INDEX), 64ULL * (192 * 64 + 64 * 96) * 2);
    assert_int_equal(born(stream, ATEN_GROUPED_MM), 0);
    stream_free(stream);
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builders_have_as_many_parameters_as_published),
        cmocka_unit_test(experts_take_k_rows_a_token_however_they_are_routed),
        cmocka_unit_test(experts_compute_what_their_rows_need),
        cmocka_unit_test(batched_experts_copy_matrices_for_each_row),
    };
    return cmocka_run_group_tests_name("hf_models", tests, NULL, NULL);
}
