/* test_names.c - one name in many spellings; distances known from the literature. */
#include "base/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void case_and_separators_make_no_other_name(void **state)
{
    (void)state;
    static const char *const alike[][2] = {
        {"llama-3.1-8b", "Llama-3.1-8B"},
        {"llama-3.1-8b", "llama3.1-8b"},
        {"llama-3.1-8b", "LLAMA 3.1_8b"},
        {"rtx-4090", "RTX 4090"},
        {"a100-sxm-80gb", "A100_SXM_80GB"},
        {"gpt2", "gpt-2"},
        {"phi-1_5", "phi-1.5"},
        {"stablelm-2-1_6b", "StableLM 2-1.6b"},
        {"", "-"},
    };
    static const char *const other[][2] = {
        {"llama-2-7b", "llama-27b"},
        {"opt-13b", "opt-1-3b"},
        {"opt-1.3b", "opt-13b"},
        {"opt-1.3b", "opt-1-3b"},
        {"opt-1__3b", "opt-1.3b"},
        {"v0.1", "v0_a"},
        {"qwen2.5-7b", "qwen2-57b"},
        {"h100", "h1000"},
        {"h100", "h10"},
        {"llama-3.1-8b", "llama3.18b"},
        {"gpt2", ""},
    };
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
        if (!names_alike(alike[i][0], alike[i][1]) || !names_alike(alike[i][1], alike[i][0]))
            fail_msg("%s and %s are one name", alike[i][0], alike[i][1]);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (names_alike(other[i][0], other[i][1]) || names_alike(other[i][1], other[i][0]))
            fail_msg("%s and %s are two names", other[i][0], other[i][1]);
}

/* The textbook pairs: kitten/sitting, Saturday/Sunday. */
static void distances_are_levenshteins(void **state)
{
    (void)state;
    assert_int_equal(names_distance("kitten", "sitting"), 3);
    assert_int_equal(names_distance("Saturday", "sunday"), 3);
    assert_int_equal(names_distance("", "abc"), 3);
    assert_int_equal(names_distance("same", "SAME"), 0);
    assert_true(names_near("nevr", "never"));
    assert_false(names_near("foo", "never"));
    assert_int_equal(names_kin("lama-3-8b", "llama-2-70b"), NAMES_SLIP);
    assert_int_equal(names_kin("BERT", "bert-large"), NAMES_KIN);
    assert_int_equal(names_kin("abc-7b", "mpt-7b"), NAMES_OTHERS);
    assert_int_equal(names_kin("gpt-5", "glm-5"), NAMES_OTHERS);
    assert_int_equal(names_kin("7b", "7b"), NAMES_OTHERS);
}

static void of_two_as_near_the_one_with_the_same_beginning_is_meant(void **state)
{
    (void)state;
    assert_true(names_nearer("h10", "h100", "a10"));
    assert_false(names_nearer("h10", "a10", "h100"));
    assert_true(names_nearer("H10", "a10", "b300"));
    assert_true(names_nearer("h10", "a10", NULL));
    assert_false(names_nearer("nevr", "never", "never")); /* the first of equals stays */
}

static void a_slip_is_nearer_than_a_name_of_its_own(void **state)
{
    (void)state;
    assert_true(names_misspelt("training.seqlen", "training.seq_len"));
    assert_true(names_misspelt("trainig.seq_len", "training.seq_len"));
    assert_true(names_misspelt("tensor_paralel_degree", "tensor_parallel_degree"));
    assert_true(names_misspelt("lora_rnk", "lora_rank"));
    assert_true(names_misspelt("bf1", "bf16"));
    assert_false(names_misspelt("fp8", "bf16"));
    assert_false(names_misspelt("tp", "pp"));
    assert_true(names_lacks_word("gradient_accumulation", "gradient_accumulation_steps"));
    assert_true(names_lacks_word("per_device_batch_size", "per_device_train_batch_size"));
    assert_false(names_lacks_word("batch_size", "per_device_train_batch_size")); /* two */
    assert_false(names_lacks_word("steps", "max_steps")); /* a word of its own */
    assert_false(names_lacks_word("size_batch", "micro_batch_size"));
    assert_false(names_lacks_word("batch_size", "batch_size"));
    assert_false(names_misspelt("hub_strategy", "save_strategy"));
    assert_false(names_misspelt("training.mystery", "training.steps"));
}

static void a_list_is_cut_where_it_is_full(void **state)
{
    (void)state;
    static const char *const names[] = {"one", "two", "three"};
    char text[64];
    assert_string_equal(names_list(names, 3, text, sizeof text), "one, two, three");
    assert_string_equal(names_list(names, 0, text, sizeof text), "");
    assert_string_equal(names_list(names, 3, text, 6), "one, ");
}

static void a_pattern_may_have_a_range(void **state)
{
    (void)state;
    static const struct {
        const char *patterns, *name;
        bool in;
    } cases[] = {
        {"layers.3", "layers.3", true},
        {"layers.3", "layers.30", false},
        {"layers.3-9", "layers.2", false},
        {"layers.3-9", "layers.3", true},
        {"layers.3-9", "layers.9", true},
        {"layers.3-9", "layers.10", false},
        {"layers.3-9", "layers.4.mlp", false},
        {"layers.3-9.mlp.experts", "layers.4.mlp.experts", true},
        {"layers.3-9.*", "layers.4.mlp.experts", true},
        {"block2.layers.8-11", "block2.layers.10", true},
        {"norm,layers.0-1,h.7", "h.7", true},
        {"norm,layers.0-1,h.7", "layers.1", true},
        {"norm,layers.0-1,h.7", "layers", false},
        {"layers.[12]", "layers.2", true},
        {"layers.1[0-2]", "layers.11", true},
        {"*", "layers.11", true},
        {"layers.9-3", "layers.5", false},
        {"", "", false},
        {NULL, "layers.0", false},
        {"layers.-3", "layers.3", false},
        {"layers.0-99999999999999999999", "layers.3", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (names_in(cases[i].patterns, cases[i].name) != cases[i].in)
            fail_msg("%s in %s", cases[i].name, cases[i].patterns);
}

static void patterns_are_as_long_as_names(void **state)
{
    (void)state;
    char name[300], patterns[310];
    memset(name, 'm', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(patterns, sizeof patterns, "a,%s,b", name);
    assert_true(names_match(patterns, name) && names_in(patterns, name));
    name[127] = '\0'; /* what it begins with is another name */
    assert_false(names_match(patterns, name) || names_in(patterns, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_and_separators_make_no_other_name),
        cmocka_unit_test(distances_are_levenshteins),
        cmocka_unit_test(of_two_as_near_the_one_with_the_same_beginning_is_meant),
        cmocka_unit_test(a_slip_is_nearer_than_a_name_of_its_own),
        cmocka_unit_test(a_list_is_cut_where_it_is_full),
        cmocka_unit_test(a_pattern_may_have_a_range),
        cmocka_unit_test(patterns_are_as_long_as_names),
    };
    return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
