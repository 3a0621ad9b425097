/* passes.c - see passes.h: a function for each way that operands go together, and a table. */
#include "runtime/work/passes.h"

#include "runtime/work/operand.h"

struct passing { /* a work on its way */
    const struct work *work;
    void (*take)(void *context, const struct pass *pass);
    void *context;
};

static struct view in(const struct passing *of, uint32_t i)
{
    return view_of(work_in(of->work, i));
}

static struct view out(const struct passing *of, uint32_t i)
{
    return view_of(work_out(of->work, i));
}

static bool give(const struct passing *of, const struct pass *pass)
{
    if (of->take)
        of->take(of->context, pass);
    return true;
}

static struct pass a_pass(const struct passing *of, enum pass_form form)
{
    return (struct pass){
        .form = form, .kind = of->work->kind, .p = of->work->attr.p, .pads = UINT64_MAX};
}

static uint64_t last_of(const struct view *x)
{
    return x->shape.rank ? x->shape.dim[x->shape.rank - 1] : 1;
}

static uint64_t last_step(const struct view *x)
{
    return x->shape.rank ? x->at.of[x->shape.rank - 1] : 0;
}

/* ---- element by element ---- */

/* The views of `pass` from its first on. */
static bool give_map(const struct passing *of, struct pass *pass)
{
    return walk_over(pass->views, pass->view, &pass->walk) && give(of, pass);
}

static bool copy(const struct passing *of, struct view from, struct view to)
{
    struct pass pass = a_pass(of, PASS_MAP);
    pass.kind = WORK_CAST;
    pass.views = 2;
    pass.view[0] = to;
    pass.view[1] = from;
    return give_map(of, &pass);
}

static bool fill(const struct passing *of, struct view to, float p)
{
    struct pass pass = a_pass(of, PASS_MAP);
    pass.kind = WORK_FILL;
    pass.p = p;
    pass.views = 1;
    pass.view[0] = to;
    return give_map(of, &pass);
}

/* y += x reads y, too; of a product in place the old x is kept first. */
static bool pass_elements(const struct passing *of)
{
    const struct work *work = of->work;
    struct pass pass = a_pass(of, PASS_MAP);
    if (work->kind == WORK_DIV_IN_PLACE && work->outs > 1 && !copy(of, in(of, 0), out(of, 1)))
        return false;
    pass.view[0] = out(of, 0);
    for (uint32_t i = 0; i < work->ins; i++)
        pass.view[1 + i] = in(of, i);
    pass.views = 1 + work->ins;
    if (work->kind == WORK_ADD_IN_PLACE)
        pass.view[pass.views++] = pass.view[0];
    return give_map(of, &pass);
}

static bool pass_fill(const struct passing *of)
{
    const bool lowest = of->work->kind == WORK_FILL_LOWEST;
    return fill(of, out(of, 0), lowest ? -__builtin_inff() : of->work->attr.p);
}

/* Both parts of complex numbers. */
static bool pass_parts(const struct passing *of)
{
    for (int part = 0; part < 2; part++) {
        struct pass pass = a_pass(of, PASS_MAP);
        const struct view z = out(of, 0);
        pass.view[0] = view_part(&z, part);
        pass.imaginary = part;
        pass.views = 1 + of->work->ins;
        for (uint32_t i = 0; i < of->work->ins; i++) {
            pass.view[1 + i] = in(of, i);
            if (pass.view[1 + i].dtype == DTYPE_COMPLEX64)
                pass.view[1 + i] = view_part(&pass.view[1 + i], part);
        }
        if (!give_map(of, &pass))
            return false;
    }
    return true;
}

static bool pass_product(const struct passing *of)
{
    return work_out(of->work, 0)->dtype == DTYPE_COMPLEX64 ? pass_parts(of) : pass_elements(of);
}

/* ---- copies between parts of views ---- */

static bool pass_copy(const struct passing *of)
{
    return copy(of, in(of, 0), out(of, 0));
}

static bool pass_repeat(const struct passing *of)
{
    const struct view x = in(of, 0), y = out(of, 0);
    struct shape once = y.shape;
    struct view seen;
    once.dim[of->work->attr.dim] = 1;
    return view_as(&x, &once, &seen) && view_as(&seen, &y.shape, &seen) && copy(of, seen, y);
}

static bool pass_cat(const struct passing *of)
{
    const struct view y = out(of, 0);
    uint64_t column = 0;
    if (y.shape.rank == 0)
        return false;
    for (uint32_t i = 0; column < last_of(&y); i = i + 1 < of->work->ins ? i + 1 : 0) {
        const struct view part = in(of, i);
        const uint64_t width = last_of(&part);
        if (width && !copy(of, part, view_cut(&y, column, width, 1)))
            return false;
        column += width;
        if (width == 0 && of->work->ins == 1)
            break;
    }
    return true;
}

static bool pass_interleave(const struct passing *of)
{
    const struct view z = out(of, 0);
    const uint64_t half = last_of(&z) / 2;
    return last_of(&z) % 2 == 0 && z.shape.rank > 0 &&
           copy(of, in(of, 0), view_cut(&z, 0, half, 2)) &&
           copy(of, in(of, 1), view_cut(&z, 1, half, 2));
}

static bool pass_pad(const struct passing *of)
{
    const struct view x = in(of, 0), y = out(of, 0);
    const uint64_t wide = last_of(&y), kept = last_of(&x) < wide ? last_of(&x) : wide;
    if (x.shape.rank == 0 || y.shape.rank == 0)
        return false;
    return fill(of, view_cut(&y, kept, wide - kept, 1), of->work->attr.p) &&
           copy(of, view_cut(&x, 0, kept, 1), view_cut(&y, 0, kept, 1));
}

static bool pass_slice(const struct passing *of)
{
    const struct view x = in(of, 0), y = out(of, 0);
    return x.shape.rank > 0 && copy(of, view_cut(&x, of->work->attr.first, last_of(&y), 1), y);
}

/* PUT_SLICE, and those back, which begin with zeros. */
static bool pass_put_slice(const struct passing *of)
{
    const struct view x = in(of, 0), y = out(of, 0);
    const uint64_t step = of->work->kind == WORK_STRIDE_BACKWARD ? of->work->attr.dim : 1;
    if (y.shape.rank == 0 || (of->work->kind != WORK_PUT_SLICE && !fill(of, y, 0)))
        return false;
    return copy(of, x, view_cut(&y, of->work->attr.first, last_of(&x), step));
}

/* ---- reductions ---- */

static void add_dim(struct view *to, const struct view *x, uint32_t dim)
{
    to->at.of[to->shape.rank] = x->at.of[dim];
    to->shape.dim[to->shape.rank++] = x->shape.dim[dim];
}

/* x is of the kept dims, y of as many, `terms` of the others. */
static bool give_reduction(const struct passing *of, const struct view *y, const struct view *x,
                           const struct view *terms)
{
    struct pass pass = a_pass(of, PASS_REDUCE);
    if (of->work->kind == WORK_SUM_DIM)
        pass.kind = WORK_SUM;
    pass.views = 2;
    pass.view[0] = *y;
    pass.view[1] = *x;
    return walk_over(2, pass.view, &pass.walk) && walk_over(1, terms, &pass.inner) &&
           give(of, &pass);
}

static struct view without_dims(const struct view *x)
{
    struct view none = *x;
    none.shape.rank = 0;
    return none;
}

/* MEAN of the last dim, SUM_DIM of any. */
static bool pass_one_dim(const struct passing *of)
{
    const struct view x = in(of, 0), y = out(of, 0);
    const uint32_t dim = of->work->kind == WORK_MEAN ? x.shape.rank - 1 : of->work->attr.dim;
    struct view kept = without_dims(&x), terms = without_dims(&x);
    for (uint32_t i = 0; i < x.shape.rank; i++)
        add_dim(i == dim ? &terms : &kept, &x, i);
    return x.shape.rank > 0 && give_reduction(of, &y, &kept, &terms);
}

/* y's dims are x's, or 1, from the right. */
static bool pass_sum(const struct passing *of)
{
    const struct view x = in(of, 0), y = out(of, 0);
    struct view kept = without_dims(&x), terms = without_dims(&x), to = without_dims(&y);
    for (uint32_t i = 0; i < x.shape.rank; i++) {
        const uint32_t from_right = x.shape.rank - i;
        const bool has = from_right <= y.shape.rank;
        const uint32_t dim = has ? y.shape.rank - from_right : 0;
        const bool keeps = has && y.shape.dim[dim] == x.shape.dim[i];
        add_dim(keeps ? &kept : &terms, &x, i);
        if (keeps)
            add_dim(&to, &y, dim);
    }
    return give_reduction(of, &to, &kept, &terms);
}

static bool pass_all(const struct passing *of)
{
    const struct view x = in(of, 0), y = out(of, 0), one = without_dims(&x);
    return give_reduction(of, &y, &one, &x);
}

/* ---- rows ---- */

/* Of the views that are there, where rows begin, and their steps; view 0's are gone through. */
static bool give_rows(const struct passing *of, struct pass *pass, bool in_order)
{
    struct view begin[WALK_VIEWS];
    uint32_t count = pass->views;
    for (uint32_t i = 0; i < count; i++) {
        begin[i] = view_rows(&pass->view[i]);
        pass->step[i] = last_step(&pass->view[i]);
        if (shape_elements(&begin[i].shape) != shape_elements(&begin[0].shape))
            return false;
    }
    return (in_order ? walk_in_order : walk_over)(count, begin, &pass->walk) && give(of, pass);
}

static bool pass_rows(const struct passing *of)
{
    struct pass pass = a_pass(of, PASS_ROWS);
    pass.view[pass.views++] = out(of, 0);
    for (uint32_t i = 0; i < of->work->ins; i++)
        pass.view[pass.views++] = in(of, i);
    pass.length = last_of(&pass.view[0]);
    for (uint32_t i = 1; i < pass.views; i++)
        if (last_of(&pass.view[i]) != pass.length)
            return false;
    return give_rows(of, &pass, of->work->kind == WORK_LOWER_TRIANGLE);
}

/* What is masked, and of each row whether all is: a row of one. */
static bool pass_softmax(const struct passing *of)
{
    struct pass pass = a_pass(of, PASS_ROWS);
    pass.views = of->work->outs > 2 ? 4 : of->work->outs > 1 ? 3 : 2;
    pass.view[0] = out(of, 0);
    pass.view[1] = in(of, 0);
    pass.length = last_of(&pass.view[0]);
    if (last_of(&pass.view[1]) != pass.length)
        return false;
    if (pass.views > 2) {
        pass.view[2] = out(of, 1);
        if (last_of(&pass.view[2]) != pass.length)
            return false;
    }
    if (pass.views > 3) {
        const struct view all = out(of, 2), rows = view_rows(&pass.view[0]);
        if (!view_as(&all, &rows.shape, &pass.view[3]))
            return false;
        if (rows.shape.rank == SHAPE_DIMS)
            return false;
        pass.view[3].shape.dim[rows.shape.rank] = 1;
        pass.view[3].shape.rank++;
    }
    return give_rows(of, &pass, false);
}

static bool pass_topk(const struct passing *of)
{
    struct pass pass = a_pass(of, PASS_ROWS);
    pass.views = 3;
    pass.view[0] = out(of, 0);
    pass.view[1] = out(of, 1);
    pass.view[2] = in(of, 0);
    pass.length = last_of(&pass.view[2]);
    pass.most = last_of(&pass.view[0]);
    return last_of(&pass.view[1]) == pass.most && give_rows(of, &pass, false);
}

/* One list, as a whole. */
static bool pass_sort(const struct passing *of)
{
    struct pass pass = a_pass(of, PASS_SORT);
    pass.views = 3;
    pass.view[0] = out(of, 0);
    pass.view[1] = out(of, 1);
    pass.view[2] = in(of, 0);
    for (uint32_t i = 0; i < 3; i++)
        if (shape_elements(&pass.view[i].shape) != last_of(&pass.view[2]))
            return false;
    return walk_in_order(3, pass.view, &pass.walk) && give(of, &pass);
}

/* ---- by index ---- */

static uint64_t count_of(const struct view *x)
{
    return shape_elements(&x->shape);
}

/* The dims of x from `from` on, behind those of `to`. False: there are too many. */
static bool add_dims_from(struct view *to, const struct view *x, uint32_t from)
{
    for (uint32_t i = from; i < x->shape.rank; i++) {
        if (to->shape.rank == SHAPE_DIMS)
            return false;
        add_dim(to, x, i);
    }
    return true;
}

/* With all steps 0. */
static struct view held(const struct view *x)
{
    struct view same = *x;
    for (uint32_t i = 0; i < SHAPE_DIMS; i++)
        same.at.of[i] = 0;
    return same;
}

/* y (ids ..., inner ...) of x (n, inner ...): x stays where it is along the ids' dims, ids along
 * the others. */
static bool give_taken(const struct passing *of, const struct view *x, const struct view *ids)
{
    struct pass pass = a_pass(of, PASS_TAKE);
    struct view from = held(ids), by = *ids;
    const struct view still = held(x);
    from.data = x->data;
    from.dtype = x->dtype;
    if (x->shape.rank == 0 || !add_dims_from(&from, x, 1) || !add_dims_from(&by, &still, 1))
        return false;
    pass.views = 3;
    pass.view[0] = out(of, 0);
    pass.view[1] = from;
    pass.view[2] = by;
    pass.index_step = x->at.of[0];
    pass.bound = x->shape.dim[0];
    return walk_over(3, pass.view, &pass.walk) && give(of, &pass);
}

static bool pass_index(const struct passing *of)
{
    const struct view x = in(of, 0), ids = in(of, 1);
    return give_taken(of, &x, &ids);
}

/* The weight as (v, h). */
static bool weight_rows(const struct view *weight, struct view *out)
{
    const uint64_t h = last_of(weight), v = h ? count_of(weight) / h : 0;
    const struct shape rows = {.rank = 2, .dim = {(uint32_t)v, (uint32_t)h}};
    return v <= UINT32_MAX && view_as(weight, &rows, out);
}

static bool pass_embedding(const struct passing *of)
{
    const struct view ids = in(of, 0), table = in(of, 1);
    struct view weight;
    return weight_rows(&table, &weight) && give_taken(of, &weight, &ids);
}

/* y as ids; x stays where its row begins. */
static bool pass_gather(const struct passing *of)
{
    const struct view x = in(of, 0), ids = in(of, 1), rows = view_rows(&x);
    const struct view id_rows = view_rows(&ids);
    struct pass pass = a_pass(of, PASS_TAKE);
    struct view from;
    if (ids.shape.rank == 0 || !view_as(&rows, &id_rows.shape, &from))
        return false;
    from.at.of[from.shape.rank] = 0;
    from.shape.dim[from.shape.rank++] = (uint32_t)last_of(&ids);
    pass.views = 3;
    pass.view[0] = out(of, 0);
    pass.view[1] = from;
    pass.view[2] = ids;
    pass.index_step = last_step(&x);
    pass.bound = last_of(&x);
    return walk_over(3, pass.view, &pass.walk) && give(of, &pass);
}

/* SCATTER, and of a number. */
static bool pass_scatter(const struct passing *of)
{
    const bool number = of->work->kind == WORK_SCATTER_NUMBER;
    struct pass pass = a_pass(of, PASS_PUT);
    pass.views = number ? 2 : 3;
    pass.view[0] = out(of, 0);
    pass.view[1] = in(of, 1);
    if (!number)
        pass.view[2] = in(of, 2);
    pass.length = last_of(&pass.view[1]);
    pass.index_step = last_step(&pass.view[0]);
    pass.bound = last_of(&pass.view[0]);
    if (last_of(&pass.view[0]) != operand_last(work_in(of->work, 0)) ||
        (!number && last_of(&pass.view[2]) != pass.length))
        return false;
    if (work_in(of->work, 0)->data != work_out(of->work, 0)->data &&
        !copy(of, in(of, 0), out(of, 0)))
        return false;
    return give_rows(of, &pass, false);
}

/* Rows of y and x (data NULL: none) by their first dim, and of the parts by that of the ids. */
static bool give_added(const struct passing *of, const struct view *y, const struct view *x,
                       const struct view *parts, const struct view *ids, uint64_t pads)
{
    struct pass pass = a_pass(of, PASS_ADD);
    struct view row[3], each;
    struct shape by_ids = {.rank = 1, .dim = {(uint32_t)count_of(ids)}};
    for (uint32_t i = 1; i < y->shape.rank; i++)
        by_ids.dim[by_ids.rank++] = y->shape.dim[i];
    if (y->shape.rank == 0 || !view_as(parts, &by_ids, &each))
        return false;
    const struct view *const all[] = {y, x->data ? x : y, &each};
    for (uint32_t i = 0; i < 3; i++) {
        row[i] = without_dims(all[i]);
        if (!add_dims_from(&row[i], all[i], 1))
            return false;
        pass.step[i] = all[i]->at.of[0];
        pass.view[i] = *all[i];
    }
    pass.views = 4;
    pass.view[1].data = x->data;
    pass.view[3] = *ids;
    pass.length = y->shape.dim[0];
    pass.bound = pass.length;
    pass.pads = pads;
    return walk_over(3, row, &pass.inner) && walk_in_order(1, ids, &pass.walk) && give(of, &pass);
}

static bool pass_index_put(const struct passing *of)
{
    const struct view x = in(of, 0), ids = in(of, 1), parts = in(of, 2), y = out(of, 0);
    struct view seen;
    return view_as(&x, &y.shape, &seen) && give_added(of, &y, &seen, &parts, &ids, UINT64_MAX);
}

static bool pass_embedding_backward(const struct passing *of)
{
    const struct view dy = in(of, 0), ids = in(of, 1), table = out(of, 0);
    const uint32_t pads = of->work->attr.first; /* 1 + the id */
    struct view y, none = table;
    none.data = NULL;
    return weight_rows(&table, &y) &&
           give_added(of, &y, &none, &dy, &ids, pads ? (uint64_t)pads - 1 : UINT64_MAX);
}

static bool pass_histogram(const struct passing *of)
{
    struct pass pass = a_pass(of, PASS_COUNT);
    pass.views = 2;
    pass.view[0] = out(of, 0);
    pass.view[1] = in(of, 0);
    return walk_over(1, &pass.view[1], &pass.walk) &&
           walk_in_order(1, &pass.view[0], &pass.inner) && give(of, &pass);
}

static bool pass_invert(const struct passing *of)
{
    const struct view y = out(of, 0), ids = in(of, 0);
    const struct shape list = {.rank = 1, .dim = {(uint32_t)count_of(&ids)}};
    struct pass pass = a_pass(of, PASS_INVERT);
    pass.views = 2;
    pass.view[1] = ids;
    if (!view_as(&y, &list, &pass.view[0]))
        return false;
    pass.index_step = pass.view[0].at.of[0];
    pass.bound = list.dim[0];
    return walk_in_order(1, &ids, &pass.walk) && give(of, &pass);
}

/* ---- the table ---- */

static bool (*const table[WORK_KIND_COUNT])(const struct passing *of) = {
    [WORK_FILL] = pass_fill,
    [WORK_FILL_LOWEST] = pass_fill,
    [WORK_ADD] = pass_elements,
    [WORK_ADD_NUMBER] = pass_elements,
    [WORK_ADD_IN_PLACE] = pass_elements,
    [WORK_SUB] = pass_elements,
    [WORK_ADD_TO] = pass_elements,
    [WORK_MUL] = pass_elements,
    [WORK_MUL_NUMBER] = pass_product,
    [WORK_POLAR] = pass_parts,
    [WORK_DIV] = pass_elements,
    [WORK_DIV_NUMBER] = pass_elements,
    [WORK_DIV_IN_PLACE] = pass_elements,
    [WORK_FLOOR_DIV_NUMBER] = pass_elements,
    [WORK_MINIMUM] = pass_elements,
    [WORK_CLAMP] = pass_elements,
    [WORK_AT_MOST] = pass_elements,
    [WORK_AT_LEAST] = pass_elements,
    [WORK_WITHIN] = pass_elements,
    [WORK_NEG] = pass_elements,
    [WORK_ABS] = pass_elements,
    [WORK_POW] = pass_elements,
    [WORK_POWER_OF] = pass_elements,
    [WORK_SQUARE] = pass_elements,
    [WORK_SQUARE_ROOT] = pass_elements,
    [WORK_RSQRT] = pass_elements,
    [WORK_LOG] = pass_elements,
    [WORK_COS] = pass_elements,
    [WORK_SIN] = pass_elements,
    [WORK_TANH] = pass_elements,
    [WORK_TANH_BACKWARD] = pass_elements,
    [WORK_CAST] = pass_elements,
    [WORK_EQUAL] = pass_elements,
    [WORK_EQUAL_NUMBER] = pass_elements,
    [WORK_NOT_EQUAL_NUMBER] = pass_elements,
    [WORK_LESS] = pass_elements,
    [WORK_LESS_NUMBER] = pass_elements,
    [WORK_LESS_EQUAL] = pass_elements,
    [WORK_GREATER] = pass_elements,
    [WORK_GREATER_NUMBER] = pass_elements,
    [WORK_GREATER_EQUAL] = pass_elements,
    [WORK_AND] = pass_elements,
    [WORK_OR] = pass_elements,
    [WORK_IS_INFINITE] = pass_elements,
    [WORK_WHERE] = pass_elements,
    [WORK_MASKED_FILL] = pass_elements,
    [WORK_SIGMOID] = pass_elements,
    [WORK_SIGMOID_BACKWARD] = pass_elements,
    [WORK_SILU] = pass_elements,
    [WORK_SILU_BACKWARD] = pass_elements,
    [WORK_GELU] = pass_elements,
    [WORK_GELU_BACKWARD] = pass_elements,
    [WORK_GELU_TANH] = pass_elements,
    [WORK_GELU_TANH_BACKWARD] = pass_elements,
    [WORK_RELU] = pass_elements,
    [WORK_RELU_BACKWARD] = pass_elements,
    [WORK_SOFTPLUS] = pass_elements,
    [WORK_SOFTPLUS_BACKWARD] = pass_elements,
    [WORK_EXPM1] = pass_elements,
    [WORK_REORDER] = pass_copy,
    [WORK_COPY] = pass_copy,
    [WORK_REPEAT] = pass_repeat,
    [WORK_CAT] = pass_cat,
    [WORK_INTERLEAVE] = pass_interleave,
    [WORK_PAD] = pass_pad,
    [WORK_SLICE] = pass_slice,
    [WORK_PUT_SLICE] = pass_put_slice,
    [WORK_SLICE_BACKWARD] = pass_put_slice,
    [WORK_STRIDE_BACKWARD] = pass_put_slice,
    [WORK_SUM] = pass_sum,
    [WORK_SUM_DIM] = pass_one_dim,
    [WORK_MEAN] = pass_one_dim,
    [WORK_MAXIMUM] = pass_all,
    [WORK_LEAST] = pass_all,
    [WORK_ALL] = pass_all,
    [WORK_ANY] = pass_all,
    [WORK_CUMULATIVE_SUM] = pass_rows,
    [WORK_LOWER_TRIANGLE] = pass_rows,
    [WORK_SOFTMAX] = pass_softmax,
    [WORK_SAFE_SOFTMAX] = pass_softmax,
    [WORK_SOFTMAX_BACKWARD] = pass_rows,
    [WORK_TOPK] = pass_topk,
    [WORK_SORT] = pass_sort,
    [WORK_EMBEDDING] = pass_embedding,
    [WORK_EMBEDDING_BACKWARD] = pass_embedding_backward,
    [WORK_INDEX] = pass_index,
    [WORK_INDEX_PUT] = pass_index_put,
    [WORK_GATHER] = pass_gather,
    [WORK_SCATTER] = pass_scatter,
    [WORK_SCATTER_NUMBER] = pass_scatter,
    [WORK_INVERT_PERMUTATION] = pass_invert,
    [WORK_HISTOGRAM] = pass_histogram,
};

bool work_has_passes(enum work_kind kind)
{
    return table[kind];
}

bool work_passes(const struct work *work, void (*take)(void *context, const struct pass *pass),
                 void *context)
{
    const struct passing of = {work, take, context};
    return table[work->kind] && table[work->kind](&of);
}
