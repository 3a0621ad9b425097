/* test_truth_recorded.c - models that no builder of ours knows, planned from what tools/record.py
 * recorded of them once, beside fully_shard itself.
 *
 * tests/data/truth/recorded_events.jsonl holds recordings of those models under torch 2.14.1's
 * fully_shard, recorded_fsdp1_events.jsonl under FullyShardedDataParallel, and
 * recorded_ddp_events.jsonl under DistributedDataParallel, most of them with autocast, and
 * recorded_single_events.jsonl without a wrapper; a row names the file that its model is planned
 * from. */
#include "families/families.h"
#include "job/job.h"
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void every_model_is_planned_event_for_event(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/recorded_events.jsonl", SYSTEM_FSDP2, true,
                     truth_read_recorded);
}

static void every_model_is_planned_under_fsdp1(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/recorded_fsdp1_events.jsonl", SYSTEM_FSDP1, true,
                     truth_read_recorded);
}

static void every_model_is_planned_under_ddp(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/recorded_ddp_events.jsonl", SYSTEM_DDP, true,
                     truth_read_recorded);
}

static void every_model_is_planned_alone(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/recorded_single_events.jsonl", SYSTEM_SINGLE, true,
                     truth_read_recorded);
}

/* What a recording has not is refused, with how to have it. */
static void a_recording_is_planned_as_it_was_made(void **state)
{
    static const struct {
        const char *recording, *frozen, *expected;
        bool autocast;
        enum system_kind system;
    } cases[] = {
        {"vit", "*layernorm*", "record it again with --freeze '*layernorm*'", false, SYSTEM_FSDP2},
        {"vit_frozen", "*nothing*", NULL, false, SYSTEM_FSDP2},
        {"vit_frozen", "*layernorm*", NULL, false, SYSTEM_FSDP2},
        {"vit_frozen", "*layernorm*,*bias", "has no recording of a step", false, SYSTEM_FSDP2},
        {"vit_autocast", NULL, NULL, true, SYSTEM_DDP},
        {"vit_autocast", NULL, "recorded under autocast; record it again without", false,
         SYSTEM_DDP},
        {"vit_autocast", NULL, "whose casts autocast does not keep", true, SYSTEM_FSDP1},
        {"gemma3", NULL, "recorded without it; record it again with", true, SYSTEM_DDP},
        {"resnet", NULL, "makes a unit of each BatchNorm", false, SYSTEM_FSDP1},
        {"vit", NULL, "before recordings said how fsdp1 casts", false, SYSTEM_FSDP1},
        {"gemma2", NULL, NULL, false, SYSTEM_FSDP1}, /* of numbers, which nobody casts */
        {"resnet", NULL, NULL, false, SYSTEM_FSDP2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[96];
        struct err err = {0};
        struct model_config config;
        struct job job;
        struct plan *plan = NULL;
        snprintf(path, sizeof path, "tests/data/recorded/%s.stream.json.gz", cases[i].recording);
        assert_int_equal(model_find(path, &config, &err), ERR_OK);
        job_defaults(&job, &config);
        job.model.batch = 2;
        job.model.seq = recording_info(config.recording).seq;
        job.model.code = CODE_RECORDED;
        job.model.frozen = cases[i].frozen;
        job.model.autocast = cases[i].autocast;
        job.strategy.system = cases[i].system;
        job.strategy.store = job.strategy.reduce = DTYPE_FP32;
        job.strategy.compute = job.model.compute = recording_info(config.recording).dtype;
        if (job.strategy.system == SYSTEM_DDP)
            job.strategy.store = job.strategy.reduce = job.model.compute;
        const enum err_code rc = job_plan(&job, &plan, NULL, &err);
        if ((rc == ERR_OK) != !cases[i].expected ||
            (cases[i].expected && !strstr(err.text, cases[i].expected)))
            fail_msg("%s: expected \"%s\", got \"%s\"", cases[i].recording,
                     cases[i].expected ? cases[i].expected : "", err.text);
        plan_free(plan);
        model_release(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_is_planned_event_for_event),
        cmocka_unit_test(every_model_is_planned_under_fsdp1),
        cmocka_unit_test(every_model_is_planned_under_ddp),
        cmocka_unit_test(every_model_is_planned_alone),
        cmocka_unit_test(a_recording_is_planned_as_it_was_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
