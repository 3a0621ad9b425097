/* test_paged.c - optimizer states in managed memory: where their pages are, and what that costs. */
#include "families/families.h"
#include "job/step_time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct job one_gpu(enum optimizer_kind optimizer)
{
    struct model_config config;
    struct job job;
    struct err err = {0};
    assert_int_equal(model_preset_find("llama-3.2-1b", &config, &err), ERR_OK);
    job_defaults(&job, &config);
    job.model.seq = 512;
    job.strategy.system = SYSTEM_SINGLE;
    job.strategy.world = 1;
    job.strategy.store = job.strategy.compute = job.strategy.reduce = DTYPE_BF16;
    job.strategy.optimizer = optimizer;
    job.model.compute = DTYPE_BF16;
    return job;
}

static double step_s(const struct prediction *p, const struct job *job,
                     const struct machine *machine)
{
    struct step_time time;
    struct err err = {0};
    assert_int_equal(step_time(p, job, machine, 0, &time, &err), ERR_OK);
    const double seconds = time.timeline.step_s;
    step_time_free(&time);
    return seconds;
}

static void set_up(struct machine *machine)
{
    struct err err = {0};
    *machine = (struct machine){.gpus_per_node = 8};
    assert_int_equal(profile_find("h100-sxm", &machine->profile, &err), ERR_OK);
}

static void pages_stay_where_there_is_room(void **state)
{
    (void)state;
    const struct job job = one_gpu(OPTIMIZER_BNB_PAGED);
    struct machine machine;
    struct prediction p, less;
    struct err err = {0};
    set_up(&machine);
    assert_int_equal(predict(&job, &machine, &p, &err), ERR_OK);
    /* two states in fp32 of each parameter but for what has fewer than 100,000 elements: norms */
    assert_in_range(p.paged_bytes, 8 * p.parameters - 8ULL * 33 * 2048, 8 * p.parameters - 1);
    assert_int_equal(p.paged_out_bytes, 0);
    assert_int_equal(p.host_needed_bytes, 0);
    assert_true(p.fits);

    const uint64_t half = p.paged_bytes / 2;
    machine.profile.of[PROFILE_CAPACITY].value = (double)(p.device_bytes + half);
    assert_int_equal(predict(&job, &machine, &less, &err), ERR_OK);
    assert_true(less.fits_gpu);
    assert_int_equal(less.device_bytes, p.device_bytes);
    assert_in_range(less.paged_out_bytes, half - 1, half + 1);
    assert_int_equal(less.host_needed_bytes, less.paged_out_bytes);
    /* what does not stay goes in and out, all of it */
    const double moved_s =
        2 * (double)p.paged_bytes / profile_value(&machine.profile, PROFILE_PCIE);
    const double longer_s = step_s(&less, &job, &machine) - step_s(&p, &job, &machine);
    assert_true(longer_s > 0.9 * moved_s && longer_s < 1.1 * moved_s);
    prediction_free(&p);
    prediction_free(&less);
    profile_free(&machine.profile);
}

static void states_of_8_bits_are_a_quarter(void **state)
{
    (void)state;
    struct job job = one_gpu(OPTIMIZER_BNB_PAGED_8BIT);
    struct machine machine;
    struct prediction p;
    struct err err = {0};
    set_up(&machine);
    job.strategy.coded_embeddings = true;
    assert_int_equal(predict(&job, &machine, &p, &err), ERR_OK);
    assert_in_range(p.paged_bytes, 2 * p.parameters - 2ULL * 33 * 2048, 2 * p.parameters - 1);
    prediction_free(&p);
    profile_free(&machine.profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_stay_where_there_is_room),
        cmocka_unit_test(states_of_8_bits_are_a_quarter),
    };
    return cmocka_run_group_tests_name("paged", tests, NULL, NULL);
}
