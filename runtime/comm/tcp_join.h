/* tcp_join.h - how the ranks of comm_tcp.c find each other.
 *
 *     rank r     connect ---- hello: magic, token, r of n ---->     rank 0
 *                        <--- welcome: the same magic and token
 *
 * Rank 0 listens where it is told and takes connections as they come, so that nobody who connects
 * and says nothing is in another's way. Who does not say the job's token, or says nothing for some
 * seconds, or is a rank that has come already, is turned away, and the start goes on. */
#ifndef SHARDPLAN_TCP_JOIN_H
#define SHARDPLAN_TCP_JOIN_H

#include "runtime/comm/comm.h"

/* Connects rank 0 with all others: in `sockets` (ranks) rank 0 has one to each other rank, these
 * have sockets[0]. What is not open is -1, also after a failure; the caller closes. ERR_DEVICE: not
 * all came before the time-out (0: none); ERR_INVALID: no such host or token. */
enum err_code tcp_join(const struct comm_meeting *at, uint32_t rank, uint32_t ranks,
                       double timeout_s, int *sockets, struct err *err);

#endif
