/* test_fuse.c - chains of kernels as one: the same bits in the same memory, on every backend, and
 * none where anybody would see a difference. */
#include "memory/allocator.h"
#include "plan/plan_json.h"
#include "runtime/execution/execute.h"
#include "runtime/work/operand.h"
#include "tests/support/backends.h"
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 3, MOST_PARAMS = 64, CHAINS = 8 };

#define PLENTY ((uint64_t)1 << 36)

static char folder[] = "/tmp/shardplan_fuse.XXXXXX";

/* ---- a run ---- */

struct outcome { /* as bits: a NaN is the same as itself */
    uint64_t loss[STEPS], grad_norm[STEPS];
    uint64_t values; /* a hash of all parameters at the end */
    uint64_t memory; /* and of the memory after each instruction of each step */
    uint64_t launches;
    uint32_t parts; /* kernels that ran as parts of others, in the last step */
};

static uint64_t hash(uint64_t before, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        before = (before ^ at[i]) * 1099511628211ULL;
    return before;
}

static void hash_values(struct execution *e, const struct plan *plan, uint64_t *to)
{
    for (uint32_t p = 0; p < plan->param_count; p++) {
        const struct plan_piece *piece = execution_piece(plan, p, EXECUTION_PARAM);
        if (!piece)
            continue;
        const struct operand at = plan_piece_operand(plan, piece);
        const uint64_t count = shape_elements(&at.shape);
        float *values = xcalloc(count + 1, sizeof *values);
        assert_int_equal(execution_read(e, p, EXECUTION_PARAM, values, NULL), ERR_OK);
        *to = hash(*to, values, count * sizeof *values);
        free(values);
    }
}

static void hash_records(const struct execution *e, const struct plan *plan, struct outcome *out)
{
    const struct step_record *records = execution_records(e);
    out->parts = 0;
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        out->memory = hash(out->memory, &records[id].allocated, sizeof records[id].allocated);
        out->memory = hash(out->memory, &records[id].reserved, sizeof records[id].reserved);
        out->parts += records[id].fused_into != 0;
    }
}

static void run(const struct backend *backend, const struct plan *plan, bool fuse,
                struct outcome *out)
{
    const struct lane_list lanes = {plan->lanes, plan->lane_count};
    const struct run_settings settings = {.lr = 1e-2F,
                                          .beta1 = 0.9F,
                                          .beta2 = 0.95F,
                                          .eps = 1e-8F,
                                          .weight_decay = 0.1F,
                                          .fuse = fuse};
    struct device *device = NULL;
    struct data *data = NULL;
    struct execution *e = NULL;
    struct err err = {0};
    enum err_code rc;
    memset(out, 0, sizeof *out);
    if (backend->open(PLENTY, plan->event_count, lanes, NULL, &device, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(data_open(NULL, DATA_REFERENCE,
                               plan_input_of(plan, INPUT_TOKENS)->values.vocab, &data, &err),
                     ERR_OK);
    rc = execution_open(plan, device, NULL, data, &settings, &e, &err);
    for (uint32_t step = 0; step < STEPS && rc == ERR_OK; step++) {
        struct step_result result = {0};
        rc = execution_step(e, step, &result, &err);
        memcpy(&out->loss[step], &result.loss, sizeof result.loss);
        memcpy(&out->grad_norm[step], &result.grad_norm, sizeof result.grad_norm);
        if (rc == ERR_OK)
            hash_records(e, plan, out);
    }
    if (rc != ERR_OK)
        fail_msg("%s", err.text);
    hash_values(e, plan, &out->values);
    out->launches = device->launches;
    execution_close(e);
    data_close(data);
    device_close(device);
}

static void same_run(const struct outcome *x, const struct outcome *y, const char *what)
{
    if (memcmp(x->loss, y->loss, sizeof x->loss) != 0 ||
        memcmp(x->grad_norm, y->grad_norm, sizeof x->grad_norm) != 0 || x->values != y->values)
        fail_msg("%s: other numbers", what);
    if (x->memory != y->memory)
        fail_msg("%s: other memory", what);
}

static struct plan *make_plan(const char *options)
{
    static const char config[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
        "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"intermediate_size\": 48, \"vocab_size\": 64, "
        "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, "
        "\"tie_word_embeddings\": false}";
    char path[128];
    struct plan *plan = NULL;
    struct err err = {0};
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(config, file);
    fclose(file);
    if (shardplan("plan %s/config.json %s --files plan -q -o %s", folder, options, folder) != 0)
        fail_msg("%s", program_output());
    snprintf(path, sizeof path, "%s/plan.json", folder);
    if (plan_read_json(path, &plan, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return plan;
}

/* ---- whole steps ---- */

static void a_step_has_the_same_bits_in_the_same_memory(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--gpus 2 --seq 8 --micro-batch 2",
        "--gpus 2 --seq 8 --micro-batch 1 --param-dtype fp16",
        "--gpus 2 --seq 8 --micro-batch 1 --param-dtype fp32",
        "--gpus 2 --seq 8 --micro-batch 1 --checkpointing full",
        "--gpus 2 --seq 8 --micro-batch 1 --checkpointing selective",
        "--gpus 4 --seq 8 --micro-batch 1 --replicate 2 --accumulate 2 --clip 1",
        "--gpus 2 --seq 8 --micro-batch 1 --offload cpu",
        "--gpus 2 --seq 8 --micro-batch 1 --strategy ddp",
        "--gpus 2 --seq 8 --micro-batch 1 --strategy fsdp1",
        "--gpus 2 --seq 8 --micro-batch 1 --strategy zero3",
        "--gpus 2 --seq 8 --micro-batch 1 --strategy zero2",
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        struct plan *plan = make_plan(options[i]);
        struct outcome apart, one;
        run(backend_in_use, plan, false, &apart);
        run(backend_in_use, plan, true, &one);
        same_run(&apart, &one, options[i]);
        assert_int_equal(apart.parts, 0);
        if (one.parts < CHAINS || one.launches + (uint64_t)STEPS * one.parts != apart.launches)
            fail_msg("%s: %u parts, %llu launches instead of %llu", options[i], one.parts,
                     (unsigned long long)one.launches, (unsigned long long)apart.launches);
        plan_free(plan);
    }
}

/* ---- which chains there are ---- */

static uint32_t count_chains(const struct plan *plan, enum work_kind kind)
{
    struct fusion *fusion = fusion_find(plan, WORK_ON_HOST);
    uint32_t n = 0;
    for (uint32_t i = 0; i < fusion->count; i++)
        n += fusion->chains[i].kind == kind;
    fusion_close(fusion);
    return n;
}

/* Two blocks: q and k turned forward and back; a gate and its two gradients; the sums that are not
 * the last of a block but the model's, whose norm comes next. */
static void a_llama_has_the_chains_that_it_should(void **state)
{
    (void)state;
    struct plan *plan = make_plan("--gpus 2 --seq 8 --micro-batch 1");
    assert_int_equal(count_chains(plan, WORK_ROTATE), 8);
    assert_int_equal(count_chains(plan, WORK_GATE), 2);
    assert_int_equal(count_chains(plan, WORK_PRODUCTS), 2);
    assert_int_equal(count_chains(plan, WORK_ADD_RMS_NORM), 3);
    assert_int_equal(count_chains(plan, WORK_RMS_NORM_BACKWARD_ADD), 4);
    assert_int_equal(count_chains(plan, WORK_LOG_SOFTMAX), 1);
    assert_int_equal(count_chains(plan, WORK_CROSS_ENTROPY_SLOPE), 1);
    assert_true(count_chains(plan, WORK_COPY_IN) >= 3);
    assert_int_equal(count_chains(plan, WORK_ATTENTION), 0); /* backward reads repeated heads */
    plan_free(plan);
}

/* Each block's forward repeats the heads of keys and values for attention alone, where backward
 * repeats them anew. */
static void attention_reads_shared_heads_where_nobody_keeps_them(void **state)
{
    (void)state;
    static const char *const checkpointing[] = {"full", "selective"};
    for (int i = 0; i < 2; i++) {
        char options[96];
        snprintf(options, sizeof options, "--gpus 2 --seq 8 --micro-batch 1 --checkpointing %s",
                 checkpointing[i]);
        struct plan *plan = make_plan(options);
        assert_int_equal(count_chains(plan, WORK_ATTENTION), 2);
        plan_free(plan);
    }
}

enum variant {
    PLAIN,
    OTHER_READER,     /* of what lies between: it is written */
    RECORD_BETWEEN,   /* somebody may wait for the first */
    KERNEL_BETWEEN,   /* that has nothing to do with it */
    WRITES_INPUT,     /* a kernel between writes what the first reads */
    READS_RESULT,     /* or reads what it writes */
    INPUT_FREED,      /* an input goes while another kernel lies between */
    INPUT_FREED_BARE, /* or while none does: its memory is nobody's yet */
    OTHER_LANE,
    KEPT /* what lies between outlives the step */
};

static void add(struct plan *plan, enum plan_op op, uint8_t lane, uint32_t arg)
{
    plan_add_instruction(plan,
                         &(struct plan_instruction){
                             .op = (uint8_t)op, .lane = lane, .group = PLAN_NO_GROUP, .arg = arg});
}

static uint32_t add_buffer(struct plan *plan, bool resident)
{
    return plan_add_buffer(
        plan, &(struct buffer){
                  .bytes = 64, .dtype = DTYPE_BF16, .resident = resident, .shape = SHAPE(4, 8)});
}

static void add_kernel(struct plan *plan, enum work_kind work, uint8_t lane, uint32_t ins,
                       const uint32_t *in, uint32_t out)
{
    struct operand from[3], to = plan_whole_buffer(plan, out);
    for (uint32_t i = 0; i < ins; i++)
        from[i] = plan_whole_buffer(plan, in[i]);
    add(plan, PLAN_COMPUTE, lane, plan_add_kernel(plan, work, 0, ins, from, 1, &to));
}

/* silu x -> s, s u -> y, and what the variant puts between. */
static struct plan *gate_plan(enum variant variant)
{
    static const char *const labels[] = {"empty"}, *const kinds[] = {""};
    struct plan *plan = plan_new();
    plan->labels = labels;
    plan->kinds = kinds;
    plan->label_count = plan->kind_count = plan->world = 1;
    plan->event_count = 1;
    const uint8_t side = plan_add_lane(plan, "side", false);
    const uint32_t x = add_buffer(plan, false), u = add_buffer(plan, true);
    const uint32_t s = add_buffer(plan, variant == KEPT), y = add_buffer(plan, false);
    const uint32_t other = add_buffer(plan, true), third = add_buffer(plan, true);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, x);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, s);
    add_kernel(plan, WORK_SILU, variant == OTHER_LANE ? side : LANE_COMPUTE, 1, &x, s);
    if (variant == RECORD_BETWEEN)
        add(plan, PLAN_RECORD, LANE_COMPUTE, 0);
    if (variant == KERNEL_BETWEEN || variant == INPUT_FREED)
        add_kernel(plan, WORK_RELU, LANE_COMPUTE, 1, &other, third);
    if (variant == WRITES_INPUT)
        add_kernel(plan, WORK_RELU, LANE_COMPUTE, 1, &other, x);
    if (variant == READS_RESULT)
        add_kernel(plan, WORK_RELU, LANE_COMPUTE, 1, &s, third);
    if (variant == INPUT_FREED || variant == INPUT_FREED_BARE)
        add(plan, PLAN_FREE, LANE_COMPUTE, x);
    add(plan, PLAN_ALLOC, LANE_COMPUTE, y);
    add_kernel(plan, WORK_MUL, LANE_COMPUTE, 2, (const uint32_t[]){s, u}, y);
    if (variant == OTHER_READER)
        add_kernel(plan, WORK_RELU, LANE_COMPUTE, 1, &s, other);
    add(plan, PLAN_FREE, LANE_COMPUTE, s);
    add(plan, PLAN_FREE, LANE_COMPUTE, y);
    return plan;
}

static void a_chain_is_what_nobody_can_tell_apart(void **state)
{
    (void)state;
    static const struct {
        enum variant variant;
        bool found, written; /* s is */
    } cases[] = {{PLAIN, true, false},           {OTHER_READER, true, true},
                 {RECORD_BETWEEN, false, false}, {KERNEL_BETWEEN, true, false},
                 {WRITES_INPUT, false, false},   {READS_RESULT, false, false},
                 {INPUT_FREED, false, false},    {INPUT_FREED_BARE, true, false},
                 {OTHER_LANE, false, false},     {KEPT, true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct plan *plan = gate_plan(cases[i].variant);
        struct fusion *fusion = fusion_find(plan, WORK_ON_HOST);
        if (fusion->count != cases[i].found)
            fail_msg("variant %zu: %u chains", i, fusion->count);
        if (cases[i].found) {
            const struct fuse_chain *chain = &fusion->chains[0];
            assert_int_equal(chain->kind, WORK_GATE);
            assert_int_equal(chain->members, 2);
            assert_int_equal(chain->places[chain->ins].written, cases[i].written);
            assert_true(chain->places[chain->ins + 1].written);
            assert_ptr_equal(fusion_chain(fusion, chain->member[0]), chain);
        }
        fusion_close(fusion);
        plan_free(plan);
    }
}

static void outputs_over_inputs_are_told(void **state)
{
    (void)state;
    char memory[256];
    struct fuse_chain chain = {.in_place = true};
    struct work_operand operand[3] = {{memory, SHAPE(4, 8), 0, DTYPE_BF16, NULL},
                                      {memory + 64, SHAPE(4, 8), 0, DTYPE_BF16, NULL},
                                      {memory + 128, SHAPE(4, 8), 0, DTYPE_BF16, NULL}};
    const struct work work = {.ins = 2, .outs = 1, .operand = operand};
    assert_true(fuse_fits(&chain, &work));
    operand[2].data = memory + 64; /* exactly there */
    assert_true(fuse_fits(&chain, &work));
    chain.in_place = false;
    assert_false(fuse_fits(&chain, &work));
    chain.in_place = true;
    operand[2].data = memory + 126; /* one element */
    assert_false(fuse_fits(&chain, &work));
    operand[2].data = memory; /* of another dtype */
    operand[2].dtype = DTYPE_FP32;
    assert_false(fuse_fits(&chain, &work));
    operand[2].data = NULL; /* not written */
    assert_true(fuse_fits(&chain, &work));
}

int main(void)
{
    const struct CMUnitTest chains[] = {
        cmocka_unit_test(a_llama_has_the_chains_that_it_should),
        cmocka_unit_test(attention_reads_shared_heads_where_nobody_keeps_them),
        cmocka_unit_test(a_chain_is_what_nobody_can_tell_apart),
        cmocka_unit_test(outputs_over_inputs_are_told),
    };
    const struct CMUnitTest steps[] = {
        cmocka_unit_test(a_step_has_the_same_bits_in_the_same_memory),
    };
    if (folder_make(folder) != 0)
        return 1;
    const int failed = cmocka_run_group_tests_name("chains", chains, NULL, NULL) +
                       on_backends("fused steps", steps, sizeof steps / sizeof steps[0]);
    folder_remove(folder);
    return failed;
}
