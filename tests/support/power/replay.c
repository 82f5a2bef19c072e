/*
 * Opens the store in each state that a power loss may leave at any point of a write log, and checks
 * that the store agrees with the replies that clients received.
 *
 *	power-replay [options] LOG EXPECTED STORE
 *
 * STORE is the store's path below the recorded directory. EXPECTED has one line for each change
 * that a client requested; the changes of one key or upload are in the order of their requests.
 * REPLY is the id of the reply that acknowledged the change, or "-" if there was no reply:
 *
 *	bucket NAME make|remove REPLY
 *	object BUCKET KEY REPLY ETAG SIZE CRC32 META	CRC32 in hexadecimal; META of x-amz-meta-v
 *	gone BUCKET KEY REPLY
 *	upload BUCKET KEY ID REPLY
 *	part ID NUMBER REPLY ETAG SIZE
 *	ended ID REPLY					completed or aborted
 *	keys ID SECRET					the keys of the server
 *	view NAME REQUEST				a whole request in base64
 *	events						a view of the number of pending events
 *	shows REPLY N DIGEST...				digests of the views so far, from the Nth on
 *	steps REPLY N DIGEST...				the same after several unordered changes
 *
 * Options:
 *	--ignore CLASS  ignore the syncs of a class (see model.h), to test that the check fails
 *	--draws N	random states at each point (2)
 *	--short		only states without all unsynced changes, at each commit of the database
 *	--upkeep	also do what `penstock store check` and `penstock store scrub` do
 *	--shard I/N	only every Nth point
 *	--every N	also check points between the syncs, after every N changes
 *	--relaxed	a power loss may undo acknowledged changes, but never a part of one
 *	--disk DIR	finally, compare the last state of the log with the recorded directory
 *
 * States are built below $TMPDIR, which should be a tmpfs.
 */
#include "expect.h"
#include "model.h"

#include <err.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"

/* The states are temporary, so they need not reach a disk. */
__attribute__((visibility("default"))) int fsync(int fd)
{
	(void)fd;
	return 0;
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	(void)fd;
	return 0;
}

/* The log is freed only by the exit of the process, which is not a leak. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

int syncfs(int fd);
__attribute__((visibility("default"))) int syncfs(int fd)
{
	(void)fd;
	return 0;
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text)
		errx(64, "invalid number '%s'", text);
	return n;
}

struct options {
	const char *ignore, *disk;
	unsigned draws, shard, shards, every;
	bool relaxed, is_short, upkeep;
};

static struct options parse(int argc, char **argv)
{
	static const struct option names[] = {{"ignore", 1, NULL, 'i'}, {"draws", 1, NULL, 'd'},
		{"shard", 1, NULL, 's'}, {"relaxed", 0, NULL, 'r'}, {"every", 1, NULL, 'e'},
		{"disk", 1, NULL, 'D'}, {"short", 0, NULL, 'S'}, {"upkeep", 0, NULL, 'u'}, {0}};
	struct options o = {.draws = 2, .shards = 1};
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		const char *slash;

		if (c == 'i')
			o.ignore = optarg;
		else if (c == 'D')
			o.disk = optarg;
		else if (c == 'd')
			o.draws = (unsigned)number(optarg);
		else if (c == 'S')
			o.is_short = true;
		else if (c == 'u')
			o.upkeep = true;
		else if (c == 'e')
			o.every = (unsigned)number(optarg);
		else if (c == 'r')
			o.relaxed = true;
		else if (c == 's' && (slash = strchr(optarg, '/')) != NULL) {
			o.shard = (unsigned)number(optarg);
			o.shards = (unsigned)number(slash + 1);
		} else
			exit(64);
	}
	if (argc - optind != 3 || !o.shards)
		errx(64, "usage: power-replay [options] LOG EXPECTED STORE");
	return o;
}

/* Builds one state, checks it, and removes it. */
static bool try_state(struct model *m, struct expected *e, const struct options *o, unsigned mode,
	const char *store)
{
	static const char *const modes[] = {
		"nothing", "everything", "no data", "no names", "only names", "a prefix", "a draw"};
	unsigned seed = (unsigned)model_position(m) * 31 + mode;
	char dir[PATH_MAX], *root;
	bool good;

	if (!model_temporary(dir, sizeof(dir)) || asprintf(&root, "%s/%s", dir, store) < 0)
		err(1, "%s", dir);
	model_build(m, mode, seed, dir);
	good = expected_check(e, root,
		&(struct power_loss){.position = model_position(m),
			.seed = seed,
			.relaxed = o->relaxed,
			.upkeep = o->upkeep});
	if (!good)
		printf("at record %zu of %zu, with %s of %zu unsynced changes (seed %u)\n",
			model_position(m), model_length(m),
			modes[mode < BUILD_RANDOM ? mode : BUILD_RANDOM], model_pending(m), seed);
	fs_remove_tree(dir, NULL);
	free(root);
	return good;
}

int main(int argc, char **argv)
{
	struct options o = parse(argc, argv);
	struct model *m = model_load(argv[optind], o.ignore);
	struct expected *e = expected_load(argv[optind + 1], m);
	unsigned points = 0, states = 0;
	bool good = true;

	log_set_level(LOG_ERROR); /* hides the messages about the files that each start removes */
	while (good && model_next_point(m, o.every)) {
		unsigned modes = o.is_short ? BUILD_NOTHING + 1 : BUILD_RANDOM + o.draws;

		if (points++ % o.shards != o.shard || (o.is_short && !model_at_commit(m)))
			continue;
		for (unsigned mode = BUILD_NOTHING; good && mode < modes; mode++) {
			good = try_state(m, e, &o, mode, argv[optind + 2]);
			states++;
		}
	}
	if (good && o.disk)
		good = model_matches(m, o.disk);
	printf("%u points, %u states, %zu checks\n", points, states, expected_checks(e));
	model_free(m);
	return good ? 0 : 1;
}
