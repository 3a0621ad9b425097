/* update_each.c - optimizers that update one tensor after the other: bitsandbytes' and torchao's.
 */
#include "lower/update.h"
#include "lower/update_program.h"

#include <stdlib.h>
#include <string.h>

/* A tensor that is updated, and what its program holds. */
struct updating {
    const struct optimized *o;
    const struct optimizer_rule *rule;
    uint32_t memory[PROGRAM_BUFFERS];
};

static enum aten label_of(const struct optimizer_rule *rule, bool coded)
{
    return rule->library == LIBRARY_TORCHAO ? ATEN_SINGLE_PARAM_ADAM
           : coded                          ? ATEN_BNB_UPDATE_8BIT
                                            : ATEN_BNB_UPDATE_32BIT;
}

/* gradient, parameter, states, their scales, tables -> all but gradient and tables; or, of what is
 * packed behind it, -> parameter, ranges, values, places. */
static uint32_t update_kernel(struct lowering *low, const struct updating *u)
{
    const struct optimized *o = u->o;
    const bool coded = o->scale[0] != NONE, packs = u->memory[PROGRAM_VALUES] != NONE;
    const uint32_t buffers[] = {o->state[0], o->state[1], o->scale[0],
                                o->scale[1], o->table[0], o->table[1]};
    const uint32_t ins = coded ? 8 : 4, outs = packs ? 7 : coded ? 5 : 3;
    struct operand *in = plan_push_operands(low->plan, ins + outs), *out = in + ins;
    set_gradient_of(low->plan, o, &in[0]);
    in[1] = o->value;
    for (uint32_t i = 2; i < ins; i++)
        plan_set_whole_buffer(low->plan, buffers[i - 2], &in[i]);
    if (!packs) {
        memcpy(out, in + 1, outs * sizeof *in);
    } else {
        out[0] = o->value;
        for (uint32_t i = 1; i < outs; i++)
            plan_set_whole_buffer(low->plan, u->memory[PROGRAM_RANGES + i - 1], &out[i]);
    }
    return plan_push_kernel(low->plan, coded ? WORK_ADAMW_CODED : WORK_ADAMW_ALONE,
                            label_of(u->rule, coded), ins, outs, in);
}

static uint32_t halves_kernel(struct lowering *low, const struct updating *u)
{
    const struct optimized *o = u->o;
    const uint32_t buffers[] = {o->state[0], o->state[1], u->memory[PROGRAM_PARTS],
                                u->memory[PROGRAM_PARTS + 1]};
    struct operand *in = plan_push_operands(low->plan, 5);
    set_gradient_of(low->plan, o, &in[0]);
    for (uint32_t i = 0; i < 4; i++)
        plan_set_whole_buffer(low->plan, buffers[i], &in[i + 1]);
    return plan_push_kernel(low->plan, WORK_FUSED_REDUCTION, ATEN_FUSED_REDUCTION, 3, 2, in);
}

static void run_of_state(struct lowering *low, const struct updating *u, enum program_kernel kernel,
                         uint32_t state)
{
    const bool blocks = kernel == PROGRAM_BLOCKS, code = kernel == PROGRAM_CODE;
    const uint32_t in[] = {
        u->memory[(blocks ? PROGRAM_PARTS
                   : code ? PROGRAM_VALUES
                          : PROGRAM_RANGES) +
                  state],
        u->memory[PROGRAM_PLACES + state],
    };
    const uint32_t out = blocks ? u->memory[PROGRAM_RANGES + state]
                         : code ? u->o->state[state]
                                : u->o->scale[state];
    emit_work(low, PLAN_COMPUTE, LANE_COMPUTE, blocks ? WORK_FUSED_REDUCTION : WORK_FUSED,
              blocks ? ATEN_FUSED_REDUCTION : ATEN_FUSED, PLAN_NO_GROUP, code ? 2 : 1, in, 1, &out);
}

static uint32_t birth(struct lowering *low, const struct updating *u, uint32_t buffer)
{
    const uint64_t elements = shape_elements(&u->o->value.shape);
    return alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, ATEN_EMPTY_STRIDED,
                        update_program_dtype(buffer),
                        flat(update_program_elements(buffer, elements)));
}

/* `kernel`: of a tensor like it, which serves again; or NONE. Returns the update's. */
static uint32_t run_program(struct lowering *low, struct updating *u, uint32_t kernel)
{
    const bool coded = u->o->scale[0] != NONE;
    const struct update_program program =
        update_program(coded ? u->rule->bits : 0, shape_elements(&u->o->value.shape));
    memset(u->memory, 0xff, sizeof u->memory);
    for (uint32_t i = 0; i < program.count; i++) {
        const struct program_event *event = &program.events[i];
        if (event->what == PROGRAM_BIRTH) {
            u->memory[event->of] = birth(low, u, event->of);
        } else if (event->what == PROGRAM_DEATH) {
            emit_free(low, u->memory[event->of]);
        } else if (event->of == PROGRAM_UPDATE) {
            kernel = kernel == NONE ? update_kernel(low, u) : kernel;
            emit_kernel(low, PLAN_OPTIMIZER, LANE_COMPUTE, kernel, PLAN_NO_GROUP);
        } else if (event->of == PROGRAM_HALVES) {
            emit_kernel(low, PLAN_COMPUTE, LANE_COMPUTE, halves_kernel(low, u), PLAN_NO_GROUP);
        } else {
            run_of_state(low, u, (enum program_kernel)event->of, event->state);
        }
    }
    return kernel;
}

/* Behind each of bitsandbytes' kernels is torch.cuda.synchronize() (its utils.py, sync_gpu). */
void emit_update_each(struct lowering *low, struct updated u, const struct optimizer_rule *rule)
{
    uint32_t *kernels = xmalloc((u.count + 1) * sizeof *kernels);
    for (uint32_t i = 0; i < u.count; i++) {
        if (!u.of[i].updated || u.of[i].state[0] == NONE)
            continue;
        const uint32_t like = updated_like(low, u, i);
        struct updating updating = {.o = &u.of[i], .rule = rule};
        kernels[i] = run_program(low, &updating, like < i ? kernels[like] : NONE);
        if (rule->library == LIBRARY_BITSANDBYTES)
            emit_sync(low, LANE_HOST, LANE_COMPUTE);
    }
    free(kernels);
}
