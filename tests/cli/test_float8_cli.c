/* test_float8_cli.c - --float8 as people call it: what it changes, and what is refused. SHARDPLAN
 * names the program. */
#include "tests/support/program.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOY "fit tests/data/configs/toy-llama --gpus 2 --seq 256 --gpu h100"

static void expect_refused(const char *options, const char *says)
{
    const int status = shardplan(TOY " %s", options);
    if (status != 2 || !strstr(program_output(), says))
        fail_msg("%s: exit %d, no \"%s\" in: %s", options, status, says, program_output());
}

static void what_is_not_planned_is_refused(void **state)
{
    (void)state;
    expect_refused("--float8 tensorwise --gpu a100-80gb", "multiplies no float8");
    expect_refused("--float8 rowwise --code hf --lora 8", "--float8 with --lora");
    expect_refused("--float8 rowwise --strategy ddp --autocast bf16", "--float8 with --autocast");
    expect_refused("--float8 rowwise --compile on --strategy ddp", "16 bits");
    expect_refused("--float8 rowwise --strategy zero3", "--float8");
    expect_refused("--float8 colwise", "rowwise_with_gw_hp");
    expect_refused("--float8-gather dynamic", "--float8 tensorwise");
    expect_refused("--float8 rowwise --float8-gather dynamic", "--float8 tensorwise");
    expect_refused("--float8 tensorwise --float8-gather dynamic --strategy ddp", "--float8-gather");
    expect_refused("--float8 tensorwise --float8-gather dynamic --gpus 1", "without sharding");
    expect_refused("--float8 tensorwise --float8-gather dynamic --gpus 3", "evenly");
}

/* torch.compile with and without checkpointing, of each recipe. */
static void compiled_products_are_planned(void **state)
{
    (void)state;
    static const char *const recipes[] = {"tensorwise", "rowwise", "rowwise_with_gw_hp"};
    static const char *const ways[] = {"none", "full", "selective"};
    for (size_t r = 0; r < 3; r++)
        for (size_t w = 0; w < 3; w++)
            assert_int_equal(shardplan(TOY " --compile on --float8 %s --checkpointing %s --time",
                                       recipes[r], ways[w]),
                             0);
}

/* A compiled block keeps copies of some weights that come in float8, transposed, in float8
 * (compile/region.c), and checkpointed ones none. */
static void gathers_in_float8_go_with_compiled_blocks(void **state)
{
    (void)state;
    static const char *const scales[] = {"dynamic", "precomputed"};
    static const char *const ways[] = {"none", "full", "selective"};
    for (size_t s = 0; s < 2; s++)
        for (size_t w = 0; w < 3; w++)
            assert_int_equal(shardplan(TOY " --compile on --float8 tensorwise --float8-gather %s "
                                           "--checkpointing %s --time",
                                       scales[s], ways[w]),
                             0);
}

static json_int_t requested(const char *options)
{
    assert_int_equal(shardplan(TOY " --json %s", options), 0);
    json_t *fit = program_object();
    const json_t *peak = json_object_get(fit, "peak");
    const json_int_t bytes = json_integer_value(json_object_get(peak, "requested_bytes"));
    json_decref(fit);
    return bytes;
}

/* What a linear layer keeps for backward is in the compute dtype, as without: at rest nothing is
 * in float8, and transients only add. */
static void eager_products_save_no_memory(void **state)
{
    (void)state;
    const json_int_t without = requested("");
    assert_true(requested("--float8 tensorwise") >= without);
    assert_true(requested("--float8 rowwise") >= without);
    assert_true(requested("--float8 rowwise_with_gw_hp") >= without);
}

/* A byte an element of a block's weights, where there were two. */
static void weights_in_float8_are_gathered_in_less(void **state)
{
    (void)state;
    const json_int_t before = requested("--float8 tensorwise");
    assert_true(requested("--float8 tensorwise --float8-gather dynamic") < before);
    assert_true(requested("--float8 tensorwise --float8-gather precomputed") < before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_planned_is_refused),
        cmocka_unit_test(compiled_products_are_planned),
        cmocka_unit_test(gathers_in_float8_go_with_compiled_blocks),
        cmocka_unit_test(eager_products_save_no_memory),
        cmocka_unit_test(weights_in_float8_are_gathered_in_less),
    };
    return cmocka_run_group_tests_name("float8_cli", tests, NULL, NULL);
}
