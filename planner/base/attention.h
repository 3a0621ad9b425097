/* attention.h - which kernel computes an attention: libraries differ in speed and in what they
 * keep, and a user can choose. */
#ifndef SHARDPLAN_ATTENTION_H
#define SHARDPLAN_ATTENTION_H

#include <stdbool.h>

/* X(NAME, word, what it is) */
#define ATTENTION_MAP(X)                                                                           \
    X(AUTO, "auto", "what PyTorch takes by itself")                                                \
    X(CUDNN, "cudnn", "cuDNN's fused attention")                                                   \
    X(FLASH, "flash", "FlashAttention-2, as in PyTorch")                                           \
    X(EFFICIENT, "efficient", "the memory-efficient kernel of xformers, as in PyTorch")            \
    X(MATH, "math", "two products and a softmax")                                                  \
    X(FLASH_3, "flash-3", "FlashAttention-3, a package of its own, for Hopper")                    \
    X(TRITON, "triton", "FlashAttention of 2022 in Triton, what MPT ran in 2023")                  \
    X(EAGER, "eager", "transformers' own in Python, attn_implementation=\"eager\"")                \
    X(FLASH_ATTN, "flash-attn",                                                                    \
      "FlashAttention-2 of the package flash-attn, attn_implementation=\"flash_attention_2\"")

enum attention_kernel {
#define X(name, word, what) ATTENTION_##name,
    ATTENTION_MAP(X)
#undef X
        ATTENTION_KERNELS,
    ATTENTION_OWN = ATTENTION_KERNELS /* of a run only: kernels of its backend, no library's */
};

/* GPUs that cuDNN has engines of their own for; Ampere's are Ada's, too. */
enum attention_gpu {
    ATTENTION_GPU_UNKNOWN,
    ATTENTION_GPU_AMPERE,
    ATTENTION_GPU_HOPPER,
    ATTENTION_GPU_BLACKWELL
};

/* Whether it is no kernel but many: the plan has them one by one. */
static inline bool attention_is_composed(enum attention_kernel kernel)
{
    return kernel == ATTENTION_MATH || kernel == ATTENTION_EAGER;
}

/* Whether the model's own code asks for it, and no library chooses: the same on all GPUs. */
static inline bool attention_is_asked(enum attention_kernel kernel)
{
    return attention_is_composed(kernel) || kernel == ATTENTION_FLASH_ATTN;
}

/* "cudnn" */
static inline const char *attention_name(enum attention_kernel kernel)
{
    static const char *const names[] = {
#define X(name, word, what) word,
        ATTENTION_MAP(X)
#undef X
            "own",
    };
    return names[kernel];
}

/* "cuDNN's fused attention" */
static inline const char *attention_what(enum attention_kernel kernel)
{
    static const char *const texts[] = {
#define X(name, word, what) what,
        ATTENTION_MAP(X)
#undef X
            "kernels of the backend's own",
    };
    return texts[kernel];
}

#endif
