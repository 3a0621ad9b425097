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

typedef void (*check_row)(const json_t *row, const struct plan *plan, bool tied);

static uint32_t each_row(const char *path, check_row check)
{
    char line[8192];
    uint32_t rows = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        struct plan *plan = truth_plan(row, truth_read_written);
        assert_non_null(plan);
        check(row, plan,
              strcmp(truth_text(json_object_get(row, "model"), "kind", ""), "gpt2") == 0);
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
    assert_string_equal(text, "full_optim");
    return START_UP_FULL_OPTIMIZER;
}

static uint64_t residents(const struct plan *plan, bool host)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        if ((plan->buffers[i].resident || plan->buffers[i].carried) &&
            (plan->buffers[i].pool == LANE_HOST) == host)
            bytes += plan->buffers[i].bytes;
    return bytes;
}

/* A checkpoint's own bytes: what lives before it is the step's business (and has the inputs). */
static void peaks_are_recorded(const json_t *row, const struct plan *plan, bool tied)
{
    const enum start_up_way way = way_of(truth_text(row, "way", ""));
    const bool saves = start_up_is_checkpoint(way);
    struct memory memory;
    start_up_memory(plan, tied, way, plan->rank == 0, &memory);
    const uint64_t device = number(row, "peak", "device") - number(row, "start", "device");
    const uint64_t host = number(row, "peak", "host") - number(row, "start", "host");
    const uint64_t own_device = memory.device.bytes - (saves ? residents(plan, false) : 0);
    const uint64_t own_host = memory.host.bytes - (saves ? residents(plan, true) : 0);
    if (own_device != device || own_host != host)
        print_error("%s: device %lld (recorded %lld), host %lld (%lld)\n",
                    truth_text(row, "name", ""), (long long)own_device, (long long)device,
                    (long long)own_host, (long long)host);
    assert_int_equal(own_device, device);
    assert_int_equal(own_host, host);
    if (!saves &&
        way != START_UP_BROADCAST) /* which ends as meta, with the host's copy beside it */
        assert_int_equal(memory.live[PLAN_MARK_END], number(row, "end", "device"));
}

static void collectives_are_recorded(const json_t *row, const struct plan *plan, bool tied)
{
    const enum start_up_way way = way_of(truth_text(row, "way", ""));
    const json_t *gathered = json_object_get(row, "gathered");
    struct plan *program = start_up_program(plan, tied, way, plan->rank == 0);
    uint64_t recorded = 0, planned = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < json_array_size(gathered); i++)
        recorded += (uint64_t)json_integer_value(json_array_get(gathered, i));
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const struct plan_instruction *in = &program->instructions[i];
        if (!plan_op_is_collective((enum plan_op)in->op))
            continue;
        const struct kernel *kernel = plan_kernel(program, in->arg);
        const struct operand *out = &kernel->operands[kernel->ins];
        planned += shape_bytes(&out->shape, (enum dtype)out->dtype);
        count++;
    }
    assert_int_equal(count, json_array_size(gathered));
    assert_int_equal(planned, recorded);
    plan_free(program);
}

static void memory_is_pytorchs(void **state)
{
    (void)state;
    assert_int_equal(each_row("tests/data/truth/start_up.jsonl", peaks_are_recorded), 72);
}

static void collectives_are_pytorchs(void **state)
{
    (void)state;
    assert_int_equal(each_row("tests/data/truth/start_up.jsonl", collectives_are_recorded), 72);
}

/* Replicas of a shard share its tensors, each of them whole: their files together have it once. */
static void files_hold_what_is_planned(const json_t *row, const struct plan *plan, bool tied)
{
    const json_t *payload = json_object_get(row, "payload");
    const struct start_up_bytes whole = start_up_whole(plan, tied);
    const uint32_t shards = plan_group_ranks(plan, plan_group_of_role(plan, GROUP_SHARD));
    assert_int_equal(json_array_size(payload), plan->world);
    assert_int_equal(whole.parameters + whole.states,
                     json_integer_value(json_object_get(row, "whole")));
    for (uint32_t shard = 0; shard < shards; shard++) {
        const struct start_up_bytes own = start_up_shards(plan, tied, shard);
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

static void loads_read_what_is_planned(const json_t *row, const struct plan *plan, bool tied)
{
    const json_t *read = json_object_get(row, "read");
    const uint32_t saved_by = truth_number(row, "saved_by", 0);
    assert_int_equal(json_array_size(read), plan->world);
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        const struct start_up_bytes reads = start_up_reads(plan, tied, rank, saved_by);
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
        cmocka_unit_test(memory_is_pytorchs),
        cmocka_unit_test(collectives_are_pytorchs),
        cmocka_unit_test(files_are_pytorchs),
        cmocka_unit_test(loads_are_pytorchs),
    };
    return cmocka_run_group_tests_name("start_up", tests, NULL, NULL);
}
