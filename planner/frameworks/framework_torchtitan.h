/* framework_torchtitan.h - rules of torchtitan's keys that are files of their own. */
#ifndef SHARDPLAN_FRAMEWORK_TORCHTITAN_H
#define SHARDPLAN_FRAMEWORK_TORCHTITAN_H

#include "frameworks/framework.h"

/* Brings keys of older versions into the form of v0.2.2 (framework_torchtitan_older.c). */
void torchtitan_older(struct document *document);
/* What a key of theirs became; NULL: it is none of them. */
const char *torchtitan_renamed(const char *path);

/* The i-th of those keys; NULL: there are no more. */
const char *torchtitan_other_name(uint32_t i);

/* ---- float8: framework_torchtitan_float8.c ---- */

/* What model.converters lists, and with float8 among them that converter's keys. */
key_reader torchtitan_read_converters;
/* Of one of those keys: it has no effect without the converter. */
key_reader torchtitan_read_float8;

key_writer torchtitan_write_converters, torchtitan_write_filter, torchtitan_write_recipe,
    torchtitan_write_gather, torchtitan_write_precomputed;

#endif
