/* trajectory.c - see trajectory.h. */
#include "tests/support/trajectory.h"

#include "tests/support/folder.h"
#include "tests/support/local_ranks.h"
#include "tests/support/program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/test_trajectory.XXXXXX";
static json_t *models;

int trajectories_open(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "tests/data/numerics/%s.json", name);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0); /* Open MPI leaks at exit */
    models = json_load_file(path, 0, NULL);
    return models && folder_make(folder) == 0 ? folder_draws_nothing(folder) : -1;
}

int trajectories_close(void **state)
{
    (void)state;
    json_decref(models);
    return folder_remove(folder);
}

const json_t *trajectories(void)
{
    return models;
}

const char *trajectories_folder(void)
{
    return folder;
}

/* What a failure is of. */
static const char *name_of(const json_t *model)
{
    const char *name = json_string_value(json_object_get(model, "name"));
    const json_t *type = json_object_get(json_object_get(model, "config"), "model_type");
    return name ? name : json_string_value(type);
}

const char *trajectory_type(const json_t *model)
{
    return json_string_value(json_object_get(json_object_get(model, "config"), "model_type"));
}

/* Ernie's router turns it off for itself. */
bool trajectory_autocasts(const json_t *model)
{
    return strcmp(trajectory_type(model), "ernie4_5_moe") != 0;
}

void trajectory_plan(const json_t *model, int ranks, const char *options)
{
    const int batch = (int)json_integer_value(json_object_get(model, "batch"));
    const int seq = (int)json_integer_value(json_object_get(model, "seq"));
    assert_int_equal(
        json_dump_file(json_object_get(model, "config"), file_in(folder, "config.json"), 0), 0);
    if (shardplan("plan %s/config.json --gpus %d --seq %d --micro-batch %d %s --files plan -q "
                  "-o %s/plan",
                  folder, ranks, seq, batch / ranks, options, folder) != 0)
        fail_msg("%s: %s", name_of(model), program_output());
}

/* So that no two errors hide behind one norm. What is nothing but rounding (biases of keys, which
 * softmax takes out again) has no digits to compare. */
static void check_first_gradients(const json_t *model)
{
    const double all = json_number_value(json_array_get(json_object_get(model, "grad_norm"), 0));
    json_t *norms = json_object_get(model, "first_step_grad_norm_by_parameter"), *theirs;
    const char *name;
    const json_t *parameters = json_object_get(model, "parameters");
    assert_true(json_object_size(norms) > 0);
    assert_true(!parameters || json_array_size(parameters) == json_object_size(norms));
    json_object_foreach(norms, name, theirs)
    {
        char wanted[160];
        snprintf(wanted, sizeof wanted, "\"%s\", \"grad_norm\": ", name);
        const char *at = strstr(program_output(), wanted);
        const double norm = json_number_value(theirs);
        if (at && norm < 1e-7 * all && strtod(at + strlen(wanted), NULL) < 1e-7 * all)
            continue;
        if (!at || relative(strtod(at + strlen(wanted), NULL), norm) > 1e-4)
            fail_msg("%s: %s: %.40s, PyTorch's is %g", name_of(model), name,
                     at ? at + strlen(wanted) : "nothing", norm);
    }
}

void trajectory_check(const json_t *model, int ranks, const char *options, int steps,
                      double tolerance)
{
    size_t seen;
    trajectory_plan(model, ranks, options);
    if (local_ranks(ranks, "%s/plan/plan.json --steps %d --json %s", folder, steps,
                    ranks == 1 ? "--param-norms" : "") != 0)
        fail_msg("%s: %s", name_of(model), program_output());
    if (ranks == 1)
        check_first_gradients(model);
    const double worst = compare_steps(model, &seen);
    assert_int_equal(seen, steps);
    if (!(worst <= tolerance))
        fail_msg("%s on %d ranks %s: largest error %.3g", name_of(model), ranks, options, worst);
}

double relative(double ours, double theirs)
{
    return fabs(ours - theirs) / fmax(fabs(theirs), 1e-12);
}

static double compare(const json_t *reference, bool with_norms, size_t *steps)
{
    const json_t *losses = json_object_get(reference, "loss");
    const json_t *norms = json_object_get(reference, "grad_norm");
    double worst = 0.0;
    *steps = 0;
    for (char *save = NULL, *line = strtok_r(program_output(), "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *step = json_loads(line, 0, NULL);
        if (json_object_get(step, "loss")) {
            const size_t n = (size_t)json_integer_value(json_object_get(step, "step"));
            worst = fmax(worst, relative(json_number_value(json_object_get(step, "loss")),
                                         json_number_value(json_array_get(losses, n))));
            if (with_norms)
                worst = fmax(worst, relative(json_number_value(json_object_get(step, "grad_norm")),
                                             json_number_value(json_array_get(norms, n))));
            ++*steps;
        }
        json_decref(step);
    }
    return worst;
}

double compare_steps(const json_t *reference, size_t *steps)
{
    return compare(reference, true, steps);
}

double compare_losses(const json_t *reference, size_t *steps)
{
    return compare(reference, false, steps);
}
