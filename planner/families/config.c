/* config.c - reads a Hugging Face config.json: the file, the family it names, its keys
 * (model/keys.h), and what must hold between them. */
#include "families/config.h"

#include "base/json_file.h"
#include "base/names.h"
#include "families/family.h"
#include "families/stated.h"
#include "families/towers.h"
#include "model/keys_rope.h"
#include "model/shown.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 16 << 20 };
#define PARAMETERS_MAX 1e15

/* Checks, which presets pass through too */

static enum err_code check_attention(const struct family *family, const struct model_config *c,
                                     const char *where, struct err *err)
{
    const struct key_table *keys = &family->keys;
    assert(c->heads > 0 && c->kv_heads > 0); /* the limits of their rows */
    if (family->heads_divide_hidden && c->hidden % c->heads != 0)
        return key_does_not_divide(where, NAME_OF(keys, heads), c->heads, NAME_OF(keys, hidden),
                                   c->hidden, err);
    if (c->heads % c->kv_heads != 0)
        return key_does_not_divide(where, NAME_OF(keys, kv_heads), c->kv_heads,
                                   NAME_OF(keys, heads), c->heads, err);
    if (family->rope && c->head_dim % 2 != 0)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u is odd, and RoPE turns numbers in pairs",
                       where, NAME_OF(keys, head_dim), c->head_dim);
    return ERR_OK;
}

static bool has_key(const struct family *family, size_t field)
{
    for (size_t i = 0; i < family->keys.count; i++)
        if (family->keys.keys[i].field == field)
            return true;
    return false;
}

static bool has_rope(const struct family *family)
{
    return has_key(family, offsetof(struct model_config, rope.theta));
}

/* How many of a head's numbers turn: where layers differ, of those without a window. */
static uint32_t rotary_dim(const struct family *family, const struct model_config *c)
{
    if (c->full_head_dim)
        return c->full_head_dim;
    return family->rope ? c->head_dim : c->rotary_dim;
}

/* Of part of a head. */
static enum err_code check_rotary(const struct family *family, const struct model_config *c,
                                  const char *where, struct err *err)
{
    const bool partial = has_key(family, offsetof(struct model_config, rotary_dim));
    if (partial && (c->rotary_dim == 0 || c->rotary_dim % 2 != 0 || c->rotary_dim > c->head_dim))
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\" has RoPE turn %u of a head's %u numbers: expected 2, 4, 6 ...",
                       where, NAME_OF(&family->keys, rotary_dim), c->rotary_dim, c->head_dim);
    return ERR_OK;
}

enum err_code model_config_check(const struct model_config *config, const char *where,
                                 struct err *err)
{
    if ((unsigned)config->arch >= ARCH_COUNT)
        return err_set(err, ERR_INVALID, "%s: no such architecture: %d", where, (int)config->arch);
    const struct family *family = family_of(config->arch);
    TRY(keys_check(&family->keys, config, where, err));
    TRY(check_attention(family, config, where, err));
    TRY(check_rotary(family, config, where, err));
    if (family->check)
        TRY(family->check(&family->keys, config, where, err));
    if (has_rope(family))
        TRY(rope_check(&config->rope, rotary_dim(family, config), where, err));
    const double parameters = family->parameters(config);
    if (parameters > PARAMETERS_MAX)
        return err_set(err, ERR_INVALID, "%s: %.3g parameters; at most 10^15 can be planned", where,
                       parameters);
    return ERR_OK;
}

bool model_is_decoder(const struct model_config *config)
{
    return !family_of(config->arch)->encoder && config->decoder_layers == 0;
}

double model_config_parameters(const struct model_config *config)
{
    return family_of(config->arch)->parameters(config);
}

/* The whole object */

/* "; did you mean qwen2, qwen3?": of the known ones those that are nearest to a text, the nearest
 * first; "": none is near. */
static void list_near(const char *type, char text[128])
{
    enum { NEAREST = 3 };
    const char *near[NEAREST + 1];
    uint32_t count = 0;
    for (int i = 0; i < ARCH_COUNT; i++) {
        const char *name = arch_name((enum arch)i);
        uint32_t at = count;
        if (!names_near(type, name) || names_kin(type, name) == NAMES_OTHERS)
            continue;
        for (; at > 0 && names_nearer(type, name, near[at - 1]); at--)
            near[at] = near[at - 1];
        near[at] = name;
        count += count < NEAREST;
    }
    text[0] = '\0';
    if (count) {
        char names[96];
        snprintf(text, 128, "; did you mean %s?", names_list(near, count, names, sizeof names));
    }
}

static enum err_code find_arch(const json_t *root, const char *where, enum arch *arch,
                               struct err *err)
{
    static const char all[] = "`shardplan models` lists those that are known";
    const json_t *type = json_object_get(root, "model_type");
    char near[128];
    if (stated_arch(root, arch))
        return ERR_OK;
    if (!type && json_object_get(root, "instructions"))
        return err_set(err, ERR_INVALID,
                       "%s: it is a plan, no model: `shardplan diff`, `export` and `run` take it",
                       where);
    if (!type)
        return err_set(err, ERR_INVALID, "%s: \"model_type\" is missing: %s", where, all);
    if (!json_is_string(type))
        return err_set(err, ERR_INVALID, "%s: \"model_type\": %s is no name: %s", where,
                       shown_of(type).text, all);
    list_near(json_string_value(type), near);
    return err_set(
        err, ERR_INVALID,
        "%s: \"model_type\": %s is not known%s %s; any other model is recorded once, by a Python "
        "that has torch and transformers, and the recording planned: tools/record.py --hf %.*s "
        "--seq "
        "2048 --batch 1 -o model.stream.json.gz",
        where, shown_of(type).text, near[0] ? near : ":", all, (int)strcspn(where, ":"), where);
}

/* RoPE's scaling: where the file has none, as the family's class has it then; and what the file's
 * lacks, as it is for the class. */
static enum err_code read_rope(const struct family *family, const json_t *root, const char *where,
                               struct model_config *config, struct err *err)
{
    const struct rope_form form = {.dim = rotary_dim(family, config),
                                   .by_layer =
                                       has_key(family, offsetof(struct model_config, window_theta)),
                                   .woven = family->woven_grids};
    const json_t *object;
    const char *name;
    TRY(rope_find(root, where, &object, &name, err));
    const char *absent = object ? NULL : family->rope_absent;
    if (!absent && !family->rope_lacks)
        return rope_read(root, where, form, config, err);
    json_t *file = json_copy((json_t *)(uintptr_t)root);
    json_t *whole = object ? json_copy((json_t *)(uintptr_t)object)
                           : json_loads(absent ? absent : "{}", 0, NULL);
    if (family->rope_lacks)
        json_object_update_missing_new(whole, json_loads(family->rope_lacks, 0, NULL));
    for (int i = 0; i < 2; i++) /* one may be there under both names */
        json_object_del(file, (const char *[]){"rope_scaling", "rope_parameters"}[i]);
    json_object_set_new(file, object ? name : "rope_parameters", whole);
    const enum err_code rc = rope_read(file, where, form, config, err);
    json_decref(file);
    return rc;
}

/* nn.Embedding's padding_idx, which is pad_token_id in all classes that have one. What is no token
 * of the table pads nothing. */
static void read_padding(const struct family *family, const json_t *root,
                         struct model_config *config)
{
    const json_t *value = json_object_get(root, "pad_token_id");
    const json_int_t id = value ? json_integer_value(value) : (json_int_t)family->padding - 1;
    if (family->unpadded || (value && !json_is_integer(value)))
        return;
    if (id >= 0 && id < (json_int_t)config->vocab)
        config->padding = (uint32_t)id + 1;
}

/* What a class with a head for sequence classification has of PretrainedConfig. */
static enum err_code read_labels(const json_t *root, const char *where, struct model_config *config,
                                 struct err *err)
{
    static const char *const problems[] = {
        [PROBLEM_AUTO] = "",
        [PROBLEM_REGRESSION] = "regression",
        [PROBLEM_SINGLE_LABEL] = "single_label_classification",
        [PROBLEM_MULTI_LABEL] = "multi_label_classification",
    };
    const json_int_t number = json_integer_value(json_object_get(root, "num_labels"));
    const size_t named = json_object_size(json_object_get(root, "id2label"));
    const uint64_t labels = number > 0 ? (uint64_t)number : named;
    const char *problem = json_string_value(json_object_get(root, "problem_type"));
    if (labels > LABELS_MAX)
        return err_set(err, ERR_INVALID, "%s: %llu labels: at most %d are planned for", where,
                       (unsigned long long)labels, LABELS_MAX);
    config->labels = (uint32_t)labels;
    for (enum problem i = PROBLEM_REGRESSION; problem && i <= PROBLEM_MULTI_LABEL; i++)
        if (strcmp(problem, problems[i]) == 0)
            config->problem = i;
    return ERR_OK;
}

/* The keys of a model, in an object of their own. */
static enum err_code read_model(const json_t *root, const char *where, struct model_config *config,
                                struct err *err)
{
    const struct family *family = family_of(config->arch);
    TRY(keys_read(&family->keys, root, where, config, err));
    TRY(keys_read_foreign(&family->keys, root, where, config, err));
    if (family->read)
        TRY(family->read(root, where, config, err));
    if (has_rope(family))
        TRY(read_rope(family, root, where, config, err));
    read_padding(family, root, config);
    TRY(read_labels(root, where, config, err));
    if (family->settle)
        family->settle(config);
    return model_config_check(config, where, err);
}

/* The same of an object in another model's file: what it leaves out is the class's. */
static enum err_code read_part(const json_t *object, const char *where, struct model_config *config,
                               struct err *err)
{
    const char *absent = family_of(config->arch)->part_absent;
    json_t *whole = json_object(), *sizes = absent ? json_loads(absent, 0, NULL) : json_object();
    json_object_update_missing(whole, (json_t *)object); /* which is read */
    json_object_update_missing(whole, sizes);
    const enum err_code rc = read_model(whole, where, config, err);
    json_decref(sizes);
    json_decref(whole);
    return rc;
}

/* The head is of the class around a part, which says whether it is tied. */
static enum err_code read_outer(const struct family *family, const json_t *root, const char *where,
                                struct model_config *config, struct err *err)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    if (family->outer_keys.count)
        return type && strcmp(type, family->outer) == 0
                   ? keys_read(&family->outer_keys, root, where, config, err)
                   : ERR_OK;
    if (family->outer && json_is_true(json_object_get(root, "tie_word_embeddings")))
        config->tied = true;
    return ERR_OK;
}

/* Of a model that answers in speech what understands: Qwen-Omni's thinker, which is trained without
 * what speaks. */
static const json_t *thinker_of(const json_t *root)
{
    const json_t *thinker = json_object_get(root, "thinker_config");
    return json_is_object(thinker) ? thinker : root;
}

enum err_code model_config_from_json(const json_t *file, const char *where,
                                     struct model_config *out, struct err *err)
{
    char part[PATH_MAX + sizeof ": thinker_config.language_config"];
    char inside[PATH_MAX + sizeof ": thinker_config"];
    const char *name;
    *out = (struct model_config){.layers = 0};
    if (!json_is_object(file))
        return err_set(err, ERR_INVALID, "%s: expected a JSON object, got %s", where,
                       shown_of(file).text);
    const json_t *root = thinker_of(file);
    struct model_config config = {.layers = 0};
    const json_t *object = stated_part(root, &name, &config.stated);
    TRY(find_arch(object, where, &config.arch, err));
    const struct family *family = family_of(config.arch);
    snprintf(inside, sizeof inside, "%s%s", where, root == file ? "" : ": thinker_config");
    stated_read(root, family->class_name, &config.stated);
    stated_kin(object, family->kin, &config.stated);
    if (object == root)
        TRY(read_model(root, inside, &config, err));
    else {
        snprintf(part, sizeof part, "%s%s%s", inside, root == file ? ": " : ".", name);
        TRY(read_part(object, part, &config, err));
    }
    TRY(read_outer(family, root, inside, &config, err));
    if (config.stated.outer[0])
        TRY(tower_read(root, inside, &config, err));
    *out = config;
    return ERR_OK;
}

/* The file */

/* Copies text without what a terminal could take for a command or a broken character. */
static void printable(const char *text, char *out, size_t room)
{
    size_t i = 0;
    for (; text[i] && i + 1 < room; i++)
        out[i] = (char)(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
    out[i] = '\0';
}

/* Opens path, or the config.json in it. `where` receives the name for messages. */
static enum err_code open_config(const char *path, char *where, size_t room, int *fd,
                                 struct err *err)
{
    struct stat status;
    snprintf(where, room, "%s", path);
    if (stat(path, &status) != 0)
        return err_set(err, ERR_INVALID, "%s: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode)) {
        snprintf(where, room, "%s%sconfig.json", path, path[strlen(path) - 1] == '/' ? "" : "/");
        if (stat(where, &status) != 0)
            return err_set(err, ERR_INVALID, "%s: %s", where,
                           errno == ENOENT
                               ? "the folder holds no config.json (the one that the model "
                                 "has on the hub; weights do not say it)"
                               : strerror(errno));
    }
    if (!S_ISREG(status.st_mode))
        return err_set(err, ERR_INVALID, "%s: not a regular file", where);
    *fd = open(where, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0)
        return err_set(err, ERR_INVALID, "%s: %s", where, strerror(errno));
    return ERR_OK;
}

/* Reads all there is, one byte beyond the limit at most. The caller owns *text. */
static enum err_code read_all(int fd, const char *where, char **text, size_t *bytes,
                              struct err *err)
{
    const size_t room = (size_t)FILE_BYTES_MAX + 1;
    size_t used = 0;
    *text = xmalloc(room);
    while (used < room) {
        const ssize_t got = read(fd, *text + used, room - used);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return err_set(err, ERR_IO, "%s: read: %s", where, strerror(errno));
        used += got > 0 ? (size_t)got : 0;
    }
    *bytes = used;
    if (used == 0)
        return err_set(err, ERR_INVALID, "%s: the file is empty", where);
    if (used == room)
        return err_set(err, ERR_INVALID, "%s: larger than 16 MiB: not a config.json", where);
    return ERR_OK;
}

/* Python writes Infinity where a number has no end, which is not JSON: the largest number of as
 * many characters. One below zero has no place in a config.json. */
static void end_infinities(char *text, size_t bytes)
{
    static const char word[] = "Infinity", number[] = "1e308   "; /* SHOWN_INFINITY */
    const size_t length = sizeof word - 1;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && i > 0 && text[i - 1] != '-' && bytes - i >= length &&
                 memcmp(text + i, word, length) == 0)
            memcpy(text + i, number, length);
    }
}

static enum err_code parse(char *text, size_t bytes, const char *where, struct model_config *out,
                           struct err *err)
{
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return err_set(err, ERR_INVALID,
                       "%s:1:1: starts with a byte order mark; save it as UTF-8 without one",
                       where);
    if (bytes >= 4 && memcmp(text, "GGUF", 4) == 0)
        return err_set(
            err, ERR_INVALID,
            "%s: weights in GGUF; the config.json of the model that they were made of is "
            "what is planned from",
            where);
    end_infinities(text, bytes);
    json_error_t at;
    json_t *root = json_text_read(text, bytes, JSON_REJECT_DUPLICATES, &at);
    if (!root) {
        char message[JSON_ERROR_TEXT_LENGTH];
        printable(at.text, message, sizeof message);
        return err_set(err, ERR_INVALID, "%s:%d:%d: %s", where, at.line, at.column, message);
    }
    const enum err_code rc = model_config_from_json(root, where, out, err);
    json_decref(root);
    return rc;
}

enum err_code model_config_read(const char *path, struct model_config *out, struct err *err)
{
    char where[PATH_MAX + sizeof "/config.json"];
    char *text = NULL;
    size_t bytes = 0;
    int fd = -1;
    enum err_code rc;
    *out = (struct model_config){.layers = 0};
    if (!*path)
        return err_set(err, ERR_INVALID, "the path of the model is empty");
    TRY(open_config(path, where, sizeof where, &fd, err));
    TRY_GOTO(rc, read_all(fd, where, &text, &bytes, err), done);
    rc = parse(text, bytes, where, out, err);
done:
    free(text);
    close(fd);
    return rc;
}
