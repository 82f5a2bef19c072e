/*
 * Maintenance of a store: its contents, its integrity, and repairs.
 *
 *	struct store *guest;
 *	struct upkeep_report report = {.problem = print, .cookie = stdout};
 *
 *	r = store_open(&guest, &(struct store_options){.root = root, .guest = true}, err);
 *	if (r == 0)
 *		r = upkeep_check(guest, &report, err);
 *	if (r == 0 && report.problems)
 *		r = -1; // print() got them
 *	store_close(guest);
 *
 * Statistics, check, scrub, backup and export take a store that is open as a guest, even while
 * another process serves it. Repair and import must own the store.
 */
#ifndef STORE_UPKEEP_UPKEEP_H
#define STORE_UPKEEP_UPKEEP_H

#include <stdatomic.h>

#include "store/store.h"

/* --- statistics ------------------------------------------------------------------------------ */

struct upkeep_bucket {
	char name[64];
	enum store_versioning versioning;
	uint64_t objects, bytes;
	uint64_t versions, version_bytes; /* older versions */
	uint64_t markers;
	uint64_t uploads, upload_bytes; /* unfinished */
};

/* Versions of a bucket whose replication to another store is pending. */
struct upkeep_lag {
	char bucket[64], target[64];
	uint64_t versions, bytes;
	int64_t oldest_ns;
};

struct upkeep_stat {
	struct upkeep_bucket *buckets; /* the caller frees this array and `lags` */
	size_t n_buckets;
	struct upkeep_lag *lags;
	size_t n_lags;
	struct upkeep_bucket total;
	uint64_t files, file_bytes; /* data files; bytes that objects share count once */
	uint64_t database_bytes, log_bytes;
	uint64_t free_bytes;
	int64_t format;
	bool served; /* another process owns the store */
	bool relaxed; /* changes by the owner, or by an owner that was killed, may not be durable */
};
int upkeep_stat(struct store *store, struct upkeep_stat *out, struct penstock_error *err);

/* --- check and repair ------------------------------------------------------------------------ */

enum upkeep_problem {
	UPKEEP_DATABASE, /* SQLite reports that its file is damaged */
	UPKEEP_ROW, /* a row that contradicts itself or other rows */
	UPKEEP_REFERENCES, /* a data file with a wrong count of references, or without a row */
	UPKEEP_MISSING, /* a data file that is missing or has the wrong size */
	/* an object that has lost bytes: a data file is missing or has the wrong size, or the row
	 * of its body is missing */
	UPKEEP_LOST,
	/* a data file that neither an object nor a row names, or a body that no object names */
	UPKEEP_SURPLUS,
	UPKEEP_PROBLEMS_
};
/* Returns the name of a problem, such as "references". */
const char *upkeep_problem_name(enum upkeep_problem problem);

struct upkeep_report {
	void (*problem)(
		void *cookie, enum upkeep_problem problem, bool repairable, const char *text);
	void *cookie;
	/* Results. */
	uint64_t problems, repairable;
	uint64_t objects, files; /* numbers of checked objects and files */
	/* true if there was no search for surplus files, because the owner may be writing new
	 * files */
	bool served;
};
/* Compares the database with itself and with the names and sizes of the data files. */
int upkeep_check(struct store *store, struct upkeep_report *report, struct penstock_error *err);
/* Like upkeep_check() for an owner, and repairs the repairable problems. No data file is deleted:
 * files that no object uses are moved to ROOT/aside. */
int upkeep_repair(struct store *store, struct upkeep_report *report, struct penstock_error *err);

/* --- scrub ----------------------------------------------------------------------------------- */

struct upkeep_progress {
	uint64_t objects, bytes; /* read */
	uint64_t unverified; /* objects that have no checksum, or a customer's key */
	uint64_t damaged;
	uint64_t all_bytes; /* bytes in the store when the scrub started */
};

struct upkeep_scrub {
	uint64_t bytes_per_second; /* 0 if unlimited */
	bool restart; /* do not resume an interrupted scrub */
	const atomic_int *stop; /* interrupts the scrub; may be NULL */
	void (*damaged)(void *cookie, const char *text);
	/* called after each block that was read */
	void (*progress)(void *cookie, const struct upkeep_progress *progress);
	void *cookie;
	/* Results. */
	bool resumed, interrupted;
	struct upkeep_progress done;
};
/* Reads each body from the disk and compares it with the checksums with which it was stored.
 * ROOT/scrub.json has the position of an unfinished scrub. */
int upkeep_scrub(struct store *store, struct upkeep_scrub *scrub, struct penstock_error *err);

/* --- copies ---------------------------------------------------------------------------------- */

struct upkeep_copied {
	uint64_t buckets, objects, bytes;
	uint64_t files, new_files; /* set only by a backup */
	uint64_t accounts; /* includes users, groups, roles, managed policies */
	uint64_t left_out; /* set by an export only: versions with customers' keys */
	bool left_accounts; /* the archive has accounts that were not imported */
};
/* Makes `dir` a store with the present state and all files needed to serve it, except a master key
 * outside of ROOT. If `dir` has an earlier backup, copies only the new data files. Fails with
 * PENSTOCK_E_EXISTS if a process serves `dir`, or if `dir` is a store but not a backup. */
int upkeep_backup(struct store *store, const char *dir, const atomic_int *stop,
	struct upkeep_copied *copied, struct penstock_error *err);

struct upkeep_archive {
	int fd;
	const char *const *buckets; /* buckets to export; NULL for all */
	/* export or import accounts, users, groups, roles and managed policies, too, with their
	 * secrets */
	bool accounts;
	const atomic_int *stop;
};
/* Writes all buckets, or only the named buckets, as a tar archive, and verifies the bytes. Leaves
 * out versions that are encrypted with keys of customers. Fails with PENSTOCK_E_CORRUPT at the
 * first damaged object. */
int upkeep_export(struct store *store, const struct upkeep_archive *archive,
	struct upkeep_copied *copied, struct penstock_error *err);
/* Adds the buckets of an archive from upkeep_export(), each after it was read and verified
 * completely. A bucket that the store already has is an error. If accounts are imported, an account
 * of the store that is missing or different in the archive is an error, too. */
int upkeep_import(struct store *store, const struct upkeep_archive *archive,
	struct upkeep_copied *copied, struct penstock_error *err);

#endif
