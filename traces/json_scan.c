/* json_scan.c - see json_scan.h.
 *
 * A string without escapes is a slice of the text; numbers of up to 15 digits, which is nearly all
 * of them, take one division. That is why 30 megabytes of events are read in a tenth of a second;
 * building a tree of values first takes four times as long and ten times the memory. */
#include "traces/json_scan.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { DEPTH = 200 };

bool scan_fail(struct scan *s, const char *problem)
{
    if (!s->problem)
        s->problem = problem;
    return false;
}

static void skip_space(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        s->at++;
}

char scan_peek(struct scan *s)
{
    skip_space(s);
    return s->at < s->end ? *s->at : '\0';
}

bool scan_accept(struct scan *s, char c)
{
    if (scan_peek(s) != c || s->at == s->end)
        return false;
    s->at++;
    return true;
}

bool scan_expect(struct scan *s, char c, const char *problem)
{
    return scan_accept(s, c) || scan_fail(s, s->at == s->end ? "the file ends too early" : problem);
}

static bool scan_hex4(struct scan *s, uint32_t *out)
{
    *out = 0;
    if (s->end - s->at < 4)
        return scan_fail(s, "the file ends within \\u");
    for (int i = 0; i < 4; i++, s->at++) {
        const char c = *s->at;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return scan_fail(s, "\\u needs four hexadecimal digits");
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* After "\u": a character, from two escapes where it takes a surrogate pair. What is no character
 * becomes U+FFFD; so does U+0000, which would end a C string. */
static bool scan_unicode(struct scan *s, uint32_t *out)
{
    uint32_t low;
    if (!scan_hex4(s, out))
        return false;
    if (*out >= 0xd800 && *out < 0xdc00 && s->end - s->at >= 2 && s->at[0] == '\\' &&
        s->at[1] == 'u') {
        s->at += 2;
        if (!scan_hex4(s, &low))
            return false;
        *out = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00)
                                             : 0xfffd;
    }
    if (*out == 0 || (*out >= 0xd800 && *out < 0xe000))
        *out = 0xfffd;
    return true;
}

static bool scan_escape(struct scan *s, char **to)
{
    static const char codes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (s->at == s->end)
        return scan_fail(s, "the file ends within a string");
    const char c = *s->at++;
    const char *known = c ? strchr(codes, c) : NULL;
    uint32_t code;
    if (known) {
        *(*to)++ = meanings[known - codes];
        return true;
    }
    if (c != 'u')
        return scan_fail(s, "unknown escape in a string");
    if (!scan_unicode(s, &code))
        return false;
    *to = put_utf8(*to, code);
    return true;
}

/* Bytes up to the quote that ends a string, or up to the text's end. */
static size_t raw_length(const struct scan *s)
{
    const size_t left = (size_t)(s->end - s->at);
    size_t length = 0;
    while (length < left && s->at[length] != '"')
        length += s->at[length] == '\\' && length + 1 < left ? 2 : 1;
    return length;
}

/* The rest of a string that began at `text` and has its first escape here. Decoding never makes it
 * longer. */
static bool scan_escaped(struct scan *s, const char *text, struct slice *out)
{
    const size_t plain = (size_t)(s->at - text);
    char *decoded = arena_alloc(s->arena, plain + raw_length(s) + 1), *to = decoded + plain;
    memcpy(decoded, text, plain);
    while (s->at < s->end && *s->at != '"') {
        if ((unsigned char)*s->at < ' ')
            return scan_fail(s, "a control character within a string");
        if (*s->at != '\\') {
            *to++ = *s->at++;
            continue;
        }
        s->at++;
        if (!scan_escape(s, &to))
            return false;
    }
    *out = (struct slice){decoded, (size_t)(to - decoded)};
    if (s->at == s->end)
        return scan_fail(s, "the file ends within a string");
    s->at++;
    return true;
}

bool scan_string(struct scan *s, struct slice *out)
{
    if (!scan_expect(s, '"', "a string is expected"))
        return false;
    const char *text = s->at;
    while (s->at < s->end && *s->at != '"' && *s->at != '\\' && (unsigned char)*s->at >= ' ')
        s->at++;
    if (s->at == s->end)
        return scan_fail(s, "the file ends within a string");
    if (*s->at == '\\')
        return scan_escaped(s, text, out);
    if (*s->at != '"')
        return scan_fail(s, "a control character within a string");
    *out = (struct slice){text, (size_t)(s->at - text)};
    s->at++;
    return true;
}

static bool is_digit(const struct scan *s)
{
    return s->at < s->end && *s->at >= '0' && *s->at <= '9';
}

/* Digits, the value of the first 18 in *value; returns how many. */
static int scan_digits(struct scan *s, uint64_t *value)
{
    int count = 0;
    for (; is_digit(s); s->at++, count++)
        if (count < 18)
            *value = *value * 10 + (uint64_t)(*s->at - '0');
    return count;
}

/* Up to 15 digits are one division of two exact doubles, which is rounded correctly. All else goes
 * through strtod. */
bool scan_number(struct scan *s, double *out)
{
    static const double powers[] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *text = (skip_space(s), s->at);
    const bool negative = s->at < s->end && *s->at == '-';
    uint64_t digits = 0;
    int fraction = 0;
    s->at += negative;
    const bool zero = s->at < s->end && *s->at == '0';
    const int whole = scan_digits(s, &digits);
    if (whole == 0 || (zero && whole > 1))
        return scan_fail(s, s->at == s->end ? "the file ends too early" : "a value is expected");
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if ((fraction = scan_digits(s, &digits)) == 0)
            return scan_fail(s, "digits are expected after the point");
    }
    const bool scaled = s->at < s->end && (*s->at == 'e' || *s->at == 'E');
    if (scaled) {
        uint64_t exponent = 0;
        s->at++;
        s->at += s->at < s->end && (*s->at == '-' || *s->at == '+');
        if (scan_digits(s, &exponent) == 0)
            return scan_fail(s, "digits are expected in the exponent");
    }
    if (!scaled && whole + fraction <= 15) {
        *out = (double)digits / powers[fraction];
        *out = negative ? -*out : *out;
        return true;
    }
    char buffer[512]; /* strtod needs an end; a longer number has no more to say */
    const size_t length = (size_t)(s->at - text);
    if (length >= sizeof buffer)
        return scan_fail(s, "a number of more than 500 digits");
    memcpy(buffer, text, length);
    buffer[length] = '\0';
    *out = strtod(buffer, NULL);
    return isfinite(*out) || scan_fail(s, "the number is too large");
}

static bool scan_word(struct scan *s, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0)
        return scan_fail(s, "a value is expected");
    s->at += length;
    return true;
}

static bool skip_value(struct scan *s, int depth)
{
    struct slice text;
    double number;
    if (depth == 0)
        return scan_fail(s, "objects and lists are nested too deeply");
    const char open = scan_peek(s);
    switch (open) {
    case '"':
        return scan_string(s, &text);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    case '{':
    case '[':
        break;
    default:
        return scan_number(s, &number);
    }
    const char close = open == '{' ? '}' : ']';
    s->at++;
    if (scan_accept(s, close))
        return true;
    do {
        if (open == '{' && !(scan_string(s, &text) && scan_expect(s, ':', "\":\" is expected")))
            return false;
        if (!skip_value(s, depth - 1))
            return false;
    } while (scan_accept(s, ','));
    return scan_expect(s, close,
                       open == '{' ? "\",\" or \"}\" is expected" : "\",\" or \"]\" is expected");
}

bool scan_skip(struct scan *s)
{
    return skip_value(s, DEPTH);
}

bool scan_member(struct scan *s, bool *first, struct slice *key)
{
    if (*first) {
        *first = false;
        if (!scan_expect(s, '{', "an object is expected") || scan_accept(s, '}'))
            return false;
    } else if (!scan_accept(s, ',')) {
        scan_expect(s, '}', "\",\" or \"}\" is expected");
        return false;
    }
    return scan_string(s, key) && scan_expect(s, ':', "\":\" is expected");
}

size_t scan_line(const struct scan *s)
{
    size_t line = 1;
    for (const char *c = s->start; c < s->at; c++)
        line += *c == '\n';
    return line;
}
