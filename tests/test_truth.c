/* test_truth.c - our event lists and numbers beside those recorded from PyTorch itself.
 *
 * tests/data/truth holds recordings of torch 2.14.1's own fully_shard (see the README there). Each
 * configuration is planned here and compared: every event's bytes, sign and order, its category,
 * where the host was and what was born; and every number of the configurations without events. */
#include "truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static bool read_model(const json_t *row, struct model_config *c, struct model_job *job)
{
    const json_t *m = json_object_get(row, "model");
    job->batch = truth_number(m, "batch", 1);
    job->seq = truth_number(m, "seq", 1);
    const char *kind = truth_text(m, "kind", "");
    *c = (struct model_config){
        .hidden = truth_number(m, "dim", 0),
        .layers = truth_number(m, "layers", 0),
        .heads = truth_number(m, "heads", 1),
        .vocab = truth_number(m, "vocab", 0),
        .max_positions = truth_number(m, "seq", 0),
        .tied = truth_bool(m, "tied", true),
    };
    c->kv_heads = truth_number(m, "kv_heads", c->heads);
    c->ffn = truth_number(m, "ffn", 4 * c->hidden);
    c->head_dim = c->hidden / c->heads;
    c->arch = strcmp(kind, "gpt2") == 0    ? ARCH_GPT2
              : strcmp(kind, "guide") == 0 ? ARCH_FSDP2_TUTORIAL
                                           : ARCH_LLAMA;
    if (c->arch == ARCH_LLAMA)
        c->tied = false;
    job->code = model_default_code(c->arch);
    return true;
}

static void events_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/events.jsonl", true, read_model);
}

static void events_of_more_strategies_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/more_events.jsonl", true, read_model);
}

static void peaks_and_marks_equal_pytorchs(void **state)
{
    (void)state;
    truth_check_file("tests/data/truth/visible.jsonl", false, read_model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_pytorchs),
        cmocka_unit_test(events_of_more_strategies_equal_pytorchs),
        cmocka_unit_test(peaks_and_marks_equal_pytorchs),
    };
    return cmocka_run_group_tests_name("truth", tests, NULL, NULL);
}
