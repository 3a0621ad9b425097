/* checkpoint.c - see checkpoint.h.
 *
 * Each operation is a row of stages. A stage is local to a rank; after it all ranks agree whether
 * it went well everywhere, and nobody begins the next one otherwise:
 *
 *     save        probe | write .tmp | index .tmp | drop the old index | rename | rename the index
 *     load        read the index | open and check files | read rows | zero states not saved
 *     save_full   create | gather one by one | rename
 *     load_full   open and check | read rows
 *
 * The old index goes before the first rename: files of two saves never lie beside an index.
 *
 * A file holds one rank's part of every parameter: which elements those are follows from the
 * parameter's placement (base/placement.h), which the index keeps, for every file as for every rank
 * that loads. What overlaps is read. Last parts may be empty. */
#include "runtime/state/checkpoint.h"

#include "runtime/state/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT "shardplan-checkpoint"
enum { VERSION = 2, STATES = 2, RANKS_MOST = 99999, PIECE_ELEMENTS = 4 << 20 };

struct job { /* one call of this file */
    struct execution *execution;
    const struct plan *plan;
    struct comm *comm;
    const char *dir;      /* or the full file's path */
    struct arena arena;   /* texts */
    uint32_t rank, ranks; /* of the shard group */
    uint64_t step;
    bool states;                 /* saved, or to be loaded */
    const char *temporary;       /* of this rank's file */
    const char *temporary_index; /* on rank 0 */
    uint32_t file_ranks;         /* those that saved */
    struct placement *placed;    /* (params) how they did */
    struct safetensors **files;  /* (file_ranks) NULL: not opened */
    struct safetensors *full;    /* read instead of those */
    struct safetensors_writer *writer;
};

/* ---- the job ---- */

static struct job begin(struct execution *execution, const struct plan *plan, struct comm *comm,
                        const char *dir)
{
    struct job job = {.execution = execution, .plan = plan, .comm = comm, .dir = dir, .ranks = 1};
    const uint8_t shard = plan_group_of_role(plan, GROUP_SHARD);
    job.ranks = plan_group_ranks(plan, shard);
    job.rank = plan_group_rank(plan, shard, plan->rank);
    return job;
}

static void end(struct job *job)
{
    for (uint32_t f = 0; f < job->file_ranks && job->files; f++)
        safetensors_close(job->files[f]);
    safetensors_close(job->full);
    safetensors_finish(job->writer, ERR_IO, NULL); /* there is one only after a failure */
    arena_free(&job->arena);
}

/* Whether this rank writes: others have the same parts as it. */
static bool first_replica(const struct job *job)
{
    return job->plan->rank < job->ranks;
}

/* This rank's part of a parameter, and of its states. */
static struct part own_part(const struct job *job, uint32_t p)
{
    return plan_part(job->plan, plan_updated_piece(job->plan, p), job->plan->rank);
}

/* The part that rank r of those that save has. */
static struct part part_of(const struct job *job, uint32_t p, uint32_t r)
{
    return plan_part(job->plan, plan_updated_piece(job->plan, p), r);
}

/* The part that lies in file f of those to be loaded. */
static struct part filed_part(const struct job *job, uint32_t p, uint32_t f)
{
    return placement_part(job->placed[p], &job->plan->params[p].shape, job->file_ranks, f);
}

static enum err_code check_world(const struct job *job, struct err *err)
{
    const uint32_t ranks = job->comm ? comm_ranks(job->comm) : 1;
    if (job->plan->world != ranks)
        return err_set(err, ERR_INVALID, "a plan for %u ranks, run by %u", job->plan->world, ranks);
    assert(!job->comm || comm_rank(job->comm) == job->plan->rank);
    return ERR_OK;
}

static const char *tensor_name(struct job *job, const struct plan_param *param, int state)
{
    static const char *const suffix[STATES + 1] = {"", "/exp_avg", "/exp_avg_sq"};
    return arena_printf(&job->arena, "%s%s", param->name, suffix[state + 1]);
}

static const char *index_path(struct job *job)
{
    return arena_printf(&job->arena, "%s/index.json", job->dir);
}

static const char *shard_path(struct job *job, uint32_t rank, uint32_t ranks)
{
    return arena_printf(&job->arena, "%s/shard-%05u-of-%05u.safetensors", job->dir, rank, ranks);
}

/* Which states of a parameter are saved or loaded: from -1, the parameter itself, to below this. */
static int states_end(const struct job *job, const struct plan_param *param)
{
    return job->states && param->trainable ? STATES : 0;
}

static float *room_for(const struct part *part)
{
    return xmalloc((part_elements(part) + 1) * sizeof(float));
}

/* ---- agreement ---- */

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

/* ERR_OK if rc is so on every rank; the first failure otherwise. *flag becomes true where it is on
 * any rank. Nobody returns before everybody has called. */
static enum err_code agree(struct comm *comm, enum err_code rc, bool *flag, struct err *err)
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

typedef enum err_code stage(struct job *job, struct err *err);

static enum err_code run_stages(struct job *job, stage *const *stages, struct err *err)
{
    enum err_code rc = ERR_OK;
    for (; *stages && rc == ERR_OK; stages++)
        rc = agree(job->comm, (*stages)(job, err), &job->states, err);
    if (rc != ERR_OK && job->temporary)
        unlink(job->temporary); /* fails where it was renamed, which is as well */
    if (rc != ERR_OK && job->temporary_index)
        unlink(job->temporary_index);
    end(job);
    return rc;
}

/* ---- files that appear whole ---- */

/* What was renamed or removed is so for good once the folder is on disk; a file system that cannot
 * say so has not failed. */
static enum err_code sync_folder_of(struct job *job, const char *path, struct err *err)
{
    const int fd = open(dirname(arena_strdup(&job->arena, path)), O_RDONLY | O_CLOEXEC);
    const bool failed = fd >= 0 && fsync(fd) != 0 && errno != EINVAL;
    if (failed)
        err_set(err, ERR_IO, "finish %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return failed ? ERR_IO : ERR_OK;
}

static enum err_code put_in_place(struct job *job, const char *temporary, const char *path,
                                  struct err *err)
{
    if (rename(temporary, path) != 0)
        return err_set(err, ERR_IO, "rename %s to %s: %s", temporary, path, strerror(errno));
    return sync_folder_of(job, path, err);
}

static enum err_code write_text(const char *path, const char *text, struct err *err)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return err_set(err, ERR_IO, "create %s: %s", path, strerror(errno));
    enum err_code rc = ERR_OK;
    if (fputs(text, file) == EOF || fflush(file) == EOF || fsync(fileno(file)) != 0)
        rc = err_set(err, ERR_IO, "write %s: %s", path, strerror(errno));
    if (fclose(file) != 0 && rc == ERR_OK)
        rc = err_set(err, ERR_IO, "finish %s: %s", path, strerror(errno));
    return rc;
}

/* ---- saving ---- */

/* Whether the optimizer has made its states: a first step makes all of them. */
static enum err_code probe(struct job *job, struct err *err)
{
    TRY(check_world(job, err));
    if (job->plan->rank == 0 && mkdir(job->dir, 0777) != 0 && errno != EEXIST)
        return err_set(err, ERR_IO, "create %s: %s", job->dir, strerror(errno));
    for (uint32_t p = 0; p < job->plan->param_count; p++) {
        const struct part part = own_part(job, p);
        if (!plan_piece(job->plan, p, PIECE_EXP_AVG) || part_elements(&part) == 0)
            continue;
        float *values = room_for(&part);
        struct err reason = {0};
        const enum err_code rc = execution_read(job->execution, p, 0, values, &reason);
        free(values);
        job->states = rc == ERR_OK;
        return rc == ERR_OK || rc == ERR_INVALID ? ERR_OK : err_set(err, rc, "%s", reason.text);
    }
    return ERR_OK;
}

static struct safetensor tensor_of(const char *name, const struct shape *shape)
{
    struct safetensor tensor = {.name = name, .rank = shape->rank};
    for (uint32_t i = 0; i < shape->rank; i++)
        tensor.dim[i] = shape->dim[i];
    return tensor;
}

static enum err_code create_shard(struct job *job, struct safetensors_writer **out, struct err *err)
{
    const uint32_t params = job->plan->param_count;
    struct safetensor *tensors =
        arena_alloc(&job->arena, (STATES + 1) * (size_t)params * sizeof *tensors);
    struct safetensors_note *notes = arena_alloc(&job->arena, (params + (size_t)1) * sizeof *notes);
    uint32_t count = 0;
    for (uint32_t p = 0; p < params; p++) {
        const struct plan_param *param = &job->plan->params[p];
        const struct part part = own_part(job, p);
        for (int state = -1; state < states_end(job, param); state++)
            tensors[count++] = tensor_of(tensor_name(job, param, state), &part.shape);
        notes[p].key = arena_printf(&job->arena, "first/%s", param->name);
        notes[p].text = arena_printf(&job->arena, "%" PRIu64, part.first);
    }
    notes[params].key = "step";
    notes[params].text = arena_printf(&job->arena, "%" PRIu64, job->step);
    return safetensors_create(job->temporary, tensors, count, notes, params + 1, out, err);
}

static enum err_code write_param(struct job *job, struct safetensors_writer *writer, uint32_t p,
                                 uint32_t *tensor, struct err *err)
{
    const struct plan_param *param = &job->plan->params[p];
    const struct part part = own_part(job, p);
    const uint64_t count = part_elements(&part);
    float *values = room_for(&part);
    enum err_code rc = ERR_OK;
    for (int state = -1; state < states_end(job, param) && rc == ERR_OK; state++) {
        if (count > 0)
            rc = execution_read(job->execution, p, state, values, err);
        if (rc == ERR_OK)
            rc = safetensors_write(writer, (*tensor)++, 0, count, values, err);
    }
    free(values);
    return rc;
}

static enum err_code write_shard(struct job *job, struct err *err)
{
    if (!first_replica(job))
        return ERR_OK;
    job->temporary = arena_printf(&job->arena, "%s.tmp", shard_path(job, job->rank, job->ranks));
    struct safetensors_writer *writer = NULL;
    uint32_t tensor = 0;
    enum err_code rc = create_shard(job, &writer, err);
    for (uint32_t p = 0; p < job->plan->param_count && rc == ERR_OK; p++)
        rc = write_param(job, writer, p, &tensor, err);
    return safetensors_finish(writer, rc, err);
}

static json_t *shape_json(const struct shape *shape)
{
    json_t *dims = json_array();
    for (uint32_t i = 0; i < shape->rank; i++)
        json_array_append_new(dims, json_integer(shape->dim[i]));
    return dims;
}

static char *index_text(const struct job *job)
{
    json_t *params = json_array();
    for (uint32_t p = 0; p < job->plan->param_count; p++) {
        const struct placement placement = plan_updated_piece(job->plan, p)->placement;
        json_array_append_new(
            params, json_pack("{s:s, s:o, s:s, s:I, s:I}", "name", job->plan->params[p].name,
                              "shape", shape_json(&job->plan->params[p].shape), "placement",
                              placement_name((enum placement_kind)placement.kind), "at",
                              (json_int_t)placement.at, "total", (json_int_t)placement.total));
    }
    json_t *states = job->states ? json_pack("[s, s]", "exp_avg", "exp_avg_sq") : json_array();
    json_t *index = json_pack("{s:s, s:i, s:I, s:i, s:o, s:o}", "format", FORMAT, "version",
                              (int)VERSION, "step", (json_int_t)job->step, "ranks", (int)job->ranks,
                              "parameters", params, "states", states);
    char *text = json_dumps(index, JSON_INDENT(1));
    json_decref(index);
    return text;
}

static enum err_code write_index(struct job *job, struct err *err)
{
    if (job->plan->rank != 0)
        return ERR_OK;
    job->temporary_index = arena_printf(&job->arena, "%s.tmp", index_path(job));
    char *text = index_text(job);
    const enum err_code rc = text ? write_text(job->temporary_index, text, err)
                                  : err_set(err, ERR_INTERNAL, "%s: no text", index_path(job));
    free(text);
    return rc;
}

static enum err_code drop_index(struct job *job, struct err *err)
{
    if (job->plan->rank != 0)
        return ERR_OK;
    const char *index = index_path(job);
    if (unlink(index) != 0)
        return errno == ENOENT ? ERR_OK
                               : err_set(err, ERR_IO, "remove %s: %s", index, strerror(errno));
    return sync_folder_of(job, index, err);
}

static enum err_code publish_shard(struct job *job, struct err *err)
{
    if (!job->temporary)
        return ERR_OK;
    return put_in_place(job, job->temporary, shard_path(job, job->rank, job->ranks), err);
}

static enum err_code publish_index(struct job *job, struct err *err)
{
    return job->plan->rank == 0 ? put_in_place(job, job->temporary_index, index_path(job), err)
                                : ERR_OK;
}

enum err_code checkpoint_save(struct execution *execution, const struct plan *plan,
                              struct comm *comm, uint64_t step, const char *dir, struct err *err)
{
    static stage *const stages[] = {probe,         write_shard,   write_index, drop_index,
                                    publish_shard, publish_index, NULL};
    struct job job = begin(execution, plan, comm, dir);
    job.step = step;
    return run_stages(&job, stages, err);
}

/* ---- the index, read ---- */

/* How a parameter was spread over the files. */
static enum err_code take_placement(struct job *job, uint32_t p, const json_t *entry,
                                    struct err *err)
{
    struct placement *placement = &job->placed[p];
    const char *kind = json_string_value(json_object_get(entry, "placement"));
    const json_int_t at = json_integer_value(json_object_get(entry, "at"));
    const json_int_t total = json_integer_value(json_object_get(entry, "total"));
    for (uint8_t k = 0; kind && k < PLACEMENT_KINDS; k++)
        if (strcmp(kind, placement_name((enum placement_kind)k)) == 0 && at >= 0 && total >= 0) {
            *placement =
                (struct placement){.kind = k, .at = (uint64_t)at, .total = (uint64_t)total};
            return ERR_OK;
        }
    return err_set(err, ERR_INVALID, "%s/index.json: no valid placement of %s", job->dir,
                   job->plan->params[p].name);
}

static enum err_code check_param(struct job *job, uint32_t p, const json_t *entry, struct err *err)
{
    const struct plan_param *param = &job->plan->params[p];
    const char *name = json_string_value(json_object_get(entry, "name"));
    if (!name || strcmp(name, param->name) != 0)
        return err_set(err, ERR_INVALID,
                       "%s is of another model: its parameter %u is %s, the plan's is %s", job->dir,
                       p, name ? name : "without a name", param->name);
    json_t *shape = shape_json(&param->shape);
    const bool same = json_equal(shape, json_object_get(entry, "shape"));
    json_decref(shape);
    return same ? take_placement(job, p, entry, err)
                : err_set(err, ERR_INVALID,
                          "%s is of another model: %s has another shape there than in the plan",
                          job->dir, name);
}

static enum err_code check_params(struct job *job, const json_t *params, struct err *err)
{
    const size_t there = json_array_size(params), here = job->plan->param_count;
    job->placed = arena_alloc(&job->arena, here * sizeof *job->placed);
    for (uint32_t p = 0; p < here && p < there; p++)
        TRY(check_param(job, p, json_array_get(params, p), err));
    if (there != here)
        return err_set(err, ERR_INVALID,
                       "%s is of another model: it has %zu parameters, the plan %zu%s%s", job->dir,
                       there, here, there < here ? "; it lacks " : "",
                       there < here ? job->plan->params[there].name : "");
    return ERR_OK;
}

static bool plan_has_states(const struct plan *plan)
{
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (plan_piece(plan, p, PIECE_EXP_AVG))
            return true;
    return false;
}

static enum err_code take_index(struct job *job, const json_t *index, struct err *err)
{
    const char *format = json_string_value(json_object_get(index, "format"));
    if (!format || strcmp(format, FORMAT) != 0)
        return err_set(err, ERR_INVALID, "%s/index.json is not of a " FORMAT, job->dir);
    if (json_integer_value(json_object_get(index, "version")) != VERSION)
        return err_set(err, ERR_UNSUPPORTED, "%s/index.json is of another version than %d",
                       job->dir, (int)VERSION);
    const json_t *step = json_object_get(index, "step");
    const json_int_t ranks = json_integer_value(json_object_get(index, "ranks"));
    if (!json_is_integer(step) || json_integer_value(step) < 0 || ranks < 1 || ranks > RANKS_MOST)
        return err_set(err, ERR_INVALID, "%s/index.json: no valid step or ranks", job->dir);
    job->step = (uint64_t)json_integer_value(step);
    TRY(check_params(job, json_object_get(index, "parameters"), err));
    const bool saved = json_array_size(json_object_get(index, "states")) == STATES;
    if (plan_has_states(job->plan) && !saved && job->step > 0)
        return err_set(err, ERR_INVALID,
                       "%s has no states of AdamW after step %" PRIu64
                       "; it can be continued by SGD only",
                       job->dir, job->step);
    job->states = plan_has_states(job->plan) && saved;
    job->file_ranks = (uint32_t)ranks;
    job->files = arena_alloc(&job->arena, job->file_ranks * sizeof(struct safetensors *));
    return ERR_OK;
}

static enum err_code read_index(struct job *job, struct err *err)
{
    const char *path = index_path(job);
    json_error_t where;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return err_set(err, ERR_INVALID,
                       "%s has no index.json: it was torn while it was saved, or is no checkpoint",
                       job->dir);
    json_t *index = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    const enum err_code rc =
        index ? take_index(job, index, err) : err_set(err, ERR_INVALID, "%s: %s", path, where.text);
    json_decref(index);
    return rc;
}

/* ---- the shard files, read ---- */

static bool same_shape(const struct safetensor *a, const struct safetensor *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

/* The tensors of one parameter are those that index.json promises of this file. */
static enum err_code check_shard_param(struct job *job, uint32_t f, uint32_t p, struct err *err)
{
    const struct plan_param *param = &job->plan->params[p];
    const struct part part = filed_part(job, p, f);
    const char *key = arena_printf(&job->arena, "first/%s", param->name);
    const char *first = safetensors_note(job->files[f], key);
    if (!first || strcmp(first, arena_printf(&job->arena, "%" PRIu64, part.first)) != 0)
        return err_set(err, ERR_INVALID, "%s: %s does not begin at element %" PRIu64,
                       shard_path(job, f, job->file_ranks), param->name, part.first);
    for (int state = -1; state < states_end(job, param); state++) {
        const char *name = tensor_name(job, param, state);
        const struct safetensor wanted = tensor_of(name, &part.shape);
        const struct safetensor *tensor = safetensors_find(job->files[f], name);
        if (!tensor || !same_shape(tensor, &wanted))
            return err_set(err, ERR_INVALID, "%s: %s %s", shard_path(job, f, job->file_ranks), name,
                           tensor ? "has another shape than index.json asks for" : "is missing");
    }
    return ERR_OK;
}

static enum err_code open_shard(struct job *job, uint32_t f, struct err *err)
{
    const char *path = shard_path(job, f, job->file_ranks);
    TRY(safetensors_open(path, &job->files[f], err));
    const char *step = safetensors_note(job->files[f], "step");
    if (!step || strcmp(step, arena_printf(&job->arena, "%" PRIu64, job->step)) != 0)
        return err_set(err, ERR_INVALID, "%s is of step %s, index.json of step %" PRIu64, path,
                       step ? step : "(none)", job->step);
    for (uint32_t p = 0; p < job->plan->param_count; p++)
        TRY(check_shard_param(job, f, p, err));
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

/* A rank opens the files that hold what it needs, and a share of all so that each is opened by
 * some. */
static bool needs_shard(const struct job *job, uint32_t f)
{
    bool needs = f % job->plan->world == job->plan->rank;
    for (uint32_t p = 0; p < job->plan->param_count && !needs; p++) {
        const struct part mine = own_part(job, p), theirs = filed_part(job, p, f);
        each_overlap(&mine, &theirs, note_overlap, &needs, NULL);
    }
    return needs;
}

static enum err_code open_shards(struct job *job, struct err *err)
{
    for (uint32_t f = 0; f < job->file_ranks; f++)
        if (needs_shard(job, f))
            TRY(open_shard(job, f, err));
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

static enum err_code read_part(struct job *job, uint32_t p, int state, float *values,
                               struct err *err)
{
    const struct plan_param *param = &job->plan->params[p];
    const struct part mine = own_part(job, p);
    const char *name = tensor_name(job, param, state);
    for (uint32_t f = 0; f < (job->full ? 1 : job->file_ranks); f++) {
        const struct part theirs =
            job->full
                ? placement_part((struct placement){.kind = PLACEMENT_WHOLE}, &param->shape, 1, 0)
                : filed_part(job, p, f);
        struct safetensors *file = job->full ? job->full : job->files[f];
        if (!file)
            continue; /* it holds nothing of this rank's */
        struct reading reading = {file, safetensors_find(file, name), values};
        TRY(each_overlap(&mine, &theirs, read_stretch, &reading, err));
        if (job->full || job->placed[p].kind == PLACEMENT_WHOLE)
            break; /* every file has all of it */
    }
    return ERR_OK;
}

static enum err_code restore_param(struct job *job, uint32_t p, float *values, struct err *err)
{
    const struct plan_param *param = &job->plan->params[p];
    for (int state = -1; state < states_end(job, param); state++) {
        TRY(read_part(job, p, state, values, err));
        if (execution_write(job->execution, p, state, values, err) != ERR_OK)
            return err_context(err, "restore %s", tensor_name(job, param, state));
    }
    return ERR_OK;
}

static enum err_code restore(struct job *job, struct err *err)
{
    for (uint32_t p = 0; p < job->plan->param_count; p++) {
        const struct part part = own_part(job, p);
        if (part_elements(&part) == 0)
            continue;
        float *values = room_for(&part);
        const enum err_code rc = restore_param(job, p, values, err);
        free(values);
        TRY(rc);
    }
    return ERR_OK;
}

/* Makes a state as new, if there is one. Reading tells, where writing would make it too early. */
static enum err_code reset_state(struct job *job, uint32_t p, int state, float *values,
                                 struct err *err)
{
    struct err reason = {0};
    const enum err_code rc = execution_read(job->execution, p, state, values, &reason);
    if (rc != ERR_OK)
        return rc == ERR_INVALID ? ERR_OK : err_set(err, rc, "%s", reason.text);
    const struct part part = own_part(job, p);
    memset(values, 0, part_elements(&part) * sizeof *values);
    return execution_write(job->execution, p, state, values, err);
}

/* A checkpoint from before the first step has no states: those that this run has begin anew. */
static enum err_code reset_states(struct job *job, struct err *err)
{
    for (uint32_t p = 0; p < job->plan->param_count && !job->states; p++) {
        const struct part part = own_part(job, p);
        float *values = room_for(&part);
        enum err_code rc = ERR_OK;
        for (int s = 0; s < STATES && rc == ERR_OK && execution_piece(job->plan, p, s); s++)
            rc = reset_state(job, p, s, values, err);
        free(values);
        TRY(rc);
    }
    return ERR_OK;
}

enum err_code checkpoint_load(struct execution *execution, const struct plan *plan,
                              struct comm *comm, const char *dir, uint64_t *step, struct err *err)
{
    static stage *const stages[] = {read_index, open_shards, restore, reset_states, NULL};
    struct job job = begin(execution, plan, comm, dir);
    TRY(run_stages(&job, stages, err));
    *step = job.step;
    return ERR_OK;
}

/* ---- one file of whole parameters ---- */

static enum err_code create_full(struct job *job, struct err *err)
{
    TRY(check_world(job, err));
    if (job->plan->rank != 0)
        return ERR_OK;
    const uint32_t params = job->plan->param_count;
    /* Other readers refuse a file that does not say whose layout its tensors have. */
    const struct safetensors_note note = {.key = "format", .text = "pt"};
    struct safetensor *tensors = arena_alloc(&job->arena, params * sizeof *tensors);
    for (uint32_t p = 0; p < params; p++) {
        const struct plan_param *param = &job->plan->params[p];
        tensors[p] = tensor_of(param->name, &param->shape);
    }
    job->temporary = arena_printf(&job->arena, "%s.tmp", job->dir);
    return safetensors_create(job->temporary, tensors, params, &note, 1, &job->writer, err);
}

/* Writes elements [at, at + count) of a part to where they are in the parameter. */
static enum err_code write_stretch(struct job *job, uint32_t p, const struct part *part,
                                   uint64_t at, uint64_t count, const float *values,
                                   struct err *err)
{
    while (count > 0) {
        const uint64_t run = at / part->width, within = at % part->width;
        const uint64_t left = part->width - within, n = left < count ? left : count;
        TRY(safetensors_write(job->writer, p, part->first + run * part->pitch + within, n, values,
                              err));
        at += n;
        count -= n;
        values += n;
    }
    return ERR_OK;
}

/* Writes what each rank of the first replica sent: elements [at, at + most) of its part. A whole
 * parameter is the first rank's to give. */
static enum err_code write_pieces(struct job *job, uint32_t p, uint64_t at, uint64_t most,
                                  const float *pieces, struct err *err)
{
    const bool whole = plan_updated_piece(job->plan, p)->placement.kind == PLACEMENT_WHOLE;
    for (uint32_t r = 0; r < (whole ? 1 : job->ranks); r++) {
        const struct part part = part_of(job, p, r);
        const uint64_t all = part_elements(&part);
        if (all > at)
            TRY(write_stretch(job, p, &part, at, all - at < most ? all - at : most,
                              pieces + r * most, err));
    }
    return ERR_OK;
}

/* Everyone sends pieces of one size, the replicas' too, for want of a gather among some ranks. A
 * rank 0 that cannot write goes on receiving, so that nobody waits for it. */
static enum err_code gather_pieces(struct job *job, uint32_t p, const float *own, uint64_t total,
                                   struct err *err)
{
    const uint32_t world = job->comm ? job->plan->world : 1;
    const uint64_t share = PIECE_ELEMENTS / world + 1, most = share < total ? share : total;
    float *pieces = job->plan->rank == 0 ? xmalloc(world * most * sizeof *pieces) : NULL;
    enum err_code sent = ERR_OK, written = ERR_OK;
    for (uint64_t at = 0; at < total && sent == ERR_OK; at += most) {
        if (job->comm)
            sent = comm_gather(job->comm, own + at, most * sizeof *own, pieces, 0, err);
        if (pieces && sent == ERR_OK && written == ERR_OK)
            written = write_pieces(job, p, at, most, job->comm ? pieces : own + at, err);
    }
    free(pieces);
    return sent != ERR_OK ? sent : written;
}

static enum err_code gather_param(struct job *job, uint32_t p, struct err *err)
{
    const struct part mine = own_part(job, p);
    uint64_t total = 0; /* of the rank that has most */
    for (uint32_t r = 0; r < job->ranks; r++) {
        const struct part part = part_of(job, p, r);
        total = part_elements(&part) > total ? part_elements(&part) : total;
    }
    /* The last piece may end after the part: room for it, of zeros. */
    const uint64_t room = total + PIECE_ELEMENTS / job->plan->world + 1;
    float *own = xmalloc(room * sizeof *own);
    memset(own, 0, room * sizeof *own);
    enum err_code rc =
        part_elements(&mine) > 0 ? execution_read(job->execution, p, -1, own, err) : ERR_OK;
    rc = agree(job->comm, rc, &job->states, err);
    if (rc == ERR_OK)
        rc = agree(job->comm, gather_pieces(job, p, own, total, err), &job->states, err);
    free(own);
    return rc;
}

static enum err_code gather_params(struct job *job, struct err *err)
{
    for (uint32_t p = 0; p < job->plan->param_count; p++)
        TRY(gather_param(job, p, err));
    return ERR_OK;
}

static enum err_code publish_full(struct job *job, struct err *err)
{
    if (job->plan->rank != 0)
        return ERR_OK;
    struct safetensors_writer *writer = job->writer;
    job->writer = NULL;
    TRY(safetensors_finish(writer, ERR_OK, err));
    return put_in_place(job, job->temporary, job->dir, err);
}

enum err_code checkpoint_save_full(struct execution *execution, const struct plan *plan,
                                   struct comm *comm, const char *path, struct err *err)
{
    static stage *const stages[] = {create_full, gather_params, publish_full, NULL};
    struct job job = begin(execution, plan, comm, path);
    return run_stages(&job, stages, err);
}

static const struct plan_param *param_named(const struct plan *plan, const char *name)
{
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (strcmp(plan->params[p].name, name) == 0)
            return &plan->params[p];
    return NULL;
}

static enum err_code open_full(struct job *job, struct err *err)
{
    TRY(safetensors_open(job->dir, &job->full, err));
    for (uint32_t p = 0; p < job->plan->param_count; p++) {
        const struct plan_param *param = &job->plan->params[p];
        const struct safetensor wanted = tensor_of("", &param->shape);
        const struct safetensor *tensor = safetensors_find(job->full, param->name);
        if (!tensor || !same_shape(tensor, &wanted))
            return err_set(err, ERR_INVALID, "%s is of another model: %s %s", job->dir, param->name,
                           tensor ? "has another shape than in the plan" : "is missing");
    }
    uint32_t count = 0;
    const struct safetensor *tensors = safetensors_list(job->full, &count);
    for (uint32_t i = 0; i < count; i++)
        if (!param_named(job->plan, tensors[i].name))
            return err_set(err, ERR_INVALID, "%s is of another model: the plan has no %s", job->dir,
                           tensors[i].name);
    return ERR_OK;
}

enum err_code checkpoint_load_full(struct execution *execution, const struct plan *plan,
                                   struct comm *comm, const char *path, struct err *err)
{
    static stage *const stages[] = {open_full, restore, NULL};
    struct job job = begin(execution, plan, comm, path);
    return run_stages(&job, stages, err);
}
