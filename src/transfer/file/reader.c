/* Reads bytes at any offset, and reads ahead. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "transfer/file/internal.h"

#define STOP_MS 100 /* interval of the calls of `stop` */
#define SPARE	(LIMIT_FILE_AHEAD / LIMIT_FILE_BLOCK)

/* Bytes of the read-ahead, complete or in flight. */
struct block {
	struct file_job job; /* first: its `release` gets the address of the block */
	struct object_read item; /* offset, length and memory of the block */
	unsigned users; /* reads that copy from the block */
	bool dropped; /* removed from the list while in use: the last user frees it */
	struct block *prev, *next;
};

struct file_reader {
	struct file_pool *pool;
	struct file_source *source;
	uint64_t ahead;
	bool (*stop)(void *cookie);
	void *cookie;
	const atomic_int *cancel;

	pthread_mutex_t lock;
	/* Under the lock. */
	uint64_t end; /* end of the last read */
	uint64_t row; /* bytes of the sequential reads up to `end` */
	bool sequential; /* the last read continued earlier reads */
	struct block *blocks; /* in the order of their offsets */
	char *spare[SPARE]; /* memory of blocks of LIMIT_FILE_BLOCK */
	size_t n_spare;
};

/* A part of a read: bytes of a block, or a request. */
struct part {
	struct block *block; /* NULL for a request */
	struct file_job job; /* job of a request */
	struct object_read item; /* the bytes, and their place in memory */
};

struct parts {
	struct part *items;
	size_t n;
};

/* ---- jobs ---- */

/* Waits for the end of the job; fails only if the caller cancels. */
static int await(struct file_reader *f, struct file_job *job, struct penstock_error *err)
{
	while (!file_pool_wait(f->pool, job, STOP_MS)) {
		if ((f->cancel && atomic_load(f->cancel)) || (f->stop && f->stop(f->cookie)))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	}
	return 0;
}

/* Waits for the end of a job that is not shared, and takes its result. */
static int finish(struct file_reader *f, struct file_job *job, struct penstock_error *err)
{
	int r = await(f, job, err);

	if (r == 0 && job->r < 0)
		r = error_move(err, &job->error);
	file_pool_cancel(f->pool, job);
	return r;
}

static int start(struct file_reader *f, struct file_job *job, struct object_read *items, size_t n,
	struct penstock_error *err)
{
	job->source = file_source_ref(f->source);
	job->items = items;
	job->n = n;
	return file_pool_add(f->pool, job, err);
}

/* Runs a job and waits for its end. The job has at most LIMIT_READS reads, which one thread does at
 * the same time, or, if `items` is NULL, runs file_source_find(). */
static int run(
	struct file_reader *f, struct object_read *items, size_t n, struct penstock_error *err)
{
	struct file_job job = {0};
	int r = start(f, &job, items, n, err);

	if (r == 0)
		return finish(f, &job, err);
	file_pool_cancel(f->pool, &job);
	return r;
}

/* ---- open ---- */

int file_reader_open(struct file_reader **out, struct file_pool *pool,
	const struct file_options *options, struct penstock_error *err)
{
	struct file_reader *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return error_memory(err);
	f->pool = pool;
	f->ahead = options->ahead < LIMIT_FILE_AHEAD_MAX ? options->ahead : LIMIT_FILE_AHEAD_MAX;
	f->stop = options->stop;
	f->cookie = options->cookie;
	f->cancel = options->cancel;
	pthread_mutex_init(&f->lock, NULL);
	r = file_source_new(&f->source, options, err);
	if (r == 0 && options->version && options->known && f->source->kind != FILE_LOCAL &&
		strlen(options->version) < sizeof(f->source->version)) {
		f->source->size = options->size;
		memcpy(f->source->version, options->version, strlen(options->version) + 1);
	} else if (r == 0 && f->source->kind != FILE_LOCAL) {
		r = run(f, NULL, 0, err);
	}
	if (r == 0 && options->version && strcmp(options->version, f->source->version) != 0)
		r = error_set(err, PENSTOCK_E_CHANGED,
			"cannot open '%s': it is no longer the version that was opened before",
			f->source->shown);
	if (r < 0) {
		file_reader_free(f);
		return r;
	}
	*out = f;
	return 0;
}

uint64_t file_reader_size(const struct file_reader *f)
{
	return f->source->size;
}

const char *file_reader_version(const struct file_reader *f)
{
	return f->source->version;
}

/* ---- blocks ---- */

static void free_block(struct file_job *job)
{
	struct block *b = (struct block *)job;

	penstock_error_release(&job->error);
	free(b->item.data);
	free(b);
}

static uint64_t end_of(const struct block *b)
{
	return b->item.offset + b->item.length;
}

/* Under the lock: takes a block out of the list, and frees it unless a read copies from it. */
static void drop(struct file_reader *f, struct block *b)
{
	DL_DELETE(f->blocks, b);
	b->dropped = true;
	if (b->users)
		return;
	/* The next block reuses the memory, unless a thread still writes to it. */
	if (b->item.length == LIMIT_FILE_BLOCK && f->n_spare < SPARE &&
		file_pool_wait(f->pool, &b->job, 0)) {
		f->spare[f->n_spare++] = b->item.data;
		b->item.data = NULL;
	}
	file_pool_abandon(f->pool, &b->job);
}

static void drop_until(struct file_reader *f, uint64_t offset)
{
	while (f->blocks && end_of(f->blocks) <= offset)
		drop(f, f->blocks);
}

void file_reader_free(struct file_reader *f)
{
	if (!f)
		return;
	drop_until(f, UINT64_MAX);
	for (size_t i = 0; i < f->n_spare; i++)
		free(f->spare[i]);
	file_source_unref(f->source);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static struct block *block_at(const struct file_reader *f, uint64_t offset)
{
	struct block *b;

	DL_FOREACH(f->blocks, b)
	{
		if (offset < end_of(b))
			return b->item.offset <= offset ? b : NULL;
	}
	return NULL;
}

/* Under the lock: starts to read a block ahead. Returns false on failure, which is harmless. */
static bool add_block(struct file_reader *f, uint64_t offset, size_t length)
{
	struct block *b = calloc(1, sizeof(*b));
	char *data;

	if (!b)
		return false;
	data = length == LIMIT_FILE_BLOCK && f->n_spare ? f->spare[--f->n_spare] : malloc(length);
	b->item = file_source_read(f->source, offset, length, data);
	b->job.ahead = true;
	b->job.release = free_block;
	if (!data || start(f, &b->job, &b->item, 1, NULL) < 0) {
		file_source_unref(b->job.source);
		free_block(&b->job);
		return false;
	}
	DL_APPEND(f->blocks, b);
	return true;
}

/* Under the lock: reads ahead of the last read if it was sequential. The more bytes were read in
 * sequence, the more are read ahead, in larger requests. */
static void read_ahead(struct file_reader *f)
{
	uint64_t window = f->row < f->ahead / 4 ? 4 * f->row : f->ahead;
	uint64_t left = f->source->size - f->end;
	uint64_t end = f->end + (window < left ? window : left);
	uint64_t at = f->blocks ? end_of(f->blocks->prev) : f->end;
	uint64_t step = window / 8;

	if (!f->sequential)
		return;
	if (step < LIMIT_FILE_BLOCK_MIN)
		step = LIMIT_FILE_BLOCK_MIN;
	if (step > LIMIT_FILE_BLOCK)
		step = LIMIT_FILE_BLOCK;
	if (at < f->end)
		at = f->end;
	while (at < end && (end - at >= step || end == f->source->size)) {
		uint64_t length = end - at < step ? end - at : step;

		if (!add_block(f, at, (size_t)length))
			return;
		at += length;
	}
}

/* ---- reads ---- */

/* Under the lock: records a read. A read that is not sequential drops all blocks. */
static void note(struct file_reader *f, uint64_t offset, uint64_t size)
{
	f->sequential = f->ahead && f->row && (offset == f->end || block_at(f, offset));
	if (f->sequential) {
		f->row += size;
	} else {
		f->row = size;
		drop_until(f, UINT64_MAX);
	}
	f->end = offset + size;
}

static int add_part(struct parts *parts, struct block *block, struct object_read item,
	struct penstock_error *err)
{
	struct part *grown = array_grow(parts->items, parts->n, sizeof(*grown));

	if (!grown)
		return error_memory(err);
	parts->items = grown;
	parts->items[parts->n++] = (struct part){.block = block, .item = item};
	if (block)
		block->users++;
	return 0;
}

/* Under the lock: divides a read into parts. The bytes of a part are in a block of the read-ahead,
 * or need a request. */
static int plan(struct file_reader *f, uint64_t offset, char *data, uint64_t size,
	struct parts *parts, struct penstock_error *err)
{
	uint64_t piece = size / 8, end = offset + size;
	struct block *b = f->blocks;
	int r = 0;

	if (piece < LIMIT_FILE_PIECE_MIN)
		piece = LIMIT_FILE_PIECE_MIN;
	if (piece > LIMIT_FILE_PIECE)
		piece = LIMIT_FILE_PIECE;
	while (r == 0 && offset < end) {
		uint64_t until = end;
		bool within;

		while (b && end_of(b) <= offset)
			b = b->next;
		within = b && b->item.offset <= offset;
		if (within && end_of(b) < until)
			until = end_of(b);
		if (!within && b && b->item.offset < until)
			until = b->item.offset;
		if (!within && until - offset > piece)
			until = offset + piece;
		r = add_part(parts, within ? b : NULL,
			file_source_read(f->source, offset, (size_t)(until - offset), data), err);
		data += until - offset;
		offset = until;
	}
	return r;
}

static int take_from_block(struct file_reader *f, struct part *part, struct penstock_error *err)
{
	const struct object_read *read = &part->block->item;
	int r = await(f, &part->block->job, err);

	if (r < 0)
		return r;
	/* A read-ahead that failed is repeated as a request, whose error counts. */
	if (part->block->job.r < 0)
		return run(f, &part->item, 1, err);
	memcpy(part->item.data, (char *)read->data + (part->item.offset - read->offset),
		part->item.length);
	return 0;
}

static int run_parts(struct file_reader *f, struct parts *parts, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < parts->n; i++) {
		if (!parts->items[i].block)
			r = start(f, &parts->items[i].job, &parts->items[i].item, 1, err);
	}
	pthread_mutex_lock(&f->lock);
	read_ahead(f);
	pthread_mutex_unlock(&f->lock);
	for (size_t i = 0; r == 0 && i < parts->n; i++)
		r = parts->items[i].block ? take_from_block(f, &parts->items[i], err)
					  : finish(f, &parts->items[i].job, err);
	/* After a failure, cancel all requests before waiting for them. */
	for (size_t i = 0; r < 0 && i < parts->n; i++)
		atomic_store(&parts->items[i].job.cancel, 1);
	for (size_t i = 0; r < 0 && i < parts->n; i++)
		file_pool_cancel(f->pool, &parts->items[i].job);
	return r;
}

static void end_parts(struct file_reader *f, struct parts *parts)
{
	pthread_mutex_lock(&f->lock);
	for (size_t i = 0; i < parts->n; i++) {
		struct block *b = parts->items[i].block;

		if (b && --b->users == 0 && b->dropped)
			file_pool_abandon(f->pool, &b->job);
	}
	if (f->end > LIMIT_FILE_BEHIND)
		drop_until(f, f->end - LIMIT_FILE_BEHIND);
	pthread_mutex_unlock(&f->lock);
	free(parts->items);
}

int file_reader_read(struct file_reader *f, uint64_t offset, void *data, size_t size, size_t *got,
	struct penstock_error *err)
{
	uint64_t left = offset < f->source->size ? f->source->size - offset : 0;
	size_t n = size < left ? size : (size_t)left;
	struct parts parts = {0};
	int r;

	if (n && f->source->kind != FILE_LOCAL) {
		pthread_mutex_lock(&f->lock);
		note(f, offset, n);
		r = plan(f, offset, data, n, &parts, err);
		pthread_mutex_unlock(&f->lock);
		if (r == 0)
			r = run_parts(f, &parts, err);
		end_parts(f, &parts);
	} else {
		r = n ? file_source_pread(f->source, offset, data, n, err) : 0;
	}
	if (r == 0)
		*got = n;
	return r;
}

/* ---- ranges ---- */

static int check(
	const struct file_reader *f, const struct file_range *range, struct penstock_error *err)
{
	uint64_t size = f->source->size;

	return range->offset <= size && range->length <= size - range->offset
		       ? 0
		       : error_set(err, PENSTOCK_E_INVALID,
				 "cannot read %zu bytes at %" PRIu64 ": '%s' has %" PRIu64,
				 range->length, range->offset, f->source->shown, size);
}

static int add_pieces(struct file_reader *f, const struct file_range *range,
	struct object_read **items, size_t *n, struct penstock_error *err)
{
	for (size_t at = 0, length; at < range->length; at += length) {
		struct object_read *grown = array_grow(*items, *n, sizeof(*grown));

		if (!grown)
			return error_memory(err);
		length = range->length - at < LIMIT_FILE_PIECE ? range->length - at
							       : LIMIT_FILE_PIECE;
		*items = grown;
		grown[(*n)++] = file_source_read(
			f->source, range->offset + at, length, (char *)range->data + at);
	}
	return 0;
}

int file_reader_ranges(struct file_reader *f, const struct file_range *ranges, size_t n,
	struct penstock_error *err)
{
	_cleanup_free_ struct object_read *items = NULL;
	bool local = f->source->kind == FILE_LOCAL;
	size_t n_items = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = check(f, &ranges[i], err);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = local ? file_source_pread(f->source, ranges[i].offset, ranges[i].data,
				    ranges[i].length, err)
			  : add_pieces(f, &ranges[i], &items, &n_items, err);
	for (size_t i = 0, some; r == 0 && i < n_items; i += some) {
		some = n_items - i < LIMIT_READS ? n_items - i : LIMIT_READS;
		r = run(f, items + i, some, err);
	}
	return r;
}
