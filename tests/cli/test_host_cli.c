/* test_host_cli.c - whether a job fits its hosts, as people and scripts ask. SHARDPLAN names the
 * program. */
#include "tests/support/folder.h"
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

#define SMALL "llama-3.2-1b --seq 2048"
#define TOY "tests/data/configs/toy-llama --seq 128"
#define LLAMA "llama-3.1-8b --gpus 8 --seq 4096 --offload cpu"

static char folder[] = "/tmp/test_host.XXXXXX";

static double at(const json_t *root, const char *object, const char *key)
{
    return json_number_value(json_object_get(json_object_get(root, object), key));
}

static void expect(int status, int expected, const char *says)
{
    if (status != expected || !strstr(program_output(), says))
        fail_msg("exit %d, no \"%s\" in: %s", status, says, program_output());
}

static const char *file_of(const char *name, const char *text)
{
    const char *path = file_in(folder, name);
    file_write(path, text, strlen(text));
    return path;
}

/* 4 ranks of 20 bytes a parameter and quarter (AdamW, foreach), 8 of which are pinned: on a host
 * with less the job does not fit, by what is missing. */
static void a_host_with_too_little_is_told(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit " TOY " --gpus 4 --offload cpu --json"), 0);
    json_t *root = program_object();
    const double parameters = at(root, "model", "parameters");
    const double needed = at(root, "host", "needed_bytes");
    assert_true(needed >= 20 * parameters && needed < 28.1 * parameters);
    assert_true(needed == 4 * at(root, "host", "held_bytes"));
    assert_true(at(root, "host", "ranks") == 4);
    assert_true(at(root, "host", "capacity_bytes") == 2048 * 0x1p30);
    assert_true(json_is_true(json_object_get(root, "fits_host")));
    assert_true(json_is_true(json_object_get(root, "fits")));
    json_decref(root);

    /* to the byte: as much as is needed is enough, and one less is not */
    assert_int_equal(
        shardplan("fit " TOY " --gpus 4 --offload cpu --host-memory %.0f --json", needed), 0);
    assert_int_equal(
        shardplan("fit " TOY " --gpus 4 --offload cpu --host-memory %.0f --json", needed - 1), 1);
    root = program_object();
    assert_true(json_is_false(json_object_get(root, "fits")));
    assert_true(json_is_false(json_object_get(root, "fits_host")));
    assert_true(json_is_true(json_object_get(root, "fits_gpu")));
    json_decref(root);
    expect(shardplan("fit " LLAMA " --host-memory 100GiB"), 1,
           "  does not fit the host: 155.75 GiB needed by 8 ranks, 100.00 there, 55.75 too much\n"
           "  the GPU: ");
    expect(1, 1, "of 100.00, 8 ranks (--host-memory)");
    expect(1, 1, "--offload none");
}

/* Nothing is said of a machine that nobody knows, and how to say it is. */
static void what_is_not_known_is_not_checked(void **state)
{
    (void)state;
    expect(shardplan("fit " LLAMA " --node pcie"), 0,
           "of 8 ranks: that it has so much is not checked; --host-memory says it");
    assert_int_equal(shardplan("fit " LLAMA " --node pcie --json"), 0);
    json_t *root = program_object();
    assert_true(json_is_null(json_object_get(root, "fits_host")));
    assert_true(json_is_null(json_object_get(json_object_get(root, "host"), "capacity_bytes")));
    json_decref(root);
}

/* NVL72: a node is a rack, its hosts have four GPUs each. */
static void a_rack_has_many_hosts(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit llama-3.1-8b --gpus 72 --gpus-per-node 72 --gpu gb200 --node "
                               "nvl72 --offload cpu --json"),
                     0);
    json_t *root = program_object();
    assert_true(at(root, "host", "ranks") == 4);
    assert_true(at(root, "host", "needed_bytes") == 4 * at(root, "host", "held_bytes"));
    assert_true(at(root, "host", "capacity_bytes") == 960e9);
    json_decref(root);
}

static void a_profile_says_what_a_host_has(void **state)
{
    (void)state;
    const char *own = file_of("own.json", "{\"host_capacity_bytes\": {\"value\": 2e10, "
                                          "\"source\": \"free -b\"}}"),
               *wrong = file_of("wrong.json", "{\"host_capacity_bytes\": -1}"),
               *near = file_of("near.json", "{\"host_capacity\": 1e11}");
    expect(shardplan("fit " SMALL " --offload cpu --gpus 8 --profile %s", own), 1,
           "of 18.63, 8 ranks (free -b)");
    assert_int_equal(
        shardplan("fit " SMALL " --offload cpu --gpus 8 --profile %s --host-memory 1TiB", own), 0);
    expect(shardplan("fit " LLAMA " --profile %s", wrong), 2,
           "wrong.json: \"host_capacity_bytes\": expected a number 0 ... 1.1259e+15");
    expect(shardplan("fit " LLAMA " --profile %s", near), 2, "did you mean host_capacity_bytes?");
    expect(shardplan("fit " LLAMA " --host-memory 5"), 2,
           "--host-memory 5: allowed are sizes such as 500MB");
}

/* It would have no effect where nodes are concerned; what is as the card has it says nothing. */
static void a_profile_does_not_say_what_a_node_is(void **state)
{
    (void)state;
    const char *other = file_of("node.json", "{\"node_gpus\": 36}"),
               *same = file_of("same.json", "{\"gpu\": \"gb200\", \"node_gpus\": 72}");
    expect(
        shardplan("fit " SMALL " --gpu gb200 --gpus 72 --profile %s", other), 2,
        "node.json: \"node_gpus\" 36: how many GPUs of a node a job has is a setting; leave it out "
        "and give --gpus-per-node 36");
    assert_int_equal(shardplan("fit " SMALL " --gpus 8 --profile %s", same), 0);
    expect(shardplan("sweep " SMALL " --over profile.node_gpus=8,36"), 2, "--over gpus-per-node=");
}

static double communication_s(const char *profile)
{
    assert_int_equal(
        shardplan("fit llama-3.2-1b --gpus 2 --gpu rtx-3090 --seq 512 --strategy fsdp1 "
                  "--profile %s --time --json",
                  profile),
        0);
    json_t *root = program_object();
    const double seconds = at(root, "time", "communication_s");
    json_decref(root);
    return seconds;
}

/* GPUs without links of their own: half the lanes are half the rate, of which there is no other
 * number. */
static void a_profile_says_what_lanes_there_are(void **state)
{
    (void)state;
    const double most = communication_s(file_of("x16.json", "{\"pcie_bytes_per_s\": 12.5e9}")),
                 half = communication_s(file_of("x8.json", "{\"pcie_bytes_per_s\": 6.2e9}")),
                 quarter = communication_s(file_of("x4.json", "{\"pcie_bytes_per_s\": 3.1e9}"));
    const char *links = file_of("links.json", "{\"link_bytes_per_s\": 6e9}"),
               *whole = file_of("whole.json", "{\"gpu\": \"rtx-3090\", \"link\": \"host\", "
                                              "\"link_bytes_per_s\": 6e9}");
    assert_true(half > 1.9 * most && half < 2.1 * most);
    assert_true(quarter > 1.9 * half && quarter < 2.1 * half);
    const double between = communication_s(file_of("x8.json", "{\"pcie_bytes_per_s\": 9e9}"));
    assert_true(between > 1.1 * most && between < 0.9 * half);
    expect(
        shardplan("fit " SMALL " --gpus 2 --gpu rtx-3090 --profile %s", links), 2,
        "links.json: \"link_bytes_per_s\" 6e+09: these GPUs reach each other through their slots");
    assert_int_equal(shardplan("fit " SMALL " --gpus 2 --gpu h100-sxm --profile %s", links), 0);
    assert_int_equal(shardplan("fit " SMALL " --gpus 2 --profile %s", whole), 0);
}

/* Every system that offloads; FSDP1 pins a shard and its gradient (_flat_param.py,
 * init_flat_param_attributes), FSDP2 likewise, ZeRO what pin_memory says. */
static void every_system_is_judged(void **state)
{
    (void)state;
    const char *zero = file_of("zero.json", "{\"offload_optimizer\": {\"device\": \"cpu\", "
                                            "\"pin_memory\": true}}");
    char options[4][512];
    snprintf(options[0], sizeof options[0], "--strategy fsdp1 --offload cpu");
    snprintf(options[1], sizeof options[1], "--strategy fsdp2 --offload cpu");
    snprintf(options[2], sizeof options[2], "--strategy zero2 --zero %s", zero);
    snprintf(options[3], sizeof options[3], "--strategy zero3 --zero %s", zero);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(shardplan("fit " TOY " --gpus 4 %s --json", options[i]), 0);
        json_t *root = program_object();
        const double parameters = at(root, "model", "parameters");
        const double pinned = at(root, "host", "pinned_bytes");
        if (i < 2)
            assert_true(pinned >= 8 * parameters / 4 && pinned < 8.2 * parameters / 4);
        assert_true(at(root, "host", "held_bytes") >= at(root, "host", "requested_bytes"));
        json_decref(root);
        expect(shardplan("fit " TOY " --gpus 4 %s --host-memory 1MiB", options[i]), 1,
               "does not fit the host: ");
    }
    expect(shardplan("fit " TOY " --gpus 4 --host-memory 1MiB"), 0, "fits");
}

/* No answer of a search, and no remedy, is what `fit` would refuse. */
static void searches_heed_the_host(void **state)
{
    (void)state;
    static const char *const job = "tune " TOY " --gpus 4 --gpu l4 --fix offload=cpu --fix "
                                   "checkpointing=none --fix units=blocks --fix replicate=1";
    assert_int_equal(shardplan("%s --json", job), 0);
    json_t *root = program_object();
    const json_t *chosen = json_object_get(root, "chosen");
    const double needed = json_number_value(json_object_get(chosen, "host_needed_bytes"));
    assert_true(json_is_null(json_object_get(root, "host_capacity_bytes")));
    assert_true(needed > 0x1p20);
    json_decref(root);
    expect(shardplan("%s", job), 0, "GiB: that it has so much is not checked; --host-memory says");
    assert_int_equal(shardplan("%s --host-memory %.0f --json", job, needed), 0);
    root = program_object();
    assert_true(json_number_value(json_object_get(json_object_get(root, "chosen"),
                                                  "host_needed_bytes")) <= needed);
    json_decref(root);
    expect(shardplan("%s --host-memory 1MiB", job), 1, "of a host, which has 0.00\n");
    expect(1, 1, "as it is, without --fix");
    expect(shardplan("tune " TOY " --gpus 4 --strategy fsdp2 --units blocks --max-memory 1GiB "
                     "--host-memory 1MiB"),
           1, "        others fit no host: they take 0.05 GiB or more of a host, which has 0.00\n");
    expect(shardplan("sweep " TOY " --gpus 4 --over offload --host-memory 1MiB"), 0, " host ");
    expect(0, 0, "host: what does not fit there needs up to 0.");
}

/* Whatever is told as a remedy of a job that is too large for its GPUs is within the host. */
static void remedies_heed_the_host(void **state)
{
    (void)state;
    const char *small = file_of("small.json", "{\"capacity_bytes\": 14e9}");
    uint32_t offloaded[2] = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(shardplan("fit " SMALL " --gpus 2 --profile %s --json --host-memory %s",
                                   small, i ? "6GiB" : "1TiB"),
                         1);
        json_t *root = program_object(), *remedy;
        size_t k;
        json_array_foreach(json_object_get(root, "remedies"), k, remedy)
        {
            const char *change = json_string_value(json_object_get(remedy, "change"));
            const double needed = json_number_value(json_object_get(remedy, "host_needed_bytes"));
            assert_true(needed <= (i ? 6 : 1024) * 0x1p30);
            if (!strstr(change, "--offload cpu"))
                continue;
            assert_non_null(strstr(json_string_value(json_object_get(remedy, "cost")),
                                   i ? " of 6.00 GiB of a host" : " of 1024.00 GiB of a host"));
            offloaded[i]++;
        }
        json_decref(root);
    }
    assert_true(offloaded[0] > 0 && offloaded[1] == 0);
}

/* 70B parameters made on the CPU by each of 8 ranks are 2.1 TiB. */
static void start_up_is_judged(void **state)
{
    (void)state;
    expect(shardplan("fit llama-3.1-70b --gpus 64 --seq 128 --start-up"), 0,
           "does not fit the host: whole on each rank's CPU");
    expect(shardplan("fit llama-3.1-70b --gpus 64 --seq 128 --start-up --host-memory 4TiB"), 0,
           "  whole on each rank's CPU");
    assert_null(strstr(program_output(), "does not fit the host"));
}

/* What the verdict rests on is said, and in JSON; and where nobody wants to know what would fit, it
 * stands alone. */
static void the_verdict_says_what_it_rests_on(void **state)
{
    (void)state;
    static const char by_clock[] =
        "fit llama-2-7b --from tests/data/published/zero/z3.json --code hf --gpus 8 --gpu "
        "v100-32gb --seq 1024 --param-dtype fp16 --checkpointing full --attention math";
    assert_int_equal(shardplan("%s", by_clock), 0);
    assert_non_null(strstr(program_output(), "by this machine's clock: blocks that another"));
    assert_null(strstr(program_output(), "late frees: "));
    assert_int_equal(shardplan("%s --json", by_clock), 0);
    json_t *fit = program_object();
    const json_t *device = json_object_get(fit, "device");
    const json_int_t clocked = json_integer_value(json_object_get(device, "clocked_bytes"));
    assert_true(json_is_true(json_object_get(fit, "fits_by_clock")));
    assert_false(json_is_true(json_object_get(fit, "fits_after_releasing_cached_segments")));
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(fit, "peak"), "device_bytes")), clocked);
    assert_true(json_integer_value(json_object_get(device, "least_bytes")) < clocked);
    assert_true(json_integer_value(json_object_get(device, "unconstrained_bytes")) > clocked);
    json_decref(fit);
    assert_int_equal(shardplan("fit llama-3.1-8b --gpus 1 --no-remedies"), 1);
    assert_non_null(strstr(program_output(), "does not fit"));
    assert_null(strstr(program_output(), "make it fit"));
    assert_int_equal(shardplan("fit llama-3.1-8b --gpus 1 --no-remedies --json"), 1);
    fit = program_object();
    assert_null(json_object_get(fit, "remedies"));
    json_decref(fit);
    assert_int_equal(shardplan("fit gpt2 --gpus 2 --strategy ddp --seq 64"), 0);
    assert_non_null(strstr(program_output(), " --autocast none (fp32 compute)\n"));
    assert_int_equal(shardplan("fit gpt2 --gpus 2 --strategy ddp --seq 64 --autocast none"), 0);
    assert_null(strstr(program_output(), "fp32 compute)"));
}

/* What nobody gave of nodes follows from the GPU, or the node, and the number of GPUs: racks of 72
 * lend 64 to powers of two, and ports are their hosts'. */
static void nodes_are_the_usual_ones(void **state)
{
    (void)state;
    static const struct {
        const char *cluster;
        int gpus_per_node;
    } usual[] = {
        {"--gpus 16", 8},
        {"--gpus 16 --gpu gb200", 64},
        {"--gpu gb200 --gpus 144", 72},
        {"--gpus 256 --gpu gb300", 64},
        {"--gpus 74 --gpu gb200", 37},
        {"--gpus 16 --gpu gb200 --gpus-per-node 8", 8},
        {"--gpus 16 --gpus-per-node 4 --gpu gb200", 4},
        {"--gpus 16 --gpu gb200 --node p6-b200", 8},
        {"--gpus 16 --gpu h200 --node nvl72", 64},
        {"--gpus 16 --gpu b300", 8},
        {"--gpus 16 --gpu mi300x", 8},
    };
    double seconds[sizeof usual / sizeof *usual];
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        assert_int_equal(shardplan("fit llama-3.2-1b --time --json %s", usual[i].cluster), 0);
        json_t *fit = program_object();
        const json_t *settings = json_object_get(fit, "settings");
        assert_int_equal(json_integer_value(json_object_get(settings, "gpus_per_node")),
                         usual[i].gpus_per_node);
        seconds[i] = json_number_value(json_object_get(json_object_get(fit, "time"), "step_s"));
        json_decref(fit);
    }
    static const char *const uneven[] = {"--gpu gb200 --gpus 73",
                                         "--gpu h200 --node nvl72 --gpus 1001"};
    for (size_t i = 0; i < sizeof uneven / sizeof *uneven; i++)
        expect(shardplan("fit llama-3.2-1b %s", uneven[i]), 2,
               "ranks do not fill nodes of 72 GPUs");
    assert_true(seconds[1] < 0.9 * seconds[5]); /* links, where eight a node have a network */
    assert_true(seconds[5] <= seconds[6]);      /* a host's ports, whatever a node is */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_with_too_little_is_told),
        cmocka_unit_test(what_is_not_known_is_not_checked),
        cmocka_unit_test(a_rack_has_many_hosts),
        cmocka_unit_test(a_profile_says_what_a_host_has),
        cmocka_unit_test(a_profile_does_not_say_what_a_node_is),
        cmocka_unit_test(a_profile_says_what_lanes_there_are),
        cmocka_unit_test(every_system_is_judged),
        cmocka_unit_test(searches_heed_the_host),
        cmocka_unit_test(remedies_heed_the_host),
        cmocka_unit_test(start_up_is_judged),
        cmocka_unit_test(the_verdict_says_what_it_rests_on),
        cmocka_unit_test(nodes_are_the_usual_ones),
    };
    return cmocka_run_group_tests(tests, folder_set_up(folder), folder_tear_down);
}
