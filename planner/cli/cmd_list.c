/* cmd_list.c - shardplan models and shardplan gpus: what is built in. */
#include "base/arena.h"
#include "cli/commands.h"
#include "families/families.h"
#include "machine/builtin.h"
#include "machine/profile.h"
#include "report/style.h"
#include "settings/settings_parse.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

static int print_json(json_t *array)
{
    report_json(array);
    return EXIT_DONE;
}

/* All that a config.json may say, with presets or without. */
static void print_types(void)
{
    struct arena arena = {0};
    const char *list = "other models are of a config.json, whose model_type may be";
    for (int i = 0; i < ARCH_COUNT; i++)
        list = arena_printf(&arena, "%s%s %s", list, i ? "," : "", arch_name((enum arch)i));
    putchar('\n');
    style_wrapped(stdout, 0, list);
    arena_free(&arena);
}

int command_models(int argc, char **argv)
{
    struct settings settings;
    settings_parse(COMMAND_MODELS, argc, argv, &settings);
    const struct model_preset *preset;
    if (settings.json) {
        json_t *array = json_array();
        for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++)
            json_array_append_new(array, json_pack("{s:s, s:s, s:I}", "name", preset->name,
                                                   "model_type", arch_name(preset->config.arch),
                                                   "parameters", (json_int_t)preset->parameters));
        return print_json(array);
    }
    if (settings.quiet)
        return EXIT_DONE;
    printf("%-20s %-16s %7s %7s %8s %16s\n", "name", "model_type", "layers", "hidden", "vocab",
           "parameters");
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++) {
        const struct model_config *c = &preset->config;
        printf("%-20s %-16s %7" PRIu32 " %7" PRIu32 " %8" PRIu32 " %16" PRIu64 "\n", preset->name,
               arch_name(c->arch), c->layers, c->hidden, c->vocab, preset->parameters);
    }
    print_types();
    return EXIT_DONE;
}

/* As a profile's file has it. */
static json_t *attention_json(const struct profile *profile)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < profile->attention_count; i++) {
        const struct profile_attention *row = &profile->attentions[i];
        json_array_append_new(
            array,
            json_pack("{s:s, s:I, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:s?}", "kernel",
                      attention_name(row->kernel), "head", (json_int_t)row->head, "deterministic",
                      row->deterministic, "forward", row->forward, "backward", row->backward,
                      "start_tokens", row->start_tokens, "backward_tokens", row->backward_tokens,
                      "draw", row->draw, "spread", row->spread, "source", row->source));
    }
    return array;
}

static json_t *profile_json(const struct profile *profile)
{
    json_t *object = json_pack("{s:s, s:s}", "name", profile->name, "title", profile->title);
    for (int key = 0; key < PROFILE_KEYS; key++) {
        const struct quantity *q = &profile->of[key];
        json_object_set_new(object, profile_key_name((enum profile_key)key),
                            json_pack("{s:f, s:f, s:s}", "value", q->value, "spread", q->spread,
                                      "source", q->source));
    }
    json_object_set_new(object, "attention", attention_json(profile));
    return object;
}

static void print_profile(const struct profile *p)
{
    char host[32] = "-";
    if (profile_value(p, PROFILE_HOST_CAPACITY) > 0)
        snprintf(host, sizeof host, "%.0f", profile_value(p, PROFILE_HOST_CAPACITY) / 1073741824.0);
    printf("%-16s %-30s %8.2f %8.0f %7.2f %7.0f %5.0f x %-5.0f %8s\n", p->name, p->title,
           profile_value(p, PROFILE_CAPACITY) / 1073741824.0, profile_value(p, PROFILE_BF16) / 1e12,
           profile_value(p, PROFILE_MEMORY) / 1e12, profile_value(p, PROFILE_LINK) / 1e9,
           profile_value(p, PROFILE_NICS), profile_value(p, PROFILE_NIC) * 8e-9, host);
}

static int list_gpus(json_t *array)
{
    const struct builtins *gpus = builtin_gpus();
    for (uint32_t i = 0; i < gpus->count; i++) {
        struct profile profile;
        struct err err = {0};
        if (profile_find(gpus->names[i], &profile, &err) != ERR_OK)
            return report_error(&err);
        if (array)
            json_array_append_new(array, profile_json(&profile));
        else
            print_profile(&profile);
        profile_free(&profile);
    }
    return EXIT_DONE;
}

int command_gpus(int argc, char **argv)
{
    struct settings settings;
    settings_parse(COMMAND_GPUS, argc, argv, &settings);
    if (settings.json) {
        json_t *array = json_array();
        const int status = list_gpus(array);
        const int printed = print_json(array);
        return status == EXIT_DONE ? printed : status;
    }
    if (settings.quiet)
        return EXIT_DONE;
    printf("%-16s %-30s %8s %8s %7s %7s %13s %8s\n", "name", "", "GiB", "bf16 TF", "TB/s", "GB/s",
           "NICs x Gb/s", "host GiB");
    const int status = list_gpus(NULL);
    const struct builtins *nodes = builtin_nodes();
    printf("\nnode types (--node):");
    for (uint32_t i = 0; i < nodes->count; i++)
        printf("%s %s", i ? "," : "", nodes->names[i]);
    printf("\nevery number with its source: shardplan gpus --json\n"
           "a machine of one's own: --profile FILE, JSON with any of these numbers on top of --gpu "
           "and --node,\nsuch as {\"nics\": 2, \"nic_bytes_per_s\": 12.5e9, \"network\": "
           "\"roce\"}, or on top of its \"gpu\"\n");
    return status;
}
