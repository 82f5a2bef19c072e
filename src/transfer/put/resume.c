#include "transfer/put/resume.h"

#include <dirent.h>
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
#include "s3/message/messages.h"
#include "s3/multipart.h"
#include "transfer/put/parts.h"

/*
 * Lines of the journal, in this order; each line except the P lines is written twice:
 *	T endpoint bucket key path		target and source
 *	F size mtime ctime inode device		the file
 *	O digest				properties of the object
 *	U part-size id				the upload, once the store has given it an id
 *	P number length etag digest		a part that the store has
 */
#define SUFFIX ".upload"

/* The first lines of the journal. Strings are owned. */
struct recorded {
	char *endpoint, *bucket, *key, *path;
	struct stat st; /* size, times, inode and device only */
	char options[65];
	uint64_t part_size;
	char *id; /* NULL if no upload was started */
};

static void recorded_release(struct recorded *t)
{
	free(t->endpoint);
	free(t->bucket);
	free(t->key);
	free(t->path);
	free(t->id);
}

static int64_t ns_of(const struct timespec *t)
{
	return (int64_t)t->tv_sec * NS_PER_S + t->tv_nsec;
}

static struct timespec timespec_of(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

bool put_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && ns_of(&a->st_mtim) == ns_of(&b->st_mtim) &&
	       ns_of(&a->st_ctim) == ns_of(&b->st_ctim) && a->st_ino == b->st_ino &&
	       a->st_dev == b->st_dev;
}

/* ---- the lines ---- */

static bool take_text(char **out, char *field)
{
	*out = record_decode(field) ? strdup(field) : NULL;
	return *out != NULL;
}

static bool read_file_line(char *f[], struct recorded *t)
{
	uint64_t size, inode, device;
	int64_t mtime, ctime;

	if (!str_to_u64(f[1], 0, INT64_MAX, &size) ||
		!str_to_i64(f[2], INT64_MIN, INT64_MAX, &mtime) ||
		!str_to_i64(f[3], INT64_MIN, INT64_MAX, &ctime) ||
		!str_to_u64(f[4], 0, UINT64_MAX, &inode) ||
		!str_to_u64(f[5], 0, UINT64_MAX, &device))
		return false;
	t->st.st_size = (off_t)size;
	t->st.st_mtim = timespec_of(mtime);
	t->st.st_ctim = timespec_of(ctime);
	t->st.st_ino = (ino_t)inode;
	t->st.st_dev = (dev_t)device;
	return true;
}

/* Reads the lines before the parts; the journal has each line twice. Returns false if no line has
 * the target, or if out of memory. */
static bool read_recorded(struct record_file *file, struct recorded *t)
{
	bool file_known = false;
	char *f[6];
	char tag;

	while ((tag = record_file_peek(file)) && tag != 'P') {
		unsigned n = record_file_next(file, f, 6);

		if (tag == 'T' && n == 5 && !t->path) {
			if (!take_text(&t->endpoint, f[1]) || !take_text(&t->bucket, f[2]) ||
				!take_text(&t->key, f[3]) || !take_text(&t->path, f[4]))
				return false;
		} else if (tag == 'F' && n == 6 && !file_known) {
			file_known = read_file_line(f, t);
		} else if (tag == 'O' && n == 2 && strlen(f[1]) == 64) {
			snprintf(t->options, sizeof(t->options), "%s", f[1]);
		} else if (tag == 'U' && n == 3 && !t->id &&
			   str_to_u64(f[1], 1, LIMIT_S3_PART_MAX, &t->part_size)) {
			if (take_text(&t->id, f[2]) && !*t->id)
				free(take_pointer(t->id));
		}
	}
	return t->path != NULL;
}

/* Writes a line twice, so that one damaged line does not lose the upload. */
static int add_twice(struct put_resume *r, const struct buf *line)
{
	return record_file_add(&r->file, line) < 0 || record_file_add(&r->file, line) < 0 ? -1 : 0;
}

static int write_begin(struct put_resume *r, const struct recorded *t)
{
	_cleanup_(buf_release) struct buf target = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf file = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf options = BUF_INIT(LIMIT_STRING);

	buf_add_char(&target, 'T');
	record_add_text(&target, t->endpoint);
	record_add_text(&target, t->bucket);
	record_add_text(&target, t->key);
	record_add_text(&target, t->path);
	buf_printf(&file, "F %" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu64 " %" PRIu64,
		(uint64_t)t->st.st_size, ns_of(&t->st.st_mtim), ns_of(&t->st.st_ctim),
		(uint64_t)t->st.st_ino, (uint64_t)t->st.st_dev);
	buf_printf(&options, "O %s", t->options);
	return record_file_clear(&r->file) < 0 || add_twice(r, &target) < 0 ||
			       add_twice(r, &file) < 0 || add_twice(r, &options) < 0
		       ? -1
		       : 0;
}

/* ---- the requested upload ---- */

static void digest_text(struct checksum *sum, const char *text)
{
	checksum_update(sum, text ? text : "", strlen(text ? text : "") + 1);
}

/* Computes a digest of the object's properties: an upload that was started with other properties
 * cannot be resumed. */
static int digest_options(const struct upload *u, char out[static 65])
{
	const struct object_put_options *o = u->options;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	struct checksum sum;

	if (checksum_init(&sum, CHECKSUM_SHA256, NULL) < 0)
		return -1;
	digest_text(&sum, u->guard == GUARD_MD5 ? "none" : checksum_name(u->at.client->guard_kind));
	digest_text(&sum, o->content_type);
	digest_text(&sum, o->storage_class);
	for (size_t i = 0; o->metadata && i < o->metadata->n; i++)
		digest_text(&sum, o->metadata->items[i]);
	checksum_final(&sum, digest);
	checksum_release(&sum);
	str_hex(digest, 32, out);
	return 0;
}

/* Finds the path of the descriptor. Returns false if that path no longer names the same file. */
static bool path_of(int fd, struct stat *st, char **out)
{
	char path[PATH_MAX];
	struct stat named;
	ssize_t n = readlink(fs_fd_path(fd).text, path, sizeof(path) - 1);

	if (n <= 0 || path[0] != '/')
		return false;
	path[n] = '\0';
	if (fstat(fd, st) < 0 || lstat(path, &named) < 0 || !put_same_file(st, &named))
		return false;
	*out = strdup(path);
	return *out != NULL;
}

static bool wanted_now(const struct upload *u, struct recorded *t)
{
	t->endpoint = strdup(u->at.client->address);
	t->bucket = strdup(u->at.bucket);
	t->key = strdup(u->at.key);
	return t->endpoint && t->bucket && t->key && path_of(u->fd, &t->st, &t->path) &&
	       digest_options(u, t->options) == 0;
}

/* Returns DIR/DIGEST.upload; NULL if out of memory. */
static char *journal_path(const char *dir, const struct recorded *t)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	struct checksum sum;
	char hex[65];

	if (checksum_init(&sum, CHECKSUM_SHA256, NULL) < 0)
		return NULL;
	digest_text(&sum, t->endpoint);
	digest_text(&sum, t->bucket);
	digest_text(&sum, t->key);
	digest_text(&sum, t->path);
	checksum_final(&sum, digest);
	checksum_release(&sum);
	str_hex(digest, 16, hex);
	return str_printf("%s/%s" SUFFIX, dir, hex);
}

/* ---- sweeping ---- */

/* Returns true if the upload of this journal can no longer be resumed. */
static bool is_stale(const struct recorded *t, const struct stat *journal)
{
	struct stat st;

	return !t->id || lstat(t->path, &st) < 0 || !put_same_file(&st, &t->st) ||
	       clock_wall_ns() / NS_PER_S - journal->st_mtim.tv_sec >
		       (int64_t)LIMIT_UPLOAD_JOURNAL_DAYS * 24 * 3600;
}

/* Aborts the upload of a stale journal, and removes the journal. Returns false if the store does
 * not answer, so that the other journals are left for a later call. */
static bool sweep_one(struct object_client *client, const char *path)
{
	_cleanup_(record_file_close) struct record_file file = RECORD_FILE_INIT;
	_cleanup_(recorded_release) struct recorded t = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct stat st;

	if (record_file_open(&file, path, NULL) < 0 || fstat(file.fd, &st) < 0)
		return true;
	if (read_recorded(&file, &t)) {
		if (!is_stale(&t, &st) || (t.id && strcmp(t.endpoint, client->address) != 0))
			return true;
		if (t.id &&
			object_abort_upload(object_at(client, t.bucket, t.key), t.id, &err) < 0) {
			log_debug("%s", err.message ? err.message : "");
			if (err.code == PENSTOCK_E_PERMISSION || error_is_retryable(&err))
				return err.code == PENSTOCK_E_PERMISSION;
		}
	}
	record_file_remove(&file);
	return true;
}

void put_resume_sweep(struct object_client *client, const char *dir)
{
	_cleanup_closedir_ DIR *d = NULL;
	struct dirent *e;

	if (atomic_exchange(&client->swept, true))
		return;
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		_cleanup_free_ char *path = str_ends(e->d_name, SUFFIX) ? path_join(dir, e->d_name)
									: NULL;

		if (path && !sweep_one(client, path))
			break;
	}
}

/* ---- the upload of an earlier call ---- */

static void give_up(struct put_resume *r)
{
	record_file_close(&r->file);
	r->on = false;
}

/* Takes over the recorded upload, or aborts it and starts the journal again. */
static void adopt(
	struct put_resume *r, struct upload *u, struct recorded *t, const struct recorded *now)
{
	if (t->id && put_same_file(&t->st, &now->st) && strcmp(t->options, now->options) == 0 &&
		multipart_count(u->size, t->part_size) <= LIMIT_S3_PARTS) {
		u->id = take_pointer(t->id);
		u->part_size = t->part_size;
		return;
	}
	if (t->id)
		object_abort_upload(u->at, t->id, NULL);
	if (write_begin(r, now) < 0)
		give_up(r);
}

int put_resume_find(struct put_resume *r, struct upload *u, struct penstock_error *err)
{
	const char *dir = u->options->resume_dir;
	_cleanup_(recorded_release) struct recorded now = {0}, earlier = {0};
	_cleanup_free_ char *path = NULL;
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

	*r = (struct put_resume){.file = RECORD_FILE_INIT};
	if (!dir || !wanted_now(u, &now) || (uint64_t)now.st.st_size != u->size)
		return 0;
	put_resume_sweep(u->at.client, dir);
	path = journal_path(dir, &now);
	if (!path)
		return error_memory(err);
	/* If the journal cannot be opened, continue without it: only a later resume loses time. */
	if (fs_mkdirs(dir, 0700, &own) < 0 || record_file_open(&r->file, path, &own) < 0) {
		log_debug("%s; an interrupted upload will start from the beginning",
			own.message ? own.message : "");
		return 0;
	}
	r->on = true;
	/* The name of the journal is a digest of the target: if no line with the target can be
	 * read, the upload in the journal still belongs to this target. */
	if (read_recorded(&r->file, &earlier) ? strcmp(earlier.endpoint, now.endpoint) == 0 &&
							strcmp(earlier.bucket, now.bucket) == 0 &&
							strcmp(earlier.key, now.key) == 0 &&
							strcmp(earlier.path, now.path) == 0
					      : earlier.id != NULL)
		adopt(r, u, &earlier, &now);
	else if (write_begin(r, &now) < 0)
		give_up(r);
	return 0;
}

/* ---- the parts of the earlier upload ---- */

/* Accepts a part in the store's list only if the journal has the same record. */
static void compare_part(struct upload *u, const struct s3_part *part)
{
	struct part_result *result = part->number >= 1 && part->number <= u->parts
					     ? &u->results[part->number - 1]
					     : NULL;
	const char *sum = part->checksums[u->at.client->guard_kind];
	char etag[OBJECT_ETAG_SIZE];

	if (!result || !result->recorded)
		return;
	object_etag_copy(etag, part->etag);
	result->listed = part->size == result->length && strcmp(etag, result->etag) == 0 &&
			 (!sum || !result->checksum[0] || strcmp(sum, result->checksum) == 0);
	/* The store may require the part's checksum in the Complete. */
	if (result->listed && sum && strlen(sum) < sizeof(result->checksum))
		memcpy(result->checksum, sum, strlen(sum) + 1);
}

/* Reads the P lines into `results`. */
static void read_parts(struct put_resume *r, struct upload *u)
{
	size_t digest_size = checksum_size(u->at.client->guard_kind);
	char *f[6];

	for (unsigned n; (n = record_file_next(&r->file, f, 6));) {
		uint64_t number, length, offset, right;
		struct part_result *result;

		if (n != 5 || strcmp(f[0], "P") != 0 || !str_to_u64(f[1], 1, u->parts, &number) ||
			!str_to_u64(f[2], 0, LIMIT_S3_PART_MAX, &length) || !record_decode(f[3]) ||
			!multipart_range(
				u->size, u->part_size, (unsigned)number, &offset, &right) ||
			length != right)
			continue;
		result = &u->results[number - 1];
		*result = (struct part_result){.length = length};
		object_etag_copy(result->etag, f[3]);
		result->recorded = result->etag[0] &&
				   str_unhex(f[4], result->digest, digest_size) == 0;
	}
}

static bool all_recorded(const struct upload *u)
{
	for (unsigned i = 0; i < u->parts; i++)
		if (!u->results[i].recorded)
			return false;
	return true;
}

int put_resume_take(struct put_resume *r, struct upload *u, upload_exists_fn *exists,
	struct object_info *info, struct penstock_error *err)
{
	_cleanup_(recorded_release) struct recorded now = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int rc;

	read_parts(r, u);
	rc = upload_list_parts(u, compare_part, &own);
	if (rc == 0)
		return 0;
	/* The kill may have come after the Complete, before the journal was removed. */
	if (rc == -(int)PENSTOCK_E_NOT_FOUND && all_recorded(u) && exists(u, info))
		return 1;
	if (rc == -(int)PENSTOCK_E_CANCELLED || error_is_retryable(&own))
		return error_move(err, &own);
	log_debug("%s; the upload starts from the beginning", own.message ? own.message : "");
	upload_abort(u);
	free(take_pointer(u->id));
	memset(u->results, 0, u->parts * sizeof(*u->results));
	if (r->on && (!wanted_now(u, &now) || write_begin(r, &now) < 0))
		give_up(r);
	return 0;
}

/* ---- the current upload ---- */

void put_resume_started(struct put_resume *r, const struct upload *u)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);

	if (!r->on)
		return;
	buf_printf(&line, "U %" PRIu64, u->part_size);
	record_add_text(&line, u->id);
	/* Sync once for each upload: after a power loss the upload to abort must be known. */
	if (add_twice(r, &line) < 0 || fdatasync(r->file.fd) < 0)
		give_up(r);
}

void put_resume_part(struct put_resume *r, const struct upload *u, unsigned number)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);
	const struct part_result *result = &u->results[number - 1];
	char digest[2 * CHECKSUM_MAX_SIZE + 1];

	if (!r->on)
		return;
	str_hex(result->digest, checksum_size(u->at.client->guard_kind), digest);
	buf_printf(&line, "P %u %" PRIu64, number, result->length);
	record_add_text(&line, result->etag);
	buf_printf(&line, " %s", digest);
	if (record_file_add(&r->file, &line) < 0)
		give_up(r);
}

void put_resume_end(struct put_resume *r, bool keep)
{
	/* The journal of a stream was never created, and its descriptor is not valid. */
	if (!r->on)
		return;
	if (!keep)
		record_file_remove(&r->file);
	give_up(r);
}
