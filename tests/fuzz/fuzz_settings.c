/* fuzz_settings.c - any bytes as settings: a line a setting, "name value"; what was taken must be
 * read back as itself. */
#include "settings/settings.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const struct settings *settings, const struct setting *row)
{
    char first[NUMBER_TEXT], second[NUMBER_TEXT];
    struct settings again = *settings;
    const char *text = setting_read(row, settings, first);
    if (!text)
        return;
    if (setting_write(row, &again, text, NULL) != ERR_OK ||
        strcmp(setting_read(row, &again, second), text) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings settings;
    char difference[256], *rest;
    if (size < 2)
        return 0;
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    settings_defaults(&settings, (enum command)(data[0] % COMMAND_COUNT));
    const struct settings defaults = settings;
    settings.job.strategy.system = (enum system_kind)(data[0] / COMMAND_COUNT % SYSTEM_COUNT);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        struct err err = {0};
        char *value = line + strcspn(line, " ");
        value += *value ? (*value = '\0', 1) : 0;
        const enum err_code rc = settings_set(&settings, line, value, &err);
        if ((rc == ERR_OK) != (err.code == ERR_OK))
            abort();
        const struct setting *row = settings_find(&settings, line, NULL);
        if (row && row->kind != SETTING_LIST)
            check_round_trip(&settings, row);
    }
    json_decref(settings_echo(&settings));
    settings_difference(&defaults, &settings, difference, sizeof difference);
    free(text);
    return 0;
}
