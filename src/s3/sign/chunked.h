/*
 * The aws-chunked content encoding: decoder for the server, encoder for the client.
 *
 *	struct chunked_decoder d;
 *
 *	r = chunked_decoder_init(&d, &(struct chunked_options){ .mode = mode,
 *		.decoded_length = n, .ws = ws, .chain = chain, .data = on_data,
 *		.trailer = on_trailer, .cookie = me }, err);
 *	while (r == 0 && (len = read(fd, bytes, sizeof(bytes))) > 0)
 *		r = chunked_decoder_feed(&d, bytes, len, err);
 *	if (r == 0)
 *		r = chunked_decoder_finish(&d, err);
 *	chunked_decoder_release(&d);
 *
 * Data is passed on as it arrives, before the signature of its chunk is known; it must not become
 * visible until finish() has succeeded. After a failure `d.error` is the error for the reply.
 */
#ifndef S3_SIGN_CHUNKED_H
#define S3_SIGN_CHUNKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "s3/sum/checksum.h"
#include "s3/message/errors.h"
#include "s3/sign/sigv4.h"

enum chunked_mode {
	CHUNKED_NONE, /* x-amz-content-sha256 names no streaming form: the body is plain */
	CHUNKED_SIGNED,
	CHUNKED_SIGNED_TRAILER,
	CHUNKED_UNSIGNED_TRAILER,
	CHUNKED_UNSUPPORTED, /* STREAMING-… of a kind that is not supported (ECDSA) */
};
/* Gets the mode from the value of x-amz-content-sha256; NULL gives CHUNKED_NONE. */
enum chunked_mode chunked_mode_of(const char *content_sha256);

#define CHUNKED_UNKNOWN_LENGTH UINT64_MAX

struct chunked_options {
	/* CHUNKED_SIGNED, CHUNKED_SIGNED_TRAILER or CHUNKED_UNSIGNED_TRAILER */
	enum chunked_mode mode;
	uint64_t decoded_length; /* x-amz-decoded-content-length, or CHUNKED_UNKNOWN_LENGTH */
	struct sigv4 *ws; /* borrowed, for signed modes; used only by the feeding thread */
	const struct sigv4_chain *chain; /* copied, for signed modes */
	/* Returns 0, or a negative code with `err` set, which ends the decoding. */
	int (*data)(void *cookie, const void *data, size_t len, struct penstock_error *err);
	/* Called for each trailer header, with its name in lower case, before finish() succeeds.
	 * NULL to ignore trailers. */
	int (*trailer)(
		void *cookie, const char *name, const char *value, struct penstock_error *err);
	void *cookie;
};

struct chunked_decoder {
	struct chunked_options options;
	/* the error for the reply; S3_OK if decoding has not failed, or failed in a callback or for
	 * lack of memory */
	enum s3_error error;
	/* the members below are private to the decoder */
	struct sigv4_chain chain;
	struct checksum hash;
	int state;
	uint64_t chunk_left;
	uint64_t decoded;
	char chunk_signature[SIGV4_SIGNATURE_SIZE];
	char trailer_signature[SIGV4_SIGNATURE_SIZE];
	struct buf line; /* the current line of a chunk or trailer */
	struct buf trailers; /* canonical, for their signature */
	unsigned n_trailers, n_empty; /* trailers; empty lines before their signature */
};
int chunked_decoder_init(struct chunked_decoder *d, const struct chunked_options *options,
	struct penstock_error *err);
void chunked_decoder_release(struct chunked_decoder *d);
int chunked_decoder_feed(
	struct chunked_decoder *d, const void *data, size_t len, struct penstock_error *err);
int chunked_decoder_finish(struct chunked_decoder *d, struct penstock_error *err);

/*
 * Encoder for STREAMING-UNSIGNED-PAYLOAD-TRAILER: the body is
 *
 *	chunked_head(n) data… CRLF   for each chunk, then   chunked_tail(kind, digest)
 *
 * and chunked_encoded_length() is its Content-Length if all chunks but the last have `chunk` bytes.
 */
#define CHUNKED_HEAD_SIZE 20 /* "ffffffffffffffff\r\n" and its NUL */
#define CHUNKED_TAIL_SIZE 128 /* "0\r\nx-amz-checksum-…:base64\r\n\r\n" and its NUL */
size_t chunked_head(uint64_t len, char out[static CHUNKED_HEAD_SIZE]);
size_t chunked_tail(
	enum checksum_kind kind, const uint8_t *digest, char out[static CHUNKED_TAIL_SIZE]);
uint64_t chunked_encoded_length(uint64_t total, uint64_t chunk, enum checksum_kind kind);

#endif
