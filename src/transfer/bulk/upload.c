/* Uploads a small file. */
#include "transfer/bulk/flight.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "net/http/http.h"

/* Reads a small file into memory. If the file changed meanwhile, a worker handles it. */
static int load(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err)
{
	ssize_t n;

	f->data = malloc(f->size + 1);
	if (!f->data)
		return error_memory(err);
	n = fs_pread_all(f->source.fd, f->data, f->size, 0);
	if (n < 0)
		return error_errno(err, errno, "cannot read '%s'", f->task->item.path);
	if ((size_t)n < f->size || !bulk_source_valid(&f->source))
		*way = BULK_TO_WORKER;
	close(f->source.fd);
	f->source.fd = -1;
	return 0;
}

static int prepare_url(
	struct bulk_flight *f, const struct object_put_options *options, struct penstock_error *err)
{
	struct http_request *request = &f->put.op.request;

	f->put.op.reply = (struct http_reply)HTTP_REPLY_INIT;
	request->method = "PUT";
	request->url = f->task->item.to_url;
	request->source = (struct http_source){
		.kind = f->data ? HTTP_SOURCE_MEMORY : HTTP_SOURCE_FD,
		.data = f->data,
		.fd = f->source.fd,
		.length = f->size};
	if (http_request_header(request, "Content-Type",
		    options->content_type ? options->content_type : "application/octet-stream") < 0)
		return error_memory(err);
	return 0;
}

static int prepare_object(
	struct bulk_flight *f, const struct object_put_options *asked, struct penstock_error *err)
{
	struct bulk_task *task = f->task;
	_cleanup_(strlist_release) struct strlist metadata = {0};
	struct object_put_options options = *asked;
	struct s3_op *op = &f->put.op;
	int r = bulk_file_metadata(task, &f->source.st, &metadata, err);

	if (r < 0)
		return r;
	options.metadata = &metadata;
	f->body = (struct put_body){.data = f->data,
		.fd = f->source.fd,
		.length = f->size,
		.last = true,
		.still_valid = f->data ? NULL : bulk_source_valid,
		.progress = bulk_source_progress,
		.cookie = &f->source};
	s3_op_init(op, "PUT", task->item.to);
	put_headers(op, &options);
	r = put_body_attach(
		op, &f->body, (enum guard)atomic_load(&task->item.to.client->guard), err);
	if (r == 0)
		put_request_hook(&f->put, &f->body);
	return r;
}

int bulk_upload_prepare(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err)
{
	struct bulk_task *task = f->task;
	struct object_put_options options;
	int r;

	/* Only a worker checks for a link. */
	if (task->bulk->options.preserve && task->bulk->options.symlinks) {
		*way = BULK_TO_WORKER;
		return 0;
	}
	r = bulk_source_open(&f->source, err);
	if (r < 0)
		return r;
	bulk_put_options(task, NULL, &options);
	f->size = (size_t)f->source.st.st_size;
	if (f->size > LIMIT_BULK_SMALL || (options.part_size && f->size > options.part_size)) {
		*way = BULK_TO_WORKER;
		return 0;
	}
	if (f->size <= LIMIT_BULK_HELD)
		r = load(f, way, err);
	if (r < 0 || *way == BULK_TO_WORKER)
		return r;
	return task->item.to_url ? prepare_url(f, &options, err) : prepare_object(f, &options, err);
}

int bulk_upload_complete(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err)
{
	struct bulk_task *task = f->task;
	int r = 0;

	/* The file changed while it was sent: a worker sends it again, or reports the change. */
	if (f->plain && !f->data && !bulk_source_valid(&f->source)) {
		*way = BULK_TO_WORKER;
		return 0;
	}
	if (!f->plain)
		r = put_body_verify(&f->put.op, &f->body, err);
	if (r == 0 && (f->plain || f->body.inline_body))
		bulk_source_progress(&f->source, (int64_t)f->size);
	if (r == 0 && !f->plain) {
		r = object_info_from_reply(&f->put.op.reply, &task->info, err);
		task->info.size = f->size;
		task->has_info = r == 0;
	}
	task->bytes = f->size;
	return r < 0 ? error_prefix(err, "%s", task->item.path) : bulk_source_done(&f->source, err);
}
