/* calibration_report.c - see calibration_report.h. */
#include "report/calibration_report.h"

#include "base/file.h"
#include "report/compare_print.h"
#include "report/files.h"
#include "report/picture.h"
#include "report/style.h"

#include "calibrate_gp.h" /* generated from reports/calibrate.gp */

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CALIBRATION_SVG "calibration.svg"

/* ---- the table ---- */

/* "110 GFLOP/s" or "14.1 GB/s" of what one more costs; "-": it costs nothing. */
static const char *rate(double seconds_each, double unit, char text[32])
{
    if (seconds_each > 0)
        snprintf(text, 32, "%.3g", 1 / seconds_each / unit);
    else
        snprintf(text, 32, "-");
    return text;
}

/* "bf16", or "bf16>fp32" of what comes out in another dtype than what goes in. */
static const char *dtypes_of(const struct kernel_fit *f, char text[32])
{
    const bool same = f->key.to == f->key.dtype;
    snprintf(text, 32, "%s%s%s", dtype_brief(f->key.dtype), same ? "" : ">",
             same ? "" : dtype_brief(f->key.to));
    return text;
}

static void print_kernels(FILE *file, const struct style *s, const struct calibration *c)
{
    size_t wide = strlen("dtype");
    for (uint32_t i = 0; i < c->fit_count; i++) {
        char dtypes[32];
        const size_t length = c->fits[i].any_kind ? 0 : strlen(dtypes_of(&c->fits[i], dtypes));
        wide = length > wide ? length : wide;
    }
    fprintf(file, "  %s%-28s %-*s %-4s %5s %9s %8s %8s %7s %7s%s\n", s->bold, "work", (int)wide,
            "dtype", "pass", "sizes", "latency", "GFLOP/s", "GB/s", "spread", "worst", s->off);
    for (uint32_t i = 0; i < c->fit_count; i++) {
        const struct kernel_fit *f = &c->fits[i];
        char latency[32], flops[32], bytes[32], dtypes[32];
        if (f->any_kind)
            continue;
        fprintf(file, "  %-28s %-*s %-4s %5u %9s %8s %8s %5.1f %% %5.1f %%\n",
                work_name(f->key.work), (int)wide, dtypes_of(f, dtypes),
                f->key.backward ? "bwd" : "fwd", f->points, compare_seconds(f->latency_s, latency),
                rate(f->seconds_per_flop, 1e9, flops), rate(f->seconds_per_byte, 1e9, bytes),
                100 * f->spread, 100 * f->worst);
    }
}

static void print_messages(FILE *file, const struct style *s, const struct calibration *c)
{
    if (c->samples.message_count == 0)
        return;
    fprintf(file, "\n  %s%-16s %5s %16s %10s %8s%s\n", s->bold, "collective", "ranks", "bytes",
            "seconds", "GB/s", s->off);
    for (int op = PLAN_ALL_GATHER; op <= PLAN_BROADCAST; op++)
        for (uint32_t i = 0; i < c->samples.message_count; i++) {
            const struct message *m = &c->samples.messages[i];
            char bytes[32], seconds[32];
            if (m->op == (enum plan_op)op)
                fprintf(file, "  %-16s %5u %16s %10s %8.3g\n", plan_op_name(m->op), m->ranks,
                        style_grouped((uint64_t)m->bytes, bytes),
                        compare_seconds(m->seconds, seconds), m->bytes / m->seconds * 1e-9);
        }
}

static void print_overlap(FILE *file, const struct style *s, const struct calibration *c)
{
    static const char *const names[] = {"matrix products", "all_gather", "reduce_scatter"};
    if (c->samples.overlap.part_s[ROUND_COMPUTE_ALONE] <= 0)
        return;
    fprintf(file, "\n  %s%-16s %10s %10s %10s%s\n", s->bold, "overlap", "alone", "together",
            "slower", s->off);
    for (int i = 0; i < 3; i++) {
        const double alone = c->samples.overlap.part_s[ROUND_COMPUTE_ALONE + i];
        const double beside = c->samples.overlap.part_s[ROUND_COMPUTE_BESIDE + i];
        char a[32], b[32];
        fprintf(file, "  %-16s %10s %10s %8.2f x\n", names[i], compare_seconds(alone, a),
                compare_seconds(beside, b), beside / alone);
    }
}

static void print_numbers(FILE *file, const struct style *s, const struct calibration *c)
{
    fprintf(file, "\n  %s%-30s %14s %7s  %s%s\n", s->bold, "number", "value", "spread", "source",
            s->off);
    for (int key = 0; key < PROFILE_KEYS; key++)
        if (c->of[key].known)
            fprintf(file, "  %-30s %14.6g %5.1f %%  %s%s%s\n",
                    profile_key_name((enum profile_key)key), c->of[key].value,
                    100 * c->of[key].spread, s->dim, c->of[key].source, s->off);
}

void calibration_print(FILE *file, const struct calibration *calibration)
{
    const struct style style = style_of(file);
    const struct calibrate_options *o = &calibration->options;
    fprintf(file, "calibration of %s, %u rank%s, %s\n\n", o->device, o->suite.ranks,
            o->suite.ranks == 1 ? "" : "s", o->date);
    print_kernels(file, &style, calibration);
    print_messages(file, &style, calibration);
    print_overlap(file, &style, calibration);
    print_numbers(file, &style, calibration);
}

/* ---- JSON ---- */

json_t *calibration_json(const struct calibration *c, const char *profile_path)
{
    json_t *profile = calibration_profile(c), *kernels = json_array(), *numbers = json_object();
    for (uint32_t i = 0; i < c->fit_count; i++) {
        const struct kernel_fit *f = &c->fits[i];
        json_t *line =
            json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "work", work_name(f->key.work),
                      "sizes", (int)f->points, "latency_s", f->latency_s, "seconds_per_flop",
                      f->seconds_per_flop, "seconds_per_byte", f->seconds_per_byte, "spread",
                      f->spread, "worst", f->worst, "confidence", f->confidence);
        if (!f->any_kind) {
            json_object_set_new(line, "dtype", json_string(dtype_name(f->key.dtype)));
            json_object_set_new(line, "to", json_string(dtype_name(f->key.to)));
            json_object_set_new(line, "backward", json_boolean(f->key.backward));
        }
        json_array_append_new(kernels, line);
    }
    for (int key = 0; key < PROFILE_KEYS; key++)
        if (c->of[key].known)
            json_object_set(numbers, profile_key_name((enum profile_key)key),
                            json_object_get(profile, profile_key_name((enum profile_key)key)));
    json_t *object =
        json_pack("{s:s, s:s, s:i, s:o, s:o, s:O}", "profile", profile_path, "device",
                  c->options.device, "ranks", (int)c->options.suite.ranks, "kernels", kernels,
                  "numbers", numbers, "collectives", json_object_get(profile, "collectives"));
    json_decref(profile);
    return object;
}

/* ---- the page ---- */

static const struct kernel_fit *fit_of_sample(const struct calibration *c, const struct sample *s)
{
    for (uint32_t i = 0; i < c->fit_count; i++) {
        const struct kernel_fit *f = &c->fits[i];
        if (!f->any_kind && f->key.work == s->key.work && f->key.dtype == s->key.dtype &&
            f->key.to == s->key.to && f->key.backward == s->key.backward)
            return f;
    }
    return NULL;
}

/* Blocks of a gnuplot file: kernels that compute, kernels that move, three collectives. */
static void write_data(FILE *file, const void *context)
{
    const struct calibration *c = context;
    for (int arithmetic = 1; arithmetic >= 0; arithmetic--) {
        fprintf(file, "# measured us, fitted us\n0 0\n");
        for (uint32_t i = 0; i < c->samples.kernel_count; i++) {
            const struct sample *s = &c->samples.kernels[i];
            const struct kernel_fit *fit = fit_of_sample(c, s);
            if (fit && s->arithmetic == (arithmetic == 1))
                fprintf(file, "%.6g %.6g\n", 1e6 * s->seconds,
                        1e6 * kernel_fit_seconds(fit, s->flops, s->bytes));
        }
        fprintf(file, "\n\n");
    }
    static const enum plan_op ops[] = {PLAN_ALL_GATHER, PLAN_REDUCE_SCATTER, PLAN_ALL_REDUCE,
                                       PLAN_BROADCAST};
    for (int op = 0; op < 4; op++) {
        fprintf(file, "# bytes, us\n0 0\n");
        for (uint32_t i = 0; i < c->samples.message_count; i++)
            if (c->samples.messages[i].op == ops[op])
                fprintf(file, "%.0f %.6g\n", c->samples.messages[i].bytes,
                        1e6 * c->samples.messages[i].seconds);
        fprintf(file, "\n\n");
    }
}

/* Of so many per cent that a fit is off, how many kernels are off by more. */
static uint32_t count_beyond(const struct calibration *c, double percent)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->samples.kernel_count; i++) {
        const struct sample *s = &c->samples.kernels[i];
        const struct kernel_fit *fit = fit_of_sample(c, s);
        count += fit &&
                 fabs(kernel_fit_seconds(fit, s->flops, s->bytes) / s->seconds - 1) > percent / 100;
    }
    return count;
}

/* The axis is as long as 49 of 50 kernels want; the others are marked at its ends. */
static void write_settings(FILE *file, const void *context)
{
    const struct calibration *c = context;
    const uint32_t ranks = c->options.suite.ranks;
    double most = 10;
    while (most < 100 && 50 * count_beyond(c, most) > c->samples.kernel_count)
        most += 10;
    fprintf(file, "title = 'calibration of %s, %u rank%s, %s'\nmessages = %u\n", c->options.device,
            ranks, ranks == 1 ? "" : "s", c->options.date, c->samples.message_count);
    fprintf(file, "most = %g\nbeyond = %u\n", most, count_beyond(c, most));
}

static void put_tables(FILE *to, const void *context)
{
    calibration_print(to, context);
}

enum err_code calibration_page(const struct calibration *calibration, const char *dir,
                               const char **note, struct err *err)
{
    const struct picture picture = {.svg = CALIBRATION_SVG,
                                    .script = calibrate_gp,
                                    .data = write_data,
                                    .settings = write_settings};
    char path[PATH_MAX], svg[PATH_MAX];
    struct file_writer to;
    bool drawn;
    TRY(picture_draw(&picture, calibration, dir, &drawn, err));
    *note = drawn ? NULL : "gnuplot is not there or failed: no " CALIBRATION_SVG;
    TRY(file_create(files_path(dir, "calibration.html", path, sizeof path), &to, err));
    files_html_begin(to.file, "calibration");
    if (drawn)
        files_inline_svg(to.file, files_path(dir, CALIBRATION_SVG, svg, sizeof svg));
    files_html_pre(to.file, put_tables, calibration);
    fputs("<p>Fitted: seconds = latency + operations / (GFLOP/s) + bytes / (GB/s), robustly "
          "and on relative error. Spread is 1.4826 times the median absolute residual, worst the "
          "largest.</p>\n</html>\n",
          to.file);
    return file_commit(&to, ERR_OK, err);
}
