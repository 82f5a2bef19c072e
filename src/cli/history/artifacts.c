/* `penstock artifacts` and `penstock tag`: the outputs of runs, and copies of outputs under
 * tags. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/history/artifacts_place.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "copy/copy.h"
#include "run/stage/copy_tree.h"
#include "transfer/objects.h"
#include "transfer/output_keys.h"

#define BLOCK 65536 /* bytes */

struct session {
	struct records *records;
	char *home;
	struct artifacts_place place;
	int lock_fd; /* lock of the tags */
};

static void session_release(struct session *s)
{
	artifacts_place_release(&s->place);
	records_free(s->records);
	free(s->home);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
}

static int open_place(struct session *s, const char *word, struct penstock_error *err)
{
	int r = artifacts_find(&s->place, s->home, s->records, word, false, err);

	return r < 0 || s->place.dir ? r : artifacts_open(&s->place, s->home, err);
}

/* ---- list ---- */

struct listing {
	const struct session *s;
	bool json;
	struct json_stream stream;
	struct output_keys keys; /* for an output in a store */
	uint64_t n;
};

static void print_line(struct listing *l, uint64_t size, const char *path)
{
	l->n++;
	if (l->json) {
		json_stream_add(&l->stream,
			json_pack("{s:o, s:I}", "path", json_text(path), "size", (json_int_t)size));
		return;
	}
	printf("%12" PRIu64 "  ", size);
	show_name(stdout, path);
	putchar('\n');
}

static int print_object(void *cookie, const struct object_info *info)
{
	struct listing *l = cookie;
	const char *path = info->key + strlen(l->s->place.prefix);

	if (output_keys_take(&l->keys, path) && *path)
		print_line(l, (uint64_t)info->size, path);
	return 0;
}

static int print_dir(
	struct listing *l, const char *dir, const char *below, struct penstock_error *err)
{
	struct dirent **entries = NULL;
	int n = scandir(dir, &entries, NULL, alphasort);
	int r = 0;

	/* A run that ended before its first step has no directory, and a live run may remove
	 * directories during the listing. */
	if (n < 0 && errno == ENOENT)
		return 0;
	if (n < 0)
		return error_errno(err, errno, "cannot list '%s'", dir);
	for (int i = 0; i < n; i++) {
		const char *name = entries[i]->d_name;
		_cleanup_free_ char *path = path_join(dir, name);
		_cleanup_free_ char *shown = str_printf("%s%s", below, name);
		struct stat st;

		if (r < 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
			free(entries[i]);
			continue;
		}
		if (!path || !shown)
			r = error_memory(err);
		else if (lstat(path, &st) < 0)
			r = errno == ENOENT ? 0
					    : error_errno(err, errno,
						      "cannot read the status of '%s'", path);
		else if (S_ISDIR(st.st_mode)) {
			_cleanup_free_ char *deeper = str_printf("%s/", shown);

			r = deeper ? print_dir(l, path, deeper, err) : error_memory(err);
		} else {
			print_line(l, (uint64_t)st.st_size, shown);
		}
		free(entries[i]);
	}
	free(entries);
	return r;
}

static int list(const struct cli *cli, struct session *s, struct penstock_error *err)
{
	struct listing l = {.s = s, .json = cli_has(cli, "json")};
	int r = open_place(s, cli_operand(cli, 1), err);

	if (r < 0)
		return r;
	r = s->place.dir ? print_dir(&l, s->place.dir, "", err)
			 : object_list(artifacts_object(&s->place, s->place.prefix), NULL,
				   print_object, &l, NULL, err);
	if (l.json && (r == 0 || l.stream.begun))
		json_stream_end(&l.stream);
	else if (r == 0 && !l.n && !cli_quiet(cli))
		fprintf(stderr, "penstock artifacts: %s has no artifacts\n", cli_operand(cli, 1));
	return r;
}

/* ---- get ---- */

static int pass_over(void *cookie, const char *path, struct penstock_error *err)
{
	(void)cookie;
	(void)err;
	log_warn("skipped '%s': it is a device, FIFO or socket", path);
	return 0;
}

/* Creates the directory `to`, and copies the tree of `from` into it. Replaces files with the same
 * names, as a download from a store does. */
static int copy_dir(const char *from, const char *to, struct penstock_error *err)
{
	static const struct copy_tree how = {
		.what = "copying artifacts", .replace = true, .special = pass_over};
	_cleanup_close_ int source = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int target = -1;
	int r = source < 0 ? error_errno(err, errno, "cannot open '%s'", from)
			   : fs_mkdirs(to, 0777, err);

	if (r < 0)
		return r;
	target = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return target < 0 ? error_errno(err, errno, "cannot open '%s'", to)
			  : copy_tree(&how, source, target, err);
}

static int get(struct session *s, const char *word, const char *to, struct penstock_error *err)
{
	struct copy copy;
	int r = open_place(s, word, err);

	if (r < 0)
		return r;
	if (s->place.dir && access(s->place.dir, F_OK) < 0)
		return error_set(
			err, PENSTOCK_E_NOT_FOUND, "cannot get '%s': it has no artifacts", word);
	if (s->place.dir)
		return copy_dir(s->place.dir, to, err);
	struct copy_prefix prefix = {.bucket = s->place.store->bucket,
		.prefix = s->place.prefix,
		.dir = to,
		.one_output = true};
	r = copy_begin(&copy,
		&(struct copy_options){.engine = s->place.stores.engine,
			.from = s->place.store->client,
			.keep_same = true,
			.stop_at_first_error = true},
		err);
	if (r == 0)
		r = copy_prefix(&copy, &prefix, err);
	if (r == 0)
		r = copy_finish(&copy, err);
	copy_end(&copy);
	if (r == 0 && prefix.objects == 0)
		r = error_set(
			err, PENSTOCK_E_NOT_FOUND, "cannot get '%s': it has no artifacts", word);
	return r;
}

/* ---- cat ---- */

static int copy_file(int fd, const char *path, uint64_t length, struct penstock_error *err)
{
	char block[BLOCK];

	while (length) {
		ssize_t n = read(fd, block, length < BLOCK ? (size_t)length : BLOCK);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read '%s' in the output", path);
		if (n == 0)
			return 0;
		if (copy_to_stdout(NULL, block, (size_t)n, err) < 0)
			return -(int)err->code;
		length -= (uint64_t)n;
	}
	return 0;
}

/* Prints a file of the output directory. Does not follow links out of the directory. */
static int cat_file(const char *dir, const char *path, uint64_t offset, uint64_t length,
	struct penstock_error *err)
{
	_cleanup_close_ int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int fd = root < 0 ? -1 : fs_open_in_root(root, path, O_RDONLY | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot open '%s' in the output", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot read '%s' in the output: it is not a regular file", path);
	if (offset > INT64_MAX || lseek(fd, (off_t)offset, SEEK_SET) < 0)
		return error_errno(err, errno, "cannot read '%s' in the output", path);
	return copy_file(fd, path, length ? length : UINT64_MAX, err);
}

static int cat(const struct cli *cli, struct session *s, struct penstock_error *err)
{
	const char *path = cli_operand(cli, 2);
	_cleanup_free_ char *key = NULL;
	int64_t offset, length;
	int r;

	if (!cli_number(cli, "offset", 0, INT64_MAX, 0, &offset) ||
		!cli_number(cli, "length", 1, INT64_MAX, 0, &length))
		return CLI_EXIT_USAGE;
	r = open_place(s, cli_operand(cli, 1), err);
	if (r < 0)
		return r;
	if (s->place.dir)
		return cat_file(s->place.dir, path, (uint64_t)offset, (uint64_t)length, err);
	key = str_printf("%s%s", s->place.prefix, path);
	if (!key)
		return error_memory(err);
	return object_get_stream(artifacts_object(&s->place, key),
		&(struct object_get_options){
			.offset = (uint64_t)offset, .length = (uint64_t)length},
		copy_to_stdout, NULL, NULL, err);
}

/* ---- tags ---- */

static int write_tag(struct session *s, const char *tag, const char *prefix, const char *run,
	const char *name, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL, *text = NULL, *url = NULL;
	json_auto_t *json = NULL;
	int r = artifacts_tag_path(&path, s->home, tag, ".json", err);

	if (r < 0)
		return r;
	if (prefix)
		url = str_printf("%s://%s/%s", object_client_scheme(s->place.store->client),
			s->place.store->bucket, prefix);
	json = json_pack("{s:o, s:o, s:o, s:o}", "run", json_text(run), "name", json_text(name),
		"prefix", json_text(prefix), "url", json_text(url));
	text = json_dumps(json, JSON_INDENT(2));
	return text ? fs_write_atomic(path, text, strlen(text), 0600, err) : error_memory(err);
}

/* Serializes changes of tags. */
static int lock_tags(struct session *s, struct penstock_error *err)
{
	_cleanup_free_ char *dir = path_join(s->home, "tags");
	_cleanup_free_ char *path = dir ? path_join(dir, ".lock") : NULL;
	int r = path ? fs_mkdirs(dir, 0700, err) : error_memory(err);

	if (r < 0)
		return r;
	s->lock_fd = fs_lock_file(path, err);
	return s->lock_fd < 0 ? s->lock_fd : 0;
}

/* Takes the lock of the tags. Fails if the tag exists: the content of a tag must not change,
 * because runs rely on it. */
static int check_free(struct session *s, const char *tag, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;
	int r = artifacts_tag_path(&path, s->home, tag, ".json", err);

	if (r == 0)
		r = lock_tags(s, err);
	if (r < 0)
		return r;
	if (access(path, F_OK) == 0)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot set tag '%s': it exists; 'penstock tag rm %s' removes it", tag,
			tag);
	return 0;
}

/* State of a copy of all objects of a listing. Each object is copied while the listing is read,
 * because the list may not fit in memory. */
struct tagging {
	struct session *s;
	const char *to; /* prefix of the copies */
	struct output_keys keys;
	uint64_t copied;
	int r;
	struct penstock_error *err;
};

/* Skips penstock's own objects, which include the copies. */
static int copy_object(void *cookie, const struct object_info *info)
{
	struct tagging *t = cookie;
	const char *below = info->key + strlen(t->s->place.prefix);
	_cleanup_free_ char *key = str_printf("%s%s", t->to, below);

	if (!output_keys_take(&t->keys, below))
		return 0;
	t->r = key ? object_copy(artifacts_object(&t->s->place, info->key),
			     artifacts_object(&t->s->place, key), &(struct object_copy_options){0},
			     NULL, t->err)
		   : error_memory(t->err);
	t->copied++;
	return t->r < 0;
}

/* Copies the run's objects to a prefix below the run's output. A restart of the run does not change
 * the objects below this prefix. If the source is a tag, the copy is not below the prefix of that
 * tag, because the removal of a tag removes everything below its prefix. */
static int tag_objects(struct session *s, const char *tag, struct penstock_error *err)
{
	_cleanup_free_ char *to = str_printf(
		"%s.penstock/tags/%s/", s->place.workflow->output.s3.prefix, tag);
	struct tagging t = {.s = s, .to = to, .err = err};
	/* A 'penstock tag' that was killed may have left objects. */
	int r = to ? artifacts_remove(artifacts_object(&s->place, to), NULL, err)
		   : error_memory(err);

	if (r == 0)
		r = object_list(artifacts_object(&s->place, s->place.prefix), NULL, copy_object, &t,
			NULL, err);
	if (r == 0)
		r = t.r;
	if (r == 0 && t.copied == 0)
		r = error_set(err, PENSTOCK_E_NOT_FOUND, "cannot tag run '%s': it has no artifacts",
			s->place.name);
	return r < 0 ? r : write_tag(s, tag, to, s->place.id, s->place.name, err);
}

static int tag_dir(struct session *s, const char *tag, const char *from, const char *run,
	const char *name, struct penstock_error *err)
{
	_cleanup_free_ char *to = NULL;
	int r = artifacts_tag_path(&to, s->home, tag, "", err);

	/* A 'penstock tag' that was killed may have left files. The description of the tag is
	 * written last, so a tag always refers to a complete copy. */
	if (r == 0)
		r = fs_remove_tree(to, err);
	if (r == 0)
		r = copy_dir(from, to, err);
	return r < 0 ? r : write_tag(s, tag, NULL, run, name, err);
}

static int tag_remove(struct session *s, const char *tag, struct penstock_error *err)
{
	_cleanup_free_ char *word = str_printf(":%s", tag), *path = NULL, *dir = NULL;
	int r = word ? lock_tags(s, err) : error_memory(err);

	if (r == 0)
		r = open_place(s, word, err);
	if (r == 0)
		r = artifacts_tag_path(&path, s->home, tag, ".json", err);
	if (r == 0)
		r = artifacts_tag_path(&dir, s->home, tag, "", err);
	/* Remove the description first: a tag is complete or does not exist. */
	if (r == 0 && unlink(path) < 0)
		r = error_errno(err, errno, "cannot remove '%s'", path);
	if (r == 0 && !s->place.dir)
		r = artifacts_remove(artifacts_object(&s->place, s->place.prefix), NULL, err);
	return r < 0 ? r : fs_remove_tree(dir, err);
}

static int tag_list(struct session *s, struct penstock_error *err)
{
	_cleanup_free_ char *dir = path_join(s->home, "tags");
	struct dirent **entries = NULL;
	struct grid grid = grid_new("TAG", "RUN", "NAME");
	int n = dir ? scandir(dir, &entries, NULL, alphasort) : 0;

	for (int i = 0; i < n; i++) {
		_cleanup_free_ char *path = path_join(dir, entries[i]->d_name);
		json_auto_t *json = path && str_ends(path, ".json") ? json_load_file(path, 0, NULL)
								    : NULL;

		if (json) {
			grid_addf(&grid, "%.*s", (int)strlen(entries[i]->d_name) - 5,
				entries[i]->d_name);
			grid_add(&grid, json_string_value(json_object_get(json, "run")));
			grid_add(&grid, json_string_value(json_object_get(json, "name")));
		}
		free(entries[i]);
	}
	free(entries);
	grid_print(&grid);
	return dir ? 0 : error_memory(err);
}

/* ---- the verbs ---- */

static int run_artifacts(const struct cli *cli)
{
	_cleanup_(session_release) struct session s = {.lock_fd = -1};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *what = cli_operand(cli, 0), *word = cli_operand(cli, 1);
	const char *tag = cli_value(cli, "tag"), *to = cli_value(cli, "output");
	int r;

	if (location_is_object(word))
		return cli_misuse(cli,
			"'%s' is a place in a store, not a run; use 'penstock ls -r', "
			"'penstock cp -r' or 'penstock cat'",
			word);
	r = show_open(&s.records, &s.home, &err);
	if (r < 0)
		return cli_fail(cli, &err);
	if (strcmp(what, "list") == 0 || strcmp(what, "ls") == 0) {
		r = list(cli, &s, &err);
	} else if (strcmp(what, "get") == 0 || strcmp(what, "download") == 0) {
		r = get(&s, word, to ? to : ".", &err);
	} else if (strcmp(what, "cat") == 0 && cli_n_operands(cli) == 3) {
		r = cat(cli, &s, &err);
	} else if (strcmp(what, "put") == 0 || strcmp(what, "upload") == 0) {
		if (!tag)
			return cli_misuse(cli, "put needs --tag");
		r = check_free(&s, tag, &err);
		if (r == 0)
			r = tag_dir(&s, tag, word, NULL, word, &err);
	} else {
		return cli_misuse(
			cli, "expected list, get, put, or cat RUN PATH instead of '%s'", what);
	}
	return r < 0 ? cli_fail(cli, &err) : r;
}

static int run_tag(const struct cli *cli)
{
	_cleanup_(session_release) struct session s = {.lock_fd = -1};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *what = cli_operand(cli, 0), *tag = cli_operand(cli, 1);
	size_t n = cli_n_operands(cli);
	int r = show_open(&s.records, &s.home, &err);

	if (r < 0)
		return cli_fail(cli, &err);
	/* Accept ":TAG", as in `artifacts` and in workflows. */
	if (tag && *tag == ':')
		tag++;
	if (strcmp(what, "add") == 0 && n == 3) {
		r = check_free(&s, tag, &err);
		if (r == 0)
			r = open_place(&s, cli_operand(cli, 2), &err);
		if (r == 0)
			r = s.place.dir
				    ? tag_dir(&s, tag, s.place.dir, s.place.id, s.place.name, &err)
				    : tag_objects(&s, tag, &err);
	} else if (strcmp(what, "list") == 0 && n == 1) {
		r = tag_list(&s, &err);
	} else if (strcmp(what, "rm") == 0 && n == 2) {
		r = tag_remove(&s, tag, &err);
	} else {
		return cli_misuse(cli, "expected add TAG RUN, list, or rm TAG");
	}
	return r < 0 ? cli_fail(cli, &err) : 0;
}

static const struct command_exit exits[] = {
	{"66", "There is no such run or tag, or it has no artifacts"},
	{"69", "The store does not respond, or the tag exists already"},
	{"77", "The store refused the credentials"},
	{NULL, NULL},
};

const struct command command_artifacts = {
	.name = "artifacts",
	.summary = "list and download the output of runs",
	.operands = "list|get|put|cat RUN|:TAG|DIR [PATH]",
	.min_operands = 2,
	.max_operands = 3,
	.description =
		"Lists and downloads the output of a run of this machine, wherever the output is, "
		"or the files of a tag; writes one of them to standard output; and creates a tag "
		"from a directory. RUN is an id, the beginning of one, or a name. For a place in a "
		"store, s3://PLACE, use 'penstock ls -r', 'penstock cp -r' and 'penstock cat'.",
	.options = OPTIONS(
		{'o', "output", "DIR", "get: directory for the files; default: this directory"},
		{'t', "tag", "TAG", "put: name of the tag"},
		{0, "offset", "N", "cat: begin at byte N"},
		{0, "length", "N", "cat: write at most N bytes"},
		{0, "json", NULL, "list: a list of objects with path and size"}),
	.examples = EXAMPLES({"penstock artifacts list train-mnist",
				     "The files of the run's output, with their sizes"},
		{"penstock artifacts get train-mnist -o models", "Download the files"},
		{"penstock artifacts get :v1", "Download the files of a tag"},
		{"penstock artifacts cat train-mnist metrics.csv", "Print one file"},
		{"penstock artifacts put data --tag mnist", "Create a tag from a local directory"}),
	.exits = exits,
	.run = run_artifacts,
};

const struct command command_tag = {
	.name = "tag",
	.summary = "keep the output of a run under a name",
	.operands = "add TAG RUN | list | rm TAG",
	.min_operands = 1,
	.max_operands = 3,
	.description =
		"A tag is a copy of a run's output, made by the store itself if the output is in "
		"one. The copy does not change when the run is restarted; workflows use a tag "
		"with `deps` or `artifacts: {tag: TAG}` of an input.",
	.examples = EXAMPLES(
		{"penstock tag add v1 train-mnist", "Keep the output of the run under a name"},
		{"penstock tag list", "List the tags of this machine"},
		{"penstock tag rm v1", "Remove the tag with its copy"}),
	.exits = exits,
	.run = run_tag,
};
