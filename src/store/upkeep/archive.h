/*
 * The archive of an export: a tar file with these members, which any tar program can unpack.
 *
 *	penstock-store.json	{"format": 1}
 *	accounts.json		{"records": {"user/NUMBER/name": {…}, …}}, secrets included; only if
 *				asked for
 *	BUCKET/bucket.json	name, time, region, versioning, configurations
 *	BUCKET/1		the bytes of the first object or version; a marker has none;
 *				BUCKET/1.encrypted if the store encrypts them
 *	BUCKET/1.json		key, time, checksums, headers, parts; CRC64NVME of the bytes
 *	BUCKET/end.json		{"objects": 1, "bytes": 5}
 *	end.json		{"buckets": 1}
 *
 * The document of an object follows its bytes, so that the bytes are read only once.
 *
 *	struct tar_member m;
 *
 *	tar_write(out, "end.json", text, len);
 *
 *	while ((rc = tar_next(in, &m, err)) > 0)
 *		tar_read(in, &m, buf, sizeof(buf), err);	// until it returns 0
 */
#ifndef STORE_UPKEEP_ARCHIVE_H
#define STORE_UPKEEP_ARCHIVE_H

#include <jansson.h>
#include <stdio.h>

#include "store/upkeep/internal.h"

#define EXPORT_FORMAT	1
#define EXPORT_ACCOUNTS "accounts.json"
/* Maximum bytes of one document. */
#define EXPORT_DOCUMENT_MAX (64 * MIB)
/* The end of the name of a member whose bytes the store encrypts; the archive has clear text. */
#define EXPORT_ENCRYPTED ".encrypted"

/* --- tar (tar.c) ----------------------------------------------------------------------------- */

#define TAR_NAME_SIZE 101

struct tar_member {
	char name[TAR_NAME_SIZE];
	uint64_t size;
	uint64_t left; /* bytes not yet read */
};

/* Opens a stream on a copy of the descriptor. Returns NULL with errno on failure. */
FILE *tar_open(int fd, const char *mode);
/* Begin and end a member, whose bytes the caller writes in between. The error flag of `out` reports
 * failures. */
void tar_begin(FILE *out, const char *name, uint64_t size);
void tar_end(FILE *out, uint64_t size);
void tar_write(FILE *out, const char *name, const void *data, size_t len);
/* Ends the archive. */
void tar_finish(FILE *out);
/* Returns 1 with the next member, 0 at the end, or a negative code. The previous member must have
 * been read to its end. */
int tar_next(FILE *in, struct tar_member *m, struct penstock_error *err);
/* Returns fewer bytes than `len` only at the end of the member, or a negative code. */
ssize_t tar_read(
	FILE *in, struct tar_member *m, void *data, size_t len, struct penstock_error *err);

/* --- documents (documents.c) ----------------------------------------------------------------- */

/* An object or a version; `key` belongs to the JSON value. */
struct export_object {
	const char *key;
	bool current, marker, is_null;
	uint64_t size;
	int64_t modified_ns;
	char etag[STORE_ETAG_SIZE];
	struct store_checksum checksum;
	struct buf headers;
	struct store_part *parts;
	size_t n_parts;
	char crc[STORE_CHECKSUM_SIZE]; /* CRC64NVME of the bytes */
};
json_t *export_object_json(const struct cursor *at, const struct cursor_row *row, const char *crc);
int export_object_read(json_t *json, struct export_object *out, struct penstock_error *err);
void export_object_release(struct export_object *object);

struct export_bucket {
	const char *name, *region;
	int64_t created_ns;
	int versioning;
	json_t *configs; /* borrowed; maps each name to a base64 text */
};
int export_bucket_read(json_t *json, struct export_bucket *out, struct penstock_error *err);

/* --- accounts (records.c) -------------------------------------------------------------------- */

/* Creates the document of accounts, users, groups, roles and managed policies, and counts its
 * records. */
int export_records_json(struct db *db, json_t **out, uint64_t *count, struct penstock_error *err);
/* Adds all records, or none. Fails with PENSTOCK_E_EXISTS if the store has a record that is missing
 * or different in the archive. */
int import_records(
	struct store *store, const json_t *document, uint64_t *count, struct penstock_error *err);

#endif
