/*
 * Many reads in one request, an extension of penstock's store (docs/stores.md):
 *
 *	POST /BUCKET?penstock-read
 *
 * The body has a line for each read. The reply has a table of the results, then the bytes of all
 * reads in the same order.
 *
 * Client:
 *
 *	read_many_add(&body, &(struct read_many_item){.key = "a", .whole = true});
 *	...
 *	read_many_decode(reply + i * READ_MANY_ENTRY, &result);
 *
 * Server:
 *
 *	while ((r = read_many_next(&at, &key, &item)) > 0)
 *		...
 *	read_many_encode(&result, table + i * READ_MANY_ENTRY);
 */
#ifndef S3_MESSAGE_READ_MANY_H
#define S3_MESSAGE_READ_MANY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "s3/sum/checksum.h"

/* The query parameter of the request, and the header of a successful reply, whose value is the
 * version of the format. */
#define READ_MANY_QUERY	  "penstock-read"
#define READ_MANY_HEADER  "x-penstock-read"
#define READ_MANY_VERSION "1"

/* A line "OFFSET LENGTH ETAG KEY\n": decimal numbers, "*" as the length of a whole object, "-" as
 * the ETag if any version is acceptable, and the key encoded as in a URL. */
struct read_many_item {
	const char *key;
	uint64_t offset, length; /* range of bytes; unused if `whole` */
	bool whole;
	const char *etag; /* with quotes; NULL if any version is acceptable */
};

/* Appends a line. Returns false if the ETag cannot be in a line. */
bool read_many_add(struct buf *body, const struct read_many_item *item);
/* Parses the line at `*at` in place, and moves `*at` to the next line. `key` is memory for the key.
 * Returns 1, 0 at the end, -1 if the line is invalid or memory runs out. The item refers to the
 * text and to `key`. */
int read_many_next(char **at, struct buf *key, struct read_many_item *item);

/* bytes of a result: status and kind of checksum (32 bits each), length (64 bits), digest; numbers
 * are little endian */
#define READ_MANY_ENTRY	 24
#define READ_MANY_DIGEST 8

struct read_many_result {
	/* 200, or the status with which a GET would fail. 501 if the object is encrypted with a
	 * customer's key or its bytes cannot be read; 503 if the reply would be too long or access
	 * could not be decided. After 501 or 503 the client may send a GET of the range. */
	unsigned status;
	uint64_t length; /* bytes in the reply; 0 unless the status is 200 */
	/* CRC32, CRC32C or CRC64NVME of the object if the whole object was read and the store has
	 * this checksum, else CHECKSUM_NONE */
	enum checksum_kind kind;
	uint8_t digest[READ_MANY_DIGEST];
};

void read_many_encode(const struct read_many_result *result, uint8_t out[static READ_MANY_ENTRY]);
/* Decodes a result. Returns false if the result is invalid. */
bool read_many_decode(const uint8_t in[static READ_MANY_ENTRY], struct read_many_result *out);

#endif
