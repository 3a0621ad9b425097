/* small_graphs.c - see small_graphs.h. */
#include "tests/support/small_graphs.h"

#include "families/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static const struct {
    const char *folder; /* under tests/data/configs */
    enum code code;
} models[] = {
    {"toy-llama", CODE_TORCHTITAN},
    {"gpt2", CODE_NANOGPT},
    {"toy-llama", CODE_HF},
    {"gpt2", CODE_HF},
    {"qwen3-8b", CODE_HF},
    {"qwen2.5-7b", CODE_HF},
    {"mistral-7b", CODE_HF},
    {"opt-1.3b", CODE_HF},
    {"gpt-neox-20b", CODE_HF},
    {"bert-base", CODE_HF},
    {"t5-small", CODE_HF},
    {"mixtral-8x7b", CODE_HF},
    {"qwen3-30b-a3b", CODE_HF},
    {"gpt-oss-20b", CODE_HF},
    {"deepseek-v3", CODE_HF},
    {"deepseek-v2-lite", CODE_HF},
    {"glm-4.5-air", CODE_HF},
    {"olmoe-1b-7b", CODE_HF},
    {"fsdp2-tutorial", CODE_TORCHTITAN},
    {"phi-4-mini-reasoning", CODE_HF},
    {"olmo-2-7b", CODE_HF},
    {"smollm3-3b", CODE_HF},
    {"granite-3.3-8b", CODE_HF},
    {"gemma-2-2b", CODE_HF},
    {"gemma-3-1b", CODE_HF},
    {"glm-4-9b-0414", CODE_HF},
    {"falcon-rw-1b", CODE_HF},
    {"falcon-40b", CODE_HF},
    {"bloom-560m", CODE_HF},
};
static const struct {
    enum dtype dtype;
    bool autocast;
} precisions[] = {
    {DTYPE_BF16, false}, {DTYPE_FP16, false}, {DTYPE_FP32, false}, {DTYPE_FP32, true}};
enum { PRECISIONS = sizeof precisions / sizeof precisions[0] };

struct graph *small_graph_frozen(int i, const char *frozen, char *name, size_t size)
{
    struct err err = {0};
    char path[128];
    struct model_config config;
    struct graph *graph = NULL;
    const char *folder = models[i / PRECISIONS].folder;
    const enum code code = models[i / PRECISIONS].code;
    const enum dtype dtype = precisions[i % PRECISIONS].dtype;
    const bool autocast = precisions[i % PRECISIONS].autocast;
    assert_true((size_t)i < PRECISIONS * sizeof models / sizeof models[0]);
    snprintf(path, sizeof path, "tests/data/configs/%s", folder);
    snprintf(name, size, "%s, %s, %s%s", folder, code_name(code), dtype_name(dtype),
             autocast ? " under autocast" : "");
    if (model_config_read(path, &config, &err) != ERR_OK)
        fail_msg("%s", err.text);
    config.layers = 3;
    if (config.dense_first)
        config.dense_first = 1;
    if (config.sliding_window)
        config.sliding_window = 16; /* fewer than there are: a mask */
    /* 37 tokens: no multiple of what kernels round to */
    const struct model_job job = {.batch = 2,
                                  .seq = 37,
                                  .code = code,
                                  .compute = dtype,
                                  .autocast = autocast,
                                  .frozen = frozen};
    if (model_build(&config, &job, &graph, &err) != ERR_OK)
        fail_msg("%s: %s", name, err.text);
    return graph;
}

struct graph *small_graph(int i, char *name, size_t size)
{
    return small_graph_frozen(i, NULL, name, size);
}
