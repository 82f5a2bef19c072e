/*
 * Reading the documents. One engine fills any of the structs from a table of paths: fields of the
 * document itself, and fields of its repeated elements, which become an array in the arena.
 */
#include "s3/messages.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/date.h"
#include "s3/list_scan.h"
#include "s3/xml.h"
#include "base/banned.h"

enum field_type {
	TEXT,
	URL_TEXT, /* percent-encoded where the document's EncodingType is url */
	NUMBER,	  /* uint64_t */
	SMALL,	  /* unsigned */
	BOOLEAN,
	DATE,	/* int64_t nanoseconds; 0 where it is unreadable */
	PREFIX, /* one more of the document's common prefixes */
	URL_ENCODING,
	VERSION_2, /* its presence tells a V2 list */
};

struct field {
	const char *path; /* below the root, or below the item */
	enum field_type type;
	size_t offset;
};

struct table {
	const char *root;     /* NULL: any */
	const char *items[2]; /* paths of the repeated elements below the root */
	const struct field *fields;
	const struct field *item_fields; /* both end with a NULL path */
	size_t item_size, max_items;
	/* Offsets into the struct. A document without items has item_size 0; without common
	 * prefixes (which never come first) prefixes is 0. */
	size_t array, count, prefixes, n_prefixes, version;
};

struct parse {
	const struct table *table;
	const char *what;
	char *out; /* the struct */
	struct arena *arena;
	size_t root_len; /* of "/Root" */
	char root[64];
	size_t item_cap, prefix_cap;
	const char *item_path; /* the repeated element that is open */
	bool url_encoded;
};

#define AT(base, offset, type) (*(type *)(void *)((base) + (offset)))

static char *current_item(const struct parse *p)
{
	size_t n = AT(p->out, p->table->count, size_t);

	return AT(p->out, p->table->array, char *) + (n - 1) * p->table->item_size;
}

/* Room for one more element in an array of the arena; the old one is left to the arena. */
static void *grown_array(struct parse *p, void *array, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return array;
	size_t more = *cap ? *cap * 2 : 16;
	void *bigger = arena_alloc(p->arena, more * size);

	if (!bigger)
		return NULL;
	if (n > 0)
		memcpy(bigger, array, n * size);
	*cap = more;
	return bigger;
}

static int add_item(struct parse *p, struct penstock_error *err)
{
	const struct table *t = p->table;
	size_t *n = &AT(p->out, t->count, size_t);
	void *array;

	if (*n >= t->max_items)
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s has more than %zu entries", p->what,
			t->max_items);
	array = grown_array(p, AT(p->out, t->array, void *), *n, &p->item_cap, t->item_size);
	if (!array)
		return error_memory(err);
	AT(p->out, t->array, void *) = array;
	(*n)++;
	memset(current_item(p), 0, t->item_size);
	return 0;
}

static int on_start(void *cookie, const char *path, struct penstock_error *err)
{
	struct parse *p = cookie;
	const struct table *t = p->table;

	if (p->root_len == 0) {
		p->root_len = strlen(path);
		if ((t->root && strcmp(path + 1, t->root) != 0) || p->root_len >= sizeof(p->root))
			return error_set(err, PENSTOCK_E_PROTOCOL, "%s is a <%.60s> document",
				p->what, path + 1);
		memcpy(p->root, path + 1, p->root_len);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(t->items) && t->items[i]; i++) {
		if (strcmp(path + p->root_len, t->items[i]) == 0) {
			p->item_path = t->items[i];
			return add_item(p, err);
		}
	}
	return 0;
}

static int bad_value(
	const struct parse *p, const char *path, const char *text, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_PROTOCOL, "%s has '%.40s' in %s", p->what, text, path);
}

/* Numbers and booleans may stand between white space. */
static const char *trimmed(const char *text, size_t len, char *out, size_t size)
{
	while (len > 0 && ascii_space(*text)) {
		text++;
		len--;
	}
	while (len > 0 && ascii_space(text[len - 1]))
		len--;
	if (len >= size)
		len = size - 1;
	memcpy(out, text, len);
	out[len] = '\0';
	return out;
}

static int set_text(struct parse *p, const char **field, const char *text, size_t len,
	struct penstock_error *err)
{
	*field = arena_copy(p->arena, text, len);
	return *field ? 0 : error_memory(err);
}

static int add_prefix(struct parse *p, const char *text, size_t len, struct penstock_error *err)
{
	size_t *n = &AT(p->out, p->table->n_prefixes, size_t);
	const char **array = AT(p->out, p->table->prefixes, const char **);

	if (*n >= LIMIT_S3_LIST_KEYS)
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s has more than %d common prefixes",
			p->what, LIMIT_S3_LIST_KEYS);
	array = grown_array(p, array, *n, &p->prefix_cap, sizeof(*array));
	if (!array)
		return error_memory(err);
	AT(p->out, p->table->prefixes, const char **) = array;
	return set_text(p, &array[(*n)++], text, len, err);
}

static int set_field(struct parse *p, const struct field *f, char *base, const char *text,
	size_t len, struct penstock_error *err)
{
	char small[48] = "";
	uint64_t number;
	int64_t date;

	switch (f->type) {
	case TEXT:
	case URL_TEXT:
		return set_text(p, &AT(base, f->offset, const char *), text, len, err);
	case NUMBER:
		if (!str_to_u64(trimmed(text, len, small, sizeof(small)), 0, UINT64_MAX, &number))
			return bad_value(p, f->path, small, err);
		AT(base, f->offset, uint64_t) = number;
		return 0;
	case SMALL:
		if (!str_to_u64(trimmed(text, len, small, sizeof(small)), 0, UINT32_MAX, &number))
			return bad_value(p, f->path, small, err);
		AT(base, f->offset, unsigned) = (unsigned)number;
		return 0;
	case BOOLEAN:
		trimmed(text, len, small, sizeof(small));
		if (!ascii_equal(small, strlen(small), "true") &&
			!ascii_equal(small, strlen(small), "false"))
			return bad_value(p, f->path, small, err);
		AT(base, f->offset, bool) = ascii_lower(small[0]) == 't';
		return 0;
	case DATE:
		if (date_parse_iso(trimmed(text, len, small, sizeof(small)), &date))
			AT(base, f->offset, int64_t) = date;
		return 0;
	case PREFIX:
		return add_prefix(p, text, len, err);
	case URL_ENCODING:
		trimmed(text, len, small, sizeof(small));
		p->url_encoded = ascii_equal(small, strlen(small), "url");
		return 0;
	case VERSION_2:
		AT(base, p->table->version, int) = 2;
		return 0;
	}
	return 0;
}

static int set_fields(struct parse *p, const struct field *f, char *base, const char *path,
	const char *text, size_t len, struct penstock_error *err)
{
	for (; f->path; f++) {
		if (strcmp(path, f->path) != 0)
			continue;
		int rc = set_field(p, f, base, text, len, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int on_end(
	void *cookie, const char *path, const char *text, size_t len, struct penstock_error *err)
{
	struct parse *p = cookie;
	const char *below = path + p->root_len;

	if (p->item_path) {
		size_t n = strlen(p->item_path);

		if (strcmp(below, p->item_path) == 0) {
			p->item_path = NULL;
			return 0;
		}
		if (str_starts(below, p->item_path))
			return set_fields(p, p->table->item_fields, current_item(p), below + n,
				text, len, err);
	}
	return set_fields(p, p->table->fields, p->out, below, text, len, err);
}

/* In place: what is decoded is never longer. */
static int url_decode(const struct parse *p, const char *text, struct penstock_error *err)
{
	char *in = (char *)(uintptr_t)text; /* the arena's, hence writable */
	char *out = in = in ? in + strcspn(in, "%+") : NULL;

	for (; in && *in; in++) {
		char c = *in;

		if (c == '%') {
			int value = ascii_hex_byte(in + 1);

			if (value <= 0)
				return bad_value(p, "a URL-encoded name", text, err);
			c = (char)value;
			in += 2;
		} else if (c == '+') {
			c = ' ';
		}
		*out++ = c;
	}
	if (out)
		*out = '\0';
	return 0;
}

static int url_decode_fields(
	const struct parse *p, const struct field *f, char *base, struct penstock_error *err)
{
	int rc = 0;

	for (; f && f->path && rc == 0; f++) {
		if (f->type == URL_TEXT)
			rc = url_decode(p, AT(base, f->offset, const char *), err);
	}
	return rc;
}

static int url_decode_all(const struct parse *p, struct penstock_error *err)
{
	const struct table *t = p->table;
	int rc = url_decode_fields(p, t->fields, p->out, err);

	for (size_t i = 0; t->item_size && i < AT(p->out, t->count, size_t) && rc == 0; i++)
		rc = url_decode_fields(
			p, t->item_fields, AT(p->out, t->array, char *) + i * t->item_size, err);
	for (size_t i = 0; t->prefixes && i < AT(p->out, t->n_prefixes, size_t) && rc == 0; i++)
		rc = url_decode(p, AT(p->out, t->prefixes, const char **)[i], err);
	return rc;
}

static int run(struct parse *p, const char *xml, size_t len, struct penstock_error *err)
{
	const struct xml_events events = {.start = on_start, .end = on_end, .cookie = p};
	int rc = xml_parse(xml, len, &events, p->what, err);

	return rc == 0 && p->url_encoded ? url_decode_all(p, err) : rc;
}

#define END                                                                                        \
	{                                                                                          \
		NULL, TEXT, 0                                                                      \
	}
#define D(path, type, structure, member)                                                           \
	{                                                                                          \
		path, type, offsetof(struct structure, member)                                     \
	}

/* ---- lists ---- */

static const struct field list_fields[] = {D("/Name", TEXT, s3_list, bucket),
	D("/Prefix", URL_TEXT, s3_list, prefix), D("/Delimiter", URL_TEXT, s3_list, delimiter),
	D("/Marker", URL_TEXT, s3_list, marker), D("/NextMarker", URL_TEXT, s3_list, next_marker),
	D("/StartAfter", URL_TEXT, s3_list, start_after), {"/StartAfter", VERSION_2, 0},
	D("/ContinuationToken", TEXT, s3_list, continuation_token),
	{"/ContinuationToken", VERSION_2, 0},
	D("/NextContinuationToken", TEXT, s3_list, next_continuation_token),
	{"/NextContinuationToken", VERSION_2, 0}, {"/KeyCount", VERSION_2, 0},
	D("/MaxKeys", SMALL, s3_list, max_keys), D("/IsTruncated", BOOLEAN, s3_list, truncated),
	{"/EncodingType", URL_ENCODING, 0}, {"/CommonPrefixes/Prefix", PREFIX, 0}, END};
static const struct field entry_fields[] = {D("/Key", URL_TEXT, s3_list_entry, key),
	D("/ETag", TEXT, s3_list_entry, etag), D("/Size", NUMBER, s3_list_entry, size),
	D("/Generation", TEXT, s3_list_entry, generation),
	D("/LastModified", DATE, s3_list_entry, modified_ns),
	D("/StorageClass", TEXT, s3_list_entry, storage_class),
	D("/ChecksumAlgorithm", TEXT, s3_list_entry, checksum_algorithm),
	D("/ChecksumType", TEXT, s3_list_entry, checksum_type), END};
static const struct table list_table = {.root = "ListBucketResult",
	.items = {"/Contents"},
	.fields = list_fields,
	.item_fields = entry_fields,
	.item_size = sizeof(struct s3_list_entry),
	.max_items = LIMIT_S3_LIST_KEYS,
	.array = offsetof(struct s3_list, entries),
	.count = offsetof(struct s3_list, n_entries),
	.prefixes = offsetof(struct s3_list, prefixes),
	.n_prefixes = offsetof(struct s3_list, n_prefixes),
	.version = offsetof(struct s3_list, version)};

int s3_list_parse(const char *xml, size_t len, struct s3_list *out, struct penstock_error *err)
{
	struct parse p = {.table = &list_table,
		.what = "the list of objects",
		.out = (char *)out,
		.arena = &out->arena};
	enum list_scan scan = list_scan(xml, len, out);
	int rc;

	if (scan == LIST_SCAN_DONE) {
		p.url_encoded = out->url_encoded;
		rc = p.url_encoded ? url_decode_all(&p, err) : 0;
	} else {
		s3_list_release(out);
		rc = scan == LIST_SCAN_NO_MEMORY ? error_memory(err) : run(&p, xml, len, err);
	}
	for (size_t i = 0; rc == 0 && i < out->n_entries; i++) {
		struct s3_list_entry *entry = &((struct s3_list_entry *)out->entries)[i];

		if (!entry->key)
			rc = error_set(
				err, PENSTOCK_E_PROTOCOL, "%s has an entry without <Key>", p.what);
		if (entry->generation && *entry->generation)
			entry->etag = entry->generation;
	}
	if (rc < 0) {
		s3_list_release(out);
		return rc;
	}
	out->version = out->version == 2 ? 2 : 1;
	out->url_encoded = p.url_encoded;
	return 0;
}

void s3_list_release(struct s3_list *list)
{
	arena_release(&list->arena);
	*list = (struct s3_list){0};
}

static const struct field buckets_fields[] = {D("/Owner/ID", TEXT, s3_buckets, owner.id),
	D("/Owner/DisplayName", TEXT, s3_buckets, owner.display_name), END};
static const struct field bucket_fields[] = {
	D("/Name", TEXT, s3_bucket, name), D("/CreationDate", DATE, s3_bucket, created_ns), END};
static const struct table buckets_table = {.root = "ListAllMyBucketsResult",
	.items = {"/Buckets/Bucket"},
	.fields = buckets_fields,
	.item_fields = bucket_fields,
	.item_size = sizeof(struct s3_bucket),
	.max_items = 10000,
	.array = offsetof(struct s3_buckets, buckets),
	.count = offsetof(struct s3_buckets, n)};

int s3_buckets_parse(
	const char *xml, size_t len, struct s3_buckets *out, struct penstock_error *err)
{
	struct parse p = {.table = &buckets_table,
		.what = "the list of buckets",
		.out = (char *)out,
		.arena = &out->arena};
	int rc = run(&p, xml, len, err);

	for (size_t i = 0; rc == 0 && i < out->n; i++) {
		if (!out->buckets[i].name)
			rc = error_set(
				err, PENSTOCK_E_PROTOCOL, "%s has one without <Name>", p.what);
	}
	if (rc < 0)
		s3_buckets_release(out);
	return rc;
}

void s3_buckets_release(struct s3_buckets *buckets)
{
	arena_release(&buckets->arena);
	*buckets = (struct s3_buckets){0};
}

static const struct field uploads_fields[] = {D("/Bucket", TEXT, s3_uploads, bucket),
	D("/Prefix", URL_TEXT, s3_uploads, prefix),
	D("/Delimiter", URL_TEXT, s3_uploads, delimiter),
	D("/KeyMarker", URL_TEXT, s3_uploads, key_marker),
	D("/UploadIdMarker", TEXT, s3_uploads, upload_id_marker),
	D("/NextKeyMarker", URL_TEXT, s3_uploads, next_key_marker),
	D("/NextUploadIdMarker", TEXT, s3_uploads, next_upload_id_marker),
	D("/MaxUploads", SMALL, s3_uploads, max_uploads),
	D("/IsTruncated", BOOLEAN, s3_uploads, truncated), {"/EncodingType", URL_ENCODING, 0},
	{"/CommonPrefixes/Prefix", PREFIX, 0}, END};
static const struct field upload_fields[] = {D("/Key", URL_TEXT, s3_upload, key),
	D("/UploadId", TEXT, s3_upload, upload_id), D("/Initiated", DATE, s3_upload, initiated_ns),
	D("/StorageClass", TEXT, s3_upload, storage_class),
	D("/ChecksumAlgorithm", TEXT, s3_upload, checksum_algorithm),
	D("/ChecksumType", TEXT, s3_upload, checksum_type), END};
static const struct table uploads_table = {.root = "ListMultipartUploadsResult",
	.items = {"/Upload"},
	.fields = uploads_fields,
	.item_fields = upload_fields,
	.item_size = sizeof(struct s3_upload),
	.max_items = LIMIT_S3_LIST_KEYS,
	.array = offsetof(struct s3_uploads, uploads),
	.count = offsetof(struct s3_uploads, n_uploads),
	.prefixes = offsetof(struct s3_uploads, prefixes),
	.n_prefixes = offsetof(struct s3_uploads, n_prefixes)};

int s3_uploads_parse(
	const char *xml, size_t len, struct s3_uploads *out, struct penstock_error *err)
{
	struct parse p = {.table = &uploads_table,
		.what = "the list of uploads",
		.out = (char *)out,
		.arena = &out->arena};
	int rc = run(&p, xml, len, err);

	for (size_t i = 0; rc == 0 && i < out->n_uploads; i++) {
		if (!out->uploads[i].key || !out->uploads[i].upload_id)
			rc = error_set(err, PENSTOCK_E_PROTOCOL,
				"%s has one without <Key> or <UploadId>", p.what);
	}
	if (rc < 0)
		s3_uploads_release(out);
	else
		out->url_encoded = p.url_encoded;
	return rc;
}

void s3_uploads_release(struct s3_uploads *uploads)
{
	arena_release(&uploads->arena);
	*uploads = (struct s3_uploads){0};
}

#define CHECKSUM_FIELDS(structure)                                                                 \
	D("/ChecksumCRC32", TEXT, structure, checksums[CHECKSUM_CRC32]),                           \
		D("/ChecksumCRC32C", TEXT, structure, checksums[CHECKSUM_CRC32C]),                 \
		D("/ChecksumCRC64NVME", TEXT, structure, checksums[CHECKSUM_CRC64NVME]),           \
		D("/ChecksumSHA1", TEXT, structure, checksums[CHECKSUM_SHA1]),                     \
		D("/ChecksumSHA256", TEXT, structure, checksums[CHECKSUM_SHA256])

static const struct field parts_fields[] = {D("/Bucket", TEXT, s3_parts, bucket),
	D("/Key", URL_TEXT, s3_parts, key), D("/UploadId", TEXT, s3_parts, upload_id),
	D("/StorageClass", TEXT, s3_parts, storage_class),
	D("/ChecksumAlgorithm", TEXT, s3_parts, checksum_algorithm),
	D("/ChecksumType", TEXT, s3_parts, checksum_type), D("/Owner/ID", TEXT, s3_parts, owner.id),
	D("/Owner/DisplayName", TEXT, s3_parts, owner.display_name),
	D("/PartNumberMarker", SMALL, s3_parts, marker),
	D("/NextPartNumberMarker", SMALL, s3_parts, next_marker),
	D("/MaxParts", SMALL, s3_parts, max_parts), D("/IsTruncated", BOOLEAN, s3_parts, truncated),
	{"/EncodingType", URL_ENCODING, 0}, END};
static const struct field part_fields[] = {D("/PartNumber", SMALL, s3_part, number),
	D("/ETag", TEXT, s3_part, etag), D("/Size", NUMBER, s3_part, size),
	D("/LastModified", DATE, s3_part, modified_ns), CHECKSUM_FIELDS(s3_part), END};
static const struct table parts_table = {.root = "ListPartsResult",
	.items = {"/Part"},
	.fields = parts_fields,
	.item_fields = part_fields,
	.item_size = sizeof(struct s3_part),
	.max_items = LIMIT_S3_PARTS,
	.array = offsetof(struct s3_parts, parts),
	.count = offsetof(struct s3_parts, n)};

static const struct field object_parts_fields[] = {D("/ETag", TEXT, s3_parts, etag),
	D("/ObjectParts/PartNumberMarker", SMALL, s3_parts, marker),
	D("/ObjectParts/NextPartNumberMarker", SMALL, s3_parts, next_marker),
	D("/ObjectParts/MaxParts", SMALL, s3_parts, max_parts),
	D("/ObjectParts/IsTruncated", BOOLEAN, s3_parts, truncated), END};
static const struct table object_parts_table = {.root = "GetObjectAttributesResponse",
	.items = {"/ObjectParts/Part"},
	.fields = object_parts_fields,
	.item_fields = part_fields,
	.item_size = sizeof(struct s3_part),
	.max_items = LIMIT_S3_PARTS,
	.array = offsetof(struct s3_parts, parts),
	.count = offsetof(struct s3_parts, n)};

static int parse_parts(const struct table *table, const char *what, const char *xml, size_t len,
	struct s3_parts *out, struct penstock_error *err)
{
	struct parse p = {.table = table, .what = what, .out = (char *)out, .arena = &out->arena};
	int rc = run(&p, xml, len, err);

	for (size_t i = 0; rc == 0 && i < out->n; i++) {
		if (out->parts[i].number < 1 || out->parts[i].number > LIMIT_S3_PARTS)
			rc = error_set(err, PENSTOCK_E_PROTOCOL, "%s has part number %u", p.what,
				out->parts[i].number);
	}
	if (rc < 0)
		s3_parts_release(out);
	else
		out->url_encoded = p.url_encoded;
	return rc;
}

int s3_parts_parse(const char *xml, size_t len, struct s3_parts *out, struct penstock_error *err)
{
	return parse_parts(&parts_table, "the list of parts", xml, len, out, err);
}

int s3_object_parts_parse(
	const char *xml, size_t len, struct s3_parts *out, struct penstock_error *err)
{
	return parse_parts(&object_parts_table, "the object's list of parts", xml, len, out, err);
}

void s3_parts_release(struct s3_parts *parts)
{
	arena_release(&parts->arena);
	*parts = (struct s3_parts){0};
}

/* ---- requests ---- */

static const struct field no_fields[] = {END};
static const struct table complete_table = {.root = "CompleteMultipartUpload",
	.items = {"/Part"},
	.fields = no_fields,
	.item_fields = part_fields,
	.item_size = sizeof(struct s3_part),
	.max_items = LIMIT_S3_PARTS,
	.array = offsetof(struct s3_complete, parts),
	.count = offsetof(struct s3_complete, n)};

static int check_complete(struct s3_complete *out, const char *what, struct penstock_error *err)
{
	if (out->n == 0)
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s lists no part", what);
	for (size_t i = 0; i < out->n; i++) {
		const struct s3_part *part = &out->parts[i];

		if (part->number < 1 || part->number > LIMIT_S3_PARTS || !part->etag)
			return error_set(err, PENSTOCK_E_PROTOCOL,
				"%s: entry %zu needs a <PartNumber> of 1 to %d and an <ETag>", what,
				i + 1, LIMIT_S3_PARTS);
		if (i > 0 && part->number <= part[-1].number) {
			out->problem = S3_E_INVALID_PART_ORDER;
			return error_set(err, PENSTOCK_E_PROTOCOL,
				"%s: part %u comes after part %u", what, part->number,
				part[-1].number);
		}
	}
	return 0;
}

int s3_complete_parse(
	const char *xml, size_t len, struct s3_complete *out, struct penstock_error *err)
{
	struct parse p = {.table = &complete_table,
		.what = "the CompleteMultipartUpload request",
		.out = (char *)out,
		.arena = &out->arena};
	int rc;

	out->problem = S3_E_MALFORMED_XML;
	rc = run(&p, xml, len, err);
	if (rc == 0)
		rc = check_complete(out, p.what, err);
	if (rc < 0) {
		enum s3_error problem = rc == -PENSTOCK_E_MEMORY ? S3_E_SLOW_DOWN : out->problem;

		s3_complete_release(out);
		out->problem = problem;
		return rc;
	}
	out->problem = S3_OK;
	return 0;
}

void s3_complete_release(struct s3_complete *complete)
{
	arena_release(&complete->arena);
	*complete = (struct s3_complete){0};
}

static const struct field delete_fields[] = {D("/Quiet", BOOLEAN, s3_delete, quiet), END};
static const struct field delete_item_fields[] = {D("/Key", TEXT, s3_delete_item, key),
	D("/VersionId", TEXT, s3_delete_item, version_id), D("/ETag", TEXT, s3_delete_item, etag),
	END};
static const struct table delete_table = {.root = "Delete",
	.items = {"/Object"},
	.fields = delete_fields,
	.item_fields = delete_item_fields,
	.item_size = sizeof(struct s3_delete_item),
	.max_items = LIMIT_S3_LIST_KEYS,
	.array = offsetof(struct s3_delete, items),
	.count = offsetof(struct s3_delete, n)};

int s3_delete_parse(const char *xml, size_t len, struct s3_delete *out, struct penstock_error *err)
{
	struct parse p = {.table = &delete_table,
		.what = "the Delete request",
		.out = (char *)out,
		.arena = &out->arena};
	int rc = run(&p, xml, len, err);

	if (rc == 0 && out->n == 0)
		rc = error_set(err, PENSTOCK_E_PROTOCOL, "%s names no object", p.what);
	for (size_t i = 0; rc == 0 && i < out->n; i++) {
		if (!out->items[i].key || !*out->items[i].key)
			rc = error_set(
				err, PENSTOCK_E_PROTOCOL, "%s has an object without <Key>", p.what);
	}
	if (rc < 0) {
		s3_delete_release(out);
		out->problem = rc == -PENSTOCK_E_MEMORY ? S3_E_SLOW_DOWN : S3_E_MALFORMED_XML;
	}
	return rc;
}

void s3_delete_release(struct s3_delete *del)
{
	arena_release(&del->arena);
	*del = (struct s3_delete){0};
}

/* ---- small replies ---- */

static const struct field outcome_fields[] = {D("/Key", TEXT, s3_delete_outcome, key),
	D("/VersionId", TEXT, s3_delete_outcome, version_id),
	D("/Code", TEXT, s3_delete_outcome, code), D("/Message", TEXT, s3_delete_outcome, message),
	END};
static const struct table outcome_table = {.root = "DeleteResult",
	.items = {"/Deleted", "/Error"},
	.fields = no_fields,
	.item_fields = outcome_fields,
	.item_size = sizeof(struct s3_delete_outcome),
	.max_items = LIMIT_S3_LIST_KEYS,
	.array = offsetof(struct s3_delete_result, outcomes),
	.count = offsetof(struct s3_delete_result, n)};

int s3_delete_result_parse(
	const char *xml, size_t len, struct s3_delete_result *out, struct penstock_error *err)
{
	struct parse p = {.table = &outcome_table,
		.what = "the result of a multi-delete",
		.out = (char *)out,
		.arena = &out->arena};
	int rc = run(&p, xml, len, err);

	for (size_t i = 0; rc == 0 && i < out->n; i++) {
		if (!out->outcomes[i].key)
			rc = error_set(
				err, PENSTOCK_E_PROTOCOL, "%s has an entry without <Key>", p.what);
	}
	if (rc < 0)
		s3_delete_result_release(out);
	return rc;
}

void s3_delete_result_release(struct s3_delete_result *result)
{
	arena_release(&result->arena);
	*result = (struct s3_delete_result){0};
}

static const struct field reply_fields[] = {D("/Bucket", TEXT, s3_reply, bucket),
	D("/Key", TEXT, s3_reply, key), D("/UploadId", TEXT, s3_reply, upload_id),
	D("/ETag", TEXT, s3_reply, etag), D("/Location", TEXT, s3_reply, location),
	D("/ChecksumType", TEXT, s3_reply, checksum_type), CHECKSUM_FIELDS(s3_reply),
	D("/LastModified", DATE, s3_reply, modified_ns), D("/Code", TEXT, s3_reply, code),
	D("/Message", TEXT, s3_reply, message), D("/Resource", TEXT, s3_reply, resource),
	D("/RequestId", TEXT, s3_reply, request_id), D("/HostId", TEXT, s3_reply, host_id),
	D("/Region", TEXT, s3_reply, region), D("/BucketName", TEXT, s3_reply, bucket), END};
static const struct table reply_table = {.fields = reply_fields, .item_fields = no_fields};

static const char *const reply_roots[S3_REPLY_KIND_COUNT_] = {
	[S3_REPLY_INITIATE] = "InitiateMultipartUploadResult",
	[S3_REPLY_COMPLETE] = "CompleteMultipartUploadResult",
	[S3_REPLY_COPY_OBJECT] = "CopyObjectResult",
	[S3_REPLY_COPY_PART] = "CopyPartResult",
	[S3_REPLY_LOCATION] = "LocationConstraint",
	[S3_REPLY_ERROR] = "Error",
};

/* As on_end(), with the text of <LocationConstraint>, which is the root itself. */
static int on_reply_end(
	void *cookie, const char *path, const char *text, size_t len, struct penstock_error *err)
{
	struct parse *p = cookie;

	if (strcmp(path, "/LocationConstraint") == 0)
		return set_text(p, &((struct s3_reply *)(void *)p->out)->location, text, len, err);
	return on_end(cookie, path, text, len, err);
}

static int find_reply_kind(struct s3_reply *out, const char *root, struct penstock_error *err)
{
	for (int k = 0; k < S3_REPLY_KIND_COUNT_; k++) {
		if (strcmp(root, reply_roots[k]) == 0) {
			out->kind = (enum s3_reply_kind)k;
			return 0;
		}
	}
	return error_set(err, PENSTOCK_E_PROTOCOL, "the reply is a <%.60s> document", root);
}

int s3_reply_parse(const char *xml, size_t len, struct s3_reply *out, struct penstock_error *err)
{
	struct parse p = {.table = &reply_table,
		.what = "the reply",
		.out = (char *)out,
		.arena = &out->arena};
	const struct xml_events events = {.start = on_start, .end = on_reply_end, .cookie = &p};
	int rc = xml_parse(xml, len, &events, p.what, err);

	if (rc == 0)
		rc = find_reply_kind(out, p.root, err);
	if (rc == 0 && out->kind == S3_REPLY_INITIATE && !out->upload_id)
		rc = error_set(err, PENSTOCK_E_PROTOCOL, "%s has no <UploadId>", p.what);
	if (rc < 0)
		s3_reply_release(out);
	return rc;
}

void s3_reply_release(struct s3_reply *reply)
{
	arena_release(&reply->arena);
	*reply = (struct s3_reply){0};
}

struct create_bucket {
	const char *location;
	struct arena arena;
};
static const struct field create_bucket_fields[] = {
	D("/LocationConstraint", TEXT, create_bucket, location), END};
static const struct table create_bucket_table = {.root = "CreateBucketConfiguration",
	.fields = create_bucket_fields,
	.item_fields = no_fields};

int s3_create_bucket_parse(
	const char *xml, size_t len, struct buf *location, struct penstock_error *err)
{
	struct create_bucket config = {0};
	struct parse p = {.table = &create_bucket_table,
		.what = "the CreateBucketConfiguration",
		.out = (char *)&config,
		.arena = &config.arena};
	int rc = 0;

	while (len > 0 && ascii_space(*xml)) {
		xml++;
		len--;
	}
	if (len > 0)
		rc = run(&p, xml, len, err);
	if (rc == 0 && config.location && buf_add_str(location, config.location) < 0)
		rc = buf_error(location, "the location constraint", err);
	arena_release(&config.arena);
	return rc;
}
