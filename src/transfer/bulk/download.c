/* Downloads a small object, or a small resource of a web server. */
#include "transfer/bulk/flight.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "net/http/http.h"
#include "transfer/get/parts_etag.h"

static void report_progress(const struct bulk_flight *f, int64_t bytes)
{
	const struct bulk_options *o = &f->task->bulk->options;

	if (o->progress && bytes)
		o->progress(o->cookie, bytes);
}

static enum http_take on_data(
	void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct bulk_flight *f = cookie;

	if (len > f->size - f->got) {
		error_set(err, PENSTOCK_E_CHANGED, "the source is longer than %s",
			f->plain ? "its Content-Length" : "in its listing");
		return HTTP_REFUSE;
	}
	if (f->data) {
		memcpy(f->data + f->got, data, len);
	} else if (fs_pwrite_all(f->fd, data, len, (off_t)f->got) < 0) {
		error_errno(err, errno, "cannot write '%s'", f->task->item.path);
		return HTTP_REFUSE;
	}
	if (f->sum.kind)
		checksum_update(&f->sum, data, len);
	f->got += len;
	report_progress(f, (int64_t)len);
	return HTTP_TAKEN;
}

static int on_restart(void *cookie)
{
	struct bulk_flight *f = cookie;

	report_progress(f, -(int64_t)f->got);
	f->got = 0;
	return f->sum.kind ? checksum_reset(&f->sum) : 0;
}

static int create_file(struct bulk_flight *f, struct penstock_error *err)
{
	int r = f->dir ? 0 : bulk_dir_open(f->task, &f->dir, err);

	return r < 0 ? r : bulk_file_create(f->task, f->dir, &f->fd, &f->part, err);
}

/* Makes room for the body: in memory if it is small, else in the file. */
static int make_room(struct bulk_flight *f, struct penstock_error *err)
{
	if (f->data || f->fd >= 0)
		return 0;
	if (f->size <= LIMIT_BULK_HELD) {
		f->data = malloc(f->size + 1);
		return f->data ? 0 : error_memory(err);
	}
	return create_file(f, err);
}

/* Uses the ETag of a multipart object if there is no other checksum; a worker handles objects of
 * several parts. */
static int parts_headers(
	struct bulk_flight *f, const struct http_reply *reply, struct penstock_error *err)
{
	struct object_client *client = f->task->item.from.client;
	const char *etag = f->task->known.etag;

	if (!f->size || !parts_etag_count(etag) || client->google ||
		atomic_load(&client->odd_etags) || !object_response_checksums() ||
		object_reply_encrypted(reply))
		return 0;
	f->one_part = parts_etag_of_one(etag, f->wanted);
	if (!f->one_part)
		return error_set(
			err, PENSTOCK_E_UNSUPPORTED, "the object was uploaded in several parts");
	f->kind = CHECKSUM_MD5;
	return 0;
}

/* Fails unless the reply is for the listed object. Chooses the checksum, and makes room for the
 * body. */
static int object_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct bulk_flight *f = cookie;
	const struct object_info *known = &f->task->known;
	int r = s3_op_check_same(&f->put.op, reply, known->etag, err);

	if (r < 0)
		return r;
	if (reply->total_size != HTTP_LENGTH_UNKNOWN && reply->total_size != known->size)
		return error_set(err, PENSTOCK_E_CHANGED,
			"the object has %" PRIu64 " bytes, but its listing has %" PRIu64,
			reply->total_size, known->size);
	if (f->kind == CHECKSUM_NONE)
		f->kind = object_reply_digest(reply, f->wanted);
	if (f->kind == CHECKSUM_NONE)
		r = parts_headers(f, reply, err);
	if (r == 0 && f->kind != CHECKSUM_NONE && f->sum.kind == CHECKSUM_NONE)
		r = checksum_init(&f->sum, f->kind, err);
	return r < 0 ? r : make_room(f, err);
}

/* Bodies that are large, of unknown length, encoded, or perhaps a login page are left to
 * http_fetch(). */
static int plain_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct bulk_flight *f = cookie;
	const char *type = http_reply_header(reply, "Content-Type");
	uint64_t size = reply->total_size;

	/* The reply to a resumed request may announce only the remaining bytes. */
	if (reply->status == 206 && size == HTTP_LENGTH_UNKNOWN &&
		reply->content_length != HTTP_LENGTH_UNKNOWN)
		size = reply->range_offset + reply->content_length;
	if (size == HTTP_LENGTH_UNKNOWN || size > LIMIT_BULK_SMALL ||
		http_reply_header(reply, "Content-Encoding") ||
		(type && strncasecmp(type, "text/html", 9) == 0))
		return error_set(
			err, PENSTOCK_E_UNSUPPORTED, "the resource is not small and plain");
	if ((f->data || f->fd >= 0) && f->size != size)
		return error_set(
			err, PENSTOCK_E_CHANGED, "the resource changed while it was fetched");
	f->size = (size_t)size;
	return make_room(f, err);
}

int bulk_download_prepare(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err)
{
	struct bulk_task *task = f->task;
	struct s3_op *op = &f->put.op;
	struct bulk_dir *dir = NULL;
	int r;

	if (!f->plain && (!task->item.known || task->known.size > LIMIT_BULK_SMALL)) {
		*way = BULK_TO_WORKER;
		return 0;
	}
	/* Fail before a request is sent if the file cannot be created. */
	r = bulk_dir_open(task, &dir, err);
	if (r < 0)
		return r;
	bulk_dir_close(task->bulk, dir);
	if (f->plain) {
		op->reply = (struct http_reply)HTTP_REPLY_INIT;
		op->request.method = "GET";
		op->request.url = task->item.from_url;
		op->request.follow_redirects = true;
		op->request.on_headers = plain_headers;
	} else {
		f->size = (size_t)task->known.size;
		s3_op_init(op, "GET", task->item.from);
		s3_op_header(op, "if-match", task->known.etag[0] ? task->known.etag : NULL);
		if (object_response_checksums())
			s3_op_header(op, "x-amz-checksum-mode", "ENABLED");
		op->request.on_headers = object_headers;
		if (f->size <= LIMIT_BULK_HELD)
			r = make_room(f, err);
	}
	op->request.sink = (struct http_sink){
		.kind = HTTP_SINK_CALLBACK, .write = on_data, .restart = on_restart, .cookie = f};
	return r;
}

static int verify(struct bulk_flight *f, struct penstock_error *err)
{
	uint8_t got[CHECKSUM_MAX_SIZE];

	if (f->got != f->size)
		return error_set(err, PENSTOCK_E_CHANGED, "%s: received %zu bytes, but %s has %zu",
			f->plain ? f->task->item.from_url : f->put.op.what, f->got,
			f->plain ? "the header Content-Length" : "its listing", f->size);
	if (!f->sum.kind)
		return 0;
	checksum_final(&f->sum, got);
	if (f->one_part && checksum_of(CHECKSUM_MD5, got, 16, got, err) < 0)
		return -(int)PENSTOCK_E_MEMORY;
	if (memcmp(got, f->wanted, checksum_size(f->kind)) == 0) {
		if (f->one_part)
			atomic_store(&f->task->item.from.client->md5_etags, true);
		return 0;
	}
	return object_corrupt(f->task->item.from, f->kind, err);
}

static int write_link(struct bulk_flight *f, struct penstock_error *err)
{
	int r = f->dir ? 0 : bulk_dir_open(f->task, &f->dir, err);

	if (r == 0)
		r = bulk_file_make_link(f->task, f->dir, f->data, f->size, false, err);
	return r == 0 ? bulk_note_dir(f->task->bulk, f->dir, err) : r;
}

static int write_file(struct bulk_flight *f, struct penstock_error *err)
{
	int r = 0;

	if (f->data) {
		r = create_file(f, err);
		if (r == 0 && fs_write_all(f->fd, f->data, f->size) < 0)
			r = error_errno(err, errno, "cannot write '%s'", f->task->item.path);
	}
	if (r == 0)
		r = bulk_file_times(f->task, f->fd, &f->task->info, err);
	if (r == 0)
		r = bulk_file_publish(f->task, f->dir, f->fd, &f->part, err);
	return r == 0 ? bulk_note_device(f->task->bulk, f->fd, err) : r;
}

int bulk_download_complete(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err)
{
	struct bulk_task *task = f->task;
	int r = verify(f, err);

	(void)way;
	if (r == -(int)PENSTOCK_E_CORRUPT)
		report_progress(f, -(int64_t)f->got);
	if (r == 0)
		r = object_info_from_reply(&f->put.op.reply, &task->info, err);
	/* The target of a link is always short enough for memory. */
	if (r == 0)
		r = f->data && bulk_file_is_link(task, &task->info) ? write_link(f, err)
								    : write_file(f, err);
	task->info.size = f->size;
	task->has_info = true;
	task->bytes = f->size;
	return r;
}
