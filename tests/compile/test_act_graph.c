/* test_act_graph.c - what is between two acts, as they are fused, beside a search of every way. */
#include "compile/act_graph.h"

#include <gsl/gsl_rng.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { GRAPHS = 30, ACTS = 90 }; /* more than fit in one word of bits */

struct made { /* each act writes the memory of its own number, and reads some of those before it */
    struct building b;
    struct program program;
    struct draft acts[ACTS];
    uint32_t in[ACTS]; /* the act that one is in by now */
};

/* Acts in any order, as what is put in memory for a call is. */
static void make(struct made *made, gsl_rng *rng)
{
    uint32_t turn[ACTS];
    *made = (struct made){.program = {.memory_count = ACTS}};
    made->b = (struct building){
        .program = &made->program, .acts = made->acts, .act_count = ACTS, .act_cap = ACTS};
    for (uint32_t i = 0; i < ACTS; i++) {
        const uint32_t at = (uint32_t)gsl_rng_uniform_int(rng, i + 1);
        turn[i] = i;
        turn[i] = turn[at];
        turn[at] = i;
    }
    for (uint32_t i = 0; i < ACTS; i++) {
        made->in[i] = i;
        list_add_once(&made->acts[i].writes, i);
        for (uint32_t k = 0; k < ACTS; k++)
            if (turn[k] < turn[i] && gsl_rng_uniform(rng) < 0.03)
                list_add_once(&made->acts[i].reads, k);
    }
}

static void end(struct made *made)
{
    for (uint32_t i = 0; i < ACTS; i++)
        draft_free(&made->acts[i]);
}

/* Marks all that is behind x, but for what is so only by way of `without`. */
static void mark_behind(const struct made *made, uint32_t x, uint32_t without,
                        bool *marks) // NOLINT
{
    for (uint32_t i = 0; i < ACTS; i++)
        if (made->in[i] == i && i != x && i != without && !marks[i] &&
            lists_meet(&made->acts[x].writes, &made->acts[i].reads)) {
            marks[i] = true;
            mark_behind(made, i, without, marks);
        }
}

static bool is_between(const struct made *made, uint32_t x, uint32_t y)
{
    bool marks[ACTS] = {false}, found = false;
    mark_behind(made, x, y, marks);
    for (uint32_t i = 0; i < ACTS; i++)
        found |= marks[i] && lists_meet(&made->acts[i].writes, &made->acts[y].reads);
    return found;
}

static void join(struct made *made, uint32_t x, uint32_t y)
{
    struct draft *to = &made->acts[x], *from = &made->acts[y];
    for (uint32_t i = 0; i < from->reads.count; i++)
        list_add_once(&to->reads, from->reads.of[i]);
    for (uint32_t i = 0; i < from->writes.count; i++)
        list_add_once(&to->writes, from->writes.of[i]);
    draft_free(from);
    for (uint32_t i = 0; i < ACTS; i++)
        if (made->in[i] == y)
            made->in[i] = x;
}

static void compare(const struct made *made, struct act_graph *graph, uint32_t *between)
{
    for (uint32_t x = 0; x < ACTS; x++) {
        assert_int_equal(act_graph_now(graph, x), made->in[x]);
        for (uint32_t y = 0; y < ACTS; y++) {
            if (x == y || made->in[x] != x || made->in[y] != y)
                continue;
            const bool is = is_between(made, x, y);
            assert_int_equal(act_graph_has_between(graph, &made->b, x, y), is);
            *between += is;
        }
    }
}

static void what_is_between_is_what_a_search_finds(void **state)
{
    (void)state;
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    uint32_t between = 0, fused = 0;
    for (int i = 0; i < GRAPHS; i++) {
        struct made made;
        struct act_graph graph;
        make(&made, rng);
        act_graph_open(&graph, &made.b);
        compare(&made, &graph, &between);
        for (int turn = 0; turn < ACTS; turn++) {
            const uint32_t x = made.in[gsl_rng_uniform_int(rng, ACTS)];
            const uint32_t y = made.in[gsl_rng_uniform_int(rng, ACTS)];
            if (x == y || is_between(&made, x, y) || is_between(&made, y, x))
                continue;
            join(&made, x, y);
            act_graph_join(&graph, x, y);
            fused++;
            if (fused % 16 == 0)
                compare(&made, &graph, &between);
        }
        act_graph_close(&graph);
        end(&made);
    }
    gsl_rng_free(rng);
    assert_true(between > 10000 && fused > 10 * GRAPHS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_between_is_what_a_search_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
