/* nccl_tests.c - see nccl_tests.h. */
#include "nccl/nccl_tests_parts.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum err_code nccl_tests_read(const char *path, const struct nccl_tests_known *known,
                              struct nccl_tests *out, struct err *err)
{
    *out = (struct nccl_tests){0};
    size_t length;
    char *text = file_read(path, &length, err);
    if (!text)
        return ERR_IO;
    struct nccl_tests_builder builder = {.path = path, .out = out};
    builder.known = known ? *known : (struct nccl_tests_known){.collective = COLLECTIVE_COUNT};
    const char *start = text + strspn(text, " \t\r\n");
    enum err_code rc = *start == '{' ? nccl_tests_json(&builder, text, length, err)
                                     : nccl_tests_text(&builder, text, length, err);
    free(text);
    if (rc == ERR_OK && out->count == 0)
        rc =
            err_set(err, ERR_INVALID,
                    "%s: no measured row of all_gather, reduce_scatter, all_reduce or broadcast "
                    "(%zu rows left out); expected nccl-tests' table, which begins with \"#  size  "
                    "count  type  redop  root  time  algbw  busbw\", or its JSON",
                    path, out->left_out);
    if (rc != ERR_OK)
        nccl_tests_free(out);
    return rc;
}

void nccl_tests_free(struct nccl_tests *tests)
{
    free(tests->points);
    *tests = (struct nccl_tests){0};
}
