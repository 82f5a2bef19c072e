/* `sync`: makes a tree like another. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/transfer_tree.h"
#include "s3/checksum.h"
#include "transfer/compare.h"
#include "base/banned.h"

struct syncing {
	struct transfer t;
	struct place source, target;
	struct tree_way way;
	struct compare_rules rules;
	bool remove;
	bool force;
	FILE *gone; /* what is only at the target, each name behind it a NUL; in a file, for there may be many */
	uint64_t n_gone;
	int root; /* the local target */
	uint64_t spared;
	uint64_t found; /* at the source */
};

static void syncing_release(struct syncing *s)
{
	if (s->gone)
		fclose(s->gone);
	cleanup_closep(&s->root);
	tree_way_release(&s->way);
	place_release(&s->source);
	place_release(&s->target);
}

/* ---- what was asked for ---- */

static int refuse(struct penstock_error *err, const struct place *place, const char *why)
{
	return error_set(err, PENSTOCK_E_INVALID, "%s: %s", place->at.text, why);
}

static bool is_object(const struct place *place)
{
	return place->at.kind == LOCATION_OBJECT;
}

static int parse_operands(struct syncing *s, struct penstock_error *err)
{
	struct stat st;
	int r = place_parse(&s->source, cli_operand(s->t.cli, 0), true, err);

	if (r == 0)
		r = place_parse(&s->target, cli_operand(s->t.cli, 1), true, err);
	if (r < 0)
		return r;
	for (int i = 0; i < 2; i++) {
		const struct place *place = i ? &s->target : &s->source;

		if (place->at.kind != LOCATION_OBJECT && place->at.kind != LOCATION_LOCAL)
			return refuse(
				err, place, "a sync is between directories and s3:// prefixes");
	}
	if (!is_object(&s->source) && !is_object(&s->target))
		return refuse(
			err, &s->source, "neither it nor the target is s3://; use rsync for that");
	if (!is_object(&s->source) && !s->source.directory)
		return stat(s->source.at.key, &st) < 0
			       ? error_errno(err, errno, "%s", s->source.at.key)
			       : refuse(err, &s->source,
					 "it is no directory; 'penstock cp' is for single files");
	if (s->target.at.kind == LOCATION_LOCAL && !s->target.directory &&
		stat(s->target.base, &st) == 0)
		return refuse(err, &s->target, "it is there, and no directory");
	return 0;
}

static int check_itself(const struct syncing *s, struct penstock_error *err)
{
	const char *from = s->source.base, *to = s->target.base;

	if (!s->t.same_store || strcmp(s->source.at.bucket, s->target.at.bucket) != 0)
		return 0;
	if (str_starts(to, from) || str_starts(from, to))
		return refuse(err, &s->target, "one of source and target is the other, or in it");
	return 0;
}

static void read_rules(struct syncing *s)
{
	const struct cli *cli = s->t.cli;

	s->remove = cli_has(cli, "delete");
	s->force = cli_has(cli, "force");
	s->rules = (struct compare_rules){.size_only = cli_has(cli, "size-only"),
		.exact_times = cli_has(cli, "exact-timestamps"),
		/* What --preserve gives a file is the time that it had before it went into the store. */
		.checksum = cli_has(cli, "checksum") ||
			    (s->t.preserve && is_object(&s->source) && !is_object(&s->target) &&
				    !cli_has(cli, "size-only")),
		.cancel = s->t.remote.cancel};
	s->rules.from = (struct compare_side){
		.directory = is_object(&s->source) ? NULL : s->source.base,
		.client = s->t.from,
		.bucket = s->source.at.bucket};
	s->rules.to = (struct compare_side){
		.directory = is_object(&s->target) ? NULL : s->target.base,
		.client = s->t.to,
		.bucket = s->target.at.bucket};
}

/* ---- the comparison ---- */

static int open_gone(struct syncing *s, struct penstock_error *err)
{
	const char *dir = getenv("TMPDIR");
	int fd = open(dir && *dir ? dir : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	s->gone = fd >= 0 ? fdopen(fd, "w+") : NULL;
	if (s->gone)
		return 0;
	if (fd >= 0)
		close(fd);
	return error_errno(err, errno,
		"cannot hold the names to be deleted in %s; TMPDIR names another place",
		dir && *dir ? dir : "/var/tmp");
}

static int note_gone(struct syncing *s, const struct entry *entry, struct penstock_error *err)
{
	int r;

	if (!s->remove)
		return 0;
	/* A local directory goes by being empty, if it does. */
	if (entry->kind == ENTRY_DIRECTORY && !entry->key)
		return 0;
	if (!s->force && belongs_to_runs(entry->path)) {
		s->spared++;
		return 0;
	}
	if (!s->gone && (r = open_gone(s, err)) < 0)
		return r;
	if (fwrite(entry->path, entry->path_len + 1, 1, s->gone) != 1)
		return error_errno(err, errno, "cannot hold the names to be deleted");
	s->n_gone++;
	return 0;
}

/* A link here and an object that holds where it leads. */
static bool same_link(const struct syncing *s, const struct entry *from, const struct entry *to)
{
	_cleanup_free_ char *path = NULL;
	char target[PATH_MAX], hex[2 * CHECKSUM_MAX_SIZE + 1];
	uint8_t digest[CHECKSUM_MAX_SIZE];
	ssize_t n;

	if (!s->t.preserve || !from->etag || asprintf(&path, "%s/%s", s->target.base, to->path) < 0)
		return false;
	n = readlink(path, target, sizeof(target));
	if (n < 0 || checksum_of(CHECKSUM_MD5, target, (size_t)n, digest, NULL) < 0)
		return false;
	str_hex(digest, 16, hex);
	return strncmp(from->etag + (*from->etag == '"'), hex, 32) == 0;
}

static int on_verdict(void *cookie, enum compare_verdict verdict, const struct entry *from,
	const struct entry *to, struct penstock_error *err)
{
	struct syncing *s = cookie;
	/* A link at the target is replaced by what is to be there, whatever it leads to. */
	bool link = to && to->kind == ENTRY_LINK;

	s->found += from != NULL;
	if (verdict == COMPARE_GONE)
		return note_gone(s, to, err);
	if (verdict == COMPARE_NEW || !(link ? same_link(s, from, to) : verdict == COMPARE_SAME))
		return tree_way_take(&s->way, from, err);
	if (from->kind != ENTRY_DIRECTORY)
		report_same(&s->t.report);
	return tree_way_same(&s->way, from, err);
}

static int compare(struct syncing *s, struct penstock_error *err)
{
	_cleanup_(entry_source_freep) struct entry_source *from = NULL, *to = NULL;
	struct entry entry;
	int r = tree_way_open(&s->way, &s->source, s->t.from, &from, err);

	if (r < 0)
		return r;
	if (!is_object(&s->target) && access(s->target.base, F_OK) < 0 && s->t.dry_run) {
		while (r >= 0 && (r = entry_source_next(from, &entry, err)) > 0)
			r = on_verdict(s, COMPARE_NEW, &entry, NULL, err);
		return r;
	}
	r = tree_way_open(&s->way, &s->target, s->t.to, &to, err);
	if (r == 0)
		r = compare_trees(from, to, &s->rules, on_verdict, s, err);
	return r == 0 ? tree_way_end(&s->way, err) : r;
}

/* ---- deletions ---- */

/* By way of the directories themselves: a link that somebody put in the place of one leads out of the tree. */
static int remove_file(struct syncing *s, const char *name, struct penstock_error *err)
{
	const char *slash = strrchr(name, '/');
	_cleanup_close_ int dir = -1;
	size_t at = 0;

	if (s->root < 0)
		s->root = open(s->target.base, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (s->root < 0)
		return error_errno(err, errno, "cannot open the directory %s", s->target.base);
	dir = fs_open_below(s->root, name, slash ? (size_t)(slash - name) : 0, false, &at);
	if (dir < 0 && errno == ENOENT)
		return 0;
	if (dir < 0 && errno == ENOTDIR)
		return error_set(err, PENSTOCK_E_CHANGED,
			"%s/%s: not deleted, because %.*s is no directory any more; try again",
			s->target.base, name, (int)at, name);
	if (dir < 0)
		return error_errno(
			err, errno, "cannot open the directory of %s/%s", s->target.base, name);
	if (unlinkat(dir, slash ? slash + 1 : name, 0) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot delete %s/%s", s->target.base, name);
	return 0;
}

static int remove_one(struct syncing *s, const char *name, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	bool object = is_object(&s->target);

	if (asprintf(&path, object ? "%s%s" : "%s/%s", s->target.base, name) < 0)
		return error_memory(err);
	if (object)
		return transfer_push(&s->t,
			&(struct bulk_item){.kind = BULK_DELETE,
				.from_client = s->t.to,
				.from_bucket = s->target.at.bucket,
				.from_key = path},
			0, err);
	if (remote_interrupted())
		return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	if (!s->t.dry_run && remove_file(s, name, &own) < 0)
		transfer_item_failed(&s->t, path, &own);
	else
		report_done(&s->t.report, &(struct report_item){.action = "delete", .from = path});
	return 0;
}

static int remove_gone(struct syncing *s, struct penstock_error *err)
{
	_cleanup_free_ char *name = NULL;
	size_t size = 0;
	int r = 0;

	if (!s->n_gone)
		return 0;
	if (s->t.failed) {
		log_warn("nothing was deleted, because not everything was transferred; %llu %s at "
			 "the target only",
			(unsigned long long)s->n_gone, s->n_gone == 1 ? "name is" : "names are");
		return 0;
	}
	/* A mistyped source looks like one from which everything was deleted. */
	if (!s->found && !s->force)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"%s: there is nothing, so nothing was deleted at the target; --force "
			"deletes it",
			s->source.at.text);
	if (fflush(s->gone) != 0 || fseek(s->gone, 0, SEEK_SET) != 0)
		return error_errno(err, errno, "cannot read the names to be deleted");
	while (r == 0 && getdelim(&name, &size, '\0', s->gone) > 0)
		r = remove_one(s, name, err);
	if (r == 0 && ferror(s->gone))
		r = error_errno(err, errno, "cannot read the names to be deleted");
	return r == 0 ? transfer_finish(&s->t, err) : r;
}

/* ---- the verb ---- */

static int begin(struct syncing *s, struct penstock_error *err)
{
	int r = parse_operands(s, err);

	if (r == 0)
		r = transfer_open(&s->t, is_object(&s->source) ? &s->source : NULL,
			is_object(&s->target) ? &s->target : NULL, err);
	if (r == 0)
		r = check_itself(s, err);
	if (r == 0 && !is_object(&s->target) && !s->t.dry_run)
		r = fs_mkdirs(s->target.base, 0777, err);
	s->way = (struct tree_way){
		.t = &s->t, .source = &s->source, .target = &s->target, .under = ""};
	read_rules(s);
	return r;
}

static int run_sync(const struct cli *cli)
{
	_cleanup_(syncing_release) struct syncing s = {.t = TRANSFER_INIT, .root = -1};
	static const char *const rules[] = {"size-only", "exact-timestamps", "checksum", NULL};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = cli_refuse_together(cli, rules);

	if (r == 0)
		r = transfer_begin(&s.t, cli);
	if (r)
		return r;
	r = begin(&s, &err);
	if (r < 0) {
		r = remote_fail(cli, &err);
		transfer_close(&s.t);
		return r;
	}
	r = compare(&s, &err);
	if (r == 0)
		r = transfer_finish(&s.t, &err);
	if (r == 0)
		r = remove_gone(&s, &err);
	if (s.spared)
		log_warn("left %llu object%s below .penstock/, which runs keep; --force deletes "
			 "them, too",
			(unsigned long long)s.spared, s.spared == 1 ? "" : "s");
	return r < 0 ? transfer_fail(&s.t, &err) : transfer_end(&s.t);
}

static const struct option_spec options[] = {
	{0, "delete", NULL, "Deletes what is at the target only, once all else succeeded"},
	{0, "size-only", NULL, "What has the same size is the same"},
	{0, "exact-timestamps", NULL, "What has another time is another, older ones too"},
	{0, "checksum", NULL, "The content decides; reads all files of the same size"},
	TRANSFER_OPTIONS,
	{0, NULL, NULL, NULL},
};

static const struct command_example examples[] = {
	{"penstock sync data/ s3://data/train/", "Uploads what is new or has changed"},
	{"penstock sync --delete s3://data/train data", "Makes a directory like a prefix"},
	{"penstock sync -n s3://old/x s3://new/x", "Says what is missing in another bucket"},
	{NULL, NULL},
};

static const struct command_exit exits[] = {TRANSFER_EXITS, {NULL, NULL}};

const struct command command_sync = {
	.name = "sync",
	.summary = "make a directory or prefix like another",
	.operands = "SOURCE TARGET",
	.min_operands = 2,
	.max_operands = 2,
	.description =
		"Brings what lies below SOURCE below TARGET, under the same names; each is a local "
		"directory or s3://BUCKET[/PREFIX], and a '/' at the end makes no difference. Sent "
		"is what is not there, has another size, or is newer than what is there; nobody is "
		"asked about single objects. An upload's time is that of the store, and a download "
		"gets it, so the next sync finds nothing to do.\n\n"
		"With --delete what is only at the target is deleted, at the end, and only if "
		"everything else succeeded; what --include and --exclude leave out stays, and so "
		"does "
		"what runs keep below .penstock/, but for --force.",
	.options = options,
	.examples = examples,
	.exits = exits,
	.run = run_sync,
};
