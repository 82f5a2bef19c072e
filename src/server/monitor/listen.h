/*
 * Sockets that accept TCP connections.
 *
 *	fd = listen_on("127.0.0.1", 0, err);
 *	if (fd >= 0)
 *		r = listen_url(fd, "http", &url, err);	// "http://127.0.0.1:40123"
 */
#ifndef SERVER_MONITOR_LISTEN_H
#define SERVER_MONITOR_LISTEN_H

#include <stdint.h>

struct penstock_error;

/* Returns a socket that does not block. Port 0 selects a free port. Fails with PENSTOCK_E_EXISTS if
 * the port is in use, PENSTOCK_E_INVALID if the address does not belong to this machine. */
int listen_on(const char *address, uint16_t port, struct penstock_error *err);
/* Gets "SCHEME://ADDRESS:PORT" of a socket from listen_on(); free() the text. */
int listen_url(int fd, const char *scheme, char **url, struct penstock_error *err);

#endif
