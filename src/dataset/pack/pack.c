#include "dataset/pack/pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "base/thread.h"
#include "dataset/format/mds/mds.h"
#include "dataset/format/tar_walk.h"
#include "dataset/pack/internal.h"
#include "s3/sum/checksum.h"

/* Bytes and samples that are read at a time for one shard. */
#define BATCH_BYTES   (8 * MIB)
#define BATCH_SAMPLES 1024
/* Estimate of the bytes around a value: the header of a member of a tar. */
#define VALUE_BYTES 512
#define SHARDS_MAX  1000000 /* names of shards have six digits */
/* Objects per sample; a label and a key may become fields, too. */
#define OBJECTS_MAX (LIMIT_FORMAT_FIELDS - 2)

/* ---- the plan ---- */

static uint64_t first_of(const struct pack *p, uint64_t unit)
{
	return p->first ? p->first[unit] : unit;
}

static size_t key_length(const char *name)
{
	const char *ext;
	size_t len;

	return tar_split_name(name, &len, &ext) ? len : strlen(name);
}

/* Makes one unit of adjacent objects that have the same key. */
static int group_objects(struct pack *p, struct penstock_error *err)
{
	const struct source *source = dataset_source(p->set);
	size_t n = source_count(source), last_len = 0;

	p->first = calloc(n + 1, sizeof(*p->first));
	if (!p->first)
		return error_memory(err);
	p->units = 0;
	for (size_t i = 0; i < n; i++) {
		const char *name = source_name(source, i);
		size_t len = key_length(name);

		if (i == 0 || len != last_len || memcmp(name, source_name(source, i - 1), len) != 0)
			p->first[p->units++] = i;
		last_len = len;
		if (i - p->first[p->units - 1] >= OBJECTS_MAX)
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot pack '%s': more than %d objects differ only in their "
				"extensions",
				name, OBJECTS_MAX);
	}
	p->first[p->units] = n;
	return 0;
}

static uint64_t unit_bytes(const struct pack *p, uint64_t unit)
{
	uint64_t bytes = 0;

	for (uint64_t id = first_of(p, unit); id < first_of(p, unit + 1); id++)
		bytes += dataset_find(p->set, id).size + (p->format->fields ? VALUE_BYTES : 0);
	return bytes;
}

/* Divides the positions into shards. */
static int plan(struct pack *p, struct penstock_error *err)
{
	uint64_t bytes = 0;
	int r = order_init(&p->order,
		&(struct order_options){.kind = p->options->shuffle ? ORDER_FULL : ORDER_SEQUENTIAL,
			.n = p->units,
			.seed = p->options->seed},
		err);

	for (uint64_t at = 0; r == 0 && at <= p->units; at++) {
		uint64_t *grown;

		if (at > 0 && at < p->units && bytes < p->options->shard_bytes) {
			bytes += unit_bytes(p, order_at(&p->order, at));
			continue;
		}
		grown = array_grow(p->starts, p->n, sizeof(*grown));
		if (!grown)
			return error_memory(err);
		p->starts = grown;
		p->starts[p->n++] = at;
		bytes = at < p->units ? unit_bytes(p, order_at(&p->order, at)) : 0;
	}
	if (r < 0)
		return r;
	p->n--;
	if (p->n > SHARDS_MAX)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot write %zu shards: names have six digits; give a larger --shard-size",
			p->n);
	p->done = calloc(p->n, sizeof(*p->done));
	return p->done ? 0 : error_memory(err);
}

/* ---- samples ---- */

/* The memory of one thread. */
struct work {
	struct pack *p;
	struct pack_shard *shard;
	uint64_t *ids, *offsets;
	size_t n, room;
	char *data;
	struct format_fields *fields;
	void *scratch;
	char *key;
};

static int work_init(struct work *w, struct pack *p, struct penstock_error *err)
{
	size_t ids = BATCH_SAMPLES + LIMIT_FORMAT_FIELDS;

	w->p = p;
	w->ids = calloc(ids, sizeof(*w->ids));
	w->offsets = calloc(ids + 1, sizeof(*w->offsets));
	w->fields = calloc(1, sizeof(*w->fields));
	return w->ids && w->offsets && w->fields ? 0 : error_memory(err);
}

static void work_release(struct work *w)
{
	free(w->ids);
	free(w->offsets);
	free(w->data);
	free(w->fields);
	free(w->scratch);
	free(w->key);
}

/* Splits a sample, with as much scratch memory as it needs. */
static int split(
	struct work *w, uint64_t id, const void *data, size_t size, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r = dataset_split(w->p->set, id, data, size, w->fields, &own);

	if (r < 0 && (r = fields_grow(w->fields, &w->scratch, size, &own)) == 0)
		r = dataset_split(w->p->set, id, data, size, w->fields, &own);
	return r < 0 ? error_move(err, &own) : 0;
}

/* Makes big-endian numbers little endian. Changes the sample in place, which is safe because only
 * this thread uses the memory. */
static void swap(struct format_field *f)
{
	size_t width = dtype_size(f->dtype);
	char *p = (char *)(uintptr_t)f->data;

	for (size_t at = 0; f->big_endian && width > 1 && at + width <= f->size; at += width) {
		for (size_t i = 0; i < width / 2; i++) {
			char c = p[at + i];

			p[at + i] = p[at + width - 1 - i];
			p[at + width - 1 - i] = c;
		}
	}
	f->big_endian = false;
}

static enum format_type type_of(const char *ext)
{
	if (strcmp(ext, "json") == 0)
		return FORMAT_JSON;
	return strcmp(ext, "txt") == 0 || strcmp(ext, "cls") == 0 ? FORMAT_TEXT : FORMAT_BYTES;
}

/* Adds an object as a field that is named after the extension of the object. */
static void add_object(struct work *w, uint64_t id, const void *data, size_t size)
{
	const char *name = source_name(dataset_source(w->p->set), (size_t)id);
	size_t len = key_length(name);
	const char *ext = name[len] ? name + len + 1 : "bin";

	w->fields->items[w->fields->n++] = (struct format_field){.name = ext,
		.name_len = strlen(ext),
		.data = data,
		.size = size,
		.type = type_of(ext)};
}

/* Adds the label of the first object as a field "cls", the extension from which readers of
 * WebDataset take the label. */
static int add_label(struct work *w, uint64_t id, struct penstock_error *err)
{
	struct format_fields *f = w->fields;
	struct format_field label;

	if (!dataset_label(w->p->set, id, &label))
		return 0;
	label.name = "cls";
	label.name_len = strlen("cls");
	for (size_t i = 0; i < f->n; i++) {
		if (f->items[i].name_len == label.name_len &&
			memcmp(f->items[i].name, label.name, label.name_len) == 0)
			return error_set(err, PENSTOCK_E_INVALID,
				"the sample '%s' already has a file for its label", w->key);
	}
	f->items[f->n++] = label;
	return 0;
}

/* Adds the key as a field in formats without names of samples. */
static void add_key(struct work *w)
{
	if (w->p->format == &pack_tar || !w->p->format->fields)
		return;
	w->fields->items[w->fields->n++] = (struct format_field){.name = "__key__",
		.name_len = strlen("__key__"),
		.data = w->key,
		.size = strlen(w->key),
		.type = FORMAT_TEXT};
}

/* For a tar: if an earlier pack has stored a key in a field, and the key can be the name of a file,
 * uses that key and removes the field. Returns false if out of memory. */
static bool take_key(struct work *w)
{
	struct format_fields *f = w->fields;

	for (size_t i = 0; i < f->n && w->p->format == &pack_tar; i++) {
		const struct format_field *item = &f->items[i];
		char *key;

		if (item->name_len != strlen("__key__") ||
			memcmp(item->name, "__key__", item->name_len) != 0)
			continue;
		key = strndup(item->data, item->size);
		if (!key)
			return false;
		if (strlen(key) != item->size || !shard_name_is_good(key) ||
			key_length(key) != strlen(key)) {
			free(key);
			return true;
		}
		free(w->key);
		w->key = key;
		memmove(&f->items[i], &f->items[i + 1], (f->n - i - 1) * sizeof(*f->items));
		f->n--;
		return true;
	}
	return true;
}

/* Builds the sample of a unit whose bytes begin with sample `k` of the batch. */
static int make_sample(struct work *w, uint64_t unit, size_t k, struct pack_sample *out,
	struct penstock_error *err)
{
	uint64_t id = first_of(w->p, unit), n = first_of(w->p, unit + 1) - id;
	const char *data = w->data + w->offsets[k];
	int r = 0;

	*out = (struct pack_sample){.raw = data,
		.raw_size = (size_t)(w->offsets[k + n] - w->offsets[k]),
		.of_objects = w->p->first != NULL,
		.fields = w->fields->items};
	free(w->key);
	if (w->p->first) {
		const char *name = source_name(dataset_source(w->p->set), (size_t)id);

		w->key = strndup(name, key_length(name));
		w->fields->n = 0;
		for (uint64_t i = 0; i < n; i++)
			add_object(w, id + i, w->data + w->offsets[k + i],
				(size_t)(w->offsets[k + i + 1] - w->offsets[k + i]));
		if (w->key) {
			r = add_label(w, id, err);
			add_key(w);
		}
	} else {
		w->key = str_printf("%09" PRIu64, unit);
		r = split(w, id, data, out->raw_size, err);
		if (r == 0 && !take_key(w))
			r = error_memory(err);
	}
	if (r == 0 && !w->key)
		r = error_memory(err);
	for (size_t i = 0; r == 0 && i < w->fields->n; i++)
		swap(&w->fields->items[i]);
	out->key = w->key;
	out->n = w->fields->n;
	return r;
}

static bool is_copy(const struct pack *p)
{
	return p->format->copies && strcmp(p->format->copies, dataset_format(p->set)) == 0;
}

static int add_unit(struct work *w, uint64_t unit, size_t k, struct penstock_error *err)
{
	struct pack_shard *shard = w->shard;
	struct pack_sample sample;
	int r = 0;

	if (is_copy(w->p)) {
		buf_add(&shard->data, w->data + w->offsets[k],
			(size_t)(w->offsets[k + 1] - w->offsets[k]));
	} else {
		r = make_sample(w, unit, k, &sample, err);
		if (r == 0)
			r = w->p->format->add(w->p, &sample, &shard->data, err);
	}
	if (r == 0 && buf_failed(&shard->data))
		r = buf_error(&shard->data, "a shard", err);
	if (r < 0)
		return error_prefix(err, "cannot pack sample %" PRIu64 " of '%s'",
			first_of(w->p, unit), source_url(dataset_source(w->p->set)));
	shard->ends[shard->n++] = shard->data.len;
	return 0;
}

/* ---- shards ---- */

/* Reads the units at the positions from `at` on, as many as fit into a batch. Sets `*n` to the
 * number of units. */
static int read_batch(
	struct work *w, uint64_t at, uint64_t end, uint64_t *n, struct penstock_error *err)
{
	uint64_t bytes = 0, i;
	char *grown;

	w->n = 0;
	for (i = at; i < end && bytes < BATCH_BYTES; i++) {
		uint64_t unit = order_at(&w->p->order, i);
		uint64_t id = first_of(w->p, unit), stop = first_of(w->p, unit + 1);

		if (i > at && w->n + (stop - id) > BATCH_SAMPLES)
			break;
		for (; id < stop; id++) {
			bytes += dataset_find(w->p->set, id).size;
			w->ids[w->n++] = id;
		}
	}
	*n = i - at;
	if (dataset_layout(w->p->set, w->ids, w->n, w->offsets, err) < 0)
		return err ? -(int)err->code : -(int)PENSTOCK_E_LIMIT;
	if (w->offsets[w->n] + 1 > w->room) {
		grown = realloc(w->data, (size_t)w->offsets[w->n] + 1);
		if (!grown)
			return error_memory(err);
		w->data = grown;
		w->room = (size_t)w->offsets[w->n] + 1;
	}
	return dataset_read(w->p->set, w->ids, w->n, w->data, &w->p->stop, err);
}

static int add_units(struct work *w, size_t shard, struct penstock_error *err)
{
	struct pack *p = w->p;
	uint64_t at = p->starts[shard], end = p->starts[shard + 1];
	int r = 0;

	while (r == 0 && at < end) {
		uint64_t n = 0;
		size_t k = 0;

		r = read_batch(w, at, end, &n, err);
		for (uint64_t i = at; r == 0 && i < at + n; i++) {
			uint64_t unit = order_at(&p->order, i);

			r = add_unit(w, unit, k, err);
			k += (size_t)(first_of(p, unit + 1) - first_of(p, unit));
		}
		at += n;
		if (r < 0)
			return r;
		atomic_fetch_add(&p->bytes, w->offsets[w->n]);
		atomic_fetch_add(&p->samples, n);
		if (p->options->progress)
			p->options->progress(p->options->cookie, atomic_load(&p->samples),
				atomic_load(&p->bytes));
		if (atomic_load(&p->stop))
			r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	}
	return r;
}

struct ranges {
	struct pack_done *done;
	uint64_t expected;
};

static int add_range(void *cookie, const struct format_sample *sample, struct penstock_error *err)
{
	struct ranges *ranges = cookie;

	(void)err;
	if (ranges->done->n < ranges->expected)
		ranges->done->ranges[ranges->done->n] = (struct index_range){
			.offset = sample->offset, .size = sample->size};
	ranges->done->n++;
	return 0;
}

static int read_memory(
	void *cookie, uint64_t offset, void *data, size_t len, struct penstock_error *err)
{
	const struct buf *shard = cookie;

	(void)err;
	memcpy(data, shard->data + offset, len);
	return 0;
}

/* Finds the samples in the same way as readers of the shard. */
static int find_ranges(const struct pack *p, struct pack_shard *shard, struct pack_done *done,
	struct penstock_error *err)
{
	struct ranges ranges = {done, shard->n};
	struct shard_reader reader = {.name = "the new shard",
		.size = shard->data.len,
		.read = read_memory,
		.cookie = &shard->data};
	int r = 0;

	done->ranges = calloc(shard->n + 1, sizeof(*done->ranges));
	done->sums = calloc(shard->n + 1, sizeof(*done->sums));
	if (!done->ranges || !done->sums)
		return error_memory(err);
	if (p->format->scan) {
		r = p->format->scan->scan(p->format->scan, &reader, add_range, &ranges, err);
		if (r == 0 && done->n != shard->n)
			r = error_set(err, PENSTOCK_E_UNSUPPORTED,
				"cannot write a shard as %s: readers would find only %" PRIu64
				" of %zu samples, because adjacent samples have the same name or "
				"hidden names",
				p->format->name, done->n, shard->n);
	} else {
		for (; done->n < shard->n; done->n++) {
			uint64_t start = done->n ? shard->ends[done->n - 1] : 0;

			done->ranges[done->n] = (struct index_range){.offset = shard->head + start,
				.size = shard->ends[done->n] - start};
		}
	}
	for (size_t i = 0; r == 0 && i < shard->n; i++)
		done->sums[i] = crc32c_update(
			0, shard->data.data + done->ranges[i].offset, (size_t)done->ranges[i].size);
	return r;
}

/* Compresses a whole shard: readers of MDS unpack a shard as a whole. */
static int compress(
	const struct pack *p, struct buf *data, struct pack_done *done, struct penstock_error *err)
{
	struct buf packed = BUF_INIT(LIMIT_DATASET_BYTES);
	uint8_t digest[CHECKSUM_MAX_SIZE];
	int r;
	size_t room = ZSTD_compressBound(data->len), n;
	char *to;

	if (room > LIMIT_DATASET_PACKED)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot compress a shard of %zu MiB: readers unpack less than %zu MiB; give a "
			"smaller --shard-size",
			data->len / MIB, (size_t)(LIMIT_DATASET_PACKED / MIB));
	to = buf_reserve(&packed, room);
	if (!to)
		return buf_error(&packed, "a compressed shard", err);
	n = ZSTD_compress(to, room, data->data, data->len, p->options->zstd);
	if (ZSTD_isError(n)) {
		buf_release(&packed);
		return error_set(err, PENSTOCK_E_INTERNAL, "cannot compress a shard: %s",
			ZSTD_getErrorName(n));
	}
	done->unpacked = data->len;
	buf_grown(&packed, n);
	buf_release(data);
	*data = packed;
	r = checksum_of(CHECKSUM_SHA1, data->data, data->len, digest, err);
	if (r == 0)
		str_hex(digest, 20, done->sha1);
	return r;
}

static int write_shard(void *cookie, size_t i, struct penstock_error *err)
{
	struct pack *p = cookie;
	size_t units = (size_t)(p->starts[i + 1] - p->starts[i]);
	struct pack_shard shard = {.data = BUF_INIT(LIMIT_DATASET_BYTES)};
	_cleanup_(work_release) struct work w = {.shard = &shard};
	char name[PACK_NAME_SIZE];
	int r = work_init(&w, p, err);

	shard.ends = calloc(units, sizeof(*shard.ends));
	if (r == 0 && !shard.ends)
		r = error_memory(err);
	if (r == 0)
		r = add_units(&w, i, err);
	if (r == 0 && p->format->end)
		r = p->format->end(p, &shard, err);
	if (r == 0 && buf_failed(&shard.data))
		r = buf_error(&shard.data, "a shard", err);
	if (r == 0)
		r = find_ranges(p, &shard, &p->done[i], err);
	if (r == 0 && p->options->zstd)
		r = compress(p, &shard.data, &p->done[i], err);
	pack_name(p, i, name);
	if (r == 0)
		r = pack_put(p, name, shard.data.data, shard.data.len, &p->done[i], err);
	free(shard.ends);
	buf_release(&shard.data);
	return r;
}

/* Takes the properties that all samples share from the first sample. */
static int begin(struct pack *p, struct penstock_error *err)
{
	_cleanup_(work_release) struct work w = {0};
	struct pack_sample first;
	uint64_t n;
	int r;

	if (!p->format->begin)
		return 0;
	r = work_init(&w, p, err);
	if (r == 0)
		r = read_batch(&w, 0, 1, &n, err);
	if (r == 0)
		r = make_sample(&w, order_at(&p->order, 0), 0, &first, err);
	return r < 0 ? r : p->format->begin(p, &first, err);
}

/* ---- packing ---- */

static void release(struct pack *p)
{
	for (size_t i = 0; p->done && i < p->n; i++) {
		free(p->done[i].ranges);
		free(p->done[i].sums);
		free(p->done[i].etag);
	}
	free(p->done);
	free(p->first);
	free(p->starts);
	free(p->prefix);
	location_release(&p->at);
	mds_columns_free(p->columns);
}

static int find_format(struct pack *p, struct penstock_error *err)
{
	static const struct pack_format *const formats[] = {
		&pack_tar, &pack_mds, &pack_tfrecord, &pack_records, &pack_npy};

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		if (strcmp(formats[i]->name, p->options->format) == 0)
			p->format = formats[i];
	}
	return p->format
		       ? 0
		       : error_set(err, PENSTOCK_E_INVALID,
				 "invalid format '%s'; expected tar, mds, tfrecord, records or npy",
				 p->options->format);
}

static int write_shards(struct pack *p, struct penstock_error *err)
{
	const struct pack_options *o = p->options;
	int r = thread_each(&(struct thread_work){.name = "pack",
				    .n = p->n,
				    .parallel = o->jobs < p->n ? o->jobs : p->n,
				    .fn = write_shard,
				    .cookie = p,
				    .cancel = o->cancel,
				    .stop = &p->stop},
		err);

	if (r == 0 && atomic_load(&p->stop))
		r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	return r < 0 ? r : pack_finish(p, err);
}

int dataset_pack(struct dataset *set, const struct pack_target *target,
	const struct pack_options *options, struct pack_result *out, struct penstock_error *err)
{
	struct pack p = {.set = set, .options = options, .units = dataset_count(set)};
	int r = find_format(&p, err);

	if (r == 0 && p.format->fields && strcmp(dataset_format(set), "objects") == 0)
		r = group_objects(&p, err);
	if (r == 0)
		r = plan(&p, err);
	if (r == 0)
		r = begin(&p, err);
	if (r == 0)
		r = pack_open_target(&p, target, err);
	*out = (struct pack_result){.samples = p.units, .shards = p.n};
	if (r == 0) {
		r = write_shards(&p, err);
		out->left = r < 0 && !pack_undo(&p);
	}
	for (size_t i = 0; r == 0 && i < p.n; i++)
		out->bytes += p.done[i].size;
	release(&p);
	return r;
}
