/*
 * Data sets as operands: the options of their formats, and their stores.
 *
 *	struct set_operand in = SET_OPERAND_INIT;
 *	int code = set_options(&in, cli, "format");
 *
 *	if (code == 0 && set_open(&in, url, &err) == 0)
 *		puts(dataset_format(in.set));
 *	set_release(&in);
 */
#ifndef CLI_DATASET_SET_H
#define CLI_DATASET_SET_H

#include "cli/objects/remote.h"
#include "dataset/dataset.h"

/* clang-format off */
#define SET_OPTIONS                                                                             \
	{ 0, "record-size", "BYTES", "records: bytes of each record" },                         \
	{ 0, "header", "BYTES", "records: bytes before the first record of a shard" },          \
	{ 0, "trailer", "BYTES", "records: bytes after the last record of a shard" },           \
	{ 0, "dtype", "uint16|uint32", "tokens: type of a token; default: uint16" },            \
	{ 0, "window", "N", "tokens: number of tokens of a sample" },                           \
	{ 0, "stride", "N", "tokens: tokens between sample starts; default: the window" }
/* clang-format on */

/* clang-format off */
#define SET_EXITS(away)                                                                         \
	{ "66", "There is no such bucket, object or file, or the data set is damaged, has changed, "    \
		"is of an unknown kind or too large" },                                         \
	{ "69", away },                                                                         \
	{ "77", "The store denies access, or there are no credentials" }
/* clang-format on */

struct set_operand {
	const struct cli *cli;
	struct dataset_options options;
	struct remote remote;
	/* The store of the target, which is already open; NULL if the verb has no target. */
	const struct remote *target;
	struct dataset *set;
};
/* clang-format off */
#define SET_OPERAND_INIT { .cli = NULL }
/* clang-format on */

/* Reads SET_OPTIONS and the option with the name of the format, and watches for Ctrl-C. Returns 0,
 * or the exit code after a message. */
int set_options(struct set_operand *in, const struct cli *cli, const char *format);
/* Opens the data set and, at the first call, its store. The caller may set `in->options.fresh`
 * before the call. */
int set_open(struct set_operand *in, const char *url, struct penstock_error *err);
/* Like remote_fail(), but returns 66 if the data set is damaged, has changed or is too large, or if
 * its format is unknown. */
int set_fail(const struct cli *cli, struct penstock_error *err);
void set_release(struct set_operand *in);

#endif
