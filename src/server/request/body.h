/* The body of a request: its headers, its bytes, and the checks at its end. */
#ifndef SERVER_REQUEST_BODY_H
#define SERVER_REQUEST_BODY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "s3/sign/chunked.h"
#include "s3/sum/checksum.h"

struct penstock_error;
struct request;
struct store_body;

enum body_kind { BODY_NONE, BODY_DOCUMENT, BODY_OBJECT, BODY_FORM };

/* Takes the next bytes of a form. Returns 0, or sets the reply or `err` and returns a negative
 * code. */
typedef int (*body_take_fn)(
	struct request *req, const void *data, size_t len, struct penstock_error *err);

struct request_body {
	enum body_kind kind;
	enum chunked_mode mode;
	struct chunked_decoder decoder;
	bool decoding;
	uint64_t declared; /* decoded bytes, or STORE_SIZE_UNKNOWN */
	uint64_t received;
	uint64_t limit;
	struct buf document;
	body_take_fn take; /* gets the bytes of a form */
	struct store_body *object;
	/* `extra` is the checksum that the sender names; `own` is a checksum that the store
	 * computes although the sender names no checksum. */
	struct checksum md5, sha256, extra, own;
	bool has_md5, has_sha256, has_extra, has_own;
	bool hash_late; /* the hasher computes the MD5, and expects the body */
	enum checksum_kind extra_kind;
	char extra_wanted[CHECKSUM_TEXT_SIZE]; /* the expected checksum; "" if not sent */
	bool extra_in_trailer;
	/* Results of body_finish(). */
	/* Hexadecimal MD5, BODY_OBJECT only; if `hash_late` is set, the hasher computes it. */
	char etag[33];
	char extra_value[CHECKSUM_TEXT_SIZE]; /* base64 */
	char own_value[CHECKSUM_TEXT_SIZE]; /* base64; "" without `has_own` */
};

/* Reads the headers that describe the body. Sets the reply and returns false on failure. */
bool body_begin(struct request *req, enum body_kind kind, uint64_t limit);
/* Like body_begin(), for a form; `take` gets the bytes of the form. */
bool body_begin_form(struct request *req, body_take_fn take, uint64_t limit);
/* Computes one more checksum of a body that has begun. Sets the reply and returns false on
 * failure. */
bool body_add_checksum(struct request *req, enum checksum_kind kind);
/* Begins the file in a form, with the headers of the form. Sets the reply and returns false on
 * failure. */
bool body_begin_file(struct request *req);
/* Stores bytes of an object, or of the file in a form. */
int body_store(struct request *req, const void *data, size_t len, struct penstock_error *err);
/* Takes the next bytes of the body. Sets the reply and returns false on failure. */
bool body_feed(struct request *req, const void *data, size_t len);
/* Returns true if no more bytes are expected. */
bool body_is_whole(const struct request *req);
/* Checks lengths, signatures and checksums. Sets the reply and returns false on failure. */
bool body_finish(struct request *req);
/* Releases all but `received`, which the metrics count when the request has ended. */
void body_release(struct request *req);

#endif
