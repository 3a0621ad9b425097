/* stated.c - see stated.h. */
#include "families/stated.h"

#include "families/family.h"

#include <stdio.h>
#include <string.h>

/* Copies text without what a terminal could take for a command. */
static void put_text(char *out, size_t size, const char *text)
{
    size_t i = 0;
    for (; text[i] && i + 1 < size; i++)
        out[i] = (char)(text[i] > ' ' && text[i] <= '~' ? text[i] : '?');
    out[i] = '\0';
}

bool stated_arch(const json_t *object, enum arch *arch)
{
    const char *type = json_string_value(json_object_get(object, "model_type"));
    for (int i = 0; type && i < ARCH_COUNT; i++) {
        const struct family *family = family_of((enum arch)i);
        if (strcmp(type, family->name) == 0 ||
            (family->outer && strcmp(type, family->outer) == 0) ||
            (family->kin && strcmp(type, family->kin) == 0)) {
            *arch = (enum arch)i;
            return true;
        }
    }
    return false;
}

/* Whether it is the file of a class that has a planned model inside, whose keys are its own. */
static bool is_flat(const char *type, enum arch arch)
{
    const char *outer = family_of(arch)->outer;
    return outer && strcmp(type, outer) == 0;
}

void stated_kin(const json_t *object, const char *kin, struct model_stated *out)
{
    const char *type = json_string_value(json_object_get(object, "model_type"));
    if (kin && type && strcmp(type, kin) == 0)
        put_text(out->kin, sizeof out->kin, type);
}

const json_t *stated_part(const json_t *root, const char **name, struct model_stated *out)
{
    /* transformers' name, InternVL's own code's, and DeepSeek-VL's */
    static const char *const names[] = {"text_config", "llm_config", "language_config"};
    enum arch arch;
    const json_t *text = NULL;
    for (size_t i = 0; !text && i < sizeof names / sizeof *names; i++) {
        text = json_object_get(root, names[i]);
        *name = names[i];
    }
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const bool known = stated_arch(root, &arch), flat = known && is_flat(type, arch);
    if (!type || (known && !flat))
        return root;
    if (!stated_arch(text, &arch) && !flat)
        return root;
    put_text(out->outer, sizeof out->outer, type);
    return stated_arch(text, &arch) ? text : root;
}

void stated_read(const json_t *root, const char *class_name, struct model_stated *out)
{
    const json_t *classes = json_object_get(root, "architectures");
    const json_t *quantization = json_object_get(root, "quantization_config");
    bool same = !class_name || json_array_size(classes) == 0;
    size_t i;
    const json_t *one;
    json_array_foreach(classes, i, one)
    {
        const char *text = json_string_value(one);
        same = same || (text && strcmp(text, class_name) == 0);
    }
    const char *first = json_string_value(json_array_get(classes, 0));
    if (!same && !out->outer[0])
        put_text(out->class_name, sizeof out->class_name, first ? first : "?");
    if (!json_is_object(quantization))
        return;
    const char *method = json_string_value(json_object_get(quantization, "quant_method"));
    put_text(out->quantized, sizeof out->quantized, method ? method : "?");
}

/* What a model that sees or hears has besides the text model that is planned. */
static void beside_note(const struct model_config *config, const struct model_job *job,
                        const char *planned, char *text, size_t size)
{
    const struct tower *tower = model_tower(config, job);
    const char *outer = config->stated.outer;
    if (!tower)
        snprintf(
            text, size,
            "the text model of a \"%s\" is planned alone, as %s: what it has besides "
            "text (a vision tower, what joins them) is not counted; tools/record.py --hf records "
            "it with pictures",
            outer, planned);
    else
        snprintf(text, size,
                 "a \"%s\" is planned with batches of text alone, as %s: what it has besides text, "
                 "%.1f M parameters of %s and what joins them, is there, %s, and not "
                 "computed with; tools/record.py --hf records it with pictures",
                 outer, planned, (double)tower_parameters(tower, config->hidden) / 1e6,
                 !tower->ears.layers ? "a vision tower"
                 : tower->layers     ? "towers that see and hear"
                                     : "an audio tower",
                 job->tower == TOWER_TRAINED ? "without gradients" : "frozen");
}

bool model_note(const struct model_config *config, const struct model_job *job, uint32_t index,
                char *text, size_t size)
{
    if (config->recording) {
        const char *note = recording_note(config->recording, index);
        snprintf(text, size, "%s", note ? note : "");
        return note != NULL;
    }
    const struct family *family = family_of(config->arch);
    const struct model_stated *s = &config->stated;
    const char *planned = family->class_name ? family->class_name : family->name;
    const bool mixes = model_mixes(config);
    if (s->outer[0] && index-- == 0) {
        beside_note(config, job, planned, text, size);
        return true;
    }
    if (s->kin[0] && index-- == 0) {
        snprintf(text, size,
                 "planned is %s, whose architecture a \"%s\" has, not the code that comes with the "
                 "checkpoint",
                 planned, s->kin);
        return true;
    }
    if (s->class_name[0] && index-- == 0) {
        const bool classifies =
            family->classifier && strcmp(family->classifier, s->class_name) == 0;
        snprintf(text, size, "the file's \"architectures\" is %s: planned is %s, with its head%s",
                 s->class_name, planned,
                 classifies ? " (--task sequence-classification plans the other)" : "");
        return true;
    }
    if (mixes && config->delta_key_heads && index-- == 0) {
        snprintf(text, size,
                 "linear attention is planned as flash-linear-attention 0.6 and causal-conv1d 1.7 "
                 "compute it, which transformers uses where both are installed (flash-qla, where "
                 "it is installed, too, has faster kernels); GPUs with less shared memory than an "
                 "A100 take 4 bytes more a token and head in backward, or three times that");
        return true;
    }
    if (mixes && config->ssm_heads && index-- == 0) {
        snprintf(
            text, size,
            "Mamba-2 is planned as mamba-ssm 2.3 and causal-conv1d 1.7 compute it, which "
            "transformers uses where both are installed; without them what it computes in "
            "their place is much slower and is not planned; the time of their kernels was held "
            "to no measured one");
        return true;
    }
    if (model_has_mamba1(config) && index-- == 0) {
        snprintf(text, size,
                 "Mamba-1 is planned as mamba-ssm 2.3 and causal-conv1d 1.7 compute it, which "
                 "transformers uses where both are installed; without them what it computes in "
                 "their place is much slower and is not planned; the time of its scan was held to "
                 "no measured one");
        return true;
    }
    if (mixes && !config->delta_key_heads && !config->ssm_heads && !config->scan_rank &&
        index-- == 0) {
        snprintf(text, size,
                 "short convolutions are planned as causal-conv1d 1.7 computes them, which "
                 "transformers uses where it is installed; PyTorch's own, which take its place "
                 "elsewhere, are not planned");
        return true;
    }
    if (family->newer && index-- == 0) {
        snprintf(text, size, "%s", family->newer);
        return true;
    }
    if (s->quantized[0] && index-- == 0) {
        const bool bits = strcmp(s->quantized, "bitsandbytes") == 0;
        snprintf(text, size,
                 "the checkpoint has a quantization_config (%s): planned are parameters in the "
                 "dtypes of the settings, %s",
                 s->quantized, bits ? "in 4 bits with --load-in-4bit" : "as if it had none");
        return true;
    }
    return false;
}
