/* test_plan.c - plan_verify finds what it promises to find, and plan.json loses nothing.
 *
 * Good plans come from small jobs of every kind; each defect is put into a good plan by hand. */
#include "job/job.h"
#include "memory/replay.h"
#include "plan/plan_json.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- plans ---- */

static struct job small_job(enum arch arch)
{
    const struct model_config config = {
        .arch = arch,
        .hidden = 48,
        .layers = 3,
        .heads = 4,
        .kv_heads = arch == ARCH_LLAMA ? 2 : 4,
        .head_dim = 12,
        .ffn = 100,
        .vocab = 131,
        .max_positions = 64,
        .tied = arch == ARCH_GPT2,
        .dropout = arch == ARCH_GPT2 ? 0.1F : 0,
    };
    struct job job;
    job_defaults(&job, &config);
    job.model.batch = 2;
    job.model.seq = 20;
    job.strategy.world = 4;
    return job;
}

static struct plan *plan_of(const struct job *job)
{
    struct err err = {0};
    struct plan *plan = NULL;
    if (job_plan(job, &plan, NULL, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return plan;
}

static struct plan *good_plan(void)
{
    const struct job job = small_job(ARCH_LLAMA);
    return plan_of(&job);
}

enum { JOBS = 14 };

/* One job for each thing that makes programs differ. */
static struct job job_of_kind(int kind)
{
    struct job job = small_job(kind % 3 == 0   ? ARCH_LLAMA
                               : kind % 3 == 1 ? ARCH_GPT2
                                               : ARCH_FSDP2_TUTORIAL);
    struct strategy *s = &job.strategy;
    switch (kind) {
    case 1:
        s->replicate = 2; /* HSDP */
        break;
    case 2:
        s->reshard = RESHARD_INT;
        s->reshard_ranks = 2;
        break;
    case 3:
        s->accumulate = 3;
        break;
    case 4:
        s->accumulate = 2;
        s->accumulate_sync = true;
        break;
    case 5:
        job.tape.checkpointing = CHECKPOINTING_FULL;
        break;
    case 6:
        job.tape.checkpointing = CHECKPOINTING_SELECTIVE;
        s->clip = true;
        break;
    case 7:
        s->world = 1;
        break;
    case 8:
        s->offload = true;
        break;
    case 9:
        s->units = UNITS_TORCHTITAN;
        s->forward_prefetch = s->backward_prefetch = 2;
        break;
    case 10:
        s->optimizer = OPTIMIZER_SGD;
        s->world = 7;
        s->rank = 6;
        break;
    case 11:
        s->impl = IMPL_FUSED;
        s->reshard = RESHARD_NEVER;
        break;
    case 12:
        s->impl = IMPL_LOOP;
        s->replicate = 2;
        s->accumulate = 2;
        break;
    case 13:
        job.model.frozen = "*layers.0*,*h.0*";
        break;
    default:
        break;
    }
    return job;
}

/* ---- verify: what is right ---- */

static void plans_of_every_kind_of_job_are_right(void **state)
{
    (void)state;
    for (int kind = 0; kind < JOBS; kind++) {
        const struct job job = job_of_kind(kind);
        struct err err = {0};
        struct plan *plan = plan_of(&job);
        if (plan_verify(plan, &err) != ERR_OK)
            fail_msg("kind %d: %s", kind, err.text);
        plan_free(plan);
    }
}

/* ---- verify: what is wrong ---- */

static void expect_error(struct plan *plan, const char *text)
{
    struct err err = {0};
    assert_int_equal(plan_verify(plan, &err), ERR_INTERNAL);
    if (!strstr(err.text, text))
        fail_msg("expected \"%s\" in: %s", text, err.text);
    plan_free(plan);
}

/* The n-th instruction of an op, counted from 0. */
static uint32_t find(const struct plan *plan, enum plan_op op, uint32_t n)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (plan->instructions[i].op == op && n-- == 0)
            return i;
    fail_msg("no such instruction");
    return 0;
}

static uint32_t find_of(const struct plan *plan, enum plan_op op, uint32_t arg)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (plan->instructions[i].op == op && plan->instructions[i].arg == arg)
            return i;
    fail_msg("no such instruction");
    return 0;
}

static void drop(struct plan *plan, uint32_t id)
{
    plan->instruction_count--;
    memmove(plan->instructions + id, plan->instructions + id + 1,
            (plan->instruction_count - id) * sizeof *plan->instructions);
}

static void insert(struct plan *plan, uint32_t id, struct plan_instruction instruction)
{
    plan_add_instruction(plan, &instruction);
    memmove(plan->instructions + id + 1, plan->instructions + id,
            (plan->instruction_count - 1 - id) * sizeof *plan->instructions);
    plan->instructions[id] = instruction;
}

static void move(struct plan *plan, uint32_t from, uint32_t to)
{
    const struct plan_instruction moved = plan->instructions[from];
    drop(plan, from);
    insert(plan, to, moved);
}

/* An activation that a later kernel reads: written by the second mm of the forward pass. */
static uint32_t some_activation(const struct plan *plan)
{
    const struct plan_instruction *i = &plan->instructions[find(plan, PLAN_COMPUTE, 4)];
    const struct kernel *kernel = &plan->kernels[i->arg];
    return plan_operand_buffer(plan, i, &plan->operands[kernel->first + kernel->ins]);
}

static void a_missing_alloc_is_found_at_the_first_use(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    char expected[128], what[96];
    const uint32_t buffer = some_activation(plan);
    drop(plan, find_of(plan, PLAN_ALLOC, buffer));
    snprintf(expected, sizeof expected, "writes buffer %u, %s, which is not alive: never allocated",
             buffer, plan_buffer_text(plan, &plan->buffers[buffer], what, sizeof what));
    expect_error(plan, expected);
}

static void a_second_alloc_is_found(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    const uint32_t id = find_of(plan, PLAN_ALLOC, some_activation(plan));
    char expected[96];
    insert(plan, id, plan->instructions[id]);
    snprintf(expected, sizeof expected, "is alive already: allocated by instruction %u", id);
    expect_error(plan, expected);
}

static void a_second_free_is_found(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    const uint32_t id = find_of(plan, PLAN_FREE, some_activation(plan));
    char expected[96];
    insert(plan, id, plan->instructions[id]);
    snprintf(expected, sizeof expected, "instruction %u, free in ", id + 1);
    expect_error(plan, expected);

    plan = good_plan();
    insert(plan, id, plan->instructions[id]);
    snprintf(expected, sizeof expected, "is not alive: freed by instruction %u", id);
    expect_error(plan, expected);
}

static void an_early_free_is_found_at_the_next_use(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    char expected[96];
    const uint32_t buffer = some_activation(plan);
    const uint32_t alloc = find_of(plan, PLAN_ALLOC, buffer);
    move(plan, find_of(plan, PLAN_FREE, buffer), alloc + 2); /* after the kernel that fills it */
    snprintf(expected, sizeof expected, "which is not alive: freed by instruction %u", alloc + 2);
    expect_error(plan, expected);
}

static void parameters_are_read_only_while_they_are_gathered(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    const uint32_t buffer = plan->params[1].unsharded_buffer;
    move(plan, find_of(plan, PLAN_FREE, buffer), find_of(plan, PLAN_ALLOC, buffer) + 1);
    expect_error(plan, "not alive");
}

static void a_missing_free_is_found_at_the_end(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    drop(plan, find_of(plan, PLAN_FREE, some_activation(plan)));
    expect_error(plan, "is not freed by the end of the step");
}

static void a_resident_buffer_may_not_be_freed(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    struct plan_instruction last = plan->instructions[find(plan, PLAN_FREE, 0)];
    last.arg = plan->params[0].shard_buffer;
    insert(plan, plan->instruction_count - 1, last);
    expect_error(plan, "is resident and may not be freed");
}

static void the_first_step_is_not_enough(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    plan->instructions[find_of(plan, PLAN_ALLOC, some_activation(plan))].flags = PLAN_FIRST_STEP;
    expect_error(plan, "(in a later step)");

    plan = good_plan();
    plan->instructions[find_of(plan, PLAN_FREE, some_activation(plan))].flags = PLAN_FIRST_STEP;
    expect_error(plan, "(in a later step)");

    plan = good_plan();
    plan->instructions[find(plan, PLAN_RECORD, 3)].flags = PLAN_FIRST_STEP;
    expect_error(plan, "has not been recorded (in a later step)");

    plan = good_plan(); /* a state that every step allocates */
    plan->instructions[find_of(plan, PLAN_ALLOC, plan->params[0].state_buffer[0])].flags = 0;
    expect_error(plan, "is alive already");
}

static void a_wait_needs_its_record_before_it(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    const uint32_t wait = find(plan, PLAN_WAIT, 4), event = plan->instructions[wait].arg;
    char expected[96];
    drop(plan, find_of(plan, PLAN_RECORD, event));
    snprintf(expected, sizeof expected, "waits for event %u, which has not been recorded", event);
    expect_error(plan, expected);

    plan = good_plan();
    move(plan, wait, find_of(plan, PLAN_RECORD, event));
    expect_error(plan, expected);
}

static void marks_come_in_order(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    move(plan, find_of(plan, PLAN_MARK, PLAN_MARK_AFTER_LOGITS),
         find_of(plan, PLAN_MARK, PLAN_MARK_AFTER_FORWARD));
    expect_error(plan, "mark \"after_logits\" may not come after mark \"after_forward\"");

    plan = good_plan();
    drop(plan, find_of(plan, PLAN_MARK, PLAN_MARK_AFTER_BACKWARD));
    expect_error(plan, "mark \"optimizer\" may not come after mark \"backward_blocks\"");

    plan = good_plan();
    drop(plan, 0);
    expect_error(plan, "mark \"micro_batch\" may not come first");

    plan = good_plan();
    insert(plan, plan->instruction_count, plan->instructions[find(plan, PLAN_RECORD, 0)]);
    expect_error(plan, "it stands after mark \"end\"");

    plan = good_plan();
    drop(plan, plan->instruction_count - 1);
    expect_error(plan, "ends without mark \"end\"");
}

static void a_collective_needs_a_group_and_others_have_none(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    plan->instructions[find(plan, PLAN_ALL_GATHER, 1)].group = PLAN_NO_GROUP;
    expect_error(plan, "all_gather in fwd/unshard[layers.0]: group 255 of 1");

    plan = good_plan();
    plan->instructions[find(plan, PLAN_COMPUTE, 1)].group = 0;
    expect_error(plan, "group 0: it takes none");

    plan = good_plan();
    plan->groups[0].ranks = 5;
    expect_error(plan, "5 ranks with stride 1 do not fit into a world of 4");
}

static void an_operand_lies_within_its_buffer(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    const struct plan_instruction *i = &plan->instructions[find(plan, PLAN_COMPUTE, 4)];
    struct operand *out = &plan->operands[plan->kernels[i->arg].first + plan->kernels[i->arg].ins];
    out->offset = 1;
    expect_error(plan, "out[0] reaches beyond the");

    plan = good_plan();
    i = &plan->instructions[find(plan, PLAN_COMPUTE, 4)];
    out = &plan->operands[plan->kernels[i->arg].first + plan->kernels[i->arg].ins];
    out->pitch = out->shape.dim[out->shape.rank - 1] + 1;
    expect_error(plan, "out[0] reaches beyond the");
}

/* Each line puts one number out of range. */
static void every_index_is_checked(void **state)
{
    (void)state;
#define OUT_OF_RANGE(change, text)                                                                 \
    do {                                                                                           \
        struct plan *plan = good_plan();                                                           \
        struct plan_instruction *alloc = &plan->instructions[find(plan, PLAN_ALLOC, 9)];           \
        struct plan_instruction *work = &plan->instructions[find(plan, PLAN_COMPUTE, 4)];          \
        struct kernel *kernel = &plan->kernels[work->arg];                                         \
        struct operand *operand = &plan->operands[kernel->first];                                  \
        (void)alloc, (void)kernel, (void)operand;                                                  \
        change;                                                                                    \
        expect_error(plan, text);                                                                  \
    } while (0)

    OUT_OF_RANGE(alloc->op = PLAN_OP_COUNT, "op 15: allowed are 0 ... 14");
    OUT_OF_RANGE(alloc->stream = STREAM_COUNT, "stream 6: allowed are 0 ... 5");
    OUT_OF_RANGE(alloc->phase = 3, "phase 3: allowed are 0 ... 2");
    OUT_OF_RANGE(alloc->site = 5, "site 5: allowed are 0 ... 4");
    OUT_OF_RANGE(alloc->outer = 3, "outer 3: allowed are 0 ... 2");
    OUT_OF_RANGE((alloc->site = SITE_RESHARD, alloc->unit = 4), "unit 4: allowed are 0 ... 3");
    OUT_OF_RANGE((alloc->outer = OUTER_PRE_BACKWARD, alloc->outer_unit = PLAN_NO_UNIT),
                 "outer unit 65535: allowed are 0 ... 3");
    OUT_OF_RANGE(alloc->flags = 2, "flags 2");
    OUT_OF_RANGE(alloc->arg = plan->buffer_count, "buffer");
    OUT_OF_RANGE((alloc->op = PLAN_RECORD, alloc->arg = plan->event_count), "event");
    OUT_OF_RANGE((alloc->op = PLAN_MARK, alloc->arg = 9), "mark 9: allowed are 0 ... 8");
    OUT_OF_RANGE(work->arg = plan->kernel_count, "kernel");
    OUT_OF_RANGE(work->base = plan->buffer_count, "allowed are 0 ...");
    OUT_OF_RANGE(work->base = UINT32_MAX, "allowed are 0 ...");
    OUT_OF_RANGE(kernel->label = (uint16_t)plan->label_count, "label");
    OUT_OF_RANGE(kernel->op = (uint16_t)plan->kind_count, "kind");
    OUT_OF_RANGE(kernel->first = UINT32_MAX, "operands from place");
    OUT_OF_RANGE(kernel->ins = UINT16_MAX, "operands from place");
    OUT_OF_RANGE(kernel->flops = (double)NAN, "operations");
    OUT_OF_RANGE(kernel->bytes = -1.0, "operations");
    OUT_OF_RANGE(kernel->attr.p = INFINITY, "p = inf");
    OUT_OF_RANGE(operand->place = PLACE_NONE, "module buffer");
    OUT_OF_RANGE(operand->place = PLACE_PARAM | plan->param_count, "parameter");
    OUT_OF_RANGE(operand->place = PLACE_INPUT | plan->input_count, "input");
    OUT_OF_RANGE(operand->dtype = DTYPE_COUNT, "dtype 8");
    OUT_OF_RANGE(operand->shape.rank = 6, "shape of 6 dims");
    OUT_OF_RANGE(plan->buffers[3].label = (uint16_t)plan->label_count, "buffer 3: label");
    OUT_OF_RANGE(plan->buffers[3].dtype = DTYPE_COUNT, "buffer 3: dtype");
    OUT_OF_RANGE(plan->buffers[3].category = CATEGORY_COUNT, "buffer 3: category");
    OUT_OF_RANGE(plan->buffers[3].pool = STREAM_COUNT, "buffer 3: pool");
    OUT_OF_RANGE(plan->buffers[3].bytes = UINT64_MAX, "buffer 3:");
    OUT_OF_RANGE(plan->buffers[3].shape = SHAPE(1U << 31, 1U << 31, 1U << 31), "too many elements");
    OUT_OF_RANGE(plan->params[2].unit = 4, "parameter 2: unit 4");
    OUT_OF_RANGE(plan->params[2].shard_buffer = PLACE_NONE, "parameter 2: sharded buffer");
    OUT_OF_RANGE(plan->params[2].unsharded_buffer = PLACE_NONE, "parameter 2: unsharded");
    OUT_OF_RANGE(plan->params[2].step_buffer = plan->buffer_count, "parameter 2: state");
    OUT_OF_RANGE(plan->params[2].state_buffer[0] = PLACE_NONE, "a second state without a first");
    OUT_OF_RANGE(plan->params[2].local.rank = 9, "parameter 2: shape of 9 dims");
    OUT_OF_RANGE(plan->units[1].params = 99, "unit 1: 99 parameters");
    OUT_OF_RANGE(plan->unit_params[0] = 99, "unit 0: parameter 99");
    OUT_OF_RANGE(plan->input_buffers[0] = PLACE_NONE, "input 0");
    OUT_OF_RANGE(plan->module_buffers[0] = PLACE_NONE, "module buffer 0");
    OUT_OF_RANGE(plan->group_count = 5, "5 groups");
    OUT_OF_RANGE(plan->rank = plan->world, "rank 4 of 4 ranks");
    OUT_OF_RANGE(plan->event_count = UINT32_MAX, "events");
#undef OUT_OF_RANGE
}

/* ---- files ---- */

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_plan.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static uint32_t count_files(void)
{
    uint32_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static int remove_folder(void **state)
{
    (void)state;
    const char *const names[] = {"a.json", "b.json"};
    for (int i = 0; i < 2; i++)
        unlink(path_of(names[i]));
    return rmdir(folder);
}

/* The file's text, to be freed. */
static char *text_of(const char *name, size_t *length)
{
    FILE *file = fopen(path_of(name), "r");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *length = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*length + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *length, file), *length);
    text[*length] = '\0';
    fclose(file);
    return text;
}

static void put_text(const char *name, const char *text, size_t length)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void write_plan(const struct plan *plan, const struct plan_json_extra *extra,
                       const char *name)
{
    struct err err = {0};
    if (plan_write_json(plan, extra, path_of(name), &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static struct plan *read_plan(const char *name)
{
    struct err err = {0};
    struct plan *plan = NULL;
    if (plan_read_json(path_of(name), &plan, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return plan;
}

static void assert_same_files(void)
{
    size_t length_a, length_b;
    char *a = text_of("a.json", &length_a), *b = text_of("b.json", &length_b);
    assert_int_equal(length_a, length_b);
    assert_memory_equal(a, b, length_a);
    free(a);
    free(b);
}

static void assert_same_memory(const struct plan *a, const struct plan *b)
{
    struct err err = {0};
    struct memory ours, theirs;
    const struct memory_options options = {.workspace_bytes = {1 << 20, 1 << 20}};
    assert_int_equal(memory_replay(a, &options, NULL, NULL, &ours, &err), ERR_OK);
    assert_int_equal(memory_replay(b, &options, NULL, NULL, &theirs, &err), ERR_OK);
    assert_int_equal(ours.requested.bytes, theirs.requested.bytes);
    assert_int_equal(ours.requested.instruction, theirs.requested.instruction);
    assert_int_equal(ours.allocated.bytes, theirs.allocated.bytes);
    assert_int_equal(ours.reserved_bytes, theirs.reserved_bytes);
    assert_int_equal(ours.host_bytes, theirs.host_bytes);
    assert_memory_equal(ours.categories, theirs.categories, sizeof ours.categories);
    assert_memory_equal(ours.live, theirs.live, sizeof ours.live);
    assert_memory_equal(ours.segment_peaks, theirs.segment_peaks, sizeof ours.segment_peaks);
}

static void assert_same_kernel(const struct plan *a, const struct plan_instruction *i,
                               const struct plan *b, const struct plan_instruction *j)
{
    const struct kernel *k = &a->kernels[i->arg], *l = &b->kernels[j->arg];
    assert_string_equal(a->labels[k->label], b->labels[l->label]);
    assert_string_equal(a->kinds[k->op], b->kinds[l->op]);
    assert_int_equal(k->label, l->label); /* known operators keep their numbers */
    assert_true(k->flops == l->flops && k->bytes == l->bytes);
    assert_true(k->attr.p == l->attr.p && k->attr.eps == l->attr.eps);
    assert_int_equal(k->attr.dim, l->attr.dim);
    assert_int_equal(k->attr.heads, l->attr.heads);
    assert_int_equal(k->attr.causal, l->attr.causal);
    assert_int_equal(k->backward, l->backward);
    assert_int_equal(k->recomputed, l->recomputed);
    assert_int_equal(k->matmul, l->matmul);
    assert_int_equal(k->ins, l->ins);
    assert_int_equal(k->outs, l->outs);
    for (uint32_t n = 0; n < (uint32_t)k->ins + k->outs; n++) {
        const struct operand *o = &a->operands[k->first + n], *p = &b->operands[l->first + n];
        assert_int_equal(plan_operand_buffer(a, i, o), plan_operand_buffer(b, j, p));
        assert_int_equal(o->dtype, p->dtype);
        assert_int_equal(o->offset, p->offset);
        assert_int_equal(o->pitch, p->pitch);
        assert_memory_equal(&o->shape, &p->shape, sizeof o->shape);
    }
}

static void assert_same_instructions(const struct plan *a, const struct plan *b)
{
    assert_int_equal(a->instruction_count, b->instruction_count);
    for (uint32_t id = 0; id < a->instruction_count; id++) {
        const struct plan_instruction *i = &a->instructions[id], *j = &b->instructions[id];
        char site_a[256], site_b[256];
        assert_int_equal(i->op, j->op);
        assert_int_equal(i->stream, j->stream);
        assert_int_equal(i->flags, j->flags);
        assert_int_equal(i->group, j->group);
        assert_string_equal(plan_site_text(a, i, site_a, sizeof site_a),
                            plan_site_text(b, j, site_b, sizeof site_b));
        if (plan_op_is_kernel((enum plan_op)i->op))
            assert_same_kernel(a, i, b, j);
        else
            assert_int_equal(i->arg, j->arg);
    }
}

static void a_plan_comes_back_from_its_file(void **state)
{
    (void)state;
    for (int kind = 0; kind < JOBS; kind++) {
        const struct job job = job_of_kind(kind);
        struct err err = {0};
        struct plan *plan = plan_of(&job);
        write_plan(plan, NULL, "a.json");
        struct plan *again = read_plan("a.json");
        assert_int_equal(plan_verify(again, &err), ERR_OK);
        assert_same_instructions(plan, again);
        assert_same_memory(plan, again);
        write_plan(again, NULL, "b.json");
        assert_same_files();
        plan_free(plan);
        plan_free(again);
    }
}

static void settings_memory_and_time_come_back_too(void **state)
{
    (void)state;
    struct err err = {0};
    struct plan *plan = good_plan(), *again = NULL;
    struct plan_json_extra extra = {
        .settings = json_pack("{s:s, s:i, s:b}", "model", "tab\t\"quote\"", "gpus", 4, "clip", 0),
        .memory = json_pack("{s:{s:I}}", "peak", "bytes", (json_int_t)1 << 40),
        .time = json_pack("{s:f, s:n}", "step_s", 0.1, "mfu"),
    };
    write_plan(plan, &extra, "a.json");
    plan_json_extra_free(&extra);
    assert_int_equal(plan_read_json_extra(path_of("a.json"), &again, &extra, &err), ERR_OK);
    assert_int_equal(json_integer_value(json_object_get(extra.settings, "gpus")), 4);
    assert_string_equal(json_string_value(json_object_get(extra.settings, "model")),
                        "tab\t\"quote\"");
    write_plan(again, &extra, "b.json");
    assert_same_files();
    plan_json_extra_free(&extra);
    plan_free(plan);
    plan_free(again);
}

static void names_are_escaped_and_new_ones_are_kept(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    plan->params[0].name = "a \"quoted\\ name\"\n\x01 é";
    const char **labels = malloc((plan->label_count + 1U) * sizeof *labels);
    assert_non_null(labels);
    memcpy(labels, plan->labels, plan->label_count * sizeof *labels);
    labels[plan->label_count] = "my::operator";
    plan->labels = labels;
    plan->kernels[0].label = (uint16_t)plan->label_count++;
    plan->kernels[0].attr.p = 0.1F;
    plan->kernels[0].attr.eps = 1e-5F;
    plan->kernels[0].flops = 1e30;
    plan->kernels[0].bytes = 0.1;
    write_plan(plan, NULL, "a.json");
    struct plan *again = read_plan("a.json");
    assert_string_equal(again->params[0].name, plan->params[0].name);
    assert_string_equal(again->labels[again->kernels[0].label], "my::operator");
    assert_true(again->kernels[0].attr.p == 0.1F && again->kernels[0].attr.eps == 1e-5F);
    assert_true(again->kernels[0].flops == 1e30 && again->kernels[0].bytes == 0.1);
    write_plan(again, NULL, "b.json");
    assert_same_files();
    plan_free(plan);
    plan_free(again);
    free(labels);
}

/* ---- files that are wrong ---- */

static void expect_unreadable(const char *name, enum err_code code, const char *text)
{
    struct err err = {0};
    struct plan *plan = (struct plan *)1;
    assert_int_equal(plan_read_json(path_of(name), &plan, &err), code);
    assert_null(plan);
    if (!strstr(err.text, text) || !strstr(err.text, path_of(name)))
        fail_msg("expected \"%s\" in: %s", text, err.text);
}

/* Writes `text` with its first `from` replaced by `to`. */
static void put_changed(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("\"%s\" is not in the file", from);
    FILE *file = fopen(path_of("b.json"), "w");
    assert_non_null(file);
    fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_int_equal(fclose(file), 0);
}

static void errors_name_the_member_and_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *expected;
    } cases[] = {
        {"{\"version\": 1", "{\"version\": 2", "version: 2: only version 1 can be read"},
        {"{\"version\": 1", "{\"version\": \"1\"", "version: it is a string"},
        {"{\"version\": 1,", "{", "version: it is missing"},
        {"{\"version\": 1", "{\"version\": 1, \"world\": 3", "duplicate"},
        {"{\"version\": 1", "{\"version\": 1, \"wrld\": 3", "unknown member \"wrld\""},
        {"\"settings\": {}", "\"settings\": 3", "settings: it is a number: an object is expected"},
        {"\"world\": 4", "\"world\": -4", "world: -4: allowed are 0 ... "},
        {"\"world\": 4", "\"world\": 4.5", "world: it is a number with a fraction"},
        {"\"rank\": 0", "\"rank\": 4", "rank 4 of 4 ranks"},
        {"\"name\": \"shard\"", "\"name\": 7", "groups[0].name: it is a number"},
        {"\"shape\": [131, 48]", "\"shape\": [131, 48, 1, 1, 1, 1]", "params[0].shape: it has 6"},
        {"\"unit\": 0", "\"unit\": 4", "params[0].unit: 4: allowed are 0 ... 3"},
        {"\"trainable\": true", "\"trainable\": 1", "params[0].trainable: it is a number"},
        {"{\"id\": 1, \"bytes\"", "{\"id\": 2, \"bytes\"", "buffers[1].id: 2: it is item 1"},
        {"\"dtype\": \"float32\"", "\"dtype\": \"float31\"",
         "buffers[0].dtype: \"float31\": allowed are float32, bfloat16"},
        {"\"pool\": \"compute\"", "\"pool\": null", "buffers[0].pool: it is null"},
        {"\"category\": \"sharded_param\"", "\"category\": \"\"", "allowed are sharded_param, "},
        {"{\"id\": 0, \"op\": \"mark\"", "{\"id\": 0, \"op\": \"mork\"",
         "instructions[0].op: \"mork\": allowed are alloc, free, compute"},
        {"\"mark\": \"start\"", "\"mark\": \"end\"", "instruction 0, mark in fwd: mark \"end\""},
        {"\"stream\": \"host\", \"phase\": \"fwd\"", "\"stream\": \"host\", \"phase\": \"forward\"",
         "instructions[0].phase: \"forward\": allowed are fwd, bwd, opt"},
        {"\"event\": 0", "\"event\": 999999", "event: 999999: allowed are 0 ..."},
        {"\"event\": 0", "\"evnt\": 0", "event: it is missing"},
        {"\"event\": 0", "\"event\": 0, \"unit\": 0", "does not go with the others"},
        {"\"group\": \"shard\"", "\"group\": \"shrd\"", "group: \"shrd\": allowed are shard"},
        {"\"kernel\": \"mm\"", "\"kernel\": null", "kernel: it is null: a string is expected"},
        {"\"out\": [", "\"out\": [1.5, ", "out[0]: it is a number with a fraction"},
        {"\"out\": [", "\"out\": [{\"buffer\": 1, \"shap\": []}, ",
         "out[0]: unknown member \"shap\": allowed are: buffer dtype shape offset pitch"},
        {"\"out\": [", "\"out\": [{\"buffer\": 1, \"dtype\": \"f\"}, ", "out[0].dtype: \"f\""},
        {"\"out\": [", "\"out\": [{\"buffer\": 99999}, ", "out[0].buffer: 99999: allowed are 0 "},
        {"\"op\": \"free\"", "\"op\": \"alloc\"", "is alive already: allocated by instruction"},
    };
    struct plan *plan = good_plan();
    size_t length;
    write_plan(plan, NULL, "a.json");
    char *text = text_of("a.json", &length);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_changed(text, cases[i].from, cases[i].to);
        expect_unreadable("b.json", ERR_INVALID, cases[i].expected);
    }
    free(text);
    plan_free(plan);
}

static void a_file_that_is_no_plan_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"", "column"},
        {"[]", "it is a list: an object is expected"},
        {"{}", "version: it is missing: this is not a plan"},
        {"{\"version\": 1}", "world: it is missing"},
        {"nonsense", ":1: column"},
        {"{\"version\": 1}}", "end of file expected"},
        {"\xff\xfe", ":1: column"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_text("a.json", cases[i].text, strlen(cases[i].text));
        expect_unreadable("a.json", ERR_INVALID, cases[i].expected);
    }
    unlink(path_of("a.json"));
    expect_unreadable("a.json", ERR_IO, "No such file");
    expect_unreadable(".", ERR_IO, "Is a directory");
}

static void a_truncated_file_is_refused(void **state)
{
    (void)state;
    struct plan *plan = good_plan();
    size_t length;
    write_plan(plan, NULL, "a.json");
    char *text = text_of("a.json", &length);
    for (size_t cut = 0; cut + 2 < length; cut += 1 + length / 61) {
        put_text("b.json", text, cut);
        expect_unreadable("b.json", ERR_INVALID, "b.json");
    }
    put_text("b.json", text, length - 2); /* all but the last brace */
    expect_unreadable("b.json", ERR_INVALID, "b.json");
    free(text);
    plan_free(plan);
}

/* Whatever a damaged file is read as can be replayed. */
static void a_damaged_file_is_refused_or_harmless(void **state)
{
    (void)state;
    struct job job = small_job(ARCH_FSDP2_TUTORIAL);
    job.config.layers = 1;
    struct plan *plan = plan_of(&job);
    size_t length, accepted = 0;
    uint32_t random = 12345;
    write_plan(plan, NULL, "a.json");
    char *text = text_of("a.json", &length);
    for (int i = 0; i < 400; i++) {
        struct err err = {0};
        struct plan *read = NULL;
        random = random * 1664525U + 1013904223U;
        const size_t at = (random >> 8) % length;
        const char before = text[at];
        text[at] = "0123456789,:\"{}[]x-"[random % 19];
        put_text("b.json", text, length);
        text[at] = before;
        if (plan_read_json(path_of("b.json"), &read, &err) == ERR_OK) {
            assert_same_memory(read, read);
            accepted++;
        }
        plan_free(read);
    }
    assert_true(accepted > 0 && accepted < 400);
    free(text);
    plan_free(plan);
}

/* ---- writing that fails ---- */

static void expect_unwritable(const char *path, const char *text)
{
    struct err err = {0};
    struct plan *plan = good_plan();
    assert_int_equal(plan_write_json(plan, NULL, path, &err), ERR_IO);
    if (!strstr(err.text, text) || !strstr(err.text, path))
        fail_msg("expected \"%s\" in: %s", text, err.text);
    plan_free(plan);
}

static void nothing_is_left_where_nothing_can_be_written(void **state)
{
    (void)state;
    unlink(path_of("a.json"));
    unlink(path_of("b.json"));
    expect_unwritable(path_of("no/folder.json"), "No such file or directory");
    expect_unwritable(folder, "Is a directory");
    assert_int_equal(count_files(), 0);
    assert_int_equal(access("/tmp/no", F_OK), -1);
}

static void a_full_device_is_an_error_and_stays_a_device(void **state)
{
    (void)state;
    struct stat st;
    if (stat("/dev/full", &st) != 0)
        skip();
    expect_unwritable("/dev/full", "No space left on device");
    assert_int_equal(stat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
}

/* A limit on the size of files stands for a disk that is full halfway. */
static void a_full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    put_text("a.json", "old", 3);
    small = before;
    small.rlim_cur = 10000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_unwritable(path_of("a.json"), "File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    size_t length;
    char *text = text_of("a.json", &length);
    assert_string_equal(text, "old");
    assert_int_equal(count_files(), 1);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_every_kind_of_job_are_right),
        cmocka_unit_test(a_missing_alloc_is_found_at_the_first_use),
        cmocka_unit_test(a_second_alloc_is_found),
        cmocka_unit_test(a_second_free_is_found),
        cmocka_unit_test(an_early_free_is_found_at_the_next_use),
        cmocka_unit_test(parameters_are_read_only_while_they_are_gathered),
        cmocka_unit_test(a_missing_free_is_found_at_the_end),
        cmocka_unit_test(a_resident_buffer_may_not_be_freed),
        cmocka_unit_test(the_first_step_is_not_enough),
        cmocka_unit_test(a_wait_needs_its_record_before_it),
        cmocka_unit_test(marks_come_in_order),
        cmocka_unit_test(a_collective_needs_a_group_and_others_have_none),
        cmocka_unit_test(an_operand_lies_within_its_buffer),
        cmocka_unit_test(every_index_is_checked),
        cmocka_unit_test(a_plan_comes_back_from_its_file),
        cmocka_unit_test(settings_memory_and_time_come_back_too),
        cmocka_unit_test(names_are_escaped_and_new_ones_are_kept),
        cmocka_unit_test(errors_name_the_member_and_what_is_allowed),
        cmocka_unit_test(a_file_that_is_no_plan_is_refused),
        cmocka_unit_test(a_truncated_file_is_refused),
        cmocka_unit_test(a_damaged_file_is_refused_or_harmless),
        cmocka_unit_test(nothing_is_left_where_nothing_can_be_written),
        cmocka_unit_test(a_full_device_is_an_error_and_stays_a_device),
        cmocka_unit_test(a_full_disk_keeps_the_old_file),
    };
    return cmocka_run_group_tests_name("plan", tests, make_folder, remove_folder);
}
