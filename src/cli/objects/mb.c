/* `mb` and `rb`: buckets made and removed. */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "base/banned.h"

/* Negative, or 0 with what was done in `done`. */
typedef int (*bucket_fn)(struct object_client *client, const char *bucket, const char **done,
	struct penstock_error *err);

static int make(struct object_client *client, const char *bucket, const char **done,
	struct penstock_error *err)
{
	/* Asked first: many stores answer the same for one that is there already. */
	*done = bucket_head(client, bucket, NULL) == 0 ? "there already:" : "made";
	return bucket_create(client, bucket, err);
}

static int unmake(struct object_client *client, const char *bucket, const char **done,
	struct penstock_error *err)
{
	*done = "removed";
	return bucket_delete(client, bucket, err);
}

static int each_bucket(const struct cli *cli, bucket_fn fn)
{
	_cleanup_(remote_release) struct remote remote = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = remote_open(&remote, cli, &err);

	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++) {
		_cleanup_(location_release) struct location at = {0};
		const char *done = NULL;

		r = remote_location(cli_operand(cli, i), false, &at, &err);
		if (r == 0)
			r = remote_fits(&remote, &at, &err);
		if (r == 0 && *at.key)
			r = error_set(&err, PENSTOCK_E_INVALID, "%s: a bucket has no key", at.text);
		if (r == 0)
			r = fn(remote.client, at.bucket, &done, &err);
		if (r == 0 && !cli_quiet(cli))
			printf("%s %s://%s\n", done, location_scheme(&at), at.bucket);
	}
	return r < 0 ? remote_fail(cli, &err) : 0;
}

static int run_mb(const struct cli *cli)
{
	return each_bucket(cli, make);
}

static int run_rb(const struct cli *cli)
{
	return each_bucket(cli, unmake);
}

const struct command command_mb = {
	.name = "mb",
	.summary = "make buckets",
	.operands = "s3://BUCKET...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description = "Makes buckets. One that is there already and ours is fine.",
	.options = OPTIONS(REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock mb s3://cifar10", "Makes a bucket"}),
	.exits = EXITS({"69", "The store does not answer, or the name is taken by somebody else"},
		{"77", "The store refuses, or there are no credentials"}),
	.run = run_mb,
};

const struct command command_rb = {
	.name = "rb",
	.summary = "remove empty buckets",
	.operands = "s3://BUCKET...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description = "Removes buckets. One that holds objects is left as it is.",
	.options = OPTIONS(REMOTE_OPTIONS),
	.examples = EXAMPLES(
		{"penstock rb s3://cifar10", "Removes a bucket in which there is nothing"}),
	.exits = EXITS({"66", "There is no such bucket"},
		{"69", "The store does not answer, or the bucket is not empty"},
		{"77", "The store refuses, or there are no credentials"}),
	.run = run_rb,
};
