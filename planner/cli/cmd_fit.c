/* cmd_fit.c - shardplan fit: bytes per GPU and the verdict, time where it is asked for. */
#include "base/file.h"
#include "cli/answer.h"
#include "cli/commands.h"

/* What follows the text of a tensor of the host's, where peaks are told of the device's alone:
 * those without sum to them. */
static const char *place_text(const struct prediction *prediction, const struct buffer *buffer)
{
    if (!prediction->host_apart || buffer->pool != LANE_HOST)
        return "";
    return buffer->pinned ? " pinned" : " host";
}

/* One event of --events: [±bytes, category, where, unit or null, what]. Events are the allocs and
 * frees of tensors in the steady-state step, in host order. */
static void write_event(FILE *file, const struct prediction *prediction,
                        const struct plan_instruction *i)
{
    const struct plan *plan = prediction->plan;
    char scope[256], what[160];
    const struct buffer *b = &plan->buffers[i->arg];
    const uint32_t index = plan_scope_unit(plan, i);
    const char *unit = index == PLAN_NO_UNIT ? NULL : plan->units[index].name;
    fprintf(file, "[%s%llu, \"%s\", \"%s\", ", i->op == PLAN_FREE ? "-" : "",
            (unsigned long long)b->bytes, category_name((enum category)b->category),
            plan_scope_text(plan, i, scope, sizeof scope));
    if (unit)
        fprintf(file, "\"%s\", ", unit[0] ? unit : "root");
    else
        fprintf(file, "null, ");
    fprintf(file, "\"%s%s\"]\n", plan_buffer_text(plan, b, what, sizeof what),
            place_text(prediction, b));
}

static enum err_code write_events(const struct prediction *prediction, const char *path,
                                  struct err *err)
{
    const struct plan *plan = prediction->plan;
    struct file_writer to;
    TRY(file_create(path, &to, err));
    for (uint32_t n = 0; n < plan->instruction_count; n++) {
        const struct plan_instruction *i = &plan->instructions[n];
        if ((i->op != PLAN_ALLOC && i->op != PLAN_FREE) || (i->flags & PLAN_FIRST_STEP))
            continue;
        if (!plan->buffers[i->arg].scratch && plan->buffers[i->arg].bytes > 0)
            write_event(to.file, prediction, i);
    }
    return file_commit(&to, ERR_OK, err);
}

static enum err_code fit(struct answer *a, struct err *err)
{
    TRY(answer_make(a, false, err));
    if (a->settings.events)
        TRY(write_events(&a->prediction, a->settings.events, err));
    answer_show(a);
    return ERR_OK;
}

int command_fit(int argc, char **argv)
{
    return answer_command(COMMAND_FIT, argc, argv, fit);
}
