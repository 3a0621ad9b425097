/* test_recording.c - the file of a recorded model: what is wrong with one is said, with its line;
 * and what was decided when it was recorded cannot be chosen again. */
#include "families/families.h"
#include "job/job.h"
#include "recorded/recording.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One linear layer as a unit, and the mean of what it gives. */
static const char header[] =
    "{\"format\":\"shardplan stream\",\"version\":1,\"model\":{\"name\":\"Line\",\"parameters\":64,"
    "\"dtype\":\"bf16\",\"seq\":4,\"torch\":\"2.14.1\",\"python\":\"3.14\"},"
    "\"parameters\":[[\"layers.0.weight\",[8,8],true,0]],\"order\":[0],"
    "\"called\":[[\"\",[],[]],[\"layers.0\",[0],[]]],"
    "\"modules\":[\"layers.0\"],\"ops\":[\"mm\",\"mean\",\"ones_like\",\"expand\",\"sew\"],"
    "\"types\":[[0,\"bf16\",[4,8],64],[1,\"bf16\",[],2],[2,\"bf16\",[],2],[0,\"bf16\",[8,8],128]],"
    "\"calls\":[[0,[[\"bf16\",[4,8],0,0],[\"bf16\",[8,8],[1,8],1]],[[\"bf16\",[4,8],0,0]],{},512],"
    "[4,[[\"bf16\",[4,8],0,0]],[[\"bf16\",[],0,0]],{},0],"
    "[2,[[\"bf16\",[],0,0]],[[\"bf16\",[],0,0]],{},0],"
    "[0,[[\"bf16\",[8,4],[1,8],0],[\"bf16\",[4,8],[0,0],1]],[[\"bf16\",[8,8],0,0]],{},512]],"
    "\"variants\":[{\"batch\":1,\"checkpointing\":\"none\",\"hooks\":\"fsdp\"}]}";
static const char variant[] =
    "{\"batch\":1,\"checkpointing\":\"none\",\"hooks\":\"fsdp\",\"inputs\":[[\"bf16\",[4,8],64]],"
    "\"constants\":[],\"notes\":[],\"steps\":\"(r (0 +0 0:i0,p0,0 )0 +1 1:0,1 -0 )r =loss +2 2:1,2 "
    "<r =blocks "
    "<0 +3 3:i0,2,3 g0:3 =final -2 -1\"}";

static struct recording_choice choice(void)
{
    return (struct recording_choice){
        .batch = 1, .seq = 4, .input_nodes = true, .compute = DTYPE_BF16};
}

/* The first `from` in a text that has room. */
static void replace(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    assert_non_null(at);
    memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
    for (; *to; to++)
        *at++ = *to;
}

/* The file with the first `from` in it replaced; NULL: as it is. To be freed. */
static char *file_with(const char *from, const char *to)
{
    char *text = malloc(sizeof header + sizeof variant + 256);
    assert_non_null(text);
    sprintf(text, "%s\n%s\n", header, variant);
    if (from)
        replace(text, from, to);
    return text;
}

/* Reads, and makes the graph and the stream of the variant. */
static enum err_code use(const char *text, const struct recording_choice *chosen, struct err *err)
{
    struct recording *r;
    struct graph *graph = NULL;
    struct stream *stream = NULL;
    TRY(recording_parse("line.stream.json", text, strlen(text), &r, err));
    enum err_code rc = recording_graph(r, chosen, &graph, err);
    if (rc == ERR_OK)
        rc = recording_stream(r, chosen, &stream, err);
    if (rc == ERR_OK) {
        char unknown[64];
        assert_int_equal(recording_unknown(r, unknown, sizeof unknown), 1);
        assert_string_equal(unknown, "sew");
        assert_int_equal(graph->param_count, 1);
        assert_int_equal(stream->grad_count, 1);
        assert_int_equal(stream->kernels->kernel_count, 4);
    }
    stream_free(stream);
    graph_free(graph);
    recording_free(r);
    return rc;
}

static void a_small_file_is_read(void **state)
{
    struct err err = {0};
    const struct recording_choice chosen = choice();
    char *text = file_with(NULL, NULL);
    (void)state;
    if (use(text, &chosen, &err) != ERR_OK)
        fail_msg("%s", err.text);
    free(text);
}

static void what_is_wrong_is_said(void **state)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"shardplan stream", "something else", "no recording of tools/record.py"},
        {"\"version\":1", "\"version\":3", "version 3"},
        {"\"seq\":4", "\"seq\":0", "\"model\" lacks"},
        {"\"dtype\":\"bf16\"", "\"dtype\":\"int3\"", "\"model\" lacks"},
        {"[[0,\"bf16\",[4,8],64]", "[[9,\"bf16\",[4,8],64]", "\"types\"[0]"},
        {"[[0,\"bf16\",[4,8],64]", "[[0,\"fp4\",[4,8],64]", "\"types\"[0]"},
        {"[[0,\"bf16\",[4,8],64]", "[[0,\"bf16\",[4,-8],64]", "\"types\"[0]"},
        {"[8,8],[1,8],1]", "[8,8],[1],1]", "\"calls\"[0]"},
        {"\"layers.0.weight\",[8,8],true,0", "\"layers.0.weight\",[8,8],true,7",
         "\"parameters\"[0]"},
        {"\"order\":[0]", "\"order\":[1]", "\"order\""},
        {"\"inputs\":[[\"bf16\",[4,8],64]]", "\"inputs\":[[\"bf16\",[4,8]]]",
         "line 2: \"inputs\"[0]"},
        {"(r (0 +0", "(r (3 +0", "step 1, \"(3\": no such module"},
        {"(r (0 +0", "(r (0 +9", "step 2, \"+9\": no such type"},
        {"0:i0,p0,0", "0:i0,p0,1", "an operand is nothing that is there"},
        {"0:i0,p0,0", "0:i4,p0,0", "an operand is nothing that is there"},
        {"0:i0,p0,0", "0:i0,p0", "the call has more operands"},
        {"0:i0,p0,0", "0:i0,p0,0,0", "the call has fewer operands"},
        {"0:i0,p0,0", "7:i0,p0,0", "no such call"},
        {"-0 )r", "-5 )r", "no such buffer is alive"},
        {"-0 )r", ")r", "a buffer never dies"},
        {"g0:3 ", "g0:3 g0:2 ", "has its gradient already"},
        {"g0:3 ", "g4:3 ", "no such parameter"},
        {"[8,8],true,0]", "[8,8],false,0]", "\"g0:3\": this parameter is not trained"},
        {"=blocks", "s0 =blocks", "a node never lets go of a parameter"},
        {"=blocks", "u0 =blocks", "step 13, \"u0\": no node has saved a view of this parameter"},
        {"=blocks", "s1 =blocks", "\"s1\": no such parameter"},
        {"<r =blocks <0", "=blocks <0 <r", "\"<r\": modules are called once"},
        {"=blocks", "=stones", "allowed are logits, loss, blocks, final"},
        {"=final ", "", "one =final"},
        {"=final -2 ", "=final -2 +0 ", "\"+0\": behind =final"},
        {"=loss ", "=loss =loss ", "one =loss"},
        {"\"checkpointing\":\"none\"", "\"checkpointing\":\"half\"", "\"variants\""},
    };
    const struct recording_choice chosen = choice();
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        char *text = file_with(cases[i].from, cases[i].to);
        if (use(text, &chosen, &err) != ERR_INVALID || !strstr(err.text, cases[i].says) ||
            !strstr(err.text, "line.stream.json"))
            fail_msg("case %zu: \"%s\", expected \"%s\"", i, err.text, cases[i].says);
        free(text);
    }
}

/* What a model returns may be nothing in which hooks find tensors: backward does not begin there.
 */
static void a_root_may_have_no_border_in_backward(void **state)
{
    struct err err = {0};
    const struct recording_choice chosen = choice();
    char *text = file_with("<r =blocks ", "=blocks ");
    (void)state;
    if (use(text, &chosen, &err) != ERR_OK)
        fail_msg("%s", err.text);
    free(text);
}

static void notes_are_read(void **state)
{
    struct err err = {0};
    struct recording *r;
    char *text = file_with("\"order\":", "\"notes\":[\"one\",\"two\"],\"order\":");
    (void)state;
    assert_int_equal(recording_parse("line.stream.json", text, strlen(text), &r, &err), ERR_OK);
    assert_string_equal(recording_note(r, 1), "two");
    assert_null(recording_note(r, 2));
    recording_free(r);
    free(text);
}

static void what_was_not_recorded_is_refused(void **state)
{
    struct err err = {0};
    char *text = file_with(NULL, NULL);
    struct recording_choice chosen = choice();
    (void)state;
    chosen.batch = 2;
    assert_int_equal(use(text, &chosen, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "--batch 1,2"));
    chosen = choice();
    chosen.seq = 8;
    err = (struct err){0};
    assert_int_equal(use(text, &chosen, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "--seq 8"));
    chosen = choice();
    chosen.compute = DTYPE_FP32;
    err = (struct err){0};
    assert_int_equal(use(text, &chosen, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "--dtype fp32"));
    chosen = choice();
    chosen.checkpointing = CHECKPOINTING_FULL;
    err = (struct err){0};
    assert_int_equal(use(text, &chosen, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "--checkpointing"));
    free(text);
}

/* What nodes save of parameters is in recordings since version 2; other systems need it not. */
static void old_hooks_of_every_module_are_refused(void **state)
{
    struct recording_choice chosen = choice();
    struct err err = {0};
    char *text = file_with("\"hooks\":\"fsdp\"", "\"hooks\":\"zero3\"");
    (void)state;
    chosen.input_nodes = false;
    chosen.module_hooks = true;
    assert_int_equal(use(text, &chosen, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "which views of parameters autograd saves"));
    replace(text, "\"version\":1", "\"version\":2");
    replace(text, "=blocks", "s0 u0 =blocks");
    err = (struct err){0};
    if (use(text, &chosen, &err) != ERR_OK)
        fail_msg("%s", err.text);
    free(text);
}

static void hooks_find_every_parameter(void **state)
{
    struct recording_choice chosen = choice();
    struct err err = {0};
    char *text = file_with("\"hooks\":\"fsdp\"", "\"hooks\":\"zero3\"");
    (void)state;
    chosen.input_nodes = false;
    chosen.module_hooks = true;
    replace(text, "\"version\":1", "\"version\":2");
    replace(text, "[\"layers.0\",[0],[]]", "[\"layers.0\",[],[0]]");
    assert_int_equal(use(text, &chosen, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "\"called\": no module has layers.0.weight of its own"));
    free(text);
}

/* An engine scales the gradient of the loss where that is a storage of the step's. */
static void a_loss_that_is_a_parameter_is_not_scaled(void **state)
{
    struct recording_choice chosen = choice();
    struct err err = {0};
    char *text = file_with("+2 2:1,2", "+2 2:p0,2");
    (void)state;
    chosen.input_nodes = false;
    chosen.scaled_loss = true;
    replace(text, "\"hooks\":\"fsdp\"", "\"hooks\":\"plain\"");
    assert_int_equal(use(text, &chosen, &err), ERR_OK);
    free(text);
}

static void settings_that_a_recording_has_not_are_refused(void **state)
{
    struct err err = {0};
    struct model_config config = {.layers = 0};
    struct job job;
    struct graph *graph;
    struct stream *stream;
    char *text = file_with(NULL, NULL);
    (void)state;
    assert_int_equal(
        recording_parse("line.stream.json", text, strlen(text), &config.recording, &err), ERR_OK);
    for (int what = 0; what < 6; what++) {
        static const char *const says[] = {"--strategy zero3", "--loss",
                                           "--freeze",         "--units",
                                           "--early-stop",     "--checkpoint-blocks"};
        job_defaults(&job, &config);
        job.model.code = CODE_RECORDED;
        job.model.seq = 4;
        job.strategy.system = what == 0 ? SYSTEM_ZERO3 : SYSTEM_FSDP2;
        job.model.loss = what == 1 ? CROSS_ENTROPY_FUSED : CROSS_ENTROPY_EAGER;
        job.model.frozen = what == 2 ? "*" : NULL;
        job.strategy.units = what == 3 ? UNITS_TORCHTITAN : UNITS_BLOCKS;
        job.tape.no_early_stop = what == 4;
        if (what == 5)
            job.tape = (struct tape_options){.checkpointing = CHECKPOINTING_FULL,
                                             .checkpointed = CHECKPOINTED_FIRST,
                                             .checkpointed_number = 1};
        err = (struct err){0};
        assert_int_not_equal(job_stream(&job, &graph, &stream, &err), ERR_OK);
        if (!strstr(err.text, says[what]))
            fail_msg("%s", err.text);
    }
    model_release(&config);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_file_is_read),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(a_root_may_have_no_border_in_backward),
        cmocka_unit_test(notes_are_read),
        cmocka_unit_test(what_was_not_recorded_is_refused),
        cmocka_unit_test(old_hooks_of_every_module_are_refused),
        cmocka_unit_test(hooks_find_every_parameter),
        cmocka_unit_test(a_loss_that_is_a_parameter_is_not_scaled),
        cmocka_unit_test(settings_that_a_recording_has_not_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
