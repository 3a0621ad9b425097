/* test_models.c - every recorded model, under every system that takes one, as a GPU has it: plans
 * hold, and the allocator finds room. tests/lower/test_truth_recorded.c has their events. */
#include "families/families.h"
#include "job/predict.h"
#include "job/step_time.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "tests/data/recorded"

/* A number after `key` in a message; 0: there is none. */
static unsigned number_behind(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    unsigned number = 0;
    return at && sscanf(at + strlen(key), "%u", &number) == 1 ? number : 0;
}

static bool has_scalar(const struct job *job)
{
    struct err err = {0};
    struct graph *graph;
    bool scalar = false;
    assert_int_equal(job_graph(job, &graph, &err), ERR_OK);
    for (uint32_t p = 0; p < graph->param_count; p++)
        scalar |= graph->params[p].shape.rank == 0;
    graph_free(graph);
    return scalar;
}

/* The micro-batch that a file was recorded with, out of what says that another was not. */
static unsigned recorded_batch(struct job *job)
{
    struct err err = {0};
    struct graph *graph;
    job->model.batch = 999;
    assert_int_equal(job_graph(job, &graph, &err), ERR_INVALID);
    return number_behind(err.text, "was recorded with ");
}

static void plan_model(const char *path, const struct machine *machine)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP2, SYSTEM_FSDP1, SYSTEM_DDP, SYSTEM_ZERO1,
                                               SYSTEM_ZERO2};
    struct model_config config;
    struct err err = {0};
    bool scalar = false;
    if (model_find(path, &config, &err) != ERR_OK)
        fail_msg("%s", err.text);
    const struct recording_info info = recording_info(config.recording);
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        struct job job;
        struct prediction p;
        struct step_time t = {.tokens_per_s = 0};
        if (info.autocast && systems[i] != SYSTEM_DDP) /* others have no recorded autocast */
            continue;
        job_defaults(&job, &config);
        job.model.autocast = info.autocast;
        job.model.code = CODE_RECORDED;
        job.model.seq = info.seq;
        job.model.compute = job.strategy.compute = job.strategy.store = job.strategy.reduce =
            info.dtype;
        job.strategy.system = systems[i];
        job.strategy.use_orig_params = true; /* frozen ones beside trained ones */
        if (systems[i] == SYSTEM_ZERO1 || systems[i] == SYSTEM_ZERO2)
            job.strategy.zero = zero_defaults(systems[i] == SYSTEM_ZERO1 ? 1 : 2);
        job.model.batch = recorded_batch(&job);
        scalar = scalar || (systems[i] == SYSTEM_FSDP2 && has_scalar(&job));
        const bool refused = scalar && (systems[i] == SYSTEM_FSDP2 || systems[i] == SYSTEM_FSDP1);
        const enum err_code rc = predict(&job, machine, &p, &err);
        if (refused) {
            assert_int_equal(rc, ERR_INVALID);
            assert_non_null(strstr(err.text, "no scalar parameters"));
            err = (struct err){0};
            continue;
        }
        const bool frozen = systems[i] == SYSTEM_FSDP1 && strstr(err.text, ": frozen in a unit");
        /* DINOv2's mask_token, XLNet's mask_emb, the head of SigLIP 2; the last layer of LLaVA's
         * tower; what the last block of Qwen-Image makes of text, the norm of CLIP's class token,
         * decoders' attention to an encoder that is not there, DeepSeek-V3.2's choice of keys */
        const bool unused = strstr(err.text, ".mask_token is ") ||
                            strstr(err.text, ".mask_emb is ") ||
                            strstr(err.text, ".head.probe is ") ||
                            strstr(err.text, ".attn.to_add_out.weight is ") ||
                            strstr(err.text, ".post_layernorm.weight is ") ||
                            strstr(err.text, ".encoder_attn.k_proj.weight is ") ||
                            strstr(err.text, ".indexer.wq_b.weight is ") ||
                            strstr(err.text, "backward never comes to module ");
        if ((rc == ERR_UNSUPPORTED || rc == ERR_INVALID) &&
            (unused || frozen)) { /* Whisper's positions are frozen */
            err = (struct err){0};
            continue;
        }
        if (rc != ERR_OK || step_time(&p, &job, machine, 0, &t, &err) != ERR_OK)
            fail_msg("%s, %s: %s", path, system_name(systems[i]), err.text);
        assert_true(p.fits && p.memory.requested.bytes > 0 && t.tokens_per_s > 0);
        assert_int_equal(p.parameters, info.parameters);
        step_time_free(&t);
        prediction_free(&p);
    }
    model_release(&config);
}

static void every_recorded_model_can_be_planned(void **state)
{
    struct machine machine = {.gpus_per_node = 8};
    struct dirent *entry;
    char path[512];
    int models = 0;
    (void)state;
    assert_int_equal(profile_find("h200", &machine.profile, NULL), ERR_OK);
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, FOLDER "/%s", entry->d_name);
        if (!recording_is_named(path))
            continue;
        plan_model(path, &machine);
        models++;
    }
    closedir(folder);
    profile_free(&machine.profile);
    assert_true(models > 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recorded_model_can_be_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
