#include "store/internal.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "store/header.h"

void store_upload_release(struct store_upload *upload)
{
	free(upload->headers);
	*upload = (struct store_upload){0};
}

/* --- creating, reading, dropping ------------------------------------------------------------ */

struct upload_txn {
	struct txn txn;
	const char *bucket;
	int64_t bucket_id;
	const char *key;
	const char *id;
	const struct store_upload *in;
	char *new_id;
};

/* Sets the first half of an id to the time, so that the uploads of a key are listed with the oldest
 * first. */
static void begin_id(char *id, int64_t now)
{
	char text[17];
	uint64_t big_endian = htobe64((uint64_t)now);

	str_hex(&big_endian, sizeof(big_endian), text);
	memcpy(id, text, 16);
}

static int apply_create(struct store *store, struct txn *txn)
{
	struct upload_txn *t = (struct upload_txn *)txn;
	const struct store_checksum *ck = &t->in->checksum;
	const bool has = ck->algorithm[0] != '\0';
	int64_t bucket = txn_bucket(store, txn, t->bucket, t->bucket_id);
	int64_t now;

	if (bucket <= 0)
		return (int)-bucket;
	now = clock_wall_ns();
	begin_id(t->new_id, now);
	return db_exec(store->writer, SQL_UPLOAD_ADD, "iktittb", bucket, t->key, t->new_id, now,
		has ? ck->algorithm : NULL, has ? ck->type : NULL, t->in->headers,
		t->in->headers_len);
}

enum store_status store_upload_create(struct store *store, const char *bucket, int64_t bucket_id,
	const char *key, const struct store_upload *in, char id[static STORE_UPLOAD_ID_SIZE],
	struct penstock_error *err)
{
	struct upload_txn t = {.txn = {.apply = apply_create},
		.bucket = bucket,
		.bucket_id = bucket_id,
		.key = key,
		.in = in,
		.new_id = id};
	unsigned char random[16];

	if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
		error_set(err, PENSTOCK_E_INTERNAL,
			"cannot generate an upload id: getrandom() failed");
		return STORE_FAILED;
	}
	str_hex(random, sizeof(random), id);
	return txn_run(store, &t.txn, err);
}

enum store_status store_upload_get(struct store *store, const char *bucket, const char *key,
	const char *id, struct store_upload *out, struct penstock_error *err)
{
	enum store_status status = store_bucket_get(store, bucket, NULL, err);
	_cleanup_reader_ struct db *db = status == STORE_OK ? db_reader(store, err) : NULL;
	_cleanup_reset_ sqlite3_stmt *st = NULL;

	if (!db)
		return status == STORE_OK ? STORE_FAILED : status;
	st = db_bound(db, SQL_UPLOAD_GET, "tkt", bucket, key, id);
	status = db_look_up(db, st, STORE_NO_SUCH_UPLOAD, "look up an upload", err);
	if (status != STORE_OK)
		return status;
	*out = (struct store_upload){.started_ns = sqlite3_column_int64(st, 3),
		.headers_len = (size_t)sqlite3_column_bytes(st, 2)};
	db_column_text(st, 0, out->checksum.algorithm, sizeof(out->checksum.algorithm));
	db_column_text(st, 1, out->checksum.type, sizeof(out->checksum.type));
	out->headers = malloc(out->headers_len + 1);
	if (!out->headers) {
		error_memory(err);
		return STORE_FAILED;
	}
	if (out->headers_len)
		memcpy(out->headers, sqlite3_column_blob(st, 2), out->headers_len);
	return STORE_OK;
}

/* Sets STORE_NO_SUCH_UPLOAD if the upload is missing; appends its headers to `headers`, which may
 * be NULL. */
static int upload_has(struct store *store, struct txn *txn, int64_t bucket, const char *key,
	const char *id, struct buf *headers)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_UPLOAD_HAS, "ikt", bucket, key, id);
	int rc = db_step(store->writer, st);

	if (rc == SQLITE_DONE)
		txn->status = STORE_NO_SUCH_UPLOAD;
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? 0 : rc;
	return headers ? db_column_add(st, 0, headers) : 0;
}

static int apply_abort(struct store *store, struct txn *txn)
{
	struct upload_txn *t = (struct upload_txn *)txn;
	int64_t bucket = txn_bucket(store, txn, t->bucket, t->bucket_id);
	int rc;

	if (bucket <= 0)
		return (int)-bucket;
	rc = upload_has(store, txn, bucket, t->key, t->id, NULL);
	if (rc || txn->status != STORE_OK)
		return rc;
	return txn_drop_upload(store, bucket, t->key, strlen(t->key), t->id);
}

enum store_status store_upload_abort(struct store *store, const char *bucket, int64_t bucket_id,
	const char *key, const char *id, struct penstock_error *err)
{
	struct upload_txn t = {.txn = {.apply = apply_abort, .frees = true},
		.bucket = bucket,
		.bucket_id = bucket_id,
		.key = key,
		.id = id};

	return txn_run(store, &t.txn, err);
}

/* --- abandoned uploads ---------------------------------------------------------------------- */

/* Maximum number of uploads that one call checks. */
#define EXPIRE_STEP 100

struct expire_txn {
	struct txn txn;
	int64_t before_ns;
	struct store_upload_place stale[EXPIRE_STEP];
	size_t n, dropped; /* number of stale uploads, and of dropped uploads */
};

/* Drops an upload, unless it has ended or got a part since it was found. */
static int drop_stale(
	struct store *store, struct expire_txn *t, const struct store_upload_place *upload)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(store->writer, SQL_UPLOAD_IS_STALE, "iikt",
		t->before_ns, upload->bucket, upload->key, upload->id);
	int rc = db_step(store->writer, st);

	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? 0 : rc;
	t->dropped++;
	return txn_drop_upload(store, upload->bucket, upload->key, strlen(upload->key), upload->id);
}

/* Drops the uploads that were found. Leaves txn->more unset: the caller has other work between two
 * transactions. */
static int apply_expire(struct store *store, struct txn *txn)
{
	struct expire_txn *t = (struct expire_txn *)txn;
	int rc = 0;

	t->dropped = 0;
	while (rc == 0 && txn->next_item < t->n && txn_has_room(store, txn))
		rc = drop_stale(store, t, &t->stale[txn->next_item++]);
	return rc;
}

/* Checks the next uploads, outside of a transaction. Returns SQLITE_DONE, or an error code. */
static int find_stale(struct db *db, struct expire_txn *t, struct store_upload_place *place)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(db, SQL_UPLOAD_NEXT, "iikti", t->before_ns,
		place->bucket, place->key, place->id, (int64_t)EXPIRE_STEP);
	struct store_upload_place upload = {0};
	size_t seen = 0;
	int rc;

	for (; (rc = db_step(db, st)) == SQLITE_ROW; seen++) {
		upload.bucket = sqlite3_column_int64(st, 0);
		db_column_text(st, 1, upload.key, sizeof(upload.key));
		db_column_text(st, 2, upload.id, sizeof(upload.id));
		if (sqlite3_column_int(st, 3))
			t->stale[t->n++] = upload;
	}
	*place = seen == EXPIRE_STEP ? upload : (struct store_upload_place){0};
	return rc;
}

enum store_status store_upload_expire(struct store *store, int64_t before_ns,
	struct store_upload_place *place, size_t *n, struct penstock_error *err)
{
	_cleanup_free_ struct expire_txn *t = calloc(1, sizeof(*t));
	_cleanup_reader_ struct db *db = t ? db_reader(store, err) : NULL;
	enum store_status status = STORE_OK;
	int rc;

	*n = 0;
	if (!t)
		error_memory(err);
	if (!db)
		return STORE_FAILED;
	*t = (struct expire_txn){
		.txn = {.apply = apply_expire, .frees = true}, .before_ns = before_ns};
	rc = find_stale(db, t, place);
	if (rc != SQLITE_DONE)
		return db_error(db, rc, "look for old uploads", err);
	if (t->n)
		status = txn_run(store, &t->txn, err);
	if (status != STORE_OK)
		return status;
	*n = t->dropped;
	if (t->txn.next_item < t->n)
		*place = t->stale[t->txn.next_item - 1];
	return STORE_OK;
}

/* --- parts --------------------------------------------------------------------------------- */

/* number of pieces that a part may have regardless of the other parts of its upload */
#define FEW_PIECES (LIMIT_STORE_LAYOUT / LIMIT_S3_PARTS / sizeof(struct store_piece))

/* Gets the pieces of `source` within a range. The caller frees *out. */
static int cut_pieces(const struct store_object *source, uint64_t offset, uint64_t length,
	struct store_piece **out, size_t *n)
{
	struct store_piece *pieces = calloc(
		source->n_pieces ? source->n_pieces : 1, sizeof(*pieces));
	uint64_t start = 0, end = offset + length;
	size_t count = 0;

	if (!pieces)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < source->n_pieces; i++) {
		const struct store_piece *p = &source->pieces[i];
		uint64_t from = offset > start ? offset - start : 0;
		uint64_t to = end < start + p->length ? end - start : p->length;

		if (start < end && from < to)
			pieces[count++] = (struct store_piece){
				p->blob, p->offset + from, to - from};
		start += p->length;
	}
	*out = pieces;
	*n = count;
	return 0;
}

/* Sets STORE_TOO_MANY_PIECES if the parts of the upload would have more pieces than an object may
 * have: an upload must be small enough that all its pieces can be dropped in one transaction. */
static int check_pieces(
	struct store *store, struct txn *txn, const struct store_part_put *part, size_t n)
{
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	int rc;

	if (n <= FEW_PIECES)
		return 0;
	st = db_bound(store->writer, SQL_PART_LAYOUTS, "ti", part->upload, (int64_t)part->number);
	rc = db_step(store->writer, st);
	if (rc != SQLITE_ROW)
		return rc;
	if ((uint64_t)sqlite3_column_int64(st, 0) + n * sizeof(struct store_piece) >
		LIMIT_STORE_LAYOUT)
		txn->status = STORE_TOO_MANY_PIECES;
	return 0;
}

static int part_content(struct store *store, struct txn *txn, const struct store_part_put *part,
	struct buf *layout, uint64_t *size)
{
	const struct store_put *put = &part->put;
	_cleanup_free_ struct store_piece *cut = NULL;
	struct store_piece whole;
	size_t n = 1;
	int rc;

	if (put->source) {
		*size = part->length;
		rc = cut_pieces(put->source, part->offset, part->length, &cut, &n);
		if (rc == 0)
			rc = check_pieces(store, txn, part, n);
		if (rc == 0 && txn->status == STORE_OK)
			rc = txn_ref_pieces(store, txn, cut, n);
	} else {
		*size = store_body_size(put->body);
		rc = body_piece(put->body, &whole);
		if (rc == 0)
			rc = body_keep_key(put->body);
	}
	if (rc == 0 && layout_encode(layout, NULL, 0, cut ? cut : &whole, n) < 0)
		rc = SQLITE_NOMEM;
	return rc;
}

static int part_old(struct store *store, const struct store_part_put *part, struct buf *old)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_PART_OLD, "ti", part->upload, (int64_t)part->number);
	int rc = db_step(store->writer, st);

	if (rc == SQLITE_ROW)
		return db_column_add(st, 0, old);
	return rc == SQLITE_DONE ? 0 : rc;
}

static int apply_part(struct store *store, struct txn *txn)
{
	struct store_put *put = ((struct put_txn *)txn)->put;
	const struct store_part_put *part = (const struct store_part_put *)put;
	_cleanup_(buf_release) struct buf old = BUF_INIT(LIMIT_STORE_LAYOUT);
	_cleanup_(buf_release) struct buf layout = BUF_INIT(LIMIT_STORE_LAYOUT);
	int64_t bucket = txn_bucket(store, txn, put->bucket, put->bucket_id);
	uint64_t size = 0;
	int rc;

	if (bucket <= 0)
		return (int)-bucket;
	rc = upload_has(store, txn, bucket, put->key, part->upload, NULL);
	if (rc || txn->status != STORE_OK)
		return rc;
	rc = part_content(store, txn, part, &layout, &size);
	if (rc || txn->status != STORE_OK)
		return rc;
	rc = part_old(store, part, &old);
	if (rc)
		return rc;
	put->size = size;
	put->modified_ns = clock_wall_ns();
	rc = db_exec(store->writer, SQL_PART_SET, "tiiittb", part->upload, (int64_t)part->number,
		(int64_t)size, put->modified_ns, put->etag, put->checksum.value, layout.data,
		layout.len);
	return rc || !old.len ? rc : txn_unref_layout(store, old.data, old.len);
}

void store_part_put_submit(struct store *store, struct store_part_put *part)
{
	put_submit(store, &part->put, apply_part);
}

enum store_status store_part_put(
	struct store *store, struct store_part_put *part, struct penstock_error *err)
{
	return put_run(store, &part->put, apply_part, err);
}

static enum store_status part_list_read(struct db *db, const char *id, uint32_t after, size_t max,
	struct store_part_page *page, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	_cleanup_free_ struct store_part *list = calloc(max + 1, sizeof(*list));
	size_t count = 0;
	int rc;

	if (!list) {
		error_memory(err);
		return STORE_FAILED;
	}
	st = db_bound(db, SQL_PART_LIST, "tii", id, (int64_t)after, (int64_t)max + 1);
	while ((rc = db_step(db, st)) == SQLITE_ROW && count <= max) {
		struct store_part *p = &list[count++];

		p->number = (uint32_t)sqlite3_column_int64(st, 0);
		p->size = (uint64_t)sqlite3_column_int64(st, 1);
		p->modified_ns = sqlite3_column_int64(st, 2);
		db_column_text(st, 3, p->etag, sizeof(p->etag));
		db_column_text(st, 4, p->checksum, sizeof(p->checksum));
	}
	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		return db_error(db, rc, "list the parts of an upload", err);
	page->truncated = count > max;
	page->n = count > max ? max : count;
	page->parts = take_pointer(list);
	return STORE_OK;
}

enum store_status store_part_list(struct store *store, const char *bucket, const char *key,
	const char *id, uint32_t after, size_t max, struct store_part_page *page,
	struct penstock_error *err)
{
	enum store_status status = store_bucket_get(store, bucket, NULL, err);
	_cleanup_reader_ struct db *db = status == STORE_OK ? db_reader(store, err) : NULL;

	if (!db)
		return status == STORE_OK ? STORE_FAILED : status;
	/* Reads in one transaction: if the upload ended between two reads, its list of parts would
	 * be empty. */
	if (db_run(db_statement(db, SQL_BEGIN_READ)) != 0)
		return db_failed(db, "list the parts of an upload", err);
	{
		_cleanup_reset_ sqlite3_stmt *st = db_bound(
			db, SQL_UPLOAD_GET, "tkt", bucket, key, id);

		status = db_look_up(db, st, STORE_NO_SUCH_UPLOAD, "look up an upload", err);
	}
	if (status == STORE_OK)
		status = part_list_read(
			db, id, after, max > LIMIT_S3_PARTS ? LIMIT_S3_PARTS : max, page, err);
	db_run(db_statement(db, SQL_COMMIT));
	return status;
}

/* --- completing ---------------------------------------------------------------------------- */

struct complete_txn {
	struct txn txn;
	struct store_complete *complete;
};

/* The object assembled from the named parts. */
struct assembly {
	struct buf pieces; /* an array of struct store_piece */
	uint64_t size;
	struct replica replica;
};

/* Sets STORE_TOO_MANY_PIECES if the buffer has failed because of its limit. */
static int pieces_failed(struct txn *txn, const struct buf *buf)
{
	if (buf->failure != BUF_OVER_LIMIT)
		return SQLITE_NOMEM;
	txn->status = STORE_TOO_MANY_PIECES;
	return 0;
}

static int assembly_add(struct txn *txn, struct assembly *a, const void *layout, size_t len)
{
	size_t n_parts = 0, n = 0;
	char *room;

	if (layout_decode(layout, len, NULL, &n_parts, NULL, &n) < 0)
		return SQLITE_CORRUPT;
	if (!n)
		return 0;
	room = buf_reserve(&a->pieces, n * sizeof(struct store_piece));
	if (!room)
		return pieces_failed(txn, &a->pieces);
	layout_decode(layout, len, NULL, &n_parts, (struct store_piece *)room, &n);
	buf_grown(&a->pieces, n * sizeof(struct store_piece));
	return 0;
}

/* Walks the stored and the named parts in parallel, both ascending. */
static int assemble(
	struct store *store, struct txn *txn, const struct store_complete *c, struct assembly *a)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(store->writer, SQL_PART_ALL, "t", c->upload);
	char etag[STORE_ETAG_SIZE], checksum[STORE_CHECKSUM_SIZE];
	size_t at = 0;
	bool small = false;
	int rc;

	while ((rc = db_step(store->writer, st)) == SQLITE_ROW) {
		uint32_t number = (uint32_t)sqlite3_column_int64(st, 0);
		uint64_t size = (uint64_t)sqlite3_column_int64(st, 1);

		if (at == c->n_parts || c->parts[at].number < number)
			/* there are no more named parts, or the next named part is missing */
			break;
		if (c->parts[at].number != number)
			continue;
		db_column_text(st, 2, etag, sizeof(etag));
		db_column_text(st, 3, checksum, sizeof(checksum));
		if (strcmp(etag, c->parts[at].etag) != 0 ||
			strcmp(checksum, c->parts[at].checksum) != 0)
			break; /* the part was replaced since the caller read it */
		small = small || (at + 1 < c->n_parts && size < LIMIT_S3_PART_MIN);
		a->size += size;
		at++;
		rc = assembly_add(
			txn, a, sqlite3_column_blob(st, 4), (size_t)sqlite3_column_bytes(st, 4));
		if (rc || txn->status != STORE_OK)
			return rc;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return rc;
	if (at < c->n_parts)
		txn->status = STORE_INVALID_PART;
	else if (small)
		txn->status = STORE_PART_TOO_SMALL;
	else if (a->size > LIMIT_S3_OBJECT_MAX)
		txn->status = STORE_TOO_LARGE;
	return 0;
}

/* Drops the references of the parts that are not named. */
static int drop_others(struct store *store, const struct store_complete *c)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(store->writer, SQL_PART_ALL, "t", c->upload);
	size_t at = 0;
	int rc;

	while ((rc = db_step(store->writer, st)) == SQLITE_ROW) {
		if (at < c->n_parts &&
			c->parts[at].number == (uint32_t)sqlite3_column_int64(st, 0)) {
			at++;
			continue;
		}
		rc = txn_unref_layout(
			store, sqlite3_column_blob(st, 4), (size_t)sqlite3_column_bytes(st, 4));
		if (rc)
			return rc;
	}
	return rc == SQLITE_DONE ? 0 : rc;
}

static int complete_write(struct store *store, struct txn *txn, int64_t bucket,
	struct store_complete *c, const struct assembly *a, const struct buf *headers,
	struct old_object *old)
{
	_cleanup_(buf_release) struct buf layout = BUF_INIT(LIMIT_STORE_LAYOUT);
	struct object_row row = {.key = c->key,
		.size = a->size,
		.etag = c->etag,
		.checksum = &c->checksum,
		.headers = headers->data,
		.headers_len = headers->len,
		.upload = c->upload,
		.layout = &layout,
		.replica = a->replica};
	int rc;

	if (layout_encode(&layout, c->parts, c->n_parts, (const struct store_piece *)a->pieces.data,
		    a->pieces.len / sizeof(struct store_piece)) < 0)
		return pieces_failed(txn, &layout);
	rc = object_set(store, txn, c->bucket, bucket, &row, old);
	c->modified_ns = row.modified_ns;
	memcpy(c->version, row.version, sizeof(c->version));
	if (rc == 0)
		rc = drop_others(store, c);
	if (rc == 0)
		rc = txn_delete_upload(store, bucket, c->key, strlen(c->key), c->upload);
	if (rc || !c->origin)
		return rc;
	return event_notify(store, &(struct store_change){.bucket = c->bucket,
					   .key = c->key,
					   .event = c->origin->event,
					   .size = row.size,
					   .etag = c->etag,
					   .version = c->version,
					   .modified_ns = c->modified_ns,
					   .origin = c->origin});
}

static int apply_complete(struct store *store, struct txn *txn)
{
	struct store_complete *c = ((struct complete_txn *)txn)->complete;
	_cleanup_(buf_release) struct buf headers = BUF_INIT(LIMIT_HTTP_HEADERS);
	_cleanup_(old_object_release) struct old_object old = OLD_OBJECT_INIT;
	struct assembly a = {.pieces = BUF_INIT(LIMIT_STORE_LAYOUT)};
	int64_t bucket = txn_bucket(store, txn, c->bucket, c->bucket_id);
	int rc;

	if (bucket <= 0)
		return (int)-bucket;
	rc = upload_has(store, txn, bucket, c->key, c->upload, &headers);
	if (rc || txn->status != STORE_OK)
		return rc;
	rc = object_old(store, txn, bucket, c->key, &c->condition, &old);
	if (rc == 0 && txn->status == STORE_OK)
		rc = object_place(store, txn, bucket, c->key,
			store_header_find(headers.data, headers.len, STORE_REPLICA_HEADER), c->etag,
			&a.replica);
	if (rc || txn->status != STORE_OK)
		return rc;
	rc = assemble(store, txn, c, &a);
	if (rc == 0 && txn->status == STORE_OK)
		rc = complete_write(store, txn, bucket, c, &a, &headers, &old);
	buf_release(&a.pieces);
	return rc;
}

enum store_status store_complete(
	struct store *store, struct store_complete *complete, struct penstock_error *err)
{
	struct complete_txn t = {.txn = {.apply = apply_complete}, .complete = complete};

	return txn_run(store, &t.txn, err);
}
