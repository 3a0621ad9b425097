/* main.c - shardplan: will this sharded training job fit, and what will its step look like? */
#include "cli/commands.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"fit", command_fit, "bytes per GPU, and whether the job fits"},
    {"plan", command_plan, "the step: plan.json, timeline, memory curve"},
    {"run", command_run, "execute a plan on real ranks and record it"},
    {"compare", command_compare, "predicted beside recorded, instruction by instruction"},
    {"calibrate", command_calibrate, "measure this machine: the profile that plans of it need"},
    {"models", command_models, "built-in models"},
    {"gpus", command_gpus, "built-in GPUs"},
};

static int help(FILE *file)
{
    fprintf(file, "Usage: shardplan COMMAND [OPTION...]\n"
                  "Plans the memory and communication of one sharded training step.\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(file, "\nExample: shardplan fit llama-3.1-8b --gpus 8 --gpu h100-sxm --seq 8192\n"
                  "Exit status: 0 done (fit: fits), 1 does not fit (compare: differs), "
                  "2 bad usage or input, 3 failure.\n"
                  "`shardplan COMMAND --help` shows a command's options.\n");
    return file == stdout ? EXIT_DONE : EXIT_BAD_INPUT;
}

int report_error(const struct err *err)
{
    fprintf(stderr, "shardplan: %s\n", err->text);
    switch (err->code) {
    case ERR_INVALID:
    case ERR_UNSUPPORTED:
        return EXIT_BAD_INPUT;
    case ERR_INFEASIBLE:
        return EXIT_NO_FIT;
    default:
        return EXIT_FAILED;
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return help(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(stdout);
    if (strcmp(argv[1], "--version") == 0) {
        puts("shardplan " SHARDPLAN_VERSION);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "shardplan: \"%s\" is not a command\n", argv[1]);
    return help(stderr);
}
