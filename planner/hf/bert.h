/* bert.h - BERT and its kin: their op sequence, and where they differ. */
#ifndef SHARDPLAN_HF_BERT_H
#define SHARDPLAN_HF_BERT_H

#include "hf/classify.h"
#include "model/builder.h"

struct bert_way {
    const char *root, *head;        /* modules: of all but the head, "bert"; "cls.predictions" */
    const char *dense, *norm, *act; /* the head's; act NULL: a function */
    const char *decoder; /* ELECTRA: a module beside the head, whose activation is GELU; NULL:
                            it is in the head, which has its bias */
    const char
        *projection; /* of an embedding of another width (c->word_embed); NULL: it has none */
    bool head_first; /* it is declared first */
    struct hf_classifier classifier; /* with which it classifies sequences */
    bool counted_positions; /* from the padding's id + 1 on, by those tokens that pad nothing */
};
void bert_build(struct graph *graph, const struct model_config *config, const struct model_job *job,
                const struct bert_way *way);

/* Attention of all tokens to all but those that the mask leaves out (GRAPH_NONE: to all): (b, s,
 * h), of heads that stay the caller's. */
uint32_t bert_attention(struct graph *graph, const struct model_config *config,
                        const struct model_job *job, uint32_t mask, uint32_t q, uint32_t k,
                        uint32_t v);

#endif
