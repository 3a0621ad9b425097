/* checkpoint_full.c - one file of whole parameters, as other programs expect them: see
 * checkpoint.c. */
#include "runtime/state/transfer.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_ELEMENTS = 4 << 20 };

static enum err_code create_full(struct transfer *t, struct err *err)
{
    TRY(transfer_check_world(t, err));
    if (t->plan->rank != 0)
        return ERR_OK;
    const uint32_t params = t->plan->param_count;
    /* Other readers refuse a file that does not say whose layout its tensors have. */
    const struct safetensors_note note = {.key = "format", .text = "pt"};
    struct safetensor *tensors = arena_alloc(&t->arena, params * sizeof *tensors);
    for (uint32_t p = 0; p < params; p++) {
        const struct plan_param *param = &t->plan->params[p];
        tensors[p] = transfer_tensor(param->name, &param->shape);
    }
    t->temporary = arena_printf(&t->arena, "%s.tmp", t->dir);
    return safetensors_create(t->temporary, tensors, params, &note, 1, &t->writer, err);
}

/* Writes elements [at, at + count) of a part to where they are in the parameter. */
static enum err_code write_stretch(struct transfer *t, uint32_t p, const struct part *part,
                                   uint64_t at, uint64_t count, const float *values,
                                   struct err *err)
{
    while (count > 0) {
        const uint64_t run = at / part->width, within = at % part->width;
        const uint64_t left = part->width - within, n = left < count ? left : count;
        TRY(safetensors_write(t->writer, p, part->first + run * part->pitch + within, n, values,
                              err));
        at += n;
        count -= n;
        values += n;
    }
    return ERR_OK;
}

/* Writes what each rank of the first replica sent: elements [at, at + most) of its part. A whole
 * parameter is the first rank's to give. */
static enum err_code write_pieces(struct transfer *t, uint32_t p, uint64_t at, uint64_t most,
                                  const float *pieces, struct err *err)
{
    const bool whole = plan_updated_piece(t->plan, p)->placement.kind == PLACEMENT_WHOLE;
    for (uint32_t r = 0; r < (whole ? 1 : t->ranks); r++) {
        const struct part part = transfer_part_of(t, p, r);
        const uint64_t all = part_elements(&part);
        if (all > at)
            TRY(write_stretch(t, p, &part, at, all - at < most ? all - at : most,
                              pieces + (uint64_t)r * t->stride * most, err));
    }
    return ERR_OK;
}

/* Everyone sends pieces of one size, the replicas' too, for want of a gather among some ranks. A
 * rank 0 that cannot write goes on receiving, so that nobody waits for it. */
static enum err_code gather_pieces(struct transfer *t, uint32_t p, const float *own, uint64_t total,
                                   struct err *err)
{
    const uint32_t world = t->comm ? t->plan->world : 1;
    const uint64_t share = PIECE_ELEMENTS / world + 1, most = share < total ? share : total;
    float *pieces = t->plan->rank == 0 ? xmalloc(world * most * sizeof *pieces) : NULL;
    enum err_code sent = ERR_OK, written = ERR_OK;
    for (uint64_t at = 0; at < total && sent == ERR_OK; at += most) {
        if (t->comm)
            sent = comm_gather(t->comm, own + at, most * sizeof *own, pieces, 0, err);
        if (pieces && sent == ERR_OK && written == ERR_OK)
            written = write_pieces(t, p, at, most, t->comm ? pieces : own + at, err);
    }
    free(pieces);
    return sent != ERR_OK ? sent : written;
}

static enum err_code gather_param(struct transfer *t, uint32_t p, struct err *err)
{
    const struct part mine = transfer_own_part(t, p);
    uint64_t total = 0; /* of the rank that has most */
    for (uint32_t r = 0; r < t->ranks; r++) {
        const struct part part = transfer_part_of(t, p, r);
        total = part_elements(&part) > total ? part_elements(&part) : total;
    }
    /* The last piece may end after the part: room for it, of zeros. */
    const uint64_t room = total + PIECE_ELEMENTS / t->plan->world + 1;
    float *own = xcalloc(room, sizeof *own);
    enum err_code rc = part_elements(&mine) > 0
                           ? execution_read(t->execution, p, EXECUTION_PARAM, own, err)
                           : ERR_OK;
    rc = transfer_agree(t->comm, rc, &t->states, err);
    if (rc == ERR_OK)
        rc = transfer_agree(t->comm, gather_pieces(t, p, own, total, err), &t->states, err);
    free(own);
    return rc;
}

static enum err_code gather_params(struct transfer *t, struct err *err)
{
    for (uint32_t p = 0; p < t->plan->param_count; p++)
        TRY(gather_param(t, p, err));
    return ERR_OK;
}

static enum err_code publish_full(struct transfer *t, struct err *err)
{
    if (t->plan->rank != 0)
        return ERR_OK;
    struct safetensors_writer *writer = t->writer;
    t->writer = NULL;
    TRY(safetensors_finish(writer, ERR_OK, err));
    TRY(transfer_rename(t->temporary, t->dir, err));
    return transfer_sync_folder(t, t->dir, err);
}

enum err_code checkpoint_save_full(struct execution *execution, const struct plan *plan,
                                   struct comm *comm, const char *path, struct err *err)
{
    static transfer_stage *const stages[] = {create_full, gather_params, publish_full, NULL};
    struct transfer t = transfer_begin(execution, plan, comm, path);
    return transfer_run(&t, stages, err);
}

static const struct plan_param *param_named(const struct plan *plan, const char *name)
{
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (strcmp(plan->params[p].name, name) == 0)
            return &plan->params[p];
    return NULL;
}

static enum err_code open_full(struct transfer *t, struct err *err)
{
    TRY(safetensors_open(t->dir, &t->full, err));
    for (uint32_t p = 0; p < t->plan->param_count; p++) {
        const struct plan_param *param = &t->plan->params[p];
        const struct safetensor wanted = transfer_tensor("", &param->shape);
        const struct safetensor *tensor = safetensors_find(t->full, param->name);
        if (!tensor || !transfer_same_shape(tensor, &wanted))
            return err_set(err, ERR_INVALID, "%s is of another model: %s %s", t->dir, param->name,
                           tensor ? "has another shape than in the plan" : "is missing");
    }
    uint32_t count = 0;
    const struct safetensor *tensors = safetensors_list(t->full, &count);
    for (uint32_t i = 0; i < count; i++)
        if (!param_named(t->plan, tensors[i].name))
            return err_set(err, ERR_INVALID, "%s is of another model: the plan has no %s", t->dir,
                           tensors[i].name);
    return ERR_OK;
}

enum err_code checkpoint_load_full(struct execution *execution, const struct plan *plan,
                                   struct comm *comm, const char *path, struct err *err)
{
    static transfer_stage *const stages[] = {open_full, transfer_restore, NULL};
    struct transfer t = transfer_begin(execution, plan, comm, path);
    return transfer_run(&t, stages, err);
}
