/* nccl_tests_json.c - what nccl-tests writes with --output_file: see nccl_tests.h.
 *
 *     {"version": 1, "args": ["./all_reduce_perf", ...],
 *      "config": {"nthreads": 1, "ngpus": 1, "devices": [{"rank": 0, "hostname": "node-1"}, ...]},
 *      "results": [{"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root":
 * "-1", "out_of_place": {"time": 28.56, ...}, "in_place": {"time": 28.37, ...}}, ...]}
 *
 * A process lists its first device only, whatever it drives: ranks are devices x nthreads x ngpus.
 */
#include "nccl/nccl_tests_parts.h"

#include "base/json_file.h"
#include <jansson.h>
#include <math.h>

struct reader {
    struct nccl_tests_builder *builder;
    enum program program;
    enum collective collective;
    uint32_t ranks, nodes;
};

static enum err_code bad(const struct reader *r, struct err *err, const char *where,
                         const char *expected)
{
    return err_set(err, ERR_INVALID, "%s: %s: expected %s", r->builder->path, where, expected);
}

static enum err_code read_program(struct reader *r, const json_t *root, struct err *err)
{
    const char *program = json_string_value(json_array_get(json_object_get(root, "args"), 0));
    if (program)
        r->program = nccl_tests_program(program, &r->collective);
    if (r->program == PROGRAM_UNKNOWN) {
        if (r->builder->known.collective == COLLECTIVE_COUNT)
            return bad(r, err, "args[0]", "a program such as \"all_gather_perf\"");
        r->collective = r->builder->known.collective;
        r->program = PROGRAM_PLANNED;
    }
    return ERR_OK;
}

static enum err_code positive(const struct reader *r, const json_t *config, const char *key,
                              json_int_t *out, struct err *err)
{
    const json_t *value = json_object_get(config, key);
    *out = value ? json_integer_value(value) : 1;
    char where[64];
    snprintf(where, sizeof where, "config.%s", key);
    if (*out < 1 || *out > 1 << 20)
        return bad(r, err, where, "a whole number, 1 or more");
    return ERR_OK;
}

static enum err_code read_devices(struct reader *r, const json_t *config, struct err *err)
{
    const json_t *devices = json_object_get(config, "devices");
    json_int_t threads, gpus;
    TRY(positive(r, config, "nthreads", &threads, err));
    TRY(positive(r, config, "ngpus", &gpus, err));
    struct host_set hosts = {0};
    enum err_code rc = ERR_OK;
    json_int_t group = 0;
    for (size_t i = 0; i < json_array_size(devices) && rc == ERR_OK; i++) {
        const json_t *device = json_array_get(devices, i);
        const char *host = json_string_value(json_object_get(device, "hostname"));
        const json_int_t g = json_integer_value(json_object_get(device, "group"));
        if (!host)
            rc = bad(r, err, "config.devices", "a \"hostname\" in each");
        else if (i > 0 && g != group)
            rc = err_set(err, ERR_UNSUPPORTED,
                         "%s: config.devices: ranks in several groups: only runs of one group can "
                         "be read",
                         r->builder->path);
        else
            host_set_add(&hosts, host);
        group = g;
    }
    const double ranks = (double)json_array_size(devices) * (double)threads * (double)gpus;
    const uint32_t nodes = hosts.count;
    host_set_free(&hosts);
    TRY(rc);
    if (ranks > UINT32_MAX / 4)
        return bad(r, err, "config", "no more ranks than a billion");
    r->ranks = ranks > 0 ? (uint32_t)ranks : r->builder->known.ranks;
    r->nodes = nodes > 0 ? nodes : r->builder->known.nodes;
    if (r->ranks == 0 || r->nodes == 0)
        return bad(r, err, "config.devices", "one device or more, with its hostname");
    return ERR_OK;
}

/* Microseconds of a block; 0 when it is null or not there. */
static enum err_code time_of(const struct reader *r, const json_t *row, size_t i, const char *block,
                             double *us, struct err *err)
{
    const json_t *object = json_object_get(row, block);
    *us = 0;
    if (!object || json_is_null(object))
        return ERR_OK;
    const json_t *time = json_object_get(object, "time");
    if (!time)
        time = json_object_get(object, "cpu_time");
    char where[96];
    snprintf(where, sizeof where, "results[%zu].%s", i, block);
    *us = json_number_value(time);
    if (!json_is_number(time) || !isfinite(*us) || *us < 0)
        return bad(r, err, where, "\"time\", microseconds, 0 or more");
    if (json_number_value(json_object_get(object, "nwrong")) >= 1)
        return bad(r, err, where, "0 or null in \"nwrong\": the results were wrong");
    return ERR_OK;
}

static enum err_code read_row(const struct reader *r, const json_t *row, size_t i, struct err *err)
{
    const json_t *size = json_object_get(row, "size");
    char where[64];
    snprintf(where, sizeof where, "results[%zu].size", i);
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return bad(r, err, where, "bytes, a whole number");
    double out_of_place, in_place;
    TRY(time_of(r, row, i, "out_of_place", &out_of_place, err));
    TRY(time_of(r, row, i, "in_place", &in_place, err));
    const double us = in_place > 0 ? in_place : out_of_place;
    if (r->program == PROGRAM_OTHER || json_integer_value(size) == 0 || !(us > 0)) {
        r->builder->out->left_out++;
        return ERR_OK;
    }
    nccl_tests_add(r->builder,
                   (struct collective_point){
                       .collective = r->collective,
                       .ranks = r->ranks,
                       .nodes = r->nodes,
                       .bytes = (uint64_t)json_integer_value(size),
                       .seconds = 1e-6 * us,
                   },
                   in_place > 0);
    return ERR_OK;
}

static enum err_code read_root(struct reader *r, const json_t *root, struct err *err)
{
    const json_t *results = json_object_get(root, "results");
    if (!json_is_array(results))
        return bad(r, err, "results", "an array of rows");
    TRY(read_program(r, root, err));
    TRY(read_devices(r, json_object_get(root, "config"), err));
    for (size_t i = 0; i < json_array_size(results); i++)
        TRY(read_row(r, json_array_get(results, i), i, err));
    return ERR_OK;
}

enum err_code nccl_tests_json(struct nccl_tests_builder *builder, const char *text, size_t length,
                              struct err *err)
{
    json_error_t at;
    json_t *root = json_text_read(text, length, 0, &at);
    if (!root)
        return err_set(err, ERR_INVALID, "%s:%d: %s; expected the JSON of nccl-tests --output_file",
                       builder->path, at.line, at.text);
    struct reader reader = {.builder = builder};
    const enum err_code rc = read_root(&reader, root, err);
    json_decref(root);
    return rc;
}
