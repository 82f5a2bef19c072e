/* `penstock restore`: puts back a replaced object, or an earlier version of an object. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/history/artifacts_place.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "cli/prune/prune.h"
#include "records/layout.h"
#include "records/supervisor.h"
#include "sync/record/names.h"
#include "transfer/location.h"

#define COPY_NAMES 9 /* maximum number of names to try for the copy of the current object */

struct session {
	const struct cli *cli;
	struct records *records;
	char *home;
	struct artifacts_place found;
	struct remote remote; /* the store, if the operand is an address */
	struct location at;
	char *prefix;
	int lock;
	struct copies_place place;
	char *state;
	struct replaced_list list;
};

static void session_release(struct session *s)
{
	replaced_release(&s->list);
	artifacts_place_release(&s->found);
	records_free(s->records);
	remote_release(&s->remote);
	location_release(&s->at);
	free(s->home);
	free(s->prefix);
	free(s->state);
	if (s->lock >= 0)
		close(s->lock);
}

/* ---- the place ---- */

static int open_run(struct session *s, struct penstock_error *err)
{
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_free_ char *path = NULL;
	int r = show_run(s->cli, 0, &s->records, &s->home, &run, err);

	if (r < 0)
		return r;
	path = run_path(s->home, run.id, RUN_FILE_LOCK);
	r = path ? supervisor_begin(path, run.id, &s->lock, err) : error_memory(err);
	if (r == 0)
		r = artifacts_find(&s->found, s->home, s->records, run.id, false, err);
	if (r < 0)
		return r;
	if (s->found.dir)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot read the copies of run '%s': its output is not in a store", run.id);
	r = artifacts_open(&s->found, s->home, err);
	if (r < 0)
		return r;
	s->place = (struct copies_place){.client = s->found.store->client,
		.bucket = s->found.store->bucket,
		.prefix = s->found.prefix};
	snprintf(s->place.id, sizeof(s->place.id), "%s", run.id);
	return 0;
}

static int open_address(struct session *s, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist ids = {0};
	const char *id = cli_value(s->cli, "run");
	size_t n = 0;
	int r = remote_open_at(&s->remote, s->cli, 0, false, &s->at, err);

	if (r < 0)
		return r;
	s->prefix = location_prefix(s->at.key);
	if (!s->prefix)
		return error_memory(err);
	s->place = (struct copies_place){
		.client = s->remote.client, .bucket = s->at.bucket, .prefix = s->prefix};
	r = copies_runs(&ids, &s->place, err);
	if (r < 0)
		return r;
	for (size_t i = 0; id && i < ids.n; i++) {
		if (!str_starts(ids.items[i], id))
			continue;
		snprintf(s->place.id, sizeof(s->place.id), "%s", ids.items[i]);
		n++;
	}
	if (n > 1)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot choose a run: the ids of %zu runs that wrote to '%s' begin with "
			"'%s'; give more digits",
			n, s->at.text, id);
	if (!id && ids.n == 1)
		snprintf(s->place.id, sizeof(s->place.id), "%s", ids.items[0]);
	if (*s->place.id)
		return 0;
	return error_set(err, PENSTOCK_E_NOT_FOUND,
		ids.n && !id ? "cannot choose a run: %zu runs wrote to '%s'; choose one with --run"
			     : "cannot find the run among the %zu runs that wrote to '%s'",
		ids.n, s->at.text);
}

static int open_place(struct session *s, struct penstock_error *err)
{
	bool address = location_is_object(cli_operand(s->cli, 0));
	char home_id[RECORDS_HOME_ID_SIZE] = "";
	int r = address ? open_address(s, err) : open_run(s, err);

	if (r == 0 && !address)
		r = records_home_id(s->home, home_id, err);
	if (r == 0)
		r = copies_live(&s->place, address ? NULL : home_id, err);
	if (r > 0)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot restore files of run '%s': it is live, and may overwrite them "
			"again; stop it first",
			s->place.id);
	if (r < 0)
		return r;
	s->place.scheme = object_client_scheme(s->place.client);
	s->state = copies_state(&s->place);
	if (!s->state)
		return error_memory(err);
	return replaced_read(&s->list, object_at(s->place.client, s->place.bucket, s->state),
		s->remote.cancel, err);
}

/* ---- one object ---- */

static bool is_etag(const char *key, const char *state, const char *etag)
{
	const char *dir = key + strlen(state) + strlen(REPLACED_DIR);
	size_t len = strlen(etag);

	if (len >= 2 && etag[0] == '"' && etag[len - 1] == '"') {
		etag++;
		len -= 2;
	}
	return strncmp(dir, etag, len) == 0 && strchr("./~", dir[len]);
}

/* Returns the newest copy of the file, or NULL if there is none. If `etag` is not NULL, looks only
 * for copies of the object with that ETag. */
static const struct replaced_copy *find_copy(
	const struct session *s, const char *path, const char *etag)
{
	const struct replaced_copy *found = NULL;

	for (size_t i = 0; i < s->list.n; i++) {
		const struct replaced_copy *copy = &s->list.items[i];

		if (strcmp(copy->path, path) == 0 &&
			(!etag || is_etag(copy->key, s->state, etag)) &&
			(!found || copy->made_ns > found->made_ns))
			found = copy;
	}
	return found;
}

/* Copies the current object to the name under which the run would keep a copy of it. */
static int keep_present(const struct session *s, const char *path, struct object_ref at,
	const struct object_info *there, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 4);

	for (unsigned n = 1; n <= COPY_NAMES; n++) {
		_cleanup_(object_info_release) struct object_info copy = {0};
		int r = replaced_key(s->state, path, there, n, &key, err);

		if (r == 0)
			r = object_head(object_at(at.client, at.bucket, buf_str(&key)), &copy, err);
		if (r == 0 && copy.size == there->size)
			return 0;
		if (r == 0)
			continue;
		if (!error_expected(r, PENSTOCK_E_NOT_FOUND, err))
			return r;
		return object_copy(at, object_at(at.client, at.bucket, buf_str(&key)),
			&(struct object_copy_options){.if_match = there->etag}, NULL, err);
	}
	return error_set(err, PENSTOCK_E_EXISTS,
		"cannot keep a copy of '%s': all names for the copy are in use", path);
}

static int restore_copy(
	const struct session *s, const struct replaced_copy *copy, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info there = {0};
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 4);
	struct object_ref from = object_at(s->place.client, s->place.bucket, copy->key), to;
	char size[STR_SIZE_SIZE];
	int r;

	buf_add_str(&key, s->place.prefix);
	names_key(&key, copy->path);
	if (buf_failed(&key))
		return buf_error(&key, "the key of a file", err);
	to = object_at(s->place.client, s->place.bucket, buf_str(&key));
	r = object_head(to, &there, err);
	if (r == 0)
		r = keep_present(s, copy->path, to, &there, err);
	else if (error_expected(r, PENSTOCK_E_NOT_FOUND, err))
		r = 0;
	if (r == 0)
		r = object_copy(from, to,
			&(struct object_copy_options){
				.if_match = copy->etag, .cancel = s->remote.cancel},
			NULL, err);
	if (r < 0)
		return error_prefix(err, "cannot restore '%s'", copy->path);
	str_format_size(copy->size, size);
	if (!cli_quiet(s->cli))
		printf("%s://%s/%s: restored (%s)%s\n", s->place.scheme, s->place.bucket,
			buf_str(&key), size,
			*there.etag ? "; the object that was there is kept" : "");
	return 0;
}

static int restore_all(const struct session *s, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->list.n; i++) {
		const struct replaced_copy *copy = &s->list.items[i];

		if (find_copy(s, copy->path, NULL) == copy && !str_starts(copy->path, "long-name-"))
			r = restore_copy(s, copy, err);
	}
	return r;
}

static int restore_operands(const struct session *s, struct penstock_error *err)
{
	const char *etag = cli_value(s->cli, "etag");
	int r = 0;

	for (size_t i = 1; r == 0 && i < cli_n_operands(s->cli); i++) {
		const char *path = cli_operand(s->cli, i);
		const struct replaced_copy *copy = find_copy(s, path, etag);

		if (!copy)
			return error_set(err, PENSTOCK_E_NOT_FOUND,
				"cannot find a copy of '%s'%s%s%s; 'penstock show %s' lists the copies",
				path, etag ? " with the ETag '" : "", etag ? etag : "",
				etag ? "'" : "", s->place.id);
		r = restore_copy(s, copy, err);
	}
	return r;
}

/* ---- a version of an object ---- */

static int restore_version(const struct cli *cli, const char *version, struct penstock_error *err)
{
	_cleanup_(remote_release) struct remote remote = {0};
	_cleanup_(location_release) struct location at = {0};
	_cleanup_(object_info_release) struct object_info made = {0};
	struct object_ref from, to;
	char size[STR_SIZE_SIZE];
	int r = remote_open_at(&remote, cli, 0, true, &at, err);

	if (r < 0)
		return r;
	from = to = object_at(remote.client, at.bucket, at.key);
	from.version = version;
	r = object_copy(
		from, to, &(struct object_copy_options){.cancel = remote.cancel}, &made, err);
	if (r < 0)
		return error_prefix(err, "cannot restore version '%s'", version);
	str_format_size(made.size, size);
	if (!cli_quiet(cli)) {
		show_name(stdout, at.text);
		printf(": restored (%s)\n", size);
	}
	return 0;
}

static int run_restore(const struct cli *cli)
{
	static const char *const of_copies[] = {"all", "etag", "run", NULL};
	_cleanup_(session_release) struct session s = {.cli = cli, .lock = -1};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool all = cli_has(cli, "all");
	const char *version;
	int r = remote_version(cli, &version);

	if (r == 0 && version)
		r = cli_refuse_options(cli, of_copies, "is for copies, not for versions");
	if (r)
		return r;
	if (version) {
		r = restore_version(cli, version, &err);
		return r < 0 ? remote_fail(cli, &err) : 0;
	}
	if (all == (cli_n_operands(cli) > 1))
		return cli_misuse(cli, all ? "--all takes no FILE" : "needs a FILE, or --all");
	if (cli_has(cli, "etag") && cli_n_operands(cli) != 2)
		return cli_misuse(cli, "--etag needs exactly one FILE");
	if (cli_has(cli, "run") && !location_is_object(cli_operand(cli, 0)))
		return cli_misuse(cli, "--run needs a place in a store");
	r = open_place(&s, &err);
	if (r == 0)
		r = all ? restore_all(&s, &err) : restore_operands(&s, &err);
	return r < 0 ? remote_fail(cli, &err) : 0;
}

const struct command command_restore = {
	.name = "restore",
	.summary = "put back objects that a run has replaced, or earlier versions",
	.operands = "RUN|s3://PLACE [FILE...]",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description =
		"Restores the object of FILE from the newest copy that the run kept before it "
		"overwrote the object. The store copies it; the current object is kept as a copy "
		"first, and the restored copy stays. FILE is a path below the output, as "
		"'penstock show' prints it.\n"
		"\n"
		"RUN is an id, the beginning of one, or a name. With the place of an output, no "
		"record of the run is needed. A live run is refused.\n"
		"\n"
		"With --version-id the store copies an earlier version of the object s3://PLACE "
		"over the current one. In a bucket with versioning all versions stay; 'penstock ls "
		"--versions' lists them. A deletion is undone by 'penstock rm --version-id', with "
		"the id of the version that marks the deletion, or by restoring a version.",
	.options = OPTIONS(
		{0, "all", NULL, "Restore each file that has a copy, from its newest copy"},
		{0, "etag", "ETAG",
			"Restore the copy of the object that had this ETag, instead of the newest"},
		{0, "run", "ID", "s3://PLACE: the run, if several wrote there"},
		{0, "version-id", "ID",
			"Restore this version of the object s3://PLACE, which no run needs to have "
			"written"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock restore cifar10 model.pth",
				     "Put back what the last start of the run replaced"},
		{"penstock restore --all s3://bucket/results",
			"Put back all files of the only run that wrote there"}),
	.exits = EXITS({"66", "There is no such run, bucket, copy or version"},
		{"69", "The run is live, or the store does not respond"},
		{"77", "The store denies access, or there are no credentials"}),
	.run = run_restore,
};
