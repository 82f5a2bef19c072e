#include <string.h>

#include <penstock/error.h>

#include "base/error.h"
#include "dataset/format/format.h"
#include "dataset/index/internal.h"
#include "s3/sum/checksum.h"
#include "transfer/objects.h"

_Static_assert(sizeof(struct source_entry) == 24, "part of the file");
_Static_assert(sizeof(struct index_part) == 16, "part of the file");
_Static_assert(sizeof(struct index_range) == 16, "part of the file");
_Static_assert(sizeof(struct index_header) == 208, "part of the file");

bool index_tables_of(const struct index_header *h, struct index_tables *t)
{
	bool parts = h->flags & INDEX_PARTS, ranges = h->flags & INDEX_RANGES,
	     sums = h->flags & INDEX_SUMS;

	/* With these bounds the sums below do not overflow. */
	if (h->shards == 0 || h->shards > LIMIT_DATASET_SHARDS ||
		h->samples > (ranges || sums ? LIMIT_DATASET_INDEX : LIMIT_DATASET_SAMPLES) ||
		h->text == 0 || h->text > LIMIT_DATASET_NAMES || h->document >= LIMIT_FORMAT_INDEX)
		return false;
	t->shards = sizeof(*h);
	t->parts = t->shards + h->shards * sizeof(struct source_entry);
	t->ranges = t->parts + (parts ? (h->shards + 1) * sizeof(struct index_part) : 0);
	t->sums = t->ranges + (ranges ? h->samples * sizeof(struct index_range) : 0);
	t->text = t->sums + (sums ? INDEX_PADDED(4 * h->samples) : 0);
	t->document = t->text + INDEX_PADDED(h->text);
	t->end = t->document + h->document;
	return t->end <= LIMIT_DATASET_INDEX;
}

/* Returns true for a relative path without "..". */
static bool is_below(const char *name)
{
	if (*name == '/')
		return false;
	for (const char *part = name; part; part = strchr(part, '/')) {
		part += *part == '/';
		if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == '\0'))
			return false;
	}
	return true;
}

/* These functions return NULL, or the reason why the file is damaged. */

static const char *check_shards(const struct source_list *list)
{
	const char *last = NULL;

	if (list->text[list->text_len - 1] != '\0')
		return "its names are not terminated";
	for (size_t i = 0; i < list->n; i++) {
		const struct source_entry *s = &list->entries[i];
		const char *name;

		if (s->name >= list->text_len || (list->objects && s->etag >= list->text_len))
			return "a name is outside of the index";
		name = list->text + s->name;
		if (!*name)
			return "a name is empty";
		if (last && strcmp(last, name) >= 0)
			return "its names are not in order";
		if (!list->objects && !is_below(name))
			return "a name leads out of the data set";
		if (list->objects &&
			strnlen(list->text + s->etag, OBJECT_ETAG_SIZE) == OBJECT_ETAG_SIZE)
			return "an ETag is too long";
		if (s->size > INT64_MAX)
			return "a size is too large";
		last = name;
	}
	return NULL;
}

static const char *check_samples(const struct index *index)
{
	const struct index_part *parts = index->parts;

	if (!parts)
		return index->samples == index->list.n && !index->ranges
			       ? NULL
			       : "its numbers of shards and samples differ";
	if (parts[0].first != 0 || parts[index->list.n].first != index->samples)
		return "its numbers of samples differ";
	for (size_t i = 0; i < index->list.n; i++) {
		uint64_t size = index->list.entries[i].size;

		if (parts[i].first > parts[i + 1].first || parts[i + 1].first > index->samples)
			return "the samples of its shards are not in order";
		if (parts[i].header == UINT64_MAX && parts[i].first != parts[i + 1].first)
			return "a file that is not a shard has samples";
		for (uint64_t k = parts[i].first; index->ranges && k < parts[i + 1].first; k++) {
			const struct index_range *range = &index->ranges[k];

			if (range->offset > size || range->size > size - range->offset)
				return "a sample is outside of its shard";
		}
	}
	return NULL;
}

static const char *check_settings(const struct index *index)
{
	const struct index_settings *s = &index->settings;

	if (!memchr(index->format, '\0', INDEX_WORD_SIZE) ||
		!memchr(s->dtype, '\0', INDEX_WORD_SIZE) || s->ndim > LIMIT_FORMAT_DIMS ||
		s->big_endian > 1)
		return "its settings are invalid";
	return s->dtype[0] && dtype_find(s->dtype, strlen(s->dtype)) == DTYPE_NONE
		       ? "its type of numbers is unknown"
		       : NULL;
}

static void take(struct index *index, const struct index_header *h, const struct index_tables *t)
{
	const char *data = (const char *)h;

	*index = (struct index){.list = {.objects = h->flags & INDEX_OBJECTS,
					.n = (size_t)h->shards,
					.entries = (const void *)(data + t->shards),
					.text = data + t->text,
					.text_len = (size_t)h->text},
		.settings = h->settings,
		.samples = h->samples};
	memcpy(index->format, h->format, sizeof(h->format));
	if (h->flags & INDEX_PARTS)
		index->parts = (const void *)(data + t->parts);
	if (h->flags & INDEX_RANGES)
		index->ranges = (const void *)(data + t->ranges);
	if (h->flags & INDEX_SUMS)
		index->sums = (const void *)(data + t->sums);
	if (h->document) {
		index->document = data + t->document;
		index->document_len = (size_t)h->document;
	}
}

int index_read(struct index *index, const void *data, size_t len, const char *name,
	struct penstock_error *err)
{
	const struct index_header *h = data;
	const char *fault = NULL;
	struct index_tables t;

	if (len < sizeof(*h) || h->magic != INDEX_MAGIC)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot read '%s': it is not an index of a data set", name);
	if (h->version != INDEX_VERSION)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot read '%s': version %u of the index; only %d is supported", name,
			h->version, INDEX_VERSION);
	if (h->size != len || !index_tables_of(h, &t) || t.end != len)
		fault = "it is truncated, or its size differs from the declared size";
	else if (h->sum != crc32c_update(0, (const char *)data + INDEX_SUMMED, len - INDEX_SUMMED))
		fault = "its checksum is wrong";
	if (!fault) {
		take(index, h, &t);
		fault = check_settings(index);
	}
	if (!fault)
		fault = check_shards(&index->list);
	if (!fault)
		fault = check_samples(index);
	return fault ? error_set(err, PENSTOCK_E_CORRUPT, "cannot read '%s': %s", name, fault) : 0;
}

bool index_stays_below(const struct index *index)
{
	for (size_t i = 0; i < index->list.n; i++) {
		if (!is_below(index->list.text + index->list.entries[i].name))
			return false;
	}
	return true;
}
