/* test_cudnn_plans.c - that engines of cuDNN take the graphs of cuda_dnn.c, as cuDNN itself says it
 * of GPUs that are not here: it makes plans by their properties (tests/data/cudnn), compiles their
 * kernels, and loads them into a driver that runs none (tests/driver). What they compute is not for
 * this test, nor is speed. */
#include "runtime/cuda/backend.h"
#include "runtime/device/device.h"
#include "runtime/work/operand.h"
#include "tests/support/soak.h"

#include <dlfcn.h>
#include <libgen.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct form {
    uint32_t b, s, a, a_k, d;
    enum dtype dtype;
    bool causal;
};

static cuda_ask_function *ask; /* NULL: nobody is there to be asked */
static char *properties;

/* The backend, with that driver as its own. */
static int set_up(void **state)
{
    (void)state;
    const char *file = getenv(CUDA_BACKEND_VARIABLE);
    char folder[4096], driver[4200];
    if (!file)
        return 0;
    snprintf(folder, sizeof folder, "%s", file);
    snprintf(driver, sizeof driver, "%s/driver/libcuda.so.1", dirname(folder));
    void *library =
        dlopen(driver, RTLD_NOW | RTLD_GLOBAL) ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library ? dlsym(library, CUDA_ASK_SYMBOL) : NULL;
    memcpy(&ask, &symbol, sizeof ask);
    return 0;
}

static struct work_operand operand(enum dtype dtype, struct shape shape)
{
    /* of addresses only the alignment is looked at */
    return (struct work_operand){
        .data = (void *)(uintptr_t)4096, .shape = shape, .dtype = (uint8_t)dtype};
}

static struct cuda_answer answer_to(const struct form *form, bool backward, bool deterministic)
{
    const struct shape q = SHAPE(form->b, form->s, form->a, form->d);
    const struct shape k = SHAPE(form->b, form->s, form->a_k, form->d);
    const struct shape o = SHAPE(form->b, form->a, form->s, form->d);
    const enum dtype dtype = form->dtype;
    const struct work_operand rows = operand(DTYPE_FP32, SHAPE(form->b, form->a, form->s));
    struct work_operand forth[] = {operand(dtype, q), operand(dtype, k), operand(dtype, k),
                                   operand(dtype, o), rows};
    struct work_operand back[] = {
        operand(dtype, o), operand(dtype, q), operand(dtype, k), operand(dtype, k), rows,
        operand(dtype, o), operand(dtype, q), operand(dtype, k), operand(dtype, k)};
    const struct work work = {.kind = backward ? WORK_ATTENTION_BACKWARD : WORK_ATTENTION,
                              .ins = backward ? 6 : 3,
                              .outs = backward ? 3 : 2,
                              .operand = backward ? back : forth,
                              .attr.causal = form->causal,
                              .ranks = 1,
                              .group = -1};
    struct cuda_answer answer;
    struct err err = {0};
    if (ask(CUDA_BACKEND_VERSION, properties, deterministic, &work, &answer, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return answer;
}

/* False, and the test is skipped: no cuDNN that can be asked. */
static bool use_gpu(const char *name)
{
    static char text[4096], asked[16]; /* of whom a plan was made last */
    const struct form any = {1, 128, 1, 1, 64, DTYPE_BF16, true};
    char path[64];
    if (!ask) {
        printf("note: the cuda backend or tests/driver is not built\n");
        skip();
        return false;
    }
    if (strcmp(asked, name) == 0)
        return true;
    snprintf(path, sizeof path, "tests/data/cudnn/%s.json", name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    properties = text;
    const struct work_operand q = operand(any.dtype, SHAPE(1, 128, 1, 64));
    struct work_operand all[] = {q, q, q, operand(any.dtype, SHAPE(1, 1, 128, 64)),
                                 operand(DTYPE_FP32, SHAPE(1, 1, 128))};
    const struct work work = {
        .kind = WORK_ATTENTION, .ins = 3, .outs = 2, .operand = all, .ranks = 1, .group = -1};
    struct cuda_answer answer;
    struct err err = {0};
    if (ask(CUDA_BACKEND_VERSION, properties, false, &work, &answer, &err) == ERR_OK) {
        snprintf(asked, sizeof asked, "%s", name);
        return true;
    }
    printf("note: %s\n", err.text);
    skip();
    return false;
}

static uint64_t bytes_of(const struct form *form, bool backward, bool deterministic)
{
    const struct cuda_answer answer = answer_to(form, backward, deterministic);
    if (answer.why_not[0])
        fail_msg("%u x %u x %u (%u) x %u%s%s: %s", form->b, form->s, form->a, form->a_k, form->d,
                 backward ? " backward" : "", deterministic ? ", deterministic" : "",
                 answer.why_not);
    return answer.work_bytes;
}

static const struct form llama = {1, 8192, 32, 32, 128, DTYPE_BF16, true};
static const struct form shared = {1, 8192, 32, 8, 128, DTYPE_BF16, true};
static const struct form gpt2 = {2, 1024, 12, 12, 64, DTYPE_BF16, true};
static const struct form bert = {4, 512, 12, 12, 64, DTYPE_FP16, false};

/* Beside the plan's memory, which has D and dq's sum, and the stream's scratch: nothing. */
static void hopper_works_in_the_plans_memory(void **state)
{
    (void)state;
    const struct form *const forms[] = {&llama, &bert, &gpt2};
    if (!use_gpu("h200"))
        return;
    for (size_t i = 0; i < (is_soak() ? 3 : 2); i++)
        for (int backward = is_taken(i, 3, 0) ? 0 : 1; backward < 2; backward++)
            assert_true(bytes_of(forms[i], backward, false) <= 4096);
    assert_true(bytes_of(&shared, false, false) <= 4096);
}

/* ds whole, in 16 bits; the engine's own few bytes beside it. */
static void hoppers_deterministic_backward_keeps_scores(void **state)
{
    (void)state;
    if (!use_gpu("h200"))
        return;
    const uint64_t scores = 2ULL * gpt2.b * gpt2.a * gpt2.s * gpt2.s;
    const uint64_t bytes = bytes_of(&gpt2, true, true);
    assert_true(bytes >= scores && bytes <= scores + 4096);
    assert_true(bytes_of(&gpt2, false, true) <= 4096);
}

/* Its backward keeps dq for each part of the keys; the note about memory that no plan has says it.
 */
static void ampere_takes_them(void **state)
{
    (void)state;
    if (!use_gpu("a100"))
        return;
    assert_true(bytes_of(&gpt2, false, false) <= 4096);
    assert_true(bytes_of(&gpt2, true, false) > 0);
    const struct form wide = {1, 1024, 4, 4, 256, DTYPE_BF16, true};
    assert_string_not_equal(answer_to(&wide, true, false).why_not, "");
}

/* By an engine that is asked for by its number: without scores in memory. */
static void blackwell_takes_them_deterministic_too(void **state)
{
    (void)state;
    if (!use_gpu("b200"))
        return;
    for (int backward = 0; backward < (is_soak() ? 2 : 1); backward++)
        assert_true(bytes_of(&gpt2, backward, false) <= 4096);
    assert_true(bytes_of(&gpt2, true, true) <= 4096);
}

static void what_no_engine_takes_is_said(void **state)
{
    (void)state;
    if (!use_gpu("h200"))
        return;
    struct form odd = gpt2;
    odd.d = 20; /* rows of 40 bytes */
    assert_string_not_equal(answer_to(&odd, false, false).why_not, "");
    struct err err = {0};
    struct cuda_answer answer;
    const struct work_operand q = operand(DTYPE_BF16, SHAPE(1, 128, 1, 64));
    struct work_operand all[] = {q, q, q, operand(DTYPE_BF16, SHAPE(1, 1, 128, 64)),
                                 operand(DTYPE_FP32, SHAPE(1, 1, 128))};
    const struct work work = {
        .kind = WORK_ATTENTION, .ins = 3, .outs = 2, .operand = all, .ranks = 1, .group = -1};
    assert_int_equal(ask(CUDA_BACKEND_VERSION, "{}", false, &work, &answer, &err), ERR_DEVICE);
    assert_non_null(strstr(err.text, "cudnnBackendFinalize of a GPU's properties"));
    err = (struct err){0};
    assert_int_equal(ask(CUDA_BACKEND_VERSION + 1, properties, false, &work, &answer, &err),
                     ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hopper_works_in_the_plans_memory),
        cmocka_unit_test(hoppers_deterministic_backward_keeps_scores),
        cmocka_unit_test(what_no_engine_takes_is_said),
        cmocka_unit_test(ampere_takes_them),
        cmocka_unit_test(blackwell_takes_them_deterministic_too),
    };
    return cmocka_run_group_tests_name("cudnn_plans", tests, set_up, NULL);
}
