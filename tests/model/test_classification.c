/* test_classification.c - whose classes for sequence classification are planned, what they count,
 * and what does not go with them. */
#include "families/families.h"
#include "graph/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct model_job job_of(uint32_t labels)
{
    return (struct model_job){.batch = 2,
                              .seq = 64,
                              .code = CODE_HF,
                              .compute = DTYPE_BF16,
                              .task = TASK_SEQUENCE_CLASSIFICATION,
                              .labels = labels,
                              .sets_pad_token = true};
}

static enum err_code build(const char *preset, const struct model_job *job, struct graph **graph,
                           struct err *err)
{
    struct model_config config;
    *graph = NULL;
    assert_int_equal(model_preset_find(preset, &config, err), ERR_OK);
    return model_build(&config, job, graph, err);
}

/* AutoModelForSequenceClassification.from_config of transformers 5.23, on the meta device. */
static void parameters_are_the_classes(void **state)
{
    static const struct {
        const char *preset;
        uint32_t labels;
        uint64_t parameters;
        const char *last;
    } rows[] = {
        {"bert-base", 3, 109484547, "classifier.bias"},
        {"roberta-base", 1, 124646401, "classifier.out_proj.bias"},
        {"distilbert-base", 2, 66955010, "classifier.bias"},
        {"electra-base", 2, 109483778, "classifier.out_proj.bias"},
        {"modernbert-base", 2, 149606402, "classifier.bias"},
        {"eurobert-210m", 2, 212358146, "classifier.bias"},
        {"llama-3.1-8b", 1, 7504928768, "score.weight"},
        {"gpt2", 5, 124443648, "score.weight"},
        {"opt-350m", 2, 331197440, "score.weight"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct graph *graph;
        struct err err = {0};
        const struct model_job job = job_of(rows[i].labels);
        if (build(rows[i].preset, &job, &graph, &err) != ERR_OK)
            fail_msg("%s: %s", rows[i].preset, err.text);
        if (graph_parameter_elements(graph) != rows[i].parameters)
            fail_msg("%s: %llu parameters", rows[i].preset,
                     (unsigned long long)graph_parameter_elements(graph));
        assert_string_equal(graph->params[graph->param_count - 1].name, rows[i].last);
        graph_free(graph);
    }
}

static uint32_t count_of(const struct graph *graph, enum op_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->op_count; i++)
        count += graph->ops[i].kind == (uint32_t)kind;
    return count;
}

/* What labels are follows from how many there are, where nothing says it. */
static void the_loss_is_of_the_problem(void **state)
{
    static const struct {
        uint32_t labels;
        enum problem problem;
        enum op_kind kind;
    } rows[] = {
        {1, PROBLEM_AUTO, OP_MSE_LOSS},        {3, PROBLEM_AUTO, OP_NLL_LOSS},
        {0, PROBLEM_AUTO, OP_NLL_LOSS},        {3, PROBLEM_REGRESSION, OP_MSE_LOSS},
        {3, PROBLEM_MULTI_LABEL, OP_BCE_LOSS}, {1, PROBLEM_SINGLE_LABEL, OP_NLL_LOSS},
        {1, PROBLEM_MULTI_LABEL, OP_BCE_LOSS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct graph *graph;
        struct err err = {0};
        struct model_job job = job_of(rows[i].labels);
        job.problem = rows[i].problem;
        assert_int_equal(build("bert-base", &job, &graph, &err), ERR_OK);
        assert_int_equal(count_of(graph, rows[i].kind), 1);
        assert_int_equal(count_of(graph, OP_MSE_LOSS) + count_of(graph, OP_NLL_LOSS) +
                             count_of(graph, OP_BCE_LOSS),
                         1);
        graph_free(graph);
    }
}

static void expect_refused(const char *preset, const struct model_job *job, const char *says)
{
    struct graph *graph;
    struct err err = {0};
    if (build(preset, job, &graph, &err) == ERR_OK || !strstr(err.text, says))
        fail_msg("%s: %s: %s", preset, says, err.text);
    graph_free(graph);
}

static void others_are_refused(void **state)
{
    (void)state;
    struct model_job job = job_of(2);
    expect_refused("granite-3.3-8b", &job, "transformers has no class of granite for it");
    expect_refused("t5-base", &job, "of t5 is not planned");
    job.code = CODE_TORCHTITAN;
    expect_refused("llama-3.2-1b", &job, "--code hf, not torchtitan");
    job = job_of(2);
    job.sets_pad_token = false;
    expect_refused("llama-3.2-1b", &job, "Cannot handle batch sizes > 1");
    job = job_of(2);
    job.compiled = true;
    expect_refused("llama-3.2-1b", &job, "with --compile is not planned");
    job = job_of(2);
    job.bits8 = true;
    expect_refused("llama-3.2-1b", &job, "with --load-in-8bit is not planned");
    job = job_of(2);
    job.loss = CROSS_ENTROPY_LM_HEAD;
    expect_refused("llama-3.2-1b", &job, "it is a loss of tokens");
    job = job_of(2);
    job.loss = CROSS_ENTROPY_REWARD;
    job.batch = 3;
    expect_refused("llama-3.2-1b", &job, "a pair is two sequences");
    job = job_of(2);
    job.lora = "8,dense";
    expect_refused("roberta-base", &job, "adapters would be in the head");
    job = job_of(2);
    job.task = TASK_LANGUAGE_MODEL;
    expect_refused("llama-3.2-1b", &job, "--num-labels: of a model that classifies sequences");
}

/* A decoder without padding takes one sequence, whose last token is the one; what pads nothing is
 * looked for otherwise. */
static void the_last_token_is_looked_for(void **state)
{
    struct graph *graph;
    struct err err = {0};
    struct model_job job = job_of(2);
    (void)state;
    assert_int_equal(build("llama-3.2-1b", &job, &graph, &err), ERR_OK);
    assert_int_equal(count_of(graph, OP_INDEX_PAIR), 1);
    graph_free(graph);
    job.batch = 1;
    job.sets_pad_token = false;
    assert_int_equal(build("llama-3.2-1b", &job, &graph, &err), ERR_OK);
    assert_int_equal(count_of(graph, OP_INDEX_PAIR), 0);
    assert_int_equal(count_of(graph, OP_INDEX), 1);
    graph_free(graph);
}

/* peft trains a copy of the head, beside the original. */
static void adapters_come_with_a_head(void **state)
{
    struct graph *graph;
    struct err err = {0};
    struct model_job job = job_of(4);
    uint32_t originals = 0, copies = 0;
    (void)state;
    job.lora = "8,q_lin";
    assert_int_equal(build("distilbert-base", &job, &graph, &err), ERR_OK);
    for (uint32_t i = 0; i < graph->param_count; i++) {
        const struct graph_param *param = &graph->params[i];
        const bool copy = strstr(param->name, "classifier.modules_to_save.default.");
        originals += strstr(param->name, "classifier.original_module.") != NULL;
        copies += copy;
        assert_int_equal(param->trainable, copy || strstr(param->name, ".lora_"));
    }
    assert_int_equal(originals, 4); /* pre_classifier's name ends so, too */
    assert_int_equal(copies, 4);
    graph_free(graph);
}

static void a_reward_is_of_one_label(void **state)
{
    struct graph *graph;
    struct err err = {0};
    struct model_job job = job_of(0);
    (void)state;
    job.task = TASK_LANGUAGE_MODEL;
    job.sets_pad_token = false;
    job.loss = CROSS_ENTROPY_REWARD;
    assert_int_equal(build("llama-3.2-1b", &job, &graph, &err), ERR_OK);
    const struct graph_param *score = &graph->params[graph->param_count - 1];
    assert_string_equal(score->name, "score.weight");
    assert_int_equal(score->shape.dim[0], 1);
    assert_int_equal(count_of(graph, OP_READ), 6); /* what the trainer logs */
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_the_classes),
        cmocka_unit_test(the_loss_is_of_the_problem),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(the_last_token_is_looked_for),
        cmocka_unit_test(adapters_come_with_a_head),
        cmocka_unit_test(a_reward_is_of_one_label),
    };
    return cmocka_run_group_tests_name("classification", tests, NULL, NULL);
}
