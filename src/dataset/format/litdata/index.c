#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "dataset/format/internal.h"
#include "dataset/format/litdata/litdata.h"
#include "dataset/format/litdata/internal.h"

#define DEPTH 16 /* limit of nested dictionaries and lists in an item */

void litdata_index_free(struct litdata_index *index)
{
	if (!index)
		return;
	for (size_t i = 0; i < index->n; i++)
		free(index->chunks[i].filename);
	for (size_t i = 0; index->fields && i < index->fields->n; i++)
		free(index->fields->items[i].name);
	if (index->fields)
		free(index->fields->items);
	free(index->fields);
	free(index->chunks);
	free(index);
}

static int refuse(
	const char *name, enum penstock_code code, const char *reason, struct penstock_error *err)
{
	return error_set(err, code, "cannot read '%s': %s", name, reason);
}

/* ---- names of fields ---- */

/* The names that the tree of an item gives to its leaves. */
struct names {
	struct litdata_fields *fields;
	size_t n; /* leaves so far */
	struct buf path;
	bool no_memory;
};

static bool set_name(struct names *names)
{
	struct litdata_field *field;

	if (names->n == names->fields->n || names->path.len > LIMIT_FORMAT_NAME)
		return false;
	field = &names->fields->items[names->n++];
	if (!buf_failed(&names->path))
		field->name = strdup(names->path.len ? names->path.data : "0");
	names->no_memory = !field->name;
	return !names->no_memory;
}

/* Adds a child's key, or the child's position if `keys` is not the list of keys of a dictionary. */
static void add_key(struct buf *path, const json_t *keys, size_t i, size_t n)
{
	const json_t *key = json_array_size(keys) == n ? json_array_get(keys, i) : NULL;

	if (path->len)
		buf_add_char(path, '.');
	if (json_is_string(key))
		buf_add_str(path, json_string_value(key));
	else
		buf_printf(path, "%zu", i);
}

/* Names the leaves below a node {"type", "context", "children_spec"}; the context of a dictionary
 * is the text of its keys. Returns false if the tree does not fit the fields. */
static bool name_leaves(struct names *names, const json_t *node, unsigned depth)
{
	const json_t *children = json_object_get(node, "children_spec");
	const char *context = json_string_value(json_object_get(node, "context"));
	json_auto_t *keys = context ? json_loads(context, JSON_DECODE_ANY, NULL) : NULL;
	size_t n = json_array_size(children), len = names->path.len;

	if (!json_is_array(children) || depth == DEPTH)
		return false;
	if (json_is_null(json_object_get(node, "type")))
		return n == 0 && set_name(names);
	for (size_t i = 0; i < n; i++) {
		add_key(&names->path, keys, i, n);
		if (!name_leaves(names, json_array_get(children, i), depth + 1))
			return false;
		buf_truncate(&names->path, len);
	}
	return true;
}

static bool names_are_unique(const struct litdata_fields *fields)
{
	for (size_t i = 0; i < fields->n; i++) {
		for (size_t k = 0; k < i; k++) {
			if (strcmp(fields->items[i].name, fields->items[k].name) == 0)
				return false;
		}
	}
	return true;
}

/* Names all fields. The tree is [1, NODE] as text. */
static int read_names(struct litdata_fields *fields, const json_t *config, const char *name,
	struct penstock_error *err)
{
	const char *text = json_string_value(json_object_get(config, "data_spec"));
	json_auto_t *spec = text ? json_loads(text, 0, NULL) : NULL;
	struct names names = {.fields = fields, .path = BUF_INIT(LIMIT_STRING)};
	bool good = name_leaves(&names, json_array_get(spec, 1), 0) && names.n == fields->n &&
		    names_are_unique(fields);

	buf_release(&names.path);
	if (names.no_memory)
		return error_memory(err);
	return good ? 0 : refuse(name, PENSTOCK_E_CORRUPT, "invalid 'data_spec'", err);
}

/* ---- the index ---- */

static int read_fields(struct litdata_index *index, const json_t *config, const char *name,
	struct penstock_error *err)
{
	const json_t *format = json_object_get(config, "data_format");
	size_t n = json_array_size(format);

	if (n == 0)
		return refuse(name, PENSTOCK_E_CORRUPT, "invalid 'data_format'", err);
	if (n > LIMIT_FORMAT_FIELDS)
		return refuse(name, PENSTOCK_E_LIMIT, "too many fields", err);
	index->fields = calloc(1, sizeof(*index->fields));
	if (!index->fields)
		return error_memory(err);
	index->fields->items = calloc(n, sizeof(*index->fields->items));
	if (!index->fields->items)
		return error_memory(err);
	index->fields->n = n;
	for (size_t i = 0; i < n; i++) {
		const char *serializer = json_string_value(json_array_get(format, i));
		const char *fault = "it has no serializer";

		if (serializer)
			fault = litdata_field_init(&index->fields->items[i], serializer);
		if (fault)
			return error_set(err, PENSTOCK_E_UNSUPPORTED,
				"cannot read '%s': field %zu with serializer '%s': %s", name, i,
				serializer ? serializer : "", fault);
	}
	return read_names(index->fields, config, name, err);
}

/* Returns true for "zstd" and "zstd:LEVEL" of whole chunks, not of items or batches in a chunk. */
static bool is_zstd(const json_t *config)
{
	const char *name = json_string_value(json_object_get(config, "compression"));
	const char *of = json_string_value(json_object_get(config, "compression_level"));

	return name && (strcmp(name, "zstd") == 0 || str_starts(name, "zstd:")) &&
	       (!of || strcmp(of, "chunk") == 0);
}

static bool is_for_tokens(const json_t *config)
{
	const char *loader = json_string_value(json_object_get(config, "item_loader"));

	return loader && strcmp(loader, "TokensLoader") == 0;
}

/* Returns the reason why data sets with this configuration are refused, or NULL if they are
 * supported. */
static const char *unsupported(const json_t *config)
{
	const json_t *compression = json_object_get(config, "compression");
	const json_t *encryption = json_object_get(config, "encryption");
	const char *loader = json_string_value(json_object_get(config, "item_loader"));

	if (compression && !json_is_null(compression) && !is_zstd(config))
		return "its compression is not supported; only zstd of whole chunks is";
	if (encryption && !json_is_null(encryption))
		return "its chunks are encrypted";
	if (loader && strcmp(loader, "PyTreeLoader") != 0 && !is_for_tokens(config))
		return "only data sets for PyTreeLoader and TokensLoader are supported";
	if (is_for_tokens(config) && is_zstd(config))
		return "compressed chunks of tokens are not supported";
	return NULL;
}

/* In chunks for TokensLoader each item is an array of tokens. */
static int read_tokens(struct litdata_index *index, const json_t *config, const char *name,
	struct penstock_error *err)
{
	const struct litdata_field *field = &index->fields->items[0];

	if (!is_for_tokens(config))
		return 0;
	if (index->fields->n != 1 || field->kind != LITDATA_VECTOR)
		return refuse(name, PENSTOCK_E_UNSUPPORTED,
			"its items for TokensLoader must be single arrays without a header", err);
	index->tokens = field->dtype;
	return 0;
}

static int read_chunk(struct litdata_chunk *chunk, const json_t *json, const char *name,
	struct penstock_error *err)
{
	const char *filename = json_string_value(json_object_get(json, "filename"));
	const json_t *size = json_object_get(json, "chunk_size");

	if (!filename || !shard_name_is_good(filename) || !json_is_integer(size) ||
		json_integer_value(size) < 0 || json_integer_value(size) > UINT32_MAX)
		return refuse(name, PENSTOCK_E_CORRUPT, "invalid name or size of a chunk", err);
	chunk->samples = (uint64_t)json_integer_value(size);
	chunk->filename = strdup(filename);
	return chunk->filename ? 0 : error_memory(err);
}

int litdata_index_parse(struct litdata_index **out, const char *data, size_t len, const char *name,
	struct penstock_error *err)
{
	_cleanup_(litdata_index_freep) struct litdata_index *index = calloc(1, sizeof(*index));
	json_auto_t *root = NULL;
	const json_t *chunks, *config;
	const char *fault;
	int r;

	if (!index)
		return error_memory(err);
	if (len > LIMIT_FORMAT_INDEX)
		return error_set(err, PENSTOCK_E_LIMIT, "cannot read '%s': more than %zu bytes",
			name, LIMIT_FORMAT_INDEX);
	root = json_loadb(data, len, JSON_REJECT_DUPLICATES, NULL);
	chunks = json_object_get(root, "chunks");
	config = json_object_get(root, "config");
	if (!json_is_array(chunks) || !json_is_object(config))
		return refuse(name, PENSTOCK_E_CORRUPT, "it is not an index of litData", err);
	fault = unsupported(config);
	if (fault)
		return refuse(name, PENSTOCK_E_UNSUPPORTED, fault, err);
	index->zstd = is_zstd(config);
	r = read_fields(index, config, name, err);
	if (r == 0)
		r = read_tokens(index, config, name, err);
	if (r < 0)
		return r;
	index->chunks = calloc(json_array_size(chunks) + 1, sizeof(*index->chunks));
	if (!index->chunks)
		return error_memory(err);
	for (size_t i = 0; r == 0 && i < json_array_size(chunks); i++) {
		struct litdata_chunk *chunk = &index->chunks[index->n++];

		litdata_chunk_init(chunk, index->fields);
		r = read_chunk(chunk, json_array_get(chunks, i), name, err);
	}
	if (r < 0)
		return r;
	*out = take_pointer(index);
	return 0;
}
