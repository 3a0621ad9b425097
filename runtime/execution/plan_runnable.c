/* plan_runnable.c - plan_check_runnable: what plan_verify lets through, because it can be
 * predicted, and no device can do. */
#include "runtime/execution/plan_work.h"

#include "base/arena.h"
#include "base/layout.h"
#include "runtime/work/operand.h"

#include <stdio.h>
#include <stdlib.h>

/* What a plan asks for that a backend has no kernel for, as work_check says of each instruction. */
struct lacking {
    uint32_t times[WORK_KIND_COUNT];
    struct err first;
};

/* "pow (61), rsqrt (30); the first: instruction 12: pow: ...": the computations, and how often the
 * plan has them in a form that has no kernel. */
static enum err_code refuse_lacking(const struct lacking *lacking, enum work_backend backend,
                                    struct err *err)
{
    char list[900] = "";
    size_t used = 0;
    for (unsigned kind = 0; kind < WORK_KIND_COUNT; kind++)
        if (lacking->times[kind] && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s (%u)", used ? ", " : "",
                                     work_name((enum work_kind)kind), lacking->times[kind]);
    if (used == 0)
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED, "the %s backend has no kernel for: %s; the first: %s",
                   work_backend_name(backend), list, lacking->first.text);
}

/* Operands as they will be, with a number in place of an address. What has no kernel is counted. */
static enum err_code check_operands(const struct plan *plan, uint32_t id, enum work_backend backend,
                                    struct work_operand *operand, struct lacking *lacking,
                                    struct err *err)
{
    const struct plan_instruction *instruction = &plan->instructions[id];
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    struct work work = plan_work(plan, id, operand);
    work.update.step = 1;
    for (uint32_t i = 0; i < work.ins + work.outs; i++) {
        const struct operand *of = &kernel->operands[i];
        const struct plan_place place = plan_operand_place(plan, instruction, of);
        const uint64_t room =
            plan->buffers[place.buffer].bytes / dtype_bytes((enum dtype)of->dtype);
        uint64_t reach;
        if (layout_is_unknown(of->layout))
            return err_set(err, ERR_UNSUPPORTED,
                           "instruction %u, %s: where the elements of operand %u are is not known",
                           id, work.label, i);
        if (!operand_reach(of, &reach) ||
            (reach > 0 && (place.offset > room || reach > room - place.offset)))
            return err_set(err, ERR_UNSUPPORTED,
                           "instruction %u, %s: operand %u is larger than the memory it is in: an "
                           "expanded view (one key/value head) cannot be executed yet",
                           id, work.label, i);
        operand[i].data = (void *)((uintptr_t)place.buffer + 1);
    }
    struct err why = {0};
    const enum err_code rc = work_check(&work, backend, &why);
    if (rc == ERR_OK)
        return ERR_OK;
    if (rc != ERR_UNSUPPORTED)
        return err_set(err, rc, "%s", why.text);
    if (!lacking->first.text[0])
        lacking->first = why;
    lacking->times[work.kind]++;
    return ERR_OK;
}

/* A loss is kept by its micro-batch; marks are in every step. */
static enum err_code check_losses(const struct plan *plan, struct err *err)
{
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        const struct plan_instruction *instruction = &plan->instructions[id];
        if (instruction->op == PLAN_MARK && instruction->arg == PLAN_MARK_MICRO_BATCH)
            return ERR_OK;
        if (plan_op_is_kernel((enum plan_op)instruction->op) &&
            plan_kernel(plan, instruction->arg)->work == WORK_NLL_LOSS)
            return err_set(err, ERR_UNSUPPORTED, "instruction %u: a loss before any micro-batch",
                           id);
    }
    return ERR_OK;
}

enum err_code plan_check_runnable(const struct plan *plan, enum work_backend backend,
                                  struct err *err)
{
    uint32_t widest = 1;
    struct lacking lacking = {.times = {0}};
    struct err other = {0};
    TRY(check_losses(plan, err));
    for (uint32_t i = 0; i < plan->kernel_count; i++) {
        const uint32_t operands = (uint32_t)plan_kernel(plan, i)->ins + plan_kernel(plan, i)->outs;
        widest = operands > widest ? operands : widest;
    }
    struct work_operand *operand = xmalloc(widest * sizeof *operand);
    enum err_code rc = ERR_OK;
    for (uint32_t id = 0; id < plan->instruction_count && rc == ERR_OK; id++)
        if (plan_op_is_kernel((enum plan_op)plan->instructions[id].op))
            rc = check_operands(plan, id, backend, operand, &lacking, &other);
    free(operand);
    TRY(refuse_lacking(&lacking, backend, err));
    return rc == ERR_OK ? ERR_OK : err_set(err, rc, "%s", other.text);
}

/* The dtype of the plan's attention; DTYPE_COUNT: it has none. */
static enum dtype attention_dtype(const struct plan *plan)
{
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        if (!plan_op_is_kernel((enum plan_op)plan->instructions[id].op))
            continue;
        const struct kernel *kernel = plan_kernel(plan, plan->instructions[id].arg);
        if (work_to_run((enum work_kind)kernel->work, kernel->ins) == WORK_ATTENTION)
            return (enum dtype)kernel->operands[0].dtype;
    }
    return DTYPE_COUNT;
}

enum err_code plan_check_attention(const struct plan *plan, enum attention_kernel asked,
                                   enum work_backend backend, struct err *err)
{
    const enum dtype dtype = attention_dtype(plan);
    if (asked == ATTENTION_AUTO || asked == ATTENTION_OWN)
        return ERR_OK;
    if (backend != WORK_ON_CUDA || asked != ATTENTION_CUDNN)
        return err_set(err, ERR_UNSUPPORTED, "--attention %s: the %s backend has no %s; it has %s",
                       attention_name(asked), work_backend_name(backend), attention_what(asked),
                       backend == WORK_ON_CUDA ? "cudnn and own" : "own");
    if (dtype == DTYPE_COUNT)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention cudnn: the plan has no kernel that is attention as a whole");
    if (dtype == DTYPE_FP32)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention cudnn: the plan's attention is of fp32, cuDNN's is of bf16 and "
                       "fp16");
    return ERR_OK;
}
