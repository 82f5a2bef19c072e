#include "cli/objects/remote.h"

#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/frame/interrupt.h"
#include "cli/print/util.h"
#include "copy/copy.h"
#include "net/http/http.h"
#include "run/stage/stores.h"
#include "server/embedded.h"
#include "store/header.h"
#include "transfer/listing.h"

#define EMBEDDED_OPTION "--endpoint-url embedded"

static int join_embedded(
	const char *home, void **handle, struct store_place *place, struct penstock_error *err)
{
	_cleanup_free_ char *root = path_join(home, "store");
	struct embedded_store *store = NULL;
	int r;

	if (!root)
		return error_memory(err);
	r = embedded_store_acquire(&store, &(struct embedded_store_options){.root = root}, err);
	if (r < 0)
		return r;
	place->endpoint_url = store->endpoint;
	place->access_key_id = store->account.access_key_id;
	place->secret_access_key = store->account.secret_access_key;
	*handle = store;
	return 0;
}

static void leave_embedded(void *handle)
{
	embedded_store_free(handle);
}

struct stores_embedded_ops remote_embedded_ops(const char *home)
{
	return (struct stores_embedded_ops){join_embedded, leave_embedded, home};
}

/* Returns the exit code of cli_misuse() if a value is not NAME=VALUE or cannot be a header, or if a
 * name is given twice; else 0. */
static int check_metadata(const struct cli *cli, const struct strlist *given)
{
	/* Characters of a header name. */
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < given->n; i++) {
		const char *text = given->items[i], *value = strchr(text, '=');
		size_t n = value ? (size_t)(value - text) : 0;

		if (!n)
			return cli_misuse(
				cli, "invalid --metadata '%s': it is not NAME=VALUE", text);
		if (strspn(text, letters) < n)
			return cli_misuse(cli,
				"invalid --metadata '%s': use letters, digits, '-', '_' and '.' in "
				"the name",
				text);
		if (!store_header_is_value(value))
			return cli_misuse(cli,
				"invalid --metadata '%.*s': the value has a control character",
				(int)n, text);
		for (size_t j = 0; j < i; j++) {
			if (strncasecmp(given->items[j], text, n + 1) == 0)
				return cli_misuse(
					cli, "--metadata names '%.*s' twice", (int)n, text);
		}
	}
	return 0;
}

static struct http_limit limit = {.lock = PTHREAD_MUTEX_INITIALIZER};

int remote_limit_rate(const struct cli *cli)
{
	const char *text = cli_value(cli, "limit-rate");
	uint64_t bytes;

	if (!text)
		return 0;
	if (*cli_where())
		return cli_misuse(cli, "--limit-rate is an option of the batch, not of a line");
	if (!str_to_size(text, &bytes) || bytes < LIMIT_RATE_MIN || bytes > INT64_MAX)
		return cli_misuse(cli, "--limit-rate must be at least 4KiB (per second)");
	limit.bytes_per_s = bytes;
	return 0;
}

/* Returns the number of parallel requests under --limit-rate. The number is so small that each
 * request gets its share of the rate before the server closes an idle connection. Returns 0 if the
 * rate does not limit the number. */
unsigned remote_limit_parallel(void)
{
	uint64_t n = limit.bytes_per_s / LIMIT_RATE_EACH;

	return !limit.bytes_per_s || n > LIMIT_HTTP_CONNECTIONS ? 0 : n ? (unsigned)n : 1;
}

int remote_put_options(const struct cli *cli, struct object_put_options *out)
{
	const struct strlist *metadata = cli_values(cli, "metadata");
	const char *part_size = cli_value(cli, "part-size");
	int code = check_metadata(cli, metadata);

	if (code)
		return code;
	if (part_size &&
		(!str_to_size(part_size, &out->part_size) || out->part_size < LIMIT_S3_PART_MIN ||
			out->part_size > LIMIT_S3_PART_MAX))
		return cli_misuse(cli, "--part-size must be 5MiB to 5GiB");
	out->if_none_match = cli_has(cli, "if-none-match");
	out->content_type = cli_value(cli, "content-type");
	out->storage_class = cli_value(cli, "storage-class");
	out->metadata = metadata->n ? metadata : NULL;
	return 0;
}

int remote_version(const struct cli *cli, const char **out)
{
	*out = cli_value(cli, "version-id");
	if (*out && !**out)
		return cli_misuse(cli, "--version-id is empty");
	if (*out && cli_n_operands(cli) != 1)
		return cli_misuse(cli, "--version-id needs a single operand");
	return 0;
}

void remote_size(const struct cli *cli, uint64_t bytes, char out[static REMOTE_SIZE_SIZE])
{
	if (cli_has(cli, "human"))
		str_format_size(bytes, out);
	else
		snprintf(out, REMOTE_SIZE_SIZE, "%" PRIu64, bytes);
}

/* Fails if the operand begins with gs:// and the opened store is not Google's, or vice versa. */
static int fits(const struct remote *remote, const struct location *at, struct penstock_error *err)
{
	if (at->google == object_client_settings(remote->client)->google)
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot use '%s' here: s3:// and gs:// are different stores; use separate commands",
		at->text);
}

/* ---- shared by the lines of a batch ---- */

static struct {
	bool on;
	pthread_mutex_t lock;
	struct http_engine *engine, *twin;
	struct shared_remote {
		struct shared_remote *next;
		char *name; /* endpoint, profile, region and key; identifies the store */
		struct remote remote;
	} * remotes;
} shared;

static void close_remote(struct remote *remote)
{
	object_client_free(remote->client);
	if (!remote->borrows_engine)
		http_engine_free(remote->engine);
	embedded_store_free(remote->embedded);
}

/*
 * Keeps freed memory, and limits the number of heaps. Each request has buffers of a few hundred
 * KiB. If their pages were returned to the kernel after each request, the kernel would have to
 * clear the pages of the next buffers. One thread allocates the entries of a listing and another
 * thread frees them, so with a heap for each thread the memory would grow (for a sync of a million
 * files, 71 MiB instead of 46).
 */
void remote_many_requests(void)
{
	if (shared.on)
		return;
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, (int)LIMIT_TRANSFER_KEPT_BLOCK);
	mallopt(M_TRIM_THRESHOLD, (int)LIMIT_TRANSFER_KEPT);
	mallopt(M_ARENA_MAX, LIMIT_TRANSFER_ARENAS);
#endif
}

void remote_share_begin(void)
{
	remote_many_requests();
	pthread_mutex_init(&shared.lock, NULL);
	shared.on = true;
}

void remote_share_end(void)
{
	for (struct shared_remote *each = shared.remotes, *next; each; each = next) {
		next = each->next;
		close_remote(&each->remote);
		free(each->name);
		free(each);
	}
	http_engine_free(shared.twin);
	http_engine_free(shared.engine);
	pthread_mutex_destroy(&shared.lock);
	shared = (__typeof__(shared)){0};
}

static void on_wait(void *cookie, const char *host, const char *why, int64_t waited_ms)
{
	(void)cookie;
	(void)waited_ms;
	log_info("waiting for %s: %s, retrying", host, why);
}

/* If the engine is shared, the caller holds the lock. */
static int open_engine(struct remote *remote, struct penstock_error *err)
{
	struct http_engine **engine = shared.on ? &shared.engine : &remote->engine;
	int r = 0;

	if (remote->engine)
		return 0;
	if (!*engine)
		r = http_engine_new(engine,
			&(struct http_engine_options){.on_wait = on_wait,
				.cancel = cli_interrupt_flag(),
				.limit = limit.bytes_per_s ? &limit : NULL,
				.buffer = limit.bytes_per_s ? LIMIT_HTTP_REPLY_BUFFER : 0},
			err);
	/* Create the twin engine even if no line will use it: an engine costs nothing before its
	 * first request. */
	if (r == 0 && shared.on && !shared.twin)
		r = http_engine_clone(&shared.twin, shared.engine, err);
	if (r < 0)
		return r;
	remote->engine = *engine;
	remote->twin = shared.twin;
	remote->borrows_engine = shared.on;
	remote->cancel = cli_watch_signals();
	return 0;
}

int remote_open_engine(struct remote *remote, struct penstock_error *err)
{
	int r;

	if (!shared.on)
		return open_engine(remote, err);
	pthread_mutex_lock(&shared.lock);
	r = open_engine(remote, err);
	pthread_mutex_unlock(&shared.lock);
	return r;
}

static int open_embedded(
	struct remote *remote, struct store_place *place, struct penstock_error *err)
{
	_cleanup_free_ char *home = NULL;
	int r = records_home(&home, err);

	if (r == 0)
		r = join_embedded(home, &remote->embedded, place, err);
	return r == 0 ? object_client_open(&remote->client, remote->engine, place, err) : r;
}

/* Returns true if this home has a store, which is the default if no other store is configured. */
bool remote_has_embedded(void)
{
	_cleanup_free_ char *home = NULL;
	_cleanup_free_ char *root = NULL;

	if (records_home(&home, NULL) == 0)
		root = path_join(home, "store");
	return root && access(root, F_OK) == 0;
}

/* `how` is the option or variable that selects the embedded store, for messages. */
static int open_new(struct remote *remote, struct store_place *place, const char *how,
	struct penstock_error *err)
{
	bool no_keys = false;
	int r = open_engine(remote, err);

	if (r < 0)
		return r;
	if (place->google && place->endpoint_url && strcmp(place->endpoint_url, "embedded") == 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot open a gs:// place in the embedded store; use s3://");
	if (s3_settings_embedded(place))
		return open_embedded(remote, place, err);
	place->no_keys = &no_keys;
	r = object_client_open(&remote->client, remote->engine, place, err);
	place->no_keys = NULL;
	/* If the user has named a store, missing keys are an error. */
	if (r == 0 || !no_keys || place->endpoint_url || place->profile || str_env("AWS_PROFILE") ||
		str_env("AWS_ENDPOINT_URL_S3") || str_env("AWS_ENDPOINT_URL"))
		return r;
	if (!remote_has_embedded()) {
		error_suffix(err, "; or use %s", how);
		return r;
	}
	penstock_error_release(err);
	log_info("no S3 credentials, using the embedded store (%s)", how);
	return open_embedded(remote, place, err);
}

static int open_shared(struct remote *remote, struct store_place *place, struct penstock_error *err)
{
	_cleanup_free_ char *name = str_printf("%s\n%s\n%s\n%s\n%d %d",
		place->endpoint_url ? place->endpoint_url : "",
		place->profile ? place->profile : "", place->region ? place->region : "",
		place->google_key ? place->google_key : "", place->anonymous, place->google);
	LOCK_SCOPE(&shared.lock);
	struct shared_remote *found = shared.remotes;
	int r;

	if (!name)
		return error_memory(err);
	while (found && strcmp(found->name, name) != 0)
		found = found->next;
	if (!found) {
		found = calloc(1, sizeof(*found));
		if (!found)
			return error_memory(err);
		r = open_new(&found->remote, place, EMBEDDED_OPTION, err);
		if (r < 0) {
			close_remote(&found->remote);
			free(found);
			return r;
		}
		found->name = take_pointer(name);
		found->next = shared.remotes;
		shared.remotes = found;
	}
	*remote = found->remote;
	remote->borrowed = true;
	return 0;
}

static int open_given(struct remote *remote, struct store_place *place, struct penstock_error *err)
{
	return shared.on ? open_shared(remote, place, err)
			 : open_new(remote, place, EMBEDDED_OPTION, err);
}

int remote_open_embedded(struct remote *remote, struct penstock_error *err)
{
	int r = open_engine(remote, err);

	return r == 0 ? open_embedded(remote, &(struct store_place){0}, err) : r;
}

int remote_open(struct remote *remote, const struct cli *cli, struct penstock_error *err)
{
	bool google = false;

	/* The last operand in an object store decides which kind of store is opened. */
	for (size_t i = 0; i < cli_n_operands(cli); i++) {
		if (location_is_object(cli_operand(cli, i)))
			google = *cli_operand(cli, i) == 'g';
	}
	return remote_open_scheme(remote, cli, google, err);
}

int remote_open_scheme(
	struct remote *remote, const struct cli *cli, bool google, struct penstock_error *err)
{
	return open_given(remote,
		&(struct store_place){.endpoint_url = cli_value(cli, "endpoint-url"),
			.profile = cli_value(cli, "profile"),
			.region = cli_value(cli, "region"),
			.anonymous = cli_has(cli, "no-sign-request"),
			.google = google,
			.google_key = cli_value(cli, "google-key")},
		err);
}

int remote_open_default(struct remote *remote, bool google, struct penstock_error *err)
{
	/* The engine has no flag for signals: a signal ends the process at once, because no
	 * transfer has started. */
	int r = http_engine_new(&remote->engine, &(struct http_engine_options){0}, err);

	return r < 0 ? r
		     : open_new(remote, &(struct store_place){.google = google},
			       "AWS_ENDPOINT_URL=embedded", err);
}

bool remote_has_source(const struct cli *cli)
{
	return cli_has(cli, "source-endpoint-url") || cli_has(cli, "source-profile") ||
	       cli_has(cli, "source-region") || cli_has(cli, "source-no-sign-request");
}

int remote_open_source(struct remote *remote, const struct remote *target, const struct cli *cli,
	bool google, struct penstock_error *err)
{
	if (!shared.on) {
		remote->engine = target->engine;
		remote->borrows_engine = true;
		remote->cancel = target->cancel;
	}
	return open_given(remote,
		&(struct store_place){.endpoint_url = cli_value(cli, "source-endpoint-url"),
			.profile = cli_value(cli, "source-profile"),
			.region = cli_value(cli, "source-region"),
			.anonymous = cli_has(cli, "source-no-sign-request"),
			.google = google,
			.google_key = cli_value(cli, "google-key")},
		err);
}

void remote_release(struct remote *remote)
{
	if (!remote->borrowed)
		close_remote(remote);
	*remote = (struct remote){0};
}

int remote_fail(const struct cli *cli, struct penstock_error *err)
{
	int number = cli_interrupted();
	enum penstock_code code = (enum penstock_code)err->code;
	int exit_code;

	if (number) {
		penstock_error_release(err);
		return 128 + number;
	}
	exit_code = cli_fail(cli, err);
	/* In these verbs PENSTOCK_E_INVALID is about an operand, an option or a variable, and
	 * PENSTOCK_E_CORRUPT is about the store. */
	return code == PENSTOCK_E_INVALID   ? CLI_EXIT_USAGE
	       : code == PENSTOCK_E_CORRUPT ? CLI_EXIT_UNAVAILABLE
					    : exit_code;
}

/* Parses an operand. Fails if `needs_key` and the operand has no key. */
static int parse(const char *text, bool needs_key, struct location *out, struct penstock_error *err)
{
	int r = location_parse(out, text, err);

	if (r < 0)
		return r;
	if (out->kind != LOCATION_OBJECT)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot use '%s': it is not in an object store; give s3://… or gs://…",
			text);
	else if (needs_key && !*out->key)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot use '%s': the key is missing; give s3://BUCKET/KEY or gs://BUCKET/KEY",
			text);
	if (r < 0)
		location_release(out);
	return r;
}

/* Refuses mistyped operands, so that they are reported before missing credentials. */
static int check_operands(const struct cli *cli, bool needs_key, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++) {
		_cleanup_(location_release) struct location at = {0};

		r = parse(cli_operand(cli, i), needs_key, &at, err);
	}
	return r;
}

int remote_open_at(struct remote *remote, const struct cli *cli, size_t i, bool needs_key,
	struct location *at, struct penstock_error *err)
{
	int r = parse(cli_operand(cli, i), needs_key, at, err);

	if (r == 0)
		r = remote_open(remote, cli, err);
	return r == 0 ? fits(remote, at, err) : r;
}

int remote_operands(
	const struct cli *cli, bool needs_key, bool json, remote_operand_fn fn, void *cookie)
{
	struct json_stream stream = {0};
	_cleanup_(remote_release) struct remote remote = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = check_operands(cli, needs_key, &err);

	if (r == 0)
		r = remote_open(&remote, cli, &err);
	remote.json = json ? &stream : NULL;
	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++) {
		_cleanup_(location_release) struct location at = {0};

		r = parse(cli_operand(cli, i), needs_key, &at, &err);
		if (r == 0)
			r = fits(&remote, &at, &err);
		if (r == 0)
			r = fn(cookie, &remote, &at, &err);
	}
	if (json && (r == 0 || stream.begun))
		json_stream_end(&stream);
	return r < 0 ? remote_fail(cli, &err) : 0;
}

int remote_list(struct remote *remote, const struct location *at, const char *delimiter,
	object_list_fn fn, void *cookie, struct penstock_error *err)
{
	_cleanup_free_ char *prefix = strndup(at->key, location_literal_prefix(at));
	_cleanup_(entry_source_freep) struct entry_source *source = NULL;
	bool wildcard = location_has_wildcard(at), found = false;
	struct entry entry;
	int r;

	if (!prefix)
		return error_memory(err);
	r = entry_source_objects(&source, object_at(remote->client, at->bucket, prefix),
		&(struct object_source_options){.whole_keys = true,
			.after = remote->after,
			.delimiter = delimiter,
			.cancel = remote->cancel},
		err);
	if (r < 0)
		return r;
	while ((r = entry_source_next(source, &entry, err)) > 0) {
		struct object_info info = {.key = (char *)entry.key,
			.size = entry.size,
			.modified_ns = entry.mtime_ns,
			.is_prefix = entry.kind == ENTRY_PREFIX};

		if (wildcard && !wildcard_match(at->key, info.key))
			continue;
		found = true;
		snprintf(info.etag, sizeof(info.etag), "%s", entry.etag);
		if (fn(cookie, &info))
			return 0;
	}
	return r == 0 && !found && *at->key
		       ? error_set(err, PENSTOCK_E_NOT_FOUND, "cannot find object '%s'", at->text)
		       : r;
}

int remote_each(struct remote *remote, const struct location *at, object_list_fn fn, void *cookie,
	struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	struct object_ref object = object_at(remote->client, at->bucket, at->key);

	if (location_has_wildcard(at) || !*at->key || (!at->literal && str_ends(at->key, "/")))
		return remote_list(remote, at, NULL, fn, cookie, err);
	if (object_head(object, &info, err) < 0)
		return copy_explain_missing(object, at->text, err);
	info.key = strdup(at->key);
	if (!info.key)
		return error_memory(err);
	fn(cookie, &info);
	return 0;
}
