/* Reads samples: joins neighbours, reads the ranges, and puts the samples where they belong. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/internal.h"

/* A sample of the batch. */
struct piece {
	struct dataset_place at;
	char *to;
};

/* Pieces that one range contains; those of the batch in the order of their places. */
struct join {
	size_t first, n;
	char *bytes; /* NULL: the range goes straight to its only piece */
};

struct batch {
	struct piece *pieces;
	struct join *joins;
	struct source_read *reads; /* one for each join */
	size_t n_joins;
};

static int by_place(const void *x, const void *y)
{
	const struct dataset_place *a = &((const struct piece *)x)->at;
	const struct dataset_place *b = &((const struct piece *)y)->at;

	if (a->shard != b->shard)
		return a->shard < b->shard ? -1 : 1;
	return (a->offset > b->offset) - (a->offset < b->offset);
}

static void batch_release(struct batch *b)
{
	for (size_t i = 0; b->reads && i < b->n_joins; i++)
		penstock_error_release(&b->reads[i].error);
	free(b->pieces);
	free(b->joins);
	free(b->reads);
}

/* A range grows as long as the next piece is near, and straight into place as long as the pieces
 * are next to each other there, too. */
static void join_pieces(struct batch *b, size_t n, uint64_t gap)
{
	b->n_joins = 0;
	for (size_t i = 0; i < n;) {
		const struct piece *first = &b->pieces[i];
		uint64_t end = first->at.offset + first->at.size;
		struct join *join = &b->joins[b->n_joins];
		bool straight = true;

		*join = (struct join){.first = i};
		for (i++; i < n; i++) {
			const struct piece *p = &b->pieces[i];
			uint64_t to = p->at.offset + p->at.size;

			if (p->at.shard != first->at.shard || p->at.offset > end + gap ||
				to - first->at.offset > LIMIT_DATASET_JOIN)
				break;
			straight &= p->at.offset == end &&
				    p->to == first->to + (p->at.offset - first->at.offset);
			end = to > end ? to : end;
		}
		join->n = i - join->first;
		b->reads[b->n_joins++] = (struct source_read){.shard = first->at.shard,
			.offset = first->at.offset,
			.length = (size_t)(end - first->at.offset),
			.data = straight ? first->to : NULL};
	}
}

static size_t scratch_of(const struct batch *b)
{
	size_t bytes = 0;

	for (size_t i = 0; i < b->n_joins; i++)
		bytes += b->reads[i].data ? 0 : b->reads[i].length;
	return bytes;
}

static int batch_plan(
	struct batch *b, size_t n, struct source_reader *reader, struct penstock_error *err)
{
	size_t bytes;
	char *memory;

	join_pieces(b, n, LIMIT_DATASET_GAP);
	bytes = scratch_of(b);
	if (bytes > LIMIT_DATASET_GAPS) {
		join_pieces(b, n, 0);
		bytes = scratch_of(b);
	}
	memory = bytes ? source_reader_memory(reader, bytes) : NULL;
	if (bytes && !memory)
		return error_memory(err);
	bytes = 0;
	for (size_t i = 0; i < b->n_joins; i++) {
		if (b->reads[i].data)
			continue;
		b->joins[i].bytes = memory + bytes;
		b->reads[i].data = b->joins[i].bytes;
		bytes += b->reads[i].length;
	}
	return 0;
}

static void scatter(const struct batch *b)
{
	for (size_t i = 0; i < b->n_joins; i++) {
		const struct join *join = &b->joins[i];

		for (size_t k = join->first; join->bytes && k < join->first + join->n; k++) {
			const struct piece *p = &b->pieces[k];

			memcpy(p->to, join->bytes + (p->at.offset - b->reads[i].offset),
				(size_t)p->at.size);
		}
	}
}

/* The first that failed, with its place. */
static int first_failure(const struct dataset *set, struct batch *b, struct penstock_error *err)
{
	for (size_t i = 0; i < b->n_joins; i++) {
		struct source_read *read = &b->reads[i];

		if (!read->error.code)
			continue;
		error_move(err, &read->error);
		return error_prefix(err, "cannot read '%s' of '%s' at byte %" PRIu64,
			source_name(set->source, read->shard), source_url(set->source),
			read->offset);
	}
	return 0;
}

int dataset_read(struct dataset *set, const uint64_t *ids, size_t n, void *data,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(batch_release) struct batch b = {0};
	struct source_reader *reader;
	char *to = data;
	size_t used = 0;
	int r;

	if (n == 0)
		return 0;
	b.pieces = calloc(n, sizeof(*b.pieces));
	b.joins = calloc(n, sizeof(*b.joins));
	b.reads = calloc(n, sizeof(*b.reads));
	if (!b.pieces || !b.joins || !b.reads)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		struct piece p = {.to = to};

		if (ids[i] >= set->count)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot read sample %" PRIu64 " of '%s': it has %" PRIu64, ids[i],
				source_url(set->source), set->count);
		p.at = dataset_find(set, ids[i]);
		to += p.at.size;
		if (p.at.size)
			b.pieces[used++] = p;
	}
	qsort(b.pieces, used, sizeof(*b.pieces), by_place);
	r = dataset_take_reader(set, &reader, err);
	if (r < 0)
		return r;
	r = batch_plan(&b, used, reader, err);
	if (r == 0)
		r = source_read(reader, b.reads, b.n_joins, cancel, err);
	if (r == 0)
		scatter(&b);
	dataset_give_reader(set, reader);
	return r > 0 ? first_failure(set, &b, err) : r;
}
