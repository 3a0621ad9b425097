/* truth_table.c - see truth_table.h. */
#include "tests/support/truth_table.h"

#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define END "<!-- end -->\n"

enum { TEXT = 4096 };

const struct truth_table truth_tables[TRUTH_TABLES] = {
    {"README.md", "tests/validation/truth_short.md"},
    {"reports/validation/README.md", "tests/validation/truth_table.md"},
};

/* ---- recordings ---- */

struct counted {
    size_t rows, events, left;
};

static const struct {
    const char *name;                  /* in places, and in the report's */
    enum system_kind systems[3], last; /* the last of them */
    const char *files[48];             /* until NULL */
} groups[] = {
    {"fsdp2",
     {SYSTEM_FSDP2},
     SYSTEM_FSDP2,
     {"visible",
      "events",
      "more_events",
      "fsdp2_events",
      "keep_events",
      "blocks_events",
      "blocks_hf_events",
      "hf_events",
      "moe_events",
      "experts_events",
      "families_events",
      "decoders_events",
      "lora_events",
      "linear_events",
      "recorded_events",
      "random_events",
      "outputs_events",
      "direct_events",
      "attention_events",
      "optimizers_events",
      "liger_events",
      "liger_visible",
      "cut_events",
      "lm_head_events",
      "llama_factory_events",
      "dpo_events",
      "dpo_visible",
      "grpo_events",
      "grpo_visible",
      "classification_events",
      "classification_visible",
      "reentrant_events",
      "flash_attn_events",
      "padding_events",
      "padding_visible",
      "cudnn_events",
      "tower_events",
      "padded_pairs_events",
      "padded_pairs_visible",
      "offloading_events",
      "lora_kernels_events",
      "lora_kernels_visible",
      "titan_events",
      "titan_visible"}},
    {"fsdp1",
     {SYSTEM_FSDP1},
     SYSTEM_FSDP1,
     {"systems_visible",        "systems_events",        "fsdp1_events",
      "fsdp1_hf_events",        "recorded_fsdp1_events", "lora_events",
      "frozen_events",          "offload_events",        "linear_systems_events",
      "random_events",          "outputs_events",        "direct_events",
      "attention_events",       "accelerate_events",     "optimizers_events",
      "liger_events",           "liger_visible",         "cut_events",
      "lm_head_events",         "reentrant_events",      "flash_attn_events",
      "padding_events",         "titan_visible",         "dpo_events",
      "cudnn_events",           "dpo_visible",           "classification_events",
      "classification_visible", "tower_events",          "padded_pairs_events",
      "padded_pairs_visible",   "grpo_events",           "grpo_visible",
      "few_bits_events"}},
    {"ddp",
     {SYSTEM_DDP},
     SYSTEM_DDP,
     {"systems_visible",
      "systems_events",
      "ddp_events",
      "ddp_hf_events",
      "lora_events",
      "frozen_events",
      "bits4_events",
      "bits8_events",
      "recorded_ddp_events",
      "linear_systems_events",
      "random_events",
      "options_events",
      "outputs_events",
      "direct_events",
      "attention_events",
      "accelerate_events",
      "optimizers_events",
      "liger_events",
      "liger_visible",
      "cut_events",
      "lm_head_events",
      "reentrant_events",
      "flash_attn_events",
      "padding_events",
      "cudnn_events",
      "tower_events",
      "padded_pairs_events",
      "padded_pairs_visible",
      "offloading_events",
      "lora_kernels_events",
      "titan_events",
      "titan_visible",
      "llama_factory_events",
      "dpo_events",
      "dpo_visible",
      "grpo_events",
      "grpo_visible",
      "classification_events",
      "classification_visible"}},
    {"zero",
     {SYSTEM_ZERO1, SYSTEM_ZERO2, SYSTEM_ZERO3},
     SYSTEM_ZERO3,
     {"systems_visible",
      "systems_events",
      "zero_events",
      "zero_lora_events",
      "few_bits_events",
      "zero_hf_events",
      "linear_systems_events",
      "random_events",
      "options_events",
      "outputs_events",
      "zero_offload_events",
      "zero_offload_visible",
      "zero_recorded_events",
      "zero_quantized_events",
      "zero_moe_events",
      "optimizers_events",
      "zero_liger_events",
      "zero_cut_events",
      "zero_lm_head_events",
      "zero_llama_factory_events",
      "liger_visible",
      "reentrant_events",
      "flash_attn_events",
      "padding_events",
      "cudnn_events",
      "tower_events",
      "padded_pairs_events",
      "padded_pairs_visible",
      "zero_dpo_events",
      "dpo_visible",
      "zero_grpo_events",
      "grpo_visible",
      "zero_classification_events",
      "classification_visible"}},
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

enum { GROUPS = sizeof groups / sizeof groups[0], FILES_MOST = 128 };

/* A file's rows, counted once: they are megabytes, and several places ask for them. */
struct file_counts {
    char name[64];
    struct counted all;        /* with every version */
    struct counted of[GROUPS]; /* those of a group */
};

static void count_row(const json_t *row, struct file_counts *counts)
{
    counts->all.rows += 1 + json_array_size(json_object_get(row, "torch_also"));
    for (size_t g = 0; g < GROUPS; g++) {
        if (!is_of_group(row, g))
            continue;
        const bool planned = truth_is_planned(row);
        counts->of[g].rows += planned;
        counts->of[g].left += !planned;
        counts->of[g].events += planned && json_object_get(row, "event_list");
    }
}

/* NULL: it cannot be read. */
static const struct file_counts *counts_of(const char *name)
{
    static struct file_counts known[FILES_MOST];
    static size_t count;
    for (size_t i = 0; i < count; i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    char path[256], *line = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "tests/data/truth/%s.jsonl", name);
    FILE *file = fopen(path, "r");
    if (!file || count == FILES_MOST)
        return NULL;
    struct file_counts *counts = &known[count++];
    snprintf(counts->name, sizeof counts->name, "%s", name);
    while (getline(&line, &size, file) > 0) {
        json_t *row = truth_row_head(line);
        if (row)
            count_row(row, counts);
        json_decref(row);
    }
    free(line);
    fclose(file);
    return counts;
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

/* How many of its recordings a system's report says are planned without any difference. */
static bool count_exact(const char *group, const struct counted *counted, size_t *out)
{
    char path[256], line[TEXT];
    size_t exact = 0, rows = 0;
    snprintf(path, sizeof path, "reports/validation/memory-%s.md", group);
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
    *out += exact;
    return true;
}

/* ---- places ---- */

static bool count_group(const char *name, struct counted *out)
{
    for (size_t g = 0; g < GROUPS; g++) {
        if (strcmp(groups[g].name, name) != 0)
            continue;
        for (int i = 0; groups[g].files[i]; i++) {
            const struct file_counts *counts = counts_of(groups[g].files[i]);
            if (!counts)
                return false;
            out->rows += counts->of[g].rows;
            out->left += counts->of[g].left;
            out->events += counts->of[g].events;
        }
        return true;
    }
    return false;
}

/* "rows fsdp2", "lines real_events". */
static bool fill_number(char *place, char *out, size_t size)
{
    char *save = NULL;
    const char *what = strtok_r(place, " ", &save), *name = strtok_r(NULL, " ", &save);
    struct counted counted = {0};
    if (!what || !name)
        return false;
    if (strcmp(what, "lines") == 0) {
        const struct file_counts *counts = counts_of(name);
        if (!counts)
            return false;
        counted = counts->all;
    } else if (!count_group(name, &counted)) {
        return false;
    }
    snprintf(out, size, "%zu",
             strcmp(what, "events") == 0 ? counted.events
             : strcmp(what, "left") == 0 ? counted.left
                                         : counted.rows);
    return true;
}

/* "rows fsdp2, lines real_events": what these make together. */
static bool fill_sum(char *places, char *out, size_t size)
{
    size_t sum = 0;
    char *save = NULL, value[64];
    for (char *at = strtok_r(places, ",", &save); at; at = strtok_r(NULL, ",", &save)) {
        char *end;
        if (!fill_number(at, value, sizeof value))
            return false;
        sum += strtoull(value, &end, 10);
        if (*end || end == value)
            return false;
    }
    if (sum >= 1000)
        snprintf(out, size, "%zu,%03zu", sum / 1000, sum % 1000);
    else
        snprintf(out, size, "%zu", sum);
    return true;
}

/* "fsdp2, fsdp1": "0 bytes off", where none of these systems' recordings differs. */
static bool fill_off(char *systems, char *out, size_t size)
{
    size_t exact = 0, rows = 0;
    char *save = NULL;
    for (char *at = strtok_r(systems, ", ", &save); at; at = strtok_r(NULL, ", ", &save)) {
        struct counted counted = {0};
        if (!count_group(at, &counted) || !count_exact(at, &counted, &exact))
            return false;
        rows += counted.rows;
    }
    if (exact == rows)
        snprintf(out, size, "0 bytes off");
    else
        snprintf(out, size, "0 bytes off in %zu", exact);
    return rows > 0;
}

static bool fill(char *place, char *out, size_t size)
{
    char *save = NULL;
    if (strncmp(place, "sum ", 4) == 0)
        return fill_sum(place + 4, out, size);
    if (strncmp(place, "off ", 4) == 0)
        return fill_off(place + 4, out, size);
    if (strncmp(place, "cell ", 5) != 0)
        return fill_number(place, out, size);
    const char *first = strtok_r(place + 5, "|", &save), *second = strtok_r(NULL, "|", &save);
    const char *third = strtok_r(NULL, "|", &save);
    return first && second && third && cell_of(first, second, (unsigned)atoi(third), out, size);
}

bool truth_table_write(const struct truth_table *table, FILE *to)
{
    char line[TEXT], place[TEXT], value[TEXT];
    FILE *file = fopen(table->template, "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *at = line;
        for (const char *open; (open = strchr(at, '{')); at = strchr(open, '}') + 1) {
            const size_t length = strcspn(open, "}") - 1;
            fwrite(at, 1, (size_t)(open - at), to);
            snprintf(place, sizeof place, "%.*s", (int)length, open + 1);
            if (open[length + 1] != '}' || !fill(place, value, sizeof value)) {
                print_error("%s: {%.*s}: not to be had\n", table->template, (int)length, open + 1);
                fclose(file);
                return false;
            }
            fputs(value, to);
        }
        fputs(at, to);
    }
    return file && fclose(file) == 0;
}

/* ---- pages ---- */

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

/* Between the line that says what the table is made from, and END. */
static bool find_markers(const struct truth_table *table, char *text, char **begin, char **end)
{
    char marker[TEXT];
    snprintf(marker, sizeof marker, "<!-- made by `make validation` from %s -->\n",
             table->template);
    char *at = text ? strstr(text, marker) : NULL;
    *begin = at ? at + strlen(marker) : NULL;
    *end = at ? strstr(*begin, END) : NULL;
    return *end != NULL;
}

char *truth_table_of_page(const struct truth_table *table)
{
    char *begin, *end, *text = read_all(table->page), *there = NULL;
    if (find_markers(table, text, &begin, &end))
        there = strndup(begin, (size_t)(end - begin));
    free(text);
    return there;
}

bool truth_table_put(const struct truth_table *table)
{
    char *begin, *end, *text = read_all(table->page), *made = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&made, &size), *file = NULL;
    bool ok = memory && find_markers(table, text, &begin, &end) && truth_table_write(table, memory);
    if (memory)
        fclose(memory);
    if (ok)
        file = fopen(table->page, "w");
    if (file) {
        fwrite(text, 1, (size_t)(begin - text), file);
        fputs(made, file);
        fputs(end, file);
        ok = fclose(file) == 0;
    }
    free(made);
    free(text);
    return ok && file;
}
