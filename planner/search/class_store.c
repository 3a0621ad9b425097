/* class_store.c - see class_store.h. */
#include "search/class_store.h"

#include "base/arena.h"

#include <stdlib.h>

struct kept {
    struct key key;
    struct stream_class *made;
};

struct class_store {
    struct kept *all; /* (count) hundreds at most */
    uint32_t count, cap;
};

struct class_store *class_store_new(void)
{
    return xcalloc(1, sizeof(struct class_store));
}

void class_store_free(struct class_store *store)
{
    if (!store)
        return;
    for (uint32_t i = 0; i < store->count; i++)
        stream_class_free(store->all[i].made);
    free(store->all);
    free(store);
}

const struct stream_class *class_store_find(const struct class_store *store, struct key key)
{
    for (uint32_t i = 0; i < store->count; i++)
        if (store->all[i].key.a == key.a && store->all[i].key.b == key.b)
            return store->all[i].made;
    return NULL;
}

void class_store_keep(struct class_store *store, struct key key, struct stream_class *made)
{
    ARRAY_GROW(store->all, store->count, store->cap);
    store->all[store->count++] = (struct kept){key, made};
}
