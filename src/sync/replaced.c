#include "sync/replaced.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/record/names.h"

#define TOKEN_SIZE 65 /* bytes of an ETag in a key, and a NUL */
#define LONG_NAME  "long-name-"
#define OF_RUN	   ".run" /* no ETag in a key contains a dot */

/* ---- names ---- */

static int hash_hex(const char *text, char out[static 33])
{
	unsigned char sum[32];

	if (EVP_Digest(text, strlen(text), sum, NULL, EVP_sha256(), NULL) != 1)
		return -1;
	str_hex(sum, 16, out);
	return 0;
}

/* Converts an ETag to a part of a key. An ETag that is too long, or has characters other than
 * letters, digits and '-', is hashed; a missing ETag is replaced by time and size. */
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

int replaced_key(const char *state, const char *path, const struct object_info *there, unsigned n,
	struct buf *key, struct penstock_error *err)
{
	const char *by = strlist_get(&there->metadata, "penstock-run") ? OF_RUN : "";
	char token[TOKEN_SIZE], hash[33];
	size_t dir;

	if (token_of(there, token) < 0)
		return error_memory(err);
	buf_clear(key);
	buf_printf(key, "%s" REPLACED_DIR "%s%s", state, token, by);
	if (n > 1)
		buf_printf(key, "~%u", n);
	buf_add_char(key, '/');
	dir = key->len;
	names_key(key, path);
	if (buf_failed(key))
		return buf_error(key, "the key of a kept object", err);
	if (key->len <= LIMIT_S3_KEY)
		return 0;
	if (hash_hex(path, hash) < 0)
		return error_memory(err);
	buf_truncate(key, dir);
	buf_printf(key, LONG_NAME "%s", hash);
	if (key->len > LIMIT_S3_KEY)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot keep '%s': the key of its copy would have %zu bytes, but S3 allows "
			"%d; use a shorter prefix",
			path, key->len, LIMIT_S3_KEY);
	return 0;
}

/* Returns "ETAG/path" in the key of a copy. */
static const char *below_dir(const char *state, const char *key)
{
	return key + strlen(state) + strlen(REPLACED_DIR);
}

const char *replaced_path(const char *state, const char *key, struct buf *decoded)
{
	const char *path = strchr(below_dir(state, key), '/');

	if (!path || !*++path || str_starts(path, LONG_NAME))
		return NULL;
	return names_of_key(decoded, path);
}

bool replaced_is_of_run(const char *state, const char *key)
{
	const char *dir = below_dir(state, key);
	size_t etag = strcspn(dir, "./~");

	return str_starts(dir + etag, OF_RUN) && strchr("/~", dir[etag + strlen(OF_RUN)]);
}

/* ---- the list ---- */

struct reading {
	struct replaced_list *list;
	const char *state;
	size_t cap;
	bool memory;
};

static void release_copy(struct replaced_copy *copy)
{
	free(copy->key);
	free(copy->path);
	free(copy->etag);
}

void replaced_release(struct replaced_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		release_copy(&list->items[i]);
	free(list->items);
	*list = (struct replaced_list){0};
}

static int on_copy(void *cookie, const struct object_info *info)
{
	_cleanup_(buf_release) struct buf decoded = BUF_INIT(LIMIT_SYNC_NAME);
	struct reading *reading = cookie;
	struct replaced_list *list = reading->list;
	const char *slash = strchr(below_dir(reading->state, info->key), '/');
	const char *path = replaced_path(reading->state, info->key, &decoded);
	struct replaced_copy copy = {.size = info->size, .made_ns = info->modified_ns};

	if (!slash)
		return 0; /* no copy has such a name */
	if (list->n == LIMIT_REPLACED)
		return 1;
	if (list->n == reading->cap) {
		size_t cap = reading->cap ? 2 * reading->cap : 64;
		struct replaced_copy *items = reallocarray(list->items, cap, sizeof(*items));

		if (!items)
			return reading->memory = true;
		list->items = items;
		reading->cap = cap;
	}
	copy.key = strdup(info->key);
	copy.path = strdup(path ? path : slash + 1);
	copy.etag = strdup(info->etag);
	copy.by_run = replaced_is_of_run(reading->state, info->key);
	list->items[list->n++] = copy;
	return reading->memory = !copy.key || !copy.path || !copy.etag;
}

int replaced_read(struct replaced_list *list, struct object_ref state, const atomic_int *cancel,
	struct penstock_error *err)
{
	_cleanup_free_ char *prefix = str_printf("%s" REPLACED_DIR, state.key);
	struct reading reading = {.list = list, .state = state.key};
	int r;

	if (!prefix)
		return error_memory(err);
	r = object_list(object_at(state.client, state.bucket, prefix), NULL, on_copy, &reading,
		cancel, err);
	return r == 0 && reading.memory ? error_memory(err) : r;
}

/* ---- the bound ---- */

static int by_path_and_age(const void *a, const void *b)
{
	const struct replaced_copy *x = a, *y = b;
	int order = strcmp(x->path, y->path);

	if (order)
		return order;
	if (x->made_ns != y->made_ns)
		return x->made_ns > y->made_ns ? -1 : 1;
	return strcmp(x->key, y->key);
}

size_t replaced_choose(struct replaced_list *list, const struct replaced_bound *bound)
{
	uint64_t rank = 0;
	size_t n = 0;

	if (list->n)
		qsort(list->items, list->n, sizeof(*list->items), by_path_and_age);
	for (size_t i = 0; i < list->n; i++) {
		struct replaced_copy *copy = &list->items[i];

		if (i > 0 && strcmp(copy->path, list->items[i - 1].path) != 0)
			rank = 0;
		copy->going = false;
		if (!copy->by_run && !bound->all)
			continue;
		copy->going = rank++ >= bound->keep || copy->made_ns < bound->before_ns;
		n += copy->going;
	}
	return n;
}

struct refusals {
	struct strlist keys;
	bool memory;
};

static void on_refused(void *cookie, const char *key, const struct penstock_error *err)
{
	struct refusals *refused = cookie;

	(void)err;
	refused->memory |= strlist_add(&refused->keys, key) < 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Counts the removed copies. The removal of the first `n` marked copies was requested; the copies
 * in `refused` were not removed. */
static void count_removed(struct replaced_list *list, const struct strlist *refused, size_t n,
	struct replaced_sum *removed)
{
	if (refused->n)
		qsort(refused->items, refused->n, sizeof(char *), by_text);
	for (size_t i = 0; i < list->n && n > 0; i++) {
		struct replaced_copy *copy = &list->items[i];

		if (!copy->going)
			continue;
		n--;
		if (refused->n &&
			bsearch(&copy->key, refused->items, refused->n, sizeof(char *), by_text))
			continue;
		copy->gone = true;
		removed->copies++;
		removed->bytes += copy->size;
	}
}

int replaced_remove(struct replaced_list *list, struct object_ref in, struct replaced_sum *removed,
	struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist keys = {0}, etags = {0};
	struct refusals refused = {0};
	size_t decided = 0;
	int r;

	for (size_t i = 0; i < list->n; i++) {
		if (list->items[i].going && (strlist_add(&keys, list->items[i].key) < 0 ||
						    strlist_add(&etags, list->items[i].etag) < 0))
			return error_memory(err);
	}
	if (!keys.n)
		return 0;
	r = object_delete_many(&(struct object_deletion){.client = in.client,
				       .bucket = in.bucket,
				       .keys = &keys,
				       .etags = &etags,
				       .on_error = on_refused,
				       .cookie = &refused},
		&decided, err);
	if (!refused.memory)
		count_removed(list, &refused.keys, decided, removed);
	strlist_release(&refused.keys);
	return r == 0 && refused.memory ? error_memory(err) : r;
}
