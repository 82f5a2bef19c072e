#include "s3_test.h"

#include "alloc_fail.h"

#include "base/str.h"
#include "s3/sign/chunked.h"

#define DATE INT64_C(1369353600) /* 2013-05-24T00:00:00Z */

struct sink {
	struct buf data;
	struct buf trailers;
	size_t calls;
	int refuse; /* a code the data callback returns */
};

static int on_data(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct sink *s = cookie;

	s->calls++;
	if (s->refuse)
		return error_set(err, PENSTOCK_E_NO_SPACE, "full");
	buf_add(&s->data, data, len);
	return 0;
}

static int on_trailer(void *cookie, const char *name, const char *value, struct penstock_error *err)
{
	struct sink *s = cookie;

	(void)err;
	buf_printf(&s->trailers, "[%s=%s]", name, value);
	return 0;
}

struct result {
	int rc;
	enum s3_error error;
};

static const struct sigv4_chain *seed;
static struct sigv4 ws;

/* Feeds `body` in pieces of `step` bytes. */
static struct result decode(enum chunked_mode mode, uint64_t expected, const char *body, size_t len,
	size_t step, struct sink *sink)
{
	struct chunked_options o = {.mode = mode,
		.decoded_length = expected,
		.ws = &ws,
		.chain = seed,
		.data = on_data,
		.trailer = on_trailer,
		.cookie = sink};
	struct chunked_decoder d;
	struct result r;

	r.rc = chunked_decoder_init(&d, &o, NULL);
	for (size_t at = 0; r.rc == 0 && at < len; at += step)
		r.rc = chunked_decoder_feed(&d, body + at, len - at < step ? len - at : step, NULL);
	if (r.rc == 0)
		r.rc = chunked_decoder_finish(&d, NULL);
	r.error = d.error;
	chunked_decoder_release(&d);
	return r;
}

static int set_up(void **state)
{
	static struct sigv4_chain chain;
	static const struct sigv4_credentials keys = {
		"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL};
	struct sigv4_header headers[] = {{"Host", "h"}};
	struct sigv4_request req = {.method = "PUT",
		.path = "/b/k",
		.headers = headers,
		.n_headers = 1,
		.payload_hash = SIGV4_STREAMING};
	struct buf auth = BUF_INIT(4096);

	(void)state;
	if (sigv4_init(&ws, NULL) < 0 ||
		sigv4_sign(&ws, &req, (struct sigv4_identity){&keys, "us-east-1", "s3", DATE},
			&auth, &chain, NULL) < 0)
		return -1;
	seed = &chain;
	buf_release(&auth);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sigv4_release(&ws);
	return 0;
}

/* The form that SDKs send has size, data and trailer; each defect is refused with its own error. */
static void unsigned_bodies_are_decoded_or_refused_exactly(void **state)
{
	static const struct {
		const char *body;
		uint64_t expected;
		enum s3_error error;
		const char *data, *trailers;
	} rows[] = {
		{"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", 5, S3_OK, "hello",
			"[x-amz-checksum-crc32=NhCmhg==]"},
		{"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", 11, S3_OK, "hello world", ""},
		{"5\r\nhello\r\n0\r\n\r\n", CHUNKED_UNKNOWN_LENGTH, S3_OK, "hello", ""},
		{"0\r\n\r\n", 0, S3_OK, "", ""},
		{"A\r\n0123456789\r\n0\r\n\r\n", 10, S3_OK, "0123456789", ""},
		{"1;x=y\r\na\r\n0\r\n\r\n", 1, S3_OK, "a", ""},
		{"1\r\na\r\n0\r\nX-Amz-Checksum-SHA1 :  v \n\n", 1, S3_E_MALFORMED_TRAILER, "a",
			""},
		{"1\r\na\r\n0\r\nX-Amz-Checksum-SHA1:  v \n\n", 1, S3_OK, "a",
			"[x-amz-checksum-sha1=v]"},
		{"1\na\r\n0\r\n\r\n", 1, S3_E_INVALID_CHUNK_SIZE, "", ""},
		{"1;x=y\na\r\n0\r\n\r\n", 1, S3_E_INVALID_CHUNK_SIZE, "", ""},
		{"1\r\na\n0\r\n\r\n", 1, S3_E_INVALID_CHUNK_SIZE, "a", ""},
		{"1\r\na\r\n0\n\r\n", 1, S3_E_INVALID_CHUNK_SIZE, "a", ""},
		{"0\r\na:1\r\nb:\r\n\r\n", 0, S3_OK, "", "[a=1][b=]"},
		{"0\r\na:1\n\r\n\r\n", 0, S3_OK, "", "[a=1]"},
		{"0\r\n\r\n\r\n\r\n", 0, S3_E_INCOMPLETE_BODY, "", ""},
		{"0\r\n\r\nx", 0, S3_E_INCOMPLETE_BODY, "", ""},
		{"", 0, S3_E_INCOMPLETE_BODY, "", ""},
		{"5\r\nhel", 5, S3_E_INCOMPLETE_BODY, "hel", ""},
		{"5\r\nhello", 5, S3_E_INCOMPLETE_BODY, "hello", ""},
		{"5\r\nhello\r\n", 5, S3_E_INCOMPLETE_BODY, "hello", ""},
		{"5\r\nhello\r\n0\r\n", 5, S3_E_INCOMPLETE_BODY, "hello", ""},
		{"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhC", 5, S3_E_INCOMPLETE_BODY, "hello",
			""},
		{"5\r\nhello\r\n0\r\n\r\n", 6, S3_E_INCOMPLETE_BODY, "hello", ""},
		{"5\r\nhello\r\n0\r\n\r\n", 4, S3_E_INCOMPLETE_BODY, "", ""},
		{"5\r\nhelloo\r\n0\r\n\r\n", 5, S3_E_INVALID_CHUNK_SIZE, "hello", ""},
		{"g\r\n", 5, S3_E_INVALID_CHUNK_SIZE, "", ""},
		{"\r\n", 5, S3_E_INVALID_CHUNK_SIZE, "", ""},
		{"-1\r\n", 5, S3_E_INVALID_CHUNK_SIZE, "", ""},
		{"5 \r\nhello\r\n", 5, S3_E_INVALID_CHUNK_SIZE, "", ""},
		{"0x5\r\nhello\r\n", 5, S3_E_INVALID_CHUNK_SIZE, "", ""},
		{"fffffffffffffffff\r\n", CHUNKED_UNKNOWN_LENGTH, S3_E_INVALID_CHUNK_SIZE, "", ""},
		{"ffffffffffffffff\r\n", CHUNKED_UNKNOWN_LENGTH, S3_E_ENTITY_TOO_LARGE, "", ""},
		{"0\r\nno colon\r\n\r\n", 0, S3_E_MALFORMED_TRAILER, "", ""},
		{"0\r\n:v\r\n\r\n", 0, S3_E_MALFORMED_TRAILER, "", ""},
		{"0\r\na b:v\r\n\r\n", 0, S3_E_MALFORMED_TRAILER, "", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (size_t step = 1; step < 60; step += step < 8 ? 1 : 13) {
			struct sink sink = {.data = BUF_INIT(1000), .trailers = BUF_INIT(1000)};
			struct result r = decode(CHUNKED_UNSIGNED_TRAILER, rows[i].expected,
				rows[i].body, strlen(rows[i].body), step, &sink);

			assert_row(r.error == rows[i].error, rows[i].body);
			assert_row((r.rc == 0) == (rows[i].error == S3_OK), rows[i].body);
			assert_row(strcmp(buf_str(&sink.data), rows[i].data) == 0, rows[i].body);
			assert_row(strcmp(buf_str(&sink.trailers), rows[i].trailers) == 0,
				rows[i].body);
			buf_release(&sink.data);
			buf_release(&sink.trailers);
		}
	}
}

/* Appends a signed chunk of `n` bytes 'a', and advances the chain of signatures. */
static void add_signed(struct buf *body, struct sigv4_chain *chain, size_t n)
{
	_cleanup_free_ char *data = malloc(n + 1);
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[65], signature[SIGV4_SIGNATURE_SIZE];

	memset(data, 'a', n);
	checksum_of(CHECKSUM_SHA256, data, n, digest, NULL);
	str_hex(digest, 32, hex);
	sigv4_chunk_signature(&ws, chain, hex, signature);
	sigv4_chain_advance(chain, signature);
	buf_printf(body, "%zx;chunk-signature=%s\r\n", n, signature);
	buf_add(body, data, n);
	if (n > 0)
		buf_add_str(body, "\r\n");
}

/* Appends a signed trailer. `empty` is "", or "\r\n": AWS's documentation has an empty line before
 * each of the two lines of the trailer. */
static void add_trailer(struct buf *body, const struct sigv4_chain *chain, const char *name,
	const char *value, const char *empty)
{
	_cleanup_(buf_release) struct buf canonical = BUF_INIT(1000);
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[65], signature[SIGV4_SIGNATURE_SIZE];

	buf_printf(&canonical, "%s:%s\n", name, value);
	checksum_of(CHECKSUM_SHA256, canonical.data, canonical.len, digest, NULL);
	str_hex(digest, 32, hex);
	sigv4_trailer_signature(&ws, chain, hex, signature);
	buf_printf(body, "%s%s:%s%s%sx-amz-trailer-signature:%s\r\n\r\n", empty, name, value,
		*empty ? "\n" : "\r\n", empty, signature);
}

/* A valid signed body is accepted in pieces of any size; a body with one changed byte is
 * refused. */
static void signed_bodies_hold_only_unchanged(void **state)
{
	(void)state;
	for (int with_trailer = 0; with_trailer < 3; with_trailer++) {
		enum chunked_mode mode = with_trailer ? CHUNKED_SIGNED_TRAILER : CHUNKED_SIGNED;
		_cleanup_(buf_release) struct buf body = BUF_INIT(10000);
		struct sigv4_chain chain = *seed;

		add_signed(&body, &chain, 200);
		add_signed(&body, &chain, 30);
		add_signed(&body, &chain, 0);
		if (with_trailer)
			add_trailer(&body, &chain, "x-amz-checksum-crc32c",
				"wdBDMA==", with_trailer == 2 ? "\r\n" : "");
		else
			buf_add_str(&body, "\r\n");
		for (size_t step = 1; step < 500; step = step * 2 + 1) {
			struct sink sink = {.data = BUF_INIT(1000), .trailers = BUF_INIT(1000)};
			struct result r = decode(mode, 230, body.data, body.len, step, &sink);

			assert_int_equal(r.rc, 0);
			assert_int_equal(sink.data.len, 230);
			assert_string_equal(buf_str(&sink.trailers),
				with_trailer ? "[x-amz-checksum-crc32c=wdBDMA==]" : "");
			buf_release(&sink.data);
			buf_release(&sink.trailers);
		}
		for (size_t i = 0; i < body.len; i++) {
			struct sink sink = {.data = BUF_INIT(1000), .trailers = BUF_INIT(1000)};
			char old = body.data[i];

			/* '!' is invalid at every position. Other changes may be valid: upper-case
			 * digits, or a missing CR. */
			body.data[i] = '!';
			struct result r = decode(mode, 230, body.data, body.len, 77, &sink);

			assert_true(r.rc < 0);
			assert_int_not_equal(r.error, S3_OK);
			body.data[i] = old;
			buf_release(&sink.data);
			buf_release(&sink.trailers);
		}
	}
}

/* A missing or repeated chunk breaks the chain of signatures, and so does a missing or foreign
 * trailer. */
static void the_chain_notices_what_is_missing(void **state)
{
	_cleanup_(buf_release) struct buf body = BUF_INIT(10000);
	struct sink sink = {.data = BUF_INIT(1000), .trailers = BUF_INIT(1000)};
	struct sigv4_chain chain = *seed;
	struct result r;

	(void)state;
	add_signed(&body, &chain, 10);
	buf_clear(&body);
	add_signed(&body, &chain, 10);
	r = decode(CHUNKED_SIGNED, 10, body.data, body.len, 1000, &sink);
	assert_int_equal(r.error, S3_E_SIGNATURE_DOES_NOT_MATCH);

	chain = *seed;
	buf_clear(&body);
	add_signed(&body, &chain, 0);
	buf_add_str(&body, "x-amz-checksum-crc32c:wdBDMA==\r\n\r\n");
	r = decode(CHUNKED_SIGNED, 0, body.data, body.len, 1000, &sink);
	assert_int_equal(r.error, S3_E_MALFORMED_TRAILER);
	r = decode(CHUNKED_SIGNED_TRAILER, 0, body.data, body.len, 1000, &sink);
	assert_int_equal(r.error, S3_E_MALFORMED_TRAILER);

	r = decode(CHUNKED_SIGNED, 5, "5\r\nhello\r\n", 10, 1000, &sink);
	assert_int_equal(r.error, S3_E_INVALID_CHUNK_SIZE);
	buf_release(&sink.data);
	buf_release(&sink.trailers);
}

/* The lengths of lines and trailers are limited, and an error of the callback is passed on. */
static void the_decoder_is_bounded(void **state)
{
	_cleanup_(buf_release) struct buf body = BUF_INIT(100000);
	struct sink sink = {.data = BUF_INIT(1000), .trailers = BUF_INIT(1000)};
	struct result r;

	(void)state;
	for (int i = 0; i < 9000; i++)
		buf_add_char(&body, '0');
	r = decode(CHUNKED_UNSIGNED_TRAILER, 0, body.data, body.len, 100, &sink);
	assert_int_equal(r.error, S3_E_INVALID_CHUNK_SIZE);
	buf_clear(&body);
	buf_add_str(&body, "0\r\n");
	for (int i = 0; i < LIMIT_CHUNKED_TRAILERS + 1; i++)
		buf_add_str(&body, "a:b\r\n");
	r = decode(CHUNKED_UNSIGNED_TRAILER, 0, body.data, body.len, 100, &sink);
	assert_int_equal(r.error, S3_E_MALFORMED_TRAILER);
	sink.refuse = 1;
	r = decode(CHUNKED_UNSIGNED_TRAILER, 5, "5\r\nhello\r\n", 10, 100, &sink);
	assert_int_equal(r.rc, -PENSTOCK_E_NO_SPACE);
	assert_int_equal(r.error, S3_OK);
	buf_release(&sink.data);
	buf_release(&sink.trailers);
}

static void out_of_memory_is_no_fault_of_the_body(void **state)
{
	static const char body[] = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
	bool fired = true;

	(void)state;
	for (size_t n = 1; fired; n++) {
		struct sink sink = {.data = BUF_INIT(1000), .trailers = BUF_INIT(1000)};
		struct result r;

		alloc_fail_arm(n);
		r = decode(CHUNKED_UNSIGNED_TRAILER, 5, body, sizeof(body) - 1, 7, &sink);
		fired = alloc_fail_disarm();

		assert_true(r.rc == 0 || (fired && r.rc == -PENSTOCK_E_MEMORY));
		assert_int_equal(r.error, S3_OK);
		buf_release(&sink.data);
		buf_release(&sink.trailers);
	}
}

static void the_mode_follows_from_the_header(void **state)
{
	(void)state;
	assert_int_equal(chunked_mode_of(NULL), CHUNKED_NONE);
	assert_int_equal(chunked_mode_of("UNSIGNED-PAYLOAD"), CHUNKED_NONE);
	assert_int_equal(chunked_mode_of(SIGV4_EMPTY_SHA256), CHUNKED_NONE);
	assert_int_equal(chunked_mode_of(SIGV4_STREAMING), CHUNKED_SIGNED);
	assert_int_equal(chunked_mode_of(SIGV4_STREAMING_TRAILER), CHUNKED_SIGNED_TRAILER);
	assert_int_equal(
		chunked_mode_of(SIGV4_STREAMING_UNSIGNED_TRAILER), CHUNKED_UNSIGNED_TRAILER);
	assert_int_equal(
		chunked_mode_of("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), CHUNKED_UNSUPPORTED);
}

/* The server decodes what the client encodes, and the encoded body has the announced length. */
static void what_is_encoded_is_decoded(void **state)
{
	static const size_t totals[] = {0, 1, 15, 16, 17, 100, 4096, 4097};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(totals); i++) {
		const size_t chunk = 16;
		_cleanup_(buf_release) struct buf body = BUF_INIT(100000);
		struct sink sink = {.data = BUF_INIT(10000), .trailers = BUF_INIT(1000)};
		uint8_t digest[CHECKSUM_MAX_SIZE];
		char head[CHUNKED_HEAD_SIZE], tail[CHUNKED_TAIL_SIZE], data[16];
		size_t sent = 0;

		memset(data, 'x', sizeof(data));
		checksum_of(CHECKSUM_CRC64NVME, data, sizeof(data), digest, NULL);
		while (sent < totals[i]) {
			size_t n = totals[i] - sent < chunk ? totals[i] - sent : chunk;

			buf_add(&body, head, chunked_head(n, head));
			buf_add(&body, data, n);
			buf_add_str(&body, "\r\n");
			sent += n;
		}
		buf_add(&body, tail, chunked_tail(CHECKSUM_CRC64NVME, digest, tail));
		assert_int_equal(
			body.len, chunked_encoded_length(totals[i], chunk, CHECKSUM_CRC64NVME));
		assert_int_equal(
			decode(CHUNKED_UNSIGNED_TRAILER, totals[i], body.data, body.len, 7, &sink)
				.rc,
			0);
		assert_int_equal(sink.data.len, totals[i]);
		assert_true(str_starts(buf_str(&sink.trailers), "[x-amz-checksum-crc64nvme="));
		buf_release(&sink.data);
		buf_release(&sink.trailers);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unsigned_bodies_are_decoded_or_refused_exactly),
		cmocka_unit_test(signed_bodies_hold_only_unchanged),
		cmocka_unit_test(the_chain_notices_what_is_missing),
		cmocka_unit_test(the_decoder_is_bounded),
		cmocka_unit_test(out_of_memory_is_no_fault_of_the_body),
		cmocka_unit_test(the_mode_follows_from_the_header),
		cmocka_unit_test(what_is_encoded_is_decoded),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
