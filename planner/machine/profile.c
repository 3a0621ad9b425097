/* profile.c - see profile.h. */
#include "machine/profile.h"

#include "base/arena.h"
#include "base/json_file.h"
#include "base/names.h"
#include "machine/builtin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    double least, most;
} keys[] = {
#define X(name, key, least, most, what) {key, least, most},
    PROFILE_MAP(X)
#undef X
};

/* In the order of the enums of fabric.h. */
static const char *const generations[] = {"volta",     "ampere", "ada", "hopper",
                                          "blackwell", "amd",    "cpu"};
static const char *const links[] = {"nvswitch", "bridge", "pcie", "host", "mesh"};
static const char *const networks[] = {
    "infiniband", "infiniband-sharp", "roce", "efa", "efa-v1", "tcpxo", "tcpx", "socket"};
#define COUNT(names) (sizeof(names) / sizeof(names)[0])

const char *profile_key_name(enum profile_key key)
{
    return keys[key].name;
}

double profile_key_most(enum profile_key key)
{
    return keys[key].most;
}

static bool is_called(const char *own, const char *name)
{
    for (; *own && *name; own++, name++)
        if (*own != *name && !(*own == '_' && *name == '-'))
            return false;
    return *own == *name;
}

static const char *nearest_key(const char *name)
{
    const char *nearest = NULL;
    for (int key = 0; key < PROFILE_KEYS; key++)
        if (names_near(name, keys[key].name) && names_nearer(name, keys[key].name, nearest))
            nearest = keys[key].name;
    return nearest;
}

enum profile_key profile_key_named(const char *name, struct err *err)
{
    for (int key = 0; key < PROFILE_KEYS; key++)
        if (is_called(keys[key].name, name))
            return (enum profile_key)key;
    const char *nearest = nearest_key(name);
    err_set(err, ERR_INVALID,
            "\"%.100s\" is no number of a profile%s%s%s: `shardplan gpus --json` shows them", name,
            nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    return PROFILE_KEYS;
}

/* Rates that hardware has: 1 MB/s is less than Ethernet of 10 Mbit/s, 100 TB/s five times what the
 * caches of the largest GPU are read at. 0 stands for none. What is far beside them was meant in
 * another unit ("12.5" GB/s). */
static const double LEAST_RATE = 1e6, MOST_RATE = 1e14;

static enum err_code check_rate(const char *where, const char *key, double value, struct err *err)
{
    static const char unit[] = "_bytes_per_s";
    const size_t length = strlen(key), tail = sizeof unit - 1;
    if (length < tail || strcmp(key + length - tail, unit) != 0 || value == 0 ||
        (value >= LEAST_RATE && value <= MOST_RATE))
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s%s%s %g: expected bytes a second, of which hardware has %g ... %g (12.5 GB/s "
                   "are 12.5e9)",
                   where, *where ? ": " : "", key, value, LEAST_RATE, MOST_RATE);
}

enum err_code profile_set_number(struct profile *profile, enum profile_key key, double value,
                                 struct err *err)
{
    TRY(check_rate("", keys[key].name, value, err));
    if (!(value >= keys[key].least) || !(value <= keys[key].most))
        return err_set(err, ERR_INVALID, "%s %g: allowed are numbers %g ... %g", keys[key].name,
                       value, keys[key].least, keys[key].most);
    profile->of[key].value = value;
    return ERR_OK;
}

/* ---- members ---- */

static uint32_t find_name(const char *name, const char *const *names, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && strcasecmp(name, names[i]) != 0)
        i++;
    return i;
}

static enum err_code read_name(const char *where, const char *key, const json_t *value,
                               const char *const *names, uint32_t count, uint32_t *out,
                               struct err *err)
{
    char known[640];
    *out = json_is_string(value) ? find_name(json_string_value(value), names, count) : count;
    if (*out < count)
        return ERR_OK;
    return err_set(err, ERR_INVALID, "%s: \"%s\": %s is not known; known are %s", where, key,
                   json_is_string(value) ? json_string_value(value) : "what is no string",
                   names_list(names, count, known, sizeof known));
}

static enum err_code read_number(const char *where, const char *key, const json_t *value,
                                 double least, double most, double *out, struct err *err)
{
    if (!json_is_number(value) || !(json_number_value(value) >= least) ||
        !(json_number_value(value) <= most))
        return err_set(err, ERR_INVALID, "%s: \"%s\": expected a number %g ... %g", where, key,
                       least, most);
    *out = json_number_value(value);
    return check_rate(where, key, *out, err);
}

/* A number, or {"value", "spread", "source"}. A bare number says nothing of how sure it is: it
 * keeps the spread of the number whose place it takes. */
static enum err_code read_quantity(const char *where, enum profile_key key, const json_t *value,
                                   struct quantity *out, struct err *err)
{
    const char *name = keys[key].name;
    const double spread = out->spread;
    *out = (struct quantity){.source = where};
    if (!json_is_object(value)) {
        out->spread = spread;
        return read_number(where, name, value, keys[key].least, keys[key].most, &out->value, err);
    }
    const char *member;
    json_t *part;
    json_object_foreach((json_t *)value, member, part)
    {
        if (strcmp(member, "value") == 0) {
            continue;
        } else if (strcmp(member, "spread") == 0) {
            if (read_number(where, "spread", part, 0, 10, &out->spread, err) != ERR_OK)
                return err_context(err, "in \"%s\"", name);
        } else if (strcmp(member, "source") == 0 && json_is_string(part)) {
            out->source = json_string_value(part);
        } else {
            return err_set(err, ERR_INVALID,
                           "%s: \"%s\": \"%s\": allowed are value, spread (numbers) and source "
                           "(a string)",
                           where, name, member);
        }
    }
    return read_number(where, name, json_object_get(value, "value"), keys[key].least,
                       keys[key].most, &out->value, err);
}

/* A data type by its name; absent, any. */
static enum err_code read_dtype(const char *where, const char *key, const json_t *object,
                                int8_t *out, struct err *err)
{
    static const char *const dtypes[] = {NAMES_OF(DTYPE_MAP)};
    const json_t *value = json_object_get(object, key);
    uint32_t index = 0;
    *out = PROFILE_ANY;
    if (value) {
        TRY(read_name(where, key, value, dtypes, DTYPE_COUNT, &index, err));
        *out = (int8_t)index;
    }
    return ERR_OK;
}

/* One line of costs of the work `name`. */
static enum err_code read_kernel(const char *where, const char *name, const json_t *value,
                                 struct profile_kernel *out, struct err *err)
{
    *out = (struct profile_kernel){.work = work_named(name), .backward = PROFILE_ANY};
    if (out->work == WORK_NONE)
        return err_set(err, ERR_INVALID,
                       "%s: \"kernels\": no computation is called \"%s\"; the nearest is %s", where,
                       name, work_name(work_nearest(name)));
    if (!json_is_object(value))
        return err_set(err, ERR_INVALID,
                       "%s: \"kernels\": \"%s\": expected an object or a list of objects", where,
                       name);
    const struct {
        const char *key;
        double *to;
    } parts[] = {{"latency_s", &out->latency_s},
                 {"seconds_per_flop", &out->seconds_per_flop},
                 {"seconds_per_byte", &out->seconds_per_byte},
                 {"spread", &out->spread}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (json_object_get(value, parts[i].key))
            TRY(read_number(where, parts[i].key, json_object_get(value, parts[i].key), 0, 1e3,
                            parts[i].to, err));
    TRY(read_dtype(where, "dtype", value, &out->dtype, err));
    TRY(read_dtype(where, "to", value, &out->to, err));
    const json_t *backward = json_object_get(value, "backward");
    if (backward && !json_is_boolean(backward))
        return err_set(err, ERR_INVALID, "%s: \"backward\": allowed are true, false", where);
    if (backward)
        out->backward = json_is_true(backward);
    out->source = json_string_value(json_object_get(value, "source"));
    return ERR_OK;
}

static enum err_code read_kernels(const char *where, const json_t *object, struct profile *out,
                                  struct err *err)
{
    if (!json_is_object(object))
        return err_set(err, ERR_INVALID,
                       "%s: \"kernels\": expected an object by what kernels compute", where);
    struct profile_kernel *kernels = NULL;
    uint32_t count = 0, cap = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        const size_t lines = json_is_array(value) ? json_array_size(value) : 1;
        for (size_t i = 0; i < lines; i++) {
            const json_t *line = json_is_array(value) ? json_array_get(value, i) : value;
            ARRAY_GROW(kernels, count, cap);
            if (read_kernel(where, name, line, &kernels[count++], err) == ERR_OK)
                continue;
            free(kernels);
            return err_context(err, "kernel %s", name);
        }
    }
    free(out->kernels);
    out->kernels = kernels;
    out->kernel_count = count;
    return ERR_OK;
}

static enum err_code read_point(const char *where, const json_t *item, struct collective_point *out,
                                struct err *err)
{
    const char *names[COLLECTIVE_COUNT];
    double ranks = 0, nodes = 0, bytes = 0;
    uint32_t name = 0;
    for (int i = 0; i < COLLECTIVE_COUNT; i++)
        names[i] = collective_name((enum collective)i);
    TRY(read_name(where, "collective", json_object_get(item, "collective"), names, COLLECTIVE_COUNT,
                  &name, err));
    TRY(read_number(where, "ranks", json_object_get(item, "ranks"), 1, POINT_RANKS_MOST, &ranks,
                    err));
    TRY(read_number(where, "nodes", json_object_get(item, "nodes"), 1, POINT_RANKS_MOST, &nodes,
                    err));
    TRY(read_number(where, "bytes", json_object_get(item, "bytes"), 1, POINT_BYTES_MOST, &bytes,
                    err));
    TRY(read_number(where, "seconds", json_object_get(item, "seconds"), POINT_SECONDS_LEAST,
                    POINT_SECONDS_MOST, &out->seconds, err));
    out->collective = (enum collective)name;
    out->bytes = (uint64_t)bytes;
    out->ranks = (uint32_t)ranks;
    out->nodes = (uint32_t)nodes;
    return ERR_OK;
}

static enum err_code read_points(const char *where, const json_t *array, struct profile *out,
                                 struct err *err)
{
    if (!json_is_array(array))
        return err_set(err, ERR_INVALID, "%s: \"collectives\": expected an array", where);
    const size_t count = json_array_size(array);
    struct collective_point *points = xmalloc((count + 1) * sizeof *points);
    for (size_t i = 0; i < count; i++)
        if (read_point(where, json_array_get(array, i), &points[i], err) != ERR_OK) {
            free(points);
            return err_context(err, "collectives[%zu]", i);
        }
    free(out->points);
    out->points = points;
    out->point_count = (uint32_t)count;
    return ERR_OK;
}

/* One row of the table of attention kernels. */
static enum err_code read_attention(const char *where, const json_t *item,
                                    struct profile_attention *out, struct err *err)
{
    static const char *const names[] = {
#define X(name, word, what) word,
        ATTENTION_MAP(X)
#undef X
    };
    double head = 0;
    uint32_t name = 0;
    *out = (struct profile_attention){.draw = 1};
    TRY(read_name(where, "kernel", json_object_get(item, "kernel"), names, COUNT(names), &name,
                  err));
    TRY(read_number(where, "head", json_object_get(item, "head"), 1, 65536, &head, err));
    const struct {
        const char *key;
        double *to, least, most;
    } parts[] = {{"forward", &out->forward, 0.001, 1},
                 {"backward", &out->backward, 0.001, 1},
                 {"start_tokens", &out->start_tokens, 0, 1e6},
                 {"backward_tokens", &out->backward_tokens, 0, 1e6},
                 {"draw", &out->draw, 0, 100},
                 {"spread", &out->spread, 0, 10}};
    for (size_t i = 0; i < COUNT(parts); i++) {
        const json_t *value = json_object_get(item, parts[i].key);
        if (value)
            TRY(read_number(where, parts[i].key, value, parts[i].least, parts[i].most, parts[i].to,
                            err));
    }
    out->kernel = (enum attention_kernel)name;
    out->head = (uint32_t)head;
    out->deterministic = json_is_true(json_object_get(item, "deterministic"));
    out->source = json_string_value(json_object_get(item, "source"));
    return ERR_OK;
}

static enum err_code read_attentions(const char *where, const json_t *array, struct profile *out,
                                     struct err *err)
{
    if (!json_is_array(array))
        return err_set(err, ERR_INVALID, "%s: \"attention\": expected an array", where);
    const size_t count = json_array_size(array);
    struct profile_attention *rows = xmalloc((count + 1) * sizeof *rows);
    for (size_t i = 0; i < count; i++)
        if (read_attention(where, json_array_get(array, i), &rows[i], err) != ERR_OK) {
            free(rows);
            return err_context(err, "attention[%zu]", i);
        }
    free(out->attentions);
    out->attentions = rows;
    out->attention_count = (uint32_t)count;
    return ERR_OK;
}

static void set_text(char *to, size_t size, const json_t *value)
{
    snprintf(to, size, "%s", json_string_value(value));
}

/* They are looked up in the built-in texts. */
static enum err_code read_aliases(const char *where, const json_t *value, struct err *err)
{
    bool good = json_is_array(value);
    for (size_t i = 0; good && i < json_array_size(value); i++)
        good = json_is_string(json_array_get(value, i));
    return good ? ERR_OK
                : err_set(err, ERR_INVALID, "%s: \"aliases\": expected an array of strings", where);
}

/* "generation", "link" and "network" name one of a list each. Returns false for other members. */
static bool read_pick(const char *where, const char *member, const json_t *value,
                      struct profile *out, enum err_code *rc, struct err *err)
{
    const struct {
        const char *member;
        const char *const *names;
        uint32_t count;
    } lists[] = {{"generation", generations, COUNT(generations)},
                 {"link", links, COUNT(links)},
                 {"network", networks, COUNT(networks)}};
    uint32_t index;
    size_t i = 0;
    while (i < COUNT(lists) && strcmp(member, lists[i].member) != 0)
        i++;
    if (i == COUNT(lists))
        return false;
    *rc = read_name(where, member, value, lists[i].names, lists[i].count, &index, err);
    if (*rc != ERR_OK)
        return true;
    if (i == 0)
        out->generation = (enum gpu_generation)index;
    else if (i == 1)
        out->link = (enum fabric_link)index;
    else
        out->network = (enum fabric_network)index;
    return true;
}

static enum err_code refuse_key(const char *where, const char *member, struct err *err)
{
    const char *nearest = nearest_key(member);
    return err_set(
        err, ERR_INVALID,
        "%s: \"%.100s\" is no key of a profile%s%s%s; there are name, title, aliases, source, gpu, "
        "generation, link, network, kernels, attention, collectives and the numbers that "
        "`shardplan gpus --json` shows, in bytes, seconds and what is made of them",
        where, member, nearest ? " (did you mean " : "", nearest ? nearest : "",
        nearest ? "?)" : "");
}

static enum err_code read_text(const char *where, const char *member, const json_t *value,
                               struct profile *out, struct err *err)
{
    const bool name = strcmp(member, "name") == 0, title = strcmp(member, "title") == 0;
    if (!name && !title && strcmp(member, "source") != 0)
        return refuse_key(where, member, err);
    if (!json_is_string(value))
        return err_set(err, ERR_INVALID, "%s: \"%s\": expected a string", where, member);
    if (name)
        set_text(out->name, sizeof out->name, value);
    else if (title)
        set_text(out->title, sizeof out->title, value);
    return ERR_OK;
}

static enum err_code read_member(const char *where, const char *member, const json_t *value,
                                 struct profile *out, struct err *err)
{
    enum err_code rc = ERR_OK;
    for (int key = 0; key < PROFILE_KEYS; key++)
        if (strcmp(member, keys[key].name) == 0)
            return read_quantity(where, (enum profile_key)key, value, &out->of[key], err);
    if (strcmp(member, "kernels") == 0)
        return read_kernels(where, value, out, err);
    if (strcmp(member, "collectives") == 0)
        return read_points(where, value, out, err);
    if (strcmp(member, "attention") == 0)
        return read_attentions(where, value, out, err);
    if (strcmp(member, "aliases") == 0)
        return read_aliases(where, value, err);
    if (read_pick(where, member, value, out, &rc, err))
        return rc;
    return read_text(where, member, value, out, err);
}

/* ---- whole profiles ---- */

static void copy_profile(const struct profile *from, struct profile *to)
{
    *to = *from;
    to->kernels = xmalloc((from->kernel_count + 1) * sizeof *to->kernels);
    to->points = xmalloc((from->point_count + 1) * sizeof *to->points);
    to->attentions = xmalloc((from->attention_count + 1) * sizeof *to->attentions);
    to->texts = xmalloc((from->text_count + 1) * sizeof(json_t *));
    if (from->kernel_count)
        memcpy(to->kernels, from->kernels, from->kernel_count * sizeof *to->kernels);
    if (from->point_count)
        memcpy(to->points, from->points, from->point_count * sizeof *to->points);
    if (from->attention_count)
        memcpy(to->attentions, from->attentions, from->attention_count * sizeof *to->attentions);
    for (uint32_t i = 0; i < from->text_count; i++)
        to->texts[i] = json_incref(from->texts[i]);
}

void profile_free(struct profile *profile)
{
    for (uint32_t i = 0; i < profile->text_count; i++)
        json_decref(profile->texts[i]);
    free(profile->texts);
    free(profile->kernels);
    free(profile->points);
    free(profile->attentions);
    *profile = (struct profile){0};
}

/* ---- what is carried over from another kind of card ---- */

/* How far numbers of one generation have been off on another: root mean square of the logarithms of
 * the ratios. Rates, n 4: gemm_efficiency of A100 and H100 .19, stream_efficiency of A100 and H100
 * .05, of A100 and MI300X .12, strided_cycles of H100 and MI300X .30. Shares of attention, n 5:
 * FlashAttention-2 of A100 and H100 .73 forward and backward, of A100 and MI300X .88, cuDNN of H200
 * and GB200 .02 and .08. reports/validation/time-published.md has H100's runs with A100's numbers.
 */
#define CARRIED_RATE 0.19
#define CARRIED_ATTENTION 0.6

/* What others measured on their kind of card is less certain on one of another generation. Of no
 * spread are datasheets; of the host, the network and failures numbers are not the card's. What
 * steps of training were off holds for the other cards of a generation as well: nothing is known
 * better of a card by knowing less of it (what its numbers scatter alone is less). */
static void carry_over(struct profile *profile)
{
    static const struct {
        enum profile_key key;
        double spread;
    } carried[] = {{PROFILE_GEMM, CARRIED_RATE},
                   {PROFILE_STREAM, CARRIED_RATE},
                   {PROFILE_REDUCE, CARRIED_RATE},
                   {PROFILE_INDEX, CARRIED_RATE},
                   {PROFILE_STRIDED, CARRIED_RATE},
                   {PROFILE_ATTENTION, CARRIED_ATTENTION},
                   {PROFILE_ATTENTION_BACKWARD, CARRIED_ATTENTION}};
    for (size_t i = 0; i < COUNT(carried); i++) {
        double *spread = &profile->of[carried[i].key].spread;
        *spread = hypot(*spread, carried[i].spread);
    }
    for (uint32_t i = 0; i < profile->attention_count; i++)
        profile->attentions[i].spread = hypot(profile->attentions[i].spread, CARRIED_ATTENTION);
}

/* Whether the members of `root` are of another generation than the profile. Of what is no name of
 * one, reading it will say so. */
static bool is_of_another(const json_t *root, const struct profile *profile)
{
    const char *own = json_string_value(json_object_get(root, "generation"));
    return profile->name[0] && own && strcasecmp(own, generations[profile->generation]) != 0;
}

/* Puts the members of `root` on top of *profile, or of the profile that its "gpu" names. */
static enum err_code apply(const char *where, json_t *root, struct profile *profile,
                           struct err *err)
{
    struct profile made = {0};
    if (!json_is_object(root))
        return err_set(err, ERR_INVALID, "%s: expected a JSON object", where);
    const json_t *gpu = json_object_get(root, "gpu");
    if (gpu && !json_is_string(gpu))
        return err_set(err, ERR_INVALID, "%s: \"gpu\": expected the name of a GPU", where);
    if (!gpu)
        copy_profile(profile, &made);
    else if (profile_find(json_string_value(gpu), &made, err) != ERR_OK)
        return err_context(err, "%s: \"gpu\"", where);
    if (is_of_another(root, &made)) {
        carry_over(&made);
        made.of[PROFILE_STEPS] =
            (struct quantity){.source = "no training measured on a card of this generation"};
    }
    made.texts = xrealloc(made.texts, (made.text_count + 1) * sizeof(json_t *));
    made.texts[made.text_count++] = json_incref(root);
    made.begun_with = json_string_value(gpu);
    const char *member;
    json_t *value;
    json_object_foreach(root, member, value)
    {
        const enum err_code rc =
            strcmp(member, "gpu") == 0 ? ERR_OK : read_member(where, member, value, &made, err);
        if (rc != ERR_OK) {
            profile_free(&made);
            return rc;
        }
    }
    profile_free(profile);
    *profile = made;
    return ERR_OK;
}

/* Built-in texts are ours: one that does not parse is a defect of the build. */
static enum err_code apply_text(const char *name, const char *text, struct profile *profile,
                                struct err *err)
{
    json_error_t at;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        return err_set(err, ERR_INTERNAL, "built-in profile %s: line %d: %s", name, at.line,
                       at.text);
    const enum err_code rc = apply(name, root, profile, err);
    json_decref(root);
    return rc;
}

static enum err_code apply_builtin(const struct builtins *list, const char *what, const char *name,
                                   struct profile *profile, struct err *err)
{
    char known[640];
    const uint32_t i = builtin_find(list, name);
    if (i == list->count) {
        const uint32_t nearest = builtin_nearest(list, name);
        return err_set(err, ERR_INVALID, "no %s is called \"%.200s\"; known are %s%s%s", what, name,
                       names_list(list->names, list->count, known, sizeof known),
                       nearest < list->count ? "; did you mean " : "",
                       nearest < list->count ? list->names[nearest] : "");
    }
    return apply_text(list->names[i], list->texts[i], profile, err);
}

enum err_code profile_find(const char *name, struct profile *out, struct err *err)
{
    *out = (struct profile){0};
    return apply_builtin(builtin_gpus(), "GPU", name, out, err);
}

enum err_code profile_set_node(const char *name, struct profile *profile, struct err *err)
{
    return apply_builtin(builtin_nodes(), "node type", name, profile, err);
}

uint32_t profile_node_gpus(const char *gpu, const char *node)
{
    struct profile p;
    uint32_t gpus = 0;
    if (profile_find(gpu, &p, NULL) != ERR_OK)
        return 0;
    if (!node || profile_set_node(node, &p, NULL) == ERR_OK)
        gpus = (uint32_t)profile_value(&p, PROFILE_NODE_GPUS);
    profile_free(&p);
    return gpus;
}

enum err_code profile_read(const char *path, struct profile *profile, struct err *err)
{
    struct err found = {0};
    json_t *root = json_file_read(path, &found);
    if (!root)
        return err_set(err, found.code, "%s", found.text);
    const enum err_code rc = apply(path, root, profile, err);
    json_decref(root);
    return rc;
}

bool profile_says(const struct profile *profile, const char *key)
{
    return profile->text_count > 0 &&
           json_object_get(profile->texts[profile->text_count - 1], key) != NULL;
}

uint64_t profile_communicator_bytes(const struct profile *profile, uint32_t ranks,
                                    bool across_nodes)
{
    if (ranks < 2)
        return 0;
    return profile_bytes(profile, PROFILE_NCCL_INIT) +
           profile_bytes(profile, across_nodes ? PROFILE_NCCL_NET : PROFILE_NCCL_RING);
}
