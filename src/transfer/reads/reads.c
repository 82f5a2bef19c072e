#include "transfer/reads.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "transfer/reads/internal.h"

/* Returns true if a proxy is configured for libcurl: requests to a proxy have another form. */
static bool has_proxy(void)
{
	static const char *const names[] = {"http_proxy", "all_proxy", "ALL_PROXY"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (str_env(names[i]))
			return true;
	}
	return false;
}

int reads_new(struct object_reads **out, struct object_client *client, const char *bucket,
	struct penstock_error *err)
{
	struct object_reads *reads = calloc(1, sizeof(*reads));
	int r;

	if (!reads)
		return error_memory(err);
	reads->client = client;
	reads->engine = client->engine;
	reads->patience_ms = LIMIT_READS_PATIENCE_MS;
	reads->singly = str_env("PENSTOCK_READ_MANY") &&
			strcmp(str_env("PENSTOCK_READ_MANY"), "no") == 0;
	reads->bucket = strdup(bucket);
	buf_init(&reads->heads, LIMIT_READS_HEADS);
	buf_init(&reads->path, LIMIT_STRING);
	buf_init(&reads->body, LIMIT_READS_HEADS);
	r = reads->bucket ? sigv4_init(&reads->sigv4, err) : error_memory(err);
	if (r == 0 && !client->https && !client->google && !client->aws && !has_proxy())
		r = plain_new(&reads->plain, client->authority, 0, err);
	if (reads->plain)
		plain_set_cancel(reads->plain, http_engine_cancel(client->engine));
	if (r < 0) {
		reads_free(reads);
		return r;
	}
	*out = reads;
	return 0;
}

int reads_new_web(struct object_reads **out, struct http_engine *engine, struct penstock_error *err)
{
	struct object_reads *reads = calloc(1, sizeof(*reads));

	if (!reads)
		return error_memory(err);
	reads->engine = engine;
	reads->patience_ms = LIMIT_READS_PATIENCE_MS;
	*out = reads;
	return 0;
}

void reads_free(struct object_reads *reads)
{
	if (!reads)
		return;
	plain_free(reads->plain);
	sigv4_release(&reads->sigv4);
	buf_release(&reads->heads);
	buf_release(&reads->path);
	buf_release(&reads->body);
	free(reads->bucket);
	free(reads);
}

void reads_patience(struct object_reads *reads, int64_t ms)
{
	reads->patience_ms = ms;
}

int reads_run(struct object_reads *reads, struct object_read *items, size_t n,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ bool *done = calloc(n + 1, sizeof(*done));
	int r = 0, failed = 0;

	if (!done)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		items[i].error = (struct penstock_error)PENSTOCK_ERROR_INIT;
		/* HTTP has no empty range, so an empty read of a web resource sends no request. */
		done[i] = !reads->client && !items[i].length;
	}
	if (reads->plain && !(cancel && atomic_load(cancel))) {
		r = clock_monotonic_ms() < reads->plain_from_ms
			    ? 0
			    : reads_many(reads, items, n, done, cancel, err);
		if (r == 0 && clock_monotonic_ms() >= reads->plain_from_ms)
			r = reads_plain(reads, items, n, done, cancel, err);
	}
	if (r == 0)
		r = reads_engine(reads, items, n, done, cancel, err);
	for (size_t i = 0; r == 0 && i < n; i++)
		failed += items[i].error.code != PENSTOCK_OK;
	return r < 0 ? r : failed;
}
