/* test_run_fsdp1.c - plans of FSDP1 executed on real ranks: the numbers of PyTorch, the memory that
 * was planned (reference.h), checkpoints. */
#include "tests/support/program.h"
#include "tests/support/reference.h"
#include "tests/support/trajectory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define FP32 "--param-dtype fp32 --reduce-dtype fp32"

static void trajectories_are_pytorchs(void **state)
{
    (void)state;
    static const struct variation exact[] = {
        {1, 8, "--strategy fsdp1"},
        {4, 2, "--strategy fsdp1"},
        {4, 2, "--strategy fsdp1 --sharding SHARD_GRAD_OP --use-orig-params on"},
        {4, 2, "--strategy fsdp1 --sharding NO_SHARD --checkpointing full"},
        {2, 4, "--strategy fsdp1 --sharding NO_SHARD --use-orig-params on --optimizer-impl fused"},
        {4, 2, "--strategy fsdp1 --sharding HYBRID_SHARD --replicate 2 --backward-prefetch post"},
        {4, 2,
         "--strategy fsdp1 --sharding _HYBRID_SHARD_ZERO2 --replicate 2 --use-orig-params on "
         "--forward-prefetch 1 --optimizer-impl loop"},
        {2, 4, "--strategy fsdp1 --units none --optimizer-impl fused"},
        {4, 1, "--strategy fsdp1 --accumulate 2 --use-orig-params on --checkpointing selective"},
        {2, 2,
         "--strategy fsdp1 --accumulate 2 --accumulate-sync each --limit-all-gathers off "
         "--backward-prefetch none"},
    };
    static const struct variation rounded[] = {
        {4, 2, "--strategy fsdp1 --param-dtype bf16 --reduce-dtype fp32"},
        {2, 4, "--strategy fsdp1 --param-dtype bf16 --reduce-dtype fp32 --offload cpu"},
        {2, 2,
         "--strategy fsdp1 --param-dtype bf16 --reduce-dtype fp32 --offload cpu --accumulate 2 "
         "--sharding SHARD_GRAD_OP"},
        {2, 2,
         "--strategy fsdp1 --param-dtype bf16 --reduce-dtype fp32 --offload cpu --accumulate 2 "
         "--use-orig-params on"},
        {2, 2,
         "--strategy fsdp1 --param-dtype bf16 --reduce-dtype fp32 --offload cpu --accumulate 2 "
         "--sharding NO_SHARD"},
        {1, 8, "--strategy fsdp1 --param-dtype bf16 --offload cpu --use-orig-params on"},
        {4, 2, "--strategy fsdp1 --param-dtype bf16 --reduce-dtype bf16 --use-orig-params on"},
        {2, 4, "--strategy fsdp1 --param-dtype fp32 --autocast bf16"},
    };
    reference_check_each(exact, COUNT(exact), FP32, 1e-5);
    reference_check_each(rounded, COUNT(rounded), "", 2e-2);
}

static void a_run_continues_under_another_layout(void **state)
{
    (void)state;
    static const struct {
        struct variation first, second;
    } pairs[] = {
        {{4, 2, "--strategy fsdp1 --use-orig-params on"}, {2, 4, "--strategy fsdp1"}},
        {{2, 4, "--strategy fsdp1 --units none"},
         {4, 2, "--strategy fsdp1 --use-orig-params on --sharding SHARD_GRAD_OP"}},
        {{2, 4, "--strategy fsdp1"}, {4, 2, ""}},
    };
    for (size_t i = 0; i < COUNT(pairs); i++)
        reference_check_continued(&pairs[i].first, &pairs[i].second, FP32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajectories_are_pytorchs),
        cmocka_unit_test(a_run_continues_under_another_layout),
    };
    return cmocka_run_group_tests_name("run_fsdp1", tests, reference_open, trajectories_close);
}
