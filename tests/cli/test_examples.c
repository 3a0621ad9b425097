/* test_examples.c - README.md and docs/guide.md: each command in them prints what they show.
 *
 * A command is a line "    $ build/shardplan ...", which a backslash may continue; what it prints
 * follows, with "..." where lines are left out. Lines are to come in that order; how long a search
 * took may differ. Left alone is what is measured, and what is asked of files that other lines of
 * the page make. */
#include "tests/support/program.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROMPT "    $ "
#define PROGRAM PROMPT "build/shardplan "

enum { LINE = 1024 };

struct page {
    const char *name;
    FILE *file;
    char line[LINE];
    bool ended;
};

static void next_line(struct page *page)
{
    page->ended = !fgets(page->line, sizeof page->line, page->file);
    if (page->ended)
        page->line[0] = '\0';
    size_t length = strlen(page->line);
    while (length > 0 && isspace((unsigned char)page->line[length - 1]))
        page->line[--length] = '\0';
}

static bool is_of_this_machine(const char *arguments)
{
    static const char *const words[] = {"calibrate ", "run ", "compare ",   "mine.json",
                                        "mamba2.str", "-o ",  "qwen.stream"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(arguments, words[i]))
            return true;
    return false;
}

/* Without ", in 0.71 s" at its end. */
static size_t lasting_part(const char *line)
{
    const char *took = strstr(line, ", in ");
    return took && isdigit((unsigned char)took[5]) ? (size_t)(took - line) : strlen(line);
}

/* Where the line stands in what the program printed from `said` on: behind it; NULL: nowhere. */
static const char *find_line(const char *said, const char *line)
{
    const size_t length = lasting_part(line);
    while (*said) {
        const size_t said_length = strcspn(said, "\n");
        if (said_length >= length && strncmp(said, line, length) == 0 &&
            (line[length] || strspn(said + length, " ") == said_length - length))
            return said + said_length;
        said += said_length + (said[said_length] == '\n');
    }
    return NULL;
}

/* Runs the command that the page is at, and goes through the lines that it shows. Returns how many.
 */
static int check_command(struct page *page)
{
    char arguments[4 * LINE];
    int shown = 0;
    snprintf(arguments, sizeof arguments, "%s", page->line + strlen(PROGRAM));
    for (size_t length; (length = strlen(arguments)) && arguments[length - 1] == '\\';) {
        next_line(page);
        snprintf(arguments + length - 1, sizeof arguments - length + 1, "%s", page->line);
    }
    next_line(page);
    if (is_of_this_machine(arguments))
        return 0;
    const int status = shardplan("%s", arguments);
    if (status < 0 || status > 1)
        fail_msg("%s: shardplan %s: exit %d: %s", page->name, arguments, status, program_output());
    const char *said = program_output();
    for (; strncmp(page->line, PROMPT, strlen(PROMPT)) != 0 &&
           (!page->line[0] || strncmp(page->line, "    ", 4) == 0) && !page->ended;
         next_line(page)) {
        const char *line = page->line[0] ? page->line + 4 : "";
        if (strcmp(line + strspn(line, " "), "...") == 0 || !*line)
            continue;
        const char *behind = find_line(said, line);
        if (!behind)
            fail_msg("%s: shardplan %s does not say, there,\n%s\nbut\n%s", page->name, arguments,
                     line, said);
        said = behind;
        shown++;
    }
    return shown;
}

static int check_page(const char *name)
{
    struct page page = {.name = name, .file = fopen(name, "r")};
    int shown = 0;
    assert_non_null(page.file);
    for (next_line(&page); !page.ended;) {
        if (strncmp(page.line, PROGRAM, strlen(PROGRAM)) == 0)
            shown += check_command(&page);
        else
            next_line(&page);
    }
    fclose(page.file);
    return shown;
}

static void the_front_page_shows_what_is_printed(void **state)
{
    (void)state;
    assert_true(check_page("README.md") > 50);
}

static void the_guide_shows_what_is_printed(void **state)
{
    (void)state;
    assert_true(check_page("docs/guide.md") > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_front_page_shows_what_is_printed),
        cmocka_unit_test(the_guide_shows_what_is_printed),
    };
    return cmocka_run_group_tests_name("examples", tests, NULL, NULL);
}
