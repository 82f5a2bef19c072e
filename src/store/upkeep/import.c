#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "s3/sum/checksum.h"
#include "s3/uri.h"
#include "store/header.h"
#include "store/upkeep/archive.h"

#define BLOCK	      ((size_t)MIB)
#define DOCUMENT_TYPE ".json"

struct importer {
	struct store *store;
	FILE *in;
	const struct upkeep_archive *archive;
	struct upkeep_copied *copied;
	void *block;

	char name[64]; /* name of the bucket that is being imported; "" between two buckets */
	char region[STORE_REGION_SIZE];
	int64_t bucket;
	uint64_t number, bytes; /* number of objects and bytes of the bucket so far */
	struct store_body *body; /* the bytes of the object whose document follows */
	char crc[CHECKSUM_TEXT_SIZE];
	bool has_accounts;
};

/* --- changes --------------------------------------------------------------------------------- */

struct import_txn {
	struct txn txn;
	struct importer *importer;
	const struct export_bucket *bucket;
	const struct export_object *object;
};

static int run(struct importer *im, struct import_txn *t, struct penstock_error *err)
{
	t->importer = im;
	switch (txn_run(im->store, &t->txn, err)) {
	case STORE_OK:
		return 0;
	case STORE_BUCKET_EXISTS:
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot import bucket '%s': it exists; remove it, or import into another store",
			im->name);
	case STORE_PRECONDITION:
		return error_set(err, PENSTOCK_E_CORRUPT,
			"the archive has object '%s' of bucket '%s' twice", t->object->key,
			im->name);
	default:
		return err->code ? -(int)err->code
				 : error_set(err, PENSTOCK_E_IO, "cannot import the archive");
	}
}

/* Removes a bucket that an import has left incomplete. */
static int drop_bucket(struct store *store, int64_t id)
{
	int rc;

	{
		_cleanup_reset_ sqlite3_stmt *st = db_bound(
			store->writer, SQL_IMPORT_LAYOUTS, "i", id);

		while ((rc = db_step(store->writer, st)) == SQLITE_ROW) {
			rc = txn_unref_layout(store, sqlite3_column_blob(st, 0),
				(size_t)sqlite3_column_bytes(st, 0));
			if (rc)
				return rc;
		}
	}
	if (rc != SQLITE_DONE || (rc = db_exec(store->writer, SQL_IMPORT_DROP_BODIES, "i", id)) ||
		(rc = db_exec(store->writer, SQL_IMPORT_DROP_OBJECTS, "i", id)) ||
		(rc = db_exec(store->writer, SQL_IMPORT_DROP_VERSIONS, "i", id)) ||
		(rc = db_exec(store->writer, SQL_CONFIG_DROP_ALL, "i", id)))
		return rc;
	return db_exec(store->writer, SQL_BUCKET_DELETE, "i", id);
}

static int apply_clean(struct store *store, struct txn *txn)
{
	int rc = 0;

	(void)txn;
	while (rc == 0) {
		int64_t id = 0;

		{
			_cleanup_reset_ sqlite3_stmt *st = db_statement(
				store->writer, SQL_IMPORT_LEFT);

			rc = db_step(store->writer, st);
			if (rc == SQLITE_DONE)
				return 0;
			if (rc == SQLITE_ROW)
				id = sqlite3_column_int64(st, 0);
		}
		if (rc == SQLITE_ROW)
			rc = drop_bucket(store, id);
	}
	return rc;
}

static int apply_configs(struct store *store, const struct import_txn *t)
{
	const char *name;
	json_t *value;

	json_object_foreach (t->bucket->configs, name, value) {
		_cleanup_(buf_release) struct buf data = BUF_INIT(LIMIT_STORE_LAYOUT);
		const char *text = json_string_value(value);
		int rc;

		if (!text || base64_decode(&data, text, strlen(text)) < 0)
			return SQLITE_MISMATCH;
		rc = db_exec(store->writer, SQL_CONFIG_SET, "itb", t->importer->bucket, name,
			buf_str(&data), data.len);
		if (rc)
			return rc;
	}
	return 0;
}

static int apply_begin(struct store *store, struct txn *txn)
{
	struct import_txn *t = (struct import_txn *)txn;
	const struct export_bucket *b = t->bucket;
	int64_t id = txn_bucket(store, txn, b->name, 0);
	int rc;

	if (id < 0)
		return (int)-id;
	txn->status = id > 0 ? STORE_BUCKET_EXISTS : STORE_OK;
	if (id > 0)
		return 0;
	rc = db_exec(store->writer, SQL_IMPORT_BUCKET, "tii", b->name, b->created_ns,
		(int64_t)b->versioning);
	t->importer->bucket = sqlite3_last_insert_rowid(store->writer->handle);
	return rc ? rc : apply_configs(store, t);
}

static int apply_end(struct store *store, struct txn *txn)
{
	struct importer *im = ((struct import_txn *)txn)->importer;
	int rc = db_exec(store->writer, SQL_IMPORT_RENAME, "it", im->bucket, im->name);

	txn_touch_all(store, im->name);
	return rc || !im->region[0]
		       ? rc
		       : db_exec(store->writer, SQL_REGION_SET, "tt", im->name, im->region);
}

static int write_version(struct store *store, int64_t bucket, const struct object_row *row,
	const struct export_object *o)
{
	const struct store_checksum *ck = row->checksum;
	const bool has = ck->algorithm[0] != '\0';
	sqlite3_stmt *st = db_bound(store->writer, SQL_IMPORT_VERSION, "ikiiiittttbb", bucket,
		row->key, row->modified_ns, (int64_t)o->marker, (int64_t)o->is_null,
		(int64_t)row->size, row->etag, has ? ck->algorithm : NULL, has ? ck->type : NULL,
		has ? ck->value : NULL, row->headers, row->headers_len, row->layout->data,
		row->layout->len);
	int rc = st ? object_bind_body(store, st, 13, row) : SQLITE_ERROR;

	return rc ? rc : db_run(st);
}

static int apply_object(struct store *store, struct txn *txn)
{
	struct import_txn *t = (struct import_txn *)txn;
	const struct export_object *o = t->object;
	struct store_body *body = t->importer->body;
	_cleanup_(buf_release) struct buf layout = BUF_INIT(LIMIT_STORE_LAYOUT);
	struct store_piece piece = {0};
	struct object_row row = {.key = o->key,
		.size = o->size,
		.etag = o->etag,
		.checksum = &o->checksum,
		.headers = buf_str(&o->headers),
		.headers_len = o->headers.len,
		.layout = &layout,
		.modified_ns = o->modified_ns};
	size_t n = 0;
	int rc = 0;

	if (o->current) {
		_cleanup_reset_ sqlite3_stmt *st = db_bound(
			store->writer, SQL_OBJECT_OLD, "ik", t->importer->bucket, o->key);

		rc = db_step(store->writer, st);
		if (rc == SQLITE_ROW)
			txn->status = STORE_PRECONDITION;
		if (rc != SQLITE_DONE)
			return rc == SQLITE_ROW ? 0 : rc;
		rc = 0;
	}
	if (body && store_body_is_inline(body)) {
		row.body = body_data(body, &row.body_len);
	} else if (body) {
		n = 1;
		rc = body_piece(body, &piece);
	}
	if (rc == 0 && body)
		rc = body_keep_key(body);
	if (rc == 0 && layout_encode(&layout, o->parts, o->n_parts, &piece, n) < 0)
		rc = SQLITE_NOMEM;
	if (rc)
		return rc;
	return o->current ? object_write(store, t->importer->bucket, &row)
			  : write_version(store, t->importer->bucket, &row, o);
}

/* --- members --------------------------------------------------------------------------------- */

static int unexpected(const struct tar_member *m, struct penstock_error *err)
{
	return error_set(
		err, PENSTOCK_E_CORRUPT, "member '%s' of the archive is unexpected", m->name);
}

static int read_document(
	struct importer *im, struct tar_member *m, json_t **out, struct penstock_error *err)
{
	_cleanup_free_ char *text = NULL;
	ssize_t n;

	if (m->size > EXPORT_DOCUMENT_MAX)
		return unexpected(m, err);
	text = malloc((size_t)m->size + 1);
	if (!text)
		return error_memory(err);
	n = tar_read(im->in, m, text, (size_t)m->size, err);
	if (n < 0)
		return -(int)err->code;
	*out = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
	return *out ? 0
		    : error_set(err, PENSTOCK_E_CORRUPT, "'%s' of the archive is invalid", m->name);
}

static bool is_encrypted(const struct tar_member *m)
{
	size_t len = strlen(m->name), type = strlen(EXPORT_ENCRYPTED);

	return len > type && strcmp(m->name + len - type, EXPORT_ENCRYPTED) == 0;
}

static int read_body(struct importer *im, struct tar_member *m, struct penstock_error *err)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	uint64_t crc = 0;
	ssize_t n;
	int rc = store_body_new(im->store, m->size, true, &im->body, err);

	if (rc == 0 && is_encrypted(m))
		rc = store_body_encrypt(im->body, NULL, err);
	if (rc == 0 && !m->size)
		rc = store_body_write(im->body, "", 0, err);
	while (rc == 0 && (n = tar_read(im->in, m, im->block, BLOCK, err)) != 0) {
		if (n < 0)
			return -(int)err->code;
		crc = crc64nvme_update(crc, im->block, (size_t)n);
		rc = store_body_write(im->body, im->block, (size_t)n, err);
		if (rc == 0)
			rc = upkeep_cancelled(im->archive->stop, err);
	}
	for (int i = 0; i < 8; i++)
		digest[i] = (uint8_t)(crc >> (56 - 8 * i));
	checksum_format(CHECKSUM_CRC64NVME, digest, im->crc);
	return rc == 0 ? store_body_sync(im->body, err) : rc;
}

static int begin_bucket(struct importer *im, json_t *json, struct penstock_error *err)
{
	struct export_bucket b;
	struct import_txn t = {.txn.apply = apply_begin, .bucket = &b};

	if (export_bucket_read(json, &b, err) < 0)
		return -(int)err->code;
	if (im->name[0] || s3_bucket_problem(b.name) || strlen(b.name) >= sizeof(im->name) ||
		strlen(b.region) >= sizeof(im->region))
		return error_set(err, PENSTOCK_E_CORRUPT, "a bucket of the archive is invalid");
	snprintf(im->name, sizeof(im->name), "%s", b.name);
	snprintf(im->region, sizeof(im->region), "%s", b.region);
	im->number = im->bytes = 0;
	return run(im, &t, err);
}

/* Publishes a bucket after checking that all of its objects and bytes have arrived. */
static int end_bucket(struct importer *im, json_t *json, struct penstock_error *err)
{
	struct import_txn t = {.txn.apply = apply_end};
	json_int_t objects, bytes;
	int rc;

	if (!im->name[0] ||
		json_unpack(json, "{s:I, s:I}", "objects", &objects, "bytes", &bytes) < 0 ||
		(uint64_t)objects != im->number || (uint64_t)bytes != im->bytes)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"bucket '%s' of the archive is incomplete", im->name);
	rc = run(im, &t, err);
	im->copied->buckets++;
	im->copied->objects += im->number;
	im->copied->bytes += im->bytes;
	im->name[0] = '\0';
	return rc;
}

static int drop_waiting_states(struct buf *headers, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf kept = BUF_INIT(LIMIT_STORE_LAYOUT);
	const char *p = NULL, *name, *value;

	while (store_header_next(headers->data, headers->len, &p, &name, &value))
		if (!store_header_waits(name, value))
			store_header_add(&kept, name, value);
	if (buf_failed(&kept))
		return error_memory(err);
	buf_clear(headers);
	buf_add(headers, kept.data, kept.len);
	return buf_failed(headers) ? error_memory(err) : 0;
}

/* Checks that the name of the member and the headers agree on the encryption; then seals the
 * body. */
static int check_encryption(
	struct importer *im, const struct export_object *o, struct penstock_error *err)
{
	enum store_encryption wanted = store_encryption_of(
		store_header_find(buf_str(&o->headers), o->headers.len, STORE_ENCRYPTION_HEADER));
	enum store_encryption is = body_is_encrypted(im->body) ? STORE_OWN_KEY : STORE_PLAIN;

	if (wanted != is)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot import 's3://%s/%s': its headers and its member in the archive "
			"disagree on the encryption",
			im->name, o->key);
	return body_seal(im->body, err);
}

static int take_object(struct importer *im, json_t *json, struct penstock_error *err)
{
	_cleanup_(export_object_release) struct export_object o = {
		.headers = BUF_INIT(LIMIT_STORE_LAYOUT)};
	struct import_txn t = {.txn.apply = apply_object, .object = &o};
	int rc = im->name[0] ? export_object_read(json, &o, err)
			     : error_set(err, PENSTOCK_E_CORRUPT,
				       "an object of the archive has no bucket");

	if (rc < 0)
		return rc;
	if (o.marker == (im->body != NULL) ||
		(im->body && (store_body_size(im->body) != o.size || strcmp(im->crc, o.crc) != 0)))
		return error_set(err, PENSTOCK_E_CORRUPT,
			"the bytes of 's3://%s/%s' are damaged in the archive", im->name, o.key);
	rc = im->body ? check_encryption(im, &o, err) : 0;
	if (rc == 0)
		rc = drop_waiting_states(&o.headers, err);
	if (rc < 0)
		return rc;
	rc = run(im, &t, err);
	if (rc < 0)
		return rc;
	if (im->body)
		body_taken(im->body);
	store_body_free(take_pointer(im->body));
	im->number++;
	im->bytes += o.size;
	return 0;
}

static int take_document(
	struct importer *im, const struct tar_member *m, json_t *json, struct penstock_error *err)
{
	const char *slash = strchr(m->name, '/');

	if (!slash || (im->name[0] && (strncmp(m->name, im->name, (size_t)(slash - m->name)) != 0 ||
					      im->name[slash - m->name])))
		return unexpected(m, err);
	if (strcmp(slash, "/bucket.json") == 0)
		return begin_bucket(im, json, err);
	if (strcmp(slash, "/end.json") == 0)
		return end_bucket(im, json, err);
	return take_object(im, json, err);
}

static bool is_document(const struct tar_member *m)
{
	size_t len = strlen(m->name), type = strlen(DOCUMENT_TYPE);

	return len > type && strcmp(m->name + len - type, DOCUMENT_TYPE) == 0;
}

static int import_format(struct importer *im, struct penstock_error *err)
{
	struct tar_member m;
	json_auto_t *json = NULL;
	int format = 0, rc = tar_next(im->in, &m, err);

	if (rc > 0 && strcmp(m.name, "penstock-store.json") == 0)
		rc = read_document(im, &m, &json, err);
	else if (rc >= 0)
		rc = error_set(err, PENSTOCK_E_INVALID,
			"the archive was not made by 'penstock store export'");
	if (rc == 0 &&
		(json_unpack(json, "{s:i}", "format", &format) < 0 || format != EXPORT_FORMAT))
		rc = error_set(err, PENSTOCK_E_UNSUPPORTED,
			"the archive has format %d, but this penstock supports format %d", format,
			EXPORT_FORMAT);
	return rc;
}

/* Adds the accounts of the archive only on request, because accounts give others access to the
 * store. */
static int take_accounts(struct importer *im, const json_t *json, struct penstock_error *err)
{
	im->has_accounts = true;
	im->copied->left_accounts = !im->archive->accounts;
	return im->archive->accounts ? import_records(im->store, json, &im->copied->accounts, err)
				     : 0;
}

/* Imports the next member. Returns 1, 0 if the member ends the archive, or a negative code. */
static int import_member(struct importer *im, struct penstock_error *err)
{
	json_auto_t *json = NULL;
	struct tar_member m;
	json_int_t buckets;
	int rc = tar_next(im->in, &m, err);

	if (rc <= 0)
		return rc < 0 ? rc
			      : error_set(err, PENSTOCK_E_CORRUPT, "the archive is incomplete");
	if (im->archive->accounts && !im->has_accounts && strcmp(m.name, EXPORT_ACCOUNTS) != 0)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"the archive has no accounts; repeat the export with --with-accounts");
	if (!is_document(&m)) {
		if (im->body)
			return unexpected(&m, err);
		rc = read_body(im, &m, err);
		return rc < 0 ? rc : 1;
	}
	rc = read_document(im, &m, &json, err);
	if (rc < 0)
		return rc;
	if (strcmp(m.name, EXPORT_ACCOUNTS) == 0) {
		rc = take_accounts(im, json, err);
		return rc < 0 ? rc : 1;
	}
	if (strcmp(m.name, "end.json") == 0 && !im->name[0])
		return json_unpack(json, "{s:I}", "buckets", &buckets) < 0 ||
				       (uint64_t)buckets != im->copied->buckets
			       ? error_set(err, PENSTOCK_E_CORRUPT, "the archive is incomplete")
			       : 0;
	rc = take_document(im, &m, json, err);
	return rc < 0 ? rc : 1;
}

int upkeep_import(struct store *store, const struct upkeep_archive *archive,
	struct upkeep_copied *copied, struct penstock_error *err)
{
	struct importer im = {
		.store = store, .archive = archive, .copied = copied, .block = malloc(BLOCK)};
	struct import_txn clean = {.txn = {.apply = apply_clean, .frees = true}};
	struct penstock_error ignored = PENSTOCK_ERROR_INIT;
	int rc;

	*copied = (struct upkeep_copied){0};
	im.in = tar_open(archive->fd, "r");
	if (!im.in || !im.block)
		rc = im.block ? error_errno(err, errno, "cannot read the archive")
			      : error_memory(err);
	else
		rc = run(&im, &clean, err);
	if (rc == 0) {
		setvbuf(im.in, NULL, _IOFBF, BLOCK);
		rc = import_format(&im, err);
	}
	if (rc == 0)
		while ((rc = import_member(&im, err)) > 0)
			;
	store_body_free(im.body);
	if (rc < 0 && run(&im, &clean, &ignored) < 0)
		penstock_error_release(&ignored);
	if (rc == 0 && syncfs(store->root_fd) < 0)
		rc = error_errno(err, errno, "cannot sync '%s'", store->root);
	if (im.in)
		fclose(im.in);
	free(im.block);
	return rc;
}
