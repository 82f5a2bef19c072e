#include "cli/show_outputs.h"

#include <stdlib.h>
#include <string.h>
/* Clang takes uthash's default hash, which falls through its cases, for a mistake. */
#define HASH_FUNCTION(key, len, value) HASH_OAT(key, len, value)
#include <uthash.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "cli/show_util.h"
#include "sync/journal.h"
#include "sync/names.h"
#include "base/banned.h"

/* The last word of the journal on a path. */
struct known {
	char *path;
	char *etag;
	uint64_t size;
	int64_t mtime_ns;
	bool published;
	bool open; /* only its beginning is there, it is still written */
	bool suspect;
	UT_hash_handle hh;
};

struct reading {
	struct known *all;
	json_t *replaced;
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

static void keep(struct reading *reading, const struct journal_record *r)
{
	json_t *object = json_object();

	json_object_set_new(object, "path", json_text(r->path));
	json_object_set_new(object, "etag", json_text(r->etag));
	json_object_set_new(object, "kept", json_text(r->key));
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

/* Without the quotes of the header. */
static json_t *plain_etag(const char *etag)
{
	size_t len = etag ? strlen(etag) : 0;

	if (len >= 2 && etag[0] == '"' && etag[len - 1] == '"')
		return json_stringn(etag + 1, len - 2);
	return json_text(etag);
}

static void add_output(json_t *outputs, const struct known *k, const char *base)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	json_t *object = json_object();

	buf_add_str(&url, base ? base : "");
	names_key(&url, k->path);
	json_object_set_new(object, "path", json_text(k->path));
	json_object_set_new(object, "url", json_text(buf_str(&url)));
	json_object_set_new(object, "size", json_integer((json_int_t)k->size));
	json_object_set_new(object, "etag", plain_etag(k->etag));
	json_object_set_new(object, "mtime", json_time(k->mtime_ns));
	json_object_set_new(object, "open", json_boolean(k->open));
	json_array_append_new(outputs, object);
}

int show_outputs_read(
	json_t *object, const char *journal_path, const char *base, struct penstock_error *err)
{
	struct reading reading = {.replaced = json_array()};
	json_t *outputs = json_array();
	json_t *partial = json_array();
	struct known *k;
	struct known *next;
	int r = journal_replay(journal_path, take_record, &reading, NULL, err);

	HASH_SORT(reading.all, by_path);
	HASH_ITER (hh, reading.all, k, next) {
		if (k->published)
			add_output(outputs, k, base);
		if (k->suspect)
			json_array_append_new(partial, json_text(k->path));
		free_known(&reading, k);
	}
	json_object_set_new(object, "outputs", outputs);
	json_object_set_new(object, "replaced", reading.replaced);
	json_object_set_new(object, "partial", partial);
	return r == 0 && reading.no_memory ? error_memory(err) : r;
}
