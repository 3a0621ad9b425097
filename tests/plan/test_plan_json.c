/* test_plan_json.c - plan.json loses nothing, and wrong files are refused with a reason. */
#include "memory/replay.h"
#include "plan/modules.h"
#include "plan/plan_json.h"
#include "plan/plan_rank.h"
#include "tests/support/small_jobs.h"
#include "tests/support/temp_folder.h"

#include <dirent.h>
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

/* ---- files ---- */

static int make_folder(void **state)
{
    (void)state;
    return temp_folder_make("test_plan");
}

static int remove_folder(void **state)
{
    (void)state;
    return temp_folder_remove();
}

static uint32_t count_files(void)
{
    uint32_t count = 0;
    DIR *dir = opendir(temp_folder());
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
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
    assert_memory_equal(ours.part_peaks, theirs.part_peaks, sizeof ours.part_peaks);
}

static void assert_same_kernel(const struct plan *a, const struct plan_instruction *i,
                               const struct plan *b, const struct plan_instruction *j)
{
    const struct kernel *k = plan_kernel(a, i->arg), *l = plan_kernel(b, j->arg);
    assert_string_equal(a->labels[k->label], b->labels[l->label]);
    assert_string_equal(a->kinds[k->op], b->kinds[l->op]);
    assert_int_equal(k->label, l->label); /* known operators keep their numbers */
    assert_true(k->flops == l->flops && k->bytes == l->bytes);
    assert_true(k->attr.p == l->attr.p && k->attr.eps == l->attr.eps);
    assert_int_equal(k->attr.dim, l->attr.dim);
    assert_int_equal(k->attr.first, l->attr.first);
    assert_int_equal(k->attr.causal, l->attr.causal);
    assert_int_equal(k->backward, l->backward);
    assert_int_equal(k->recomputed, l->recomputed);
    assert_int_equal(k->work, l->work);
    assert_int_equal(k->ins, l->ins);
    assert_int_equal(k->outs, l->outs);
    for (uint32_t n = 0; n < (uint32_t)k->ins + k->outs; n++) {
        const struct operand *o = &k->operands[n], *p = &l->operands[n];
        const struct plan_place at = plan_operand_place(a, i, o),
                                there = plan_operand_place(b, j, p);
        assert_int_equal(at.buffer, there.buffer);
        assert_int_equal(at.offset, there.offset);
        assert_int_equal(o->dtype, p->dtype);
        assert_int_equal(o->local, p->local);
        assert_int_equal(o->chunk, p->chunk);
        assert_int_equal(o->pitch, p->pitch);
        assert_memory_equal(&o->shape, &p->shape, sizeof o->shape);
    }
}

static void assert_same_instructions(const struct plan *a, const struct plan *b)
{
    assert_int_equal(a->instruction_count, b->instruction_count);
    for (uint32_t id = 0; id < a->instruction_count; id++) {
        const struct plan_instruction *i = &a->instructions[id], *j = &b->instructions[id];
        char scope_a[256], scope_b[256];
        assert_int_equal(i->op, j->op);
        assert_int_equal(i->lane, j->lane);
        assert_int_equal(i->flags, j->flags);
        assert_int_equal(i->group, j->group);
        assert_string_equal(plan_scope_text(a, i, scope_a, sizeof scope_a),
                            plan_scope_text(b, j, scope_b, sizeof scope_b));
        if (plan_op_is_kernel((enum plan_op)i->op))
            assert_same_kernel(a, i, b, j);
        else
            assert_int_equal(i->arg, j->arg);
    }
}

static void assert_same_values(const struct plan *a, const struct plan *b)
{
    assert_int_equal(a->param_count, b->param_count);
    for (uint32_t p = 0; p < a->param_count; p++) {
        const struct param_init *x = &a->params[p].init, *y = &b->params[p].init;
        assert_int_equal(x->kind, y->kind);
        assert_true(x->number == y->number && x->limit == y->limit);
    }
    assert_int_equal(a->input_count, b->input_count);
    for (uint32_t i = 0; i < a->input_count; i++) {
        assert_int_equal(a->inputs[i].buffer, b->inputs[i].buffer);
        assert_int_equal(a->inputs[i].values.kind, b->inputs[i].values.kind);
        assert_int_equal(a->inputs[i].values.vocab, b->inputs[i].values.vocab);
    }
    assert_int_equal(a->module_buffer_count, b->module_buffer_count);
    for (uint32_t i = 0; i < a->module_buffer_count; i++) {
        const struct plan_module_buffer *x = &a->module_buffers[i], *y = &b->module_buffers[i];
        assert_int_equal(x->buffer, y->buffer);
        assert_int_equal(x->values.kind, y->values.kind);
        assert_int_equal(x->values.layout, y->values.layout);
        assert_int_equal(x->values.rope.scaling, y->values.rope.scaling);
        assert_int_equal(x->values.rope.dim, y->values.rope.dim);
        assert_true(x->values.rope.theta == y->values.rope.theta);
    }
}

/* A file has no parameters in its kernels' operands, from which names are found otherwise. */
static void assert_same_modules(const struct plan *a, const struct plan *b)
{
    struct arena arena = {0};
    char text[256];
    uint32_t named = 0;
    const char **x = plan_module_names(a, &arena), **y = plan_module_names(b, &arena);
    for (uint32_t i = 0; i < a->instruction_count; i++) {
        assert_string_equal(x[i], y[i]);
        named += x[i][0] != '\0';
    }
    assert_string_equal(plan_module_text(b, a->instruction_count / 2, text, sizeof text),
                        x[a->instruction_count / 2]);
    assert_true(named > a->instruction_count / 2);
    arena_free(&arena);
}

static void a_plan_comes_back_from_its_file(void **state)
{
    (void)state;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        const struct job job = small_job_of_kind(kind);
        struct err err = {0};
        struct plan *plan = small_plan_of(&job);
        write_plan(plan, NULL, "a.json");
        struct plan *again = read_plan("a.json");
        assert_int_equal(plan_verify(again, &err), ERR_OK);
        assert_same_instructions(plan, again);
        assert_same_memory(plan, again);
        assert_same_values(plan, again);
        assert_same_modules(plan, again);
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
    struct plan *plan = small_plan(), *again = NULL;
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

static struct kernel *first_kernel(struct plan *plan)
{
    const struct plan_instruction *i = plan->instructions;
    while (!plan_op_is_kernel((enum plan_op)i->op))
        i++;
    return i->arg < plan->shared_count ? &plan->shared->kernels[i->arg]
                                       : plan_own_kernel(plan, i->arg);
}

static void names_are_escaped_and_new_ones_are_kept(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    plan->params[0].name = "a \"quoted\\ name\"\n\x01 é";
    const char **labels = malloc((plan->label_count + 1U) * sizeof *labels);
    assert_non_null(labels);
    memcpy(labels, plan->labels, plan->label_count * sizeof *labels);
    labels[plan->label_count] = "my::operator";
    plan->labels = labels;
    first_kernel(plan)->label = (uint16_t)plan->label_count++;
    write_plan(plan, NULL, "a.json");
    struct plan *again = read_plan("a.json");
    assert_string_equal(again->params[0].name, plan->params[0].name);
    assert_string_equal(again->labels[first_kernel(again)->label], "my::operator");
    write_plan(again, NULL, "b.json");
    assert_same_files();
    plan_free(plan);
    plan_free(again);
    free(labels);
}

static void numbers_come_back_exactly(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
    struct kernel *kernel = first_kernel(plan);
    kernel->attr.p = 0.1F;
    kernel->attr.eps = 1e-5F;
    kernel->flops = 1e30;
    kernel->bytes = 1.0 / 3.0;
    write_plan(plan, NULL, "a.json");
    struct plan *again = read_plan("a.json");
    assert_true(first_kernel(again)->attr.p == 0.1F && first_kernel(again)->attr.eps == 1e-5F);
    assert_true(first_kernel(again)->flops == 1e30 && first_kernel(again)->bytes == 1.0 / 3.0);
    write_plan(again, NULL, "b.json");
    assert_same_files();
    plan_free(plan);
    plan_free(again);
}

/* What a kind of scaling has comes back as it was; what it does not have is not in the file. */
static void every_kind_of_rope_comes_back(void **state)
{
    (void)state;
    static const char *const members[ROPE_SCALING_COUNT] = {
        [ROPE_LINEAR] = "\"scaling\": \"linear\", \"factor\": 2.5}",
        [ROPE_DYNAMIC] = "\"factor\": 2.5, \"original_max_position_embeddings\": 7, "
                         "\"positions\": 20}",
        [ROPE_YARN] = "\"factor\": 2.5, \"original_max_position_embeddings\": 7, "
                      "\"attention_factor\": 1.25, \"beta_fast\": 32.5, \"beta_slow\": 0.75, "
                      "\"truncate\": true}",
        [ROPE_LONGROPE] = "\"original_max_position_embeddings\": 7, \"positions\": 20, "
                          "\"attention_factor\": 1.25, \"short_factor\": [1, 1.5, 2, 0, 0, 0], "
                          "\"long_factor\": [0.1, 0, 0, 0, 0, 3]}",
        [ROPE_LLAMA3] = "\"factor\": 2.5, \"original_max_position_embeddings\": 7, "
                        "\"low_freq_factor\": 1.5, \"high_freq_factor\": 3.5}",
        [ROPE_PROPORTIONAL] = "\"factor\": 2.5, \"partial_rotary_factor\": 0.25}",
    };
    for (int kind = ROPE_LINEAR; kind < ROPE_SCALING_COUNT; kind++) {
        struct plan *plan = small_plan();
        struct rope *rope = &plan->module_buffers[0].values.rope;
        size_t length;
        assert_int_equal(rope->dim, 12);
        *rope = (struct rope){
            .scaling = (uint8_t)kind,
            .dim = 12,
            .theta = 777.5F,
            .attention_factor = 1.25F,
            .factor = 2.5F,
            .positions = 20,
            .original_positions = 7,
            .share = 0.25F,
            .beta_fast = 32.5F,
            .beta_slow = 0.75F,
            .truncate = true,
            .low_freq_factor = 1.5F,
            .high_freq_factor = 3.5F,
            .short_factor = {1, 1.5F, 2},
            .long_factor = {0.1F, [5] = 3},
        };
        write_plan(plan, NULL, "a.json");
        char *text = text_of("a.json", &length);
        if (!strstr(text, members[kind]))
            fail_msg("\"%s\" is not in the file", members[kind]);
        free(text);
        struct plan *again = read_plan("a.json");
        assert_same_values(plan, again);
        write_plan(again, NULL, "b.json");
        assert_same_files();
        plan_free(plan);
        plan_free(again);
    }
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
        {"{\"version\": 2", "{\"version\": 3", "version: 3: only version 2 can be read"},
        {"{\"version\": 2", "{\"version\": 1",
         "version: 1: a plan of an earlier shardplan, which does not say all that version 2 does; "
         "make it again with `shardplan plan`"},
        {"{\"version\": 2", "{\"version\": \"2\"", "version: it is a string"},
        {"{\"version\": 2,", "{", "version: it is missing"},
        {"{\"version\": 2", "{\"version\": 2, \"world\": 3", "duplicate"},
        {"{\"version\": 2", "{\"version\": 2, \"wrld\": 3", "unknown member \"wrld\""},
        {"{\"version\": 2", "{\"version\": 2, \"\": 3", "unknown member \"\""},
        {"\"settings\": {}", "\"settings\": 3", "settings: it is a number: an object is expected"},
        {"\"world\": 4", "\"world\": -4", "world: -4: allowed are 0 ... "},
        {"\"world\": 4", "\"world\": 4.5", "world: it is a number with a fraction"},
        {"\"rank\": 0", "\"rank\": 4", "rank: 4: allowed are 0 ... 3"},
        {"\"name\": \"shard\"", "\"name\": 7", "groups[0].name: it is a number"},
        {"\"shape\": [131, 48]", "\"shape\": [131, 48, 1, 1, 1, 1, 1]",
         "params[0].shape: it has 7"},
        {"\"unit\": 0, \"pieces\"", "\"unit\": 4, \"pieces\"",
         "params[0].unit: 4: allowed are 0 ... 3"},
        {"\"kind\": \"uniform\"", "\"kind\": \"unifrom\"",
         "params[0].init.kind: \"unifrom\": allowed are zeros, ones, uniform, normal"},
        {"\"bound\": 0.1", "\"bound\": -1", "params[0].init.bound: -1: it must be positive"},
        {"\"bound\": 0.1", "\"bnd\": 0.1", "params[0].init.bound: it is missing"},
        {"\"bound\": 0.1", "\"bound\": 0.1, \"x\": 1", "params[0].init: unknown member \"x\""},
        {"\"what\": \"tokens\"", "\"what\": \"token\"",
         "inputs[0].what: \"token\": allowed are tokens, targets"},
        {"\"vocab\": 131", "\"vocab\": 0", "input 0: kind 0 of 0 tokens"},
        {"\"theta\": 10000", "\"theta\": 0", "module buffer 0: RoPE of theta 0 on 12 numbers"},
        {"\"dim\": 12", "\"dim\": 14", "module buffer 0: RoPE on 14 numbers does not fill it"},
        {"\"scaling\": \"default\"", "\"scaling\": \"linear\"",
         "module_buffers[0].init.factor: it is missing"},
        {"\"scaling\": \"default\"", "\"scaling\": \"linear\", \"factor\": 0.5",
         "module buffer 0: factor 0.5: allowed are 1 ... "},
        {"\"trainable\": true", "\"trainable\": 1", "params[0].trainable: it is a number"},
        {"\"modules\": [", "\"modules\": [{\"first\": 1048576, \"name\": \"x\"},",
         "modules[0].first: 1048576"},
        {"\"modules\": [",
         "\"modules\": [{\"first\": 9, \"name\": \"x\"}, {\"first\": 9, \"name\": \"y\"},",
         "modules[1].first: 9: the module before it begins at 9"},
        {"{\"id\": 1, \"bytes\"", "{\"id\": 2, \"bytes\"", "buffers[1].id: 2: it is item 1"},
        {"\"dtype\": \"float32\"", "\"dtype\": \"float31\"",
         "buffers[0].dtype: \"float31\": allowed are float32, bfloat16"},
        {"\"pool\": \"compute\"", "\"pool\": null", "buffers[0].pool: it is null"},
        {"\"category\": \"sharded_param\"", "\"category\": \"\"",
         "allowed are param, sharded_param, "},
        {"{\"id\": 0, \"op\": \"mark\"", "{\"id\": 0, \"op\": \"mork\"",
         "instructions[0].op: \"mork\": allowed are alloc, free, use, compute"},
        {"\"mark\": \"start\"", "\"mark\": \"end\"", "instruction 0, mark in fwd: mark \"end\""},
        {"\"stream\": \"host\", \"phase\": \"fwd\"", "\"stream\": \"host\", \"phase\": \"forward\"",
         "instructions[0].phase: \"forward\": allowed are fwd, bwd, opt"},
        {"\"event\": 0", "\"event\": 999999", "event: 999999: allowed are 0 ..."},
        {"\"event\": 0", "\"evnt\": 0", "event: it is missing"},
        {"\"event\": 0", "\"event\": 0, \"buffer\": 0", "does not go with the others"},
        {"\"group\": \"shard\"", "\"group\": \"shrd\"", "group: \"shrd\": allowed are shard"},
        {"\"role\": \"store\"", "\"role\": \"stone\"",
         "params[0].pieces[0].role: \"stone\": allowed"},
        {"\"placement\": \"rows\"", "\"placement\": \"flat\"", "by its placement rank 0 has 0"},
        {"\"elements\": ", "\"elements\": 1", "by its placement rank 0 has"},
        {"{\"name\": \"host\"}", "{\"name\": \"hast\"}", "lanes[1].name: \"hast\": lane 1 is"},
        {"\"scope\": 1", "\"scope\": 99999", "scope: 99999: allowed are 0 ..."},
        {"\"local\": 0", "\"local\": 99999", "local: 99999: allowed are 0 ..."},
        {"\"kernel\": \"mm\"", "\"kernel\": null", "kernel: it is null: a string is expected"},
        {"\"work\": \"matmul_nt\"", "\"work\": \"matmul_tt\"",
         "work: no computation is called \"matmul_tt\"; the nearest is matmul_tn"},
        {"\"work\": \"matmul_nt\", ", "", "work: it is missing"},
        {"\"out\": [", "\"out\": [1.5, ", "out[0]: it is a number with a fraction"},
        {"\"out\": [", "\"out\": [{\"buffer\": 1, \"shap\": []}, ",
         "out[0]: unknown member \"shap\": allowed are: buffer dtype shape offset pitch strides "
         "local "
         "chunk"},
        {"\"out\": [", "\"out\": [{\"buffer\": 1, \"dtype\": \"f\"}, ", "out[0].dtype: \"f\""},
        {"\"out\": [", "\"out\": [{\"buffer\": 99999}, ", "out[0].buffer: 99999: allowed are 0 "},
        {"\"op\": \"free\"", "\"op\": \"alloc\"", "is alive already: allocated by instruction"},
    };
    struct plan *plan = small_plan();
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
        {"{\"version\": 2}", "system: it is missing"},
        {"nonsense", ":1: column"},
        {"{\"version\": 2}}", "end of file expected"},
        {"\xff\xfe", ":1: column"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_text("a.json", cases[i].text, strlen(cases[i].text));
        expect_unreadable("a.json", ERR_INVALID, cases[i].expected);
    }
    unlink(path_of("a.json"));
    expect_unreadable("a.json", ERR_INVALID, "No such file");
    expect_unreadable(".", ERR_INVALID, "/plan.json: No such file");
}

static void a_folder_is_the_plan_in_it(void **state)
{
    (void)state;
    char text[4096];
    struct plan *plan = small_plan();
    write_plan(plan, NULL, "plan.json");
    struct plan *again = read_plan(".");
    assert_same_values(plan, again);
    assert_non_null(strstr(plan_rank_path(path_of("."), 3, text, sizeof text), "/plan-3.json"));
    assert_non_null(
        strstr(plan_rank_path(path_of("plan.json"), 3, text, sizeof text), "/plan-3.json"));
    plan_free(plan);
    plan_free(again);
    unlink(path_of("plan.json"));
}

static void a_truncated_file_is_refused(void **state)
{
    (void)state;
    struct plan *plan = small_plan();
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
    struct plan *plan = small_plan_of(&job);
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
    struct plan *plan = small_plan();
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
    expect_unwritable(temp_folder(), "Is a directory");
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
        cmocka_unit_test(a_plan_comes_back_from_its_file),
        cmocka_unit_test(settings_memory_and_time_come_back_too),
        cmocka_unit_test(names_are_escaped_and_new_ones_are_kept),
        cmocka_unit_test(numbers_come_back_exactly),
        cmocka_unit_test(every_kind_of_rope_comes_back),
        cmocka_unit_test(errors_name_the_member_and_what_is_allowed),
        cmocka_unit_test(a_file_that_is_no_plan_is_refused),
        cmocka_unit_test(a_folder_is_the_plan_in_it),
        cmocka_unit_test(a_truncated_file_is_refused),
        cmocka_unit_test(a_damaged_file_is_refused_or_harmless),
        cmocka_unit_test(nothing_is_left_where_nothing_can_be_written),
        cmocka_unit_test(a_full_device_is_an_error_and_stays_a_device),
        cmocka_unit_test(a_full_disk_keeps_the_old_file),
    };
    return cmocka_run_group_tests_name("plan_json", tests, make_folder, remove_folder);
}
