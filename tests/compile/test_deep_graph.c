/* test_deep_graph.c - graphs with more ways through them than can be walked one by one: what a
 * program reads is found all the same. */
#include "compile/program.h"
#include "compile/triples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { ELEMENTS = 4096, DEEP = 400, SIDE = 40 };

static uint32_t where(struct joint *joint, uint32_t x)
{
    return joint_node(joint, &(struct joint_want){.name = JOINT_WHERE,
                                                  .dtype = DTYPE_FP32,
                                                  .shape = SHAPE(ELEMENTS),
                                                  .args = 3,
                                                  .arg = {x, x, x}});
}

/* Each value three times the one before: 3^DEEP ways lead from the last one to the argument. */
static void values_of_values_are_read_once(void **state)
{
    (void)state;
    struct joint *joint = joint_new();
    uint32_t x = joint_input(joint, SOURCE_INPUT, 0, SHAPE(ELEMENTS), DTYPE_FP32);
    for (int i = 0; i < DEEP; i++)
        x = where(joint, x);
    struct program *program =
        program_of(joint, &(struct program_wants){.results = &x, .result_count = 1});
    uint32_t reads = 0, writes = 0;
    for (uint32_t i = 0; i < program->act_count; i++) {
        for (uint32_t r = 0; r < program->acts[i].read_count; r++)
            reads += program->memory[program->acts[i].reads[r]].outside;
        for (uint32_t w = 0; w < program->acts[i].write_count; w++)
            writes += program->memory[program->acts[i].writes[w]].kept;
    }
    assert_int_equal(reads, 1);
    assert_int_equal(writes, 1);
    program_free(program);
    joint_free(joint);
}

/* A sum of all of what was summed over rows asks which those were (split.c). */
static void sums_of_values_of_values_are_split(void **state)
{
    (void)state;
    struct joint *joint = joint_new();
    uint32_t x = joint_input(joint, SOURCE_INPUT, 0, SHAPE(ELEMENTS), DTYPE_FP32);
    for (int i = 0; i < DEEP; i++)
        x = where(joint, x);
    const uint32_t sum = joint_node(
        joint,
        &(struct joint_want){
            .name = JOINT_SUM, .dtype = DTYPE_FP32, .shape = {.rank = 0}, .args = 1, .arg = {x}});
    struct program *program =
        program_of(joint, &(struct program_wants){.results = &sum, .result_count = 1});
    assert_true(program->act_count > 0);
    assert_true(program->acts[program->act_count - 1].reduces);
    program_free(program);
    joint_free(joint);
}

static void triples_have_numbers_of_their_own(void **state)
{
    (void)state;
    struct triples triples = {.count = 0};
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < SIDE * SIDE * SIDE; i++) {
            bool is_new;
            const struct triple t = {i % SIDE, i / SIDE % SIDE, UINT32_MAX - i / SIDE / SIDE};
            assert_int_equal(triples_number(&triples, t, &is_new), i + 1);
            assert_int_equal(is_new, pass == 0);
        }
    triples_free(&triples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_values_are_read_once),
        cmocka_unit_test(sums_of_values_of_values_are_split),
        cmocka_unit_test(triples_have_numbers_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
