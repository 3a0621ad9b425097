/* nccl_tests.c - see nccl_tests.h. */
#include "nccl/nccl_tests_parts.h"

#include "base/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A profile holds no others. */
static enum err_code check_point(const char *path, const struct collective_point *point,
                                 struct err *err)
{
    if (point->seconds >= POINT_SECONDS_LEAST && point->seconds <= POINT_SECONDS_MOST &&
        (double)point->bytes <= POINT_BYTES_MOST && point->ranks <= POINT_RANKS_MOST)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s: %s of %" PRIu64 " bytes on %u ranks took %g s: expected at most %g bytes "
                   "and %g ranks, and %g ... %g s",
                   path, collective_name(point->collective), point->bytes, point->ranks,
                   point->seconds, POINT_BYTES_MOST, POINT_RANKS_MOST, POINT_SECONDS_LEAST,
                   POINT_SECONDS_MOST);
}

enum err_code nccl_tests_read(const char *path, const struct nccl_tests_known *known,
                              struct nccl_tests *out, struct err *err)
{
    *out = (struct nccl_tests){0};
    size_t length;
    char *text = file_read(path, &length, err);
    if (!text)
        return err_recorded(err);
    struct nccl_tests_builder builder = {.path = path, .out = out};
    builder.known = known ? *known : (struct nccl_tests_known){.collective = COLLECTIVE_COUNT};
    const char *start = text + strspn(text, " \t\r\n");
    enum err_code rc = *start == '{' ? nccl_tests_json(&builder, text, length, err)
                                     : nccl_tests_text(&builder, text, length, err);
    free(text);
    for (size_t i = 0; i < out->count && rc == ERR_OK; i++)
        rc = check_point(path, &out->points[i], err);
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
