/*
 * Keeps a model in service: follows the versions below a prefix of a bucket, and replaces the
 * server of an old version with a server of the newest version without a failed request.
 *
 *	r = deploy_run(&(struct deploy_options){.engine = engine, .client = s3,
 *			.bucket = "models", .prefix = "mnist/", .home = home,
 *			.command = argv, .host = "127.0.0.1", .port = 8000,
 *			.cancel = flag}, err);
 *
 * A thread looks for versions, fetches and verifies the newest version, and waits for its turn
 * among the replicas of other machines. The caller's thread starts servers, asks for their health,
 * and moves the traffic. A second process, the spare, has copies of the sockets, and takes over if
 * this process is killed. Servers survive if either process is killed.
 *
 * A version is a directory of the prefix that has a number as its name, or contains the commit of a
 * checkpoint (docs/deploy.md). Without such a directory the whole prefix is one version. A replica
 * is one deployment of the prefix; it rolls while a new version replaces the version in service.
 */
#ifndef DEPLOY_DEPLOY_H
#define DEPLOY_DEPLOY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct http_engine;
struct object_client;
struct penstock_error;

/* Ways to move the traffic from one server to the next. */
enum deploy_traffic {
	DEPLOY_SOCKET, /* this process listens, and hands a socket to each server */
	DEPLOY_REUSEPORT, /* servers listen themselves, with SO_REUSEPORT */
	DEPLOY_SIGNAL /* the server loads the new model when it gets a signal */
};

/* Strings are borrowed. */
struct deploy_options {
	struct http_engine *engine;
	struct object_client *client;
	const char *bucket;
	const char *prefix; /* "" or "a/b/" */
	const char *home; /* an existing directory */
	const char *const *command; /* NULL-terminated */
	const char *host; /* an IPv4 or IPv6 address, without brackets */
	uint16_t port; /* 0 for a free port */
	enum deploy_traffic traffic;
	int signal; /* sent to the server with DEPLOY_SIGNAL */
	const char *health; /* path or URL; if NULL, any status of "/" below 500 is healthy */
	const char *best; /* metric that selects the version; NULL for the newest version */
	bool best_is_max;
	const char *ready; /* name of an object that completes a version; may be NULL */
	int64_t interval_ms; /* time between two searches for versions */
	/* time that a version must stay unchanged if it has no commit and `ready` is NULL */
	int64_t settle_ms;
	int64_t start_ms; /* time within which a server must become healthy */
	/* time for which the old server stays ready after the new server took over */
	int64_t watch_ms;
	int64_t drain_ms; /* time after which a server that was asked to end is killed */
	uint64_t cache_size; /* maximum bytes of the versions of this model on this machine */
	unsigned unavailable; /* maximum number of replicas that roll at a time */
	bool no_state; /* write nothing to the bucket */
	const atomic_int *cancel;
};

/* Serves until `cancel` is set, then ends the servers. Fails with PENSTOCK_E_EXISTS if another
 * process deploys this prefix on this address, or listens on the address, and with
 * PENSTOCK_E_NOT_FOUND if the program does not exist, or if the bucket does not exist and there is
 * nothing to serve. */
int deploy_run(const struct deploy_options *options, struct penstock_error *err);

/* Returns true at once unless this process is a spare. In a spare, waits until the spare is needed;
 * returns false if the spare must exit. Call this function before signals are handled. */
bool deploy_is_needed(void);

/* Directory of the cached versions below HOME: HOME/models/PLACE/CONTENT. */
#define DEPLOY_MODELS "models"
/* Returns true if a live deployment of `home` needs the version or interrupted fetch `name`: the
 * deployment has or starts a server of the version, or has a state that cannot be read. */
bool deploy_needs(const char *home, const char *name);
/* Removes the version or interrupted fetch `name` in `place`, unless a deployment needs the
 * version. Returns false if the version was not removed, or not completely. */
bool deploy_remove_version(const char *home, const char *place, const char *name);

/* Prints the replicas of a prefix, and the versions in service. Fails with PENSTOCK_E_NOT_FOUND if
 * there is no replica. */
int deploy_print(struct object_client *client, const char *bucket, const char *prefix, bool json,
	FILE *out, struct penstock_error *err);

#endif
