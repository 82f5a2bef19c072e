/*
 * The connections of the port. Connections of clients without a valid signature are ended if
 * clients with keys need room.
 *
 *	c = connections_opened(connections, fd, NULL);	// when the connection is accepted
 *	connections_renew(connections, c);		// when the head of a request is complete
 *	connections_known(connections, c, &account->n);	// once a header had a valid signature
 *	connections_pause(connections, c);		// before it waits
 *	connections_renew(connections, c);		// when the reply is ready
 *	connections_closed(connections, c);		// before its descriptor is closed
 *
 * A connection without a valid signature has a time window, and is ended if fewer than
 * LIMIT_SERVER_STRANGER_BYTES are sent and received in this window. Otherwise, and with each
 * request, a new window starts. During a pause the client can only wait, so no bytes are required.
 * A connection with a signature never has to move bytes.
 *
 * All connections that are not exempt are in a list, ordered by the start of their windows. The
 * oldest connection of the list is ended early if the list is longer than half of the limit, or if
 * fewer than LIMIT_SERVER_ROOM connections (or a quarter of the limit, if that is less) are free.
 * If the oldest connection is in a pause, the first connection in the older half of the list that
 * is not in a pause is ended instead, if there is one. Connections with a signature are exempt
 * while their account has at most as many connections as are left for others: one account, whose
 * clients have many addresses, must not take all connections.
 *
 * shutdown() ends a connection; its event loop then closes it. Functions may be called by any
 * thread, but functions for the same connection only by one thread at a time. A NULL connection is
 * allowed and is not counted.
 */
#ifndef SERVER_REQUEST_CONNECTIONS_H
#define SERVER_REQUEST_CONNECTIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection;
struct connections;
struct penstock_error;

/* `limit` is the number of connections that the event loops accept. */
int connections_start(
	struct connections **out, size_t limit, int64_t window_ms, struct penstock_error *err);
/* Called after the last connection was closed. `list` may be NULL. */
void connections_stop(struct connections *list);

/* Once `*leaving` is true, the next reply closes the connection; `leaving` may be NULL. Returns
 * NULL if out of memory. */
struct connection *connections_opened(struct connections *list, int fd, const atomic_bool *leaving);
bool connections_is_leaving(const struct connection *c);
/* Starts a window, and ends a pause. */
void connections_renew(struct connections *list, struct connection *c);
void connections_pause(struct connections *list, struct connection *c);
/* `account` counts the connections of the account, and must outlive the list. */
void connections_known(struct connections *list, struct connection *c, unsigned *account);
void connections_closed(struct connections *list, struct connection *c);

#endif
