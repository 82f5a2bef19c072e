/* `mb` and `rb`: make and remove buckets. */
#include <string.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"

static int change_bucket(
	void *cookie, struct remote *remote, struct location *at, struct penstock_error *err)
{
	const struct cli *cli = cookie;
	bool make = strcmp(cli_verb(cli), "mb") == 0;
	const char *done = "removed";
	int r;

	if (*at->key)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot %s bucket '%s': the URL has a key", make ? "create" : "remove",
			at->text);
	/* Check first: many stores reply to the creation in the same way whether the bucket existed
	 * or not. */
	if (make)
		done = bucket_head(remote->client, at->bucket, NULL) == 0 ? "exists already:"
									  : "made";
	r = make ? bucket_create(remote->client, at->bucket, err)
		 : bucket_delete(remote->client, at->bucket, err);
	if (r == 0 && !cli_quiet(cli))
		printf("%s %s://%s\n", done, location_scheme(at), at->bucket);
	return r;
}

static int run(const struct cli *cli)
{
	return remote_operands(cli, false, false, change_bucket, (void *)(uintptr_t)cli);
}

const struct command command_mb = {
	.name = "mb",
	.summary = "make buckets",
	.operands = "s3://BUCKET...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description = "Makes buckets. Succeeds if this account has the bucket already.",
	.options = OPTIONS(REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock mb s3://cifar10", "Make a bucket"}),
	.exits = EXITS({"69", "The store does not respond, or another account has the name"},
		{"77", "The store denies access, or there are no credentials"}),
	.run = run,
};

const struct command command_rb = {
	.name = "rb",
	.summary = "remove empty buckets",
	.operands = "s3://BUCKET...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description = "Removes buckets. Fails if a bucket has objects.",
	.options = OPTIONS(REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock rb s3://cifar10", "Remove an empty bucket"}),
	.exits = EXITS({"66", "There is no such bucket"},
		{"69", "The store does not respond, or the bucket is not empty"},
		{"77", "The store denies access, or there are no credentials"}),
	.run = run,
};
