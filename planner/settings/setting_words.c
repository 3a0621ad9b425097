/* setting_words.c - see setting_words.h. */
#include "settings/setting_words.h"

#include "settings/setting_rows.h"

const struct setting_word setting_attention_words[] = {
#define X(name, word, what) WORD(word, ATTENTION_##name),
    ATTENTION_MAP(X)
#undef X
        {NULL, 0, false},
};

const struct setting_word setting_attention_to_run_words[] = {
#define X(name, word, what) WORD(word, ATTENTION_##name),
    ATTENTION_MAP(X)
#undef X
        WORD("own", ATTENTION_OWN),
    {NULL, 0, false},
};

/* As people have it from torch.__version__, too; but 2.5.0 preferred cuDNN's attention on Hopper,
 * which 2.5.1 took back (pytorch#138522). */
const struct setting_word setting_torch_words[] = {
#define VERSION(minor)                                                                             \
    WORD("2." #minor, minor), ALSO("2." #minor ".0", minor), ALSO("2." #minor ".1", minor)
    VERSION(4),       WORD("2.5", 5), ALSO("2.5.1", 5), VERSION(6),  VERSION(7),
    VERSION(8),       VERSION(9),     VERSION(10),      VERSION(11), VERSION(12),
    VERSION(13),      VERSION(14),    VERSION(15),
#undef VERSION
    {NULL, 0, false},
};
_Static_assert(TORCH_OLDEST == 4 && TORCH_NEWEST == 15, "the words of --torch");

const struct setting_word setting_system_words[] = {
#define X(name, text, of) WORD(text, SYSTEM_##name),
    SYSTEM_MAP(X)
#undef X
        ALSO("none", SYSTEM_SINGLE),
    {NULL, 0, false},
};

const struct setting_word setting_optimizer_words[] = {
    WORD("adamw", OPTIMIZER_ADAMW),
    WORD("sgd", OPTIMIZER_SGD),
    WORD("adamw-8bit", OPTIMIZER_BNB_8BIT),
    WORD("paged-adamw-8bit", OPTIMIZER_BNB_PAGED_8BIT),
    WORD("paged-adamw-32bit", OPTIMIZER_BNB_PAGED),
    WORD("adamw-torch-8bit", OPTIMIZER_AO_8BIT),
    WORD("adamw-torch-4bit", OPTIMIZER_AO_4BIT),
    ALSO("adamw_torch_8bit", OPTIMIZER_AO_8BIT),
    ALSO("adamw_torch_4bit", OPTIMIZER_AO_4BIT),
    ALSO("adamw-bnb-8bit", OPTIMIZER_BNB_8BIT),
    ALSO("adamw_8bit", OPTIMIZER_BNB_8BIT),
    ALSO("adamw_bnb_8bit", OPTIMIZER_BNB_8BIT),
    ALSO("paged_adamw_8bit", OPTIMIZER_BNB_PAGED_8BIT),
    ALSO("paged_adamw_32bit", OPTIMIZER_BNB_PAGED),
    {NULL, 0, false},
};

const struct setting_word setting_saved_words[] = {
    WORD("off", SAVED_ON_DEVICE),
    WORD("on", SAVED_ON_HOST_ASIDE),
    WORD("legacy", SAVED_ON_HOST),
    WORD("weights", SAVED_ON_HOST_ASIDE_ALL),
    WORD("legacy-weights", SAVED_ON_HOST_ALL),
    {NULL, 0, false},
};

const struct setting_word setting_loss_words[] = {
    WORD("eager", CROSS_ENTROPY_EAGER),
    WORD("direct", CROSS_ENTROPY_DIRECT),
    WORD("fused", CROSS_ENTROPY_FUSED),
    WORD("chunked", CROSS_ENTROPY_CHUNKED),
    WORD("compiled", CROSS_ENTROPY_COMPILED),
    WORD("liger", CROSS_ENTROPY_LIGER),
    WORD("liger-cross-entropy", CROSS_ENTROPY_LIGER_LOGITS),
    WORD("cut-cross-entropy", CROSS_ENTROPY_CUT),
    WORD("fused-lm-head", CROSS_ENTROPY_LM_HEAD),
    WORD("dpo", CROSS_ENTROPY_DPO),
    WORD("grpo", CROSS_ENTROPY_GRPO),
    WORD("reward", CROSS_ENTROPY_REWARD),
    WORD("per-token", CROSS_ENTROPY_PER_TOKEN),
    WORD("per-token-liger", CROSS_ENTROPY_PER_TOKEN_LIGER),
    {NULL, 0, false},
};

const struct setting_word setting_units_words[] = {
    WORD("blocks", UNITS_BLOCKS),
    WORD("torchtitan", UNITS_TORCHTITAN),
    WORD("embeddings", UNITS_EMBEDDINGS),
    {NULL, 0, false},
};

const struct setting_word setting_kept_words[] = {
    WORD("none", OUTPUTS_DROPPED),
    WORD("backward", OUTPUTS_UNTIL_BACKWARD),
    WORD("next", OUTPUTS_UNTIL_NEXT),
    {NULL, 0, false},
};
