/* cmd_list.c - shardplan models and shardplan gpus: what is built in. */
#include "cli/commands.h"
#include "cost/gpu.h"
#include "model/model.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Both commands take --json and nothing else. Returns 0: table, 1: JSON, -1: wrong usage. */
static int wants_json(int argc, char **argv)
{
    if (argc == 1)
        return 0;
    if (argc == 2 && strcmp(argv[1], "--json") == 0)
        return 1;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("Usage: shardplan %s [--json]\n", argv[0]);
        return -2;
    }
    fprintf(stderr, "shardplan: usage: shardplan %s [--json]\n", argv[0]);
    return -1;
}

static int print_json(json_t *array)
{
    json_dumpf(array, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(array);
    return EXIT_DONE;
}

int command_models(int argc, char **argv)
{
    const int mode = wants_json(argc, argv);
    if (mode < 0)
        return mode == -2 ? EXIT_DONE : EXIT_BAD_INPUT;
    uint32_t count;
    const struct model_preset *presets = model_presets(&count);
    if (mode == 1) {
        json_t *array = json_array();
        for (uint32_t i = 0; i < count; i++)
            json_array_append_new(array,
                                  json_pack("{s:s, s:s, s:I}", "name", presets[i].name,
                                            "model_type", arch_name(presets[i].config.arch),
                                            "parameters", (json_int_t)presets[i].parameters));
        return print_json(array);
    }
    printf("%-20s %-16s %7s %7s %8s %16s\n", "name", "model_type", "layers", "hidden", "vocab",
           "parameters");
    for (uint32_t i = 0; i < count; i++) {
        const struct model_config *c = &presets[i].config;
        printf("%-20s %-16s %7" PRIu32 " %7" PRIu32 " %8" PRIu32 " %16" PRIu64 "\n",
               presets[i].name, arch_name(c->arch), c->layers, c->hidden, c->vocab,
               presets[i].parameters);
    }
    return EXIT_DONE;
}

int command_gpus(int argc, char **argv)
{
    const int mode = wants_json(argc, argv);
    if (mode < 0)
        return mode == -2 ? EXIT_DONE : EXIT_BAD_INPUT;
    uint32_t count;
    const struct gpu *gpus = gpu_list(&count);
    if (mode == 1) {
        json_t *array = json_array();
        for (uint32_t i = 0; i < count; i++)
            json_array_append_new(
                array,
                json_pack("{s:s, s:s, s:I, s:s, s:I, s:I}", "name", gpus[i].name, "title",
                          gpus[i].title, "capacity_bytes", (json_int_t)gpus[i].capacity_bytes,
                          "capacity_source", gpus[i].capacity_source, "context_bytes",
                          (json_int_t)gpus[i].context_bytes, "cublas_workspace_bytes",
                          (json_int_t)gpus[i].cublas_workspace_bytes));
        return print_json(array);
    }
    printf("%-16s %-28s %9s  %s\n", "name", "", "GiB", "source of the capacity");
    for (uint32_t i = 0; i < count; i++)
        printf("%-16s %-28s %9.2f  %s\n", gpus[i].name, gpus[i].title,
               (double)gpus[i].capacity_bytes / 1073741824.0, gpus[i].capacity_source);
    return EXIT_DONE;
}
