/* test_loss.c - the three ways to a loss, beside what each is for: how many logits there are at a
 * time, with the same products and the same gradients. */
#include "families/families.h"
#include "graph/tape_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 2, SEQ = 64, TOKENS = BATCH * SEQ };

static struct graph *graph_of(const char *folder, enum code code, enum cross_entropy loss,
                              uint32_t *vocabulary)
{
    struct err err = {0};
    struct model_config config;
    struct graph *graph = NULL;
    char path[128];
    snprintf(path, sizeof path, "tests/data/configs/%s", folder);
    assert_int_equal(model_config_read(path, &config, &err), ERR_OK);
    config.layers = 2;
    const struct model_job job = {
        .batch = BATCH, .seq = SEQ, .code = code, .compute = DTYPE_BF16, .loss = loss};
    if (model_build(&config, &job, &graph, &err) != ERR_OK)
        fail_msg("%s", err.text);
    *vocabulary = config.vocab;
    return graph;
}

struct summary {
    uint64_t widest[DTYPE_COUNT]; /* elements of the largest buffer with rows of logits, by dtype */
    uint32_t logits;              /* such buffers of all tokens */
    double product_flops;
    uint32_t gradients;
};

static struct summary summary_of(const struct graph *graph, uint32_t vocabulary)
{
    struct err err = {0};
    struct tape tape;
    struct summary s = {0};
    tape_open(&tape, graph, &(struct tape_options){0});
    for (uint32_t i = 0; i < graph->item_count; i++)
        tape_forward_item(&tape, graph->items[i]);
    tape_begin_backward(&tape);
    for (uint32_t i = graph->item_count; i-- > 0;) {
        tape_backward_item(&tape, graph->items[i]);
        if (tape_check(&tape, &err) != ERR_OK)
            fail_msg("%s", err.text);
    }
    tape_end_backward(&tape);
    assert_int_equal(tape_check(&tape, &err), ERR_OK);
    struct stream *stream = tape_close(&tape);
    for (uint32_t b = 0; b < stream->buffer_count; b++) {
        const struct buffer *buffer = &stream->buffers[b];
        const uint64_t elements = shape_elements(&buffer->shape);
        if (buffer->shape.rank < 2 || buffer->shape.dim[buffer->shape.rank - 1] != vocabulary)
            continue;
        s.logits += elements == (uint64_t)TOKENS * vocabulary;
        if (elements > s.widest[buffer->dtype])
            s.widest[buffer->dtype] = elements;
    }
    for (uint32_t k = 0; k < stream->kernels->kernel_count; k++)
        if (work_is_matmul((enum work_kind)stream->kernels->kernels[k].work))
            s.product_flops += stream->kernels->kernels[k].flops;
    s.gradients = stream->grad_count;
    stream_free(stream);
    return s;
}

/* `outside`: the loss is called with the logits, behind the model. */
static void check(const char *folder, enum code code, bool outside)
{
    struct summary of[CROSS_ENTROPY_CHUNKED + 1];
    uint32_t vocabulary = 0;
    for (int loss = 0; loss <= CROSS_ENTROPY_CHUNKED; loss++) {
        if (!outside && loss != CROSS_ENTROPY_EAGER && loss != CROSS_ENTROPY_FUSED)
            continue;
        struct graph *graph = graph_of(folder, code, (enum cross_entropy)loss, &vocabulary);
        of[loss] = summary_of(graph, vocabulary);
        graph_free(graph);
        assert_int_equal(of[loss].gradients, of[0].gradients);
        assert_true(of[loss].product_flops == of[0].product_flops);
    }
    const uint64_t all = (uint64_t)TOKENS * vocabulary;
    /* the logits; their copy, its log-softmax and two gradients in fp32; the gradient in bf16 */
    assert_int_equal(of[CROSS_ENTROPY_EAGER].logits, 6);
    assert_int_equal(of[CROSS_ENTROPY_EAGER].widest[DTYPE_FP32], all);
    assert_int_equal(of[CROSS_ENTROPY_FUSED].logits, 1);
    assert_int_equal(of[CROSS_ENTROPY_FUSED].widest[DTYPE_FP32], 0);
    if (!outside)
        return;
    /* the logits, their log-softmax and two gradients */
    assert_int_equal(of[CROSS_ENTROPY_DIRECT].logits, 4);
    assert_int_equal(of[CROSS_ENTROPY_DIRECT].widest[DTYPE_FP32], 0);
    assert_int_equal(of[CROSS_ENTROPY_CHUNKED].logits, 0);
    assert_int_equal(of[CROSS_ENTROPY_CHUNKED].widest[DTYPE_FP32], all / LOSS_CHUNKS);
    assert_int_equal(of[CROSS_ENTROPY_CHUNKED].widest[DTYPE_BF16], all / LOSS_CHUNKS);
}

static void a_loss_is_named_for_its_logits(void **state)
{
    (void)state;
    check("toy-llama", CODE_TORCHTITAN, true);
    check("gpt2", CODE_NANOGPT, true);
    check("toy-llama", CODE_HF, false);
    check("opt-1.3b", CODE_HF, false);
}

static void a_model_that_has_its_loss_inside_keeps_it(void **state)
{
    (void)state;
    struct err err = {0};
    struct model_config config;
    struct graph *graph = NULL;
    assert_int_equal(model_config_read("tests/data/configs/toy-llama", &config, &err), ERR_OK);
    struct model_job job = {.batch = 1,
                            .seq = 32,
                            .code = CODE_HF,
                            .compute = DTYPE_BF16,
                            .loss = CROSS_ENTROPY_DIRECT};
    assert_int_equal(model_build(&config, &job, &graph, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--loss direct: llama as hf writes it has its loss inside"));
}

static struct model_config toy(void)
{
    struct err err = {0};
    struct model_config config;
    assert_int_equal(model_config_read("tests/data/configs/toy-llama", &config, &err), ERR_OK);
    return config;
}

/* The toy is not built so, and the sentence says why. */
static void is_refused(const struct model_job *job, enum err_code code, const char *says)
{
    struct err err = {0};
    const struct model_config config = toy();
    struct graph *graph = NULL;
    assert_int_equal(model_build(&config, job, &graph, &err), code);
    assert_non_null(strstr(err.text, says));
}

static void chunks_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct model_job job = {.batch = 1,
                            .seq = 20,
                            .code = CODE_TORCHTITAN,
                            .compute = DTYPE_BF16,
                            .loss = CROSS_ENTROPY_CHUNKED};
    is_refused(&job, ERR_INVALID, "20 tokens do not divide into 8 chunks");
    job.seq = 32;
    job.code = CODE_HF;
    is_refused(&job, ERR_UNSUPPORTED, "eager or fused");
}

/* What is kept is logits of the model itself; those of the step before, where it has its loss. */
static void outputs_that_are_not_there_are_not_kept(void **state)
{
    (void)state;
    struct err err = {0};
    const struct model_config config = toy();
    struct graph *graph = NULL;
    struct model_job job = {.batch = 1,
                            .seq = 32,
                            .code = CODE_TORCHTITAN,
                            .compute = DTYPE_BF16,
                            .loss = CROSS_ENTROPY_CHUNKED,
                            .outputs_kept = OUTPUTS_UNTIL_BACKWARD};
    is_refused(&job, ERR_INVALID, "the model returns no logits then");
    job.loss = CROSS_ENTROPY_EAGER;
    job.outputs_kept = OUTPUTS_UNTIL_NEXT;
    is_refused(&job, ERR_UNSUPPORTED, "of torchtitan's --keep-outputs backward is");
    job.code = CODE_HF;
    assert_int_equal(model_build(&config, &job, &graph, &err), ERR_OK);
    assert_int_equal(graph->output_count, 2); /* the loss, too */
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_is_named_for_its_logits),
        cmocka_unit_test(a_model_that_has_its_loss_inside_keeps_it),
        cmocka_unit_test(chunks_that_cannot_be_are_refused),
        cmocka_unit_test(outputs_that_are_not_there_are_not_kept),
    };
    return cmocka_run_group_tests_name("loss", tests, NULL, NULL);
}
