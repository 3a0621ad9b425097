/* tcp_socket.h - sockets of comm_tcp.c: connecting, and moving whole messages before a deadline. */
#ifndef SHARDPLAN_TCP_SOCKET_H
#define SHARDPLAN_TCP_SOCKET_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* A socket that listens at the host's address, where that is one of this machine's. Of a name that
 * this machine knows for its own loopback (Debian's 127.0.1.1), and of an address of somebody
 * else's (behind a translation), we do not know where others reach it: then on all addresses. The
 * caller owns *out: close. */
enum err_code tcp_listen(const char *host, uint16_t port, int backlog, int *out, struct err *err);

/* The next connection to it. A deadline is a time of clock_now_s; 0: none. */
enum err_code tcp_accept(int listener, double deadline_s, int *out, struct err *err);

/* Connects to host:port, trying again until something listens there. */
enum err_code tcp_connect(const char *host, uint16_t port, double deadline_s, int *out,
                          struct err *err);

/* Whether the other end has closed the connection, or its process has ended. */
bool tcp_is_closed(int socket);

/* Moves all of it. ERR_DEVICE: the other end is gone, or the deadline has passed. */
enum err_code tcp_send(int socket, const void *data, uint64_t bytes, double deadline_s,
                       struct err *err);
enum err_code tcp_receive(int socket, void *data, uint64_t bytes, double deadline_s,
                          struct err *err);

#endif
