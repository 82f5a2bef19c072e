/* The comparison of the database with itself and with the data files. Shared by check.c and
 * repair.c. */
#ifndef STORE_UPKEEP_SURVEY_H
#define STORE_UPKEEP_SURVEY_H

#include "store/upkeep/internal.h"

/* A piece of an object. */
struct survey_use {
	uint64_t blob;
	uint64_t end; /* end of the piece in the file */
	bool encrypted;
};

/* A data file that is missing or damaged; only its first `size` bytes can be used. */
struct survey_bad {
	uint64_t blob;
	uint64_t size;
};

struct survey_fix {
	enum {
		FIX_REFS, /* set the references of a file */
		FIX_ADD, /* add the row of a file */
		FIX_UNUSED, /* remove the row of a file, and move the file to ROOT/aside */
		FIX_SURPLUS, /* move a file to ROOT/aside */
		FIX_BODY, /* move a row of `bodies` to ROOT/aside, as a file */
		FIX_BUCKET /* add a bucket with a new name */
	} kind;
	uint64_t id, refs, size;
	/* FIX_ADD: the seal of the file, if it is encrypted. */
	bool encrypted;
	uint8_t seal[SEAL_SIZE];
};

struct survey {
	struct store *store;
	struct db *db;
	struct upkeep_report *report;
	struct survey_use *uses; /* sorted by file in survey_blobs() */
	size_t n_uses;
	struct survey_bad *bad; /* sorted by file in survey_lost() */
	size_t n_bad;
	struct survey_fix *fixes;
	size_t n_fixes;
	bool blind; /* a layout is invalid, so some uses are unknown */
	bool lone_parts; /* there are parts of missing uploads, which a repair removes */
};
void survey_release(struct survey *s);
/* Runs SQLite's integrity check. Sets *sound to true if there is no finding, else to false. Counts
 * and reports the findings if `report` is set. */
int survey_integrity(struct survey *s, bool report, bool *sound, struct penstock_error *err);
/* Compares the rows with each other and with the data files. */
int survey_all(struct survey *s, struct penstock_error *err);

#endif
