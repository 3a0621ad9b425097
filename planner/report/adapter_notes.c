/* adapter_notes.c - see adapter_notes.h. */
#include "report/adapter_notes.h"

#include "base/names.h"
#include "base/pattern.h"
#include "families/families.h"

#include <string.h>

enum { NAME = 128 };

/* "q_proj" of "model.layers.0.self_attn.q_proj.weight"; false: it is no layer's weight. */
static bool layer_of(const char *param, char name[NAME])
{
    static const char weight[] = ".weight";
    const size_t length = strlen(param), tail = sizeof weight - 1;
    if (length <= tail || strcmp(param + length - tail, weight) != 0 || strstr(param, ".lora_"))
        return false;
    size_t begin = length - tail;
    while (begin > 0 && param[begin - 1] != '.')
        begin--;
    snprintf(name, NAME, "%.*s", (int)(length - tail - begin), param + begin);
    return true;
}

/* Whether a layer whose path ends with the name has an adapter. */
static bool is_adapted(const struct plan *plan, const char *name)
{
    char part[NAME + 16];
    const int length = snprintf(part, sizeof part, ".%s.lora_A.", name);
    for (uint32_t p = 0; p < plan->param_count; p++) {
        const char *param = plan->params[p].name;
        if (strstr(param, part) || strncmp(param, part + 1, (size_t)length - 1) == 0)
            return true;
    }
    return false;
}

/* The i-th name of those in --lora that no layer has, and which layer is called nearly so ("": none
 * is); false: there are no more. */
static bool passed_over(const struct job *job, const struct plan *plan, uint32_t i, char name[NAME],
                        char near[NAME])
{
    const char *text = job->model.lora ? job->model.lora : "", *at = strchr(text, ',');
    if (!at || pattern_is(at + 1) || strcmp(at + 1, "all-linear") == 0)
        return false;
    for (; at; at = strchr(at + 1, ',')) {
        snprintf(name, NAME, "%.*s", (int)strcspn(at + 1, ","), at + 1);
        if (!*name || is_adapted(plan, name) || i-- > 0)
            continue;
        near[0] = '\0';
        for (uint32_t p = 0; p < plan->param_count; p++) {
            char layer[NAME];
            if (layer_of(plan->params[p].name, layer) && names_distance(name, layer) == 1 &&
                names_nearer(name, layer, *near ? near : NULL))
                snprintf(near, NAME, "%s", layer);
        }
        return true;
    }
    return false;
}

/* The first adapter of whose layer's name peft makes more; NULL: there is none. */
static const char *taken_for_more(const struct job *job, const struct plan *plan)
{
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (strstr(plan->params[p].name, ".lora_A.") &&
            lora_takes_experts(&job->config, plan->params[p].name))
            return plan->params[p].name;
    return NULL;
}

bool adapter_notes_any(const struct job *job, const struct plan *plan)
{
    char name[NAME], near[NAME];
    return passed_over(job, plan, 0, name, near) || taken_for_more(job, plan);
}

void adapter_notes_print(FILE *file, const struct job *job, const struct plan *plan)
{
    char name[NAME], near[NAME];
    for (uint32_t i = 0; passed_over(job, plan, i, name, near); i++)
        fprintf(file, "note: --lora: no linear layer is called %s, which is passed over%s%s%s\n",
                name, *near ? "; did you mean " : "", near, *near ? "?" : "");
    const char *more = taken_for_more(job, plan);
    if (more)
        fprintf(
            file,
            "note: --lora: peft 0.21.2 takes the name of %.*s for its experts' parameters, too, "
            "or fails where one of gate_proj and up_proj is named alone; planned are the "
            "layers, as earlier ones have them\n",
            (int)(strstr(more, ".lora_A.") - more), more);
}

void adapter_notes_set(json_t *object, const struct job *job, const struct plan *plan)
{
    char name[NAME], near[NAME];
    json_t *names = json_array();
    for (uint32_t i = 0; passed_over(job, plan, i, name, near); i++)
        json_array_append_new(names, json_string(name));
    if (json_array_size(names))
        json_object_set(object, "adapters_passed_over", names);
    json_decref(names);
    if (taken_for_more(job, plan))
        json_object_set_new(object, "adapters_of_experts_left_out", json_true());
}
