/* test_profile.c - hardware profiles: what is built in, what files may say, what they may not. */
#include "machine/profile.h"
#include "tests/support/temp_folder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct profile find(const char *name)
{
    struct profile profile;
    struct err err = {0};
    assert_int_equal(profile_find(name, &profile, &err), ERR_OK);
    return profile;
}

static void every_number_that_is_built_in_has_a_source(void **state)
{
    (void)state;
    uint32_t count;
    const char *const *names = profile_gpus(&count);
    assert_true(count >= 20);
    for (uint32_t i = 0; i < count; i++) {
        struct profile p = find(names[i]);
        assert_string_equal(p.name, names[i]);
        for (int key = 0; key < PROFILE_KEYS; key++) {
            assert_non_null(p.of[key].source);
            /* A number that stands alone has the profile's name as its source: none does. */
            assert_string_not_equal(p.of[key].source, names[i]);
            assert_true(strlen(p.of[key].source) > 3);
        }
        assert_true(profile_value(&p, PROFILE_SMS) > 0);
        assert_true(profile_value(&p, PROFILE_BF16) >= profile_value(&p, PROFILE_FP32));
        profile_free(&p);
    }
}

/* NVIDIA's datasheets: dense TFLOP/s, TB/s, bytes a second of NVLink in one direction. */
static void built_in_profiles_agree_with_datasheets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double bf16, memory, link;
    } sheets[] = {
        {"a100-sxm-80gb", 312e12, 2.039e12, 300e9},
        {"h100-sxm", 989e12, 3.35e12, 450e9},
        {"h200", 989e12, 4.8e12, 450e9},
        {"b200", 2250e12, 8e12, 900e9},
        {"mi300x", 1307e12, 5.3e12, 448e9},
    };
    for (size_t i = 0; i < sizeof sheets / sizeof sheets[0]; i++) {
        struct profile p = find(sheets[i].name);
        assert_true(fabs(profile_value(&p, PROFILE_BF16) / sheets[i].bf16 - 1) < 0.01);
        assert_true(fabs(profile_value(&p, PROFILE_MEMORY) / sheets[i].memory - 1) < 0.01);
        assert_true(fabs(profile_value(&p, PROFILE_LINK) / sheets[i].link - 1) < 0.01);
        profile_free(&p);
    }
}

static void node_types_change_links_alone(void **state)
{
    (void)state;
    struct err err = {0};
    uint32_t count;
    const char *const *nodes = profile_nodes(&count);
    assert_true(count >= 10);
    for (uint32_t i = 0; i < count; i++) {
        struct profile plain = find("h100-sxm"), p = find("h100-sxm");
        assert_int_equal(profile_set_node(nodes[i], &p, &err), ERR_OK);
        assert_string_equal(p.name, "h100-sxm");
        for (int key = 0; key < PROFILE_KEYS; key++)
            if (key != PROFILE_NICS && key != PROFILE_NIC && key != PROFILE_NIC_LATENCY)
                assert_true(p.of[key].value == plain.of[key].value);
        assert_true(profile_value(&p, PROFILE_NICS) >= 1);
        profile_free(&plain);
        profile_free(&p);
    }
}

static enum err_code read(const char *text, struct profile *profile, struct err *err)
{
    put_text("a.json", text, strlen(text));
    return profile_read(path_of("a.json"), profile, err);
}

static void a_file_goes_on_top(void **state)
{
    (void)state;
    struct err err = {0};
    struct profile p = find("h100-sxm");
    assert_int_equal(
        read("{\"name\": \"mine\", \"gemm_efficiency\": {\"value\": 0.5, \"spread\": 0.02, "
             "\"source\": \"seen\"}, \"host_op_s\": 5e-6, \"link\": \"pcie\", \"kernels\": "
             "{\"mul.Tensor\": {\"latency_s\": 1e-6, \"seconds_per_byte\": 2e-12}}, "
             "\"collectives\": [{\"collective\": \"all_gather\", \"ranks\": 8, \"nodes\": 1, "
             "\"bytes\": 1048576, \"seconds\": 4.4e-5}]}",
             &p, &err),
        ERR_OK);
    assert_string_equal(p.name, "mine");
    assert_true(profile_value(&p, PROFILE_GEMM) == 0.5 && p.of[PROFILE_GEMM].spread == 0.02);
    assert_string_equal(p.of[PROFILE_GEMM].source, "seen");
    assert_true(profile_value(&p, PROFILE_HOST_OP) == 5e-6);
    assert_true(profile_value(&p, PROFILE_SMS) == 132); /* the H100's, still */
    assert_int_equal(p.link, LINK_PCIE);
    assert_int_equal(p.kernel_count, 1);
    assert_int_equal(p.kernels[0].label, ATEN_MUL);
    assert_int_equal(p.point_count, 1);
    assert_int_equal(p.points[0].bytes, 1048576);
    assert_int_equal(read("{\"gpu\": \"a100-sxm-80gb\"}", &p, &err), ERR_OK);
    assert_true(profile_value(&p, PROFILE_SMS) == 108 && p.kernel_count == 0);
    profile_free(&p);
}

static void bad_files_are_refused_by_name_and_leave_the_profile(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"[1]", "expected a JSON object"},
        {"{", "a.json:1:"},
        {"{\"sms\": 1, \"sms\": 2}", "duplicate"},
        {"{\"gpu\": \"h900\"}", "h100-sxm"},
        {"{\"gemm_efficiency\": 1.5}", "0.01 ... 1"},
        {"{\"gemm_efficiency\": \"fast\"}", "0.01 ... 1"},
        {"{\"gemm_efficiency\": {\"spread\": 0.1}}", "gemm_efficiency"},
        {"{\"gemm_efficiency\": {\"value\": 0.5, \"spread\": -1}}", "spread"},
        {"{\"gemm_efficiency\": {\"value\": 0.5, \"origin\": \"x\"}}", "allowed are value, spread"},
        {"{\"memory_bytes_per_s\": -1}", "memory_bytes_per_s"},
        {"{\"colour\": 3}", "colour"},
        {"{\"colour\": \"red\"}", "no key of a profile"},
        {"{\"generation\": \"kepler\"}", "volta, ampere"},
        {"{\"link\": 7}", "nvswitch, bridge"},
        {"{\"network\": \"pigeon\"}", "infiniband, roce"},
        {"{\"kernels\": {\"nothing.such\": {}}}", "nothing.such"},
        {"{\"kernels\": {\"mm\": {\"latency_s\": -1}}}", "latency_s"},
        {"{\"collectives\": {}}", "expected an array"},
        {"{\"collectives\": [{\"collective\": \"shout\"}]}", "all_gather, reduce_scatter"},
        {"{\"collectives\": [{\"collective\": \"all_gather\", \"ranks\": 8, \"nodes\": 1, "
         "\"bytes\": 0, \"seconds\": 1}]}",
         "collectives[0]"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {0};
        struct profile p = find("h100-sxm");
        assert_int_equal(read(bad[i].text, &p, &err), ERR_INVALID);
        if (!strstr(err.text, bad[i].says) || !strstr(err.text, "a.json"))
            fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].text, err.text, bad[i].says);
        assert_true(profile_value(&p, PROFILE_SMS) == 132);
        profile_free(&p);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return temp_folder_make("test_profile");
}

static int remove_folder(void **state)
{
    (void)state;
    return temp_folder_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_that_is_built_in_has_a_source),
        cmocka_unit_test(built_in_profiles_agree_with_datasheets),
        cmocka_unit_test(node_types_change_links_alone),
        cmocka_unit_test(a_file_goes_on_top),
        cmocka_unit_test(bad_files_are_refused_by_name_and_leave_the_profile),
    };
    return cmocka_run_group_tests_name("profile", tests, make_folder, remove_folder);
}
