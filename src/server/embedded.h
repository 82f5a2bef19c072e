/*
 * The embedded store: one owner process per root directory, started on demand by whoever needs it,
 * gone a few seconds after its last user.
 *
 *	_cleanup_(embedded_store_freep) struct embedded_store *store = NULL;
 *
 *	if (embedded_store_acquire(&store, &(struct embedded_store_options){ .root = root }, err) <
 *0) return -1;
 *	... embedded_store_endpoint(store) "http://127.0.0.1:40123", path-style addressing ...
 *
 * Acquire takes a shared lock on ROOT/users, and while anybody holds one the owner stays. The
 *kernel drops the lock when its holder dies in whatever way, so nothing has to be cleaned up after
 *a kill -9. A child process keeps the store alive only if it acquires it itself: the descriptor is
 * close-on-exec. The owner runs in a session of its own with no inherited descriptors, survives
 * the process that started it, and writes what it has to say to ROOT/server.log.
 *
 * Files in ROOT that belong to this protocol:
 *	lock         exclusively locked by the owner for its lifetime; holds its start token
 *	users        a shared lock per user; the owner leaves once it could lock it exclusively for
 *	             2.5 s, and holds that lock until it is gone, so that a newcomer waits and
 *starts anew start        exclusively locked by the newcomer that looks for, or starts, an owner
 *	owner.json   {"pid", "token", "endpoint", "access_key_id", "keys"}, 0600, replaced atomically once
 *the owner accepts credentials  an AWS-style credentials file (profile "default"), 0600: the
 *store's own keys
 *
 * An owner that was started by hand (`penstock serve --root ROOT`) is used as it is; where its keys
 * came from its environment, the caller must have the same in PENSTOCK_ACCESS_KEY_ID and
 * PENSTOCK_SECRET_ACCESS_KEY.
 */
#ifndef SERVER_EMBEDDED_H
#define SERVER_EMBEDDED_H

#include <stdbool.h>

struct penstock_error;
struct embedded_store;

struct embedded_store_options {
	const char *root;	/* created (0700) where missing */
	const char *executable; /* of the owner; NULL: /proc/self/exe */
	bool relaxed;		/* only for an owner that this call starts */
	int timeout_ms;		/* for the owner to accept; 0: 30 s */
};

/*
 * Returns once the owner accepts requests. Blocks; may be called from any thread, and several times
 * by one process. PENSTOCK_E_UNAVAILABLE: no owner came up in time; the message has its last line.
 */
int embedded_store_acquire(struct embedded_store **out,
	const struct embedded_store_options *options, struct penstock_error *err);
/* Drops the lock; the owner leaves by itself when nobody else has one. NULL is fine. */
void embedded_store_free(struct embedded_store *store);

/* All valid until the store is freed. */
const char *embedded_store_endpoint(const struct embedded_store *store);
const char *embedded_store_access_key_id(const struct embedded_store *store);
const char *embedded_store_secret_access_key(const struct embedded_store *store);
/* Whether this call started the owner (for the one line that announces it). */
bool embedded_store_started(const struct embedded_store *store);
/* The owner's process. */
int embedded_store_pid(const struct embedded_store *store);

static inline void embedded_store_freep(struct embedded_store **store)
{
	embedded_store_free(*store);
}

#endif
