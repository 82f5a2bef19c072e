/*
 * Many small GETs from one server over plain HTTP, in the calling thread: for readers of samples,
 * whose speed depends on the cost of each request (docs/decisions/datasets.md).
 *
 *	struct plain *plain = NULL;
 *	struct plain_get gets[256];	// each with a head, and room for the body
 *
 *	r = plain_new(&plain, "127.0.0.1:9000", 0, err);
 *	if (r == 0)
 *		plain_run(plain, gets, 256, 2000, cancel);
 *	... each with `good` has its body; the caller repeats the others by net/http
 *	plain_free(plain);
 *
 * The client supports only the common case: HTTP/1.1, a keep-alive connection, 200 or 206 with a
 * Content-Length. Anything else ends the request without `good`: a refused or cut connection,
 * another status, a chunked body, silence. A request is sent again only in three cases: on a new
 * connection if its keep-alive connection turns out to be closed, to the server's next address if
 * the connection fails before the reply, and on another connection if the request waits much longer
 * for its reply than other requests, as long as few requests are sent again for this reason
 * (net/pace/waits.h). After many failures in a row the requests that have not started are skipped.
 */
#ifndef NET_PLAIN_PLAIN_H
#define NET_PLAIN_PLAIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;
struct plain;

struct plain_get {
	/* Set by the caller. */
	const char *head; /* the whole head of the request, with its empty line; borrowed */
	size_t head_len;
	size_t room; /* bytes; a longer body fails the request */
	void *body; /* gets the body; borrowed; NULL if `on_body` gets it, piece by piece */
	void (*on_body)(void *cookie, const void *data, size_t len);
	/* Called with the head of a 200 or 206 before its body; returns false to reject the reply.
	 * May be NULL. */
	bool (*on_head)(void *cookie, struct plain_get *get, const char *head, size_t len);
	void *cookie;

	/* Set at the end. */
	bool good;
	int status; /* 0 if there was no reply */
	size_t len; /* bytes of the body */
};

/*
 * `authority` is "HOST:PORT" or "HOST" (port 80); the host's name is resolved at the first use and
 * after a failure. A penstock store on this machine is reached over its Unix socket
 * (base/near_socket.h). `connections` is the maximum number of connections; 0 means
 * LIMIT_PLAIN_CONNECTIONS. A run uses more connections if earlier replies took longer, and half as
 * many after a 429 or 503. Sends nothing. One thread at a time may use the struct; a child after
 * fork() frees its copy and creates a new struct.
 */
int plain_new(struct plain **out, const char *authority, unsigned connections,
	struct penstock_error *err);
void plain_free(struct plain *plain);

/* Sets a flag that ends every run, in addition to the flag `cancel` of each run. */
void plain_set_cancel(struct plain *plain, const atomic_int *cancel);

/*
 * Runs all requests to their end. A request ends without `good` if it neither sends nor receives a
 * byte for `silence_ms`, or if after 5 times `silence_ms` it has received less than a byte per
 * millisecond. Once `*cancel` (may be NULL; checked every 50 ms) is set, all remaining requests end
 * without `good`.
 */
void plain_run(struct plain *plain, struct plain_get *gets, size_t n, int silence_ms,
	const atomic_int *cancel);

/* Finds a header in a reply's head, ignoring case. Returns its value without the blanks around it,
 * not terminated, or NULL if it is missing. */
const char *plain_header(const char *head, size_t len, const char *name, size_t *value_len);

/* Parses the head of a reply: `len` bytes with the empty line. Returns the status, or -1 if the
 * reply is not HTTP/1.1 with an unencoded body of known length. For plain_run() and tests. */
int plain_parse_head(const char *head, size_t len, uint64_t *body_len, bool *keep);

#endif
