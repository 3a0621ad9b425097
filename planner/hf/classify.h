/* classify.h - models of Hugging Face's transformers with the heads of
 * AutoModelForSequenceClassification
 * (`--task sequence-classification`), and their loss, which is inside the model.
 *
 *     decoders    score, a Linear of every token; of that the last token's which pads nothing
 *                 (modeling_layers.py, GenericForSequenceClassification, and those written like it)
 *     encoders    a struct hf_classifier: a Linear, an activation and another Linear of the first
 *                 token, or of all
 *
 * Labels are one of each sequence, or several. The logits are not upcast. */
#ifndef SHARDPLAN_HF_CLASSIFY_H
#define SHARDPLAN_HF_CLASSIFY_H

#include "hf/hf.h"

/* What the model is called with beside tokens: labels of sequences, where it classifies
 * (GRAPH_NONE: its loss is a trainer's, outside); else what a language model takes, `kind` of
 * `shape`. */
uint32_t hf_targets(struct graph *graph, const struct model_config *config,
                    const struct model_job *job, enum input_kind kind, struct shape shape);

/* The head of a decoder behind its backbone: hidden states (b, s, h) of tokens (b, s). */
void hf_score(struct graph *graph, const struct model_config *config, const struct model_job *job,
              uint32_t hidden, uint32_t tokens, uint32_t labels);

struct hf_classifier {
    const char *head; /* module that has the first Linear and what follows it; NULL: the model */
    bool whole;       /* ... and dropout and the last Linear, too */
    bool returned;    /* what it gives is returned by the backbone, beside hidden states */
    const char *dense;
    enum op_kind activation;
    const char *act;  /* its module; NULL: a function */
    const char *norm; /* ModernBERT's, behind that; NULL: none */
    bool masks;       /* a mean is that of tokens which a mask of ones chooses, and what is taken of
                         tokens has a name until the model returns */
    const char *dropout; /* module before the last Linear; NULL: none */
    bool drops_first;    /* it is before the first Linear, too */
    const char *out;
};

/* Its parameters: of the first Linear and the norm, and of a head that is one module of the last
 * Linear, too. */
struct hf_classifier_parts {
    struct linear dense, out;
    struct norm norm;
};
struct hf_classifier_parts hf_classifier_declare(struct graph *graph,
                                                 const struct model_config *config,
                                                 const struct hf_classifier *way, uint32_t labels);
/* Of hidden states (b, s, h) what is returned beside them: (b, h), or GRAPH_NONE where nothing is.
 */
uint32_t hf_classifier_pool(struct graph *graph, const struct model_config *config,
                            const struct hf_classifier *way, uint32_t hidden);
/* The head of an encoder, of hidden states and that. `parts`: what was declared before the model,
 * NULL: nothing. */
void hf_classify(struct graph *graph, const struct model_config *config,
                 const struct model_job *job, const struct hf_classifier *way,
                 const struct hf_classifier_parts *parts, uint32_t hidden, uint32_t pooled,
                 uint32_t labels);

/* The step of TRL's trainer of rewards (`--loss reward`; TRL 1.16.0, trainer/reward_trainer.py,
 * compute_loss), from what the model returned: a reward (b, 1) of each sequence, of which half are
 * chosen, the others rejected. It goes. */
void hf_reward(struct graph *graph, const struct model_job *job, uint32_t rewards);

#endif
