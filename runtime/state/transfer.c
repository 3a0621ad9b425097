/* transfer.c - see transfer.h. */
#include "runtime/state/transfer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Over which a parameter's values and states are spread; PLAN_NO_GROUP: each rank has all. */
static uint8_t group_of(const struct plan *plan, uint32_t p)
{
    const struct plan_piece *piece = plan_updated_piece(plan, p);
    return piece->placement.kind == PLACEMENT_WHOLE ? PLAN_NO_GROUP : piece->group;
}

/* The ranks of the first replica save: those of the group that parameters are spread over, or,
 * where all have everything (DDP), the first one. */
static uint8_t saving_group(const struct plan *plan)
{
    uint8_t group = PLAN_NO_GROUP;
    for (uint32_t p = 0; p < plan->param_count && group == PLAN_NO_GROUP; p++)
        group = group_of(plan, p);
    return group;
}

struct transfer transfer_begin(struct execution *execution, const struct plan *plan,
                               struct comm *comm, const char *dir)
{
    struct transfer t = {.execution = execution, .plan = plan, .comm = comm, .dir = dir};
    const uint8_t group = saving_group(plan);
    t.ranks = plan_group_ranks(plan, group);
    t.rank = plan_group_rank(plan, group, plan->rank);
    t.stride = group == PLAN_NO_GROUP ? 1 : plan->groups[group].stride;
    return t;
}

static void end(struct transfer *t)
{
    for (uint32_t f = 0; f < t->file_ranks && t->files; f++)
        safetensors_close(t->files[f]);
    safetensors_close(t->full);
    safetensors_finish(t->writer, ERR_IO, NULL); /* there is one only after a failure */
    arena_free(&t->arena);
}

struct part transfer_own_part(const struct transfer *t, uint32_t p)
{
    return plan_part(t->plan, plan_updated_piece(t->plan, p), t->plan->rank);
}

struct part transfer_part_of(const struct transfer *t, uint32_t p, uint32_t r)
{
    return plan_part(t->plan, plan_updated_piece(t->plan, p), r * t->stride);
}

enum err_code transfer_check_world(const struct transfer *t, struct err *err)
{
    const uint32_t ranks = t->comm ? comm_ranks(t->comm) : 1;
    if (t->plan->world != ranks)
        return err_set(err, ERR_INVALID, "a plan for %u ranks, run by %u", t->plan->world, ranks);
    assert(!t->comm || comm_rank(t->comm) == t->plan->rank);
    const uint8_t all = saving_group(t->plan);
    for (uint32_t p = 0; p < t->plan->param_count; p++) {
        const uint8_t group = group_of(t->plan, p);
        if (group != PLAN_NO_GROUP && group != all)
            return err_set(err, ERR_UNSUPPORTED,
                           "%s is spread over group %s, others over group %s: no checkpoint holds "
                           "both",
                           t->plan->params[p].name, t->plan->groups[group].name,
                           t->plan->groups[all].name);
    }
    return ERR_OK;
}

const char *transfer_state_name(int state)
{
    static const char *const names[CHECKPOINT_STATES] = {"exp_avg", "exp_avg_sq"};
    return names[state];
}

const char *transfer_tensor_name(struct transfer *t, const struct plan_param *param, int state)
{
    if (state == EXECUTION_PARAM)
        return param->name;
    return arena_printf(&t->arena, "%s/%s", param->name, transfer_state_name(state));
}

const char *transfer_index_path(struct transfer *t)
{
    return arena_printf(&t->arena, "%s/index.json", t->dir);
}

const char *transfer_shard_path(struct transfer *t, uint32_t rank, uint32_t ranks)
{
    return arena_printf(&t->arena, "%s/shard-%05u-of-%05u.%s.safetensors", t->dir, rank, ranks,
                        t->save);
}

int transfer_states_end(const struct transfer *t, const struct plan_param *param)
{
    return t->states && param->trainable ? CHECKPOINT_STATES : 0;
}

float *part_room(const struct part *part)
{
    return xmalloc((part_elements(part) + 1) * sizeof(float));
}

struct vote {
    uint32_t code, rank, flag;
    char text[sizeof(((struct err *)NULL)->text)];
};

static struct vote count_votes(const struct vote *votes, uint32_t ranks)
{
    struct vote result = {0};
    uint32_t flag = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        flag |= votes[r].flag;
        if (result.code == ERR_OK)
            result = votes[r];
    }
    result.flag = flag;
    return result;
}

enum err_code transfer_agree(struct comm *comm, enum err_code rc, bool *flag, struct err *err)
{
    if (!comm)
        return rc;
    const uint32_t rank = comm_rank(comm), ranks = comm_ranks(comm);
    struct vote vote = {.code = rc, .rank = rank, .flag = *flag};
    struct vote *votes = rank == 0 ? xmalloc(ranks * sizeof *votes) : NULL;
    struct err lost = {0};
    if (rc != ERR_OK && err)
        memcpy(vote.text, err->text, sizeof vote.text);
    enum err_code sent = comm_gather(comm, &vote, sizeof vote, votes, 0, &lost);
    if (sent == ERR_OK && votes)
        vote = count_votes(votes, ranks);
    free(votes);
    if (sent == ERR_OK)
        sent = comm_broadcast(comm, &vote, sizeof vote, 0, &lost);
    if (rc != ERR_OK || sent != ERR_OK)
        return rc != ERR_OK ? rc : err_set(err, sent, "%s", lost.text);
    *flag = vote.flag;
    return vote.code == ERR_OK
               ? ERR_OK
               : err_set(err, (enum err_code)vote.code, "rank %u: %s", vote.rank, vote.text);
}

enum err_code transfer_run(struct transfer *t, transfer_stage *const *stages, struct err *err)
{
    enum err_code rc = ERR_OK;
    for (; *stages && rc == ERR_OK; stages++)
        rc = transfer_agree(t->comm, (*stages)(t, err), &t->states, err);
    if (rc != ERR_OK && t->temporary)
        unlink(t->temporary); /* fails where it was renamed, which is as well */
    if (rc != ERR_OK && t->temporary_index)
        unlink(t->temporary_index);
    end(t);
    return rc;
}

struct safetensor transfer_tensor(const char *name, const struct shape *shape)
{
    struct safetensor tensor = {.name = name, .rank = shape->rank};
    for (uint32_t i = 0; i < shape->rank; i++)
        tensor.dim[i] = shape->dim[i];
    return tensor;
}

bool transfer_same_shape(const struct safetensor *a, const struct safetensor *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

json_t *transfer_shape_json(const struct shape *shape)
{
    json_t *dims = json_array();
    for (uint32_t i = 0; i < shape->rank; i++)
        json_array_append_new(dims, json_integer(shape->dim[i]));
    return dims;
}

enum err_code transfer_sync_folder(struct transfer *t, const char *path, struct err *err)
{
    const int fd = open(dirname(arena_strdup(&t->arena, path)), O_RDONLY | O_CLOEXEC);
    const bool failed = fd >= 0 && fsync(fd) != 0 && errno != EINVAL;
    if (failed)
        err_set(err, ERR_IO, "finish %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return failed ? ERR_IO : ERR_OK;
}

enum err_code transfer_rename(const char *temporary, const char *path, struct err *err)
{
    if (rename(temporary, path) != 0)
        return err_set(err, ERR_IO, "rename %s to %s: %s", temporary, path, strerror(errno));
    return ERR_OK;
}
