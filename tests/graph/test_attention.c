/* test_attention.c - what each kernel of attention takes from the allocator, beside the sizes in
 * its own source (see ops_attention.c). */
#include "families/families.h"
#include "graph/attention_scratch.h"
#include "graph/tape.h"
#include "job/predict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 2, SEQ = 200, MOST = 8 };

static struct model_config config_of(const char *preset)
{
    struct err err = {0};
    struct model_config config;
    assert_int_equal(model_preset_find(preset, &config, &err), ERR_OK);
    config.layers = 1;
    return config;
}

/* The first layer's scratch, in order; returns how many. */
static uint32_t scratch_of(const char *preset, enum code code, enum attention_kernel attention,
                           uint64_t bytes[MOST])
{
    struct err err = {0};
    const struct model_config config = config_of(preset);
    const struct model_job job = {
        .batch = BATCH, .seq = SEQ, .code = code, .compute = DTYPE_BF16, .attention = attention};
    struct graph *graph = NULL;
    assert_int_equal(model_build(&config, &job, &graph, &err), ERR_OK);
    struct stream *stream = tape_run(graph, &(struct tape_options){0});
    uint32_t count = 0;
    for (uint32_t b = 0; b < stream->buffer_count; b++)
        if (stream->buffers[b].scratch && count < MOST)
            bytes[count++] = stream->buffers[b].bytes;
    stream_free(stream);
    graph_free(graph);
    return count;
}

/* Llama-3.1-8B: 32 heads of 128, 8 of them for keys and values; 200 tokens are rounded to 256. */
static void each_kernel_has_its_own_scratch(void **state)
{
    (void)state;
    uint64_t bytes[MOST] = {0};
    assert_int_equal(scratch_of("llama-3.1-8b", CODE_HF, ATTENTION_FLASH, bytes), 4);
    assert_int_equal(bytes[0], 4ULL * BATCH * 32 * 256);
    assert_int_equal(bytes[1], 4ULL * BATCH * 256 * 32 * 128);
    assert_int_equal(bytes[2], 2ULL * BATCH * SEQ * 32 * 128);
    assert_int_equal(bytes[3], bytes[2]);
    /* torchtitan repeats keys and values itself */
    assert_int_equal(scratch_of("llama-3.1-8b", CODE_TORCHTITAN, ATTENTION_FLASH, bytes), 2);
    assert_int_equal(scratch_of("llama-3.1-8b", CODE_TORCHTITAN, ATTENTION_CUDNN, bytes), 1);
    assert_int_equal(bytes[0], 4ULL * BATCH * 32 * SEQ * (128 + 1));
    assert_int_equal(scratch_of("llama-3.1-8b", CODE_TORCHTITAN, ATTENTION_EFFICIENT, bytes), 0);
}

/* As cutlassB.h's tiles are: of 16 bits 64 x 64 up to heads of 64, 128 x 128 up to 128, 128 x 64
 * with dk and dv beside; in fp32 64 x 64 up to 64, then 128 x 64. A tile has 4 more words. */
static void the_efficient_kernels_scratch_is_its_tiles(void **state)
{
    static const struct {
        uint32_t b, s, a, d, d_v, element;
        uint64_t words, forward; /* of dq, dk and dv; bytes */
    } rows[] = {
        {2, 200, 12, 64, 64, 2, 24ULL * 4 * 1 * (64 * 64 + 4), 0},
        {1, 2048, 32, 128, 128, 2, 32ULL * 16 * 1 * (128 * 128 + 4), 0},
        {1, 2048, 32, 80, 80, 2, 32ULL * 16 * 1 * (128 * 128 + 4), 0},
        /* DeepSeek-V3's: 192 for keys, 128 for values; 200 / 128 heads is one part */
        {1, 4096, 128, 192, 128, 2, 128ULL * (32 * 3 * (128 * 64 + 4) + 1 * 64 * (256 + 128)), 0},
        /* 8 heads of 256: 25 parts; the sum of o in fp32 */
        {1, 4096, 8, 256, 256, 2, 8ULL * (32 * 4 * (128 * 64 + 4) + 25 * 64 * (256 + 256)),
         4ULL * 4096 * 8 * 256},
        {4, 1024, 12, 64, 64, 4, 48ULL * 16 * 1 * (64 * 64 + 4), 0},
        {4, 1024, 12, 128, 128, 4, 48ULL * 8 * 2 * (128 * 64 + 4), 0},
    };
    uint64_t bytes[ATTENTION_SCRATCHES];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct shape q = SHAPE(rows[i].b, rows[i].s, rows[i].a, rows[i].d);
        const struct shape v = SHAPE(rows[i].b, rows[i].s, rows[i].a, rows[i].d_v);
        const uint64_t sums = 4ULL * rows[i].b * rows[i].s * rows[i].a;
        const uint32_t element = rows[i].element, before = element < 4 ? 0 : 2;
        assert_int_equal(attention_scratch_before(ATTENTION_EFFICIENT, ATTENTION_GPU_AMPERE, &q, &v,
                                                  element, bytes),
                         before);
        if (before > 0) {
            assert_int_equal(bytes[0], sums * rows[i].d_v);
            assert_int_equal(bytes[1], sums);
        }
        assert_int_equal(attention_scratch(ATTENTION_EFFICIENT, ATTENTION_GPU_HOPPER, &q, &q, &v,
                                           element, bytes),
                         2);
        assert_int_equal(bytes[0], sums);
        assert_int_equal(bytes[1], 4 * rows[i].words);
        assert_int_equal(
            attention_forward_scratch(ATTENTION_EFFICIENT, ATTENTION_GPU_AMPERE, &q, &v, element),
            rows[i].forward);
        assert_int_equal(attention_scratch(ATTENTION_EFFICIENT, ATTENTION_GPU_UNKNOWN, &q, &q, &v,
                                           element, bytes),
                         0);
    }
}

/* tests/data/cudnn/workspaces.csv. */
static void cudnns_workspace_is_what_it_asks_for(void **state)
{
    static const struct {
        const char *name;
        enum attention_gpu gpu;
    } gpus[] = {{"a100", ATTENTION_GPU_AMPERE},
                {"h200", ATTENTION_GPU_HOPPER},
                {"b200", ATTENTION_GPU_BLACKWELL}};
    (void)state;
    FILE *file = fopen("tests/data/cudnn/workspaces.csv", "r");
    char line[256], name[16];
    unsigned b, s, a, a_k, d;
    unsigned long long forward, backward;
    size_t rows = 0;
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file)) {
        uint64_t bytes[ATTENTION_SCRATCHES];
        size_t g = 0;
        assert_int_equal(sscanf(line, "%15[^,],%*u,%u,%u,%u,%u,%u,%*[^,],%*u,%llu,%llu", name, &b,
                                &s, &a, &a_k, &d, &forward, &backward),
                         8);
        while (strcmp(gpus[g].name, name) != 0)
            assert_true(++g < sizeof gpus / sizeof gpus[0]);
        const struct shape q = SHAPE(b, s, a, d), k = SHAPE(b, s, a_k, d);
        assert_int_equal(attention_scratch(ATTENTION_CUDNN, gpus[g].gpu, &q, &k, &k, 2, bytes), 1);
        const uint64_t front_end = 4ULL * b * a * s * (d + 1);
        if (bytes[0] != front_end + backward)
            fail_msg("%s: %llu planned", line, (unsigned long long)(bytes[0] - front_end));
        assert_int_equal(attention_forward_scratch(ATTENTION_CUDNN, gpus[g].gpu, &q, &k, 2),
                         forward);
        rows++;
    }
    fclose(file);
    print_message("    %zu answers of cuDNN's\n", rows);
    assert_true(rows >= 80);
}

static enum attention_kernel chosen(const char *gpu, enum dtype dtype, enum attention_kernel asked)
{
    struct err err = {0};
    const struct model_config config = config_of("llama-3.1-8b");
    struct job job;
    struct machine machine = {.gpus_per_node = 8};
    assert_int_equal(profile_find(gpu, &machine.profile, &err), ERR_OK);
    job_defaults(&job, &config);
    job.model.compute = dtype;
    job.model.attention = asked;
    const enum attention_kernel kernel = attention_of(&job, &machine);
    profile_free(&machine.profile);
    return kernel;
}

static void pytorch_chooses_by_gpu_and_dtype(void **state)
{
    (void)state;
    assert_int_equal(chosen("h100-sxm", DTYPE_BF16, ATTENTION_AUTO), ATTENTION_CUDNN);
    assert_int_equal(chosen("b200", DTYPE_FP16, ATTENTION_AUTO), ATTENTION_CUDNN);
    assert_int_equal(chosen("a100-sxm-80gb", DTYPE_BF16, ATTENTION_AUTO), ATTENTION_FLASH);
    assert_int_equal(chosen("l4", DTYPE_BF16, ATTENTION_AUTO), ATTENTION_FLASH);
    assert_int_equal(chosen("h100-sxm", DTYPE_FP32, ATTENTION_AUTO), ATTENTION_EFFICIENT);
    assert_int_equal(chosen("h100-sxm", DTYPE_BF16, ATTENTION_FLASH), ATTENTION_FLASH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kernel_has_its_own_scratch),
        cmocka_unit_test(the_efficient_kernels_scratch_is_its_tiles),
        cmocka_unit_test(cudnns_workspace_is_what_it_asks_for),
        cmocka_unit_test(pytorch_chooses_by_gpu_and_dtype),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
