/* tcp_socket.c - see tcp_socket.h. */
#include "runtime/comm/tcp_socket.h"

#include "runtime/device/clock.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Until the socket is ready for `events`. */
static enum err_code await(int fd, short events, double deadline_s, struct err *err)
{
    struct pollfd ready = {.fd = fd, .events = events};
    for (;;) {
        int wait_ms = -1;
        if (deadline_s > 0) {
            const double left = deadline_s - clock_now_s();
            if (left <= 0)
                return err_set(err, ERR_DEVICE, "waited until the time-out; giving up");
            wait_ms = (int)fmin(1000.0, ceil(left * 1e3));
        }
        const int rc = poll(&ready, 1, wait_ms);
        if (rc > 0)
            return ERR_OK;
        if (rc < 0 && errno != EINTR)
            return err_set(err, ERR_DEVICE, "poll: %s", strerror(errno));
    }
}

static void send_at_once(int fd)
{
    const int on = 1; /* messages are small and somebody waits for each */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static bool is_loopback(const struct sockaddr_in *address)
{
    return ntohl(address->sin_addr.s_addr) >> 24 == 127;
}

/* A listener at one address. ERR_UNSUPPORTED: it is not this machine's. */
static enum err_code listen_at(const struct sockaddr_in *address, int backlog, int *out,
                               struct err *err)
{
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, ERR_DEVICE, "socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) != 0 ||
        listen(fd, backlog) != 0) {
        const int why = errno;
        close(fd);
        return err_set(err, why == EADDRNOTAVAIL ? ERR_UNSUPPORTED : ERR_DEVICE,
                       "listen on port %u: %s", ntohs(address->sin_port), strerror(why));
    }
    *out = fd;
    return ERR_OK;
}

enum err_code tcp_listen(const char *host, uint16_t port, int backlog, int *out, struct err *err)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct addrinfo *found = NULL;
    struct err reason = {0};
    const bool loopback = strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0;
    enum err_code rc = ERR_UNSUPPORTED;
    if (getaddrinfo(host, NULL, &hints, &found) == 0) {
        memcpy(&address, found->ai_addr, sizeof address);
        freeaddrinfo(found);
        address.sin_port = htons(port);
        if (loopback || !is_loopback(&address))
            rc = listen_at(&address, backlog, out, &reason);
    }
    if (rc != ERR_UNSUPPORTED)
        return rc == ERR_OK ? rc : err_set(err, rc, "%s", reason.text);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    return listen_at(&address, backlog, out, err);
}

enum err_code tcp_accept(int listener, double deadline_s, int *out, struct err *err)
{
    TRY(await(listener, POLLIN, deadline_s, err));
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return err_set(err, ERR_DEVICE, "accept: %s", strerror(errno));
    send_at_once(fd);
    *out = fd;
    return ERR_OK;
}

/* One attempt at each address of the host; -1: none answers. */
static int try_connect(const struct addrinfo *addresses)
{
    for (const struct addrinfo *at = addresses; at; at = at->ai_next) {
        const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (fd < 0)
            continue;
        if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

enum err_code tcp_connect(const char *host, uint16_t port, double deadline_s, int *out,
                          struct err *err)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    enum { LEAST_NS = 1000000, MOST_NS = 50000000 }; /* rank 0 mostly listens in a moment */
    struct timespec rest = {.tv_nsec = LEAST_NS};
    struct addrinfo *addresses = NULL;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    const int rc = getaddrinfo(host, service, &hints, &addresses);
    if (rc != 0)
        return err_set(err, ERR_INVALID, "%s: %s", host, gai_strerror(rc));
    int fd = -1;
    while ((fd = try_connect(addresses)) < 0 && (deadline_s <= 0 || clock_now_s() < deadline_s)) {
        nanosleep(&rest, NULL);
        rest.tv_nsec = 2 * rest.tv_nsec < MOST_NS ? 2 * rest.tv_nsec : MOST_NS;
    }
    freeaddrinfo(addresses);
    if (fd < 0)
        return err_set(err, ERR_DEVICE, "nobody listens at %s:%u", host, port);
    send_at_once(fd);
    *out = fd;
    return ERR_OK;
}

bool tcp_is_closed(int fd)
{
    struct pollfd state = {.fd = fd, .events = POLLRDHUP};
    return poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

enum err_code tcp_send(int fd, const void *data, uint64_t bytes, double deadline_s, struct err *err)
{
    const char *at = data;
    while (bytes > 0) {
        TRY(await(fd, POLLOUT, deadline_s, err));
        const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (sent < 0)
            return err_set(err, ERR_DEVICE, "send: %s", strerror(errno));
        at += sent;
        bytes -= (uint64_t)sent;
    }
    return ERR_OK;
}

enum err_code tcp_receive(int fd, void *data, uint64_t bytes, double deadline_s, struct err *err)
{
    char *at = data;
    while (bytes > 0) {
        TRY(await(fd, POLLIN, deadline_s, err));
        const ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got <= 0)
            return err_set(err, ERR_DEVICE, "%s",
                           got == 0 ? "its process has ended" : strerror(errno));
        at += got;
        bytes -= (uint64_t)got;
    }
    return ERR_OK;
}
