/* padded.c - see padded.h. */
#include "model/padded.h"

#include "graph/ops.h"

/* Chosen and rejected sequences, which no file of tokens has. */
static bool is_of_pairs(enum cross_entropy loss)
{
    return loss == CROSS_ENTROPY_DPO || loss == CROSS_ENTROPY_REWARD;
}

void padded_call(struct graph *graph, model_builder *builder, const struct model_config *config,
                 const struct model_job *job)
{
    const struct input_values values = {.kind = is_of_pairs(job->loss) ? INPUT_UNKNOWN
                                                                       : INPUT_ATTENTION_MASK,
                                        .vocab = config->vocab,
                                        .padded = graph->padded};
    if (job->padding_tokens)
        graph->attention_mask = graph_input(graph, SHAPE(job->batch, job->seq), values);
    builder(graph, config, job);
}

uint32_t padded_pairs_mask(struct graph *graph, const struct model_job *job)
{
    return graph->attention_mask != GRAPH_NONE
               ? graph->attention_mask
               : graph_input(graph, SHAPE(job->batch, job->seq),
                             (struct input_values){.kind = INPUT_UNKNOWN});
}
