/* refused.c - see refused.h. */
#include "tests/support/refused.h"

#include "graph/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum err_code preset_build(const char *preset, const struct model_job *job, struct graph **graph,
                           struct err *err)
{
    struct model_config config;
    *graph = NULL;
    assert_int_equal(model_preset_find(preset, &config, err), ERR_OK);
    return model_build(&config, job, graph, err);
}

void expect_refused(const char *preset, const struct model_job *job, const char *says)
{
    struct graph *graph;
    struct err err = {0};
    if (preset_build(preset, job, &graph, &err) == ERR_OK || !strstr(err.text, says))
        fail_msg("%s, %s: %s", preset, job->liger ? job->liger : "no kernels", err.text);
    graph_free(graph);
}
