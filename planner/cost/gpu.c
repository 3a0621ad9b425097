/* gpu.c - see gpu.h.
 *
 * Capacities are the smallest "total capacity" that PyTorch printed for the card in public
 * out-of-memory reports (driver, ECC and MIG settings move it by up to 0.2 GiB), so a verdict errs
 * on the safe side. Those marked "datasheet" were not seen and are the nominal size less 1.5 %.
 *
 * Context: 0.47 GiB was measured on an A100 (torch 2.1.1, lazy loading), 470.64 MiB on an RTX 4090
 * and 498 MiB on an RTX 5090; 512 MiB stands for all.
 *
 * cuBLAS workspaces: CublasHandlePool.cpp: 32 MiB for compute capability 9.x and newer,
 * 2·4 MiB + 8·16 KiB before; 128 MiB on gfx942.
 *
 * NCCL: sums over NCCL 2.28's allocations (init.cc, channel.cc, p2p.cc), every one rounded up to
 * 2 MiB: init 32 channels · 6 MiB + 16 NVLS channels · 2 MiB + 8 MiB = 232 MiB and a ring of
 * 24 channels · 12 MiB = 288 MiB on 8 × H100; 16 channels across nodes 208 MiB. Without NVLS the
 * init sum has no NVLS channels. Not measured. */
#include "cost/gpu.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define GIB(x) ((uint64_t)((x)*1073741824.0))
#define MIB(x) ((uint64_t)(x) << 20)

#define SEEN "torch.OutOfMemoryError texts in public issues"
#define DATASHEET "datasheet size less 1.5 %"
#define NCCL_SUM "sum over NCCL 2.28 allocations, not measured"

#define OLD_CUBLAS 8519680U
#define GPU(name, title, gib, source, cublas, init, ring)                                          \
    {                                                                                              \
        name, title, GIB(gib), MIB(512), cublas, MIB(init), MIB(ring), MIB(208), source, NCCL_SUM  \
    }

static const struct gpu gpus[] = {
    GPU("v100-16gb", "NVIDIA V100 16 GB", 15.76, DATASHEET, OLD_CUBLAS, 200, 288),
    GPU("v100-32gb", "NVIDIA V100 32 GB", 31.74, SEEN, OLD_CUBLAS, 200, 288),
    GPU("a100-sxm-40gb", "NVIDIA A100 SXM 40 GB", 39.38, SEEN, OLD_CUBLAS, 200, 288),
    GPU("a100-sxm-80gb", "NVIDIA A100 SXM 80 GB", 79.10, SEEN, OLD_CUBLAS, 200, 288),
    GPU("a100-pcie-40gb", "NVIDIA A100 PCIe 40 GB", 39.38, SEEN, OLD_CUBLAS, 56, 48),
    GPU("a100-pcie-80gb", "NVIDIA A100 PCIe 80 GB", 79.10, SEEN, OLD_CUBLAS, 56, 48),
    GPU("a10", "NVIDIA A10 24 GB", 22.03, SEEN, OLD_CUBLAS, 56, 48),
    GPU("l4", "NVIDIA L4 24 GB", 22.03, SEEN, OLD_CUBLAS, 56, 48),
    GPU("l40s", "NVIDIA L40S 48 GB", 44.34, SEEN, OLD_CUBLAS, 56, 48),
    GPU("rtx-3090", "NVIDIA RTX 3090 24 GB", 23.64, DATASHEET, OLD_CUBLAS, 56, 48),
    GPU("rtx-4090", "NVIDIA RTX 4090 24 GB", 23.64, SEEN, OLD_CUBLAS, 56, 48),
    GPU("rtx-5090", "NVIDIA RTX 5090 32 GB", 31.34, SEEN, MIB(32), 56, 48),
    GPU("h100-sxm", "NVIDIA H100 SXM 80 GB", 79.10, SEEN, MIB(32), 232, 288),
    GPU("h100-pcie", "NVIDIA H100 PCIe 80 GB", 79.10, SEEN, MIB(32), 56, 48),
    GPU("h100-nvl", "NVIDIA H100 NVL 94 GB", 93.02, SEEN, MIB(32), 56, 48),
    GPU("h100-sxm-96gb", "NVIDIA H100 SXM 96 GB", 93.02, SEEN, MIB(32), 232, 288),
    GPU("h200", "NVIDIA H200 SXM 141 GB", 139.72, SEEN, MIB(32), 232, 288),
    GPU("gh200", "NVIDIA GH200 96 GB", 94.56, DATASHEET, MIB(32), 232, 288),
    GPU("b200", "NVIDIA B200 SXM 180 GB", 178.35, SEEN, MIB(32), 264, 384),
    GPU("gb200", "NVIDIA GB200 186 GB", 184.31, SEEN, MIB(32), 264, 384),
    GPU("mi250x", "AMD MI250X, one GCD, 64 GB", 63.04, DATASHEET, MIB(32), 200, 288),
    GPU("mi300x", "AMD MI300X 192 GB", 191.69, SEEN, MIB(128), 200, 288),
};

const struct gpu *gpu_list(uint32_t *count)
{
    *count = sizeof gpus / sizeof gpus[0];
    return gpus;
}

enum err_code gpu_find(const char *name, struct gpu *out, struct err *err)
{
    char known[640] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        if (strcasecmp(name, gpus[i].name) == 0) {
            *out = gpus[i];
            return ERR_OK;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 gpus[i].name);
    }
    return err_set(err, ERR_INVALID, "--gpu %s is not known; known are %s", name, known);
}

static enum err_code read_bytes(const char *path, const json_t *root, const char *key,
                                uint64_t *field, struct err *err)
{
    const json_t *value = json_object_get(root, key);
    if (!value)
        return ERR_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > (json_int_t)1 << 50)
        return err_set(err, ERR_INVALID, "%s: \"%s\": expected bytes, an integer 0 ... 2^50", path,
                       key);
    *field = (uint64_t)json_integer_value(value);
    return ERR_OK;
}

static enum err_code read_profile(const char *path, const json_t *root, struct gpu *out,
                                  struct err *err)
{
    if (!json_is_object(root))
        return err_set(err, ERR_INVALID, "%s: expected a JSON object", path);
    const json_t *gpu = json_object_get(root, "gpu");
    if (gpu && !json_is_string(gpu))
        return err_set(err, ERR_INVALID, "%s: \"gpu\": expected the name of a GPU", path);
    if (gpu && gpu_find(json_string_value(gpu), out, err) != ERR_OK)
        return err_context(err, "%s: \"gpu\"", path);
    const json_t *name = json_object_get(root, "name");
    if (name && !json_is_string(name))
        return err_set(err, ERR_INVALID, "%s: \"name\": expected a string", path);
    if (name)
        snprintf(out->name, sizeof out->name, "%s", json_string_value(name));
    TRY(read_bytes(path, root, "capacity_bytes", &out->capacity_bytes, err));
    TRY(read_bytes(path, root, "context_bytes", &out->context_bytes, err));
    TRY(read_bytes(path, root, "cublas_workspace_bytes", &out->cublas_workspace_bytes, err));
    TRY(read_bytes(path, root, "nccl_init_bytes", &out->nccl_init_bytes, err));
    TRY(read_bytes(path, root, "nccl_ring_bytes", &out->nccl_ring_bytes, err));
    TRY(read_bytes(path, root, "nccl_net_bytes", &out->nccl_net_bytes, err));
    if (out->capacity_bytes == 0)
        return err_set(err, ERR_INVALID, "%s: \"capacity_bytes\" or \"gpu\" is missing", path);
    return ERR_OK;
}

enum err_code gpu_read(const char *path, struct gpu *out, struct err *err)
{
    json_error_t at;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        return err_set(err, ERR_INVALID, "%s:%d:%d: %s", path, at.line, at.column, at.text);
    const enum err_code rc = read_profile(path, root, out, err);
    json_decref(root);
    return rc;
}

uint64_t gpu_communicator_bytes(const struct gpu *gpu, uint32_t ranks, int across_nodes)
{
    if (ranks < 2)
        return 0;
    return gpu->nccl_init_bytes + (across_nodes ? gpu->nccl_net_bytes : gpu->nccl_ring_bytes);
}
