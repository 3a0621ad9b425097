/* compile.h - a model that torch.compile compiles: each block on its own, or as a whole; its loss
 * by itself, likewise.
 *
 *     graph --tape_run_regions--> eager kernels of each block --joint.h--> one graph
 *           --partition.h--> what is saved --program.h--> kernels and memory --tape_compiled.h-->
 *           stream
 *
 * What the hooks of a sharding system do is outside of what is compiled, as torchtitan has it
 * (fullgraph=True on each TransformerBlock, fully_shard around it; where a block has experts, on
 * what it calls, MARK_CALLED: the block is eager, and its checkpoint); so are the embedding, the
 * final norm and the head, which stay eager. A model as a whole is what its forward does, without
 * any hooks inside: under DDP and ZeRO, or where FSDP1 wraps the root alone. With hooks inside, it
 * is each function of the model's own code that its forward calls (COMPILED_FRAMES). Hooks within a
 * block end its graphs, too (graph/frame_parts.h). The loss is
 * outside, or is compiled by itself; inside of the model it would save as much. transformers'
 * models have it inside, and a mask that they make while they are traced (model_job.traced): of
 * what such a graph gives, logits have a gradient of zeros (accelerate casts them in it:
 * model_job.outputs_fp32). What Dynamo cannot trace ends a graph (MARK_BREAK). Under DDP each of
 * these graphs is split where buckets end (torch._dynamo.config.optimize_ddp):
 * graph/bucket_parts.h.
 *
 * Held to recordings (tests/compile): what is saved, and the programs' kernels and peaks; who holds
 * what crosses their borders under FSDP2, DDP and FSDP1, and the order of gradients. What is
 * not as Inductor has it is listed in tests/data/truth/README.md. Held to published runs:
 * reports/validation. Assumed: a compiled program's kernel costs the host what an operator of
 * forward costs, also in backward, and entering it (guards, AOTAutograd's runtime) nothing. */
#ifndef SHARDPLAN_COMPILE_H
#define SHARDPLAN_COMPILE_H

#include "base/err.h"
#include "graph/stream.h"
#include "graph/tape_options.h"

/* As tape_run with options.compile. ERR_UNSUPPORTED: a block has something that is not planned. The
 * caller owns the stream: stream_free. */
enum err_code compile_run(const struct graph *graph, const struct tape_options *options,
                          struct stream **out, struct err *err);

#endif
