/* Writes the indexes of a packed data set: the index of the format, if the format has one, and the
 * index of penstock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "dataset/format/mds/mds.h"
#include "dataset/pack/internal.h"

/* Tables of the index. The files in the list are the document, if there is one, and the shards. */
struct tables {
	struct buf text, document;
	struct source_entry *entries;
	struct index_part *parts;
	struct index_range *ranges;
	uint32_t *sums;
	size_t n;
	uint64_t samples;
};

static void release(struct tables *t)
{
	buf_release(&t->text);
	buf_release(&t->document);
	free(t->entries);
	free(t->parts);
	free(t->ranges);
	free(t->sums);
}

static int add_document(
	const struct pack *p, struct tables *t, struct pack_done *done, struct penstock_error *err)
{
	struct mds_written *shards = calloc(p->n, sizeof(*shards));
	char(*names)[2][PACK_NAME_SIZE] = calloc(p->n, sizeof(*names));
	int r = shards && names ? 0 : error_memory(err);
	char compression[16];

	snprintf(compression, sizeof(compression), "zstd:%d", p->options->zstd);
	for (size_t i = 0; r == 0 && i < p->n; i++) {
		const struct pack_done *written = &p->done[i];
		char *name = names[i][0], *unpacked = names[i][1];

		pack_name(p, i, name);
		shards[i] = (struct mds_written){
			.basename = name, .bytes = written->size, .samples = written->n};
		if (!p->options->zstd)
			continue;
		memcpy(unpacked, name, strlen(name) - strlen(".zstd"));
		shards[i].basename = unpacked;
		shards[i].bytes = written->unpacked;
		shards[i].zip = name;
		shards[i].zip_bytes = written->size;
		shards[i].zip_sha1 = written->sha1;
		shards[i].compression = compression;
	}
	if (r == 0)
		r = mds_index_add(p->columns, shards, p->n, &t->document, err);
	if (r == 0)
		r = pack_put(p, "index.json", t->document.data, t->document.len, done, err);
	free(shards);
	free(names);
	return r;
}

static void add_file(const struct pack *p, struct tables *t, const char *name,
	const struct pack_done *done, uint64_t header)
{
	struct source_entry *e = &t->entries[t->n];

	*e = (struct source_entry){
		.size = done->size, .name = t->text.len, .mtime_ns = done->mtime_ns};
	buf_add(&t->text, name, strlen(name) + 1);
	if (p->client) {
		e->etag = t->text.len;
		buf_add(&t->text, done->etag, strlen(done->etag) + 1);
	}
	t->parts[t->n++] = (struct index_part){.first = t->samples, .header = header};
	if (!done->n)
		return;
	memcpy(t->ranges + t->samples, done->ranges, done->n * sizeof(*t->ranges));
	memcpy(t->sums + t->samples, done->sums, done->n * sizeof(*t->sums));
	t->samples += done->n;
}

static void set_settings(const struct pack *p, struct index *index)
{
	struct index_settings *s = &index->settings;
	const char *dtype = dtype_name(p->row.dtype);

	if (p->format == &pack_records)
		s->record_size = p->row_size;
	if (p->format != &pack_npy)
		return;
	memcpy(s->dtype, dtype, strlen(dtype));
	s->ndim = p->row.ndim;
	memcpy(s->dims, p->row.dims, s->ndim * sizeof(s->dims[0]));
}

static int write_index(const struct pack *p, struct tables *t, struct penstock_error *err)
{
	bool records = p->format == &pack_records || p->format == &pack_npy;
	struct index index = {.list = {.objects = p->client != NULL,
				      .n = t->n,
				      .entries = t->entries,
				      .text = t->text.data,
				      .text_len = t->text.len},
		.samples = t->samples,
		.parts = t->parts,
		.ranges = records ? NULL : t->ranges,
		.sums = t->sums,
		.document = t->document.data,
		.document_len = t->document.len};
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_DATASET_INDEX);
	struct pack_done done = {0};
	int r;

	t->parts[t->n] = (struct index_part){.first = t->samples};
	memcpy(index.format, p->format->name, strlen(p->format->name));
	set_settings(p, &index);
	r = index_write(&index, &out, err);
	if (r == 0)
		r = pack_put(p, INDEX_NAME, out.data, out.len, &done, err);
	free(done.etag);
	return r;
}

int pack_finish(const struct pack *p, struct penstock_error *err)
{
	_cleanup_(release) struct tables t = {
		.text = BUF_INIT(LIMIT_DATASET_NAMES), .document = BUF_INIT(LIMIT_FORMAT_INDEX)};
	struct pack_done document = {0};
	char name[PACK_NAME_SIZE];
	int r = 0;

	t.entries = calloc(p->n + 1, sizeof(*t.entries));
	t.parts = calloc(p->n + 2, sizeof(*t.parts));
	t.ranges = calloc(p->units, sizeof(*t.ranges));
	t.sums = calloc(p->units, sizeof(*t.sums));
	if (!t.entries || !t.parts || !t.ranges || !t.sums)
		return error_memory(err);
	if (p->format == &pack_mds) {
		r = add_document(p, &t, &document, err);
		if (r == 0)
			add_file(p, &t, "index.json", &document, UINT64_MAX);
		free(document.etag);
	}
	for (size_t i = 0; r == 0 && i < p->n; i++) {
		pack_name(p, i, name);
		add_file(p, &t, name, &p->done[i], p->format == &pack_npy ? PACK_NPY_HEAD : 0);
	}
	if (r == 0 && buf_failed(&t.text))
		r = buf_error(&t.text, "the list of shards", err);
	/* Compressed shards have no index of penstock. */
	return r < 0 || p->options->zstd ? r : write_index(p, &t, err);
}
