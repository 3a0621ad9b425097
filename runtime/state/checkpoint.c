/* checkpoint.c - a checkpoint is saved: see checkpoint.h.
 *
 *     save        probe | name | write files | write index.json.tmp | rename it | sync | clean up
 *     load        read the index | open and check files | check sums | read rows | zero states
 *     save_full   create | gather one by one | rename
 *     load_full   open and check | read rows
 *
 * These are the stages (transfer.h) of all four. Loading is in checkpoint_load.c, the full file in
 * checkpoint_full.c. Files of a save have names that those of the last one have not, and the index
 * says which are meant: until it is renamed the old checkpoint is there, whole, and from then on
 * the new one, wherever a save is cut off. What no index names is cleaned up by the next save.
 *
 * A file holds one rank's part of every parameter: which elements those are follows from the
 * parameter's placement (base/placement.h), which the index keeps, for every file as for every rank
 * that loads. What overlaps is read. Last parts may be empty. */
#include "base/json_file.h"
#include "runtime/state/transfer.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Whether this rank writes: others have the same parts as it. */
static bool first_replica(const struct transfer *t)
{
    return t->plan->rank == t->rank * t->stride;
}

/* Whether the optimizer has made its states: a first step makes all of them. */
static enum err_code probe(struct transfer *t, struct err *err)
{
    TRY(transfer_check_world(t, err));
    if (t->plan->rank == 0 && mkdir(t->dir, 0777) != 0 && errno != EEXIST)
        return err_set(err, ERR_IO, "create %s: %s", t->dir, strerror(errno));
    for (uint32_t p = 0; p < t->plan->param_count; p++) {
        const struct part part = transfer_own_part(t, p);
        if (!plan_piece(t->plan, p, PIECE_EXP_AVG) || part_elements(&part) == 0)
            continue;
        float *values = part_room(&part);
        struct err reason = {0};
        const enum err_code rc =
            execution_read(t->execution, p, EXECUTION_EXP_AVG, values, &reason);
        free(values);
        t->states = rc == ERR_OK;
        return rc == ERR_OK || rc == ERR_INVALID ? ERR_OK : err_set(err, rc, "%s", reason.text);
    }
    return ERR_OK;
}

/* "step-7", or "step-7-again" where the index names such a save already. */
static enum err_code name_save(struct transfer *t, struct err *err)
{
    char taken[CHECKPOINT_SAVE_TEXT] = "";
    if (t->plan->rank == 0) {
        json_t *index = json_file_read(transfer_index_path(t), NULL);
        const char *save = json_string_value(json_object_get(index, "save"));
        snprintf(taken, sizeof taken, "%s", save ? save : "");
        json_decref(index);
    }
    snprintf(t->save, sizeof t->save, "step-%" PRIu64, t->step);
    if (strcmp(t->save, taken) == 0)
        snprintf(t->save, sizeof t->save, "step-%" PRIu64 "-again", t->step);
    return t->comm ? comm_broadcast(t->comm, t->save, sizeof t->save, 0, err) : ERR_OK;
}

static enum err_code create_shard(struct transfer *t, struct safetensors_writer **out,
                                  struct err *err)
{
    const uint32_t params = t->plan->param_count;
    struct safetensor *tensors =
        arena_alloc(&t->arena, (CHECKPOINT_STATES + 1) * (size_t)params * sizeof *tensors);
    struct safetensors_note *notes = arena_alloc(&t->arena, (params + (size_t)1) * sizeof *notes);
    uint32_t count = 0;
    for (uint32_t p = 0; p < params; p++) {
        const struct plan_param *param = &t->plan->params[p];
        const struct part part = transfer_own_part(t, p);
        for (int state = EXECUTION_PARAM; state < transfer_states_end(t, param); state++)
            tensors[count++] = transfer_tensor(transfer_tensor_name(t, param, state), &part.shape);
        notes[p].key = arena_printf(&t->arena, "first/%s", param->name);
        notes[p].text = arena_printf(&t->arena, "%" PRIu64, part.first);
    }
    notes[params].key = "step";
    notes[params].text = arena_printf(&t->arena, "%" PRIu64, t->step);
    return safetensors_create(t->temporary, tensors, count, notes, params + 1, out, err);
}

static enum err_code write_param(struct transfer *t, struct safetensors_writer *writer, uint32_t p,
                                 uint32_t *tensor, struct err *err)
{
    const struct plan_param *param = &t->plan->params[p];
    const struct part part = transfer_own_part(t, p);
    const uint64_t count = part_elements(&part);
    float *values = part_room(&part);
    enum err_code rc = ERR_OK;
    for (int state = EXECUTION_PARAM; state < transfer_states_end(t, param) && rc == ERR_OK;
         state++) {
        if (count > 0)
            rc = execution_read(t->execution, p, state, values, err);
        if (rc == ERR_OK)
            rc = safetensors_write(writer, (*tensor)++, 0, count, values, err);
    }
    free(values);
    return rc;
}

static enum err_code write_shard(struct transfer *t, struct err *err)
{
    if (!first_replica(t))
        return ERR_OK;
    t->temporary = transfer_shard_path(t, t->rank, t->ranks);
    struct safetensors_writer *writer = NULL;
    uint32_t tensor = 0;
    enum err_code rc = create_shard(t, &writer, err);
    for (uint32_t p = 0; p < t->plan->param_count && rc == ERR_OK; p++)
        rc = write_param(t, writer, p, &tensor, err);
    if (rc == ERR_OK && !safetensors_sum(writer, &t->sum))
        rc = err_set(err, ERR_INTERNAL, "%s: its sum is not known", t->temporary);
    rc = safetensors_finish(writer, rc, err);
    return rc == ERR_OK ? transfer_sync_folder(t, t->temporary, err) : rc;
}

/* `sums`: of all ranks of the world. */
static char *index_text(const struct transfer *t, const uint64_t *sums)
{
    json_t *params = json_array(), *files = json_array();
    for (uint32_t f = 0; f < t->ranks; f++) {
        char text[17];
        snprintf(text, sizeof text, "%016" PRIx64, sums[f * t->stride]);
        json_array_append_new(files, json_string(text));
    }
    for (uint32_t p = 0; p < t->plan->param_count; p++) {
        const struct placement placement = plan_updated_piece(t->plan, p)->placement;
        json_array_append_new(
            params, json_pack("{s:s, s:o, s:s, s:I, s:I}", "name", t->plan->params[p].name, "shape",
                              transfer_shape_json(&t->plan->params[p].shape), "placement",
                              placement_name((enum placement_kind)placement.kind), "at",
                              (json_int_t)placement.at, "total", (json_int_t)placement.total));
    }
    json_t *states = json_array();
    for (int s = 0; s < CHECKPOINT_STATES && t->states; s++)
        json_array_append_new(states, json_string(transfer_state_name(s)));
    json_t *index = json_pack("{s:s, s:i, s:I, s:i, s:s, s:o, s:o, s:o}", "format",
                              CHECKPOINT_FORMAT, "version", (int)CHECKPOINT_VERSION, "step",
                              (json_int_t)t->step, "ranks", (int)t->ranks, "save", t->save, "sums",
                              files, "parameters", params, "states", states);
    char *text = json_dumps(index, JSON_INDENT(1));
    json_decref(index);
    return text;
}

static enum err_code write_index(struct transfer *t, struct err *err)
{
    uint64_t *sums = arena_alloc(&t->arena, t->plan->world * sizeof *sums);
    sums[0] = t->sum;
    if (t->comm)
        TRY(comm_gather(t->comm, &t->sum, sizeof t->sum, sums, 0, err));
    if (t->plan->rank != 0)
        return ERR_OK;
    t->temporary_index = arena_printf(&t->arena, "%s.tmp", transfer_index_path(t));
    char *text = index_text(t, sums);
    const enum err_code rc =
        text ? write_text(t->temporary_index, text, err)
             : err_set(err, ERR_INTERNAL, "%s: no text", transfer_index_path(t));
    free(text);
    return rc;
}

/* The moment from which on the new checkpoint is the one that is there. */
static enum err_code publish(struct transfer *t, struct err *err)
{
    return t->plan->rank == 0 ? transfer_rename(t->temporary_index, transfer_index_path(t), err)
                              : ERR_OK;
}

/* Its files stay, whatever happens. */
static enum err_code keep(struct transfer *t, struct err *err)
{
    t->temporary = t->temporary_index = NULL;
    return t->plan->rank == 0 ? transfer_sync_folder(t, transfer_index_path(t), err) : ERR_OK;
}

/* "shard-00001-of-00002.step-7.safetensors": whether a name is one of ours, but not of this save.
 */
static bool is_of_another_save(const struct transfer *t, const char *name)
{
    unsigned rank, ranks;
    int used = 0;
    if (sscanf(name, "shard-%5u-of-%5u.%n", &rank, &ranks, &used) != 2 || used == 0 ||
        !strstr(name + used, "safetensors"))
        return false;
    const size_t length = strlen(t->save);
    return strncmp(name + used, t->save, length) != 0 ||
           strcmp(name + used + length, ".safetensors") != 0 || ranks != t->ranks;
}

/* What no index names any more. What cannot be removed does no harm. */
static enum err_code clean_up(struct transfer *t, struct err *err)
{
    (void)err;
    DIR *dir = t->plan->rank == 0 ? opendir(t->dir) : NULL;
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (is_of_another_save(t, entry->d_name))
            unlink(arena_printf(&t->arena, "%s/%s", t->dir, entry->d_name));
    if (dir)
        closedir(dir);
    return ERR_OK;
}

enum err_code checkpoint_save(struct execution *execution, const struct plan *plan,
                              struct comm *comm, uint64_t step, const char *dir, struct err *err)
{
    static transfer_stage *const stages[] = {probe,   name_save, write_shard, write_index,
                                             publish, keep,      clean_up,    NULL};
    struct transfer t = transfer_begin(execution, plan, comm, dir);
    t.step = step;
    return transfer_run(&t, stages, err);
}
