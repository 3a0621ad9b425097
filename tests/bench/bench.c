/* bench.c - how long planning takes, inside the process. Medians; nothing is asserted. */
#include "families/families.h"
#include "job/estimate.h"
#include "job/predict.h"
#include "job/step_time.h"
#include "lower/lower.h"
#include "search/tune.h"
#include "traces/trace.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 31 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *seconds, double unit, const char *name, double goal)
{
    qsort(seconds, RUNS, sizeof *seconds, ascending);
    const double median = seconds[RUNS / 2] / unit;
    printf("%-44s %8.2f %s   goal %g %s, ratio %.2f (fastest %.2f, slowest %.2f)\n", what, median,
           name, goal, name, median / goal, seconds[0] / unit, seconds[RUNS - 1] / unit);
}

static struct job job_of(const char *preset, uint32_t world)
{
    struct model_config config;
    struct job job;
    struct err err = {0};
    if (model_preset_find(preset, &config, &err) != ERR_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    job_defaults(&job, &config);
    job.model.seq = 8192;
    job.strategy.world = world;
    job.tape.checkpointing = CHECKPOINTING_FULL;
    return job;
}

static void bench_405b(void)
{
    const struct job job = job_of("llama-3.1-405b", 16384);
    struct machine machine = {.gpus_per_node = 8};
    double seconds[RUNS];
    struct err err = {0};
    profile_find("h100-sxm", &machine.profile, &err);
    const struct memory_options options = machine_memory(&machine);
    for (int i = 0; i < RUNS; i++) {
        struct plan *plan;
        struct memory memory;
        const double start = now();
        job_plan(&job, &plan, NULL, &err);
        memory_replay(plan, &options, NULL, NULL, &memory, &err);
        seconds[i] = now() - start;
        plan_free(plan);
    }
    profile_free(&machine.profile);
    report("405B on 16,384 GPUs: program and memory", seconds, 1e-3, "ms", 5);
}

/* One more strategy for a model whose stream is there: what a search does for every candidate (its
 * time), and for those that it cannot tell apart without the allocator. */
struct tried {
    struct job job;
    struct machine machine;
    struct graph *graph;
    struct stream *stream;
    struct estimator *estimator;
};

/* None that was tried before. As a search goes on: what is fetched ahead, then what is kept. */
static void choose_settings(struct tried *c, uint32_t i)
{
    c->job.strategy.world = 64;
    c->job.strategy.forward_prefetch = i % 3;
    c->job.strategy.backward_prefetch = i / 3 % 3;
    c->job.strategy.keep_last = i / 9;
}

/* Every size of a shard is another one, so that nothing of the allocator's is known from before. */
static void choose_world(struct tried *c, uint32_t i)
{
    c->job.strategy.world = 8U << (i % 8);
    c->job.strategy.keep_last = i / 8;
}

static void estimate_one(const struct tried *c, unsigned wanted)
{
    const struct estimate_options options = {.wanted = wanted};
    struct estimate found;
    struct err err = {0};
    estimate_with(c->estimator, &c->job.strategy, &options, &found, &err);
}

static void bench_strategy(unsigned wanted, void (*choose)(struct tried *c, uint32_t i),
                           const char *what, double goal)
{
    struct tried c = {.job = job_of("llama-3.1-8b", 8), .machine = {.gpus_per_node = 8}};
    double seconds[RUNS];
    struct err err = {0};
    profile_find("h100-sxm", &c.machine.profile, &err);
    model_build(&c.job.config, &c.job.model, &c.graph, &err);
    const struct tape_options options = job_tape(&c.job);
    c.stream = tape_run(c.graph, &options);
    c.estimator = estimator_new(c.graph, c.stream, &c.machine);
    for (int i = 0; i < RUNS; i++) {
        choose(&c, (uint32_t)i);
        const double start = now();
        estimate_one(&c, wanted);
        seconds[i] = now() - start;
    }
    report(what, seconds, 1e-6, "us", goal);
    estimator_free(c.estimator);
    stream_free(c.stream);
    graph_free(c.graph);
    profile_free(&c.machine.profile);
}

/* The timeline of a plan whose costs are known: what a search does again and again. */
static void bench_timeline(const char *preset, uint32_t world, const char *what, double unit,
                           const char *name, double goal)
{
    const struct job job = job_of(preset, world);
    struct machine machine = {.gpus_per_node = 8};
    struct prediction prediction;
    struct step_time time;
    double seconds[RUNS];
    struct err err = {0};
    profile_find("h100-sxm", &machine.profile, &err);
    predict(&job, &machine, &prediction, &err);
    step_time(&prediction, &job, &machine, 0, &time, &err);
    for (int i = 0; i < RUNS; i++) {
        const double start = now();
        simulate(time.simulation, &time.costs, NULL, &time.timeline);
        seconds[i] = now() - start;
    }
    report(what, seconds, unit, name, goal);
    step_time_free(&time);
    prediction_free(&prediction);
    profile_free(&machine.profile);
}

/* A trace of many events, written, and read as comparing does. */
static void bench_trace(void)
{
    enum { EVENTS = 200000 };
    double seconds[RUNS];
    struct err err = {0};
    struct rusage usage;
    char path[] = "/tmp/shardplan-bench.XXXXXX";
    close(mkstemp(path));
    for (int i = 0; i < RUNS; i++) {
        const double start = now();
        struct trace *trace = trace_new(), *again = NULL;
        const uint32_t process = trace_add_process(trace, 0, "rank 0 (predicted)");
        const uint32_t lane = trace_add_lane(trace, process, "compute");
        for (uint32_t k = 0; k < EVENTS; k++) {
            const struct trace_event event = {.id = k,
                                              .lane = lane,
                                              .name = "mm",
                                              .category = "compute",
                                              .begin_s = 1e-5 * k,
                                              .end_s = 1e-5 * k + 9e-6,
                                              .bytes = k};
            trace_add_event(trace, &event);
        }
        trace_write(trace, path, &err);
        trace_read(path, &again, &err);
        trace_free(trace);
        trace_free(again);
        seconds[i] = now() - start;
    }
    remove(path);
    report("trace of 200,000 events, written and read", seconds, 1e-3, "ms", 500);
    getrusage(RUSAGE_SELF, &usage);
    printf("%-44s %8.1f MB   goal 200 MB, ratio %.2f\n", "  most memory held so far",
           (double)usage.ru_maxrss / 1000, (double)usage.ru_maxrss / 200000);
}

/* A whole search, once: seconds are of the clock, and of all cores for the rate. */
static void bench_search(const char *preset, const char *gpus, const char *global_batch,
                         double goal_s)
{
    struct settings settings;
    struct tuned tuned;
    struct err err = {0};
    struct rusage before, after;
    const struct tune_options options = {.threads = 0};
    settings_defaults(&settings, COMMAND_TUNE);
    settings_set(&settings, "model", preset, &err);
    settings_set(&settings, "gpus", gpus, &err);
    settings_set(&settings, "seq", "8192", &err);
    if (global_batch)
        settings_set(&settings, "global-batch", global_batch, &err);
    getrusage(RUSAGE_SELF, &before);
    if (tune(&settings, &options, &tuned, &err) != ERR_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    getrusage(RUSAGE_SELF, &after);
    const struct search *s = &tuned.search;
    const double cpu_s = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                         1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec);
    char what[96];
    snprintf(what, sizeof what, "tune %s on %s GPUs, %s%s", preset, gpus,
             global_batch ? "global batch " : "all settings", global_batch ? global_batch : "");
    printf("%-50s %8.2f s    goal %g s, ratio %.2f (%.2f s of cores)\n", what, tuned.seconds,
           goal_s, tuned.seconds / goal_s, cpu_s);
    printf("  %llu configurations: %llu excluded, %u steps simulated, %llu replayed; %.0f a second "
           "and core   goal 20,000 of the first\n",
           (unsigned long long)s->configurations, (unsigned long long)s->excluded,
           s->simulated_count, (unsigned long long)s->verified, (double)s->configurations / cpu_s);
    tune_free(&tuned);
}

/* Seconds of the two clock readings that recording a piece of work costs. */
static double clock_cost(void)
{
    enum { READINGS = 1000000 };
    const double start = now();
    for (int i = 0; i < READINGS; i++)
        (void)now();
    return 2 * (now() - start) / READINGS;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--clock") == 0) {
        printf("%.3e\n", clock_cost());
        return 0;
    }
    /* A process that plans again and again keeps its memory instead of returning it each time. */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    bench_405b();
    bench_strategy(ESTIMATE_TIME, choose_settings, "8B: one more strategy, step and requested", 50);
    bench_strategy(ESTIMATE_DEVICE, choose_settings, "8B: one more strategy, reserved", 100);
    bench_strategy(ESTIMATE_TIME | ESTIMATE_DEVICE, choose_settings,
                   "8B: one more strategy, step and reserved", 150);
    bench_strategy(ESTIMATE_DEVICE, choose_world, "8B: reserved, of other sizes than before", 100);
    bench_timeline("llama-3.1-8b", 8, "8B: timeline of one step", 1e-6, "us", 50);
    bench_timeline("llama-3.1-405b", 16384, "405B on 16,384 GPUs: timeline", 1e-3, "ms", 5);
    bench_trace();
    bench_search("llama-3.1-8b", "8", NULL, 1);
    bench_search("llama-3.1-8b", "64", NULL, 1);
    bench_search("llama-3.1-8b", "64", "512", 1);
    bench_search("llama-3.1-8b", "64", "1024", 1);
    bench_search("llama-3.1-405b", "4096", NULL, 10);
    return 0;
}
