/* trajectory.c - see trajectory.h. */
#include "tests/support/trajectory.h"

#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *trajectories_open(const char *name, char *folder)
{
    char path[128];
    snprintf(path, sizeof path, "tests/data/numerics/%s.json", name);
    /* Under a sanitizer: Open MPI leaks at exit and orders its locks as it likes. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 0);
    return folder_make(folder) == 0 ? json_load_file(path, 0, NULL) : NULL;
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
