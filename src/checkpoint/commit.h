/*
 * The commit of a checkpoint, from its COMMIT.json:
 *
 *	{"format":"penstock.checkpoint/1","step":1000,"attempt":1,"run":"cifar10",
 *	"time":"2026-11-21T09:05:00.000Z","world_size":2,"metrics":{"loss":0.25},"files":[
 *	{"path":"model.bin","size":500000000,"crc64nvme":"0123456789abcdef"}
 *	],"crc64nvme":"fedcba9876543210"}
 *
 * The last member is the checksum of all bytes before the comma that precedes it: a truncated or
 * damaged document is not a commit. Documents of other programs may lack the checksum or have
 * unknown members. A commit is untrusted input: no name is used as a path before
 * commit_name_is_good() accepts it.
 */
#ifndef CHECKPOINT_COMMIT_H
#define CHECKPOINT_COMMIT_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"

struct penstock_error;

#define COMMIT_NAME   "COMMIT.json"
#define COMMIT_SUFFIX ".COMMIT.json" /* end of the name of a single file's commit */
#define COMMIT_FORMAT "penstock.checkpoint/1"
/* Prefix of the names of a save's own files, which are not part of the checkpoint and are not
 * published. */
#define COMMIT_HIDDEN ".penstock-"

struct commit_metric {
	char *name;
	double value;
};

struct commit_file {
	/* relative to the checkpoint's directory; the name of the file if the checkpoint is a
	 * file */
	char *name;
	uint64_t size;
	uint64_t crc; /* CRC-64/NVME */
};

struct commit {
	char *path; /* the directory or file of the checkpoint; NULL if unknown */
	bool single; /* the commit of a single file, next to the file */
	uint64_t step;
	unsigned attempt;
	char *run;
	int64_t time_ns;
	unsigned world_size;
	struct commit_metric *metrics;
	size_t n_metrics;
	struct commit_file *files; /* in byte order of the names */
	size_t n_files;
};

struct commit *commit_new(void); /* NULL if out of memory */
void commit_free(struct commit *c);
static inline void commit_freep(struct commit **c)
{
	commit_free(*c);
}

/* Converts a digest of CRC-64/NVME to a number. */
static inline uint64_t commit_crc(const uint8_t digest[static 8])
{
	uint64_t crc;

	memcpy(&crc, digest, sizeof(crc));
	return be64toh(crc);
}

/* Returns true for a relative path of plain names: no "." or "..", no control characters, no empty
 * component, no component that starts with COMMIT_HIDDEN, and not COMMIT.json. The path has at most
 * LIMIT_CHECKPOINT_NAME bytes, and a component at most 255. */
bool commit_name_is_good(const char *name);
/* Returns true if `name`, without directories, is the name of a commit: COMMIT.json, or the name of
 * a file with COMMIT_SUFFIX. */
bool commit_is_name(const char *name);

/* Both functions return -1 if out of memory. */
int commit_add_file(struct commit *c, const char *name, uint64_t size, uint64_t crc);
int commit_set_metric(struct commit *c, const char *name, double value);
const struct commit_metric *commit_find_metric(const struct commit *c, const char *name);
const struct commit_file *commit_find_file(const struct commit *c, const char *name);
uint64_t commit_size(const struct commit *c);
/* Sorts the files by name. Fails with PENSTOCK_E_EXISTS if two names are the same. Called before
 * commit_format(). */
int commit_sort_files(struct commit *c, struct penstock_error *err);
/* Compares by attempt, then step, then time: the newer commit is greater. */
int commit_compare(const struct commit *a, const struct commit *b);

/* Appends the document, with its checksum, to `out`. */
int commit_format(const struct commit *c, struct buf *out, struct penstock_error *err);
/* Fails with PENSTOCK_E_CORRUPT if the document is truncated, damaged or not a commit, with
 * PENSTOCK_E_UNSUPPORTED if it has another version of COMMIT_FORMAT, and with PENSTOCK_E_LIMIT if
 * it has more than LIMIT_COMMIT bytes. `name` is for messages. */
int commit_parse(struct commit **out, const char *data, size_t len, const char *name,
	struct penstock_error *err);
/* Returns true if an invalid document was meant to be a commit; otherwise it is an ordinary
 * file. */
bool commit_is_meant(const char *data, size_t len);

#endif
