#include "store/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/must.h"
#include "base/thread.h"

/* Write-back starts after each step of this many bytes, so the final sync has little to do. */
#define WRITEBACK_STEP (8 * MIB)

struct store_body {
	struct store *store;
	bool may_inline;
	bool synced;
	struct buf memory; /* the bytes while the body is small */
	/* the file of the body, pinned; NULL while only memory has the bytes */
	struct store_blob *blob;
	int fd;
	uint64_t size;
	uint64_t end; /* size of the file */
	uint64_t started; /* bytes of the file whose write-back has started */

	bool encrypted;
	struct seal seal;
	bool has_customer;
	struct store_key customer;
	bool sealed; /* `memory` has the encrypted bytes */
	struct sealer *sealer; /* encrypts the file, until the sync */
	struct opener *opener; /* decrypts the file, if it is read before the sync */

	uint64_t announced;
	bool may_hold;
	bool written; /* the held bytes are in the file, too */
	char *held; /* the whole body, at most `announced` bytes, until the sync */
};

/* Returns the number of a blob's directory below ROOT/data. 256 neighbouring ids share a directory,
 * so that concurrent puts sync the same directory. */
static unsigned blob_dir(uint64_t id)
{
	return (unsigned)(id >> 8) & 0xff;
}

void blob_path(uint64_t id, char out[static BLOB_PATH_SIZE])
{
	snprintf(out, BLOB_PATH_SIZE, "data/%02x/%016llx", blob_dir(id), (unsigned long long)id);
}

bool blob_parse(const char *name, unsigned dir, uint64_t *id)
{
	char path[BLOB_PATH_SIZE];

	*id = strtoull(name, NULL, 16);
	blob_path(*id, path);
	return blob_dir(*id) == dir && strcmp(path + strlen("data/xx/"), name) == 0;
}

/* --- pins ---------------------------------------------------------------------------------- */

static struct store_blob **blob_slot(struct store *store, uint64_t id)
{
	struct store_blob **at = &store->blobs[id % BLOB_TABLE];

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

struct store_blob *blob_pin(struct store *store, uint64_t id)
{
	struct store_blob **at, *blob;

	LOCK_SCOPE(&store->blobs_lock);
	at = blob_slot(store, id);
	if (*at) {
		(*at)->pins++;
		return *at;
	}
	blob = calloc(1, sizeof(*blob));
	if (!blob)
		return NULL;
	blob->id = id;
	blob->pins = 1;
	pthread_mutex_init(&blob->lock, NULL);
	*at = blob;
	return blob;
}

/* --- removal ------------------------------------------------------------------------------- */

static void id_list_add(struct store *store, struct id_list *list, uint64_t id)
{
	uint64_t *ids = array_grow(list->ids, list->n, sizeof(*ids));

	store->forgot = store->forgot || !ids;
	if (!ids)
		return;
	list->ids = ids;
	list->ids[list->n++] = id;
}

static void id_list_move(struct store *store, struct id_list *from, struct id_list *to)
{
	for (size_t i = 0; i < from->n; i++)
		id_list_add(store, to, from->ids[i]);
	from->n = 0;
}

/* Locks ROOT/hold, so that store_hold() of a guest (a process that only reads the store) waits.
 * Returns false if a guest holds files. */
static bool hold_lock(struct store *store)
{
	return flock(store->hold_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

static void unlink_now(struct store *store, uint64_t id)
{
	char path[BLOB_PATH_SIZE];

	blob_path(id, path);
	store->dirs_cut[blob_dir(id) / 8] |= (uint8_t)(1u << (blob_dir(id) % 8));
	if (unlinkat(store->root_fd, path, 0) < 0 && errno != ENOENT)
		log_warn("cannot remove '%s/%s': %s", store->root, path, strerror(errno));
}

/* Unlinks at most 256 of the files in store->gone, so that ROOT/hold is never locked for long.
 * Returns false if there is no such file, or if a guest holds files. */
static bool reclaim_some(struct store *store)
{
	uint64_t ids[256];
	size_t n = 0;
	bool free_now;

	LOCK_SCOPE(&store->unlink_lock);
	free_now = hold_lock(store);
	pthread_mutex_lock(&store->blobs_lock);
	if (!free_now) {
		id_list_move(store, &store->gone, &store->kept);
		store->held_back = store->kept.n > 0;
	}
	while (store->gone.n && n < ARRAY_SIZE(ids))
		ids[n++] = store->gone.ids[--store->gone.n];
	pthread_mutex_unlock(&store->blobs_lock);
	for (size_t i = 0; i < n; i++)
		unlink_now(store, ids[i]);
	if (free_now)
		flock(store->hold_fd, LOCK_UN);
	return n > 0;
}

void store_reclaim(struct store *store)
{
	bool waits;

	blob_hold_over(store);
	while (reclaim_some(store))
		;
	pthread_mutex_lock(&store->blobs_lock);
	waits = store->relaxed && store->kept.n;
	pthread_mutex_unlock(&store->blobs_lock);
	if (waits)
		relaxed_wake(store, true);
}

void blob_unlink(struct store *store, uint64_t id)
{
	bool keep, now;

	pthread_mutex_lock(&store->blobs_lock);
	/* After a crash an earlier row may be valid again, and refer to the file. */
	keep = (store->relaxed && id < store->first_unsynced) || atomic_load(&store->in_doubt);
	id_list_add(store, keep ? &store->kept : &store->gone, id);
	now = !keep && (!store->unlinker_runs || store->gone.n >= LIMIT_STORE_UNLINKS);
	if (!keep)
		pthread_cond_signal(&store->gone_added);
	pthread_mutex_unlock(&store->blobs_lock);
	if (now)
		reclaim_some(store);
	else if (keep && store->relaxed)
		relaxed_wake(store, false);
}

static void *unlinker_main(void *arg)
{
	struct store *store = arg;
	bool runs = true;

	while (runs) {
		pthread_mutex_lock(&store->blobs_lock);
		while (!store->gone.n && store->unlinker_runs)
			pthread_cond_wait(&store->gone_added, &store->blobs_lock);
		runs = store->unlinker_runs;
		pthread_mutex_unlock(&store->blobs_lock);
		while (reclaim_some(store))
			;
	}
	return NULL;
}

int blob_unlinker_start(struct store *store, struct penstock_error *err)
{
	int rc;

	LOCK_SCOPE(&store->blobs_lock);
	rc = thread_start(&store->unlinker, "unlink", unlinker_main, store, err);
	store->unlinker_runs = rc == 0;
	return rc;
}

void blob_unlinker_stop(struct store *store)
{
	pthread_mutex_lock(&store->blobs_lock);
	store->unlinker_runs = false;
	pthread_cond_signal(&store->gone_added);
	pthread_mutex_unlock(&store->blobs_lock);
	pthread_join(store->unlinker, NULL);
}

void blob_doubt_over(struct store *store)
{
	pthread_mutex_lock(&store->blobs_lock);
	atomic_store(&store->in_doubt, false);
	pthread_mutex_unlock(&store->blobs_lock);
	if (!store->relaxed)
		blob_unlink_kept(store);
}

void blob_unlink_kept(struct store *store)
{
	LOCK_SCOPE(&store->blobs_lock);
	id_list_move(store, &store->kept, &store->gone);
	store->held_back = false;
	pthread_cond_signal(&store->gone_added);
}

void blob_hold_over(struct store *store)
{
	bool due;

	pthread_mutex_lock(&store->blobs_lock);
	due = store->held_back && !store->relaxed && !atomic_load(&store->in_doubt);
	pthread_mutex_unlock(&store->blobs_lock);
	if (!due)
		return;
	pthread_mutex_lock(&store->unlink_lock);
	due = hold_lock(store);
	if (due)
		flock(store->hold_fd, LOCK_UN);
	pthread_mutex_unlock(&store->unlink_lock);
	if (due)
		blob_unlink_kept(store);
}

void blob_unpin(struct store *store, struct store_blob *blob)
{
	struct store_blob **at;

	if (!blob)
		return;
	pthread_mutex_lock(&store->blobs_lock);
	if (--blob->pins) {
		pthread_mutex_unlock(&store->blobs_lock);
		return;
	}
	at = blob_slot(store, blob->id);
	*at = blob->next;
	pthread_mutex_unlock(&store->blobs_lock);
	if (blob->map)
		munmap((void *)blob->map, blob->map_len);
	if (blob->doomed)
		blob_unlink(store, blob->id);
	pthread_mutex_destroy(&blob->lock);
	free(blob);
}

void blob_doom(struct store *store, uint64_t id)
{
	struct store_blob *blob;

	pthread_mutex_lock(&store->blobs_lock);
	blob = *blob_slot(store, id);
	if (blob)
		blob->doomed = true;
	pthread_mutex_unlock(&store->blobs_lock);
	if (!blob)
		blob_unlink(store, id);
}

bool blob_is_pinned(struct store *store, uint64_t id)
{
	LOCK_SCOPE(&store->blobs_lock);
	return *blob_slot(store, id) != NULL;
}

int blob_open(struct store *store, uint64_t id, struct penstock_error *err)
{
	char path[BLOB_PATH_SIZE];
	int fd;

	blob_path(id, path);
	fd = openat(store->root_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s/%s'", store->root, path);
	return fd;
}

#define SEAL_NAME "user.penstock.seal"

void blob_note_seal(int fd, const uint8_t seal[static SEAL_SIZE])
{
	(void)fsetxattr(fd, SEAL_NAME, seal, SEAL_SIZE, 0);
}

bool blob_noted_seal(int fd, uint8_t out[static SEAL_SIZE])
{
	return fgetxattr(fd, SEAL_NAME, out, SEAL_SIZE) == SEAL_SIZE;
}

const void *blob_map(struct store *store, struct store_blob *blob)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	void *map;

	LOCK_SCOPE(&blob->lock);
	if (blob->map)
		return blob->map;
	fd = blob_open(store, blob->id, NULL);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0)
		return NULL;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return NULL;
	blob->map = map;
	blob->map_len = (size_t)st.st_size;
	return map;
}

/* --- memory for bodies --------------------------------------------------------------------- */

/* Returns memory of LIMIT_STORE_HELD bytes for a whole body, or NULL if no memory is free now.
 * Writing a file at once costs less than writing each piece as it arrives, and the hasher need not
 * read the file again. */
static void *held_take(struct held *held)
{
	void *room;

	LOCK_SCOPE(&held->lock);
	/* the last block is probably still in the processor's cache */
	if (held->n_free)
		return held->free[--held->n_free];
	if (held->n == LIMIT_STORE_HELD_BODIES)
		return NULL;
	room = malloc(LIMIT_STORE_HELD);
	held->n += room != NULL;
	return room;
}

static void held_give(struct held *held, void *room)
{
	if (!room)
		return;
	LOCK_SCOPE(&held->lock);
	MUST(held->n_free < held->n);
	held->free[held->n_free++] = room;
}

/* --- bodies -------------------------------------------------------------------------------- */

int store_body_new(struct store *store, uint64_t size, bool may_inline, struct store_body **out,
	struct penstock_error *err)
{
	struct store_body *body = calloc(1, sizeof(*body));

	if (!body)
		return error_memory(err);
	body->store = store;
	body->fd = -1;
	body->may_inline = may_inline && (size == STORE_SIZE_UNKNOWN || size <= STORE_INLINE_MAX);
	buf_init(&body->memory, STORE_INLINE_MAX);
	body->announced = size;
	body->may_hold = !body->may_inline && size && size <= LIMIT_STORE_HELD;
	*out = body;
	return 0;
}

static const struct store_key *body_customer(const struct store_body *body)
{
	return body->has_customer ? &body->customer : NULL;
}

int store_body_encrypt(
	struct store_body *body, const struct store_key *customer, struct penstock_error *err)
{
	MUST(!body->size);
	body->encrypted = true;
	body->has_customer = customer != NULL;
	if (customer)
		body->customer = *customer;
	return keys_new_seal(body->store, body->has_customer, &body->seal, err);
}

/* Writes the seal to an attribute of the file before the bytes are written: the sync of the file
 * makes both durable. */
static int sealer_start(struct store_body *body, struct penstock_error *err)
{
	uint8_t seal[SEAL_SIZE];

	seal_encode(&body->seal, seal);
	blob_note_seal(body->fd, seal);
	body->sealer = calloc(1, sizeof(*body->sealer));
	if (!body->sealer)
		return error_memory(err);
	return keys_crypt(
		body->store, body_customer(body), &body->seal, true, &body->sealer->crypt, err);
}

static void sealer_stop(struct store_body *body)
{
	if (body->sealer)
		crypt_release(&body->sealer->crypt);
	if (body->opener)
		crypt_release(&body->opener->crypt);
	free(take_pointer(body->sealer));
	free(take_pointer(body->opener));
}

/* Creates the file of a body. Pins the id first: the sweep skips pinned ids. */
static int body_create_file(struct store_body *body, struct penstock_error *err)
{
	struct store *store = body->store;

	for (bool reclaimed = false;;) {
		uint64_t id = db_next_id(store);
		char path[BLOB_PATH_SIZE];
		char dir[sizeof("data/xx")];

		body->blob = blob_pin(store, id);
		if (!body->blob)
			return error_memory(err);
		blob_path(id, path);
		body->fd = openat(
			store->root_fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (body->fd < 0 && errno == ENOENT) {
			snprintf(dir, sizeof(dir), "data/%02x", blob_dir(id));
			if (mkdirat(store->root_fd, dir, 0700) == 0 || errno == EEXIST)
				body->fd = openat(store->root_fd, path,
					O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		}
		if (body->fd >= 0)
			return body->encrypted ? sealer_start(body, err) : 0;
		/* EEXIST: the sweep has not yet removed a file of this name that a crash left. */
		if (error_code_of_errno(errno) == PENSTOCK_E_NO_SPACE && !reclaimed) {
			store_reclaim(store);
			reclaimed = true;
		} else if (errno != EEXIST)
			return error_errno(err, errno, "cannot create '%s/%s'", store->root, path);
		blob_unpin(store, take_pointer(body->blob));
	}
}

static int write_bytes(
	struct store_body *body, const void *data, size_t len, struct penstock_error *err)
{
	int rc = fs_pwrite_all(body->fd, data, len, (off_t)body->end);

	if (rc < 0 && error_code_of_errno(errno) == PENSTOCK_E_NO_SPACE) {
		store_reclaim(body->store);
		rc = fs_pwrite_all(body->fd, data, len, (off_t)body->end);
	}
	if (rc < 0)
		return error_errno(
			err, errno, "cannot write to the store at '%s'", body->store->root);
	body->end += len;
	if (!body->store->relaxed && body->end - body->started >= WRITEBACK_STEP) {
		/* Only starts the writing: fdatasync() reports a failure again. */
		(void)sync_file_range(body->fd, (off_t)body->started,
			(off_t)(body->end - body->started), SYNC_FILE_RANGE_WRITE);
		body->started = body->end;
	}
	return 0;
}

/* Writes `n` bytes of the sealer, which failed if `n` is negative. */
static int write_sealed(struct store_body *body, ssize_t n, struct penstock_error *err)
{
	if (n < 0)
		return error_set(
			err, PENSTOCK_E_INTERNAL, "cannot encrypt an object: OpenSSL failed");
	return n ? write_bytes(body, body->sealer->out, (size_t)n, err) : 0;
}

static int body_write_file(
	struct store_body *body, const char *data, size_t len, struct penstock_error *err)
{
	int rc = 0;

	if (!body->sealer)
		return write_bytes(body, data, len, err);
	while (rc == 0 && len)
		rc = write_sealed(body, sealer_take(body->sealer, &data, &len), err);
	return rc;
}

/* Writes the held bytes into a new file. */
static int write_held(struct store_body *body, struct penstock_error *err)
{
	int rc = body_create_file(body, err);

	if (rc == 0)
		rc = body_write_file(body, body->held, (size_t)body->size, err);
	body->written = rc == 0;
	return rc;
}

/* Returns false if the body must be written as it arrives; held bytes are then in the file, or
 * `*rc` has the error. */
static bool may_hold(struct store_body *body, size_t len, int *rc, struct penstock_error *err)
{
	bool more = body->may_hold && body->size + len <= body->announced;

	if (more && !body->held)
		body->held = held_take(&body->store->held);
	if (more && body->held)
		return true;
	if (body->held && !body->written)
		*rc = write_held(body, err);
	held_give(&body->store->held, take_pointer(body->held));
	body->may_hold = false;
	return false;
}

int store_body_write(
	struct store_body *body, const void *data, size_t len, struct penstock_error *err)
{
	int rc = 0;

	if (may_hold(body, len, &rc, err)) {
		if (len)
			memcpy(body->held + body->size, data, len);
		body->size += len;
		return body->size == body->announced && !body->written ? write_held(body, err) : 0;
	}
	if (rc < 0)
		return rc;
	if (!body->blob && body->may_inline && body->size + len <= STORE_INLINE_MAX) {
		if (len && buf_add(&body->memory, data, len) < 0)
			return buf_error(&body->memory, "an object's body", err);
		body->size += len;
		return 0;
	}
	if (!body->blob || body->fd < 0) {
		rc = body_create_file(body, err);
		if (rc == 0 && body->memory.len) {
			rc = body_write_file(body, body->memory.data, body->memory.len, err);
			buf_release(&body->memory);
		}
	}
	if (rc == 0 && len)
		rc = body_write_file(body, data, len, err);
	if (rc == 0)
		body->size += len;
	return rc;
}

const void *store_body_held(const struct store_body *body)
{
	return body->held;
}

/* Reads bytes from the file, and later bytes, which are not in the file yet, from the sealer. */
static ssize_t read_sealed(struct store_body *body, uint64_t offset, char *data, size_t len)
{
	const struct sealer *s = body->sealer;
	uint64_t end = s->chunk * CRYPT_CHUNK;
	size_t n = offset >= end ? 0 : len < end - offset ? len : (size_t)(end - offset);
	size_t at = (size_t)(offset + n - end), rest = len - n;
	ssize_t got = 0;

	if (n)
		got = opener_read(body->opener, body->fd, offset, data, n);
	if (got < 0 || (size_t)got < n || !rest)
		return got;
	if (at >= s->fill)
		return got;
	if (rest > s->fill - at)
		rest = s->fill - at;
	memcpy(data + n, s->plain + at, rest);
	return (ssize_t)(n + rest);
}

static int opener_start(struct store_body *body, struct penstock_error *err)
{
	if (body->opener)
		return 0;
	body->opener = calloc(1, sizeof(*body->opener));
	if (!body->opener)
		return error_memory(err);
	return keys_crypt(
		body->store, body_customer(body), &body->seal, false, &body->opener->crypt, err);
}

int store_body_read(struct store_body *body, uint64_t offset, void *data, size_t len,
	struct penstock_error *err)
{
	int rc = body->sealer ? opener_start(body, err) : 0;
	ssize_t n;

	if (rc < 0)
		return rc;
	n = body->sealer ? read_sealed(body, offset, data, len)
			 : fs_pread_all(body->fd, data, len, (off_t)offset);
	if (n < 0)
		return error_errno(err, errno, "cannot read an object in '%s'", body->store->root);
	if ((size_t)n < len)
		return error_set(err, PENSTOCK_E_IO,
			"cannot read an object in '%s': it is shorter than the size written",
			body->store->root);
	return 0;
}

uint64_t store_body_size(const struct store_body *body)
{
	return body->size;
}

bool store_body_is_inline(const struct store_body *body)
{
	return body->may_inline && !body->blob;
}

static int sync_dir(struct store *store, const char *path, struct penstock_error *err)
{
	_cleanup_close_ int fd = openat(store->root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return error_errno(err, errno, "cannot sync '%s/%s'", store->root, path);
	return 0;
}

/* Makes a new data/xx durable, without which its files would not count as durable. */
static int sync_parent(struct store *store, unsigned dir, struct penstock_error *err)
{
	bool made;
	int rc;

	pthread_mutex_lock(&store->dirs_lock);
	made = store->dirs_made[dir / 8] & (1u << (dir % 8));
	pthread_mutex_unlock(&store->dirs_lock);
	if (made)
		return 0;
	rc = sync_dir(store, "data", err);
	if (rc == 0) {
		LOCK_SCOPE(&store->dirs_lock);
		store->dirs_made[dir / 8] |= (uint8_t)(1u << (dir % 8));
	}
	return rc;
}

int store_body_sync(struct store_body *body, struct penstock_error *err)
{
	struct store *store = body->store;
	char dir[sizeof("data/xx")];
	int rc;

	if (body->synced || store_body_is_inline(body))
		return 0;
	if (!body->blob) { /* fewer bytes than announced, or an empty body that must be a file */
		rc = write_held(body, err);
		if (rc < 0)
			return rc;
	}
	held_give(&store->held, take_pointer(body->held));
	if (body->sealer) {
		rc = write_sealed(body, sealer_end(body->sealer), err);
		sealer_stop(body);
		if (rc < 0)
			return rc;
	}
	if (!store->relaxed) {
		unsigned number = blob_dir(body->blob->id);

		if (fdatasync(body->fd) < 0)
			return error_errno(
				err, errno, "cannot sync an object in '%s'", store->root);
		snprintf(dir, sizeof(dir), "data/%02x", number);
		rc = sync_dir(store, dir, err);
		if (rc == 0)
			rc = sync_parent(store, number, err);
		if (rc < 0)
			return rc;
	}
	close(take_fd(body->fd));
	body->synced = true;
	return 0;
}

void body_taken(struct store_body *body)
{
	blob_unpin(body->store, take_pointer(body->blob));
	buf_release(&body->memory);
	body->size = 0;
	body->end = body->started = 0;
	body->synced = false;
	body->encrypted = body->sealed = false; /* a seal is used once */
}

int body_piece(const struct store_body *body, struct store_piece *out)
{
	uint8_t seal[SEAL_SIZE];

	MUST(body->blob);
	seal_encode(&body->seal, seal);
	*out = (struct store_piece){body->blob->id, 0, body->size};
	return db_add_blob(body->store, out, seal, body->encrypted ? sizeof(seal) : 0);
}

bool body_is_encrypted(const struct store_body *body)
{
	return body->encrypted;
}

int body_keep_key(const struct store_body *body)
{
	return body->encrypted && !body->has_customer ? keys_keep(body->store) : 0;
}

int body_seal(struct store_body *body, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf sealed = BUF_INIT(
		SEAL_SIZE + STORE_INLINE_MAX + CRYPT_TAG);
	struct crypt crypt = {0};
	size_t size = SEAL_SIZE + body->memory.len + CRYPT_TAG;
	uint8_t *out;
	int rc;

	if (!body->encrypted || body->sealed || !store_body_is_inline(body))
		return 0;
	out = (uint8_t *)buf_reserve(&sealed, size);
	if (!out)
		return error_memory(err);
	rc = keys_crypt(body->store, body_customer(body), &body->seal, true, &crypt, err);
	if (rc < 0)
		return rc;
	seal_encode(&body->seal, out);
	if (crypt_encrypt(&crypt, 0, buf_str(&body->memory), body->memory.len, out + SEAL_SIZE) < 0)
		rc = error_set(
			err, PENSTOCK_E_INTERNAL, "cannot encrypt an object: OpenSSL failed");
	crypt_release(&crypt);
	if (rc < 0)
		return rc;
	buf_grown(&sealed, size);
	buf_release(&body->memory);
	body->memory = sealed;
	buf_init(&sealed, 0);
	body->sealed = true;
	return 0;
}

const void *body_data(const struct store_body *body, size_t *len)
{
	*len = body->memory.len;
	return buf_str(&body->memory);
}

void store_body_free(struct store_body *body)
{
	if (!body)
		return;
	if (body->fd >= 0)
		close(body->fd);
	if (body->blob) {
		blob_doom(body->store, body->blob->id);
		blob_unpin(body->store, body->blob);
	}
	sealer_stop(body);
	held_give(&body->store->held, body->held);
	buf_release(&body->memory);
	explicit_bzero(&body->customer, sizeof(body->customer));
	free(body);
}
