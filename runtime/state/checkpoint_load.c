/* checkpoint_load.c - a checkpoint is loaded, whatever ranks it was saved by: see checkpoint.c. */
#include "runtime/state/transfer.h"

#include "base/json_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MOST = 99999 };

/* ---- the index, read ---- */

/* The part that lies in file f of those to be loaded. */
static struct part filed_part(const struct transfer *t, uint32_t p, uint32_t f)
{
    return placement_part(t->placed[p], &t->plan->params[p].shape, t->file_ranks, f);
}

/* How a parameter was spread over the files. */
static enum err_code take_placement(struct transfer *t, uint32_t p, const json_t *entry,
                                    struct err *err)
{
    struct placement *placement = &t->placed[p];
    const char *kind = json_string_value(json_object_get(entry, "placement"));
    const json_int_t at = json_integer_value(json_object_get(entry, "at"));
    const json_int_t total = json_integer_value(json_object_get(entry, "total"));
    for (uint8_t k = 0; kind && k < PLACEMENT_KINDS; k++)
        if (strcmp(kind, placement_name((enum placement_kind)k)) == 0 && at >= 0 && total >= 0) {
            *placement =
                (struct placement){.kind = k, .at = (uint64_t)at, .total = (uint64_t)total};
            return ERR_OK;
        }
    return err_set(err, ERR_INVALID, "%s/index.json: no valid placement of %s", t->dir,
                   t->plan->params[p].name);
}

static enum err_code check_param(struct transfer *t, uint32_t p, const json_t *entry,
                                 struct err *err)
{
    const struct plan_param *param = &t->plan->params[p];
    const char *name = json_string_value(json_object_get(entry, "name"));
    if (!name || strcmp(name, param->name) != 0)
        return err_set(err, ERR_INVALID,
                       "%s is of another model: its parameter %u is %s, the plan's is %s", t->dir,
                       p, name ? name : "without a name", param->name);
    json_t *shape = transfer_shape_json(&param->shape);
    const bool same = json_equal(shape, json_object_get(entry, "shape"));
    json_decref(shape);
    return same ? take_placement(t, p, entry, err)
                : err_set(err, ERR_INVALID,
                          "%s is of another model: %s has another shape there than in the plan",
                          t->dir, name);
}

/* Together the files have every element of a parameter. */
static enum err_code check_whole(struct transfer *t, uint32_t p, struct err *err)
{
    uint64_t there = 0;
    const struct plan_param *param = &t->plan->params[p];
    for (uint32_t f = 0; f < (t->placed[p].kind == PLACEMENT_WHOLE ? 1 : t->file_ranks); f++) {
        const struct part part = filed_part(t, p, f);
        there += part_elements(&part);
    }
    if (there == shape_elements(&param->shape))
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s/index.json: as it is placed, %s has %" PRIu64 " elements in %u files, "
                   "instead of %" PRIu64,
                   t->dir, param->name, there, t->file_ranks, shape_elements(&param->shape));
}

static enum err_code check_params(struct transfer *t, const json_t *params, struct err *err)
{
    const size_t there = json_array_size(params), here = t->plan->param_count;
    t->placed = arena_alloc(&t->arena, here * sizeof *t->placed);
    for (uint32_t p = 0; p < here && p < there; p++)
        TRY(check_param(t, p, json_array_get(params, p), err));
    if (there != here)
        return err_set(err, ERR_INVALID,
                       "%s is of another model: it has %zu parameters, the plan %zu%s%s", t->dir,
                       there, here, there < here ? "; it lacks " : "",
                       there < here ? t->plan->params[there].name : "");
    for (uint32_t p = 0; p < here; p++)
        TRY(check_whole(t, p, err));
    return ERR_OK;
}

static bool plan_has_states(const struct plan *plan)
{
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (plan_piece(plan, p, PIECE_EXP_AVG))
            return true;
    return false;
}

/* The files' names and sums. */
static enum err_code take_files(struct transfer *t, const json_t *index, struct err *err)
{
    const char *save = json_string_value(json_object_get(index, "save"));
    const json_t *sums = json_object_get(index, "sums");
    const size_t length = save ? strspn(save, "abcdefghijklmnopqrstuvwxyz0123456789-") : 0;
    if (length == 0 || save[length] || length >= sizeof t->save)
        return err_set(err, ERR_INVALID, "%s/index.json: no valid name of the save", t->dir);
    memcpy(t->save, save, length + 1);
    if (json_array_size(sums) != t->file_ranks)
        return err_set(err, ERR_INVALID, "%s/index.json: %zu sums of %u files", t->dir,
                       json_array_size(sums), t->file_ranks);
    t->sums = arena_alloc(&t->arena, t->file_ranks * sizeof *t->sums);
    for (uint32_t f = 0; f < t->file_ranks; f++) {
        const char *text = json_string_value(json_array_get(sums, f));
        char *end = NULL;
        t->sums[f] = text ? strtoull(text, &end, 16) : 0;
        if (!text || strlen(text) != 16 || *end)
            return err_set(err, ERR_INVALID, "%s/index.json: sums[%u] is none", t->dir, f);
    }
    return ERR_OK;
}

/* The states that are saved: all that AdamW has, or none. */
static enum err_code take_states(struct transfer *t, const json_t *states, struct err *err)
{
    const size_t count = json_array_size(states);
    for (size_t s = 0; s < count; s++) {
        const char *name = json_string_value(json_array_get(states, s));
        if (count != CHECKPOINT_STATES || !name || strcmp(name, transfer_state_name((int)s)) != 0)
            return err_set(err, ERR_INVALID,
                           "%s/index.json: states: expected [] or [\"%s\", \"%s\"]", t->dir,
                           transfer_state_name(0), transfer_state_name(1));
    }
    if (plan_has_states(t->plan) && count == 0 && t->step > 0)
        return err_set(err, ERR_INVALID,
                       "%s has no states of AdamW after step %" PRIu64
                       "; it can be continued by SGD only",
                       t->dir, t->step);
    t->states = plan_has_states(t->plan) && count > 0;
    return ERR_OK;
}

static enum err_code take_index(struct transfer *t, const json_t *index, struct err *err)
{
    const char *format = json_string_value(json_object_get(index, "format"));
    if (!format || strcmp(format, CHECKPOINT_FORMAT) != 0)
        return err_set(err, ERR_INVALID, "%s/index.json is not of a " CHECKPOINT_FORMAT, t->dir);
    if (json_integer_value(json_object_get(index, "version")) != CHECKPOINT_VERSION)
        return err_set(err, ERR_UNSUPPORTED, "%s/index.json is of another version than %d", t->dir,
                       (int)CHECKPOINT_VERSION);
    const json_t *step = json_object_get(index, "step");
    const json_int_t ranks = json_integer_value(json_object_get(index, "ranks"));
    if (!json_is_integer(step) || json_integer_value(step) < 0 || ranks < 1 || ranks > RANKS_MOST)
        return err_set(err, ERR_INVALID, "%s/index.json: no valid step or ranks", t->dir);
    t->step = (uint64_t)json_integer_value(step);
    t->file_ranks = (uint32_t)ranks;
    TRY(take_files(t, index, err));
    TRY(check_params(t, json_object_get(index, "parameters"), err));
    TRY(take_states(t, json_object_get(index, "states"), err));
    t->files = arena_alloc(&t->arena, t->file_ranks * sizeof(struct safetensors *));
    return ERR_OK;
}

static enum err_code read_index(struct transfer *t, struct err *err)
{
    const char *path = transfer_index_path(t);
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return err_set(err, ERR_INVALID,
                       "%s has no index.json: it was torn while it was saved, or is no checkpoint",
                       t->dir);
    struct err found = {0};
    json_t *index = json_file_read(path, &found);
    const enum err_code rc =
        index ? take_index(t, index, err) : err_set(err, found.code, "%s", found.text);
    json_decref(index);
    return rc;
}

/* ---- the shard files, read ---- */

/* The tensors of one parameter are those that index.json promises of this file. */
static enum err_code check_shard_param(struct transfer *t, uint32_t f, uint32_t p, struct err *err)
{
    const struct plan_param *param = &t->plan->params[p];
    const struct part part = filed_part(t, p, f);
    const char *key = arena_printf(&t->arena, "first/%s", param->name);
    const char *first = safetensors_note(t->files[f], key);
    if (!first || strcmp(first, arena_printf(&t->arena, "%" PRIu64, part.first)) != 0)
        return err_set(err, ERR_INVALID, "%s: %s does not begin at element %" PRIu64,
                       transfer_shard_path(t, f, t->file_ranks), param->name, part.first);
    for (int state = EXECUTION_PARAM; state < transfer_states_end(t, param); state++) {
        const char *name = transfer_tensor_name(t, param, state);
        const struct safetensor wanted = transfer_tensor(name, &part.shape);
        const struct safetensor *tensor = safetensors_find(t->files[f], name);
        if (!tensor || !transfer_same_shape(tensor, &wanted))
            return err_set(err, ERR_INVALID, "%s: %s %s", transfer_shard_path(t, f, t->file_ranks),
                           name,
                           tensor ? "has another shape than index.json asks for" : "is missing");
    }
    return ERR_OK;
}

static enum err_code open_shard(struct transfer *t, uint32_t f, struct err *err)
{
    const char *path = transfer_shard_path(t, f, t->file_ranks);
    TRY(safetensors_open(path, &t->files[f], err));
    const char *step = safetensors_note(t->files[f], "step");
    if (!step || strcmp(step, arena_printf(&t->arena, "%" PRIu64, t->step)) != 0)
        return err_set(err, ERR_INVALID, "%s is of step %s, index.json of step %" PRIu64, path,
                       step ? step : "(none)", t->step);
    for (uint32_t p = 0; p < t->plan->param_count; p++)
        TRY(check_shard_param(t, f, p, err));
    return ERR_OK;
}

/* Calls `visit` for every stretch of elements that a rank's part and a file's have in common: where
 * it begins in each, and how long it is. Runs of both come in the tensor's order. */
typedef enum err_code overlap_visitor(void *context, uint64_t mine, uint64_t theirs, uint64_t count,
                                      struct err *err);

static enum err_code each_overlap(const struct part *mine, const struct part *theirs,
                                  overlap_visitor *visit, void *context, struct err *err)
{
    for (uint64_t i = 0; i < mine->runs; i++) {
        const uint64_t begin = mine->first + i * mine->pitch;
        uint64_t j =
            begin > theirs->first && theirs->pitch ? (begin - theirs->first) / theirs->pitch : 0;
        for (; j < theirs->runs && theirs->first + j * theirs->pitch < begin + mine->width; j++) {
            uint64_t first, count;
            if (!part_overlap(mine, i, theirs, j, &first, &count))
                continue;
            const uint64_t in_mine = i * mine->width + first - begin;
            const uint64_t in_theirs =
                j * theirs->width + first - (theirs->first + j * theirs->pitch);
            TRY(visit(context, in_mine, in_theirs, count, err));
        }
    }
    return ERR_OK;
}

static enum err_code note_overlap(void *context, uint64_t mine, uint64_t theirs, uint64_t count,
                                  struct err *err)
{
    (void)mine, (void)theirs, (void)count, (void)err;
    *(bool *)context = true;
    return ERR_OK;
}

/* This rank's part of a parameter as it is stored or kept, or as it is updated. */
static struct part wanted_part(const struct transfer *t, uint32_t p, int state)
{
    return state >= EXECUTION_PARAM
               ? transfer_own_part(t, p)
               : plan_part(t->plan, execution_piece(t->plan, p, state), t->plan->rank);
}

/* A rank opens the files that hold what it needs, and a share of all so that each is opened by
 * some. */
static bool needs_shard(const struct transfer *t, uint32_t f)
{
    bool needs = f % t->plan->world == t->plan->rank;
    for (uint32_t p = 0; p < t->plan->param_count && !needs; p++) {
        const struct part theirs = filed_part(t, p, f);
        for (int state = EXECUTION_GATHERED; state <= EXECUTION_PARAM; state++) {
            if (!execution_piece(t->plan, p, state))
                continue;
            const struct part mine = wanted_part(t, p, state);
            each_overlap(&mine, &theirs, note_overlap, &needs, NULL);
        }
    }
    return needs;
}

static enum err_code open_shards(struct transfer *t, struct err *err)
{
    for (uint32_t f = 0; f < t->file_ranks; f++)
        if (needs_shard(t, f))
            TRY(open_shard(t, f, err));
    return ERR_OK;
}

/* Bytes that are not those that were saved. Each file is read whole by one rank. */
static enum err_code check_sums(struct transfer *t, struct err *err)
{
    const uint32_t first = t->comm ? t->plan->rank : 0, every = t->comm ? t->plan->world : 1;
    for (uint32_t f = first; f < t->file_ranks; f += every) {
        const char *path = transfer_shard_path(t, f, t->file_ranks);
        uint64_t sum;
        TRY(safetensors_sum_file(path, &sum, err));
        if (sum != t->sums[f])
            return err_set(err, ERR_INVALID,
                           "%s is damaged: its bytes are not those that were saved", path);
    }
    return ERR_OK;
}

struct reading { /* of one tensor of one file, into values */
    struct safetensors *file;
    const struct safetensor *tensor;
    float *values;
};

static enum err_code read_stretch(void *context, uint64_t mine, uint64_t theirs, uint64_t count,
                                  struct err *err)
{
    const struct reading *r = context;
    return safetensors_read(r->file, r->tensor, theirs, count, r->values + mine, err);
}

/* The elements of `mine` of a parameter or a state. */
static enum err_code read_part(struct transfer *t, uint32_t p, int state, const struct part *mine,
                               float *values, struct err *err)
{
    const struct plan_param *param = &t->plan->params[p];
    const char *name = transfer_tensor_name(t, param, state);
    for (uint32_t f = 0; f < (t->full ? 1 : t->file_ranks); f++) {
        const struct part theirs =
            t->full
                ? placement_part((struct placement){.kind = PLACEMENT_WHOLE}, &param->shape, 1, 0)
                : filed_part(t, p, f);
        struct safetensors *file = t->full ? t->full : t->files[f];
        if (!file)
            continue; /* it holds nothing of this rank's */
        struct reading reading = {file, safetensors_find(file, name), values};
        TRY(each_overlap(mine, &theirs, read_stretch, &reading, err));
        if (t->full || t->placed[p].kind == PLACEMENT_WHOLE)
            break; /* every file has all of it */
    }
    return ERR_OK;
}

/* Reads tensor `state` of a parameter into the piece `to` of it. */
static enum err_code restore_piece(struct transfer *t, uint32_t p, int state, int to,
                                   struct err *err)
{
    const struct part part = wanted_part(t, p, to);
    if (part_elements(&part) == 0)
        return ERR_OK;
    float *values = part_room(&part);
    enum err_code rc = read_part(t, p, state, &part, values, err);
    if (rc == ERR_OK && execution_write(t->execution, p, to, values, err) != ERR_OK)
        rc = err_context(err, "restore %s", transfer_tensor_name(t, &t->plan->params[p], state));
    free(values);
    return rc;
}

/* A parameter that is stored beside what is updated (another rank's, or of another dtype) is what
 * it would be after a step. */
enum err_code transfer_restore(struct transfer *t, struct err *err)
{
    for (uint32_t p = 0; p < t->plan->param_count; p++) {
        const int end = transfer_states_end(t, &t->plan->params[p]);
        for (int state = EXECUTION_PARAM; state < end; state++)
            TRY(restore_piece(t, p, state, state, err));
        if (plan_piece(t->plan, p, PIECE_MASTER))
            TRY(restore_piece(t, p, EXECUTION_PARAM, EXECUTION_STORE, err));
        if (execution_piece(t->plan, p, EXECUTION_GATHERED))
            TRY(restore_piece(t, p, EXECUTION_PARAM, EXECUTION_GATHERED, err));
    }
    return ERR_OK;
}

/* Makes a state as new, if there is one. Reading tells, where writing would make it too early. */
static enum err_code reset_state(struct transfer *t, uint32_t p, int state, float *values,
                                 struct err *err)
{
    struct err reason = {0};
    const enum err_code rc = execution_read(t->execution, p, state, values, &reason);
    if (rc != ERR_OK)
        return rc == ERR_INVALID ? ERR_OK : err_set(err, rc, "%s", reason.text);
    const struct part part = transfer_own_part(t, p);
    memset(values, 0, part_elements(&part) * sizeof *values);
    return execution_write(t->execution, p, state, values, err);
}

/* A checkpoint from before the first step has no states: those that this run has begin anew. */
static enum err_code reset_states(struct transfer *t, struct err *err)
{
    for (uint32_t p = 0; p < t->plan->param_count && !t->states; p++) {
        const struct part part = transfer_own_part(t, p);
        float *values = part_room(&part);
        enum err_code rc = ERR_OK;
        for (int s = 0; s < CHECKPOINT_STATES && rc == ERR_OK && execution_piece(t->plan, p, s);
             s++)
            rc = reset_state(t, p, s, values, err);
        free(values);
        TRY(rc);
    }
    return ERR_OK;
}

enum err_code checkpoint_load(struct execution *execution, const struct plan *plan,
                              struct comm *comm, const char *dir, uint64_t *step, struct err *err)
{
    static transfer_stage *const stages[] = {read_index,       open_shards,  check_sums,
                                             transfer_restore, reset_states, NULL};
    struct transfer t = transfer_begin(execution, plan, comm, dir);
    TRY(transfer_run(&t, stages, err));
    *step = t.step;
    return ERR_OK;
}
