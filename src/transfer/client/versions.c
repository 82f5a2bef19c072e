/* Versions and tags of objects. */
#include "transfer/client/internal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/message/messages.h"
#include "s3/message/tags.h"

typedef int (*version_fn)(void *cookie, const struct object_version *version);

/* The start of the next page. */
struct marker {
	struct buf key, id;
};

static int pass(const struct s3_versions *page, version_fn fn, void *cookie)
{
	for (size_t i = 0; i < page->n_versions; i++) {
		const struct s3_version *v = &page->versions[i];

		if (fn(cookie, &(struct object_version){.key = v->key,
				       .id = v->version_id,
				       .etag = v->etag,
				       .size = v->size,
				       .modified_ns = v->modified_ns,
				       .latest = v->is_latest,
				       .marker = v->is_marker}))
			return 1;
	}
	return 0;
}

/* Moves the marker to the next page. Returns 1 if there is a next page. */
static int advance(struct marker *marker, const struct s3_versions *page, const struct s3_op *op,
	struct penstock_error *err)
{
	const char *key = page->next_key_marker;
	const char *id = page->next_version_id_marker ? page->next_version_id_marker : "";

	if (!page->truncated)
		return 0;
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

int object_list_versions(struct object_ref at, version_fn fn, void *cookie,
	const atomic_int *cancel, struct penstock_error *err)
{
	struct marker marker = {BUF_INIT(LIMIT_STRING), BUF_INIT(LIMIT_STRING)};
	int r = 1;

	while (r > 0) {
		_cleanup_(s3_op_release) struct s3_op op = {0};
		_cleanup_(s3_versions_release) struct s3_versions page = {0};

		s3_op_init(&op, "GET", object_at(at.client, at.bucket, NULL));
		s3_op_query(&op, "versions", NULL);
		s3_op_query(&op, "encoding-type", "url");
		if (at.key && *at.key)
			s3_op_query(&op, "prefix", at.key);
		if (marker.key.len)
			s3_op_query(&op, "key-marker", marker.key.data);
		if (marker.id.len)
			s3_op_query(&op, "version-id-marker", marker.id.data);
		s3_op_cancel(&op, cancel);
		r = s3_op_read(&op, s3_versions_parse, &page, err);
		if (r == 0 && !pass(&page, fn, cookie))
			r = advance(&marker, &page, &op, err);
	}
	buf_release(&marker.key);
	buf_release(&marker.id);
	return r;
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
