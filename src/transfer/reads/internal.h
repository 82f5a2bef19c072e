/* Shared by the files of src/transfer/reads. */
#ifndef TRANSFER_READS_INTERNAL_H
#define TRANSFER_READS_INTERNAL_H

#include "net/credentials/credentials.h"
#include "net/plain/plain.h"
#include "s3/date.h"
#include "s3/sign/sigv4.h"
#include "s3/sum/checksum.h"
#include "transfer/client/internal.h"
#include "transfer/reads.h"

struct object_reads {
	struct object_client *client; /* NULL for web resources */
	struct http_engine *engine;
	int64_t patience_ms;
	char *bucket;
	struct plain *plain; /* NULL if the engine runs all reads */
	bool singly; /* a GET for each read, even if the store is penstock */
	/* time before which `plain` is not used, because all reads on it failed */
	int64_t plain_from_ms;
	struct sigv4 sigv4;
	struct buf heads; /* heads of the requests of one run */
	struct buf path, body;
};

#define READS_SILENCE_MS 2000 /* silence after which a read is left to the engine */

/* ---- sign.c ---- */

struct reads_signer {
	struct object_reads *reads;
	struct credentials keys;
	int64_t now; /* the store's time, in seconds since 1970 */
	char date[DATE_BASIC_SIZE];
};
int reads_signer_init(struct reads_signer *s, struct object_reads *reads, const atomic_int *cancel,
	struct penstock_error *err);
void reads_signer_release(struct reads_signer *s);
/* Appends the signed headers to `reads->heads`, and ends the head. `request` has method, path,
 * query and hash. With `sums` the store is asked for the object's checksum. */
int reads_sign(struct reads_signer *s, struct sigv4_request request, bool sums,
	struct penstock_error *err);

/* ---- flight.c ---- */

/* A read in progress. */
struct flight {
	struct object_read *read;
	struct object_client *client;
	uint64_t at; /* bytes received */
	struct checksum sum; /* checksum of a whole object; CHECKSUM_NONE if the store has none */
	uint8_t digest[CHECKSUM_MAX_SIZE]; /* the store's checksum */
};
/* Puts the next bytes of the read into place. */
void flight_add(struct flight *f, const void *data, size_t len);
/* Returns true if all bytes have arrived and match the checksum, if there is one. */
bool flight_is_good(struct flight *f);

/* ---- web.c ---- */

/* Builds the request of a read whose key is a URL; release its headers. */
int reads_web_request(
	struct http_request *request, const struct object_read *read, struct penstock_error *err);
/* Checks that a reply has the version that the read requires. */
int reads_web_check(
	const struct object_read *read, const struct http_reply *reply, struct penstock_error *err);

/* ---- three ways to read, tried one after the other ---- */

/* many.c: sends many small reads in one request, if the store is penstock. Sets `done[i]` for each
 * read that succeeded. */
int reads_many(struct object_reads *reads, struct object_read *items, size_t n, bool *done,
	const atomic_int *cancel, struct penstock_error *err);
/* plain.c: sends a GET for each read that is not done, and sets `done[i]` for each success. */
int reads_plain(struct object_reads *reads, struct object_read *items, size_t n, bool *done,
	const atomic_int *cancel, struct penstock_error *err);
/* engine.c: runs the reads that are not done, and sets their errors. */
int reads_engine(struct object_reads *reads, struct object_read *items, size_t n, const bool *done,
	const atomic_int *cancel, struct penstock_error *err);

#endif
