/* Finds the samples of a data set: the format, and what it finds in each shard. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "base/thread.h"
#include "dataset/format/mds.h"
#include "dataset/format/tar.h"
#include "dataset/format/tfrecord.h"
#include "dataset/internal.h"

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
		.shard = in->shard, .offset = offset, .length = len, .data = data};
	int r = source_read(in->reader, &read, 1, in->cancel, err);

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
	/* Sets the shard's format, and its records if it has some; `in` reads it. */
	int (*prepare)(struct finding *f, struct dataset_shard *shard, struct shard_input *in,
		struct penstock_error *err);
	struct found *found; /* of each shard */
	atomic_int stop;
};

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

static int find_in_shard(void *cookie, size_t i, struct penstock_error *err)
{
	struct finding *f = cookie;
	struct dataset_shard *shard = &f->set->shards[i];
	struct shard_input in = {.set = f->set, .shard = i, .cancel = &f->stop};
	struct shard_reader reader = reader_of(&in);
	int r = dataset_take_reader(f->set, &in.reader, err);

	if (r < 0)
		return r;
	r = f->prepare(f, shard, &in, err);
	if (r == 0 && f->set->has_records)
		r = records_count(&shard->records, &reader, &shard->first, err);
	else if (r == 0 && shard->format)
		r = shard->format->scan(shard->format, &reader, add_sample, &f->found[i], err);
	dataset_give_reader(f->set, in.reader);
	return r;
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

	f->set->shards = calloc(n + 1, sizeof(*f->set->shards));
	f->found = calloc(n, sizeof(*f->found));
	if (!f->set->shards || !f->found) {
		free(f->found);
		return error_memory(err);
	}
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

static int prepare_records(struct finding *f, struct dataset_shard *shard, struct shard_input *in,
	struct penstock_error *err)
{
	const struct dataset_options *o = f->options;
	struct shard_reader reader = reader_of(in);
	int r = 0;

	if (strcmp(f->set->name, "records") == 0)
		r = records_init(&shard->records, o->header, o->record_size, o->trailer, err);
	else if (strcmp(f->set->name, "cifar10") == 0)
		records_cifar10(&shard->records);
	else if (strcmp(f->set->name, "cifar100") == 0)
		records_cifar100(&shard->records);
	else if (strcmp(f->set->name, "tokens") == 0)
		r = records_tokens(&shard->records, o->dtype ? o->dtype : DTYPE_U16, o->window,
			o->stride ? o->stride : o->window, err);
	else if (strcmp(f->set->name, "npy") == 0)
		r = npy_open(&shard->records, &reader, err);
	else
		r = idx_open(&shard->records, &reader, err);
	shard->format = &shard->records.format;
	return r;
}

static int prepare_tar(struct finding *f, struct dataset_shard *shard, struct shard_input *in,
	struct penstock_error *err)
{
	(void)f;
	(void)err;
	/* Indexes and notes may lie next to the archives. */
	shard->format = str_ends(source_name(in->set->source, in->shard), ".tar") ? &format_tar
										  : NULL;
	return 0;
}

static int prepare_tfrecord(struct finding *f, struct dataset_shard *shard, struct shard_input *in,
	struct penstock_error *err)
{
	(void)f;
	(void)in;
	(void)err;
	shard->format = &format_tfrecord;
	return 0;
}

/* The index names the shards. */
static int prepare_mds(struct finding *f, struct dataset_shard *shard, struct shard_input *in,
	struct penstock_error *err)
{
	const char *name = source_name(in->set->source, in->shard);

	(void)err;
	for (size_t i = 0; i < f->set->mds->n; i++) {
		const struct mds_shard *mds = &f->set->mds->shards[i];

		if (mds->raw.basename && strcmp(mds->raw.basename, name) == 0)
			shard->format = &mds->format;
	}
	return 0;
}

static int read_mds_index(struct dataset *set, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_FORMAT_INDEX);
	struct shard_input in = {.set = set, .cancel = cancel};
	size_t size;
	int r;

	in.shard = source_find(set->source, "index.json");
	if (in.shard == SIZE_MAX)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot open '%s' as mds: it has no index.json", source_url(set->source));
	if (source_size(set->source, in.shard) > LIMIT_FORMAT_INDEX)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot open '%s': its index.json is larger "
			"than %zu MiB",
			source_url(set->source), LIMIT_FORMAT_INDEX / MIB);
	size = (size_t)source_size(set->source, in.shard);
	if (!buf_reserve(&text, size + 1))
		return error_memory(err);
	r = dataset_take_reader(set, &in.reader, err);
	if (r < 0)
		return r;
	r = read_shard(&in, 0, text.data, size, err);
	dataset_give_reader(set, in.reader);
	if (r == 0)
		r = mds_index_parse(&set->mds, text.data, size, "index.json", err);
	for (size_t i = 0; r == 0 && i < set->mds->n; i++) {
		const struct mds_shard *mds = &set->mds->shards[i];

		if (!mds->raw.basename || source_find(set->source, mds->raw.basename) == SIZE_MAX)
			r = error_set(err, PENSTOCK_E_NOT_FOUND,
				"cannot open '%s': its shard '%s' is missing, or only there in "
				"compressed form",
				source_url(set->source),
				mds->raw.basename   ? mds->raw.basename
				: mds->zip.basename ? mds->zip.basename
						    : "");
	}
	return r;
}

static const struct {
	const char *name;
	int (*prepare)(struct finding *f, struct dataset_shard *shard, struct shard_input *in,
		struct penstock_error *err);
} formats[] = {
	{"objects", NULL},
	{"records", prepare_records},
	{"cifar10", prepare_records},
	{"cifar100", prepare_records},
	{"npy", prepare_records},
	{"idx", prepare_records},
	{"tokens", prepare_records},
	{"tar", prepare_tar},
	{"tfrecord", prepare_tfrecord},
	{"mds", prepare_mds},
};

/* All of a data set have one size: the fields of one sample describe all. */
static int check_sizes(const struct dataset *set, struct penstock_error *err)
{
	size_t n = source_count(set->source);

	for (size_t i = 1; set->has_records && i < n; i++) {
		if (set->shards[i].records.size != set->shards[0].records.size)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot open '%s': a sample of '%s' has %" PRIu64
				" bytes, and one of '%s' %" PRIu64 "; open them one by one",
				source_url(set->source), source_name(set->source, 0),
				set->shards[0].records.size, source_name(set->source, i),
				set->shards[i].records.size);
	}
	return 0;
}

int dataset_find_samples(
	struct dataset *set, const struct dataset_options *options, struct penstock_error *err)
{
	struct finding f = {.set = set, .options = options};
	const char *wanted = options->format ? options->format : "objects";
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(formats) && !set->name; i++) {
		if (strcmp(formats[i].name, wanted) != 0)
			continue;
		set->name = formats[i].name;
		f.prepare = formats[i].prepare;
	}
	if (!set->name)
		return error_set(err, PENSTOCK_E_INVALID,
			"unknown format '%s'; known are objects, records, cifar10, cifar100, npy, "
			"idx, tokens, tar, tfrecord and mds",
			wanted);
	if (!f.prepare) {
		set->count = source_count(set->source);
		return 0;
	}
	set->has_records = f.prepare == prepare_records;
	if (f.prepare == prepare_mds)
		r = read_mds_index(set, options->place.cancel, err);
	if (r == 0)
		r = find_in_shards(&f, err);
	return r < 0 ? r : check_sizes(set, err);
}
