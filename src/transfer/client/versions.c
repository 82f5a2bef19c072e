/* Versions and tags of objects, and the versioning of a bucket. */
#include "transfer/client/internal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/message/messages.h"
#include "s3/message/tags.h"
#include "transfer/client/google.h"

typedef int (*version_fn)(void *cookie, const struct object_version *version);

/* The start of the next page. */
struct marker {
	struct buf key, id;
};

/* Returns true for a key that the store should have skipped: some stores begin with the key that
 * the list should begin after. */
static bool is_before(const struct object_versions_options *options, const char *key)
{
	return options->after && !options->after_version && strcmp(key, options->after) <= 0;
}

static int pass_version(const struct s3_version *v, const struct object_versions_options *options,
	version_fn fn, void *cookie)
{
	if (is_before(options, v->key) || (options->newest && !v->is_latest))
		return 0;
	return fn(cookie, &(struct object_version){.key = v->key,
				  .id = v->version_id,
				  .etag = v->etag,
				  .size = v->size,
				  .modified_ns = v->modified_ns,
				  .latest = v->is_latest,
				  .marker = v->is_marker});
}

/* Passes the versions and common prefixes of a page, two sorted lists, to `fn` in byte order.
 * Returns non-zero if `fn` has stopped the listing. */
static int pass(const struct s3_versions *page, const struct object_versions_options *options,
	version_fn fn, void *cookie)
{
	size_t v = 0, p = 0;
	int stop = 0;

	while (!stop && (v < page->n_versions || p < page->n_prefixes)) {
		const char *prefix = p < page->n_prefixes ? page->prefixes[p] : NULL;

		if (!prefix ||
			(v < page->n_versions && strcmp(page->versions[v].key, prefix) < 0)) {
			stop = pass_version(&page->versions[v++], options, fn, cookie);
			continue;
		}
		p++;
		if (!is_before(options, prefix))
			stop = fn(
				cookie, &(struct object_version){.key = prefix, .is_prefix = true});
	}
	return stop;
}

/* Moves the marker to the next page. Returns 1 if there is a next page. */
static int advance(struct marker *marker, const struct s3_versions *page, bool newest,
	const struct s3_op *op, struct penstock_error *err)
{
	const struct s3_version *last = page->n_versions ? &page->versions[page->n_versions - 1]
							 : NULL;
	const char *key = page->next_key_marker;
	const char *id = page->next_version_id_marker ? page->next_version_id_marker : "";

	if (!page->truncated)
		return 0;
	/* Skips the other versions of the last key, unless the store begins with that key again. */
	if (newest && key && last && strcmp(key, last->key) == 0 &&
		strcmp(key, buf_str(&marker->key)) != 0)
		id = "";
	if (!key ||
		(strcmp(key, buf_str(&marker->key)) == 0 && strcmp(id, buf_str(&marker->id)) == 0))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"%s: the store's listing makes no progress", op->what);
	buf_clear(&marker->key);
	buf_clear(&marker->id);
	buf_add_str(&marker->key, key);
	buf_add_str(&marker->id, id);
	if (buf_failed(&marker->key))
		return buf_error(&marker->key, "the listing's marker", err);
	return buf_failed(&marker->id) ? buf_error(&marker->id, "the listing's marker", err) : 1;
}

int object_list_versions(struct object_ref at, const struct object_versions_options *options,
	version_fn fn, void *cookie, struct penstock_error *err)
{
	struct marker marker = {BUF_INIT(LIMIT_STRING), BUF_INIT(LIMIT_STRING)};
	int r = at.client->google ? google_refuse_versions(err) : 1;

	if (options->after)
		buf_add_str(&marker.key, options->after);
	if (options->after && options->after_version)
		buf_add_str(&marker.id, options->after_version);
	if (r > 0 && (buf_failed(&marker.key) || buf_failed(&marker.id)))
		r = error_memory(err);
	while (r > 0) {
		_cleanup_(s3_op_release) struct s3_op op = {0};
		_cleanup_(s3_versions_release) struct s3_versions page = {0};

		s3_op_init(&op, "GET", object_at(at.client, at.bucket, NULL));
		s3_op_query(&op, "versions", NULL);
		s3_op_query(&op, "encoding-type", "url");
		if (at.key && *at.key)
			s3_op_query(&op, "prefix", at.key);
		if (options->delimiter)
			s3_op_query(&op, "delimiter", options->delimiter);
		if (marker.key.len)
			s3_op_query(&op, "key-marker", marker.key.data);
		if (marker.id.len)
			s3_op_query(&op, "version-id-marker", marker.id.data);
		s3_op_cancel(&op, options->cancel);
		r = s3_op_read(&op, s3_versions_parse, &page, err);
		if (r == 0 && !pass(&page, options, fn, cookie))
			r = advance(&marker, &page, options->newest, &op, err);
	}
	buf_release(&marker.key);
	buf_release(&marker.id);
	return r;
}

int bucket_versioning(struct object_client *client, const char *bucket, enum bucket_versioning *out,
	struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(s3_versioning_release) struct s3_versioning versioning = {0};
	int r;

	if (client->google)
		return google_refuse_versions(err);
	s3_op_init(&op, "GET", object_at(client, bucket, NULL));
	s3_op_query(&op, "versioning", NULL);
	r = s3_op_read(&op, s3_versioning_parse_reply, &versioning, err);
	if (r < 0)
		return r;
	if (!versioning.status)
		*out = BUCKET_UNVERSIONED;
	else
		*out = strcmp(versioning.status, "Enabled") == 0 ? BUCKET_VERSIONED
								 : BUCKET_SUSPENDED;
	return 0;
}

int object_tags(struct object_ref at, struct strlist *out, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(s3_tagging_release) struct s3_tagging tags = {0};
	int r;

	s3_op_init(&op, "GET", at);
	s3_op_query(&op, "tagging", NULL);
	r = s3_op_read(&op, s3_tagging_parse_reply, &tags, err);
	for (size_t i = 0; r == 0 && i < tags.n; i++) {
		if (strlist_addf(out, "%s=%s", tags.tags[i].key, tags.tags[i].value) < 0)
			r = error_memory(err);
	}
	return r;
}
