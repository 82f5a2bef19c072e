/* `penstock checkpoints`: the checkpoints of a run, on this machine and in its store. */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "checkpoint/read.h"
#include "cli/history/artifacts_place.h"
#include "cli/history/output_files.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "records/layout.h"
#include "s3/sum/checksum.h"
#include "transfer/objects.h"

struct session {
	struct records *records;
	char *home;
	struct artifacts_place place;
	struct remote remote; /* the store, if the operand is the address of a place */
	struct location at;
	bool live; /* the run is live */

	char *dir; /* local directory of the checkpoints; NULL if the operand is an address */
	/* the store of the checkpoints; NULL if they are not in a store */
	struct object_client *client;
	const char *bucket;
	char *prefix; /* "a/b/checkpoints/" */
	char *output; /* place of the output: a prefix "a/b/", or a directory if not in a store */
	char *path; /* the directory of the checkpoints, below the output */
	/* newest first; the paths are local paths, or names if the checkpoints are in a store */
	struct commit_list list;
};

static void session_release(struct session *s)
{
	commit_list_release(&s->list);
	artifacts_place_release(&s->place);
	records_free(s->records);
	remote_release(&s->remote);
	location_release(&s->at);
	free(s->home);
	free(s->dir);
	free(s->prefix);
	free(s->output);
	free(s->path);
}

/* ---- finding checkpoints ---- */

static char *joined(const char *prefix, const char *path)
{
	bool slash = *prefix && !str_ends(prefix, "/"), here = strcmp(path, ".") == 0;

	return str_printf("%s%s%s%s", prefix, slash ? "/" : "", here ? "" : path, here ? "" : "/");
}

static int open_address(
	struct session *s, const struct cli *cli, const char *path, struct penstock_error *err)
{
	int r = remote_open_at(&s->remote, cli, 1, false, &s->at, err);

	if (r < 0)
		return r;
	s->client = s->remote.client;
	s->bucket = s->at.bucket;
	s->prefix = joined(s->at.key, path);
	s->output = joined(s->at.key, ".");
	s->path = strdup(path);
	return s->prefix && s->output && s->path ? 0 : error_memory(err);
}

static int open_run(
	struct session *s, const struct cli *cli, const char *given, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_(records_run_release) struct records_run run = {0};
	const char *path;
	int r = show_run(cli, 1, &s->records, &s->home, &run, err);

	if (r == 0)
		r = artifacts_find(&s->place, s->home, s->records, run.id, false, err);
	if (r == 0)
		r = run_layout_init(&layout, s->home, run.id, 1, err);
	if (r < 0)
		return r;
	if (!layout.output)
		return error_memory(err);
	s->live = run_state_is_live(run.last.state);
	path = given ? given : s->place.workflow->checkpoints.path.value;
	s->dir = strcmp(path, ".") == 0 ? strdup(layout.output) : path_join(layout.output, path);
	s->path = strdup(path);
	if (!s->dir || !s->path)
		return error_memory(err);
	if (s->place.dir || cli_has(cli, "here")) {
		s->output = strdup(layout.output);
		return s->output ? 0 : error_memory(err);
	}
	r = artifacts_open(&s->place, s->home, err);
	if (r < 0)
		return r;
	s->client = s->place.store->client;
	s->bucket = s->place.store->bucket;
	s->prefix = joined(s->place.prefix, path);
	s->output = joined(s->place.prefix, ".");
	return s->prefix && s->output ? 0 : error_memory(err);
}

/* ---- checkpoints in a store ---- */

struct noted {
	struct strlist keys;
	bool no_memory;
};

static int note_commit(void *cookie, const struct object_info *info)
{
	struct noted *noted = cookie;

	if (commit_is_name(path_last(info->key)) && strlist_add(&noted->keys, info->key) < 0)
		noted->no_memory = true;
	return noted->no_memory;
}

/* Returns the name of a checkpoint, given the key of its commit: the part of the key after the
 * prefix, without the name of the commit file. Returns NULL if the commit is in a deeper directory,
 * or if the key is not that of a commit. */
static char *name_of_key(const struct session *s, const char *key)
{
	const char *below = key + strlen(s->prefix), *slash = strchr(below, '/');

	if (slash)
		return strcmp(slash + 1, COMMIT_NAME) == 0 ? strndup(below, (size_t)(slash - below))
							   : NULL;
	return strcmp(below, COMMIT_NAME) != 0
		       ? strndup(below, strlen(below) - strlen(COMMIT_SUFFIX))
		       : NULL;
}

static int add_remote(struct session *s, const char *key, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *path = name_of_key(s, key);
	struct commit_entry e = {.single = !str_ends(key, "/" COMMIT_NAME), .attempt = UINT_MAX};
	struct commit_entry *items;
	int r;

	/* A name such as ".." would lead out of the target directory. */
	if (!path || !commit_name_is_good(path))
		return 0;
	if (s->list.n == LIMIT_CHECKPOINTS)
		return error_set(err, PENSTOCK_E_LIMIT, "cannot read more than %d checkpoints",
			LIMIT_CHECKPOINTS);
	items = reallocarray(s->list.items, s->list.n + 1, sizeof(e));
	if (!items)
		return error_memory(err);
	s->list.items = items;
	r = object_get(object_at(s->client, s->bucket, key), NULL, &text, NULL, &why);
	if (r == 0)
		r = commit_parse(&e.commit, text.data, text.len, key, &why);
	if (r == 0)
		r = commit_check_place(e.commit, path, e.single, &why);
	if (r < 0)
		commit_free(take_pointer(e.commit));
	if (r < 0 && why.code != PENSTOCK_E_CORRUPT && why.code != PENSTOCK_E_UNSUPPORTED &&
		why.code != PENSTOCK_E_LIMIT)
		return r == -(int)PENSTOCK_E_NOT_FOUND ? 0 : error_move(err, &why);
	e.path = take_pointer(path);
	if (r == 0) {
		e.step = e.commit->step;
		e.attempt = e.commit->attempt;
		e.commit->single = e.single;
		e.commit->path = strdup(e.path);
	} else {
		commit_name_parse(e.path, &e.step, &e.attempt);
		e.why = strdup(why.message);
	}
	items[s->list.n++] = e;
	return 0;
}

static int read_list(struct session *s, struct penstock_error *err)
{
	struct noted noted = {0};
	int r;

	if (!s->client)
		return commit_list_read(&s->list, s->dir, err);
	r = object_list(object_at(s->client, s->bucket, s->prefix), NULL, note_commit, &noted,
		s->remote.cancel, err);
	if (r == 0 && noted.no_memory)
		r = error_memory(err);
	for (size_t i = 0; r == 0 && i < noted.keys.n; i++)
		r = add_remote(s, noted.keys.items[i], err);
	if (r == 0)
		commit_list_sort(&s->list);
	strlist_release(&noted.keys);
	return r;
}

static const char *shown(const struct commit_entry *e)
{
	return path_last(e->path);
}

static char *key_of(const struct session *s, const struct commit_entry *e, const char *file)
{
	if (file && !e->single)
		return str_printf("%s%s/%s", s->prefix, shown(e), file);
	return str_printf("%s%s%s", s->prefix, shown(e),
		file	    ? ""
		: e->single ? COMMIT_SUFFIX
			    : "/" COMMIT_NAME);
}

/* ---- verify ---- */

static int add_bytes(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	(void)err;
	checksum_update(cookie, data, len);
	return 0;
}

static int verify_object(const struct session *s, const char *key, const struct commit_file *f,
	struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_(checksum_release) struct checksum sum = {0};
	uint8_t digest[CHECKSUM_MAX_SIZE];
	uint64_t crc = 0;
	int r = checksum_init(&sum, CHECKSUM_CRC64NVME, err);

	if (r < 0)
		return r;
	r = object_get_stream(object_at(s->client, s->bucket, key),
		&(struct object_get_options){.cancel = s->remote.cancel}, add_bytes, &sum, &info,
		err);
	checksum_final(&sum, digest);
	for (size_t i = 0; i < 8; i++)
		crc = crc << 8 | digest[i];
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return error_set(err, PENSTOCK_E_CORRUPT, "'%s' is missing", f->name);
	if (r < 0)
		return error_prefix(err, "%s", f->name);
	if (info.size != f->size || crc != f->crc)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"'%s' differs from the size or checksum in its commit", f->name);
	return 0;
}

static int verify(const struct session *s, const struct commit_entry *e, struct penstock_error *err)
{
	int r = 0;

	if (!e->commit)
		return error_set(err, PENSTOCK_E_CORRUPT, "%s", e->why);
	if (!s->client)
		return commit_verify(e->commit, true, NULL, err);
	for (size_t i = 0; r == 0 && i < e->commit->n_files; i++) {
		_cleanup_free_ char *key = key_of(s, e, e->commit->files[i].name);

		r = key ? verify_object(s, key, &e->commit->files[i], err) : error_memory(err);
	}
	return r < 0 ? error_prefix(err, "checkpoint '%s'", shown(e)) : 0;
}

/* ---- the verbs ---- */

static int list(const struct session *s, bool json)
{
	struct grid grid = grid_new("NAME", "STEP", "ATTEMPT", "SIZE", "TIME", "METRICS");
	json_t *array = json ? json_array() : NULL;

	for (size_t i = 0; i < s->list.n; i++) {
		const struct commit_entry *e = &s->list.items[i];
		_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
		char size[STR_SIZE_SIZE], time[SHOW_TIME_SIZE];
		const struct commit *c = e->commit;
		json_t *metrics = json_object();
		json_t *object =
			c ? json_pack("{s:o, s:b, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:o}", "name",
				    json_text(shown(e)), "readable", 1, "step", (json_int_t)c->step,
				    "attempt", (json_int_t)c->attempt, "run", json_text(c->run),
				    "time", json_time(c->time_ns), "world_size",
				    (json_int_t)c->world_size, "files", (json_int_t)c->n_files,
				    "bytes", (json_int_t)commit_size(c), "metrics", metrics)
			  : json_pack("{s:o, s:b, s:o, s:o}", "name", json_text(shown(e)),
				    "readable", 0, "why", json_text(e->why), "metrics", metrics);

		for (size_t k = 0; c && k < c->n_metrics; k++) {
			json_object_set_new(
				metrics, c->metrics[k].name, json_real(c->metrics[k].value));
			buf_printf(&text, "%s%s=%.6g", k ? " " : "", c->metrics[k].name,
				c->metrics[k].value);
		}
		json_array_append_new(array, object);
		grid_add(&grid, shown(e));
		if (!c) {
			for (size_t k = 0; k < 4; k++)
				grid_add(&grid, NULL);
			grid_addf(&grid, "damaged: %s", e->why);
			continue;
		}
		str_format_size(commit_size(c), size);
		grid_addf(&grid, "%" PRIu64, c->step);
		grid_addf(&grid, "%u", c->attempt);
		grid_add(&grid, size);
		grid_add(&grid, show_time(c->time_ns, time));
		grid_add(&grid, buf_str(&text));
	}
	return show_list(&grid, array, 0);
}

/* Lists the newest files of the output, from which a run without a commit resumes. */
static int list_output(const struct cli *cli, const struct session *s, struct penstock_error *err)
{
	_cleanup_(output_files_release) struct output_files files = {0};
	struct grid grid = grid_new("FILE", "SIZE", "TIME");
	json_t *array = cli_has(cli, "json") ? json_array() : NULL;
	char text[SHOW_TIME_SIZE], size[STR_SIZE_SIZE];
	int r = s->client
			? output_files_in_store(&files, object_at(s->client, s->bucket, s->output),
				  s->remote.cancel, err)
			: output_files_in_dir(&files, s->output, err);

	for (size_t i = 0; r == 0 && i < files.n; i++) {
		const struct output_file *f = &files.newest[i];

		json_array_append_new(
			array, json_pack("{s:o, s:I, s:o}", "file", json_text(f->path), "bytes",
				       (json_int_t)f->size, "time", json_time(f->modified_ns)));
		str_format_size(f->size, size);
		grid_add(&grid, f->path);
		grid_add(&grid, size);
		grid_add(&grid, show_time(f->modified_ns, text));
	}
	if (r == 0 && !cli_quiet(cli)) {
		str_format_size(files.bytes, size);
		fprintf(stderr,
			"penstock checkpoints: no commit below '%s'; the run continues from the "
			"files of its output: %" PRIu64 " file%s, %s\n",
			s->path, files.total, files.total == 1 ? "" : "s", size);
	}
	return show_list(&grid, array, r);
}

/* Chooses the checkpoint `name`, without verifying it, or the newest intact one if `name` is
 * NULL. */
static int pick(const struct session *s, const char *name, const struct commit_entry **out,
	struct penstock_error *err)
{
	for (size_t i = 0; i < s->list.n; i++) {
		_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
		const struct commit_entry *e = &s->list.items[i];

		if (name ? strcmp(shown(e), name) != 0 : verify(s, e, &why) < 0) {
			if (!name)
				fprintf(stderr, "penstock: skipped: %s\n", why.message);
			continue;
		}
		*out = e;
		return 0;
	}
	if (name)
		return error_set(err, PENSTOCK_E_NOT_FOUND, "cannot find checkpoint '%s'", name);
	return error_set(err, PENSTOCK_E_NOT_FOUND,
		"cannot find an intact checkpoint; `path` and `pattern` of `checkpoints` in the "
		"workflow select the files that are checkpoints");
}

static int verify_all(const struct session *s, const char *name, struct penstock_error *err)
{
	size_t damaged = 0, n = 0;

	for (size_t i = 0; i < s->list.n; i++) {
		_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
		const struct commit_entry *e = &s->list.items[i];
		int r;

		if (name && strcmp(shown(e), name) != 0)
			continue;
		n++;
		r = verify(s, e, &why);
		if (r < 0 && why.code != PENSTOCK_E_CORRUPT && why.code != PENSTOCK_E_UNSUPPORTED)
			return error_move(err, &why);
		damaged += r < 0;
		show_name(stdout, shown(e));
		printf(": %s\n", r < 0 ? why.message : "whole");
	}
	if (name && !n)
		return error_set(err, PENSTOCK_E_NOT_FOUND, "cannot find checkpoint '%s'", name);
	return damaged ? error_set(err, PENSTOCK_E_CORRUPT, "%zu of %zu checkpoints are damaged",
				 damaged, n)
		       : 0;
}

/* Returns the path of the commit of the local checkpoint `base`. */
static char *commit_path(const char *base, bool single)
{
	return str_printf("%s%s", base, single ? COMMIT_SUFFIX : "/" COMMIT_NAME);
}

static int fetch(const struct session *s, const struct commit_entry *e, const char *file,
	const char *to, struct penstock_error *err)
{
	_cleanup_free_ char *key = key_of(s, e, file), *parent = strdup(to);
	int r;

	if (!key || !parent)
		return error_memory(err);
	*strrchr(parent, '/') = '\0';
	r = fs_mkdirs(parent, 0777, err);
	if (r < 0)
		return r;
	return object_get_file(object_at(s->client, s->bucket, key), to,
		&(struct object_get_options){.cancel = s->remote.cancel}, NULL, err);
}

/* Removes the file, and the directories above it that become empty, up to `base`. */
static void take_back_file(const char *base, char *path)
{
	size_t len = strlen(base);
	char *slash;

	unlink(path);
	while (strlen(path) > len && (slash = strrchr(path, '/')) &&
		(size_t)(slash - path) >= len) {
		*slash = '\0';
		if (rmdir(path) < 0)
			return;
	}
}

/* Removes the commit and the first `n` files of a damaged or incomplete download. */
static void take_back(const struct commit_entry *e, const char *base, const char *commit, size_t n)
{
	unlink(commit);
	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *path = e->commit->single
						    ? strdup(base)
						    : path_join(base, e->commit->files[i].name);

		if (path)
			take_back_file(base, path);
	}
}

/* Downloads a checkpoint and verifies it. The commit is written last, so a download that is killed
 * leaves no valid checkpoint. A damaged download is removed, unless the target had a commit
 * before. */
static int get(
	const struct session *s, const char *name, const char *to, struct penstock_error *err)
{
	_cleanup_free_ char *base = NULL, *commit = NULL;
	_cleanup_(commit_freep) struct commit *c = NULL;
	const struct commit_entry *e;
	bool created;
	size_t n = 0;
	int r = pick(s, name, &e, err);

	if (r < 0)
		return r;
	if (!e->commit)
		return error_set(err, PENSTOCK_E_CORRUPT, "%s", e->why);
	if (!s->client)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot get checkpoint '%s': it is on this machine already", e->path);
	base = str_printf("%s/%s", to, shown(e));
	commit = base ? commit_path(base, e->commit->single) : NULL;
	if (!commit)
		return error_memory(err);
	/* Files of an earlier download must not be removed. */
	created = access(commit, F_OK) < 0;
	for (size_t i = 0; r == 0 && i < e->commit->n_files; i++) {
		const char *file = e->commit->files[i].name;
		_cleanup_free_ char *path = e->commit->single ? strdup(base)
							      : path_join(base, file);

		r = path ? fetch(s, e, file, path, err) : error_memory(err);
		n += r == 0;
	}
	if (r == 0)
		r = fetch(s, e, NULL, commit, err);
	if (r == 0)
		r = commit_open(&c, base, err);
	if (r == 0)
		r = commit_verify(c, true, NULL, err);
	if (created && (r == -(int)PENSTOCK_E_CORRUPT || r == -(int)PENSTOCK_E_NOT_FOUND))
		take_back(e, base, commit, n);
	if (r == 0)
		printf("%s\n", base);
	return r;
}

/* Removes the commit first: without the commit the other objects are not a checkpoint. Then removes
 * the only file of the checkpoint, or all objects in its directory, including those that the commit
 * does not name. */
static int remove_remote(
	const struct session *s, const struct commit_entry *e, struct penstock_error *err)
{
	_cleanup_free_ char *key = key_of(s, e, NULL), *below = key_of(s, e, "");
	int r = key && below ? object_delete(object_at(s->client, s->bucket, key), NULL, err)
			     : error_memory(err);

	if (r < 0)
		return r;
	return e->single ? object_delete(object_at(s->client, s->bucket, below), NULL, err)
			 : artifacts_remove(
				   object_at(s->client, s->bucket, below), s->remote.cancel, err);
}

static int remove_local(const struct session *s, const char *name, struct penstock_error *err)
{
	_cleanup_free_ char *path = s->dir ? path_join(s->dir, name) : NULL, *commit = NULL;
	struct stat st;

	if (!path || lstat(path, &st) < 0)
		return 0;
	commit = commit_path(path, !S_ISDIR(st.st_mode));
	if (!commit)
		return error_memory(err);
	unlink(commit);
	return fs_remove_tree(path, err);
}

/* Returns true if all files of the commit exist with the right sizes, so that the run can probably
 * resume from the commit. */
static bool seems_whole(const struct session *s, const struct commit_entry *e)
{
	if (!e->commit)
		return false;
	if (!s->client)
		return commit_verify(e->commit, false, NULL, NULL) == 0;
	for (size_t i = 0; i < e->commit->n_files; i++) {
		const struct commit_file *f = &e->commit->files[i];
		_cleanup_(object_info_release) struct object_info info = {0};
		_cleanup_free_ char *key = key_of(s, e, f->name);

		if (!key || object_head(object_at(s->client, s->bucket, key), &info, NULL) < 0 ||
			info.size != f->size)
			return false;
	}
	return true;
}

static int rm(const struct session *s, const char *name, bool force, struct penstock_error *err)
{
	const struct commit_entry *e, *newer = s->list.items;
	int r = pick(s, name, &e, err);

	if (r < 0)
		return r;
	if (s->live)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot remove a checkpoint of a live run, which would publish it "
			"again; stop the run first, or limit the number with `checkpoints.keep`");
	while (newer < e && !seems_whole(s, newer))
		newer++;
	if (!force && newer == e && (e == s->list.items || e->commit))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot remove '%s': it is the newest checkpoint from which the run can "
			"resume; --force removes it",
			name);
	if (s->client)
		r = remove_remote(s, e, err);
	return r == 0 ? remove_local(s, name, err) : r;
}

static int run_checkpoints(const struct cli *cli)
{
	_cleanup_(session_release) struct session s = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *what = cli_operand(cli, 0), *name = cli_operand(cli, 2);
	const char *word = cli_operand(cli, 1), *path = cli_value(cli, "path");
	const char *to = cli_value(cli, "output");
	int r;

	if (strcmp(what, "list") != 0 && strcmp(what, "get") != 0 && strcmp(what, "rm") != 0 &&
		strcmp(what, "verify") != 0)
		return cli_misuse(cli, "'%s' is not one of list, get, rm and verify", what);
	if (strcmp(what, "rm") == 0 && !name)
		return cli_misuse(cli, "rm needs the NAME of a checkpoint");
	if (strcmp(what, "list") == 0 && name)
		return cli_misuse(cli, "unexpected operand '%s'", name);
	if (location_is_object(word))
		r = open_address(&s, cli, path ? path : "checkpoints", &err);
	else
		r = open_run(&s, cli, path, &err);
	if (r == 0)
		r = read_list(&s, &err);
	if (r < 0)
		return remote_fail(cli, &err);
	if (strcmp(what, "list") == 0 && !s.list.n) {
		r = list_output(cli, &s, &err);
		return r < 0 ? remote_fail(cli, &err) : r;
	}
	if (strcmp(what, "list") == 0)
		return list(&s, cli_has(cli, "json"));
	if (strcmp(what, "get") == 0)
		r = get(&s, name, to ? to : ".", &err);
	else if (strcmp(what, "rm") == 0)
		r = rm(&s, name, cli_has(cli, "force"), &err);
	else
		r = verify_all(&s, name, &err);
	return r < 0 ? remote_fail(cli, &err) : 0;
}

const struct command command_checkpoints = {
	.name = "checkpoints",
	.group = "Checkpoints and artifacts",
	.summary = "list, download, remove and verify checkpoints of a run",
	.operands = "list|get|rm|verify RUN|s3://PLACE [NAME]",
	.min_operands = 2,
	.max_operands = 3,
	.description =
		"Works on the checkpoints that a run has committed: in the store of its output, "
		"or on this machine if the output is not in a store. RUN is an id, the beginning "
		"of one, or a name. With the place of the output, no record of the run is needed, "
		"so the verb works on any machine.\n"
		"\n"
		"If there are no checkpoints, list shows the newest files of the output, from "
		"which a run without commits continues; with --json these have `file` instead of "
		"`name`.\n"
		"\n"
		"Without a NAME, get downloads the newest intact checkpoint and reports those "
		"that it skipped, and verify reads all checkpoints.",
	.options = OPTIONS({0, "json", NULL, "list: print a list of objects"},
		{'o', "output", "DIR", "get: target directory; default: this directory"},
		{0, "path", "DIR",
			"Directory of the checkpoints below the output; default: that of the "
			"workflow, or 'checkpoints'"},
		{0, "here", NULL, "Checkpoints on this machine, even if the output is in a store"},
		{0, "force", NULL, "rm: also remove the newest checkpoint"}, REMOTE_OPTIONS),
	.examples = EXAMPLES(
		{"penstock checkpoints list cifar10",
			"List the checkpoints of the run, newest first, with steps and metrics"},
		{"penstock checkpoints get cifar10 -o models",
			"Download the newest intact checkpoint"},
		{"penstock checkpoints verify s3://bucket/results",
			"For a run of another machine: read and verify every byte"},
		{"penstock checkpoints rm cifar10 step-000000001000-1",
			"Remove a checkpoint, here and in the store"}),
	.exits = EXITS({"66", "There is no such bucket, run or checkpoint"},
		{"69", "The store does not respond, or a checkpoint is damaged"},
		{"77", "The store denies access, or there are no credentials"}),
	.run = run_checkpoints,
};
