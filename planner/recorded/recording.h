/* recording.h - a model as PyTorch ran it: what tools/record.py wrote down of one micro-batch.
 *
 *     model.stream.json.gz --recording_read--> struct recording
 *     recording + choice   --recording_graph--> parameters, units, inputs: no operators
 *                          --recording_stream--> what a tape would give (graph/stream.h)
 *
 * A stream depends on nothing that a sharding strategy chooses, so it need not come from a builder
 * of ours: any model that PyTorch runs can be planned. What cannot be chosen any more is what was
 * recorded: batch, sequence, dtype, checkpointing, which parameters are frozen. The format is
 * described in tools/record.py. */
#ifndef SHARDPLAN_RECORDING_H
#define SHARDPLAN_RECORDING_H

#include "base/err.h"
#include "graph/stream.h"
#include "graph/tape_options.h"

struct recording;

struct recording_info { /* lent, for as long as the recording */
    const char *name;   /* class or function that made the model */
    const char *torch, *python;
    uint64_t parameters; /* elements, each counted once */
    uint32_t seq, units;
    enum dtype dtype;       /* of parameters while they compute */
    bool autocast;          /* the forward pass was under torch.autocast(bfloat16) */
    const char *batch_norm; /* the name of the model's first, or NULL */
};

/* Which of a recording's variants, and how it is read. */
struct recording_choice {
    uint32_t batch, seq;
    enum checkpointing checkpointing;
    bool input_nodes; /* tape_options.h: the variant with fully_shard's hooks */
    bool root_casts; /* ... or that with FullyShardedDataParallel's, where its inputs need a cast */
    bool module_hooks; /* likewise, call_hooks and own_linear: with DeepSpeed's on every module */
    bool scaled_loss;  /* likewise: an engine has the loss */
    bool node_hooks; /* the system's hooks are of AccumulateGrad's node, which the engine calls with
                        what arrived */
    bool views;      /* parameters are views of larger ones (graph.h) */
    enum dtype compute;
    bool autocast;
    enum autograd autograd; /* GPU: in place where autograd is on real tensors */
    enum attention_kernel attention;
    enum attention_gpu attention_gpu;
    uint32_t torch;     /* 2.x, whose FSDP2 runs it; the calls are those of the recording */
    const char *frozen; /* patterns of the names of parameters that are not trained, or NULL */
};

/* Whether a file's name is one of a recording: it ends in .stream.json or .stream.json.gz. */
bool recording_is_named(const char *path);

/* Reads a file, compressed or not. Errors name it, its line and what is wrong there. The caller
 * owns *out: recording_free. It is read only from then on, by any thread. */
enum err_code recording_read(const char *path, struct recording **out, struct err *err);
/* The same of a text of `size` bytes, called `name` in errors. */
enum err_code recording_parse(const char *name, const char *text, size_t size,
                              struct recording **out, struct err *err);
void recording_free(struct recording *recording); /* NULL is allowed */

struct recording_info recording_info(const struct recording *recording);

/* Parameters, units, inputs and module buffers. ERR_INVALID: no variant is what was chosen; it says
 * which there are. The caller owns *out: graph_free. */
enum err_code recording_graph(const struct recording *recording,
                              const struct recording_choice *choice, struct graph **out,
                              struct err *err);

/* The steps of that variant. The caller owns *out: stream_free. */
enum err_code recording_stream(const struct recording *recording,
                               const struct recording_choice *choice, struct stream **out,
                               struct err *err);

/* What tools/record.py noted when it recorded: of that which a step does otherwise than the
 * recording. NULL: there are no more. */
const char *recording_note(const struct recording *recording, uint32_t index);

/* Names of calls that have no cost of their own: they take as long as their bytes. "a, b, c", cut
 * where `text` is full; returns how many. */
uint32_t recording_unknown(const struct recording *recording, char *text, size_t size);

#endif
