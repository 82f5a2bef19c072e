/* `cp` and `mv`: files and objects, from anywhere to anywhere. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/transfer_tree.h"
#include "base/banned.h"

struct copying {
	struct transfer t;
	struct place *sources;
	size_t n;
	struct place target;
	bool recursive;
	bool into; /* names are put below the target */
	uint64_t spared;
};

static void copying_release(struct copying *c)
{
	for (size_t i = 0; c->sources && i < c->n; i++)
		place_release(&c->sources[i]);
	free(c->sources);
	place_release(&c->target);
}

/* ---- what was asked for ---- */

static int refuse(struct penstock_error *err, const char *text, const char *why)
{
	return error_set(err, PENSTOCK_E_INVALID, "%s: %s", text, why);
}

static bool is_object(const struct place *place)
{
	return place->at.kind == LOCATION_OBJECT;
}

static int check_pair(
	const struct copying *c, const struct place *source, struct penstock_error *err)
{
	const struct place *target = &c->target;
	enum location_kind from = source->at.kind, to = target->at.kind;
	const char *text = source->at.text;
	bool several = source->wildcard || c->n > 1 || (source->directory && c->recursive);

	if (from != LOCATION_OBJECT && from != LOCATION_HTTP && to != LOCATION_OBJECT &&
		to != LOCATION_HTTP)
		return refuse(err, text,
			"neither it nor the target is s3:// or http(s)://; use 'cp' for that");
	if (from == LOCATION_STDIO && c->n > 1)
		return refuse(err, text, "standard input cannot be one of several sources");
	if (from == LOCATION_STDIO && c->into)
		return refuse(err, target->at.text,
			"standard input has no name; give the whole name of the target");
	if (to == LOCATION_STDIO && several)
		return refuse(err, text,
			"only one thing goes to standard output; 'penstock cat' writes several");
	if (from == LOCATION_OBJECT && to == LOCATION_HTTP && several)
		return refuse(err, text,
			"several objects go to a web server by way of a directory; copy them there "
			"first");
	if (from == LOCATION_HTTP && source->directory)
		return refuse(err, text, "a web server lists nothing; name a file");
	if (c->t.move && (from == LOCATION_STDIO || from == LOCATION_HTTP || to == LOCATION_STDIO ||
				 to == LOCATION_HTTP))
		return refuse(err, text,
			"what goes from or to a pipe or a web server can be copied, not moved");
	return 0;
}

/* A tree that grows while it is copied into itself would never end. */
static int check_itself(
	const struct copying *c, const struct place *source, struct penstock_error *err)
{
	const struct place *target = &c->target;
	_cleanup_free_ char *name = place_name(source), *base = NULL;
	bool nested = c->into && name && *name;

	if (!is_object(source) || !is_object(target) || !c->t.same_store ||
		strcmp(source->at.bucket, target->at.bucket) != 0)
		return 0;
	if (asprintf(&base, "%s%s%s", target->base, nested ? name : "", nested ? "/" : "") < 0)
		return error_memory(err);
	if (source->wildcard ? strcmp(target->base, source->base) == 0
			     : c->recursive && str_starts(base, source->base))
		return refuse(err, target->at.text, "the target is the source itself, or below it");
	return 0;
}

struct named {
	char *name; /* owned */
	const struct place *place;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int same_names(const struct place *a, const struct place *b, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"%s and %s may both become the same at the target; give them one after the other",
		a->at.text, b->at.text);
}

static int find_same(struct named *names, size_t n, struct penstock_error *err)
{
	qsort(names, n, sizeof(*names), by_name);
	for (size_t i = 1; i < n; i++) {
		if (strcmp(names[i - 1].name, names[i].name) == 0)
			return same_names(names[i - 1].place, names[i].place, err);
	}
	return 0;
}

/* Several things cannot have one name. */
static int check_names(const struct copying *c, struct penstock_error *err)
{
	struct named *names = c->n > 1 ? calloc(c->n, sizeof(*names)) : NULL;
	size_t n = 0;
	int r = 0;

	if (c->n < 2)
		return 0;
	if (!names)
		return error_memory(err);
	for (size_t i = 0; r == 0 && i < c->n; i++) {
		const struct place *place = &c->sources[i];
		char *name = place_name(place);

		if (!name) {
			r = error_memory(err);
		} else if (!place->wildcard && *name) {
			names[n++] = (struct named){name, place};
		} else {
			/* Contents may well be put into one another, but not when they are lost by it. */
			free(name);
			if (c->t.move)
				r = same_names(&c->sources[i ? 0 : 1], place, err);
		}
	}
	if (r == 0)
		r = find_same(names, n, err);
	for (size_t i = 0; i < n; i++)
		free(names[i].name);
	free(names);
	return r;
}

static int parse_operands(struct copying *c, struct penstock_error *err)
{
	const struct cli *cli = c->t.cli;
	bool raw = cli_has(cli, "raw");
	int r;

	c->n = cli_n_operands(cli) - 1;
	c->sources = calloc(c->n, sizeof(*c->sources));
	if (!c->sources)
		return error_memory(err);
	r = place_parse(&c->target, cli_operand(cli, c->n), true, err);
	for (size_t i = 0; r == 0 && i < c->n; i++)
		r = place_parse(&c->sources[i], cli_operand(cli, i), raw, err);
	if (r < 0)
		return r;
	if (c->target.at.kind == LOCATION_STDIO && !c->t.dry_run) {
		if (c->t.report.json)
			return refuse(err, c->target.at.text,
				"standard output is the object's, so --json has no place");
		c->t.report.aside = true;
	}
	c->into = c->target.directory || c->n > 1 || c->sources[0].wildcard;
	for (size_t i = 0; r == 0 && i < c->n; i++)
		r = check_pair(c, &c->sources[i], err);
	return r == 0 ? check_names(c, err) : r;
}

/* ---- the local target ---- */

static int make_target(const struct copying *c, bool tree, struct penstock_error *err)
{
	const char *base = c->target.base;
	_cleanup_free_ char *parent = NULL;
	bool directory = c->into || tree;
	struct stat st;

	if (c->target.at.kind != LOCATION_LOCAL || !base || !*base || c->t.dry_run)
		return 0;
	if (directory && stat(base, &st) == 0 && !S_ISDIR(st.st_mode))
		return error_set(err, PENSTOCK_E_EXISTS,
			"%s is no directory; name one for several files", base);
	parent = strdup(base);
	if (!parent)
		return error_memory(err);
	return fs_mkdirs(directory ? base : dirname(parent), 0777, err);
}

/* ---- one thing ---- */

static int tell_failed(struct copying *c, const struct place *source, struct penstock_error *own,
	struct penstock_error *err)
{
	if (own->code == PENSTOCK_E_CANCELLED)
		return error_move(err, own);
	transfer_item_failed(&c->t, source->at.text, own);
	return 0;
}

static bool same_object(const struct copying *c, const struct bulk_item *item)
{
	return item->kind == BULK_COPY && c->t.same_store &&
	       strcmp(item->from_bucket, item->to_bucket) == 0 &&
	       strcmp(item->from_key, item->to_key) == 0;
}

/* Of one name; `info` is of an object. */
static int push_one(struct copying *c, const struct place *source, const struct object_info *info,
	uint64_t size, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_(aim_release) struct aim aim = {0};
	_cleanup_free_ char *name = place_name(source);
	struct bulk_item item = {
		.kind = BULK_UPLOAD, .path = source->at.key, .remove_source = c->t.move};
	int r = name ? make_target(c, false, &own) : error_memory(&own);

	if (r == 0 && !path_filter_takes(&c->t.filter, name))
		return 0;
	/* "a/" as a key has no name of its own. */
	if (r == 0 && c->into && is_object(source) && !*name)
		r = error_set(&own, PENSTOCK_E_INVALID,
			"it has no name behind its last \"/\"; let the target be its whole new "
			"name");
	if (r == 0)
		r = aim_at(&aim, &c->target, c->into ? name : NULL, &own);
	if (r < 0)
		return tell_failed(c, source, &own, err);
	if (is_object(source)) {
		item.kind = is_object(&c->target) ? BULK_COPY : BULK_DOWNLOAD;
		item.from_client = c->t.from;
		item.from_bucket = source->at.bucket;
		item.from_key = source->at.key;
		item.known = info;
		item.path = NULL;
	} else if (source->at.kind == LOCATION_HTTP) {
		item.kind = BULK_DOWNLOAD;
		item.from_url = source->at.key;
		item.path = NULL;
	}
	aim_item(&c->t, &aim, &c->target, &item);
	if (same_object(c, &item)) {
		error_set(&own, PENSTOCK_E_INVALID, "source and target are the same object");
		return tell_failed(c, source, &own, err);
	}
	return transfer_push(&c->t, &item, size, err);
}

/* ---- a tree ---- */

static int go_tree(struct copying *c, const struct place *source, struct penstock_error *err)
{
	_cleanup_(tree_way_release) struct tree_way way = {
		.t = &c->t, .source = source, .target = &c->target};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *name = place_name(source), *under = NULL;
	bool nested = c->into && !source->wildcard && name && *name;
	uint64_t failed = c->t.failed;
	int r = make_target(c, true, &own);

	if (r < 0)
		return tell_failed(c, source, &own, err);
	if (!name || asprintf(&under, "%s%s", nested ? name : "", nested ? "/" : "") < 0)
		return error_memory(err);
	way.under = under;
	r = tree_way_go(&way, c->t.from, &own);
	c->spared += way.spared;
	if (r < 0)
		return tell_failed(c, source, &own, err);
	/* With several sources one is done before the next begins: then the last one wins. */
	if (c->n > 1 || c->t.move)
		r = transfer_finish(&c->t, err);
	if (r == 0 && c->t.move && !c->t.dry_run && source->at.kind == LOCATION_LOCAL &&
		!source->wildcard && failed == c->t.failed)
		remove_empty_directories(source->base, *name != '\0');
	if (r == 0 && !way.entries && source->wildcard) {
		error_set(&own, PENSTOCK_E_NOT_FOUND, "nothing matches");
		return tell_failed(c, source, &own, err);
	}
	return r;
}

static int go_object(struct copying *c, const struct place *source, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	struct remote *remote = c->t.source.client ? &c->t.source : &c->t.remote;
	uint64_t found = c->t.report.found;
	bool tree = source->directory && (c->recursive || !source->at.literal || !*source->at.key);
	int r;

	if (source->wildcard)
		return go_tree(c, source, err);
	if (tree && !c->recursive)
		r = error_set(&own, PENSTOCK_E_INVALID,
			"it means everything below it; say --recursive if that is what you want");
	else
		r = 0;
	/* Of many each is asked for when its turn comes, beside the others. */
	if (r == 0 && !tree && c->n > 1 && !c->recursive && !c->t.dry_run)
		return push_one(c, source, NULL, 0, err);
	if (r == 0 && !tree) {
		r = object_head(c->t.from, source->at.bucket, source->at.key, &info, &own);
		if (r == 0)
			r = push_one(c, source, &info, info.size, &own);
		else if (c->recursive && own.code == PENSTOCK_E_NOT_FOUND)
			r = 0;
		else
			r = remote_missing(remote, &source->at, &own);
	}
	if (r == 0 && c->recursive) {
		penstock_error_release(&own);
		r = go_tree(c, source, &own);
		if (r == 0 && c->t.report.found == found && !c->spared && !c->t.failed &&
			!source->directory)
			r = error_set(&own, PENSTOCK_E_NOT_FOUND,
				"there is no such object, and none below it");
	}
	return r < 0 ? tell_failed(c, source, &own, err) : 0;
}

static int go_local(struct copying *c, const struct place *source, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	struct stat st;

	if (source->wildcard)
		return go_tree(c, source, err);
	if (lstat(source->at.key, &st) < 0) {
		error_errno(&own, errno, "%s", source->at.key);
		return tell_failed(c, source, &own, err);
	}
	if (!source->directory ||
		(S_ISLNK(st.st_mode) && c->t.preserve && !str_ends(source->at.key, "/")))
		return push_one(c, source, NULL, (uint64_t)st.st_size, err);
	if (c->recursive)
		return go_tree(c, source, err);
	error_set(&own, PENSTOCK_E_INVALID,
		"it is a directory; say --recursive if you want all of it");
	return tell_failed(c, source, &own, err);
}

static int go_source(struct copying *c, const struct place *source, struct penstock_error *err)
{
	_cleanup_free_ char *name = NULL;

	if (transfer_is_plain(source, &c->target)) {
		name = c->into ? place_name(source) : NULL;
		return transfer_plain(&c->t, source, &c->target, name, err);
	}
	if (is_object(source))
		return go_object(c, source, err);
	if (source->at.kind == LOCATION_HTTP)
		return push_one(c, source, NULL, 0, err);
	return go_local(c, source, err);
}

static int run(const struct cli *cli, bool move)
{
	_cleanup_(copying_release) struct copying c = {
		.t = TRANSFER_INIT, .recursive = cli_has(cli, "recursive")};
	static const char *const over[] = {"no-clobber", "if-none-match", NULL};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct place *from = NULL;
	int r = cli_refuse_together(cli, over);

	if (r == 0)
		r = transfer_begin(&c.t, cli);
	if (r)
		return r;
	c.t.move = move;
	c.t.no_clobber = cli_has(cli, "no-clobber");
	r = parse_operands(&c, &err);
	for (size_t i = 0; r == 0 && i < c.n; i++) {
		if (!is_object(&c.sources[i]))
			continue;
		if (from && from->at.google != c.sources[i].at.google)
			r = refuse(&err, c.sources[i].at.text,
				"sources of s3:// and gs:// need a command each");
		from = &c.sources[i];
	}
	if (r == 0)
		r = transfer_open(&c.t, from, is_object(&c.target) ? &c.target : NULL, &err);
	for (size_t i = 0; r == 0 && i < c.n; i++)
		r = check_itself(&c, &c.sources[i], &err);
	if (r < 0) {
		r = remote_fail(cli, &err);
		transfer_close(&c.t);
		return r;
	}
	for (size_t i = 0; r == 0 && i < c.n; i++)
		r = go_source(&c, &c.sources[i], &err);
	if (r == 0)
		r = transfer_finish(&c.t, &err);
	if (c.spared)
		log_warn("left %llu object%s below .penstock/, which runs keep; --force moves "
			 "them, too",
			(unsigned long long)c.spared, c.spared == 1 ? "" : "s");
	return r < 0 ? transfer_fail(&c.t, &err) : transfer_end(&c.t);
}

static int run_cp(const struct cli *cli)
{
	return run(cli, false);
}

static int run_mv(const struct cli *cli)
{
	return run(cli, true);
}

/* clang-format off */
#define OPTIONS                                                                                     \
	{'r', "recursive", NULL, "All that is below a source; see above for the names it gets"},    \
	{0, "no-clobber", NULL, "Leaves out what is there already"},                               \
	{0, "raw", NULL,                                                                            \
		"'*' and '?' in sources are ordinary characters, and so is a '/' at the end of a key "    \
		"without --recursive"},                                                                \
	TRANSFER_OPTIONS
/* clang-format on */

static const struct option_spec options[] = {OPTIONS, {0, NULL, NULL, NULL}};

#define NAMES                                                                                      \
	"Where TARGET ends in '/', is a bucket or a local directory, or there are several "        \
	"sources, things are put into it under "                                                   \
	"their names; else TARGET is the new name.\n\n"                                            \
	"'*' (any characters, '/' too) and '?' (one) in a source stand for all that match; what "  \
	"follows the last '/' before the first of them is the name. With --recursive a source "    \
	"that is a directory or prefix stands for all below it: with a '/' at its end (or as a "   \
	"bucket, or '.') what is in it, else itself with its name. Patterns of --include and "     \
	"--exclude are held against the names below the source.\n\n"

static const struct command_example cp_examples[] = {
	{"penstock cp model.pth s3://models/", "Uploads a file under its name"},
	{"penstock cp 's3://data/train/*.tar' shards/", "Downloads what matches"},
	{"penstock cp -r runs/ s3://models/runs/", "Uploads what is in a directory"},
	{"penstock cp s3://old/big.tar s3://new/ --source-profile lab",
		"Copies between two stores, through this machine"},
	{"tar c . | penstock cp - s3://data/all.tar", "Stores what a pipe gives"},
	{NULL, NULL},
};

static const struct command_example mv_examples[] = {
	{"penstock mv s3://data/new/a.csv s3://data/old/", "Moves an object, within the store"},
	{"penstock mv -r results/ s3://models/results/", "Uploads files and removes them here"},
	{NULL, NULL},
};

static const struct command_exit exits[] = {TRANSFER_EXITS, {NULL, NULL}};

const struct command command_cp = {
	.name = "cp",
	.summary = "copy files and objects",
	.operands = "SOURCE... TARGET",
	.min_operands = 2,
	.max_operands = UINT_MAX,
	.description =
		"Copies, many things at a time, each whole or not at all and verified.\n\n"
		"A source is s3://BUCKET/KEY, gs://BUCKET/KEY, http(s)://..., a file, or '-', "
		"standard input. TARGET is one of these; '-' is standard output, a URL gets a "
		"PUT. " NAMES
		"What is there already is written over, but for --no-clobber and --if-none-match.",
	.options = options,
	.examples = cp_examples,
	.exits = exits,
	.run = run_cp,
};

const struct command command_mv = {
	.name = "mv",
	.summary = "move files and objects",
	.operands = "SOURCE... TARGET",
	.min_operands = 2,
	.max_operands = UINT_MAX,
	.description =
		"Copies as 'penstock cp' does, and removes each source once its successor is there "
		"and verified. What runs keep below .penstock/ stays, but for --force.\n\n"
		"A source is s3://BUCKET/KEY, gs://BUCKET/KEY or a file, and so is TARGET; one of "
		"both is an object. " NAMES "Local directories that became empty are removed.",
	.options = options,
	.examples = mv_examples,
	.exits = exits,
	.run = run_mv,
};
