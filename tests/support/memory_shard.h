/*
 * A shard in memory, and the samples that a scan of it finds. For unit tests and fuzz targets.
 *
 *	struct memory_shard m = {.data = bytes, .size = n};
 *	struct shard_reader shard = memory_shard_reader(&m, "a.tar");
 *	struct found f = {0};
 *
 *	format->scan(format, &shard, found_add, &f, &err);
 */
#ifndef SUPPORT_MEMORY_SHARD_H
#define SUPPORT_MEMORY_SHARD_H

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "dataset/format/format.h"

struct memory_shard {
	const void *data; /* the first `size` bytes; all other bytes are zero */
	uint64_t size;
	unsigned reads;
	uint64_t bytes; /* read so far */
	unsigned fail_at; /* number of the read that fails; 0 if none */
};

static inline int memory_shard_read(
	void *cookie, uint64_t offset, void *data, size_t len, struct penstock_error *err)
{
	struct memory_shard *m = cookie;

	if (len == 0 || offset > m->size || len > m->size - offset)
		abort();
	m->bytes += len;
	if (++m->reads == m->fail_at)
		return error_set(err, PENSTOCK_E_UNAVAILABLE, "no answer");
	memcpy(data, (const char *)m->data + offset, len);
	return 0;
}

static inline struct shard_reader memory_shard_reader(struct memory_shard *m, const char *name)
{
	return (struct shard_reader){
		.name = name, .size = m->size, .read = memory_shard_read, .cookie = m};
}

/* Reads a file of the directory $TEST_DATA. */
static inline int memory_shard_file(const char *name, struct buf *out)
{
	_cleanup_free_ char *path = path_join(getenv("TEST_DATA"), name);

	return path ? fs_read(path, out, NULL) : -1;
}

struct found {
	size_t n;
	size_t stop_at; /* the scan ends at this sample with error 7; 0 if never */
	struct {
		uint64_t offset, size;
		char key[256];
	} items[4096];
};

static inline int found_add(void *cookie, const struct format_sample *s, struct penstock_error *err)
{
	struct found *f = cookie;
	size_t len = s->key ? strlen(s->key) : 0;

	(void)err;
	if (f->n < 4096) {
		f->items[f->n].offset = s->offset;
		f->items[f->n].size = s->size;
		len = len < 255 ? len : 255;
		if (s->key)
			memcpy(f->items[f->n].key, s->key, len);
		f->items[f->n].key[len] = '\0';
	}
	f->n++;
	return f->n == f->stop_at ? 7 : 0;
}

static inline struct format_piece found_piece(
	const struct memory_shard *m, const char *name, const struct found *f, size_t i)
{
	return (struct format_piece){.shard = name,
		.offset = f->items[i].offset,
		.data = (const char *)m->data + f->items[i].offset,
		.size = (size_t)f->items[i].size};
}

static inline bool field_is(const struct format_field *f, const char *name)
{
	return f->name_len == strlen(name) && memcmp(f->name, name, f->name_len) == 0;
}

/* Returns the first field of that name, or NULL. */
static inline const struct format_field *field_of(const struct format_fields *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++) {
		if (field_is(&f->items[i], name))
			return &f->items[i];
	}
	return NULL;
}

#endif
