/*
 * The verbs cp, mv and sync: their common options, stores and report around a copy (copy/copy.h).
 *
 *	struct copying v = COPYING_INIT;
 *
 *	r = copying_options(&v, cli);
 *	place_parse(&from, "data", false, &err);
 *	r = copying_open(&v, &from, &to, &err);
 *	copy_sources(&v.copy, &(struct copy_request){
 *		.sources = &from, .n = 1, .target = &to}, &err);
 *	return copying_end(&v, r, &err);
 */
#ifndef CLI_OBJECTS_COPYING_H
#define CLI_OBJECTS_COPYING_H

#include "cli/objects/remote.h"
#include "cli/print/transfer_report.h"
#include "copy/copy.h"

/* clang-format off */
#define COPY_OPTIONS                                                                            \
	{ 0, "include", "PATTERN", "Copy only names below the source that match; may be repeated" }, \
	{ 0, "exclude", "PATTERN", "Skip names that match; may be repeated" },          \
	{ 'n', "dry-run", NULL, "Print what would be done" },                                   \
	{ 0, "preserve", NULL, "Keep modification time, mode, symbolic links and empty directories, in x-amz-meta-mtime and -mode" }, \
	{ 0, "no-follow-symlinks", NULL, "Skip symbolic links; default: follow them" },   \
	{ 0, "if-none-match", NULL, "Fail for each target that exists" }, \
	{ 0, "storage-class", "CLASS", "Storage class of new objects, such as STANDARD_IA" },              \
	{ 0, "content-type", "TYPE", "Content type of new objects; default: by the extension" },   \
	{ 0, "metadata", "NAME=VALUE", "Metadata of new objects; may be repeated" },             \
	{ 0, "parallel", "N", "Requests at a time; default: chosen by the throughput" },                      \
	{ 0, "part-size", "SIZE", "Size of the parts of an upload; default: by its size" },                  \
	LIMIT_RATE_OPTION, \
	{ 0, "resume", NULL, "Keep the progress of an interrupted large transfer, so that the same command resumes it (default)" }, \
	{ 0, "no-resume", NULL, "Leave nothing of an interrupted transfer" }, \
	{ 0, "delta", NULL, "Send only the changes of a file over 16 MiB that was sent with this option before" }, \
	{ 0, "force", NULL, "mv, sync --delete: include the state of runs below .penstock/" },                    \
	{ 'v', "verbose", NULL, "Print a line for each item" },                                         \
	{ 0, "json", NULL, "Print a JSON array with an object for each item" },                                \
	REMOTE_OPTIONS, SOURCE_REMOTE_OPTIONS
/* clang-format on */

#define COPY_EXITS                                                                                 \
	{"66", "A source does not exist, or its name is impossible at the target"},                \
		{"69", "A store does not respond, or an item changed during its copy"},            \
		{"77", "A store or the file system denies access, or there are no credentials"},   \
	{                                                                                          \
		"130", "Interrupted; no item is incomplete"                                        \
	}

struct copying {
	const struct cli *cli;
	struct remote remote; /* store of the target, and of the source unless `source` is used */
	struct remote source;
	struct copy_options options;
	char *resume_dir, *delta_dir; /* owned */
	struct copy copy;
	struct report report;
};
/* clang-format off */
#define COPYING_INIT { .report = REPORT_INIT }
/* clang-format on */

/* Reads COPY_OPTIONS. Returns 0, or the exit code after a message. */
int copying_options(struct copying *v, const struct cli *cli);
/* Opens the stores of both sides and begins the copy. */
int copying_open(struct copying *v, const struct place *from, const struct place *to,
	struct penstock_error *err);
/* Ends a verb whose copy has not started any item: prints and releases the error; returns the exit
 * code. */
int copying_refuse(struct copying *v, struct penstock_error *err);
/* Ends the copy: prints the error if `r` is negative, and the summary. Returns the exit code. */
int copying_end(struct copying *v, int r, struct penstock_error *err);
/* Warns if objects with the state of runs were skipped. `verb` is "moves" or "deletes". */
void copying_warn_spared(const struct copying *v, const char *verb);

#endif
