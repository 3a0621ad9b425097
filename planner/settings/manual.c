/* manual.c - see manual.h. */
#include "settings/manual.h"

#include "settings/setting.h"

enum { WRAP = 64 }; /* characters after which a line of the source ends */

/* Text as troff wants it: no dashes for hyphens, no macros by accident, lines of some length. */
static void put(FILE *file, const char *text)
{
    int column = 0;
    for (const char *c = text; *c; c++, column++)
        switch (*c) {
        case ' ':
            fputc(column > WRAP ? '\n' : ' ', file);
            column = column > WRAP ? -1 : column;
            break;
        case '-':
            fputs("\\-", file);
            break;
        case '\\':
            fputs("\\e", file);
            break;
        case '`':
            fputs("\\(ga", file);
            break;
        case '\'':
            fputs("\\(aq", file);
            break;
        case '.':
            fputs(column == 0 ? "\\&." : ".", file);
            break;
        default:
            fputc(*c, file);
        }
}

static void put_names(FILE *file, uint32_t commands)
{
    bool first = true;
    for (uint32_t i = 0; i < COMMAND_COUNT; i++)
        if (commands >> i & 1U) {
            fprintf(file, "%s%s", first ? "" : ", ", command_about((enum command)i)->name);
            first = false;
        }
}

/* "Of fsdp2.", where not every system that can be planned has it. */
static void put_systems(FILE *file, const struct setting *row)
{
    char text[SETTING_SYSTEMS];
    const char *systems = setting_systems(row, text);
    if (*systems)
        fprintf(file, "\nOf %s.", systems);
}

static void put_option(FILE *file, const struct setting *row)
{
    char allowed[800];
    const bool values = row->kind == SETTING_VALUE || row->kind == SETTING_PART;
    fputs(".TP\n", file);
    if (row->key)
        fprintf(file, "\\fB\\-%c\\fR, ", row->key);
    fputs("\\fB\\-\\-", file);
    put(file, row->name);
    fputs("\\fR", file);
    if (row->arg) {
        fputs("=\\fI", file);
        put(file, row->arg);
        fputs("\\fR", file);
    }
    fputc('\n', file);
    put(file, row->help);
    fputc('.', file);
    if (values) {
        fputs("\nAllowed: ", file);
        put(file, setting_allowed(row, allowed, sizeof allowed));
        fputc('.', file);
    }
    if (row->initial || row->absent) {
        fputs("\nDefault: ", file);
        put(file, row->initial ? row->initial : row->absent);
        fputc('.', file);
    }
    put_systems(file, row);
    fputc('\n', file);
}

/* The options that just these commands have, group by group. */
static void put_options(FILE *file, uint32_t commands)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    fputs(".SH OPTIONS OF ", file);
    put_names(file, commands);
    fputc('\n', file);
    for (int group = 0; group < GROUP_COUNT; group++) {
        bool titled = false;
        for (uint32_t i = 0; i < count; i++) {
            if (rows[i].commands != commands || (int)rows[i].group != group || rows[i].positional ||
                !setting_is_offered(&rows[i]) || setting_repeats(&rows[i]))
                continue;
            if (!titled)
                fprintf(file, ".SS %s\n", setting_group_title((enum setting_group)group));
            titled = true;
            put_option(file, &rows[i]);
        }
    }
}

/* A section for each set of commands that share options. */
static void put_all_options(FILE *file)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        bool seen = rows[i].positional || !setting_is_offered(&rows[i]);
        for (uint32_t k = 0; k < i && !seen; k++)
            seen = rows[k].commands == rows[i].commands && !rows[k].positional &&
                   setting_is_offered(&rows[k]);
        if (!seen)
            put_options(file, rows[i].commands);
    }
}

static void put_synopsis(FILE *file, enum command command)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    fprintf(file, ".B %s\n[\\fIoption\\fR ...]", command_about(command)->title);
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].positional && setting_is_of(&rows[i], command))
            fprintf(file, " \\fI%s\\fR", rows[i].arg);
    fputs("\n.br\n", file);
}

static void put_command(FILE *file, enum command command)
{
    fprintf(file, ".TP\n.B %s\n", command_about(command)->title);
    put(file, command_about(command)->doc);
    fputc('\n', file);
}

void manual_write(FILE *file)
{
    fputs(".TH SHARDPLAN 1 2026-11-22 \"shardplan " SHARDPLAN_VERSION "\" \"User Commands\"\n"
          ".SH NAME\n"
          "shardplan, shardrun \\- plan, execute and compare sharded training steps\n"
          ".SH SYNOPSIS\n",
          file);
    for (int i = 0; i < COMMAND_COUNT; i++)
        put_synopsis(file, (enum command)i);
    fputs(".B shardplan\n\\-\\-help | \\-\\-version | \\-\\-man | \\-\\-completion\n"
          ".SH DESCRIPTION\n"
          "Will a sharded training job fit, how fast will it step, and is that true?\n"
          ".B shardplan\n"
          "answers before launch, from a Hugging Face config.json: it lets the\n"
          "model\\(aqs operators run through a copy of eager autograd, puts the\n"
          "sharding system\\(aqs gathers, copies, reductions and frees between them,\n"
          "hands every allocation to a copy of PyTorch\\(aqs caching allocator, and\n"
          "times every kernel and collective on a simulated GPU.\n"
          ".SH COMMANDS\n",
          file);
    for (int i = 0; i < COMMAND_COUNT; i++)
        put_command(file, (enum command)i);
    fputs(".PP\nEvery command has\n.BR \\-\\-help ,\n.B \\-\\-usage\nand\n.BR \\-\\-version ;\n.B "
          "\\-h\nlists the most used options alone.\n"
          "Options may be cut where their beginning says enough.\n",
          file);
    put_all_options(file);
    fputs(".SH EXIT STATUS\n"
          ".TP\n.B 0\nDone; fit: the job fits.\n"
          ".TP\n.B 1\nThe job does not fit; compare: recorded and predicted differ.\n"
          ".TP\n.B 2\nBad usage or bad input.\n"
          ".TP\n.B 3\nFailure while running.\n"
          ".SH EXAMPLES\n"
          ".EX\nshardplan fit llama\\-3.1\\-8b \\-\\-gpus 8 \\-\\-gpu h100 \\-\\-seq 8192\n"
          "shardplan plan llama\\-3.1\\-8b \\-\\-gpus 8 \\-\\-checkpointing selective \\-o step\n"
          "shardplan run step/plan.json \\-\\-steps 20 \\-o step\n"
          "shardplan compare step/plan.json step/trace.json\n.EE\n"
          ".SH SEE ALSO\n.BR mpirun (1)\n",
          file);
}
