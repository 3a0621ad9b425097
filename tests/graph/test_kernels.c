/* test_kernels.c - what operators and systems say their kernels compute, beside what PyTorch's
 * operators of those labels compute, beside the operands that the vocabulary promises, and beside
 * linear algebra. */
#include "base/vocabulary.h"
#include "graph/ops.h"
#include "graph/tape.h"
#include "tests/support/small_graphs.h"
#include "tests/support/small_jobs.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NAME = 128, MEANINGS = 6 };

/* What PyTorch's operators compute (native_functions.yaml, derivatives.yaml), where their names are
 * not those of the computation. Where one label stands for several, its kernels' operands tell them
 * apart below. */
static const struct {
    enum aten label;
    enum work_kind works[MEANINGS];
} meanings[] = {
    {ATEN_MM, {WORK_MATMUL_NT, WORK_MATMUL_NN, WORK_MATMUL_TN}},
    {ATEN_ADDMM, {WORK_MATMUL_NT_BIAS, WORK_MATMUL_NN_BIAS}},
    {ATEN_BMM, {WORK_BMM_NN, WORK_BMM_NT, WORK_BMM_TN}},
    {ATEN_BADDBMM, {WORK_BMM_NN_BIAS}},
    {ATEN_GROUPED_MM, {WORK_GROUPED_MM_NT, WORK_GROUPED_MM_NN, WORK_GROUPED_MM_TN}},
    {ATEN_ONES_LIKE, {WORK_SEED, WORK_FILL}},
    {ATEN_ONES, {WORK_FILL}},
    {ATEN_FULL, {WORK_FILL}},
    {ATEN_ARANGE_START, {WORK_ARANGE}},
    {ATEN_POW_TENSORS, {WORK_POWER_OF}},
    {ATEN_NEW_ONES, {WORK_FILL}},
    {ATEN_ZEROS, {WORK_FILL}},
    {ATEN_ZEROS_LIKE, {WORK_FILL}},
    {ATEN_NEW_ZEROS, {WORK_FILL}},
    {ATEN_FULL_LIKE, {WORK_FILL}},
    {ATEN_SCALAR_TENSOR, {WORK_FILL, WORK_FILL_LOWEST}},
    {ATEN_LIFT_FRESH, {WORK_FILL}},
    {ATEN_ADD, {WORK_ADD_NUMBER}},
    {ATEN_ADD_, {WORK_ADD_IN_PLACE, WORK_ADD_TO}},
    {ATEN_SCATTER_, {WORK_SCATTER}},
    {ATEN_SCATTER_VALUE_, {WORK_SCATTER_NUMBER}},
    {ATEN_SCATTER_VALUE, {WORK_SCATTER_NUMBER}},
    {ATEN_INDEX_PUT_, {WORK_INDEX_PUT, WORK_SLICE_BACKWARD}}, /* of one place of a dim */
    {ATEN_INDEX_PUT, {WORK_SLICE_BACKWARD}},
    {ATEN_INDEX, {WORK_SLICE}},
    {ATEN_SELECT_BACKWARD, {WORK_SLICE_BACKWARD}},
    {ATEN_SUB, {WORK_ADD_NUMBER}},
    {ATEN_RSUB, {WORK_NUMBER_MINUS}},
    {ATEN_MUL, {WORK_MUL_NUMBER}},
    {ATEN_MUL_SCALAR, {WORK_MUL_NUMBER}},
    {ATEN_DIV, {WORK_DIV_NUMBER, WORK_DIV_IN_PLACE}},
    {ATEN_DIV_SCALAR, {WORK_DIV_NUMBER}},
    {ATEN_FLOOR_DIVIDE, {WORK_FLOOR_DIV_NUMBER}},
    {ATEN_TO_COPY, {WORK_CAST}},
    {ATEN_CLONE, {WORK_CONJUGATE, WORK_REORDER, WORK_REPEAT, WORK_SLICE, WORK_INTERLEAVE}},
    {ATEN_EQ, {WORK_EQUAL_NUMBER}},
    {ATEN_NE, {WORK_NOT_EQUAL_NUMBER}},
    {ATEN_LT, {WORK_LESS_NUMBER}},
    {ATEN_GT, {WORK_GREATER_NUMBER}},
    {ATEN_EQ_TENSOR, {WORK_EQUAL}},
    {ATEN_LT_TENSOR, {WORK_LESS}},
    {ATEN_GT_TENSOR, {WORK_GREATER}},
    {ATEN_LE, {WORK_LESS_EQUAL}},
    {ATEN_GE, {WORK_GREATER_EQUAL}},
    {ATEN_LOGICAL_AND, {WORK_AND}},
    {ATEN_BITWISE_AND, {WORK_AND}},
    {ATEN_LOGICAL_OR, {WORK_OR}},
    {ATEN_ISINF, {WORK_IS_INFINITE}},
    {ATEN_TRIL, {WORK_LOWER_TRIANGLE}},
    {ATEN_MAX, {WORK_MAXIMUM}},
    {ATEN_STACK, {WORK_INTERLEAVE}},
    {ATEN_GELU, {WORK_GELU_TANH}},
    {ATEN_GELU_BACKWARD, {WORK_GELU_TANH_BACKWARD}},
    {ATEN_THRESHOLD_BACKWARD, {WORK_RELU_BACKWARD}},
    {ATEN_SUM_DIM, {WORK_SUM_DIM}},
    {ATEN_MAX_DIM, {WORK_TOPK}}, /* of one */
    {ATEN_CLAMP, {WORK_AT_MOST, WORK_WITHIN}},
    {ATEN_SCATTER_ADD, {WORK_SCATTER}}, /* into zeros, no place twice */
    {ATEN_SCATTER_ADD_, {WORK_SCATTER}},
    {ATEN_COPY_, {WORK_COPY, WORK_PUT_SLICE}},
    {ATEN_BITWISE_NOT, {WORK_EQUAL_NUMBER}},
    {ATEN_SLICE_BACKWARD, {WORK_STRIDE_BACKWARD}},
    {ATEN_CUMSUM, {WORK_CUMULATIVE_SUM}},
    {ATEN_CONSTANT_PAD, {WORK_PAD}},
    {ATEN_EMBEDDING_DENSE_BACKWARD, {WORK_EMBEDDING_BACKWARD}},
    {ATEN_HISTC, {WORK_HISTOGRAM}},
    {ATEN_EMPTY_LIKE, {WORK_INVERT_PERMUTATION}}, /* inverse[permutation] = arange, in place */
    {ATEN_FLASH_ATTENTION, {WORK_ATTENTION}},
    {ATEN_FLASH_ATTENTION_BACKWARD, {WORK_ATTENTION_BACKWARD}},
    {ATEN_CUDNN_ATTENTION, {WORK_ATTENTION}},
    {ATEN_CUDNN_ATTENTION_BACKWARD, {WORK_ATTENTION_BACKWARD}},
    {ATEN_EFFICIENT_ATTENTION, {WORK_EFFICIENT_ATTENTION}},
    {ATEN_EFFICIENT_ATTENTION_BACKWARD, {WORK_EFFICIENT_ATTENTION_BACKWARD}},
    {ATEN_SOFTMAX_BACKWARD, {WORK_SOFTMAX_BACKWARD}},
    {ATEN_LOG_SOFTMAX_BACKWARD, {WORK_LOG_SOFTMAX_BACKWARD}},
    {ATEN_NLL_LOSS, {WORK_NLL_LOSS}},
};

/* "_fused_rms_norm" is rms_norm, "index.Tensor" index, "native_dropout_backward"
 * dropout_backward. */
static bool is_named_alike(const char *label, const char *work)
{
    label += *label == '_';
    label += strncmp(label, "fused_", 6) == 0 ? 6 : strncmp(label, "native_", 7) == 0 ? 7 : 0;
    const size_t length = strcspn(label, ".");
    return strlen(work) == length && strncmp(label, work, length) == 0;
}

static bool may_mean(enum aten label, enum work_kind work)
{
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        for (int w = 0; meanings[i].label == label && w < MEANINGS; w++)
            if (meanings[i].works[w] == work)
                return true;
    return is_named_alike(aten_name(label), work_name(work));
}

/* ---- linear algebra ---- */

struct matrix {
    double batch, rows, columns;
};

/* An operand as matrices: `batched` by its first dim, or all rows in one. */
static struct matrix matrix_of(const struct operand *x, bool batched)
{
    const struct shape *s = &x->shape;
    const double columns = s->dim[s->rank - 1], all = (double)shape_elements(s) / columns;
    const double batch = batched ? s->dim[0] : 1;
    return (struct matrix){batch, all / batch, columns};
}

static struct matrix transposed(struct matrix m)
{
    return (struct matrix){m.batch, m.columns, m.rows};
}

/* Whether (b, m, k) times (b, k, n) is (b, m, n), with as many operations as that takes. */
static bool multiply(struct matrix x, struct matrix y, struct matrix z, double flops)
{
    return x.columns == y.rows && z.rows == x.rows && z.columns == y.columns &&
           x.batch == y.batch && z.batch == x.batch &&
           flops == 2 * x.batch * x.rows * x.columns * y.columns;
}

static bool is_product(const struct kernel *k)
{
    const bool batched = k->work >= WORK_BMM_NN_BIAS && k->work <= WORK_BMM_TN;
    struct matrix x = matrix_of(&k->operands[0], batched), y = matrix_of(&k->operands[1], batched);
    struct matrix z = matrix_of(&k->operands[k->ins], batched);
    switch (k->work) {
    case WORK_MATMUL_NN:
    case WORK_MATMUL_NN_BIAS:
    case WORK_BMM_NN:
    case WORK_BMM_NN_BIAS:
        return multiply(x, y, z, k->flops);
    case WORK_MATMUL_NT:
    case WORK_MATMUL_NT_BIAS:
    case WORK_BMM_NT:
        return multiply(x, transposed(y), z, k->flops);
    case WORK_MATMUL_TN:
    case WORK_BMM_TN:
        return multiply(transposed(x), y, z, k->flops);
    default: /* each row is in one group: as one product of all rows with one group's matrix */
        break;
    }
    const double groups = k->operands[2].shape.dim[0];
    if (k->work == WORK_GROUPED_MM_TN) {
        z.rows /= groups;
        return multiply(transposed(x), y, z, k->flops);
    }
    y.rows /= groups;
    return multiply(x, k->work == WORK_GROUPED_MM_NT ? transposed(y) : y, z, k->flops);
}

/* ---- operands as the vocabulary promises them ---- */

/* How many operands a side of "x, y (..., n) -> z: meaning" names, -1: any number. */
static int promised(const char *text, const char *end)
{
    int depth = 0, count = 0;
    bool named = false;
    for (const char *c = text; c < end; c++) {
        if (depth == 0 && (strncmp(c, "...", 3) == 0 || strncmp(c, "perhaps", 7) == 0 ||
                           strncmp(c, "as attention", 12) == 0))
            return -1;
        depth += (*c == '(') - (*c == ')');
        if (depth == 0 && (*c == ':' || *c == ';'))
            break;
        if (depth == 0 && *c == ',') {
            count++;
            named = false;
        } else if (!isspace((unsigned char)*c)) {
            named = true;
        }
    }
    return count + named;
}

static void assert_operands(const struct kernel *kernel, const char *name, const char *label)
{
    const char *text = work_meaning((enum work_kind)kernel->work), *arrow = strstr(text, "->");
    if (!arrow)
        return;
    const int ins = promised(text, arrow), outs = promised(arrow + 2, text + strlen(text));
    if ((ins >= 0 && kernel->ins != ins) || (outs >= 0 && kernel->outs != outs))
        fail_msg("%s: %s, %s (\"%s\"): %u operands in, %u out", name, label,
                 work_name((enum work_kind)kernel->work), text, kernel->ins, kernel->outs);
}

/* ---- tests ---- */

static void kernels_compute_what_their_labels_do_in_pytorch(void **state)
{
    (void)state;
    uint8_t seen[WORK_KIND_COUNT] = {0};
    for (int i = 0; i < SMALL_GRAPHS; i++) {
        char name[NAME];
        struct graph *graph = small_graph(i, name, sizeof name);
        struct stream *stream = tape_run(graph, &(struct tape_options){0});
        for (uint32_t n = 0; n < stream->kernels->kernel_count; n++) {
            const struct kernel *kernel = &stream->kernels->kernels[n];
            const char *label = aten_name((enum aten)kernel->label);
            seen[kernel->work] = 1;
            if (!may_mean((enum aten)kernel->label, (enum work_kind)kernel->work))
                fail_msg("%s: %s is no %s", name, label, work_name((enum work_kind)kernel->work));
            /* Gradients are added up by the engine, which has no numbers of its own. */
            if (kernel->work == WORK_ADD || kernel->work == WORK_ADD_IN_PLACE)
                assert_memory_equal(&kernel->attr, &(struct kernel_attr){0}, sizeof kernel->attr);
            if (kernel->op != OP_NO_GRAD) /* whose operands are whole tensors, see ops.h */
                assert_operands(kernel, name, label);
        }
        stream_free(stream);
        graph_free(graph);
    }
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        for (int w = 0; w < MEANINGS && meanings[i].works[w]; w++)
            if (!seen[meanings[i].works[w]])
                fail_msg("no model has %s", work_name(meanings[i].works[w]));
}

static void products_are_of_matrices_that_fit(void **state)
{
    (void)state;
    uint32_t products = 0;
    for (int i = 0; i < SMALL_GRAPHS; i++) {
        char name[NAME];
        struct graph *graph = small_graph(i, name, sizeof name);
        struct stream *stream = tape_run(graph, &(struct tape_options){0});
        for (uint32_t n = 0; n < stream->kernels->kernel_count; n++) {
            const struct kernel *kernel = &stream->kernels->kernels[n];
            const enum work_kind work = (enum work_kind)kernel->work;
            if (!work_is_matmul(work) && !work_is_grouped_matmul(work))
                continue;
            if (!is_product(kernel))
                fail_msg("%s: the operands of kernel %u do not make a %s", name, n,
                         work_name(work));
            products++;
        }
        stream_free(stream);
        graph_free(graph);
    }
    assert_true(products > 1000);
}

static void kernels_of_systems_and_optimizers_have_their_operands(void **state)
{
    (void)state;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        const struct job job = small_job_of_kind(kind);
        struct plan *plan = small_plan_of(&job);
        for (uint32_t i = 0; i < plan->instruction_count; i++) {
            const struct plan_instruction *in = &plan->instructions[i];
            if (!plan_op_is_kernel((enum plan_op)in->op))
                continue;
            const struct kernel *kernel = plan_kernel(plan, in->arg);
            assert_operands(kernel, "a plan", plan->labels[kernel->label]);
            assert_int_equal(work_is_collective((enum work_kind)kernel->work),
                             plan_op_is_collective((enum plan_op)in->op));
        }
        plan_free(plan);
    }
}

static void every_name_is_found_and_the_nearest_of_others(void **state)
{
    (void)state;
    for (unsigned work = WORK_NONE + 1; work < WORK_KIND_COUNT; work++) {
        assert_int_equal(work_named(work_name((enum work_kind)work)), work);
        assert_int_equal(work_nearest(work_name((enum work_kind)work)), work);
        assert_true(strlen(work_meaning((enum work_kind)work)) > 5);
    }
    assert_int_equal(work_named("none"), WORK_NONE);
    assert_int_equal(work_named("mm"), WORK_NONE);
    assert_int_equal(work_nearest("layernorm"), WORK_LAYER_NORM);
    assert_int_equal(work_nearest("atention_backwards"), WORK_ATTENTION_BACKWARD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_compute_what_their_labels_do_in_pytorch),
        cmocka_unit_test(products_are_of_matrices_that_fit),
        cmocka_unit_test(kernels_of_systems_and_optimizers_have_their_operands),
        cmocka_unit_test(every_name_is_found_and_the_nearest_of_others),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
