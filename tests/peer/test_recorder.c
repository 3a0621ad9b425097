/* test_recorder.c - tools/record.py as a user runs it, beside the builder of the same model: a
 * recording made now, by the torch and the transformers that are there, allocates what is planned
 * from the config.json. tests/recorded holds those that were made before.
 *
 * Python is SHARDPLAN_PYTHON, else python3; tests are skipped where it or a package is not there.
 */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DATA "tests/data/recorded/"

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = folder_new("recorder");
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    folder_drop(folder);
    return 0;
}

static void need(const char *packages)
{
    if (shell("%s -c 'import %s' 2>/dev/null", program_python(), packages) == 0)
        return;
    print_message("note: %s: not installed for this Python\n", packages);
    skip();
}

static const char *recorded(const char *arguments)
{
    const char *path = file_in(folder, "model.stream.json.gz");
    if (shell(PROGRAM_LIMITS "%s tools/record.py %s -o %s 2>&1", program_python(), arguments,
              path) != 0)
        fail_msg("%s", program_output());
    return path;
}

static void a_recording_made_now_is_what_its_builder_makes(void **state)
{
    char path[256];
    (void)state;
    need("torch, transformers");
    snprintf(path, sizeof path, "%s",
             recorded("--hf " DATA "llama --seq 256 --batch 1,2 --checkpointing none,full"));
    for (int full = 0; full < 2; full++) {
        const char *options = full ? "--gpus 8 --micro-batch 2 --checkpointing full" : "--gpus 8";
        assert_int_equal(shardplan("fit %s %s -q --events %s", path, options, file_in(folder, "a")),
                         0);
        assert_int_equal(shardplan("fit " DATA "llama --code hf --seq 256 %s -q --events %s",
                                   options, file_in(folder, "b")),
                         0);
        if (shell("cmp %s %s && test -s %s", file_in(folder, "a"), file_in(folder, "b"),
                  file_in(folder, "a")) != 0)
            fail_msg("%s: %s", options, program_output());
    }
}

static void a_module_of_ones_own_is_recorded(void **state)
{
    (void)state;
    need("torch");
    const char *path = recorded(DATA "dit.py:build --seq 64 --batch 4 --checkpointing none");
    assert_int_equal(shardplan("fit %s --gpus 4 --micro-batch 4", path), 0);
    assert_non_null(strstr(program_output(), "3 units"));
}

/* What its parameters are in when it comes is no matter: they compute in what was asked for. */
static void a_module_in_16_bits_is_recorded(void **state)
{
    static const struct {
        const char *build, *says; /* NULL: nothing */
    } cases[] = {
        {"half", "parameters were made in fp16"},
        {"back", NULL},
    };
    (void)state;
    need("torch");
    assert_int_equal(shardplan("fit %s --gpus 2 -q --events %s",
                               recorded(DATA "made_in.py:fp32 --seq 32 --checkpointing none"),
                               file_in(folder, "a")),
                     0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char arguments[128];
        snprintf(arguments, sizeof arguments, DATA "made_in.py:%s --seq 32 --checkpointing none",
                 cases[i].build);
        const char *path = recorded(arguments);
        const char *said = strstr(program_output(), "parameters were made in");
        if (cases[i].says ? !said || strncmp(said, cases[i].says, strlen(cases[i].says)) != 0
                          : !!said)
            fail_msg("%s: %s", cases[i].build, program_output());
        assert_int_equal(shardplan("fit %s --gpus 2 -q --events %s", path, file_in(folder, "b")),
                         0);
        if (shell("cmp %s %s", file_in(folder, "a"), file_in(folder, "b")) != 0)
            fail_msg("%s: %s", cases[i].build, program_output());
    }
}

/* Four patches of 14 pixels are one token of Qwen2.5-VL: 224 x 336 are 96. */
static void pictures_have_their_tokens(void **state)
{
    (void)state;
    need("torch, transformers");
    recorded("--hf " DATA "qwen2_5_vl_image --seq 256 --images 2 --image-size 224x336 "
             "--checkpointing none --freeze 'model.visual*'");
    assert_non_null(
        strstr(program_output(), "192 of the 256 tokens of each sequence are pictures'"));
    recorded("--hf " DATA "llava_image --seq 64 --images 0 --checkpointing none");
    assert_null(strstr(program_output(), "are pictures'"));
}

static void mistakes_are_said_and_nothing_is_left(void **state)
{
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {"", "give --hf CONFIG_OR_DIR or FILE.py:build"},
        {DATA "dit.py:make", "has no function make"},
        {DATA "dit.py:DiT", "DiT(batch, seq) returns (model, inputs)"},
        {DATA "dit.py:build --batch two", "numbers are needed"},
        {DATA "dit.py:build --images 1", "build(batch, seq) says what pictures there are"},
        {"--hf " DATA "qwen2_5_vl_image --image-size 100x100", "multiples of 28x28"},
        {"--hf " DATA "llava_image --image-size 28", "scales pictures to 56x56"},
        {"--hf " DATA "llava_image --seq 32 --images 2", "do not fit in --seq 32"},
        {"--hf " DATA "llama --images 1", "takes no pictures among its tokens"},
        {DATA "dit.py:build --checkpointing some", "allowed are none, full, selective"},
    };
    (void)state;
    need("torch, transformers");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t before = files_in(folder);
        assert_int_not_equal(shell("%s tools/record.py %s -o %s 2>&1", program_python(),
                                   cases[i].arguments, file_in(folder, "none.stream.json.gz")),
                             0);
        if (!strstr(program_output(), cases[i].says))
            fail_msg("%s", program_output());
        assert_int_equal(files_in(folder), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_made_now_is_what_its_builder_makes),
        cmocka_unit_test(a_module_of_ones_own_is_recorded),
        cmocka_unit_test(a_module_in_16_bits_is_recorded),
        cmocka_unit_test(pictures_have_their_tokens),
        cmocka_unit_test(mistakes_are_said_and_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
