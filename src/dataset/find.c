/* Detects the format of a data set, and finds the samples of each shard. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "base/thread.h"
#include "dataset/format/detect.h"
#include "dataset/format/litdata/litdata.h"
#include "dataset/format/mds/mds.h"
#include "dataset/format/tar.h"
#include "dataset/format/tfrecord.h"
#include "dataset/internal.h"

/* Head of Megatron's index: its magic, a version of 8 bytes, and the code of the tokens' type. */
#define MEGATRON_HEAD 18
#define MEGATRON_TYPE 17

/* ---- reading a shard ---- */

struct shard_input {
	struct dataset *set;
	struct source_reader *reader;
	size_t shard;
	const atomic_int *cancel;
};

static int read_shard(
	void *cookie, uint64_t offset, void *data, size_t len, struct penstock_error *err)
{
	const struct shard_input *in = cookie;
	struct source_read read = {
		.shard = in->shard, .offset = offset, .length = len, .data = data, .scan = true};
	int r = len ? source_read(in->reader, &read, 1, in->cancel, err) : 0;

	return r <= 0 ? r : error_move(err, &read.error);
}

static struct shard_reader reader_of(struct shard_input *in)
{
	return (struct shard_reader){.name = source_name(in->set->source, in->shard),
		.size = source_size(in->set->source, in->shard),
		.read = read_shard,
		.cookie = in};
}

/* ---- shard by shard ---- */

/* The samples of one shard. */
struct found {
	struct dataset_range *ranges;
	size_t n;
};

struct finding {
	struct dataset *set;
	const struct dataset_options *options;
	/* suffix of the names of shards; if NULL, files of dataset_is_aside() are not shards */
	const char *suffix;
	bool all; /* dataset_is_aside() is true for all files, so all files are shards */
	struct found *found; /* one for each shard */
	atomic_int stop;
};

static int prepare(struct finding *f, struct dataset_shard *shard, struct shard_input *in,
	struct penstock_error *err);

static int add_sample(void *cookie, const struct format_sample *sample, struct penstock_error *err)
{
	struct found *found = cookie;
	struct dataset_range *grown = array_grow(found->ranges, found->n, sizeof(*grown));

	if (!grown)
		return error_memory(err);
	found->ranges = grown;
	found->ranges[found->n++] = (struct dataset_range){
		.offset = sample->offset, .size = sample->size};
	return 0;
}

static bool is_shard(const struct finding *f, const char *name)
{
	if (source_count(f->set->source) == 1)
		return true;
	if (f->suffix)
		return str_ends(name, f->suffix);
	return f->all || !dataset_is_aside(f->set->source, name);
}

static int find_in_shard(void *cookie, size_t i, struct penstock_error *err)
{
	struct finding *f = cookie;
	struct dataset_shard *shard = &f->set->shards[i];
	struct shard_input in = {.set = f->set, .shard = i, .cancel = &f->stop};
	struct shard_reader reader = reader_of(&in);
	int r = dataset_take_reader(f->set, &in.reader, err);

	if (r < 0)
		return r;
	/* A shard that an index.json lists may have any name. */
	if (shard->format || is_shard(f, reader.name))
		r = prepare(f, shard, &in, err);
	if (r == 0 && shard->format && f->set->has_records)
		r = records_count(&shard->records, &reader, &shard->first, err);
	else if (r == 0 && shard->format)
		r = shard->format->scan(shard->format, &reader, add_sample, &f->found[i], err);
	source_reader_close(in.reader, i);
	dataset_give_reader(f->set, in.reader);
	return r < 0 ? error_prefix(err, "cannot open '%s'", source_url(f->set->source)) : 0;
}

/* Numbers the samples, and puts their ranges in one array. */
static int collect(struct finding *f, struct penstock_error *err)
{
	struct dataset *set = f->set;
	size_t n = source_count(set->source);

	for (size_t i = 0; i <= n; i++) {
		uint64_t here = i == n		   ? 0
				: set->has_records ? set->shards[i].first
						   : f->found[i].n;

		if (here > LIMIT_DATASET_SAMPLES - set->count)
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot open '%s': it has more than %" PRIu64 " samples",
				source_url(set->source), LIMIT_DATASET_SAMPLES);
		set->shards[i].first = set->count;
		set->count += here;
	}
	if (set->has_records)
		return 0;
	set->ranges = calloc((size_t)set->count + 1, sizeof(*set->ranges));
	if (!set->ranges)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		if (f->found[i].n)
			memcpy(set->ranges + set->shards[i].first, f->found[i].ranges,
				f->found[i].n * sizeof(*set->ranges));
	}
	return 0;
}

static int find_in_shards(struct finding *f, struct penstock_error *err)
{
	size_t n = source_count(f->set->source);
	int r;

	f->found = calloc(n, sizeof(*f->found));
	if (!f->found)
		return error_memory(err);
	r = thread_each(&(struct thread_work){.name = "samples",
				.n = n,
				.parallel = n < LIMIT_DATASET_SCANS ? n : LIMIT_DATASET_SCANS,
				.fn = find_in_shard,
				.cookie = f,
				.cancel = f->options->place.cancel,
				.stop = &f->stop},
		err);
	if (r == 0 && atomic_load(&f->stop))
		r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	if (r == 0)
		r = collect(f, err);
	for (size_t i = 0; i < n; i++)
		free(f->found[i].ranges);
	free(f->found);
	return r;
}

/* ---- formats ---- */

/* Returns the option `dtype` for tokens that are declared as `type`. Tokens are never negative, so
 * int32 is read as uint32. */
static const char *token_dtype(const char *type)
{
	return strcmp(type, "int32") == 0 ? "uint32" : type;
}

/* Fails unless the option `dtype` fits `type`, the type of the tokens that the file `index`
 * declares. */
static int check_dtype(
	const struct dataset *set, const char *index, const char *type, struct penstock_error *err)
{
	const char *dtype = token_dtype(type);

	if (strcmp(dtype, "uint16") != 0 && strcmp(dtype, "uint32") != 0)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"'%s' declares tokens of type '%s'; only uint16, uint32 and int32 can be "
			"read",
			index, type);
	if (strcmp(dtype, set->settings.dtype) == 0)
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"'%s' declares tokens of type '%s'; give dtype='%s'", index, type, dtype);
}

int dataset_init_records(
	const struct dataset *set, struct records *records, struct penstock_error *err)
{
	const struct index_settings *s = &set->settings;

	if (strcmp(set->name, "records") == 0)
		return records_init(records, s->header, s->record_size, s->trailer, err);
	if (strcmp(set->name, "tokens") == 0)
		return records_tokens(
			records, dtype_find(s->dtype, strlen(s->dtype)), s->window, s->stride, err);
	if (strcmp(set->name, "cifar10") == 0)
		records_cifar10(records);
	else
		records_cifar100(records);
	return 0;
}

/* Megatron's index of "x.bin" is "x.idx", which declares the type of its tokens. */
static int check_megatron(
	const struct finding *f, const struct shard_input *in, struct penstock_error *err)
{
	static const char magic[9] = "MMIDIDX";
	static const char *const types[] = {
		"", "uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"};
	const struct source *source = f->set->source;
	const char *name = source_name(source, in->shard);
	size_t stem = strlen(name) - (str_ends(name, ".bin") ? strlen(".bin") : 0);
	_cleanup_free_ char *index = str_printf("%.*s.idx", (int)stem, name);
	struct shard_input other = *in;
	unsigned char head[MEGATRON_HEAD];
	size_t type;
	int r;

	if (!index)
		return error_memory(err);
	other.shard = source_find(source, index);
	if (other.shard == SIZE_MAX || source_size(source, other.shard) < sizeof(head))
		return 0;
	r = read_shard(&other, 0, head, sizeof(head), err);
	if (r < 0 || memcmp(head, magic, sizeof(magic)) != 0)
		return r;
	type = head[MEGATRON_TYPE] < ARRAY_SIZE(types) ? head[MEGATRON_TYPE] : 0;
	return check_dtype(f->set, index, types[type], err);
}

static int prepare_records(struct finding *f, struct dataset_shard *shard, struct shard_input *in,
	struct penstock_error *err)
{
	struct shard_reader reader = reader_of(in);
	int r = strcmp(f->set->name, "tokens") == 0 ? check_megatron(f, in, err) : 0;

	if (r < 0)
		return r;
	/* Skip files that the index of litData does not list. */
	if (f->set->litdata && !shard->format)
		return 0;
	if (strcmp(f->set->name, "npy") == 0)
		r = npy_open(&shard->records, &reader, err);
	else if (strcmp(f->set->name, "idx") == 0)
		r = idx_open(&shard->records, &reader, err);
	else
		r = dataset_init_records(f->set, &shard->records, err);
	if (r == 0 && f->set->litdata)
		r = litdata_find_tokens(&reader, &shard->records.header, err);
	shard->format = &shard->records.format;
	return r;
}

/* Sets the shard's format, and its records if the format has records; `in` reads the shard. In
 * formats with an index.json, dataset_parse_document() has already set the format. */
static int prepare(struct finding *f, struct dataset_shard *shard, struct shard_input *in,
	struct penstock_error *err)
{
	if (f->set->has_records)
		return prepare_records(f, shard, in, err);
	if (f->set->format)
		shard->format = f->set->format;
	return 0;
}

enum kind { OBJECTS, RECORDS, SHARDS, LISTED /* by an index.json */ };

static const struct known {
	const char *name;
	enum kind kind;
	const char *suffix; /* for struct finding */
	const struct format *format; /* for SHARDS */
} formats[] = {
	{"objects", OBJECTS, NULL, NULL},
	{"records", RECORDS, NULL, NULL},
	{"cifar10", RECORDS, ".bin", NULL},
	{"cifar100", RECORDS, ".bin", NULL},
	{"npy", RECORDS, ".npy", NULL},
	{"idx", RECORDS, NULL, NULL},
	{"tokens", RECORDS, NULL, NULL},
	{"tar", SHARDS, ".tar", &format_tar},
	{"tfrecord", SHARDS, NULL, &format_tfrecord},
	{"mds", LISTED, NULL, NULL},
	{"litdata", LISTED, NULL, NULL},
};

/* ---- the index ---- */

static int set_format(struct dataset *set, const char *name, const struct format *format,
	struct penstock_error *err)
{
	size_t shard = source_find(set->source, name);

	if (shard == SIZE_MAX)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot open '%s': its index.json lists the shard '%s', which is missing",
			source_url(set->source), name);
	set->shards[shard].format = format;
	return 0;
}

static int set_formats(struct dataset *set, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && set->mds && i < set->mds->n; i++) {
		const struct mds_shard *shard = &set->mds->shards[i];

		r = set_format(set, dataset_mds_file(set, shard)->basename, &shard->format, err);
	}
	for (size_t i = 0; r == 0 && set->litdata && i < set->litdata->n; i++) {
		const struct litdata_chunk *chunk = &set->litdata->chunks[i];

		r = set_format(set, chunk->filename, &chunk->format, err);
	}
	return r;
}

int dataset_parse_document(struct dataset *set, struct penstock_error *err)
{
	const char *text = buf_str(&set->document);
	int r = strcmp(set->name, "mds") == 0
			? mds_index_parse(&set->mds, text, set->document.len, "index.json", err)
			: litdata_index_parse(
				  &set->litdata, text, set->document.len, "index.json", err);

	if (r < 0)
		return error_prefix(err, "cannot open '%s'", source_url(set->source));
	if (set->litdata && set->litdata->tokens)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot open '%s': its chunks contain tokens; give format='tokens', "
			"dtype='%s' and a window",
			source_url(set->source), token_dtype(dtype_name(set->litdata->tokens)));
	return r < 0 ? r : set_formats(set, err);
}

static int read_document(struct dataset *set, const atomic_int *cancel, struct buf *document,
	struct penstock_error *err)
{
	struct shard_input in = {
		.set = set, .cancel = cancel, .shard = source_find(set->source, "index.json")};
	size_t size;
	char *text;
	int r;

	if (source_size(set->source, in.shard) >= LIMIT_FORMAT_INDEX)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot open '%s': its index.json has more than %zu MiB",
			source_url(set->source), LIMIT_FORMAT_INDEX / MIB);
	size = (size_t)source_size(set->source, in.shard);
	text = buf_reserve(document, size + 1);
	if (!text)
		return error_memory(err);
	r = dataset_take_reader(set, &in.reader, err);
	if (r < 0)
		return r;
	r = read_shard(&in, 0, text, size, err);
	dataset_give_reader(set, in.reader);
	if (r == 0)
		buf_grown(document, size);
	return r;
}

static int read_index(struct dataset *set, const atomic_int *cancel, struct penstock_error *err)
{
	int r;

	if (source_find(set->source, "index.json") == SIZE_MAX)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot open '%s' as %s: it has no index.json", source_url(set->source),
			set->name);
	r = read_document(set, cancel, &set->document, err);
	return r < 0 ? r : dataset_parse_document(set, err);
}

/* ---- detection ---- */

#define DETECT_SHARDS 64 /* the largest of the first 64 files is likely to be data */

static size_t large_shard(const struct source *source)
{
	size_t best = 0;

	for (size_t i = 1; i < source_count(source) && i < DETECT_SHARDS; i++) {
		if (source_size(source, i) > source_size(source, best))
			best = i;
	}
	return best;
}

/* Detects the format from one file. */
static int detect_by(struct dataset *set, size_t shard, const atomic_int *cancel,
	enum format_kind *kind, struct penstock_error *err)
{
	struct shard_input in = {.set = set, .shard = shard, .cancel = cancel};
	char head[DETECT_BYTES];
	struct detect_object object = {.head = head, .head_len = sizeof(head)};
	const char *reason;
	int r;

	object.name = source_name(set->source, in.shard);
	object.size = source_size(set->source, in.shard);
	if (object.size < sizeof(head))
		object.head_len = (size_t)object.size;
	r = dataset_take_reader(set, &in.reader, err);
	if (r < 0)
		return r;
	r = read_shard(&in, 0, head, object.head_len, err);
	dataset_give_reader(set, in.reader);
	if (r < 0)
		return r;
	*kind = format_detect(&object, &reason);
	if (*kind == FORMAT_KIND_UNSUPPORTED || *kind == FORMAT_KIND_PART)
		return error_set(err, PENSTOCK_E_UNSUPPORTED, "cannot open '%s': '%s': %s",
			source_url(set->source), object.name, reason);
	return 0;
}

/* Sets `*name` to the format that index.json belongs to, or else to the format of a large shard. An
 * index.json of no known format is ignored. */
static int detect(struct dataset *set, const atomic_int *cancel, const char **name,
	struct penstock_error *err)
{
	size_t index = source_find(set->source, "index.json");
	enum format_kind kind = FORMAT_KIND_OBJECTS;
	int r = index == SIZE_MAX ? 0 : detect_by(set, index, cancel, &kind, err);

	if (r == 0 && kind == FORMAT_KIND_OBJECTS)
		r = detect_by(set, large_shard(set->source), cancel, &kind, err);
	*name = format_kind_name(kind);
	return r;
}

/* Reads the index of litData, if there is one. With such an index the tokens are in the chunks that
 * the index lists. */
static int find_token_chunks(
	struct dataset *set, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_FORMAT_INDEX);
	size_t index = source_find(set->source, "index.json");
	enum format_kind kind = FORMAT_KIND_OBJECTS;
	int r = index == SIZE_MAX ? 0 : detect_by(set, index, cancel, &kind, err);

	if (r < 0 || kind != FORMAT_KIND_LITDATA)
		return r;
	r = read_document(set, cancel, &text, err);
	if (r == 0)
		r = litdata_index_parse(&set->litdata, buf_str(&text), text.len, "index.json", err);
	if (r == 0 && set->litdata->tokens == DTYPE_NONE)
		r = error_set(err, PENSTOCK_E_INVALID,
			"the chunks do not have tokens; give format='litdata'");
	if (r == 0)
		r = check_dtype(set, "index.json", dtype_name(set->litdata->tokens), err);
	return r < 0 ? error_prefix(err, "cannot open '%s'", source_url(set->source))
		     : set_formats(set, err);
}

/* ---- the search ---- */

static bool have_same_fields(const struct records *a, const struct records *b)
{
	for (unsigned i = 0; i < a->n_columns; i++) {
		const struct record_column *x = &a->columns[i], *y = &b->columns[i];

		if (x->dtype != y->dtype || x->big_endian != y->big_endian || x->ndim != y->ndim ||
			memcmp(x->dims, y->dims, x->ndim * sizeof(x->dims[0])) != 0)
			return false;
	}
	return true;
}

/* All records of a data set must be alike: the fields of one sample describe all samples. */
static int check_records(struct dataset *set, struct penstock_error *err)
{
	const struct dataset_shard *first = NULL;

	for (size_t i = 0; set->has_records && i < source_count(set->source); i++) {
		const struct dataset_shard *shard = &set->shards[i];

		if (!shard->format)
			continue;
		if (first && (shard->records.size != first->records.size ||
				     !have_same_fields(&first->records, &shard->records)))
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot open '%s': samples of '%s' have %" PRIu64
				" bytes, and those of '%s' %" PRIu64
				" or another type or shape; open the files one by one",
				source_url(set->source),
				source_name(set->source, (size_t)(first - set->shards)),
				first->records.size, source_name(set->source, i),
				shard->records.size);
		first = first ? first : shard;
		set->sample_size = first->records.size;
	}
	return 0;
}

static const struct known *find_known(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		if (strcmp(formats[i].name, name) == 0)
			return &formats[i];
	}
	return NULL;
}

int dataset_set_format(struct dataset *set, const char *name, struct penstock_error *err)
{
	const struct known *known = find_known(name);

	if (!known)
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid format '%s'; expected objects, records, cifar10, cifar100, npy, idx, "
			"tokens, tar, tfrecord, mds or litdata",
			name);
	set->name = known->name;
	set->format = known->format;
	set->has_records = known->kind == RECORDS;
	if (known->kind == OBJECTS)
		return 0;
	set->shards = calloc(source_count(set->source) + 1, sizeof(*set->shards));
	return set->shards ? 0 : error_memory(err);
}

struct index_settings dataset_settings(const char *format, const struct dataset_options *options)
{
	struct index_settings s = {0};

	if (strcmp(format, "records") == 0) {
		s.header = options->header;
		s.record_size = options->record_size;
		s.trailer = options->trailer;
	} else if (strcmp(format, "tokens") == 0) {
		const char *dtype = dtype_name(options->dtype ? options->dtype : DTYPE_U16);

		s.window = options->window;
		s.stride = options->stride ? options->stride : options->window;
		memcpy(s.dtype, dtype, strlen(dtype));
	}
	return s;
}

int dataset_find_samples(
	struct dataset *set, const struct dataset_options *options, struct penstock_error *err)
{
	struct finding f = {.set = set, .options = options};
	const char *wanted = options->format;
	const struct known *known;
	int r = 0;

	if (!wanted)
		r = detect(set, options->place.cancel, &wanted, err);
	if (r == 0)
		r = dataset_set_format(set, wanted, err);
	if (r < 0)
		return r;
	if (strcmp(set->name, "tokens") == 0 && !options->window)
		return error_set(err, PENSTOCK_E_INVALID, "cannot open '%s': tokens need a window",
			source_url(set->source));
	if (strcmp(set->name, "records") == 0 && !options->record_size)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot open '%s': records need a record_size", source_url(set->source));
	set->settings = dataset_settings(set->name, options);
	if (!set->shards) {
		set->count = source_count(set->source);
		return 0;
	}
	known = find_known(set->name);
	f.suffix = known->suffix;
	f.all = true;
	for (size_t i = 0; f.all && i < source_count(set->source); i++)
		f.all = dataset_is_aside(set->source, source_name(set->source, i));
	if (known->kind == LISTED)
		r = read_index(set, options->place.cancel, err);
	else if (strcmp(set->name, "tokens") == 0)
		r = find_token_chunks(set, options->place.cancel, err);
	if (r == 0)
		r = dataset_unpack(set, options->place.cancel, err);
	if (r == 0)
		r = find_in_shards(&f, err);
	return r < 0 ? r : check_records(set, err);
}
