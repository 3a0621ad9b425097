/* test_blocks.c - classes of blocks, beside those that transformers 5.23 builds
 * (tests/truth/block_classes.py). */
#include "families/blocks.h"
#include "families/families.h"
#include "families/family.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DATA "tests/data/frameworks/block_classes.jsonl"

/* A preset of a family, or its bare row. */
static struct model_config of_class(const char *class_name)
{
    struct model_config config = {.layers = 0};
    for (int arch = 0; arch < ARCH_COUNT; arch++) {
        const struct family *family = family_of((enum arch)arch);
        config.arch = (enum arch)arch;
        if (family->class_name && strcmp(family->class_name, class_name) == 0)
            return config;
    }
    fail_msg("no family has %s", class_name);
    return config;
}

static size_t count_in(const char *list)
{
    size_t count = 1;
    for (; *list; list++)
        count += *list == ',';
    return count;
}

static void blocks_have_the_classes_that_transformers_has(void **state)
{
    FILE *file = fopen(DATA, "r");
    char line[512], classes[BLOCK_CLASSES_SIZE];
    uint32_t lines = 0;
    (void)state;
    assert_non_null(file);
    for (; fgets(line, sizeof line, file); lines++) {
        json_t *row = json_loads(line, 0, NULL);
        const json_t *theirs = json_array_get(row, 2);
        const struct model_config config = of_class(json_string_value(json_array_get(row, 1)));
        model_block_classes(&config, classes);
        if (count_in(classes) != json_array_size(theirs))
            fail_msg("%s has %zu classes, not %s", line, json_array_size(theirs), classes);
        for (size_t i = 0; i < json_array_size(theirs); i++)
            if (model_module_class(&config, json_string_value(json_array_get(theirs, i))) !=
                CLASS_BLOCK)
                fail_msg("%s: %s", line, classes);
        json_decref(row);
    }
    fclose(file);
    assert_in_range(lines, 100, 1000);
}

static enum module_class class_in(const char *preset, const char *name)
{
    struct model_config config;
    struct err err = {0};
    if (model_preset_find(preset, &config, &err) != ERR_OK)
        fail_msg("%s", err.text);
    const enum module_class class = model_module_class(&config, name);
    model_release(&config);
    return class;
}

/* A family's name may begin another's: Qwen2 is not Qwen2Moe, nor Glm Glm4. */
static void classes_are_told_apart(void **state)
{
    (void)state;
    assert_int_equal(class_in("llama-3.1-8b", "LlamaDecoderLayer"), CLASS_BLOCK);
    assert_int_equal(class_in("llama-3.1-8b", "LlamaMLP"), CLASS_OTHER);
    assert_int_equal(class_in("llama-3.1-8b", "Embedding"), CLASS_OTHER);
    assert_int_equal(class_in("llama-3.1-8b", "Qwen2DecoderLayer"), CLASS_FOREIGN);
    assert_int_equal(class_in("llama-3.1-8b", "llamadecoderlayer"), CLASS_FOREIGN);
    assert_int_equal(class_in("llama-3.1-8b", "LlamaDecodeLayer"), CLASS_FOREIGN);
    assert_int_equal(class_in("llama-3.1-8b", "Thing"), CLASS_FOREIGN);
    assert_int_equal(class_in("llama-3.1-8b", ""), CLASS_FOREIGN);
    assert_int_equal(class_in("qwen2.5-7b", "Qwen2MoeDecoderLayer"), CLASS_FOREIGN);
    assert_int_equal(class_in("gpt2", "GPT2Block"), CLASS_BLOCK);
    assert_int_equal(class_in("gpt2", "GPT2MLP"), CLASS_OTHER);
    assert_string_equal(block_class_owner("LlamaDecoderLayer"), "llama");
    assert_null(block_class_owner("LlamaMLP"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_the_classes_that_transformers_has),
        cmocka_unit_test(classes_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
