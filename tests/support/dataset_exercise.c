/*
 * Uses all of <penstock/dataset.h> except the decoding of images, as a program outside of this
 * project would:
 *	dataset_exercise s3://BUCKET [gs://BUCKET]
 * Exits with 0, or prints the line of the first result that differs from the header's description.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/dataset.h>
#include <penstock/transfer.h>

#include "library_exercise.h"

static const char *const texts[] = {"zero", "", "number two", "3"};
static char *big;
enum { TEXTS = 4, RECORD = 1000, RECORDS = 4000, BIG = RECORDS * RECORD + 7 };

static void open_objects(struct penstock_dataset **set, const char *url)
{
	struct penstock_dataset_options o = PENSTOCK_DATASET_OPTIONS_INIT;

	o.format = "objects";
	CHECK(penstock_dataset_open(set, url, &o, &err) == 0);
}

static void labels_of_folders(struct penstock_transfer *t, const char *bucket)
{
	struct penstock_dataset_options o = PENSTOCK_DATASET_OPTIONS_INIT;
	char *url = name(bucket, "labels/"), *cat = name(bucket, "labels/cat/0");
	char *dog = name(bucket, "labels/dog/0");
	struct penstock_field field = PENSTOCK_FIELD_INIT;
	struct penstock_fields *fields = NULL;
	struct penstock_dataset *set = NULL;
	int64_t label = -1;

	CHECK(penstock_put_memory(t, cat, "miaow", 5, NULL, NULL, &err) == 0);
	CHECK(penstock_put_memory(t, dog, "woof", 4, NULL, NULL, &err) == 0);
	o.labels = "name";
	FAILS(PENSTOCK_E_INVALID, penstock_dataset_open(&set, url, &o, &err));
	o.labels = "folder";
	CHECK(penstock_dataset_open(&set, url, &o, &err) == 0);
	CHECK(penstock_dataset_classes(set) == 2);
	CHECK(strcmp(penstock_dataset_class(set, 0), "cat") == 0);
	CHECK(strcmp(penstock_dataset_class(set, 1), "dog") == 0);
	CHECK(penstock_fields_split(&fields, set, 1, "woof", 4, &err) == 0);
	CHECK(penstock_fields_count(fields) == 2);
	CHECK(penstock_fields_at(fields, 1, &field, &err) == 0);
	CHECK(strcmp(field.dtype, "int64") == 0 && field.size == sizeof(label));
	memcpy(&label, field.data, sizeof(label));
	CHECK(label == 1);
	penstock_fields_free(fields);
	penstock_dataset_free(set);
	free(dog);
	free(cat);
	free(url);
}

static void sets_of_objects(struct penstock_transfer *t, const char *bucket)
{
	static const uint64_t ids[] = {2, 0, 1, 3, 2};
	struct penstock_dataset *set = NULL;
	char *url = name(bucket, "set/"), *first = name(bucket, "set/0"), data[64] = "";
	const char *shard = NULL;
	uint64_t offsets[6] = {0}, offset = 9, size = 0;

	for (char i = '0'; i < '0' + TEXTS; i++) {
		first[strlen(first) - 1] = i;
		CHECK(penstock_put_memory(t, first, texts[i - '0'], strlen(texts[i - '0']), NULL,
			      NULL, &err) == 0);
	}
	open_objects(&set, url);
	CHECK(penstock_dataset_count(set) == TEXTS && penstock_dataset_sample_size(set) == 0);
	CHECK(strcmp(penstock_dataset_format(set), "objects") == 0);
	CHECK(penstock_dataset_place(set, 2, &shard, &offset, &size, &err) == 0);
	CHECK(strcmp(shard, "2") == 0 && offset == 0 && size == strlen(texts[2]));
	FAILS(PENSTOCK_E_INVALID, penstock_dataset_place(set, TEXTS, &shard, &offset, &size, &err));

	CHECK(penstock_dataset_layout(set, ids, 5, offsets, &err) == 0);
	CHECK(offsets[0] == 0 && offsets[1] == 10 && offsets[2] == 14 && offsets[3] == 14);
	CHECK(offsets[4] == 15 && offsets[5] == 25);
	CHECK(penstock_dataset_read(set, ids, 5, data, &err) == 0);
	CHECK(strcmp(data, "number twozero3number two") == 0);
	CHECK(penstock_dataset_read(set, ids, 0, data, &err) == 0);
	offset = TEXTS;
	FAILS(PENSTOCK_E_INVALID, penstock_dataset_layout(set, &offset, 1, offsets, &err));
	FAILS(PENSTOCK_E_INVALID, penstock_dataset_read(set, &offset, 1, data, &err));

	CHECK(penstock_put_memory(t, first, "other", 5, NULL, NULL, &err) == 0);
	FAILS(PENSTOCK_E_CHANGED, penstock_dataset_read(set, ids, 5, data, &err));
	CHECK(penstock_delete(t, first, NULL, &err) == 0);
	FAILS(PENSTOCK_E_NOT_FOUND, penstock_dataset_read(set, ids, 5, data, &err));
	CHECK(penstock_dataset_read(set, ids, 3, data, &err) == 0);
	penstock_dataset_free(set);
	penstock_dataset_free(NULL);
	free(url);
	free(first);
}

static void sets_that_cannot_be_opened(const char *bucket)
{
	struct penstock_dataset_options o = PENSTOCK_DATASET_OPTIONS_INIT, none = {0};
	struct {
		struct penstock_dataset_options known;
		long unknown;
	} newer = {PENSTOCK_DATASET_OPTIONS_INIT, 0};
	struct {
		size_t struct_size;
		const char *format;
	} older = {sizeof(older), "objects"};
	struct penstock_dataset *set = NULL;
	char *url = name(bucket, "set/"), *missing = name(bucket, "no-such-set/");
	FILE *file = fopen("cut.npy", "w");

	CHECK(file && fputs("\x93NUMPY", file) >= 0 && fclose(file) == 0);
	FAILS(PENSTOCK_E_NOT_FOUND, penstock_dataset_open(&set, missing, NULL, &err));
	FAILS(PENSTOCK_E_NOT_FOUND, penstock_dataset_open(&set, "no-such-folder", NULL, &err));
	FAILS(PENSTOCK_E_INVALID, penstock_dataset_open(&set, "ftp://a/b", NULL, &err));
	FAILS(PENSTOCK_E_INVALID, penstock_dataset_open(&set, url, &none, &err));
	o.format = "no-such-format";
	FAILS(PENSTOCK_E_INVALID, penstock_dataset_open(&set, url, &o, &err));
	o.format = "records";
	FAILS(PENSTOCK_E_INVALID, penstock_dataset_open(&set, url, &o, &err));
	o.format = "npy";
	FAILS(PENSTOCK_E_CORRUPT, penstock_dataset_open(&set, "cut.npy", &o, &err));
	o.format = "objects";
	o.cancel = penstock_cancel_new();
	penstock_cancel_set(o.cancel);
	FAILS(PENSTOCK_E_CANCELLED, penstock_dataset_open(&set, url, &o, &err));
	penstock_cancel_free(o.cancel);
	newer.known.format = "objects";
	newer.known.struct_size = sizeof(newer);
	newer.unknown = 1;
	FAILS(PENSTOCK_E_UNSUPPORTED, penstock_dataset_open(&set, url, &newer.known, &err));
	CHECK(!set && penstock_dataset_open(&set, missing, NULL, NULL) == -PENSTOCK_E_NOT_FOUND);

	newer.unknown = 0;
	CHECK(penstock_dataset_open(&set, url, &newer.known, &err) == 0);
	penstock_dataset_free(set);
	CHECK(penstock_dataset_open(&set, url, (const void *)&older, &err) == 0);
	penstock_dataset_free(set);
	free(url);
	free(missing);
}

static void *read_some(void *set)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	char data[2 * RECORD];

	for (uint64_t i = 0; i < 25; i++) {
		uint64_t ids[] = {i * 7919 % RECORDS, RECORDS - 1 - i};

		if (penstock_dataset_read(set, ids, 2, data, &own) < 0) {
			fprintf(stderr, "%s\n", own.message);
			exit(1);
		}
		for (int k = 0; k < 2; k++)
			CHECK(memcmp(data + k * RECORD, big + ids[k] * RECORD, RECORD) == 0);
	}
	return NULL;
}

/* Reads records of an object, or of a cache file with the same bytes, by several threads and in
 * batches that are started ahead. */
static void sets_of_records(const char *url, const char *cache)
{
	struct penstock_transfer_options transfer = PENSTOCK_TRANSFER_OPTIONS_INIT;
	struct penstock_dataset_options o = PENSTOCK_DATASET_OPTIONS_INIT;
	struct penstock_dataset *set = NULL;
	struct penstock_batch *batches[4] = {NULL}, *none = NULL;
	char *data = malloc(4 * 2 * RECORD);
	uint64_t ids[8], wrong = RECORDS;
	pthread_t readers[4];

	o.format = "records";
	o.record_size = RECORD;
	o.trailer = BIG % RECORD;
	o.transfer = &transfer;
	o.threads = 2;
	o.cache = cache;
	CHECK(penstock_dataset_open(&set, url, &o, &err) == 0);
	CHECK(penstock_dataset_count(set) == RECORDS &&
		penstock_dataset_sample_size(set) == RECORD);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&readers[i], NULL, read_some, set) == 0);
	for (int i = 0; i < 8; i++)
		ids[i] = (uint64_t)i * 500 + 17;
	for (int i = 0; i < 4; i++)
		CHECK(penstock_batch_start(
			      &batches[i], set, ids + 2 * i, 2, data + 2 * i * RECORD, &err) == 0);
	CHECK(penstock_batch_start(&none, set, &wrong, 1, data, &err) == 0);
	FAILS(PENSTOCK_E_INVALID, penstock_batch_wait(none, &err));
	while (!penstock_batch_ended(batches[1], 100))
		;
	CHECK(penstock_batch_ended(batches[1], 0));
	for (int i = 0; i < 3; i++)
		CHECK(penstock_batch_wait(batches[i], &err) == 0);
	penstock_batch_drop(batches[3]);
	penstock_batch_drop(NULL);
	for (int i = 0; i < 6; i++)
		CHECK(memcmp(data + i * RECORD, big + ids[i] * RECORD, RECORD) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(readers[i], NULL);
	/* Freeing the set ends a batch for which no caller waited. */
	CHECK(penstock_batch_start(&none, set, ids, 8, data, &err) == 0);
	penstock_dataset_free(set);
	free(data);
}

static void fields_of_samples(void)
{
	struct penstock_dataset_options o = PENSTOCK_DATASET_OPTIONS_INIT;
	struct penstock_field label = PENSTOCK_FIELD_INIT, image = PENSTOCK_FIELD_INIT;
	struct {
		size_t struct_size;
		const char *name;
	} older = {sizeof(older), NULL};
	struct penstock_fields *fields = NULL;
	struct penstock_dataset *set = NULL;
	FILE *file = fopen("data_batch.bin", "w");
	char data[3073];
	uint64_t id = 1;

	CHECK(file && fwrite(big, 1, 2 * sizeof(data), file) == 2 * sizeof(data));
	CHECK(fclose(file) == 0);
	o.format = "cifar10";
	CHECK(penstock_dataset_open(&set, "data_batch.bin", &o, &err) == 0);
	CHECK(penstock_dataset_read(set, &id, 1, data, &err) == 0);
	CHECK(penstock_fields_split(&fields, set, id, data, sizeof(data), &err) == 0);
	CHECK(penstock_fields_count(fields) == 2);
	CHECK(penstock_fields_at(fields, 0, &label, &err) == 0);
	CHECK(penstock_fields_at(fields, 1, &image, &err) == 0);
	CHECK(label.name_len == 5 && memcmp(label.name, "label", 5) == 0);
	CHECK(label.data == data && label.size == 1 && strcmp(label.dtype, "uint8") == 0);
	CHECK(image.name_len == 5 && memcmp(image.name, "image", 5) == 0 && !image.mode);
	CHECK(image.data == data + 1 && image.size == 3072 && strcmp(image.type, "array") == 0);
	CHECK(image.ndim == 3 && image.dims[0] == 3 && image.dims[1] == 32 && image.dims[2] == 32);
	CHECK(memcmp(image.data, big + 3074, 3072) == 0 && image.count == 0);
	CHECK(penstock_fields_at(fields, 1, (struct penstock_field *)(void *)&older, &err) == 0);
	CHECK(older.name == image.name);
	penstock_fields_free(fields);
	penstock_fields_free(NULL);
	penstock_dataset_free(set);
}

/* ---- the order of an epoch ---- */

enum { SAMPLES = 101, PER_BATCH = 4 };

static struct penstock_plan *planned(const struct penstock_plan_options *o)
{
	struct penstock_plan *plan = NULL;

	CHECK(penstock_plan_new(&plan, o, &err) == 0);
	return plan;
}

/* Counts in `seen` the samples in the first `stop` batches of the rank; the batches of its workers
 * alternate. */
static void deal(struct penstock_plan_options *o, uint64_t stop, int *seen)
{
	uint64_t ids[PER_BATCH], batches = 0, of_rank = 0;

	for (o->worker = 0; o->worker < o->workers; o->worker++) {
		struct penstock_plan *plan = planned(o);
		size_t padded = 1;

		for (uint64_t i = 0; i < penstock_plan_batches(plan); i++) {
			size_t n = penstock_plan_batch(plan, i, ids, &padded);

			CHECK(n > 0 && n <= PER_BATCH && padded == 0);
			for (size_t k = 0; k < n && i * o->workers + o->worker < stop; k++) {
				CHECK(ids[k] < SAMPLES);
				seen[ids[k]]++;
			}
		}
		CHECK(penstock_plan_samples(plan) == SAMPLES);
		batches += penstock_plan_batches(plan);
		of_rank = penstock_plan_rank_batches(plan);
		penstock_plan_free(plan);
	}
	CHECK(batches == of_rank);
	o->worker = 0;
}

/* Three ranks of two workers get some batches each, and five ranks of one worker get the rest. */
static void plans(void)
{
	static const char *const shuffles[] = {NULL, "none", "full", "block", "window"};
	struct penstock_plan_options o = PENSTOCK_PLAN_OPTIONS_INIT;

	o.samples = SAMPLES;
	o.block = 8;
	o.window = 3;
	o.seed = 7;
	o.batch = PER_BATCH;
	for (size_t s = 0; s < sizeof(shuffles) / sizeof(*shuffles); s++) {
		int seen[SAMPLES] = {0};
		struct penstock_plan *plan;
		uint64_t id;

		o.shuffle = shuffles[s];
		o.start = 0;
		o.workers = 2;
		o.ranks = 3;
		for (o.rank = 0; o.rank < o.ranks; o.rank++)
			deal(&o, 5, seen);
		o.rank = 0;
		plan = planned(&o);
		id = penstock_plan_id(plan);
		o.start = penstock_plan_delivered(plan, 5);
		CHECK(o.start == 5 * 3 * PER_BATCH && penstock_plan_delivered(plan, 0) == 0);
		penstock_plan_free(plan);
		o.workers = 1;
		o.ranks = 5;
		plan = planned(&o);
		CHECK(penstock_plan_id(plan) == id);
		penstock_plan_free(plan);
		for (o.rank = 0; o.rank < o.ranks; o.rank++)
			deal(&o, UINT64_MAX, seen);
		o.rank = 0;
		for (int i = 0; i < SAMPLES; i++)
			CHECK(seen[i] == 1);
	}
}

/* The last step of two ranks has 5 samples for 8 places. */
static void rests(void)
{
	static const struct {
		const char *rest;
		size_t last[2], padded[2];
	} cases[] = {{NULL, {3, 2}, {0, 0}}, {"keep", {3, 2}, {0, 0}}, {"drop", {4, 4}, {0, 0}},
		{"pad", {3, 3}, {0, 1}}};
	struct penstock_plan_options o = PENSTOCK_PLAN_OPTIONS_INIT;
	uint64_t ids[PER_BATCH];

	o.samples = SAMPLES;
	o.batch = PER_BATCH;
	o.ranks = 2;
	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
		o.rest = cases[c].rest;
		for (o.rank = 0; o.rank < 2; o.rank++) {
			struct penstock_plan *plan = planned(&o);
			uint64_t n = penstock_plan_batches(plan);
			size_t padded = 0;

			CHECK(n == (o.rest && strcmp(o.rest, "drop") == 0 ? 12 : 13));
			CHECK(penstock_plan_batch(plan, n - 1, ids, &padded) ==
				cases[c].last[o.rank]);
			CHECK(padded == cases[c].padded[o.rank]);
			CHECK(penstock_plan_batch(plan, 0, ids, NULL) == PER_BATCH);
			penstock_plan_free(plan);
		}
	}
}

/* Three of four consecutive samples are of the first set; the ids of the second set follow those of
 * the first. */
static void mixes(void)
{
	static const uint64_t samples[] = {30, 10}, weights[] = {3, 1};
	struct penstock_plan_options o = PENSTOCK_PLAN_OPTIONS_INIT;
	struct penstock_plan *plan;
	int seen[40] = {0};

	o.sets = 2;
	o.set_samples = samples;
	o.set_weights = weights;
	o.batch = PER_BATCH;
	o.shuffle = "full";
	plan = planned(&o);
	CHECK(penstock_plan_samples(plan) == 40 && penstock_plan_batches(plan) == 10);
	for (uint64_t i = 0; i < 10; i++) {
		uint64_t ids[PER_BATCH];
		int second = 0;

		CHECK(penstock_plan_batch(plan, i, ids, NULL) == PER_BATCH);
		for (int k = 0; k < PER_BATCH; k++) {
			CHECK(ids[k] < 40 && ++seen[ids[k]] == 1);
			second += ids[k] >= 30;
		}
		CHECK(second == 1);
	}
	penstock_plan_free(plan);
	penstock_plan_free(NULL);
}

static void plans_that_are_invalid(void)
{
	struct {
		struct penstock_plan_options known;
		long unknown;
	} newer = {PENSTOCK_PLAN_OPTIONS_INIT, 0};
	struct penstock_plan_options good = PENSTOCK_PLAN_OPTIONS_INIT, o;
	struct penstock_plan *plan = NULL;

	good.samples = SAMPLES;
	good.batch = PER_BATCH;
	o = good;
	o.batch = 0;
	FAILS(PENSTOCK_E_INVALID, penstock_plan_new(&plan, &o, &err));
	o = good;
	o.ranks = o.rank = 2;
	FAILS(PENSTOCK_E_INVALID, penstock_plan_new(&plan, &o, &err));
	o = good;
	o.workers = o.worker = 2;
	FAILS(PENSTOCK_E_INVALID, penstock_plan_new(&plan, &o, &err));
	o = good;
	o.start = SAMPLES + 1;
	FAILS(PENSTOCK_E_INVALID, penstock_plan_new(&plan, &o, &err));
	o = good;
	o.seed = (uint64_t)INT64_MAX + 1;
	FAILS(PENSTOCK_E_INVALID, penstock_plan_new(&plan, &o, &err));
	o = good;
	o.shuffle = "blocks";
	FAILS(PENSTOCK_E_INVALID, penstock_plan_new(&plan, &o, &err));
	o = good;
	o.rest = "lose";
	FAILS(PENSTOCK_E_INVALID, penstock_plan_new(&plan, &o, &err));
	o = good;
	o.struct_size = 0;
	FAILS(PENSTOCK_E_INVALID, penstock_plan_new(&plan, &o, &err));
	newer.known = good;
	newer.known.struct_size = sizeof(newer);
	newer.unknown = 1;
	FAILS(PENSTOCK_E_UNSUPPORTED, penstock_plan_new(&plan, &newer.known, &err));
	CHECK(!plan);
	newer.unknown = 0;
	newer.known.samples = 0;
	CHECK(penstock_plan_new(&plan, &newer.known, &err) == 0);
	CHECK(penstock_plan_samples(plan) == 0 && penstock_plan_batches(plan) == 0);
	penstock_plan_free(plan);
}

static void all(struct penstock_transfer *t, const char *bucket)
{
	char *url = name(bucket, "records");

	CHECK(penstock_make_bucket(t, bucket, &err) == 0);
	CHECK(penstock_put_memory(t, url, big, BIG, NULL, NULL, &err) == 0);
	sets_of_objects(t, bucket);
	labels_of_folders(t, bucket);
	sets_that_cannot_be_opened(bucket);
	sets_of_records(url, NULL);
	sets_of_records(url, "cache");
	sets_of_records(url, "cache");
	free(url);
}

int main(int argc, char **argv)
{
	struct penstock_transfer *t = NULL;
	FILE *file = fopen("records", "w");

	big = malloc(BIG);
	for (size_t i = 0; i < BIG; i++)
		big[i] = (char)(i * 2654435761u >> 16);
	CHECK(file && fwrite(big, 1, BIG, file) == BIG && fclose(file) == 0);
	CHECK(penstock_transfer_new(&t, NULL, &err) == 0);
	for (int i = 1; i < argc; i++)
		all(t, argv[i]);
	penstock_transfer_free(t);
	sets_of_records("records", NULL);
	fields_of_samples();
	plans();
	rests();
	mixes();
	plans_that_are_invalid();
	free(big);
	return 0;
}
