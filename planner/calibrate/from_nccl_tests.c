/* from_nccl_tests.c - see from_nccl_tests.h. */
#include "calibrate/from_nccl_tests.h"

#include "base/arena.h"
#include "base/json_file.h"
#include "machine/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static enum err_code read_files(const struct nccl_source *source, struct nccl_import *out,
                                struct err *err)
{
    for (uint32_t i = 0; i < source->path_count; i++) {
        struct nccl_tests tests;
        TRY(nccl_tests_read(source->paths[i], &source->known, &tests, err));
        for (size_t k = 0; k < tests.count; k++) {
            ARRAY_GROW(out->points, out->point_count, out->point_cap);
            out->points[out->point_count++] = tests.points[k];
        }
        out->left_out += tests.left_out;
        nccl_tests_free(&tests);
    }
    return ERR_OK;
}

static enum err_code read_base(const struct nccl_source *source, json_t **out, struct err *err)
{
    struct profile checked = {.kernels = NULL};
    if (!source->base) {
        *out = json_object();
        return ERR_OK;
    }
    TRY(profile_read(source->base, &checked, err));
    profile_free(&checked);
    *out = json_file_read(source->base, NULL);
    return *out ? ERR_OK : err_set(err, ERR_IO, "read %s a second time", source->base);
}

/* ---- fits ---- */

static struct nccl_fit *fit_of(struct nccl_import *out, const struct collective_point *p)
{
    for (uint32_t i = 0; i < out->fit_count; i++)
        if (out->fits[i].collective == p->collective && out->fits[i].ranks == p->ranks &&
            out->fits[i].nodes == p->nodes)
            return &out->fits[i];
    return NULL;
}

static void add_fit(struct nccl_import *out, const struct collective_point *p, uint32_t *cap)
{
    struct nccl_fit *fit = fit_of(out, p);
    if (!fit) {
        ARRAY_GROW(out->fits, out->fit_count, *cap);
        fit = &out->fits[out->fit_count++];
        *fit = (struct nccl_fit){.collective = p->collective,
                                 .ranks = p->ranks,
                                 .nodes = p->nodes,
                                 .least_bytes = (double)p->bytes};
    }
    fit->points++;
    fit->least_bytes = fmin(fit->least_bytes, (double)p->bytes);
    fit->most_bytes = fmax(fit->most_bytes, (double)p->bytes);
}

static void fit_points(struct nccl_import *out)
{
    uint32_t cap = 0;
    for (size_t i = 0; i < out->point_count; i++)
        add_fit(out, &out->points[i], &cap);
    for (uint32_t i = 0; i < out->fit_count; i++) {
        struct nccl_fit *fit = &out->fits[i];
        double *bytes = xmalloc(2 * (size_t)fit->points * sizeof *bytes);
        double *seconds = bytes + fit->points;
        size_t n = 0;
        for (size_t k = 0; k < out->point_count; k++) {
            if (fit_of(out, &out->points[k]) != fit)
                continue;
            bytes[n] = (double)out->points[k].bytes;
            seconds[n++] = out->points[k].seconds;
        }
        if (fit_alpha_beta(bytes, seconds, n, &fit->fit, NULL) != ERR_OK)
            fit->fit.pieces = 0;
        free(bytes);
    }
}

/* ---- the profile ---- */

/* Points of the base that the files do not measure anew. */
static json_t *kept_points(struct nccl_import *out, const json_t *base)
{
    json_t *kept = json_array();
    const json_t *points = json_object_get(base, "collectives");
    for (size_t i = 0; i < json_array_size(points); i++) {
        json_t *point = json_array_get(points, i);
        struct collective_point p = {
            .collective = COLLECTIVE_COUNT,
            .ranks = (uint32_t)json_number_value(json_object_get(point, "ranks")),
            .nodes = (uint32_t)json_number_value(json_object_get(point, "nodes"))};
        const char *name = json_string_value(json_object_get(point, "collective"));
        for (int k = 0; name && k < COLLECTIVE_COUNT; k++)
            if (strcmp(name, collective_name((enum collective)k)) == 0)
                p.collective = (enum collective)k;
        if (!fit_of(out, &p))
            json_array_append(kept, point);
    }
    return kept;
}

static json_t *with_points(struct nccl_import *out, const struct nccl_source *source, json_t *base)
{
    json_t *points = kept_points(out, base);
    for (size_t i = 0; i < out->point_count; i++) {
        const struct collective_point *p = &out->points[i];
        json_array_append_new(points, json_pack("{s:s, s:i, s:i, s:f, s:f}", "collective",
                                                collective_name(p->collective), "ranks",
                                                (int)p->ranks, "nodes", (int)p->nodes, "bytes",
                                                (double)p->bytes, "seconds", p->seconds));
    }
    json_object_set_new(base, "collectives", points);
    if (source->gpu)
        json_object_set_new(base, "gpu", json_string(source->gpu));
    const char *before = json_string_value(json_object_get(base, "source"));
    json_t *text = json_sprintf("%s%scollectives: nccl-tests, %s, read %s", before ? before : "",
                                before ? "; " : "", source->paths[0], source->date);
    json_object_set_new(base, "source", text);
    return base;
}

enum err_code nccl_import(const struct nccl_source *source, struct nccl_import *out,
                          struct err *err)
{
    json_t *base = NULL;
    *out = (struct nccl_import){.points = NULL};
    enum err_code rc = read_base(source, &base, err);
    if (rc == ERR_OK)
        rc = read_files(source, out, err);
    if (rc != ERR_OK) {
        json_decref(base);
        nccl_import_free(out);
        return rc;
    }
    fit_points(out);
    out->profile = with_points(out, source, base);
    return ERR_OK;
}

void nccl_import_free(struct nccl_import *import)
{
    free(import->points);
    free(import->fits);
    json_decref(import->profile);
    *import = (struct nccl_import){.points = NULL};
}
