/* names.c - see names.h. */
#include "base/names.h"

#include "base/arena.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 64 };

static bool is_separator(char c)
{
    return c == '-' || c == '_' || c == ' ';
}

static bool is_digit(char c)
{
    return isdigit((unsigned char)c) != 0;
}

/* The next character that counts, '-' or '_' for a separator between digits, '\0' at the end; moves
 * on. */
static char next_letter(const char **at, bool *after_digit)
{
    const char *c = *at;
    while (is_separator(*c))
        c++;
    const bool separates = c != *at && *after_digit && is_digit(*c);
    *after_digit = !separates && is_digit(*c);
    if (separates) {
        const bool low = **at == '_' && c == *at + 1;
        *at = c;
        return low ? '_' : '-';
    }
    *at = *c ? c + 1 : c;
    return (char)tolower((unsigned char)*c);
}

/* Whether '_' stands for the other: for a point only between digits, as it is itself. */
static bool stands_for(char low, char other, bool digit_next)
{
    return low == '_' && (other == '-' || (other == '.' && digit_next));
}

bool names_alike(const char *a, const char *b)
{
    bool a_digit = false, b_digit = false;
    for (;;) {
        const char x = next_letter(&a, &a_digit), y = next_letter(&b, &b_digit);
        const bool alike =
            x == y || stands_for(x, y, is_digit(*b)) || stands_for(y, x, is_digit(*a));
        if (!alike || x == '\0')
            return alike;
    }
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t names_distance(const char *a, const char *b)
{
    const size_t a_length = strnlen(a, LONGEST), b_length = strnlen(b, LONGEST);
    uint32_t row[LONGEST + 1];
    for (uint32_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        uint32_t diagonal = row[0];
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= b_length; j++) {
            const bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            const uint32_t replaced = diagonal + !same;
            diagonal = row[j];
            row[j] = smaller(replaced, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_length];
}

bool names_near(const char *text, const char *name)
{
    const size_t a = strnlen(text, LONGEST), b = strnlen(name, LONGEST);
    const size_t longer = a > b ? a : b, shorter = a > b ? b : a;
    return 2 * (longer - shorter) <= longer && /* letters that one lacks are that far already */
           2 * names_distance(text, name) <= longer;
}

static size_t common_letters(const char *a, const char *b)
{
    size_t count = 0;
    while (a[count] && tolower((unsigned char)a[count]) == tolower((unsigned char)b[count]))
        count++;
    return count;
}

bool names_nearer(const char *text, const char *name, const char *other)
{
    if (!other)
        return true;
    const uint32_t own = names_distance(text, name), others = names_distance(text, other);
    return own < others ||
           (own == others && common_letters(text, name) > common_letters(text, other));
}

bool names_misspelt(const char *text, const char *name)
{
    const char *dot = strrchr(text, '.');
    const size_t length = strlen(dot ? dot + 1 : text);
    return names_distance(text, name) <= (length > 5 ? 2U : length > 2 ? 1U : 0U);
}

enum { FIRST_WORD = 32 };

static void first_word(const char *name, char word[FIRST_WORD])
{
    size_t length = 0;
    for (; length + 1 < FIRST_WORD && isalpha((unsigned char)name[length]); length++)
        word[length] = name[length];
    word[length] = '\0';
}

enum names_kin names_kin(const char *text, const char *name)
{
    char own[FIRST_WORD], other[FIRST_WORD];
    first_word(text, own);
    first_word(name, other);
    if (!own[0] || !other[0] || !names_misspelt(own, other))
        return NAMES_OTHERS;
    return strcasecmp(own, other) == 0 ? NAMES_KIN : NAMES_SLIP;
}

/* The words of "gradient_accumulation_steps", one after the other; length 0 behind the last. */
static const char *next_word(const char **at, size_t *length)
{
    const char *word = *at + strspn(*at, "_-");
    *length = strcspn(word, "_-");
    *at = word + *length;
    return word;
}

bool names_lacks_word(const char *text, const char *name)
{
    size_t own_length, length;
    uint32_t words = 0, missing = 0;
    const char *own = next_word(&text, &own_length), *word = next_word(&name, &length);
    while (length) {
        if (own_length == length && strncasecmp(own, word, length) == 0) {
            words++;
            own = next_word(&text, &own_length);
        } else {
            missing++;
        }
        word = next_word(&name, &length);
    }
    return own_length == 0 && words > 1 && missing == 1;
}

bool names_lacks_end(const char *text, const char *name)
{
    const size_t length = strlen(text);
    if (length < 6 || strncasecmp(text, name, length) != 0)
        return false;
    const size_t more = strspn(name + length, "abcdefghijklmnopqrstuvwxyz");
    return more > 0 && more <= 4 && !name[length + more];
}

const char *names_list(const char *const *names, uint32_t count, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", names[i]);
    return text;
}

/* fnmatch of a pattern that does not end where it is. */
static bool is_glob(const char *glob, size_t length, const char *name)
{
    char room[128];
    char *text = length < sizeof room ? room : xmalloc(length + 1);
    memcpy(text, glob, length);
    text[length] = '\0';
    const bool matches = fnmatch(text, name, 0) == 0;
    if (text != room)
        free(text);
    return matches;
}

typedef bool is_pattern(const char *pattern, size_t length, const char *name);

/* Whether one of comma-separated patterns is. */
static bool any(const char *patterns, is_pattern *is, const char *name)
{
    bool found = false;
    while (patterns && *patterns && !found) {
        const size_t length = strcspn(patterns, ",");
        found = is(patterns, length, name);
        patterns += length + (patterns[length] == ',');
    }
    return found;
}

bool names_match(const char *globs, const char *name)
{
    return any(globs, is_glob, name);
}

/* Where a pattern has its range, behind `plain` characters: "3-9". False: it has none. */
static bool find_range(const char *pattern, size_t length, size_t *plain, size_t *end,
                       unsigned long bounds[2])
{
    for (size_t i = 0; i < length && !strchr("*?[", pattern[i]); i++) {
        char *dash, *stop;
        if (!isdigit((unsigned char)pattern[i]))
            continue;
        bounds[0] = strtoul(pattern + i, &dash, 10);
        *plain = i;
        i = (size_t)(dash - pattern) - 1;
        if (*dash != '-' || !isdigit((unsigned char)dash[1]))
            continue;
        bounds[1] = strtoul(dash + 1, &stop, 10);
        *end = (size_t)(stop - pattern);
        return true;
    }
    return false;
}

static bool is_in(const char *pattern, size_t length, const char *name)
{
    size_t plain = 0, end = 0;
    unsigned long bounds[2];
    const bool ranges = find_range(pattern, length, &plain, &end, bounds);
    if (ranges) {
        char *rest;
        if (strncmp(pattern, name, plain) != 0 || !isdigit((unsigned char)name[plain]))
            return false;
        const unsigned long number = strtoul(name + plain, &rest, 10);
        if (number < bounds[0] || number > bounds[1])
            return false;
        name = rest;
    }
    if (end == length) /* nothing behind it: most patterns of a search */
        return !*name;
    return is_glob(pattern + end, length - end, name);
}

bool names_in(const char *patterns, const char *name)
{
    return any(patterns, is_in, name);
}
