/* free_port.h - a port for ranks that meet on this machine. */
#ifndef SHARDPLAN_TESTS_FREE_PORT_H
#define SHARDPLAN_TESTS_FREE_PORT_H

#include <stdint.h>

/* One of the loopback's that nobody listens at now and that Linux gives to no connection by itself.
 * Ends the test if a hundred of them are taken. */
uint16_t free_port(void);

#endif
