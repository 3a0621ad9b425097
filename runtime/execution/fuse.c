/* fuse.c - see fuse.h. */
#include "runtime/execution/fuse.h"

#include "runtime/execution/plan_work.h"
#include "runtime/work/fused.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 26, AHEAD = 256, PASSED = 4 };

/* ---- which chains there are ---- */

/* A letter is an operand: the same letter, the same memory. "*": any number of them. */
struct link {
    enum work_kind work;
    const char *ins, *outs;
};

struct pattern {
    enum work_kind kind;
    const char *ins, *outs; /* of what it becomes; what is in no list stays unwritten */
    const char *may_skip;   /* outputs that need not be written where nobody else reads them */
    struct link parts[FUSE_MEMBERS];
    uint32_t attr_of; /* the part whose attr it has */
    float p;          /* attr.p, where not 0 */
    bool in_place;    /* reads each element before it writes it */
    bool copies;      /* what is not written has been rounded to the output's dtype already */
};

/* A longer one before its own beginning. */
static const struct pattern patterns[] = {
    {.kind = WORK_ROTATE,
     .ins = "xf",
     .outs = "y",
     .may_skip = "",
     .p = -1,
     .in_place = true,
     .parts = {{WORK_CAST, "x", "a"},
               {WORK_CONJUGATE, "f", "c"},
               {WORK_MUL, "ac", "b"},
               {WORK_CAST, "b", "y"}}},
    {.kind = WORK_ROTATE,
     .ins = "xf",
     .outs = "y",
     .may_skip = "",
     .p = 1,
     .in_place = true,
     .parts = {{WORK_CAST, "x", "a"}, {WORK_MUL, "af", "b"}, {WORK_CAST, "b", "y"}}},
    {.kind = WORK_GATE,
     .ins = "xu",
     .outs = "sy",
     .may_skip = "s",
     .in_place = true,
     .parts = {{WORK_SILU, "x", "s"}, {WORK_MUL, "su", "y"}}},
    {.kind = WORK_PRODUCTS,
     .ins = "gxz",
     .outs = "yw",
     .may_skip = "",
     .in_place = true,
     .parts = {{WORK_MUL, "gx", "y"}, {WORK_MUL, "gz", "w"}}},
    {.kind = WORK_ADD_RMS_NORM,
     .ins = "xyw",
     .outs = "snr",
     .may_skip = "",
     .attr_of = 1,
     .in_place = true,
     .parts = {{WORK_ADD, "xy", "s"}, {WORK_RMS_NORM, "sw", "nr"}}},
    {.kind = WORK_RMS_NORM_BACKWARD_ADD,
     .ins = "gxwr",
     .outs = "dvz",
     .may_skip = "d",
     .parts = {{WORK_RMS_NORM_BACKWARD, "gxwr", "dv"}, {WORK_ADD_IN_PLACE, "d", "z"}}},
    {.kind = WORK_RMS_NORM_BACKWARD_ADD,
     .ins = "gxwr",
     .outs = "dz",
     .may_skip = "d",
     .parts = {{WORK_RMS_NORM_BACKWARD, "gxwr", "d"}, {WORK_ADD_IN_PLACE, "d", "z"}}},
    {.kind = WORK_LOG_SOFTMAX,
     .ins = "x",
     .outs = "y",
     .may_skip = "",
     .parts = {{WORK_CAST, "x", "a"}, {WORK_LOG_SOFTMAX, "a", "y"}}},
    {.kind = WORK_CROSS_ENTROPY_SLOPE,
     .ins = "dtl",
     .outs = "y",
     .may_skip = "",
     .in_place = true,
     .parts = {{WORK_NLL_LOSS_BACKWARD, "dt", "g"},
               {WORK_LOG_SOFTMAX_BACKWARD, "gl", "a"},
               {WORK_CAST, "a", "y"}}},
    {.kind = WORK_CROSS_ENTROPY_SLOPE,
     .ins = "dtl",
     .outs = "y",
     .may_skip = "",
     .in_place = true,
     .parts = {{WORK_NLL_LOSS_BACKWARD, "dt", "g"}, {WORK_LOG_SOFTMAX_BACKWARD, "gl", "y"}}},
    {.kind = WORK_ATTENTION,
     .ins = "qkv",
     .outs = "olst",
     .may_skip = "",
     .attr_of = 2,
     .copies = true,
     .parts = {{WORK_REPEAT, "k", "a"}, {WORK_REPEAT, "v", "b"}, {WORK_ATTENTION, "qab", "olst"}}},
    {.kind = WORK_COPY_IN,
     .ins = "*",
     .outs = "y",
     .may_skip = "",
     .copies = true,
     .parts = {{WORK_PACK, "*", "a"}, {WORK_COPY_IN, "a", "y"}}},
};

static uint32_t parts_of(const struct pattern *pattern)
{
    uint32_t n = 0;
    while (n < FUSE_MEMBERS && pattern->parts[n].work != WORK_NONE)
        n++;
    return n;
}

/* ---- matching ---- */

struct bound { /* what a letter stands for */
    bool is, is_out;
    uint8_t member;
    uint16_t operand;
    struct plan_place place;
    const struct operand *of;
};

struct match {
    const struct plan *plan;
    const bool *kept; /* (buffers) others than kernels read it, or it outlives the step */
    const struct pattern *pattern;
    uint32_t members, member[FUSE_MEMBERS];
    struct bound letter[LETTERS];
    uint32_t passed; /* kernels of the lane between them */
};

static const struct kernel *kernel_of(const struct match *m, uint32_t id)
{
    return plan_kernel(m->plan, m->plan->instructions[id].arg);
}

static uint64_t byte_of(const struct plan_place *place, const struct operand *operand)
{
    return place->offset * dtype_bytes((enum dtype)operand->dtype);
}

/* Whether two operands are the same bytes: a complex number is two of fp32. */
static bool is_same(const struct bound *x, const struct bound *y)
{
    return x->place.buffer == y->place.buffer &&
           byte_of(&x->place, x->of) == byte_of(&y->place, y->of) && !x->of->pitch &&
           !y->of->pitch &&
           shape_bytes(&x->of->shape, (enum dtype)x->of->dtype) ==
               shape_bytes(&y->of->shape, (enum dtype)y->of->dtype);
}

static bool bind_letter(struct match *m, char letter, const struct bound *to)
{
    struct bound *known = &m->letter[letter - 'a'];
    if (!known->is)
        *known = *to;
    else if (!is_same(known, to))
        return false;
    known->is_out = known->is_out || to->is_out;
    return true;
}

/* Whether instruction `id` is the next part: its letters are bound then. */
static bool take_part(struct match *m, uint32_t id)
{
    struct bound before[LETTERS];
    const struct link *link = &m->pattern->parts[m->members];
    const struct plan_instruction *instruction = &m->plan->instructions[id];
    const struct kernel *kernel = kernel_of(m, id);
    const bool any = link->ins[0] == '*';
    if (kernel->work != link->work || instruction->flags ||
        (!any && kernel->ins != strlen(link->ins)) || kernel->outs != strlen(link->outs))
        return false;
    for (uint32_t i = 0; any && i < kernel->ins; i++)
        if (kernel->operands[i].layout)
            return false;
    memcpy(before, m->letter, sizeof before);
    for (uint32_t i = any ? kernel->ins : 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const bool is_out = i >= kernel->ins;
        const struct operand *of = &kernel->operands[i];
        const struct bound bound = {.is = true,
                                    .is_out = is_out,
                                    .member = (uint8_t)m->members,
                                    .operand = (uint16_t)i,
                                    .place = plan_operand_place(m->plan, instruction, of),
                                    .of = of};
        if (!of->layout &&
            bind_letter(m, is_out ? link->outs[i - kernel->ins] : link->ins[i], &bound))
            continue;
        memcpy(m->letter, before, sizeof before);
        return false;
    }
    m->member[m->members++] = id;
    return true;
}

static bool is_member(const struct match *m, uint32_t id)
{
    for (uint32_t i = 0; i < m->members; i++)
        if (m->member[i] == id)
            return true;
    return false;
}

static bool reaches(const struct match *m, uint32_t id, uint32_t buffer, bool written_only)
{
    const struct kernel *kernel = kernel_of(m, id);
    const uint32_t first = written_only ? kernel->ins : 0;
    for (uint32_t i = first; i < (uint32_t)kernel->ins + kernel->outs; i++)
        if (plan_operand_place(m->plan, &m->plan->instructions[id], &kernel->operands[i]).buffer ==
            buffer)
            return true;
    return false;
}

/* Whether kernel `id` may run before the parts that were taken: it writes nothing of theirs and
 * reads nothing that they write. */
static bool may_pass(struct match *m, uint32_t id)
{
    const struct plan_instruction *instruction = &m->plan->instructions[id];
    if (instruction->op != PLAN_COMPUTE || instruction->phase == PLAN_STEP ||
        m->passed++ == PASSED || m->pattern->parts[0].ins[0] == '*')
        return false;
    for (uint32_t n = 0; n < m->members; n++) {
        const struct kernel *part = kernel_of(m, m->member[n]);
        for (uint32_t i = 0; i < (uint32_t)part->ins + part->outs; i++) {
            const uint32_t buffer =
                plan_operand_place(m->plan, &m->plan->instructions[m->member[n]],
                                   &part->operands[i])
                    .buffer;
            if (reaches(m, id, buffer, i < part->ins))
                return false;
        }
    }
    return true;
}

/* Where the lane's kernels on one side must not be put off to the other. */
static bool is_border(const struct plan_instruction *instruction, uint8_t lane)
{
    switch (instruction->op) {
    case PLAN_MARK:
        return instruction->arg == PLAN_MARK_MICRO_BATCH;
    case PLAN_ALLOC:
        return instruction->flags != 0; /* it is filled with zeros */
    case PLAN_RECORD:
    case PLAN_WAIT:
        return instruction->lane == lane || instruction->lane == LANE_HOST;
    default:
        return false;
    }
}

static bool take_all(struct match *m, uint32_t first)
{
    const struct plan *plan = m->plan;
    const uint8_t lane = plan->instructions[first].lane;
    const uint32_t parts = parts_of(m->pattern);
    if (!take_part(m, first))
        return false;
    for (uint32_t id = first + 1; id < plan->instruction_count && id < first + AHEAD; id++) {
        const struct plan_instruction *instruction = &plan->instructions[id];
        if (is_border(instruction, lane))
            return false;
        if (!plan_op_is_kernel((enum plan_op)instruction->op) || instruction->lane != lane)
            continue;
        if (take_part(m, id)) {
            if (m->members == parts)
                return true;
        } else if (!may_pass(m, id)) {
            return false;
        }
    }
    return false;
}

/* ---- is it the same program? ---- */

/* Whether all of the chain's memory is there from its first kernel to its last. */
static bool keeps_memory(const struct match *m)
{
    for (uint32_t id = m->member[0]; id < m->member[m->members - 1]; id++) {
        const struct plan_instruction *instruction = &m->plan->instructions[id];
        if (instruction->op != PLAN_FREE)
            continue;
        for (uint32_t n = 0; n < m->members; n++)
            if (reaches(m, m->member[n], instruction->arg, false))
                return false;
    }
    return true;
}

/* Whether nobody but the chain sees what it writes to a buffer. */
static bool is_private(const struct match *m, uint32_t buffer)
{
    const struct plan *plan = m->plan;
    if (m->kept[buffer])
        return false;
    for (uint32_t id = m->member[0]; id < plan->instruction_count; id++) {
        const struct plan_instruction *instruction = &plan->instructions[id];
        if (instruction->op == PLAN_FREE && instruction->arg == buffer)
            return true;
        if (plan_op_is_kernel((enum plan_op)instruction->op) && !is_member(m, id) &&
            reaches(m, id, buffer, false))
            return false;
    }
    return false;
}

/* Whether registers hold what is not written as memory would. */
static bool is_exact(const struct match *m, const struct bound *letter)
{
    const struct bound *y = &m->letter[m->pattern->outs[0] - 'a'];
    return letter->of->dtype == DTYPE_FP32 || letter->of->dtype == DTYPE_COMPLEX64 ||
           (m->pattern->copies && letter->of->dtype == y->of->dtype);
}

/* What the chain writes is an output of the work, or nobody misses it. */
static bool may_become_one(const struct match *m)
{
    for (int c = 'a'; c <= 'z'; c++) {
        const struct bound *letter = &m->letter[c - 'a'];
        if (letter->is && letter->is_out && !strchr(m->pattern->outs, c) &&
            (!is_private(m, letter->place.buffer) || !is_exact(m, letter)))
            return false;
    }
    return m->passed == 0 || keeps_memory(m);
}

/* Pairs of x are the numbers of the product, which is what its angles are spread over. Chains of
 * two that take turns, as Llama 4's of q and k, stay as they are: one would run before the other's.
 */
static bool rotates_pairs(const struct match *m)
{
    if (m->passed > 0)
        return false;
    const struct shape *x = &m->letter['x' - 'a'].of->shape;
    const struct kernel *mul = kernel_of(m, m->member[m->members - 2]);
    const struct shape *z = &mul->operands[mul->ins].shape;
    bool same = x->rank == z->rank && mul->operands[0].dtype == DTYPE_COMPLEX64;
    for (uint32_t i = 0; same && i < x->rank; i++)
        same = x->dim[i] == z->dim[i] * (i + 1 == x->rank ? 2 : 1);
    return same;
}

/* Heads of k and v, each repeated so often: how attention counts its keys by itself. */
static bool repeats_heads(const struct match *m)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct kernel *repeat = kernel_of(m, m->member[i]);
        const struct shape *x = &repeat->operands[0].shape, *y = &repeat->operands[1].shape;
        const struct shape *all = &kernel_of(m, m->member[2])->operands[i + 1].shape;
        if (repeat->operands[0].dtype != repeat->operands[1].dtype || x->rank != 4 ||
            y->rank != 5 || repeat->attr.dim != 3 || all->rank != 4 || all->dim[0] != x->dim[0] ||
            all->dim[1] != x->dim[1] || all->dim[3] != x->dim[3] ||
            all->dim[2] != y->dim[2] * y->dim[3] || x->dim[2] != y->dim[2])
            return false;
    }
    return true;
}

/* What a pattern says nothing of. */
static bool has_form(const struct match *m)
{
    switch (m->pattern->kind) {
    case WORK_ROTATE:
        return rotates_pairs(m);
    case WORK_ATTENTION:
        return repeats_heads(m);
    default:
        return true;
    }
}

/* ---- the chain ---- */

static void add_place(struct fuse_chain *chain, const struct match *m, char letter)
{
    const struct bound *bound = &m->letter[letter - 'a'];
    const bool written =
        !strchr(m->pattern->may_skip, letter) || !is_private(m, bound->place.buffer);
    chain->places[chain->ins + chain->outs] =
        (struct fuse_place){bound->member, written, bound->operand};
}

static struct fuse_chain chain_of(struct fusion *fusion, const struct match *m)
{
    const struct pattern *pattern = m->pattern;
    const uint32_t last = m->member[m->members - 1];
    const uint8_t group = m->plan->instructions[last].group;
    const struct kernel *first = kernel_of(m, m->member[0]);
    struct fuse_chain chain = {
        .kind = pattern->kind,
        .attr = kernel_of(m, m->member[pattern->attr_of])->attr,
        .rank = plan_group_rank(m->plan, group, m->plan->rank),
        .ranks = plan_group_ranks(m->plan, group),
        .members = m->members,
        .in_place = pattern->in_place,
    };
    if (pattern->p < 0 || pattern->p > 0)
        chain.attr.p = pattern->p;
    memcpy(chain.member, m->member, sizeof chain.member);
    const size_t most = (size_t)first->ins + LETTERS;
    chain.places = arena_alloc(&fusion->arena, most * sizeof *chain.places);
    if (pattern->ins[0] == '*')
        for (; chain.ins < first->ins; chain.ins++)
            chain.places[chain.ins] = (struct fuse_place){.operand = (uint16_t)chain.ins};
    else
        for (const char *c = pattern->ins; *c; c++, chain.ins++)
            add_place(&chain, m, *c);
    for (const char *c = pattern->outs; *c; c++, chain.outs++)
        add_place(&chain, m, *c);
    return chain;
}

struct work fuse_work(const struct fuse_chain *chain, const struct work_operand *const *operands,
                      struct work_operand *out)
{
    for (uint32_t i = 0; i < chain->ins + chain->outs; i++) {
        const struct fuse_place *place = &chain->places[i];
        assert(operands[place->member]);
        out[i] = operands[place->member][place->operand];
        if (i >= chain->ins && !place->written)
            out[i].data = NULL;
    }
    return (struct work){.kind = chain->kind,
                         .instruction = chain->member[chain->members - 1],
                         .ins = chain->ins,
                         .outs = chain->outs,
                         .operand = out,
                         .attr = chain->attr,
                         .rank = chain->rank,
                         .ranks = chain->ranks,
                         .group = -1,
                         .label = work_name(chain->kind)};
}

/* Whether there is a kernel for it: asked of operands as they will be. */
static bool can_run(const struct plan *plan, enum work_backend backend,
                    const struct fuse_chain *chain)
{
    struct work_operand *lists[FUSE_MEMBERS] = {NULL};
    struct work_operand *out = xmalloc((chain->ins + chain->outs) * sizeof *out);
    for (uint32_t n = 0; n < chain->members; n++) {
        const struct kernel *kernel = plan_kernel(plan, plan->instructions[chain->member[n]].arg);
        const uint32_t operands = (uint32_t)kernel->ins + kernel->outs;
        lists[n] = xmalloc((operands + 1) * sizeof *lists[n]);
        plan_work(plan, chain->member[n], lists[n]);
        for (uint32_t i = 0; i < operands; i++)
            lists[n][i].data = (void *)(uintptr_t)1;
    }
    const struct work work = fuse_work(chain, (const struct work_operand *const *)lists, out);
    struct err err = {0};
    const bool can = work_check(&work, backend, &err) == ERR_OK;
    for (uint32_t n = 0; n < chain->members; n++)
        free(lists[n]);
    free(out);
    return can;
}

static void try_all(struct fusion *fusion, const struct plan *plan, enum work_backend backend,
                    const bool *kept, uint32_t id)
{
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        struct match m = {.plan = plan, .kept = kept, .pattern = &patterns[i]};
        const uint32_t work = plan_kernel(plan, plan->instructions[id].arg)->work;
        if (work != patterns[i].parts[0].work || !take_all(&m, id) || !may_become_one(&m) ||
            !has_form(&m))
            continue;
        const struct fuse_chain chain = chain_of(fusion, &m);
        if (!can_run(plan, backend, &chain))
            continue;
        ARRAY_GROW(fusion->chains, fusion->count, fusion->cap);
        for (uint32_t n = 0; n < m.members; n++)
            fusion->chain_of[m.member[n]] = fusion->count;
        fusion->chains[fusion->count++] = chain;
        return;
    }
}

/* (buffers) Those that are read by others than kernels, or live on. The caller frees it. */
static bool *list_kept(const struct plan *plan)
{
    bool *kept = xcalloc(plan->buffer_count + 1U, sizeof *kept);
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        kept[b] = plan->buffers[b].resident || plan->buffers[b].carried;
    for (uint32_t i = 0; i < plan->piece_count; i++)
        kept[plan->pieces[i].buffer] = true;
    return kept;
}

struct fusion *fusion_find(const struct plan *plan, enum work_backend backend)
{
    struct fusion *fusion = xcalloc(1, sizeof *fusion);
    bool *kept = list_kept(plan);
    fusion->chain_of = xmalloc((plan->instruction_count + 1U) * sizeof *fusion->chain_of);
    memset(fusion->chain_of, 0xff, plan->instruction_count * sizeof *fusion->chain_of);
    for (uint32_t id = 0; id < plan->instruction_count; id++)
        if (plan_op_is_kernel((enum plan_op)plan->instructions[id].op) &&
            fusion->chain_of[id] == FUSE_NONE)
            try_all(fusion, plan, backend, kept, id);
    free(kept);
    return fusion;
}

void fusion_close(struct fusion *fusion)
{
    if (!fusion)
        return;
    arena_free(&fusion->arena);
    free(fusion->chains);
    free(fusion->chain_of);
    free(fusion);
}

/* ---- when it runs ---- */

struct span {
    uintptr_t begin, end;
};

static struct span span_of(const struct work_operand *x)
{
    uint64_t elements = 0;
    const uintptr_t begin = (uintptr_t)x->data;
    shape_reach(&x->shape, x->pitch, &elements);
    return (struct span){begin, begin + elements * dtype_bytes((enum dtype)x->dtype)};
}

static bool is_alike(const struct work_operand *x, const struct work_operand *y)
{
    return x->data == y->data && x->dtype == y->dtype && x->pitch == y->pitch &&
           operand_count(x) == operand_count(y) &&
           (!x->pitch || operand_row_width(x) == operand_row_width(y));
}

bool fuse_fits(const struct fuse_chain *chain, const struct work *work)
{
    for (uint32_t o = work->ins; o < work->ins + work->outs; o++) {
        const struct work_operand *out = &work->operand[o];
        const struct span y = span_of(out);
        for (uint32_t i = 0; i < work->ins + work->outs && out->data; i++) {
            const struct work_operand *other = &work->operand[i];
            const struct span x = span_of(other);
            if (i == o || !other->data || x.end <= y.begin || y.end <= x.begin)
                continue;
            if (i >= work->ins || !chain->in_place || !is_alike(other, out))
                return false;
        }
    }
    return true;
}
