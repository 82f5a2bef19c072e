/*
 * The keys of the store. A file outside of the database has the master key, which wraps the store
 * keys. The store keys are rows of the table `keys`; the data keys of new bodies are derived from
 * the newest store key. A new master key changes a few rows, but no body.
 */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"

#define DEFAULT_FILE "master-key"
#define DIGITS	     (2 * STORE_KEY_SIZE)

struct own_key {
	uint64_t id;
	struct store_key key;
};

struct keys {
	struct own_key *own; /* the last is the key of new bodies */
	size_t n;
	uint8_t wrapped[CRYPT_WRAPPED]; /* the last key, wrapped */
};

struct masters {
	struct store_key keys[LIMIT_STORE_MASTER_KEYS]; /* the first key is the current key */
	size_t n;
};

void keys_free(struct keys *keys)
{
	if (!keys)
		return;
	if (keys->own)
		explicit_bzero(keys->own, keys->n * sizeof(*keys->own));
	free(keys->own);
	free(keys);
}

/* --- the file -------------------------------------------------------------------------------- */

static int make_file(const char *path, struct masters *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STORE_KEY_FILE);
	char hex[DIGITS + 1];
	int rc = crypt_random(&out->keys[0], sizeof(out->keys[0]), err);

	if (rc < 0)
		return rc;
	str_hex(out->keys[0].bytes, STORE_KEY_SIZE, hex);
	buf_printf(&text,
		"# The master key of an object store, made by penstock. Encrypted objects are\n"
		"# lost without it. Put a new key above the others.\n"
		"%s\n",
		hex);
	rc = log_redact(hex) < 0 ? error_memory(err)
	     : buf_failed(&text) ? buf_error(&text, path, err)
				 : fs_write_atomic(path, text.data, text.len, 0600, err);
	explicit_bzero(hex, sizeof(hex));
	if (text.data)
		explicit_bzero(text.data, text.len);
	out->n = 1;
	return rc;
}

/* Reads one line; modifies its text. */
static int read_line(char *line, struct masters *out, struct penstock_error *err)
{
	size_t len;

	line += strspn(line, " \t");
	len = strcspn(line, " \t\r");
	if (!len || *line == '#')
		return 0;
	if (out->n == LIMIT_STORE_MASTER_KEYS)
		return error_set(err, PENSTOCK_E_LIMIT, "the file has more than %d keys",
			LIMIT_STORE_MASTER_KEYS);
	if (line[len] && line[len + strspn(line + len, " \t\r")])
		return error_set(err, PENSTOCK_E_INVALID, "a line has text after its key");
	line[len] = '\0';
	if (str_unhex(line, out->keys[out->n].bytes, STORE_KEY_SIZE) < 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"a line is not a key of %d hexadecimal digits", DIGITS);
	out->n++;
	return log_redact(line) < 0 ? error_memory(err) : 0;
}

static int read_lines(char *text, struct masters *out, struct penstock_error *err)
{
	int rc = 0;

	while (rc == 0 && text) {
		char *end = strchr(text, '\n');

		if (end)
			*end++ = '\0';
		rc = read_line(text, out, err);
		text = end;
	}
	if (rc == 0 && !out->n)
		rc = error_set(err, PENSTOCK_E_INVALID, "the file has no key");
	return rc;
}

/* Reads the file; creates it if it is missing and the store has no keys. */
static int read_file(const char *path, bool in_use, struct masters *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STORE_KEY_FILE);
	bool missing = access(path, F_OK) < 0 && errno == ENOENT;
	int rc;

	if (missing && in_use)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot read encrypted objects: the file '%s' with the master key is "
			"missing; restore the file, or name another one with --master-key",
			path);
	if (missing)
		return make_file(path, out, err);
	rc = fs_read(path, &text, err);
	if (rc < 0)
		return rc;
	fs_warn_readable(path);
	if (memchr(buf_str(&text), '\0', text.len))
		rc = error_set(err, PENSTOCK_E_INVALID, "the file contains a NUL byte");
	else
		rc = read_lines(text.len ? text.data : NULL, out, err);
	if (text.data)
		explicit_bzero(text.data, text.len);
	return rc < 0 ? error_prefix(err, "cannot read the master key in '%s'", path) : 0;
}

static int add_masters(struct masters *out, const struct masters *more, const char *from,
	const char *to, struct penstock_error *err)
{
	for (size_t i = 0; i < more->n; i++) {
		bool found = false;

		for (size_t k = 0; k < out->n; k++)
			found = found ||
				memcmp(&out->keys[k], &more->keys[i], sizeof(out->keys[k])) == 0;
		if (found)
			continue;
		if (out->n == LIMIT_STORE_MASTER_KEYS)
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot add the master keys in '%s' to '%s': the files have more "
				"than %d keys together; remove old keys from '%s', or name another "
				"directory",
				from, to, LIMIT_STORE_MASTER_KEYS, from);
		out->keys[out->n++] = more->keys[i];
	}
	return 0;
}

static int write_masters(
	const char *path, const struct masters *masters, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STORE_KEY_FILE);
	char hex[DIGITS + 1];
	int rc;

	for (size_t i = 0; i < masters->n; i++) {
		str_hex(masters->keys[i].bytes, STORE_KEY_SIZE, hex);
		buf_printf(&text, "%s\n", hex);
	}
	rc = buf_failed(&text) ? buf_error(&text, path, err)
			       : fs_write_atomic(path, text.data, text.len, 0600, err);
	explicit_bzero(hex, sizeof(hex));
	if (text.data)
		explicit_bzero(text.data, text.len);
	return rc;
}

int keys_prepend(const char *from, const char *to, struct penstock_error *err)
{
	struct masters all = {.n = 0}, old = {.n = 0};
	int rc = read_file(from, true, &all, err);

	if (rc == 0 && access(to, F_OK) == 0)
		rc = read_file(to, true, &old, err);
	if (rc == 0)
		rc = add_masters(&all, &old, from, to, err);
	if (rc == 0)
		rc = write_masters(to, &all, err);
	explicit_bzero(&all, sizeof(all));
	explicit_bzero(&old, sizeof(old));
	return rc;
}

/* --- the store keys -------------------------------------------------------------------------- */

/* Adds a store key, which is then the last key. */
static struct own_key *add_key(struct keys *keys, struct penstock_error *err)
{
	struct own_key *more = calloc(keys->n + 1, sizeof(*more));

	if (!more) {
		error_memory(err);
		return NULL;
	}
	if (keys->n) {
		memcpy(more, keys->own, keys->n * sizeof(*more));
		explicit_bzero(keys->own, keys->n * sizeof(*more));
	}
	free(keys->own);
	keys->own = more;
	return &more[keys->n++];
}

/* Unwraps a row; `*by` gets the index of the master key that unwraps the row. */
static int unwrap_row(struct keys *keys, sqlite3_stmt *st, const struct masters *masters,
	size_t *by, struct penstock_error *err)
{
	const void *wrapped = sqlite3_column_blob(st, 1);
	struct own_key *own = add_key(keys, err);
	int rc = 1;

	if (!own)
		return -PENSTOCK_E_MEMORY;
	own->id = (uint64_t)sqlite3_column_int64(st, 0);
	if (sqlite3_column_bytes(st, 1) != CRYPT_WRAPPED)
		return error_set(err, PENSTOCK_E_CORRUPT, "a store key has an invalid length");
	memcpy(keys->wrapped, wrapped, CRYPT_WRAPPED);
	for (size_t i = 0; rc == 1 && i < masters->n; i++) {
		rc = crypt_unwrap(&masters->keys[i], keys->wrapped, &own->key, err);
		*by = i;
	}
	if (rc == 1)
		return error_set(err, PENSTOCK_E_INVALID,
			"the file has a different master key; "
			"restore the file, or name it with --master-key");
	return rc;
}

static int read_keys(struct db *db, struct keys *keys, const struct masters *masters, bool *rotated,
	struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(db, SQL_KEY_LIST, "");
	int rc;

	while ((rc = db_step(db, st)) == SQLITE_ROW) {
		size_t by = 0;

		rc = unwrap_row(keys, st, masters, &by, err);
		if (rc < 0)
			return rc;
		*rotated = *rotated || by > 0;
	}
	if (rc == SQLITE_DONE)
		return 0;
	db_error(db, rc, "read the keys of the store", err);
	return -PENSTOCK_E_IO;
}

static int new_key(struct keys *keys, const struct store_key *master, struct penstock_error *err)
{
	uint64_t id = keys->n ? keys->own[keys->n - 1].id + 1 : 1;
	struct own_key *own = add_key(keys, err);
	int rc;

	if (!own)
		return -PENSTOCK_E_MEMORY;
	own->id = id;
	rc = crypt_random(&own->key, sizeof(own->key), err);
	return rc < 0 ? rc : crypt_wrap(master, &own->key, keys->wrapped, err);
}

static int rewrap(struct store *store, const struct keys *keys, const struct store_key *master,
	struct penstock_error *err)
{
	int rc = db_run(db_statement(store->writer, SQL_BEGIN));
	uint8_t wrapped[CRYPT_WRAPPED];

	for (size_t i = 0; rc == 0 && i + 1 < keys->n; i++) {
		if (crypt_wrap(master, &keys->own[i].key, wrapped, err) < 0) {
			db_run(db_statement(store->writer, SQL_ROLLBACK));
			return -PENSTOCK_E_INTERNAL;
		}
		rc = db_exec(store->writer, SQL_KEY_SET, "ib", (int64_t)keys->own[i].id, wrapped,
			sizeof(wrapped));
	}
	if (rc == 0)
		rc = keys_keep(store);
	if (rc == 0)
		rc = db_run(db_statement(store->writer, SQL_COMMIT));
	if (rc == 0)
		return 0;
	db_error(store->writer, rc, "wrap the keys of the store", err);
	if (!sqlite3_get_autocommit(store->writer->handle))
		db_run(db_statement(store->writer, SQL_ROLLBACK));
	return -PENSTOCK_E_IO;
}

static bool any_row(struct db *db)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(db, SQL_KEY_LIST, "");

	return db_step(db, st) == SQLITE_ROW;
}

static int unwrap(struct db *db, struct keys *keys, const char *path, const struct masters *masters,
	bool *rotated, struct penstock_error *err)
{
	if (read_keys(db, keys, masters, rotated, err) == 0)
		return 0;
	return error_prefix(
		err, "cannot open the keys of the store with the master key in '%s'", path);
}

static int open_with(
	struct store *store, const char *path, struct masters *masters, struct penstock_error *err)
{
	struct keys *keys = store->keys;
	bool rotated = false;
	int rc = read_file(path, any_row(store->writer), masters, err);

	if (rc == 0)
		rc = unwrap(store->writer, keys, path, masters, &rotated, err);
	if (rc < 0)
		return rc;
	if (keys->n && !rotated)
		return 0;
	/* The new key becomes a row in rewrap(), or together with the first body that needs it. */
	rc = new_key(keys, &masters->keys[0], err);
	if (rc < 0 || !rotated)
		return rc;
	rc = rewrap(store, keys, &masters->keys[0], err);
	if (rc == 0)
		log_info(
			"store '%s': its keys are wrapped by the first key in '%s'; the other keys "
			"in this file are no longer needed",
			store->root, path);
	return rc;
}

static char *file_of(const struct store *store, const char *file)
{
	return file ? strdup(file) : path_join(store->root, DEFAULT_FILE);
}

int keys_open_guest(
	struct store *store, struct db *db, const char *file, struct penstock_error *err)
{
	_cleanup_free_ char *path = file_of(store, file);
	struct masters masters = {.n = 0};
	bool rotated = false;
	int rc;

	store->keys = calloc(1, sizeof(*store->keys));
	if (!path || !store->keys)
		return error_memory(err);
	if (!any_row(db))
		return 0;
	if (access(path, F_OK) < 0 && errno == ENOENT) {
		log_warn("store '%s': cannot read encrypted objects: the file '%s' with the master "
			 "key is missing",
			store->root, path);
		return 0;
	}
	rc = read_file(path, true, &masters, err);
	if (rc == 0)
		rc = unwrap(db, store->keys, path, &masters, &rotated, err);
	explicit_bzero(&masters, sizeof(masters));
	return rc;
}

int keys_open(struct store *store, const char *file, struct penstock_error *err)
{
	_cleanup_free_ char *path = file_of(store, file);
	struct masters masters = {.n = 0};
	int rc;

	store->keys = calloc(1, sizeof(*store->keys));
	if (!path || !store->keys)
		return error_memory(err);
	rc = open_with(store, path, &masters, err);
	explicit_bzero(&masters, sizeof(masters));
	return rc;
}

int keys_keep(struct store *store)
{
	const struct keys *keys = store->keys;

	return db_exec(store->writer, SQL_KEY_ADD, "ib", (int64_t)keys->own[keys->n - 1].id,
		keys->wrapped, sizeof(keys->wrapped));
}

/* --- data keys ------------------------------------------------------------------------------- */

int keys_new_seal(struct store *store, bool customer, struct seal *out, struct penstock_error *err)
{
	const struct keys *keys = store->keys;

	out->key = customer ? 0 : keys->own[keys->n - 1].id;
	return crypt_random(out->salt, sizeof(out->salt), err);
}

int keys_crypt(struct store *store, const struct store_key *customer, const struct seal *seal,
	bool encrypts, struct crypt *out, struct penstock_error *err)
{
	const struct keys *keys = store->keys;

	if (!seal->key)
		return customer
			       ? crypt_init(out, customer, seal, encrypts, err)
			       : error_set(err, PENSTOCK_E_INVALID,
					 "cannot read an object: the key of the customer is missing");
	for (size_t i = 0; i < keys->n; i++)
		if (keys->own[i].id == seal->key)
			return crypt_init(out, &keys->own[i].key, seal, encrypts, err);
	return error_set(err, PENSTOCK_E_CORRUPT,
		"cannot read an object in '%s': the store has no key %llu", store->root,
		(unsigned long long)seal->key);
}

/* --- the encryption of an object, as text ---------------------------------------------------- */

#define OWN	 "store"
#define CUSTOMER "customer "
#define CHECK	 "penstock check"
#define ETAG	 "penstock etag"

int store_customer_etag(const struct store_key *key, const uint8_t md5[static 16],
	char out[static 33], struct penstock_error *err)
{
	struct store_key derived;
	int rc = crypt_derive(key, ETAG, md5, &derived, err);

	if (rc == 0)
		str_hex(derived.bytes, 16, out);
	return rc;
}

int store_encryption_format(const struct store_key *customer,
	char out[static STORE_ENCRYPTION_SIZE], struct penstock_error *err)
{
	struct store_key check;
	uint8_t salt[16];
	int rc;

	memcpy(out, OWN, sizeof(OWN));
	if (!customer)
		return 0;
	rc = crypt_random(salt, sizeof(salt), err);
	if (rc == 0)
		rc = crypt_derive(customer, CHECK, salt, &check, err);
	if (rc < 0)
		return rc;
	memcpy(out, CUSTOMER, sizeof(CUSTOMER));
	str_hex(salt, sizeof(salt), out + strlen(CUSTOMER));
	str_hex(check.bytes, sizeof(check.bytes), out + strlen(CUSTOMER) + 2 * sizeof(salt));
	return 0;
}

enum store_encryption store_encryption_of(const char *text)
{
	return !text ? STORE_PLAIN : strcmp(text, OWN) == 0 ? STORE_OWN_KEY : STORE_CUSTOMER_KEY;
}

int store_encryption_check(
	const char *text, const struct store_key *key, bool *same, struct penstock_error *err)
{
	const size_t skipped = strlen(CUSTOMER), digits = 2 * sizeof(((struct seal *)0)->salt);
	struct store_key check;
	char salt_hex[33], hex[DIGITS + 1];
	uint8_t salt[16];
	int rc;

	if (strlen(text) != skipped + digits + DIGITS)
		return error_set(
			err, PENSTOCK_E_CORRUPT, "cannot read an object: unknown encryption");
	snprintf(salt_hex, sizeof(salt_hex), "%.32s", text + skipped);
	if (str_unhex(salt_hex, salt, sizeof(salt)) < 0)
		return error_set(
			err, PENSTOCK_E_CORRUPT, "cannot read an object: unknown encryption");
	rc = crypt_derive(key, CHECK, salt, &check, err);
	if (rc < 0)
		return rc;
	str_hex(check.bytes, sizeof(check.bytes), hex);
	*same = str_equal_secret(hex, text + skipped + digits);
	return 0;
}
