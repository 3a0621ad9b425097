/* config_limits.h - the most that a config.json may ask for. */
#ifndef SHARDPLAN_CONFIG_LIMITS_H
#define SHARDPLAN_CONFIG_LIMITS_H

enum {
    VOCAB_MAX = 1 << 24,
    HIDDEN_MAX = 1 << 20,
    FFN_MAX = 1 << 24,
    LAYERS_MAX = 4096,
    HEADS_MAX = 16384,
    HEAD_DIM_MAX = 65536, /* times HEADS_MAX times 3, a fused q, k, v, is below 2^32 */
    POSITIONS_MAX = 1 << 24,
    LABELS_MAX = 1 << 20, /* of sequences */
    BUCKETS_MAX = 65536,
    EXPERTS_MAX = 1024,
    DELTA_KEY_MAX = 256, /* of a head of keys in fla's kernels */
    SSM_STATE_MAX = 4096,
    SSM_CHUNK_MAX = 4096,
    SSM_NORM_BYTES = 65536, /* of a row of a group in mamba-ssm's gated norm */
    CONV_WIDTH_MIN = 2,     /* for which causal-conv1d has kernels */
    CONV_WIDTH_MAX = 4,
    CONV_CHANNELS = 8, /* and for multiples of so many channels, which lie beside each other */
};

#endif
