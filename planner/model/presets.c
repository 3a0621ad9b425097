/* presets.c - models by name, and how many parameters a model has.
 *
 * Every preset is the config.json that its authors published on Hugging Face; the source stands
 * above each family. The count beside the name is transformers' for the class named there (5.23,
 * built on the meta device), each parameter once: a head tied to the embedding adds nothing.
 *
 * The same count comes from three sides, and tests hold them together: the number here, the closed
 * formula below, and the graph of the builder. */
#include "model/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* A model is a line, and what these macros hold are rows: no blocks, no expressions. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* GPT-2: openai-community/gpt2{,-medium,-large,-xl}. GPT2LMHeadModel. */
#define GPT2(title, count, h, l, a)                                                                \
    {title, count,                                                                                 \
     {.arch = ARCH_GPT2, .hidden = h, .layers = l, .heads = a, .kv_heads = a, .head_dim = h / a,   \
      .ffn = 4 * h, .vocab = 50257, .max_positions = 1024, .tied = true, .attention_bias = true,   \
      .mlp_bias = true, .activation = "gelu_new", .dropout = 0.1F, .embedding_dropout = 0.1F,      \
      .attention_dropout = 0.1F, .norm_eps = 1e-5F, .init_std = 0.02F}}

/* What Llama, Mistral, Qwen and Mixtral have in common. */
#define GATED(kind, h, l, a, k, d, f, v, positions, eps, base)                                     \
    .arch = kind, .hidden = h, .layers = l, .heads = a, .kv_heads = k, .head_dim = d, .ffn = f,    \
    .vocab = v, .max_positions = positions, .norm_eps = eps, .activation = "silu",                 \
    .init_std = 0.02F, .rope.theta = base, .rope.attention_factor = 1

/* Llama 2, 3, 3.1, 3.2, 3.3: meta-llama/Llama-2-7b-hf, Meta-Llama-3-8B, Llama-3.1-8B, ...
 * LlamaForCausalLM. The 405B is the later upload with 8 key/value heads. */
#define LLAMA2(title, count, h, l, a, k, f)                                                        \
    {title, count, {GATED(ARCH_LLAMA, h, l, a, k, 128, f, 32000, 4096, 1e-5F, 1e4F)}}
#define LLAMA3(title, count, h, l, a, f)                                                           \
    {title, count, {GATED(ARCH_LLAMA, h, l, a, 8, 128, f, 128256, 8192, 1e-5F, 5e5F)}}
/* From 3.1 on, made for 8,192 positions and stretched. */
#define LLAMA31(title, count, h, l, a, d, f, shared, by)                                           \
    {title, count,                                                                                 \
     {GATED(ARCH_LLAMA, h, l, a, 8, d, f, 128256, 131072, 1e-5F, 5e5F), .tied = shared,            \
      .rope.scaling = ROPE_LLAMA3, .rope.factor = by, .rope.original_positions = 8192,             \
      .rope.low_freq_factor = 1, .rope.high_freq_factor = 4}}

/* Mistral: mistralai/Mistral-7B-v0.1 and -v0.3. MistralForCausalLM. */
#define MISTRAL(title, count, v, theta, window)                                                    \
    {title, count,                                                                                 \
     {GATED(ARCH_MISTRAL, 4096, 32, 32, 8, 128, 14336, v, 32768, 1e-5F, theta),                    \
      .sliding_window = window}}

/* Qwen2.5: Qwen/Qwen2.5-0.5B ... -72B, the base models. Qwen2ForCausalLM. */
#define QWEN2(title, count, h, l, a, k, f, v, positions, eps, shared)                              \
    {title, count,                                                                                 \
     {GATED(ARCH_QWEN2, h, l, a, k, h / a, f, v, positions, eps, 1e6F), .attention_bias = true,    \
      .tied = shared}}

/* Qwen3: Qwen/Qwen3-0.6B ... -32B. Qwen3ForCausalLM. */
#define QWEN3(title, count, h, l, a, f, shared)                                                    \
    {title, count,                                                                                 \
     {GATED(ARCH_QWEN3, h, l, a, 8, 128, f, 151936, 40960, 1e-6F, 1e6F), .qk_norm = true,          \
      .tied = shared}}

/* OPT: facebook/opt-125m ... -66b; the 175B from the paper's table 1 (arXiv:2205.01068), as its
 * weights are not on the hub. OPTForCausalLM. The 350M alone has norms after the residual and an
 * embedding of half its width. */
#define OPT(title, count, h, l, a, width, post)                                                    \
    {title, count,                                                                                 \
     {.arch = ARCH_OPT, .hidden = h, .layers = l, .heads = a, .kv_heads = a, .head_dim = h / a,    \
      .ffn = 4 * h, .vocab = 50272, .max_positions = 2048, .word_embed = width, .tied = true,      \
      .attention_bias = true, .mlp_bias = true, .post_norm = post, .activation = "relu",           \
      .dropout = 0.1F, .norm_eps = 1e-5F, .init_std = 0.02F}}

/* GPT-NeoX: EleutherAI/gpt-neox-20b, pythia-70m ... -12b. GPTNeoXForCausalLM. */
#define NEOX(title, count, h, l, a, v, act)                                                        \
    {title, count,                                                                                 \
     {.arch = ARCH_GPT_NEOX, .hidden = h, .layers = l, .heads = a, .kv_heads = a,                  \
      .head_dim = h / a, .ffn = 4 * h, .vocab = v, .max_positions = 2048, .attention_bias = true,  \
      .mlp_bias = true, .parallel_residual = true, .activation = act, .norm_eps = 1e-5F,           \
      .init_std = 0.02F, .rope.theta = 1e4F, .rope.attention_factor = 1,                           \
      .rotary_dim = h / a / 4}}

/* BERT: google-bert/bert-{base,large}-uncased. BertForMaskedLM. */
#define BERT(title, count, h, l, a)                                                                \
    {title, count,                                                                                 \
     {.arch = ARCH_BERT, .hidden = h, .layers = l, .heads = a, .kv_heads = a, .head_dim = h / a,   \
      .ffn = 4 * h, .vocab = 30522, .max_positions = 512, .type_vocab = 2, .tied = true,           \
      .attention_bias = true, .mlp_bias = true, .activation = "gelu", .dropout = 0.1F,             \
      .attention_dropout = 0.1F, .norm_eps = 1e-12F, .init_std = 0.02F}}

/* T5: google-t5/t5-{small,base,large,3b,11b}. T5ForConditionalGeneration. */
#define T5(title, count, h, l, a, d, f)                                                            \
    {title, count,                                                                                 \
     {.arch = ARCH_T5, .hidden = h, .layers = l, .decoder_layers = l, .heads = a, .kv_heads = a,   \
      .head_dim = d, .ffn = f, .vocab = 32128, .relative_buckets = 32, .tied = true,               \
      .activation = "relu", .dropout = 0.1F, .attention_dropout = 0.1F, .norm_eps = 1e-6F}}

static const struct model_preset presets[] = {
    GPT2("gpt2",        124439808,   768, 12, 12),
    GPT2("gpt2-medium", 354823168,  1024, 24, 16),
    GPT2("gpt2-large",  774030080,  1280, 36, 20),
    GPT2("gpt2-xl",     1557611200, 1600, 48, 25),

    LLAMA2("llama-2-7b",  6738415616,  4096, 32, 32, 32, 11008),
    LLAMA2("llama-2-13b", 13015864320, 5120, 40, 40, 40, 13824),
    LLAMA2("llama-2-70b", 68976648192, 8192, 80, 64, 8,  28672),
    LLAMA3("llama-3-8b",      8030261248,   4096,  32,  32,  14336),
    LLAMA3("llama-3-70b",     70553706496,  8192,  80,  64,  28672),
    LLAMA31("llama-3.1-8b",   8030261248,   4096,  32,  32,  128, 14336, false, 8),
    LLAMA31("llama-3.1-70b",  70553706496,  8192,  80,  64,  128, 28672, false, 8),
    LLAMA31("llama-3.1-405b", 405853388800, 16384, 126, 128, 128, 53248, false, 8),
    LLAMA31("llama-3.2-1b",   1235814400,   2048,  16,  32,  64,  8192,  true,  32),
    LLAMA31("llama-3.2-3b",   3212749824,   3072,  28,  24,  128, 8192,  true,  32),
    LLAMA31("llama-3.3-70b",  70553706496,  8192,  80,  64,  128, 28672, false, 8),

    MISTRAL("mistral-7b",      7241732096, 32000, 1e4F, 4096),
    MISTRAL("mistral-7b-v0.3", 7248023552, 32768, 1e6F, 0),

    {"mixtral-8x7b", 46702792704, /* mistralai/Mixtral-8x7B-v0.1, MixtralForCausalLM */
     {GATED(ARCH_MIXTRAL, 4096, 32, 32, 8, 128, 14336, 32000, 32768, 1e-5F, 1e6F), .experts = 8,
      .experts_per_token = 2}},

    QWEN2("qwen2.5-0.5b", 494032768,    896, 24, 14, 2, 4864,  151936, 32768,  1e-6F, true),
    QWEN2("qwen2.5-1.5b", 1543714304,  1536, 28, 12, 2, 8960,  151936, 131072, 1e-6F, true),
    QWEN2("qwen2.5-3b",   3085938688,  2048, 36, 16, 2, 11008, 151936, 32768,  1e-6F, true),
    QWEN2("qwen2.5-7b",   7615616512,  3584, 28, 28, 4, 18944, 152064, 131072, 1e-6F, false),
    QWEN2("qwen2.5-14b",  14770033664, 5120, 48, 40, 8, 13824, 152064, 131072, 1e-5F, false),
    QWEN2("qwen2.5-32b",  32763876352, 5120, 64, 40, 8, 27648, 152064, 131072, 1e-5F, false),
    QWEN2("qwen2.5-72b",  72706203648, 8192, 80, 64, 8, 29568, 152064, 131072, 1e-5F, false),

    QWEN3("qwen3-0.6b", 596049920,   1024, 28, 16, 3072,  true),
    QWEN3("qwen3-1.7b", 1720574976,  2048, 28, 16, 6144,  true),
    QWEN3("qwen3-4b",   4022468096,  2560, 36, 32, 9728,  true),
    QWEN3("qwen3-8b",   8190735360,  4096, 36, 32, 12288, false),
    QWEN3("qwen3-14b",  14768307200, 5120, 40, 40, 17408, false),
    QWEN3("qwen3-32b",  32762123264, 5120, 64, 64, 25600, false),

    OPT("opt-125m", 125239296,    768,   12, 12, 768,   false),
    OPT("opt-350m", 331196416,    1024,  24, 16, 512,   true),
    OPT("opt-1.3b", 1315758080,   2048,  24, 32, 2048,  false),
    OPT("opt-2.7b", 2651596800,   2560,  32, 32, 2560,  false),
    OPT("opt-6.7b", 6658473984,   4096,  32, 32, 4096,  false),
    OPT("opt-13b",  12853473280,  5120,  40, 40, 5120,  false),
    OPT("opt-30b",  29974540288,  7168,  48, 56, 7168,  false),
    OPT("opt-66b",  65719701504,  9216,  64, 72, 9216,  false),
    OPT("opt-175b", 174604468224, 12288, 96, 96, 12288, false),

    NEOX("gpt-neox-20b", 20554567680, 6144, 44, 64, 50432, "gelu_fast"),
    NEOX("pythia-70m",   70426624,    512,  6,  8,  50304, "gelu"),
    NEOX("pythia-160m",  162322944,   768,  12, 12, 50304, "gelu"),
    NEOX("pythia-410m",  405334016,   1024, 24, 16, 50304, "gelu"),
    NEOX("pythia-1b",    1011781632,  2048, 16, 8,  50304, "gelu"),
    NEOX("pythia-1.4b",  1414647808,  2048, 24, 16, 50304, "gelu"),
    NEOX("pythia-2.8b",  2775208960,  2560, 32, 32, 50304, "gelu"),
    NEOX("pythia-6.9b",  6857302016,  4096, 32, 32, 50432, "gelu"),
    NEOX("pythia-12b",   11846072320, 5120, 36, 40, 50688, "gelu"),

    BERT("bert-base",  109514298, 768,  12, 12),
    BERT("bert-large", 335174458, 1024, 24, 16),

    T5("t5-small", 60506624,    512,  6,  8,   64,  2048),
    T5("t5-base",  222903552,   768,  12, 12,  64,  3072),
    T5("t5-large", 737668096,   1024, 24, 16,  64,  4096),
    T5("t5-3b",    2851598336,  1024, 24, 32,  128, 16384),
    T5("t5-11b",   11307321344, 1024, 24, 128, 128, 65536),

    /* The FSDP2 tutorial's Transformer at the size of our recordings (tests/data/truth). */
    {"fsdp2-tutorial", 17343248,
     {.arch = ARCH_FSDP2_TUTORIAL, .hidden = 512, .layers = 3, .heads = 1, .kv_heads = 1,
      .head_dim = 512, .ffn = 2048, .vocab = 10000, .attention_bias = true, .mlp_bias = true,
      .activation = "relu", .norm_eps = 1e-5F}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */
enum { PRESETS = sizeof presets / sizeof presets[0], NAME_MAX_COMPARED = 48, NEAREST = 3 };

const struct model_preset *model_presets(uint32_t *count)
{
    *count = PRESETS;
    return presets;
}

/* Parameters, by the formulas of transformers' modeling_*.py. All arithmetic is in double: the
 * product of limits that are each sane does not fit 64 bits. */

static double linear(double out, double in, bool biased)
{
    return out * in + (biased ? out : 0);
}

static double llama_parameters(const struct model_config *c)
{
    const double h = c->hidden, q = (double)c->heads * c->head_dim,
                 kv = (double)c->kv_heads * c->head_dim, f = c->ffn;
    const bool o_biased = c->attention_bias && c->arch != ARCH_QWEN2;
    double block = linear(q, h, c->attention_bias) + 2 * linear(kv, h, c->attention_bias) +
                   linear(h, q, o_biased) + 2 * h;
    if (c->qk_norm)
        block += 2.0 * c->head_dim;
    if (c->arch == ARCH_MIXTRAL)
        block += c->experts * 3.0 * h * f + linear(c->experts, h, false);
    else
        block += 2 * linear(f, h, c->mlp_bias) + linear(h, f, c->mlp_bias);
    return c->layers * block + (c->tied ? 1 : 2) * (double)c->vocab * h + h;
}

/* Attention from one fused or three Linears, two more for the feed-forward, two LayerNorms. */
static double classic_block(const struct model_config *c)
{
    const double h = c->hidden, f = c->ffn;
    return 4 * linear(h, h, c->attention_bias) + linear(f, h, c->mlp_bias) +
           linear(h, f, c->mlp_bias) + 4 * h;
}

static double classic_parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, positions = c->max_positions,
                 blocks = c->layers * classic_block(c), norm = 2 * h;
    switch (c->arch) {
    case ARCH_GPT2:
        return blocks + (v + positions) * h + norm + (c->tied ? 0 : v * h);
    case ARCH_GPT_NEOX:
        return blocks + v * h + norm + (c->tied ? 0 : v * h);
    case ARCH_OPT: { /* two positions are padding; a narrow embedding has Linears around it */
        const double w = c->word_embed;
        return blocks + v * w + (positions + 2) * h + (c->post_norm ? 0 : norm) +
               (c->word_embed != c->hidden ? 2 * w * h : 0) + (c->tied ? 0 : v * w);
    }
    default: /* BERT's masked LM head: Linear, LayerNorm and a decoder with a bias, tied too */
        return blocks + (v + positions + c->type_vocab) * h + norm + linear(h, h, true) + norm + v +
               (c->tied ? 0 : v * h + v);
    }
}

static double t5_parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, attention = 4.0 * h * c->heads * c->head_dim,
                 feed_forward = (c->gated ? 3.0 : 2.0) * h * c->ffn,
                 encoder = c->layers * (attention + feed_forward + 2 * h) + h,
                 decoder = c->decoder_layers * (2 * attention + feed_forward + 3 * h) + h;
    /* transformers 5 shares the embedding whatever "tie_word_embeddings" says: for T5 that key only
     * tells whether the head's input is scaled */
    return encoder + decoder + 2.0 * c->relative_buckets * c->heads + v * h;
}

static double tutorial_parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, f = c->ffn;
    return c->layers * (linear(h, h, true) + linear(f, h, true) + linear(h, f, true) + 4 * h) +
           v * h + linear(v, h, true);
}

double model_config_parameters(const struct model_config *config)
{
    switch (config->arch) {
    case ARCH_LLAMA:
    case ARCH_MISTRAL:
    case ARCH_QWEN2:
    case ARCH_QWEN3:
    case ARCH_MIXTRAL:
        return llama_parameters(config);
    case ARCH_T5:
        return t5_parameters(config);
    case ARCH_FSDP2_TUTORIAL:
        return tutorial_parameters(config);
    default:
        return classic_parameters(config);
    }
}

/* Looking up */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Letters to insert, delete or replace to get from one name to the other (Levenshtein), without
 * regard to case. Names longer than NAME_MAX_COMPARED are cut. */
static uint32_t edit_distance(const char *a, const char *b)
{
    const size_t a_length = strnlen(a, NAME_MAX_COMPARED), b_length = strnlen(b, NAME_MAX_COMPARED);
    uint32_t row[NAME_MAX_COMPARED + 1];
    for (uint32_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        uint32_t diagonal = row[0];
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= b_length; j++) {
            const uint32_t replaced = diagonal + (strncasecmp(a + i - 1, b + j - 1, 1) != 0);
            diagonal = row[j];
            row[j] = smaller(replaced, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_length];
}

/* The presets nearest to `name`, or to what follows its last slash: "meta-llama/Llama-3.1-8B" is a
 * name many people have at hand. Ties go to the order of the table. */
static void nearest_presets(const char *name, const struct model_preset *nearest[NEAREST])
{
    const char *slash = strrchr(name, '/');
    const char *text = slash && slash[1] ? slash + 1 : name;
    uint32_t distance[NEAREST] = {0};
    uint32_t found = 0;
    for (uint32_t i = 0; i < PRESETS; i++) {
        const uint32_t d = edit_distance(text, presets[i].name);
        uint32_t at = found;
        for (; at > 0 && d < distance[at - 1]; at--)
            if (at < NEAREST) {
                distance[at] = distance[at - 1];
                nearest[at] = nearest[at - 1];
            }
        if (at < NEAREST) {
            distance[at] = d;
            nearest[at] = &presets[i];
        }
        found = smaller(found + 1, NEAREST);
    }
}

static const struct model_preset *find_preset(const char *name)
{
    for (uint32_t i = 0; i < PRESETS; i++)
        if (strcasecmp(name, presets[i].name) == 0)
            return &presets[i];
    return NULL;
}

enum err_code model_preset_find(const char *name, struct model_config *out, struct err *err)
{
    const struct model_preset *preset = find_preset(name), *nearest[NEAREST];
    *out = preset ? preset->config : (struct model_config){.layers = 0};
    if (preset)
        return ERR_OK;
    nearest_presets(name, nearest);
    return err_set(err, ERR_INVALID,
                   "no preset is called \"%.200s\"; the nearest are %s, %s and %s", name,
                   nearest[0]->name, nearest[1]->name, nearest[2]->name);
}

enum err_code model_find(const char *text, struct model_config *out, struct err *err)
{
    struct stat status;
    if (find_preset(text))
        return model_preset_find(text, out, err);
    if (!*text || stat(text, &status) == 0)
        return model_config_read(text, out, err);

    const int reason = errno;
    const struct model_preset *nearest[NEAREST];
    *out = (struct model_config){.layers = 0};
    nearest_presets(text, nearest);
    return err_set(
        err, ERR_INVALID,
        "\"%.200s\" is no file or folder (%s) and no preset; the nearest presets are %s, "
        "%s and %s",
        text, strerror(reason), nearest[0]->name, nearest[1]->name, nearest[2]->name);
}
