#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <penstock/error.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "dataset/format/internal.h"
#include "dataset/format/mds/mds.h"
#include "dataset/format/mds/internal.h"
#include "s3/json.h"

/* The index that is being read; `at` is the number of the shard. */
struct reader {
	struct mds_index *index;
	const char *name;
	size_t at;
	struct penstock_error *err;
};

static void file_release(struct mds_file *file)
{
	free(file->basename);
	strlist_release(&file->hashes);
}

void mds_index_free(struct mds_index *index)
{
	if (!index)
		return;
	for (size_t i = 0; i < index->n; i++) {
		file_release(&index->shards[i].raw);
		file_release(&index->shards[i].zip);
		free(index->shards[i].compression);
	}
	for (size_t i = 0; i < index->n_columns; i++)
		mds_columns_free(index->columns[i]);
	free(index->shards);
	free(index->columns);
	free(index);
}

static int refuse(const struct reader *in, enum penstock_code code, const char *reason)
{
	return error_set(
		in->err, code, "cannot read '%s': %s in shard %zu", in->name, reason, in->at);
}

static int corrupt(const struct reader *in, const char *reason)
{
	return refuse(in, PENSTOCK_E_CORRUPT, reason);
}

/* Returns true if `json` is the number `size`, or if `json` is null and `size` is 0: both mean that
 * each sample has its own size. */
static bool size_is(const json_t *json, size_t size)
{
	uint64_t n = 0;

	return (json_is_null(json) || s3_json_number(json, UINT32_MAX, &n)) && n == size;
}

static int read_column(const struct reader *in, struct mds_columns *columns, const json_t *name,
	const json_t *encoding, const json_t *size)
{
	struct mds_column *c = &columns->items[columns->n];
	const char *fault;
	int code;

	if (!json_is_string(name) || !json_is_string(encoding))
		return corrupt(in, "invalid column");
	columns->n++;
	fault = mds_column_init(c, json_string_value(name), json_string_value(encoding), &code);
	if (fault && code == PENSTOCK_E_MEMORY)
		return error_memory(in->err);
	if (!fault && !size_is(size, c->size)) {
		code = PENSTOCK_E_CORRUPT;
		fault = "its size is not that of its encoding";
	}
	for (size_t i = 0; !fault && i + 1 < columns->n; i++) {
		if (strcmp(columns->items[i].name, c->name) == 0)
			fault = "it appears twice";
	}
	if (fault)
		return error_set(in->err, (enum penstock_code)code,
			"cannot read '%s': column '%s' with encoding '%s' of shard %zu: %s",
			in->name, c->name, c->encoding, in->at, fault);
	return 0;
}

static int new_columns(
	struct reader *in, const json_t *names, const json_t *codes, const json_t *sizes)
{
	size_t n = json_array_size(names);
	struct mds_columns **all;
	struct mds_columns *columns;
	int r = 0;

	all = array_grow(in->index->columns, in->index->n_columns, sizeof(struct mds_columns *));
	if (!all)
		return error_memory(in->err);
	in->index->columns = all;
	columns = calloc(1, sizeof(*columns));
	if (!columns)
		return error_memory(in->err);
	all[in->index->n_columns++] = columns;
	columns->items = calloc(n, sizeof(*columns->items));
	if (!columns->items)
		return error_memory(in->err);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = read_column(in, columns, json_array_get(names, i), json_array_get(codes, i),
			json_array_get(sizes, i));
	return r;
}

/* Returns true if this shard has the same columns as the previous one. */
static bool same_columns(
	const struct reader *in, const json_t *names, const json_t *codes, const json_t *sizes)
{
	const struct mds_columns *last;

	if (in->index->n_columns == 0)
		return false;
	last = in->index->columns[in->index->n_columns - 1];
	if (last->n != json_array_size(names))
		return false;
	for (size_t i = 0; i < last->n; i++) {
		const char *name = json_string_value(json_array_get(names, i));
		const char *encoding = json_string_value(json_array_get(codes, i));

		if (!name || !encoding || strcmp(name, last->items[i].name) != 0 ||
			strcmp(encoding, last->items[i].encoding) != 0 ||
			!size_is(json_array_get(sizes, i), last->items[i].size))
			return false;
	}
	return true;
}

static int read_columns(struct reader *in, struct mds_shard *shard, const json_t *json)
{
	const json_t *names = json_object_get(json, "column_names");
	const json_t *codes = json_object_get(json, "column_encodings");
	const json_t *sizes = json_object_get(json, "column_sizes");
	size_t n = json_array_size(names);
	int r = 0;

	if (n == 0 || n != json_array_size(codes) || n != json_array_size(sizes))
		return corrupt(in, "invalid columns");
	if (n > LIMIT_FORMAT_FIELDS)
		return refuse(in, PENSTOCK_E_LIMIT, "too many columns");
	if (!same_columns(in, names, codes, sizes))
		r = new_columns(in, names, codes, sizes);
	if (r == 0)
		shard->columns = in->index->columns[in->index->n_columns - 1];
	return r;
}

static int read_file(const struct reader *in, struct mds_file *file, const json_t *json)
{
	const char *basename = json_string_value(json_object_get(json, "basename"));
	json_t *hashes = json_object_get(json, "hashes");
	const char *name;
	json_t *value;

	if (!basename || !shard_name_is_good(basename))
		return corrupt(in, "invalid name of a file");
	if (!s3_json_number(json_object_get(json, "bytes"), INT64_MAX, &file->bytes))
		return corrupt(in, "invalid size of a file");
	if (json_object_size(hashes) > 8)
		return corrupt(in, "too many hashes");
	if (!str_copy(&file->basename, basename))
		return error_memory(in->err);
	json_object_foreach (hashes, name, value) {
		if (!json_is_string(value) || strchr(name, '='))
			return corrupt(in, "invalid hash of a file");
		if (strlist_addf(&file->hashes, "%s=%s", name, json_string_value(value)) < 0)
			return error_memory(in->err);
	}
	return 0;
}

static int read_shard(struct reader *in, struct mds_shard *shard, const json_t *json)
{
	const char *format = json_string_value(json_object_get(json, "format"));
	const char *compression = json_string_value(json_object_get(json, "compression"));
	const json_t *zip = json_object_get(json, "zip_data");
	uint64_t version;
	int r;

	if (!s3_json_number(json_object_get(json, "version"), INT32_MAX, &version) || version != 2)
		return refuse(in, PENSTOCK_E_UNSUPPORTED, "a version other than 2");
	if (!format || strcmp(format, "mds") != 0)
		return refuse(in, PENSTOCK_E_UNSUPPORTED, "a format other than 'mds'");
	if (!s3_json_number(json_object_get(json, "samples"), UINT32_MAX, &shard->samples))
		return corrupt(in, "invalid number of samples");
	if (!str_copy(&shard->compression, compression))
		return error_memory(in->err);
	r = read_columns(in, shard, json);
	if (r == 0)
		r = read_file(in, &shard->raw, json_object_get(json, "raw_data"));
	if (r == 0 && zip && !json_is_null(zip))
		r = read_file(in, &shard->zip, zip);
	return r;
}

int mds_index_parse(struct mds_index **out, const char *data, size_t len, const char *name,
	struct penstock_error *err)
{
	_cleanup_(mds_index_freep) struct mds_index *index = calloc(1, sizeof(*index));
	json_auto_t *root = NULL;
	const json_t *shards;
	struct reader in = {.index = index, .name = name, .err = err};
	uint64_t version;
	int r = 0;

	if (!index)
		return error_memory(err);
	if (len > LIMIT_FORMAT_INDEX)
		return error_set(err, PENSTOCK_E_LIMIT, "cannot read '%s': more than %zu bytes",
			name, LIMIT_FORMAT_INDEX);
	root = json_loadb(data, len, JSON_REJECT_DUPLICATES, NULL);
	shards = json_object_get(root, "shards");
	if (!json_is_array(shards) ||
		!s3_json_number(json_object_get(root, "version"), INT32_MAX, &version))
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot read '%s': it is not an index of MosaicML Streaming", name);
	if (version != 2)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot read '%s': version %" PRIu64 " of the index; only 2 is supported",
			name, version);
	index->shards = calloc(json_array_size(shards) + 1, sizeof(*index->shards));
	if (!index->shards)
		return error_memory(err);
	for (; r == 0 && in.at < json_array_size(shards); in.at++) {
		struct mds_shard *shard = &index->shards[index->n++];

		mds_shard_init(shard);
		r = read_shard(&in, shard, json_array_get(shards, in.at));
	}
	if (r < 0)
		return r;
	*out = take_pointer(index);
	return 0;
}
