/* test_frameworks.c - what we write and read, beside the frameworks themselves: their own parsers
 * take our exports and give what was meant, and a file for FSDP2, applied to a model of real torch,
 * allocates what its plan predicts.
 *
 * Python is SHARDPLAN_PYTHON, else python3; tests are skipped where it or a package is not there.
 */
#include "frameworks/document.h"

#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define COUNT(list) (sizeof(list) / sizeof(list)[0])
#define DATA "tests/data/frameworks/"
#define TOY "tests/data/configs/toy-llama"

enum { ABSENT = 77 };

static char printed[1 << 16];
static char *folder, *plan_folder;

static int make_folders(void **state)
{
    (void)state;
    folder = folder_new("frameworks");
    plan_folder = folder_new("plan");
    return 0;
}

static int drop_folders(void **state)
{
    (void)state;
    folder_drop(folder);
    folder_drop(plan_folder);
    return 0;
}

/* Runs a program of this folder; what it printed is in `printed`. */
static int python(const char *arguments)
{
    char command[8192];
    snprintf(command, sizeof command, PROGRAM_LIMITS "%s tests/peer/%s 2>%s/errors",
             program_python(), arguments, folder);
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return -1;
    const size_t length = fread(printed, 1, sizeof printed - 1, pipe);
    printed[length] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What a framework reads in a file; skips the test where it is not installed. */
static json_t *parsed(const char *framework, const char *file, unsigned world)
{
    char arguments[1024];
    json_error_t error;
    snprintf(arguments, sizeof arguments, "parse_config.py %s %s %u", framework, file, world);
    const int status = python(arguments);
    if (status == ABSENT || status == 127) {
        print_message("note: %s is not installed for this Python\n", framework);
        skip();
    }
    size_t length;
    if (status != 0)
        fail_msg("%s: %s", file, file_text(file_in(folder, "errors"), &length));
    const char *last = strrchr(printed, '{') ? strstr(printed, "\n{") : NULL;
    for (const char *next = last; next; next = strstr(next + 1, "\n{"))
        last = next;
    json_t *json = json_loads(last ? last : printed, 0, &error);
    if (!json)
        fail_msg("%s: %s", printed, error.text);
    return json;
}

/* {"key": "value", ...} in one text, single quotes for double ones. */
static void expect(json_t *json, const char *text)
{
    char copy[1024];
    json_error_t error;
    const char *key;
    json_t *value;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    json_t *want = json_loads(copy, 0, &error);
    assert_non_null(want);
    json_object_foreach(want, key, value)
    {
        const json_t *got = json_object_get(json, key);
        const bool numbers = json_is_number(value) && json_is_number(got);
        if (numbers ? json_number_value(value) != json_number_value(got) : !json_equal(value, got))
            fail_msg("%s: %s", key, json_dumps(json, 0));
    }
    json_decref(want);
    json_decref(json);
}

/* Plans into the folder and exports; the path of the file. */
static const char *exported(const char *options, const char *to, const char *name)
{
    if (shardplan("plan %s --files plan -q -o %s", options, plan_folder) == 2)
        fail_msg("%s", program_output());
    if (shardplan("export %s/plan.json -q --to %s -o %s", plan_folder, to, file_in(folder, name)) !=
        0)
        fail_msg("%s", program_output());
    return file_in(folder, name);
}

/* ---- our readers beside Python's ---- */

static json_t *tree_json(const struct node *node)
{
    json_t *out;
    switch (node->kind) {
    case NODE_TABLE:
        out = json_object();
        for (const struct node *n = node->first; n; n = n->next)
            json_object_set_new(out, n->key, tree_json(n));
        return out;
    case NODE_LIST:
        out = json_array();
        for (const struct node *n = node->first; n; n = n->next)
            json_array_append_new(out, tree_json(n));
        return out;
    case NODE_BOOL:
        return json_boolean(strcmp(node->text, "true") == 0);
    case NODE_INTEGER:
        return json_integer(strtoll(node->text, NULL, 10));
    case NODE_REAL:
        return json_real(strtod(node->text, NULL));
    case NODE_NULL:
        return json_null();
    default:
        return json_string(node->text);
    }
}

static void trees_are_those_of(const char *syntax, const char *const *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct document document;
        struct err err = {0};
        json_t *theirs = parsed(syntax, files[i], 1);
        if (document_read(files[i], &document, &err) != ERR_OK)
            fail_msg("%s", err.text);
        json_t *ours = tree_json(document.root);
        if (!json_equal(ours, theirs))
            fail_msg("%s: %s\n%s", files[i], json_dumps(ours, 0), json_dumps(theirs, 0));
        json_decref(ours);
        json_decref(theirs);
        document_free(&document);
    }
}

/* Every kind of value that TOML has, but for dates. */
static const char hard_toml[] =
    "a.b.'c d' = 0xdead_BEEF\n\"quo\\\"ted\" = -0\nreals = [1.5, -2e-3, 6.02E+2_3, 5e8]\n"
    "texts = ['''\nraw \\ ''two''\n''', \"\"\"\\\n   joined \\\n   lines \"\"quotes\"\"\"\"\", "
    "\"\\u00e9\\U0001F600\\t\", 'C:\\x']\n[t]\nempty = {}\nnone = []\n[[t.list]]\nx = 1\n"
    "[[t.list]]\n[t.list.deep.er]\ny = { z = [true, false,], 'w' = 0b11 } # end\n";

static void toml_is_read_as_tomllib_does(void **state)
{
    (void)state;
    const char *hard = file_in(folder, "hard.toml");
    const char *const files[] = {hard, DATA "torchtitan_8b.toml", DATA "torchtitan_70b_tp.toml",
                                 DATA "torchtitan_ddp.toml"};
    file_write(hard, hard_toml, sizeof hard_toml - 1);
    trees_are_those_of("toml", files, COUNT(files));
}

static const char hard_yaml[] =
    "a: {b: 1e8, c: 1.0e+8, d: ~, e: 5}\nf: [yes, 'yes', Off, n, 0.5, .5, -3]\n"
    "g: |\n  two\n  lines\nh: >-\n  one\n  line\ni: &x {j: k}\nl: *x\n\"m\": \"\\u00e9\\n\"\n";

static void yaml_is_read_as_pyyaml_does(void **state)
{
    (void)state;
    const char *hard = file_in(folder, "hard.yaml");
    const char *const files[] = {hard, DATA "accelerate_fsdp2.yaml", DATA "accelerate_fsdp1.yaml",
                                 DATA "accelerate_deepspeed.yaml"};
    file_write(hard, hard_yaml, sizeof hard_yaml - 1);
    trees_are_those_of("yaml", files, COUNT(files));
}

/* ---- exports in their own parsers ---- */

static void torchtitan_takes_its_export(void **state)
{
    (void)state;
    const char *file =
        exported("llama-3.1-8b --gpus 16 --replicate 2 --units torchtitan --reshard never "
                 "--accumulate 2 --accumulate-sync each --micro-batch 3 --seq 512 --clip 0.5 "
                 "--optimizer-impl foreach --checkpointing selective --store-dtype bf16",
                 "torchtitan", "titan.toml");
    expect(parsed("torchtitan", file, 16),
           "{'name': 'llama3', 'flavor': '8B', 'seq': 512, 'micro_batch': 3, 'global_batch': 96, "
           "'clip': 0.5, 'dtype': 'bfloat16', 'param': 'bfloat16', 'offload': false, 'shard': 8, "
           "'replicate': 2, 'reshard': 'never', 'optimizer': 'foreach', 'mode': 'selective', "
           "'option': 'op', 'early_stop': true}");
}

static void accelerate_takes_its_export(void **state)
{
    (void)state;
    const char *file = exported("llama-3.1-8b --code hf --gpus 16 --gpus-per-node 4 --replicate 4 "
                                "--units torchtitan --reshard never --reduce-dtype bf16 --offload "
                                "cpu --checkpointing full --seq 256",
                                "accelerate", "accelerate.yaml");
    expect(parsed("accelerate", file, 16),
           "{'distributed_type': 'FSDP', 'num_processes': 16, 'num_machines': 4, "
           "'mixed_precision': 'bf16', 'fsdp_version': 2, 'reshard_after_forward': false, "
           "'activation_checkpointing': true, 'offload': true, 'replicate': 4, 'shard': 4, "
           "'policy': 'transformer_auto_wrap_policy'}");
    expect(parsed("accelerate",
                  exported("gpt2 --code hf --strategy ddp --gpus 4 --seq 64 --autocast bf16 "
                           "--outputs fp32",
                           "accelerate", "ddp.yaml"),
                  4),
           "{'distributed_type': 'MULTI_GPU', 'num_processes': 4, 'mixed_precision': 'bf16'}");
}

/* What our reader makes of these files (tests/frameworks/test_import.c) is what they say. */
static void deepspeed_and_transformers_read_our_samples_so(void **state)
{
    (void)state;
    expect(parsed("deepspeed", DATA "deepspeed_zero3.json", 8),
           "{'stage': 3, 'bf16': true, 'micro_batch': 2, 'accumulate': 4, 'train_batch': 64, "
           "'clip': 0.5}");
    expect(parsed("transformers", DATA "training_arguments.json", 1),
           "{'micro_batch': 2, 'accumulate': 4, 'clip': 1.0, 'optim': 'adamw_torch', 'bf16': true, "
           "'version': 2, 'reshard': true, 'offload': false, 'checkpointing': true, "
           "'policy': 'TRANSFORMER_BASED_WRAP'}");
    expect(parsed("transformers", DATA "fsdp_config.json", 1),
           "{'micro_batch': 8, 'accumulate': 1, 'clip': 1.0, 'optim': 'adamw_torch_fused', "
           "'version': 2, 'reshard': false, 'offload': true, 'checkpointing': false}");
}

static void deepspeed_takes_its_export(void **state)
{
    (void)state;
    if (shardplan("fit gpt2 --strategy zero3 -q") == 2) {
        print_message("note: this version plans no ZeRO\n");
        skip();
    }
    const char *file = exported("llama-3.1-8b --strategy zero3 --code hf --gpus 8 --micro-batch 2 "
                                "--accumulate 4 --clip 0.5 --optimizer-impl fused --seq 256",
                                "deepspeed", "deepspeed.json");
    expect(parsed("deepspeed", file, 8),
           "{'stage': 3, 'bf16': true, 'micro_batch': 2, 'accumulate': 4, 'train_batch': 64, "
           "'clip': 0.5}");
}

/* ---- FSDP2 itself ---- */

/* Small models as their config.json says them. */
static const struct {
    const char *name, *text;
} small[] = {
    {"tied.json", "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
                  "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": "
                  "128, \"vocab_size\": 251, \"max_position_embeddings\": 128, "
                  "\"tie_word_embeddings\": true}"},
    {"gpt2.json", "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, "
                  "\"vocab_size\": 251, \"n_positions\": 128, \"attn_pdrop\": 0.0, \"embd_pdrop\": "
                  "0.0, \"resid_pdrop\": 0.0}"},
    {"neox.json", "{\"model_type\": \"gpt_neox\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
                  "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 251, "
                  "\"max_position_embeddings\": 128, \"tie_word_embeddings\": false}"},
    {"moe.json", "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
                 "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, "
                 "\"intermediate_size\": 128, \"moe_intermediate_size\": 48, \"num_experts\": 8, "
                 "\"num_experts_per_tok\": 2, \"vocab_size\": 251, "
                 "\"max_position_embeddings\": 128, \"tie_word_embeddings\": false}"},
};

static const struct {
    const char *model; /* of `small`; NULL: TOY */
    const char *options;
} applied[] = {
    {NULL, "--gpus 4"},
    {NULL, "--gpus 8 --units torchtitan --checkpointing full --forward-prefetch 2"},
    {NULL, "--gpus 8 --replicate 2 --units 2 --reshard 2 --checkpointing selective --clip 1 "
           "--backward-prefetch 1 --accumulate 2 --early-stop off"},
    {NULL, "--gpus 2 --units 1MB --reshard never --optimizer sgd"},
    {NULL, "--gpus 4 --store-dtype bf16 --param-dtype same --reduce-dtype same"},
    {NULL, "--gpus 4 --rank 3 --optimizer-impl fused --accumulate 3 --accumulate-sync each"},
    {NULL, "--gpus 4 --freeze 'layers.1.*'"},
    {NULL, "--gpus 4 --keep-unsharded 1 --checkpointing full"},
    {NULL, "--gpus 4 --units torchtitan --reshard always --keep-units tok_embeddings,layers.0-1"},
    {NULL, "--gpus 4 --checkpointing full --checkpoint-blocks every-2"},
    {NULL, "--gpus 4 --units 2 --checkpointing selective --checkpoint-blocks first-1"},
    {NULL, "--gpus 4 --checkpointing full --checkpoint-blocks first-50%"},
    {NULL, "--gpus 4 --checkpointing full --checkpoint-reentrant on --freeze 'tok_embeddings.*'"},
    {"neox.json", "--gpus 4 --code hf --checkpointing full --checkpoint-reentrant on "
                  "--checkpoint-blocks first-1"},
    {NULL, "--gpus 4 --placement columns --reduce-buffers 2"},
    {NULL, "--gpus 4 --accumulate 2 --accumulate-sync each --last-backward last "
           "--reshard-after-backward last"},
    {NULL, "--gpus 8 --replicate 2 --accumulate 2 --accumulate-sync each --all-reduce last"},
    {NULL, "--gpus 4 --units torchtitan --not-in-backward tok_embeddings"},
    {NULL, "--gpus 4 --param-dtype fp32 --ignore 'tok_embeddings.*,*norm*' --accumulate 2"},
    {NULL, "--gpus 4 --code hf --units torchtitan --checkpointing full"},
    {"tied.json", "--gpus 4 --code hf --units torchtitan --reshard always --accumulate 2"},
    {"gpt2.json", "--gpus 4 --code hf --units torchtitan"},
    {"neox.json", "--gpus 4 --code hf --units torchtitan --checkpointing full --reshard always"},
    {"moe.json", "--gpus 8 --code hf --replicate 2 --experts-replicate 4"},
    {"moe.json",
     "--gpus 8 --code hf --experts-replicate 1 --keep-units 'model.layers.0-1.mlp.experts'"},
    {"moe.json", "--gpus 4 --code hf --experts-replicate 1 --clip 1 --checkpointing full"},
};

/* Plans, exports and predicts one of them; its part of the command line of the program beside. */
static size_t add_applied(size_t i, char *text, size_t size)
{
    char name[32], events[32], config[1024], line[2048];
    snprintf(name, sizeof name, "exported%zu.py", i);
    snprintf(events, sizeof events, "events%zu", i);
    snprintf(config, sizeof config, "%s",
             applied[i].model ? file_in(folder, applied[i].model) : TOY "/config.json");
    snprintf(line, sizeof line, "%s --seq 128 --micro-batch 2 %s", config, applied[i].options);
    exported(line, "fsdp2", name);
    if (shardplan("fit --from %s --autograd recorded --events %s -q", file_in(folder, name),
                  file_in(folder, events)) != 0)
        fail_msg("%s", program_output());
    return (size_t)snprintf(text, size, " %s %s %s", file_in(folder, name), config,
                            file_in(folder, events));
}

static void an_export_allocates_what_its_plan_predicts(void **state)
{
    (void)state;
    char arguments[4096] = "fsdp2_export.py";
    size_t used = strlen(arguments), equal = 0, length;
    json_decref(parsed("torch", "-", 1));
    for (size_t i = 0; i < COUNT(small); i++)
        file_write(file_in(folder, small[i].name), small[i].text, strlen(small[i].text));
    for (size_t i = 0; i < COUNT(applied); i++)
        used += add_applied(i, arguments + used, sizeof arguments - used);
    if (python(arguments) != 0)
        fail_msg("%s\n%s", printed, file_text(file_in(folder, "errors"), &length));
    for (const char *at = printed; (at = strstr(at, " events equal\n")) != NULL; at++)
        equal++;
    assert_int_equal(equal, COUNT(applied));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(toml_is_read_as_tomllib_does),
        cmocka_unit_test(yaml_is_read_as_pyyaml_does),
        cmocka_unit_test(torchtitan_takes_its_export),
        cmocka_unit_test(accelerate_takes_its_export),
        cmocka_unit_test(deepspeed_and_transformers_read_our_samples_so),
        cmocka_unit_test(deepspeed_takes_its_export),
        cmocka_unit_test(an_export_allocates_what_its_plan_predicts),
    };
    return cmocka_run_group_tests_name("frameworks (peers)", tests, make_folders, drop_folders);
}
