/* test_init.c - parameters start as the code that is planned initialises them.
 *
 * tests/data/numerics/inits.json has mean and standard deviation of every parameter of freshly made
 * transformers models: one draw, so a deviation of n elements is known to within 4 / sqrt(2n). */
#include "families/config.h"
#include "families/families.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct graph *build(const struct model_config *config, enum code code, bool own)
{
    const struct model_job job = {
        .batch = 1, .seq = 16, .code = code, .compute = DTYPE_FP32, .own_init = own};
    struct err err = {0};
    struct graph *graph = NULL;
    if (model_build(config, &job, &graph, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return graph;
}

static const struct graph_param *param_named(const struct graph *graph, const char *name)
{
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (strcmp(graph->params[p].name, name) == 0)
            return &graph->params[p];
    fail_msg("no parameter is called %s", name);
    return NULL;
}

/* `row`: name, shape, mean, standard deviation. */
static void check_param(const struct graph *graph, const json_t *row)
{
    const char *name = json_string_value(json_array_get(row, 0));
    const struct graph_param *param = param_named(graph, name);
    const double n = (double)shape_elements(&param->shape);
    const double mean = json_number_value(json_array_get(row, 2));
    const double std = json_number_value(json_array_get(row, 3));
    switch (param->init.kind) {
    case INIT_ZEROS:
        assert_true(mean == 0 && std == 0);
        break;
    case INIT_ONES:
        assert_true(mean == 1 && std == 0);
        break;
    default:
        assert_int_equal(param->init.kind, INIT_NORMAL);
        if (!(fabs(std / param->init.number - 1) <=
              4 / sqrt(2 * n) + 1e-3)) /* a padding row is 0 */
            fail_msg("%s: std %g, transformers' is %g", name, param->init.number, std);
        assert_true(fabs(mean) <= 4 * std / sqrt(n));
        break;
    }
}

static void transformers_models_start_as_theirs_do(void **state)
{
    (void)state;
    json_t *rows = json_load_file("tests/data/numerics/inits.json", 0, NULL);
    assert_true(json_array_size(rows) >= 9);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        struct err err = {0};
        struct model_config config;
        const json_t *row = json_array_get(rows, i);
        const json_t *params = json_object_get(row, "parameters");
        if (model_config_from_json(json_object_get(row, "config"), "x", &config, &err) != ERR_OK)
            fail_msg("%s", err.text);
        struct graph *graph = build(&config, CODE_HF, true);
        assert_int_equal(json_array_size(params), graph->param_count);
        for (size_t p = 0; p < json_array_size(params); p++)
            check_param(graph, json_array_get(params, p));
        graph_free(graph);
    }
    json_decref(rows);
}

static void expect_init(const struct graph *graph, const char *name, enum init_kind kind,
                        double spread, double limit)
{
    const struct param_init *init = &param_named(graph, name)->init;
    assert_int_equal(init->kind, kind);
    assert_true(fabs(init->number - spread) <= 1e-9 * spread);
    assert_true(fabs(init->limit - limit) <= 1e-9 * limit);
}

/* The numbers of torchtitan's llama3/model.py (init_weights, depth_init) and of nanoGPT's model.py:
 * matrices that write into the residual are smaller the more of them there are before. */
static void torchtitan_and_nanogpt_start_as_theirs_do(void **state)
{
    (void)state;
    struct model_config config;
    assert_int_equal(model_preset_find("llama-3-8b", &config, NULL), ERR_OK);
    struct graph *graph = build(&config, CODE_TORCHTITAN, true);
    expect_init(graph, "tok_embeddings.weight", INIT_NORMAL, 1, 0);
    expect_init(graph, "layers.0.attention.wk.weight", INIT_NORMAL, 0.02, 2);
    expect_init(graph, "layers.0.feed_forward.w1.weight", INIT_NORMAL, 0.02, 2);
    expect_init(graph, "layers.0.attention.wo.weight", INIT_NORMAL, 0.0141421356237, 2);
    expect_init(graph, "layers.31.feed_forward.w2.weight", INIT_NORMAL, 0.0025, 2);
    expect_init(graph, "layers.31.feed_forward.w3.weight", INIT_NORMAL, 0.0025, 2);
    expect_init(graph, "layers.31.ffn_norm.weight", INIT_ONES, 0, 0);
    expect_init(graph, "output.weight", INIT_NORMAL, 0.015625, 0.046875);
    graph_free(graph);

    assert_int_equal(model_preset_find("gpt2", &config, NULL), ERR_OK);
    graph = build(&config, CODE_NANOGPT, true);
    expect_init(graph, "wpe.weight", INIT_NORMAL, 0.02, 0);
    expect_init(graph, "h.3.attn.c_attn.weight", INIT_NORMAL, 0.02, 0);
    expect_init(graph, "h.3.attn.c_attn.bias", INIT_ZEROS, 0, 0);
    expect_init(graph, "h.3.mlp.c_proj.weight", INIT_NORMAL, 0.00408248290464, 0);
    graph_free(graph);

    assert_int_equal(model_preset_find("fsdp2-tutorial", &config, NULL), ERR_OK);
    graph = build(&config, CODE_TORCHTITAN, true); /* torch.nn's own */
    expect_init(graph, "layers.0.mlp.2.weight", INIT_UNIFORM, 0.0220970869121, 0);
    expect_init(graph, "layers.0.mlp.2.bias", INIT_UNIFORM, 0.0220970869121, 0);
    graph_free(graph);
}

static void test_values_are_the_same_in_every_code(void **state)
{
    (void)state;
    const struct model_preset *preset;
    for (uint32_t i = 0; (preset = model_preset_at(i)); i++) {
        struct graph *graph =
            build(&preset->config, model_default_code(preset->config.arch), false);
        for (uint32_t p = 0; p < graph->param_count; p++) {
            const struct graph_param *param = &graph->params[p];
            const size_t length = strlen(param->name);
            const bool bias = length >= 7 && strcmp(param->name + length - 4, "bias") == 0 &&
                              strcmp(param->name + length - 7, "dt_bias") != 0;
            const bool sinks = length >= 5 && (strcmp(param->name + length - 5, "sinks") == 0 ||
                                               strcmp(param->name + length - 5, "A_log") == 0);
            const struct param_init *init = &param->init;
            if (bias)
                assert_int_equal(init->kind, INIT_ZEROS);
            else if (param->shape.rank == 1 && !sinks)
                assert_int_equal(init->kind, INIT_ONES);
            else
                assert_true(init->kind == INIT_UNIFORM && init->number == 0.1);
        }
        graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transformers_models_start_as_theirs_do),
        cmocka_unit_test(torchtitan_and_nanogpt_start_as_theirs_do),
        cmocka_unit_test(test_values_are_the_same_in_every_code),
    };
    return cmocka_run_group_tests_name("init", tests, NULL, NULL);
}
