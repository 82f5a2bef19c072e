/* Snapshots of objects: reference counts, headers, and reading their bytes. */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/quota.h"
#include "store/header.h"

/* Objects with more pieces are not mapped: a process may have only 65,530 mappings by default. */
#define MAPPED_PIECES 4096
/* Snapshots of up to this number of bytes are not counted: their number is at most the number of
 * requests. */
#define SMALL_SNAPSHOT (64 * KIB)

/* --- memory ---------------------------------------------------------------------------------- */

static int take_memory(struct store_object *object, const char *bucket, const char *owner,
	struct penstock_error *err)
{
	struct quota_share *share = quota_share(&object->store->snapshots, owner);

	if (!share)
		return error_memory(err);
	if (!quota_take(share, object->memory))
		return error_set(err, PENSTOCK_E_MEMORY,
			"cannot read an object in the bucket '%s': the large objects that are being "
			"read take %zu bytes of memory; retry later",
			bucket, quota_held(share));
	object->share = share;
	return 0;
}

enum store_status snapshot_count(struct store *store, const char *bucket,
	struct store_object **object, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = NULL;
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	char owner[STORE_OWNER_SIZE] = "";
	enum store_status status = STORE_FAILED;

	if ((*object)->memory <= SMALL_SNAPSHOT)
		return STORE_OK;
	db = db_reader(store, err);
	if (db) {
		st = db_bound(db, SQL_BUCKET_GET, "t", bucket);
		status = db_look_up(db, st, STORE_NO_SUCH_BUCKET, "look up a bucket", err);
	}
	if (status == STORE_OK)
		db_column_text(st, 4, owner, sizeof(owner));
	if (status == STORE_OK && take_memory(*object, bucket, owner, err) < 0)
		status = STORE_FAILED;
	if (status != STORE_OK) {
		store_object_unref(*object);
		*object = NULL;
	}
	return status;
}

struct store_object *store_object_ref(struct store_object *object)
{
	atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
	return object;
}

void store_object_unref(struct store_object *object)
{
	if (!object || atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (size_t i = 0; i < object->n_pieces; i++)
		blob_unpin(object->store, object->blobs[i]);
	if (object->share)
		quota_give_back(object->share, object->memory);
	free(object);
}

/* One allocation: the struct, pieces, blobs, seals, parts, headers, body. */
static struct store_object *object_alloc(struct store *store, size_t n_parts, size_t n_pieces,
	size_t n_seals, size_t headers_len, size_t body_len)
{
	size_t pieces = sizeof(struct store_object);
	size_t blobs = pieces + n_pieces * sizeof(struct store_piece);
	size_t seals = blobs + n_pieces * sizeof(struct store_blob *);
	size_t parts = seals + n_seals * sizeof(struct seal);
	size_t headers = parts + n_parts * sizeof(struct store_part);
	size_t body = headers + headers_len;
	char *p = calloc(1, body + body_len);
	struct store_object *object = (struct store_object *)p;

	if (!object)
		return NULL;
	atomic_init(&object->refs, 1);
	object->store = store;
	object->memory = body + body_len;
	object->pieces = (struct store_piece *)(p + pieces);
	object->n_pieces = n_pieces;
	object->blobs = (struct store_blob **)(p + blobs);
	object->seals = n_seals ? (struct seal *)(p + seals) : NULL;
	object->parts = (struct store_part *)(p + parts);
	object->n_parts = n_parts;
	object->headers = p + headers;
	object->headers_len = headers_len;
	object->body = p + body;
	object->body_len = body_len;
	return object;
}

struct store_object *store_object_outline(const struct store_object *object)
{
	struct store_object *outline = object_alloc(object->store, 0, 0, 0, object->headers_len, 0);

	if (!outline)
		return NULL;
	outline->body = NULL;
	outline->modified_ns = object->modified_ns;
	if (object->headers_len)
		memcpy((char *)outline->headers, object->headers, object->headers_len);
	return outline;
}

/* Gets the seals (struct seal) of the files of an encrypted object. */
static int read_seals(struct db *db, const struct store_object *object, struct penstock_error *err)
{
	for (size_t i = 0; i < object->n_pieces; i++) {
		_cleanup_reset_ sqlite3_stmt *st = db_bound(
			db, SQL_BLOB_SEAL, "i", (int64_t)object->pieces[i].blob);
		enum store_status status = db_look_up(
			db, st, STORE_NO_SUCH_KEY, "read the seal of a file", err);

		if (status != STORE_OK && status != STORE_NO_SUCH_KEY)
			return -PENSTOCK_E_IO;
		if (status != STORE_OK ||
			seal_decode((struct seal *)&object->seals[i], sqlite3_column_blob(st, 0),
				(size_t)sqlite3_column_bytes(st, 0)) < 0)
			return error_set(err, PENSTOCK_E_CORRUPT,
				"cannot read an object in '%s': an encrypted file has no seal",
				db->store->root);
	}
	return 0;
}

static int corrupt_body(const struct store *store, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CORRUPT,
		"cannot read an object in '%s': the encrypted bytes differ from the bytes "
		"that were written",
		store->root);
}

/* Decrypts the body of an inline object into `out`, which has room for its size. */
static int open_body(const struct store_object *object, const struct store_key *customer,
	const uint8_t *body, void *out, struct penstock_error *err)
{
	struct store *store = object->store;
	struct crypt crypt = {0};
	struct seal seal;
	int rc;

	if (object->body_len != object->size + SEAL_SIZE + CRYPT_TAG ||
		object->size > STORE_INLINE_MAX || seal_decode(&seal, body, SEAL_SIZE) < 0)
		return corrupt_body(store, err);
	rc = keys_crypt(store, customer, &seal, false, &crypt, err);
	if (rc == 0 &&
		crypt_decrypt(&crypt, 0, body + SEAL_SIZE, object->size + CRYPT_TAG, out) < 0)
		rc = corrupt_body(store, err);
	crypt_release(&crypt);
	return rc;
}

/* Copies the body. A body that is encrypted with a key of the store is decrypted here, so that all
 * readers of the snapshot share the work. */
static int read_body(struct store_object *object, const void *body, struct penstock_error *err)
{
	char *to = (char *)object->body;
	int rc = 0;

	if (object->encryption == STORE_OWN_KEY) {
		rc = open_body(object, NULL, body, to, err);
		object->body_len = object->size;
	} else if (object->body_len) {
		memcpy(to, body, object->body_len);
	}
	return rc;
}

int object_from_row(
	struct db *db, sqlite3_stmt *st, struct store_object **out, struct penstock_error *err)
{
	struct store *store = db->store;
	const void *layout = sqlite3_column_blob(st, 7);
	size_t layout_len = (size_t)sqlite3_column_bytes(st, 7);
	const void *headers = sqlite3_column_blob(st, 6);
	size_t headers_len = (size_t)sqlite3_column_bytes(st, 6);
	bool is_inline = sqlite3_column_type(st, 8) != SQLITE_NULL;
	const void *body = sqlite3_column_blob(st, 8);
	size_t body_len = (size_t)sqlite3_column_bytes(st, 8);
	enum store_encryption encryption = store_encryption_of(
		store_header_find(headers, headers_len, STORE_ENCRYPTION_HEADER));
	size_t n_parts = 0, n_pieces = 0;
	struct store_object *object;
	int rc = 0;

	if (layout_decode(layout, layout_len, NULL, &n_parts, NULL, &n_pieces) < 0)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot read an object in '%s': invalid layout", store->root);
	object = object_alloc(store, n_parts, n_pieces, encryption == STORE_PLAIN ? 0 : n_pieces,
		headers_len, body_len);
	if (!object)
		return error_memory(err);
	object->encryption = encryption;
	object->size = (uint64_t)sqlite3_column_int64(st, 0);
	object->modified_ns = sqlite3_column_int64(st, 1);
	db_column_text(st, 2, object->etag, sizeof(object->etag));
	db_column_text(st, 3, object->checksum.algorithm, sizeof(object->checksum.algorithm));
	db_column_text(st, 4, object->checksum.type, sizeof(object->checksum.type));
	db_column_text(st, 5, object->checksum.value, sizeof(object->checksum.value));
	layout_decode(layout, layout_len, (struct store_part *)object->parts, &n_parts,
		(struct store_piece *)object->pieces, &n_pieces);
	if (headers_len)
		memcpy((char *)object->headers, headers, headers_len);
	object->versioned = sqlite3_column_int(st, 9) != STORE_UNVERSIONED;
	object->marker = sqlite3_column_int(st, 10) != 0;
	version_name(object->version, object->modified_ns,
		object->marker ? sqlite3_column_int(st, 11) != 0
			       : !store_object_header(object, HEADER_VERSION));
	if (is_inline)
		rc = read_body(object, body, err);
	else
		object->body = NULL;
	if (object->seals)
		rc = read_seals(db, object, err);
	for (size_t i = 0; i < n_pieces && rc == 0; i++) {
		object->blobs[i] = blob_pin(store, object->pieces[i].blob);
		if (!object->blobs[i])
			rc = error_memory(err);
	}
	if (rc < 0)
		store_object_unref(object);
	else
		*out = object;
	return rc;
}

enum store_status object_look_up(struct db *db, sqlite3_stmt *st, enum store_status missing,
	struct store_object **out, struct penstock_error *err)
{
	enum store_status status = db_look_up(db, st, missing, "read an object", err);

	if (status == STORE_OK && object_from_row(db, st, out, err) < 0)
		status = STORE_FAILED;
	return status;
}

const char *store_object_header(const struct store_object *object, const char *name)
{
	return store_header_find(object->headers, object->headers_len, name);
}

bool store_object_is_shareable(const struct store_object *object, enum store_encryption encryption)
{
	/* An encrypted inline body would have to be encrypted again. */
	return object->encryption == encryption && (encryption == STORE_PLAIN || !object->body);
}

/* Returns the index of the piece that has the whole range, and makes `*offset` relative to the
 * piece; returns n_pieces if there is no such piece. */
static size_t piece_of(const struct store_object *object, uint64_t *offset, uint64_t length)
{
	size_t i = 0;

	while (i < object->n_pieces && *offset >= object->pieces[i].length)
		*offset -= object->pieces[i++].length;
	if (i < object->n_pieces && length > object->pieces[i].length - *offset)
		return object->n_pieces;
	return i;
}

const void *store_object_map(const struct store_object *object, uint64_t offset, uint64_t length)
{
	size_t i;
	const char *map;

	if (object->body)
		return object->encryption == STORE_CUSTOMER_KEY ||
				       offset + length > object->body_len
			       ? NULL
			       : (const char *)object->body + offset;
	if (object->encryption != STORE_PLAIN || object->store->no_mapping)
		return NULL;
	i = piece_of(object, &offset, length);
	if (i == object->n_pieces || object->n_pieces > MAPPED_PIECES)
		return NULL;
	map = blob_map(object->store, object->blobs[i]);
	offset += object->pieces[i].offset;
	return map && object->blobs[i]->map_len >= offset + length ? map + offset : NULL;
}

int store_object_open(
	const struct store_object *object, uint64_t offset, uint64_t length, uint64_t *at)
{
	_cleanup_close_ int fd = -1;
	const struct store_piece *piece;
	struct stat st;
	size_t i = piece_of(object, &offset, length);

	if (i == object->n_pieces || object->encryption != STORE_PLAIN)
		return -1;
	piece = &object->pieces[i];
	fd = blob_open(object->store, piece->blob, NULL);
	if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size < piece->offset + offset + length)
		return -1;
	*at = piece->offset + offset;
	return take_fd(fd);
}

/* --- reading ------------------------------------------------------------------------------- */

struct store_reader {
	struct store_object *object;
	size_t piece; /* index of the piece whose file is open */
	uint64_t start; /* start of that piece within the object */
	int fd;
	struct opener *opener; /* NULL unless the object is encrypted */
	bool has_key;
	struct store_key customer;
};

int store_reader_new(
	struct store_object *object, struct store_reader **out, struct penstock_error *err)
{
	struct store_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return error_memory(err);
	if (object->encryption != STORE_PLAIN) {
		reader->opener = calloc(1, sizeof(*reader->opener));
		if (!reader->opener) {
			free(reader);
			return error_memory(err);
		}
	}
	reader->object = store_object_ref(object);
	reader->fd = -1;
	*out = reader;
	return 0;
}

void store_reader_set_key(struct store_reader *reader, const struct store_key *customer)
{
	reader->customer = *customer;
	reader->has_key = true;
}

void store_reader_free(struct store_reader *reader)
{
	if (!reader)
		return;
	if (reader->fd >= 0)
		close(reader->fd);
	if (reader->opener)
		crypt_release(&reader->opener->crypt);
	free(reader->opener);
	store_object_unref(reader->object);
	explicit_bzero(&reader->customer, sizeof(reader->customer));
	free(reader);
}

static const struct store_key *reader_key(const struct store_reader *reader)
{
	return reader->has_key ? &reader->customer : NULL;
}

/* Opens the file of the current piece. */
static int reader_open(struct store_reader *reader, struct penstock_error *err)
{
	const struct store_object *object = reader->object;
	_cleanup_close_ int fd = blob_open(object->store, object->pieces[reader->piece].blob, err);
	int rc = fd < 0 ? -PENSTOCK_E_IO : 0;

	if (rc == 0 && reader->opener) {
		reader->opener->has = false;
		rc = keys_crypt(object->store, reader_key(reader), &object->seals[reader->piece],
			false, &reader->opener->crypt, err);
	}
	if (rc == 0)
		reader->fd = take_fd(fd);
	return rc;
}

static int error_too_short(const struct store_object *object, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CORRUPT,
		"cannot read an object in '%s': it has fewer bytes than its size",
		object->store->root);
}

/* Moves to the piece that holds `offset`. */
static int reader_seek(struct store_reader *reader, uint64_t offset, struct penstock_error *err)
{
	const struct store_object *object = reader->object;
	size_t piece = reader->piece;
	uint64_t start = reader->start;

	if (offset < start)
		piece = start = 0;
	while (piece < object->n_pieces && offset - start >= object->pieces[piece].length)
		start += object->pieces[piece++].length;
	if (piece == object->n_pieces)
		return error_too_short(object, err);
	if (piece != reader->piece && reader->fd >= 0)
		close(take_fd(reader->fd));
	reader->piece = piece;
	reader->start = start;
	return reader->fd < 0 ? reader_open(reader, err) : 0;
}

/* Fails if the file of the piece lacks the first `length` bytes of the piece. */
static int check_piece(const struct store_object *object, const struct store_piece *piece,
	uint64_t length, struct penstock_error *err)
{
	char path[BLOB_PATH_SIZE];
	struct stat st;
	uint64_t size;

	blob_path(piece->blob, path);
	if (fstatat(object->store->root_fd, path, &st, 0) < 0)
		return error_errno(err, errno, "cannot read '%s/%s'", object->store->root, path);
	size = object->encryption == STORE_PLAIN ? (uint64_t)st.st_size
						 : crypt_plain_size((uint64_t)st.st_size);
	if (size >= piece->offset + length)
		return 0;
	return error_set(err, PENSTOCK_E_CORRUPT,
		"cannot read '%s/%s': the file is too short; 'penstock store check' finds all such "
		"files",
		object->store->root, path);
}

int store_reader_check(
	struct store_reader *reader, uint64_t offset, uint64_t length, struct penstock_error *err)
{
	const struct store_object *object = reader->object;
	uint64_t end = offset + length, start;
	int rc;

	if (object->body)
		return end > object->body_len ? error_too_short(object, err) : 0;
	if (!length)
		return 0;
	rc = reader_seek(reader, offset, err);
	start = reader->start;
	for (size_t i = 0; rc == 0 && start < end && i < STORE_CHECKED_FILES; i++) {
		const struct store_piece *piece = &object->pieces[reader->piece + i];
		uint64_t want;

		if (reader->piece + i == object->n_pieces)
			return error_too_short(object, err);
		want = piece->length < end - start ? piece->length : end - start;
		rc = check_piece(object, piece, want, err);
		start += piece->length;
	}
	return rc;
}

/* Decrypts the inline body of an object with a customer's key, once. */
static int reader_open_body(struct store_reader *reader, struct penstock_error *err)
{
	struct opener *o = reader->opener;

	if (o->has)
		return 0;
	o->has = open_body(reader->object, reader_key(reader), reader->object->body, o->plain,
			 err) == 0;
	return o->has ? 0 : -1;
}

static ssize_t reader_inline(struct store_reader *reader, uint64_t offset, void *data, size_t len,
	struct penstock_error *err)
{
	const char *body = reader->object->body;

	if (offset + len > reader->object->body_len)
		return error_too_short(reader->object, err), -1;
	if (reader->object->encryption == STORE_CUSTOMER_KEY) {
		if (reader_open_body(reader, err) < 0)
			return -1;
		body = (const char *)reader->opener->plain;
	}
	memcpy(data, body + offset, len);
	return (ssize_t)len;
}

ssize_t store_reader_read(struct store_reader *reader, uint64_t offset, void *data, size_t len,
	struct penstock_error *err)
{
	const struct store_object *object = reader->object;
	size_t done = 0;

	if (offset >= object->size)
		return 0;
	if (len > object->size - offset)
		len = (size_t)(object->size - offset);
	if (object->body)
		return reader_inline(reader, offset, data, len, err);
	while (done < len) {
		const struct store_piece *piece;
		uint64_t within, want;
		ssize_t n;

		if (reader_seek(reader, offset + done, err) < 0)
			return -1;
		piece = &object->pieces[reader->piece];
		within = offset + done - reader->start;
		want = piece->length - within;
		if (want > len - done)
			want = len - done;
		within += piece->offset;
		n = reader->opener ? opener_read(reader->opener, reader->fd, within,
					     (char *)data + done, (size_t)want)
				   : fs_pread_all(reader->fd, (char *)data + done, (size_t)want,
					     (off_t)within);
		if (n < 0 && errno == EBADMSG)
			return corrupt_body(object->store, err), -1;
		if (n < 0)
			return error_errno(err, errno, "cannot read from the store at '%s'",
				       object->store->root),
			       -1;
		if ((uint64_t)n != want)
			return error_set(err, PENSTOCK_E_CORRUPT,
				       "cannot read an object in '%s': a data file is too short",
				       object->store->root),
			       -1;
		done += (size_t)n;
	}
	return (ssize_t)done;
}
