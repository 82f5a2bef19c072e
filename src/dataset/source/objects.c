/* Reads ranges of objects in a store, and of resources on the web. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/source/internal.h"
#include "transfer/reads.h"

/* Reads at most LIMIT_READS ranges. */
static int read_some(struct source_reader *reader, struct source_read *reads, size_t n,
	const atomic_int *cancel, struct penstock_error *err)
{
	const struct source *s = reader->source;
	_cleanup_free_ struct object_read *items = calloc(n, sizeof(*items));
	_cleanup_(buf_release) struct buf keys = BUF_INIT(LIMIT_READS_HEADS);
	_cleanup_free_ size_t *key = calloc(n, sizeof(*key));
	int r;

	if (!items || !key)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		const struct shard *shard = &s->shards[reads[i].shard];

		key[i] = keys.len;
		if (s->engine)
			source_web_url(s, source_name(s, reads[i].shard), &keys);
		else
			buf_printf(&keys, "%s%s", s->prefix,
				s->single ? "" : source_name(s, reads[i].shard));
		buf_add_char(&keys, '\0');
		items[i] = (struct object_read){.offset = reads[i].offset,
			.length = reads[i].length,
			.whole = reads[i].length == shard->size,
			.etag = atomic_load(&s->any_version) ? NULL : s->text.data + shard->etag,
			.data = reads[i].data,
			.pieces = reads[i].pieces};
	}
	if (buf_failed(&keys))
		return buf_error(&keys, "the names of objects", err);
	for (size_t i = 0; i < n; i++)
		items[i].key = keys.data + key[i];
	reads_patience(reader->reads, s->opened ? LIMIT_READS_PATIENCE_MS : LIMIT_OPEN_PATIENCE_MS);
	r = reads_run(reader->reads, items, n, cancel, err);
	for (size_t i = 0; i < n; i++)
		reads[i].error = items[i].error;
	return r;
}

/* Sets an error for the reads that were not tried. Returns the number of all failed reads. */
static int not_read(struct source_read *reads, size_t n, int failed)
{
	for (size_t i = 0; i < n; i++)
		error_set(&reads[i].error, PENSTOCK_E_CANCELLED, "another read failed");
	return failed + (int)n;
}

int source_read_objects(struct source_reader *reader, struct source_read *reads, size_t n,
	const atomic_int *cancel, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; i < n; i += LIMIT_READS) {
		size_t some = n - i < LIMIT_READS ? n - i : LIMIT_READS;

		if (r == 0)
			r = read_some(reader, reads + i, some, cancel, err);
		else if (r > 0)
			r = not_read(reads + i, some, r);
	}
	return r;
}
