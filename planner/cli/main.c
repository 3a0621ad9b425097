/* main.c - shardplan: will this sharded training job fit, and what will its step look like? */
#include "base/arena.h"
#include "base/names.h"
#include "base/standard_output.h"
#include "cli/commands.h"
#include "settings/command.h"
#include "settings/completion.h"
#include "settings/help.h"
#include "settings/manual.h"
#include "settings/settings.h"

#include <jansson.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int (*const runs[COMMAND_COUNT])(int argc, char **argv) = {
    [COMMAND_FIT] = command_fit,
    [COMMAND_PLAN] = command_plan,
    [COMMAND_TUNE] = command_tune,
    [COMMAND_SWEEP] = command_sweep,
    [COMMAND_DIFF] = command_diff,
    [COMMAND_RUN] = command_run,
    [COMMAND_COMPARE] = command_compare,
    [COMMAND_EXPORT] = command_export,
    [COMMAND_CALIBRATE] = command_calibrate,
    [COMMAND_MODELS] = command_models,
    [COMMAND_GPUS] = command_gpus,
    [COMMAND_KERNELS] = command_kernels,
};

static int help(FILE *file)
{
    fprintf(file, "Usage: shardplan COMMAND [OPTION...]\n"
                  "Plans the memory and communication of one sharded training step.\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (runs[i])
            fprintf(file, "  %-10s %s\n", command_about((enum command)i)->name,
                    command_about((enum command)i)->summary);
    fprintf(file, "\nExample: shardplan fit llama-3.1-8b --gpus 8 --gpu h100-sxm --seq 8192\n"
                  "Exit status: 0 done (fit: fits), 1 does not fit (compare: differs), "
                  "2 bad usage or input, 3 failure.\n"
                  "`shardplan COMMAND -h` shows a command's most used options, `shardplan COMMAND "
                  "--help` all of them,\n`shardplan help COMMAND OPTION` one; `shardplan --man` is "
                  "the manual page, `shardplan --completion`\nwhat bash completes them with.\n");
    return file == stdout ? EXIT_DONE : EXIT_BAD_INPUT;
}

static int refuse(const char *name)
{
    const char *nearest = NULL;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const char *other = command_about((enum command)i)->name;
        if (runs[i] && names_near(name, other) && names_nearer(name, other, nearest))
            nearest = other;
    }
    fprintf(stderr, "shardplan: \"%s\" is not a command%s%s%s\n", name,
            nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    return help(stderr);
}

static enum command find(const char *name)
{
    int i = 0;
    while (i < COMMAND_COUNT &&
           !(runs[i] && strcmp(name, command_about((enum command)i)->name) == 0))
        i++;
    return (enum command)i;
}

/* With the option that was meant, where one is near. */
static void say_no_option(enum command command, const char *name)
{
    struct settings settings;
    struct err err = {0};
    const char *title = command_about(command)->title;
    settings_defaults(&settings, command);
    const struct setting *row = settings_find(&settings, name + strspn(name, "-"), &err);
    const char *meant = row ? NULL : strstr(err.text, "; did you mean");
    fprintf(stderr, "shardplan: `%s` has no option \"%s\"%s%s `%s --help` lists all\n", title, name,
            meant ? meant : "", meant ? "" : ";", title);
}

/* `shardplan help [COMMAND [OPTION]]`: what --help says. */
static int help_of(int argc, char **argv)
{
    if (argc < 3)
        return help(stdout);
    const enum command command = find(argv[2]);
    if (command == COMMAND_COUNT)
        return refuse(argv[2]);
    for (int i = 3; i < argc; i++)
        if (!help_write_option(stdout, command, argv[i])) {
            say_no_option(command, argv[i]);
            return EXIT_BAD_INPUT;
        }
    if (argc == 3)
        help_write(stdout, command);
    return EXIT_DONE;
}

int main(int argc, char **argv)
{
    /* A process that plans again and again keeps its memory instead of returning it each time. */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    standard_output_check_at_exit();
    signal(SIGXFSZ, SIG_IGN);            /* a file that grows too large is an error, not a death */
    json_set_alloc_funcs(xmalloc, free); /* half a document is none */
    if (argc < 2)
        return help(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(stdout);
    if (strcmp(argv[1], "--man") == 0) {
        manual_write(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--completion") == 0) {
        completion_write(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("shardplan " SHARDPLAN_VERSION);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "help") == 0)
        return help_of(argc, argv);
    const enum command command = find(argv[1]);
    return command == COMMAND_COUNT ? refuse(argv[1]) : runs[command](argc - 1, argv + 1);
}
