/* Reads ranges of shards. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "dataset/source/internal.h"
#include "transfer/reads.h"

/* ---- local files ---- */

static int open_shard(const struct source *s, size_t shard, struct penstock_error *err)
{
	_cleanup_free_ char *path = s->single ? strdup(s->prefix)
					      : path_join(s->prefix, source_name(s, shard));
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (!path)
		return error_memory(err);
	/* O_NONBLOCK: the open of a pipe that has replaced the file would block. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", path);
	if ((uint64_t)st.st_size != s->shards[shard].size)
		return error_set(err, PENSTOCK_E_CHANGED,
			"'%s' has %" PRIu64 " bytes now, but %" PRIu64
			" when the data set was opened",
			path, (uint64_t)st.st_size, s->shards[shard].size);
	if (source_mtime_ns(&st) != s->shards[shard].mtime_ns && !atomic_load(&s->any_version))
		return error_set(err, PENSTOCK_E_CHANGED,
			"'%s' was written after the data set was opened", path);
	return take_fd(fd);
}

static int file_of(struct source_reader *reader, size_t shard, struct penstock_error *err)
{
	struct block_file *file = source_file(reader, shard);
	int fd = file->fd;

	if (fd >= 0)
		return fd;
	fd = open_shard(reader->source, shard, err);
	if (fd == -(int)PENSTOCK_E_LIMIT) {
		/* The process has too many open files: close the files of this reader and try
		 * again. */
		for (size_t i = 0; i < LIMIT_DATASET_FILES; i++)
			block_file_close(&reader->files[i].file);
		penstock_error_release(err);
		fd = open_shard(reader->source, shard, err);
	}
	if (fd < 0)
		return -(int)PENSTOCK_E_IO;
	file->fd = fd;
	return fd;
}

/* Reads `len` bytes of the range, from its byte `at` on, into `data`. Returns false after an error,
 * which is in `read`. */
static bool read_part(const struct source *s, struct source_read *read, int fd, uint64_t at,
	void *data, size_t len)
{
	ssize_t n = fs_pread_all(fd, data, len, (off_t)(read->offset + at));

	if (n < 0)
		error_errno(&read->error, errno, "cannot read '%s'", source_name(s, read->shard));
	else if ((size_t)n < len)
		error_set(&read->error, PENSTOCK_E_CHANGED, "'%s' was truncated while it was read",
			source_name(s, read->shard));
	return n >= 0 && (size_t)n == len;
}

static void read_file(struct source_reader *reader, struct source_read *read)
{
	int fd = file_of(reader, read->shard, &read->error);
	size_t len = 0;

	if (fd < 0)
		return;
	if (read->data) {
		read_part(reader->source, read, fd, 0, read->data, read->length);
		return;
	}
	if (!reader->chunk)
		reader->chunk = malloc(LIMIT_PLAIN_CHUNK);
	if (!reader->chunk)
		error_memory(&read->error);
	for (size_t at = 0; reader->chunk && at < read->length; at += len) {
		len = read->length - at < LIMIT_PLAIN_CHUNK ? read->length - at : LIMIT_PLAIN_CHUNK;
		if (!read_part(reader->source, read, fd, at, reader->chunk, len))
			return;
		read_pieces_add(&read->pieces, at, reader->chunk, len);
	}
}

static int read_files(
	struct source_reader *reader, struct source_read *reads, size_t n, const atomic_int *cancel)
{
	int failed = 0;

	for (size_t i = 0; i < n; i++) {
		if (cancel && atomic_load(cancel))
			error_set(&reads[i].error, PENSTOCK_E_CANCELLED, "cancelled");
		else
			read_file(reader, &reads[i]);
		failed += reads[i].error.code != PENSTOCK_OK;
	}
	return failed;
}

/* ---- files and objects ---- */

int source_read_stored(struct source_reader *reader, struct source_read *reads, size_t n,
	const atomic_int *cancel, struct penstock_error *err)
{
	for (size_t i = 0; i < n; i++)
		reads[i].error = (struct penstock_error)PENSTOCK_ERROR_INIT;
	if (!reader->reads)
		return read_files(reader, reads, n, cancel);
	return reader->source->cache ? source_read_cached(reader, reads, n, cancel, err)
				     : source_read_objects(reader, reads, n, cancel, err);
}
