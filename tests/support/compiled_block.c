/* compiled_block.c - see compiled_block.h. */
#include "tests/support/compiled_block.h"

#include "families/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const files[] = {"tests/data/truth/compile.jsonl",
                                    "tests/data/truth/compile_float8.jsonl",
                                    "tests/data/truth/compile_model.jsonl",
                                    "tests/data/truth/compile_model_hf.jsonl",
                                    "tests/data/truth/compile_parts.jsonl",
                                    "tests/data/truth/compile_frozen.jsonl",
                                    "tests/data/truth/compile_model_frozen.jsonl",
                                    "tests/data/truth/compile_moe.jsonl",
                                    "tests/data/truth/compile_model_moe.jsonl"};

enum { BLOCKS_MOST = 64 };

static bool is_hf(const json_t *row)
{
    return strcmp(truth_text(json_object_get(row, "strategy"), "code", ""), "hf") == 0;
}

static struct graph *graph_of(const json_t *row)
{
    struct err err = {0};
    struct model_config config = {0};
    const char *store = truth_text(json_object_get(row, "strategy"), "store_dtype", "");
    const char *what = truth_text(json_object_get(row, "strategy"), "compile", "");
    struct model_job job = {
        .compiled = true,
        .traced = strcmp(what, "model") == 0,
        .compute = strcmp(store, "fp32") == 0 ? DTYPE_FP32 : DTYPE_BF16,
        .attention = ATTENTION_FLASH,
        .autocast = *truth_text(json_object_get(row, "strategy"), "autocast", ""),
        .frozen = truth_text(json_object_get(row, "strategy"), "freeze", NULL),
        .lora = truth_text(json_object_get(row, "strategy"), "lora", NULL),
        .lora_dropout = (float)json_number_value(
            json_object_get(json_object_get(row, "strategy"), "lora_dropout")),
        .wide_trained = *truth_text(json_object_get(row, "strategy"), "lora_dtype", ""),
        .outputs_fp32 = *truth_text(json_object_get(row, "strategy"), "outputs", ""),
        .float8 = truth_float8(truth_text(json_object_get(row, "strategy"), "float8", "")),
        .float8_gather = truth_float8_gather(
            truth_text(json_object_get(row, "strategy"), "float8_all_gather", ""))};
    struct graph *graph = NULL;
    if (!(is_hf(row) ? truth_read_hf : truth_read_written)(row, &config, &job) ||
        model_build(&config, &job, &graph, &err) != ERR_OK)
        fail_msg("%s: %s", truth_text(row, "name", ""), err.text);
    return graph;
}

static enum joint_checkpoint checkpoint_of(const json_t *row)
{
    const char *ac = truth_text(json_object_get(row, "strategy"), "ac", "");
    return strcmp(ac, "full") == 0        ? CHECKPOINT_AGAIN
           : strcmp(ac, "selective") == 0 ? CHECKPOINT_SELECTIVE
                                          : CHECKPOINT_NOT;
}

static struct tape_options options_of(const json_t *row)
{
    static const enum checkpointing ways[] = {
        [CHECKPOINT_NOT] = CHECKPOINTING_NONE,
        [CHECKPOINT_AGAIN] = CHECKPOINTING_FULL,
        [CHECKPOINT_SELECTIVE] = CHECKPOINTING_SELECTIVE,
    };
    const char *what = truth_text(json_object_get(row, "strategy"), "compile", "");
    return (struct tape_options){
        .compiled = strcmp(what, "model") == 0 ? COMPILED_MODEL : COMPILED_BLOCKS,
        .checkpointing = ways[checkpoint_of(row)],
        .bucket_bytes = truth_number(json_object_get(row, "strategy"), "bucket_cap_mb", 0) << 20};
}

static json_t *read_row(size_t index)
{
    char *line = NULL;
    size_t size = 0, at = 0;
    json_t *row = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files && !row; i++) {
        FILE *file = fopen(files[i], "r");
        assert_non_null(file);
        while (!row && getline(&line, &size, file) > 0)
            if (at++ == index)
                row = json_loads(line, 0, NULL);
        fclose(file);
    }
    free(line);
    return row;
}

bool compiled_block_read(size_t index, struct compiled_block *out)
{
    struct err err = {0};
    *out = (struct compiled_block){.row = read_row(index)};
    if (!out->row)
        return false;
    out->graph = graph_of(out->row);
    out->options = options_of(out->row);
    tape_run_regions(out->graph, &out->options, &out->regions);
    assert_true(out->regions.count > 0);
    enum joint_checkpoint how[BLOCKS_MOST];
    for (size_t i = 0; i < BLOCKS_MOST; i++)
        how[i] = checkpoint_of(out->row);
    assert_int_equal(out->regions.count, truth_number(out->row, "parts", out->regions.count));
    const struct tape_region *part = &out->regions.of[truth_number(out->row, "part", 0)];
    if (compiled_region_trace(out->graph, &out->regions, part, how, &out->region, &err) != ERR_OK ||
        compiled_region_finish(&out->region, &err) != ERR_OK)
        fail_msg("%s: %s", truth_text(out->row, "name", ""), err.text);
    return true;
}

void compiled_block_free(struct compiled_block *block)
{
    compiled_region_free(&block->region);
    tape_regions_free(&block->regions);
    graph_free(block->graph);
    json_decref(block->row);
    *block = (struct compiled_block){0};
}
