/* test_remedy.c - what is said of remedies: what they change of what is trained, how much room they
 * leave, and in whose words they can be; and that what fits is among what they are chosen from. */
#include "families/families.h"
#include "search/candidates.h"
#include "search/changed.h"
#include "search/numerics.h"
#include "search/remedy.h"
#include "settings/settings_resolve.h"
#include "tests/support/soak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void set(struct settings *s, const char *name, const char *value)
{
    struct err err = {0};
    if (settings_set(s, name, value, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

/* As many parameters in fewer layers: what is searched is the same, and each try takes a part of
 * the time. Presets are `make soak`'s. */
#define WIDE "tests/data/configs/wide-llama"   /* 9 billion in 8 layers */
#define WIDER "tests/data/configs/wider-llama" /* 54 billion in 16 layers */

static struct settings settings_of(const char *strategy)
{
    struct settings s;
    settings_defaults(&s, COMMAND_FIT);
    set(&s, "model", "llama-3.1-8b");
    set(&s, "strategy", strategy);
    set(&s, "gpus", "8");
    set(&s, "seq", "8192");
    return s;
}

static struct settings wide_of(const char *strategy)
{
    struct settings s = settings_of(strategy);
    if (!is_soak())
        set(&s, "model", WIDE);
    return s;
}

static void assert_differ(const struct settings *from, const struct settings *to, const char *said)
{
    struct model_config config;
    struct err err = {0};
    char text[NUMERICS_TEXT];
    assert_int_equal(model_find("llama-3.1-8b", &config, &err), ERR_OK);
    assert_string_equal(numerics_difference(from, to, &config, text), said);
    model_release(&config);
}

static void dtypes_are_compared_across_systems(void **state)
{
    const struct settings fsdp2 = settings_of("fsdp2"), zero3 = settings_of("zero3");
    const struct settings ddp = settings_of("ddp"), fsdp1 = settings_of("fsdp1");
    (void)state;
    assert_differ(&fsdp2, &fsdp2, "");
    assert_differ(&fsdp2, &fsdp1, "");
    assert_differ(&fsdp2, &zero3, "reduces in bf16 instead of fp32");
    assert_differ(&zero3, &fsdp2, "reduces in fp32 instead of bf16");
    assert_differ(&ddp, &zero3,
                  "computes in bf16 instead of fp32, reduces in bf16 instead of fp32");
    struct settings changed = fsdp2;
    set(&changed, "reduce-dtype", "bf16");
    assert_differ(&changed, &zero3, "");
    set(&changed, "store-dtype", "bf16");
    assert_differ(&fsdp2, &changed, "reduces in bf16 instead of fp32, stores bf16 instead of fp32");
    changed = zero3;
    set(&changed, "grad-accum-dtype", "fp32");
    assert_differ(&changed, &fsdp2, "reduces in fp32 instead of bf16, no --grad-accum-dtype fp32");
    changed = ddp;
    set(&changed, "autocast", "bf16");
    assert_differ(&fsdp2, &changed,
                  "computes in fp32 parameters with bf16 autocast instead of bf16 parameters");
    assert_differ(&ddp, &changed,
                  "computes in fp32 parameters with bf16 autocast instead of fp32 parameters");
    assert_differ(&changed, &changed, "");
}

static void other_settings_of_numerics_are_named(void **state)
{
    const struct settings ddp = settings_of("ddp"), fsdp2 = settings_of("fsdp2");
    struct settings hooked = ddp, split = fsdp2;
    (void)state;
    set(&hooked, "comm-hook", "bf16_compress");
    assert_differ(&ddp, &hooked, "--comm-hook bf16_compress");
    assert_differ(&hooked, &ddp, "--comm-hook none");
    set(&split, "micro-batch", "2"); /* a step's tokens are another matter */
    set(&split, "accumulate", "4");
    assert_differ(&fsdp2, &split, "");
}

/* ---- remedies ---- */

static uint32_t find(struct settings *settings, const struct space_options *said,
                     struct remedy found[REMEDIES], uint64_t *capacity)
{
    struct job job;
    struct machine machine;
    struct err err = {0};
    uint32_t count;
    assert_int_equal(settings_resolve(settings, &job, &machine, &err), ERR_OK);
    *capacity = profile_bytes(&machine.profile, PROFILE_CAPACITY);
    if (said) {
        struct pool *pool = pool_new(1);
        count = remedies_within(settings, &job.config, &machine, *capacity, said, pool,
                                (struct remedy_progress){NULL, NULL}, found);
        pool_free(pool);
    } else {
        count = remedies_find(settings, &job.config, &machine, (struct remedy_progress){NULL, NULL},
                              found);
    }
    settings_release(&job, &machine);
    return count;
}

/* Makes of settings what a remedy's words do. */
static void change(struct settings *s, const struct remedy *r)
{
    char words[sizeof r->change];
    memcpy(words, r->change, sizeof words);
    for (char *at = strtok(words, " "); at; at = strtok(NULL, " "))
        set(s, at + strlen("--"), strtok(NULL, " "));
}

/* How many times the tokens of a step a remedy has, by its own words. */
static double batch_of(const struct settings *asked, const struct remedy *r)
{
    struct settings s = *asked;
    char change[sizeof r->change];
    memcpy(change, r->change, sizeof change);
    for (char *at = strtok(change, " "); at; at = strtok(NULL, " ")) {
        const char *value = strtok(NULL, " ");
        if (strcmp(at, "--gpus") == 0 || strcmp(at, "--micro-batch") == 0 ||
            strcmp(at, "--accumulate") == 0)
            set(&s, at, value);
    }
    return (double)s.job.model.batch * s.job.strategy.accumulate * s.job.strategy.world /
           ((double)asked->job.model.batch * asked->job.strategy.accumulate *
            asked->job.strategy.world);
}

/* 0: on the GPUs that were asked for; 1: in other dtypes; 2: on more. */
static int kind_of(const struct settings *asked, const struct remedy *r)
{
    return r->gpus > asked->job.strategy.world ? 2 : r->changes_numerics;
}

/* Than one on the GPUs that were asked for, or of its own kind; but what is told in any case. */
static bool no_better(const struct settings *asked, const struct remedy *a, const struct remedy *b)
{
    return !a->asked_for && (kind_of(asked, b) == 0 || kind_of(asked, a) == kind_of(asked, b)) &&
           a->tokens_per_s <= b->tokens_per_s && a->device_bytes >= b->device_bytes &&
           a->changes >= b->changes && a->gpus >= b->gpus &&
           a->changes_numerics >= b->changes_numerics;
}

/* Those that train the same first; the fastest first, but of two that are as fast to a hundredth
 * that of fewer changes. */
static bool in_order(const struct remedy *a, const struct remedy *b)
{
    if (a->changes_numerics != b->changes_numerics)
        return b->changes_numerics;
    return a->tokens_per_s >= b->tokens_per_s ||
           (a->tokens_per_s >= 0.99 * b->tokens_per_s && a->changes < b->changes);
}

static const struct remedy *remedy_of(const struct remedy *found, uint32_t count,
                                      const char *change)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(found[i].change, change) == 0)
            return &found[i];
    return NULL;
}

/* By itself, and so that the same is trained. */
static void assert_proposed(const struct remedy *found, uint32_t count, const char *change,
                            uint64_t capacity)
{
    const struct remedy *proposed = remedy_of(found, count, change);
    assert_non_null(proposed);
    assert_true(proposed->changes == 1 && proposed->device_bytes <= capacity);
    assert_false(proposed->changes_numerics);
}

/* Of the same model on few GPUs and with two sequences: what is listed fits, in order, none for
 * nothing, and what it costs is said. */
static void remedies_are_worth_telling(void **state)
{
    static const char *const asked[][2] = {{"8", "2"}, {"4", "2"}, {"2", "1"}, {"1", "1"}};
    uint32_t tight = 0, more = 0, combined = 0, larger = 0, other = 0;
    (void)state;
    for (size_t c = 0; c < sizeof asked / sizeof asked[0]; c++) {
        struct remedy found[REMEDIES];
        struct settings s = wide_of("fsdp2");
        uint64_t capacity;
        set(&s, "gpus", asked[c][0]);
        set(&s, "micro-batch", asked[c][1]);
        uint32_t count = find(&s, NULL, found, &capacity);
        assert_in_range(count, 1, REMEDIES);
        if (c == 0) /* what saved_views.h proposes */
            assert_proposed(found, count, "--checkpointing full", capacity);
        for (uint32_t i = 0; i < count; i++) {
            const struct remedy *r = &found[i];
            const double free_bytes = (double)capacity - (double)r->device_bytes;
            const bool larger_batch = batch_of(&s, r) != 1;
            assert_true(r->device_bytes <= capacity);
            assert_int_equal(r->tight, free_bytes < RESERVED_ERROR * (double)capacity);
            const int kind = kind_of(&s, r);
            assert_int_equal(kind == 2, strstr(r->change, "--gpus") != NULL);
            if (kind == 1) /* it says which */
                assert_non_null(strstr(r->cost, " instead of "));
            else
                assert_int_equal(r->changes_numerics, larger_batch);
            assert_int_equal(strstr(r->cost, "times the tokens a step") != NULL, larger_batch);
            assert_true(i == 0 || in_order(&found[i - 1], r));
            for (uint32_t k = 0; k < count; k++)
                assert_true(k == i || !no_better(&s, r, &found[k]));
            tight += r->tight;
            more += kind == 2;
            other += kind == 1;
            combined += kind == 2 && r->changes > 1;
            larger += larger_batch;
        }
    }
    assert_true(tight > 0 && more > 0 && combined > 0 && larger > 0 && other > 0);
}

/* Where nothing else fits, what trains otherwise is a remedy, and says so. */
static void other_numerics_are_the_last_resort(void **state)
{
    struct remedy found[REMEDIES];
    struct settings s = settings_of("fsdp2");
    uint64_t capacity;
    (void)state;
    if (is_soak()) {
        set(&s, "model", "llama-3.1-405b");
    } else {
        set(&s, "model", WIDER);
        set(&s, "gpus", "1");
        set(&s, "gpu", "a100-sxm-40gb");
        set(&s, "host-memory", "900GiB");
    }
    const uint32_t count = find(&s, NULL, found, &capacity);
    assert_in_range(count, 1, REMEDIES);
    for (uint32_t i = 0; i < count; i++)
        assert_true(found[i].changes_numerics && found[i].cost[0]);
}

/* What notes say would be less (padding.h, saved_views.h) is a remedy where it fits. */
static void padding_is_done_without(void **state)
{
    struct remedy found[REMEDIES];
    struct settings s = settings_of("fsdp2");
    uint64_t capacity;
    (void)state;
    set(&s, "model", "mixtral-8x7b");
    set(&s, "gpus", "16");
    set(&s, "checkpointing", "full");
    const uint32_t count = find(&s, NULL, found, &capacity);
    assert_proposed(found, count, "--placement columns", capacity);
}

/* Bytes of what a remedy's words say, on so many GPUs, as `fit` has them; 0: it cannot be. */
static uint64_t judged_bytes(const struct settings *asked, const struct remedy *r, uint32_t gpus,
                             bool *after_release)
{
    struct settings s = *asked;
    struct job job;
    struct machine machine;
    char change[sizeof r->change], number[16];
    struct err err = {0};
    memcpy(change, r->change, sizeof change);
    for (char *at = strtok(change, " "); at; at = strtok(NULL, " "))
        set(&s, at, strtok(NULL, " "));
    snprintf(number, sizeof number, "%u", gpus);
    set(&s, "gpus", number);
    assert_int_equal(settings_resolve(&s, &job, &machine, &err), ERR_OK);
    const uint64_t bytes = changed_device_bytes(&s, &job.config, &machine, after_release, &err);
    settings_release(&job, &machine);
    return bytes;
}

/* Bytes of what a remedy's words say, on so many GPUs; UINT64_MAX: it does not fit without giving
 * memory back, or cannot be. */
static uint64_t bytes_of(const struct settings *asked, const struct remedy *r, uint32_t gpus,
                         uint64_t capacity)
{
    bool after_release;
    const uint64_t bytes = judged_bytes(asked, r, gpus, &after_release);
    return bytes && bytes <= capacity && !after_release ? bytes : UINT64_MAX;
}

static const struct remedy *fewest_of(const struct remedy *found, uint32_t count)
{
    const struct remedy *fewest = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (!found[i].offloads && !found[i].recasts && (!fewest || found[i].gpus < fewest->gpus))
            fewest = &found[i];
    return fewest;
}

/* How many GPUs it takes without the host is told, to the node: with a node less what is told does
 * not fit, nor does anything else. */
static void the_fewest_gpus_are_told(void **state)
{
    static const struct {
        const char *model, *gpus, *seq;
        uint32_t fewer; /* a step */
    } cases[] = {
        {WIDER, "8", "8192", 8},
        {WIDE, "1", "2048", 1},
        {"llama-3.1-405b", "8", "2048", 8}, /* these as a soak */
        {"llama-3.1-70b", "8", "4096", 8},
        {"llama-3.1-70b", "4", "2048", 8},
        {"llama-3.1-8b", "1", "2048", 1},
        {"qwen3-32b", "2", "4096", 2},
    };
    enum { USUAL = 2 };
    uint32_t between = 0; /* two powers of two */
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct remedy found[REMEDIES], fewer[REMEDIES];
        struct settings s = settings_of("fsdp2");
        uint64_t capacity;
        char number[16];
        if (i >= USUAL && !is_soak())
            break;
        set(&s, "model", cases[i].model);
        set(&s, "gpus", cases[i].gpus);
        set(&s, "seq", cases[i].seq);
        uint32_t count = find(&s, NULL, found, &capacity);
        const struct remedy *told = fewest_of(found, count);
        assert_non_null(told);
        between += (told->gpus & (told->gpus - 1)) != 0;
        const uint32_t less = told->gpus - cases[i].fewer;
        assert_true(told->gpus > cases[i].fewer && less >= s.job.strategy.world);
        assert_int_equal(bytes_of(&s, told, told->gpus, capacity), told->device_bytes);
        assert_true(bytes_of(&s, told, less, capacity) == UINT64_MAX);
        snprintf(number, sizeof number, "%u", less);
        set(&s, "gpus", number);
        count = find(&s, NULL, fewer, &capacity);
        told = fewest_of(fewer, count);
        assert_true(!told || told->gpus > less);
    }
    assert_true(between > 1);
}

/* What is told can be typed: --gpus has a largest value. */
static void no_more_gpus_are_told_than_can_be_asked_for(void **state)
{
    static const char *const asked[] = {"524288", "262144", "1000000"};
    uint32_t more = 0;
    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct remedy found[REMEDIES];
        struct settings s = wide_of("fsdp2");
        uint64_t capacity;
        if (i == 0 && !is_soak())
            continue;
        const double most = settings_find(&s, "gpus", NULL)->numbers[0].most;
        set(&s, "gpus", asked[i]);
        set(&s, "replicate", i == 2 ? "125000" : "32768");
        set(&s, "micro-batch", "2");
        uint32_t count = find(&s, NULL, found, &capacity);
        assert_in_range(count, 1, REMEDIES);
        for (uint32_t k = 0; k < count; k++) {
            assert_true(found[k].gpus <= most);
            more += found[k].gpus > s.job.strategy.world;
        }
    }
    assert_true(more > 0);
}

/* Of what is refused it is not said that it fits by giving memory back, whatever was there before.
 */
static void what_is_refused_fits_in_no_way(void **state)
{
    struct settings s = settings_of("fsdp2");
    struct job job;
    struct machine machine;
    bool after_release = true;
    struct err err = {0};
    (void)state;
    assert_int_equal(settings_resolve(&s, &job, &machine, &err), ERR_OK);
    set(&s, "replicate", "3"); /* of 8 */
    assert_int_equal(changed_device_bytes(&s, &job.config, &machine, &after_release, &err), 0);
    assert_false(after_release);
    assert_true(err.text[0]);
    settings_release(&job, &machine);
}

/* Somebody who knows no other system, nor checkpointing. */
static enum err_code refuse(void *context, const struct settings *settings,
                            uint64_t rows[SETTINGS_ROW_WORDS], uint64_t idle[SETTINGS_ROW_WORDS],
                            char *list, size_t size, struct err *err)
{
    uint32_t *asked = context, count;
    (void)size;
    const struct setting *all = setting_rows(&count);
    const struct setting *row = settings_find(settings, "checkpointing", NULL);
    const size_t at = (size_t)(row - all);
    ++*asked;
    memset(rows, 0, SETTINGS_MOST_ROWS / 8);
    memset(idle, 0, SETTINGS_MOST_ROWS / 8);
    list[0] = '\0';
    if (settings->job.strategy.system != SYSTEM_FSDP2)
        return err_set(err, ERR_UNSUPPORTED, "what is that?");
    if (settings->job.tape.checkpointing != CHECKPOINTING_NONE) {
        rows[at / 64] |= (uint64_t)1 << at % 64;
        memcpy(list, "cp", 3);
    }
    return ERR_OK;
}

static void remedies_are_in_words_that_are_known(void **state)
{
    struct remedy found[REMEDIES];
    struct settings s = wide_of("fsdp2");
    uint64_t capacity;
    uint32_t asked = 0;
    const struct space_options said = {.refuses = refuse, .reader = "somebody", .context = &asked};
    (void)state;
    set(&s, "micro-batch", "2");
    const uint32_t count = find(&s, &said, found, &capacity);
    assert_in_range(count, 1, REMEDIES);
    assert_true(asked > 0);
    for (uint32_t i = 0; i < count; i++) {
        assert_null(strstr(found[i].change, "--strategy"));
        assert_null(strstr(found[i].change, "--checkpointing"));
    }
}

/* Somebody who knows ZeRO-3 alone, in all its settings. */
static enum err_code refuse_others(void *context, const struct settings *settings,
                                   uint64_t rows[SETTINGS_ROW_WORDS],
                                   uint64_t idle[SETTINGS_ROW_WORDS], char *list, size_t size,
                                   struct err *err)
{
    (void)context;
    (void)size;
    memset(rows, 0, SETTINGS_MOST_ROWS / 8);
    memset(idle, 0, SETTINGS_MOST_ROWS / 8);
    list[0] = '\0';
    return settings->job.strategy.system == SYSTEM_ZERO3
               ? ERR_OK
               : err_set(err, ERR_UNSUPPORTED, "what is that?");
}

/* ZeRO's, as fully_shard's: what leaves the GPU is said to need the host. */
static void zeros_own_offloading_is_a_remedy(void **state)
{
    struct remedy found[REMEDIES];
    struct settings s = settings_of("zero3");
    uint64_t capacity;
    uint32_t offloaded = 0;
    const struct space_options said = {.refuses = refuse_others, .reader = "somebody"};
    (void)state;
    set(&s, "gpu", "a100-sxm-40gb");
    set(&s, "seq", "4096");
    const uint32_t count = find(&s, &said, found, &capacity);
    for (uint32_t i = 0; i < count; i++)
        if (strstr(found[i].change, "--offload ")) {
            assert_non_null(strstr(found[i].cost, " GiB of a host"));
            offloaded += found[i].gpus == 8;
        }
    assert_true(offloaded > 0);
}

/* What waits on the host is counted there, as `fit` counts it, and has to fit. */
static void saved_tensors_have_to_fit_the_host(void **state)
{
    static const char *const job_of[][2] = {
        {"model", "qwen2.5-7b"}, {"code", "hf"},           {"gpus", "1"},  {"gpu", "rtx-4090"},
        {"autocast", "bf16"},    {"frozen-dtype", "bf16"}, {"lora", "16"}, {"seq", "4096"},
    };
    struct remedy found[REMEDIES];
    struct settings s;
    uint64_t capacity, needed = 0;
    (void)state;
    settings_defaults(&s, COMMAND_FIT);
    set(&s, "strategy", "single");
    for (size_t i = 0; i < sizeof job_of / sizeof *job_of; i++)
        set(&s, job_of[i][0], job_of[i][1]);
    const uint32_t count = find(&s, NULL, found, &capacity);
    for (uint32_t i = 0; i < count; i++) {
        if (!strstr(found[i].change, "--activation-offloading on"))
            continue;
        struct settings changed = s;
        struct job job;
        struct machine machine;
        struct prediction p;
        struct err err = {0};
        change(&changed, &found[i]);
        assert_int_equal(settings_resolve(&changed, &job, &machine, &err), ERR_OK);
        assert_int_equal(predict(&job, &machine, &p, &err), ERR_OK);
        assert_int_equal(found[i].host_needed_bytes, p.host_needed_bytes);
        assert_non_null(strstr(found[i].cost, " GiB of a host, if it has them"));
        needed = p.host_needed_bytes;
        prediction_free(&p);
        settings_release(&job, &machine);
    }
    assert_true(needed > (uint64_t)4 << 30 && needed < (uint64_t)5 << 30);
    set(&s, "host-memory", "4GiB");
    const uint32_t left = find(&s, NULL, found, &capacity);
    assert_in_range(left, 1, REMEDIES);
    for (uint32_t i = 0; i < left; i++)
        assert_null(strstr(found[i].change, "--activation-offloading"));
}

/* ---- where nothing that trains the same fits ---- */

/* Told in groups, and each as `fit` judges it. */
static void check_groups(const struct settings *s, const struct remedy *found, uint32_t count,
                         uint32_t of[REMEDY_BY_RELEASING + 1])
{
    for (uint32_t i = 0; i < count; i++) {
        const enum remedy_group group = remedy_group(&found[i]);
        bool after_release;
        assert_true(i == 0 || group >= remedy_group(&found[i - 1]));
        assert_int_equal(judged_bytes(s, &found[i], found[i].gpus, &after_release),
                         found[i].device_bytes);
        assert_int_equal(after_release, found[i].after_release);
        assert_true(found[i].tight || !after_release); /* as fit calls it */
        of[group]++;
    }
}

/* Half of what is asked for are logits, and the rest fits by giving memory back. */
static void losses_and_giving_back_are_told_apart(void **state)
{
    struct remedy found[REMEDIES];
    struct settings s = settings_of("fsdp2");
    uint32_t of[REMEDY_BY_RELEASING + 1] = {0};
    uint64_t capacity;
    (void)state;
    set(&s, "model", WIDE);
    set(&s, "gpus", "2");
    set(&s, "gpu", "a100-40gb");
    set(&s, "seq", "16384");
    const uint32_t count = find(&s, NULL, found, &capacity);
    check_groups(&s, found, count, of);
    assert_true(of[REMEDY_OTHER_LOSS] > 0 && of[REMEDY_BY_RELEASING] > 0);
    for (uint32_t i = 0; i < count; i++) {
        if (remedy_group(&found[i]) != REMEDY_OTHER_LOSS)
            continue;
        assert_non_null(strstr(found[i].change, "--loss "));
        assert_non_null(strstr(found[i].cost, "the same loss, "));
        assert_true(found[i].changes_numerics && !found[i].after_release);
    }
}

/* As `fit` calls it, though 5 % are free once memory is given back. */
static void what_gives_memory_back_is_tight(void **state)
{
    struct remedy found[REMEDIES];
    struct settings s = settings_of("fsdp2");
    uint32_t of[REMEDY_BY_RELEASING + 1] = {0};
    uint64_t capacity;
    (void)state;
    set(&s, "code", "hf");
    set(&s, "seq", "16384");
    set(&s, "checkpointing", "full");
    set(&s, "memory-of-others", "0.55");
    check_groups(&s, found, find(&s, NULL, found, &capacity), of);
    assert_true(of[REMEDY_BY_RELEASING] > 0);
}

/* What a wait shows too late to be free is more than there is: tight, as `fit` calls it. */
static void what_comes_back_late_is_tight(void **state)
{
    struct remedy found[REMEDIES];
    struct settings s = settings_of("fsdp2");
    uint64_t capacity;
    uint32_t late = 0;
    (void)state;
    set(&s, "model", WIDE);
    set(&s, "loss", "dpo");
    set(&s, "gpu", "l40s");
    set(&s, "seq", "2048");
    set(&s, "micro-batch", "8");
    const uint32_t count = find(&s, NULL, found, &capacity);
    for (uint32_t i = 0; i < count; i++) {
        struct settings changed = s;
        struct job job;
        struct machine machine;
        struct prediction p;
        struct err err = {0};
        change(&changed, &found[i]);
        assert_int_equal(settings_resolve(&changed, &job, &machine, &err), ERR_OK);
        assert_int_equal(predict(&job, &machine, &p, &err), ERR_OK);
        assert_int_equal(predict_clocked(&p, &machine, &err), ERR_OK);
        assert_true(p.fits && p.device_bytes == found[i].device_bytes);
        assert_int_equal(found[i].tight, p.tight);
        const uint64_t left = capacity - p.device_bytes;
        late += p.tight && !p.after_release && (double)left >= RESERVED_ERROR * (double)capacity;
        prediction_free(&p);
        settings_release(&job, &machine);
    }
    assert_true(late > 0);
}

/* Racks lend as many GPUs of each as make a job's come out even: of 36 that is another number than
 * of 72, which is not said, as it need not be typed. */
static void more_gpus_are_in_nodes_of_their_own(void **state)
{
    struct remedy found[REMEDIES];
    struct settings s = settings_of("fsdp2");
    uint32_t of[REMEDY_BY_RELEASING + 1] = {0};
    uint64_t capacity;
    (void)state;
    set(&s, "model", "llama-3.1-405b");
    set(&s, "gpu", "gb200");
    set(&s, "gpus", "36");
    const uint32_t count = find(&s, NULL, found, &capacity);
    check_groups(&s, found, count, of);
    assert_non_null(remedy_of(found, count, "--gpus 72 --checkpointing full"));
    assert_int_equal(fewest_of(found, count)->gpus, 72);
}

/* Nobody chose fp32: QLoRA as everybody runs it is a line of its own, beside what trains the same.
 */
static void autocast_is_proposed_where_nobody_chose_fp32(void **state)
{
    struct remedy found[REMEDIES];
    struct settings s = settings_of("single");
    uint32_t of[REMEDY_BY_RELEASING + 1] = {0};
    uint64_t capacity;
    (void)state;
    set(&s, "model", WIDE);
    set(&s, "code", "hf");
    set(&s, "gpus", "1");
    set(&s, "gpu", "rtx-4090");
    set(&s, "load-in-4bit", "nf4");
    set(&s, "lora", "16");
    set(&s, "seq", "2048");
    uint32_t count = find(&s, NULL, found, &capacity);
    check_groups(&s, found, count, of);
    const struct remedy *cast = remedy_of(found, count, "--frozen-dtype bf16 --autocast bf16");
    assert_true(cast && cast->changes_numerics && cast->device_bytes <= capacity);
    assert_true(cast && strstr(cast->cost, "computes in bf16"));
    set(&s, "autocast", "bf16"); /* then there is nothing to propose */
    count = find(&s, NULL, found, &capacity);
    for (uint32_t i = 0; i < count; i++)
        assert_null(strstr(found[i].change, "--autocast"));
}

/* ---- what fits ---- */

/* Candidates of a space that changes a few settings, also those that change what is trained. */
static struct candidates candidates_of(const struct space *space, const struct job *job,
                                       const struct machine *machine, uint64_t limit,
                                       enum beyond beyond)
{
    const struct candidates_options options = {
        .most_changes = 3, .limit_bytes = limit, .beyond = beyond};
    struct candidates candidates;
    struct pool *pool = pool_new(2);
    (void)candidates_new(space, &job->config, machine, &options, pool, &candidates, NULL);
    pool_free(pool);
    return candidates;
}

/* Returns how many fit, which must be all of `fitting`. */
static uint32_t assert_same_that_fit(const struct candidates *counted,
                                     const struct candidates *fitting, uint64_t limit)
{
    uint32_t fit = 0;
    for (uint32_t i = 0; i < counted->count; i++) {
        const struct candidate *a = &counted->at[i];
        if (a->device_floor > limit)
            continue;
        assert_true(fit < fitting->count);
        const struct candidate *b = &fitting->at[fit++];
        assert_true(a->grid == b->grid && a->outer == b->outer && a->jobs == b->jobs);
        assert_int_equal(a->device_floor, b->device_floor);
        assert_true(a->step_floor_s == b->step_floor_s && a->departures == b->departures);
        assert_int_equal(counted->frames[a->frame]->host, fitting->frames[b->frame]->host);
    }
    assert_int_equal(fit, fitting->count);
    return fit;
}

static void compare_candidates(const char *model, const char *strategy, const char *gpus,
                               double share, uint32_t found[2])
{
    struct settings s;
    struct job job;
    struct machine machine;
    struct space space;
    settings_defaults(&s, COMMAND_FIT);
    set(&s, "model", model);
    set(&s, "gpus", gpus);
    set(&s, "strategy", strategy);
    set(&s, "seq", "1024");
    set(&s, "micro-batch", "4");
    set(&s, "gpu", "l4");
    assert_int_equal(settings_resolve(&s, &job, &machine, NULL), ERR_OK);
    const struct space_options options = {
        .refixed = true, .saves = true, .numerics = true, .rest = true, .config = &job.config};
    const uint64_t limit = (uint64_t)(share * profile_value(&machine.profile, PROFILE_CAPACITY));
    assert_int_equal(space_new(&s, &options, &space, NULL), ERR_OK);
    struct candidates counted = candidates_of(&space, &job, &machine, limit, BEYOND_COUNTED);
    struct candidates fitting = candidates_of(&space, &job, &machine, limit, BEYOND_LEFT_OUT);
    assert_true(counted.count > 500);
    found[0] += assert_same_that_fit(&counted, &fitting, limit);
    found[1] += counted.count;
    candidates_free(&fitting);
    candidates_free(&counted);
    space_free(&space);
    settings_release(&job, &machine);
}

/* What is left out before it is a class or a frame is what takes too much, and nothing else. */
static void what_fits_is_found_whatever_becomes_of_the_rest(void **state)
{
    uint32_t found[2] = {0, 0};
    (void)state;
    compare_candidates("qwen3-0.6b", "fsdp2", "2", 0.4, found);
    compare_candidates("gpt2", "ddp", "2", 0.2, found);
    compare_candidates("gpt2", "zero2", "4", 0.15, found);
    assert_true(found[0] > 100 && found[1] > 4 * found[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_are_compared_across_systems),
        cmocka_unit_test(other_settings_of_numerics_are_named),
        cmocka_unit_test(remedies_are_worth_telling),
        cmocka_unit_test(other_numerics_are_the_last_resort),
        cmocka_unit_test(padding_is_done_without),
        cmocka_unit_test(the_fewest_gpus_are_told),
        cmocka_unit_test(no_more_gpus_are_told_than_can_be_asked_for),
        cmocka_unit_test(what_is_refused_fits_in_no_way),
        cmocka_unit_test(remedies_are_in_words_that_are_known),
        cmocka_unit_test(zeros_own_offloading_is_a_remedy),
        cmocka_unit_test(saved_tensors_have_to_fit_the_host),
        cmocka_unit_test(losses_and_giving_back_are_told_apart),
        cmocka_unit_test(what_gives_memory_back_is_tight),
        cmocka_unit_test(what_comes_back_late_is_tight),
        cmocka_unit_test(more_gpus_are_in_nodes_of_their_own),
        cmocka_unit_test(autocast_is_proposed_where_nobody_chose_fp32),
        cmocka_unit_test(what_fits_is_found_whatever_becomes_of_the_rest),
    };
    return cmocka_run_group_tests_name("remedy", tests, NULL, NULL);
}
