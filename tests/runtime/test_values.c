/* test_values.c - what memory holds at first: RoPE as transformers computes it, parameters drawn
 * with the spread that was asked for, the same however they are split. */
#include "families/config.h"
#include "families/families.h"
#include "runtime/execution/rope_table.h"
#include "runtime/execution/values.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- RoPE ---- */

static struct graph *build(const struct model_config *config, uint32_t seq, enum code code)
{
    const struct model_job job = {.batch = 1, .seq = seq, .code = code, .compute = DTYPE_FP32};
    struct err err = {0};
    struct graph *graph = NULL;
    if (model_build(config, &job, &graph, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return graph;
}

/* Of a list of a list of numbers. */
static double number(const json_t *row, const char *key, size_t i, size_t j)
{
    const json_t *item = json_array_get(json_object_get(row, key), i);
    return json_number_value(json_is_array(item) ? json_array_get(item, j) : item);
}

/* One fp32 rounding of the frequency is one of the angle, times the position. */
static void check_table(const json_t *row, const struct rope *rope, uint32_t seq, double attention)
{
    const uint32_t pairs = rope->dim / 2;
    float *table = malloc((size_t)seq * pairs * 2 * sizeof *table);
    const json_t *positions = json_object_get(row, "positions");
    assert_non_null(table);
    rope_table(rope, seq, table);
    for (size_t i = 0; i < json_array_size(positions); i++) {
        const size_t t = (size_t)json_integer_value(json_array_get(positions, i));
        for (uint32_t j = 0; j < pairs; j++) {
            const float *ours = table + 2 * (t * pairs + j);
            const double angle = (double)t * number(row, "frequencies", j, 0);
            const double most = 3e-7 * (2 + angle) * attention;
            assert_true(fabs((double)ours[0] - number(row, "cos", i, j)) <= most);
            assert_true(fabs((double)ours[1] - number(row, "sin", i, j)) <= most);
        }
    }
    free(table);
}

/* As a config.json of Llama's asks for it. */
static struct rope rope_of_config(const json_t *json, uint32_t seq)
{
    struct err err = {0};
    struct model_config config;
    if (model_config_from_json(json, "rope.json", &config, &err) != ERR_OK)
        fail_msg("%s", err.text);
    struct graph *graph = build(&config, seq, CODE_TORCHTITAN);
    assert_int_equal(graph->buffers[0].kind, VALUES_ROPE);
    assert_int_equal(graph->buffers[0].layout, ROPE_COMPLEX);
    const struct rope rope = graph->buffers[0].rope;
    graph_free(graph);
    return rope;
}

/* That of which a share of the pairs turns is no class's whose code is torchtitan's: its numbers by
 * themselves. */
static struct rope rope_of_row(const json_t *row, uint32_t seq)
{
    const json_t *config = json_object_get(row, "config");
    const json_t *given = json_object_get(config, "rope_parameters");
    const char *type = json_string_value(json_object_get(given, "rope_type"));
    const json_t *factor = json_object_get(given, "factor");
    if (!type || strcmp(type, rope_scaling_name(ROPE_PROPORTIONAL)) != 0)
        return rope_of_config(config, seq);
    return (struct rope){
        .scaling = ROPE_PROPORTIONAL,
        .dim = (uint32_t)json_integer_value(json_object_get(config, "head_dim")),
        .theta = (float)json_number_value(json_object_get(given, "rope_theta")),
        .attention_factor = 1,
        .factor = factor ? (float)json_number_value(factor) : 1,
        .share = (float)json_number_value(json_object_get(given, "partial_rotary_factor"))};
}

/* Returns the kind of its scaling. */
static uint8_t check_rope(const json_t *row)
{
    const json_t *frequencies = json_object_get(row, "frequencies");
    const uint32_t seq = (uint32_t)json_integer_value(json_object_get(row, "seq"));
    const double attention = json_number_value(json_object_get(row, "attention_factor"));
    const struct rope made = rope_of_row(row, seq), *rope = &made;
    assert_int_equal(rope->dim / 2, json_array_size(frequencies));
    assert_true(fabs((double)rope->attention_factor - attention) <= 1e-6 * attention);
    float *ours = malloc(rope->dim / 2 * sizeof *ours);
    assert_non_null(ours);
    rope_frequencies(rope, ours);
    for (uint32_t j = 0; j < rope->dim / 2; j++) {
        const double theirs = json_number_value(json_array_get(frequencies, j));
        if (!(fabs((double)ours[j] - theirs) <= 4e-7 * theirs))
            fail_msg("%s, pair %u: %.9g, transformers' is %.9g",
                     rope_scaling_name((enum rope_scaling)rope->scaling), j, (double)ours[j],
                     theirs);
    }
    check_table(row, rope, seq, attention);
    free(ours);
    return rope->scaling;
}

static void rope_is_transformers_for_every_kind_of_scaling(void **state)
{
    (void)state;
    json_t *rows = json_load_file("tests/data/numerics/rope.json", 0, NULL);
    assert_non_null(rows);
    bool seen[ROPE_SCALING_COUNT] = {false};
    for (size_t i = 0; i < json_array_size(rows); i++)
        seen[check_rope(json_array_get(rows, i))] = true;
    for (int kind = 0; kind < ROPE_SCALING_COUNT; kind++)
        assert_true(seen[kind]);
    json_decref(rows);
}

/* transformers' modules hold the frequencies themselves, twice. */
static void the_frequencies_are_the_tables(void **state)
{
    (void)state;
    struct model_config config;
    float frequencies[64], table[2 * 64 * 2];
    assert_int_equal(model_preset_find("llama-3.1-8b", &config, NULL), ERR_OK);
    config.layers = 1;
    struct graph *graph = build(&config, 16, CODE_HF);
    assert_int_equal(graph->buffer_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(graph->buffers[i].layout, ROPE_FREQUENCIES);
        values_of_buffer(&graph->buffers[i], &SHAPE(64), DTYPE_FP32, frequencies);
        rope_table(&graph->buffers[i].rope, 2, table);
        for (uint32_t j = 0; j < 64; j++)
            assert_true(table[2 * (64 + j)] == (float)cos((double)frequencies[j]));
    }
    graph_free(graph);
}

/* ---- parameters ---- */

enum { COUNT = 200000 };

static void draws_have_the_spread_that_is_asked_for(void **state)
{
    (void)state;
    static const struct {
        struct param_init init;
        double std, most; /* known: of the uniform, the normal, and the normal cut at 2 std */
    } cases[] = {
        {{.kind = INIT_UNIFORM, .number = 0.3}, 0.3 / 1.7320508, 0.3},
        {{.kind = INIT_NORMAL, .number = 0.02}, 0.02, 0.02 * 6},
        {{.kind = INIT_NORMAL, .number = 0.5, .limit = 1}, 0.5 * 0.87962566, 1},
    };
    float *x = malloc(COUNT * sizeof *x);
    assert_non_null(x);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double sum = 0, squares = 0, most = 0, neighbours = 0;
        values_of_param(&cases[c].init, 3, 0, COUNT, x);
        for (uint32_t i = 0; i < COUNT; i++) {
            sum += (double)x[i];
            squares += (double)x[i] * (double)x[i];
            most = fmax(most, fabs((double)x[i]));
            neighbours += i ? (double)x[i] * (double)x[i - 1] : 0;
        }
        const double std = sqrt(squares / COUNT), error = 5 / sqrt(COUNT); /* five sigmas */
        assert_true(fabs(sum / COUNT) <= error * cases[c].std);
        assert_true(fabs(std / cases[c].std - 1) <= error);
        assert_true(fabs(neighbours / COUNT) <= error * std * std);
        assert_true(most <= cases[c].most && most > 0.95 * fmin(cases[c].most, 4 * std));
    }
    free(x);
}

static void a_parameter_is_the_same_however_it_is_split(void **state)
{
    (void)state;
    static const struct param_init inits[] = {
        {.kind = INIT_ZEROS},
        {.kind = INIT_ONES},
        {.kind = INIT_UNIFORM, .number = 0.1},
        {.kind = INIT_NORMAL, .number = 0.02},
        {.kind = INIT_NORMAL, .number = 0.02, .limit = 0.01},
    };
    float whole[1000], part[1000], other[1000];
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
        const uint64_t far = (uint64_t)7 << 32; /* beyond 32 bits */
        values_of_param(&inits[i], 5, far, 1000, whole);
        for (uint32_t first = 0; first < 1000; first += 137) {
            const uint32_t count = first + 137 < 1000 ? 137 : 1000 - first;
            values_of_param(&inits[i], 5, far + first, count, part + first);
        }
        values_of_param(&inits[i], 6, far, 1000, other);
        uint32_t differ = 0;
        for (uint32_t x = 0; x < 1000; x++) {
            assert_true(whole[x] == part[x]);
            differ += whole[x] < other[x] || whole[x] > other[x];
        }
        assert_true(i < 2 ? differ == 0 : differ > 990);
    }
}

/* So many elements that several threads fill them. */
static void many_elements_are_those_of_few(void **state)
{
    (void)state;
    enum { MANY = (1 << 20) + 5, FEW = 999 };
    const struct param_init inits[] = {{INIT_UNIFORM, 0.1, 0}, {INIT_NORMAL, 0.02, 0.03}};
    float *many = xmalloc(MANY * sizeof *many), few[FEW];
    for (size_t i = 0; i < sizeof inits / sizeof inits[0]; i++) {
        values_of_param(&inits[i], 2, 7, MANY, many);
        for (uint64_t first = 0; first < MANY; first += FEW) {
            const uint64_t count = MANY - first < FEW ? MANY - first : FEW;
            values_of_param(&inits[i], 2, 7 + first, count, few);
            assert_memory_equal(few, many + first, count * sizeof *few);
        }
    }
    free(many);
}

static void ranges_begin_anew_in_each_row(void **state)
{
    (void)state;
    int64_t ids[6];
    values_of_buffer(&(struct buffer_values){.kind = VALUES_RANGE}, &SHAPE(2, 3), DTYPE_INT64, ids);
    for (int i = 0; i < 6; i++)
        assert_int_equal(ids[i], i % 3);
    values_of_buffer(&(struct buffer_values){.kind = VALUES_ZEROS}, &SHAPE(6), DTYPE_INT64, ids);
    for (int i = 0; i < 6; i++)
        assert_int_equal(ids[i], 0);
}

static void numbers_are_in_every_element(void **state)
{
    (void)state;
    float numbers[4];
    const struct buffer_values eight = {.kind = VALUES_NUMBER, .number = 8.25F};
    values_of_buffer(&eight, &SHAPE(2, 2), DTYPE_FP32, numbers);
    for (int i = 0; i < 4; i++)
        assert_true(numbers[i] == 8.25F);
}

static void parts_begin_anew_in_each_row(void **state)
{
    (void)state;
    static const float expected[] = {0.5F, 0.5F, 3, 4, 0.5F, 0.5F, 3, 4};
    float numbers[8];
    const struct buffer_values parts = {
        .kind = VALUES_PARTS, .parts = 3, .widths = {2, 1, 1}, .numbers = {0.5F, 3, 4}};
    values_of_buffer(&parts, &SHAPE(2, 4), DTYPE_FP32, numbers);
    assert_memory_equal(numbers, expected, sizeof expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope_is_transformers_for_every_kind_of_scaling),
        cmocka_unit_test(the_frequencies_are_the_tables),
        cmocka_unit_test(draws_have_the_spread_that_is_asked_for),
        cmocka_unit_test(a_parameter_is_the_same_however_it_is_split),
        cmocka_unit_test(many_elements_are_those_of_few),
        cmocka_unit_test(ranges_begin_anew_in_each_row),
        cmocka_unit_test(numbers_are_in_every_element),
        cmocka_unit_test(parts_begin_anew_in_each_row),
    };
    return cmocka_run_group_tests_name("values", tests, NULL, NULL);
}
