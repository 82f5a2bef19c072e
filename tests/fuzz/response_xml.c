/* The documents of a store's replies. A document that was parsed, written and parsed again is the
 * same. */
#include "fuzz.h"

#include "s3/message/list_scan.h"
#include "s3/message/messages.h"

static bool same(const char *a, const char *b)
{
	return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

static void same_lists(const struct s3_list *a, const struct s3_list *b)
{
	require(a->version == b->version && a->truncated == b->truncated);
	require(a->url_encoded == b->url_encoded && a->max_keys == b->max_keys);
	require(same(a->bucket, b->bucket) && same(a->prefix, b->prefix));
	require(same(a->delimiter, b->delimiter) && same(a->marker, b->marker));
	require(same(a->next_marker, b->next_marker) && same(a->start_after, b->start_after));
	require(same(a->continuation_token, b->continuation_token));
	require(same(a->next_continuation_token, b->next_continuation_token));
	require(a->n_entries == b->n_entries && a->n_prefixes == b->n_prefixes);
	for (size_t i = 0; i < a->n_entries; i++) {
		const struct s3_list_entry *x = &a->entries[i], *y = &b->entries[i];

		require(same(x->key, y->key) && same(x->etag, y->etag));
		require(same(x->storage_class, y->storage_class));
		require(same(x->checksum_algorithm, y->checksum_algorithm));
		require(same(x->checksum_type, y->checksum_type));
		require(x->size == y->size && x->modified_ns == y->modified_ns);
	}
	for (size_t i = 0; i < a->n_prefixes; i++)
		require(same(a->prefixes[i], b->prefixes[i]));
}

/* The quick reader and the XML parser return the same. An XML comment makes the quick reader leave
 * the document to the parser. */
static void both_readers(const char *xml, size_t len)
{
	static const char comment[] = "<!-- -->";
	_cleanup_(buf_release) struct buf slow = BUF_INIT(2 * LIMIT_XML_BODY);
	struct s3_list quick = {0}, a = {0}, b = {0};
	bool done = list_scan(xml, len, &quick) == LIST_SCAN_DONE;

	s3_list_release(&quick);
	buf_add(&slow, xml, len);
	buf_add(&slow, comment, sizeof(comment) - 1);
	if (!done || slow.len > LIMIT_XML_BODY)
		return;
	int x = s3_list_parse(xml, len, &a, NULL), y = s3_list_parse(slow.data, slow.len, &b, NULL);

	require(x == y);
	if (x == 0)
		same_lists(&a, &b);
	s3_list_release(&a);
	s3_list_release(&b);
}

static void list(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_list l = {0}, back = {0};
	int rc = s3_list_parse(xml, len, &l, &err);

	require_error(rc, &err);
	require(rc == 0 || !l.arena.blocks);
	if (rc == 0) {
		require(l.n_entries <= LIMIT_S3_LIST_KEYS && l.n_prefixes <= LIMIT_S3_LIST_KEYS);
		s3_list_write(&again, &l);
		if (!buf_failed(&again) && !l.url_encoded) {
			require(s3_list_parse(again.data, again.len, &back, NULL) == 0);
			require(back.n_entries == l.n_entries && back.n_prefixes == l.n_prefixes);
			require(back.truncated == l.truncated && back.version == l.version);
			for (size_t i = 0; i < l.n_entries; i++) {
				require(same(back.entries[i].key, l.entries[i].key));
				require(same(back.entries[i].etag, l.entries[i].etag));
				require(back.entries[i].size == l.entries[i].size);
			}
			for (size_t i = 0; i < l.n_prefixes; i++)
				require(same(back.prefixes[i], l.prefixes[i]));
		}
	}
	s3_list_release(&l);
	s3_list_release(&back);
}

static void others(const char *xml, size_t len)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_buckets buckets = {0};
	struct s3_uploads uploads = {0};
	struct s3_versions versions = {0};
	struct s3_parts parts = {0};
	struct s3_delete_result result = {0};
	struct s3_reply reply = {0};

	if (s3_buckets_parse(xml, len, &buckets, &err) == 0)
		s3_buckets_write(&again, &buckets);
	s3_buckets_release(&buckets);
	penstock_error_release(&err);
	if (s3_uploads_parse(xml, len, &uploads, &err) == 0)
		s3_uploads_write(&again, &uploads);
	s3_uploads_release(&uploads);
	penstock_error_release(&err);
	if (s3_versions_parse(xml, len, &versions, &err) == 0)
		s3_versions_write(&again, &versions);
	s3_versions_release(&versions);
	penstock_error_release(&err);
	if (s3_parts_parse(xml, len, &parts, &err) == 0)
		s3_parts_write(&again, &parts);
	s3_parts_release(&parts);
	penstock_error_release(&err);
	s3_object_parts_parse(xml, len, &parts, &err);
	s3_parts_release(&parts);
	penstock_error_release(&err);
	if (s3_delete_result_parse(xml, len, &result, &err) == 0)
		s3_delete_result_write(&again, &result);
	s3_delete_result_release(&result);
	penstock_error_release(&err);
	buf_clear(&again);
	if (s3_reply_parse(xml, len, &reply, &err) == 0) {
		struct s3_reply back = {0};

		s3_reply_write(&again, &reply);
		if (!buf_failed(&again)) {
			require(s3_reply_parse(again.data, again.len, &back, NULL) == 0);
			require(back.kind == reply.kind);
			if (reply.kind == S3_REPLY_ERROR)
				require(same(back.code, reply.code) &&
					same(back.message, reply.message));
		}
		s3_reply_release(&back);
	}
	s3_reply_release(&reply);
	penstock_error_release(&err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *xml = malloc(size + 1);

	require(xml);
	if (size)
		memcpy(xml, data, size);
	both_readers(xml, size);
	list(xml, size);
	others(xml, size);
	return 0;
}
