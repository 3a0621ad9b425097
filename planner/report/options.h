/* options.h - several lines of options, of which what all have is said once.
 *
 *     --units torchtitan --reshard never         all have      --units torchtitan
 *     --units torchtitan --optimizer-impl fused  the rows say  --reshard never
 *                                                              --optimizer-impl fused */
#ifndef SHARDPLAN_OPTIONS_H
#define SHARDPLAN_OPTIONS_H

#include "base/arena.h"

#include <stdint.h>

/* The options ("--name value", with blanks between them) that all of (count) texts have, as the
 * first has them, in the arena. "": there are none, or no two texts. */
const char *options_common(const char *const *texts, uint32_t count, struct arena *arena);

/* Those of a text that are not in another one, in the arena; "": there are none. */
const char *options_besides(const char *text, const char *common, struct arena *arena);

#endif
