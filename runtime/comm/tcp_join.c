/* tcp_join.c - see tcp_join.h. */
#include "runtime/comm/tcp_join.h"

#include "base/arena.h"
#include "runtime/comm/tcp_socket.h"
#include "runtime/device/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC 0x32726472616873ULL /* "shardr2": what a rank says first, with its version */

enum {
    GUESTS_MOST = 256, /* connections that have not said who they are; the oldest goes then */
    BACKLOG = 512
};

static const double HELLO_S = 5; /* it is sent right after connecting */

struct hello {
    uint64_t magic;
    char token[COMM_TOKEN_BYTES]; /* filled up with zeros */
    uint32_t rank, ranks;
};

struct guest {
    int fd;
    uint32_t got; /* bytes of the hello */
    double until_s;
    struct hello hello;
};

struct party { /* rank 0's */
    const struct comm_meeting *at;
    struct hello own;
    int listener;
    int *sockets;
    uint32_t ranks, come;
    struct guest guests[GUESTS_MOST]; /* in the order of their coming */
    uint32_t guest_count;
    char turned[128]; /* who was turned away last, and had the token */
};

/* Takes as long whatever the bytes are, so that nobody can find them out one by one. */
static bool same_token(const char a[COMM_TOKEN_BYTES], const char b[COMM_TOKEN_BYTES])
{
    volatile unsigned char different = 0;
    for (int i = 0; i < COMM_TOKEN_BYTES; i++)
        different = (unsigned char)(different | (a[i] ^ b[i]));
    return different == 0;
}

static enum err_code make_hello(const struct comm_meeting *at, uint32_t rank, uint32_t ranks,
                                struct hello *hello, struct err *err)
{
    const size_t length = strlen(at->token);
    memset(hello, 0, sizeof *hello);
    if (length >= COMM_TOKEN_BYTES)
        return err_set(err, ERR_INVALID, "a token of %zu characters: at most %d are allowed",
                       length, COMM_TOKEN_BYTES - 1);
    hello->magic = MAGIC;
    memcpy(hello->token, at->token, length);
    hello->rank = rank;
    hello->ranks = ranks;
    return ERR_OK;
}

/* ---- rank 0 ---- */

static void dismiss(struct party *p, uint32_t g, bool closed)
{
    if (closed)
        close(p->guests[g].fd);
    p->guest_count--;
    memmove(&p->guests[g], &p->guests[g + 1], (p->guest_count - g) * sizeof *p->guests);
}

static void receive_guest(struct party *p)
{
    int fd = -1;
    if (tcp_accept(p->listener, clock_now_s() + 1, &fd, NULL) != ERR_OK)
        return; /* gone again */
    if (p->guest_count == GUESTS_MOST)
        dismiss(p, 0, true);
    p->guests[p->guest_count++] = (struct guest){.fd = fd, .until_s = clock_now_s() + HELLO_S};
}

/* A guest has said all of its hello. */
static void seat(struct party *p, uint32_t g)
{
    const struct hello *hello = &p->guests[g].hello;
    const int fd = p->guests[g].fd;
    const bool known = hello->magic == MAGIC && same_token(hello->token, p->own.token);
    const bool expected = hello->ranks == p->ranks && hello->rank > 0 && hello->rank < p->ranks &&
                          p->sockets[hello->rank] < 0;
    if (known && expected &&
        tcp_send(fd, &p->own, sizeof p->own, clock_now_s() + HELLO_S, NULL) == ERR_OK) {
        p->sockets[hello->rank] = fd;
        p->come++;
        dismiss(p, g, false);
        return;
    }
    if (known)
        snprintf(p->turned, sizeof p->turned,
                 "; rank %u of %u was turned away, which is none of %u or a second", hello->rank,
                 hello->ranks, p->ranks);
    dismiss(p, g, true);
}

/* Reads on what a guest says; whether it is still one. */
static void listen_to(struct party *p, uint32_t g)
{
    struct guest *guest = &p->guests[g];
    const ssize_t got = recv(guest->fd, (char *)&guest->hello + guest->got,
                             sizeof guest->hello - guest->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        dismiss(p, g, true);
        return;
    }
    guest->got += (uint32_t)got;
    if (guest->got == sizeof guest->hello)
        seat(p, g);
}

/* Until something is to be done. */
static enum err_code look_around(struct party *p, double deadline_s, struct err *err)
{
    struct pollfd ready[GUESTS_MOST + 1];
    const double now = clock_now_s();
    if (deadline_s > 0 && now >= deadline_s)
        return err_set(err, ERR_DEVICE, "waited until the time-out; giving up");
    for (uint32_t g = p->guest_count; g-- > 0;)
        if (now >= p->guests[g].until_s)
            dismiss(p, g, true);
    for (uint32_t g = 0; g < p->guest_count; g++)
        ready[g] = (struct pollfd){.fd = p->guests[g].fd, .events = POLLIN};
    ready[p->guest_count] = (struct pollfd){.fd = p->listener, .events = POLLIN};
    if (poll(ready, p->guest_count + 1, 100) < 0 && errno != EINTR)
        return err_set(err, ERR_DEVICE, "poll: %s", strerror(errno));
    const bool door = ready[p->guest_count].revents != 0;
    for (uint32_t g = p->guest_count; g-- > 0;) /* who goes moves only those behind */
        if (ready[g].revents)
            listen_to(p, g);
    if (door)
        receive_guest(p);
    return ERR_OK;
}

static enum err_code receive_all(struct party *p, double deadline_s, struct err *err)
{
    TRY(tcp_listen(p->at->host, p->at->port, BACKLOG, &p->listener, err));
    enum err_code rc = ERR_OK;
    while (p->come < p->ranks && rc == ERR_OK)
        rc = look_around(p, deadline_s, err);
    while (p->guest_count > 0)
        dismiss(p, 0, true);
    close(p->listener);
    if (rc != ERR_OK) {
        struct err why = *err;
        *err = (struct err){0};
        err_set(err, rc, "%u of %u ranks have come: %s%s", p->come, p->ranks, why.text, p->turned);
    }
    return rc;
}

/* ---- the others ---- */

static enum err_code introduce(const struct comm_meeting *at, const struct hello *own,
                               double deadline_s, int *fd, struct err *err)
{
    struct hello answer;
    TRY(tcp_connect(at->host, at->port, deadline_s, fd, err));
    TRY(tcp_send(*fd, own, sizeof *own, deadline_s, err));
    if (tcp_receive(*fd, &answer, sizeof answer, deadline_s, err) != ERR_OK)
        return err_context(err, "no welcome: who listens there is none of this job's (do all ranks "
                                "have the same " COMM_TOKEN_VARIABLE "?), or has such a rank "
                                "already");
    if (answer.magic == MAGIC && same_token(answer.token, own->token) && answer.rank == 0)
        return ERR_OK;
    return err_set(err, ERR_DEVICE, "who listens there is not rank 0 of this job");
}

enum err_code tcp_join(const struct comm_meeting *at, uint32_t rank, uint32_t ranks,
                       double timeout_s, int *sockets, struct err *err)
{
    const double deadline_s = timeout_s > 0 ? clock_now_s() + timeout_s : 0;
    struct hello own;
    for (uint32_t r = 0; r < ranks; r++)
        sockets[r] = -1;
    TRY(make_hello(at, rank, ranks, &own, err));
    if (rank > 0)
        return introduce(at, &own, deadline_s, &sockets[0], err);
    struct party *p = xcalloc(1, sizeof *p);
    struct err found = {0};
    *p = (struct party){.at = at, .own = own, .sockets = sockets, .ranks = ranks, .come = 1};
    enum err_code rc = receive_all(p, deadline_s, &found);
    free(p);
    return rc == ERR_OK ? ERR_OK : err_set(err, rc, "%s", found.text);
}
