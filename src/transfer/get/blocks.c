#include "transfer/get/blocks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"

/* Chooses a small size, so that a kill loses little, or a larger one if there would be too many
 * blocks. */
static uint64_t block_size(uint64_t size)
{
	if (size <= 4 * GIB)
		return 1 * MIB;
	return size <= 64 * GIB ? 4 * MIB : GET_BLOCK_MAX;
}

int get_blocks_init(
	struct get_blocks *b, uint64_t size, enum checksum_kind kind, struct penstock_error *err)
{
	*b = (struct get_blocks){.kind = kind, .size = size, .block = block_size(size)};
	b->n = (size + b->block - 1) / b->block;
	if (kind == CHECKSUM_NONE)
		return 0;
	b->digests = calloc(b->n, sizeof(*b->digests));
	return b->digests ? 0 : error_memory(err);
}

void get_blocks_release(struct get_blocks *b)
{
	free(b->had);
	free(b->digests);
	*b = (struct get_blocks){0};
}

static uint64_t length_of(const struct get_blocks *b, uint64_t i)
{
	return i + 1 < b->n ? b->block : b->size - i * b->block;
}

static bool has(const struct get_blocks *b, uint64_t i)
{
	return b->had && b->had[i / 8] >> (i % 8) & 1;
}

/* Returns true if the file has the bytes of block `i`: the journal alone does not prove that they
 * were written. */
static bool is_there(
	const struct get_blocks *b, uint64_t i, const uint8_t *digest, int fd, void *room)
{
	size_t want = (size_t)length_of(b, i);
	uint8_t got[CHECKSUM_MAX_SIZE];

	return fs_pread_all(fd, room, want, (off_t)(i * b->block)) == (ssize_t)want &&
	       checksum_of(b->kind, room, want, got, NULL) == 0 &&
	       memcmp(got, digest, checksum_size(b->kind)) == 0;
}

int64_t get_blocks_load(
	struct get_blocks *b, struct record_file *journal, int fd, struct penstock_error *err)
{
	_cleanup_free_ void *room = malloc(b->block);
	char *f[3];
	int64_t bytes = 0;

	b->journal = journal;
	b->had = calloc(b->n / 8 + 1, 1);
	if (!room || !b->had)
		return error_memory(err);
	for (unsigned n; (n = record_file_next(journal, f, ARRAY_SIZE(f)));) {
		uint8_t digest[8] = {0};
		uint64_t i;

		if (n != 3 || strcmp(f[0], "B") != 0 || !str_to_u64(f[1], 0, b->n - 1, &i) ||
			str_unhex(f[2], digest, checksum_size(b->kind)) < 0 || has(b, i) ||
			!is_there(b, i, digest, fd, room))
			continue;
		b->had[i / 8] |= (unsigned char)(1u << (i % 8));
		memcpy(b->digests[i], digest, sizeof(digest));
		bytes += (int64_t)length_of(b, i);
	}
	b->kept = (uint64_t)bytes;
	return bytes;
}

bool get_blocks_next(
	const struct get_blocks *b, uint64_t *at, uint64_t most, uint64_t *offset, uint64_t *length)
{
	uint64_t i = *at / b->block, end;

	if (*at >= b->size)
		return false;
	while (i < b->n && has(b, i))
		i++;
	if (i >= b->n)
		return false;
	*offset = i * b->block;
	/* Stop where the next range starts, or at the first block that is present. */
	end = (*offset / most + 1) * most;
	while (i < b->n && i * b->block < end && !has(b, i))
		i++;
	*at = i < b->n ? i * b->block : b->size;
	*length = *at - *offset;
	return true;
}

/* Records block `i` in the journal. A failed write is ignored: only a later resume loses time. */
static void note(struct get_blocks *b, uint64_t i)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_LOG_LINE);
	char text[2 * CHECKSUM_MAX_SIZE + 1];

	str_hex(b->digests[i], checksum_size(b->kind), text);
	buf_printf(&line, "B %" PRIu64 " %s", i, text);
	if (record_file_add(b->journal, &line) < 0)
		b->journal = NULL;
	else
		b->kept += length_of(b, i);
}

int get_blocks_add(
	struct get_blocks *b, struct get_run *run, uint64_t offset, const void *data, size_t len)
{
	const char *from = data;
	uint8_t digest[CHECKSUM_MAX_SIZE];

	if (b->kind == CHECKSUM_NONE)
		return 0;
	if (run->sum.kind == CHECKSUM_NONE && checksum_init(&run->sum, b->kind, NULL) < 0)
		return -1;
	while (len) {
		uint64_t i = offset / b->block, left = length_of(b, i) - run->at;
		size_t n = len < left ? len : (size_t)left;

		checksum_update(&run->sum, from, n);
		run->at += n;
		offset += n;
		from += n;
		len -= n;
		if (n < left)
			continue;
		checksum_final(&run->sum, digest);
		memcpy(b->digests[i], digest, sizeof(b->digests[i]));
		if (b->journal)
			note(b, i);
		if (get_run_restart(run) < 0)
			return -1;
	}
	return 0;
}

int get_run_restart(struct get_run *run)
{
	run->at = 0;
	return run->sum.kind ? checksum_reset(&run->sum) : 0;
}

void get_run_release(struct get_run *run)
{
	checksum_release(&run->sum);
	*run = (struct get_run){0};
}

void get_blocks_digest(const struct get_blocks *b, uint8_t digest[static CHECKSUM_MAX_SIZE])
{
	get_blocks_digest_of(b, 0, b->size, digest);
}

bool get_blocks_digest_of(const struct get_blocks *b, uint64_t offset, uint64_t length,
	uint8_t digest[static CHECKSUM_MAX_SIZE])
{
	uint64_t i = offset / b->block, end = (offset + length + b->block - 1) / b->block;

	if (b->kind == CHECKSUM_NONE || !length || offset % b->block ||
		((offset + length) % b->block && offset + length != b->size))
		return false;
	memset(digest, 0, CHECKSUM_MAX_SIZE);
	memcpy(digest, b->digests[i], sizeof(b->digests[i]));
	while (++i < end)
		checksum_combine(b->kind, digest, b->digests[i], length_of(b, i));
	return true;
}
