/*
 * The embedded store: each root directory has one owner process, which starts on demand and exits a
 * few seconds after its last user.
 *
 *	_cleanup_(embedded_store_freep) struct embedded_store *store = NULL;
 *
 *	if (embedded_store_acquire(&store, &(struct embedded_store_options){ .root = root },
 *			err) < 0)
 *		return -1;
 *	... store->endpoint with the keys of store->account, path-style addressing ...
 *
 * embedded_store_acquire() takes a shared lock on ROOT/users; the owner stays while any process
 * holds such a lock.
 * The kernel drops the lock when its holder dies for any reason, so nothing has to be cleaned up
 * after a kill -9. A child process keeps the owner alive only if the child acquires the store
 * itself: the descriptor is close-on-exec. The owner runs in its own session with no inherited
 * descriptors, survives the process that started it, and logs to ROOT/server.log.
 *
 * Files in ROOT that belong to this protocol:
 *	lock		exclusively locked by the owner for its lifetime; contains its start token
 *	users		a shared lock per user; the owner exits if there was no user for 2.5 s: it
 *			locks this file exclusively until it has exited; a new user waits for
 *			that lock and then starts another owner
 *	start		exclusively locked by the user that looks for, or starts, an owner
 *	owner.json	{"pid", "token", "endpoint", "access_key_id", "keys"}, 0600, replaced
 *			atomically once the owner accepts requests
 *	credentials	an AWS-style credentials file (profile "default"), 0600: the keys of the
 *			store
 *
 * An owner that was started manually (`penstock serve --root ROOT`) is used as it is; if its keys
 * come from its environment, the caller must have the same keys in PENSTOCK_ACCESS_KEY_ID and
 * PENSTOCK_SECRET_ACCESS_KEY.
 */
#ifndef SERVER_EMBEDDED_H
#define SERVER_EMBEDDED_H

#include <stdbool.h>

#include "server/request/account.h"

struct penstock_error;

/* Read-only for users. */
struct embedded_store {
	char *endpoint; /* "http://127.0.0.1:40123" */
	struct account account; /* keys of the store */
	int pid; /* pid of the owner */
	bool started; /* this call has started the owner */
	int users_fd; /* holds the shared lock */
	char *root;
};

struct embedded_store_options {
	const char *root; /* created (0700) if missing */
	const char *executable; /* program of the owner; NULL for /proc/self/exe */
	bool relaxed; /* relaxed durability, only for an owner that this call starts */
	int timeout_ms; /* time for the owner to accept requests; 0 for 30 s */
};

/*
 * Returns once the owner accepts requests. Blocks; may be called from any thread, and several times
 * by one process. Fails with PENSTOCK_E_UNAVAILABLE if no owner accepts requests in time, or if the
 * owner cannot start; the message then has the first line that the owner has printed.
 */
int embedded_store_acquire(struct embedded_store **out,
	const struct embedded_store_options *options, struct penstock_error *err);
/* Drops the lock on ROOT/users; the owner exits once it has no users. `store` may be NULL. */
void embedded_store_free(struct embedded_store *store);

static inline void embedded_store_freep(struct embedded_store **store)
{
	embedded_store_free(*store);
}

#endif
