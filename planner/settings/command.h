/* command.h - the commands of shardplan, and shardrun: what they are called and what they do. */
#ifndef SHARDPLAN_COMMAND_H
#define SHARDPLAN_COMMAND_H

enum command {
    COMMAND_FIT,
    COMMAND_PLAN,
    COMMAND_TUNE,
    COMMAND_SWEEP,
    COMMAND_DIFF,
    COMMAND_RUN,
    COMMAND_COMPARE,
    COMMAND_EXPORT,
    COMMAND_CALIBRATE,
    COMMAND_MODELS,
    COMMAND_GPUS,
    COMMAND_KERNELS,
    COMMAND_RANK, /* shardrun: one rank of a run, a program of its own */
    COMMAND_COUNT
};

enum { COMMAND_EXAMPLES = 3 };

struct command_about {
    const char *name;                       /* "fit" */
    const char *title;                      /* "shardplan fit": what usage and errors call it */
    const char *summary;                    /* half a line */
    const char *doc;                        /* a paragraph */
    const char *examples[COMMAND_EXAMPLES]; /* command lines; NULL: no more */
    const char *of_plan; /* "shardplan run DIR": its line on what `plan -o DIR` wrote; NULL: it
                            reads no plan */
};

/* Lent, for ever. */
const struct command_about *command_about(enum command command);

#endif
