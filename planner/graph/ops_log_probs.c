/* ops_log_probs.c - the loss of TRL's fused LM head (`--loss fused-lm-head`; TRL 1.16.0,
 * kernels/chunked_logprob.py, trainer/utils.py, trainer/sft_trainer.py): each target's
 * log-probability from hidden states and the head's weight, in tiles, of which there is one at a
 * time.
 *
 *     rows       the mask of tokens that have a target chooses hidden states and targets: here
 *                of all tokens but the last of each sequence
 *     forward    a tile of logits is a product; a kernel folds it into what is known of its
 *                rows (the largest, sums of exponents, the target's logit)
 *     backward   the tile again, its gradient where it is, and the products of both gradients,
 *                which are added up in fp32
 *     outside    log-probabilities, entropy and whether the target is the likeliest are put back
 *                to (b, s - 1); the loss is their mean, of as many as have a target
 *
 * Operands of another dtype than the products' are cast tile by tile. */
#include "graph/op_class.h"

/* TOKEN_CHUNK_SIZE; _CHUNKED_LOGPROB_CHUNK_SIZE */
enum { TILE_ROWS = 4096, TILE_COLUMNS = 32768 };
enum { ROWS, WEIGHT, TARGETS, BIAS };
/* What it returns and saves, beside log-probabilities what op.attr.first says (enum
 * log_probs_wanted). TILE is never born: it says in which shape and dtype a tile is. */
enum { LOG_PROBS, ENTROPY, IS_TOP1, MEAN_LOGITS, LOG_Z, TILE };

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

struct log_probs_found op_log_probs(struct graph *graph, const struct log_probs *of)
{
    const struct shape n = *shape_of(graph, of->targets);
    const enum dtype product =
        graph->autocast.on ? graph->autocast.dtype : dtype_of(graph, of->rows);
    const uint32_t op =
        begin(graph, OP_LOG_PROBS, 4, (uint32_t[]){of->rows, of->weight, of->targets, of->bias});
    struct log_probs_found found;
    graph->ops[op].attr.first = of->wanted;
    found.log_probs = graph_op_birth(graph, op, ATEN_SUB, DTYPE_FP32, n);
    found.entropy = graph_op_birth(graph, op, ATEN_SUB, DTYPE_FP32, n);
    found.is_top1 = graph_op_birth(graph, op, ATEN_BITWISE_AND, DTYPE_BOOL, n);
    found.mean_logits = graph_op_birth(graph, op, ATEN_DIV, DTYPE_FP32, n);
    graph_op_birth(graph, op, ATEN_ADD, DTYPE_FP32, n);
    graph_op_birth(graph, op, ATEN_EMPTY, product, SHAPE(least(n.dim[0], TILE_ROWS), TILE_COLUMNS));
    graph->ops[op].hidden = 2;
    graph_op_done(graph, op);
    graph->tensors[found.mean_logits].requires_grad = false;
    return found;
}

OP_SAVED(log_probs)
{
    (void)graph;
    uint32_t count = 0;
    saved[count++] = op->in[ROWS];
    saved[count++] = op->in[WEIGHT];
    if (op->in[BIAS] != GRAPH_NONE)
        saved[count++] = op->in[BIAS];
    saved[count++] = op->in[TARGETS];
    saved[count++] = op->out[LOG_Z];
    saved[count++] = op->out[ENTROPY];
    return count;
}

/* ---- tiles ---- */

struct tiles {
    struct tape *tape;
    struct operand rows, weight, targets, bias; /* bias: PLACE_NONE, it has none */
    struct operand buffer;                      /* of one tile */
    struct operand row_chunk, weight_chunk;     /* what a product of it is of */
    bool rows_cast, weight_cast;                /* these are casts, alive now */
};

static struct operand part_of(struct operand whole, uint32_t first, uint32_t count)
{
    const uint32_t width = whole.shape.rank > 1 ? last_dim(&whole.shape) : 1;
    whole.offset += (uint64_t)first * width;
    whole.shape.dim[0] = count;
    return whole;
}

static struct tiles tiles_of(struct tape *tape, const struct graph *graph,
                             const struct graph_op *op)
{
    struct tiles t = {.tape = tape, .bias.place = PLACE_NONE};
    t.rows = tape_tensor(tape, op->in[ROWS]);
    t.weight = tape_tensor(tape, op->in[WEIGHT]);
    t.targets = tape_tensor(tape, op->in[TARGETS]);
    if (op->in[BIAS] != GRAPH_NONE)
        t.bias = tape_tensor(tape, op->in[BIAS]);
    t.buffer.dtype = (uint8_t)dtype_of(graph, op->out[TILE]);
    t.buffer.shape = *shape_of(graph, op->out[TILE]);
    return t;
}

static void make_buffer(struct tiles *t)
{
    t->buffer = tape_birth(t->tape, ATEN_EMPTY, (enum dtype)t->buffer.dtype, t->buffer.shape);
}

/* `part` in the products' dtype; *chunk is what was before it, and goes if it was a cast. */
static void take_chunk(struct tiles *t, struct operand part, struct operand *chunk, bool *cast)
{
    const bool cast_now = part.dtype != t->buffer.dtype;
    const struct operand now =
        cast_now ? tape_call(t->tape, WORK_CAST, ATEN_TO_COPY, (enum dtype)t->buffer.dtype,
                             part.shape, -1.0, 1, &part)
                 : part;
    if (*cast)
        tape_death(t->tape, *chunk);
    *chunk = now;
    *cast = cast_now;
}

static void drop_chunk(struct tiles *t, struct operand *chunk, bool *cast)
{
    if (*cast)
        tape_death(t->tape, *chunk);
    *cast = false;
}

static double product_flops(const struct operand *tile, const struct operand *rows)
{
    return 2.0 * (double)shape_elements(&tile->shape) * last_dim(&rows->shape);
}

/* The logits of row_chunk and weight_chunk, columns of the head from `first` on. `keeps`: backward,
 * whose other products are of the same chunk of the weight. */
static struct operand project(struct tiles *t, uint32_t first, bool keeps)
{
    const uint32_t columns = t->weight_chunk.shape.dim[0];
    struct operand tile = part_of(t->buffer, 0, t->row_chunk.shape.dim[0]);
    tile.shape.dim[1] = columns;
    if (columns < TILE_COLUMNS)
        tile.pitch = TILE_COLUMNS;
    tape_kernel(t->tape, WORK_MATMUL_NT, ATEN_MM, product_flops(&tile, &t->row_chunk), 2,
                (struct operand[]){t->row_chunk, t->weight_chunk}, 1, &tile);
    if (keeps)
        tape_again(t->tape);
    else
        drop_chunk(t, &t->weight_chunk, &t->weight_cast);
    if (t->bias.place != PLACE_NONE) {
        struct operand bias = {.place = PLACE_NONE};
        bool cast = false;
        take_chunk(t, part_of(t->bias, first, columns), &bias, &cast);
        add_to(t->tape, bias, tile);
        drop_chunk(t, &bias, &cast);
    }
    return tile;
}

/* ---- forward ---- */

/* full or zeros of (n) in fp32. */
static struct operand statistic(struct tape *tape, enum aten aten, struct shape n)
{
    return tape_call(tape, WORK_FILL, aten, DTYPE_FP32, n, -1.0, 0, NULL);
}

enum { LARGEST, SUM_EXP, X_SUM_EXP, SQ_SUM_EXP, Z_SUM, BEFORE_TARGET, TARGET_LOGIT, STATISTICS };

static void fold_tiles(struct tiles *t, const struct operand *of_rows)
{
    const uint32_t n = t->rows.shape.dim[0], v = t->weight.shape.dim[0];
    for (uint32_t row = 0; row < n; row += TILE_ROWS) {
        const uint32_t count = least(TILE_ROWS, n - row);
        take_chunk(t, part_of(t->rows, row, count), &t->row_chunk, &t->rows_cast);
        for (uint32_t column = 0; column < v; column += TILE_COLUMNS) {
            take_chunk(t, part_of(t->weight, column, least(TILE_COLUMNS, v - column)),
                       &t->weight_chunk, &t->weight_cast);
            const struct operand tile = project(t, column, false);
            struct operand parts[STATISTICS];
            for (uint32_t i = 0; i < STATISTICS; i++)
                parts[i] = part_of(of_rows[i], row, count);
            tape_kernel(t->tape, WORK_LOG_PROBS, ATEN_LOG_PROBS, -1.0, 2,
                        (struct operand[]){tile, part_of(t->targets, row, count)}, STATISTICS,
                        parts);
        }
    }
}

/* Whether the target is the first of the likeliest. */
static void find_likeliest(struct tape *tape, const struct graph_op *op,
                           const struct operand *of_rows)
{
    const struct shape n = of_rows[TARGET_LOGIT].shape;
    const struct operand largest =
        tape_call(tape, WORK_OTHER, ATEN_GE, DTYPE_BOOL, n, -1.0, 2,
                  (struct operand[]){of_rows[TARGET_LOGIT], of_rows[LARGEST]});
    const struct operand first =
        tape_call(tape, WORK_OTHER, ATEN_GT_TENSOR, DTYPE_BOOL, n, -1.0, 2,
                  (struct operand[]){of_rows[TARGET_LOGIT], of_rows[BEFORE_TARGET]});
    const struct operand is_top1 = tape_birth_output(tape, op, IS_TOP1);
    tape_kernel(tape, WORK_AND, ATEN_BITWISE_AND, -1.0, 2, (struct operand[]){largest, first}, 1,
                &is_top1);
    tape_death(tape, largest);
    tape_death(tape, first);
}

/* What is returned and saved, from the statistics. */
static void finish(struct tape *tape, const struct graph_op *op, const struct operand *of_rows)
{
    const struct operand log = call1(tape, WORK_LOG, ATEN_LOG, of_rows[SUM_EXP]);
    const struct operand log_z = tape_birth_output(tape, op, LOG_Z);
    tape_kernel(tape, WORK_ADD, ATEN_ADD, -1.0, 2, (struct operand[]){of_rows[LARGEST], log}, 1,
                &log_z);
    tape_death(tape, log);
    const struct operand log_probs = tape_birth_output(tape, op, LOG_PROBS);
    tape_kernel(tape, WORK_SUB, ATEN_SUB, -1.0, 2, (struct operand[]){of_rows[TARGET_LOGIT], log_z},
                1, &log_probs);
    if (op->attr.first & WANTS_ENTROPY) {
        const struct operand mean =
            call2(tape, WORK_DIV, ATEN_DIV, of_rows[X_SUM_EXP], of_rows[SUM_EXP]);
        const struct operand entropy = tape_birth_output(tape, op, ENTROPY);
        tape_kernel(tape, WORK_SUB, ATEN_SUB, -1.0, 2, (struct operand[]){log_z, mean}, 1,
                    &entropy);
        tape_death(tape, mean);
    }
    if (op->attr.first & WANTS_MEAN_LOGITS) {
        const struct operand mean_logits = tape_birth_output(tape, op, MEAN_LOGITS);
        tape_kernel(tape, WORK_DIV_NUMBER, ATEN_DIV, -1.0, 1, &of_rows[Z_SUM], 1, &mean_logits);
    }
    if (op->attr.first & WANTS_IS_TOP1)
        find_likeliest(tape, op, of_rows);
}

static void log_probs_forward(struct tape *tape, const struct graph *graph,
                              const struct graph_op *op)
{
    struct tiles t = tiles_of(tape, graph, op);
    struct operand of_rows[STATISTICS];
    for (uint32_t i = 0; i < STATISTICS; i++)
        of_rows[i] = statistic(tape, i == LARGEST || i == BEFORE_TARGET ? ATEN_FULL : ATEN_ZEROS,
                               t.targets.shape);
    make_buffer(&t);
    fold_tiles(&t, of_rows);
    finish(tape, op, of_rows);
    for (uint32_t i = 0; i < STATISTICS; i++)
        tape_death(tape, of_rows[i]);
    drop_chunk(&t, &t.row_chunk, &t.rows_cast);
    tape_death(tape, t.buffer);
}

/* ---- backward ---- */

enum { INPUTS = 3 };
static const uint8_t input_of[INPUTS] = {ROWS, WEIGHT, BIAS};

struct sums {
    bool needed[INPUTS];
    struct operand of[INPUTS]; /* in fp32 */
};

static void add_gradients(struct tiles *t, const struct sums *sums, struct operand tile,
                          uint32_t row, uint32_t column)
{
    const uint32_t count = tile.shape.dim[0], columns = tile.shape.dim[1];
    const double flops = product_flops(&tile, &t->row_chunk);
    const struct operand dx = part_of(sums->of[0], row, count),
                         dw = part_of(sums->of[1], column, columns),
                         db = part_of(sums->of[2], column, columns);
    if (sums->needed[0])
        tape_kernel(t->tape, WORK_MATMUL_NN_ADD, ATEN_ADDMM, flops, 2,
                    (struct operand[]){tile, t->weight_chunk}, 1, &dx);
    if (sums->needed[1])
        tape_kernel(t->tape, WORK_MATMUL_TN_ADD, ATEN_ADDMM, flops, 2,
                    (struct operand[]){tile, t->row_chunk}, 1, &dw);
    if (sums->needed[2]) {
        const struct operand sum =
            tape_call(t->tape, WORK_SUM, ATEN_SUM_DIM, DTYPE_FP32, SHAPE(columns), -1.0, 1, &tile);
        add_to(t->tape, sum, db);
        tape_death(t->tape, sum);
    }
}

static void slope_tiles(struct tiles *t, const struct sums *sums, const struct operand of_rows[3])
{
    const uint32_t n = t->rows.shape.dim[0], v = t->weight.shape.dim[0];
    for (uint32_t row = 0; row < n; row += TILE_ROWS) {
        const uint32_t count = least(TILE_ROWS, n - row);
        take_chunk(t, part_of(t->rows, row, count), &t->row_chunk, &t->rows_cast);
        for (uint32_t column = 0; column < v; column += TILE_COLUMNS) {
            take_chunk(t, part_of(t->weight, column, least(TILE_COLUMNS, v - column)),
                       &t->weight_chunk, &t->weight_cast);
            const struct operand tile = project(t, column, true);
            const struct operand in[5] = {
                tile, part_of(t->targets, row, count), part_of(of_rows[0], row, count),
                part_of(of_rows[1], row, count), part_of(of_rows[2], row, count)};
            tape_kernel(t->tape, WORK_LOG_PROBS_BACKWARD, ATEN_LOG_PROBS_BACKWARD, -1.0, 5, in, 1,
                        &tile);
            add_gradients(t, sums, tile, row, column);
        }
    }
}

OP_BACKWARD(log_probs)
{
    struct tiles t = tiles_of(tape, graph, op);
    const struct operand of_rows[3] = {tape_tensor(tape, op->out[LOG_Z]),
                                       tape_tensor(tape, op->out[ENTROPY]),
                                       tape_grad(tape, op, LOG_PROBS)};
    struct sums sums = {.needed = {false}};
    struct operand given[INPUTS];
    for (uint32_t i = 0; i < INPUTS; i++) {
        sums.needed[i] = tape_needs(tape, op, input_of[i]);
        if (sums.needed[i])
            sums.of[i] = statistic(tape, ATEN_ZEROS, *shape_of(graph, op->in[input_of[i]]));
    }
    make_buffer(&t);
    slope_tiles(&t, &sums, of_rows);
    for (uint32_t i = 0; i < INPUTS; i++) {
        const enum dtype dtype = sums.needed[i] ? dtype_of(graph, op->in[input_of[i]]) : DTYPE_FP32;
        given[i] = dtype == DTYPE_FP32 ? sums.of[i]
                                       : tape_call(tape, WORK_CAST, ATEN_TO_COPY, dtype,
                                                   sums.of[i].shape, -1.0, 1, &sums.of[i]);
    }
    for (uint32_t i = 0; i < INPUTS; i++)
        if (sums.needed[i] && given[i].dtype != DTYPE_FP32)
            tape_death(tape, sums.of[i]);
    drop_chunk(&t, &t.row_chunk, &t.rows_cast);
    drop_chunk(&t, &t.weight_chunk, &t.weight_cast);
    tape_death(tape, t.buffer);
    for (uint32_t i = 0; i < INPUTS; i++)
        if (sums.needed[i])
            tape_give(tape, op, input_of[i], given[i]);
}

OP_CLASS(log_probs) = {
    .label = ATEN_LOG_PROBS,
    .saved = log_probs_saved,
    .backward = log_probs_backward,
    .forward = log_probs_forward,
    .in_python = true,
};

/* ---- around it ---- */

uint32_t op_masked_scatter(struct graph *graph, uint32_t x, uint32_t mask)
{
    return simple(graph, OP_MASKED_SCATTER, 2, (uint32_t[]){x, mask}, ATEN_MASKED_SCATTER,
                  dtype_of(graph, x), *shape_of(graph, mask));
}

/* masked_scatter_ has the running sum of its mask (masked_scatter__cuda of IndexKernel.cpp). */
static void masked_scatter_forward(struct tape *tape, const struct graph *graph,
                                   const struct graph_op *op)
{
    const struct operand x = tape_tensor(tape, op->in[0]), mask = tape_tensor(tape, op->in[1]);
    const struct operand zeros =
        tape_call(tape, WORK_FILL, ATEN_NEW_ZEROS, (enum dtype)x.dtype, mask.shape, -1.0, 0, NULL);
    const struct operand out = tape_birth_output(tape, op, 0);
    const struct operand running =
        tape_scratch(tape, dtype_bytes(DTYPE_INT64) * shape_elements(&mask.shape));
    (void)graph;
    tape_kernel(tape, WORK_OTHER, ATEN_MASKED_SCATTER, -1.0, 3, (struct operand[]){zeros, mask, x},
                1, &out);
    tape_death(tape, running);
    tape_death(tape, zeros);
}

OP_BACKWARD(masked_scatter)
{
    const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[1])};
    tape_give(tape, op, 0,
              tape_call(tape, WORK_OTHER, ATEN_MASKED_SCATTER_BACKWARD, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->in[0]), -1.0, 2, in));
}

OP_CLASS(masked_scatter) = {
    .label = ATEN_MASKED_SCATTER,
    .saved = save_second,
    .backward = masked_scatter_backward,
    .forward = masked_scatter_forward,
};

uint32_t op_negative_sum(struct graph *graph, uint32_t x, uint32_t *negative)
{
    const uint32_t op = begin(graph, OP_NEGATIVE_SUM, 1, &x);
    *negative = graph_op_birth(graph, op, ATEN_NEG, dtype_of(graph, x), *shape_of(graph, x));
    const uint32_t sum =
        graph_op_birth(graph, op, ATEN_SUM, dtype_of(graph, x), (struct shape){.rank = 0});
    graph_op_done(graph, op);
    return sum;
}

static void negative_sum_forward(struct tape *tape, const struct graph *graph,
                                 const struct graph_op *op)
{
    (void)graph;
    const struct operand x = tape_tensor(tape, op->in[0]);
    const struct operand negative = tape_birth_output(tape, op, 0);
    tape_kernel(tape, WORK_NEG, ATEN_NEG, -1.0, 1, &x, 1, &negative);
    const struct operand sum = tape_birth_output(tape, op, 1);
    tape_kernel(tape, WORK_SUM, ATEN_SUM, -1.0, 1, &negative, 1, &sum);
}

/* The sum's gradient is a view, laid over all. */
OP_BACKWARD(negative_sum)
{
    const struct operand grad = tape_grad(tape, op, 1);
    tape_give(tape, op, 0,
              tape_call(tape, WORK_NEG, ATEN_NEG, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->in[0]), -1.0, 1, &grad));
}

OP_CLASS(negative_sum) = {
    .label = ATEN_NEG,
    .backward = negative_sum_backward,
    .forward = negative_sum_forward,
};

uint32_t op_div_count(struct graph *graph, uint32_t x, uint32_t count)
{
    return simple(graph, OP_DIV_COUNT, 2, (uint32_t[]){x, count}, ATEN_DIV, dtype_of(graph, x),
                  *shape_of(graph, x));
}

OP_BACKWARD(div_count)
{
    give_elementwise(tape, graph, op, WORK_DIV, ATEN_DIV, op->in[1]);
}

OP_CLASS(div_count) = {
    .label = ATEN_DIV,
    .work = WORK_DIV,
    .saved = save_second,
    .backward = div_count_backward,
};
