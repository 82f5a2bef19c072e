/*
 * Fetches one resource into one file: chooses the mode, passes the bytes on, verifies, publishes.
 */
#include "transfer/http_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/str.h"
#include "s3/sum/checksum.h"
#include "transfer/web/internal.h"
#include "transfer/state/part_file.h"

#define MAX_RESTARTS 3 /* restarts for a resource that changes during the fetch */
/* attempts to open a file that other processes create or remove at the same moment */
#define PART_OPENINGS 3

void http_fetch_result_release(struct http_fetch_result *result)
{
	free(result->path);
	free(result->etag);
	free(result->last_modified);
	*result = (struct http_fetch_result){0};
}

/* ---- preparing ---- */

/* Opens a new part file, or one that an earlier call left. A file that is not private may be
 * another program's, and is replaced. */
static int open_part(struct fetch *f, struct penstock_error *err)
{
	MUST(f->part_path);
	for (int tries = 0;; tries++) {
		_cleanup_close_ int fd = open(
			f->part_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);

		f->fresh = fd >= 0;
		if (fd < 0 && errno == EEXIST)
			fd = open(f->part_path,
				O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
		if (fd < 0 && (errno != ENOENT || tries == PART_OPENINGS))
			return error_errno(err, errno, "cannot create '%s'", f->part_path);
		if (fd < 0)
			continue;
		if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
			return error_set(err, PENSTOCK_E_EXISTS,
				"cannot fetch '%s': another process is fetching it", f->final_path);
		if (f->fresh || part_file_is_private(fd)) {
			f->fd = take_fd(fd);
			return 0;
		}
		if (tries == PART_OPENINGS || unlink(f->part_path) < 0)
			return error_set(err, PENSTOCK_E_EXISTS,
				"cannot use '%s': it belongs to another program; remove it",
				f->part_path);
	}
}

static int fetch_init(struct fetch *f, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_STRING);

	f->fd = -1;
	if (f->options->name)
		buf_add_str(&name, f->options->name);
	else
		http_fetch_name(f->url, &name);
	if (buf_failed(&name))
		return buf_error(&name, "the file's name", err);
	f->final_path = path_join(f->options->directory, buf_str(&name));
	if (!f->final_path || part_file_first_name(f->final_path, &f->part_path, err) < 0)
		return error_memory(err);
	f->journal_path = str_printf("%s.json", f->part_path);
	f->block = malloc(LIMIT_FETCH_BLOCK);
	if (!f->journal_path || !f->block)
		return error_memory(err);
	if (!f->options->sha256)
		return 0;
	f->sha256 = calloc(1, sizeof(*f->sha256));
	return f->sha256 ? checksum_init(f->sha256, CHECKSUM_SHA256, err) : error_memory(err);
}

static void fetch_release(struct fetch *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->sha256)
		checksum_release(f->sha256);
	free(f->sha256);
	free(f->slots);
	free(f->done);
	free(f->block);
	free(f->etag);
	free(f->last_modified);
	free(f->final_path);
	free(f->part_path);
	free(f->journal_path);
}

/* Forgets the properties and the journal of the resource. Called only before bytes are passed
 * on. */
static void fetch_reset(struct fetch *f)
{
	unlink(f->journal_path);
	free(take_pointer(f->etag));
	free(take_pointer(f->last_modified));
	free(take_pointer(f->slots));
	f->n_slots = 0;
	f->size = HTTP_LENGTH_UNKNOWN;
	f->chunk = f->options->chunk_size ? f->options->chunk_size : LIMIT_FETCH_CHUNK;
	if (f->chunk < LIMIT_FETCH_CHUNK_MIN)
		f->chunk = LIMIT_FETCH_CHUNK_MIN;
	f->stream_at = 0;
	f->stream_high = 0;
	f->result->resumed = false;
}

/* ---- running ---- */

static uint64_t bytes_missing(const struct fetch *f)
{
	uint64_t missing = 0;

	for (uint64_t i = 0; i < f->n_chunks; i++) {
		if (!fetch_done(f, i))
			missing += i + 1 < f->n_chunks ? f->chunk : f->size - i * f->chunk;
	}
	return missing;
}

static int fetch_once(struct fetch *f, int restarts, struct penstock_error *err)
{
	enum fetch_way way = FETCH_WAY_RANGES;
	int r;

	if (restarts == 0 && !f->fresh && fetch_journal_load(f)) {
		f->result->resumed = true;
		/* Each range verifies that the resource is the same. If no range is missing, a
		 * request for the last byte verifies this. */
		r = bytes_missing(f) ? 0 : fetch_recheck(f, err);
		if (r == 0)
			r = fetch_announce(f, bytes_missing(f), err);
	} else {
		fetch_reset(f);
		r = 0;
		if (ftruncate(f->fd, 0) < 0)
			return error_errno(err, errno, "cannot write '%s'", f->part_path);
		/* A server that ignores If-Range looks as if the resource changed. */
		if (restarts == MAX_RESTARTS)
			way = FETCH_WAY_STREAM;
		else
			r = fetch_probe(f, &way, err);
	}
	if (r < 0)
		return r;
	return way == FETCH_WAY_RANGES ? fetch_ranges(f, err) : fetch_stream(f, err);
}

static int fetch_remote(struct fetch *f, struct penstock_error *err)
{
	for (int restarts = 0;; restarts++) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
		int r = fetch_once(f, restarts, &own);

		if (r == 0)
			return 0;
		if (own.code == PENSTOCK_E_CHANGED) {
			unlink(f->journal_path);
			if (f->sha256 && !f->options->consume && checksum_reset(f->sha256) < 0)
				return error_memory(err);
			if (!f->options->consume)
				f->consumed = 0;
			if (f->consumed == 0 && restarts < MAX_RESTARTS) {
				if (f->options->progress && f->fetched)
					f->options->progress(
						f->options->cookie, -(int64_t)f->fetched);
				f->fetched = 0;
				continue;
			}
		}
		return error_move(err, &own);
	}
}

static int verify(struct fetch *f, struct penstock_error *err)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return error_errno(err, errno, "cannot stat '%s'", f->part_path);
	if ((uint64_t)st.st_size != f->size)
		return error_set(err, PENSTOCK_E_CORRUPT, "'%s' has %llu bytes, expected %llu",
			f->part_path, (unsigned long long)st.st_size, (unsigned long long)f->size);
	if (!f->sha256)
		return fetch_is_page(f) ? fetch_page_error(err) : 0;
	checksum_final(f->sha256, digest);
	str_hex(digest, 32, f->result->sha256);
	if (strcasecmp(f->result->sha256, f->options->sha256) == 0)
		return 0;
	if (fetch_is_page(f))
		return fetch_page_error(err);
	return error_set(err, PENSTOCK_E_CORRUPT,
		"sha256 mismatch: received %s, expected %s; the server sends another file",
		f->result->sha256, f->options->sha256);
}

static int publish(struct fetch *f, struct penstock_error *err)
{
	if (!f->options->no_sync && fdatasync(f->fd) < 0)
		return error_errno(err, errno, "cannot write '%s'", f->part_path);
	if (f->options->on_whole) {
		int r = f->options->on_whole(
			f->options->cookie, f->size, f->etag, f->result->sha256, err);

		if (r < 0)
			return r;
	}
	if ((f->options->if_none_match ? fs_rename_new : rename)(f->part_path, f->final_path) < 0) {
		if (errno != EEXIST || !f->options->if_none_match)
			return error_errno(err, errno, "cannot rename '%s'", f->part_path);
		unlink(f->journal_path);
		unlink(f->part_path);
		return error_set(err, PENSTOCK_E_PRECONDITION, "'%s' exists", f->final_path);
	}
	unlink(f->journal_path);
	return f->options->no_sync ? 0 : fs_fsync_dir(f->options->directory, err);
}

static int fetch_run(struct fetch *f, const char *local, struct penstock_error *err)
{
	int r = open_part(f, err);

	if (r < 0)
		return r;
	/* If the part file was renamed or removed before it was locked, its name is now another
	 * file's. */
	if (!fs_is_named(f->fd, f->part_path)) {
		close(take_fd(f->fd));
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot fetch '%s': another process has just fetched it; run the command "
			"again",
			f->final_path);
	}
	r = local ? fetch_local(f, local, err) : fetch_remote(f, err);
	if (r == 0)
		r = fetch_consume(f, f->size, err);
	if (r == 0) {
		r = verify(f, err);
		/* The fetched bytes are useless for the next call. */
		if (r == -(int)PENSTOCK_E_CORRUPT || r == -(int)PENSTOCK_E_INVALID) {
			unlink(f->journal_path);
			unlink(f->part_path);
		}
	}
	return r < 0 ? r : publish(f, err);
}

/* Adds the URL, without its secrets, in front of the message if the message lacks the URL. */
static int name_input(const char *url, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf shown = BUF_INIT(LIMIT_STRING);

	http_url_display(url, &shown);
	if (!err->message || !strstr(err->message, buf_str(&shown)))
		return error_prefix(err, "%s", buf_str(&shown));
	return -(int)err->code;
}

int http_fetch(struct http_engine *engine, const char *url,
	const struct http_fetch_options *options, struct http_fetch_result *result,
	struct penstock_error *err)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	struct http_fetch_result found = {0};
	struct fetch f = {.engine = engine, .url = url, .options = options, .result = &found};
	_cleanup_free_ char *local = fetch_local_path(url);
	int r = fetch_init(&f, &own);

	if (r == 0) {
		r = fetch_run(&f, local, &own);
		/* A part file without a journal is useless. */
		if (r < 0 && f.fd >= 0 && access(f.journal_path, F_OK) < 0)
			unlink(f.part_path);
	}
	if (r == 0) {
		found.path = take_pointer(f.final_path);
		found.size = f.size;
		found.fetched = f.fetched;
		found.etag = take_pointer(f.etag);
		found.last_modified = take_pointer(f.last_modified);
		*result = found;
	} else {
		http_fetch_result_release(&found);
		name_input(url, &own);
		r = error_move(err, &own);
	}
	fetch_release(&f);
	return r;
}
