/* program.c - see program.h. */
#include "tests/support/program.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { LINE = 4096, WORDS = 256 };

static char output[1 << 20];

static const char *program(void)
{
    const char *named = getenv("SHARDPLAN");
    return named ? named : "build/shardplan";
}

int program_seconds(void)
{
    const char *given = getenv("TEST_SECONDS");
    const int seconds = given ? atoi(given) : 0;
    return seconds > 0 ? seconds : 300;
}

void program_beside(const char *name, char *path, size_t size)
{
    const int folder = (int)(strrchr(program(), '/') - program());
    snprintf(path, size, "%.*s/%s", folder, program(), name);
}

bool program_read(int from, int seconds)
{
    const time_t end = time(NULL) + seconds;
    struct pollfd pipe = {.fd = from, .events = POLLIN};
    char rest[4096]; /* more than there is room for */
    size_t used = 0;
    for (ssize_t got = 1; got > 0;) {
        const bool full = used == sizeof output - 1;
        const time_t left = end - time(NULL);
        if (left <= 0)
            break;
        if (poll(&pipe, 1, (int)left * 1000) <= 0)
            continue;
        got = full ? read(from, rest, sizeof rest)
                   : read(from, output + used, sizeof output - 1 - used);
        used += full || got < 0 ? 0 : (size_t)got;
        output[used] = '\0';
        if (got == 0)
            return true;
    }
    return false;
}

static int run(const char *command)
{
    output[0] = '\0';
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return -1;
    const size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The words that the shell would make of a line, in its place, after what is in `words` and ended
 * by NULL; false: the shell alone knows. */
static bool take_words(char *line, char *words[WORDS], size_t count)
{
    char quote = '\0', *to = line;
    bool in_word = false;
    for (const char *c = line; *c; c++) {
        const bool bare = !quote, is_quote = bare ? *c == '\'' || *c == '"' : *c == quote;
        const bool ends = bare && *c == ' ';
        if (strchr(bare ? "$`\\|&;<>()*?[]{}~#\n\t" : quote == '"' ? "$`\\" : "", *c))
            return false;
        if (!ends && !in_word && count == WORDS - 1)
            return false;
        if (!ends && !in_word)
            words[count++] = to;
        if (ends && in_word)
            *to++ = '\0';
        in_word = !ends;
        if (is_quote)
            quote = bare ? *c : '\0';
        else if (!ends)
            *to++ = *c;
    }
    *to = '\0';
    words[count] = NULL;
    return !quote;
}

/* Starts the program of words[0], both streams into `to`, in a group of its own. -1: it cannot be.
 */
static pid_t start(char **words, int to)
{
    extern char **environ;
    posix_spawn_file_actions_t streams;
    posix_spawnattr_t group;
    pid_t pid = -1;
    posix_spawn_file_actions_init(&streams);
    posix_spawn_file_actions_adddup2(&streams, to, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&streams, to, STDERR_FILENO);
    posix_spawnattr_init(&group);
    posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
    if (posix_spawnp(&pid, words[0], &streams, &group, words, environ) != 0)
        pid = -1;
    posix_spawnattr_destroy(&group);
    posix_spawn_file_actions_destroy(&streams);
    return pid;
}

static int run_words(char **words)
{
    int ends[2], status = 0;
    output[0] = '\0';
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    const pid_t pid = start(words, ends[1]);
    close(ends[1]);
    if (pid >= 0 && !program_read(ends[0], 4 * program_seconds()))
        kill(-pid, SIGKILL);
    close(ends[0]);
    return pid >= 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                            : -1;
}

/* Without a shell and `timeout`, which took as long to start as it takes to plan a small model,
 * where the line has nothing for a shell. A processor's seconds are then those of tests/run. */
static int run_shardplan(const char *arguments)
{
    char named[LINE / 2], line[LINE / 2], command[LINE], *words[WORDS] = {named};
    snprintf(named, sizeof named, "%s", program());
    snprintf(line, sizeof line, "%s", arguments);
    if (take_words(line, words, 1))
        return run_words(words);
    snprintf(command, sizeof command, PROGRAM_LIMITS "%s %s 2>&1", program(), arguments);
    return run(command);
}

int shardplan(const char *fmt, ...)
{
    char arguments[LINE / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(arguments, sizeof arguments, fmt, args);
    va_end(args);
    return run_shardplan(arguments);
}

void shardplan_says(int status, const char *says, const char *fmt, ...)
{
    char arguments[LINE / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(arguments, sizeof arguments, fmt, args);
    va_end(args);
    const int got = run_shardplan(arguments);
    if (got != status || !strstr(program_output(), says))
        fail_msg("%s: exit %d instead of %d: %s", arguments, got, status, program_output());
}

int shell(const char *fmt, ...)
{
    char line[LINE], command[LINE];
    size_t used = 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    const int folder = (int)(strrchr(program(), '/') - program());
    for (const char *c = line; *c && used < sizeof command - 1; c++)
        used += (size_t)(*c == '^' ? snprintf(command + used, sizeof command - used, "%.*s", folder,
                                              program())
                                   : snprintf(command + used, sizeof command - used, "%c", *c));
    return run(command);
}

const char *program_python(void)
{
    const char *named = getenv("SHARDPLAN_PYTHON");
    return named && *named ? named : "python3";
}

char *program_output(void)
{
    return output;
}

json_t *program_object(void)
{
    json_error_t at;
    json_t *object = json_loads(program_output(), 0, &at);
    if (!object)
        fail_msg("line %d: %s: %s", at.line, at.text, program_output());
    return object;
}
