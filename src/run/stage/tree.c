/* Inputs of many files: the objects below an S3 prefix, or a local directory. */
#include "run/stage/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <penstock/error.h>

#include "archive/unpack.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "copy/copy.h"
#include "run/stage/copy_tree.h"
#include "s3/sum/checksum.h"

/* ---- S3 ---- */

#define SHA256_BYTES 32

struct download {
	struct stage_input *in;
	struct strlist names; /* names of the objects to unpack */
	bool too_many; /* more objects to unpack than LIMIT_STAGE_UNPACK */
	bool no_memory;
	char etag[OBJECT_ETAG_SIZE]; /* ETag of the last object */
	unsigned char sum[SHA256_BYTES]; /* sum over all objects, independent of their order */
};

static int note_size(void *cookie, uint64_t objects, uint64_t bytes, struct penstock_error *err)
{
	struct download *d = cookie;

	(void)objects;
	atomic_store(&d->in->total, bytes);
	return stage_input_reserve(d->in, bytes, err);
}

static void count_bytes(void *cookie, int64_t bytes)
{
	struct download *d = cookie;

	stage_input_moved(d->in, bytes);
}

/* Returns the ETag of the input: the ETag of its only object, or one made of the sum. */
static char *sum_as_etag(const struct download *d, uint64_t objects)
{
	char hex[2 * SHA256_BYTES + 1];

	if (objects == 1)
		return strdup(d->etag);
	str_hex(d->sum, SHA256_BYTES, hex);
	return str_printf("all-%s", hex);
}

/* Called for each object that is in place, fetched now or by an earlier attempt. */
static void note_object(void *cookie, const struct copy_item *item)
{
	struct download *d = cookie;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	uint8_t one[CHECKSUM_MAX_SIZE] = {0};

	snprintf(d->etag, sizeof(d->etag), "%s", item->etag);
	/* Hash each ETag with the object's name, so that the sum changes if two objects swap
	 * names. */
	buf_add(&text, item->name, strlen(item->name) + 1);
	buf_add_str(&text, d->etag);
	d->no_memory |= buf_failed(&text) ||
			checksum_of(CHECKSUM_SHA256, text.data, text.len, one, NULL) < 0;
	for (size_t i = 0; i < SHA256_BYTES; i++)
		d->sum[i] ^= one[i];
	if (!d->in->input->unpack.value || d->too_many)
		return;
	d->too_many = d->names.n >= LIMIT_STAGE_UNPACK;
	if (!d->too_many && strlist_add(&d->names, item->name) < 0)
		d->no_memory = true;
}

/* Unpacks each archive into the directory that contains it. */
static int unpack_each(
	const struct stage_input *in, const struct strlist *names, struct penstock_error *err)
{
	for (size_t i = 0; i < names->n; i++) {
		_cleanup_free_ char *path = path_join(in->dir, names->items[i]);
		_cleanup_free_ char *dir = path ? strdup(path) : NULL;
		const struct unpack_options options = {
			.max_bytes = INT64_MAX, .budget = in->space, .cancel = in->cancel};
		int r;

		if (!dir)
			return error_memory(err);
		*strrchr(dir, '/') = '\0';
		r = unpack_file(path, dir, &options, NULL, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int stage_download_prefix(
	struct stage_input *in, struct stage_mark *mark, struct penstock_error *err)
{
	const struct workflow_artifacts *artifacts = &in->input->artifacts;
	struct download d = {.in = in};
	struct copy_prefix prefix = {.dir = in->dir,
		.without_runs = true,
		.one_output = artifacts->run.value || artifacts->tag.value,
		.on_size = note_size,
		.cookie = &d};
	struct run_store *store;
	int r = stores_open(
		in->options->stores, in->options->workflow, &in->input->s3, &store, err);

	if (r < 0)
		return r;
	prefix.bucket = store->bucket;
	prefix.prefix = store->prefix;
	struct copy copy;
	r = copy_begin(&copy,
		&(struct copy_options){.engine = d.in->options->stores->engine,
			.from = store->client,
			.keep_same = true,
			.no_sync = true, /* state.h has the reason */
			.stop_at_first_error = true,
			.cancel = d.in->cancel,
			.report = {.moved = count_bytes,
				.done = note_object,
				.same = note_object,
				.cookie = &d}},
		err);
	if (r == 0)
		r = copy_prefix(&copy, &prefix, err);
	if (r == 0)
		r = copy_finish(&copy, err);
	copy_end(&copy);
	if (r == 0 && prefix.objects == 0 && prefix.directories == 0)
		r = error_set(err, PENSTOCK_E_NOT_FOUND, "cannot find an object below this path");
	if (r == 0 && d.no_memory)
		r = error_memory(err);
	if (r == 0 && d.too_many)
		r = error_set(err, PENSTOCK_E_LIMIT,
			"cannot unpack more than %d objects; omit `unpack`, or put them into fewer "
			"archives",
			LIMIT_STAGE_UNPACK);
	if (r == 0)
		r = unpack_each(in, &d.names, err);
	strlist_release(&d.names);
	mark->bytes = prefix.bytes;
	mark->files = prefix.objects;
	if (r == 0 && prefix.objects && !(mark->etag = sum_as_etag(&d, prefix.objects)))
		r = error_memory(err);
	return r;
}

/* ---- a directory ---- */

struct directory_copy {
	struct stage_input *in;
	struct stage_mark *mark;
	int to; /* the input's directory */
	struct strlist names; /* names of the files to unpack */
};

static bool count_entry(void *cookie, const char *path, const struct stat *st)
{
	struct directory_copy *c = cookie;

	(void)path;
	(void)st;
	c->mark->files++;
	return false;
}

/* Returns the bytes on disk of the file that an interrupted staging has left, and that will be
 * replaced. */
static uint64_t bytes_there(const struct directory_copy *c, const char *path)
{
	struct stat st;

	return fstatat(c->to, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)
		       ? (uint64_t)st.st_blocks * 512
		       : 0;
}

static int take_file(
	void *cookie, const char *path, const struct stat *st, struct penstock_error *err)
{
	struct directory_copy *c = cookie;
	uint64_t size = (uint64_t)st->st_size, there = bytes_there(c, path);
	int r = stage_input_reserve(c->in, size > there ? size - there : 0, err);

	if (r < 0 || !c->in->input->unpack.given || !c->in->input->unpack.value)
		return r;
	if (c->names.n >= LIMIT_STAGE_UNPACK)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot unpack more than %d files; omit "
			"`unpack`",
			LIMIT_STAGE_UNPACK);
	return strlist_add(&c->names, path) < 0 ? error_memory(err) : 0;
}

static int note_moved(void *cookie, size_t bytes, struct penstock_error *err)
{
	struct directory_copy *c = cookie;

	(void)err;
	c->mark->bytes += bytes;
	stage_input_moved(c->in, (int64_t)bytes);
	return 0;
}

static int refuse_special(void *cookie, const char *path, struct penstock_error *err)
{
	(void)cookie;
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot stage '%s': only files, directories and links can be staged", path);
}

int stage_copy_tree(struct stage_input *in, struct stage_mark *mark, struct penstock_error *err)
{
	_cleanup_close_ int from = open(in->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int to = open(in->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct directory_copy c = {.in = in, .mark = mark, .to = to};
	const struct copy_tree how = {.replace = true,
		.what = "staging",
		.cancel = in->cancel,
		.leave_out = count_entry,
		.file = take_file,
		.moved = note_moved,
		.special = refuse_special,
		.cookie = &c};
	int r;

	if (from < 0 || to < 0)
		return error_errno(err, errno, "cannot open '%s'", from < 0 ? in->local : in->dir);
	r = copy_tree(&how, from, to, err);
	if (r == 0)
		r = unpack_each(in, &c.names, err);
	strlist_release(&c.names);
	return r;
}
