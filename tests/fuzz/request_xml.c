/* The documents that a client sends to the store. */
#include "fuzz.h"

#include "s3/message/messages.h"

static void complete(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_complete c = {0}, back = {0};
	int rc = s3_complete_parse(xml, len, &c, &err);

	require_error(rc, &err);
	require((rc == 0) == (c.problem == S3_OK));
	if (rc == 0) {
		require(c.n >= 1 && c.n <= LIMIT_S3_PARTS);
		for (size_t i = 1; i < c.n; i++)
			require(c.parts[i].number > c.parts[i - 1].number);
		s3_complete_write(&again, &c);
		if (!buf_failed(&again)) {
			require(s3_complete_parse(again.data, again.len, &back, NULL) == 0);
			require(back.n == c.n);
			for (size_t i = 0; i < c.n; i++)
				require(strcmp(back.parts[i].etag, c.parts[i].etag) == 0);
		}
	}
	s3_complete_release(&c);
	s3_complete_release(&back);
}

static void multi_delete(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_delete d = {0}, back = {0};
	int rc = s3_delete_parse(xml, len, &d, &err);

	require_error(rc, &err);
	require((rc == 0) == (d.problem == S3_OK));
	if (rc == 0) {
		require(d.n >= 1 && d.n <= LIMIT_S3_LIST_KEYS);
		s3_delete_write(&again, &d);
		if (!buf_failed(&again)) {
			require(s3_delete_parse(again.data, again.len, &back, NULL) == 0);
			require(back.n == d.n && back.quiet == d.quiet);
			for (size_t i = 0; i < d.n; i++)
				require(strcmp(back.items[i].key, d.items[i].key) == 0);
		}
	}
	s3_delete_release(&d);
	s3_delete_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf location = BUF_INIT(1000);
	bool more;
	_cleanup_free_ char *xml = malloc(size + 1);

	/* No NUL behind it: a reader must go by the length. */
	require(xml);
	if (size)
		memcpy(xml, data, size);
	complete(xml, size);
	multi_delete(xml, size);
	require_error(s3_create_bucket_parse(xml, size, &location, &more, &err), &err);
	return 0;
}
