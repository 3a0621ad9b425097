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

/* That operands lie within their memory; they get a number in place of an address. */
static enum err_code check_reach(const struct plan *plan, const struct work *work,
                                 struct work_operand *operand, struct err *err)
{
    const uint32_t id = work->instruction;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    for (uint32_t i = 0; i < work->ins + work->outs; i++) {
        const struct operand *of = &kernel->operands[i];
        const struct plan_place place = plan_operand_place(plan, instruction, of);
        const uint64_t room =
            plan->buffers[place.buffer].bytes / dtype_bytes((enum dtype)of->dtype);
        uint64_t reach;
        if (layout_is_unknown(of->layout))
            return err_set(err, ERR_UNSUPPORTED,
                           "instruction %u, %s: where the elements of operand %u are is not known",
                           id, work->label, i);
        if (!operand_reach(of, &reach) ||
            (reach > 0 && (place.offset > room || reach > room - place.offset)))
            return err_set(err, ERR_UNSUPPORTED,
                           "instruction %u, %s: operand %u is larger than the memory it is in: an "
                           "expanded view (one key/value head) cannot be executed yet",
                           id, work->label, i);
        operand[i].data = (void *)((uintptr_t)place.buffer + 1);
    }
    return ERR_OK;
}

/* Operands as they will be. What has no kernel is counted. */
static enum err_code check_operands(const struct plan *plan, uint32_t id, enum work_backend backend,
                                    struct work_operand *operand, struct lacking *lacking,
                                    struct err *err)
{
    struct work work = plan_work(plan, id, operand);
    struct err why = {0};
    work.update.step = 1;
    TRY(check_reach(plan, &work, operand, err));
    const enum err_code rc = work_check(&work, backend, &why);
    if (rc == ERR_OK)
        return ERR_OK;
    if (rc != ERR_UNSUPPORTED && work_can_run_form(&work))
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

#define MOST_BATCHES (UINT64_C(1) << 50) /* bytes of a step's tokens */

static uint32_t count_micro_batches(const struct plan *plan)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < plan->instruction_count; id++)
        count += plan->instructions[id].op == PLAN_MARK &&
                 plan->instructions[id].arg == PLAN_MARK_MICRO_BATCH;
    return count;
}

/* That all inputs are tokens, or follow from them. */
static enum err_code check_inputs(const struct plan *plan, struct err *err)
{
    const struct plan_input *tokens = plan_input_of(plan, INPUT_TOKENS);
    const uint32_t micro_batches = count_micro_batches(plan);
    if (!tokens || plan->buffers[tokens->buffer].shape.rank != 2)
        return err_set(err, ERR_UNSUPPORTED, "the plan has no input of tokens (b, s)");
    const struct buffer *of = &plan->buffers[tokens->buffer];
    if (of->bytes == 0 || of->bytes != shape_bytes(&of->shape, (enum dtype)of->dtype) ||
        of->bytes > MOST_BATCHES / (micro_batches + !micro_batches))
        return err_set(err, ERR_UNSUPPORTED,
                       "%u micro-batches of %u by %u tokens in %llu bytes cannot be read",
                       micro_batches, of->shape.dim[0], of->shape.dim[1],
                       (unsigned long long)of->bytes);
    const uint32_t batch = of->shape.dim[0], seq = of->shape.dim[1], padded = tokens->values.padded;
    if (padded > padded_most(batch, seq, batch > 1 ? 1 : 2))
        return err_set(err, ERR_INVALID, "%u of %u by %u tokens are padding: none is left", padded,
                       batch, seq);
    for (uint32_t i = 0; i < plan->input_count; i++) {
        if (plan->inputs[i].values.prompt >= seq)
            return err_set(err, ERR_INVALID,
                           "input %u has no label of the first %u of %u tokens: none is left", i,
                           plan->inputs[i].values.prompt, seq);
        const enum input_kind kind = (enum input_kind)plan->inputs[i].values.kind;
        const struct buffer *input = &plan->buffers[plan->inputs[i].buffer];
        if (kind == INPUT_CLASSES)
            return err_set(
                err, ERR_UNSUPPORTED,
                "input %u is %s: the model classifies sequences, whose labels no file of "
                "tokens has: such a plan is not executed",
                i, input_name(kind));
        if (kind == INPUT_UNKNOWN)
            return err_set(err, ERR_UNSUPPORTED, "input %u is %s: no data file has them", i,
                           input_name(kind));
        if (plan->inputs[i].values.padded != padded)
            return err_set(err, ERR_INVALID, "input %u has %u tokens of padding, the tokens %u", i,
                           plan->inputs[i].values.padded, padded);
        if (input->bytes != of->bytes ||
            shape_elements(&input->shape) != shape_elements(&of->shape))
            return err_set(err, ERR_UNSUPPORTED, "input %u, %s, is not as long as the tokens", i,
                           input_name(kind));
    }
    return ERR_OK;
}

static enum err_code check_optimizer(const struct plan *plan, struct err *err)
{
    for (uint32_t id = 0; id < plan->instruction_count; id++)
        if (plan->instructions[id].op == PLAN_OPTIMIZER)
            return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED, "the plan has no optimizer step");
}

/* Room for the operands of any kernel: free. */
static struct work_operand *room_for_operands(const struct plan *plan)
{
    uint32_t widest = 1;
    for (uint32_t i = 0; i < plan->kernel_count; i++) {
        const uint32_t operands = (uint32_t)plan_kernel(plan, i)->ins + plan_kernel(plan, i)->outs;
        widest = operands > widest ? operands : widest;
    }
    return xmalloc(widest * sizeof(struct work_operand));
}

enum err_code plan_check_runnable(const struct plan *plan, enum work_backend backend,
                                  struct err *err)
{
    struct lacking lacking = {.times = {0}};
    struct err other = {0};
    TRY(check_losses(plan, err));
    struct work_operand *operand = room_for_operands(plan);
    for (uint32_t id = 0; id < plan->instruction_count; id++)
        if (plan_op_is_kernel((enum plan_op)plan->instructions[id].op))
            check_operands(plan, id, backend, operand, &lacking, &other); /* the first is kept */
    free(operand);
    TRY(refuse_lacking(&lacking, backend, err));
    if (other.code != ERR_OK)
        return err_set(err, other.code, "%s", other.text);
    TRY(check_optimizer(plan, err));
    return check_inputs(plan, err);
}

/* ---- rehearsals ---- */

static bool is_moved(enum plan_op op)
{
    return op == PLAN_COPY_IN || op == PLAN_COPY_OUT || op == PLAN_HOST_TO_DEVICE ||
           op == PLAN_DEVICE_TO_HOST || plan_op_is_collective(op);
}

/* A micro-batch begins with copies of all inputs, whatever they are. */
static enum err_code check_input_bytes(const struct plan *plan, struct err *err)
{
    for (uint32_t i = 0; i < plan->input_count; i++) {
        const struct buffer *input = &plan->buffers[plan->inputs[i].buffer];
        if (shape_bytes(&input->shape, (enum dtype)input->dtype) > input->bytes)
            return err_set(err, ERR_INVALID, "input %u is larger than the %llu bytes it is in", i,
                           (unsigned long long)input->bytes);
    }
    return ERR_OK;
}

enum err_code plan_list_moved(const struct plan *plan, enum work_backend backend, bool **out,
                              struct err *err)
{
    *out = NULL;
    TRY(check_input_bytes(plan, err));
    struct work_operand *operand = room_for_operands(plan);
    bool *moved = xcalloc(plan->instruction_count + 1U, sizeof *moved);
    enum err_code rc = ERR_OK;
    for (uint32_t id = 0; id < plan->instruction_count && rc == ERR_OK; id++) {
        struct err why = {0};
        if (!is_moved((enum plan_op)plan->instructions[id].op))
            continue;
        struct work work = plan_work(plan, id, operand);
        rc = check_reach(plan, &work, operand, &why);
        work_stand_in(&work, operand);
        if (rc == ERR_OK)
            rc = work_check(&work, backend, &why);
        moved[id] = rc == ERR_OK;
        rc = rc == ERR_UNSUPPORTED ? ERR_OK : rc;
        if (rc != ERR_OK)
            err_set(err, rc, "%s", why.text);
    }
    free(operand);
    if (rc == ERR_OK)
        *out = moved;
    else
        free(moved);
    return rc;
}

/* ---- attention ---- */

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
