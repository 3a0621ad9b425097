/* test_builders.c - models that we can build, planned from a recording of them: the two ways to a
 * stream know nothing of each other, and must meet.
 *
 * Configurations and recordings (tools/record.py, transformers 5.23, torch 2.14.1) are in
 * tests/data/recorded. A recording is made under a dispatch mode; what real tensors do otherwise is
 * told by rule on either side. */
#include "families/families.h"
#include "job/predict.h"
#include "job/step_time.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 2, SEQ = 256 };

struct way {
    const char *name;
    enum system_kind system;
    enum checkpointing checkpointing;
    enum autograd autograd;
    enum attention_kernel attention;
    uint32_t accumulate;
    enum sharding sharding;
};

static const struct way ways[] = {
    {"fsdp2", SYSTEM_FSDP2, CHECKPOINTING_NONE, AUTOGRAD_GPU, ATTENTION_AUTO, 1, SHARDING_FULL},
    {"fsdp2, full", SYSTEM_FSDP2, CHECKPOINTING_FULL, AUTOGRAD_GPU, ATTENTION_FLASH, 1,
     SHARDING_FULL},
    {"fsdp2, selective, 2 micro-batches", SYSTEM_FSDP2, CHECKPOINTING_SELECTIVE, AUTOGRAD_GPU,
     ATTENTION_CUDNN, 2, SHARDING_FULL},
    {"fsdp2, efficient", SYSTEM_FSDP2, CHECKPOINTING_NONE, AUTOGRAD_GPU, ATTENTION_EFFICIENT, 1,
     SHARDING_FULL},
    {"fsdp2, as recorded", SYSTEM_FSDP2, CHECKPOINTING_NONE, AUTOGRAD_RECORDED, ATTENTION_AUTO, 1,
     SHARDING_FULL},
    {"fsdp2, full, as recorded", SYSTEM_FSDP2, CHECKPOINTING_FULL, AUTOGRAD_RECORDED,
     ATTENTION_AUTO, 1, SHARDING_FULL},
    {"ddp", SYSTEM_DDP, CHECKPOINTING_NONE, AUTOGRAD_GPU, ATTENTION_AUTO, 2, SHARDING_FULL},
    {"ddp, full", SYSTEM_DDP, CHECKPOINTING_FULL, AUTOGRAD_GPU, ATTENTION_AUTO, 1, SHARDING_FULL},
    {"fsdp1", SYSTEM_FSDP1, CHECKPOINTING_NONE, AUTOGRAD_GPU, ATTENTION_AUTO, 1, SHARDING_FULL},
    {"fsdp1, full", SYSTEM_FSDP1, CHECKPOINTING_FULL, AUTOGRAD_GPU, ATTENTION_AUTO, 1,
     SHARDING_FULL},
    {"fsdp1, SHARD_GRAD_OP, 2 micro-batches", SYSTEM_FSDP1, CHECKPOINTING_NONE, AUTOGRAD_GPU,
     ATTENTION_AUTO, 2, SHARDING_GRAD_OP},
    {"zero1", SYSTEM_ZERO1, CHECKPOINTING_NONE, AUTOGRAD_GPU, ATTENTION_AUTO, 1, SHARDING_FULL},
    {"zero2, full, 2 micro-batches", SYSTEM_ZERO2, CHECKPOINTING_FULL, AUTOGRAD_GPU, ATTENTION_AUTO,
     2, SHARDING_FULL},
    {"fsdp1, NO_SHARD", SYSTEM_FSDP1, CHECKPOINTING_NONE, AUTOGRAD_RECORDED, ATTENTION_AUTO, 1,
     SHARDING_NONE},
};

struct model {
    const char *name, *lora; /* lora NULL: it has no adapters */
};

static struct job job_of(const struct model_config *config, const char *lora, const struct way *way)
{
    struct job job;
    job_defaults(&job, config);
    job.model.batch = BATCH;
    job.model.seq = SEQ;
    job.model.code = config->recording ? CODE_RECORDED : CODE_HF;
    job.model.autograd = way->autograd;
    job.model.attention = way->attention;
    job.model.lora = config->recording ? NULL : lora;
    job.strategy.use_orig_params = lora != NULL; /* frozen and trained in one unit */
    job.tape.checkpointing = way->checkpointing;
    job.strategy.system = way->system;
    job.strategy.accumulate = way->accumulate;
    job.strategy.sharding = way->sharding;
    if (way->system == SYSTEM_ZERO1 || way->system == SYSTEM_ZERO2)
        job.strategy.zero = zero_defaults(way->system == SYSTEM_ZERO1 ? 1 : 2);
    if (way->system == SYSTEM_DDP)
        job.strategy.store = job.strategy.reduce = DTYPE_BF16;
    return job;
}

/* The next birth or death of a tensor from *at on; NULL: there is none. */
static const struct plan_instruction *next_event(const struct plan *plan, uint32_t *at)
{
    for (; *at < plan->instruction_count; ++*at) {
        const struct plan_instruction *i = &plan->instructions[*at];
        if (i->op == PLAN_ALLOC || i->op == PLAN_FREE)
            return &plan->instructions[(*at)++];
    }
    return NULL;
}

static void assert_same_events(const char *name, const struct plan *built,
                               const struct plan *recorded)
{
    uint32_t at[2] = {0, 0}, events = 0;
    for (;; events++) {
        const struct plan_instruction *a = next_event(built, &at[0]);
        const struct plan_instruction *b = next_event(recorded, &at[1]);
        char ours[256] = "no event", theirs[256] = "no event";
        if (a)
            plan_buffer_text(built, &built->buffers[a->arg], ours, sizeof ours);
        if (b)
            plan_buffer_text(recorded, &recorded->buffers[b->arg], theirs, sizeof theirs);
        if (!a && !b)
            break;
        if (!a || !b || a->op != b->op || a->phase != b->phase ||
            built->buffers[a->arg].bytes != recorded->buffers[b->arg].bytes ||
            strcmp(ours, theirs) != 0)
            fail_msg("%s: event %u: built %s, recorded %s", name, events, ours, theirs);
    }
    assert_true(events > 300);
}

static void compare(const struct model *model, const struct way *way, const struct machine *machine)
{
    char path[96], name[96];
    struct err err = {0};
    struct model_config configs[2];
    struct prediction p[2];
    struct step_time t[2] = {{.tokens_per_s = 0}};
    snprintf(name, sizeof name, "%s, %s", model->name, way->name);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "tests/data/recorded/%s%s", model->name,
                 i ? ".stream.json.gz" : "/config.json");
        if (model_find(path, &configs[i], &err) != ERR_OK)
            fail_msg("%s", err.text);
        const struct job job = job_of(&configs[i], model->lora, way);
        if (predict(&job, machine, &p[i], &err) != ERR_OK ||
            step_time(&p[i], &job, machine, 0, &t[i], &err) != ERR_OK)
            fail_msg("%s: %s", name, err.text);
        assert_int_equal(plan_verify(p[i].plan, &err), ERR_OK);
    }
    assert_same_events(name, p[0].plan, p[1].plan);
    assert_int_equal(p[0].device_bytes, p[1].device_bytes);
    assert_int_equal(p[0].parameters, p[1].parameters);
    if (fabs(t[1].timeline.step_s / t[0].timeline.step_s - 1) > 0.02)
        fail_msg("%s: built %.3f ms, recorded %.3f ms", name, 1e3 * t[0].timeline.step_s,
                 1e3 * t[1].timeline.step_s);
    for (int i = 0; i < 2; i++) {
        step_time_free(&t[i]);
        prediction_free(&p[i]);
        model_release(&configs[i]);
    }
}

static void a_recording_is_what_its_builder_makes(void **state)
{
    static const struct model models[] = {{"llama", NULL},   {"llama_dynamic", NULL},
                                          {"gpt2", NULL},    {"bert", NULL},
                                          {"mixtral", NULL}, {"peft_llama", "8,all-linear"}};
    struct machine machine = {.gpus_per_node = 8};
    (void)state;
    assert_int_equal(profile_find("h100-sxm", &machine.profile, NULL), ERR_OK);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
            if (!models[m].lora || ways[w].system != SYSTEM_FSDP1)
                compare(&models[m], &ways[w], &machine);
    profile_free(&machine.profile);
}

/* Under FSDP1 a unit's views all need a gradient, which changes what is kept for backward. */
static void frozen_parts_of_a_recording_stay_frozen(void **state)
{
    struct err err = {0};
    struct model_config config;
    struct plan *plan = NULL;
    (void)state;
    assert_int_equal(model_find("tests/data/recorded/peft_llama.stream.json.gz", &config, &err), 0);
    const struct way way = {.system = SYSTEM_FSDP1, .accumulate = 1};
    const struct job job = job_of(&config, "8", &way);
    assert_int_equal(job_plan(&job, &plan, NULL, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "base_layer.weight: frozen in a unit with trained"));
    model_release(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_is_what_its_builder_makes),
        cmocka_unit_test(frozen_parts_of_a_recording_stay_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
