/*
 * Uploads an object that replaces an older version of itself: blocks with unchanged tags are copied
 * by the store (UploadPartCopy, under the older version's ETag), and the rest is sent. If that
 * saves too little, or fails, everything is sent. The tags of the sent object are recorded
 * afterwards in both cases. object_remember() records the tags of an object that was downloaded.
 */
#include "transfer/put/send_delta.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "transfer/put/parts.h"

#define SUFFIX ".sent"

/* ---- the record ---- */

/* Returns DIR/DIGEST.sent; NULL if out of memory. */
static char *record_path(struct object_ref at, const char *dir)
{
	_cleanup_free_ char *target = str_printf(
		"%s\n%s\n%s", at.client->address, at.bucket, at.key);
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[65];

	if (!target || checksum_of(CHECKSUM_SHA256, target, strlen(target), digest, NULL) < 0)
		return NULL;
	str_hex(digest, 16, hex);
	return str_printf("%s/%s" SUFFIX, dir, hex);
}

/* Removes records of objects that were not sent for a long time. */
static void sweep(struct object_client *client, const char *dir)
{
	_cleanup_closedir_ DIR *d = NULL;
	struct dirent *e;

	if (atomic_exchange(&client->swept_sent, true))
		return;
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		_cleanup_(record_file_close) struct record_file file = RECORD_FILE_INIT;
		_cleanup_free_ char *path = str_ends(e->d_name, SUFFIX) ? path_join(dir, e->d_name)
									: NULL;
		struct stat st;

		if (path && lstat(path, &st) == 0 &&
			clock_wall_ns() / NS_PER_S - st.st_mtim.tv_sec >
				(int64_t)LIMIT_DELTA_DAYS * 24 * 3600 &&
			record_file_open(&file, path, NULL) == 0)
			record_file_remove(&file);
	}
}

/* ---- the upload ---- */

struct delta_upload {
	struct object_ref at;
	int fd;
	uint64_t size;
	const struct object_put_options *options;
	/* file.fd is -1 if another upload uses the record, or the record is not available */
	struct record_file file;
	struct delta_sums earlier, now;
	char *etag; /* ETag of the earlier object; may be NULL */
};

static void delta_upload_release(struct delta_upload *d)
{
	record_file_close(&d->file);
	delta_sums_release(&d->earlier);
	delta_sums_release(&d->now);
	free(d->etag);
}

static int open_record(struct delta_upload *d, struct penstock_error *err)
{
	const char *dir = d->options->delta_dir;
	_cleanup_free_ char *path = record_path(d->at, dir);
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

	if (!path)
		return error_memory(err);
	sweep(d->at.client, dir);
	if (fs_mkdirs(dir, 0700, &own) < 0 || record_file_open(&d->file, path, &own) < 0) {
		log_debug("%s; sending the whole file", own.message ? own.message : "");
		return 0;
	}
	return delta_read(&d->file, &d->earlier, &d->etag) < 0 ? error_memory(err) : 0;
}

/* Returns 1 if the differing parts were sent, 0 if the whole file has to be sent. */
static int send_parts(struct delta_upload *d, struct object_info *info, struct penstock_error *err)
{
	_cleanup_(delta_plan_release) struct delta_plan plan = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	struct put_delta delta = {.plan = &plan, .sums = &d->now, .etag = d->etag};
	struct object_put_options options = *d->options;
	int r = delta_plan(
		&plan, &d->now, &d->earlier, LIMIT_S3_PART_MIN, LIMIT_S3_PART_DEFAULT, err);

	if (r < 0)
		return r;
	if (plan.sent >= d->size / 2 || plan.n > LIMIT_S3_PARTS)
		return 0;
	options.resume_dir = NULL;
	r = put_parts_of(d->at, d->fd, d->size, &options, &delta, info, &own);
	if (r == 0)
		return 1;
	if (!delta.failed)
		return error_move(err, &own);
	if (own.http_status == 501 || own.code == PENSTOCK_E_UNSUPPORTED)
		atomic_store(&d->at.client->no_part_copy, true);
	log_debug("%s; sending the whole file", own.message ? own.message : "");
	return 0;
}

/* Called once the object exists. Writes the record, or removes it if the file has changed since it
 * was read. */
static void keep_record(
	struct delta_upload *d, const struct stat *before, const struct object_info *info)
{
	struct stat after;
	bool still = fstat(d->fd, &after) == 0 && put_same_file(before, &after);

	if (d->file.fd < 0)
		return;
	if (!still || !info->etag[0] || delta_write(&d->file, &d->now, info->etag) < 0)
		record_file_remove(&d->file);
}

static int delta_run(struct delta_upload *d, struct object_info *info, struct penstock_error *err)
{
	const struct object_put_options *asked = d->options;
	struct object_put_options options = *asked;
	struct stat before;
	int r = open_record(d, err);

	if (r < 0)
		return r;
	if (fstat(d->fd, &before) < 0)
		return error_errno(err, errno, "cannot stat the file");
	if (d->etag && (d->size - 1) / d->earlier.block >= DELTA_BLOCKS_MAX)
		free(take_pointer(d->etag));
	if (d->file.fd >= 0) {
		r = delta_sums_init(&d->now, d->size, d->etag ? &d->earlier : NULL,
			d->at.client->guard_kind, err);
		if (r == 0)
			r = delta_scan(&d->now, d->fd, d->options->cancel, err);
		if (r < 0)
			return r;
	}
	if (d->etag && !asked->if_none_match && !atomic_load(&d->at.client->no_part_copy) &&
		(!asked->if_match || strcmp(asked->if_match, d->etag) == 0))
		r = send_parts(d, info, err);
	options.delta_dir = NULL;
	if (r == 0)
		r = put_file(d->at, d->fd, d->size, &options, info, err);
	if (r < 0)
		return r;
	keep_record(d, &before, info);
	return 0;
}

int put_with_delta(struct object_ref at, int fd, uint64_t size,
	const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err)
{
	struct delta_upload d = {
		.at = at, .fd = fd, .size = size, .options = options, .file = RECORD_FILE_INIT};
	struct object_put_options whole = *options;
	struct object_info found = {0};
	int r;

	whole.delta_dir = NULL;
	/* Google's XML API cannot copy parts, so a record would be useless. */
	r = at.client->google ? put_file(at, fd, size, &whole, &found, err)
			      : delta_run(&d, &found, err);

	delta_upload_release(&d);
	return object_info_pass(r, &found, info);
}

void object_remember(struct object_ref at, const char *etag, int fd, uint64_t size,
	const char *delta_dir, const atomic_int *cancel)
{
	const struct object_put_options options = {.delta_dir = delta_dir};
	struct delta_upload d = {
		.at = at, .fd = fd, .size = size, .options = &options, .file = RECORD_FILE_INIT};
	struct object_info info = {0};
	struct stat before;

	if (size <= LIMIT_DELTA_MIN || at.client->google || !*etag)
		return;
	object_etag_copy(info.etag, etag);
	if (open_record(&d, NULL) == 0 && d.file.fd >= 0 &&
		!(d.etag && strcmp(d.etag, info.etag) == 0) && fstat(fd, &before) == 0 &&
		delta_sums_init(&d.now, size, NULL, at.client->guard_kind, NULL) == 0 &&
		delta_scan(&d.now, fd, cancel, NULL) == 0)
		keep_record(&d, &before, &info);
	delta_upload_release(&d);
}
