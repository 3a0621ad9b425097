/* called.c - see called.h. */
#include "families/called.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* "meta-llama/Llama-3.1-8B" is a name many people have at hand. A path has other slashes. */
static const char *without_owner(const char *name)
{
    const char *slash = strchr(name, '/');
    const bool owned = slash && slash != name && name[0] != '.' && !strchr(slash + 1, '/');
    return owned ? slash + 1 : name;
}

struct word {
    const char *text;
    size_t length;
};

static bool is_one_of(struct word word, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == word.length && strncasecmp(word.text, *words, word.length) == 0)
            return true;
    return false;
}

/* What names call the same shape with other weights, or the dtype that these are stored in. */
static const char *const variants[] = {
    "base", "instruct", "chat", "it",        "pt",   "hf",      "sft", "thinking", "think", "dpo",
    "rl",   "pretrain", "bf16", "reasoning", "fp16", "deduped", "f16", "unsloth",  "fp32",  NULL};
/* bitsandbytes', and how many bits beside it. */
static const char *const bits[] = {"bnb", "nf4", NULL};
static const char *const wide[] = {"4bit", NULL};
/* What is quantized for modules of its own, or for no training. */
static const char *const formats[] = {
    "gptq",      "awq",          "aqlm", "nvfp4", "mxfp4", "fp8",  "gguf",  "ggml", "exl2",
    "exl3",      "mlx",          "eetq", "hqq",   "w4a16", "w8a8", "w8a16", "int4", "int8",
    "quantized", "prequantized", "2bit", "3bit",  "4bit",  "6bit", "8bit",  "quip", NULL};

static struct word next_word(const char **at)
{
    const struct word word = {*at, strcspn(*at, "-_")};
    *at += word.length + ((*at)[word.length] != '\0');
    return word;
}

static bool has(const char *name, const char *const *words)
{
    bool found = false;
    while (*name && !found)
        found = is_one_of(next_word(&name), words);
    return found;
}

struct called called_read(const char *name)
{
    struct called out = {.count = 0};
    const char *own = without_owner(name);
    if (strlen(own) >= sizeof out.text)
        return out;
    snprintf(out.text, sizeof out.text, "%s", own);
    out.bits4 = has(own, bits);
    for (const char *at = own; *at && out.count < CALLED_WORDS;) {
        const struct word word = next_word(&at);
        const uint8_t begin = (uint8_t)(word.text - own);
        const bool of_bits = out.bits4 && (is_one_of(word, bits) || is_one_of(word, wide));
        if (!of_bits && is_one_of(word, formats) && begin > 0) {
            snprintf(out.format, sizeof out.format, "%.*s", (int)word.length, word.text);
            out.plain = begin;
            break;
        }
        if (!of_bits && !is_one_of(word, variants))
            continue;
        out.begin[out.count] = begin;
        out.length[out.count++] = (uint8_t)word.length;
    }
    return out;
}

struct stem called_stem(const struct called *called, uint32_t dropped)
{
    struct stem out = {""};
    size_t used = 0;
    const char *end = called->text + (called->format[0] ? called->plain : strlen(called->text));
    for (const char *at = called->text; at < end;) {
        const struct word word = next_word(&at);
        bool left_out = false;
        for (uint32_t i = called->count - dropped; i < called->count && !left_out; i++)
            left_out = called->text + called->begin[i] == word.text;
        if (!left_out) /* with the separator in front of it */
            used += (size_t)snprintf(out.text + used, sizeof out.text - used, "%.*s%.*s", used > 0,
                                     word.text - (used > 0), (int)word.length, word.text);
    }
    return out;
}
