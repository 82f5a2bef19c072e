/* Shared by the two ways to read. */
#ifndef TRANSFER_READS_INTERNAL_H
#define TRANSFER_READS_INTERNAL_H

#include "net/plain/plain.h"
#include "s3/sign/sigv4.h"
#include "transfer/client/internal.h"
#include "transfer/reads.h"

struct object_reads {
	struct object_client *client;
	char *bucket;
	struct plain *plain; /* NULL: the engine does everything */
	int64_t plain_from_ms; /* not before: everything failed on it lately */
	struct sigv4 sigv4;
	struct buf heads; /* of the requests of one run */
	struct buf path;
};

/* plain.c: reads what it can, and sets `done[i]` for that. */
int reads_plain(struct object_reads *reads, struct object_read *items, size_t n, bool *done,
	const atomic_int *cancel, struct penstock_error *err);
/* engine.c: reads the others, and sets their errors. */
int reads_engine(struct object_reads *reads, struct object_read *items, size_t n, const bool *done,
	const atomic_int *cancel, struct penstock_error *err);

#endif
