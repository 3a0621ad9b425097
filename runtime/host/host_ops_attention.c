/* host_ops_attention.c - softmax(q kᵀ · scale) v by tiles with an online softmax.
 *
 *               keys ->             For each tile of queries are kept: m, the highest score yet,
 *           +----+----+----+        l, the sum of exp(score - m), and o, the sum of
 *           | 1  |    |    |        exp(score - m) v. A tile of keys with a higher score scales
 *   queries +----+----+----+        l and o down. At the end o / l is the result, and m + log l
 *      |    | 2  | 3  |    |        is kept for backward, which makes the scores again from it.
 *      v    +----+----+----+
 *           | 4  | 5  | 6  |        Causal: tiles above the diagonal are left out. Within a
 *           +----+----+----+        window: those that no query of theirs sees, too.
 *
 * Scores are never a whole matrix: scratch is a few tiles of 64 rows (FlashAttention-2, Dao 2023,
 * algorithm 1). Operands may be chunks of a wider tensor. */
#include "runtime/host/host_ops_internal.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>

/* ---- tiles, for backward too ---- */

void host_tile_load(struct host_head of, const struct work_operand *x, uint32_t first,
                    uint32_t rows, float *out)
{
    for (uint32_t i = 0; i < rows; i++) {
        const uint64_t token = (uint64_t)of.b * of.length + first + i;
        host_load(x, (token * of.heads + of.head) * of.width, of.width,
                  out + (uint64_t)i * of.width);
    }
}

void host_tile_store(struct host_head of, const struct work_operand *y, uint32_t first,
                     uint32_t rows, const float *in)
{
    for (uint32_t i = 0; i < rows; i++) {
        const uint64_t token = (uint64_t)of.b * of.length + first + i;
        host_store(y, (token * of.heads + of.head) * of.width, of.width,
                   in + (uint64_t)i * of.width);
    }
}

void host_add_bias(const struct attention *at, uint32_t b, uint32_t head, uint32_t query,
                   uint32_t queries, uint32_t key, uint32_t keys, float *score)
{
    const struct shape scores = SHAPE(at->b, at->a, at->s, at->s_k);
    struct strides room;
    float row[HOST_TILE];
    if (!at->bias)
        return;
    const struct work_operand bias = host_spread(at->bias, &scores, &room);
    for (uint32_t i = 0; i < queries; i++) {
        const uint64_t of = ((uint64_t)b * at->a + head) * at->s + query + i;
        host_load(&bias, of * at->s_k + key, keys, row);
        for (uint32_t j = 0; j < keys; j++)
            score[(uint64_t)i * keys + j] += row[j];
    }
}

void host_cap_scores(const struct attention *at, uint64_t n, float *score)
{
    for (uint64_t i = 0; at->softcap > 0 && i < n; i++)
        score[i] = at->softcap * tanhf(score[i] / at->softcap);
}

/* ---- forward ---- */

struct tiles {
    const struct attention *at;
    float *q, *k, *v, *o;               /* (HOST_TILE, d) */
    float score[HOST_TILE * HOST_TILE]; /* (queries, keys) */
    float highest[HOST_TILE];           /* m */
    double sum[HOST_TILE];              /* l */
    uint32_t query, queries, key, keys; /* first and number of each */
};

/* Scores of one row to exp(score - m), with m, l and o brought up to date. */
static void soften_row(struct tiles *t, uint32_t row)
{
    const struct host_seen seen = host_seen(t->at, t->query + row, t->key, t->keys);
    float *score = t->score + (uint64_t)row * t->keys, *o = t->o + (uint64_t)row * t->at->d_v;
    float highest = t->highest[row];
    for (uint32_t i = seen.first; i < seen.end; i++)
        highest = score[i] > highest ? score[i] : highest;
    double sum = 0;
    if (isinf(highest) && highest < 0) { /* a bias has masked all so far: likewise */
        for (uint32_t i = 0; i < t->keys; i++)
            score[i] = 0;
        return;
    }
    for (uint32_t i = 0; i < seen.first; i++)
        score[i] = 0;
    for (uint32_t i = seen.first; i < seen.end; i++) {
        score[i] = expf(score[i] - highest);
        sum += (double)score[i];
    }
    for (uint32_t i = seen.end; i < t->keys; i++)
        score[i] = 0;
    if (seen.first == seen.end) /* nothing changes; -inf - -inf would be NaN */
        return;
    const float shrink = expf(t->highest[row] - highest);
    for (uint32_t i = 0; i < t->at->d_v; i++)
        o[i] *= shrink;
    t->sum[row] = t->sum[row] * (double)shrink + sum;
    t->highest[row] = highest;
}

static void take_keys(struct tiles *t, uint32_t b, uint32_t head)
{
    const struct attention *at = t->at;
    const blasint queries = (blasint)t->queries, keys = (blasint)t->keys, d = (blasint)at->d;
    const blasint d_v = (blasint)at->d_v;
    const struct host_head of = host_keys(at, b, head);
    host_tile_load(of, at->k, t->key, t->keys, t->k);
    host_tile_load(host_values(at, of), at->v, t->key, t->keys, t->v);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, queries, keys, d, at->scale, t->q, d, t->k,
                d, 0, t->score, keys);
    host_cap_scores(at, (uint64_t)t->queries * t->keys, t->score);
    host_add_bias(at, b, head, t->query, t->queries, t->key, t->keys, t->score);
    for (uint32_t row = 0; row < t->queries; row++)
        soften_row(t, row);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, queries, d_v, keys, 1, t->score, keys,
                t->v, d_v, 1, t->o, d_v);
}

static void finish_queries(struct tiles *t, const struct work *work, uint32_t b, uint32_t head)
{
    const struct attention *at = t->at;
    for (uint32_t row = 0; row < t->queries; row++) {
        const bool blind = t->sum[row] == 0; /* a bias hides all keys: zeros, backward, too */
        for (uint32_t i = 0; i < at->d_v; i++) {
            float *o = &t->o[(uint64_t)row * at->d_v + i];
            *o = blind ? 0 : (float)((double)*o / t->sum[row]);
        }
        host_store_one(work_out(work, 1),
                       ((uint64_t)b * at->a + head) * at->logsumexp_pitch + t->query + row,
                       blind ? 0 : (float)((double)t->highest[row] + log(t->sum[row])));
    }
    host_tile_store(host_values(at, host_queries(at, b, head)), work_out(work, 0), t->query,
                    t->queries, t->o);
}

static void attend(struct tiles *t, const struct work *work, uint32_t b, uint32_t head)
{
    const struct attention *at = t->at;
    for (t->query = 0; t->query < at->s; t->query += t->queries) {
        t->queries = (uint32_t)host_least(HOST_TILE, at->s - t->query);
        host_tile_load(host_queries(at, b, head), at->q, t->query, t->queries, t->q);
        for (uint64_t i = 0; i < (uint64_t)t->queries * at->d_v; i++)
            t->o[i] = 0;
        for (uint32_t row = 0; row < t->queries; row++) {
            t->highest[row] = -INFINITY;
            t->sum[row] = 0;
        }
        for (t->key = 0; t->key < at->s_k; t->key += t->keys) {
            t->keys = (uint32_t)host_least(HOST_TILE, at->s_k - t->key);
            if (host_hides(at, t->query, t->queries, t->key, t->keys))
                continue;
            take_keys(t, b, head);
        }
        finish_queries(t, work, b, head);
    }
}

enum err_code host_attention(const struct work *work, struct err *err)
{
    const struct attention at = work_attention(work);
    struct tiles *t;
    TRY(host_scratch(work, 1, sizeof *t, &t, err));
    const uint64_t tile = (uint64_t)HOST_TILE * (at.d > at.d_v ? at.d : at.d_v);
    float *memory;
    const enum err_code rc = host_scratch(work, 4 * tile, sizeof *memory, &memory, err);
    if (rc == ERR_OK) {
        t->at = &at;
        t->q = memory;
        t->k = memory + tile;
        t->v = memory + 2 * tile;
        t->o = memory + 3 * tile;
        for (uint32_t b = 0; b < at.b; b++)
            for (uint32_t head = 0; head < at.a; head++)
                attend(t, work, b, head);
        free(memory);
    }
    free(t);
    return rc;
}
