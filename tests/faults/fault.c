/* fault.c - a library to be preloaded into a program that is tested: the n-th call of a kind fails,
 * or is the program's end.
 *
 *     FAULT=rename FAULT_AT=3 FAULT_FILE=log LD_PRELOAD=fault.so shardplan plan ...
 *
 * Kinds are those of the table below. FAULT_AT=0: none fails, and the file gets a byte for each
 * call, so that its length says how many there are. FAULT_END=1: the process is killed instead of
 * the call. FAULT_PROGRAM: only in processes of that name. What stdio writes is counted too, as its
 * streams are made of functions of ours. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum kind { WRITE, RENAME, SYNC, FORK, MEMORY, UNLINK, THREAD, KINDS };

static const struct {
    const char *name;
    int error;
} kinds[KINDS] = {
    [WRITE] = {"write", ENOSPC},   [RENAME] = {"rename", EACCES}, [SYNC] = {"sync", EIO},
    [FORK] = {"fork", EAGAIN},     [MEMORY] = {"memory", ENOMEM}, [UNLINK] = {"unlink", EACCES},
    [THREAD] = {"thread", EAGAIN},
};

static atomic_int chosen = -2; /* enum kind; -1: none; -2: not known yet */
static atomic_ulong calls;
static _Thread_local bool spared;

static int choose(void)
{
    const char *name = getenv("FAULT"), *program = getenv("FAULT_PROGRAM");
    int kind = -1;
    for (int i = 0; name && i < KINDS; i++)
        if (strcmp(name, kinds[i].name) == 0)
            kind = i;
    if (program && strcmp(program, program_invocation_short_name) != 0)
        kind = -1;
    return kind;
}

/* Whether this call fails. */
static bool fails(enum kind kind)
{
    if (chosen == -2)
        chosen = choose();
    if ((int)kind != chosen || spared)
        return false;
    const char *at = getenv("FAULT_AT"), *file = getenv("FAULT_FILE");
    const unsigned long n = at ? strtoul(at, NULL, 10) : 0, call = ++calls;
    if (n == 0 && file) { /* by the system alone: we may be in malloc */
        const int fd =
            (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0666);
        syscall(SYS_write, fd, "x", 1);
        syscall(SYS_close, fd);
    }
    if (call != n)
        return false;
    if (getenv("FAULT_END"))
        syscall(SYS_kill, (pid_t)syscall(SYS_getpid), SIGKILL);
    errno = kinds[kind].error;
    return true;
}

#define REAL(name) ((__typeof__(&(name)))(__UINTPTR_TYPE__)dlsym(RTLD_NEXT, #name))

/* ---- files ---- */

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at)
{
    return fails(WRITE) ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, from, bytes, at);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at)
{
    return fails(WRITE) ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, from, bytes, at);
}

static ssize_t write_stream(void *cookie, const char *from, size_t bytes)
{
    return fails(WRITE) ? 0 : (ssize_t)syscall(SYS_write, (int)(intptr_t)cookie - 1, from, bytes);
}

static int close_stream(void *cookie)
{
    return (int)syscall(SYS_close, (int)(intptr_t)cookie - 1);
}

FILE *fopen(const char *path, const char *mode)
{
    if (mode[0] != 'w')
        return REAL(fopen)(path, mode);
    if (fails(MEMORY)) /* which a stream takes before its file is made, and not again */
        return NULL;
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const cookie_io_functions_t functions = {.write = write_stream, .close = close_stream};
    spared = true;
    FILE *file = fd < 0 ? NULL : fopencookie((void *)(intptr_t)(fd + 1), mode, functions);
    spared = false;
    return file;
}

/* Of such a stream there is no descriptor to sync. */
int fsync(int fd)
{
    if (fails(SYNC))
        return -1;
    return fd < 0 ? 0 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    return fails(RENAME) ? -1 : (int)syscall(SYS_rename, from, to);
}

int unlink(const char *path)
{
    return fails(UNLINK) ? -1 : (int)syscall(SYS_unlink, path);
}

/* ---- processes and memory ---- */

pid_t fork(void)
{
    return fails(FORK) ? -1 : REAL(fork)();
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *context)
{
    return fails(THREAD) ? EAGAIN : REAL(pthread_create)(thread, attributes, run, context);
}

FILE *popen(const char *command, const char *mode)
{
    return fails(FORK) ? NULL : REAL(popen)(command, mode);
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    return fails(MEMORY) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails(MEMORY) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fails(MEMORY) ? NULL : __libc_realloc(old, bytes);
}
