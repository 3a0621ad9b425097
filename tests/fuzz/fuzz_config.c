/* fuzz_config.c - any bytes as a config.json: read it, and build and plan what is accepted. */
#include "families/config.h"
#include "job/job.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Big models are valid input, but planning them takes the fuzzer's time, not ours to test. */
static int is_small(const struct model_config *c)
{
    return c->layers <= 8 && c->decoder_layers <= 8 && c->experts <= 16;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_config config;
    struct job job;
    struct plan *plan = NULL;
    struct err err = {0};
    json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (!root)
        return 0;
    if (model_config_from_json(root, "input", &config, &err) == ERR_OK && is_small(&config)) {
        job_defaults(&job, &config);
        job.model.seq = 4;
        if (job_plan(&job, &plan, NULL, &err) == ERR_OK)
            plan_free(plan);
    }
    json_decref(root);
    return 0;
}
