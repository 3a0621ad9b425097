/* config_parts.h - for the config*.c files only: what a key of config.json is, and who reads it.
 *
 * config_keys.c has the tables, config.c reads by them, config_rope.c reads what RoPE scaling is
 * told in an object of its own, config_file.c opens the file. */
#ifndef SHARDPLAN_CONFIG_PARTS_H
#define SHARDPLAN_CONFIG_PARTS_H

#include "model/config.h"

#include <stddef.h>

enum {
    VOCAB_MAX = 1 << 24,
    HIDDEN_MAX = 1 << 20,
    FFN_MAX = 1 << 24,
    LAYERS_MAX = 4096,
    HEADS_MAX = 16384,
    HEAD_DIM_MAX = 65536, /* times HEADS_MAX times 3, a fused q, k, v, is below 2^32 */
    POSITIONS_MAX = 1 << 24,
    BUCKETS_MAX = 65536,
    EXPERTS_MAX = 1024,
    LAYERS_TIMES_EXPERTS_MAX = 1 << 17, /* each is some ops of the graph */
};
#define PARAMETERS_MAX 1e15

enum key_type {
    KEY_INT,     /* uint32_t */
    KEY_NUMBER,  /* float */
    KEY_SHARE,   /* a number: this share of head_dim, rounded down, is the uint32_t stored */
    KEY_BOOL,    /* bool */
    KEY_NOT,     /* bool, stored the other way round */
    KEY_GATE,    /* a bool: when false, the uint32_t read before is 0 */
    KEY_CHOICE,  /* one of `choices`: its flag, a bool, and its activation if it has one */
    KEY_ONLY,    /* a bool that changes the model so that only `value` is planned for */
    KEY_NEUTRAL, /* as KEY_ONLY, of any type: null, false, or the number `value` */
    KEY_LAYERS,  /* a list that says of each layer whether it has a window: as the other keys do */
};

/* What holds when a key is absent, or null. */
enum rule {
    RULE_REFUSED,
    RULE_VALUE, /* `value`, or for a choice `text` */
    RULE_HEADS,
    RULE_HIDDEN,
    RULE_LAYERS,
    RULE_HEAD_SIZE,   /* hidden / heads */
    RULE_FOUR_HIDDEN, /* 4 · hidden */
    RULE_NONE,        /* 0, as no such thing */
};

struct choice {
    const char *text, *activation;
    bool flag;
};

struct key {
    const char *name, *other; /* "rope_parameters.b" is key b of the object that RoPE has */
    enum key_type type;
    bool fixed; /* not a key of the file: what the class does always */
    enum rule absent, null;
    double value, min, max;
    size_t field;
    const struct choice *choices;
    const char *text;
};

struct schema {
    const struct key *keys;
    size_t count;
    bool heads_divide_hidden; /* even where head_dim is given: the config class insists */
    bool rope_on_heads;       /* on all of a head's numbers */
};

/* The table of an architecture; then that of keys which no class here reads. Lent. */
const struct schema *config_schema(enum arch arch);
const struct schema *config_foreign_keys(void);

struct reader { /* what every step of reading needs */
    const json_t *root;
    const char *where;
    struct model_config *config;
    struct err *err;
};

struct shown { /* a value as it stands in the file, cut to a length that fits a message */
    char text[48];
};
struct shown config_show(const json_t *value);
/* Copies text without what a terminal could take for a command or a broken character. */
void config_printable(const char *text, char *out, size_t room);

/* "rope_scaling", or "rope_parameters" as transformers 5 calls it: the object, and in *name what
 * this file calls it. NULL: neither is there. ERR_INVALID: no object, or two that differ. */
enum err_code config_rope_object(const struct reader *r, const json_t **object, const char **name);
/* Reads it into config->rope, for `dim` numbers of a head; theta has been read. */
enum err_code config_read_rope(const struct reader *r, uint32_t dim);
/* Whether the numbers of a RoPE go with its kind. */
enum err_code config_check_rope(const struct model_config *config, uint32_t dim, const char *where,
                                struct err *err);

#endif
