/* work_check.c - see work_check in operand.h: one row a kind, how many operands it takes and what
 * they must be to each other. Kinds that only ask for equal counts share a function. */
#include "runtime/work/fused.h"
#include "runtime/work/work_check_parts.h"

enum { ANY = ANY_NUMBER };

/* Whether x has a · b elements. */
static enum err_code need_product(const struct work *work, const char *name,
                                  const struct work_operand *x, uint64_t a, uint64_t b,
                                  struct err *err)
{
    uint64_t count;
    if (__builtin_mul_overflow(a, b, &count))
        return work_refuse(work, ERR_INVALID, err, "%s would have %llu by %llu elements", name,
                           (unsigned long long)a, (unsigned long long)b);
    return work_need_count(work, name, x, count, err);
}

/* ---- elementwise ---- */

/* All operands are floating-point and have as many elements as the first output. */
static enum err_code check_equal(const struct work *work, struct err *err)
{
    const uint64_t count = operand_count(work_out(work, 0));
    for (uint32_t i = 0; i < work->ins; i++)
        TRY(work_need_count(work,
                            i               ? "x"
                            : work->ins > 1 ? "dy"
                                            : "x",
                            work_in(work, i), count, err));
    return work_need_count(work, "y", work_out(work, 0), count, err);
}

static enum err_code check_arange(const struct work *work, struct err *err)
{
    return work_need_index(work, "ids", work_out(work, 0), err);
}

/* ---- embedding ---- */

static enum err_code check_embedding(const struct work *work, struct err *err)
{
    const struct work_operand *ids = work_in(work, 0), *weight = work_in(work, 1);
    TRY(work_need_index(work, "ids", ids, err));
    TRY(work_need_count(work, "weight", weight, operand_count(weight), err));
    return need_product(work, "y", work_out(work, 0), operand_count(ids), operand_last(weight),
                        err);
}

static enum err_code check_embedding_backward(const struct work *work, struct err *err)
{
    const struct work_operand *ids = work_in(work, 1), *dweight = work_out(work, 0);
    TRY(work_need_index(work, "ids", ids, err));
    TRY(work_need_count(work, "dweight", dweight, operand_count(dweight), err));
    return need_product(work, "dy", work_in(work, 0), operand_count(ids), operand_last(dweight),
                        err);
}

/* ---- norms ---- */

static enum err_code check_norm(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0);
    const uint64_t t = operand_rows(x), h = operand_last(x);
    const bool centred = work->kind == WORK_LAYER_NORM;
    TRY(work_need_count(work, "x", x, t * h, err));
    if (work->ins > 1)
        TRY(work_need_count(work, "weight", work_in(work, 1), h, err));
    if (work->ins > 2)
        TRY(work_need_count(work, "bias", work_in(work, 2), h, err));
    if (centred)
        TRY(work_need_count(work, "mean", work_out(work, 1), t, err));
    TRY(work_need_count(work, "y", work_out(work, 0), t * h, err));
    return work_need_count(work, "rstd", work_out(work, centred ? 2 : 1), t, err);
}

static enum err_code check_norm_backward(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 1);
    const uint64_t t = operand_rows(x), h = operand_last(x);
    const bool centred = work->kind == WORK_LAYER_NORM_BACKWARD;
    TRY(work_need_count(work, "x", x, t * h, err));
    if (!centred || work->ins > 4)
        TRY(work_need_count(work, "weight", work_in(work, 2), h, err));
    TRY(work_need_count(work, "dy", work_in(work, 0), t * h, err));
    if (centred)
        TRY(work_need_count(work, "mean", work_in(work, work->ins - 2), t, err));
    TRY(work_need_count(work, "rstd", work_in(work, work->ins - 1), t, err));
    const struct norm_gradients to = work_norm_gradients(work);
    if (to.dx)
        TRY(work_need_count(work, "dx", to.dx, t * h, err));
    if (to.dweight)
        TRY(work_need_count(work, "dweight", to.dweight, h, err));
    return to.dbias ? work_need_count(work, "dbias", to.dbias, h, err) : ERR_OK;
}

/* ---- the loss ---- */

static enum err_code need_targets(const struct work *work, const struct work_operand *targets,
                                  uint64_t t, struct err *err)
{
    TRY(work_need_index(work, "targets", targets, err));
    if (operand_count(targets) != t)
        return work_refuse(work, ERR_INVALID, err, "%llu targets for %llu rows",
                           (unsigned long long)operand_count(targets), (unsigned long long)t);
    return ERR_OK;
}

static enum err_code check_nll_loss(const struct work *work, struct err *err)
{
    const struct work_operand *x = work_in(work, 0);
    TRY(work_need_count(work, "x", x, operand_count(x), err));
    TRY(work_need_count(work, "the loss", work_out(work, 0), 1, err));
    TRY(work_need_count(work, "the weight", work_out(work, 1), 1, err));
    return need_targets(work, work_in(work, 1), operand_rows(x), err);
}

static enum err_code check_nll_loss_backward(const struct work *work, struct err *err)
{
    const struct work_operand *dx = work_out(work, 0);
    TRY(work_need_count(work, "dloss", work_in(work, 0), 1, err));
    TRY(work_need_count(work, "dx", dx, operand_count(dx), err));
    return need_targets(work, work_in(work, 1), operand_rows(dx), err);
}

/* ---- flat buffers ---- */

static enum err_code need_float(const struct work *work, const struct work_operand *x,
                                struct err *err)
{
    return work_need_count(work, "an operand", x, operand_count(x), err);
}

static enum err_code need_total(const struct work *work, uint64_t total, uint64_t room,
                                struct err *err)
{
    if (total == room)
        return ERR_OK;
    return work_refuse(work, ERR_INVALID, err, "parts of %llu elements for %llu",
                       (unsigned long long)total, (unsigned long long)room);
}

static enum err_code need_ranks(const struct work *work, uint64_t elements, struct err *err)
{
    if (work->ranks && work->rank < work->ranks && elements % work->ranks == 0)
        return ERR_OK;
    return work_refuse(work, ERR_INVALID, err, "%llu elements, of rank %u of %u",
                       (unsigned long long)elements, work->rank, work->ranks);
}

static enum err_code check_pack(const struct work *work, struct err *err)
{
    const struct work_operand *y = work_out(work, 0);
    uint64_t total = 0, room = operand_count(y);
    if (work->kind == WORK_COPY_IN) {
        TRY(need_ranks(work, room, err));
        room /= work->ranks;
    }
    TRY(need_float(work, y, err));
    for (uint32_t i = 0; i < work->ins; i++) {
        TRY(need_float(work, work_in(work, i), err));
        total += operand_count(work_in(work, i));
    }
    return need_total(work, total, room, err);
}

/* COPY_OUT from a flat buffer to whole tensors, CHUNK_CAT the other way. */
static enum err_code check_chunks(const struct work *work, struct err *err)
{
    const bool out = work->kind == WORK_COPY_OUT;
    const struct work_operand *flat = out ? work_in(work, 0) : work_out(work, 0);
    const uint32_t parts = out ? work->outs : work->ins;
    uint64_t total = 0;
    TRY(need_float(work, flat, err));
    TRY(need_ranks(work, operand_count(flat), err));
    for (uint32_t i = 0; i < parts; i++) {
        const struct work_operand *part = out ? work_out(work, i) : work_in(work, i);
        TRY(need_float(work, part, err));
        total += operand_chunk(part, work->ranks);
    }
    return need_total(work, total, operand_count(flat) / work->ranks, err);
}

/* ---- collectives ---- */

static enum err_code check_collective(const struct work *work, struct err *err)
{
    const struct work_operand *in = work_in(work, 0), *out = work_out(work, 0);
    const uint64_t have = operand_count(in), give = operand_count(out);
    bool fits = in->dtype == out->dtype && work->ranks > 0 && work->rank < work->ranks &&
                !in->pitch && !out->pitch;
    if (work->kind == WORK_ALL_GATHER)
        fits = fits && give % work->ranks == 0 &&
               have == (in->data == out->data ? give : give / work->ranks);
    else if (work->kind == WORK_REDUCE_SCATTER_AVG || work->kind == WORK_REDUCE_SCATTER_SUM)
        /* may be in place: onto the own slice */
        fits = fits && have % work->ranks == 0 && have / work->ranks == give;
    else if (work->kind == WORK_BROADCAST)
        fits = fits && in->data == out->data && have == give && work->attr.dim < work->ranks;
    else
        fits = fits && have == give;
    if (fits)
        return ERR_OK;
    return work_refuse(work, ERR_INVALID, err,
                       "%llu elements of %s in and %llu of %s out do not fit rank %u of %u",
                       (unsigned long long)have, dtype_name((enum dtype)in->dtype),
                       (unsigned long long)give, dtype_name((enum dtype)out->dtype), work->rank,
                       work->ranks);
}

/* ---- clipping and the update ---- */

static enum err_code check_norms(const struct work *work, struct err *err)
{
    if (work->outs != work->ins)
        return work_refuse(work, ERR_INVALID, err, "%u tensors, %u norms", work->ins, work->outs);
    for (uint32_t i = 0; i < work->ins; i++) {
        TRY(need_float(work, work_in(work, i), err));
        TRY(work_need_count(work, "a norm", work_out(work, i), 1, err));
    }
    return ERR_OK;
}

static enum err_code check_clip(const struct work *work, struct err *err)
{
    TRY(work_need_count(work, "the norm", work_in(work, 0), 1, err));
    return work_need_count(work, "y", work_out(work, 0), 1, err);
}

static enum err_code check_scale(const struct work *work, struct err *err)
{
    if (work->outs + 1 != work->ins)
        return work_refuse(work, ERR_INVALID, err, "%u operands in, %u out", work->ins, work->outs);
    TRY(work_need_count(work, "the coefficient", work_in(work, 0), 1, err));
    for (uint32_t i = 0; i < work->outs; i++) {
        const uint64_t count = operand_count(work_in(work, i + 1));
        TRY(work_need_count(work, "x", work_in(work, i + 1), count, err));
        TRY(work_need_count(work, "y", work_out(work, i), count, err));
    }
    return ERR_OK;
}

/* The operands are lists of equal length; each list's i-th has one size. */
static enum err_code check_update(const struct work *work, struct err *err)
{
    const uint32_t lists = work->kind == WORK_ADAMW ? 4 : 2, n = work->ins / lists;
    if (n * lists != work->ins)
        return work_refuse(work, ERR_INVALID, err, "%u operands are not %u lists", work->ins,
                           lists);
    for (uint32_t i = 0; i < work->ins; i++)
        TRY(work_need_count(work, "an operand", work_in(work, i),
                            operand_count(work_in(work, i % n)), err));
    if (work->kind == WORK_ADAMW && work->update.step == 0)
        return work_refuse(work, ERR_INVALID, err, "steps are numbered from 1");
    return ERR_OK;
}

/* ---- the table ---- */

/* Of what work_check_wide.c does not have. */
static const struct work_entry entries[WORK_KIND_COUNT] = {
    [WORK_ARANGE] = {check_arange, 0, 0, 1},
    [WORK_EMBEDDING] = {check_embedding, 2, 2, 1},
    [WORK_EMBEDDING_BACKWARD] = {check_embedding_backward, 2, 2, 1},
    [WORK_MATMUL_NT] = {work_check_matmul, 2, 2, 1},
    [WORK_MATMUL_NT_BIAS] = {work_check_matmul, 3, 3, 1},
    [WORK_MATMUL_NN] = {work_check_matmul, 2, 2, 1},
    [WORK_MATMUL_TN] = {work_check_matmul, 2, 2, 1},
    [WORK_RMS_NORM] = {check_norm, 2, 2, 2},
    [WORK_RMS_NORM_BACKWARD] = {check_norm_backward, 4, 4, 1},
    [WORK_LAYER_NORM] = {check_norm, 1, 3, 3},
    [WORK_LAYER_NORM_BACKWARD] = {check_norm_backward, 4, 5, 1},
    [WORK_ATTENTION] = {work_check_attention, 3, 3, 2},
    [WORK_ATTENTION_BACKWARD] = {work_check_attention_backward, 5, 6, 3},
    [WORK_LOG_SOFTMAX] = {check_equal, 1, 1, 1},
    [WORK_LOG_SOFTMAX_BACKWARD] = {check_equal, 2, 2, 1},
    [WORK_NLL_LOSS] = {check_nll_loss, 2, 2, 2},
    [WORK_NLL_LOSS_BACKWARD] = {check_nll_loss_backward, 2, 2, 1},
    [WORK_COPY_IN] = {check_pack, 0, ANY, 1},
    [WORK_COPY_OUT] = {check_chunks, 1, 1, 0},
    [WORK_CHUNK_CAT] = {check_chunks, 0, ANY, 1},
    [WORK_ALL_GATHER] = {check_collective, 1, 1, 1},
    [WORK_REDUCE_SCATTER_AVG] = {check_collective, 1, 1, 1},
    [WORK_REDUCE_SCATTER_SUM] = {check_collective, 1, 1, 1},
    [WORK_ALL_REDUCE_AVG] = {check_collective, 1, 1, 1},
    [WORK_ALL_REDUCE_SUM] = {check_collective, 1, 1, 1},
    [WORK_BROADCAST] = {check_collective, 1, 1, 1},
    [WORK_ADAMW] = {check_update, 0, ANY, 0},
    [WORK_SGD] = {check_update, 0, ANY, 0},
    [WORK_NORMS] = {check_norms, 0, ANY, 0},
    [WORK_STACK] = {check_pack, 0, ANY, 1},
    [WORK_VECTOR_NORM] = {check_norms, 1, 1, 1},
    [WORK_CLIP_COEFFICIENT] = {check_clip, 1, 1, 1},
    [WORK_SCALE] = {check_scale, 1, ANY, 0},
    [WORK_ROTATE] = {work_check_rotate, 2, 2, 1},
    [WORK_GATE] = {work_check_gate, 2, 2, 2},
    [WORK_PRODUCTS] = {work_check_gate, 3, 3, 2},
    [WORK_ADD_RMS_NORM] = {work_check_add_rms_norm, 3, 3, 3},
    [WORK_RMS_NORM_BACKWARD_ADD] = {work_check_rms_norm_backward_add, 4, 4, 2},
    [WORK_CROSS_ENTROPY_SLOPE] = {work_check_cross_entropy_slope, 3, 3, 1},
};

static const struct work_entry *entry_of(enum work_kind kind)
{
    const struct work_entry *wide = work_wide_entry(kind);
    return wide ? wide : entries[kind].check ? &entries[kind] : NULL;
}

const char *work_backend_name(enum work_backend backend)
{
    return backend == WORK_ON_HOST ? "host" : "cuda";
}

bool work_can_run(enum work_kind kind)
{
    return entry_of(kind);
}

static bool takes(const struct work_entry *entry, const struct work *work)
{
    return work->ins >= entry->ins_least &&
           (entry->ins_most == ANY || work->ins <= entry->ins_most) &&
           work->outs >= entry->outs_least;
}

bool work_can_run_form(const struct work *work)
{
    const struct work_entry *entry = entry_of(work->kind);
    return entry && takes(entry, work);
}

enum err_code work_check(const struct work *work, enum work_backend backend, struct err *err)
{
    const struct work_entry *entry = entry_of(work->kind);
    if (!entry)
        return work_refuse(work, ERR_UNSUPPORTED, err, "no kernel of the %s backend computes that",
                           work_backend_name(backend));
    if (!takes(entry, work))
        return work_refuse(work, ERR_INVALID, err,
                           "%u operands in and %u out; it takes %u or more in, %u or more out",
                           work->ins, work->outs, entry->ins_least, entry->outs_least);
    for (uint32_t i = 0; i < work->ins + work->outs; i++)
        if (work->operand[i].layout && !work_takes_strides(work->kind, backend))
            return work_refuse(work, ERR_UNSUPPORTED, err,
                               "operand %u is a view with strides, which no kernel of the %s "
                               "backend reads",
                               i, work_backend_name(backend));
    TRY(entry->check(work, err));
    return backend == WORK_ON_CUDA ? work_check_for_cuda(work, err) : ERR_OK;
}
