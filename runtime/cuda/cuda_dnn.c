/* cuda_dnn.c - see cuda_dnn.h. The graphs are those that NVIDIA's cudnn-frontend builds for scaled
 * dot-product attention (node/scaled_dot_product_flash_attention.h), which cuDNN's fused engines
 * know: operation for operation, since an engine takes a graph by its form.
 *
 *     forward    s = q kᵀ · scale, masked;  m = max s, l = Σ exp(s - m)
 *                stats = m + log l;  o = (exp(s - m) / l) v
 *     backward   D = Σ do · o;  p = exp(s - stats);  dv = pᵀ do
 *                ds = (do vᵀ - D) · p · scale;  dk = dsᵀ q;  dq = ds k, summed in fp32
 *
 * Engines add parts of dq with atomics: the same step may differ in its last bits. Where it must
 * not, dq is a product like the others, as the front end's set_deterministic_algorithm has it; the
 * engine then keeps ds whole (b·a·s·s numbers of 16 bits) in its workspace.
 *
 * Memory: backward wants D (b·a·s floats), the sum of dq (b·a·s·d floats) and the engine's own. The
 * plan's buffer for attention's backward, which has the like, takes what it has room for, then the
 * stream's scratch, then memory that no plan has. */
#include "runtime/cuda/cuda_dnn.h"

#include "base/arena.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_dnn_graph.h"
#include "runtime/cuda/cuda_room.h"
#include "runtime/work/operand.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum id { /* of tensors that have memory */
          ID_Q = 1,
          ID_K,
          ID_V,
          ID_O,
          ID_STATS,
          ID_SCALE,
          ID_NEGATIVE_INFINITY,
          ID_ONE,
          ID_DO,
          ID_DQ,
          ID_DK,
          ID_DV,
          ID_DELTA,
          ID_DQ_SUM,
          ID_COUNT,
          ID_FIRST_VIRTUAL = 100
};

struct form_key { /* compared as bytes: made from zero */
    uint32_t b, s, s_k, a, d;
    uint32_t a_k;      /* heads of k and v: a, or fewer that several share */
    uint32_t pitch[9]; /* q, k, v, o, do, dq, dk, dv, and 0: elements between tokens */
    uint8_t dtype, causal, backward, unused;
};

struct entry {
    struct form_key key;
    struct dnn_graph *graph;       /* what the plan was made of, kept as long as it */
    cudnnBackendDescriptor_t plan; /* NULL: no engine takes it, why: */
    struct err why;
    uint64_t engine_bytes;
    bool ran;
};

struct cuda_dnn {
    struct dnn_library library;
    struct dnn_target target;
    size_t version;
    bool deterministic;
    int capability; /* of the GPU: 90 is 9.0 */
    struct entry *entries;
    uint32_t count, cap;
    void *own; /* workspace where the plan's is too small */
    uint64_t own_bytes;
};

static enum err_code start_here(struct cuda_dnn *dnn, struct err *err)
{
    int ordinal = 0, major = 0, minor = 0;
    TRY_CUDA(err, cudaGetDevice(&ordinal));
    TRY_CUDA(err, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
    TRY_CUDA(err, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal));
    dnn->capability = 10 * major + minor;
    const cudnnStatus_t rc = dnn->library.create(&dnn->target.handle);
    return rc == CUDNN_STATUS_SUCCESS ? ERR_OK : dnn_refuse(&dnn->library, "cudnnCreate", rc, err);
}

/* Its "deviceVer" is 900 for a compute capability of 9.0. */
static enum err_code start_elsewhere(struct cuda_dnn *dnn, const char *properties, struct err *err)
{
    const struct dnn_library *library = &dnn->library;
    cudnnBackendDescriptor_t made = NULL;
    const char *version = strstr(properties, "\"deviceVer\":");
    dnn->capability = version ? atoi(version + strlen("\"deviceVer\":")) / 10 : 0;
    cudnnStatus_t rc = library->descriptor_new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = library->set(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                          (int64_t)strlen(properties), properties);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = library->finalize(made);
    if (rc == CUDNN_STATUS_SUCCESS) {
        dnn->target.properties = made;
        return ERR_OK;
    }
    dnn_refuse(library, "cudnnBackendFinalize of a GPU's properties", rc, err);
    if (made)
        library->descriptor_free(made);
    return err->code;
}

enum err_code cuda_dnn_open(bool deterministic, const char *properties, struct cuda_dnn **out,
                            struct err *err)
{
    struct cuda_dnn *dnn = xcalloc(1, sizeof *dnn);
    dnn->deterministic = deterministic;
    *out = NULL;
    enum err_code rc = dnn_library_load(&dnn->library, err);
    if (rc == ERR_OK) {
        dnn->version = dnn->library.version();
        rc = properties ? start_elsewhere(dnn, properties, err) : start_here(dnn, err);
    }
    if (rc == ERR_OK)
        *out = dnn;
    else
        free(dnn);
    return rc;
}

uint32_t cuda_dnn_version(const struct cuda_dnn *dnn)
{
    return (uint32_t)dnn->version;
}

uint64_t cuda_dnn_own_bytes(const struct cuda_dnn *dnn)
{
    return dnn->own_bytes;
}

void cuda_dnn_close(struct cuda_dnn *dnn)
{
    if (!dnn)
        return;
    for (uint32_t i = 0; i < dnn->count; i++) {
        if (dnn->entries[i].plan)
            dnn->library.descriptor_free(dnn->entries[i].plan);
        graph_close(dnn->entries[i].graph);
        free(dnn->entries[i].graph);
    }
    if (dnn->target.handle)
        dnn->library.destroy(dnn->target.handle);
    if (dnn->target.properties)
        dnn->library.descriptor_free(dnn->target.properties);
    cudaFree(dnn->own);
    free(dnn->entries);
    free(dnn);
}

/* ---- forms ---- */

/* (b, a, s, d) over memory in the order (b, s, a, d), or its transpose (b, a, d, s); of k and v
 * with their own heads and tokens. */
static struct dnn_form heads_form(const struct form_key *key, bool keys, uint32_t pitch,
                                  bool turned)
{
    const int64_t a = keys ? key->a_k : key->a, s = keys ? key->s_k : key->s, d = key->d, p = pitch;
    if (turned)
        return (struct dnn_form){{key->b, a, d, s}, {s * p, d, 1, p}};
    return (struct dnn_form){{key->b, a, s, d}, {s * p, d, p, 1}};
}

static struct dnn_form scores_form(const struct form_key *key)
{
    return dnn_packed(key->b, key->a, key->s, key->s_k);
}

static struct dnn_form rows_form(const struct form_key *key)
{
    return (struct dnn_form){{key->b, key->a, key->s, 1}, {(int64_t)key->a * key->s, key->s, 1, 1}};
}

/* ---- parts that both directions have ---- */

struct build {
    struct dnn_graph *graph;
    const struct form_key *key;
    cudnnDataType_t io;
    dnn_tensor scale;
};

enum { OF_QUERIES, OF_KEYS };

static dnn_tensor heads(const struct build *b, enum id id, bool keys, int pitch, bool turned)
{
    const struct dnn_form form = heads_form(b->key, keys, b->key->pitch[pitch], turned);
    return graph_tensor(b->graph, id, b->io, &form);
}

static dnn_tensor scores(const struct build *b, cudnnDataType_t type)
{
    const struct dnn_form form = scores_form(b->key);
    return graph_virtual(b->graph, type, &form);
}

static dnn_tensor rows(const struct build *b)
{
    const struct dnn_form form = rows_form(b->key);
    return graph_virtual(b->graph, CUDNN_DATA_FLOAT, &form);
}

/* A new tensor of scores: mode(x, other). */
static dnn_tensor apply(const struct build *b, cudnnPointwiseMode_t mode, dnn_tensor x,
                        dnn_tensor other)
{
    dnn_tensor y = scores(b, CUDNN_DATA_FLOAT);
    graph_pointwise(b->graph, mode, CUDNN_DATA_FLOAT, -1, x, other, NULL, y);
    return y;
}

/* x where the row's number is not below the column's, else minus infinity. */
static dnn_tensor mask(const struct build *b, dnn_tensor x)
{
    dnn_tensor row = scores(b, CUDNN_DATA_INT32), column = scores(b, CUDNN_DATA_INT32);
    dnn_tensor seen = scores(b, CUDNN_DATA_BOOLEAN), y = scores(b, CUDNN_DATA_FLOAT);
    graph_pointwise(b->graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2, x, NULL, NULL, row);
    graph_pointwise(b->graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3, x, NULL, NULL,
                    column);
    graph_pointwise(b->graph, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, column, NULL,
                    seen);
    graph_pointwise(b->graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x,
                    graph_number(b->graph, ID_NEGATIVE_INFINITY), seen, y);
    return y;
}

/* q kᵀ · scale */
static dnn_tensor scaled_scores(const struct build *b, dnn_tensor q, dnn_tensor k_turned)
{
    dnn_tensor product = scores(b, CUDNN_DATA_FLOAT);
    graph_matmul(b->graph, q, k_turned, product);
    return apply(b, CUDNN_POINTWISE_MUL, product, b->scale);
}

static dnn_tensor stats_tensor(const struct build *b)
{
    const struct dnn_form form = rows_form(b->key);
    return graph_tensor(b->graph, ID_STATS, CUDNN_DATA_FLOAT, &form);
}

/* ---- the graphs ---- */

static void build_forward(const struct build *b)
{
    struct dnn_graph *graph = b->graph;
    const struct form_key *key = b->key;
    dnn_tensor q = heads(b, ID_Q, OF_QUERIES, 0, false), k = heads(b, ID_K, OF_KEYS, 1, true);
    dnn_tensor s = scaled_scores(b, q, k);
    if (key->causal)
        s = mask(b, s);
    dnn_tensor most = rows(b), sum = rows(b), log_sum = rows(b);
    graph_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, s, most);
    dnn_tensor away = apply(b, CUDNN_POINTWISE_SUB, s, most);
    dnn_tensor e = apply(b, CUDNN_POINTWISE_EXP, away, NULL);
    graph_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    graph_pointwise(graph, CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, -1, sum, NULL, NULL, log_sum);
    graph_pointwise(graph, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, -1, most, log_sum, NULL,
                    stats_tensor(b));
    dnn_tensor p = scores(b, b->io); /* the second product takes the operands' dtype */
    graph_pointwise(graph, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, -1, e, sum, NULL, p);
    graph_matmul(graph, p, heads(b, ID_V, OF_KEYS, 2, false), heads(b, ID_O, OF_QUERIES, 3, false));
}

/* x (b, a, s, s_k) as (b, a, s_k, s), in the operands' dtype. */
static dnn_tensor turn_scores(const struct build *b, dnn_tensor x)
{
    const int64_t s = b->key->s, s_k = b->key->s_k;
    const struct dnn_form form = {{b->key->b, b->key->a, s_k, s},
                                  {b->key->a * s * s_k, s * s_k, 1, s_k}};
    dnn_tensor y = graph_virtual(b->graph, b->io, &form);
    graph_reshape(b->graph, x, y);
    return y;
}

/* Σ do · o over a row, times one: the front end's form, where dropout would have a factor. */
static dnn_tensor find_delta(const struct build *b, dnn_tensor dout)
{
    const struct form_key *key = b->key;
    const int64_t a = key->a, s = key->s, d = key->d;
    /* The front end's strides, letter for letter: an engine takes a graph by its form, and nothing
     * lies in memory here. */
    const struct dnn_form whole = {{key->b, a, s, d}, {a * s * d, s * d, a * d, 1}};
    const struct dnn_form form = rows_form(key);
    dnn_tensor product = graph_virtual(b->graph, CUDNN_DATA_FLOAT, &whole), sum = rows(b);
    dnn_tensor delta = graph_tensor(b->graph, ID_DELTA, CUDNN_DATA_FLOAT, &form);
    graph_pointwise(b->graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, dout,
                    heads(b, ID_O, OF_QUERIES, 3, false), NULL, product);
    graph_reduce(b->graph, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    graph_pointwise(b->graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, sum,
                    graph_number(b->graph, ID_ONE), NULL, delta);
    return delta;
}

/* y = x z; where several heads share keys, of all heads, then their sum. */
static void give_keys(const struct build *b, dnn_tensor x, dnn_tensor z, dnn_tensor y)
{
    const struct form_key *key = b->key;
    const struct dnn_form whole = dnn_packed(key->b, key->a, key->s_k, key->d);
    if (key->a_k == key->a) {
        graph_matmul(b->graph, x, z, y);
        return;
    }
    dnn_tensor all = graph_virtual(b->graph, b->io, &whole);
    graph_matmul(b->graph, x, z, all);
    graph_reduce(b->graph, CUDNN_REDUCE_TENSOR_ADD, all, y);
}

/* `k_type`: of k turned back within the graph. The front end makes it fp32. `direct`: dq without a
 * sum of its own. */
static void build_backward(const struct build *b, cudnnDataType_t k_type, bool direct)
{
    struct dnn_graph *graph = b->graph;
    const struct form_key *key = b->key;
    dnn_tensor q = heads(b, ID_Q, OF_QUERIES, 0, false), k = heads(b, ID_K, OF_KEYS, 1, true);
    dnn_tensor v = heads(b, ID_V, OF_KEYS, 2, true), dout = heads(b, ID_DO, OF_QUERIES, 4, false);
    dnn_tensor delta = find_delta(b, dout);
    dnn_tensor s = apply(b, CUDNN_POINTWISE_SUB, scaled_scores(b, q, k), stats_tensor(b));
    if (key->causal)
        s = mask(b, s);
    dnn_tensor p = apply(b, CUDNN_POINTWISE_EXP, s, NULL);
    give_keys(b, turn_scores(b, p), dout, heads(b, ID_DV, OF_KEYS, 7, false));
    dnn_tensor dp = scores(b, CUDNN_DATA_FLOAT);
    graph_matmul(graph, dout, v, dp);
    dnn_tensor slope = apply(b, CUDNN_POINTWISE_SUB, dp, delta);
    slope = apply(b, CUDNN_POINTWISE_MUL, slope, p);
    dnn_tensor ds = apply(b, CUDNN_POINTWISE_MUL, slope, b->scale);
    give_keys(b, turn_scores(b, ds), q, heads(b, ID_DK, OF_KEYS, 6, false));
    const struct dnn_form k_form = heads_form(key, OF_KEYS, key->pitch[1], false);
    const struct dnn_form sum_form = dnn_packed(key->b, key->a, key->s, key->d);
    dnn_tensor k_back = graph_virtual(graph, k_type, &k_form);
    dnn_tensor dq = heads(b, ID_DQ, OF_QUERIES, 5, false);
    dnn_tensor sum = direct ? dq : graph_tensor(graph, ID_DQ_SUM, CUDNN_DATA_FLOAT, &sum_form);
    graph_reshape(graph, k, k_back);
    graph_matmul(graph, ds, k_back, sum);
    if (!direct)
        graph_pointwise(graph, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, -1, sum, NULL, NULL, dq);
}

/* On Blackwell the engine of a deterministic backward is not in the heuristic's list: from
 * cuDNN 9.18 on the front end asks for it by number, from 9.23 on by other settings
 * (override_heuristics_query). False: it is in the list. */
static bool find_engine(const struct cuda_dnn *dnn, const struct form_key *key,
                        struct dnn_engine *out)
{
    static const struct dnn_engine older = {
        .knobs = 2, .knob = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}}};
    static const struct dnn_engine newer = {.knobs = 6,
                                            .knob = {{CUDNN_KNOB_TYPE_TILE_M, 3},
                                                     {CUDNN_KNOB_TYPE_TILE_N, 2},
                                                     {CUDNN_KNOB_TYPE_KERNEL_CFG, 2},
                                                     {CUDNN_KNOB_TYPE_STREAM_K, 0},
                                                     {CUDNN_KNOB_TYPE_TILE_CGA_M, 0},
                                                     {CUDNN_KNOB_TYPE_STAGES, 2}}};
    if (!key->backward || !dnn->deterministic || dnn->capability / 10 != 10)
        return false;
    *out = dnn->version < 92300 ? older : newer;
    out->number = dnn->capability > 103 ? 17 : 5;
    return true;
}

static void make_plan(struct cuda_dnn *dnn, struct entry *entry)
{
    const cudnnDataType_t io =
        entry->key.dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    const cudnnDataType_t k_types[] = {CUDNN_DATA_FLOAT, io};
    const int tries = entry->key.backward ? 2 : 1;
    struct dnn_graph *graph = entry->graph = xmalloc(sizeof *graph);
    struct dnn_engine engine;
    const bool by_number = find_engine(dnn, &entry->key, &engine);
    *graph = (struct dnn_graph){.library = &dnn->library};
    for (int i = 0; i < tries && !entry->plan; i++) {
        graph_close(graph); /* of the last try */
        *graph = (struct dnn_graph){.library = &dnn->library, .next_id = ID_FIRST_VIRTUAL};
        const struct build b = {graph, &entry->key, io, graph_number(graph, ID_SCALE)};
        int64_t workspace = 0;
        if (entry->key.backward)
            build_backward(&b, k_types[i], dnn->deterministic);
        else
            build_forward(&b);
        entry->plan = graph_plan(graph, &dnn->target, by_number ? &engine : NULL,
                                 dnn->deterministic, &workspace);
        entry->engine_bytes = (uint64_t)workspace;
        entry->why = graph->why;
    }
}

/* ---- running ---- */

static uint32_t token_pitch(const struct attention *at, const struct work_operand *x, bool keys)
{
    return x->pitch ? x->pitch : at->a / (keys ? at->repeats : 1) * at->d;
}

static struct form_key key_of(const struct work *work, const struct attention *at)
{
    const bool backward = work->kind == WORK_ATTENTION_BACKWARD;
    const struct work_operand *o = backward ? work_in(work, 5) : work_out(work, 0);
    struct form_key key;
    memset(&key, 0, sizeof key);
    key.b = at->b;
    key.s = at->s;
    key.s_k = at->s_k;
    key.a = at->a;
    key.d = at->d;
    key.a_k = at->a / at->repeats;
    key.pitch[0] = token_pitch(at, at->q, OF_QUERIES);
    key.pitch[1] = token_pitch(at, at->k, OF_KEYS);
    key.pitch[2] = token_pitch(at, at->v, OF_KEYS);
    key.pitch[3] = token_pitch(at, o, OF_QUERIES);
    if (backward) {
        key.pitch[4] = token_pitch(at, work_in(work, 0), OF_QUERIES);
        for (uint32_t i = 0; i < 3; i++)
            key.pitch[5 + i] = token_pitch(at, work_out(work, i), i > 0);
    }
    key.dtype = at->q->dtype;
    key.causal = at->causal;
    key.backward = backward;
    return key;
}

/* What the graphs take for granted: one 16-bit dtype, 16-byte alignment, whole rows of statistics,
 * and for backward o. NULL: all of it holds. */
static const char *find_unfit(const struct cuda_dnn *dnn, const struct work *work,
                              const struct attention *at)
{
    const bool backward = work->kind == WORK_ATTENTION_BACKWARD;
    if (at->logsumexp_pitch != at->s)
        return "its rows of statistics are padded";
    if (backward && work->ins < 6)
        return "the plan's backward has no output of attention";
    /* The front end works around engines up to 9.15.0 with a padding mask, which we do not build */
    if (backward && at->s_k % 128 != 0 && dnn->version <= 91500)
        return "keys in no multiple of 128 need cuDNN 9.15.1";
    if (backward && dnn->deterministic && dnn->capability / 10 == 10 && dnn->version < 91800)
        return "a deterministic backward on Blackwell needs cuDNN 9.18";
    for (uint32_t i = 0; i < work->ins + work->outs; i++) {
        const struct work_operand *x = &work->operand[i];
        const bool is_stats = backward ? i == 4 : i == work->ins + 1;
        if (i > work->ins + (backward ? 2U : 1U)) /* rng buffers, unused */
            continue;
        if (!is_stats && x->dtype != at->q->dtype)
            return "its operands have several dtypes";
        if ((uintptr_t)x->data % 16)
            return "an operand is not aligned to 16 bytes";
    }
    return NULL;
}

static struct entry *find_entry(struct cuda_dnn *dnn, const struct form_key *key)
{
    for (uint32_t i = 0; i < dnn->count; i++)
        if (memcmp(&dnn->entries[i].key, key, sizeof *key) == 0)
            return &dnn->entries[i];
    ARRAY_GROW(dnn->entries, dnn->count, dnn->cap);
    struct entry *entry = &dnn->entries[dnn->count++];
    *entry = (struct entry){.key = *key};
    make_plan(dnn, entry);
    return entry;
}

/* The sum of dq, the rows' D, and the engine's own: into the plan's buffer, the stream's scratch,
 * and what has no room there into memory of our own. */
enum { PART_SUM, PART_ROWS, PART_ENGINE, PARTS };

static enum err_code find_room(struct cuda_dnn *dnn, const struct work *work,
                               struct kernel_scratch scratch, struct room_part parts[PARTS],
                               struct err *err)
{
    struct room_area plan = {work->workspace, work->workspace_bytes, 0};
    struct room_area stream = {scratch.data, scratch.bytes, 0};
    room_lay(parts, PARTS, &plan);
    const uint64_t left = room_lay(parts, PARTS, &stream);
    if (left > dnn->own_bytes) {
        cudaFree(dnn->own); /* waits for what still uses it */
        dnn->own = NULL;
        dnn->own_bytes = 0;
        if (cudaMalloc(&dnn->own, left) != cudaSuccess) {
            cudaGetLastError();
            dnn->own = NULL;
            return work_refuse(work, ERR_NOMEM, err,
                               "cuDNN needs %.1f MiB beside the plan's memory; --attention own "
                               "needs none",
                               (double)left / 1048576.0);
        }
        dnn->own_bytes = left;
    }
    struct room_area own = {dnn->own, dnn->own_bytes, 0};
    room_lay(parts, PARTS, &own);
    return ERR_OK;
}

struct pack { /* ids and where their memory is */
    int64_t id[ID_COUNT];
    void *data[ID_COUNT];
    int64_t count;
};

static void put(struct pack *pack, enum id id, void *data)
{
    pack->id[pack->count] = id;
    pack->data[pack->count++] = data;
}

/* CUDNN_STATUS_NOT_SUPPORTED and the finer ones of its thousand. */
static bool is_refusal(cudnnStatus_t rc)
{
    return rc / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000;
}

/* An engine may find out only when it is to run that it cannot: then the entry has no plan any
 * more. */
static enum err_code execute(struct cuda_dnn *dnn, struct entry *entry, const struct work *work,
                             const struct pack *pack, void *workspace, cudaStream_t stream,
                             struct err *err)
{
    const struct dnn_library *library = &dnn->library;
    cudnnBackendDescriptor_t variant = NULL;
    cudnnStatus_t rc = library->set_stream(dnn->target.handle, stream);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = library->descriptor_new(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &variant);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = library->set(variant, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                          pack->count, pack->id);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = library->set(variant, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                          pack->count, pack->data);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = library->set(variant, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                          &workspace);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = library->finalize(variant);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = library->execute(dnn->target.handle, entry->plan, variant);
    if (variant)
        library->descriptor_free(variant);
    if (rc == CUDNN_STATUS_SUCCESS) {
        entry->ran = true;
        return ERR_OK;
    }
    dnn_refuse(library, "cudnnBackendExecute", rc, &entry->why);
    if (entry->ran || !is_refusal(rc))
        return work_refuse(work, ERR_DEVICE, err, "%s", entry->why.text);
    library->descriptor_free(entry->plan);
    entry->plan = NULL;
    return ERR_OK;
}

const char *cuda_dnn_refuses(struct cuda_dnn *dnn, const struct work *work, uint64_t *engine_bytes)
{
    const struct attention at = work_attention(work);
    const char *unfit = find_unfit(dnn, work, &at);
    *engine_bytes = 0;
    if (unfit)
        return unfit;
    const struct form_key key = key_of(work, &at);
    const struct entry *entry = find_entry(dnn, &key);
    *engine_bytes = entry->engine_bytes;
    return entry->plan ? NULL : entry->why.text;
}

enum err_code cuda_dnn_attention(struct cuda_dnn *dnn, const struct work *work,
                                 struct kernel_scratch scratch, cudaStream_t stream,
                                 const char **why_not, struct err *err)
{
    const bool backward = work->kind == WORK_ATTENTION_BACKWARD;
    struct attention at = work_attention(work);
    *why_not = find_unfit(dnn, work, &at);
    if (*why_not)
        return ERR_OK;
    const struct form_key key = key_of(work, &at);
    struct entry *entry = find_entry(dnn, &key);
    *why_not = entry->why.text;
    if (!entry->plan)
        return ERR_OK;
    const uint64_t rows_bytes = (uint64_t)at.b * at.a * at.s * sizeof(float);
    struct room_part parts[PARTS] = {
        [PART_SUM] = {backward && !dnn->deterministic ? rows_bytes * at.d : 0, NULL},
        [PART_ROWS] = {backward ? rows_bytes : 0, NULL},
        [PART_ENGINE] = {entry->engine_bytes, NULL},
    };
    /* What the front end masks with: the lowest float before cuDNN 9.10. */
    float one = 1.0F, least = dnn->version < 91000 ? -FLT_MAX : -INFINITY;
    struct pack pack = {.count = 0};
    TRY(find_room(dnn, work, scratch, parts, err));
    put(&pack, ID_Q, at.q->data);
    put(&pack, ID_K, at.k->data);
    put(&pack, ID_V, at.v->data);
    put(&pack, ID_O, backward ? work_in(work, 5)->data : work_out(work, 0)->data);
    put(&pack, ID_STATS, backward ? work_in(work, 4)->data : work_out(work, 1)->data);
    put(&pack, ID_SCALE, &at.scale);
    if (at.causal)
        put(&pack, ID_NEGATIVE_INFINITY, &least);
    if (backward) {
        put(&pack, ID_ONE, &one);
        put(&pack, ID_DO, work_in(work, 0)->data);
        put(&pack, ID_DQ, work_out(work, 0)->data);
        put(&pack, ID_DK, work_out(work, 1)->data);
        put(&pack, ID_DV, work_out(work, 2)->data);
        put(&pack, ID_DELTA, parts[PART_ROWS].at);
        if (parts[PART_SUM].bytes > 0)
            put(&pack, ID_DQ_SUM, parts[PART_SUM].at);
        /* Engines before cuDNN 9.6 add to dq's sum without clearing it first. */
        if (parts[PART_SUM].bytes > 0 && dnn->version < 90600)
            TRY_CUDA(err, cudaMemsetAsync(parts[PART_SUM].at, 0, parts[PART_SUM].bytes, stream));
    }
    TRY(execute(dnn, entry, work, &pack, parts[PART_ENGINE].at, stream, err));
    if (entry->plan)
        *why_not = NULL;
    return ERR_OK;
}
