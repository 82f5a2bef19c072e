#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "s3/sum/checksum.h"
#include "store/upkeep/archive.h"

struct exporter {
	struct verify_sink sink; /* writes the bytes and computes their CRC */
	FILE *out;
	struct cursor at;
	const struct upkeep_archive *archive;
	struct upkeep_copied *copied;
	uint64_t crc;
	uint64_t number, bytes; /* number of rows and bytes of the current bucket so far */
};

static int out_failed(FILE *out, struct penstock_error *err)
{
	return ferror(out) ? error_errno(err, errno, "cannot write the archive") : 0;
}

static int write_json(
	FILE *out, const char *bucket, const char *name, json_t *json, struct penstock_error *err)
{
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	char member[TAR_NAME_SIZE];
	size_t len = text ? strlen(text) : 0;
	int rc = 0;

	json_decref(json);
	snprintf(member, sizeof(member), "%s%s%s", bucket, *bucket ? "/" : "", name);
	if (!text)
		return error_memory(err);
	if (len > EXPORT_DOCUMENT_MAX)
		rc = error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot export '%s': it has more than %d MiB; use a backup", member,
			(int)(EXPORT_DOCUMENT_MAX / MIB));
	else
		tar_write(out, member, text, len);
	str_wipe(text);
	return rc < 0 ? rc : out_failed(out, err);
}

static int take(struct verify_sink *sink, const void *data, size_t len, struct penstock_error *err)
{
	struct exporter *e = (struct exporter *)sink;

	e->crc = crc64nvme_update(e->crc, data, len);
	e->bytes += len;
	if (fwrite(data, 1, len, e->out) != len)
		return out_failed(e->out, err);
	return upkeep_cancelled(e->archive->stop, err);
}

static int damaged(struct exporter *e, const struct cursor_row *row, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	cursor_describe(&e->at, row, &text);
	return error_prefix(err, "cannot export '%s'", buf_str(&text));
}

static int export_body(struct exporter *e, struct cursor_row *row, struct penstock_error *err)
{
	char member[TAR_NAME_SIZE];
	enum verify_result result;

	snprintf(member, sizeof(member), "%s/%llu%s", row->bucket, (unsigned long long)e->number,
		row->object->encryption == STORE_OWN_KEY ? EXPORT_ENCRYPTED : "");
	tar_begin(e->out, member, row->object->size);
	e->crc = 0;
	result = verify_object(row->object, &e->sink, err);
	if (result != VERIFY_GOOD && result != VERIFY_NOTHING)
		return err->code == PENSTOCK_E_CANCELLED ? -(int)err->code : damaged(e, row, err);
	tar_end(e->out, row->object->size);
	return 0;
}

static int export_row(struct exporter *e, struct cursor_row *row, struct penstock_error *err)
{
	char crc[CHECKSUM_TEXT_SIZE] = "", name[32];
	uint8_t digest[CHECKSUM_MAX_SIZE];

	e->number++;
	if (!row->object->marker) {
		int rc = export_body(e, row, err);

		if (rc < 0)
			return rc;
		for (int i = 0; i < 8; i++)
			digest[i] = (uint8_t)(e->crc >> (56 - 8 * i));
		checksum_format(CHECKSUM_CRC64NVME, digest, crc);
	}
	snprintf(name, sizeof(name), "%llu.json", (unsigned long long)e->number);
	return write_json(e->out, row->bucket, name, export_object_json(&e->at, row, crc), err);
}

/* Leaves out a version that is encrypted with a customer's key. In place of a current version in a
 * bucket with versioning, exports a delete marker, so that no older version becomes the current
 * version. */
static int leave_out(struct exporter *e, struct cursor_row *row, struct penstock_error *err)
{
	struct store_object *object = row->object;
	struct store_object marker = {
		.marker = true, .modified_ns = object->modified_ns, .headers = ""};
	int rc = 0;

	e->copied->left_out++;
	if (e->at.stage == CURSOR_OBJECTS && object->versioned) {
		memcpy(marker.version, object->version, sizeof(marker.version));
		row->object = &marker;
		rc = export_row(e, row, err);
		row->object = object;
	}
	return rc;
}

/* Exports all rows of one stage of one bucket. */
static int export_stage(
	struct exporter *e, enum cursor_stage stage, int64_t bucket, struct penstock_error *err)
{
	int rc;

	e->at.stage = stage;
	e->at.bucket = bucket;
	e->at.number = 0;
	buf_clear(&e->at.key);
	for (;;) {
		struct cursor_row row = {.object = NULL};

		rc = cursor_next(&e->at, &row, err);
		/* The cursor has left this stage of this bucket: neither its row nor its error
		 * belongs to the stage. */
		if (e->at.stage != stage || e->at.bucket != bucket) {
			penstock_error_release(err);
			rc = 0;
		}
		if (rc < 0 && row.key[0])
			rc = damaged(e, &row, err);
		if (rc > 0 && row.object->encryption == STORE_CUSTOMER_KEY)
			rc = leave_out(e, &row, err) < 0 ? -(int)err->code : 1;
		else if (rc > 0)
			rc = export_row(e, &row, err) < 0 ? -(int)err->code : 1;
		store_object_unref(row.object);
		if (rc <= 0)
			return rc;
	}
}

/* Adds the configurations of a bucket, as base64, under their names. */
static int add_configs(
	struct exporter *e, int64_t bucket, json_t *configs, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(e->at.db, SQL_EXPORT_CONFIGS, "i", bucket);
	int rc;

	while ((rc = db_step(e->at.db, st)) == SQLITE_ROW) {
		_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STORE_LAYOUT);

		base64_encode(
			&text, sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1));
		if (buf_failed(&text) ||
			json_object_set_new(configs, (const char *)sqlite3_column_text(st, 0),
				json_string(buf_str(&text))) < 0)
			return error_memory(err);
	}
	return rc == SQLITE_DONE ? 0
				 : upkeep_db_failed(e->at.db, rc, "read the configurations", err);
}

struct source {
	int64_t id;
	struct store_bucket bucket;
};

static int export_bucket(struct exporter *e, const struct source *from, struct penstock_error *err)
{
	const struct store_bucket *b = &from->bucket;
	json_auto_t *configs = json_object();
	int rc = configs ? add_configs(e, from->id, configs, err) : error_memory(err);

	if (rc == 0)
		rc = write_json(e->out, b->name, "bucket.json",
			json_pack("{s:s, s:s, s:I, s:i, s:O}", "name", b->name, "region", b->region,
				"created", (json_int_t)b->created_ns, "versioning",
				(int)b->versioning, "configs", configs),
			err);
	e->number = e->bytes = 0;
	if (rc == 0)
		rc = export_stage(e, CURSOR_OBJECTS, from->id, err);
	if (rc == 0)
		rc = export_stage(e, CURSOR_VERSIONS, from->id, err);
	if (rc == 0)
		rc = write_json(e->out, b->name, "end.json",
			json_pack("{s:I, s:I}", "objects", (json_int_t)e->number, "bytes",
				(json_int_t)e->bytes),
			err);
	e->copied->buckets++;
	e->copied->objects += e->number;
	e->copied->bytes += e->bytes;
	return rc;
}

static bool is_wanted(const struct exporter *e, const char *name)
{
	const char *const *p = e->archive->buckets;

	if (!p || !*p)
		return true;
	for (; *p; p++)
		if (strcmp(*p, name) == 0)
			return true;
	return false;
}

static int read_buckets(
	struct exporter *e, struct source **list, size_t *n, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(e->at.db, SQL_EXPORT_BUCKETS);
	int rc;

	while ((rc = db_step(e->at.db, st)) == SQLITE_ROW) {
		struct source *grown = array_grow(*list, *n, sizeof(*grown));
		struct store_bucket *b;

		if (!grown)
			return error_memory(err);
		*list = grown;
		grown[*n] = (struct source){.id = sqlite3_column_int64(st, 0)};
		b = &grown[(*n)++].bucket;
		db_column_text(st, 1, b->name, sizeof(b->name));
		b->created_ns = sqlite3_column_int64(st, 2);
		b->versioning = (enum store_versioning)sqlite3_column_int(st, 3);
		db_column_text(st, 4, b->region, sizeof(b->region));
	}
	return rc == SQLITE_DONE ? 0 : upkeep_db_failed(e->at.db, rc, "read the buckets", err);
}

/* Checks that every requested bucket exists. */
static int check_wanted(
	const struct exporter *e, const struct source *list, size_t n, struct penstock_error *err)
{
	for (const char *const *p = e->archive->buckets; p && *p; p++) {
		size_t i = 0;

		while (i < n && strcmp(list[i].bucket.name, *p) != 0)
			i++;
		if (i == n)
			return error_set(
				err, PENSTOCK_E_NOT_FOUND, "bucket '%s' does not exist", *p);
	}
	return 0;
}

static int export_accounts(struct exporter *e, struct penstock_error *err)
{
	json_t *json = NULL;
	int rc = export_records_json(e->at.db, &json, &e->copied->accounts, err);

	return rc < 0 ? rc : write_json(e->out, "", EXPORT_ACCOUNTS, json, err);
}

static int export_all(struct exporter *e, struct penstock_error *err)
{
	_cleanup_free_ struct source *list = NULL;
	size_t n = 0;
	int rc = read_buckets(e, &list, &n, err);

	if (rc == 0)
		rc = check_wanted(e, list, n, err);
	if (rc == 0)
		rc = write_json(e->out, "", "penstock-store.json",
			json_pack("{s:i}", "format", EXPORT_FORMAT), err);
	if (rc == 0 && e->archive->accounts)
		rc = export_accounts(e, err);
	for (size_t i = 0; rc == 0 && i < n; i++)
		if (is_wanted(e, list[i].bucket.name))
			rc = export_bucket(e, &list[i], err);
	if (rc == 0)
		rc = write_json(e->out, "", "end.json",
			json_pack("{s:I}", "buckets", (json_int_t)e->copied->buckets), err);
	tar_finish(e->out);
	return rc;
}

int upkeep_export(struct store *store, const struct upkeep_archive *archive,
	struct upkeep_copied *copied, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	struct exporter e = {
		.sink.write = take, .at = CURSOR_INIT, .archive = archive, .copied = copied};
	int rc = db ? store_hold(store, err) : -PENSTOCK_E_IO;

	*copied = (struct upkeep_copied){0};
	e.at.db = db;
	e.out = db ? tar_open(archive->fd, "w") : NULL;
	if (rc == 0 && !e.out)
		rc = error_errno(err, errno, "cannot write the archive");
	if (rc == 0 && db_exec(db, SQL_BEGIN_READ, ""))
		rc = error_set(err, PENSTOCK_E_IO, "cannot read meta.db");
	if (rc == 0) {
		setvbuf(e.out, NULL, _IOFBF, 1 * MIB);
		rc = export_all(&e, err);
		db_exec(db, SQL_ROLLBACK, "");
	}
	if (e.out && fclose(e.out) != 0 && rc == 0)
		rc = error_errno(err, errno, "cannot write the archive");
	cursor_release(&e.at);
	return rc;
}
