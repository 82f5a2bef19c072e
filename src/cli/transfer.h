/*
 * What cp, mv and sync share: their options, the two sides, and the way from one item to its report.
 *
 *	struct transfer t = TRANSFER_INIT;
 *
 *	transfer_begin(&t, cli);		reads the options
 *	place_parse(&from, text, &err); ...
 *	transfer_open(&t, &from, NULL, &err);
 *	transfer_push(&t, &item, size, &err);	as often as needed
 *	transfer_finish(&t, &err);		all have ended
 *	return transfer_end(&t);		summary and exit code
 */
#ifndef CLI_TRANSFER_H
#define CLI_TRANSFER_H

#include "cli/transfer_report.h"
#include "transfer/bulk.h"
#include "transfer/listing.h"

/* clang-format off */
#define TRANSFER_OPTIONS                                                                            \
	{ 0, "include", "PATTERN", "Only what matches one of these, below its source; may be repeated" }, \
	{ 0, "exclude", "PATTERN", "Nothing that matches one of these; may be repeated" },          \
	{ 'n', "dry-run", NULL, "Only says what would be done" },                                   \
	{ 0, "preserve", NULL, "Keeps time of change, mode, links and empty directories, in x-amz-meta-mtime and -mode" }, \
	{ 0, "no-follow-symlinks", NULL, "Leaves links out; default: what they lead to is sent" },   \
	{ 0, "if-none-match", NULL, "Never writes over anything: what is there already is an error" }, \
	{ 0, "storage-class", "CLASS", "As the store names it, such as STANDARD_IA" },              \
	{ 0, "content-type", "TYPE", "Of all objects made; default: by the ending of the name" },   \
	{ 0, "metadata", "NAME=VALUE", "Kept with each object made; may be repeated" },             \
	{ 0, "parallel", "N", "Requests at a time; default: as many as pay" },                      \
	{ 0, "part-size", "SIZE", "Of an upload in parts; default: by the size" },                  \
	{ 0, "resume", NULL, "A large transfer that fails, is interrupted or killed is gone on with by the same command; default: nothing is left of it" }, \
	{ 0, "delta", NULL, "Of a large file that replaces one that was sent with this option before, sends only what differs" }, \
	{ 0, "force", NULL, "Removes also what runs keep below .penstock/" },                       \
	{ 'v', "verbose", NULL, "One line for each item" },                                         \
	{ 0, "json", NULL, "A list of objects, one for each item" },                                \
	REMOTE_OPTIONS, SOURCE_REMOTE_OPTIONS
/* clang-format on */

#define TRANSFER_EXITS                                                                             \
	{"66", "A source is not there, or its name cannot be used at the target"},                 \
		{"69", "A store does not answer, or something changed meanwhile"},                 \
		{"77", "A store or the file system refuses, or there are no credentials"},         \
	{                                                                                          \
		"130", "Interrupted; nothing is half there"                                        \
	}

/* A source or target as it was given. */
struct place {
	struct location
		at;	/* of a web server `text` is only for messages: without a query or a user */
	char *url;	/* then what `key` is; owned */
	bool wildcard;	/* '*' and '?' in it mean something */
	bool directory; /* it ends in "/", is a bucket, or a local directory: "what is below" */
	/*
	 * What names below it begin with: "" or a key that ends in "/"; a local path without the slash at its
	 * end; a URL with one. Of a source with a wildcard what goes before it. Owned; NULL of pipes.
	 */
	char *base;
};

struct transfer {
	const struct cli *cli;
	bool move;
	bool dry_run;
	bool preserve;
	bool no_clobber;
	bool force;
	enum walk_links links;
	struct path_filter filter;
	struct object_put_options put;
	bool resume, delta;
	char *resume_dir, *delta_dir; /* owned */
	unsigned parallel;

	struct remote remote; /* of the target, and of all where no other store was named */
	struct remote source;
	bool from_google, to_google;
	bool same_store;		 /* both sides are in one, under whatever name */
	struct object_client *from, *to; /* NULL: that side is none of object storage */
	struct bulk *bulk;
	struct report report;

	uint64_t failed; /* items */
	/* Set for a step that nobody is told of; takes its error. */
	struct penstock_error *aside;
};
/* clang-format off */
#define TRANSFER_INIT { .report = REPORT_INIT }
/* clang-format on */

/* Reads the options that TRANSFER_OPTIONS are; 0, or the exit code after a mistake was told. */
int transfer_begin(struct transfer *t, const struct cli *cli);
/* Signs on to the stores that the two sides are in; NULL: a side is in none. */
int transfer_open(struct transfer *t, const struct place *from, const struct place *to,
	struct penstock_error *err);
/*
 * Hands it over, or with --dry-run tells of it; `size` as far as it is known. Its end is reported, whatever it is.
 * An error: everything is to end.
 */
int transfer_push(struct transfer *t, const struct bulk_item *item, uint64_t size,
	struct penstock_error *err);
/* Waits for all that was pushed. Items that failed were told, and are no error. */
int transfer_finish(struct transfer *t, struct penstock_error *err);
/* Tells of an item that never got so far. Releases the error. */
void transfer_item_failed(struct transfer *t, const char *from, struct penstock_error *err);
/* Of a verb that ends with an error: told, released. Then as transfer_end(). */
int transfer_fail(struct transfer *t, struct penstock_error *err);
/* Frees what it holds; for a verb that never began. */
void transfer_close(struct transfer *t);
/* The same, behind the summary; returns the exit code. */
int transfer_end(struct transfer *t);

/* `raw`: '*' and '?' are ordinary. */
int place_parse(struct place *out, const char *text, bool raw, struct penstock_error *err);
void place_release(struct place *place);
/* The last component of what it names, without a slash; "": it has none. free() it. NULL: no memory. */
char *place_name(const struct place *place);

/*
 * An item's way to `name` below `target` ("a/b"), or, where `name` is NULL, to exactly what the target names.
 * The texts live in `out`.
 */
struct aim {
	char *key, *path, *url; /* one of them */
	size_t path_root;
};
/* PENSTOCK_E_INVALID: there can be no such key or file. */
int aim_at(
	struct aim *out, const struct place *target, const char *name, struct penstock_error *err);
void aim_release(struct aim *aim);
/* The target side of an item. */
void aim_item(const struct transfer *t, const struct aim *aim, const struct place *target,
	struct bulk_item *item);

/* "s3://bucket/key", or gs://. free() it; aborts without memory. */
char *object_text(bool google, const char *bucket, const char *key);

/* The ways that do not fit into a bulk: pipes, and from a web server to a store. */
int transfer_plain(struct transfer *t, const struct place *source, const struct place *target,
	const char *name, struct penstock_error *err);
/* Whether it is one of them. */
bool transfer_is_plain(const struct place *source, const struct place *target);

/* Whether runs keep it for themselves; a relative path or a key. */
bool belongs_to_runs(const char *path);

#endif
