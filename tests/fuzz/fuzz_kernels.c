/* fuzz_kernels.c - any bytes as a table of kernels: each row has a time or none. */
#include "kernels/kernel_csv.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct csv_table table;
    struct kernel_csv csv;
    struct kernel_csv_row row;
    static struct profile profile; /* of all runs */
    static bool found;
    struct err err = {0};
    char *text = malloc(size + 1);
    found = found || profile_find("h100", &profile, &err) == ERR_OK;
    if (!text || !found)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    if (csv_table_parse("fuzz.csv", text, &table, &err) == ERR_OK) {
        enum err_code rc = kernel_csv_open("fuzz.csv", &table, &csv, &err);
        for (uint32_t i = 0; i < table.rows && rc == ERR_OK; i++) {
            rc = kernel_csv_predict(&csv, i, &profile, &row, &err);
            if (rc == ERR_OK && !isnan(row.seconds) && !(row.seconds >= 0))
                abort();
        }
        csv_table_free(&table);
    }
    return 0;
}
