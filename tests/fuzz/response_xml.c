/* The documents that a store answers. What was understood must survive being written again. */
#include "fuzz.h"

#include "s3/messages.h"

static bool same(const char *a, const char *b)
{
	return (!a && !b) || (a && b && strcmp(a, b) == 0);
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
	list(xml, size);
	others(xml, size);
	return 0;
}
