/*
 * Keeps objects of others before they are overwritten: as a version if the bucket has versions,
 * else as one copy made by the store. The name of the copy contains the ETag of the original, so no
 * later copy can take its place, and an attempt that was killed between copy and overwrite finds it
 * again.
 */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/record/names.h"
#include "sync/internal.h"

int sync_key(const struct sync *s, const char *path, struct buf *key, struct penstock_error *err)
{
	buf_add_str(key, s->o.prefix);
	names_key(key, path);
	return buf_failed(key) ? buf_error(key, "the key of a file", err) : 0;
}

void sync_partial_key(const struct sync *s, const char *path, struct buf *key)
{
	buf_printf(key, "%spartial/", s->state);
	names_key(key, path);
}

int sync_head(
	struct sync *s, const char *path, struct object_info *there, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 3);
	int rc = sync_key(s, path, &key, err);

	return rc < 0 ? rc : object_head(sync_at(s, buf_str(&key)), there, err);
}

int sync_list(struct sync *s, const char *prefix, object_list_fn fn, void *cookie,
	struct penstock_error *err)
{
	int rc = object_list(sync_at(s, prefix), NULL, fn, cookie, s->o.cancel, err);

	return error_expected(rc, PENSTOCK_E_PERMISSION, err) ||
			       error_expected(rc, PENSTOCK_E_UNSUPPORTED, err) ||
			       error_expected(rc, PENSTOCK_E_NOT_FOUND, err)
		       ? 0
		       : rc;
}

#define TOKEN_SIZE 65 /* bytes of an ETag in a key, and a NUL */
#define NAMES	   9 /* names to try if another object has the name of the copy */
#define LONG_NAME  "long-name-"

static bool keep_has(const struct sync *s, const char *key)
{
	struct kept *k;

	HASH_FIND_STR(s->kept, key, k);
	return k != NULL;
}

static void free_kept(struct kept *k)
{
	free(k->path);
	free(k->etag);
	free(k->key);
	free(k);
}

void keep_free(struct sync *s)
{
	struct kept *k, *next;

	HASH_ITER (hh, s->kept, k, next) {
		HASH_DEL(s->kept, k);
		free_kept(k);
	}
}

int keep_add(struct sync *s, const char *path, const char *etag, const char *key, uint64_t size)
{
	struct kept *k;

	if (keep_has(s, key))
		return 0;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -1;
	k->size = size;
	k->path = strdup(path);
	k->etag = strdup(etag);
	k->key = strdup(key);
	if (k->path && k->etag && k->key)
		HASH_ADD_KEYPTR(hh, s->kept, k->key, strlen(k->key), k);
	if (!k->hh.tbl) {
		free_kept(k);
		return -1;
	}
	if (s->journal)
		journal_add(s->journal, &(struct journal_record){.type = JOURNAL_KEPT,
						.path = path,
						.etag = etag,
						.key = key,
						.ident.size = size});
	s->plan.manifest_dirty = true;
	return 0;
}

bool keep_is_of_run(const struct sync *s, const struct object_info *there)
{
	const char *run = strlist_get(&there->metadata, "penstock-run");

	return run && strcmp(run, s->o.run_id) == 0;
}

bool keep_is_of_sync(const struct sync *s, const struct object_info *there)
{
	const char *upload = strlist_get(&there->metadata, "penstock-upload");

	return keep_is_of_run(s, there) && upload && str_starts(upload, s->nonce);
}

bool keep_is_ours(const struct sync *s, const struct object_info *there, bool older)
{
	const char *by = strlist_get(&there->metadata, "penstock-attempt");
	uint64_t attempt = 0;

	if (!keep_is_of_run(s, there))
		return false;
	if (keep_is_of_sync(s, there))
		return true;
	/* Another machine may have counted its attempts differently, so their numbers decide
	 * last. */
	if (older || s->o.began > s->o.attempt)
		return false;
	if (by)
		str_to_u64(by, 0, INT32_MAX, &attempt);
	return s->o.began <= 0 || attempt >= (uint64_t)s->o.began;
}

static int hash_hex(const char *text, char out[static 33])
{
	unsigned char sum[32];

	if (EVP_Digest(text, strlen(text), sum, NULL, EVP_sha256(), NULL) != 1)
		return -1;
	str_hex(sum, 16, out);
	return 0;
}

/* An ETag as part of a key. An ETag with other characters is hashed. */
static int token_of(const struct object_info *there, char out[static TOKEN_SIZE])
{
	size_t len = strlen(there->etag);
	const char *etag = there->etag;

	if (len >= 2 && etag[0] == '"' && etag[len - 1] == '"') {
		etag++;
		len -= 2;
	}
	if (len > 0 && len < TOKEN_SIZE &&
		strspn(etag, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") >=
			len) {
		memcpy(out, etag, len);
		out[len] = '\0';
		return 0;
	}
	if (len == 0) {
		snprintf(out, TOKEN_SIZE, "%" PRId64 "-%" PRIu64, there->modified_ns, there->size);
		return 0;
	}
	return hash_hex(there->etag, out);
}

/* "<state>replaced/TOKEN/path"; the second copy of a name and later ones end in "~2", … */
static int key_of(const struct sync *s, const char *path, const char *token, unsigned n,
	struct buf *key, struct penstock_error *err)
{
	char hash[33];

	buf_clear(key);
	buf_printf(key, "%sreplaced/%s", s->state, token);
	if (n > 1)
		buf_printf(key, "~%u", n);
	buf_add_char(key, '/');
	names_key(key, path);
	if (buf_failed(key))
		return buf_error(key, "the key of a kept object", err);
	if (key->len <= LIMIT_S3_KEY)
		return 0;
	if (hash_hex(path, hash) < 0)
		return error_memory(err);
	buf_truncate(key, strlen(s->state) + strlen("replaced/") + strlen(token));
	if (n > 1)
		buf_printf(key, "~%u", n);
	buf_printf(key, "/%s%s", LONG_NAME, hash);
	if (key->len > LIMIT_S3_KEY)
		return error_set(err, PENSTOCK_E_LIMIT,
			"a copy of it would have a key of %zu bytes, and S3 allows %d; use a "
			"shorter prefix",
			key->len, LIMIT_S3_KEY);
	return 0;
}

/* Records the copy before anything is overwritten. The kernel has the record, so a kill of penstock
 * does not lose it. */
static int note_kept(struct sync *s, const char *path, const struct object_info *there,
	const char *key, struct penstock_error *err)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = keep_add(s, path, there->etag, key, there->size);
	if (rc == 0 && s->journal)
		journal_write(s->journal);
	pthread_mutex_unlock(&s->lock);
	if (rc < 0)
		return error_memory(err);
	sync_emit(s, SYNC_KEPT, path, there->size, "%s", key);
	return 1;
}

static bool is_known(struct sync *s, const char *key)
{
	LOCK_SCOPE(&s->lock);
	return keep_has(s, key);
}

/* Examines the key of the copy. Returns 1 if the copy is there, 2 if another object is, 0 if none
 * is. */
static int look_for_copy(struct sync *s, const char *key, const struct object_info *there,
	struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info copy = {0};
	int rc = object_head(sync_at(s, key), &copy, err);

	if (error_expected(rc, PENSTOCK_E_NOT_FOUND, err) ||
		error_expected(rc, PENSTOCK_E_PERMISSION, err))
		return 0;
	if (rc < 0)
		return rc;
	return copy.size == there->size ? 1 : 2;
}

/* Returns 1 if the copy is there, 0 if the object under `from` must be examined again. */
static int copy_once(struct sync *s, const char *path, const char *from,
	const struct object_info *there, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 4);
	char token[TOKEN_SIZE];
	int rc = token_of(there, token) < 0 ? error_memory(err) : 2;

	for (unsigned n = 1; rc == 2 && n <= NAMES; n++) {
		rc = key_of(s, path, token, n, &key, err);
		if (rc == 0 && is_known(s, buf_str(&key)))
			return 1;
		if (rc == 0)
			rc = look_for_copy(s, buf_str(&key), there, err);
	}
	if (rc == 0)
		rc = object_copy(sync_at(s, from), sync_at(s, buf_str(&key)),
			&(struct object_copy_options){
				.if_match = there->etag, .if_none_match = s->conditions},
			NULL, err);
	/* The object changed or is gone; or a reply was lost and the copy is there. */
	if (error_expected(rc, PENSTOCK_E_PRECONDITION, err) ||
		error_expected(rc, PENSTOCK_E_NOT_FOUND, err))
		return 0;
	if (rc == 2)
		return error_set(err, PENSTOCK_E_EXISTS, "another object has the name of its copy");
	return rc < 0 ? rc : note_kept(s, path, there, buf_str(&key), err);
}

int keep_object(struct sync *s, const char *path, const char *key, const struct object_info *there,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf version = BUF_INIT(LIMIT_STRING);
	int rc;

	/* "null" is the version from before the bucket had versions, or while they were suspended;
	 * then an overwrite replaces it. */
	if (there->version_id && strcmp(there->version_id, "null") != 0) {
		buf_printf(&version, "version:%s", there->version_id);
		if (buf_failed(&version))
			return buf_error(&version, "the version of a kept object", err);
		return is_known(s, buf_str(&version))
			       ? 1
			       : note_kept(s, path, there, buf_str(&version), err);
	}
	rc = copy_once(s, path, key, there, err);
	if (rc < 0)
		return error_prefix(err,
			"cannot keep the object that was there before this run, so it is not "
			"overwritten");
	return rc;
}

struct search {
	struct sync *s;
	bool memory;
};

static int on_found(void *cookie, const struct object_info *info)
{
	_cleanup_(buf_release) struct buf decoded = BUF_INIT(LIMIT_SYNC_NAME);
	struct search *search = cookie;
	const char *path = strchr(info->key + strlen(search->s->state) + strlen("replaced/"), '/');

	if (!path || !*++path || str_starts(path, LONG_NAME))
		return 0;
	path = names_of_key(&decoded, path);
	LOCK_SCOPE(&search->s->lock);
	search->memory |= keep_add(search->s, path, info->etag, info->key, info->size) < 0;
	return search->memory;
}

int keep_find(struct sync *s, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf prefix = BUF_INIT(LIMIT_S3_KEY * 2);
	struct search search = {.s = s};
	int rc;

	buf_printf(&prefix, "%sreplaced/", s->state);
	if (buf_failed(&prefix))
		return buf_error(&prefix, "the prefix of kept objects", err);
	/* The journal and the manifest know the copies too. */
	rc = sync_list(s, buf_str(&prefix), on_found, &search, err);
	return rc == 0 && search.memory ? error_memory(err) : rc;
}
