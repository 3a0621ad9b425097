/* framework_torchtitan_older.c - keys of torchtitan's older TOML files, brought into the form of
 * v0.2.2. Commits are of github.com/pytorch/torchtitan. */
#include "frameworks/framework_torchtitan.h"

#include <string.h>

static const struct {
    const char *was, *is;
} moved[] = {
    {"training.batch_size", "training.local_batch_size"}, /* until June 2025, 8570415c3 */
    /* until March 2025, 785c34c99 */
    {"training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree"},
    {"training.tensor_parallel_degree", "parallelism.tensor_parallel_degree"},
    {"training.fsdp_reshard_after_forward", "parallelism.fsdp_reshard_after_forward"},
    {"training.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree"},
    {"training.data_parallel_degree", "parallelism.data_parallel_shard_degree"}, /* until September
                                                                   2024, db6b39acd: no replicas */
    {"training.sequence_parallel_degree",
     "parallelism.tensor_parallel_degree"}, /* until March
                                               2024, e28832e7c */
    {"experimental.context_parallel_degree", "parallelism.context_parallel_degree"},
    {"experimental.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree"},
    {"training.enable_fsdp_float8_all_gather", "float8.enable_fsdp_float8_all_gather"},
    {"training.enable_fsdp_fp8_all_gather", "float8.enable_fsdp_float8_all_gather"},
    {"training.precompute_float8_dynamic_scale_for_fsdp",
     "float8.precompute_float8_dynamic_scale_for_fsdp"},
    {"training.enable_float8_linear", "float8.enable_float8_linear"}, /* July 2024 */
    {"training.enable_fp8_linear", "float8.enable_float8_linear"},    /* until July, 69fe8defc */
    {"training.compile", "compile.enable"}, /* converted below: its components were others */
};

const char *torchtitan_renamed(const char *path)
{
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++)
        if (strcmp(moved[i].was, path) == 0)
            return moved[i].is;
    return NULL;
}

const char *torchtitan_other_name(uint32_t i)
{
    return i < sizeof moved / sizeof *moved ? moved[i].was : NULL;
}

static bool is_true(const struct node *node)
{
    return node && node->text && strcmp(node->text, "true") == 0;
}

/* "float8,mx", until April 2025 (c1c2f55d1: typed, and lists alone). */
static void split_text(struct document *document, const char *path)
{
    struct node *node = document_find(document, path);
    if (!node || node->kind != NODE_TEXT)
        return;
    const char *at = node->text + strspn(node->text, ", ");
    node->kind = NODE_LIST;
    while (*at) {
        const size_t length = strcspn(at, ", ");
        node_add(document, node, NULL, NODE_TEXT,
                 arena_printf(&document->arena, "%.*s", (int)length, at), node->line);
        at += length + strspn(at + length, ", ");
    }
}

/* "dynamic" or "", from March to July 2024 (41f517277 to a4b2ee3c0): all layers, the head too. */
static void convert_fp8(struct document *document)
{
    struct node *node = document_find(document, "training.fp8_linear");
    if (!node || node->kind != NODE_TEXT)
        return;
    node->read = true;
    if (strcmp(node->text, "dynamic") == 0)
        document_say(document, node, "training.fp8_linear", "model.converters", NODE_LIST,
                     "float8");
}

/* Until February 2025 (57387af0e) a switch, which left the head as it is (float8.py of 40f79d79f),
 * but not in its first days under [training]. */
static void convert_float8(struct document *document)
{
    struct node *node = document_find(document, "float8.enable_float8_linear");
    if (!node)
        return;
    node->read = true;
    if (!is_true(node))
        return;
    document_say(document, node, "float8.enable_float8_linear", "model.converters", NODE_LIST,
                 "float8");
    if (!document_find(document, "training.enable_fp8_linear") &&
        !document_find(document, "training.enable_float8_linear"))
        document_say(document, node, "float8.enable_float8_linear", "float8.filter_fqns", NODE_LIST,
                     "output");
}

/* Until August 2025 (08b8b244f) one key for blocks and loss. The loss was compiled with them from
 * April 2025 on (bbb1b616e), and before that in eight weeks of 2024 alone (e10cb9494 to e8977b007).
 */
static void convert_compile(struct document *document, bool before_april)
{
    struct node *node = document_find(document, "training.compile");
    if (!node || node->kind != NODE_BOOL || document_find(document, "compile.enable"))
        return;
    document_say(document, node, "training.compile", "compile.enable", NODE_BOOL, node->text);
    if (before_april)
        document_say(document, node, "training.compile", "compile.components", NODE_LIST, "model");
}

void torchtitan_older(struct document *document)
{
    bool before_april = false;
    if (document->syntax != SYNTAX_TOML)
        return;
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
        struct node *node = document_find(document, moved[i].was);
        if (!node || node->kind == NODE_TABLE || node->kind == NODE_LIST ||
            strcmp(moved[i].is, "compile.enable") == 0)
            continue;
        document_say(document, node, moved[i].was, moved[i].is, node->kind, node->text);
        before_april |= strncmp(moved[i].is, "parallelism.", 12) == 0;
    }
    split_text(document, "model.converters");
    split_text(document, "float8.filter_fqns");
    before_april |= document_find(document, "float8.enable_float8_linear") != NULL;
    convert_fp8(document);
    convert_float8(document);
    convert_compile(document, before_april);
}
