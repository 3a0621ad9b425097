/* test_lora.c - peft's adapters under fully_shard and the others, beside recordings of them. */
#include "families/families.h"
#include "tests/support/truth.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FILE_OF_ROWS "tests/data/truth/lora_events.jsonl"
#define FROZEN "tests/data/truth/frozen_events.jsonl"
#define BITS4 "tests/data/truth/bits4_events.jsonl"
#define BITS8 "tests/data/truth/bits8_events.jsonl"

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

/* Weights in 4 bits of bitsandbytes under them. */
static void adapters_of_4_bits_alone(void **state)
{
    (void)state;
    truth_check_file(BITS4, SYSTEM_SINGLE, true, truth_read_hf);
}

static void adapters_of_4_bits_under_ddp(void **state)
{
    (void)state;
    truth_check_file(BITS4, SYSTEM_DDP, true, truth_read_hf);
}

/* In 8 bits, whose inputs live as long as the loss. */
static void adapters_of_8_bits_alone(void **state)
{
    (void)state;
    truth_check_file(BITS8, SYSTEM_SINGLE, true, truth_read_hf);
}

static void adapters_of_8_bits_under_ddp(void **state)
{
    (void)state;
    truth_check_file(BITS8, SYSTEM_DDP, true, truth_read_hf);
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

/* A regular expression is of whole paths, of the model alone or of one that it is the text of;
 * which layers it names says how many parameters there are: of llama-3.2-1b, an adapter of rank 4.
 */
static void layers_are_named_by_a_pattern_of_their_paths(void **state)
{
    static const struct {
        const char *lora;
        uint64_t adapters; /* elements; 0: refused */
        const char *says;
    } cases[] = {
        {"4,q_proj,v_proj", 16ULL * 4 * (4096 + 2560), NULL},
        {"4,model\\.layers\\.\\d+\\.self_attn\\.(q|v)_proj", 16ULL * 4 * (4096 + 2560), NULL},
        {"4,model.language_model.layers.[\\d]+.(mlp|cross_attn|self_attn).(q|v)_proj",
         16ULL * 4 * (4096 + 2560), NULL},
        {"4,.*\\.layers\\.(?:3|7|11)\\.self_attn\\.q_proj", 3ULL * 4 * 4096, NULL},
        {"4,.*\\.layers\\.1{1,2}\\.self_attn\\.q_proj", 2ULL * 4 * 4096, NULL},
        {"4,(?!.*layers\\.1\\.).*q_proj", 15ULL * 4 * 4096, NULL},
        {"4,layers.*q_proj", 0, "no linear layer is called so"}, /* not from the beginning */
        {"4,.*q_pro", 0, "no linear layer is called so"},        /* nor to the end */
        {"4,.*(q_proj", 0, "no regular expression: missing closing parenthesis, at character 10"},
    };
    struct err err = {0};
    struct model_config config;
    uint64_t whole = 0;
    (void)state;
    assert_int_equal(model_find("llama-3.2-1b", &config, &err), ERR_OK);
    for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++) { /* the first has no adapters */
        struct plan *plan = NULL;
        uint64_t parameters = 0;
        struct job job;
        job_defaults(&job, &config);
        job.model.seq = 8;
        job.model.code = CODE_HF;
        job.model.lora = i > 0 ? cases[i - 1].lora : NULL;
        err = (struct err){0};
        const enum err_code rc = job_plan(&job, &plan, &parameters, &err);
        plan_free(plan);
        if (i == 0) {
            whole = parameters;
            continue;
        }
        assert_int_equal(rc == ERR_OK, cases[i - 1].says == NULL);
        if (rc == ERR_OK)
            assert_int_equal(parameters - whole, cases[i - 1].adapters);
        else if (!cases[i - 1].says || !strstr(err.text, cases[i - 1].says))
            fail_msg("\"%s\" is not what it says", err.text);
    }
}

static void qlora_job(struct job *job, struct model_config *config)
{
    struct err err = {0};
    assert_int_equal(model_find("llama-3.2-1b", config, &err), ERR_OK);
    job_defaults(job, config);
    job->model.seq = 8;
    job->model.code = CODE_HF;
    job->model.lora = "4";
    job->model.bits4 =
        (struct graph_bits4){.kind = BITS4_NF4, .compute = DTYPE_BF16, .storage = DTYPE_UINT8};
    job->strategy.system = SYSTEM_SINGLE;
    job->strategy.world = 1;
    job->strategy.frozen_low = true;
    job->strategy.compute = job->model.compute = DTYPE_BF16;
    job->strategy.store = DTYPE_FP32;
}

/* Bytes that the first forward pass leaves. */
static uint64_t activations_after_forward(const struct plan *plan)
{
    uint64_t live = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->op == PLAN_MARK && in->arg == PLAN_MARK_AFTER_FORWARD)
            break;
        if (in->op == PLAN_ALLOC)
            live += plan->buffers[in->arg].bytes;
        if (in->op == PLAN_FREE)
            live -= plan->buffers[in->arg].bytes;
    }
    return live;
}

static void refused(const struct job *job, enum err_code code, const char *says)
{
    struct err err = {0};
    assert_int_equal(job_check(job, &err), code);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

/* What was not recorded of weights in 4 bits, and what cannot be. */
static void bits4_are_refused_with_reasons(void **state)
{
    (void)state;
    struct model_config config;
    struct job job;
    qlora_job(&job, &config);
    assert_int_equal(job_check(&job, NULL), ERR_OK);
    job.model.lora = NULL;
    refused(&job, ERR_INVALID, "not trained");
    qlora_job(&job, &config);
    job.tape.compiled = COMPILED_BLOCKS;
    refused(&job, ERR_UNSUPPORTED, "--load-in-4bit with --compile");
    qlora_job(&job, &config);
    job.model.float8 = FLOAT8_TENSORWISE;
    refused(&job, ERR_UNSUPPORTED, "--load-in-4bit with --float8");
    qlora_job(&job, &config);
    job.config.arch = ARCH_FALCON;
    refused(&job, ERR_UNSUPPORTED, "falcon");
    qlora_job(&job, &config);
    job.model.bits4.compute = DTYPE_FP16;
    job.model.autocast = true;
    refused(&job, ERR_UNSUPPORTED, "--bnb-compute-dtype fp16");
    qlora_job(&job, &config);
    job.model.bits4 = (struct graph_bits4){.twice = true};
    refused(&job, ERR_INVALID, "--bnb-double-quant");
    qlora_job(&job, &config);
    job.strategy.system = SYSTEM_FSDP2;
    refused(&job, ERR_UNSUPPORTED, "--bnb-quant-storage");
    job.model.bits4.storage = DTYPE_BF16;
    assert_int_equal(job_check(&job, NULL), ERR_OK);
    job.model.bits4.compute = DTYPE_FP32;
    refused(&job, ERR_UNSUPPORTED, "--bnb-compute-dtype");
    job.model.bits4.compute = DTYPE_BF16;
    job.strategy.offload = true;
    assert_int_equal(job_check(&job, NULL), ERR_OK);
    qlora_job(&job, &config);
    job.strategy.system = SYSTEM_FSDP1;
    refused(&job, ERR_UNSUPPORTED, "fsdp1 casts them; --strategy single");
    job.model.bits4.storage = DTYPE_BF16;
    assert_int_equal(job_check(&job, NULL), ERR_OK);
    job.model.bits4.storage = DTYPE_FP16;
    job.strategy.system = SYSTEM_ZERO2;
    refused(&job, ERR_UNSUPPORTED, "to which DeepSpeed casts the rest");
    job.model.bits4.storage = DTYPE_UINT8;
    job.strategy.zero.quantized_weights = true;
    refused(&job, ERR_UNSUPPORTED, "zero_quantized_weights");
    qlora_job(&job, &config);
    job.model.torch = 13;
    refused(&job, ERR_UNSUPPORTED, "as of 2.14");
}

static void bits8_are_refused_with_reasons(void **state)
{
    (void)state;
    struct model_config config;
    struct job job, plain;
    qlora_job(&plain, &config);
    plain.model.bits4.kind = BITS4_NOT;
    plain.model.bits8 = true;
    assert_int_equal(job_check(&plain, NULL), ERR_OK);
    job = plain;
    job.model.lora = NULL;
    refused(&job, ERR_INVALID, "not trained");
    job = plain;
    job.model.bits4.kind = BITS4_FP4;
    refused(&job, ERR_INVALID, "in one of them");
    job = plain;
    job.tape.compiled = COMPILED_BLOCKS;
    refused(&job, ERR_UNSUPPORTED, "--load-in-8bit with --compile");
    job = plain;
    job.model.outputs_kept = OUTPUTS_UNTIL_NEXT;
    refused(&job, ERR_UNSUPPORTED, "--keep-outputs");
    job = plain;
    job.config.kv_lora = 8;
    refused(&job, ERR_UNSUPPORTED, "Only two or three dimensional matrices");
    job = plain;
    job.config.ffn = 8190;
    refused(&job, ERR_UNSUPPORTED, "4 does not divide");
}

/* What llm_int8_skip_modules names stays, and nothing else: the head is in 4 bits, too, which is no
 * weight of an embedding's. Names are of whole modules from the start, and of any end. */
static void modules_are_skipped_by_name(void **state)
{
    static const struct {
        const char *model, *names,
            *says; /* NULL: it is planned, with as many parameters in 4 bits */
        uint32_t packed;
    } cases[] = {
        {"llama-3.1-8b", NULL, NULL, 32 * 7},
        {"llama-3.1-8b", "out_proj", NULL, 32 * 7 + 1},
        {"llama-3.1-8b", "o_proj,lm_head", NULL, 32 * 6},
        {"llama-3.1-8b", "lm_head,model.layers.1", NULL, 31 * 7},
        {"llama-3.1-8b", "lm_head,layers.1.self_attn.q_proj", NULL, 32 * 7 - 1},
        {"llama-3.1-8b", "lm_head,layers.1.self_attn", NULL, 32 * 7},
        {"llama-3.1-8b", "lm_head,.*_proj", "not regular expressions", 0},
        {"llama-3.2-1b", "o_proj", "assert module.weight.shape[1] == 1", 0},
        {"nemotron-h-8b", NULL, "mat1 and mat2 shapes cannot be multiplied", 0},
        {"nemotron-h-8b", "mixer", "mat1 and mat2 shapes cannot be multiplied", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct model_config config;
        struct job job;
        struct graph *graph = NULL;
        uint32_t packed = 0;
        qlora_job(&job, &config);
        assert_int_equal(model_find(cases[i].model, &job.config, &err), ERR_OK);
        job.model.lora = "4,q_proj";
        job.model.bits_skipped = cases[i].names;
        const struct model_job model = job_model(&job);
        const enum err_code rc = model_build(&job.config, &model, &graph, &err);
        assert_int_equal(rc == ERR_OK, cases[i].says == NULL);
        if (cases[i].says && !strstr(err.text, cases[i].says))
            fail_msg("\"%s\" is not what it says", err.text);
        for (uint32_t p = 0; graph && p < graph->param_count; p++)
            packed += graph->params[p].whole.rank > 0;
        assert_int_equal(packed, cases[i].packed);
        graph_free(graph);
    }
}

/* Of these models a layer's experts are more bytes than a dim of a shape holds. */
static void no_expert_in_4_bits_is_lost(void **state)
{
    static const char *const models[] = {"llama-4-maverick-17b-128e", "kimi-k2"};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct err err = {0};
        struct model_config config;
        struct job job;
        struct graph *graph = NULL;
        bool large = false;
        qlora_job(&job, &config);
        assert_int_equal(model_find(models[i], &job.config, &err), ERR_OK);
        job.model.lora = "4,o_proj";
        job.model.bits4.experts = true;
        const struct model_job model = job_model(&job);
        assert_int_equal(model_build(&job.config, &model, &graph, &err), ERR_OK);
        for (uint32_t p = 0; p < graph->param_count; p++) {
            const struct graph_param *param = &graph->params[p];
            const uint64_t elements = shape_elements(&param->whole);
            if (param->whole.rank == 0)
                continue;
            large |= elements / 2 > UINT32_MAX;
            assert_int_equal(shape_elements(&param->shape) * param->packed, elements);
        }
        assert_true(large);
        graph_free(graph);
    }
}

/* Experts are whole while they run: without checkpoints autograd keeps them, with them one block's
 * are there at a time. Of Mixtral-8x7B a block's are 2.6 GiB in bf16. */
static void experts_in_4_bits_are_whole_while_they_run(void **state)
{
    (void)state;
    const uint64_t block = 2ULL * 8 * 3 * 4096 * 14336;
    uint64_t after_forward[2];
    struct model_config config;
    struct job job;
    qlora_job(&job, &config);
    job.model.bits4.experts = true;
    refused(&job, ERR_INVALID, "has no experts");
    job.model.bits4.kind = BITS4_NOT;
    refused(&job, ERR_INVALID, "--quantize-moe-experts: of --load-in-4bit");
    for (int i = 0; i < 2; i++) {
        struct err err = {0};
        struct plan *plan = NULL;
        uint64_t parameters;
        qlora_job(&job, &config);
        assert_int_equal(model_find("mixtral-8x7b", &job.config, &err), ERR_OK);
        job.model.bits4.experts = i > 0;
        assert_int_equal(job_plan(&job, &plan, &parameters, &err), ERR_OK);
        assert_int_equal(parameters, 46702792704 + 32ULL * 2 * 4 * (4096 + 4096 + 4096 + 1024) / 2);
        after_forward[i] = activations_after_forward(plan);
        plan_free(plan);
    }
    assert_true(after_forward[1] - after_forward[0] == 32 * block);
}

/* What is frozen, and in few bits neither, is in fp32 but for what is cast back. */
static void what_is_not_cast_back_is_in_fp32(void **state)
{
    (void)state;
    struct err err = {0};
    struct model_config config;
    struct job job;
    struct graph *graph = NULL;
    qlora_job(&job, &config);
    assert_int_equal(model_find("mixtral-8x7b", &job.config, &err), ERR_OK);
    job.model.cast_back = "*norm*,*embed*,*lm_head*";
    const struct model_job plain = job_model(&job);
    assert_int_equal(model_build(&job.config, &plain, &graph, &err), ERR_UNSUPPORTED);
    err = (struct err){0};
    job.model.autocast = true;
    const struct model_job model = job_model(&job);
    assert_int_equal(model_build(&job.config, &model, &graph, &err), ERR_OK);
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const struct graph_param *param = &graph->params[p];
        const bool wide = param->trainable || strstr(param->name, "mlp.gate.weight") ||
                          strstr(param->name, "mlp.experts.");
        if (!param->whole.rank)
            assert_int_equal(graph->tensors[param->tensor].dtype, wide ? DTYPE_FP32 : DTYPE_BF16);
    }
    graph_free(graph);
    job.model.bits4.kind = BITS4_NOT;
    const struct model_job whole = job_model(&job);
    assert_int_equal(model_build(&job.config, &whole, &graph, NULL), ERR_INVALID);
}

/* The input of each layer lives until the loss goes, whether blocks are checkpointed or not: of
 * llama-3.2-1b in bf16 two of the hidden size, one of all heads and one of the MLP's a layer and
 * token; but for what the first layer's attention is given, which needs no gradient. */
static void inputs_in_8_bits_outlive_checkpoints(void **state)
{
    uint64_t after_forward[2];
    const uint64_t inputs = 8ULL * 2 * (16ULL * (3 * 2048 + 8192) - 2048);
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct err err = {0};
        struct model_config config;
        struct job job;
        struct plan *plan = NULL;
        uint64_t parameters;
        qlora_job(&job, &config);
        job.model.bits4.kind = BITS4_NOT;
        job.model.bits8 = i > 0;
        job.tape.checkpointing = CHECKPOINTING_FULL;
        assert_int_equal(job_plan(&job, &plan, &parameters, &err), ERR_OK);
        after_forward[i] = activations_after_forward(plan);
        plan_free(plan);
    }
    assert_int_equal(after_forward[1] - after_forward[0], inputs);
}

/* The model has as many parameters in 4 bits as in 16, and its weights are of a quarter of the
 * bytes and what the scales take: of Llama-2-7B 6.5 billion, 0.127 of a bit each (QLoRA, section 3:
 * from 0.5 bits to 0.127). */
static void bits4_are_counted_as_they_are(void **state)
{
    (void)state;
    uint64_t parameters[2], bytes[2];
    for (int i = 0; i < 2; i++) {
        struct err err = {0};
        struct model_config config;
        struct job job;
        struct plan *plan = NULL;
        qlora_job(&job, &config);
        assert_int_equal(model_find("llama-2-7b", &config, &err), ERR_OK);
        job.config = config;
        job.model.bits4.kind = i ? BITS4_NF4 : BITS4_NOT;
        job.model.bits4.twice = i > 0;
        assert_int_equal(job_plan(&job, &plan, &parameters[i], &err), ERR_OK);
        bytes[i] = 0;
        for (uint32_t b = 0; b < plan->buffer_count; b++)
            if (plan->buffers[b].resident && (plan->buffers[b].category == CATEGORY_PARAM ||
                                              plan->buffers[b].category == CATEGORY_BUFFER))
                bytes[i] += plan->buffers[b].bytes;
        uint64_t elements = 0;
        for (uint32_t p = 0; p < plan->param_count; p++)
            elements += plan_param_elements(plan, p);
        assert_int_equal(elements, parameters[i]);
        plan_free(plan);
    }
    assert_int_equal(parameters[0], parameters[1]);
    const double weights = 32.0 * (4 * 4096.0 * 4096 + 3 * 4096.0 * 11008);
    const double saved = (double)(bytes[0] - bytes[1]) * 8 / weights;
    assert_true(fabs(saved - (16 - 4 - 0.127)) < 0.001);
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
        cmocka_unit_test(adapters_of_4_bits_alone),
        cmocka_unit_test(adapters_of_4_bits_under_ddp),
        cmocka_unit_test(adapters_of_8_bits_alone),
        cmocka_unit_test(adapters_of_8_bits_under_ddp),
        cmocka_unit_test(bits4_are_refused_with_reasons),
        cmocka_unit_test(bits8_are_refused_with_reasons),
        cmocka_unit_test(modules_are_skipped_by_name),
        cmocka_unit_test(no_expert_in_4_bits_is_lost),
        cmocka_unit_test(experts_in_4_bits_are_whole_while_they_run),
        cmocka_unit_test(what_is_not_cast_back_is_in_fp32),
        cmocka_unit_test(inputs_in_8_bits_outlive_checkpoints),
        cmocka_unit_test(bits4_are_counted_as_they_are),
        cmocka_unit_test(mixtures_are_refused_with_reasons),
        cmocka_unit_test(dropout_is_of_adapters),
        cmocka_unit_test(layers_are_named_by_a_pattern_of_their_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
