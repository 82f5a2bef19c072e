/* Reads, uses and makes the index of a data set. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "dataset/format/detect.h"
#include "dataset/format/litdata/litdata.h"
#include "dataset/format/mds/mds.h"
#include "dataset/internal.h"

_Static_assert(sizeof(struct dataset_range) == sizeof(struct index_range) &&
		       offsetof(struct dataset_range, size) == offsetof(struct index_range, size),
	"ranges of an index are used as they are");

/* ---- settings ---- */

/* Returns true if the index has the format and the settings of the options, or if the options have
 * no format. */
static bool is_wanted(const struct index *index, const struct dataset_options *options)
{
	struct index_settings s;

	if (!options->format)
		return true;
	if (strcmp(options->format, index->format) != 0)
		return false;
	if (strcmp(index->format, "records") != 0 && strcmp(index->format, "tokens") != 0)
		return true;
	s = dataset_settings(index->format, options);
	return memcmp(&s, &index->settings, sizeof(s)) == 0;
}

/* ---- reading ---- */

int dataset_listed(void *cookie, const struct source *source, struct source_list *out,
	struct penstock_error *err)
{
	struct dataset_indexed *in = cookie;
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	bool copied;
	int r = source_get(source, INDEX_NAME, in->options->place.cancel, &in->bytes, &own);

	/* If the credentials do not permit listing, stores deny access to a missing object. */
	if (r == -(int)PENSTOCK_E_NOT_FOUND || r == -(int)PENSTOCK_E_PERMISSION)
		return 0;
	if (r == 0)
		r = index_read(&in->index, in->bytes.data, in->bytes.len, INDEX_NAME, &own);
	copied = r == 0 && in->index.list.objects != source_list(source).objects;
	/* Without checksums of the samples, damage of a copy would not be detected. */
	if (copied && !in->index.sums && !source_is_web(source))
		r = error_set(&own, PENSTOCK_E_CORRUPT,
			"cannot read '" INDEX_NAME "': it was copied between a directory and a "
			"store");
	else if (copied && !index_stays_below(&in->index))
		r = error_set(&own, PENSTOCK_E_CORRUPT,
			"cannot read '" INDEX_NAME "': a name leads out of the directory");
	if (r == -(int)PENSTOCK_E_CORRUPT || r == -(int)PENSTOCK_E_UNSUPPORTED)
		error_suffix(&own,
			"; rebuild the index with 'penstock dataset index %s', or remove the index",
			dataset_index_operand(source));
	if (r < 0) {
		error_prefix(&own, "cannot open '%s'", source_url(source));
		return error_move(err, &own);
	}
	if (!is_wanted(&in->index, in->options)) {
		log_debug("the index of '%s' is of the format '%s' or has other settings",
			source_url(source), in->index.format);
		buf_release(&in->bytes);
		return 0;
	}
	*out = in->index.list;
	return 1;
}

const char *dataset_index_operand(const struct source *source)
{
	return source_is_web(source) ? "DIRECTORY" : source_url(source);
}

/* ---- files of an index.json ---- */

static int add_name(struct strlist *out, const char *name, struct penstock_error *err)
{
	return strlist_add(out, name) < 0 ? error_memory(err) : 0;
}

static int add_mds(const struct buf *text, struct strlist *out, struct penstock_error *err)
{
	_cleanup_(mds_index_freep) struct mds_index *index = NULL;
	int r = mds_index_parse(&index, text->data, text->len, "index.json", err);

	for (size_t i = 0; r == 0 && i < index->n; i++) {
		const struct mds_shard *shard = &index->shards[i];

		r = add_name(
			out, shard->zip.basename ? shard->zip.basename : shard->raw.basename, err);
	}
	return r;
}

static int add_litdata(const struct buf *text, struct strlist *out, struct penstock_error *err)
{
	_cleanup_(litdata_index_freep) struct litdata_index *index = NULL;
	int r = litdata_index_parse(&index, text->data, text->len, "index.json", err);

	for (size_t i = 0; r == 0 && i < index->n; i++)
		r = add_name(out, index->chunks[i].filename, err);
	return r;
}

int dataset_named(
	void *cookie, const struct source *source, struct strlist *out, struct penstock_error *err)
{
	const struct dataset_indexed *in = cookie;
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_FORMAT_INDEX);
	int r = source_get(source, "index.json", in->options->place.cancel, &text, &own);
	struct detect_object object = {.name = "index.json", .size = text.len, .head = text.data};
	const char *reason;

	/* As for the index, a store may deny access to a missing object. */
	if (r == -(int)PENSTOCK_E_NOT_FOUND || r == -(int)PENSTOCK_E_PERMISSION)
		return 0;
	object.head_len = text.len < DETECT_BYTES ? text.len : DETECT_BYTES;
	switch (r < 0 ? FORMAT_KIND_COUNT_ : format_detect(&object, &reason)) {
	case FORMAT_KIND_COUNT_:
		break;
	case FORMAT_KIND_MDS:
		r = add_mds(&text, out, &own);
		break;
	case FORMAT_KIND_LITDATA:
		r = add_litdata(&text, out, &own);
		break;
	default:
		r = error_set(&own, PENSTOCK_E_UNSUPPORTED,
			"its index.json lists no shards of MosaicML and no chunks of litData");
	}
	if (r == 0)
		return add_name(out, "index.json", err);
	error_prefix(&own, "cannot open '%s'", source_url(source));
	return error_move(err, &own);
}

/* ---- using ---- */

static int does_not_fit(const struct dataset *set, const char *reason, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CORRUPT,
		"cannot open '%s': its index is invalid: %s; rebuild the index with 'penstock "
		"dataset index %s'",
		source_url(set->source), reason, dataset_index_operand(set->source));
}

static int init_records(const struct dataset *set, const struct index *index, size_t shard,
	struct records *records, struct penstock_error *err)
{
	const struct index_settings *s = &index->settings;
	struct npy array = {.dtype = dtype_find(s->dtype, strlen(s->dtype)),
		.big_endian = s->big_endian,
		.ndim = s->ndim + 1,
		.dims = {index->parts[shard + 1].first - index->parts[shard].first},
		.offset = index->parts[shard].header};
	const char *fault;

	if (strcmp(set->name, "tokens") == 0) {
		int r = dataset_init_records(set, records, err);

		records->header = array.offset;
		return array.offset > LIMIT_S3_OBJECT_MAX
			       ? does_not_fit(set, "the header of its tokens is too large", err)
			       : r;
	}
	if (strcmp(set->name, "npy") != 0 && strcmp(set->name, "idx") != 0)
		return dataset_init_records(set, records, err);
	if (array.ndim > LIMIT_FORMAT_DIMS || array.offset > LIMIT_NPY_HEADER)
		return does_not_fit(set, "the header or the shape of its arrays is too large", err);
	memcpy(array.dims + 1, s->dims, s->ndim * sizeof(s->dims[0]));
	fault = records_of_array(records, set->name, &array);
	return fault ? does_not_fit(set, fault, err) : 0;
}

static int use_records(
	struct dataset *set, const struct index *index, size_t i, struct penstock_error *err)
{
	struct dataset_shard *shard = &set->shards[i];
	struct shard_reader reader = {
		.name = source_name(set->source, i), .size = source_size(set->source, i)};
	uint64_t n = 0;
	int r = init_records(set, index, i, &shard->records, err);

	if (r == 0)
		r = records_count(&shard->records, &reader, &n, err);
	if (r < 0)
		return r;
	if (n != index->parts[i + 1].first - shard->first)
		return does_not_fit(set, "it declares a wrong number of records for a shard", err);
	shard->format = &shard->records.format;
	set->sample_size = shard->records.size;
	return 0;
}

static int use_shards(struct dataset *set, const struct index *index, struct penstock_error *err)
{
	bool indexed = !set->format && !set->has_records;
	int r = 0;

	if (!index->parts || (!index->ranges) != set->has_records || (!index->document) == indexed)
		return does_not_fit(set, "it lacks tables of its format", err);
	if (indexed && buf_add(&set->document, index->document, index->document_len) < 0)
		return buf_error(&set->document, "index.json", err);
	if (indexed)
		r = dataset_parse_document(set, err);
	for (size_t i = 0; r == 0 && i <= index->list.n; i++) {
		struct dataset_shard *shard = &set->shards[i];

		shard->first = index->parts[i].first;
		if (i == index->list.n || index->parts[i].header == UINT64_MAX)
			continue;
		if (set->has_records)
			r = use_records(set, index, i, err);
		else if (set->format)
			shard->format = set->format;
		if (r == 0 && !shard->format)
			r = does_not_fit(set, "its index.json does not list a shard", err);
	}
	return r;
}

int dataset_use_index(struct dataset *set, const struct index *index, struct buf *bytes,
	struct penstock_error *err)
{
	int r = dataset_set_format(set, index->format, err);

	if (r < 0)
		return r;
	set->settings = index->settings;
	if (set->shards)
		r = use_shards(set, index, err);
	else if (index->parts)
		r = does_not_fit(set, "it has the tables of another format", err);
	set->index = *bytes;
	*bytes = (struct buf){0};
	set->origin = DATASET_INDEXED;
	set->count = index->samples;
	set->ranges = (struct dataset_range *)(uintptr_t)index->ranges;
	set->sums = index->sums;
	return r;
}

void dataset_forget_samples(struct dataset *set)
{
	mds_index_free(set->mds);
	litdata_index_free(set->litdata);
	free(set->shards);
	if (!set->index.len)
		free(set->ranges);
	buf_release(&set->index);
	buf_clear(&set->document);
	set->mds = NULL;
	set->litdata = NULL;
	set->shards = NULL;
	set->ranges = NULL;
	set->sums = NULL;
	set->name = NULL;
	set->format = NULL;
	set->has_records = false;
	set->count = 0;
	set->sample_size = 0;
}

/* ---- making ---- */

/* Sets type and shape of a row, which are the same in all shards. */
static void set_array(struct index *index, const struct records *records)
{
	const struct record_column *c = &records->columns[0];
	const char *dtype = dtype_name(c->dtype);

	memset(index->settings.dtype, 0, sizeof(index->settings.dtype));
	memcpy(index->settings.dtype, dtype, strlen(dtype));
	index->settings.big_endian = c->big_endian;
	index->settings.ndim = c->ndim;
	memcpy(index->settings.dims, c->dims, sizeof(c->dims));
}

int dataset_make_index(const struct dataset *set, struct buf *out, struct penstock_error *err)
{
	struct index index = {.list = source_list(set->source),
		.settings = set->settings,
		.samples = set->count,
		.sums = set->sums,
		.ranges = (const struct index_range *)set->ranges};
	bool arrays = strcmp(set->name, "npy") == 0 || strcmp(set->name, "idx") == 0;
	_cleanup_free_ struct index_part *parts = NULL;

	/* An index would have offsets in the uncompressed content, but sizes of the compressed
	 * shards. */
	if (source_is_packed(set->source))
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot index '%s': its shards are compressed; write the samples as another data "
			"set with 'penstock pack'",
			source_url(set->source));
	memcpy(index.format, set->name, strlen(set->name));
	if (set->document.len) {
		index.document = set->document.data;
		index.document_len = set->document.len;
	}
	if (set->shards) {
		parts = calloc(index.list.n + 1, sizeof(*parts));
		if (!parts)
			return error_memory(err);
		index.parts = parts;
	}
	for (size_t i = 0; set->shards && i <= index.list.n; i++) {
		const struct dataset_shard *shard = &set->shards[i];

		parts[i].first = shard->first;
		parts[i].header = shard->format ? shard->records.header : UINT64_MAX;
		if (arrays && shard->format)
			set_array(&index, &shard->records);
	}
	return index_write(&index, out, err);
}

int dataset_write_index(
	const struct dataset *set, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_DATASET_INDEX);
	int r = dataset_make_index(set, &out, err);

	return r < 0 ? r : source_put(set->source, INDEX_NAME, out.data, out.len, cancel, err);
}

enum dataset_origin dataset_origin(const struct dataset *set)
{
	return set->origin;
}

/* Returns true if the shards have the same names and sizes, and the index has the checksums of the
 * samples. */
static bool is_copy(const struct dataset *set, const struct dataset *fresh)
{
	size_t n = source_count(set->source);
	bool same = set->sums && n == source_count(fresh->source);

	for (size_t i = 0; same && i < n; i++)
		same = strcmp(source_name(set->source, i), source_name(fresh->source, i)) == 0 &&
		       source_size(set->source, i) == source_size(fresh->source, i);
	return same;
}

enum dataset_state dataset_compare(const struct dataset *set, const struct dataset *fresh)
{
	if (source_list_equal(source_list(set->source), source_list(fresh->source)))
		return DATASET_CURRENT;
	return is_copy(set, fresh) ? DATASET_COPIED : DATASET_OUTDATED;
}
