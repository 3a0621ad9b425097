/* test_questions.c - docs/questions.md: every command in it still runs, and answers as it says. */
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PROMPT "    $ shardplan "

/* Numbers may have changed since it was made; that each command answers, and what, has not. */
static void every_command_still_answers(void **state)
{
    (void)state;
    char line[1024], arguments[1024] = "", last[1024] = "";
    int commands = 0;
    FILE *file = fopen("docs/questions.md", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, PROMPT, strlen(PROMPT)) == 0) {
            snprintf(arguments, sizeof arguments, "%s", line + strlen(PROMPT));
            last[0] = '\0';
            const int status = shardplan("%s", arguments);
            if (status < 0 || status > 1)
                fail_msg("shardplan %s: exit %d: %s", arguments, status, program_output());
            commands++;
        } else if (strncmp(line, "    ", 4) == 0 && arguments[0] && !last[0]) {
            snprintf(last, sizeof last, "%s", line + 4); /* the first line that it says */
            if (strncmp(program_output(), last, strlen(last)) != 0)
                fail_msg("shardplan %s does not begin with \"%s\"", arguments, last);
        }
    }
    fclose(file);
    assert_true(commands >= 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_still_answers),
    };
    return cmocka_run_group_tests_name("questions", tests, NULL, NULL);
}
