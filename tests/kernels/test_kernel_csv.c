/* test_kernel_csv.c - the cost model beside kernels that others measured, and tables of them. */
#include "kernels/kernel_csv.h"
#include "tests/support/kernel_rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Classes of tests/data/gpu with a few rows, of kernels of 15 us and more in a burst: the median
 * error, and that of its size. reports/validation/kernels.md has every row. */
static void classes_of_kernels_take_what_they_were_measured_to(void **state)
{
    (void)state;
    static const struct {
        const char *table, *class, *gpu;
        size_t rows;
        double median, absolute;
    } classes[] = {
        {"kernels", "elementwise, contiguous", "h100-sxm", 5, 0.05, 0.10},
        {"kernels", "elementwise, strided", "h100-sxm", 8, 0.05, 0.10},
        {"kernels", "gemm", "h100-sxm", 5, 0.12, 0.12},
        {"kernels", "elementwise, strided", "mi300x", 6, 0.10, 0.12},
        {"kernels", "gemm", "mi300x", 8, 0.10, 0.10},
        {"kernels", "attention", "mi300x", 3, 0.10, 0.10},
        {"matmul_h100", "gemm", "h100-sxm", 102, 0.03, 0.03},
        {"matmul_h100", "gemm, TF32", "h100-sxm", 174, 0.10, 0.15},
        {"attention_training", "attention, forward", "h200", 18, 0.05, 0.05},
        {"attention_training", "attention, backward", "h200", 18, 0.05, 0.05},
        {"attention_training", "attention, forward", "gb200", 50, 0.05, 0.08},
        {"attention_training", "attention, backward", "gb200", 90, 0.05, 0.08},
        {"norms_training", "norm, forward", "h200", 9, 0.05, 0.08},
        {"norms_training", "norm, backward", "h200", 13, 0.05, 0.08},
        {"norms_training", "norm, forward", "gb200", 9, 0.10, 0.10},
        {"norms_training", "norm, backward", "gb200", 13, 0.10, 0.12},
        {"norms_training", "norm, compiled, forward", "h200", 11, 0.05, 0.08},
        {"norms_training", "norm, compiled, backward", "h200", 13, 0.05, 0.10},
        {"norms_training", "norm, compiled, backward", "gb200", 13, 0.05, 0.10},
    };
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        size_t count;
        struct kernel_row *rows = kernel_rows_read(classes[i].table, CLOCK_BURST, &count);
        const struct kernel_errors e =
            kernel_errors_of(rows, count, classes[i].class, classes[i].gpu, 15e-6);
        free(rows);
        assert_int_equal(e.count, classes[i].rows);
        if (fabs(e.median) > classes[i].median || e.median_absolute > classes[i].absolute)
            fail_msg("%s, %s on %s: median %+.3f, of the size %.3f", classes[i].table,
                     classes[i].class, classes[i].gpu, e.median, e.median_absolute);
    }
}

/* The same, of shorter kernels, and of all that begin with a name. */
static void short_kernels_take_what_they_were_measured_to(void **state)
{
    (void)state;
    static const struct {
        const char *table, *name, *gpu;
        size_t rows;
        double median;
    } kernels[] = {
        {"kernels", "aten::cat", "h100-sxm", 3, 0.05},
        {"kernels", "aten::index_select", "h100-sxm", 4, 0.10},
        {"kernels", "aten::native_layer_norm", "h100-sxm", 2, 0.10},
        {"kernels", "aten::native_layer_norm", "mi300x", 2, 0.15},
        {"kernels", "aten::addmm", "h100-sxm", 9, 0.05},
        {"kernels", "aten::addmm", "b200", 4, 0.05},
        {"matmul_h100", "1 x", "h100-sxm", 158, 0.03},
        {"matmul_h100", "2 x", "h100-sxm", 144, 0.05},
    };
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        size_t count, kept = 0;
        struct kernel_row *rows = kernel_rows_read(kernels[i].table, CLOCK_BURST, &count);
        for (size_t k = 0; k < count; k++)
            if (strncmp(rows[k].name, kernels[i].name, strlen(kernels[i].name)) == 0)
                rows[kept++] = rows[k];
        const struct kernel_errors e = kernel_errors_of(rows, kept, NULL, kernels[i].gpu, 0);
        free(rows);
        if (e.count != kernels[i].rows || fabs(e.median) > kernels[i].median)
            fail_msg("%s on %s: %zu, median %+.3f", kernels[i].name, kernels[i].gpu, e.count,
                     e.median);
    }
}

/* Of the rows of products that nothing was fitted to, those that write most for what they compute
 * and those that write least. */
static void a_product_writes_its_result(void **state)
{
    (void)state;
    static const char *const inner[] = {" x 256)", " x 512)", " x 2048)", " x 4096)"};
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
        size_t count, kept = 0;
        struct kernel_row *rows = kernel_rows_read("matmul_h100", CLOCK_BURST, &count);
        for (size_t k = 0; k < count; k++)
            if (!rows[k].fitted && strstr(rows[k].name, inner[i]))
                rows[kept++] = rows[k];
        const struct kernel_errors e = kernel_errors_of(rows, kept, "gemm", NULL, 8e-6);
        free(rows);
        if (e.count < 8 || fabs(e.median) > 0.045 || e.median_absolute > 0.05)
            fail_msg("%s: %zu, median %+.3f, of the size %.3f", inner[i], e.count, e.median,
                     e.median_absolute);
    }
}

/* Row `line` of a table of one or two. */
static double predicted_us(const char *text, uint32_t row, const char *gpu)
{
    struct csv_table table;
    struct kernel_csv csv;
    struct kernel_csv_row out = {.seconds = NAN};
    struct profile profile;
    struct err err = {0};
    assert_int_equal(profile_find(gpu, &profile, &err), ERR_OK);
    profile.clock = CLOCK_BURST;
    if (csv_table_parse("a.csv", strdup(text), &table, &err) != ERR_OK ||
        kernel_csv_open("a.csv", &table, &csv, &err) != ERR_OK ||
        kernel_csv_predict(&csv, row, &profile, &out, &err) != ERR_OK)
        fail_msg("%s", err.text);
    csv_table_free(&table);
    profile_free(&profile);
    return 1e6 * out.seconds;
}

#define PROFILER "op,input_dims,input_types,input_strides,concrete_inputs,kernel\n"
#define TENSORS "\"[\"\"c10::BFloat16\"\", \"\"c10::BFloat16\"\"]\""

/* What an operand's strides are decides, not its bytes: the same sum of 9 million bf16, dense and
 * with one transposed operand, took 17.9 and 34.8 us on H100 (tests/data/gpu/kernels.csv). */
static void strides_cost(void **state)
{
    (void)state;
    const char *const rows = PROFILER
        "aten::add,\"[[16, 16, 559, 64], [16, 16, 559, 64]]\"," TENSORS
        ",\"[[572416, 35776, 64, 1], [572416, 35776, 64, 1]]\",\"[\"\"\"\", \"\"\"\"]\",v\n"
        "aten::add,\"[[16, 16, 559, 64], [16, 16, 559, 64]]\"," TENSORS
        ",\"[[572416, 64, 1024, 1], [572416, 35776, 64, 1]]\",\"[\"\"\"\", \"\"\"\"]\",e\n"
        "aten::add,\"[[16, 16, 559, 64], [16, 16, 559, 64]]\"," TENSORS
        ",\"[[572416, 64, 1024, 1], [572416, 64, 1024, 1]]\",\"[\"\"\"\", \"\"\"\"]\",v\n";
    const double dense = predicted_us(rows, 0, "h100"), strided = predicted_us(rows, 1, "h100");
    assert_true(strided > 1.6 * dense && strided < 2.2 * dense);
    /* Both transposed alike are walked as they lie: as fast as if dense. */
    assert_true(fabs(predicted_us(rows, 2, "h100") - dense) < 1e-6);
}

/* 30,522 columns are no multiple of 8: cuBLAS takes a kernel of Ampere (41 us there). */
static void rows_that_are_not_aligned_cost(void **state)
{
    (void)state;
    const char *const rows = PROFILER "aten::mm,\"[[141, 512], [512, 30522]]\"," TENSORS
                                      ",\"[[512, 1], [1, 512]]\",\"[\"\"\"\", \"\"\"\"]\",g\n"
                                      "aten::mm,\"[[141, 512], [512, 30528]]\"," TENSORS
                                      ",\"[[512, 1], [1, 512]]\",\"[\"\"\"\", \"\"\"\"]\",g\n";
    assert_true(predicted_us(rows, 0, "h100") > 1.5 * predicted_us(rows, 1, "h100"));
}

static void what_is_not_known_is_empty(void **state)
{
    (void)state;
    static const char *const unknown[] = {
        PROFILER "aten::upsample_bicubic2d,[],[],[],[],k\n",
        PROFILER "vllm::moe_forward,\"[[8, 8]]\",\"[\"\"c10::BFloat16\"\"]\",\"[[8, 1]]\",[],k\n",
        PROFILER "aten::add,\"[[8, 8]]\",\"[\"\"c10::Float8_e4m3fn\"\"]\",\"[[8, 1]]\",[],k\n",
        PROFILER "aten::mm,\"[[8, 8], [8, 8]]\"," TENSORS
                 ",\"[[8, 1], [8, 1]]\",[],Memset (Device)\n",
        "dtypes,batch,m,n,k\nf8e4m3xf8e4m3->f32,1,64,64,64\n",
        "backend,dtype,mask,batch,q_seq,kv_seq,q_heads,kv_heads,head_qk,head_v,pass\n"
        "cudnn,fp8,no_mask,1,4096,4096,8,8,128,128,fwd\n",
        "norm,backend,dtype,rows,columns\nrms_norm,cudnn,bfloat16,4096,4096\n",
    };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        if (!isnan(predicted_us(unknown[i], 0, "h100")))
            fail_msg("%s", unknown[i]);
}

static void bad_cells_are_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"a,b\n1,2\n", "a.csv:1: no table of kernels"},
        {"dtypes,batch,m,n,k\nbf16xbf16->bf16,1,2,3,4\nbf16xbf16->bf16,1,x,3,4\n",
         "a.csv:3: m: \"x\" is no number"},
        {"dtypes,batch,m,n,k\nbf16xbf16->bf16,0,2,3,4\n", "a.csv:2: batch"},
        {PROFILER "aten::add,[[8],[],[],[],k\n", "a.csv:2"},
        {PROFILER "aten::add,{},[],[],[],k\n", "a.csv:2: \"{}\" is no array"},
        {"norm,backend,dtype,rows,columns\nrms_norm,pytorch,bfloat16,-1,4\n", "a.csv:2: rows"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct csv_table table;
        struct kernel_csv csv;
        struct kernel_csv_row out;
        struct profile profile;
        struct err err = {0};
        assert_int_equal(profile_find("h100", &profile, &err), ERR_OK);
        enum err_code rc = csv_table_parse("a.csv", strdup(bad[i].text), &table, &err);
        if (rc == ERR_OK) {
            rc = kernel_csv_open("a.csv", &table, &csv, &err);
            for (uint32_t row = 0; rc == ERR_OK && row < table.rows; row++)
                rc = kernel_csv_predict(&csv, row, &profile, &out, &err);
            csv_table_free(&table);
        }
        assert_int_equal(rc, ERR_INVALID);
        if (!strstr(err.text, bad[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i].says);
        profile_free(&profile);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_of_kernels_take_what_they_were_measured_to),
        cmocka_unit_test(short_kernels_take_what_they_were_measured_to),
        cmocka_unit_test(a_product_writes_its_result),
        cmocka_unit_test(strides_cost),
        cmocka_unit_test(rows_that_are_not_aligned_cost),
        cmocka_unit_test(what_is_not_known_is_empty),
        cmocka_unit_test(bad_cells_are_refused_by_line),
    };
    return cmocka_run_group_tests_name("kernel_csv", tests, NULL, NULL);
}
