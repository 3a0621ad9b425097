/* truth_table.c - see truth_table.h. */
#include "tests/support/truth_table.h"

#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BEGIN "<!-- made by `make validation` from tests/validation/truth_table.md -->\n"
#define END "<!-- end -->\n"
#define TEMPLATE "tests/validation/truth_table.md"

enum { TEXT = 4096 };

/* ---- recordings ---- */

struct counted {
    size_t rows, events, left;
};

static const struct {
    const char *name;                  /* in places, and in the report's */
    enum system_kind systems[3], last; /* the last of them */
    const char *files[24];             /* until NULL */
} groups[] = {
    {"fsdp2",
     {SYSTEM_FSDP2},
     SYSTEM_FSDP2,
     {"visible", "events", "more_events", "fsdp2_events", "keep_events", "blocks_events",
      "blocks_hf_events", "hf_events", "moe_events", "experts_events", "families_events",
      "decoders_events", "lora_events", "recorded_events", "random_events", "direct_events",
      "attention_events"}},
    {"fsdp1",
     {SYSTEM_FSDP1},
     SYSTEM_FSDP1,
     {"systems_visible", "systems_events", "fsdp1_events", "fsdp1_hf_events", "lora_events",
      "offload_events", "random_events", "direct_events", "attention_events"}},
    {"ddp",
     {SYSTEM_DDP},
     SYSTEM_DDP,
     {"systems_visible", "systems_events", "ddp_events", "ddp_hf_events", "lora_events",
      "recorded_ddp_events", "random_events", "options_events", "direct_events",
      "attention_events"}},
    {"zero",
     {SYSTEM_ZERO1, SYSTEM_ZERO2, SYSTEM_ZERO3},
     SYSTEM_ZERO3,
     {"systems_visible", "systems_events", "zero_events", "zero_lora_events", "zero_hf_events",
      "random_events", "options_events", "zero_offload_events", "zero_offload_visible",
      "zero_recorded_events", "zero_recorded_visible", "zero_quantized_events"}},
};

static bool is_of_group(const json_t *row, size_t group)
{
    for (int i = 0; i < 3; i++) {
        if (truth_is_of(row, groups[group].systems[i]))
            return true;
        if (groups[group].systems[i] == groups[group].last)
            break;
    }
    return false;
}

/* Counts the rows of a file that are of a group; SIZE_MAX: all, with every version. */
static bool count_file(const char *name, size_t group, struct counted *out)
{
    char path[256], *line = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "tests/data/truth/%s.jsonl", name);
    FILE *file = fopen(path, "r");
    while (file && getline(&line, &size, file) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        const size_t versions = 1 + json_array_size(json_object_get(row, "torch_also"));
        if (row && group == SIZE_MAX) {
            out->rows += versions;
        } else if (row && is_of_group(row, group)) {
            const bool planned = truth_is_planned(row);
            out->rows += planned;
            out->left += !planned;
            out->events += planned && json_object_get(row, "event_list");
        }
        json_decref(row);
    }
    free(line);
    return file && fclose(file) == 0;
}

/* ---- reports ---- */

/* The first line of a report that begins with `start`. */
static bool find_line(const char *report, const char *start, char line[TEXT])
{
    char path[256];
    bool found = false;
    snprintf(path, sizeof path, "reports/validation/%s.md", report);
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(line, TEXT, file))
        found = strncmp(line, start, strlen(start)) == 0;
    if (file)
        fclose(file);
    return found;
}

static bool cell_of(const char *report, const char *row, unsigned column, char *out, size_t size)
{
    char line[TEXT], start[TEXT];
    snprintf(start, sizeof start, "| %s", row);
    if (!find_line(report, start, line))
        return false;
    const char *at = line;
    for (unsigned i = 0; i <= column && at; i++)
        at = strchr(at, '|') ? strchr(at, '|') + 2 : NULL;
    const char *end = at ? strstr(at, " |") : NULL;
    if (!end)
        return false;
    snprintf(out, size, "%.*s", (int)(end - at), at);
    return true;
}

/* "0 bytes off", where the report is of all rows and none differs. */
static bool off_of(const char *group, const struct counted *counted, char *out, size_t size)
{
    char path[256], line[TEXT], report[64];
    size_t exact = 0, rows = 0;
    snprintf(report, sizeof report, "memory-%s", group);
    snprintf(path, sizeof path, "reports/validation/%s.md", report);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (strstr(line, " configurations without any difference."))
            sscanf(line, "%zu of %zu", &exact, &rows);
    if (file)
        fclose(file);
    if (rows != counted->rows) {
        print_error("%s is of %zu rows, tests/data/truth has %zu: make validation\n", path, rows,
                    counted->rows);
        return false;
    }
    if (exact == rows)
        snprintf(out, size, "0 bytes off");
    else
        snprintf(out, size, "0 bytes off in %zu", exact);
    return true;
}

/* ---- places ---- */

static bool fill_count(const char *what, const char *name, char *out, size_t size)
{
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        struct counted counted = {0};
        if (strcmp(groups[g].name, name) != 0)
            continue;
        for (int i = 0; groups[g].files[i]; i++)
            if (!count_file(groups[g].files[i], g, &counted))
                return false;
        if (strcmp(what, "off") == 0)
            return off_of(name, &counted, out, size);
        snprintf(out, size, "%zu",
                 strcmp(what, "rows") == 0     ? counted.rows
                 : strcmp(what, "events") == 0 ? counted.events
                                               : counted.left);
        return true;
    }
    return false;
}

static bool fill(char *place, char *out, size_t size)
{
    char *save = NULL;
    const char *what = strtok_r(place, " ", &save);
    const char *first = strtok_r(NULL, "|", &save), *second = strtok_r(NULL, "|", &save);
    const char *third = strtok_r(NULL, "|", &save);
    struct counted counted = {0};
    if (!what || !first)
        return false;
    if (strcmp(what, "cell") == 0)
        return second && third && cell_of(first, second, (unsigned)atoi(third), out, size);
    if (strcmp(what, "lines") != 0)
        return fill_count(what, first, out, size);
    if (!count_file(first, SIZE_MAX, &counted))
        return false;
    snprintf(out, size, "%zu", counted.rows);
    return true;
}

bool truth_table_write(FILE *to)
{
    char line[TEXT], place[TEXT], value[TEXT];
    FILE *file = fopen(TEMPLATE, "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *at = line;
        for (const char *open; (open = strchr(at, '{')); at = strchr(open, '}') + 1) {
            const size_t length = strcspn(open, "}") - 1;
            fwrite(at, 1, (size_t)(open - at), to);
            snprintf(place, sizeof place, "%.*s", (int)length, open + 1);
            if (open[length + 1] != '}' || !fill(place, value, sizeof value)) {
                print_error(TEMPLATE ": {%.*s}: not to be had\n", (int)length, open + 1);
                fclose(file);
                return false;
            }
            fputs(value, to);
        }
        fputs(at, to);
    }
    return file && fclose(file) == 0;
}

/* ---- README.md ---- */

static char *read_all(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "r");
    if (file && getdelim(&text, &size, '\0', file) < 0) {
        free(text);
        text = NULL;
    }
    if (file)
        fclose(file);
    return text;
}

static bool find_markers(char *text, char **begin, char **end)
{
    char *at = text ? strstr(text, BEGIN) : NULL;
    *begin = at ? at + strlen(BEGIN) : NULL;
    *end = at ? strstr(*begin, END) : NULL;
    return *end != NULL;
}

char *truth_table_of_readme(void)
{
    char *begin, *end, *text = read_all("README.md"), *table = NULL;
    if (find_markers(text, &begin, &end))
        table = strndup(begin, (size_t)(end - begin));
    free(text);
    return table;
}

bool truth_table_put(void)
{
    char *begin, *end, *text = read_all("README.md"), *table = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&table, &size), *file = NULL;
    bool ok = memory && find_markers(text, &begin, &end) && truth_table_write(memory);
    if (memory)
        fclose(memory);
    if (ok)
        file = fopen("README.md", "w");
    if (file) {
        fwrite(text, 1, (size_t)(begin - text), file);
        fputs(table, file);
        fputs(end, file);
        ok = fclose(file) == 0;
    }
    free(table);
    free(text);
    return ok && file;
}
