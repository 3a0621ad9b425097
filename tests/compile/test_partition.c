/* test_partition.c - what our partition saves of a block beside what AOTAutograd saved of it
 * (tests/data/truth/compile.jsonl: shapes and dtypes of torch.compile's saved tensors). */
#include "tests/support/compiled_block.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct tensors { /* "bfloat16 131072 input": of each its dtype, elements, and whether an argument */
    char text[512][64];
    size_t count;
};

static int by_text(const void *x, const void *y)
{
    return strcmp(x, y);
}

static void add_tensor(struct tensors *t, const char *dtype, uint64_t elements, bool input)
{
    assert_true(t->count < 512);
    snprintf(t->text[t->count++], sizeof t->text[0], "%s %llu%s", dtype,
             (unsigned long long)elements, input ? " input" : "");
}

static void read_saved(const json_t *row, struct tensors *out)
{
    size_t i, d;
    const json_t *entry, *dim;
    *out = (struct tensors){.count = 0};
    json_array_foreach(json_object_get(row, "saved"), i, entry)
    {
        uint64_t elements = 1;
        json_array_foreach(json_array_get(entry, 1), d, dim) elements *=
            (uint64_t)json_integer_value(dim);
        add_tensor(out, json_string_value(json_array_get(entry, 0)), elements,
                   strlen(json_string_value(json_array_get(entry, 2))) > 0);
    }
    qsort(out->text, out->count, sizeof out->text[0], by_text);
}

static const char *torch_name(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
        return "bfloat16";
    case DTYPE_FP32:
        return "float32";
    case DTYPE_FP64:
        return "float64";
    case DTYPE_FLOAT8_E4M3:
        return "float8_e4m3fn";
    case DTYPE_FLOAT8_E5M2:
        return "float8_e5m2";
    case DTYPE_UINT64:
        return "uint64";
    case DTYPE_INT64:
        return "int64";
    case DTYPE_INT32:
        return "int32";
    case DTYPE_BOOL:
        return "bool";
    case DTYPE_COMPLEX64:
        return "complex64";
    default:
        return "other";
    }
}

/* Of a model compiled whole, its modules' buffers do not move either. */
static void planned_saved(const struct compiled_region *region, bool whole, bool gathered,
                          struct tensors *out)
{
    *out = (struct tensors){.count = 0};
    for (uint32_t i = 0; i < region->partition.saved_count; i++) {
        const struct joint_node *node = joint_at(region->joint, region->partition.saved[i]);
        const bool input = node->name == JOINT_INPUT;
        const bool own = node->stays && !gathered;         /* a buffer of the block's */
        const bool scale = input && node->shape.rank == 0; /* a weight's that comes in float8 */
        const bool moves = node->source != SOURCE_PARAM && !own &&
                           !(whole && (node->of & PLACE_MASK) == PLACE_MODULE_BUFFER);
        if (!input || (moves && !scale))
            add_tensor(out, torch_name((enum dtype)node->dtype), shape_elements(&node->shape),
                       input);
    }
    qsort(out->text, out->count, sizeof out->text[0], by_text);
}

/* For who looks for a difference: SHARDPLAN_JOINT=1 shows the graph. */
static void show(const struct compiled_region *region)
{
    static const char *const names[] = {
#define X(name, way) #name,
        JOINT_MAP(X)
#undef X
    };
    for (uint32_t i = 0; i < joint_count(region->joint); i++) {
        const struct joint_node *node = joint_at(region->joint, i);
        bool saved = false;
        for (uint32_t k = 0; k < region->partition.saved_count; k++)
            saved |= region->partition.saved[k] == i;
        printf("%c%c n%-4u %-12s %s[", node->in_backward ? '.' : 'F', saved ? 'S' : '.', i,
               names[node->name], torch_name((enum dtype)node->dtype));
        for (uint32_t d = 0; d < node->shape.rank; d++)
            printf("%s%u", d ? "," : "", node->shape.dim[d]);
        printf("]");
        for (uint32_t a = 0; a < node->args; a++)
            printf(" n%u", node->arg[a]);
        printf("\n");
    }
    for (int way = 0; way < 2; way++) {
        const struct program *p = way ? region->backward : region->forward;
        for (uint32_t i = 0; p && i < p->act_count; i++) {
            const struct program_act *act = &p->acts[i];
            printf("%s %s", way ? "backward" : "forward",
                   act->call != JOINT_NONE ? "call"
                   : act->reduces          ? "sums"
                                           : "points");
            for (uint32_t k = 0; k < act->read_count; k++)
                printf(" n%u", p->memory[act->reads[k]].node);
            printf(" ->");
            for (uint32_t k = 0; k < act->write_count; k++) {
                printf(" n%u", p->memory[act->writes[k]].node);
                if (act->over[k] != JOINT_NONE)
                    printf("(over n%u)", p->memory[act->over[k]].node);
            }
            printf(" dies");
            for (uint32_t k = 0; k < act->die_count; k++)
                printf(" n%u", p->memory[act->dies[k]].node);
            printf("\n");
        }
        printf("peak %llu\n", (unsigned long long)program_peak(region->joint, p));
    }
}

static bool same_tensors(const char *name, const struct tensors *planned,
                         const struct tensors *recorded)
{
    bool same = planned->count == recorded->count;
    for (size_t i = 0; same && i < planned->count; i++)
        same = strcmp(planned->text[i], recorded->text[i]) == 0;
    if (same)
        return true;
    print_error("%s: saved\n", name);
    for (size_t i = 0; i < planned->count || i < recorded->count; i++)
        print_error("    %-28s recorded %s\n", i < planned->count ? planned->text[i] : "",
                    i < recorded->count ? recorded->text[i] : "");
    return false;
}

static bool saves_the_same(const struct compiled_block *block)
{
    struct tensors recorded, planned;
    const char *name = truth_text(block->row, "name", ""), *shown = getenv("SHARDPLAN_JOINT");
    const json_t *strategy = json_object_get(block->row, "strategy");
    planned_saved(&block->region, strcmp(truth_text(strategy, "compile", ""), "model") == 0,
                  *truth_text(strategy, "float8_all_gather", ""), &planned);
    read_saved(block->row, &recorded);
    if (shown && strcmp(shown, name) == 0)
        show(&block->region);
    return same_tensors(name, &planned, &recorded);
}

static void blocks_save_what_aotautograd_saves(void **state)
{
    (void)state;
    struct compiled_block block;
    size_t rows = 0, wrong = 0;
    for (; compiled_block_read(rows, &block); rows++) {
        wrong += !saves_the_same(&block);
        compiled_block_free(&block);
    }
    print_message("%zu rows, %zu differ\n", rows, wrong);
    assert_true(rows >= 391);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_save_what_aotautograd_saves)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
