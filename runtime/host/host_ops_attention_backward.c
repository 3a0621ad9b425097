/* host_ops_attention_backward.c - gradients of attention from q, k, v and the logsumexp.
 *
 *     p = exp(q kᵀ · scale - logsumexp)       dp = do vᵀ      D = rows' Σ do · o
 *     ds = p · (dp - D) · scale               dq = ds k, dk = dsᵀ q, dv = pᵀ do
 *
 * and where scores are capped, ds times how steep the cap is there.
 *
 * Two passes make the tiles of p and ds: queries outside for dq, keys outside for dk and dv. One
 * pass would save two of seven products but needs an fp32 dq of the whole sequence to add to, as
 * FlashAttention-2's backward has; here scratch stays a few tiles and one number a token. Without o
 * D is Σ p · dp, the same sum in another order, in a pass of its own. */
#include "runtime/host/host_ops_internal.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>

struct tiles {
    const struct attention *at;
    const struct work_operand *dout, *logsumexp, *o; /* o NULL: absent */
    const struct work_operand *dq, *dk, *dv, *dbias; /* dbias NULL: not asked for */
    float *q, *k, *v, *dout_tile;                    /* (HOST_TILE, d) */
    float *sum_a, *sum_b;                            /* (HOST_TILE, d): dq; dk and dv */
    double *deltas, *delta; /* (repeats, s): D of the heads that have keys in common; of this one */
    /* (queries, keys) */
    float p[HOST_TILE * HOST_TILE], ds[HOST_TILE * HOST_TILE], shrink[HOST_TILE * HOST_TILE];
    uint32_t b, head;
    uint32_t query, queries, key, keys; /* first and number of each */
};

/* ---- tiles ---- */

static void load_queries(struct tiles *t, uint32_t query)
{
    const struct attention *at = t->at;
    t->query = query;
    t->queries = (uint32_t)host_least(HOST_TILE, at->s - query);
    const struct host_head of = host_queries(at, t->b, t->head);
    host_tile_load(of, at->q, query, t->queries, t->q);
    host_tile_load(host_values(at, of), t->dout, query, t->queries, t->dout_tile);
}

static void load_keys(struct tiles *t, uint32_t key)
{
    const struct attention *at = t->at;
    t->key = key;
    t->keys = (uint32_t)host_least(HOST_TILE, at->s_k - key);
    const struct host_head of = host_keys(at, t->b, t->head);
    host_tile_load(of, at->k, key, t->keys, t->k);
    host_tile_load(host_values(at, of), at->v, key, t->keys, t->v);
}

static bool is_hidden(const struct attention *at, uint32_t query, uint32_t key)
{
    return host_hides(at, query, (uint32_t)host_least(HOST_TILE, at->s - query), key,
                      (uint32_t)host_least(HOST_TILE, at->s_k - key));
}

/* How steep softcap · tanh(x / softcap) is where it is `capped`. */
static float steepness(const struct attention *at, float capped)
{
    const float share = at->softcap > 0 ? capped / at->softcap : 0;
    return 1 - share * share;
}

/* p, dp in ds, and by how much a score's gradient shrinks; 0 where a key is not seen. */
static void make_scores(struct tiles *t)
{
    const struct attention *at = t->at;
    const blasint queries = (blasint)t->queries, keys = (blasint)t->keys, d = (blasint)at->d;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, queries, keys, d, at->scale, t->q, d, t->k,
                d, 0, t->p, keys);
    host_cap_scores(at, (uint64_t)t->queries * t->keys, t->p);
    host_add_bias(at, t->b, t->head, t->query, t->queries, t->key, t->keys, t->p);
    const blasint d_v = (blasint)at->d_v;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, queries, keys, d_v, 1, t->dout_tile, d_v,
                t->v, d_v, 0, t->ds, keys);
    for (uint32_t row = 0; row < t->queries; row++) {
        const float logsumexp =
            host_load_one(t->logsumexp, ((uint64_t)t->b * at->a + t->head) * at->logsumexp_pitch +
                                            t->query + row);
        const struct host_seen seen = host_seen(at, t->query + row, t->key, t->keys);
        const uint64_t first = (uint64_t)row * t->keys;
        float *p = t->p + first, *dp = t->ds + first, *shrink = t->shrink + first;
        for (uint32_t i = 0; i < seen.first; i++)
            p[i] = dp[i] = shrink[i] = 0;
        for (uint32_t i = seen.first; i < seen.end; i++) {
            shrink[i] = steepness(at, p[i]);
            p[i] = expf(p[i] - logsumexp);
        }
        for (uint32_t i = seen.end; i < t->keys; i++)
            p[i] = dp[i] = shrink[i] = 0;
    }
}

/* dp in ds becomes ds. */
static void make_slopes(struct tiles *t)
{
    for (uint32_t row = 0; row < t->queries; row++) {
        const uint64_t first = (uint64_t)row * t->keys;
        const float delta = (float)t->delta[t->query + row];
        const float *p = t->p + first, *shrink = t->shrink + first;
        float *ds = t->ds + first;
        for (uint32_t i = 0; i < t->keys; i++)
            ds[i] = p[i] * (ds[i] - delta) * shrink[i] * t->at->scale;
    }
}

/* The gradient of a bias is that of the scores, before q and k are scaled. */
static void store_bias_slopes(const struct tiles *t)
{
    const struct attention *at = t->at;
    float row[HOST_TILE];
    for (uint32_t i = 0; t->dbias && i < t->queries; i++) {
        const uint64_t of = ((uint64_t)t->b * at->a + t->head) * at->s + t->query + i;
        for (uint32_t j = 0; j < t->keys; j++)
            row[j] = t->ds[(uint64_t)i * t->keys + j] / at->scale;
        host_store(t->dbias, of * at->s_k + t->key, t->keys, row);
    }
}

/* sum += xᵀ y or x y: x (queries, keys), y (·, width). */
static void add_product(const struct tiles *t, bool turned, const float *x, const float *y,
                        uint32_t width, float *sum)
{
    const blasint queries = (blasint)t->queries, keys = (blasint)t->keys, d = (blasint)width;
    cblas_sgemm(CblasRowMajor, turned ? CblasTrans : CblasNoTrans, CblasNoTrans,
                turned ? keys : queries, d, turned ? queries : keys, 1, x, keys, y, d, 1, sum, d);
}

static void clear_tile(const struct tiles *t, float *tile)
{
    const uint32_t widest = t->at->d > t->at->d_v ? t->at->d : t->at->d_v;
    for (uint64_t i = 0; i < (uint64_t)HOST_TILE * widest; i++)
        tile[i] = 0;
}

/* ---- the passes over one head ---- */

static void find_delta_from_o(struct tiles *t)
{
    const struct attention *at = t->at;
    for (uint32_t query = 0; query < at->s; query += HOST_TILE) {
        load_queries(t, query);
        host_tile_load(host_values(at, host_queries(at, t->b, t->head)), t->o, query, t->queries,
                       t->sum_a);
        for (uint32_t row = 0; row < t->queries; row++) {
            const float *o = t->sum_a + (uint64_t)row * at->d_v;
            const float *dout = t->dout_tile + (uint64_t)row * at->d_v;
            double sum = 0;
            for (uint32_t i = 0; i < at->d_v; i++)
                sum += (double)o[i] * (double)dout[i];
            t->delta[query + row] = sum;
        }
    }
}

static void find_delta_from_scores(struct tiles *t)
{
    for (uint32_t query = 0; query < t->at->s; query += HOST_TILE) {
        load_queries(t, query);
        for (uint32_t row = 0; row < t->queries; row++)
            t->delta[query + row] = 0;
        for (uint32_t key = 0; key < t->at->s_k; key += HOST_TILE) {
            if (is_hidden(t->at, query, key))
                continue;
            load_keys(t, key);
            make_scores(t);
            for (uint32_t row = 0; row < t->queries; row++)
                for (uint32_t i = 0; i < t->keys; i++)
                    t->delta[query + row] +=
                        (double)t->p[row * t->keys + i] * (double)t->ds[row * t->keys + i];
        }
    }
}

static void find_dq(struct tiles *t)
{
    const struct attention *at = t->at;
    for (uint32_t query = 0; query < at->s; query += HOST_TILE) {
        load_queries(t, query);
        clear_tile(t, t->sum_a);
        for (uint32_t key = 0; key < at->s_k; key += HOST_TILE) {
            if (is_hidden(at, query, key))
                continue;
            load_keys(t, key);
            make_scores(t);
            make_slopes(t);
            store_bias_slopes(t);
            add_product(t, false, t->ds, t->k, at->d, t->sum_a);
        }
        host_tile_store(host_queries(at, t->b, t->head), t->dq, query, t->queries, t->sum_a);
    }
}

/* Which of the heads that have keys in common the tiles are of from now on. */
static void choose_head(struct tiles *t, uint32_t first, uint32_t i)
{
    t->head = first + i;
    t->delta = t->deltas + (uint64_t)i * t->at->s;
}

/* Over all heads that have these keys. */
static void find_dk_and_dv(struct tiles *t, uint32_t first)
{
    const struct attention *at = t->at;
    const struct host_head of = host_keys(at, t->b, first);
    for (uint32_t key = 0; key < at->s_k; key += HOST_TILE) {
        load_keys(t, key);
        clear_tile(t, t->sum_a);
        clear_tile(t, t->sum_b);
        for (uint32_t i = 0; i < at->repeats; i++) {
            choose_head(t, first, i);
            for (uint32_t query = 0; query < at->s; query += HOST_TILE) {
                if (is_hidden(at, query, key))
                    continue;
                load_queries(t, query);
                make_scores(t);
                make_slopes(t);
                add_product(t, true, t->ds, t->q, at->d, t->sum_a);
                add_product(t, true, t->p, t->dout_tile, at->d_v, t->sum_b);
            }
        }
        host_tile_store(of, t->dk, key, t->keys, t->sum_a);
        host_tile_store(host_values(at, of), t->dv, key, t->keys, t->sum_b);
    }
}

/* Heads `first` and on, which have keys in common. */
static void run_heads(struct tiles *t, uint32_t first)
{
    for (uint32_t i = 0; i < t->at->repeats; i++) {
        choose_head(t, first, i);
        if (t->o)
            find_delta_from_o(t);
        else
            find_delta_from_scores(t);
        find_dq(t);
    }
    find_dk_and_dv(t, first);
}

/* ---- the kernel ---- */

enum err_code host_attention_backward(const struct work *work, struct err *err)
{
    const struct attention at = work_attention(work);
    struct tiles *t = NULL;
    float *memory = NULL;
    double *delta = NULL;
    enum err_code rc = ERR_OK;
    const uint64_t tile = (uint64_t)HOST_TILE * (at.d > at.d_v ? at.d : at.d_v);
    TRY_GOTO(rc, host_scratch(work, 1, sizeof *t, &t, err), done);
    TRY_GOTO(rc, host_scratch(work, 6 * tile, sizeof *memory, &memory, err), done);
    TRY_GOTO(rc, host_scratch(work, (uint64_t)at.repeats * at.s, sizeof *delta, &delta, err), done);
    t->at = &at;
    t->dout = work_in(work, 0);
    t->logsumexp = work_in(work, 4);
    t->o = work->ins > 5 && !at.bias ? work_in(work, 5) : NULL;
    t->dbias = work->outs > 3 ? work_out(work, 3) : NULL;
    t->dq = work_out(work, 0);
    t->dk = work_out(work, 1);
    t->dv = work_out(work, 2);
    t->deltas = delta;
    float **const places[] = {&t->q, &t->k, &t->v, &t->dout_tile, &t->sum_a, &t->sum_b};
    for (uint32_t i = 0; i < 6; i++)
        *places[i] = memory + i * tile;
    for (t->b = 0; t->b < at.b; t->b++)
        for (uint32_t head = 0; head < at.a; head += at.repeats)
            run_heads(t, head);
done:
    free(delta);
    free(memory);
    free(t);
    return rc;
}
