#include "ui/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "s3/sum/checksum.h"
#include "ui/answer.h"
#include "ui/verb.h"

#define DIRECTORY "uploads"
#define ID_BYTES  16 /* bytes of the digest */
#define ID_SIZE	  (20 + 1 + 20 + 1 + 2 * ID_BYTES + 1) /* "SIZE-MODIFIED-DIGEST" */

/* An upload that one request works on. */
struct upload {
	char *path;
	int fd; /* locked; -1 if it is not open */
	bool waits; /* true to wait while another request has the lock */
	const char *url, *store; /* from the request */
	uint64_t size; /* size of the whole file */
	uint64_t modified; /* modification time of the file, in ms; 0 if not sent */
	uint64_t done; /* bytes of the parts that were received */
};

struct upload_part {
	struct upload upload;
	uint64_t size; /* size of this part */
	uint64_t received;
	int failure; /* errno of a failed write; 0 if none failed */
};

static void upload_release(struct upload *upload)
{
	free(upload->path);
	/* Unlock before closing: a verb that is being started may have a copy of the descriptor,
	 * which would keep the lock. */
	if (upload->fd >= 0) {
		fs_unlock(upload->fd);
		close(upload->fd);
	}
}

static uint64_t part_bytes(const struct upload *upload)
{
	uint64_t left = upload->size - upload->done;

	return left < LIMIT_UI_PART ? left : LIMIT_UI_PART;
}

/* Computes the id of an upload from the size and time of the file and the destination. */
static int make_id(const struct upload *upload, char id[static ID_SIZE], struct penstock_error *err)
{
	_cleanup_free_ char *text = str_printf("%s\n%s", upload->store, upload->url);
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[2 * ID_BYTES + 1];
	int r = text ? checksum_of(CHECKSUM_SHA256, text, strlen(text), digest, err)
		     : error_memory(err);

	if (r < 0)
		return r;
	str_hex(digest, ID_BYTES, hex);
	snprintf(id, ID_SIZE, "%" PRIu64 "-%" PRIu64 "-%s", upload->size, upload->modified, hex);
	return 0;
}

static int open_file(struct upload *upload, const struct ui *ui, const char *id, int flags,
	struct penstock_error *err)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	upload->path = str_printf("%s/" DIRECTORY "/%s", ui->home, id);
	if (!upload->path)
		return error_memory(err);
	fd = open(upload->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", upload->path);
	r = upload->waits ? fs_lock_wait(fd, &ui->stopping) : fs_lock(fd);
	if (r == 1)
		return error_set(err, PENSTOCK_E_UNAVAILABLE,
			"cannot upload the file: another page uploads it at the same time");
	if (r == 0)
		upload->fd = take_fd(fd);
	if (r < 0 || fstat(upload->fd, &st) < 0)
		return error_errno(err, errno, "cannot lock '%s'", upload->path);
	/* Another request has stored or removed the upload in the meantime. */
	if (st.st_nlink == 0)
		return error_set(err, PENSTOCK_E_UNAVAILABLE, "the upload has just ended");
	/* Only complete parts are kept. */
	upload->done = (uint64_t)st.st_size;
	if (upload->done != upload->size)
		upload->done -= upload->done % LIMIT_UI_PART;
	if (ftruncate(upload->fd, (off_t)upload->done) < 0)
		return error_errno(err, errno, "cannot truncate '%s'", upload->path);
	return 0;
}

/* Reads the URL and the store of the request. */
static int read_place(struct upload *upload, const struct exchange *x, struct penstock_error *err)
{
	upload->url = param(x, "url");
	upload->store = param(x, "store") ? param(x, "store") : "";
	return upload->url && verb_is_object(upload->url)
		       ? 0
		       : error_set(err, PENSTOCK_E_INVALID,
				 "'url' must be s3://BUCKET/KEY or gs://…");
}

/* Opens the upload whose id, URL and store are in the request. */
static int open_upload(struct upload *upload, const struct exchange *x, struct penstock_error *err)
{
	const char *id = param(x, "id") ? param(x, "id") : "";
	char own[ID_SIZE], *end;
	int r = read_place(upload, x, err);

	if (r < 0)
		return r;
	upload->size = strtoull(id, &end, 10);
	upload->modified = *end == '-' ? strtoull(end + 1, NULL, 10) : 0;
	r = make_id(upload, own, err);
	if (r == 0 && strcmp(id, own) != 0)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot continue the upload: its id belongs to another URL; start it again");
	return r < 0 ? r : open_file(upload, x->ui, own, 0, err);
}

/* ---- beginning ---- */

enum MHD_Result upload_begin(struct exchange *x)
{
	_cleanup_(upload_release) struct upload upload = {.fd = -1};
	_cleanup_free_ char *dir = path_join(x->ui->home, DIRECTORY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	json_t *done = NULL;
	char id[ID_SIZE];
	int64_t size, modified;
	int r;

	if (!param_number(x, "size", 0, LIMIT_S3_OBJECT_MAX, -1, &size) || size < 0 ||
		!param_number(x, "modified", 0, INT64_MAX, 0, &modified))
		return answer_error(
			x, MHD_HTTP_BAD_REQUEST, "'size' or 'modified' is missing or invalid");
	upload.size = (uint64_t)size;
	upload.modified = (uint64_t)modified;
	r = read_place(&upload, x, &err);
	if (r == 0)
		r = make_id(&upload, id, &err);
	if (r == 0)
		r = dir ? fs_mkdirs(dir, 0700, &err) : error_memory(&err);
	if (r == 0)
		r = open_file(&upload, x->ui, id, O_CREAT, &err);
	if (r < 0)
		return answer_failure(x, &err);
	done = json_array();
	for (uint64_t at = 0, i = 1; at < upload.done; at += LIMIT_UI_PART, i++)
		json_array_append_new(done, json_integer((json_int_t)i));
	return answer_json(x, json_pack("{s:s, s:I, s:o}", "id", id, "part",
				      (json_int_t)LIMIT_UI_PART, "done", done));
}

/* ---- parts ---- */

/* Opens the part that the body of this request contains. */
static int open_part(struct exchange *x, struct penstock_error *err)
{
	struct upload_part *part = calloc(1, sizeof(*part));
	int64_t number;
	uint64_t next;
	int r;

	if (!part)
		return error_memory(err);
	part->upload.fd = -1;
	r = open_upload(&part->upload, x, err);
	next = part->upload.done / LIMIT_UI_PART + 1;
	part->size = part_bytes(&part->upload);
	if (r == 0 && (!param_number(x, "number", 1, INT64_MAX, 0, &number) ||
			      (uint64_t)number != next || part->size == 0))
		r = error_set(err, PENSTOCK_E_EXISTS, "the next part is number %" PRIu64, next);
	if (r == 0)
		x->part = take_pointer(part);
	upload_part_free(part);
	return r;
}

void upload_part_add(struct exchange *x, const char *data, size_t len)
{
	struct upload_part *part;
	off_t place;

	if (!x->has_body)
		open_part(x, &x->refusal);
	x->has_body = true;
	part = x->part;
	if (!part)
		return;
	place = (off_t)(part->upload.done + part->received);
	part->received += len;
	if (part->failure || part->received > part->size)
		return;
	if (fs_pwrite_all(part->upload.fd, data, len, place) < 0)
		part->failure = errno;
}

/* Accepts the part if it is complete. */
static int take_part(struct upload_part *part, struct penstock_error *err)
{
	if (part->failure)
		return error_errno(
			err, part->failure, "cannot write the part to '%s'", part->upload.path);
	if (part->received != part->size)
		return error_set(err, PENSTOCK_E_INVALID,
			"the part has %" PRIu64 " bytes instead of %" PRIu64, part->received,
			part->size);
	part->upload.done += part->size;
	return 0;
}

enum MHD_Result upload_part_end(struct exchange *x)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	uint64_t done = 0;
	int r = -(int)x->refusal.code;

	if (r < 0)
		error_move(&err, &x->refusal);
	else if (!x->part)
		r = open_part(x, &err);
	if (r == 0)
		r = take_part(x->part, &err);
	if (r == 0)
		done = x->part->upload.done;
	/* Free the part, with its lock, before the reply: the next part may arrive before the end
	 * of the reply. */
	upload_part_free(x->part);
	x->part = NULL;
	return r < 0 ? answer_failure(x, &err)
		     : answer_json(x, json_pack("{s:I}", "received", (json_int_t)done));
}

void upload_part_free(struct upload_part *part)
{
	if (!part)
		return;
	if (part->upload.fd >= 0 && ftruncate(part->upload.fd, (off_t)part->upload.done) < 0)
		part->upload.done = 0;
	upload_release(&part->upload);
	free(part);
}

/* ---- storing and removing ---- */

static int store_file(struct exchange *x, const struct upload *upload, struct verb_result *result,
	struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist words = {0};

	if (verb_add(&words, "cp", "--quiet", NULL) < 0 ||
		verb_add_store(&words, upload->store) < 0 ||
		verb_add(&words, "--", upload->path, upload->url, NULL) < 0)
		return error_memory(err);
	return verb_run(&words, 0, &x->ui->stopping, result, err);
}

enum MHD_Result upload_finish(struct exchange *x)
{
	_cleanup_(verb_result_release) struct verb_result result = VERB_RESULT_INIT;
	/* Wait for the lock: a page whose connection was lost repeats the request while the first
	 * request stores the file. */
	_cleanup_(upload_release) struct upload upload = {.fd = -1, .waits = true};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = open_upload(&upload, x, &err);

	if (r == 0 && upload.done != upload.size)
		return answer_error(x, MHD_HTTP_CONFLICT,
			"cannot store the object: %" PRIu64 " of %" PRIu64 " bytes were received",
			upload.done, upload.size);
	if (r == 0)
		r = store_file(x, &upload, &result, &err);
	if (r == 0 && result.code)
		return answer_verb_failed(x, result.code, buf_str(&result.message));
	if (r == 0 && unlink(upload.path) < 0)
		r = error_errno(&err, errno, "cannot remove '%s'", upload.path);
	return r < 0 ? answer_failure(x, &err) : answer_json(x, json_object());
}

enum MHD_Result upload_forget(struct exchange *x)
{
	_cleanup_(upload_release) struct upload upload = {.fd = -1};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = open_upload(&upload, x, &err);

	if (r == 0 && unlink(upload.path) < 0)
		r = error_errno(&err, errno, "cannot remove '%s'", upload.path);
	return r < 0 ? answer_failure(x, &err) : answer_json(x, json_object());
}
