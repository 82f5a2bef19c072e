/* Downloads objects to files. */
#include "transfer/get/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "transfer/get/parts_etag.h"

/* Fetches size, ETag and checksum of the object. */
static int learn(struct download *d, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	int r = s3_op_head(&op, d->at, d->options->if_match, object_response_checksums(),
		d->options->cancel, &d->info, err);

	if (r < 0)
		return r;
	d->size = op.reply.total_size;
	object_etag_copy(d->etag, d->info.etag);
	d->encrypted = object_reply_encrypted(&op.reply);
	if (object_response_checksums()) {
		d->kind = object_reply_checksum(&op.reply, d->wanted);
		d->part_kind = object_reply_part_checksum(&op.reply, d->etag);
		if (d->kind == CHECKSUM_NONE && d->part_kind == CHECKSUM_NONE &&
			object_reply_md5(&op.reply, d->wanted))
			d->kind = CHECKSUM_MD5;
	}
	return r;
}

static int download_run(struct download *d, struct penstock_error *err)
{
	const struct object_get_options *o = d->options;
	bool ranged = o->offset || o->length;
	int r;

	if (ranged && o->length && o->length <= LIMIT_GET_SINGLE) {
		d->from = o->offset;
		d->size = HTTP_LENGTH_UNKNOWN; /* the object may end earlier */
		return download_whole(d, true, err);
	}
	if (o->known) {
		d->size = o->known->size;
		object_etag_copy(d->etag, o->known->etag);
	}
	if (!o->known || (d->size > LIMIT_GET_SINGLE && !ranged)) {
		r = learn(d, err);
		if (r < 0)
			return download_replaced(d, err);
		if (o->known && (d->size != o->known->size || strcmp(d->etag, o->known->etag) != 0))
			return object_replaced(d->at, err);
	}
	if (ranged) {
		if (o->offset >= d->size)
			return object_error(err, PENSTOCK_E_INVALID, "GET", d->at,
				"the object ends before byte %" PRIu64, o->offset);
		d->from = o->offset;
		d->size -= o->offset;
		if (o->length && o->length < d->size)
			d->size = o->length;
		d->kind = CHECKSUM_NONE;
		d->part_kind = CHECKSUM_NONE;
		return download_ranges(d, err);
	}
	if (d->size > LIMIT_GET_SINGLE && d->size != HTTP_LENGTH_UNKNOWN && d->etag[0]) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

		r = download_ranges(d, &own);
		if (r != -(int)PENSTOCK_E_UNSUPPORTED)
			return r < 0 ? error_move(err, &own) : 0;
		log_debug("%s; fetching it in one piece", own.message);
		get_blocks_release(&d->blocks);
	}
	object_info_release(&d->info);
	return download_whole(d, false, err);
}

/* Reads the file once more to verify an object that was not verified on arrival: a multipart object
 * that was fetched in one piece, or whose parts do not align with the blocks. */
static int check_parts(struct download *d, struct penstock_error *err)
{
	const struct object_get_options *o = d->options;
	char own[MULTIPART_ETAG_SIZE];
	uint64_t part;
	int r = 0;

	if (d->kind != CHECKSUM_NONE || d->parts_checked || o->offset || o->length)
		return 0;
	if (d->part_kind != CHECKSUM_NONE)
		r = get_parts_check(
			d->at, d->size, d->etag, d->part_kind, d->part.fd, NULL, o->cancel, err);
	d->parts_checked = r > 0;
	/* Without checksums, the ETag is usually the MD5 of the parts' MD5s. */
	if (r == 0 && !d->at.client->google && !d->encrypted &&
		!atomic_load(&d->at.client->odd_etags) && object_response_checksums() &&
		parts_etag_count(d->etag)) {
		part = parts_etag_part_size(d->at, d->etag, d->size, o->cancel);
		if (!part)
			return 0;
		r = parts_etag_of_file(
			d->part.fd, d->size, part, parts_etag_count(d->etag), o->cancel, own, err);
		if (r < 0)
			return r;
		r = parts_etag_judge(&(struct parts_etag){d->at, d->etag, d->size, part, o->cancel},
			own, d->own_etag, err);
	}
	return r < 0 ? error_prefix(err, "GET %s://%s/%s", object_client_scheme(d->at.client),
			       d->at.bucket, d->at.key)
		     : 0;
}

/* Syncs the part file unless `relaxed` is set, and renames the file to `path`. */
static int publish(struct download *d, const char *path, struct penstock_error *err)
{
	_cleanup_free_ char *copy = strdup(path);
	const char *part = d->part.path;

	if (!copy)
		return error_memory(err);
	if (ftruncate(d->part.fd, (off_t)d->size) < 0)
		return error_errno(err, errno, "cannot write '%s'", part);
	if (!d->options->relaxed && fdatasync(d->part.fd) < 0)
		return error_errno(err, errno, "cannot write '%s'", part);
	if ((d->options->if_none_match ? fs_rename_new : rename)(part, path) < 0) {
		if (errno == EEXIST && d->options->if_none_match)
			return error_set(err, PENSTOCK_E_PRECONDITION, "'%s' exists", path);
		if (errno == EISDIR)
			return error_set(err, PENSTOCK_E_EXISTS,
				"cannot replace '%s': it is a directory; remove it", path);
		return error_errno(err, errno, "cannot rename '%s'", part);
	}
	get_part_finish(&d->part);
	return d->options->relaxed ? 0 : fs_fsync_dir(dirname(copy), err);
}

/* Downloads again from the start, using only the caller's options. */
static int download_again(struct download *d, struct penstock_error *err)
{
	int r;

	if (d->options->progress)
		d->options->progress(d->options->cookie, -(int64_t)d->size);
	object_info_release(&d->info);
	d->size = HTTP_LENGTH_UNKNOWN;
	d->etag[0] = '\0';
	d->kind = CHECKSUM_NONE;
	d->part_kind = CHECKSUM_NONE;
	d->parts_checked = false;
	get_blocks_release(&d->blocks);
	r = get_part_restart(&d->part, err);
	return r < 0 ? r : download_run(d, err);
}

/* Sets `*out` to a name of the object that is unique among all stores; free() it. Leaves `*out`
 * NULL if no journal is wanted: `resume` is off, a range is fetched, or the object is known to be
 * small. */
static int journal_source(const struct download *d, char **out, struct penstock_error *err)
{
	const struct object_get_options *o = d->options;

	if (!o->resume || o->offset || o->length ||
		(o->known && o->known->size <= LIMIT_GET_SINGLE))
		return 0;
	*out = str_printf("%s\n%s\n%s", d->at.client->address, d->at.bucket, d->at.key);
	return *out ? 0 : error_memory(err);
}

/* Returns true for a failure after which a later call may resume. */
static bool worth_keeping(const struct penstock_error *err)
{
	return err->code == PENSTOCK_E_CANCELLED || err->code == PENSTOCK_E_PERMISSION ||
	       error_is_retryable(err);
}

static int download(struct download *d, const char *path, struct penstock_error *err)
{
	int r = download_run(d, err);
	bool keep;

	if (r == 0)
		r = check_parts(d, err);
	/* Try again: bytes damaged in flight may arrive intact the next time. */
	if (r == -(int)PENSTOCK_E_CORRUPT) {
		log_debug("%s; fetching it again", err->message);
		penstock_error_release(err);
		r = download_again(d, err);
		if (r == 0)
			r = check_parts(d, err);
	}
	if (r == 0)
		r = publish(d, path, err);
	keep = r < 0 && (d->blocks.journal || d->part.size) && worth_keeping(err);
	if (keep && d->options->kept && d->blocks.kept)
		d->options->kept(d->options->cookie, d->blocks.kept);
	if (r < 0)
		get_part_abandon(&d->part, keep);
	get_blocks_release(&d->blocks);
	return r;
}

int object_get_file(struct object_ref at, const char *path,
	const struct object_get_options *options, struct object_info *info,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *source = NULL;
	struct download d = {.at = at,
		.options = options ? options : &(struct object_get_options){0},
		.size = HTTP_LENGTH_UNKNOWN,
		.part = GET_PART_INIT};
	int r = journal_source(&d, &source, err);

	if (r == 0)
		r = get_part_open(&d.part, path, source, err);
	if (r == 0) {
		r = download(&d, path, &own);
		if (r < 0)
			error_move(err, &own);
	}
	get_part_release(&d.part);
	d.info.size = d.size;
	return object_info_pass(r, &d.info, info);
}
