/* fuzz_nccl_tests.c - any bytes as nccl-tests output: what is read are points that make a model. */
#include "nccl/collective.h"
#include "nccl/nccl_tests.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/fuzz_nccl_tests.XXXXXX";
    const int file = mkstemp(path);
    if (file < 0 || write(file, data, size) != (ssize_t)size)
        abort();
    close(file);
    struct nccl_tests tests;
    struct err err = {0};
    const struct nccl_tests_known known = {COLLECTIVE_ALL_GATHER, 8, 1};
    if (nccl_tests_read(path, &known, &tests, &err) == ERR_OK) {
        const struct collective_table table = {tests.points, tests.count};
        const struct fabric fabric = {.generation = GENERATION_HOPPER,
                                      .link = LINK_NVSWITCH,
                                      .gpus_per_node = 8,
                                      .link_bytes_per_s = 450e9,
                                      .measured = &table};
        struct collective_model model;
        if (collective_model_build(&fabric, COLLECTIVE_ALL_GATHER, 8, 1, &model, &err) != ERR_OK) {
            fprintf(stderr, "%s\n", err.text);
            abort();
        }
        if (!(collective_cost(&model, 1 << 20).seconds >= 0))
            abort();
        collective_model_free(&model);
    }
    nccl_tests_free(&tests);
    unlink(path);
    return 0;
}
