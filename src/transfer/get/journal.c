#include "transfer/get/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "transfer/state/part_file.h"

/*
 * Lines of the journal, in this order:
 *	S digest name		the source, and the name of the part file, before it is created
 *	P inode			the part file, once it is created
 *	O size etag kind	the object
 *	B index checksum	a block (blocks.c)
 */

/* The journal's record of an earlier call. */
struct recorded {
	char source[65];
	char *name; /* name of the part file; owned */
	uint64_t size, inode;
	char *etag; /* owned */
	enum checksum_kind kind;
};

static void recorded_release(struct recorded *recorded)
{
	free(recorded->name);
	free(recorded->etag);
}

/* Reads the lines before the lines of the blocks. Returns -1 if out of memory. */
static int read_recorded(struct record_file *journal, struct recorded *recorded)
{
	char *f[4];
	unsigned n = record_file_next(journal, f, ARRAY_SIZE(f));

	if (n != 3 || strcmp(f[0], "S") != 0 || strlen(f[1]) != 64 || !record_decode(f[2]) ||
		!*f[2] || strchr(f[2], '/'))
		return 0;
	snprintf(recorded->source, sizeof(recorded->source), "%s", f[1]);
	recorded->name = strdup(f[2]);
	if (!recorded->name)
		return -1;
	n = record_file_next(journal, f, ARRAY_SIZE(f));
	if (n != 2 || strcmp(f[0], "P") != 0 || !str_to_u64(f[1], 1, UINT64_MAX, &recorded->inode))
		return 0;
	n = record_file_next(journal, f, ARRAY_SIZE(f));
	if (n != 4 || strcmp(f[0], "O") != 0 || !record_decode(f[2]) || !*f[2] ||
		!checksum_is_crc(checksum_find(f[3])) ||
		!str_to_u64(f[1], 1, INT64_MAX, &recorded->size))
		return 0;
	recorded->kind = checksum_find(f[3]);
	recorded->etag = strdup(f[2]);
	return recorded->etag ? 0 : -1;
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* Opens the part file that the journal names. Returns -1 if the file is missing or is not the
 * recorded one. */
static int open_recorded(const char *path, const struct recorded *recorded, char **out)
{
	_cleanup_free_ char *part = NULL;
	_cleanup_close_ int fd = -1;

	if (recorded->inode)
		part = str_printf("%.*s%s", (int)(basename(path) - path), path, recorded->name);
	if (part)
		fd = open(part, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || !part_file_is_private(fd) || inode_of(fd) != recorded->inode)
		return -1;
	*out = take_pointer(part);
	return take_fd(fd);
}

static void note_part(const struct get_part *part, const char *path, struct buf *line)
{
	buf_printf(line, "S %s", part->source);
	record_add_text(line, basename(path));
}

/* Creates a part file under an unused name. */
static int make_part(struct get_part *part, const char *path, struct penstock_error *err)
{
	for (int tries = 0;; tries++) {
		_cleanup_free_ char *name = NULL;
		_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);
		struct stat st;
		int r = tries ? part_file_random_name(path, &name, err)
			      : part_file_name(path, "", &name, err);

		if (r < 0)
			return r;
		if (lstat(name, &st) == 0 && tries < PART_FILE_NAMES)
			continue;
		note_part(part, name, &line);
		if (part->journaled)
			part->journaled = record_file_clear(&part->journal) == 0 &&
					  record_file_add(&part->journal, &line) == 0;
		part->fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
		if (part->fd < 0 && errno == EEXIST && tries < PART_FILE_NAMES)
			continue;
		if (part->fd < 0)
			return error_errno(err, errno, "cannot create '%s'", name);
		part->path = take_pointer(name);
		buf_clear(&line);
		buf_printf(&line, "P %" PRIu64, inode_of(part->fd));
		if (part->journaled)
			part->journaled = record_file_add(&part->journal, &line) == 0;
		return 0;
	}
}

int get_part_open(
	struct get_part *part, const char *path, const char *source, struct penstock_error *err)
{
	_cleanup_(recorded_release) struct recorded recorded = {0};
	_cleanup_free_ char *name = NULL;
	uint8_t digest[CHECKSUM_MAX_SIZE] = {0};
	int r;

	*part = (struct get_part)GET_PART_INIT;
	if (!source)
		return part_file_open(path, &part->fd, &part->path, err);
	r = part_file_name(path, ".journal", &name, err);
	if (r < 0)
		return r;
	checksum_of(CHECKSUM_SHA256, source, strlen(source), digest, NULL);
	str_hex(digest, 32, part->source);
	part->journaled = record_file_open(&part->journal, name, NULL) == 0;
	if (part->journaled && read_recorded(&part->journal, &recorded) < 0)
		return error_memory(err);
	part->fd = part->journaled ? open_recorded(path, &recorded, &part->path) : -1;
	if (part->fd >= 0 && recorded.etag && strcmp(recorded.source, part->source) == 0) {
		part->size = recorded.size;
		part->kind = recorded.kind;
		part->etag = take_pointer(recorded.etag);
		return 0;
	}
	/* A part file of another object is no longer needed. */
	if (part->fd >= 0)
		unlink(part->path);
	if (part->fd >= 0)
		close(part->fd);
	part->fd = -1;
	free(take_pointer(part->path));
	return make_part(part, path, err);
}

static int empty(struct get_part *part, struct penstock_error *err)
{
	return ftruncate(part->fd, 0) < 0 ? error_errno(err, errno, "cannot write '%s'", part->path)
					  : 0;
}

int get_part_restart(struct get_part *part, struct penstock_error *err)
{
	part->size = 0;
	return empty(part, err);
}

int64_t get_part_begin(struct get_part *part, const char *etag, struct get_blocks *blocks,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf source = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf file = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf object = BUF_INIT(LIMIT_STRING);
	int r;

	if (!part->journaled)
		return 0;
	if (part->size == blocks->size && part->kind == blocks->kind && part->etag &&
		strcmp(part->etag, etag) == 0)
		return get_blocks_load(blocks, &part->journal, part->fd, err);
	r = empty(part, err);
	if (r < 0)
		return r;
	note_part(part, part->path, &source);
	buf_printf(&file, "P %" PRIu64, inode_of(part->fd));
	buf_printf(&object, "O %" PRIu64, blocks->size);
	record_add_text(&object, etag);
	buf_printf(&object, " %s", checksum_name(blocks->kind));
	part->journaled = record_file_clear(&part->journal) == 0 &&
			  record_file_add(&part->journal, &source) == 0 &&
			  record_file_add(&part->journal, &file) == 0 &&
			  record_file_add(&part->journal, &object) == 0;
	return part->journaled ? get_blocks_load(blocks, &part->journal, part->fd, err) : 0;
}

void get_part_finish(struct get_part *part)
{
	record_file_remove(&part->journal);
}

void get_part_abandon(struct get_part *part, bool keep)
{
	if (part->journaled && keep)
		return;
	unlink(part->path);
	record_file_remove(&part->journal);
}

void get_part_release(struct get_part *part)
{
	if (part->fd >= 0)
		close(part->fd);
	record_file_close(&part->journal);
	free(part->path);
	free(part->etag);
	*part = (struct get_part)GET_PART_INIT;
}
