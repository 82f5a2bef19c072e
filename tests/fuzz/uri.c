/* Decoding, queries, s3:// addresses, names of buckets and keys; and base64. */
#include "fuzz.h"

#include "s3/sum/checksum.h"
#include "s3/uri.h"

static void decode(const char *text, size_t size, enum uri_plus plus)
{
	_cleanup_(buf_release) struct buf plain = BUF_INIT(size + 1),
					  again = BUF_INIT(3 * size + 1);
	_cleanup_(buf_release) struct buf back = BUF_INIT(size + 1);

	if (uri_decode(&plain, text, size, plus) < 0)
		return;
	require(plain.len <= size);
	require(uri_encode(&again, buf_str(&plain), plain.len, false) == 0);
	require(uri_decode(&back, buf_str(&again), again.len, plus) == 0);
	require(back.len == plain.len);
	require(memcmp(buf_str(&back), buf_str(&plain), plain.len) == 0);
}

static void query(const char *text, size_t size)
{
	struct span name, value;
	size_t total = 0;

	for (const char *at = text; uri_query_next(&at, &name, &value);) {
		_cleanup_(buf_release) struct buf plain = BUF_INIT(size + 1),
						  found = BUF_INIT(size + 1);

		total += name.n + value.n + 1;
		require(total <= strlen(text) + 1);
		if (uri_decode(&plain, name.p, name.n, URI_PLUS_SPACE) == 0 && plain.len > 0)
			require(uri_query_get(text, buf_str(&plain), &found) != 0);
	}
}

static void address(const char *text)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_url url = {.key = NULL};
	int rc = s3_url_parse(text, &url, &err);

	if (rc == 0) {
		require(!s3_bucket_problem(url.bucket));
		require(!*url.key || !s3_key_problem(url.key, strlen(url.key)));
		s3_url_release(&url);
	}
	s3_bucket_problem(text);
}

static void base64(const char *text, size_t size)
{
	_cleanup_(buf_release) struct buf plain = BUF_INIT(size + 1),
					  again = BUF_INIT(2 * size + 8);
	uint8_t digest[CHECKSUM_MAX_SIZE];

	if (base64_decode(&plain, text, size) == 0) {
		require(base64_encode(&again, buf_str(&plain), plain.len) == 0);
		require(again.len == size && memcmp(buf_str(&again), text, size) == 0);
	}
	for (int k = CHECKSUM_NONE; k < CHECKSUM_KIND_COUNT_; k++) {
		char back[CHECKSUM_TEXT_SIZE];

		if (!checksum_parse((enum checksum_kind)k, text, digest))
			continue;
		checksum_format((enum checksum_kind)k, digest, back);
		require(strcmp(back, text) == 0);
	}
	checksum_find(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);

	decode(text, size, URI_PLUS_SPACE);
	decode(text, size, URI_PLUS_LITERAL);
	query(text, size);
	address(text);
	base64(text, size);
	s3_key_problem(text, size);
	return 0;
}
