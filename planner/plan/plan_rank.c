/* plan_rank.c - see plan_rank.h.
 *
 * Three things differ between ranks, and each says so itself: a buffer or an operand that has the
 * shape of a parameter's part, an operand that is a piece of a parameter, and one that is the
 * rank's chunk. The rest is alike: rank 0's plan has everything that another rank's has, because it
 * holds the most of every parameter, or a buffer of 0 bytes of it (of a flat vector's). Where a
 * rank has nothing, such a buffer is left, which allocates nothing. */
#include "plan/plan_rank.h"

#include <stdio.h>
#include <string.h>

static struct shape updated_shape(const struct plan *plan, uint32_t param)
{
    return plan_part(plan, plan_updated_piece(plan, param), plan->rank).shape;
}

/* The piece of a parameter that lies in a buffer; NULL: none. */
static const struct plan_piece *piece_in(const struct plan *plan, uint32_t param, uint32_t buffer)
{
    for (int role = 0; role < PIECE_ROLES; role++) {
        const struct plan_piece *piece = plan_piece(plan, param, (enum piece_role)role);
        if (piece && piece->buffer == buffer)
            return piece;
    }
    return NULL;
}

static void place_operand(const struct plan *plan, struct operand *operand)
{
    if (operand->chunk)
        operand->offset = plan_group_rank(plan, (uint8_t)(operand->chunk - 1), plan->rank) *
                          shape_elements(&operand->shape);
    if (operand->local == 0)
        return;
    const struct plan_piece *piece = piece_in(plan, operand->local - 1, operand->place);
    if (!piece) { /* made for the update, and gone after it */
        operand->shape = updated_shape(plan, operand->local - 1);
        return;
    }
    const struct operand placed =
        plan_updated_operand(plan, operand->local - 1, (enum piece_role)piece->role);
    operand->shape = placed.shape;
    operand->offset = placed.offset;
}

enum err_code plan_for_rank(struct plan *plan, uint32_t rank, struct err *err)
{
    if (rank >= plan->world)
        return err_set(err, ERR_INVALID, "rank %u: the plan is for ranks 0 ... %u", rank,
                       plan->world - 1);
    if (rank == plan->rank)
        return ERR_OK;
    if (plan->own_programs)
        return err_set(err, ERR_INVALID, "the plan is rank %u's: each rank has its own",
                       plan->rank);
    if (plan->rank != 0)
        return err_set(err, ERR_INVALID, "the plan is rank %u's: other ranks follow from rank 0's",
                       plan->rank);
    plan->rank = rank;
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        struct buffer *buffer = &plan->buffers[b];
        if (buffer->local == 0)
            continue;
        const uint32_t param = buffer->local - 1;
        buffer->shape = b == plan->params[param].step_buffer ? plan_step_shape(plan, param)
                                                             : updated_shape(plan, param);
        buffer->bytes = shape_bytes(&buffer->shape, (enum dtype)buffer->dtype);
    }
    for (uint32_t k = plan->shared_count; k < plan->kernel_count; k++) {
        const struct kernel *kernel = plan_own_kernel(plan, k);
        for (uint32_t o = 0; o < (uint32_t)kernel->ins + kernel->outs; o++)
            place_operand(plan, &kernel->operands[o]);
    }
    struct err found = {0};
    if (plan_verify(plan, &found) != ERR_OK)
        return err_set(err, ERR_INVALID, "as rank %u has it: %s", rank, found.text);
    return ERR_OK;
}

char *plan_rank_path(const char *given, uint32_t rank, char *text, size_t size)
{
    char path[4096];
    const char *dot = strrchr(plan_json_path(given, path, sizeof path), '.');
    const size_t stem = dot && !strchr(dot, '/') ? (size_t)(dot - path) : strlen(path);
    if (rank == 0)
        snprintf(text, size, "%s", path);
    else
        snprintf(text, size, "%.*s-%u%s", (int)stem, path, rank, path + stem);
    return text;
}

/* Ranks whose plans are of other groups would talk past each other. */
static bool has_same_groups(const struct plan *a, const struct plan *b)
{
    if (a->world != b->world || a->group_count != b->group_count)
        return false;
    for (uint32_t i = 0; i < a->group_count; i++)
        if (a->groups[i].ranks != b->groups[i].ranks || a->groups[i].stride != b->groups[i].stride)
            return false;
    return true;
}

/* A rank's own file; *extra (NULL: nobody asks) becomes what it says besides. */
static enum err_code read_own(const char *path, struct plan **out, struct plan_json_extra *extra,
                              struct err *err)
{
    struct plan_json_extra read;
    if (!extra)
        return plan_read_json(path, out, err);
    TRY(plan_read_json_extra(path, out, &read, err));
    plan_json_extra_free(extra);
    *extra = read;
    const enum err_code rc = plan_check_whole(*out, path, err);
    if (rc != ERR_OK)
        plan_free(*out);
    return rc;
}

enum err_code plan_read_rank(const char *path, uint32_t rank, struct plan **plan,
                             struct plan_json_extra *extra, struct err *err)
{
    char own[4096];
    if (!(*plan)->own_programs || rank == (*plan)->rank)
        return plan_for_rank(*plan, rank, err);
    if (rank >= (*plan)->world)
        return err_set(err, ERR_INVALID, "rank %u: the plan is for ranks 0 ... %u", rank,
                       (*plan)->world - 1);
    struct plan *read;
    TRY(read_own(plan_rank_path(path, rank, own, sizeof own), &read, extra, err));
    const bool same = has_same_groups(*plan, read);
    plan_free(*plan);
    *plan = read;
    if (!same)
        return err_set(err, ERR_INVALID, "%s has other groups of ranks than %s", own, path);
    return read->rank == rank ? ERR_OK
                              : err_set(err, ERR_INVALID, "%s is rank %u's", own, read->rank);
}
