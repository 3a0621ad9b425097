/* partition.c - see partition.h. Names in quotes are the partitioner's. */
#include "compile/partition.h"

#include "base/arena.h"
#include "compile/max_flow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FAR UINT32_MAX
enum { LONGEST_CHAIN = 100 }; /* "100 is arbitrary choice to try and prevent degenerate cases" */

struct users { /* of one node: of[first ... first + count) */
    uint32_t first, count;
};

struct work {
    const struct joint *joint;
    uint32_t count;
    struct users *users;
    uint32_t *of;
    bool *lives;    /* somebody needs it */
    bool *forward;  /* "required_fw": a result is made of it */
    bool *backward; /* "tangents_closure": made of a gradient */
    bool *given;    /* backward gives it out */
    bool *out;      /* the graph's last node, which is not forward's and fuses with nothing, reads
                       it: a result or a gradient */
    bool *banned;
    uint32_t *order;    /* "fw_order", of what is forward */
    uint32_t *distance; /* "dist_from_bw" */
    bool *queued;
    uint32_t *queue; /* (count) */
};

static const struct joint_node *at(const struct work *w, uint32_t node)
{
    return joint_at(w->joint, node);
}

/* ---- what is known of each node ---- */

static void find_users(struct work *w)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < w->count; i++)
        for (uint32_t a = 0; w->lives[i] && a < at(w, i)->args; a++)
            w->users[at(w, i)->arg[a]].count++;
    for (uint32_t i = 0; i < w->count; i++) {
        w->users[i].first = total;
        total += w->users[i].count;
        w->users[i].count = 0;
    }
    w->of = xcalloc(total + 1, sizeof *w->of);
    for (uint32_t i = 0; i < w->count; i++) /* in the order of the graph, each once */
        for (uint32_t a = 0; w->lives[i] && a < at(w, i)->args; a++) {
            struct users *u = &w->users[at(w, i)->arg[a]];
            if (u->count == 0 || w->of[u->first + u->count - 1] != i)
                w->of[u->first + u->count++] = i;
        }
}

static void mark_from(const struct work *w, bool *marks, uint32_t count, const uint32_t *nodes)
{
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i] != JOINT_NONE)
            marks[nodes[i]] = true;
    for (uint32_t i = w->count; i-- > 0;)
        for (uint32_t a = 0; marks[i] && a < at(w, i)->args; a++)
            marks[at(w, i)->arg[a]] = true;
}

/* "fw_order": of the nodes that forward needs, what it is called with before all others. */
static void number_forward(struct work *w)
{
    uint32_t order = 0;
    for (int is_input = 1; is_input >= 0; is_input--)
        for (uint32_t i = 0; i < w->count; i++)
            if (w->forward[i] && (at(w, i)->name == JOINT_INPUT) == is_input)
                w->order[i] = order++;
}

static void classify(struct work *w)
{
    number_forward(w);
    for (uint32_t i = 0; i < w->count; i++) {
        const struct joint_node *node = at(w, i);
        w->backward[i] = node->name == JOINT_INPUT && node->source == SOURCE_GRADIENT;
        for (uint32_t a = 0; a < node->args; a++)
            w->backward[i] |= w->backward[node->arg[a]];
    }
    for (uint32_t i = w->count; i-- > 0;) {
        w->distance[i] = w->forward[i] ? FAR : 0;
        const struct users *u = &w->users[i];
        for (uint32_t k = 0; w->forward[i] && k < u->count; k++) {
            const uint32_t next = w->distance[w->of[u->first + k]];
            if (next != FAR && next + 1 < w->distance[i])
                w->distance[i] = next + 1;
        }
    }
}

/* ---- what fuses ---- */

static bool may_run_again(const struct joint_node *node)
{
    const enum joint_way way = joint_way(node);
    return way == WAY_VIEW || way == WAY_ELEMENT || way == WAY_REDUCTION;
}

static bool fuses(const struct work *w, uint32_t producer, uint32_t consumer)
{
    return joint_way(at(w, consumer)) == WAY_JOIN ||
           (may_run_again(at(w, producer)) && may_run_again(at(w, consumer)));
}

static bool is_view(const struct work *w, uint32_t node)
{
    return joint_way(at(w, node)) == WAY_VIEW && at(w, node)->name != JOINT_PART;
}

/* "is_materialized_backwards": backward reads it, perhaps as a view, where it does not fuse. */
static bool is_read_whole(struct work *w, uint32_t node)
{
    if (is_view(w, node))
        return false;
    uint32_t head = 0, tail = 0;
    w->queue[tail++] = node;
    while (head < tail) {
        const uint32_t cur = w->queue[head++];
        const struct users *u = &w->users[cur];
        if (w->out[cur])
            return true;
        for (uint32_t k = 0; k < u->count; k++) {
            const uint32_t user = w->of[u->first + k];
            if (!w->forward[user] && !fuses(w, cur, user))
                return true;
            if (is_view(w, user) && tail < w->count)
                w->queue[tail++] = user;
        }
    }
    return false;
}

/* Of a PICK, what it picks from: its index is in a list there, which is not looked into. */
static bool shrinks(const struct work *w, uint32_t node)
{
    const uint32_t args = at(w, node)->name == JOINT_PICK ? 1 : at(w, node)->args;
    uint64_t bytes = 0;
    for (uint32_t a = 0; a < args; a++)
        if (!joint_is_many(at(w, at(w, node)->arg[a])))
            bytes += joint_bytes(at(w, at(w, node)->arg[a]));
    return joint_bytes(at(w, node)) * 4 < bytes;
}

/* "should_ban_recomputation" */
static bool must_not_run_again(struct work *w, uint32_t node)
{
    const struct joint_node *n = at(w, node);
    if (n->name == JOINT_INPUT || n->name == JOINT_RESULT || n->name == JOINT_PART)
        return false;
    return n->save || !may_run_again(n) || is_read_whole(w, node) || shrinks(w, node);
}

static void ban(struct work *w, uint32_t node)
{
    if (!is_view(w, node) && !at(w, node)->again)
        w->banned[node] = true;
}

/* ---- used near and far ---- */

struct entry {
    uint32_t order, node;
    bool fuses;
};

struct heap { /* least first; small */
    struct entry *items;
    uint32_t count, cap;
};

static bool is_before(const struct entry *x, const struct entry *y)
{
    return x->order != y->order ? x->order < y->order : x->fuses < y->fuses;
}

static struct entry heap_pop(struct heap *heap)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < heap->count; i++)
        if (is_before(&heap->items[i], &heap->items[least]))
            least = i;
    const struct entry out = heap->items[least];
    heap->items[least] = heap->items[--heap->count];
    return out;
}

static void heap_push(struct heap *heap, struct entry entry)
{
    for (uint32_t i = 0; i < heap->count; i++)
        if (heap->items[i].node == entry.node && heap->items[i].fuses == entry.fuses)
            return;
    ARRAY_GROW(heap->items, heap->count, heap->cap);
    heap->items[heap->count++] = entry;
}

/* "find_first_unfusible": the first place behind `node`, and not behind `last`, that does not fuse
 * with what comes before it. */
static uint32_t first_that_does_not_fuse(const struct work *w, struct heap *heap, uint32_t node,
                                         uint32_t last)
{
    const struct users *u = &w->users[node];
    heap->count = 0;
    for (uint32_t k = 0; k < u->count; k++)
        if (w->forward[w->of[u->first + k]])
            heap_push(heap,
                      (struct entry){w->order[w->of[u->first + k]], w->of[u->first + k], true});
    while (heap->count) {
        const struct entry e = heap_pop(heap);
        if (!e.fuses)
            return e.order;
        for (uint32_t k = 0; k < w->users[e.node].count; k++) {
            const uint32_t user = w->of[w->users[e.node].first + k];
            if (w->forward[user] && w->order[user] <= last)
                heap_push(heap, (struct entry){w->order[user], user, fuses(w, e.node, user)});
        }
    }
    return last;
}

static void ban_used_far_apart(struct work *w)
{
    struct heap heap = {0};
    for (uint32_t i = 0; i < w->count; i++) {
        const struct users *u = &w->users[i];
        uint32_t last = 0;
        bool any = false;
        for (uint32_t k = 0; w->forward[i] && k < u->count; k++) {
            const uint32_t user = w->of[u->first + k];
            any |= w->forward[user];
            if (w->forward[user] && w->order[user] > last)
                last = w->order[user];
        }
        if (!any)
            continue;
        const uint32_t first = first_that_does_not_fuse(w, &heap, i, last);
        for (uint32_t k = 0; k < u->count; k++) {
            const uint32_t user = w->of[u->first + k];
            if (w->forward[user] && w->order[user] > first && fuses(w, i, user))
                ban(w, user);
        }
    }
    free(heap.items);
}

/* "ban_if_long_fusible_chains" */
static void ban_long_chains(struct work *w)
{
    struct heap heap = {0};
    bool *visited = xcalloc(w->count + 1, sizeof *visited);
    for (uint32_t i = 0; i < w->count; i++) {
        if (!w->forward[i])
            continue;
        heap.count = 0;
        heap_push(&heap, (struct entry){w->order[i], i, true});
        while (heap.count) {
            const uint32_t cur = heap_pop(&heap).node;
            if (visited[cur])
                continue;
            visited[cur] = true;
            if (w->order[cur] > w->order[i] + LONGEST_CHAIN && heap.count == 0) {
                ban(w, cur);
                break;
            }
            for (uint32_t k = 0; k < w->users[cur].count; k++) {
                const uint32_t user = w->of[w->users[cur].first + k];
                if (w->forward[user] && fuses(w, cur, user) && !w->banned[user])
                    heap_push(&heap, (struct entry){w->order[user], user, true});
            }
        }
    }
    free(visited);
    free(heap.items);
}

/* ---- the cut ---- */

static bool all_users_fuse(const struct work *w, uint32_t node)
{
    for (uint32_t k = 0; k < w->users[node].count; k++)
        if (!fuses(w, node, w->of[w->users[node].first + k]))
            return false;
    return at(w, node)->name != JOINT_INPUT && !w->out[node];
}

/* "get_node_weight" */
static int64_t weight_of(const struct work *w, uint32_t node)
{
    const struct joint_node *n = at(w, node);
    if (n->stays)
        return 0;
    if (joint_is_many(n))
        return FLOW_ENDLESS;
    const uint32_t far = w->distance[node] > 100 ? 100 : w->distance[node];
    const int64_t bytes = (int64_t)((double)joint_bytes(n) * pow(1.1, far < 1 ? 1 : far));
    return all_users_fuse(w, node) ? 2 * bytes : bytes;
}

enum { SOURCE, SINK, FIRST_NODE };

static uint32_t into(uint32_t node)
{
    return FIRST_NODE + 2 * node;
}

static uint32_t out_of(uint32_t node)
{
    return FIRST_NODE + 2 * node + 1;
}

static void find_bans(struct work *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        const struct joint_node *n = at(w, i);
        if (!w->lives[i] || w->backward[i] || n->again)
            continue;
        if (n->name == JOINT_INPUT || (w->forward[i] && must_not_run_again(w, i)))
            ban(w, i);
    }
    ban_used_far_apart(w);
    ban_long_chains(w);
}

static void add_node(const struct work *w, struct max_flow *flow, uint32_t node)
{
    const struct joint_node *n = at(w, node);
    if (w->banned[node])
        max_flow_edge(flow, SOURCE, into(node), FLOW_ENDLESS);
    if (w->backward[node]) {
        max_flow_edge(flow, into(node), SINK, FLOW_ENDLESS);
        return;
    }
    if (w->given[node])
        max_flow_edge(flow, out_of(node), SINK, FLOW_ENDLESS);
    if (n->again) {
        max_flow_edge(flow, into(node), SINK, FLOW_ENDLESS);
        return;
    }
    max_flow_edge(flow, into(node), out_of(node), weight_of(w, node));
    for (uint32_t k = 0; k < w->users[node].count; k++)
        max_flow_edge(flow, out_of(node), into(w->of[w->users[node].first + k]), FLOW_ENDLESS);
}

static enum err_code cut(struct work *w, struct partition *out, struct err *err)
{
    struct max_flow *flow = max_flow_new(FIRST_NODE + 2 * w->count);
    bool *behind = xcalloc(FIRST_NODE + 2 * (size_t)w->count, sizeof *behind);
    for (uint32_t i = 0; i < w->count; i++)
        if (w->lives[i])
            add_node(w, flow, i);
    const int64_t total = max_flow_cut(flow, SOURCE, SINK, behind);
    out->saved = xcalloc(w->count + 1, sizeof *out->saved);
    for (uint32_t i = 0; i < w->count; i++)
        if (w->lives[i] && !w->backward[i] && !at(w, i)->again && !behind[into(i)] &&
            behind[out_of(i)])
            out->saved[out->saved_count++] = i;
    free(behind);
    max_flow_free(flow);
    if (total >= FLOW_ENDLESS)
        return err_set(err, ERR_INTERNAL, "--compile: no cut of the joint graph");
    return ERR_OK;
}

/* "filter out saved values that don't actually end up being used by the backwards pass" */
static void drop_unused(struct work *w, struct partition *out)
{
    bool *used = xcalloc(w->count + 1, sizeof *used);
    bool *saved = xcalloc(w->count + 1, sizeof *saved);
    for (uint32_t i = 0; i < out->saved_count; i++)
        saved[out->saved[i]] = true;
    for (uint32_t i = w->count; i-- > 0;) {
        used[i] |= w->given[i];
        for (uint32_t a = 0; used[i] && !saved[i] && a < at(w, i)->args; a++)
            used[at(w, i)->arg[a]] = true;
    }
    uint32_t left = 0;
    for (uint32_t i = 0; i < out->saved_count; i++)
        if (used[out->saved[i]])
            out->saved[left++] = out->saved[i];
    out->saved_count = left;
    free(used);
    free(saved);
}

static void open_work(struct work *w, const struct joint *joint)
{
    const uint32_t count = joint_count(joint);
    *w = (struct work){.joint = joint, .count = count};
    w->users = xcalloc(count + 1, sizeof *w->users);
    w->lives = xcalloc(count + 1, sizeof *w->lives);
    w->forward = xcalloc(count + 1, sizeof *w->forward);
    w->backward = xcalloc(count + 1, sizeof *w->backward);
    w->given = xcalloc(count + 1, sizeof *w->given);
    w->out = xcalloc(count + 1, sizeof *w->out);
    w->banned = xcalloc(count + 1, sizeof *w->banned);
    w->order = xcalloc(count + 1, sizeof *w->order);
    w->distance = xcalloc(count + 1, sizeof *w->distance);
    w->queue = xcalloc(count + 1, sizeof *w->queue);
}

static void close_work(struct work *w)
{
    free(w->users);
    free(w->of);
    free(w->lives);
    free(w->forward);
    free(w->backward);
    free(w->given);
    free(w->out);
    free(w->banned);
    free(w->order);
    free(w->distance);
    free(w->queue);
}

enum err_code partition_of(const struct joint *joint, uint32_t result_count,
                           const uint32_t *results, uint32_t gradient_count,
                           const uint32_t *gradients, struct partition *out, struct err *err)
{
    struct work w;
    *out = (struct partition){0};
    open_work(&w, joint);
    mark_from(&w, w.forward, result_count, results);
    mark_from(&w, w.lives, gradient_count, gradients);
    for (uint32_t i = 0; i < w.count; i++)
        w.lives[i] |= w.forward[i];
    for (uint32_t i = 0; i < gradient_count; i++)
        if (gradients[i] != JOINT_NONE)
            w.given[gradients[i]] = w.out[gradients[i]] = true;
    for (uint32_t i = 0; i < result_count; i++)
        if (results[i] != JOINT_NONE)
            w.out[results[i]] = true;
    find_users(&w);
    classify(&w);
    find_bans(&w);
    const enum err_code rc = cut(&w, out, err);
    drop_unused(&w, out);
    close_work(&w);
    return rc;
}

void partition_free(struct partition *partition)
{
    free(partition->saved);
    *partition = (struct partition){0};
}
