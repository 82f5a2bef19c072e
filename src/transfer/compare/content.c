#include "transfer/compare/content.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "s3/multipart.h"
#include "transfer/client/internal.h"
#include "transfer/get/parts_etag.h"

#define BLOCK	       ((size_t)256 * KIB)
#define MAX_CANDIDATES ((size_t)4) /* part sizes to try; each try reads the file */

/* Part sizes in common use, in MiB. */
static const unsigned usual_parts[] = {
	8, 5, 16, 10, 15, 20, 25, 32, 50, 64, 100, 128, 256, 512, 1024};

/* Opens the file of an entry; returns its descriptor, or a negative error. */
static int open_file(
	const struct compare_side *side, const struct entry *entry, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(side->directory, entry->path);
	int fd;

	if (!path)
		return error_memory(err);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return fd < 0 ? error_errno(err, errno, "cannot read '%s'", path) : fd;
}

static int read_block(int fd, const struct entry *entry, char *block, uint64_t at, size_t want,
	const atomic_int *cancel, struct penstock_error *err)
{
	ssize_t n = fs_pread_all(fd, block, want, (off_t)at);

	if (n < 0)
		return error_errno(err, errno, "cannot read '%s'", entry->path);
	if ((size_t)n < want)
		return error_set(err, PENSTOCK_E_CHANGED, "'%s' became shorter while it was read",
			entry->path);
	if (cancel && atomic_load(cancel))
		return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	return 0;
}

/* ---- ETags of uploads in parts ---- */

/* Sets `out` to part sizes that divide `size` bytes into `parts` parts. Returns their number. */
static size_t candidates(uint64_t size, uint64_t parts, uint64_t out[static MAX_CANDIDATES])
{
	uint64_t ours = 0;
	size_t n = 0;

	if (multipart_part_size(size, 0, &ours, NULL) == 0 && multipart_count(size, ours) == parts)
		out[n++] = ours;
	for (size_t i = 0; i < ARRAY_SIZE(usual_parts) && n < MAX_CANDIDATES; i++) {
		uint64_t part = usual_parts[i] * MIB;

		if (part != ours && multipart_count(size, part) == parts)
			out[n++] = part;
	}
	/* If the uploader divided the size by the number of parts, the part size is usually the
	 * result, rounded up to a whole MiB. */
	if (n < MAX_CANDIDATES) {
		uint64_t least = (size / parts + MIB - 1) / MIB * MIB;
		bool known = false;

		for (size_t i = 0; i < n; i++)
			known = known || out[i] == least;
		if (!known && least && multipart_count(size, least) == parts)
			out[n++] = least;
	}
	/* An empty part may follow the full ones. */
	if (n < MAX_CANDIDATES && parts > 1 && size && size % ((parts - 1) * MIB) == 0)
		out[n++] = size / (parts - 1);
	return n;
}

/* ---- the store's own checksums ---- */

static int head_checksum(const struct compare_side *side, const struct entry *object,
	const atomic_int *cancel, enum checksum_kind *kind,
	uint8_t digest[static CHECKSUM_MAX_SIZE], struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	int r = s3_op_head(&op, object_at(side->client, side->bucket, object->key), NULL, true,
		cancel, NULL, err);

	if (r == 0)
		*kind = object_reply_checksum(&op.reply, digest);
	return r;
}

/* Returns 0, so that a file that cannot be read counts as different: the transfer then replaces the
 * file, or reports the reason, and the comparison continues. */
static int unreadable(int r, struct penstock_error *err)
{
	if (r == -(int)PENSTOCK_E_CANCELLED || r == -(int)PENSTOCK_E_MEMORY)
		return r;
	penstock_error_release(err);
	return 0;
}

static int file_and_object(const struct compare_rules *rules, const struct compare_side *files,
	const struct entry *file, const struct compare_side *objects, const struct entry *object,
	struct penstock_error *err)
{
	_cleanup_close_ int fd = open_file(files, file, err);
	uint8_t own[CHECKSUM_MAX_SIZE], theirs[CHECKSUM_MAX_SIZE];
	enum checksum_kind kind = CHECKSUM_NONE;
	uint64_t sizes[MAX_CANDIDATES];
	uint64_t parts = parts_etag_count(object->etag);
	size_t n = parts ? candidates(file->size, parts, sizes) : 0;
	int r;

	if (fd < 0)
		return unreadable(fd, err);
	if (object_etag_md5(object->etag, theirs)) {
		r = checksum_of_file(fd, CHECKSUM_MD5, 0, file->size, rules->cancel, own, err);
		if (r < 0)
			return unreadable(r, err);
		if (memcmp(own, theirs, 16) == 0)
			return 1;
	}
	for (size_t i = 0; i < n; i++) {
		char etag[MULTIPART_ETAG_SIZE];

		r = parts_etag_of_file(fd, file->size, sizes[i], parts, rules->cancel, etag, err);
		if (r < 0)
			return unreadable(r, err);
		if (strcmp(etag, object->etag) == 0)
			return 1;
	}
	/* An ETag that differs proves nothing: the object may be encrypted under a key, or have
	 * parts of another size. */
	r = head_checksum(objects, object, rules->cancel, &kind, theirs, err);
	if (r < 0 || kind == CHECKSUM_NONE)
		return r;
	r = checksum_of_file(fd, kind, 0, file->size, rules->cancel, own, err);
	return r < 0 ? unreadable(r, err) : memcmp(own, theirs, checksum_size(kind)) == 0;
}

static int two_objects(const struct compare_rules *rules, const struct entry *from,
	const struct entry *to, struct penstock_error *err)
{
	uint8_t a[CHECKSUM_MAX_SIZE], b[CHECKSUM_MAX_SIZE];
	enum checksum_kind a_kind = CHECKSUM_NONE, b_kind = CHECKSUM_NONE;
	int r;

	if (*from->etag && strcmp(from->etag, to->etag) == 0)
		return 1;
	r = head_checksum(&rules->from, from, rules->cancel, &a_kind, a, err);
	if (r == 0 && a_kind)
		r = head_checksum(&rules->to, to, rules->cancel, &b_kind, b, err);
	return r < 0 ? r : a_kind && a_kind == b_kind && memcmp(a, b, checksum_size(a_kind)) == 0;
}

static int two_files(const struct compare_rules *rules, const struct entry *from,
	const struct entry *to, struct penstock_error *err)
{
	_cleanup_close_ int a = open_file(&rules->from, from, err);
	_cleanup_close_ int b = a < 0 ? -1 : open_file(&rules->to, to, err);
	_cleanup_free_ char *blocks = malloc(2 * BLOCK);

	if (a < 0 || b < 0)
		return a < 0 ? a : b;
	if (!blocks)
		return error_memory(err);
	for (uint64_t at = 0; at < from->size; at += BLOCK) {
		size_t n = from->size - at < BLOCK ? (size_t)(from->size - at) : BLOCK;
		int r = read_block(a, from, blocks, at, n, rules->cancel, err);

		if (r == 0)
			r = read_block(b, to, blocks + BLOCK, at, n, rules->cancel, err);
		if (r < 0)
			return r;
		if (memcmp(blocks, blocks + BLOCK, n) != 0)
			return 0;
	}
	return 1;
}

int compare_content(const struct compare_rules *rules, const struct entry *from,
	const struct entry *to, struct penstock_error *err)
{
	if (from->kind == ENTRY_LINK || to->kind == ENTRY_LINK)
		return 0;
	if (from->key && to->key)
		return two_objects(rules, from, to, err);
	if (from->key)
		return file_and_object(rules, &rules->to, to, &rules->from, from, err);
	if (to->key)
		return file_and_object(rules, &rules->from, from, &rules->to, to, err);
	return two_files(rules, from, to, err);
}
