/*
 * An object that replaces an older version of itself: what the tags on record say is the same is copied by the store
 * (UploadPartCopy, under the older version's ETag), the rest is sent. Where that does not pay, or does not work, all of it is
 * sent. Either way the tags of what was sent are on record afterwards; so are those of what a restore has fetched.
 */
#include "transfer/put_delta.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "s3/messages.h"
#include "s3/range.h"
#include "transfer/put_parts.h"
#include "base/banned.h"

#define SUFFIX ".sent"
/* The store moves the bytes before it answers. */
#define COPY_STALL_MS (10 * 60 * 1000)

/* ---- parts that the store copies ---- */

int put_delta_copy_start(
	struct upload *u, struct part_slot *slot, unsigned number, struct penstock_error *err)
{
	const struct delta_span *span = &u->delta->plan->spans[number - 1];
	struct s3_op *op = &slot->put.op;
	char text[RANGE_TEXT_SIZE];
	int r = s3_op_init(op, u->client, "PUT", u->bucket, u->key, err);

	if (r < 0)
		return r;
	slot->number = number;
	slot->body = (struct put_body){.fd = -1, .length = span->length, .guard = GUARD_MD5};
	slot->body.progress = u->options->progress;
	slot->body.cookie = u->options->cookie;
	slot->failed = true; /* until it was done */
	s3_op_cancel(op, u->options->cancel);
	snprintf(text, sizeof(text), "%u", number);
	r = s3_op_query(op, "partNumber", text, err);
	if (r == 0)
		r = s3_op_query(op, "uploadId", u->id, err);
	if (r == 0)
		r = s3_op_copy_source(op, u->bucket, u->key, err);
	if (r == 0)
		r = s3_op_header(op, "x-amz-copy-source-if-match", u->delta->etag, err);
	range_format_request(
		&(struct byte_range){span->offset, span->offset + span->length - 1}, text);
	if (r == 0)
		r = s3_op_header(op, "x-amz-copy-source-range", text, err);
	if (r == 0)
		r = s3_op_body(op, NULL, 0, err);
	if (r == 0)
		r = s3_op_ready(op, err);
	if (r < 0)
		return r;
	s3_op_wants_document(op);
	op->request.stall_timeout_ms = COPY_STALL_MS;
	return 0;
}

/* By the MD5 that the ETag of a part is; false also where it is not. */
static bool has_md5_of(const struct upload *u, const struct delta_span *span, const char *etag)
{
	_cleanup_(put_body_release) struct put_body body = {
		.fd = u->fd, .offset = span->offset, .length = span->length};
	uint8_t stored[16], md5[CHECKSUM_MAX_SIZE];

	return object_etag_md5(etag, stored) && put_body_md5(&body, md5, NULL) == 0 &&
	       memcmp(stored, md5, sizeof(stored)) == 0;
}

/*
 * Whether the store has copied the bytes that the file has: some make nothing of the condition. It says so itself by the
 * part's checksum, else by its ETag; of stores that are known to compare the checksum of the whole that is enough.
 */
static int verify_copy(struct upload *u, const struct part_slot *slot,
	const struct delta_span *span, struct part_result *result, const char *checksum,
	struct penstock_error *err)
{
	enum checksum_kind kind = u->client->guard_kind;
	uint8_t stored[CHECKSUM_MAX_SIZE];
	bool right;

	delta_crc(u->delta->sums, span->offset, span->length, result->digest);
	if (u->guard != GUARD_MD5 && checksum && checksum_parse(kind, checksum, stored)) {
		right = memcmp(stored, result->digest, checksum_size(kind)) == 0;
		if (strlen(checksum) < sizeof(result->checksum))
			memcpy(result->checksum, checksum, strlen(checksum) + 1);
	} else {
		right = (u->guard != GUARD_MD5 &&
				(u->client->aws || atomic_load(&u->client->own_kind))) ||
			has_md5_of(u, span, result->etag);
	}
	return right ? 0
		     : error_set(err, PENSTOCK_E_CORRUPT,
			       "%s: the store did not copy what the file has there",
			       slot->put.op.what);
}

int put_delta_copy_collect(struct upload *u, struct part_slot *slot, struct penstock_error *err)
{
	const struct delta_span *span = &u->delta->plan->spans[slot->number - 1];
	struct part_result *result = &u->results[slot->number - 1];
	const struct s3_op *op = &slot->put.op;
	_cleanup_(s3_reply_release) struct s3_reply reply = {0};
	int r;

	result->length = span->length;
	u->delta->failed |= slot->uncopied;
	if (slot->failed)
		return 0;
	r = s3_reply_parse(op->document.data, op->document.len, &reply, err);
	if (r < 0)
		error_prefix(err, "%s", op->what);
	else if (reply.kind != S3_REPLY_COPY_PART || !reply.etag || !*reply.etag)
		r = error_set(err, PENSTOCK_E_PROTOCOL,
			"%s: the store did not say that the part was copied", op->what);
	if (r == 0) {
		object_etag_copy(result->etag, reply.etag);
		r = verify_copy(u, slot, span, result, reply.checksums[u->client->guard_kind], err);
	}
	u->delta->failed |= r < 0;
	if (r == 0 && slot->body.progress)
		slot->body.progress(slot->body.cookie, (int64_t)span->length);
	return r;
}

/* ---- what is on record ---- */

/* DIR/DIGEST.sent; NULL: out of memory. */
static char *record_path(
	const struct object_client *c, const char *dir, const char *bucket, const char *key)
{
	_cleanup_free_ char *target = NULL;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[65], *path;

	if (asprintf(&target, "%s://%s%s\n%s\n%s", c->https ? "https" : "http", c->authority,
		    c->base_path, bucket, key) < 0) {
		target = NULL;
		return NULL;
	}
	if (checksum_of(CHECKSUM_SHA256, target, strlen(target), digest, NULL) < 0)
		return NULL;
	str_hex(digest, 16, hex);
	return asprintf(&path, "%s/%s" SUFFIX, dir, hex) < 0 ? NULL : path;
}

/* Those of objects that nobody has sent for long. */
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
	struct object_client *client;
	const char *bucket, *key;
	int fd;
	uint64_t size;
	const struct object_put_options *options;
	struct record_file file; /* fd -1: another upload has it, or it cannot be had */
	struct delta_sums earlier, now;
	char *etag; /* of the earlier one; NULL: none */
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
	_cleanup_free_ char *path = record_path(d->client, dir, d->bucket, d->key);
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

	if (!path)
		return error_memory(err);
	sweep(d->client, dir);
	if (fs_mkdirs(dir, 0700, &own) < 0 || record_file_open(&d->file, path, &own) < 0) {
		log_debug("%s; all of the file is sent", own.message ? own.message : "");
		return 0;
	}
	return delta_read(&d->file, &d->earlier, &d->etag) < 0 ? error_memory(err) : 0;
}

static bool may_copy(const struct delta_upload *d)
{
	return d->etag && !d->options->if_none_match && !atomic_load(&d->client->no_part_copy) &&
	       (!d->options->if_match || strcmp(d->options->if_match, d->etag) == 0);
}

/* 1: it was sent by parts that differ; 0: all of it has to be sent. */
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
	r = put_parts_of(
		d->client, d->bucket, d->key, d->fd, d->size, &options, &delta, info, &own);
	if (r == 0)
		return 1;
	if (!delta.failed)
		return error_move(err, &own);
	if (own.http_status == 501 || own.code == PENSTOCK_E_UNSUPPORTED)
		atomic_store(&d->client->no_part_copy, true);
	log_debug("%s; all of it is sent", own.message ? own.message : "");
	return 0;
}

/* After the object is there: the record is only right where the file held still since it was read. */
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
	struct object_put_options options = *d->options;
	struct stat before;
	int r = open_record(d, err);

	if (r < 0)
		return r;
	if (fstat(d->fd, &before) < 0)
		return error_errno(err, errno, "cannot look at the file to be sent");
	if (d->etag && (d->size - 1) / d->earlier.block >= DELTA_BLOCKS_MAX)
		free(take_pointer(d->etag));
	if (d->file.fd >= 0) {
		r = delta_sums_init(
			&d->now, d->size, d->etag ? &d->earlier : NULL, d->client->guard_kind, err);
		if (r == 0)
			r = delta_scan(&d->now, d->fd, d->options->cancel, err);
		if (r < 0)
			return r;
	}
	if (may_copy(d))
		r = send_parts(d, info, err);
	options.delta_dir = NULL;
	if (r == 0)
		r = object_put_file(
			d->client, d->bucket, d->key, d->fd, d->size, &options, info, err);
	if (r < 0)
		return r;
	keep_record(d, &before, info);
	return 0;
}

int put_with_delta(struct object_client *client, const char *bucket, const char *key, int fd,
	uint64_t size, const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err)
{
	struct delta_upload d = {.client = client,
		.bucket = bucket,
		.key = key,
		.fd = fd,
		.size = size,
		.options = options,
		.file = RECORD_FILE_INIT};
	struct object_put_options whole = *options;
	struct object_info found = {0};
	int r;

	whole.delta_dir = NULL;
	/* Google copies no parts, so there is nothing to be remembered. */
	r = client->google ? object_put_file(client, bucket, key, fd, size, &whole, &found, err)
			   : delta_run(&d, &found, err);

	delta_upload_release(&d);
	if (r == 0 && info)
		*info = found;
	else
		object_info_release(&found);
	return r;
}

void object_remember(struct object_client *client, const char *bucket, const char *key,
	const char *etag, int fd, uint64_t size, const char *delta_dir, const atomic_int *cancel)
{
	const struct object_put_options options = {.delta_dir = delta_dir};
	struct delta_upload d = {.client = client,
		.bucket = bucket,
		.key = key,
		.fd = fd,
		.size = size,
		.options = &options,
		.file = RECORD_FILE_INIT};
	struct object_info info = {0};
	struct stat before;

	if (size <= LIMIT_DELTA_MIN || client->google || !*etag)
		return;
	object_etag_copy(info.etag, etag);
	if (open_record(&d, NULL) == 0 && d.file.fd >= 0 &&
		!(d.etag && strcmp(d.etag, info.etag) == 0) && fstat(fd, &before) == 0 &&
		delta_sums_init(&d.now, size, NULL, client->guard_kind, NULL) == 0 &&
		delta_scan(&d.now, fd, cancel, NULL) == 0)
		keep_record(&d, &before, &info);
	delta_upload_release(&d);
}
