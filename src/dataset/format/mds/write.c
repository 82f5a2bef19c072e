#include <inttypes.h>
#include <string.h>

#include <jansson.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "dataset/format/internal.h"
#include "dataset/format/mds/mds.h"
#include "dataset/format/mds/internal.h"

/* The setting size_limit of MosaicML's writer. MosaicML's readers require the setting in the index,
 * but do not use it. */
#define SIZE_LIMIT (64 * MIB)

static int add_u32(struct buf *out, uint64_t value)
{
	uint32_t n = htole32((uint32_t)value);

	return buf_add(out, &n, 4);
}

/* ---- samples ---- */

static const char *check_array(const struct mds_column *c, const struct format_field *v)
{
	size_t size;

	if (v->type != FORMAT_ARRAY || !mds_code_of_dtype(v->dtype) || v->big_endian)
		return "it is not an array of little-endian numbers";
	if (c->dtype && c->dtype != v->dtype)
		return "its type differs from that of the column";
	if (v->ndim == 0 || v->ndim > LIMIT_FORMAT_DIMS ||
		!format_array_size(v->dtype, v->ndim, v->dims, &size) || size != v->size ||
		size == 0)
		return "its shape does not match its size, or is empty";
	if (c->ndim &&
		(c->ndim != v->ndim || memcmp(c->dims, v->dims, sizeof(v->dims[0]) * v->ndim) != 0))
		return "its shape differs from that of the column";
	return NULL;
}

/* Returns NULL, or the reason why a value does not fit its column. */
static const char *check_value(const struct mds_column *c, const struct format_field *v)
{
	switch (c->kind) {
	case MDS_TEXT:
	case MDS_JSON:
		return str_is_utf8(v->data, v->size) ? NULL : "the value is not UTF-8";
	case MDS_NUMBER:
		return v->type == FORMAT_NUMBER && v->dtype == c->dtype && v->size == c->size &&
				       !v->big_endian
			       ? NULL
			       : "the value is not a little-endian number of that type";
	case MDS_NDARRAY:
		return check_array(c, v);
	default:
		return NULL;
	}
}

/* Returns the binary logarithm of the size in bytes of the smallest integer type that can hold each
 * dimension. */
static unsigned dims_width(const struct format_field *v)
{
	uint64_t max = 0;

	for (unsigned i = 0; i < v->ndim; i++)
		max = v->dims[i] > max ? v->dims[i] : max;
	return max > UINT32_MAX ? 3 : max > UINT16_MAX ? 2 : max > UINT8_MAX ? 1 : 0;
}

/* Returns the number of bytes before the values of an array. */
static size_t head_size(const struct mds_column *c, const struct format_field *v)
{
	if (c->kind != MDS_NDARRAY)
		return 0;
	return (c->dtype ? 0 : 1) + (c->ndim ? 0 : 1 + ((size_t)v->ndim << dims_width(v)));
}

static void add_head(const struct mds_column *c, const struct format_field *v, struct buf *out)
{
	unsigned width = dims_width(v);

	if (c->kind != MDS_NDARRAY)
		return;
	if (!c->dtype)
		buf_add_char(out, (char)mds_code_of_dtype(v->dtype));
	if (c->ndim)
		return;
	buf_add_char(out, (char)(v->ndim << 2 | width));
	for (unsigned i = 0; i < v->ndim; i++) {
		uint64_t n = htole64(v->dims[i]);

		buf_add(out, &n, (size_t)1 << width);
	}
}

int mds_sample_add(const struct mds_columns *columns, const struct format_field *values,
	struct buf *out, struct penstock_error *err)
{
	for (size_t i = 0; i < columns->n; i++) {
		const struct mds_column *c = &columns->items[i];
		const char *fault = check_value(c, &values[i]);
		size_t size = 0;

		if (!fault) {
			size = head_size(c, &values[i]) + values[i].size;
			if (size > UINT32_MAX)
				fault = "the value has 4 GiB or more";
		}
		if (fault)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot write column '%s' as '%s': %s", c->name, c->encoding,
				fault);
		if (c->size == 0)
			add_u32(out, size);
	}
	for (size_t i = 0; i < columns->n; i++) {
		add_head(&columns->items[i], &values[i], out);
		buf_add(out, values[i].data, values[i].size);
	}
	return buf_failed(out) ? buf_error(out, "a sample", err) : 0;
}

/* ---- documents ---- */

/* Returns the settings that a shard and its entry in the index have in common, or NULL if out of
 * memory. */
static json_t *settings(const struct mds_columns *columns)
{
	json_t *names = json_array(), *codes = json_array(), *sizes = json_array();
	bool good = true;

	for (size_t i = 0; i < columns->n; i++) {
		const struct mds_column *c = &columns->items[i];

		good = json_array_append_new(names, json_string(c->name)) == 0 &&
		       json_array_append_new(codes, json_string(c->encoding)) == 0 &&
		       json_array_append_new(sizes,
			       c->size ? json_integer((json_int_t)c->size) : json_null()) == 0 &&
		       good;
	}
	if (!good) {
		json_decref(names);
		json_decref(codes);
		json_decref(sizes);
		return NULL;
	}
	return json_pack("{s:o, s:o, s:o, s:n, s:s, s:[], s:I, s:i}", "column_names", names,
		"column_encodings", codes, "column_sizes", sizes, "compression", "format", "mds",
		"hashes", "size_limit", (json_int_t)SIZE_LIMIT, "version", 2);
}

static int add_json(struct buf *out, const json_t *json, struct penstock_error *err)
{
	_cleanup_free_ char *text = json ? json_dumps(json, JSON_SORT_KEYS | JSON_ENSURE_ASCII)
					 : NULL;

	if (!text)
		return error_memory(err);
	buf_add_str(out, text);
	return 0;
}

int mds_header_add(const struct mds_columns *columns, const uint64_t *sizes, size_t n,
	struct buf *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf config = BUF_INIT(LIMIT_STRING);
	json_auto_t *json = settings(columns);
	uint64_t at;
	int r = add_json(&config, json, err);

	if (r == 0 && buf_failed(&config))
		r = buf_error(&config, "the columns of a shard", err);
	if (r < 0)
		return r;
	at = 4 * ((uint64_t)n + 2) + config.len;
	for (size_t i = 0; n <= UINT32_MAX && i < n && at <= UINT32_MAX; i++)
		at = sizes[i] > UINT32_MAX ? UINT64_MAX : at + sizes[i];
	if (n > UINT32_MAX || at > UINT32_MAX)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot write a shard of %zu samples: it would have 4 GiB or more", n);
	at = 4 * ((uint64_t)n + 2) + config.len;
	add_u32(out, n);
	add_u32(out, at);
	for (size_t i = 0; i < n; i++) {
		at += sizes[i];
		add_u32(out, at);
	}
	buf_add(out, config.data, config.len);
	return buf_failed(out) ? buf_error(out, "the header of a shard", err) : 0;
}

static int add_shard(const struct mds_columns *columns, const struct mds_written *shard,
	struct buf *out, struct penstock_error *err)
{
	json_auto_t *json = settings(columns);
	json_auto_t *more = json_pack("{s:{s:s, s:I, s:{}}, s:I, s:n}", "raw_data", "basename",
		shard->basename, "bytes", (json_int_t)shard->bytes, "hashes", "samples",
		(json_int_t)shard->samples, "zip_data");
	json_auto_t *zip = NULL;

	if (shard->zip)
		zip = json_pack("{s:s, s:{s:s, s:I, s:{s:s}}}", "compression", shard->compression,
			"zip_data", "basename", shard->zip, "bytes", (json_int_t)shard->zip_bytes,
			"hashes", "sha1", shard->zip_sha1);
	if (!json || !more || json_object_update(json, more) < 0 ||
		(shard->zip && json_object_update(json, zip) < 0))
		return error_memory(err);
	return add_json(out, json, err);
}

int mds_index_add(const struct mds_columns *columns, const struct mds_written *shards, size_t n,
	struct buf *out, struct penstock_error *err)
{
	int r = 0;

	buf_add_str(out, "{\"shards\": [");
	for (size_t i = 0; r == 0 && i < n; i++) {
		buf_add_str(out, i ? ", " : "");
		r = add_shard(columns, &shards[i], out, err);
	}
	buf_add_str(out, "], \"version\": 2}");
	if (r < 0)
		return r;
	return buf_failed(out) ? buf_error(out, "the index of a data set", err) : 0;
}
