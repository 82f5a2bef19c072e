/*
 * Many reads in one request, an extension of penstock's store (docs/stores.md):
 *
 *	POST /BUCKET?penstock-read
 *
 * The body has a line for each read, the reply a table of the results and then the bytes of all
 * reads in their order.
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

/* The query parameter of the request, and the header of a good reply with its version. */
#define READ_MANY_QUERY	  "penstock-read"
#define READ_MANY_HEADER  "x-penstock-read"
#define READ_MANY_VERSION "1"

/* A line "OFFSET LENGTH ETAG KEY\n": decimal numbers, "*" as the length of all of an object, "-" if
 * any version is good, and the key encoded as in a URL. */
struct read_many_item {
	const char *key;
	uint64_t offset, length; /* of a range */
	bool whole;
	const char *etag; /* with its quotes; NULL for any */
};

/* Appends a line. Returns false if the ETag cannot be in one. */
bool read_many_add(struct buf *body, const struct read_many_item *item);
/* Parses the line at `*at`, in place, and moves on. `key` is memory for its key. Returns 1, 0 at
 * the end, -1 if the line is invalid or out of memory. The item refers to the text and to `key`. */
int read_many_next(char **at, struct buf *key, struct read_many_item *item);

/* bytes of a result: status and kind of checksum (32 bits), length (64), digest; little endian */
#define READ_MANY_ENTRY	 24
#define READ_MANY_DIGEST 8

struct read_many_result {
	/* 200, or that of a GET which would fail so; 501 if the store has the object in several
	 * pieces, and 503 if the reply would be too long: a GET brings it */
	unsigned status;
	uint64_t length; /* bytes in the reply; 0 unless the status is 200 */
	/* CRC32, CRC32C or CRC64NVME of all of an object, as the store has it; else NONE */
	enum checksum_kind kind;
	uint8_t digest[READ_MANY_DIGEST];
};

void read_many_encode(const struct read_many_result *result, uint8_t out[static READ_MANY_ENTRY]);
/* Returns false if it is invalid. */
bool read_many_decode(const uint8_t in[static READ_MANY_ENTRY], struct read_many_result *out);

#endif
