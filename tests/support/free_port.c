/* free_port.c - see free_port.h. */
#include "tests/support/free_port.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_free(uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool is = bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return is;
}

/* Those from 32768 on are Linux's own to give: one of these is taken again before the ranks have
 * started, now and then. */
uint16_t free_port(void)
{
    enum { LOWEST = 12000, PORTS = 20000, TRIES = 100 };
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (unsigned i = 0, at = (unsigned)getpid() * 64 + (unsigned)now.tv_nsec / 1024; i < TRIES;
         i++) {
        const uint16_t port = (uint16_t)(LOWEST + (at + i) % PORTS);
        if (is_free(port))
            return port;
    }
    fail_msg("%d ports are taken", TRIES);
    return 0;
}
