/*
 * A Unix socket that serves the same bytes as a TCP port of the loopback interface, for clients on
 * the same machine, at two thirds of the cost of TCP (docs/decisions/near-socket.md).
 *
 *	server:  fd = near_listen(&address, &name);  `address` of its TCP socket
 *		...
 *		near_unlink(&name);			while no other process can have the port
 *	client:	if (near_find(&address, &name))		`address` that TCP would connect to
 *			connect to `name` instead
 *
 * The sockets of a user are in a directory that only this user can enter: /run/user/UID/penstock,
 * or /tmp/penstock-UID if the first cannot exist. So both ends belong to the same user; other users
 * use TCP. The name consists of the address and of the network namespace, since a directory may be
 * visible from several namespaces, each with its own ports.
 */
#ifndef BASE_NEAR_SOCKET_H
#define BASE_NEAR_SOCKET_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

/*
 * Sets `name` and returns a non-blocking socket that listens on `name`. Returns -1 if `address` is
 * not a loopback address, or if neither directory can be used. The caller holds the port, so an
 * existing socket of that name is left over from an earlier process and is replaced. Removes stale
 * sockets, too.
 */
int near_listen(const struct sockaddr *address, struct sockaddr_un *name);

void near_unlink(const struct sockaddr_un *name);

/* Returns true, and sets `name`, if a server for `address` listens on `name` now. */
bool near_find(const struct sockaddr *address, struct sockaddr_un *name);

/* Enlarges the send buffer if `fd` is a Unix socket. */
void near_tune(int fd);

#endif
