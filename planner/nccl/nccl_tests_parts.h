/* nccl_tests_parts.h - what the text and the JSON reader of nccl-tests output share. */
#ifndef SHARDPLAN_NCCL_TESTS_PARTS_H
#define SHARDPLAN_NCCL_TESTS_PARTS_H

#include "nccl/nccl_tests.h"

#include <jansson.h>

/* A collective by its program's name ("all_gather_perf", with or without a path before and text
 * after it). */
enum program { PROGRAM_UNKNOWN, PROGRAM_PLANNED, PROGRAM_OTHER };
enum program nccl_tests_program(const char *text, enum collective *out);

struct host_set {  /* distinct host names */
    json_t *names; /* NULL: none yet */
    uint32_t count;
};
void host_set_add(struct host_set *set, const char *name);
void host_set_free(struct host_set *set);

struct nccl_tests_builder {
    const char *path;
    struct nccl_tests_known known;
    struct nccl_tests *out;
    size_t cap;
};
void nccl_tests_add(struct nccl_tests_builder *builder, struct collective_point point,
                    bool in_place);

/* Both read `text` (length bytes and a terminating 0; the text reader writes into it). */
enum err_code nccl_tests_text(struct nccl_tests_builder *builder, char *text, size_t length,
                              struct err *err);
enum err_code nccl_tests_json(struct nccl_tests_builder *builder, const char *text, size_t length,
                              struct err *err);

#endif
