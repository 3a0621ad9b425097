/* odd_outcome.c - see odd_lines.h: what becomes of it. */
#include "base/file.h"
#include "tests/support/folder.h"
#include "tests/support/odd_lines.h"
#include "tests/support/program.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PROCESSOR_S = 60 };
#define MOST_BYTES (6ULL << 30) /* of a process */

static char folder[] = "/tmp/shardplan_odd.XXXXXX";
static char program[4096];

static void limit(int what, rlim_t most)
{
    const struct rlimit limit = {most, most};
    setrlimit(what, &limit);
}

static char *all_of(const char *name)
{
    size_t length;
    char *text = file_read(file_in(folder, name), &length, NULL);
    assert_non_null(text);
    return text;
}

/* Sanitizers reserve terabytes, and take several times as long. */
static bool sanitized(void)
{
    return strstr(program, "san/") != NULL;
}

static void be(char **words)
{
    const int in = open("/dev/null", O_RDONLY);
    const int out = open(file_in(folder, "stdout"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int error = open(file_in(folder, "stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(in, 0);
    dup2(out, 1);
    dup2(error, 2);
    limit(RLIMIT_CPU, (sanitized() ? 10 : 1) * PROCESSOR_S);
    limit(RLIMIT_CORE, 0);
    if (!sanitized())
        limit(RLIMIT_AS, MOST_BYTES);
    if (chdir(folder) == 0)
        execv(program, words);
    _exit(126);
}

struct odd_outcome odd_outcome_of(char **words)
{
    int status;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        be(words);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return (struct odd_outcome){
        .status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
        .out = all_of("stdout"),
        .error = all_of("stderr"),
    };
}

void odd_outcome_free(struct odd_outcome *outcome)
{
    free(outcome->out);
    free(outcome->error);
}

/* ---- what must hold ---- */

static bool has(const struct odd_line *line, const char *word)
{
    for (uint32_t i = 0; i < line->count; i++)
        if (strcmp(line->words[i], word) == 0)
            return true;
    return false;
}

static bool may_say_no(enum command command)
{
    return command == COMMAND_FIT || command == COMMAND_PLAN || command == COMMAND_TUNE ||
           command == COMMAND_SWEEP || command == COMMAND_COMPARE;
}

/* Where a whole job fits, what it takes is no more than there is. */
static const char *wrong_room(json_t *answer)
{
    const json_t *peak = json_object_get(answer, "peak");
    const json_t *room = json_object_get(answer, "headroom_bytes");
    if (!json_is_true(json_object_get(answer, "fits")))
        return NULL;
    if (json_is_integer(room) && json_integer_value(room) < 0)
        return "fits, with less than no room";
    if (json_is_object(peak) && json_integer_value(json_object_get(peak, "requested_bytes")) <= 0)
        return "fits, and asks for nothing";
    if (json_is_object(peak) && json_integer_value(json_object_get(peak, "requested_bytes")) >
                                    json_integer_value(json_object_get(peak, "reserved_bytes")))
        return "more is requested than reserved";
    return NULL;
}

static json_int_t integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* Of all categories; without those that no tensor is of. */
static json_int_t sum_of(json_t *categories, bool tensors)
{
    json_int_t sum = 0;
    const char *name;
    json_t *bytes;
    json_object_foreach(categories, name,
                        bytes) if (!tensors || (strcmp(name, "workspace") != 0 &&
                                                strcmp(name, "outside_allocator") != 0)) sum +=
        json_integer_value(bytes);
    return sum;
}

/* Numbers of one answer that are others' sums. */
static const char *wrong_sum(json_t *answer)
{
    static const char *const places[] = {"device", "host"};
    json_t *peak = json_object_get(answer, "peak");
    json_t *categories = json_object_get(answer, "categories");
    if (!json_is_object(peak) || !json_is_object(categories))
        return NULL;
    if (sum_of(categories, true) != integer(peak, "requested_bytes"))
        return "categories are not what is requested";
    if (integer(peak, "reserved_bytes") + integer(categories, "outside_allocator") !=
        integer(peak, "device_bytes"))
        return "reserved and outside are not the device's";
    if (integer(answer, "capacity_bytes") - integer(peak, "device_bytes") !=
        integer(answer, "headroom_bytes"))
        return "the rest is not the room left";
    for (int i = 0; i < 2; i++) {
        json_t *there = json_object_get(answer, places[i]);
        if (there && sum_of(json_object_get(there, "categories"), false) !=
                         integer(there, "requested_bytes"))
            return "a place's categories are not what it is asked for";
    }
    return NULL;
}

static const char *wrong_answer(const struct odd_line *line, const struct odd_outcome *o)
{
    const char *wrong = NULL;
    /* export has a file, run an object a step */
    if (has(line, "--json") && line->command != COMMAND_EXPORT && line->command != COMMAND_RUN) {
        json_t *answer = json_loads(o->out, 0, NULL);
        wrong = !json_is_object(answer) && !json_is_array(answer) ? "no JSON" : wrong_room(answer);
        wrong = wrong ? wrong : wrong_sum(answer);
        json_decref(answer);
    }
    return wrong;
}

const char *odd_wrong(const struct odd_line *line, const struct odd_outcome *o)
{
    if (strstr(o->error, "Sanitizer") || strstr(o->error, "runtime error"))
        return "a sanitizer's finding";
    if (strstr(o->error, "internal error"))
        return "an internal error";
    switch (o->status) {
    case 0:
        return wrong_answer(line, o);
    case 1:
        return may_say_no(line->command) ? wrong_answer(line, o) : "this command has no status 1";
    case 2:
        return strncmp(o->error, "shard", 5) != 0 ? "status 2 without a sentence" : NULL;
    case 3:
        return line->command == COMMAND_RUN && strncmp(o->error, "shard", 5) == 0 ? NULL
               : (line->command == COMMAND_PLAN || line->command == COMMAND_DIFF) &&
                       strstr(o->error, "out of host memory")
                   ? NULL /* a program can be larger than any memory: fit needs none of it */
                   : "status 3, and nothing failed";
    default:
        return o->status > 128 ? "ended by a signal" : "a status that the manual does not have";
    }
}

void odd_show(const struct odd_line *line, uint64_t number, const struct odd_outcome *o,
              const char *what)
{
    fprintf(stderr, "line %llu: %s (status %d):\n    ", (unsigned long long)number, what,
            o->status);
    for (uint32_t i = 0; i < line->count; i++)
        fprintf(stderr, " '%.80s'", line->words[i]);
    fprintf(stderr, "\n    %.600s\n", o->error);
}
struct odd_span odd_span_of(uint64_t count)
{
    const char *jobs = getenv("SOAK_JOBS"), *first = getenv("SOAK_FIRST");
    const uint64_t begin = first ? strtoull(first, NULL, 10) : 0;
    return (struct odd_span){begin, begin + (jobs ? strtoull(jobs, NULL, 10) : count)};
}

/* ---- the files that lines name ---- */

const char *odd_folder(void)
{
    return folder;
}

int odd_set_up(void **state)
{
    (void)state;
    const char *named = getenv("SHARDPLAN");
    if (!realpath(named ? named : "build/shardplan", program) || folder_make(folder) != 0)
        return -1;
    return shell("d=%s; t=tests/data; mkdir $d/folder.json && : >$d/empty.json && "
                 "cp $t/configs/toy-llama/config.json $t/fuzz/least.json $d && "
                 "cp $t/recorded/gpt2.stream.json.gz $d/recorded.json && "
                 "cp $t/fuzz/fuzz_profile/whole.json $d/profile.json && "
                 "cp $t/gpu/matmul_h100.csv $d/kernels.csv && "
                 "cp $t/nccl-tests/named.txt $d/nccl.txt && "
                 "cp $t/frameworks/torchtitan_8b.toml $d/torchtitan.toml && "
                 "cp $t/frameworks/accelerate_fsdp2.yaml $d/accelerate.yaml && "
                 "cp $t/frameworks/deepspeed_zero3.json $d/deepspeed.json && "
                 "cp $t/frameworks/deepspeed_auto.json $d/zero.json && "
                 "^/shardplan plan $d/least.json --code nanogpt --gpus 2 --seq 6 -q -o $d/made && "
                 "mv $d/made/plan.json $d/made/trace.json $d && "
                 "^/shardplan plan $d/config.json --gpus 2 --seq 8 -q -o $d/older",
                 folder);
}

int odd_tear_down(void **state)
{
    (void)state;
    return folder_remove(folder);
}
