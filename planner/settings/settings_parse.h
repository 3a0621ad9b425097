/* settings_parse.h - a command line becomes settings: the one place that calls argp. */
#ifndef SHARDPLAN_SETTINGS_PARSE_H
#define SHARDPLAN_SETTINGS_PARSE_H

#include "settings/settings.h"

struct setting_given { /* lent */
    const char *name, *text;
};

/* Where settings may come from before the options: the values of --from, which a folder above this
 * one reads. It sets what the sources say and leaves out what `given` (the options, as typed) says;
 * the system in `given` is the one that will hold. */
typedef enum err_code settings_source(void *context, struct settings *settings,
                                      const char *const *paths, uint32_t path_count,
                                      const struct setting_given *given, uint32_t count,
                                      struct err *err);

/* The settings of a command from its arguments, which are lent as long as *out; argv[0] becomes
 * the command's title. Prints help or the version and exits with 0 when asked to; exits with 2
 * after argp's message on bad usage and after ours on a bad value. */
void settings_parse(enum command command, int argc, char **argv, struct settings *out);

/* The same of a command that has --from: MODEL may then be missing where the source names one. */
void settings_parse_from(enum command command, int argc, char **argv, settings_source *source,
                         void *context, struct settings *out);

enum { SETTINGS_MOST_SYSTEMS = 16 };

/* What --strategy may say where several systems are compared: their names by commas, each with
 * settings of its own, "ddp+autocast=bf16,fsdp2,fsdp2+reshard=never". An option holds for the
 * systems that have it: one that none has, of several or of one, is bad usage. */
struct settings_list { /* settings_list_free */
    uint32_t count;    /* 1: one system, or none was named */
    const char *given; /* of several, what was given for all: "gpt2-xl --gpus 8" */
    struct settings of[SETTINGS_MOST_SYSTEMS];
    const char *names[SETTINGS_MOST_SYSTEMS];   /* as they were written */
    const char *without[SETTINGS_MOST_SYSTEMS]; /* given options that the system does not have:
                                                   "--reshard, --units"; "": none */
    const char *refused[SETTINGS_MOST_SYSTEMS]; /* why it cannot do what was given for all: one of
                                                   those changes what is trained; NULL */
    struct arena arena;                         /* owns the names */
};

/* The same of a command that answers for several systems, too. --from is of one. */
void settings_parse_list(enum command command, int argc, char **argv, settings_source *source,
                         void *context, struct settings_list *out);
void settings_list_free(struct settings_list *list);

#endif
