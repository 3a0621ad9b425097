/* program.c - see program.h. */
#include "tests/support/program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static char output[1 << 20];

int shardplan(const char *fmt, ...)
{
    char arguments[2048], command[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(arguments, sizeof arguments, fmt, args);
    va_end(args);
    const char *program = getenv("SHARDPLAN");
    snprintf(command, sizeof command, "timeout -k 2 120 %s %s 2>&1",
             program ? program : "build/shardplan", arguments);
    output[0] = '\0';
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return -1;
    const size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

char *program_output(void)
{
    return output;
}
