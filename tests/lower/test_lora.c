/* test_lora.c - peft's adapters under fully_shard and the others, beside recordings of them. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FILE_OF_ROWS "tests/data/truth/lora_events.jsonl"
#define FROZEN "tests/data/truth/frozen_events.jsonl"

static void adapters_under_fsdp2(void **state)
{
    (void)state;
    truth_check_file(FILE_OF_ROWS, SYSTEM_FSDP2, true, truth_read_hf);
}

static void adapters_under_fsdp1(void **state)
{
    (void)state;
    truth_check_file(FILE_OF_ROWS, SYSTEM_FSDP1, true, truth_read_hf);
}

static void adapters_under_ddp(void **state)
{
    (void)state;
    truth_check_file(FILE_OF_ROWS, SYSTEM_DDP, true, truth_read_hf);
}

/* A model that was loaded in 16 bits, and adapters in fp32, as peft casts them. */
static void adapters_of_16_bits_alone(void **state)
{
    (void)state;
    truth_check_file(FROZEN, SYSTEM_SINGLE, true, truth_read_hf);
}

static void adapters_of_16_bits_under_ddp(void **state)
{
    (void)state;
    truth_check_file(FROZEN, SYSTEM_DDP, true, truth_read_hf);
}

/* In units of their own, as peft's auto_wrap_policy makes them. */
static void adapters_of_16_bits_under_fsdp1(void **state)
{
    (void)state;
    truth_check_file(FROZEN, SYSTEM_FSDP1, true, truth_read_hf);
}

/* Two dtypes: what torch fails with, and what only adapters are planned with. */
static void mixtures_are_refused_with_reasons(void **state)
{
    static const struct model_config config = {.arch = ARCH_LLAMA,
                                               .activation = "silu",
                                               .hidden = 16,
                                               .layers = 2,
                                               .heads = 2,
                                               .kv_heads = 2,
                                               .head_dim = 8,
                                               .ffn = 48,
                                               .vocab = 64,
                                               .max_positions = 64,
                                               .norm_eps = 1e-5F,
                                               .rope = {.theta = 1e4F, .attention_factor = 1}};
    static const struct {
        enum system_kind system;
        enum units_kind units;
        enum dtype store;
        bool original, checkpointed;
        const char *lora, *says;
    } cases[] = {
        {SYSTEM_SINGLE, UNITS_BLOCKS, DTYPE_FP32, false, false, NULL, "planned with --lora"},
        {SYSTEM_DDP, UNITS_BLOCKS, DTYPE_FP16, false, false, "4", "--store-dtype fp16"},
        {SYSTEM_FSDP1, UNITS_BLOCKS, DTYPE_FP32, true, false, "4", "uniform dtype"},
        {SYSTEM_FSDP1, UNITS_TRAINED, DTYPE_FP32, true, false, "4", "mat1 and mat2"},
        {SYSTEM_FSDP1, UNITS_TRAINED, DTYPE_FP32, false, true, "4", "CheckpointError"},
        {SYSTEM_FSDP1, UNITS_TRAINED, DTYPE_FP32, false, false, NULL, "--units peft"},
        {SYSTEM_FSDP1, UNITS_TRAINED, DTYPE_FP32, false, false, "4", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct plan *plan = NULL;
        struct job job;
        job_defaults(&job, &config);
        job.model.seq = 8;
        job.model.code = CODE_HF;
        job.model.lora = cases[i].lora;
        job.tape.checkpointing = cases[i].checkpointed ? CHECKPOINTING_FULL : CHECKPOINTING_NONE;
        job.strategy.system = cases[i].system;
        job.strategy.world = cases[i].system == SYSTEM_SINGLE ? 1 : 4;
        job.strategy.units = cases[i].units;
        job.strategy.use_orig_params = cases[i].original;
        job.strategy.store = cases[i].store;
        job.strategy.frozen_low = true;
        const enum err_code rc = job_plan(&job, &plan, NULL, &err);
        assert_int_equal(rc == ERR_OK, cases[i].says == NULL);
        if (cases[i].says && !strstr(err.text, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].says);
        plan_free(plan);
    }
}

/* Without adapters there is nothing that it is of. */
static void dropout_is_of_adapters(void **state)
{
    (void)state;
    struct err err = {0};
    struct model_config config;
    assert_int_equal(model_find("llama-3.2-1b", &config, &err), ERR_OK);
    struct job job;
    job_defaults(&job, &config);
    job.model.seq = 8;
    job.model.code = CODE_HF;
    job.model.lora_dropout = 0.1F;
    assert_int_equal(job_check(&job, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "--lora-dropout"));
    job.model.lora = "4";
    assert_int_equal(job_check(&job, NULL), ERR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_under_fsdp2),
        cmocka_unit_test(adapters_under_fsdp1),
        cmocka_unit_test(adapters_under_ddp),
        cmocka_unit_test(adapters_of_16_bits_alone),
        cmocka_unit_test(adapters_of_16_bits_under_ddp),
        cmocka_unit_test(adapters_of_16_bits_under_fsdp1),
        cmocka_unit_test(mixtures_are_refused_with_reasons),
        cmocka_unit_test(dropout_is_of_adapters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
