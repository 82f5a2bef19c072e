/*
 * What the verbs that look at object storage share: their options, one client, Ctrl-C, lists of
 * objects.
 *
 *	_cleanup_(remote_release) struct remote remote = { 0 };
 *
 *	remote_open(&remote, cli, err);
 *	object_head(remote.client, bucket, key, &info, err);
 *
 * "--endpoint-url embedded" is the store that workflows know by that name, joined or started as for
 * them. From remote_open() on SIGINT, SIGTERM and SIGHUP set `cancel`. It ends every request of the
 * engine, and is to be given to every call that takes a flag; the verb then ends with an error, and
 * remote_fail() gives the shell's code for it.
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

/* For verbs that make many requests, before any thread is: bounds what freed memory is kept. */
void remote_many_requests(void);

/* clang-format off */
#define REMOTE_OPTIONS                                                                              \
	{ 0, "endpoint-url", "URL", "The store to talk to, or \"embedded\"; default: "            \
				    "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's, else AWS" },                  \
	{ 0, "profile", "NAME", "Credentials, region and endpoint from this AWS profile" },         \
	{ 0, "region", "NAME", "The region; default: AWS_REGION, the profile's, else us-east-1" },  \
	{ 0, "no-sign-request", NULL, "Anonymously: for buckets that everybody may read" },          \
	{ 0, "google-key", "FILE", "For gs://: the key file of a service account; default: "        \
				   "GOOGLE_APPLICATION_CREDENTIALS" }
/* clang-format on */

#define REMOTE_EXITS                                                                               \
	{"66", "There is no such bucket or object"}, {"69", "The store does not answer"},          \
	{                                                                                          \
		"77", "The store refuses, or there are no credentials"                             \
	}

/* Of verbs that read from one store and write to another. */
/* clang-format off */
#define SOURCE_REMOTE_OPTIONS                                                                       \
	{ 0, "source-endpoint-url", "URL", "The store that s3:// sources are in, where it is another one" }, \
	{ 0, "source-profile", "NAME", "Its credentials, region and endpoint" },                    \
	{ 0, "source-region", "NAME", "Its region" },                                               \
	{ 0, "source-no-sign-request", NULL, "Read it anonymously" }
/* clang-format on */

struct remote {
	void *embedded; /* NULL: another one */
	struct http_engine *engine;
	struct http_engine *twin; /* of a batch: for whatever has many items; NULL: none */
	struct object_client *client;
	const atomic_int *cancel;
	bool borrows_engine;
	bool borrowed; /* all of it: of a batch */
};

/* Only the engine, without a store or credentials; also of one that is to be opened later. */
int remote_open_engine(struct remote *remote, struct penstock_error *err);
int remote_open(struct remote *remote, const struct cli *cli, struct penstock_error *err);
/* Whether SOURCE_REMOTE_OPTIONS say that sources are in another store; then that store, with the
 * same engine. */
bool remote_has_source(const struct cli *cli);
int remote_open_source(struct remote *remote, const struct remote *beside, const struct cli *cli,
	bool google, struct penstock_error *err);
void remote_release(struct remote *remote);
/* The way to join the embedded store, for runs; `home` is borrowed. */
struct stores_embedded_ops remote_embedded_ops(const char *home);

/* From now on all remotes have one engine, and those that were asked for in the same words are
 * one. */
void remote_share_begin(void);
void remote_share_end(void);

/* cli_fail(), but 128 + the signal's number where one ended it. */
int remote_fail(const struct cli *cli, struct penstock_error *err);

/* The values of --metadata. 0, or cli_misuse(): one is not NAME=VALUE, or cannot be a header. */
int remote_metadata(const struct cli *cli, const struct strlist **out);
/* Whether the last operand that names an object is one of gs://: that is the store to open. */
bool remote_is_google(const struct cli *cli);
/* An error where the operand is gs:// and the store that was opened is not Google's, or the other
 * way. */
int remote_fits(const struct remote *remote, const struct location *at, struct penstock_error *err);
/* An operand that must be s3://BUCKET or s3://BUCKET/KEY, or gs://; `needs_key` refuses the
 * former. */
int remote_location(
	const char *text, bool needs_key, struct location *out, struct penstock_error *err);

/* Where an object was not found because its bucket is not there, the error says so instead: a
 * HEAD's answer cannot. Returns the -code. */
int remote_missing(struct remote *remote, const struct location *at, struct penstock_error *err);

/* As object_list(), with several requests at a time: in byte order of the keys whatever the store
 * does, and a store that is far away keeps nobody waiting. */
int remote_list(struct remote *remote, const char *bucket, const char *prefix,
	const char *delimiter, object_list_fn fn, void *cookie, struct penstock_error *err);

/*
 * Calls `fn` for every object that an operand means: that of the key; with a wildcard all that
 * match; with a trailing "/", or no key at all, all below. PENSTOCK_E_NOT_FOUND: none. `fn` is
 * object_list()'s.
 */
int remote_each(struct remote *remote, const struct location *at, object_list_fn fn, void *cookie,
	struct penstock_error *err);

#endif
