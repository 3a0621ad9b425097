/* mutation.h - hostile files: a JSON document with a few of its places changed at random, in ways
 * that leave it as plausible as can be, so that what reads it gets far.
 *
 * A number becomes a neighbour, a power of two, a limit of its type or another number of the
 * document; a text another one that stands under the same key; a list loses, doubles or swaps
 * items; an object loses a member, or gets one that nobody knows. Members "id" are numbered anew.
 */
#ifndef SHARDPLAN_TEST_MUTATION_H
#define SHARDPLAN_TEST_MUTATION_H

#include <jansson.h>
#include <stdint.h>

/* The next number of a sequence that *state is the place in; any state will do to begin with. */
uint64_t mutation_draw(uint64_t *state);

/* Changes one to three places of the document in place. */
void mutate_json(json_t *document, uint64_t *state);

/* The same of a text of `size` bytes in memory for `most`, as a fuzzer's custom mutator; the new
 * size. What is no object, or would be longer than `most`, stays as it is. */
size_t mutate_json_text(uint8_t *text, size_t size, size_t most, uint64_t state);

#endif
