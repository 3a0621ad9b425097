/* style.c - see style.h. */
#include "report/style.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct style style_of(FILE *file)
{
    const int number = fileno(file); /* -1: the file is memory */
    if (number >= 0 && isatty(number))
        return (struct style){"\x1b[1m", "\x1b[2m", "\x1b[1;32m", "\x1b[1;31m", "\x1b[0m"};
    return (struct style){"", "", "", "", ""};
}

int style_columns(FILE *file)
{
    struct winsize size;
    const int number = fileno(file); /* -1: the file is memory */
    if (number < 0 || !isatty(number) || ioctl(number, TIOCGWINSZ, &size) != 0 || !size.ws_col)
        return STYLE_COLUMNS;
    return size.ws_col;
}

void style_wrapped(FILE *file, int indent, const char *text)
{
    const int columns = style_columns(file);
    int used = fprintf(file, "%*s", indent, "");
    for (const char *at = text; *at;) {
        const int length = (int)strcspn(at, " ");
        if (at > text && used + 1 + length > columns)
            used = fprintf(file, "\n%*s", indent + 2, "") - 1;
        else if (at > text)
            used += fprintf(file, " ");
        used += fprintf(file, "%.*s", length, at);
        at += length + (at[length] == ' ');
    }
    fputc('\n', file);
}

const char *style_grouped(uint64_t number, char text[32])
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, number);
    int used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

const char *style_bytes(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"GiB", "MiB", "KiB"};
    double size = (double)bytes / 0x1p30;
    int unit = 0;
    for (; size < 0.01 && unit < 2; unit++)
        size *= 1024;
    snprintf(text, 32, "%.2f %s", size, units[unit]);
    return text;
}

void style_bar(FILE *file, double share, int width)
{
    const int length = (int)(share * width + 0.5);
    for (int i = 0; i < length; i++)
        fputs(i ? "\xe2\x96\x88" : "  \xe2\x96\x88", file); /* full block */
}
