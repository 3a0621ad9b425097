/* test_pictures.c - what a GPU's kernels of masks allocate, which neither fake tensors nor a CPU
 * do.
 *
 * The features of a tower take the places of a model's tokens by masked_scatter, whose mask is laid
 * over all activations: bytes by ATen's CUDA kernels (IndexKernel.cpp, IndexKernel.cu,
 * Nonzero.cu). */
#include "families/families.h"
#include "job/job.h"
#include "recorded/recording.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* LLaVA of tests/data/recorded/llava_image: two sequences of 320 tokens, 64 wide, two pictures of
 * 16 tokens in each. */
enum { BATCH = 2, SEQ = 320, WIDTH = 64, FEATURES = 2 * 2 * 16, INT64 = 8 };

static struct plan *planned(enum autograd autograd)
{
    struct err err = {0};
    struct model_config config;
    struct job job;
    struct plan *plan = NULL;
    assert_int_equal(model_find("tests/data/recorded/llava_image.stream.json.gz", &config, &err),
                     ERR_OK);
    job_defaults(&job, &config);
    job.model.batch = BATCH;
    job.model.seq = SEQ;
    job.model.code = CODE_RECORDED;
    job.model.attention = ATTENTION_FLASH;
    job.model.autograd = autograd;
    if (job_plan(&job, &plan, NULL, &err) != ERR_OK)
        fail_msg("%s", err.text);
    recording_free(config.recording);
    return plan;
}

/* How many workspaces of so many bytes there are. */
static uint32_t workspaces(const struct plan *plan, uint64_t bytes)
{
    uint32_t count = 0;
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        count += plan->buffers[b].scratch && plan->buffers[b].bytes == bytes;
    return count;
}

static void masks_are_as_large_as_what_they_are_laid_over(void **state)
{
    const uint64_t elements = (uint64_t)BATCH * SEQ * WIDTH;
    const uint64_t found = (uint64_t)FEATURES * WIDTH;
    (void)state;
    struct plan *plan = planned(AUTOGRAD_GPU);
    assert_int_equal(workspaces(plan, INT64 * elements), 1);  /* the running sum of the mask */
    assert_int_equal(workspaces(plan, elements), 2);          /* the mask, forward and backward */
    assert_int_equal(workspaces(plan, 3 * INT64 * found), 1); /* indices of what it chooses */
    plan_free(plan);
    plan = planned(AUTOGRAD_RECORDED);
    assert_int_equal(workspaces(plan, INT64 * elements), 0);
    assert_int_equal(workspaces(plan, elements), 0);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_as_large_as_what_they_are_laid_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
