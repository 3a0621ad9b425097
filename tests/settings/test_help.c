/* test_help.c - what the programs say of their options: --help, the manual page and bash's
 * completion name the same ones, and the parser takes just these. */
#include "lower/lower.h"
#include "settings/settings.h"
#include "tests/support/program.h"

#include <ctype.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 256 };

struct names {
    char at[MOST][48];
    int count;
};

static bool has(const struct names *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->at[i], name) == 0)
            return true;
    return false;
}

/* "--micro-batch" wherever it stands in the output of the last run. */
static struct names options_in_output(void)
{
    struct names names = {.count = 0};
    for (const char *c = program_output(); (c = strstr(c, "--")); c += 2) {
        const size_t length = strspn(c + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
        char name[48];
        if (length == 0 || length >= sizeof name ||
            (c > program_output() && isalnum((unsigned char)c[-1])))
            continue;
        memcpy(name, c + 2, length);
        name[length] = '\0';
        if (!has(&names, name) && names.count < MOST)
            memcpy(names.at[names.count++], name, length + 1);
    }
    return names;
}

/* The options that begin a line of --help, without argp's own. */
static struct names options_of_help(enum command command)
{
    struct names names = {.count = 0};
    char *rest;
    if (command == COMMAND_RANK)
        assert_int_equal(shell("^/shardrun --help"), 0);
    else
        assert_int_equal(shell("^/shardplan %s --help", command_about(command)->name), 0);
    for (char *line = strtok_r(program_output(), "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        char *option = strstr(line, "--");
        if (!option ||
            strspn(line, " -?Vabcdefghijklmnopqrstuvwxyz,=ABCDEFGHIJKLMNOPQRSTUVWXYZ") <
                (size_t)(option - line) ||
            option - line > 8)
            continue;
        option += 2;
        option[strcspn(option, "= ")] = '\0';
        if (strcmp(option, "help") != 0 && strcmp(option, "usage") != 0 &&
            strcmp(option, "version") != 0)
            snprintf(names.at[names.count++], sizeof names.at[0], "%s", option);
    }
    return names;
}

/* The parser itself, many options at a time: one that it does not know is "unrecognized", whatever
 * is beside it, and then it shows no help. */
static void check_parsed(enum command command)
{
    enum { AT_ONCE = 40 };
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count;) {
        char line[2048] = "";
        size_t used = 0;
        for (uint32_t taken = 0; i < count && taken < AT_ONCE; i++)
            if (setting_is_of(&rows[i], command) && !rows[i].positional) {
                used += (size_t)snprintf(line + used, sizeof line - used, " --%s%s", rows[i].name,
                                         rows[i].arg ? "=?" : "");
                assert_true(used < sizeof line);
                taken++;
            }
        if (command == COMMAND_RANK)
            shell("^/shardrun%s --help 2>&1", line);
        else
            shell("^/shardplan %s%s --help 2>&1", command_about(command)->name, line);
        if (!strstr(program_output(), "Usage: shard"))
            fail_msg("%s: %s", line, program_output());
    }
}

static void help_lists_exactly_what_is_parsed(void **state)
{
    (void)state;
    for (int command = 0; command < COMMAND_COUNT; command++) {
        const struct names shown = options_of_help((enum command)command);
        uint32_t count;
        int offered = 0;
        const struct setting *rows = setting_rows(&count);
        for (uint32_t i = 0; i < count; i++) {
            if (!setting_is_of(&rows[i], (enum command)command) || rows[i].positional)
                continue;
            if (has(&shown, rows[i].name) != setting_is_offered(&rows[i]))
                fail_msg("%s --help: --%s", command_about((enum command)command)->name,
                         rows[i].name);
            offered += setting_is_offered(&rows[i]) && !setting_repeats(&rows[i]);
        }
        assert_int_equal(offered, shown.count);
        assert_true(shown.count >= 2);
        check_parsed((enum command)command);
    }
}

/* A strategy is in --help if and only if it can be planned. */
static void help_offers_only_systems_that_work(void **state)
{
    (void)state;
    int planned = 0;
    for (int i = 0; i < SYSTEM_COUNT; i++) {
        const char *name = system_name((enum system_kind)i);
        const int status =
            shell("^/shardplan fit tests/data/configs/toy-llama --gpus 1 --seq 128 --strategy "
                  "%s --quiet 2>&1",
                  name);
        assert_int_equal(shell("^/shardplan fit --help | tr -s ' \n' ' ' | grep -o 'The sharding "
                               "system: [a-z0-9, ]*'"),
                         0);
        char *listed = strstr(program_output() + strlen("The sharding system: "), name);
        assert_true(listed ? status == 0 : status == 2);
        planned += status == 0;
    }
    assert_true(planned >= 1);
}

static void the_manual_has_every_option_of_every_help(void **state)
{
    (void)state;
    if (shell("groff --version >/dev/null 2>&1") != 0)
        skip();
    assert_int_equal(shell("^/shardplan --man | groff -ww -man -Tutf8 2>&1 >/dev/null"), 0);
    assert_string_equal(program_output(), ""); /* no warnings */
    assert_int_equal(shell("^/shardplan --man | groff -man -Tascii -P-cbou -rLL=200n 2>&1"), 0);
    const struct names in_manual = options_in_output();
    for (int command = 0; command < COMMAND_COUNT; command++) {
        const char *name = command_about((enum command)command)->title;
        assert_int_equal(shell("^/shardplan --man | groff -man -Tascii -P-cbou -rLL=200n | "
                               "grep -q '%s'",
                               name),
                         0);
        const struct names shown = options_of_help((enum command)command);
        for (int i = 0; i < shown.count; i++)
            if (!has(&in_manual, shown.at[i]))
                fail_msg("--%s of %s is not in the manual", shown.at[i], name);
    }
}

/* What bash would offer after the words, the last of which is being typed. */
static void complete(const char *words)
{
    assert_int_equal(
        shell("bash -c 'source <(^/shardplan --completion) || exit 9; COMP_WORDS=(%s); "
              "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _shardplan || true; "
              "printf \"%%s\\n\" \"${COMPREPLY[@]}\"' 2>&1",
              words),
        0);
}

static bool is_offered(const char *word)
{
    const size_t length = strlen(word);
    for (const char *c = program_output(); (c = strstr(c, word)); c++)
        if ((c == program_output() || c[-1] == '\n') && (c[length] == '\n' || c[length] == '\0'))
            return true;
    return false;
}

static void bash_completes_options_values_names_and_files(void **state)
{
    (void)state;
    static const struct {
        const char *words, *offered, *not_offered;
    } cases[] = {
        {"shardplan \"\"", "compare", "shardrun"},
        {"shardplan f", "fit", "plan"},
        {"shardplan fit --resh", "--reshard", "--gpus"},
        {"shardplan fit --reshard \"\"", "never", "README.md"},
        {"shardplan fit --units t", "torchtitan", "embeddings"},
        {"shardplan fit --units e", "embeddings", "torchtitan"}, /* fsdp1's */
        {"shardplan plan --checkpointing s", "selective", "none"},
        {"shardplan fit --gpu h1", "h100-sxm", "a100-sxm-80gb"},
        {"shardplan fit --gpu = h1", "h100-sxm", "h200"}, /* as bash cuts --gpu=h1 */
        {"shardplan fit llama-3.1", "llama-3.1-8b", "gpt2"},
        {"shardplan fit READ", "README.md", "llama-3.1-8b"},
        {"shardplan plan -o plan", "planner", "README.md"},
        {"shardplan run READ", "README.md", "planner"},
        {"shardplan fit --micro-batch \"\"", "", "README.md"},
        {"shardplan sweep --over resh", "reshard", "never"},
        {"shardplan diff llama-3.1", "llama-3.1-8b", "gpt2"},
        {"shardrun --dev", "--device", "--ranks"},
        {"build/shardrun --device \"\"", "cuda", "README.md"},
    };
    if (shell("bash --version >/dev/null 2>&1") != 0)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        complete(cases[i].words);
        if (!is_offered(cases[i].offered) || is_offered(cases[i].not_offered))
            fail_msg("%s: %s", cases[i].words, program_output());
    }
    for (int command = 0; command < COMMAND_COUNT; command++) {
        char words[64];
        const struct names shown = options_of_help((enum command)command);
        snprintf(words, sizeof words, "%s --", command_about((enum command)command)->title);
        complete(words);
        const struct names offered = options_in_output();
        int different = 0; /* systems have options of one name */
        for (int i = 0; i < shown.count; i++) {
            bool again = false;
            for (int k = 0; k < i; k++)
                again = again || strcmp(shown.at[i], shown.at[k]) == 0;
            different += !again;
            assert_true(has(&offered, shown.at[i]));
        }
        assert_int_equal(offered.count, different + 3); /* and argp's own */
    }
}

static void every_command_has_version_json_and_quiet(void **state)
{
    (void)state;
    for (int command = 0; command < COMMAND_COUNT; command++) {
        const bool rank = command == COMMAND_RANK;
        const char *name = rank ? "" : command_about((enum command)command)->name;
        assert_int_equal(shell("^/%s %s --version", rank ? "shardrun" : "shardplan", name), 0);
        assert_string_equal(program_output(), rank ? "shardrun " SHARDPLAN_VERSION "\n"
                                                   : "shardplan " SHARDPLAN_VERSION "\n");
        const struct names shown = options_of_help((enum command)command);
        assert_true(has(&shown, "json") && has(&shown, "quiet"));
    }
    assert_int_equal(shell("^/shardplan gpus --quiet 2>&1"), 0);
    assert_string_equal(program_output(), "");
    assert_int_equal(shell("^/shardplan models -q 2>&1"), 0);
    assert_string_equal(program_output(), "");
}

static void mistakes_are_answered_with_the_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {"fit gpt2 --mirco-batch 2", "did you mean --micro-batch?"},
        {"fit gpt2 --per_device_train_batch_size 2", "did you mean --micro-batch (sequences of"},
        {"fit gpt2 --dtype bf16", "did you mean --param-dtype ("},
        {"fit gpt2 --bf16", "did you mean --param-dtype ("},
        {"fit gpt2 --zero3", "did you mean --strategy (fsdp2, fsdp1, ddp"},
        {"fit llama-3.1-8b --gpus 1 --lora 16 --load-in-4bit nf4",
         "; --strategy single, which has no wrapper, or add --bnb-quant-storage bf16"},
        {"fit gpt2 --tp 2", "tensor parallelism is not planned"},
        {"calibrate --dtype bf16", "`shardplan calibrate` does not have it"},
        {"diff gpt2", "A and B are needed (A: a plan.json or its folder"},
        {"tune gpt2 --max-memory 60", "--max-memory 60: allowed are sizes such as 500MB, 1MiB"},
        {"fit --model gpt2", "--model: `shardplan fit` takes it without its name: MODEL"},
        {"fit gpt2 --goodput", "it belongs to `shardplan plan`"},
        {"fit gpt2 --steps 3", "it belongs to `shardplan run`"},
        {"run plan.json --step 3 --stps=4", "did you mean --steps?"},
        {"fit gpt2 --gpu h1000", "did you mean h100-sxm?"},
        {"fit gpt2 --gpu h10", "did you mean h100-sxm?"},
        {"fit gpt2 --node dgx-h1000", "did you mean dgx-h100?"},
        {"fit gpt2 --profile tests/data/profiles/slip.json",
         "no key of a profile (did you mean nic_bytes_per_s?)"},
        {"fit gpt2 --gpu a100-sxm-40gb --profile tests/data/profiles/a100.json",
         "a100.json is of another one"},
        {"fit gpt2 --node p5 --profile tests/data/profiles/a100.json",
         "leave \"gpu\" out and give --gpu"},
        {"fit gpt2 --bucket-cap-mb 25 --strategy fsdp2", "fsdp2 has no buckets; it belongs to ddp"},
        {"fit gpt2 --gpus 4294967297", "allowed are integers 1 ... 1000000\n"},
        {"fit gpt2 --gpus eight", "1 ... 1000000; \"eight\" is no number\n"},
        {"fit gpt2 --gpus eight", "`shardplan help fit gpus` says what it takes"},
        {"fit gpt2 --gpus 8k", "\"8k\" is no integer in digits alone"},
        {"fit gpt2 --micro-batch 1.5", "\"1.5\" is no integer\n"},
        {"fit gpt2 --optimizer galore_adamw", "it is not planned; AdamW's of torch, "},
        {"fit gpt2 --optimizer Muon", "torch, bitsandbytes and torchao and sgd are\n"},
        {"fit gpt2 --optimizer adamw8bit", "did you mean adamw-8bit?"},
        {"fit gpt2 --optimizer adamm", "did you mean adamw?"},
        {"help fot", "\"fot\" is not a command; did you mean fit?"},
        {"help fit --mico-batch", "no option \"--mico-batch\"; did you mean --micro-batch?"},
        {"fit llama-3.1-8b --liger", "--liger: its value is missing; KERNELS: Liger's kernels"},
        {"fit gpt2 --load-in-4bit", "its value is missing; allowed are none, nf4, fp4\n"},
        {"fit llama-3.1-8b --lora 8 --bnb-compute-dtype bf16",
         "--bnb-compute-dtype: of --load-in-4bit"},
        {"plan llama-3.1-8b --lora 8 --bnb-quant-storage bf16",
         "--bnb-quant-storage: of --load-in-4bit"},
        {"fit llama-3.1-8b --code hf --strategy ddp,single --bnb-quant-storage bf16",
         "--bnb-quant-storage: of --load-in-4bit"},
        {"fit llama-3.1-8b --code hf --strategy ddp+bnb-quant-storage=bf16,single",
         "--bnb-quant-storage: of --load-in-4bit"},
        {"sweep gpt2 --over foo=1,2", "--foo: `shardplan sweep` does not have it\n"},
        {"diff gpt2 checkpointing=full micro-batch=4",
         "joined by commas: checkpointing=full,micro-batch=4"},
        {"diff gpt2 gpt2-xl checkpointing=full", "changes are one argument, joined by commas"},
        {"plan gpt2 --no-files -o x", "--no-files with -o: leave one of them out"},
        {"plan gpt2 --no-files --files plan", "--no-files with --files: leave one of them out"},
        {"fit --from a --from b --from c --from d", "--from: at most 3 files of a job"},
        {"help fit sequence", "`shardplan fit` has no option \"sequence\""},
        {"calibrate --gpu h1000", "did you mean h100-sxm?"},
        {"calibrate --device cuda", "needs --gpu"},
        {"calibrate --profile x.json", "goes with --from-nccl-tests"},
        {"calibrate something", "no arguments but options"},
        {"run plan.json --steps 4294967297", "allowed are integers"},
        {"run plan.json --rehearse 8/8", "allowed are RANK/WORLD, such as 0/64"},
        {"run plan.json --device gpu", "allowed are host, cuda"},
        {"compare a b --tolerance nan", "percentages"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int status = shell("^/shardplan %s 2>&1", cases[i].arguments);
        if (status != 2 || !strstr(program_output(), cases[i].says))
            fail_msg("shardplan %s: exit %d: %s", cases[i].arguments, status, program_output());
    }
    assert_int_equal(shell("^/shardrun plan.json --timeout inf 2>&1"), 2);
    assert_non_null(
        strstr(program_output(), "shardrun: --timeout inf: allowed are numbers 0 ... 1e+07"));
}

/* `help` is --help; the most used options fit on a screen, in its lines. */
static void help_comes_in_three_sizes(void **state)
{
    (void)state;
    assert_int_equal(shell("^/shardplan help 2>&1"), 0);
    assert_memory_equal(program_output(), "Usage: shardplan COMMAND", 24);
    for (int command = 0; command < COMMAND_RANK; command++) {
        const char *name = command_about((enum command)command)->name;
        int lines = 0;
        char *rest;
        assert_int_equal(shell("a=$(^/shardplan %s --help) && b=$(^/shardplan help %s) && "
                               "test \"$a\" = \"$b\" && test \"$a\" = \"$(^/shardplan %s -?)\"",
                               name, name, name),
                         0);
        assert_int_equal(shell("^/shardplan %s -h", name), 0);
        if (!command_about((enum command)command)->examples[0])
            continue;
        for (char *line = strtok_r(program_output(), "\n", &rest); line;
             line = strtok_r(NULL, "\n", &rest), lines++)
            if (strlen(line) > 80)
                fail_msg("%s -h: %s", name, line);
        if (lines > 35 || lines < 15)
            fail_msg("%s -h: %d lines", name, lines);
    }
    assert_int_equal(shell("^/shardplan fit --help | grep -c ' $'"), 1); /* no lines of blanks */
    assert_int_equal(shell("^/shardplan help fit --seq && ^/shardplan help fit units 2>&1"), 0);
    assert_non_null(strstr(program_output(), "--seq=T"));
    assert_non_null(strstr(program_output(), "auto_wrap_policy"));
}

/* The examples of every command are command lines that it takes, where the files that they name are
 * there; those of `run` would start ranks, and those of `tune` need not search to the end, nor, on
 * a machine that is busy, to the first answer. */
static void examples_are_taken(void **state)
{
    (void)state;
    assert_int_equal(shell("d=$(mktemp -d) && mkdir -p $d/path/to && cp "
                           "tests/data/frameworks/accelerate_fsdp2.yaml $d/accelerate.yaml && cp "
                           "tests/data/configs/llama-3.1-8b/config.json $d/path/to && echo $d"),
                     0);
    char folder[256];
    snprintf(folder, sizeof folder, "%s", program_output());
    folder[strcspn(folder, "\n")] = '\0';
    for (int command = 0; command < COMMAND_COUNT; command++)
        for (int i = 0; i < COMMAND_EXAMPLES; i++) {
            const char *example = command_about((enum command)command)->examples[i];
            if (!example)
                break;
            assert_true(strlen(example) <= 78);
            assert_memory_equal(example, "shardplan ", 10);
            if (command == COMMAND_RUN)
                continue;
            const int status = shell(
                "programs=$(cd ^ && pwd) && cd '%s' && %s $programs/%s 2>&1", folder,
                command == COMMAND_TUNE ? "timeout --preserve-status -s INT 0.3" : "", example);
            const bool ended = command == COMMAND_TUNE && status == 128 + SIGINT;
            if (status != 0 && status != 1 && !ended)
                fail_msg("%s: %d: %s", example, status, program_output());
        }
    shell("rm -r '%s'", folder);
}

/* It is read once. */
static void a_profile_may_come_from_a_pipe(void **state)
{
    (void)state;
    assert_int_equal(shell("echo '{\"nics\": 2}' | ^/shardplan fit gpt2 --seq 128 --profile "
                           "/dev/stdin 2>&1"),
                     0);
}

/* One GPU, however spelled, and one model: the same prediction and the same echo but for the name.
 */
static void other_spellings_are_the_same_job(void **state)
{
    (void)state;
    static const char *const gpus[] = {"h100-sxm", "h100", "H100", "h100-80gb", "H100_SXM5"};
    char *expected = NULL;
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        assert_int_equal(shell("^/shardplan fit gpt2 --seq 128 --gpu %s --json 2>&1", gpus[i]), 0);
        assert_non_null(strstr(program_output(), "\"gpu\": \"h100-sxm\""));
        if (i == 0)
            expected = strdup(program_output());
        assert_string_equal(program_output(), expected);
    }
    assert_int_equal(shell("^/shardplan fit openai-community/gpt2 --seq 128 --json 2>&1"), 0);
    assert_string_equal(strstr(program_output(), "\"fits\""), strstr(expected, "\"fits\""));
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_lists_exactly_what_is_parsed),
        cmocka_unit_test(help_offers_only_systems_that_work),
        cmocka_unit_test(the_manual_has_every_option_of_every_help),
        cmocka_unit_test(bash_completes_options_values_names_and_files),
        cmocka_unit_test(every_command_has_version_json_and_quiet),
        cmocka_unit_test(mistakes_are_answered_with_the_nearest),
        cmocka_unit_test(help_comes_in_three_sizes),
        cmocka_unit_test(examples_are_taken),
        cmocka_unit_test(other_spellings_are_the_same_job),
        cmocka_unit_test(a_profile_may_come_from_a_pipe),
    };
    return cmocka_run_group_tests_name("help", tests, NULL, NULL);
}
