/*
 * The connections of the port. Clients without a valid signature leave room for clients with keys.
 *
 *	c = connections_opened(connections, fd);	// when the connection is accepted
 *	connections_known(connections, c);		// once a signature was valid
 *	connections_closed(connections, c);		// before its descriptor is closed
 *
 * A connection without a valid signature is ended LIMIT_SERVER_STRANGER_SECONDS after it was
 * opened. The oldest such connection is ended earlier if fewer than LIMIT_SERVER_ROOM connections
 * (or a quarter of the limit, if that is less) are free. shutdown() ends a connection; its event
 * loop then closes it. Functions may be called by any thread, those for one connection by one
 * thread at a time. A NULL connection is allowed and is not counted.
 */
#ifndef SERVER_REQUEST_CONNECTIONS_H
#define SERVER_REQUEST_CONNECTIONS_H

#include <stddef.h>

struct connection;
struct connections;
struct penstock_error;

/* `limit` is the number of connections that the event loops accept. */
int connections_start(struct connections **out, size_t limit, struct penstock_error *err);
/* Called after the last connection was closed. `list` may be NULL. */
void connections_stop(struct connections *list);

/* Returns NULL if out of memory. */
struct connection *connections_opened(struct connections *list, int fd);
void connections_known(struct connections *list, struct connection *c);
void connections_closed(struct connections *list, struct connection *c);

#endif
