/* claim.c - see claim.h.
 *
 *     DIR/.lock        rank 0 holds a lock on it while it saves; whoever lets go of it removes it
 *                      first
 *     DIR/.trace-lock  likewise, of the folder of traces: one folder may be both
 *     DIR/.probe-R     made and removed by rank R */
#include "runtime/state/claim.h"

#include "runtime/state/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { LOCKS = 2 };

struct claim {
    struct arena arena;
    struct lock {
        const char *path; /* NULL: it is not ours, or not there */
        int fd;
    } locks[LOCKS];
    uint32_t lock_count;
};

/* Another run may remove the file between our opening and locking it: then it is not the folder's.
 */
static enum err_code take_lock(struct claim *claim, const char *dir, const char *name,
                               const char *does, struct err *err)
{
    const char *path = arena_printf(&claim->arena, "%s/%s", dir, name);
    struct lock *lock = &claim->locks[claim->lock_count++];
    lock->fd = -1;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return err_set(err, ERR_IO, "create %s: %s", dir, strerror(errno));
    for (;;) {
        struct stat there;
        lock->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (lock->fd < 0)
            return err_set(err, ERR_IO, "create %s: %s", path, strerror(errno));
        const int failed = flock(lock->fd, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
        if (failed == EWOULDBLOCK)
            return err_set(err, ERR_IO, "%s: another run %s there (it has %s)", dir, does, path);
        if (failed == 0 && fstat(lock->fd, &there) == 0 && there.st_nlink == 0) {
            close(lock->fd);
            continue;
        }
        lock->path = failed ? NULL : path; /* a file system without locks has none to give */
        return ERR_OK;
    }
}

static enum err_code probe(const char *path, struct err *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_set(err, ERR_IO, "create %s: %s", path, strerror(errno));
    close(fd);
    unlink(path);
    return ERR_OK;
}

/* Of all parameters, with the states of AdamW or without. */
static uint64_t bytes_to_save(const struct plan *plan, bool states)
{
    uint64_t elements = 0;
    for (uint32_t p = 0; p < plan->param_count; p++)
        elements += shape_elements(&plan->params[p].shape) *
                    (states && plan_piece(plan, p, PIECE_EXP_AVG) ? 1 + CHECKPOINT_STATES : 1);
    return elements * sizeof(float);
}

static enum err_code check_room(const char *dir, uint64_t bytes, struct err *err)
{
    struct statvfs disk;
    if (statvfs(dir, &disk) != 0 || disk.f_blocks == 0)
        return ERR_OK; /* it does not say */
    const uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (bytes <= room)
        return ERR_OK;
    return err_set(err, ERR_IO, "%s has room for %llu bytes: what is to be saved has %llu", dir,
                   (unsigned long long)room, (unsigned long long)bytes);
}

static enum err_code claim_folder(struct claim *claim, const struct plan *plan, const char *dir,
                                  struct err *err)
{
    if (plan->rank != 0)
        return ERR_OK;
    TRY(take_lock(claim, dir, ".lock", "saves", err));
    return check_room(dir, bytes_to_save(plan, true), err);
}

static enum err_code try_full(struct claim *claim, const struct plan *plan, const char *full,
                              struct err *err)
{
    if (plan->rank != 0)
        return ERR_OK;
    TRY(probe(arena_printf(&claim->arena, "%s.tmp", full), err));
    return check_room(dirname(arena_strdup(&claim->arena, full)), bytes_to_save(plan, false), err);
}

/* `leads`: rank 0 of a world, or whoever runs alone (a rehearsal of any rank). */
static enum err_code claim_output(struct claim *claim, bool leads, const char *dir, struct err *err)
{
    return leads ? take_lock(claim, dir, ".trace-lock", "leaves its trace", err) : ERR_OK;
}

enum err_code claim_open(const struct plan *plan, struct comm *comm,
                         const struct claim_places *places, struct claim **out, struct err *err)
{
    struct claim *claim = xcalloc(1, sizeof *claim);
    const char *dir = places->save, *full = places->full, *output = places->output;
    bool flag = false;
    enum err_code rc = ERR_OK;
    *out = claim;
    if (output)
        rc = transfer_agree(comm, claim_output(claim, !comm || plan->rank == 0, output, err), &flag,
                            err);
    if (dir && rc == ERR_OK)
        rc = transfer_agree(comm, claim_folder(claim, plan, dir, err), &flag, err);
    if (dir && rc == ERR_OK)
        rc = transfer_agree(
            comm, probe(arena_printf(&claim->arena, "%s/.probe-%u", dir, plan->rank), err), &flag,
            err);
    if (full && rc == ERR_OK)
        rc = transfer_agree(comm, try_full(claim, plan, full, err), &flag, err);
    if (rc != ERR_OK) {
        claim_release(claim);
        *out = NULL;
    }
    return rc;
}

void claim_release(struct claim *claim)
{
    if (!claim)
        return;
    for (uint32_t i = 0; i < claim->lock_count; i++) {
        const struct lock *lock = &claim->locks[i];
        if (lock->path)
            unlink(lock->path);
        if (lock->fd >= 0)
            close(lock->fd);
    }
    arena_free(&claim->arena);
    free(claim);
}
