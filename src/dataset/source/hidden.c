/* Reads and writes an index next to the shards. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "dataset/source/internal.h"

static int append(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct buf *out = cookie;

	return buf_add(out, data, len) < 0 ? buf_error(out, "an index", err) : 0;
}

int source_get(const struct source *s, const char *name, const atomic_int *cancel, struct buf *out,
	struct penstock_error *err)
{
	_cleanup_free_ char *key = NULL;
	struct stat st;

	if (s->engine)
		return source_web_get(s, name, cancel, out, err);
	key = s->client ? str_printf("%s%s", s->prefix, name) : path_join(s->prefix, name);
	if (!key)
		return error_memory(err);
	/* A range is not verified against the object's checksum: an index has its own checksum. */
	if (s->client)
		return object_get_stream(object_at(s->client, s->bucket, key),
			&(struct object_get_options){.length = out->limit, .cancel = cancel},
			append, out, NULL, err);
	if (stat(key, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size < out->limit &&
		!buf_reserve(out, (size_t)st.st_size + 1))
		return buf_error(out, "an index", err);
	return fs_read_plain(key, out, err);
}

int source_put(const struct source *s, const char *name, const void *data, size_t len,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ char *key = NULL;

	if (s->single)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot write an index of '%s': the URL names one shard; name the prefix or the "
			"directory that contains it",
			s->url);
	if (s->engine)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot write an index of '%s': HTTP is read-only; write the index where the "
			"files are",
			s->url);
	key = s->client ? str_printf("%s%s", s->prefix, name) : path_join(s->prefix, name);
	if (!key)
		return error_memory(err);
	if (s->client)
		return object_put(object_at(s->client, s->bucket, key), data, len,
			&(struct object_put_options){.cancel = cancel}, NULL, err);
	return fs_write_atomic(key, data, len, 0644, err);
}
