/* class_store.h - streams that one search made and the next can use.
 *
 * Searches of one model on one machine differ in GPUs, dtypes or what they may change, and many of
 * their classes are the same. A stream, above all a compiled one, takes longer to make than what a
 * search does with it. */
#ifndef SHARDPLAN_CLASS_STORE_H
#define SHARDPLAN_CLASS_STORE_H

#include "search/keys.h"
#include "search/stream_class.h"

struct class_store; /* opaque */

struct class_store *class_store_new(void);
void class_store_free(struct class_store *store); /* NULL is allowed */

/* The class whose stream is that of the key, lent; NULL: none is there. Several threads may ask
 * while nobody keeps. */
const struct stream_class *class_store_find(const struct class_store *store, struct key key);

/* Takes a class, which must be of a key that is not there and have a stream of its own. */
void class_store_keep(struct class_store *store, struct key key, struct stream_class *made);

#endif
