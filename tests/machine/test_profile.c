/* test_profile.c - hardware profiles: what is built in, what files may say, what they may not. */
#include "machine/builtin.h"
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
    const uint32_t count = builtin_gpus()->count;
    const char *const *names = builtin_gpus()->names;
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
        assert_true(p.attention_count > 0);
        for (uint32_t k = 0; k < p.attention_count; k++)
            assert_true(p.attentions[k].source && strlen(p.attentions[k].source) > 3);
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
        {"b200", 2250e12, 7.7e12, 900e9},
        {"gb200", 2500e12, 8e12, 900e9},
        {"b300", 2250e12, 8e12, 900e9},
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

static bool is_of_node(int key)
{
    return key == PROFILE_NICS || key == PROFILE_NIC || key == PROFILE_NIC_LATENCY ||
           key == PROFILE_HOST_CAPACITY || key == PROFILE_HOST_GPUS || key == PROFILE_NODE_GPUS;
}

static void node_types_change_links_and_hosts_alone(void **state)
{
    (void)state;
    struct err err = {0};
    const uint32_t count = builtin_nodes()->count;
    const char *const *nodes = builtin_nodes()->names;
    assert_true(count >= 10);
    for (uint32_t i = 0; i < count; i++) {
        struct profile plain = find("h100-sxm"), p = find("h100-sxm");
        assert_int_equal(profile_set_node(nodes[i], &p, &err), ERR_OK);
        assert_string_equal(p.name, "h100-sxm");
        for (int key = 0; key < PROFILE_KEYS; key++)
            if (!is_of_node(key))
                assert_true(p.of[key].value == plain.of[key].value);
        assert_true(profile_value(&p, PROFILE_NICS) >= 1);
        profile_free(&plain);
        profile_free(&p);
    }
}

/* torchx/specs/named_resources_aws.py (memMB), OpenShift's list of AWS instance types (P6), Azure's
 * ND MI300X v5, MLPerf Inference's H200 and B200 systems (32 x 64 GB), Google's machine types,
 * NVIDIA's GB200 NVL72 (480 GB a Grace, two of them a host of 4 GPUs). */
static void hosts_have_what_is_published(void **state)
{
    (void)state;
    static const struct {
        const char *gpu, *node;
        double gib;
        uint32_t ranks; /* of 256, in nodes of 72 */
    } published[] = {
        {"a100-40gb", "p4d.24xlarge", 1152, 72},
        {"a100-80gb", "p4de.24xlarge", 1152, 72},
        {"h100", "p5.48xlarge", 2048, 72},
        {"h200", "p5en.48xlarge", 2048, 72},
        {"b200", "p6-b200.48xlarge", 2048, 72},
        {"h200", NULL, 2048, 72},
        {"b200", NULL, 2048, 72},
        {"mi300x", NULL, 1850, 72},
        {"h100", "a3-mega", 1743.4, 72},
        {"gb200", NULL, 894.07, 4},
        {"h100", "nvl72", 894.07, 4},
        {"gh200", NULL, 447.03, 1},
        {"a100-40gb", NULL, 1024, 72},
        {"a100-80gb", NULL, 2048, 72},
        {"a100-40gb", "dgx-a100", 1024, 72},
        {"a100-80gb", "dgx-a100", 2048, 72},
        {"gb200", "p6-b200.48xlarge", 2048, 72},
        {"h100", "pcie", 0, 72},
        {"h100", "workstation", 0, 72},
        {"rtx-4090", NULL, 0, 72},
    };
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        struct profile p = find(published[i].gpu);
        struct err err = {0};
        if (published[i].node)
            assert_int_equal(profile_set_node(published[i].node, &p, &err), ERR_OK);
        const double gib = profile_value(&p, PROFILE_HOST_CAPACITY) / 0x1p30;
        if (fabs(gib - published[i].gib) > 0.1)
            fail_msg("%s, %s: %g GiB", published[i].gpu,
                     published[i].node ? published[i].node : "its usual node", gib);
        assert_int_equal(profile_host_ranks(&p, 256, 72), published[i].ranks);
        profile_free(&p);
    }
}

/* At most those of a node, of a host, and of the job. */
static void a_host_is_shared_by_its_ranks(void **state)
{
    (void)state;
    struct profile p = find("gb200"), h100 = find("h100-sxm");
    assert_int_equal(profile_host_ranks(&p, 2, 8), 2);
    assert_int_equal(profile_host_ranks(&p, 8, 8), 4);
    assert_int_equal(profile_host_ranks(&p, 8, 2), 2);
    assert_int_equal(profile_host_ranks(&h100, 64, 8), 8);
    assert_int_equal(profile_host_ranks(&h100, 4, 8), 4);
    profile_free(&p);
    profile_free(&h100);
}

static enum err_code read(const char *text, struct profile *profile, struct err *err)
{
    put_text("a.json", text, strlen(text));
    return profile_read(path_of("a.json"), profile, err);
}

/* What nvidia-smi and rocm-smi print, and what people write. */
static void gpus_are_found_by_the_names_people_have_for_them(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
    } known[] = {
        {"NVIDIA H100 80GB HBM3", "h100-sxm"},
        {"NVIDIA H100 PCIe", "h100-pcie"},
        {"NVIDIA H100 NVL", "h100-nvl"},
        {"NVIDIA H200", "h200"},
        {"NVIDIA GH200 480GB", "gh200"},
        {"NVIDIA B200", "b200"},
        {"NVIDIA GB200", "gb200"},
        {"NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"},
        {"NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"},
        {"NVIDIA A100 80GB PCIe", "a100-pcie-80gb"},
        {"NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"},
        {"NVIDIA A10", "a10"},
        {"NVIDIA L40S", "l40s"},
        {"NVIDIA GeForce RTX 4090", "rtx-4090"},
        {"NVIDIA RTX A6000", "rtx-a6000"},
        {"A6000", "rtx-a6000"},
        {"NVIDIA A40", "a40"},
        {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
        {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
        {"NVIDIA L20", "l20"},
        {"NVIDIA H20", "h20"},
        {"NVIDIA A800-SXM4-80GB", "a800-sxm"},
        {"NVIDIA H800", "h800-sxm"},
        {"AMD Instinct MI325X", "mi325x"},
        {"Tesla V100-SXM2-16GB", "v100-16gb"},
        {"Tesla V100-SXM2-32GB", "v100-32gb"},
        {"AMD Instinct MI300X", "mi300x"},
        {"h100", "h100-sxm"},
        {"H100", "h100-sxm"},
        {"h100-80gb", "h100-sxm"},
        {"h100_sxm", "h100-sxm"},
        {"H100 SXM5", "h100-sxm"},
        {"a100", "a100-sxm-80gb"},
        {"A100-80GB", "a100-sxm-80gb"},
        {"a100-40gb", "a100-sxm-40gb"},
        {"rtx4090", "rtx-4090"},
        {"MI300X", "mi300x"},
        {"v100", "v100-16gb"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct profile p = find(known[i].text);
        if (strcmp(p.name, known[i].name) != 0)
            fail_msg("%s: %s", known[i].text, p.name);
        profile_free(&p);
    }
    struct profile p = find("h100");
    struct err err = {0};
    assert_int_equal(profile_set_node("P5.48xlarge", &p, &err), ERR_OK);
    assert_int_equal(profile_set_node("p7", &p, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "did you mean p5"));
    profile_free(&p);
    err = (struct err){0};
    assert_int_equal(profile_find("h1000", &p, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "did you mean h100-sxm"));
}

static double spread_of(const char *text, enum profile_key key)
{
    struct err err = {0};
    struct profile p = find("h100-sxm");
    if (read(text, &p, &err) != ERR_OK)
        fail_msg("%s", err.text);
    const double spread = p.of[key].spread;
    profile_free(&p);
    return spread;
}

/* A generation's numbers on another, not a datasheet's; what a file says itself stands; and what
 * training was off on a card holds for the others of its generation, and for no more. */
static void what_is_carried_over_is_less_certain(void **state)
{
    (void)state;
    static const char same[] = "{\"gpu\": \"h100-sxm\", \"power_w\": 500}",
                      other[] = "{\"gpu\": \"h100-sxm\", \"generation\": \"ampere\"}",
                      own[] = "{\"gpu\": \"h100-sxm\", \"generation\": \"ampere\", "
                              "\"gemm_efficiency\": {\"value\": 0.9, \"spread\": 0.01}}",
                      bare[] = "{\"gemm_efficiency\": 0.7}",
                      sure[] = "{\"gemm_efficiency\": {\"value\": 0.7}}";
    const struct profile h100 = find("h100-sxm");
    const double gemm = h100.of[PROFILE_GEMM].spread;
    assert_true(gemm > 0 && profile_value(&h100, PROFILE_STEPS) > 0);
    assert_true(spread_of(same, PROFILE_GEMM) == gemm);
    assert_true(spread_of(other, PROFILE_GEMM) > gemm + 0.1);
    assert_true(spread_of(own, PROFILE_GEMM) == 0.01);
    assert_true(spread_of(bare, PROFILE_GEMM) == gemm);
    assert_true(spread_of(sure, PROFILE_GEMM) == 0);
    assert_true(spread_of(other, PROFILE_BF16) == 0);
    struct profile p = find("h100-sxm"), carried = find("l40s");
    struct err err = {0};
    assert_int_equal(read(same, &p, &err), ERR_OK);
    assert_true(profile_value(&p, PROFILE_STEPS) == profile_value(&h100, PROFILE_STEPS));
    assert_true(profile_value(&carried, PROFILE_STEPS) == 0);
    assert_true(carried.attentions[0].spread > 0.5); /* A100's */
    profile_free(&p);
    profile_free(&carried);
    struct profile done = h100;
    profile_free(&done);
}

/* An alias of two would mean whichever file comes first. */
static void no_alias_stands_for_two(void **state)
{
    (void)state;
    const struct builtins *const lists[] = {builtin_gpus(), builtin_nodes()};
    uint32_t aliases = 0;
    for (int l = 0; l < 2; l++)
        for (uint32_t i = 0; i < lists[l]->count; i++) {
            json_t *root = json_loads(lists[l]->texts[i], 0, NULL);
            const json_t *alias;
            size_t k;
            json_array_foreach(json_object_get(root, "aliases"), k, alias)
            {
                if (builtin_find(lists[l], json_string_value(alias)) != i)
                    fail_msg("%s is not %s alone", json_string_value(alias), lists[l]->names[i]);
                aliases++;
            }
            json_decref(root);
        }
    assert_true(aliases > 40);
}

static void a_file_goes_on_top(void **state)
{
    (void)state;
    struct err err = {0};
    struct profile p = find("h100-sxm");
    assert_int_equal(
        read("{\"name\": \"mine\", \"gemm_efficiency\": {\"value\": 0.5, \"spread\": 0.02, "
             "\"source\": \"seen\"}, \"host_op_s\": 5e-6, \"link\": \"pcie\", \"kernels\": "
             "{\"mul\": {\"latency_s\": 1e-6, \"seconds_per_byte\": 2e-12}}, "
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
    assert_int_equal(p.kernels[0].work, WORK_MUL);
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
        {"{\"nic_bytes_per_s\": 12.5}", "expected bytes a second, of which hardware has"},
        {"{\"nic_bytes_per_s\": {\"value\": 999999}}", "expected bytes a second"},
        {"{\"memory_bytes_per_s\": 1.1e14}", "expected bytes a second"},
        {"{\"colour\": 3}", "colour"},
        {"{\"colour\": \"red\"}", "no key of a profile"},
        {"{\"generation\": \"kepler\"}", "volta, ampere"},
        {"{\"aliases\": \"h100\"}", "array of strings"},
        {"{\"link\": 7}", "nvswitch, bridge"},
        {"{\"network\": \"pigeon\"}", "infiniband, infiniband-sharp, roce"},
        {"{\"kernels\": {\"nothing.such\": {}}}", "nothing.such"},
        {"{\"kernels\": {\"matmul_nt\": {\"latency_s\": -1}}}", "latency_s"},
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
        cmocka_unit_test(node_types_change_links_and_hosts_alone),
        cmocka_unit_test(hosts_have_what_is_published),
        cmocka_unit_test(a_host_is_shared_by_its_ranks),
        cmocka_unit_test(gpus_are_found_by_the_names_people_have_for_them),
        cmocka_unit_test(no_alias_stands_for_two),
        cmocka_unit_test(a_file_goes_on_top),
        cmocka_unit_test(what_is_carried_over_is_less_certain),
        cmocka_unit_test(bad_files_are_refused_by_name_and_leave_the_profile),
    };
    return cmocka_run_group_tests_name("profile", tests, make_folder, remove_folder);
}
