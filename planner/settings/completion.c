/* completion.c - see completion.h.
 *
 * The script has two tables, by "command:option" and by command; a function looks into them. */
#include "settings/completion.h"

#include "settings/setting.h"

#include <string.h>

/* What can be an axis: the settings of the command that has some. */
static void put_axes(FILE *file, uint32_t commands)
{
    uint32_t count;
    bool first = true;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (!(rows[i].commands & commands) || !setting_is_offered(&rows[i]) ||
            rows[i].group == GROUP_SWEEP || rows[i].group == GROUP_OUTPUT)
            continue;
        fprintf(file, "%s%s", first ? "" : " ", rows[i].name);
        first = false;
    }
}

/* The words of a row in one list, of those that --help shows. */
static void put_values(FILE *file, const struct setting *row)
{
    char allowed[800];
    struct setting words = *row;
    if (row->names)
        for (uint32_t i = 0; row->names->at(i); i++)
            fprintf(file, "%s%s", i ? " " : "", row->names->at(i));
    if (row->arg && strcmp(row->arg, "AXIS") == 0)
        put_axes(file, row->commands);
    if (row->kind != SETTING_VALUE)
        return;
    memset(words.numbers, 0, sizeof words.numbers);
    setting_allowed(&words, allowed, sizeof allowed);
    for (const char *c = allowed; *c; c++)
        if (*c != ',')
            fputc(*c, file);
}

/* -f: files, -d: folders, else words. */
static const char *action(const struct setting *row)
{
    if (!row->arg)
        return "";
    if (strcmp(row->arg, "DIR") == 0)
        return "-d";
    return strstr(row->arg, "FILE") || strstr(row->arg, ".json") || strcmp(row->arg, "MODEL") == 0
               ? "-f"
               : "-W";
}

static void put_pattern(FILE *file, const struct setting *row)
{
    bool first = true;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (!setting_is_of(row, (enum command)i))
            continue;
        const char *name = command_about((enum command)i)->name;
        fprintf(file, "%s%s:--%s", first ? "    " : " | ", name, row->name);
        if (row->key)
            fprintf(file, " | %s:-%c", name, row->key);
        first = false;
    }
}

/* The first row of its name from `i` on, of those that share a command with it, has the values of
 * all: systems have options of one name. */
static bool is_same_option(const struct setting *row, const struct setting *other)
{
    return strcmp(row->name, other->name) == 0 && (row->commands & other->commands) &&
           setting_is_offered(other);
}

static void put_option_values(FILE *file)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        bool seen = !setting_is_offered(&rows[i]) || !rows[i].arg || rows[i].positional;
        for (uint32_t k = 0; k < i && !seen; k++)
            seen = is_same_option(&rows[i], &rows[k]);
        if (seen)
            continue;
        put_pattern(file, &rows[i]);
        fprintf(file, ") kind=%s values='", action(&rows[i]));
        for (uint32_t k = i; k < count; k++)
            if (is_same_option(&rows[i], &rows[k])) {
                fputs(k > i ? " " : "", file);
                put_values(file, &rows[k]);
            }
        fputs("' ;;\n", file);
    }
}

static void put_command(FILE *file, enum command command)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    fprintf(file, "    %s)\n        options='--help --usage --version",
            command_about(command)->name);
    for (uint32_t i = 0; i < count; i++)
        if (setting_is_of(&rows[i], command) && setting_is_offered(&rows[i]) && !rows[i].positional)
            fprintf(file, " --%s", rows[i].name);
    fputs("'\n", file);
    for (uint32_t i = 0; i < count; i++)
        if (setting_is_of(&rows[i], command) && rows[i].positional) {
            fprintf(file, "        kind=%s values='", action(&rows[i]));
            put_values(file, &rows[i]);
            fputs("'\n", file);
            break;
        }
    fputs("        ;;\n", file);
}

void completion_write(FILE *file)
{
    fputs("# bash completion of shardplan and shardrun, made by `shardplan --completion`\n"
          "_shardplan() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local command=shardrun options='' kind='' values=''\n"
          "    COMPREPLY=()\n"
          "    # bash cuts words at '=', too\n"
          "    if [[ $word == = ]]; then\n"
          "        word=''\n"
          "    elif [[ $previous == = && $COMP_CWORD -gt 2 ]]; then\n"
          "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    fi\n"
          "    if [[ ${COMP_WORDS[0]##*/} == shardplan ]]; then\n"
          "        command=${COMP_WORDS[1]}\n"
          "        if [[ $COMP_CWORD -eq 1 ]]; then\n"
          "            mapfile -t COMPREPLY < <(compgen -W '",
          file);
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (i != COMMAND_RANK)
            fprintf(file, "%s ", command_about((enum command)i)->name);
    fputs("help --help --version --man --completion' -- \"$word\")\n"
          "            return\n"
          "        fi\n"
          "    fi\n"
          "    case $command:$previous in\n",
          file);
    put_option_values(file);
    fputs("    *) options=yes ;;\n"
          "    esac\n"
          "    [[ $options ]] && case $command in\n",
          file);
    for (int i = 0; i < COMMAND_COUNT; i++)
        put_command(file, (enum command)i);
    fputs("    esac\n"
          "    if [[ $word == -* ]]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
          "        return\n"
          "    fi\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\")\n"
          "    if [[ $kind == -[fd] ]]; then\n"
          "        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen \"$kind\" -- \"$word\")\n"
          "        compopt -o filenames 2>/dev/null\n"
          "    fi\n"
          "}\n"
          "complete -F _shardplan shardplan shardrun\n",
          file);
}
