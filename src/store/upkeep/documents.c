#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "s3/sum/checksum.h"
#include "store/header.h"
#include "store/upkeep/archive.h"

static json_t *base64_json(const void *data, size_t len)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STORE_LAYOUT);

	return base64_encode(&text, data, len) < 0 ? NULL : json_string(buf_str(&text));
}

static json_t *parts_json(const struct store_object *object)
{
	json_t *list = json_array();

	for (size_t i = 0; i < object->n_parts; i++) {
		const struct store_part *p = &object->parts[i];

		if (json_array_append_new(list, json_pack("{s:i, s:I, s:s, s:s}", "number",
							(int)p->number, "size", (json_int_t)p->size,
							"etag", p->etag, "checksum", p->checksum)) <
			0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

json_t *export_object_json(const struct cursor *at, const struct cursor_row *row, const char *crc)
{
	const struct store_object *o = row->object;

	return json_pack("{s:s, s:b, s:b, s:b, s:I, s:I, s:s, s:{s:s, s:s, s:s}, s:o, s:o, s:s}",
		"key", row->key, "current", at->stage == CURSOR_OBJECTS && !o->marker, "marker",
		o->marker, "null", version_is_null(o->version), "size", (json_int_t)o->size,
		"modified", (json_int_t)o->modified_ns, "etag", o->etag, "checksum", "algorithm",
		o->checksum.algorithm, "type", o->checksum.type, "value", o->checksum.value,
		"headers", base64_json(o->headers, o->headers_len), "parts", parts_json(o),
		"crc64nvme", crc);
}

static int invalid(struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CORRUPT, "a document of the archive is invalid");
}

static int refuse(const struct export_object *object, const char *why, struct penstock_error *err)
{
	return error_set(
		err, PENSTOCK_E_CORRUPT, "cannot import object '%s': %s", object->key, why);
}

/* Copies an ETag, a checksum, or a name of a checksum. Returns false if the text does not fit, or
 * if it has characters other than those of base64, '-' and '_'. */
static bool copy(char *out, size_t size, const char *text)
{
	size_t len = strlen(text);

	if (len >= size ||
		len != strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789+/=-_"))
		return false;
	memcpy(out, text, len + 1);
	return true;
}

/* Reads the parts, which must be in order and cover the object. */
static int read_parts(json_t *list, struct export_object *out, struct penstock_error *err)
{
	size_t n = json_array_size(list);
	uint64_t all = 0;
	int last = 0;

	if (n > LIMIT_S3_PARTS)
		return invalid(err);
	out->parts = calloc(n ? n : 1, sizeof(*out->parts));
	if (!out->parts)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		struct store_part *p = &out->parts[i];
		const char *etag, *checksum;
		json_int_t size;
		int number;

		if (json_unpack(json_array_get(list, i), "{s:i, s:I, s:s, s:s}", "number", &number,
			    "size", &size, "etag", &etag, "checksum", &checksum) < 0 ||
			size < 0 || (uint64_t)size > out->size - all)
			return invalid(err);
		if (number <= last || number > LIMIT_S3_PARTS)
			return refuse(out, "its parts are not in ascending order", err);
		if (!copy(p->etag, sizeof(p->etag), etag) ||
			!copy(p->checksum, sizeof(p->checksum), checksum))
			return refuse(out, "a part has an invalid ETag or checksum", err);
		p->number = (uint32_t)number;
		p->size = (uint64_t)size;
		all += p->size;
		last = number;
	}
	out->n_parts = n;
	return n && all != out->size ? invalid(err) : 0;
}

/* Returns true if the stored headers are pairs of strings, each with its NUL. */
static bool headers_are_pairs(const struct buf *headers)
{
	size_t strings = 0;

	for (size_t i = 0; i < headers->len; i++)
		strings += !headers->data[i];
	return strings % 2 == 0 && (!headers->len || !headers->data[headers->len - 1]);
}

/* Returns true if all headers may be sent in a reply, or to another store. The names of the store's
 * own headers begin with ':', which HTTP does not allow, and are not checked. */
static bool headers_are_valid(const struct buf *headers)
{
	const char *p = NULL, *name, *value;

	while (store_header_next(headers->data, headers->len, &p, &name, &value))
		if ((*name != ':' && !store_header_is_name(name)) || !store_header_is_value(value))
			return false;
	return true;
}

int export_object_read(json_t *json, struct export_object *out, struct penstock_error *err)
{
	const char *etag, *algorithm, *type, *value, *headers, *crc;
	int current, marker, is_null;
	json_int_t size, modified;
	json_t *parts;

	*out = (struct export_object){.headers = BUF_INIT(LIMIT_STORE_LAYOUT)};
	if (json_unpack(json,
		    "{s:s, s:b, s:b, s:b, s:I, s:I, s:s, s:{s:s, s:s, s:s}, s:s, s:o, s:s}", "key",
		    &out->key, "current", &current, "marker", &marker, "null", &is_null, "size",
		    &size, "modified", &modified, "etag", &etag, "checksum", "algorithm",
		    &algorithm, "type", &type, "value", &value, "headers", &headers, "parts",
		    &parts, "crc64nvme", &crc) < 0)
		return invalid(err);
	out->current = current;
	out->marker = marker;
	out->is_null = is_null;
	out->size = (uint64_t)size;
	out->modified_ns = modified;
	if (size < 0 || !*out->key || strlen(out->key) > LIMIT_S3_KEY ||
		(marker && (current || size)))
		return invalid(err);
	/* Versions after this version get later times, which must not overflow. A version after a
	 * replica may be later than store_replica_is_valid() allows. */
	if (modified <= 0 || modified > INT64_MAX / 4 * 3)
		return refuse(out, "its time is invalid", err);
	if (!copy(out->etag, sizeof(out->etag), etag) ||
		!copy(out->checksum.algorithm, sizeof(out->checksum.algorithm), algorithm) ||
		!copy(out->checksum.type, sizeof(out->checksum.type), type) ||
		!copy(out->checksum.value, sizeof(out->checksum.value), value) ||
		!copy(out->crc, sizeof(out->crc), crc))
		return refuse(out, "its ETag or a checksum is invalid", err);
	if (base64_decode(&out->headers, headers, strlen(headers)) < 0 ||
		!headers_are_pairs(&out->headers))
		return buf_failed(&out->headers) ? error_memory(err) : invalid(err);
	if (!headers_are_valid(&out->headers))
		return refuse(out, "one of its headers is invalid", err);
	return read_parts(parts, out, err);
}

void export_object_release(struct export_object *object)
{
	buf_release(&object->headers);
	free(object->parts);
}

int export_bucket_read(json_t *json, struct export_bucket *out, struct penstock_error *err)
{
	json_int_t created;

	if (json_unpack(json, "{s:s, s:s, s:I, s:i, s:o}", "name", &out->name, "region",
		    &out->region, "created", &created, "versioning", &out->versioning, "configs",
		    &out->configs) < 0 ||
		!json_is_object(out->configs) || out->versioning < STORE_UNVERSIONED ||
		out->versioning > STORE_SUSPENDED)
		return invalid(err);
	out->created_ns = created;
	return 0;
}
