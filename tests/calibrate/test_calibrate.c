/* test_calibrate.c - fits find the coefficients that times were made from; a calibration of this
 * machine writes a profile that is accepted; nothing is left behind when it cannot. */
#include "calibrate/calibrate.h"
#include "calibrate/from_nccl_tests.h"
#include "calibrate/scalars.h"
#include "cost/cost.h"
#include "job/job.h"
#include "report/calibration_report.h"
#include "tests/support/small_jobs.h"
#include "tests/support/temp_folder.h"

#include "tests/support/ranks.h"

#include <dirent.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>

/* ---- fits of made-up times ---- */

static const double latency_s = 3e-6, per_flop_s = 1e-11, per_byte_s = 1e-10;

static double true_seconds(bool arithmetic, double flops, double bytes)
{
    return latency_s + bytes * per_byte_s + (arithmetic ? flops * per_flop_s : 0);
}

/* Times of kernels over three decades, 2 % off at random, every eighth of them a triple. */
static uint32_t make_samples(struct sample *samples, uint32_t count, bool arithmetic)
{
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    for (uint32_t i = 0; i < count; i++) {
        const double n = pow(10, 1.5 + 1.5 * i / count), k = 64 * (1 + i % 5);
        samples[i] = (struct sample){.key = {WORK_MATMUL_NT, DTYPE_FP32, DTYPE_FP32, false},
                                     .arithmetic = arithmetic,
                                     .flops = 2 * n * n * k,
                                     .bytes = 4 * (n * n + 2 * n * k),
                                     .repeats = 1};
        samples[i].seconds = true_seconds(arithmetic, samples[i].flops, samples[i].bytes) *
                             (1 + gsl_ran_gaussian(random, 0.02)) * (i % 8 == 7 ? 3 : 1);
    }
    gsl_rng_free(random);
    return count;
}

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value / expected - 1) <= tolerance))
        fail_msg("%g is not within %g of %g", value, tolerance, expected);
}

static void fit_finds_coefficients(void **state)
{
    (void)state;
    struct sample samples[64];
    const struct kernel_fit fit = kernel_fit(samples, make_samples(samples, 64, true));
    assert_near(fit.latency_s, latency_s, 0.05);
    assert_near(fit.seconds_per_flop, per_flop_s, 0.02);
    assert_near(fit.seconds_per_byte, per_byte_s, 0.1);
    assert_near(fit.spread, 0.02, 0.5);
    assert_near(fit.worst, 2.0 / 3, 0.1); /* a triple, fitted to a third of it */
    assert_true(fit.confidence > 0 && fit.confidence < 0.02);
    assert_int_equal(fit.points, 64);
}

static void fit_of_bytes_ignores_operations(void **state)
{
    (void)state;
    struct sample samples[64];
    const struct kernel_fit fit = kernel_fit(samples, make_samples(samples, 64, false));
    assert_near(fit.latency_s, latency_s, 0.05);
    assert_near(fit.seconds_per_byte, per_byte_s, 0.02);
    assert_true(fit.seconds_per_flop == 0);
}

/* Times that shrink with operations or start below zero: no size may cost less than nothing. */
static void fit_has_no_negative_terms(void **state)
{
    (void)state;
    struct sample samples[16];
    for (int i = 0; i < 16; i++)
        samples[i] = (struct sample){.key = {WORK_ADD, DTYPE_FP32, DTYPE_FP32, false},
                                     .arithmetic = true,
                                     .flops = 1e9 / (i + 1),
                                     .bytes = 1e6 * (i + 1),
                                     .seconds = 1e-4 * (i + 1) - 0.9e-4};
    const struct kernel_fit fit = kernel_fit(samples, 16);
    assert_true(fit.latency_s >= 0 && fit.seconds_per_flop >= 0 && fit.seconds_per_byte > 0);
    assert_true(kernel_fit_seconds(&fit, 0, 1) >= 0);
}

static void fit_of_one_size_is_that_size(void **state)
{
    (void)state;
    const struct sample sample = {.key = {WORK_ADD, DTYPE_FP32, DTYPE_FP32, false},
                                  .bytes = 1e6,
                                  .seconds = 2e-4,
                                  .repeats = 1};
    const struct kernel_fit fit = kernel_fit(&sample, 1);
    assert_near(kernel_fit_seconds(&fit, 0, 1e6), 2e-4, 1e-9);
    assert_near(kernel_fit_seconds(&fit, 0, 2e6), 4e-4, 1e-9); /* by bytes, not as a constant */
}

/* ---- a whole calibration from made-up traces ---- */

enum { COLLECTIVE_LATENCY_US = 20, COLLECTIVE_NS_PER_KB = 100 };

static double made_up_seconds(const struct plan *plan, const struct plan_instruction *in)
{
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    const double bytes = kernel_traffic(kernel);
    if (plan_op_is_collective((enum plan_op)in->op))
        return 1e-6 * COLLECTIVE_LATENCY_US + 1e-12 * COLLECTIVE_NS_PER_KB * bytes;
    return true_seconds(kernel_class(kernel) != COST_MEMORY, kernel->flops, bytes);
}

/* One after the other, each as long as it should be, except that every tenth is held up. */
static enum err_code made_up_run(void *context, const struct plan *plan, struct trace **out,
                                 struct err *err)
{
    gsl_rng *random = context;
    double now = 1e-3;
    (void)err;
    *out = trace_new();
    trace_set_info(*out, "step", "2");
    const uint32_t lane = trace_add_lane(*out, trace_add_process(*out, 0, NULL), "compute");
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (!plan_op_is_kernel((enum plan_op)in->op) || in->flags & PLAN_FIRST_STEP)
            continue;
        const double seconds = made_up_seconds(plan, in) * (1 + gsl_ran_gaussian(random, 0.01)) *
                               (i % 10 == 3 ? 1.5 : 1);
        trace_add_event(*out, &(struct trace_event){.id = i,
                                                    .lane = lane,
                                                    .kind = TRACE_SPAN,
                                                    .name = "",
                                                    .category = "",
                                                    .begin_s = now,
                                                    .end_s = now + seconds});
        now += seconds + 1e-7;
    }
    return ERR_OK;
}

static const struct kernel_fit *fit_named(const struct calibration *c, enum work_kind work,
                                          bool backward)
{
    for (uint32_t i = 0; i < c->fit_count; i++)
        if (!c->fits[i].any_kind && c->fits[i].key.work == work &&
            c->fits[i].key.dtype == DTYPE_FP32 && c->fits[i].key.backward == backward)
            return &c->fits[i];
    fail_msg("no fit of %s", work_name(work));
    return NULL;
}

static void made_up_machine(struct calibration *out)
{
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    const struct calibrate_runner runner = {.run = made_up_run, .context = random};
    const struct calibrate_options options = {
        .suite = {.ranks = 2, .quick = true, .largest_bytes = 1 << 20},
        .device = "host",
        .date = "2026-01-01"};
    struct err err = {0};
    if (calibrate(&options, &runner, out, &err) != ERR_OK)
        fail_msg("%s", err.text);
    gsl_rng_free(random);
}

static void suite_finds_a_made_up_machine(void **state)
{
    (void)state;
    struct calibration c;
    made_up_machine(&c);
    static const enum work_kind products[] = {WORK_MATMUL_NT, WORK_MATMUL_NN, WORK_MATMUL_TN};
    for (int i = 0; i < 3; i++) {
        const struct kernel_fit *fit = fit_named(&c, products[i], products[i] != WORK_MATMUL_NT);
        assert_near(fit->latency_s, latency_s, 0.1);
        assert_near(fit->seconds_per_flop, per_flop_s, 0.2);
    }
    for (int backward = 0; backward < 2; backward++)
        assert_near(fit_named(&c, WORK_ADD, backward)->seconds_per_byte, per_byte_s, 0.1);
    assert_near(c.of[PROFILE_LATENCY].value, 1e-7, 0.01); /* the gap */
    assert_int_equal(c.samples.message_count, 20);
    for (uint32_t i = 0; i < c.samples.message_count; i++)
        assert_near(c.samples.messages[i].seconds,
                    1e-6 * COLLECTIVE_LATENCY_US +
                        1e-12 * COLLECTIVE_NS_PER_KB *
                            (c.samples.messages[i].op == PLAN_ALL_REDUCE       ? 2
                             : c.samples.messages[i].op == PLAN_REDUCE_SCATTER ? 1.5
                                                                               : 2) *
                            c.samples.messages[i].bytes,
                    0.1);
    /* Nothing ran beside anything, so nothing was taken from anything: up to the noise. */
    assert_true(c.of[PROFILE_OVERLAP].known && c.of[PROFILE_OVERLAP].value < 1);
    calibrate_free(&c);
}

/* Whatever dtypes there are: "int64>fp32" is the widest. */
static void the_table_of_kernels_is_aligned(void **state)
{
    (void)state;
    struct calibration c;
    char *text = NULL;
    size_t size = 0;
    uint32_t rows = 0;
    made_up_machine(&c);
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    calibration_print(file, &c);
    fclose(file);
    assert_non_null(strstr(text, "int64>fp32"));
    const char *head = strstr(text, "  work ");
    assert_non_null(head);
    const size_t pass = (size_t)(strstr(head, "pass") - head);
    for (const char *row = strchr(head, '\n') + 1; *row != '\n'; rows++) {
        assert_true(strncmp(row + pass - 1, " fwd ", 5) == 0 ||
                    strncmp(row + pass - 1, " bwd ", 5) == 0);
        row = strchr(row, '\n') + 1;
    }
    assert_true(rows > 20);
    free(text);
    calibrate_free(&c);
}

/* The most operations of a product, and bytes of an operand, of a plan's kernels. */
static void find_largest(const struct plan *plan, double *flops, double *bytes)
{
    *flops = *bytes = 0;
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        if (plan->instructions[id].op != PLAN_COMPUTE)
            continue;
        const struct kernel *kernel = plan_kernel(plan, plan->instructions[id].arg);
        *flops = fmax(*flops, kernel->flops);
        for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++)
            *bytes = fmax(*bytes, (double)shape_bytes(&kernel->operands[i].shape,
                                                      (enum dtype)kernel->operands[i].dtype));
    }
}

/* A launch takes microseconds, and a second cache holds up to a hundred MB: of models whose kernels
 * take no longer, or fit there, nothing follows for larger ones. */
static void models_are_as_large_as_a_gpu_needs(void **state)
{
    (void)state;
    for (int quick = 0; quick < 2; quick++) {
        const struct suite_options options = {.ranks = 1, .quick = quick, .gpu = true};
        uint32_t beyond_cache = 0, models = 0;
        for (uint32_t i = 0; i < suite_count(&options); i++) {
            struct suite_item item;
            struct err err = {0};
            double flops, bytes;
            if (suite_make(&options, i, &item, &err) != ERR_OK)
                fail_msg("%s", err.text);
            find_largest(item.plan, &flops, &bytes);
            plan_free(item.plan);
            if (item.purpose != SUITE_KERNELS)
                continue;
            assert_true(flops / 1e15 > 10e-6); /* on a GPU of 1000 TFLOP/s */
            beyond_cache += bytes > 2e8;
            models++;
        }
        assert_true(models > 5 && beyond_cache >= models / 3 && beyond_cache < models);
    }
}

/* ---- ranks that differ ---- */

/* A trace whose kernels take `factor` times as long as on the made-up machine. */
static struct trace *trace_at(const struct plan *plan, double factor)
{
    struct trace *trace = trace_new();
    const uint32_t lane = trace_add_lane(trace, trace_add_process(trace, 0, NULL), "compute");
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (plan->instructions[i].op == PLAN_COMPUTE)
            trace_add_event(trace,
                            &(struct trace_event){
                                .id = i,
                                .lane = lane,
                                .kind = TRACE_SPAN,
                                .name = "",
                                .category = "",
                                .end_s = factor * made_up_seconds(plan, &plan->instructions[i])});
    return trace;
}

static void what_ranks_differ_by_is_found(void **state)
{
    (void)state;
    enum { RANKS = 48 };
    static const double card = 0.05, step = 0.02;
    const struct suite_options options = {.ranks = RANKS, .largest_bytes = 1 << 20};
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    struct paces paces = {.seconds = NULL};
    struct paces_found found;
    struct err err = {0};
    double cards[RANKS];
    for (int i = 0; i < RANKS; i++)
        cards[i] = gsl_ran_gaussian(random, card);
    assert_false(paces_find(&paces, &found));
    for (uint32_t i = 0; i < suite_count(&options); i++) {
        struct suite_item item;
        struct trace *traces[RANKS] = {NULL};
        assert_int_equal(suite_make(&options, i, &item, &err), ERR_OK);
        for (uint32_t rank = 0; rank < item.plan->world; rank++)
            traces[rank] = trace_at(item.plan, exp(cards[rank] + gsl_ran_gaussian(random, step)));
        paces_add(&paces, &item, (const struct trace *const *)traces);
        for (uint32_t rank = 0; rank < item.plan->world; rank++)
            trace_free(traces[rank]);
        plan_free(item.plan);
    }
    assert_true(paces.plans >= 10 && paces.ranks == RANKS);
    assert_true(paces_find(&paces, &found));
    /* three standard deviations of so few */
    assert_near(found.rank, card, 3 / sqrt(2 * (RANKS - 1)));
    assert_near(found.step, step, 3 / sqrt(2 * 0.37 * (RANKS - 1) * (paces.plans - 1)));
    assert_near(found.rank_spread, 1 / sqrt(2 * (RANKS - 1)), 1e-6);
    paces_free(&paces);
    gsl_rng_free(random);
}

/* ---- its profile ---- */

static void assert_complete(const struct profile *profile)
{
    for (int key = 0; key < PROFILE_KEYS; key++) {
        const struct quantity *q = &profile->of[key];
        if (!q->source || strlen(q->source) < 5 || strstr(q->source, ".json"))
            fail_msg("%s has no source", profile_key_name((enum profile_key)key));
    }
    assert_true(profile->kernel_count > 20);
    for (uint32_t i = 0; i < profile->kernel_count; i++)
        if (!profile->kernels[i].source || !strstr(profile->kernels[i].source, "calibrate, "))
            fail_msg("kernel %s has no source", work_name(profile->kernels[i].work));
    assert_true(profile->point_count >= 9);
}

/* A job whose plan has kernels of both passes and collectives: each costs what the machine was made
 * to take. */
static void profile_gives_the_times_back(void **state)
{
    (void)state;
    struct calibration c;
    struct profile profile = {.kernels = NULL};
    struct costs costs;
    struct err err = {0};
    made_up_machine(&c);
    json_t *object = calibration_profile(&c);
    assert_int_equal(json_dump_file(object, path_of("a.json"), 0), 0);
    json_decref(object);
    if (profile_read(path_of("a.json"), &profile, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_complete(&profile);
    assert_int_equal(profile.generation, GENERATION_CPU);

    struct job job = small_job(ARCH_LLAMA);
    job.model.compute = job.strategy.compute = DTYPE_FP32;
    job.strategy.world = 2;
    struct plan *plan = small_plan_of(&job);
    assert_int_equal(costs_of_plan(plan, &profile, 8, &costs, &err), ERR_OK);
    uint32_t kernels = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->op != PLAN_COMPUTE ||
            !work_is_matmul((enum work_kind)plan_kernel(plan, in->arg)->work))
            continue;
        assert_near(costs.kernels[in->arg].device_s, made_up_seconds(plan, in), 0.15);
        kernels++;
    }
    assert_true(kernels > 20);
    costs_free(&costs);
    plan_free(plan);
    profile_free(&profile);
    calibrate_free(&c);
}

static void most_specific_kernel_holds(void **state)
{
    (void)state;
    static const char text[] = "{\"gpu\": \"h100-sxm\", \"kernels\": {\"add\": ["
                               "{\"dtype\": \"bfloat16\", \"backward\": true, \"latency_s\": 1},"
                               "{\"dtype\": \"bfloat16\", \"latency_s\": 2}, {\"latency_s\": 3}]}}";
    struct profile profile = {.kernels = NULL};
    struct err err = {0};
    put_text("a.json", text, sizeof text - 1);
    if (profile_read(path_of("a.json"), &profile, &err) != ERR_OK)
        fail_msg("%s", err.text);
    for (int fp32 = 0; fp32 < 2; fp32++) {
        struct job job = small_job(ARCH_LLAMA);
        job.tape.checkpointing = CHECKPOINTING_FULL;
        job.model.compute = job.strategy.compute = fp32 ? DTYPE_FP32 : DTYPE_BF16;
        struct plan *plan = small_plan_of(&job);
        struct costs costs;
        assert_int_equal(costs_of_plan(plan, &profile, 8, &costs, &err), ERR_OK);
        uint32_t seen[2] = {0, 0};
        for (uint32_t i = 0; i < plan->kernel_count; i++) {
            const struct kernel *kernel = plan_kernel(plan, i);
            if (kernel->work != WORK_ADD)
                continue;
            const bool backward = kernel->backward && !kernel->recomputed;
            assert_near(costs.kernels[i].device_s, fp32 ? 3 : backward ? 1 : 2, 1e-6);
            seen[backward]++;
        }
        assert_true(seen[0] > 0 && seen[1] > 0);
        costs_free(&costs);
        plan_free(plan);
    }
    profile_free(&profile);
}

static void wrong_kernels_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"{\"kernels\": {\"matmul_nt\": 3}}", "an object or a list"},
        {"{\"kernels\": {\"matmul_nt\": [3]}}", "an object or a list"},
        {"{\"kernels\": {\"mm\": {}}}", "no computation is called \"mm\""},
        {"{\"kernels\": {\"matmul\": {}}}", "the nearest is matmul_nt"},
        {"{\"kernels\": {\"matmul_nt\": {\"dtype\": \"float7\"}}}", "float32"},
        {"{\"kernels\": {\"matmul_nt\": {\"backward\": 1}}}", "true, false"},
        {"{\"kernels\": {\"matmul_nt\": [{\"latency_s\": -1}]}}", "0 ... 1000"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct profile profile = {.kernels = NULL};
        struct err err = {0};
        put_text("a.json", wrong[i].text, strlen(wrong[i].text));
        assert_int_equal(profile_read(path_of("a.json"), &profile, &err), ERR_INVALID);
        if (!strstr(err.text, wrong[i].says))
            fail_msg("%s: does not say \"%s\"", err.text, wrong[i].says);
        profile_free(&profile);
    }
}

/* ---- nccl-tests ---- */

static void nccl_tests_go_into_a_profile(void **state)
{
    (void)state;
    static const char base[] =
        "{\"gpu\": \"h100-sxm\", \"host_op_s\": 5e-6, \"collectives\": ["
        "{\"collective\": \"all_gather\", \"ranks\": 8, \"nodes\": 1, \"bytes\": 1, \"seconds\": "
        "1},"
        "{\"collective\": \"all_gather\", \"ranks\": 4, \"nodes\": 1, \"bytes\": 2, \"seconds\": "
        "1}]}";
    const char *const paths[] = {"tests/data/nccl-tests/named.txt"};
    const char path[] = "b.json";
    char base_path[512];
    struct profile profile = {.kernels = NULL};
    struct nccl_import import;
    struct err err = {0};
    put_text("a.json", base, sizeof base - 1);
    snprintf(base_path, sizeof base_path, "%s", path_of("a.json"));
    const struct nccl_source source = {.paths = paths,
                                       .path_count = 1,
                                       .known = {.collective = COLLECTIVE_COUNT},
                                       .base = base_path,
                                       .gpu = "a100-sxm-80gb",
                                       .date = "2026-01-01"};
    if (nccl_import(&source, &import, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(json_dump_file(import.profile, path_of(path), 0), 0);
    if (profile_read(path_of(path), &profile, &err) != ERR_OK)
        fail_msg("%s", err.text);
    /* 14 + 14 rows; of the base's points that of 4 ranks stays, that of 8 was measured anew. */
    assert_int_equal(profile.point_count, 29);
    assert_int_equal(profile.points[0].ranks, 4);
    assert_string_equal(profile.name, "a100-sxm-80gb");
    assert_true(profile_value(&profile, PROFILE_HOST_OP) == 5e-6);
    assert_int_equal(import.fit_count, 2);
    assert_int_equal(import.fits[0].points, 14);
    for (size_t i = 0; i < 14; i++) /* of the second run, one published row is an outlier */
        assert_near(fit_alpha_beta_seconds(&import.fits[0].fit, (double)import.points[i].bytes),
                    import.points[i].seconds, 0.15);
    profile_free(&profile);
    nccl_import_free(&import);
}

/* ---- the command ---- */

static int entries_in(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static const char *program(void)
{
    const char *set = getenv("SHARDPLAN");
    return set ? set : "build/shardplan";
}

/* Runs `shardplan ARGUMENTS` with an empty temporary folder, which it must leave empty. */
static int command(const char *arguments)
{
    char text[2048], dir[512];
    snprintf(dir, sizeof dir, "%s", path_of("tmp"));
    snprintf(text, sizeof text, "mkdir -p %s && TMPDIR=%s %s %s >%s/../log 2>&1", dir, dir,
             program(), arguments, dir);
    const int status = system(text);
    assert_true(WIFEXITED(status));
    assert_int_equal(entries_in(dir), 0);
    snprintf(text, sizeof text, "rm -r %s", dir);
    assert_int_equal(system(text), 0);
    return WEXITSTATUS(status);
}

static void remove_file(const char *name)
{
    assert_int_equal(remove(path_of(name)), 0);
}

static void this_machine_is_calibrated(void **state)
{
    (void)state;
    need_mpirun();
    char arguments[1024];
    struct profile profile = {.kernels = NULL};
    struct err err = {0};
    snprintf(arguments, sizeof arguments, "calibrate --quick --json -o %s", path_of("a.json"));
    const int status = command(arguments);
    if (status != 0)
        fail_msg("status %d: %s", status, text_of("log", &(size_t){0}));
    size_t length;
    char *log = text_of("log", &length);
    json_error_t at;
    json_t *object = json_loads(log, 0, &at); /* nothing else was printed: no progress in a pipe */
    if (!object)
        fail_msg("line %d: %s", at.line, at.text);
    assert_true(json_array_size(json_object_get(object, "kernels")) > 20);
    json_decref(object);
    free(log);
    if (profile_read(path_of("a.json"), &profile, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_complete(&profile);
    profile_free(&profile);
    remove_file("calibration.html");
    remove(path_of("calibration.svg")); /* not there without gnuplot */
    remove_file("log");
}

static void bad_input_leaves_nothing(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "calibrate -n 0",
        "calibrate -n two",
        "calibrate --device gpu",
        "calibrate --device cuda",
        "calibrate --gpu no-such-gpu",
        "calibrate --largest 0",
        "calibrate something",
        "calibrate --profile README.md",
        "calibrate --from-nccl-tests README.md -o %s/x.json",
        "calibrate --from-nccl-tests /no/such/file -o %s/x.json",
        "calibrate --from-nccl-tests tests/data/nccl-tests/run.json --profile README.md -o %s/x",
    };
    char arguments[1024];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(arguments, sizeof arguments, wrong[i], temp_folder());
        const int status = command(arguments);
        if (status != 2)
            fail_msg("%s: status %d", arguments, status);
        remove_file("log");
        assert_int_equal(access(path_of("x.json"), F_OK), -1);
        assert_int_equal(access(path_of("x"), F_OK), -1);
    }
}

/* With the status of all commands, and before anything is measured. */
static void what_cannot_be_written_is_a_failure_at_once(void **state)
{
    (void)state;
    static const char *const paths[] = {"/proc/no/such/folder/profile.json", "/dev/null/x", "/tmp"};
    char arguments[1024];
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        for (int nccl = 0; nccl < 2; nccl++) {
            snprintf(arguments, sizeof arguments, "calibrate %s -o %s",
                     nccl ? "--from-nccl-tests tests/data/nccl-tests/run.json" : "", paths[i]);
            const int status = command(arguments);
            if (status != 3)
                fail_msg("%s: status %d", arguments, status);
        }
}

/* Told to end once it has a folder of its own, it ends, says by which signal and cleans up. */
static void a_signal_leaves_nothing(void **state)
{
    (void)state;
    need_mpirun();
    char dir[512], output[512];
    snprintf(dir, sizeof dir, "%s", path_of("tmp"));
    snprintf(output, sizeof output, "%s", path_of("x.json"));
    assert_int_equal(mkdir(dir, 0777), 0);
    const pid_t child = fork();
    if (child == 0) {
        setenv("TMPDIR", dir, 1);
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        execl(program(), program(), "calibrate", "-q", "-o", output, (char *)NULL);
        _exit(1);
    }
    while (entries_in(dir) == 0 && waitpid(child, NULL, WNOHANG) == 0)
        usleep(1000);
    kill(child, SIGTERM); /* at any time from here on */
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(access(output, F_OK), -1);
}

static int set_up(void **state)
{
    (void)state;
    return temp_folder_make("test_calibrate");
}

static int tear_down(void **state)
{
    (void)state;
    return temp_folder_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_finds_coefficients),
        cmocka_unit_test(fit_of_bytes_ignores_operations),
        cmocka_unit_test(fit_has_no_negative_terms),
        cmocka_unit_test(fit_of_one_size_is_that_size),
        cmocka_unit_test(suite_finds_a_made_up_machine),
        cmocka_unit_test(the_table_of_kernels_is_aligned),
        cmocka_unit_test(models_are_as_large_as_a_gpu_needs),
        cmocka_unit_test(what_ranks_differ_by_is_found),
        cmocka_unit_test(profile_gives_the_times_back),
        cmocka_unit_test(most_specific_kernel_holds),
        cmocka_unit_test(wrong_kernels_are_refused),
        cmocka_unit_test(nccl_tests_go_into_a_profile),
        cmocka_unit_test(this_machine_is_calibrated),
        cmocka_unit_test(bad_input_leaves_nothing),
        cmocka_unit_test(what_cannot_be_written_is_a_failure_at_once),
        cmocka_unit_test(a_signal_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
