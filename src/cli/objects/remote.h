/*
 * Common parts of the verbs for object storage: options, the client, Ctrl-C, lists of objects.
 *
 *	#include "transfer/objects.h"
 *
 *	_cleanup_(remote_release) struct remote remote = { 0 };
 *
 *	remote_open(&remote, cli, err);
 *	object_head(object_at(remote.client, bucket, key), &info, err);
 *
 * The endpoint "embedded" is the embedded store, joined or started as for workflows. The embedded
 * store is the default if it exists and no other store is configured. After remote_open() SIGINT,
 * SIGTERM and SIGHUP set `cancel`, which ends every request of the engine; pass `cancel` to calls
 * that take a flag. The verb then fails, and remote_fail() returns the shell's exit code for the
 * signal.
 */
#ifndef CLI_OBJECTS_REMOTE_H
#define CLI_OBJECTS_REMOTE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/command.h"
#include "net/credentials/credentials.h"
#include "transfer/location.h"
#include "transfer/objects.h"

struct http_engine;
struct json_stream;

/* Limits the freed memory that the process keeps. Verbs with many requests call this function
 * before threads start. */
void remote_many_requests(void);

/* clang-format off */
#define LIMIT_RATE_OPTION                                                                          \
	{ 0, "limit-rate", "BYTES", "Send and receive at most this number of bytes per second, such as 500K or 10M" }
#define REMOTE_OPTIONS                                                                             \
	{ 0, "endpoint-url", "URL", "URL of the store, or 'embedded' (also in the environment or a profile); default: "            \
				    "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's, else AWS" },                  \
	{ 0, "profile", "NAME", "Credentials, region and endpoint from this AWS profile" },         \
	{ 0, "region", "NAME", "The region; default: AWS_REGION, the profile's, else us-east-1" },  \
	{ 0, "no-sign-request", NULL, "Send no credentials, for public buckets" },          \
	{ 0, "google-key", "FILE", "For gs://: the key file of a service account; default: "        \
				   "GOOGLE_APPLICATION_CREDENTIALS" }
/* clang-format on */

#define REMOTE_EXITS                                                                               \
	{"66", "There is no such bucket or object"}, {"69", "The store does not respond"},         \
	{                                                                                          \
		"77", "The store denies access, or there are no credentials"                       \
	}

/* Options of verbs that can read from one store and write to another. */
/* clang-format off */
#define SOURCE_REMOTE_OPTIONS                                                                      \
	{ 0, "source-endpoint-url", "URL", "URL of the store of s3:// sources, if not the target's" }, \
	{ 0, "source-profile", "NAME", "Credentials, region and endpoint of the sources from this AWS profile" },                    \
	{ 0, "source-region", "NAME", "Region of the sources" },                                               \
	{ 0, "source-no-sign-request", NULL, "Read the sources without credentials" }
/* clang-format on */

struct remote {
	void *embedded; /* NULL if the store is not embedded */
	struct http_engine *engine;
	struct http_engine *twin; /* for the lines of a batch with many items; may be NULL */
	struct object_client *client;
	const atomic_int *cancel;
	const char *after; /* remote_list() skips the keys up to this key; may be NULL */
	struct json_stream *json; /* set by remote_operands(); NULL for text */
	bool borrows_engine;
	bool borrowed; /* the store is owned by the batch */
};

/* Opens only the engine, without a store or credentials; remote_open() may follow. */
int remote_open_engine(struct remote *remote, struct penstock_error *err);
int remote_open(struct remote *remote, const struct cli *cli, struct penstock_error *err);
/* Like remote_open(), for a store that the caller chooses: Google's, or an S3 store. */
int remote_open_scheme(
	struct remote *remote, const struct cli *cli, bool google, struct penstock_error *err);
/* Returns true if this home has an embedded store; remote_open_embedded() opens it. */
bool remote_has_embedded(void);
int remote_open_embedded(struct remote *remote, struct penstock_error *err);
/* Opens the store that environment variables and configuration files name, for verbs that read an
 * object and do not have REMOTE_OPTIONS. */
int remote_open_default(struct remote *remote, bool google, struct penstock_error *err);
/* Returns true if SOURCE_REMOTE_OPTIONS name another store for the sources. */
bool remote_has_source(const struct cli *cli);
/* Opens the store of the sources, with the engine of `target`. */
int remote_open_source(struct remote *remote, const struct remote *target, const struct cli *cli,
	bool google, struct penstock_error *err);
void remote_release(struct remote *remote);
/* Returns the functions with which runs join the embedded store; `home` is borrowed. */
struct stores_embedded_ops remote_embedded_ops(const char *home);

/* Reads LIMIT_RATE_OPTION, for all stores that are opened from now on. Returns 0, or the exit code
 * after a message. */
int remote_limit_rate(const struct cli *cli);
/* Returns the number of parallel requests under --limit-rate; 0 if the rate does not limit the
 * number. */
unsigned remote_limit_parallel(void);
/* From now on all remotes share one engine, and remotes with the same options share one client. */
void remote_share_begin(void);
void remote_share_end(void);

/* Like cli_fail(), but prints nothing and returns 128 + the signal's number if a signal ended the
 * verb, and returns CLI_EXIT_USAGE for PENSTOCK_E_INVALID and CLI_EXIT_UNAVAILABLE for
 * PENSTOCK_E_CORRUPT. */
int remote_fail(const struct cli *cli, struct penstock_error *err);

/* Reads the options of a new object: --metadata, --part-size, --content-type, --storage-class and
 * --if-none-match. Returns 0, or the exit code of cli_misuse(). */
int remote_put_options(const struct cli *cli, struct object_put_options *out);
/* Reads --version-id, which needs a single operand. Sets `*out` to NULL if the option was not
 * given. Returns 0, or the exit code of cli_misuse(). */
int remote_version(const struct cli *cli, const char **out);
/* Parses operand `i`, s3://BUCKET/KEY or gs://BUCKET/KEY, and opens its store. The key may be
 * missing if `needs_key` is false. */
int remote_open_at(struct remote *remote, const struct cli *cli, size_t i, bool needs_key,
	struct location *at, struct penstock_error *err);
/* Formats a number of bytes, with units if --human was given. */
#define REMOTE_SIZE_SIZE 24
void remote_size(const struct cli *cli, uint64_t bytes, char out[static REMOTE_SIZE_SIZE]);

typedef int (*remote_operand_fn)(
	void *cookie, struct remote *remote, struct location *at, struct penstock_error *err);
/* Opens the store and calls `fn` for each operand, until a call fails. With `json`, sets the member
 * `json` of the remote to a stream for the calls. Returns the exit code. */
int remote_operands(
	const struct cli *cli, bool needs_key, bool json, remote_operand_fn fn, void *cookie);

/*
 * Calls `fn`, as object_list() does, for every object whose key begins with the key of `at` or
 * matches its wildcard. Sends several requests at a time, but calls `fn` in byte order of the keys.
 * Without a wildcard `delimiter` may be "/". Fails with PENSTOCK_E_NOT_FOUND if there is no object,
 * unless `at` has no key.
 */
int remote_list(struct remote *remote, const struct location *at, const char *delimiter,
	object_list_fn fn, void *cookie, struct penstock_error *err);
/* Like remote_list(), for the objects that an operand means: all that match, if the key has a
 * wildcard; all below, if the key ends in "/" or is empty; otherwise the object with that key. */
int remote_each(struct remote *remote, const struct location *at, object_list_fn fn, void *cookie,
	struct penstock_error *err);

/* Parts of `rm` and `ls`, for objects and for unfinished multipart uploads. Each returns the exit
 * code; uploads_end() aborts the uploads that are at least as old as --older-than. */
int rm_objects(const struct cli *cli);
int uploads_list(const struct cli *cli);
int uploads_end(const struct cli *cli);

#endif
