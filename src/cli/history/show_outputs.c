#include "cli/history/show_outputs.h"

#include <stdlib.h>
#include <string.h>
/* Clang warns about the fallthrough in uthash's default hash. */
#define HASH_FUNCTION(key, len, value) HASH_OAT(key, len, value)
#include <uthash.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/print/util.h"
#include "s3/uri.h"
#include "sync/record/journal.h"
#include "transfer/location.h"
#include "sync/record/names.h"
#include "base/banned.h"

/* The last journal record of a path. */
struct known {
	char *path;
	char *etag;
	uint64_t size;
	int64_t mtime_ns;
	bool published;
	bool open; /* only its beginning is published, it is still being written */
	bool suspect;
	UT_hash_handle hh;
};

struct reading {
	struct known *all;
	json_t *replaced;
	const char *base; /* "s3://bucket/prefix/"; NULL if there is none */
	const char *endpoint; /* a URL, or "embedded"; NULL for AWS */
	bool no_memory;
};

static struct known *find(struct reading *reading, const char *path)
{
	struct known *k = NULL;

	HASH_FIND_STR(reading->all, path, k);
	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	if (k)
		k->path = strdup(path);
	if (!k || !k->path) {
		free(k);
		reading->no_memory = true;
		return NULL;
	}
	HASH_ADD_KEYPTR(hh, reading->all, k->path, strlen(k->path), k);
	return k;
}

static void free_known(struct reading *reading, struct known *k)
{
	HASH_DEL(reading->all, k);
	free(k->path);
	free(k->etag);
	free(k);
}

static void publish(struct reading *reading, struct known *k, const struct journal_record *r)
{
	free(k->etag);
	k->etag = strdup(r->etag ? r->etag : "");
	if (!k->etag)
		reading->no_memory = true;
	k->published = true;
	k->suspect = false;
	k->open = r->type == JOURNAL_APPENDED;
	k->size = r->ident.size;
	k->mtime_ns = r->ident.mtime_ns;
}

/* Returns the ETag without the quotes of the header. */
static json_t *plain_etag(const char *etag)
{
	size_t len = etag ? strlen(etag) : 0;

	if (len >= 2 && etag[0] == '"' && etag[len - 1] == '"')
		return json_stringn(etag + 1, len - 2);
	return json_text(etag);
}

/* Appends `text` quoted for a shell. */
static void add_quoted(struct buf *out, const char *text)
{
	buf_add_char(out, '\'');
	for (; *text; text++)
		buf_add_str(out, *text == '\'' ? "'\\''" : (char[]){*text, '\0'});
	buf_add_char(out, '\'');
}

static void add_endpoint(struct buf *out, const char *endpoint)
{
	if (!endpoint)
		return;
	buf_add_str(out, " --endpoint-url ");
	add_quoted(out, endpoint);
}

/* Google's store, and the embedded one, which listens only while penstock uses it, are restored by
 * penstock itself: it finds the credentials of the run's environment in the same order. */
static void add_penstock_command(
	struct buf *out, const char *endpoint, const char *url, const char *home)
{
	buf_add_str(out, "penstock cat");
	add_endpoint(out, endpoint);
	buf_add_char(out, ' ');
	add_quoted(out, url);
	buf_add_str(out, " | penstock put");
	add_endpoint(out, endpoint);
	buf_add_char(out, ' ');
	add_quoted(out, home);
}

static void add_aws_version_command(struct buf *out, const char *endpoint, const char *bucket,
	const char *key, const char *version)
{
	_cleanup_(buf_release) struct buf source = BUF_INIT(LIMIT_STRING);

	buf_printf(&source, "%s/", bucket);
	uri_encode(&source, key, strlen(key), true);
	buf_printf(&source, "?versionId=%s", version);
	buf_add_str(out, "aws");
	add_endpoint(out, endpoint);
	buf_add_str(out, " s3api copy-object --bucket ");
	add_quoted(out, bucket);
	buf_add_str(out, " --key ");
	add_quoted(out, key);
	buf_add_str(out, " --copy-source ");
	add_quoted(out, buf_str(&source));
}

/* Adds the place of the old object, and the command that restores it. */
static void add_way_back(const struct reading *reading, json_t *object,
	const struct journal_record *r, const char *bucket, const char *key)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING),
					  home = BUF_INIT(LIMIT_STRING),
					  command = BUF_INIT(4 * LIMIT_STRING);
	const char *version = str_starts(r->key, "version:") ? r->key + strlen("version:") : NULL;
	bool google = str_starts(reading->base, "gs://");
	bool embedded = reading->endpoint && strcmp(reading->endpoint, "embedded") == 0;
	const char *scheme = google ? "gs" : "s3";

	buf_printf(&home, "%s://%s/%s", scheme, bucket, key);
	if (version)
		buf_printf(&url, "%s?versionId=%s", buf_str(&home), version);
	else
		buf_printf(&url, "%s://%s/%s", scheme, bucket, r->key);
	if (google || (embedded && !version)) {
		add_penstock_command(&command, reading->endpoint, buf_str(&url), buf_str(&home));
	} else if (version) {
		add_aws_version_command(&command, reading->endpoint, bucket, key, version);
	} else {
		buf_add_str(&command, "aws");
		add_endpoint(&command, reading->endpoint);
		buf_add_str(&command, " s3 cp ");
		add_quoted(&command, buf_str(&url));
		buf_add_char(&command, ' ');
		add_quoted(&command, buf_str(&home));
	}
	json_object_update_new(object, json_pack("{s:o, s:o}", "url", json_text(buf_str(&url)),
					       "restore", json_text(buf_str(&command))));
}

static void keep(struct reading *reading, const struct journal_record *r)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *bucket = NULL;
	json_t *object = json_pack("{s:o, s:o, s:o, s:I}", "path", json_text(r->path), "etag",
		plain_etag(r->etag), "kept", json_text(r->key), "size", (json_int_t)r->ident.size);

	if (reading->base && location_is_object(reading->base)) {
		const char *prefix = strchr(reading->base + 5, '/');

		bucket = strndup(reading->base + 5,
			prefix ? (size_t)(prefix - reading->base - 5) : strlen(reading->base) - 5);
		buf_add_str(&key, prefix ? prefix + 1 : "");
		names_key(&key, r->path);
		reading->no_memory |= !bucket;
		if (bucket)
			add_way_back(reading, object, r, bucket, buf_str(&key));
	}
	json_array_append_new(reading->replaced, object);
}

static int take_record(void *cookie, const struct journal_record *r)
{
	struct reading *reading = cookie;
	struct known *k;

	if (r->type == JOURNAL_KEPT) {
		keep(reading, r);
		return 0;
	}
	if (r->type != JOURNAL_PUBLISHED && r->type != JOURNAL_APPENDED &&
		r->type != JOURNAL_SUSPECT && r->type != JOURNAL_FORGET)
		return 0;
	k = find(reading, r->path);
	if (!k)
		return 1;
	if (r->type == JOURNAL_FORGET)
		free_known(reading, k);
	else if (r->type == JOURNAL_SUSPECT)
		k->suspect = true;
	else
		publish(reading, k, r);
	return reading->no_memory;
}

static int by_path(const struct known *a, const struct known *b)
{
	return strcmp(a->path, b->path);
}

int show_outputs_read(json_t *object, const char *journal_path, const char *base,
	const char *endpoint, struct penstock_error *err)
{
	struct reading reading = {.replaced = json_array(), .base = base, .endpoint = endpoint};
	json_t *outputs = json_array();
	json_t *partial = json_array();
	struct known *k;
	struct known *next;
	int r = journal_replay(journal_path, take_record, &reading, NULL, err);

	HASH_SORT(reading.all, by_path);
	HASH_ITER (hh, reading.all, k, next) {
		_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);

		buf_add_str(&url, base ? base : "");
		names_key(&url, k->path);
		if (k->published)
			json_array_append_new(outputs,
				json_pack("{s:o, s:o, s:I, s:o, s:o, s:b}", "path",
					json_text(k->path), "url", json_text(buf_str(&url)), "size",
					(json_int_t)k->size, "etag", plain_etag(k->etag), "mtime",
					json_time(k->mtime_ns), "open", k->open));
		if (k->suspect)
			json_array_append_new(partial, json_text(k->path));
		free_known(&reading, k);
	}
	json_object_update_new(object, json_pack("{s:o, s:o, s:o}", "outputs", outputs, "replaced",
					       reading.replaced, "partial", partial));
	return r == 0 && reading.no_memory ? error_memory(err) : r;
}
