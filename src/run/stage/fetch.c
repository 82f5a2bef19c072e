/* An input that is one file: from HTTP, or on this machine. */
#include "run/stage/input.h"

#include <errno.h>
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
#include "base/log.h"
#include "transfer/http_fetch.h"

/* Number of attempts if the source changes during the fetch. */
#define CHANGES 3

struct fetch {
	struct stage_input *in;
	struct unpacker *unpacker; /* NULL if the file is not unpacked, or unpacking has finished */
	struct unpack_options unpack;
	char *path; /* owned; path of the fetched file */
	char *placed; /* owned; its final place, next to the files unpacked from it */
	struct http_fetch_result result;
	struct unpack_stats stats;
	bool reserved; /* the space for the file was reserved */
};

static int on_size(void *cookie, uint64_t size, uint64_t missing, struct penstock_error *err)
{
	struct fetch *f = cookie;

	if (size == UINT64_MAX)
		return 0;
	atomic_store(&f->in->total, size);
	atomic_store(&f->in->done, (long long)(size - missing));
	stage_input_report(f->in);
	if (f->reserved)
		return 0;
	f->reserved = true;
	return stage_input_reserve(f->in, missing, err);
}

/* Reserves space for a source of unknown size. */
static int reserve_more(void *cookie, uint64_t bytes, struct penstock_error *err)
{
	struct fetch *f = cookie;

	return stage_input_reserve(f->in, bytes, err);
}

static int unpack_some(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct fetch *f = cookie;

	return f->unpacker ? unpacker_feed(f->unpacker, data, len, err) : 0;
}

static void fetched_some(void *cookie, int64_t bytes)
{
	struct fetch *f = cookie;

	stage_input_moved(f->in, bytes);
}

/* Records the file before it gets its name, so that a file of that name is known to be complete
 * after a kill. */
static int record_whole(void *cookie, uint64_t size, const char *etag, const char *sha256,
	struct penstock_error *err)
{
	const struct fetch *f = cookie;
	struct stage_mark mark = {.fetched = true, .bytes = size, .etag = (char *)(uintptr_t)etag};

	snprintf(mark.sha256, sizeof(mark.sha256), "%s", sha256);
	return stage_state_set(f->in->state, f->in->index, &mark, err);
}

static int fetch_once(struct fetch *f, struct penstock_error *err)
{
	const struct workflow_input *w = f->in->input;
	const struct http_fetch_options options = {
		.directory = f->in->fetch_dir,
		.name = f->in->file_name,
		.sha256 = w->sha256.value,
		.no_sync = true, /* see state.h */
		.on_size = on_size,
		.on_more = reserve_more,
		.on_whole = record_whole,
		.consume = w->unpack.value ? unpack_some : NULL,
		.progress = fetched_some,
		.cookie = f,
		.patience_ms = atomic_load(&f->in->options->stores->patience_ms),
		.cancel = f->in->cancel,
	};
	int r = 0;

	unpacker_free(take_pointer(f->unpacker));
	if (w->unpack.value)
		r = unpacker_new(&f->unpacker, f->in->dir, &f->unpack, err);
	if (r < 0)
		return r;
	return http_fetch(f->in->options->stores->engine,
		f->in->local ? f->in->local : w->http_url.value, &options, &f->result, err);
}

static int fetch_all(struct fetch *f, struct stage_mark *mark, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	int r = -PENSTOCK_E_CHANGED;

	for (int i = 0; i < CHANGES && r == -PENSTOCK_E_CHANGED; i++)
		r = fetch_once(f, &why);
	if (r < 0)
		return error_move(err, &why);
	mark->fetched = true;
	mark->bytes = f->result.size;
	mark->etag = f->result.etag ? strdup(f->result.etag) : NULL;
	snprintf(mark->sha256, sizeof(mark->sha256), "%s", f->result.sha256);
	return 0;
}

static bool has_size(const char *path, uint64_t size)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size;
}

/* Returns true if an earlier attempt fetched the file but did not finish the input. Moves a file
 * back that is already in its final place. */
static bool was_fetched(const struct fetch *f, struct stage_mark *mark)
{
	const struct stage_mark *known = &f->in->state->marks[f->in->index];

	if (!known->fetched ||
		(!has_size(f->path, known->bytes) &&
			(!has_size(f->placed, known->bytes) || access(f->path, F_OK) == 0 ||
				rename(f->placed, f->path) < 0)))
		return false;
	mark->fetched = true;
	mark->bytes = known->bytes;
	mark->etag = known->etag ? strdup(known->etag) : NULL;
	memcpy(mark->sha256, known->sha256, sizeof(mark->sha256));
	return true;
}

static int fetch_input(struct fetch *f, struct stage_mark *mark, struct penstock_error *err)
{
	int r = fs_mkdirs(f->in->fetch_dir, 0700, err);

	if (r < 0)
		return r;
	if (!was_fetched(f, mark)) {
		/* Remove an old file that the mark does not describe: if penstock is killed before
		 * the new file gets this name, the next attempt could mistake the old file for the
		 * new one. */
		unlink(f->path);
		r = fetch_all(f, mark, err);
	}
	if (r == 0 && f->in->input->unpack.value) {
		if (f->unpacker)
			r = unpacker_finish(f->unpacker, f->path, &f->stats, err);
		else
			r = unpack_file(f->path, f->in->dir, &f->unpack, &f->stats, err);
		unpacker_free(take_pointer(f->unpacker));
		if (r == 0 && f->stats.result != UNPACK_PLAIN)
			log_debug("input %s: %s with %llu members", f->in->source, f->stats.format,
				(unsigned long long)f->stats.members);
	}
	/* A bad archive is not kept, because the source may be corrected. */
	if (r == -PENSTOCK_E_CORRUPT || r == -PENSTOCK_E_INVALID || r == -PENSTOCK_E_UNSUPPORTED)
		fs_remove_tree(f->in->fetch_dir, NULL);
	mark->files = 1 + f->stats.members;
	if (r < 0)
		return r;
	/* Move the file next to the files unpacked from it. */
	if (rename(f->path, f->placed) < 0)
		return error_errno(err, errno, "cannot move the file to '%s'", f->placed);
	return fs_remove_tree(f->in->fetch_dir, err);
}

int stage_fetch_file(struct stage_input *in, struct stage_mark *mark, struct penstock_error *err)
{
	struct fetch f = {.in = in};
	int r;

	f.unpack = (struct unpack_options){.name = in->file_name,
		.always = in->input->unpack.given && in->input->unpack.value,
		.max_bytes = INT64_MAX,
		.budget = in->space,
		.cancel = in->cancel};
	f.path = path_join(in->fetch_dir, in->file_name);
	f.placed = path_join(in->dir, in->file_name);
	r = f.path && f.placed ? fetch_input(&f, mark, err) : error_memory(err);
	unpacker_free(f.unpacker);
	http_fetch_result_release(&f.result);
	free(f.path);
	free(f.placed);
	return r;
}
