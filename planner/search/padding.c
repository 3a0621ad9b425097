/* padding.c - see padding.h. */
#include "search/padding.h"

#include "search/changed.h"

/* Padding that is less than this share of the parameters is not worth a line. */
#define WORTH_A_LINE 0.01

/* Bytes of padding of a parameter on all ranks together. */
static uint64_t padding_of(const struct plan *plan, const struct plan_piece *piece,
                           uint64_t element)
{
    const struct shape *shape = &plan->params[piece->param].shape;
    const uint32_t ranks = plan->groups[piece->group].ranks;
    return (placement_padded(piece->placement, shape, ranks) * ranks - shape_elements(shape)) *
           element;
}

static uint32_t idle_ranks(const struct shape *shape, uint32_t ranks)
{
    const uint64_t rows = shape->dim[0], chunk = placement_chunk(rows, ranks);
    return ranks - (uint32_t)((rows + chunk - 1) / chunk);
}

static void add_up(const struct plan *plan, struct padding *out)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const uint32_t index = plan->params[i].piece[PIECE_STORE];
        if (index == PLACE_NONE)
            continue;
        const struct plan_piece *piece = &plan->pieces[index];
        const uint64_t element = dtype_bytes((enum dtype)plan->buffers[piece->buffer].dtype);
        out->parameter_bytes += shape_elements(&plan->params[i].shape) * element;
        if (piece->group == PLAN_NO_GROUP || piece->placement.kind != PLACEMENT_ROWS)
            continue;
        const uint64_t bytes = padding_of(plan, piece, element);
        out->bytes += bytes;
        out->parameters += bytes > 0;
        if (bytes > most) {
            most = bytes;
            out->param = &plan->params[i];
            out->ranks = plan->groups[piece->group].ranks;
            out->idle = idle_ranks(&out->param->shape, out->ranks);
        }
    }
}

bool padding_find(const struct settings *settings, const struct job *job,
                  const struct machine *machine, const struct prediction *prediction,
                  struct padding *out)
{
    *out = (struct padding){.parameters = 0};
    add_up(prediction->plan, out);
    if ((double)out->bytes <= WORTH_A_LINE * (double)out->parameter_bytes)
        return false;
    struct settings columns = *settings;
    columns.job.strategy.columns = true;
    out->columns_bytes =
        changed_device_bytes(&columns, &job->config, machine, &out->columns_release, &out->refusal);
    return true;
}
