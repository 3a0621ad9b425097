/* test_max_flow.c - the least cut beside all cuts of small graphs. */
#include "compile/max_flow.h"

#include <gsl/gsl_rng.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { VERTICES = 8, SOURCE = 0, SINK = 7, GRAPHS = 2000 };

struct graph {
    int64_t capacity[VERTICES][VERTICES]; /* 0: no edge */
};

static struct graph random_graph(gsl_rng *rng)
{
    struct graph g = {{{0}}};
    for (int from = 0; from < VERTICES; from++)
        for (int to = 0; to < VERTICES; to++)
            if (from != to && gsl_rng_uniform(rng) < 0.35)
                g.capacity[from][to] = gsl_rng_uniform(rng) < 0.1
                                           ? FLOW_ENDLESS
                                           : (int64_t)gsl_rng_uniform_int(rng, 9) + 1;
    return g;
}

/* Of the cut whose sink's side is `behind`, a set of bits. */
static int64_t capacity_of(const struct graph *g, unsigned behind)
{
    int64_t sum = 0;
    for (int from = 0; from < VERTICES; from++)
        for (int to = 0; to < VERTICES; to++)
            if (!(behind >> from & 1U) && behind >> to & 1U)
                sum += g->capacity[from][to];
    return sum;
}

static void the_cut_is_the_least_and_nearest_to_the_sink(void **state)
{
    (void)state;
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    int cuts = 0;
    for (int i = 0; i < GRAPHS; i++) {
        const struct graph g = random_graph(rng);
        struct max_flow *flow = max_flow_new(VERTICES);
        bool behind[VERTICES];
        for (uint32_t from = 0; from < VERTICES; from++)
            for (uint32_t to = 0; to < VERTICES; to++)
                if (g.capacity[from][to])
                    max_flow_edge(flow, from, to, g.capacity[from][to]);
        const int64_t total = max_flow_cut(flow, SOURCE, SINK, behind);
        max_flow_free(flow);
        int64_t least = INT64_MAX;
        unsigned nearest = 0; /* what is behind every least cut */
        for (unsigned set = 0; set < 1U << VERTICES; set++) {
            const int64_t capacity = capacity_of(&g, set);
            if (set >> SOURCE & 1U || !(set >> SINK & 1U) || capacity > least)
                continue;
            nearest = capacity < least ? set : nearest & set;
            least = capacity;
        }
        assert_true((least >= FLOW_ENDLESS) == (total >= FLOW_ENDLESS));
        if (least >= FLOW_ENDLESS)
            continue;
        cuts++;
        assert_int_equal(total, least);
        for (unsigned v = 0; v < VERTICES; v++)
            assert_int_equal(behind[v], nearest >> v & 1U);
    }
    assert_true(cuts > GRAPHS / 2);
    gsl_rng_free(rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_is_the_least_and_nearest_to_the_sink)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
