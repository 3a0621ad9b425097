/* calibrate_nccl.c - see calibrate_nccl.h. */
#include "cli/calibrate_nccl.h"

#include "base/file.h"
#include "cli/commands.h"
#include "report/compare_print.h"
#include "report/style.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum err_code calibrate_write(const json_t *profile, const char *output, struct err *err)
{
    struct file_writer to;
    enum err_code rc = ERR_OK;
    TRY(file_create(output, &to, err));
    if (json_dumpf(profile, to.file, JSON_INDENT(1)) != 0)
        rc = err_set(err, ERR_IO, "write %s: %s", output, strerror(errno));
    fputc('\n', to.file);
    return file_commit(&to, rc, err);
}

/* The last piece is that of large messages. */
static void print_fit(FILE *file, const struct nccl_fit *f)
{
    char least[32], most[32], latency[32];
    fprintf(file, "  %-16s %5u %5u %6u %14s ... %14s", collective_name(f->collective), f->ranks,
            f->nodes, f->points, style_grouped((uint64_t)f->least_bytes, least),
            style_grouped((uint64_t)f->most_bytes, most));
    if (f->fit.pieces == 0) {
        fputs("  too few points for a fit\n", file);
        return;
    }
    const struct alpha_beta_piece *large = &f->fit.piece[f->fit.pieces - 1];
    fprintf(file, " %9s", compare_seconds(f->fit.piece[0].alpha_s, latency));
    if (large->s_per_byte > 0)
        fprintf(file, " %8.1f", 1e-9 / large->s_per_byte);
    else
        fprintf(file, " %8s", "-");
    fprintf(file, " %6.1f %%\n", 100 * f->fit.sigma);
}

static void print(FILE *file, const struct nccl_import *import, const char *output)
{
    const struct style s = style_of(file);
    fprintf(file, "  %s%-16s %5s %5s %6s %33s %9s %8s %8s%s\n", s.bold, "collective", "ranks",
            "nodes", "points", "bytes", "latency", "GB/s", "spread", s.off);
    for (uint32_t i = 0; i < import->fit_count; i++)
        print_fit(file, &import->fits[i]);
    if (import->left_out)
        fprintf(file, "\n  %zu rows of no bytes or of other collectives are left out\n",
                import->left_out);
    fprintf(file, "\n  %s\n", output);
}

static json_t *summary(const struct nccl_import *import, const char *output)
{
    json_t *collectives = json_array();
    for (uint32_t i = 0; i < import->fit_count; i++) {
        const struct nccl_fit *f = &import->fits[i];
        json_t *pieces = json_array();
        for (uint32_t k = 0; k < f->fit.pieces; k++)
            json_array_append_new(pieces, json_pack("{s:f, s:f, s:f}", "from_bytes",
                                                    f->fit.piece[k].from_bytes, "latency_s",
                                                    f->fit.piece[k].alpha_s, "seconds_per_byte",
                                                    f->fit.piece[k].s_per_byte));
        json_array_append_new(collectives,
                              json_pack("{s:s, s:i, s:i, s:i, s:f, s:o}", "collective",
                                        collective_name(f->collective), "ranks", (int)f->ranks,
                                        "nodes", (int)f->nodes, "points", (int)f->points, "spread",
                                        f->fit.sigma, "pieces", pieces));
    }
    return json_pack("{s:s, s:o}", "profile", output, "collectives", collectives);
}

int calibrate_from_nccl(const struct nccl_source *source, const struct settings *settings)
{
    const char *output = settings->output;
    struct nccl_import import;
    struct err err = {0};
    if (nccl_import(source, &import, &err) != ERR_OK)
        return report_error(&err);
    int status = EXIT_DONE;
    if (calibrate_write(import.profile, output, &err) != ERR_OK) {
        status = report_error(&err);
    } else if (settings->json) {
        json_t *object = summary(&import, output);
        json_object_set_new(object, "settings", settings_echo(settings));
        report_json(object);
    } else if (!settings->quiet) {
        print(stdout, &import, output);
    }
    nccl_import_free(&import);
    return status;
}
