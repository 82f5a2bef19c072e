/*
 * The HTTP side of the object store: S3's REST protocol for one struct store.
 *
 *	r = server_start(&server, &(struct server_options){ .store = store,
 *		.address = "127.0.0.1", .port = 0, .access_key_id = id,
 *		.secret_access_key = secret }, err);
 *	if (r < 0)
 *		return r;
 *	printf("listening on %s\n", server_url(server));
 *	...
 *	server_stop(server, 10000);
 *
 * Event loops (libmicrohttpd) parse, authenticate, receive bodies and serve reads; everything that
 * waits for the disk runs on worker threads or the store's committer while the connection is
 * suspended.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

struct access_log;
struct lifecycle;
struct notifier;
struct replicator;
struct penstock_error;
struct server;
struct store;

struct server_options {
	struct store *store; /* borrowed; outlives the server */
	const char *address; /* an IPv4 or IPv6 address, without brackets */
	uint16_t port; /* 0 for a free port */
	struct access_log *access_log; /* gets all requests; borrowed; may be NULL */
	struct notifier *notify; /* borrowed; may be NULL, like the next member */
	struct replicator *replicator;
	struct lifecycle *lifecycle; /* woken if rules change; borrowed; may be NULL */
	/* Keys of the first account's root; borrowed, like the store. */
	const char *access_key_id;
	const char *secret_access_key;
	int listen_fd; /* a listening TCP socket, which is taken over; 0 to open one at `address` */
	const char *log_file; /* the access log of all requests; NULL if there is none */
	const char *metrics_address; /* as `address`; NULL if there are no metrics */
	uint16_t metrics_port;
	const char *accounts; /* a file with more accounts; may be NULL */
	const char
		/* comma-separated domains, whose subdomains name buckets; may be NULL; borrowed */
		*domain;
	const char *tls_cert, *tls_key; /* files in PEM; NULL for plain HTTP; borrowed */
};

int server_start(
	struct server **out, const struct server_options *options, struct penstock_error *err);
/* Returns "http://127.0.0.1:40123", or "https://…". */
const char *server_url(const struct server *server);
/* Returns "http://127.0.0.1:40124/metrics", or NULL if there are no metrics. */
const char *server_metrics_url(const struct server *server);
/* Reads the certificate and its key again if their files have changed, or if `forced`. New
 * connections get the new certificate, and earlier connections end with their next reply. If the
 * new certificate is invalid, the old certificate stays in use. Call this function regularly: it
 * also stops the daemons of older certificates whose connections have ended. */
int server_renew_tls(struct server *server, bool forced, struct penstock_error *err);
/* Opens the access log again, after it was renamed. */
int server_reopen_log(struct server *server, struct penstock_error *err);
/* Return the number of requests in progress, and the monotonic time (ns) at which the last request
 * began or ended. */
unsigned server_active(const struct server *server);
int64_t server_last_activity(const struct server *server);
/* Accepts no more connections, waits for requests in progress, and frees everything. After
 * `drain_ms` a request that has not yet started its work is refused. `server` may be NULL. */
void server_stop(struct server *server, int drain_ms);

#endif
