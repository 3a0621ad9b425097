/* test_impossible.c - jobs that no machine can run are refused, or do not fit with their true size.
 */
#include "families/families.h"
#include "job/predict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct job job_of(const char *preset)
{
    struct model_config config;
    struct job job;
    struct err err = {0};
    assert_int_equal(model_preset_find(preset, &config, &err), ERR_OK);
    job_defaults(&job, &config);
    return job;
}

static enum err_code try_job(const struct job *job, struct prediction *out, struct err *err)
{
    struct machine machine = {.gpus_per_node = 8};
    assert_int_equal(profile_find("h100-sxm", &machine.profile, err), ERR_OK);
    const enum err_code rc = predict(job, &machine, out, err);
    profile_free(&machine.profile);
    return rc;
}

/* One score matrix of T5: 8 heads of 2^24 x 2^24 in bf16, 2^52 bytes. */
static void a_tensor_larger_than_any_device_does_not_fit(void **state)
{
    struct job job = job_of("t5-small");
    struct prediction prediction;
    struct err err = {0};
    (void)state;
    job.model.seq = 1U << 24;
    job.strategy.world = 8;
    assert_int_equal(try_job(&job, &prediction, &err), ERR_OK);
    assert_false(prediction.fits);
    assert_true(prediction.memory.requested.bytes > 1ULL << 52);
    assert_true(prediction.device_bytes > prediction.memory.requested.bytes);
    prediction_free(&prediction);
}

static void a_tensor_of_more_than_an_exbibyte_is_refused(void **state)
{
    struct job job = job_of("llama-3.1-8b");
    struct prediction prediction;
    struct err err = {0};
    (void)state;
    job.config.vocab = job.config.ffn = UINT32_MAX;
    job.config.hidden = 1U << 31;
    assert_int_equal(try_job(&job, &prediction, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "exbibyte"));
}

/* A flat buffer of 2^42 elements and more: it was counted modulo 2^42. */
static void long_flat_buffers_keep_their_length(void **state)
{
    (void)state;
    for (uint32_t bits = 31; bits < 50; bits++) {
        const uint64_t elements = (1ULL << bits) + 5;
        const struct shape shape = flat(elements);
        assert_true(shape_elements(&shape) >= elements);
        assert_true(shape_elements(&shape) < elements + (1U << 21));
    }
}

static void something_must_be_trained(void **state)
{
    struct job job = job_of("gpt2");
    struct prediction prediction;
    struct err err = {0};
    (void)state;
    job.model.frozen = "*";
    assert_int_equal(try_job(&job, &prediction, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "--freeze *: no parameter is left to train"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_larger_than_any_device_does_not_fit),
        cmocka_unit_test(a_tensor_of_more_than_an_exbibyte_is_refused),
        cmocka_unit_test(long_flat_buffers_keep_their_length),
        cmocka_unit_test(something_must_be_trained),
    };
    return cmocka_run_group_tests_name("impossible", tests, NULL, NULL);
}
