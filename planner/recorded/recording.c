/* recording.c - see recording.h: the file and its header. */
#include "recorded/recording_parts.h"

#include "base/json_file.h"
#include "base/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MOST_BYTES = 1 << 29 }; /* of a file's text */

bool recording_is_named(const char *path)
{
    static const char *const ends[] = {".stream.json", ".stream.json.gz"};
    const size_t length = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (length > strlen(ends[i]) && strcmp(path + length - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* ---- the text ---- */

static enum err_code inflate_file(const char *path, char **out, size_t *size, struct err *err)
{
    gzFile file = gzopen(path, "rb");
    size_t cap = 1 << 16, used = 0;
    int got = 0, number = 0;
    if (!file)
        return err_set(err, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    char *text = xmalloc(cap);
    while (used < MOST_BYTES && (got = gzread(file, text + used, (unsigned)(cap - used - 1))) > 0) {
        used += (size_t)got;
        if (cap - used < 2)
            text = xrealloc(text, cap *= 2);
    }
    const char *why = gzerror(file, &number);
    enum err_code rc = ERR_OK;
    if (got < 0)
        rc = err_set(err, ERR_INVALID, "%s is damaged: %s", path, why);
    else if (used >= MOST_BYTES)
        rc = err_set(err, ERR_INVALID, "%s has more than %d MiB of text", path, MOST_BYTES >> 20);
    gzclose(file);
    text[used] = '\0';
    *size = used;
    if (rc == ERR_OK)
        *out = text;
    else
        free(text);
    return rc;
}

static enum err_code wrong(const struct recording *r, const char *what, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s: line 1: %s", r->path, what);
}

/* ---- labels ---- */

/* The label of a name: PyTorch's vocabulary first, then the recording's own. */
static uint16_t label_of(struct recording *r, uint32_t cap, const char *name)
{
    for (uint32_t i = 0; i < r->label_count; i++)
        if (strcmp(r->labels[i], name) == 0)
            return (uint16_t)i;
    if (r->label_count == cap)
        return ATEN_NONE;
    r->labels[r->label_count] = name;
    return (uint16_t)r->label_count++;
}

static enum op_kind_recorded kind_of(const char *name)
{
    static const struct {
        const char *name;
        enum op_kind_recorded kind;
    } kinds[] = {
        {"native_layer_norm", RECORDED_NORM},
        {"native_group_norm_backward", RECORDED_GROUP_NORM_BACKWARD},
        {"_scaled_dot_product_flash_attention", RECORDED_FLASH},
        {"_scaled_dot_product_flash_attention_backward", RECORDED_FLASH_BACKWARD},
        {"index_put", RECORDED_PUT},
        {"scatter.src", RECORDED_PUT},
        {"scatter_add", RECORDED_PUT},
        {"_safe_softmax", RECORDED_SAFE_SOFTMAX},
        {"masked_scatter", RECORDED_SCATTER},
        {"masked_select", RECORDED_SELECT},
        {"masked_scatter_backward", RECORDED_SELECT},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].kind;
    return RECORDED_OTHER;
}

/* "scatter.src" -> "scatter_.src" */
static const char *in_place_name(struct arena *arena, const char *name)
{
    const size_t stem = strcspn(name, ".");
    return arena_printf(arena, "%.*s_%s", (int)stem, name, name + stem);
}

enum { LABELS_AN_OP = 2 };

static enum err_code read_ops(struct recording *r, struct err *err)
{
    const json_t *names = json_object_get(r->header, "ops");
    const size_t count = json_array_size(names);
    if (!json_is_array(names) || count > UINT16_MAX / 4)
        return wrong(r, "\"ops\" is no list of names", err);
    const uint32_t cap = (uint32_t)(ATEN_COUNT + LABELS_AN_OP * count);
    r->labels = arena_alloc(&r->arena, cap * sizeof *r->labels);
    memcpy(r->labels, aten_names(), ATEN_COUNT * sizeof *r->labels);
    r->label_count = ATEN_COUNT;
    r->ops = arena_alloc(&r->arena, (count + 1) * sizeof *r->ops);
    r->op_count = (uint32_t)count;
    for (uint32_t i = 0; i < r->op_count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        struct recorded_op *op = &r->ops[i];
        if (!name || !*name || strlen(name) > 200)
            return wrong(r, "a name in \"ops\" is none", err);
        *op = (struct recorded_op){.name = name, .kind = kind_of(name)};
        op->label = label_of(r, cap, name);
        op->in_place_label =
            op->kind == RECORDED_PUT ? label_of(r, cap, in_place_name(&r->arena, name)) : op->label;
        const bool backward = op->kind == RECORDED_FLASH_BACKWARD;
        op->cudnn_label = backward ? ATEN_CUDNN_ATTENTION_BACKWARD : ATEN_CUDNN_ATTENTION;
        op->efficient_label =
            backward ? ATEN_EFFICIENT_ATTENTION_BACKWARD : ATEN_EFFICIENT_ATTENTION;
    }
    return ERR_OK;
}

static enum err_code read_types(struct recording *r, struct err *err)
{
    const json_t *rows = json_object_get(r->header, "types");
    r->type_count = (uint32_t)json_array_size(rows);
    r->types = arena_alloc(&r->arena, (r->type_count + 1) * sizeof *r->types);
    for (uint32_t i = 0; i < r->type_count; i++) {
        const json_t *row = json_array_get(rows, i), *bytes = json_array_get(row, 3);
        struct recorded_type *type = &r->types[i];
        const json_int_t op = json_integer_value(json_array_get(row, 0));
        if (json_array_size(row) != 4 || op < 0 || op >= r->op_count ||
            !recorded_dtype(json_string_value(json_array_get(row, 1)), &type->dtype) ||
            !recorded_shape(json_array_get(row, 2), &type->shape) || !json_is_integer(bytes) ||
            json_integer_value(bytes) <= 0)
            return err_set(err, ERR_INVALID,
                           "%s: line 1: \"types\"[%u] is not [op, dtype, shape, bytes] of dtypes "
                           "that are known",
                           r->path, i);
        type->op = (uint32_t)op;
        type->bytes = (uint64_t)json_integer_value(bytes);
        if (shape_bytes(&type->shape, type->dtype) > type->bytes) /* it was born expanded */
            type->shape = SHAPE((uint32_t)(type->bytes / dtype_bytes(type->dtype)));
    }
    return ERR_OK;
}

/* ---- variants ---- */

static bool checkpointing_named(const char *name, enum checkpointing *out)
{
    static const char *const names[] = {[CHECKPOINTING_NONE] = "none",
                                        [CHECKPOINTING_FULL] = "full",
                                        [CHECKPOINTING_SELECTIVE] = "selective"};
    for (int i = CHECKPOINTING_NONE; name && i <= CHECKPOINTING_SELECTIVE; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum checkpointing)i;
            return true;
        }
    return false;
}

/* The numbers of parameters that a variant has frozen. */
static enum err_code read_frozen(struct recording *r, const json_t *row, const bool **out,
                                 struct err *err)
{
    const json_t *numbers = json_object_get(row, "frozen");
    const size_t count = json_array_size(json_object_get(r->header, "parameters"));
    if (!numbers)
        return ERR_OK;
    bool *frozen = arena_alloc(&r->arena, (count + 1) * sizeof *frozen);
    memset(frozen, 0, (count + 1) * sizeof *frozen);
    for (size_t i = 0; i < json_array_size(numbers); i++) {
        const json_t *number = json_array_get(numbers, i);
        const json_int_t p = json_is_integer(number) ? json_integer_value(number) : -1;
        if (p < 0 || p >= (json_int_t)count)
            return wrong(r, "\"frozen\" of a variant is not a list of parameters", err);
        frozen[p] = true;
    }
    *out = frozen;
    return ERR_OK;
}

/* Each has its line behind the header's, in that order. */
static enum err_code find_variants(struct recording *r, const char *next, struct err *err)
{
    const json_t *rows = json_object_get(r->header, "variants");
    r->variant_count = (uint32_t)json_array_size(rows);
    r->variants = arena_alloc(&r->arena, (r->variant_count + 1) * sizeof *r->variants);
    if (r->variant_count == 0)
        return wrong(r, "\"variants\" is empty", err);
    for (uint32_t i = 0; i < r->variant_count; i++) {
        const json_t *row = json_array_get(rows, i);
        const json_int_t batch = json_integer_value(json_object_get(row, "batch"));
        const char *hooks = json_string_value(json_object_get(row, "hooks"));
        struct recorded_variant *v = &r->variants[i];
        if (batch < 1 || batch > UINT32_MAX || !hooks ||
            !checkpointing_named(json_string_value(json_object_get(row, "checkpointing")),
                                 &v->checkpointing))
            return wrong(r, "a row of \"variants\" lacks batch, checkpointing or hooks", err);
        TRY(read_frozen(r, row, &v->frozen, err));
        v->batch = (uint32_t)batch;
        v->input_nodes = strcmp(hooks, "fsdp") == 0;
        v->module_hooks = strcmp(hooks, "zero3") == 0;
        v->root_casts = strcmp(hooks, "fsdp1") == 0;
        v->line = next;
        v->length = next ? strcspn(next, "\n") : 0;
        v->number = i + 2;
        if (v->length == 0)
            return err_set(err, ERR_INVALID, "%s ends before line %u: %u variants are announced",
                           r->path, v->number, r->variant_count);
        next = next[v->length] ? next + v->length + 1 : NULL;
    }
    return ERR_OK;
}

static const char *batches(const struct recording *r, char *text, size_t size)
{
    size_t used = 0;
    uint32_t before = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < r->variant_count && used < size; i++) {
        if (r->variants[i].batch == before)
            continue;
        before = r->variants[i].batch;
        used += (size_t)snprintf(text + used, size - used, "%s%u", used ? "," : "", before);
    }
    return text;
}

/* Whether a variant has frozen what these patterns name, and nothing else, beyond what the model
 * has. */
static bool same_frozen(const struct recording *r, const struct recorded_variant *v,
                        const char *patterns)
{
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(r->header, "parameters"), i, row)
    {
        const char *name = json_string_value(json_array_get(row, 0));
        const bool named = name && names_match(patterns, name);
        if (json_is_true(json_array_get(row, 2)) && named != (v->frozen && v->frozen[i]))
            return false;
    }
    return true;
}

/* The text of a variant's list of inputs, which is short where its line is not; "" without. */
static size_t inputs_of(const struct recorded_variant *v, const char **out)
{
    static const char key[] = "\"inputs\":";
    const char *from = memmem(v->line, v->length, key, sizeof key - 1);
    const char *const end = v->line + v->length;
    *out = from ? from + sizeof key - 1 : end;
    int depth = 0;
    for (const char *at = *out; at < end; at++) {
        depth += *at == '[' ? 1 : *at == ']' ? -1 : 0;
        if (depth <= 0)
            return (size_t)(at - *out);
    }
    return (size_t)(end - *out);
}

/* What a model is given is in a step with fully_shard's hooks as it came, and in others in the
 * model's dtype. Where that is not the same FullyShardedDataParallel casts it, too, and files that
 * are older than that have no step which does. */
static enum err_code check_casts(const struct recording *r, const struct recorded_variant *plain,
                                 struct err *err)
{
    const char *given = NULL, *inputs = NULL;
    const size_t length = inputs_of(plain, &inputs);
    for (uint32_t i = 0; i < r->variant_count; i++)
        if (r->variants[i].input_nodes && r->variants[i].batch == plain->batch &&
            (inputs_of(&r->variants[i], &given) != length || memcmp(given, inputs, length) != 0))
            return err_set(err, ERR_UNSUPPORTED,
                           "%s was recorded before recordings said how fsdp1 casts what a model is "
                           "given; record it again with this version's record.py",
                           r->path);
    return ERR_OK;
}

enum err_code recording_choose(const struct recording *r, const struct recording_choice *choice,
                               const struct recorded_variant **out, struct err *err)
{
    char text[96];
    bool batch = false, hooks = false, frozen = false;
    *out = NULL;
    if (choice->seq != r->info.seq)
        return err_set(err, ERR_INVALID,
                       "--seq %u: %s was recorded with %u tokens a sequence; record it again with "
                       "--seq %u",
                       choice->seq, r->path, r->info.seq, choice->seq);
    if (choice->compute != r->info.dtype)
        return err_set(
            err, ERR_INVALID,
            "parameters would compute in %s, and %s was recorded in %s: --param-dtype %s "
            "(--store-dtype %s of ddp and single), or record it again with --dtype %s",
            dtype_brief(choice->compute), r->path, dtype_brief(r->info.dtype),
            dtype_brief(r->info.dtype), dtype_brief(r->info.dtype), dtype_brief(choice->compute));
    if (choice->autocast != r->info.autocast)
        return err_set(err, ERR_INVALID,
                       "--autocast: %s was recorded %s; record it again %s --autocast bf16",
                       r->path, r->info.autocast ? "under autocast" : "without it",
                       r->info.autocast ? "without" : "with");
    for (uint32_t i = 0; i < r->variant_count; i++) {
        const struct recorded_variant *v = &r->variants[i];
        if (v->batch != choice->batch)
            continue;
        batch = true;
        if (!same_frozen(r, v, choice->frozen))
            continue;
        frozen = true;
        hooks = hooks || v->module_hooks;
        if (v->checkpointing == choice->checkpointing && v->input_nodes == choice->input_nodes &&
            v->module_hooks == choice->module_hooks && (!v->root_casts || choice->root_casts)) {
            if (v->module_hooks && !r->says_saved)
                return err_set(err, ERR_UNSUPPORTED,
                               "%s was recorded before recordings said which views of parameters "
                               "autograd saves, which ZeRO-3 gathers and cannot release; record it "
                               "again with this version's record.py",
                               r->path);
            *out = v;
            if (v->root_casts == choice->root_casts)
                return ERR_OK;
        }
    }
    if (*out)
        return choice->root_casts ? check_casts(r, *out, err) : ERR_OK;
    if (batch && !frozen)
        return err_set(err, ERR_INVALID,
                       "--freeze: %s has no recording of a step that does not train \"%s\": what "
                       "is kept for backward follows from it; record it again with --freeze '%s'",
                       r->path, choice->frozen ? choice->frozen : "", choice->frozen);
    if (batch && choice->module_hooks)
        return err_set(err, ERR_UNSUPPORTED,
                       hooks ? "%s: with hooks on every module it was recorded without "
                               "checkpointing, which --strategy zero3 is planned with alone"
                             : "%s was recorded without hooks on every module, which --strategy "
                               "zero3 has; record it again with this version's record.py",
                       r->path);
    return batch
               ? err_set(err, ERR_INVALID,
                         "%s has no recording with this --checkpointing; record it again with it",
                         r->path)
               : err_set(err, ERR_INVALID,
                         "--micro-batch %u: %s was recorded with %s; give that, or record it again "
                         "with --batch %s,%u",
                         choice->batch, r->path, batches(r, text, sizeof text), text,
                         choice->batch);
}

enum err_code recording_line(const struct recording *r, const struct recorded_variant *variant,
                             json_t **out, struct err *err)
{
    json_error_t at;
    *out = json_text_read(variant->line, variant->length, 0, &at);
    if (json_is_object(*out))
        return ERR_OK;
    json_decref(*out);
    *out = NULL;
    return err_set(err, ERR_INVALID, "%s: line %u: %s", r->path, variant->number, at.text);
}

/* ---- all of it ---- */

static enum err_code read_info(struct recording *r, struct err *err)
{
    const json_t *model = json_object_get(r->header, "model");
    const char *format = json_string_value(json_object_get(r->header, "format"));
    const json_int_t version = json_integer_value(json_object_get(r->header, "version"));
    const json_int_t seq = json_integer_value(json_object_get(model, "seq"));
    const char *lower = json_string_value(json_object_get(model, "autocast"));
    const json_int_t parameters = json_integer_value(json_object_get(model, "parameters"));
    if (!format || strcmp(format, "shardplan stream") != 0)
        return wrong(r, "this is no recording of tools/record.py", err);
    if (version != 1 && version != 2)
        return err_set(
            err, ERR_INVALID,
            "%s: line 1: its format is version %lld, and versions 1 and 2 are read here: "
            "record it again",
            r->path, (long long)version);
    r->says_saved = version > 1;
    r->info = (struct recording_info){
        .name = json_string_value(json_object_get(model, "name")),
        .torch = json_string_value(json_object_get(model, "torch")),
        .python = json_string_value(json_object_get(model, "python")),
        .parameters = (uint64_t)parameters,
        .seq = (uint32_t)seq,
        .autocast = lower != NULL,
        .batch_norm =
            json_string_value(json_array_get(json_object_get(r->header, "batch_norms"), 0)),
        .units = (uint32_t)json_array_size(json_object_get(r->header, "modules")),
    };
    if (lower && strcmp(lower, "bf16") != 0)
        return wrong(r, "under autocast, bf16 is planned for", err);
    if (!r->info.name || !r->info.torch || seq < 1 || seq > UINT32_MAX || parameters < 1 ||
        !recorded_dtype(json_string_value(json_object_get(model, "dtype")), &r->info.dtype))
        return wrong(r, "\"model\" lacks name, torch, seq, parameters or dtype", err);
    return ERR_OK;
}

static enum err_code read_all(struct recording *r, struct err *err)
{
    json_error_t at;
    const size_t length = strcspn(r->text, "\n");
    r->header = json_text_read(r->text, length, 0, &at);
    if (!json_is_object(r->header))
        return err_set(err, ERR_INVALID, "%s: line 1: %s", r->path,
                       r->header ? "it is no object" : at.text);
    TRY(read_info(r, err));
    TRY(read_ops(r, err));
    TRY(read_types(r, err));
    TRY(recording_read_calls(r, err));
    return find_variants(r, r->text[length] ? r->text + length + 1 : NULL, err);
}

/* Takes the text over. */
static enum err_code take(const char *name, char *text, size_t size, struct recording **out,
                          struct err *err)
{
    struct recording *r = xmalloc(sizeof *r);
    *r = (struct recording){.text = text};
    r->path = arena_strdup(&r->arena, name);
    const enum err_code rc = text && strlen(text) == size
                                 ? read_all(r, err)
                                 : err_set(err, ERR_INVALID, "%s: it is no text", name);
    if (rc == ERR_OK)
        *out = r;
    else
        recording_free(r);
    return rc;
}

enum err_code recording_read(const char *path, struct recording **out, struct err *err)
{
    char *text = NULL;
    size_t size = 0;
    *out = NULL;
    TRY(inflate_file(path, &text, &size, err));
    return take(path, text, size, out, err);
}

enum err_code recording_parse(const char *name, const char *text, size_t size,
                              struct recording **out, struct err *err)
{
    char *copy = xmalloc(size + 1);
    memcpy(copy, text, size);
    copy[size] = '\0';
    *out = NULL;
    return take(name, copy, size, out, err);
}

void recording_free(struct recording *recording)
{
    if (!recording)
        return;
    json_decref(recording->header);
    free(recording->text);
    arena_free(&recording->arena);
    free(recording);
}

struct recording_info recording_info(const struct recording *recording)
{
    return recording->info;
}

const char *recording_note(const struct recording *recording, uint32_t index)
{
    return json_string_value(json_array_get(json_object_get(recording->header, "notes"), index));
}

uint32_t recording_unknown(const struct recording *recording, char *text, size_t size)
{
    uint32_t count = 0;
    size_t used = 0;
    bool *said = xcalloc(recording->op_count + 1, sizeof *said);
    text[0] = '\0';
    for (uint32_t i = 0; i < recording->call_count; i++) {
        const struct recorded_call *call = &recording->calls[i];
        if (call->known || said[call->op])
            continue;
        said[call->op] = true;
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", count ? ", " : "",
                                     recording->ops[call->op].name);
        count++;
    }
    free(said);
    return count;
}
