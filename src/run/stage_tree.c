/* Inputs of many files: what lies below an S3 prefix, or in a directory of this machine. */
#include "run/stage_input.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "archive/unpack.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/copy_tree.h"
#include "transfer/tree.h"
#include "base/banned.h"

/* ---- S3 ---- */

#define SHA256_BYTES 32

struct download {
	struct stage_input *in;
	struct strlist names;		 /* of the objects, where they are to be unpacked */
	bool failed;			 /* too many, or no memory for a name */
	bool no_memory;			 /* for one of the other two */
	char etag[OBJECT_ETAG_SIZE];	 /* of the last object */
	unsigned char sum[SHA256_BYTES]; /* of all of them, in whatever order they came */
};

static int know_size(void *cookie, uint64_t objects, uint64_t bytes, struct penstock_error *err)
{
	struct download *d = cookie;

	(void)objects;
	atomic_store(&d->in->total, bytes);
	return stage_input_reserve(d->in, bytes, err);
}

static void downloaded_some(void *cookie, int64_t bytes)
{
	struct download *d = cookie;

	stage_input_moved(d->in, bytes);
}

/* Each is hashed with its name, so that two that change places count. */
static bool add_to_sum(unsigned char sum[static SHA256_BYTES], const char *path, const char *etag)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	unsigned char one[SHA256_BYTES];

	buf_add(&text, path, strlen(path) + 1);
	buf_add_str(&text, etag);
	if (buf_failed(&text) ||
		EVP_Digest(text.data, text.len, one, NULL, EVP_sha256(), NULL) != 1)
		return false;
	for (size_t i = 0; i < SHA256_BYTES; i++)
		sum[i] ^= one[i];
	return true;
}

/* The ETag of one object as it is. */
static char *sum_as_etag(const struct download *d, uint64_t objects)
{
	char hex[2 * SHA256_BYTES + 1];
	char *text;

	if (objects == 1)
		return strdup(d->etag);
	str_hex(d->sum, SHA256_BYTES, hex);
	return asprintf(&text, "all-%s", hex) < 0 ? NULL : text;
}

static void note_object(void *cookie, const char *path, const struct object_info *info)
{
	struct download *d = cookie;

	memcpy(d->etag, info->etag, sizeof(d->etag));
	if (!add_to_sum(d->sum, path, info->etag))
		d->no_memory = true;
	if (!d->in->input->unpack.value || d->failed)
		return;
	d->failed = d->names.n >= LIMIT_STAGE_UNPACK || strlist_add(&d->names, path) < 0;
}

/* Each of the files that is an archive, beside itself. */
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
	static const char *const exclude[] = {".penstock/", NULL};
	struct download d = {.in = in};
	const struct tree_download_options options = {.exclude = exclude,
		.on_size = know_size,
		.progress = downloaded_some,
		.on_object = note_object,
		.cookie = &d,
		.cancel = in->cancel};
	struct tree_download_stats stats = {0};
	struct run_store *store;
	int r = stores_open(
		in->options->stores, in->options->workflow, &in->input->s3, &store, err);

	if (r == 0)
		r = transfer_download_tree(store->client, store->bucket, store->prefix, in->dir,
			&options, &stats, err);
	if (r == 0 && stats.objects == 0 && stats.directories == 0)
		r = error_set(err, PENSTOCK_E_NOT_FOUND, "there is no object below this path");
	if (r == 0 && d.no_memory)
		r = error_memory(err);
	if (r == 0 && d.failed)
		r = error_set(err, PENSTOCK_E_LIMIT,
			"more than %d objects are to be unpacked; leave out unpack, or put them "
			"into fewer archives",
			LIMIT_STAGE_UNPACK);
	if (r == 0)
		r = unpack_each(in, &d.names, err);
	strlist_release(&d.names);
	mark->bytes = stats.bytes;
	mark->files = stats.objects;
	if (r == 0 && stats.objects && !(mark->etag = sum_as_etag(&d, stats.objects)))
		r = error_memory(err);
	return r;
}

/* ---- a directory ---- */

struct copy {
	struct stage_input *in;
	struct stage_mark *mark;
	struct strlist names; /* of the files, where they are to be unpacked */
};

static bool count_entry(void *cookie, const char *path, const struct stat *st)
{
	struct copy *c = cookie;

	(void)path;
	(void)st;
	c->mark->files++;
	return false;
}

static int take_file(
	void *cookie, const char *path, const struct stat *st, struct penstock_error *err)
{
	struct copy *c = cookie;
	int r = stage_input_reserve(c->in, (uint64_t)st->st_size, err);

	if (r < 0 || !c->in->input->unpack.given || !c->in->input->unpack.value)
		return r;
	if (c->names.n >= LIMIT_STAGE_UNPACK)
		return error_set(err, PENSTOCK_E_LIMIT,
			"more than %d files are to be unpacked; leave out unpack",
			LIMIT_STAGE_UNPACK);
	return strlist_add(&c->names, path) < 0 ? error_memory(err) : 0;
}

static int note_moved(void *cookie, size_t bytes, struct penstock_error *err)
{
	struct copy *c = cookie;

	(void)err;
	c->mark->bytes += bytes;
	stage_input_moved(c->in, (int64_t)bytes);
	return 0;
}

static int refuse_special(void *cookie, const char *path, struct penstock_error *err)
{
	(void)cookie;
	return error_set(err, PENSTOCK_E_INVALID,
		"%s is a device, FIFO or socket; only files, directories and links are staged",
		path);
}

int stage_copy_tree(struct stage_input *in, struct stage_mark *mark, struct penstock_error *err)
{
	_cleanup_close_ int from = open(in->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int to = open(in->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct copy c = {.in = in, .mark = mark};
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
		return error_errno(err, errno, "cannot open %s", from < 0 ? in->local : in->dir);
	r = copy_tree(&how, from, to, err);
	if (r == 0)
		r = unpack_each(in, &c.names, err);
	strlist_release(&c.names);
	return r;
}
