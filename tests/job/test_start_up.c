/* test_start_up.c - initialisation and checkpoints beside what PyTorch does (tests/data/truth). */
#include "job/start_up.h"

#include "job/start_up_program.h"
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef void (*check_row)(const json_t *row, const struct start_up_job *job);

enum {
    SYSTEMS_ROWS = 653,
    FILE_ROWS = 268,
    SCALARS = 20 /* bytes: flags, counters and hashes that systems compare among ranks */
};

static uint32_t wrong, with_files; /* rows whose numbers differ; that say bytes of files */

static uint32_t each_row(const char *path, check_row check)
{
    char line[8192];
    uint32_t rows = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *row = truth_row(line);
        assert_non_null(row);
        struct plan *plan = truth_plan(row, truth_read_written);
        assert_non_null(plan);
        struct strategy strategy;
        truth_strategy(row, &strategy);
        const json_t *given = json_object_get(row, "strategy");
        const json_t *model = json_object_get(row, "model");
        const struct start_up_job job = {
            .plan = plan,
            .strategy = &strategy,
            .tied = truth_bool(model, "tied", strcmp(truth_text(model, "kind", ""), "gpt2") == 0),
            .flatten_on_host = strcmp(truth_text(given, "flatten", ""), "cpu") == 0,
        };
        check(row, &job);
        plan_free(plan);
        json_decref(row);
        rows++;
    }
    fclose(file);
    return rows;
}

static uint64_t number(const json_t *row, const char *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(row, object), key));
}

static enum start_up_way way_of(const char *text)
{
    for (int way = 0; way < START_UP_WAYS; way++)
        if (strcmp(start_up_name((enum start_up_way)way), text) == 0)
            return (enum start_up_way)way;
    if (strcmp(text, "sharded_optim") == 0)
        return START_UP_SHARDED_OPTIMIZER;
    assert_string_equal(text, "full_optim");
    return START_UP_FULL_OPTIMIZER;
}

/* What is there before a way begins. */
static uint64_t residents(const struct start_up_job *job, enum start_up_way way, bool host)
{
    struct plan *program = start_up_program(job, way, job->plan->rank == 0);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->buffer_count; i++)
        if (program->buffers[i].resident && (program->buffers[i].pool == LANE_HOST) == host)
            bytes += program->buffers[i].bytes;
    plan_free(program);
    return bytes;
}

/* A way's own bytes: what lives before it is the step's business (and has the inputs). */
static void peaks_are_recorded(const json_t *row, const struct start_up_job *job)
{
    const enum start_up_way way = way_of(truth_text(row, "way", ""));
    struct memory memory;
    start_up_memory(job, way, job->plan->rank == 0, &memory);
    const uint64_t device = number(row, "peak", "device") - number(row, "start", "device");
    const uint64_t host = number(row, "peak", "host") - number(row, "start", "host");
    const uint64_t own_device = memory.device.bytes - residents(job, way, false);
    const uint64_t own_host = memory.host.bytes - residents(job, way, true);
    if (own_device != device || own_host != host)
        print_error("%s: device %lld (recorded %lld), host %lld (%lld)\n",
                    truth_text(row, "name", ""), (long long)own_device, (long long)device,
                    (long long)own_host, (long long)host);
    wrong += own_device != device || own_host != host;
    if (start_up_is_checkpoint(way) || way == START_UP_BROADCAST)
        return; /* which ends as meta, with the host's copy beside it */
    const uint64_t device_end = memory.device_live[PLAN_MARK_END];
    const uint64_t host_end = memory.live[PLAN_MARK_END] - device_end;
    const bool ends =
        device_end == number(row, "end", "device") && host_end == number(row, "end", "host");
    if (!ends)
        print_error("%s: at the end device %lld (recorded %lld), host %lld (%lld)\n",
                    truth_text(row, "name", ""), (long long)device_end,
                    (long long)number(row, "end", "device"), (long long)host_end,
                    (long long)number(row, "end", "host"));
    wrong += !ends;
}

static void collectives_are_recorded(const json_t *row, const struct start_up_job *job)
{
    const enum start_up_way way = way_of(truth_text(row, "way", ""));
    const json_t *gathered = json_object_get(row, "gathered");
    struct plan *program = start_up_program(job, way, job->plan->rank == 0);
    uint64_t recorded = 0, planned = 0;
    uint32_t count = 0;
    uint32_t large = 0;
    for (size_t i = 0; i < json_array_size(gathered); i++) {
        const uint64_t bytes = (uint64_t)json_integer_value(json_array_get(gathered, i));
        recorded += bytes > SCALARS ? bytes : 0;
        large += bytes > SCALARS;
    }
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const struct plan_instruction *in = &program->instructions[i];
        if (!plan_op_is_collective((enum plan_op)in->op))
            continue;
        const struct kernel *kernel = plan_kernel(program, in->arg);
        const struct operand *out = &kernel->operands[kernel->ins];
        const uint64_t bytes = shape_bytes(&out->shape, (enum dtype)out->dtype);
        planned += bytes > SCALARS ? bytes : 0;
        count += bytes > SCALARS;
    }
    if (count != large || planned != recorded)
        print_error("%s: %u collectives (recorded %u), %llu bytes (%llu)\n",
                    truth_text(row, "name", ""), count, large, (unsigned long long)planned,
                    (unsigned long long)recorded);
    wrong += count != large || planned != recorded;
    plan_free(program);
}

static void memory_is_pytorchs(void **state)
{
    (void)state;
    wrong = 0;
    assert_int_equal(each_row("tests/data/truth/start_up.jsonl", peaks_are_recorded), 174);
    assert_int_equal(each_row("tests/data/truth/start_up_systems.jsonl", peaks_are_recorded),
                     SYSTEMS_ROWS);
    assert_int_equal(wrong, 0);
}

static void collectives_are_pytorchs(void **state)
{
    (void)state;
    wrong = 0;
    assert_int_equal(each_row("tests/data/truth/start_up.jsonl", collectives_are_recorded), 174);
    assert_int_equal(each_row("tests/data/truth/start_up_systems.jsonl", collectives_are_recorded),
                     SYSTEMS_ROWS);
    assert_int_equal(wrong, 0);
}

/* Bytes of the tensors in the files that a rank of DDP or DeepSpeed writes or reads, and rank 0 of
 * FSDP1's full state dicts. */
static void payloads_are_recorded(const json_t *row, const struct start_up_job *job)
{
    const enum start_up_way way = way_of(truth_text(row, "way", ""));
    const json_t *files = json_object_get(row, "files");
    if (!files)
        return;
    uint64_t recorded = 0;
    for (size_t i = 0; i < json_array_size(files); i++)
        recorded += (uint64_t)json_integer_value(json_array_get(files, i));
    const uint64_t planned = start_up_file_bytes(job, way, job->plan->rank);
    if (planned != recorded)
        print_error("%s: %llu bytes of files (recorded %llu)\n", truth_text(row, "name", ""),
                    (unsigned long long)planned, (unsigned long long)recorded);
    wrong += planned != recorded;
    with_files++;
}

static void payloads_are_pytorchs(void **state)
{
    (void)state;
    wrong = with_files = 0;
    assert_int_equal(each_row("tests/data/truth/start_up_systems.jsonl", payloads_are_recorded),
                     SYSTEMS_ROWS);
    assert_int_equal(with_files, FILE_ROWS);
    assert_int_equal(wrong, 0);
}

/* Replicas of a shard share its tensors, each of them whole: their files together have it once. */
static void files_hold_what_is_planned(const json_t *row, const struct start_up_job *job)
{
    const json_t *payload = json_object_get(row, "payload");
    const struct start_up_bytes whole = start_up_whole(job);
    const struct plan *plan = job->plan;
    const uint32_t shards = plan_group_ranks(plan, plan_group_of_role(plan, GROUP_SHARD));
    assert_int_equal(json_array_size(payload), plan->world);
    assert_int_equal(whole.parameters + whole.states,
                     json_integer_value(json_object_get(row, "whole")));
    for (uint32_t shard = 0; shard < shards; shard++) {
        const struct start_up_bytes own = start_up_shards(job, shard);
        uint64_t written = 0;
        for (uint32_t rank = shard; rank < plan->world; rank += shards)
            written += (uint64_t)json_integer_value(json_array_get(payload, rank));
        assert_int_equal(own.parameters + own.states, written);
    }
}

static void files_are_pytorchs(void **state)
{
    (void)state;
    assert_int_equal(each_row("tests/data/truth/checkpoints.jsonl", files_hold_what_is_planned),
                     11);
}

static void loads_read_what_is_planned(const json_t *row, const struct start_up_job *job)
{
    const json_t *read = json_object_get(row, "read");
    const uint32_t saved_by = truth_number(row, "saved_by", 0);
    const struct plan *plan = job->plan;
    assert_int_equal(json_array_size(read), plan->world);
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        const struct start_up_bytes reads = start_up_reads(job, rank, saved_by);
        assert_int_equal(reads.parameters + reads.states,
                         json_integer_value(json_array_get(read, rank)));
    }
}

static void loads_are_pytorchs(void **state)
{
    (void)state;
    assert_int_equal(each_row("tests/data/truth/loads.jsonl", loads_read_what_is_planned), 27);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_pytorchs),    cmocka_unit_test(collectives_are_pytorchs),
        cmocka_unit_test(payloads_are_pytorchs), cmocka_unit_test(files_are_pytorchs),
        cmocka_unit_test(loads_are_pytorchs),
    };
    return cmocka_run_group_tests_name("start_up", tests, NULL, NULL);
}
