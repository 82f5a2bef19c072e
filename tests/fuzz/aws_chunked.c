/* The first byte selects the form of the body and the size of the pieces; the rest is the body. */
#include "fuzz.h"

#include "s3/sign/chunked.h"

struct outcome {
	int rc;
	enum s3_error error;
	struct buf data;
	struct buf trailers;
};

static int on_data(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct outcome *o = cookie;

	(void)err;
	require(len > 0);
	require(buf_add(&o->data, data, len) == 0);
	return 0;
}

static int on_trailer(void *cookie, const char *name, const char *value, struct penstock_error *err)
{
	struct outcome *o = cookie;

	(void)err;
	require(*name && !strchr(name, '\n') && !strchr(value, '\n'));
	require(buf_printf(&o->trailers, "%s=%s\n", name, value) == 0);
	return 0;
}

static void decode(struct outcome *o, const struct chunked_options *with, const uint8_t *data,
	size_t size, size_t step)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct chunked_options options = *with;
	struct chunked_decoder d;

	*o = (struct outcome){.data = BUF_INIT(size), .trailers = BUF_INIT(4 * size + 64)};
	options.cookie = o;
	o->rc = chunked_decoder_init(&d, &options, &err);
	for (size_t at = 0; o->rc == 0 && at < size; at += step) {
		_cleanup_free_ uint8_t *piece = malloc(step);
		size_t n = size - at < step ? size - at : step;

		require(piece);
		memcpy(piece, data + at, n);
		o->rc = chunked_decoder_feed(&d, piece, n, &err);
	}
	if (o->rc == 0)
		o->rc = chunked_decoder_finish(&d, &err);
	require_error(o->rc, &err);
	require((o->rc == 0) == (d.error == S3_OK));
	o->error = d.error;
	chunked_decoder_release(&d);
}

static void release(struct outcome *o)
{
	buf_release(&o->data);
	buf_release(&o->trailers);
}

/* The signature chain of the example in AWS's documentation; the seed inputs are signed with it. */
static const struct sigv4_chain *seed_chain(struct sigv4 *ws)
{
	static struct sigv4_chain chain;
	static const struct sigv4_auth auth = {
		.scope = {"20130524", "us-east-1", "s3"},
		.date = "20130524T000000Z",
		.signature = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
	};

	require(sigv4_chain_start(
			ws, &auth, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", &chain, NULL) == 0);
	return &chain;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum chunked_mode modes[] = {
		CHUNKED_UNSIGNED_TRAILER, CHUNKED_SIGNED, CHUNKED_SIGNED_TRAILER};
	static const size_t steps[] = {1, 2, 7, 64};
	struct chunked_options options = {.data = on_data, .trailer = on_trailer};
	struct outcome whole, pieces;
	struct sigv4 ws;

	if (size < 1)
		return 0;
	require(sigv4_init(&ws, NULL) == 0);
	options.mode = modes[data[0] % 3];
	options.decoded_length = data[0] & 0x80 ? CHUNKED_UNKNOWN_LENGTH : (data[0] >> 4 & 7) * 16;
	options.ws = &ws;
	options.chain = seed_chain(&ws);
	decode(&whole, &options, data + 1, size - 1, size);
	decode(&pieces, &options, data + 1, size - 1, steps[data[0] >> 2 & 3]);

	/* The sizes of the pieces make no difference, and no more bytes than announced are passed
	 * on. */
	require(whole.rc == pieces.rc && whole.error == pieces.error);
	require(whole.data.len == pieces.data.len);
	require(whole.data.len <= options.decoded_length);
	if (whole.data.len)
		require(memcmp(whole.data.data, pieces.data.data, whole.data.len) == 0);
	require(strcmp(buf_str(&whole.trailers), buf_str(&pieces.trailers)) == 0);
	if (whole.rc == 0 && options.decoded_length != CHUNKED_UNKNOWN_LENGTH)
		require(whole.data.len == options.decoded_length);
	release(&whole);
	release(&pieces);
	sigv4_release(&ws);
	return 0;
}
