/* Reads samples, and joins samples with small gaps between them into ranges. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/internal.h"
#include "s3/sum/checksum.h"

/* A gap before a sample is read, not skipped, if the gap has at most GAP_SMALL bytes plus GAP_RATIO
 * times the size of the sample, and at most LIMIT_DATASET_GAP bytes. */
#define GAP_SMALL (4 * KIB)
#define GAP_RATIO 16

/* A sample of the batch. */
struct sample {
	struct dataset_place at;
	char *to;
	uint64_t id;
};

struct batch {
	struct sample *samples; /* in the order of their places */
	struct read_piece *pieces; /* one for each sample */
	struct source_read *reads; /* ranges of samples with small gaps between them */
	size_t n_reads;
};

static int by_place(const void *x, const void *y)
{
	const struct dataset_place *a = &((const struct sample *)x)->at;
	const struct dataset_place *b = &((const struct sample *)y)->at;

	if (a->shard != b->shard)
		return a->shard < b->shard ? -1 : 1;
	return (a->offset > b->offset) - (a->offset < b->offset);
}

static void batch_release(struct batch *b)
{
	for (size_t i = 0; b->reads && i < b->n_reads; i++)
		penstock_error_release(&b->reads[i].error);
	free(b->samples);
	free(b->pieces);
	free(b->reads);
}

/* Returns the size up to which a gap before a sample is read rather than skipped with another
 * request. The size grows with the size of the sample, because on a slow network the bytes of a
 * large gap would take longer than a request. */
static uint64_t gap_before(const struct sample *s)
{
	uint64_t gap = GAP_SMALL + GAP_RATIO * s->at.size;

	return gap < LIMIT_DATASET_GAP ? gap : LIMIT_DATASET_GAP;
}

/* A range grows up to LIMIT_DATASET_JOIN bytes as long as the gap before the next sample is small
 * (gap_before()). A range is received directly into the caller's memory if its samples are adjacent
 * in the shard and in this memory. */
static void join_samples(struct batch *b, size_t n)
{
	b->n_reads = 0;
	for (size_t i = 0; i < n;) {
		const struct sample *first = &b->samples[i];
		struct source_read *read = &b->reads[b->n_reads++];
		uint64_t end = first->at.offset;
		bool straight = true;

		*read = (struct source_read){.shard = first->at.shard,
			.offset = first->at.offset,
			.pieces.items = b->pieces + i};
		for (; i < n; i++) {
			const struct sample *s = &b->samples[i];
			uint64_t at = s->at.offset - read->offset, to = s->at.offset + s->at.size;

			if (s != first &&
				(s->at.shard != read->shard || s->at.offset > end + gap_before(s) ||
					at + s->at.size > LIMIT_DATASET_JOIN))
				break;
			straight &= s->at.offset == end && s->to == first->to + at;
			end = to > end ? to : end;
			b->pieces[i] = (struct read_piece){
				.at = at, .length = (size_t)s->at.size, .to = s->to};
			read->pieces.n++;
		}
		read->length = (size_t)(end - read->offset);
		read->data = straight ? first->to : NULL;
	}
}

/* Adds a hint to the error of a shard that was replaced or removed. If the data set has an index
 * next to the shards, the error becomes PENSTOCK_E_CHANGED. */
static void explain(const struct dataset *set, struct penstock_error *error)
{
	if (error->code != PENSTOCK_E_CHANGED && error->code != PENSTOCK_E_NOT_FOUND)
		return;
	if (set->origin != DATASET_INDEXED) {
		if (error->code == PENSTOCK_E_NOT_FOUND)
			error_suffix(error, "; the shard existed when the data set was opened");
		return;
	}
	error->code = PENSTOCK_E_CHANGED;
	error_suffix(error,
		"; the index of the data set is out of date; rebuild the index with 'penstock "
		"dataset index %s'",
		dataset_index_operand(set->source));
}

/* Returns the error of the first read that failed, with its place. */
static int first_failure(const struct dataset *set, struct batch *b, struct penstock_error *err)
{
	for (size_t i = 0; i < b->n_reads; i++) {
		struct source_read *read = &b->reads[i];

		if (!read->error.code)
			continue;
		explain(set, &read->error);
		error_prefix(&read->error, "cannot read '%s' of '%s' at byte %" PRIu64,
			source_name(set->source, read->shard), source_url(set->source),
			read->offset);
		return error_move(err, &read->error);
	}
	return 0;
}

static int wrong_sum(
	const struct dataset *set, const struct sample *sample, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	bool copied = source_accepts_versions(set->source);

	error_set(&own, copied ? PENSTOCK_E_CHANGED : PENSTOCK_E_CORRUPT,
		"cannot read '%s' of '%s' at byte %" PRIu64 ": sample %" PRIu64
		" does not match its checksum in the index",
		source_name(set->source, sample->at.shard), source_url(set->source),
		sample->at.offset, sample->id);
	if (copied)
		error_suffix(&own,
			"; the shard was replaced, or damaged by a copy: repeat the copy, or "
			"rebuild the index with 'penstock dataset index %s'",
			dataset_index_operand(set->source));
	return error_move(err, &own);
}

/* Compares the checksums of the `used` samples of the batch with those in the index, if the index
 * has checksums. Empty samples are not among them. */
static int verify(
	const struct dataset *set, const struct batch *b, size_t used, struct penstock_error *err)
{
	for (size_t i = 0; set->sums && i < used; i++) {
		const struct sample *s = &b->samples[i];

		if (crc32c_update(0, s->to, (size_t)s->at.size) != set->sums[s->id])
			return wrong_sum(set, s, err);
	}
	return 0;
}

static bool has_changed(const struct batch *b)
{
	for (size_t i = 0; i < b->n_reads; i++) {
		if (b->reads[i].error.code == PENSTOCK_E_CHANGED)
			return true;
	}
	return false;
}

/* If a shard has another version than in the index, the shard may be a copy with the same samples.
 * So if the index has checksums of the samples, versions are not compared from then on, and
 * verify() finds samples that differ. On the web, another version is always an error. */
static int read_batch(const struct dataset *set, struct source_reader *reader, struct batch *b,
	size_t used, const atomic_int *cancel, struct penstock_error *err)
{
	bool strict = !source_accepts_versions(set->source);
	int r;

	join_samples(b, used);
	r = source_read(reader, b->reads, b->n_reads, cancel, err);
	if (r <= 0 || !set->sums || !strict || source_is_web(set->source) || !has_changed(b))
		return r;
	source_accept_versions(set->source);
	for (size_t i = 0; i < b->n_reads; i++)
		penstock_error_release(&b->reads[i].error);
	join_samples(b, used);
	return source_read(reader, b->reads, b->n_reads, cancel, err);
}

int dataset_read_stored(struct dataset *set, const uint64_t *ids, size_t n, size_t gap, char *data,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(batch_release) struct batch b = {0};
	struct source_reader *reader;
	size_t used = 0;
	int r;

	if (n == 0)
		return 0;
	b.samples = calloc(n, sizeof(*b.samples));
	b.pieces = calloc(n, sizeof(*b.pieces));
	b.reads = calloc(n, sizeof(*b.reads));
	if (!b.samples || !b.pieces || !b.reads)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		struct sample s = {.to = data + gap, .id = ids[i]};

		if (ids[i] >= set->count)
			return dataset_no_sample(set, "read", ids[i], err);
		s.at = dataset_find(set, ids[i]);
		data = s.to + s.at.size;
		if (s.at.size)
			b.samples[used++] = s;
	}
	qsort(b.samples, used, sizeof(*b.samples), by_place);
	r = dataset_take_reader(set, &reader, err);
	if (r < 0)
		return r;
	r = read_batch(set, reader, &b, used, cancel, err);
	if (r == 0)
		r = verify(set, &b, used, err);
	dataset_give_reader(set, reader);
	return r > 0 ? first_failure(set, &b, err) : r;
}
