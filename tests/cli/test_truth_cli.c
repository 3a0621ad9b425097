/* test_truth_cli.c - every written model that was recorded, by the command line alone: what a
 * script gets that knows the options and the rows. SHARDPLAN names the program. */
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/truth.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LINE = 2048 };

struct line {
    char text[LINE];
    size_t used;
};

static void add(struct line *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(line->text + line->used, LINE - line->used, fmt, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < LINE - line->used);
    line->used += (size_t)n;
}

/* A member of the row as it is typed: 'null' and nothing are `otherwise`, which NULL leaves out. */
static void option(struct line *line, const json_t *row, const char *key, const char *name,
                   const char *otherwise)
{
    const json_t *value = json_object_get(row, key);
    if (json_is_string(value))
        add(line, " --%s %s", name, json_string_value(value));
    else if (json_is_integer(value))
        add(line, " --%s %" JSON_INTEGER_FORMAT, name, json_integer_value(value));
    else if (json_is_boolean(value))
        add(line, " --%s %s", name, json_is_true(value) ? "on" : "off");
    else if (otherwise)
        add(line, " --%s %s", name, otherwise);
}

/* ---- the model, as a config.json ---- */

static json_t *config_of(const json_t *m)
{
    const char *kind = truth_text(m, "kind", "");
    const uint32_t dim = truth_number(m, "dim", 0), layers = truth_number(m, "layers", 0),
                   heads = truth_number(m, "heads", 0), vocab = truth_number(m, "vocab", 0);
    if (strcmp(kind, "llama") == 0)
        return json_pack("{ss si si si si si si sb}", "model_type", "llama", "hidden_size", dim,
                         "num_hidden_layers", layers, "num_attention_heads", heads,
                         "num_key_value_heads", truth_number(m, "kv_heads", heads),
                         "intermediate_size", truth_number(m, "ffn", 0), "vocab_size", vocab,
                         "tie_word_embeddings", truth_bool(m, "tied", false));
    if (strcmp(kind, "gpt2") == 0)
        return json_pack("{ss si si si si si sb}", "model_type", "gpt2", "n_embd", dim, "n_layer",
                         layers, "n_head", heads, "vocab_size", vocab, "n_positions",
                         truth_number(m, "seq", 0), "tie_word_embeddings",
                         truth_bool(m, "tied", true));
    return json_pack("{ss si si si}", "model_type", "fsdp2-tutorial", "hidden_size", dim,
                     "num_hidden_layers", layers, "vocab_size", vocab);
}

/* ---- the strategy, as options ---- */

static void add_optimizer(struct line *line, const json_t *s)
{
    const char *name = truth_text(s, "optimizer", "adamw_foreach");
    const char *impl = strchr(name, '_');
    add(line, " --optimizer %.*s", impl ? (int)(impl - name) : (int)strlen(name), name);
    if (impl)
        add(line, " --optimizer-impl %s", impl + 1);
}

static void add_fsdp2(struct line *line, const json_t *s)
{
    const char *units = truth_text(s, "units", "blocks+root");
    if (json_object_get(s, "blocks_per_unit"))
        option(line, s, "blocks_per_unit", "units", NULL);
    else
        add(line, " --units %s", strcmp(units, "blocks+root") == 0 ? "blocks" : units);
    option(line, s, "reshard", "reshard", NULL);
    option(line, s, "forward_prefetch", "forward-prefetch", NULL);
    option(line, s, "backward_prefetch", "backward-prefetch", NULL);
}

static void add_fsdp1(struct line *line, const json_t *s)
{
    const char *wrap = truth_text(s, "wrap", "");
    if (strcmp(wrap, "titan") == 0)
        add(line, " --units torchtitan");
    else
        option(line, s, "wrap", "units", NULL);
    option(line, s, "sharding", "sharding", NULL);
    if (json_object_get(s, "backward_prefetch"))
        option(line, s, "backward_prefetch", "backward-prefetch", "none");
    add(line, " --forward-prefetch %d", truth_bool(s, "forward_prefetch", false));
    option(line, s, "use_orig_params", "use-orig-params", NULL);
    option(line, s, "limit_all_gathers", "limit-all-gathers", NULL);
    option(line, s, "keep_low_precision_grads", "keep-low-precision-grads", NULL);
}

static void add_ddp(struct line *line, const json_t *s)
{
    option(line, s, "gradient_as_bucket_view", "gradient-as-bucket-view", NULL);
    option(line, s, "static_graph", "static-graph", NULL);
    option(line, s, "bucket_cap_mb", "bucket-cap-mb", NULL);
    option(line, s, "comm_hook", "comm-hook", NULL);
    option(line, s, "zero_redundancy", "zero-redundancy", NULL);
}

/* What is not a key of zero_optimization is an option of its own. DeepSpeed 0.19 clips unless its
 * configuration says 0. */
static void add_zero(struct line *line, const json_t *s)
{
    static const char *const others[] = {"system", "world",     "rank", "accumulate",
                                         "clip",   "optimizer", "ac",   "param_dtype",
                                         "stage",  "no_sync"};
    json_t *zero = json_copy((json_t *)(uintptr_t)s);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        json_object_del(zero, others[i]);
    assert_int_equal(json_dump_file(zero, path_of("b.json"), 0), 0);
    json_decref(zero);
    option(line, s, "param_dtype", "param-dtype", NULL);
    add(line, " --clip 1 --zero %s", path_of("b.json"));
}

static void add_strategy(struct line *line, const json_t *s)
{
    const char *system = truth_text(s, "system", "fsdp2");
    const bool zero = strcmp(system, "deepspeed") == 0, ddp = strcmp(system, "ddp") == 0;
    if (zero)
        add(line, " --strategy zero%u", truth_number(s, "stage", 0));
    else
        add(line, " --strategy %s", system);
    option(line, s, "world", "gpus", NULL);
    option(line, s, "rank", "rank", NULL);
    option(line, s, "accumulate", "accumulate", NULL);
    if (json_object_get(s, "no_sync"))
        add(line, " --accumulate-sync %s", truth_bool(s, "no_sync", true) ? "last" : "each");
    option(line, s, "ac", "checkpointing", NULL);
    option(line, s, "replicate", "replicate", NULL);
    option(line, s, "store_dtype", "store-dtype", NULL);
    option(line, s, "autocast", "autocast", NULL);
    option(line, s, "outputs", "outputs", NULL);
    add_optimizer(line, s);
    if (zero) {
        add_zero(line, s);
        return;
    }
    if (truth_bool(s, "clip", false))
        add(line, " --clip 1.0");
    if (ddp) {
        add_ddp(line, s);
        return;
    }
    option(line, s, "param_dtype", "param-dtype", "same");
    option(line, s, "reduce_dtype", "reduce-dtype", "same");
    if (strcmp(system, "fsdp1") == 0)
        add_fsdp1(line, s);
    else
        add_fsdp2(line, s);
}

/* ---- beside the row ---- */

static void expect_equal(const char *name, const char *what, const json_t *ours,
                         const json_t *theirs)
{
    if (!json_is_null(theirs) && !json_equal(ours, theirs))
        fail_msg("%s: %s: %" JSON_INTEGER_FORMAT ", recorded %" JSON_INTEGER_FORMAT, name, what,
                 json_integer_value(ours), json_integer_value(theirs));
}

static void expect_all(const char *name, const json_t *ours, const json_t *theirs)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)theirs, key, value)
    {
        expect_equal(name, key, json_object_get(ours, key), value);
    }
}

/* Bytes and order; names are held to recordings elsewhere (test_truth*.c). */
static void expect_events(const char *name, const json_t *list)
{
    FILE *file = fopen(path_of("a.json"), "r");
    char *line = NULL;
    size_t size = 0, next = 0;
    assert_non_null(file);
    for (; getline(&line, &size, file) > 0; next++) {
        json_t *event = truth_row(line);
        if (!json_equal(json_array_get(event, 0), json_array_get(json_array_get(list, next), 0)))
            fail_msg("%s: event %zu: %s", name, next, line);
        json_decref(event);
    }
    assert_int_equal(next, json_array_size(list));
    free(line);
    fclose(file);
}

static void check_row(const json_t *row)
{
    const char *name = truth_text(row, "name", "");
    const json_t *m = json_object_get(row, "model"), *list = json_object_get(row, "event_list");
    struct line line = {.used = 0};
    json_t *config = config_of(m);
    assert_int_equal(json_dump_file(config, path_of("a.json"), 0), 0);
    json_decref(config);
    add(&line, "^/shardplan fit %s --json --autograd recorded", path_of("a.json"));
    option(&line, m, "seq", "seq", NULL);
    option(&line, m, "batch", "micro-batch", NULL);
    add_strategy(&line, json_object_get(row, "strategy"));
    if (list) /* the model is read before they are written */
        add(&line, " --events %s", path_of("a.json"));
    const int status = shell("%s 2>&1", line.text);
    if (status > 1)
        fail_msg("%s: exit %d: %s\n%s", name, status, program_output(), line.text);
    json_t *said = program_object();
    expect_equal(name, "parameters", json_object_get(json_object_get(said, "model"), "parameters"),
                 json_object_get(row, "parameters"));
    expect_equal(name, "peak", json_object_get(json_object_get(said, "peak"), "requested_bytes"),
                 json_object_get(row, "peak_bytes"));
    expect_all(name, json_object_get(said, "live"), json_object_get(row, "live"));
    expect_all(name, json_object_get(said, "segment_peaks"), json_object_get(row, "segment_peaks"));
    json_decref(said);
    if (list)
        expect_events(name, list);
}

static void check_file(const char *path, size_t rows)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0, read = 0;
    assert_non_null(file);
    for (; getline(&text, &size, file) > 0; read++) {
        json_t *row = json_loads(text, 0, NULL);
        check_row(row);
        json_decref(row);
    }
    assert_int_equal(read, rows);
    free(text);
    fclose(file);
}

static void rows_of_fsdp2_are_pytorchs(void **state)
{
    (void)state;
    check_file("tests/data/truth/events.jsonl", 5);
    check_file("tests/data/truth/visible.jsonl", 48);
}

static void rows_of_the_other_systems_are_theirs(void **state)
{
    (void)state;
    check_file("tests/data/truth/systems_events.jsonl", 6);
    check_file("tests/data/truth/systems_visible.jsonl", 62);
}

static int make_folder(void **state)
{
    (void)state;
    return temp_folder_make("truth");
}

static int remove_folder(void **state)
{
    (void)state;
    return temp_folder_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_fsdp2_are_pytorchs),
        cmocka_unit_test(rows_of_the_other_systems_are_theirs),
    };
    return cmocka_run_group_tests_name("truth, by the command line", tests, make_folder,
                                       remove_folder);
}
