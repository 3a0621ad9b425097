/* test_export.c - settings as frameworks' files, and back: what was written gives the same
 * settings, what a framework cannot say is refused. */
#include "frameworks/export.h"
#include "frameworks/import.h"
#include "job/predict.h"
#include "settings/settings_resolve.h"
#include "tests/support/soak.h"

#include <gsl/gsl_rng.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(list) (sizeof(list) / sizeof(list)[0])
#define TOY "tests/data/configs/toy-llama"

static const struct {
    const char *name, *path;
    enum document_syntax syntax;
} targets[] = {
    {"fsdp2", "x.py", SYNTAX_PYTHON},
    {"torchtitan", "x.toml", SYNTAX_TOML},
    {"accelerate", "x.yaml", SYNTAX_YAML},
    {"deepspeed", "x.json", SYNTAX_JSON},
};

static struct arena texts; /* settings lend theirs */

static int drop_texts(void **state)
{
    (void)state;
    arena_free(&texts);
    return 0;
}

static void set_all(struct settings *settings, char *options)
{
    char *rest;
    struct err err = {0};
    for (char *name = strtok_r(options, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        if (settings_set(settings, name, strtok_r(NULL, " ", &rest), &err) != ERR_OK)
            fail_msg("%s", err.text);
}

/* A text that differs in nothing that was set. */
static void expect_same(const struct settings *a, const struct settings *b, const char *text)
{
    char difference[512];
    if (*settings_difference(a, b, difference, sizeof difference) ||
        *settings_difference(b, a, difference, sizeof difference))
        fail_msg("%s\ncame back with %s", text, difference);
}

static void import_back(size_t target, const char *text, enum command command, struct settings *out,
                        struct import *import)
{
    struct document document;
    struct err err = {0};
    settings_defaults(out, command);
    if (document_parse(targets[target].path, targets[target].syntax, text, NULL, &document, &err) !=
            ERR_OK ||
        import_document(import, out, &document, NULL, 0, &err) != ERR_OK)
        fail_msg("%s\n%s", text, err.text);
}

/* The plan of settings; NULL: they do not go together. */
static struct plan *plan_of(const struct settings *settings, struct prediction *prediction)
{
    struct settings own = *settings;
    struct job job;
    struct machine machine;
    if (settings_resolve(&own, &job, &machine, NULL) != ERR_OK)
        return NULL;
    const enum err_code rc = predict(&job, &machine, prediction, NULL);
    profile_free(&machine.profile);
    return rc == ERR_OK ? prediction->plan : NULL;
}

/* ---- there and back ---- */

/* A value for each setting that a search may choose, and for those that make up a batch. */
static void draw(struct settings *settings, gsl_rng *rng)
{
    static const struct {
        const char *name, *values[6];
    } more[] = {
        {"gpus", {"8", "16", "4", "12"}},
        {"code", {"torchtitan", "hf"}},
        {"seq", {"128", "64", "32"}},
        {"micro-batch", {"1", "2", "3"}},
        {"accumulate", {"1", "2", "4"}},
        {"gpus-per-node", {"8", "4", "2"}},
        {"clip", {"off", "1", "0.25"}},
        {"optimizer", {"adamw", "sgd"}},
        {"freeze", {NULL, NULL, "*norm*"}},
        {"rank", {"0", "1"}},
        {"gpu", {"h100-sxm", "a100-sxm-80gb"}},
        {"profile", {NULL, NULL, "my profile.json"}},
        {"bucket-cap-mb", {NULL, "100", "50"}},
        {"compile", {NULL, NULL, "off", "on"}},
        {"loss", {NULL, NULL, "eager", "compiled"}},
        {"float8", {NULL, NULL, "none", "tensorwise", "rowwise"}},
        {"float8-gather", {NULL, NULL, "off", "dynamic", "precomputed"}},
        {"units", {NULL, NULL, NULL, NULL, "1000000"}}, /* blocks of FSDP2's: one unit of all */
    };
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        char value[NUMBER_TEXT];
        uint32_t values = 0;
        if (!setting_is_of(&rows[i], COMMAND_PLAN) || strcmp(rows[i].name, "strategy") == 0 ||
            !setting_suits(&rows[i], settings->job.strategy.system))
            continue;
        while (setting_axis_value(&rows[i], values, value))
            values++;
        if (values && gsl_rng_uniform_int(rng, 3) == 0) { /* most stay at their defaults */
            setting_axis_value(&rows[i], (uint32_t)gsl_rng_uniform_int(rng, values), value);
            setting_write(&rows[i], settings, arena_strdup(&texts, value), NULL);
        }
    }
    for (size_t i = 0; i < COUNT(more); i++) {
        uint32_t values = 0;
        while (values < 6 && (values < 2 || more[i].values[values]))
            values++;
        const char *value = more[i].values[gsl_rng_uniform_int(rng, values)];
        if (value && settings_find(settings, more[i].name, NULL))
            assert_int_equal(settings_set(settings, more[i].name, value, NULL), ERR_OK);
    }
    if (settings->job.strategy.world % settings->job.strategy.replicate != 0)
        settings->job.strategy.replicate = 1; /* there is no such mesh */
    if (settings->job.model.float8 != FLOAT8_TENSORWISE)
        settings->job.model.float8_gather = FLOAT8_GATHER_NOT; /* nor such weights */
}

/* What a target has no word for: so that many draws can be said. */
static const struct way {
    size_t target;
    enum system_kind system;
    const char *fixed;
} ways[] = {
    {0, SYSTEM_FSDP2, ""},
    {1, SYSTEM_FSDP2,
     "code torchtitan units torchtitan accumulate-sync each param-dtype bf16 reduce-dtype fp32 "
     "store-dtype fp32 clip 1 forward-prefetch 0 backward-prefetch 0"},
    {1, SYSTEM_DDP,
     "code torchtitan accumulate-sync each bucket-cap-mb 100 gradient-as-bucket-view off "
     "static-graph off comm-hook none find-unused-parameters off broadcast-buffers on "
     "zero-redundancy none store-dtype fp32 clip 1"},
    {2, SYSTEM_FSDP2,
     "units torchtitan param-dtype bf16 reduce-dtype bf16 store-dtype fp32 forward-prefetch 0 "
     "backward-prefetch 0"},
    {2, SYSTEM_FSDP1,
     "param-dtype bf16 reduce-dtype bf16 store-dtype fp32 autocast bf16 outputs fp32 "
     "limit-all-gathers on keep-low-precision-grads off"},
    {2, SYSTEM_DDP, "autocast bf16 outputs fp32"},
    {2, SYSTEM_ZERO2, ""},
    {2, SYSTEM_ZERO3, ""},
    {3, SYSTEM_ZERO1, ""},
    {3, SYSTEM_ZERO2, ""},
    {3, SYSTEM_ZERO3, ""},
};

static void draw_for(const struct way *way, struct settings *settings, gsl_rng *rng)
{
    char options[512];
    draw(settings, rng);
    snprintf(options, sizeof options, "%s", way->fixed);
    set_all(settings, arena_strdup(&texts, options));
}

struct tally {
    uint32_t said, refused, changed;
    const char *why; /* was the last refused */
};

/* What a refusal says can be exported is. */
static void try_change(size_t target, const struct settings *settings, const char *refusal,
                       struct tally *tally)
{
    static const char before[] = ": plan with ", after[] = " instead";
    const char *begin = strstr(refusal, before), *end = begin ? strstr(begin, after) : NULL;
    struct exported exported;
    struct err err = {0};
    if (!end || target == 0)
        return;
    begin += sizeof before - 1;
    struct settings changed = *settings;
    set_all(&changed, arena_printf(&texts, "%.*s", (int)(end - begin), begin));
    if (export_plan(&changed, NULL, targets[target].name, &exported, &err) != ERR_OK)
        fail_msg("%s\n%s", refusal, err.text);
    export_free(&exported);
    tally->changed++;
}

static void expect_silent(const struct import *import, const char *text)
{
    for (uint32_t i = 0; i < import->note_count; i++)
        if (import->notes[i].kind == NOTE_UNKNOWN || import->notes[i].kind == NOTE_UNPLANNED ||
            import->notes[i].kind == NOTE_OVERRIDDEN)
            fail_msg("%s\nlists %s", text, import->notes[i].key);
}

/* Commands that have fewer settings than `plan`, of which the file is: --init is its alone. */
static void read_by_others(size_t target, const char *text)
{
    static const enum command others[] = {COMMAND_FIT, COMMAND_SWEEP, COMMAND_TUNE};
    for (size_t i = 0; i < COUNT(others); i++) {
        struct settings settings;
        struct import import = {.note_count = 0};
        import_back(target, text, others[i], &settings, &import);
        expect_silent(&import, text);
        assert_null(settings.unplanned);
        import_free(&import);
    }
}

static void round_trip(size_t target, const struct settings *settings, struct tally *tally)
{
    struct exported exported;
    struct prediction prediction = {.plan = NULL};
    struct err err = {0};
    const struct plan *plan = NULL;
    if (target == 0 && !(plan = plan_of(settings, &prediction)))
        return;
    const enum err_code rc = export_plan(settings, plan, targets[target].name, &exported, &err);
    if (rc == ERR_OK) {
        struct settings back;
        struct import import = {.note_count = 0};
        import_back(target, exported.text, COMMAND_PLAN, &back, &import);
        back.zero = settings->zero; /* the file itself */
        expect_same(settings, &back, exported.text);
        expect_silent(&import, exported.text);
        import_free(&import);
        read_by_others(target, exported.text);
        tally->said++;
    } else {
        if (rc != ERR_UNSUPPORTED || !strstr(err.text, "cannot say --"))
            fail_msg("%s", err.text);
        tally->why = arena_strdup(&texts, err.text);
        tally->refused++;
        try_change(target, settings, err.text, tally);
    }
    export_free(&exported);
    if (plan)
        prediction_free(&prediction);
}

static void what_is_written_comes_back(void **state)
{
    enum { SAID = 40, SOAK_SAID = 400, TRIES = 30 };
    const uint32_t said = is_soak() ? SOAK_SAID : SAID;
    (void)state;
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    for (size_t w = 0; w < COUNT(ways); w++) {
        struct tally tally = {.why = ""};
        for (int i = 0; (uint32_t)i < TRIES * said && tally.said < said; i++) {
            struct settings settings;
            settings_defaults(&settings, COMMAND_PLAN);
            settings.job.strategy.system = ways[w].system;
            settings_set(&settings, "model", i % 2 && ways[w].target ? "llama-3.1-8b" : TOY, NULL);
            draw_for(&ways[w], &settings, rng);
            round_trip(ways[w].target, &settings, &tally);
        }
        print_message("%s, %s: %u written and read back, %u refused, %u of them with what to "
                      "change, the last: %s\n",
                      targets[ways[w].target].name, system_name(ways[w].system), tally.said,
                      tally.refused, tally.changed, tally.why);
        assert_int_equal(tally.said, said);
        assert_true(!ways[w].target || tally.changed > tally.refused / 2);
    }
    gsl_rng_free(rng);
}

/* What nobody chose is said, too: by keys, or by what the script has to do. */
static void defaults_are_written(void **state)
{
    (void)state;
    static const struct {
        enum system_kind system;
        size_t target;
        const char *options;
    } cases[] = {
        {SYSTEM_FSDP2, 0, ""},
        {SYSTEM_FSDP1, 2, " autocast bf16 outputs fp32"},
        {SYSTEM_DDP, 2, ""},
        {SYSTEM_ZERO1, 3, ""},
        {SYSTEM_ZERO2, 3, ""},
        {SYSTEM_ZERO3, 3, ""},
        {SYSTEM_FSDP1, 2, " store-dtype bf16"},
    };
    struct tally tally = {.why = ""};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct settings settings;
        settings_defaults(&settings, COMMAND_PLAN);
        settings.job.strategy.system = cases[i].system;
        set_all(&settings,
                arena_printf(&texts, "gpus 4 seq 128 code hf gpu h100-sxm%s", cases[i].options));
        settings_set(&settings, "model", TOY, NULL);
        round_trip(cases[i].target, &settings, &tally);
        if (tally.refused)
            fail_msg("%s: %s", system_name(cases[i].system), tally.why);
    }
    assert_int_equal(tally.said, COUNT(cases));
}

/* ---- what cannot be said ---- */

static void refuse(const char *target, const char *options, const char *message)
{
    struct settings settings;
    struct exported exported;
    struct err err = {0};
    settings_defaults(&settings, COMMAND_PLAN);
    settings_set(&settings, "seq", "512", NULL); /* as in a plan, where all is resolved */
    settings_set(&settings, "code", strcmp(target, "torchtitan") == 0 ? target : "hf", NULL);
    set_all(&settings, arena_strdup(&texts, options));
    assert_int_equal(export_plan(&settings, NULL, target, &exported, &err), ERR_UNSUPPORTED);
    if (!strstr(err.text, message))
        fail_msg("%s", err.text);
    export_free(&exported);
}

static void what_cannot_be_said_is_refused(void **state)
{
    (void)state;
    refuse("torchtitan", "model llama-3.1-8b units torchtitan clip 1 reshard 4",
           "torchtitan cannot say --reshard 4 (it would be default)");
    refuse("torchtitan", "model llama-3.1-8b units torchtitan clip 1 reduce-dtype bf16",
           "--reduce-dtype bf16 (it would be fp32)");
    refuse("torchtitan", "model llama-3.1-8b units torchtitan", "--clip off (it would be 1)");
    refuse("torchtitan", "model llama-3.1-8b clip 1 accumulate 2 units torchtitan",
           "--accumulate-sync last (it would be each)");
    refuse("torchtitan", "model llama-3.1-8b clip 1", "--units blocks (it would be torchtitan)");
    refuse("accelerate", "strategy fsdp1 model llama-3.1-8b",
           "accelerate cannot say --autocast none (it would be bf16), --outputs same (it would be "
           "fp32): plan with --autocast bf16 --outputs fp32 instead");
    refuse("accelerate", "strategy ddp model llama-3.1-8b autocast bf16",
           "--outputs same (it would be fp32)");
    refuse("accelerate", "model llama-3.1-8b",
           "accelerate cannot say --units blocks: plan with --units torchtitan instead, or export "
           "--to fsdp2, which says all");
    refuse("accelerate", "model llama-3.1-8b units torchtitan reshard 4",
           "accelerate cannot say --reshard 4 (it would be default)");
    refuse("accelerate",
           "model llama-3.1-8b units torchtitan reduce-dtype bf16 checkpointing selective",
           "--checkpointing selective");
    refuse(
        "torchtitan",
        "model llama-3.1-8b units torchtitan clip 1 checkpointing full checkpoint-blocks first-4",
        "--checkpoint-blocks first-4 (it would be all)");
    refuse("torchtitan",
           "model llama-3.1-8b units torchtitan clip 1 checkpointing selective checkpoint-blocks "
           "every-2",
           "--checkpoint-blocks every-2 (it would be all)");
    refuse("accelerate",
           "model llama-3.1-8b units torchtitan reduce-dtype bf16 checkpointing full "
           "checkpoint-blocks every-2",
           "--checkpoint-blocks every-2 (it would be all)");
    refuse("accelerate", "model llama-3.1-8b units torchtitan reduce-dtype bf16 forward-prefetch 2",
           "--forward-prefetch 2 (it would be 0)");
    refuse(
        "accelerate",
        "model llama-3.1-8b units torchtitan store-dtype bf16 param-dtype fp16 reduce-dtype fp16",
        "--store-dtype bf16 (it would be fp32)");
    refuse("fsdp2", "strategy ddp model gpt2",
           "fsdp2 does not run ddp; these do: torchtitan, "
           "accelerate");
    refuse("deepspeed", "model gpt2", "deepspeed does not run fsdp2");
}

/* ---- what the script has to say ---- */

static void the_script_is_told_what_no_key_says(void **state)
{
    (void)state;
    struct settings settings;
    struct exported exported;
    struct err err = {0};
    bool batch = false, clip = false;
    settings_defaults(&settings, COMMAND_PLAN);
    set_all(&settings,
            arena_strdup(&texts, "model llama-3.1-8b code hf units torchtitan reduce-dtype bf16 "
                                 "micro-batch 3 clip 0.5 gpu h200"));
    if (export_plan(&settings, NULL, "accelerate", &exported, &err) != ERR_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < exported.script_count; i++) {
        batch = batch || strcmp(exported.script[i], "DataLoader(batch_size=3)") == 0;
        clip = clip || strstr(exported.script[i], "clip_grad_norm_");
        assert_non_null(strstr(exported.text, exported.script[i])); /* as a comment, too */
    }
    assert_true(batch && clip);
    assert_non_null(strstr(exported.text, "# shardplan: llama-3.1-8b --micro-batch 3 --gpu "
                                          "h200 --clip 0.5\n"));
    assert_non_null(strstr(exported.text, "fsdp_version: 2\n"));
    export_free(&exported);
}

/* DeepSpeed runs what this version may not plan yet: its keys are written all the same. */
static void deepspeeds_keys_are_written(void **state)
{
    (void)state;
    struct settings settings;
    struct exported exported;
    struct err err = {0};
    settings_defaults(&settings, COMMAND_PLAN);
    settings.job.strategy.system = SYSTEM_ZERO3;
    set_all(&settings,
            arena_strdup(&texts,
                         "model llama-3.1-8b code hf gpus 8 micro-batch 2 accumulate 4 clip "
                         "0.5 optimizer-impl fused"));
    const enum err_code rc = export_plan(&settings, NULL, "deepspeed", &exported, &err);
    if (!system_is_planned(SYSTEM_ZERO3)) {
        assert_int_equal(rc, ERR_INVALID);
        assert_non_null(strstr(err.text, "--strategy zero3: allowed are"));
    } else {
        assert_int_equal(rc, ERR_OK);
        assert_non_null(strstr(exported.text, "\"train_batch_size\": 64"));
        assert_non_null(strstr(exported.text, "\"stage\": 3"));
    }
    export_free(&exported);
}

/* ---- the file for FSDP2 ---- */

static void units_have_their_lists(void **state)
{
    (void)state;
    struct settings settings;
    struct exported exported;
    struct prediction prediction;
    struct err err = {0};
    settings_defaults(&settings, COMMAND_PLAN);
    set_all(&settings,
            arena_strdup(&texts, "model " TOY " seq 128 gpus 4 units torchtitan forward-prefetch 2 "
                                 "backward-prefetch 1"));
    const struct plan *plan = plan_of(&settings, &prediction);
    assert_non_null(plan);
    assert_int_equal(export_plan(&settings, plan, "fsdp2", &exported, &err), ERR_OK);
    static const char units[] = "UNITS = [\n"
                                "    ([\"tok_embeddings\"], None, [], []),\n"
                                "    ([\"layers.0\"], None, [\"layers.1\", \"layers.2\"], []),\n"
                                "    ([\"layers.1\"], None, [\"layers.2\"], [\"layers.0\"]),\n"
                                "    ([\"layers.2\"], None, [], [\"layers.1\"]),\n"
                                "    ([\"norm\", \"output\"], False, [], []),\n"
                                "    ([\"\"], None, [], []),\n"
                                "]\n";
    if (!strstr(exported.text, units))
        fail_msg("%s", exported.text);
    assert_non_null(strstr(exported.text, "PRESERVE_RNG_STATE = False\n"));
    export_free(&exported);
    prediction_free(&prediction);
}

/* MixedPrecisionPolicy without a reduce_dtype means another one since torch 2.15. */
static void reductions_keep_their_dtype_under_any_version(void **state)
{
    static const struct {
        const char *torch, *line;
    } cases[] = {{"2.14", "\"reduce_dtype\": \"bf16\""}, {"2.15", "\"reduce_dtype\": \"fp32\""}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct settings settings;
        struct exported exported;
        struct prediction prediction;
        struct err err = {0};
        settings_defaults(&settings, COMMAND_PLAN);
        set_all(&settings, arena_strdup(&texts, "model " TOY " seq 128 gpus 4 param-dtype bf16 "
                                                "reduce-dtype same"));
        settings_set(&settings, "torch", cases[i].torch, NULL);
        const struct plan *plan = plan_of(&settings, &prediction);
        assert_non_null(plan);
        assert_int_equal(export_plan(&settings, plan, "fsdp2", &exported, &err), ERR_OK);
        if (!strstr(exported.text, cases[i].line))
            fail_msg("torch %s: %s", cases[i].torch, exported.text);
        export_free(&exported);
        prediction_free(&prediction);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_comes_back),
        cmocka_unit_test(defaults_are_written),
        cmocka_unit_test(what_cannot_be_said_is_refused),
        cmocka_unit_test(the_script_is_told_what_no_key_says),
        cmocka_unit_test(deepspeeds_keys_are_written),
        cmocka_unit_test(units_have_their_lists),
        cmocka_unit_test(reductions_keep_their_dtype_under_any_version),
    };
    return cmocka_run_group_tests_name("export", tests, NULL, drop_texts);
}
