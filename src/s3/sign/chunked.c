#include "s3/sign/chunked.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"

#define TRAILER_SIGNATURE "x-amz-trailer-signature"
#define CHUNK_SIGNATURE	  ";chunk-signature="

enum state {
	AT_HEAD, /* in the line before the data of a chunk */
	IN_DATA,
	AFTER_DATA, /* in the CRLF after the data */
	IN_TRAILER, /* in the lines after the last, empty chunk */
	AT_END,
	FAILED,
};

enum chunked_mode chunked_mode_of(const char *content_sha256)
{
	if (!content_sha256 || !str_starts(content_sha256, "STREAMING-"))
		return CHUNKED_NONE;
	if (strcmp(content_sha256, SIGV4_STREAMING) == 0)
		return CHUNKED_SIGNED;
	if (strcmp(content_sha256, SIGV4_STREAMING_TRAILER) == 0)
		return CHUNKED_SIGNED_TRAILER;
	if (strcmp(content_sha256, SIGV4_STREAMING_UNSIGNED_TRAILER) == 0)
		return CHUNKED_UNSIGNED_TRAILER;
	return CHUNKED_UNSUPPORTED;
}

static bool is_signed(const struct chunked_decoder *d)
{
	return d->options.mode != CHUNKED_UNSIGNED_TRAILER;
}

static int fail(struct chunked_decoder *d, enum s3_error error, struct penstock_error *err,
	const char *text)
{
	const struct s3_error_info *info = s3_error_info(error);

	d->error = error;
	d->state = FAILED;
	return error_set(err, info->means, "aws-chunked body: %s (%s)", text, info->code);
}

int chunked_decoder_init(struct chunked_decoder *d, const struct chunked_options *options,
	struct penstock_error *err)
{
	*d = (struct chunked_decoder){.options = *options,
		.state = AT_HEAD,
		.line = BUF_INIT(LIMIT_CHUNKED_LINE),
		.trailers = BUF_INIT((size_t)2 * LIMIT_CHUNKED_LINE)};
	if (options->mode != CHUNKED_UNSIGNED_TRAILER && options->mode != CHUNKED_SIGNED &&
		options->mode != CHUNKED_SIGNED_TRAILER)
		return error_set(
			err, PENSTOCK_E_UNSUPPORTED, "this form of aws-chunked is not supported");
	if (!is_signed(d))
		return 0;
	if (!options->ws || !options->chain)
		return error_set(err, PENSTOCK_E_INVALID, "signed chunks need the seed signature");
	d->chain = *options->chain;
	return checksum_init(&d->hash, CHECKSUM_SHA256, err);
}

void chunked_decoder_release(struct chunked_decoder *d)
{
	OPENSSL_cleanse(&d->chain, sizeof(d->chain));
	checksum_release(&d->hash);
	buf_release(&d->line);
	buf_release(&d->trailers);
}

/*
 * Collects a line into d->line, without its LF. Returns the number of bytes used, or -1 if the line
 * exceeds the limit or memory runs out; *whole is set once the line is complete.
 */
static int64_t take_line(struct chunked_decoder *d, const char *data, size_t len, bool *whole)
{
	const char *newline = memchr(data, '\n', len);
	size_t n = newline ? (size_t)(newline - data) : len;

	*whole = newline != NULL;
	if (buf_add(&d->line, data, n) < 0)
		return -1;
	return (int64_t)(n + (newline != NULL));
}

/* Removes the CR at the end of a line. Returns false if there is no CR. */
static bool strip_cr(struct buf *line)
{
	if (!line->len || line->data[line->len - 1] != '\r')
		return false;
	buf_truncate(line, line->len - 1);
	return true;
}

static int out_of_memory(struct chunked_decoder *d, struct penstock_error *err)
{
	d->state = FAILED;
	return error_memory(err);
}

static int line_failed(struct chunked_decoder *d, enum s3_error error, struct penstock_error *err)
{
	return d->line.failure == BUF_NO_MEMORY
		       ? out_of_memory(d, err)
		       : fail(d, error, err, "a line between the chunks is too long");
}

/* Parses "10000;chunk-signature=<64 digits>", or only the size if chunks are not signed. */
static int parse_head(struct chunked_decoder *d, struct penstock_error *err)
{
	const char *p = buf_str(&d->line);
	uint64_t size = 0;
	int digits = 0;

	for (; str_hex_digit(*p) >= 0; p++, digits++) {
		if (digits == 16)
			return fail(d, S3_E_INVALID_CHUNK_SIZE, err, "a chunk size is too long");
		size = size << 4 | (uint64_t)str_hex_digit(*p);
	}
	if (digits == 0 || strlen(buf_str(&d->line)) != d->line.len)
		return fail(d, S3_E_INVALID_CHUNK_SIZE, err,
			"a chunk does not begin with its size in hexadecimal");
	if (is_signed(d)) {
		if (!str_starts(p, CHUNK_SIGNATURE) ||
			strlen(p + strlen(CHUNK_SIGNATURE)) != SIGV4_SIGNATURE_SIZE - 1)
			return fail(d, S3_E_INVALID_CHUNK_SIZE, err,
				"a chunk has no chunk-signature of 64 hexadecimal digits");
		memcpy(d->chunk_signature, p + strlen(CHUNK_SIGNATURE), SIGV4_SIGNATURE_SIZE);
	} else if (*p != '\0' && *p != ';') {
		return fail(d, S3_E_INVALID_CHUNK_SIZE, err,
			"unexpected bytes follow the size of a chunk");
	}
	if (size > LIMIT_CHUNKED_CHUNK)
		return fail(d, S3_E_ENTITY_TOO_LARGE, err, "a chunk is larger than 5 GiB");
	if (size > UINT64_MAX - d->decoded ||
		(d->options.decoded_length != CHUNKED_UNKNOWN_LENGTH &&
			d->decoded + size > d->options.decoded_length))
		return fail(d, S3_E_INCOMPLETE_BODY, err,
			"the chunks hold more than x-amz-decoded-content-length");
	d->chunk_left = size;
	buf_clear(&d->line);
	if (is_signed(d) && checksum_reset(&d->hash) < 0)
		return out_of_memory(d, err);
	d->state = IN_DATA;
	return 0;
}

/* Compares `given` with the signature of the hashed data, and advances the chain. */
static int check_signature(struct chunked_decoder *d,
	int (*signature_of)(struct sigv4 *ws, const struct sigv4_chain *chain, const char *sha256,
		char out[static SIGV4_SIGNATURE_SIZE]),
	const char *given, const char *problem, struct penstock_error *err)
{
	uint8_t digest[CHECKSUM_MAX_SIZE], ours[32], theirs[32];
	char hex[SIGV4_SIGNATURE_SIZE], expected[SIGV4_SIGNATURE_SIZE];

	checksum_final(&d->hash, digest);
	str_hex(digest, 32, hex);
	if (signature_of(d->options.ws, &d->chain, hex, expected) < 0)
		return out_of_memory(d, err);
	if (str_unhex(expected, ours, sizeof(ours)) < 0 ||
		str_unhex(given, theirs, sizeof(theirs)) < 0 ||
		CRYPTO_memcmp(ours, theirs, sizeof(ours)) != 0)
		return fail(d, S3_E_SIGNATURE_DOES_NOT_MATCH, err, problem);
	sigv4_chain_advance(&d->chain, expected);
	return 0;
}

/* Called at the end of the data of a chunk. */
static int finish_chunk(struct chunked_decoder *d, bool last, struct penstock_error *err)
{
	int rc = !is_signed(d) ? 0
			       : check_signature(d, sigv4_chunk_signature, d->chunk_signature,
					 "the signature of a chunk does not match its data", err);

	if (rc == 0)
		d->state = last ? IN_TRAILER : AFTER_DATA;
	return rc;
}

/* Adds "name: value" to the canonical list; the signature of the trailer is kept separately. */
static int parse_trailer(struct chunked_decoder *d, struct penstock_error *err)
{
	char *line = d->line.data;
	char *colon = strchr(line, ':');

	if (d->options.mode == CHUNKED_SIGNED)
		return fail(d, S3_E_MALFORMED_TRAILER, err,
			"unexpected trailers: x-amz-content-sha256 does not announce them");
	if (!colon || colon == line || strlen(line) != d->line.len)
		return fail(d, S3_E_MALFORMED_TRAILER, err, "a trailer is not 'name:value'");
	char *value = colon + 1;
	size_t value_len = strlen(value);

	while (value_len > 0 && ascii_space(*value)) {
		value++;
		value_len--;
	}
	while (value_len > 0 && ascii_space(value[value_len - 1]))
		value[--value_len] = '\0';
	*colon = '\0';
	for (char *p = line; *p; p++) {
		*p = ascii_lower(*p);
		if (*p <= ' ' || *p == 0x7f)
			return fail(d, S3_E_MALFORMED_TRAILER, err,
				"the name of a trailer contains white space");
	}
	if (strcmp(line, TRAILER_SIGNATURE) == 0) {
		if (d->trailer_signature[0] || value_len != SIGV4_SIGNATURE_SIZE - 1)
			return fail(d, S3_E_MALFORMED_TRAILER, err,
				TRAILER_SIGNATURE " must occur once, with 64 digits");
		memcpy(d->trailer_signature, value, SIGV4_SIGNATURE_SIZE);
		return 0;
	}
	if (++d->n_trailers > LIMIT_CHUNKED_TRAILERS)
		return fail(d, S3_E_MALFORMED_TRAILER, err, "too many trailers");
	buf_add_str(&d->trailers, line);
	buf_add_char(&d->trailers, ':');
	buf_add(&d->trailers, value, value_len);
	buf_add_char(&d->trailers, '\n');
	if (d->trailers.failure == BUF_NO_MEMORY)
		return out_of_memory(d, err);
	if (buf_failed(&d->trailers))
		return fail(d, S3_E_MALFORMED_TRAILER, err, "the trailers are too long");
	return 0;
}

/* Returns true if the signature of the trailers is still missing. In the form that AWS documents,
 * an empty line ends the last chunk, as it ends any chunk, and another empty line precedes the
 * signature; most clients send neither. */
static bool lacks_signature(const struct chunked_decoder *d)
{
	return d->options.mode == CHUNKED_SIGNED_TRAILER && !d->trailer_signature[0];
}

static int verify_trailers(struct chunked_decoder *d, struct penstock_error *err)
{
	if (lacks_signature(d))
		return fail(d, S3_E_MALFORMED_TRAILER, err, TRAILER_SIGNATURE " is missing");
	if (checksum_reset(&d->hash) < 0)
		return out_of_memory(d, err);
	checksum_update(&d->hash, buf_str(&d->trailers), d->trailers.len);
	return check_signature(d, sigv4_trailer_signature, d->trailer_signature,
		"the signature of the trailers does not match", err);
}

/* Handles the empty line that ends the body. */
static int finish_trailers(struct chunked_decoder *d, struct penstock_error *err)
{
	if (d->options.mode == CHUNKED_SIGNED_TRAILER) {
		int rc = verify_trailers(d, err);

		if (rc < 0)
			return rc;
	}
	d->state = AT_END;
	for (char *p = d->trailers.data; p && *p && d->options.trailer;) {
		char *newline = strchr(p, '\n');
		char *colon = strchr(p, ':');
		int rc;

		*newline = '\0';
		*colon = '\0';
		rc = d->options.trailer(d->options.cookie, p, colon + 1, err);
		if (rc < 0) {
			d->state = FAILED;
			return rc;
		}
		p = newline + 1;
	}
	return 0;
}

static int feed_line(struct chunked_decoder *d, const char *data, size_t len, size_t *used,
	struct penstock_error *err)
{
	enum s3_error too_long = d->state == IN_TRAILER ? S3_E_MALFORMED_TRAILER
							: S3_E_INVALID_CHUNK_SIZE;
	bool whole;
	int64_t n = take_line(d, data, len, &whole);

	if (n < 0)
		return line_failed(d, too_long, err);
	*used = (size_t)n;
	if (!whole)
		return 0;
	/* Trailers of some clients end in a bare LF. */
	if (!strip_cr(&d->line) && d->state != IN_TRAILER)
		return fail(d, S3_E_INVALID_CHUNK_SIZE, err,
			"a line between the chunks does not end in CRLF");
	if (d->state == AT_HEAD)
		return parse_head(d, err);
	if (d->state == AFTER_DATA) {
		if (d->line.len > 0)
			return fail(d, S3_E_INVALID_CHUNK_SIZE, err,
				"a chunk is longer than its stated size");
		d->state = AT_HEAD;
		return 0;
	}
	if (d->line.len == 0 && lacks_signature(d) && d->n_empty < 2) {
		d->n_empty++;
		return 0;
	}
	int rc = d->line.len > 0 ? parse_trailer(d, err) : finish_trailers(d, err);

	buf_clear(&d->line);
	return rc;
}

static int feed_data(struct chunked_decoder *d, const char *data, size_t len, size_t *used,
	struct penstock_error *err)
{
	size_t n = len < d->chunk_left ? len : (size_t)d->chunk_left;
	bool last = d->chunk_left == 0;

	if (n > 0) {
		if (is_signed(d))
			checksum_update(&d->hash, data, n);
		int rc = d->options.data(d->options.cookie, data, n, err);

		if (rc < 0) {
			d->state = FAILED;
			return rc;
		}
		d->chunk_left -= n;
		d->decoded += n;
	}
	*used = n;
	return d->chunk_left == 0 ? finish_chunk(d, last, err) : 0;
}

/* Some clients send another CRLF after the end. */
static int feed_end(struct chunked_decoder *d, const char *data, size_t len, size_t *used,
	struct penstock_error *err)
{
	for (size_t i = 0; i < len; i++) {
		if ((data[i] != '\r' && data[i] != '\n') || d->line.len == 2)
			return fail(d, S3_E_INCOMPLETE_BODY, err,
				"unexpected bytes after the last chunk");
		if (buf_add_char(&d->line, data[i]) < 0)
			return line_failed(d, S3_E_INCOMPLETE_BODY, err);
	}
	*used = len;
	return 0;
}

int chunked_decoder_feed(
	struct chunked_decoder *d, const void *data, size_t len, struct penstock_error *err)
{
	const char *p = data;

	while (len > 0 || (d->state == IN_DATA && d->chunk_left == 0)) {
		size_t used = 0;
		int rc;

		switch (d->state) {
		case IN_DATA:
			rc = feed_data(d, p, len, &used, err);
			break;
		case AT_END:
			rc = feed_end(d, p, len, &used, err);
			break;
		case FAILED:
			return error_set(
				err, PENSTOCK_E_PROTOCOL, "aws-chunked body: data after a failure");
		default:
			rc = feed_line(d, p, len, &used, err);
		}
		if (rc < 0)
			return rc;
		p += used;
		len -= used;
	}
	return 0;
}

int chunked_decoder_finish(struct chunked_decoder *d, struct penstock_error *err)
{
	if (d->state == FAILED)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"aws-chunked body: decoding failed before its end");
	if (d->state == IN_TRAILER && lacks_signature(d))
		return fail(d, S3_E_MALFORMED_TRAILER, err, TRAILER_SIGNATURE " is missing");
	if (d->state != AT_END)
		return fail(d, S3_E_INCOMPLETE_BODY, err, "the body ends before its last chunk");
	if (d->options.decoded_length != CHUNKED_UNKNOWN_LENGTH &&
		d->decoded != d->options.decoded_length)
		return fail(d, S3_E_INCOMPLETE_BODY, err,
			"the chunks hold less than x-amz-decoded-content-length");
	return 0;
}

size_t chunked_head(uint64_t len, char out[static CHUNKED_HEAD_SIZE])
{
	return (size_t)snprintf(out, CHUNKED_HEAD_SIZE, "%" PRIx64 "\r\n", len);
}

size_t chunked_tail(
	enum checksum_kind kind, const uint8_t *digest, char out[static CHUNKED_TAIL_SIZE])
{
	const char *header = checksum_header(kind);
	char text[CHECKSUM_TEXT_SIZE];

	if (!header)
		return (size_t)snprintf(out, CHUNKED_TAIL_SIZE, "0\r\n\r\n");
	checksum_format(kind, digest, text);
	return (size_t)snprintf(out, CHUNKED_TAIL_SIZE, "0\r\n%s:%s\r\n\r\n", header, text);
}

uint64_t chunked_encoded_length(uint64_t total, uint64_t chunk, enum checksum_kind kind)
{
	static const uint8_t any[CHECKSUM_MAX_SIZE];
	char head[CHUNKED_HEAD_SIZE], tail[CHUNKED_TAIL_SIZE];
	uint64_t rest = total % chunk;
	uint64_t length = total / chunk * (chunked_head(chunk, head) + chunk + 2);

	if (rest > 0)
		length += chunked_head(rest, head) + rest + 2;
	return length + chunked_tail(kind, any, tail);
}
