#include "dataset/dataset.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/format/litdata/litdata.h"
#include "dataset/format/mds/mds.h"
#include "dataset/internal.h"

/* Finds the samples if there is no index next to the shards. */
static int find(
	struct dataset *set, const struct dataset_options *options, struct penstock_error *err)
{
	int64_t start;
	int claim;
	int r;

	if (options->fresh)
		return dataset_find_samples(set, options, err);
	if (dataset_use_kept(set, options))
		return 0;
	if (dataset_claim_scan(set, options, &claim) && dataset_use_kept(set, options)) {
		dataset_release_scan(set, options, claim);
		return 0;
	}
	start = clock_monotonic_ms();
	r = dataset_find_samples(set, options, err);
	if (r == 0 && set->shards && !source_is_packed(set->source) &&
		clock_monotonic_ms() - start >= LIMIT_DATASET_SCAN_MS)
		dataset_keep(set, options);
	dataset_release_scan(set, options, claim);
	return r;
}

/* Refuses options of another format: samples would silently differ if such options were ignored. */
static int check_options(
	const struct dataset *set, const struct dataset_options *o, struct penstock_error *err)
{
	const struct {
		const char *name, *format;
		bool given;
	} rows[] = {{"record_size", "records", o->record_size}, {"header", "records", o->header},
		{"trailer", "records", o->trailer}, {"window", "tokens", o->window},
		{"stride", "tokens", o->stride}, {"dtype", "tokens", o->dtype != DTYPE_NONE}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].given && strcmp(rows[i].format, set->name) != 0)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot open '%s': its format is '%s', and '%s' is an option of "
				"'%s'; set the format",
				source_url(set->source), set->name, rows[i].name, rows[i].format);
	}
	return 0;
}

static int set_decoding(
	struct dataset *set, const struct dataset_options *options, struct penstock_error *err)
{
	static const char *const formats[] = {"objects", "tar", "mds", "litdata"};
	uint32_t height = options->decode_height, width = options->decode_width;
	bool known = false;

	if (!height && !width)
		return options->decode_column
			       ? error_set(err, PENSTOCK_E_INVALID,
					 "cannot decode column '%s' of '%s': the size of the "
					 "decoded images is missing; give a height and a width",
					 options->decode_column, source_url(set->source))
			       : 0;
	if (!height || !width || height > LIMIT_JPEG_SIDE || width > LIMIT_JPEG_SIDE)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot decode images to %" PRIu32 " x %" PRIu32
			" pixels; use 1 to %u for each side",
			height, width, LIMIT_JPEG_SIDE);
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
		known |= strcmp(set->name, formats[i]) == 0;
	if (!known || (options->decode_column && !set->shards))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot decode %s of '%s': samples of format '%s' have none",
			known ? "a column" : "JPEG images", source_url(set->source), set->name);
	set->image = (struct jpeg_size){.height = height, .width = width};
	if (!options->decode_column)
		return 0;
	set->column = strdup(options->decode_column);
	return set->column ? 0 : error_memory(err);
}

int dataset_open(
	struct dataset **out, const struct dataset_options *options, struct penstock_error *err)
{
	struct dataset_indexed indexed = {
		.options = options, .bytes = BUF_INIT(LIMIT_DATASET_INDEX)};
	struct source_place place = options->place;
	struct dataset *set = calloc(1, sizeof(*set));
	int r;

	if (!set)
		return error_memory(err);
	buf_init(&set->document, LIMIT_FORMAT_INDEX);
	place.named = dataset_named;
	place.listed = options->fresh ? NULL : dataset_listed;
	place.listed_cookie = &indexed;
	pthread_mutex_init(&set->lock, NULL);
	atomic_store(&set->pid, getpid());
	r = source_open(&set->source, &place, err);
	if (r == 0 && indexed.bytes.len)
		r = dataset_use_index(set, &indexed.index, &indexed.bytes, err);
	else if (r == 0)
		r = find(set, options, err);
	if (r == 0)
		r = check_options(set, options, err);
	if (r == 0)
		r = set_decoding(set, options, err);
	if (r == 0 && options->labels)
		r = dataset_find_labels(set, err);
	if (r == 0 && set->count == 0)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot open '%s' as %s: none of its %zu %s has a sample",
			source_url(set->source), set->name, source_count(set->source),
			source_count(set->source) == 1 ? "file" : "files");
	if (r < 0) {
		dataset_free(set);
		buf_release(&indexed.bytes);
		return r;
	}
	source_opened(set->source);
	*out = set;
	return 0;
}

void dataset_free(struct dataset *set)
{
	if (!set)
		return;
	/* A child after fork() does not free the readers of its parent: a thread of the parent may
	 * have been changing the list. */
	for (size_t i = 0; i < set->n_idle && atomic_load(&set->pid) == getpid(); i++)
		source_reader_free(set->idle[i]);
	source_free(set->source);
	dataset_free_labels(set);
	dataset_forget_samples(set);
	buf_release(&set->document);
	free(set->column);
	pthread_mutex_destroy(&set->lock);
	free(set);
}

size_t dataset_shards(const struct dataset *set)
{
	size_t n = 0;

	for (size_t i = 0; set->shards && i < source_count(set->source); i++)
		n += set->shards[i].format != NULL;
	return set->shards ? n : source_count(set->source);
}

uint64_t dataset_count(const struct dataset *set)
{
	return set->count;
}

const char *dataset_format(const struct dataset *set)
{
	return set->name;
}

uint64_t dataset_sample_size(const struct dataset *set)
{
	if (!set->image.height)
		return set->sample_size;
	if (set->labels)
		return 0;
	return set->shards ? 0 : jpeg_bytes(&set->image);
}

const struct source *dataset_source(const struct dataset *set)
{
	return set->source;
}

static size_t shard_of(const struct dataset *set, uint64_t id)
{
	size_t low = 0, high = source_count(set->source);

	/* Find the last shard whose first sample is at most `id`; shards may be empty. */
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (set->shards[middle].first <= id)
			low = middle;
		else
			high = middle;
	}
	return low;
}

struct dataset_place dataset_find(const struct dataset *set, uint64_t id)
{
	struct dataset_place place;
	const struct records *r;

	if (!set->shards)
		return (struct dataset_place){
			.shard = (size_t)id, .size = source_size(set->source, (size_t)id)};
	place.shard = shard_of(set, id);
	if (!set->has_records) {
		place.offset = set->ranges[id].offset;
		place.size = set->ranges[id].size;
		return place;
	}
	r = &set->shards[place.shard].records;
	place.offset = r->header + (id - set->shards[place.shard].first) * r->stride;
	place.size = r->size;
	return place;
}

int dataset_no_sample(
	const struct dataset *set, const char *verb, uint64_t id, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot %s sample %" PRIu64 " of '%s': the data set has %" PRIu64, verb, id,
		source_url(set->source), set->count);
}

int dataset_layout(const struct dataset *set, const uint64_t *ids, size_t n, uint64_t *offsets,
	struct penstock_error *err)
{
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t size;

		if (ids[i] >= set->count)
			return dataset_no_sample(set, "read", ids[i], err);
		size = dataset_pixels(set);
		if (!size || set->shards)
			size += dataset_find(set, ids[i]).size;
		offsets[i] = at;
		if (size > LIMIT_DATASET_BYTES - at)
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot read %zu samples of '%s' at a time: they have more than "
				"%zu GiB; make the batch smaller",
				n, source_url(set->source), LIMIT_DATASET_BYTES / GIB);
		at += size;
	}
	offsets[n] = at;
	return 0;
}

int dataset_split_stored(const struct dataset *set, uint64_t id, const void *data, size_t size,
	struct format_fields *out, struct penstock_error *err)
{
	struct dataset_place place;
	int r;

	if (!set->shards) {
		out->n = 1;
		out->items[0] = (struct format_field){.name = "data",
			.name_len = 4,
			.data = data,
			.size = size,
			.type = FORMAT_BYTES};
		return 0;
	}
	place = dataset_find(set, id);
	r = set->shards[place.shard].format->split(set->shards[place.shard].format,
		&(struct format_piece){.shard = source_name(set->source, place.shard),
			.offset = place.offset,
			.data = data,
			.size = size},
		out, err);
	return r < 0 ? error_prefix(err, "cannot read sample %" PRIu64 " of '%s'", id,
			       source_url(set->source))
		     : 0;
}
