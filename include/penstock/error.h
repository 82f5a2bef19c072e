/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors: one contract for the whole library.
 *
 * A function that can fail takes `struct penstock_error *err` last and returns 0 on success and a
 * negative number, -(enum penstock_code), on failure; after a failure `*err` describes it:
 *
 *	#include <penstock/transfer.h>
 *
 *	struct penstock_error err = PENSTOCK_ERROR_INIT;
 *
 *	if (penstock_put_file(t, "s3://bucket/key", "a.pth", NULL, NULL, &err) < 0) {
 *		fprintf(stderr, "%s\n", err.message);
 *		penstock_error_release(&err);
 *	}
 *
 * On success `*err` is untouched. `err` may be NULL if the caller only needs the code. A message is
 * one line without a newline and without secrets: what failed, where, and what to do.
 */
#ifndef PENSTOCK_ERROR_H
#define PENSTOCK_ERROR_H

/* Marks the exports of libpenstock. */
#define PENSTOCK_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum penstock_code {
	PENSTOCK_OK = 0,
	PENSTOCK_E_INVALID = 1, /* invalid input: workflow, argument, configuration */
	PENSTOCK_E_NOT_FOUND, /* a file, object, bucket or run does not exist */
	PENSTOCK_E_PERMISSION, /* refused: credentials or file permissions */
	PENSTOCK_E_UNAVAILABLE, /* a service does not answer, or is busy */
	PENSTOCK_E_PRECONDITION, /* a condition (ETag, create-only) did not hold */
	PENSTOCK_E_EXISTS, /* the target exists, or another owner holds it */
	PENSTOCK_E_IO, /* the local machine failed: disk, pipe, system call */
	PENSTOCK_E_NO_SPACE, /* the disk or the quota is full */
	PENSTOCK_E_CORRUPT, /* bytes do not match their length or checksum */
	PENSTOCK_E_LIMIT, /* a limit of penstock was reached; the message names it */
	PENSTOCK_E_CHANGED, /* the source changed while it was read */
	PENSTOCK_E_CANCELLED, /* the caller asked to stop */
	PENSTOCK_E_TIMEOUT, /* a deadline passed */
	PENSTOCK_E_UNSUPPORTED, /* the peer, or this version of penstock, lacks the feature */
	PENSTOCK_E_PROTOCOL, /* the peer violated the protocol */
	PENSTOCK_E_MEMORY, /* out of memory */
	PENSTOCK_E_INTERNAL, /* a defect of penstock */
	PENSTOCK_CODE_COUNT_ /* not a code */
};

struct penstock_error {
	enum penstock_code code;
	int http_status; /* status of the HTTP reply that caused the error; 0 if no reply did */
	/* 1 if every request to the bucket fails in this way: no such bucket, wrong key, expired
	 * token */
	int repeats;
	char *message; /* owned by the struct; one line, with the causes */
};

/* clang-format off */
#define PENSTOCK_ERROR_INIT { PENSTOCK_OK, 0, 0, 0 }
/* clang-format on */

/* Frees the members of `err` and prepares it for reuse. NULL is allowed. */
PENSTOCK_API void penstock_error_release(struct penstock_error *err);

/* Returns a short lower-case name of the code, such as "not found"; never NULL. */
PENSTOCK_API const char *penstock_code_name(enum penstock_code code);

#ifdef __cplusplus
}
#endif

#endif
