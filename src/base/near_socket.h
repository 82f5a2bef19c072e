/*
 * A Unix socket beside a TCP port of the loopback, for those who are on the same machine: the same bytes, for
 * two thirds of what TCP costs (docs/decisions/near-socket.md).
 *
 *	server:	fd = near_listen(&address, &name);	`address`: what its TCP socket listens on
 *		...
 *		near_unlink(&name);			while nobody else can have the port
 *	client:	if (near_find(&address, &name))		`address`: what TCP would connect to
 *			connect to `name` in its place
 *
 * The sockets of a user lie in a directory that only he may enter: /run/user/UID/penstock, or /tmp/penstock-UID where
 * the first cannot be. So both ends are of one user, and others keep to TCP. A name is made of the address and of the
 * network name space, since a directory may be seen from several of them, each with ports of its own.
 */
#ifndef BASE_NEAR_SOCKET_H
#define BASE_NEAR_SOCKET_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

/*
 * A non-blocking socket that listens at `name`; -1: `address` is none of the loopback, or there is no directory for one.
 * The caller holds the port: whatever has the name is left from an earlier process. Removes what others left, too.
 */
int near_listen(const struct sockaddr *address, struct sockaddr_un *name);

void near_unlink(const struct sockaddr_un *name);

/* Whether somebody listens there now. */
bool near_find(const struct sockaddr *address, struct sockaddr_un *name);

/* Makes room for more of what is on its way, if `fd` is a Unix socket. */
void near_tune(int fd);

#endif
