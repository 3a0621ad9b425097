/* update.c - see update.h. */
#include "lower/update.h"

/* plan_updated_operand of the gradient: where it is spread as the parameter is, the part is known.
 */
void set_gradient_of(const struct plan *plan, const struct optimized *o, struct operand *out)
{
    if (o->param == NONE) {
        *out = o->gradient;
        return;
    }
    const struct plan_piece *updated = plan_updated_piece(plan, o->param);
    const struct plan_piece *gradient = plan_piece(plan, o->param, PIECE_GRADIENT);
    if (gradient->placement.kind != updated->placement.kind)
        *out = plan_updated_operand(plan, o->param, PIECE_GRADIENT);
    else {
        *out = o->value;
        out->place = PLACE_BUFFER | gradient->buffer;
        out->offset += gradient->offset - updated->offset;
        out->dtype = plan->buffers[gradient->buffer].dtype;
    }
}

uint32_t updated_like(const struct lowering *low, struct updated u, uint32_t index)
{
    const uint32_t param = u.of[index].param;
    if (!low->like || param == NONE || low->like[param] == param)
        return index;
    const struct plan_param *params = low->plan->params;
    const uint32_t like = low->like[param];
    return like < index && u.of[like].param == like &&
                   params[like].piece[PIECE_GRADIENT] == params[param].piece[PIECE_GRADIENT]
               ? like
               : index;
}
