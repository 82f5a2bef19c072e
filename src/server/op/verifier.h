/*
 * Compares an object with its checksum, or with the checksums of its parts, while the object is
 * read from its beginning.
 *
 *	struct verifier v = {.server = req->server, .bucket = bucket, .key = key};
 *
 *	if (verifier_applies(object, offset, length))
 *		rc = verifier_begin(&v, object, err);
 *	...
 *	if (v.object)
 *		rc = verifier_add(&v, data, len, err);
 *	...
 *	verifier_end(&v);
 */
#ifndef SERVER_OP_VERIFIER_H
#define SERVER_OP_VERIFIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/sum/span.h"

struct penstock_error;
struct server;
struct store_object;

struct verifier {
	struct server *server; /* counts damaged objects */
	const char *bucket, *key; /* for the message */
	struct store_object *object; /* a reference; NULL if nothing is compared */
	struct store_span span; /* the span of the next byte */
	struct checksum sum; /* checksum of the span up to `summed` */
	uint64_t summed; /* number of bytes that were added: the offset of the next byte */
};

/* Returns true if the range is the whole object. Returns false for encrypted bytes, which the
 * cipher verifies. */
bool verifier_applies(const struct store_object *object, uint64_t offset, uint64_t length);
int verifier_begin(struct verifier *v, struct store_object *object, struct penstock_error *err);
/* Adds the next bytes of the object. Returns a negative code if they are damaged. */
int verifier_add(struct verifier *v, const char *data, size_t len, struct penstock_error *err);
/* Releases the object; does nothing if verifier_begin() was not called. */
void verifier_end(struct verifier *v);

#endif
