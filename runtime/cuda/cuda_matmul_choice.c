/* cuda_matmul_choice.c - which of cuBLASLt's kernels a product runs with: the fastest of the first
 * MATMUL_CHOICES of its heuristic, found before the first step, in memory that is given back then.
 *
 * Another kernel sums in another order, so the choice is part of what a run computes:
 *
 *     all ranks     have rank 0's: it measures, or reads the file, and tells the others
 *     another run   has the same with --products FILE, to which what it lacks is added
 *     always        with --deterministic and no file nothing is measured: the heuristic's first
 *
 * A choice holds for one version of cuBLASLt and one GPU: rank 0's are nobody else's where these
 * differ, and a file of others is refused. */
#include "runtime/cuda/cuda_matmul.h"

#include "runtime/cuda/cuda_device.h"
#include "runtime/work/half.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Kernels take turns, so that a clock that is still rising favours none; the first round does not
 * count. Another than the heuristic's first must be faster by more than times vary. */
enum { ROUNDS = 4, ALIGNMENT = 256, ALGORITHM_WORDS = 8, HELD_NS = 100000 };
#define FASTER 0.98F

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == ALGORITHM_WORDS * sizeof(uint64_t), "opaque words");

struct made_by { /* whose choices they are */
    uint64_t version;
    char gpu[64];
};

struct choice {
    struct shape_key key;
    cublasLtMatmulAlgo_t algorithm;
};

static enum err_code ask_maker(struct made_by *out, struct err *err)
{
    struct cudaDeviceProp properties;
    int ordinal = 0;
    memset(out, 0, sizeof *out);
    TRY_CUDA(err, cudaGetDevice(&ordinal));
    TRY_CUDA(err, cudaGetDeviceProperties(&properties, ordinal));
    out->version = cublasLtGetVersion();
    snprintf(out->gpu, sizeof out->gpu, "%.63s", properties.name);
    return ERR_OK;
}

/* ---- measuring ---- */

struct bench {
    struct cuda_device *cuda;
    cudaEvent_t begin, end;
    char *memory; /* of one product at a time */
    struct matmul_memory at;
};

static uint64_t whole(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Small numbers without a pattern: what a product of zeros takes says little, as it draws less. */
static cudaError_t fill(const void *to, uint64_t bytes, unsigned dtype, cudaStream_t stream)
{
    char *begin = (char *)(uintptr_t)to;  /* the bench's own */
    static const uint64_t most = 1 << 16; /* numbers made here; the rest are copies of them */
    const uint64_t size = dtype == DTYPE_FP32 ? 4 : 2,
                   block = bytes / size < most ? bytes / size : most;
    char *numbers = xmalloc(block * size + 1);
    uint32_t seed = 1;
    for (uint64_t i = 0; i < block; i++) {
        seed = seed * 1664525U + 1013904223U;
        const float x = (float)(seed >> 8) / 8388608.0F - 1.0F;
        const uint16_t half = dtype == DTYPE_BF16 ? bf16_from_float(x) : fp16_from_float(x);
        memcpy(numbers + i * size, dtype == DTYPE_FP32 ? (const void *)&x : (const void *)&half,
               size);
    }
    cudaError_t rc = cudaMemcpyAsync(begin, numbers, block * size, cudaMemcpyHostToDevice, stream);
    for (uint64_t done = block * size; done < bytes && rc == cudaSuccess;) {
        const uint64_t more = done < bytes - done ? done : bytes - done;
        rc = cudaMemcpyAsync(begin + done, begin, more, cudaMemcpyDeviceToDevice, stream);
        done += more;
    }
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(stream); /* `numbers` is read */
    free(numbers);
    return rc;
}

enum { FIRST, SECOND, BIAS, OUT, WORKSPACE, PARTS };

static void size_parts(const struct shape_key *key, uint64_t bytes[PARTS])
{
    const bool first_turned = key->kind == WORK_MATMUL_NT || key->kind == WORK_MATMUL_NT_BIAS;
    const bool second_turned = key->kind == WORK_MATMUL_TN;
    const uint64_t size = dtype_bytes((enum dtype)key->dtype);
    const uint64_t out_size = dtype_bytes((enum dtype)key->out_dtype);
    bytes[FIRST] = (uint64_t)key->first_pitch * (first_turned ? key->m : key->k) * size;
    bytes[SECOND] = (uint64_t)key->second_pitch * (second_turned ? key->k : key->n) * size;
    bytes[BIAS] = (uint64_t)key->m * out_size;
    bytes[OUT] = (uint64_t)key->out_pitch * key->n * out_size;
    bytes[WORKSPACE] = key->workspace_bytes;
}

/* Aligned as the product's operands are. False: there is no room. */
static bool find_memory(struct bench *bench, const struct shape_key *key)
{
    const uint64_t skew = key->alignment % 16;
    uint64_t bytes[PARTS], all = 0;
    char *at[PARTS];
    void *memory = NULL;
    size_parts(key, bytes);
    for (int i = 0; i < PARTS; i++)
        all += whole(bytes[i] + skew);
    if (cudaMalloc(&memory, all) != cudaSuccess) {
        cudaGetLastError(); /* no error of a later call */
        return false;
    }
    bench->memory = memory;
    all = 0;
    for (int i = 0; i < PARTS; i++) {
        at[i] = bench->memory + all + (i == WORKSPACE ? 0 : skew);
        all += whole(bytes[i] + skew);
    }
    bench->at = (struct matmul_memory){.first = at[FIRST],
                                       .second = at[SECOND],
                                       .bias = at[BIAS],
                                       .out = at[OUT],
                                       .workspace = bytes[WORKSPACE] ? at[WORKSPACE] : NULL,
                                       .workspace_bytes = bytes[WORKSPACE]};
    return true;
}

static enum err_code fill_all(const struct bench *bench, const struct shape_key *key,
                              struct err *err)
{
    cudaStream_t stream = bench->cuda->stream[LANE_COMPUTE];
    uint64_t bytes[PARTS];
    size_parts(key, bytes);
    TRY_CUDA(err, fill(bench->at.first, bytes[FIRST], key->dtype, stream));
    TRY_CUDA(err, fill(bench->at.second, bytes[SECOND], key->dtype, stream));
    TRY_CUDA(err, fill(bench->at.bias, bytes[BIAS], key->out_dtype, stream));
    return ERR_OK;
}

/* Holds the stream for as long as the host takes to queue a product: a time that begins when the
 * GPU is idle has the launch in it, which is the host's and varies. */
static cudaError_t hold(const struct cuda_device *cuda)
{
    uint64_t *begin = cuda_scratch(cuda, LANE_COMPUTE).data;
    const cudaError_t rc = kernel_clock(begin, cuda->stream[LANE_COMPUTE]);
    return rc == cudaSuccess ? kernel_wait(begin, HELD_NS, cuda->stream[LANE_COMPUTE]) : rc;
}

/* Milliseconds; ERR_OK and a negative time: this kernel does not take it. */
static enum err_code time_choice(struct bench *bench, const struct product *product,
                                 const cublasLtMatmulAlgo_t *algorithm, float *ms, struct err *err)
{
    struct cuda_device *cuda = bench->cuda;
    cudaStream_t stream = cuda->stream[LANE_COMPUTE];
    *ms = -1.0F;
    TRY_CUDA(err, hold(cuda));
    TRY_CUDA(err, cudaEventRecord(bench->begin, stream));
    if (matmul_run(cuda->matmuls, product, algorithm, &bench->at, stream) != CUBLAS_STATUS_SUCCESS)
        return ERR_OK;
    TRY_CUDA(err, cudaEventRecord(bench->end, stream));
    TRY(cuda_await(cuda, LANE_COMPUTE, bench->end, err));
    TRY_CUDA(err, cudaEventElapsedTime(ms, bench->begin, bench->end));
    return ERR_OK;
}

/* The fastest of the choices, in its best round. */
static enum err_code pick(struct bench *bench, struct product *product,
                          const cublasLtMatmulAlgo_t *choices, uint32_t count, struct err *err)
{
    float best[MATMUL_CHOICES] = {0};
    uint32_t fastest = 0;
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < count; i++) {
            float ms = 0.0F;
            if (round > 0 && best[i] < 0.0F)
                continue;
            TRY(time_choice(bench, product, &choices[i], &ms, err));
            if (round < 2 || (ms >= 0.0F && ms < best[i]))
                best[i] = ms;
        }
    for (uint32_t i = 1; i < count; i++)
        if (best[i] >= 0.0F &&
            (best[fastest] < 0.0F || best[i] < best[fastest] * (fastest == 0 ? FASTER : 1.0F)))
            fastest = i;
    product->algorithm = choices[fastest];
    return ERR_OK;
}

/* Where there is no room to measure it, it keeps the heuristic's first. */
static enum err_code measure(struct bench *bench, const struct work *work, struct product *product,
                             struct err *err)
{
    cublasLtMatmulAlgo_t choices[MATMUL_CHOICES];
    uint32_t count = 0;
    TRY(matmul_list(bench->cuda->matmuls, work, product, choices, &count, err));
    if (count < 2 || !find_memory(bench, &product->key))
        return ERR_OK;
    enum err_code rc = fill_all(bench, &product->key, err);
    if (rc == ERR_OK)
        rc = pick(bench, product, choices, count, err);
    cudaFree(bench->memory); /* waits for what still uses it */
    return rc;
}

/* ---- the file ---- */

/* The product that it is of, which has it then; NULL: none of this plan's. */
static struct product *use_choice(struct cuda_matmuls *matmuls, const struct choice *choice)
{
    for (uint32_t i = 0; i < matmuls->count; i++) {
        struct product *product = &matmuls->products[i];
        if (memcmp(&product->key, &choice->key, sizeof choice->key) != 0)
            continue;
        product->algorithm = choice->algorithm;
        return product;
    }
    return NULL;
}

#define TITLE "shardrun's products"

/* A line each: numbers of the key, then the words of the algorithm. */
static bool read_choice(const char *line, struct choice *out)
{
    uint32_t small[4];
    int used = 0;
    memset(out, 0, sizeof *out);
    if (sscanf(line, "%u %u %u %u %u %u %u %u %u %u %" SCNu64 "%n", &out->key.kind, &out->key.m,
               &out->key.n, &out->key.k, &out->key.first_pitch, &out->key.second_pitch,
               &out->key.out_pitch, &small[0], &small[1], &small[2], &out->key.workspace_bytes,
               &used) != 11)
        return false;
    out->key.dtype = (uint8_t)small[0];
    out->key.out_dtype = (uint8_t)small[1];
    out->key.alignment = (uint8_t)small[2];
    for (int i = 0; i < ALGORITHM_WORDS; i++) {
        int more = 0;
        if (sscanf(line + used, " %" SCNx64 "%n", &out->algorithm.data[i], &more) != 1)
            return false;
        used += more;
    }
    return true;
}

static enum err_code read_lines(struct cuda_matmuls *matmuls, FILE *file, const char *path,
                                const struct made_by *maker, bool *known, struct err *err)
{
    char line[512], begin[256];
    snprintf(begin, sizeof begin, TITLE " of cuBLASLt %" PRIu64 " on %s\n", maker->version,
             maker->gpu);
    if (!fgets(line, sizeof line, file) || strncmp(line, TITLE, sizeof TITLE - 1) != 0)
        return err_set(err, ERR_INVALID, "--products %s: not " TITLE, path);
    if (strcmp(line, begin) != 0)
        return err_set(err, ERR_INVALID,
                       "--products %s: its first line is \"%.*s\", and here it would be \"%.*s\": "
                       "they are measured anew into another file",
                       path, (int)strcspn(line, "\n"), line, (int)strcspn(begin, "\n"), begin);
    for (uint32_t n = 2; fgets(line, sizeof line, file); n++) {
        struct choice choice;
        if (!read_choice(line, &choice))
            return err_set(err, ERR_INVALID, "--products %s: line %u is no product", path, n);
        const struct product *product = use_choice(matmuls, &choice);
        if (product)
            known[product - matmuls->products] = true;
    }
    return ERR_OK;
}

/* Marks the products that the file has, which may be of several plans; none where it is not there.
 */
static enum err_code read_file(struct cuda_matmuls *matmuls, const char *path,
                               const struct made_by *maker, bool *known, struct err *err)
{
    FILE *file = fopen(path, "r");
    if (!file && errno == ENOENT)
        return ERR_OK;
    if (!file)
        return err_set(err, ERR_IO, "--products %s: %s", path, strerror(errno));
    const enum err_code rc = read_lines(matmuls, file, path, maker, known, err);
    fclose(file);
    return rc;
}

/* Adds those that it lacked. */
static enum err_code write_file(const struct cuda_matmuls *matmuls, const char *path,
                                const struct made_by *maker, const bool *known, struct err *err)
{
    struct stat before;
    const bool begun = stat(path, &before) == 0 && before.st_size > 0;
    FILE *file = fopen(path, "a");
    if (!file)
        return err_set(err, ERR_IO, "--products %s: %s", path, strerror(errno));
    if (!begun)
        fprintf(file, TITLE " of cuBLASLt %" PRIu64 " on %s\n", maker->version, maker->gpu);
    for (uint32_t i = 0; i < matmuls->count; i++) {
        const struct shape_key *key = &matmuls->products[i].key;
        if (known[i])
            continue;
        fprintf(file, "%u %u %u %u %u %u %u %u %u %u %" PRIu64, key->kind, key->m, key->n, key->k,
                key->first_pitch, key->second_pitch, key->out_pitch, key->dtype, key->out_dtype,
                key->alignment, key->workspace_bytes);
        for (int w = 0; w < ALGORITHM_WORDS; w++)
            fprintf(file, " %" PRIx64, matmuls->products[i].algorithm.data[w]);
        fputc('\n', file);
    }
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed)
        return err_set(err, ERR_IO, "--products %s: %s", path, strerror(errno));
    return ERR_OK;
}

/* ---- among ranks ---- */

/* From rank 0 to all. */
static enum err_code tell(const struct cuda_device *cuda, void *data, uint64_t bytes,
                          struct err *err)
{
    const struct cuda_settings *settings = &cuda->settings;
    if (!settings->comm || settings->ranks < 2)
        return ERR_OK;
    return settings->host.broadcast(settings->comm, data, bytes, 0, err);
}

/* Whether rank 0's choices hold for this rank. */
static bool is_alike(const struct cuda_device *cuda, const struct made_by *first,
                     const struct made_by *own)
{
    if (memcmp(first, own, sizeof *own) == 0)
        return true;
    fprintf(stderr,
            "note: rank %u has cuBLASLt %" PRIu64 " on %s and rank 0 has %" PRIu64
            " on %s: their products may sum in other orders\n",
            cuda->settings.rank, own->version, own->gpu, first->version, first->gpu);
    return false;
}

/* ---- all of it ---- */

/* Product by product, so that no rank waits for long. One that another rank meets and rank 0 does
 * not keeps the heuristic's first choice. */
static enum err_code choose_all(struct cuda_device *cuda, const struct made_by *own,
                                const struct work *works, const uint32_t *work_of,
                                const bool *known, struct err *err)
{
    struct cuda_matmuls *matmuls = cuda->matmuls;
    const bool is_first = cuda->settings.rank == 0;
    struct made_by first = *own;
    uint64_t count = matmuls->count;
    TRY(tell(cuda, &first, sizeof first, err));
    TRY(tell(cuda, &count, sizeof count, err));
    const bool alike = is_alike(cuda, &first, own);
    struct bench bench = {.cuda = cuda};
    TRY_CUDA(err, cudaEventCreate(&bench.begin));
    enum err_code rc = cuda_check(cudaEventCreate(&bench.end), "cudaEventCreate", err);
    for (uint64_t i = 0; i < count && rc == ERR_OK; i++) {
        struct choice choice;
        memset(&choice, 0, sizeof choice);
        if (is_first && !known[i])
            rc = measure(&bench, &works[work_of[i]], &matmuls->products[i], err);
        if (is_first)
            choice = (struct choice){matmuls->products[i].key, matmuls->products[i].algorithm};
        if (rc == ERR_OK)
            rc = tell(cuda, &choice, sizeof choice, err);
        if (rc == ERR_OK && alike)
            use_choice(matmuls, &choice);
    }
    cudaEventDestroy(bench.begin);
    if (bench.end)
        cudaEventDestroy(bench.end);
    return rc;
}

enum err_code cuda_matmuls_prepare(struct cuda_device *cuda, const struct work *works,
                                   uint32_t count, struct err *err)
{
    struct cuda_matmuls *matmuls = cuda->matmuls;
    const char *path = cuda->settings.rank == 0 ? cuda->settings.products : NULL;
    const bool measured = path || !cuda->settings.deterministic;
    const uint32_t before = matmuls->count; /* chosen at an earlier call */
    uint32_t *work_of = xcalloc(before + count + 1U, sizeof *work_of); /* one of each product */
    bool *known = xmalloc(before + count + 1U); /* each product: is not to be measured */
    struct made_by maker;
    enum err_code rc = ask_maker(&maker, err);
    for (uint32_t i = 0; i < count && rc == ERR_OK; i++) {
        struct product *product = NULL;
        if (works[i].kind > WORK_MATMUL_TN) /* of many matrices: no product of cuda_matmul.c */
            continue;
        rc = matmul_find(matmuls, &works[i], &product, err);
        if (product)
            work_of[product - matmuls->products] = i;
    }
    for (uint32_t i = 0; i < before + count; i++)
        known[i] = !measured || i < before;
    if (rc == ERR_OK && path)
        rc = read_file(matmuls, path, &maker, known, err);
    if (rc == ERR_OK)
        rc = choose_all(cuda, &maker, works, work_of, known, err);
    if (rc == ERR_OK && path)
        rc = write_file(matmuls, path, &maker, known, err);
    free(known);
    free(work_of);
    return rc;
}
