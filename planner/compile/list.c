/* list.c - a small set of numbers, in the order of arrival; see program_parts.h. */
#include "base/arena.h"
#include "compile/program_parts.h"

bool list_has(const struct list *list, uint32_t value)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->of[i] == value)
            return true;
    return false;
}

bool lists_meet(const struct list *a, const struct list *b)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (list_has(b, a->of[i]))
            return true;
    return false;
}

void list_add_once(struct list *list, uint32_t value)
{
    if (list_has(list, value))
        return;
    ARRAY_GROW(list->of, list->count, list->cap);
    list->of[list->count++] = value;
}
