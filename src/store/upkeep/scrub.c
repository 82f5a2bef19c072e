#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "s3/sum/checksum.h"
#include "store/upkeep/internal.h"

#define STATE "scrub.json"
/* Interval at which the position of the scrub is saved. */
#define SAVE_MS 10000

struct scrubber {
	struct verify_sink sink; /* counts the bytes and limits the rate */
	struct upkeep_scrub *scrub;
	struct store *store;
	struct cursor at;
	int64_t begun_ms, saved_ms;
	uint64_t paced; /* bytes since `begun_ms` */
};

/* --- the position ---------------------------------------------------------------------------- */

static int save(struct scrubber *s, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(s->store->root, STATE), *text = NULL;
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_STRING);
	const struct upkeep_progress *p = &s->scrub->done;
	json_auto_t *json = NULL;

	base64_encode(&key, buf_str(&s->at.key), s->at.key.len);
	json = json_pack("{s:i, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "stage", (int)s->at.stage,
		"bucket", (json_int_t)s->at.bucket, "key", buf_str(&key), "number",
		(json_int_t)s->at.number, "objects", (json_int_t)p->objects, "bytes",
		(json_int_t)p->bytes, "unverified", (json_int_t)p->unverified, "damaged",
		(json_int_t)p->damaged, "all_bytes", (json_int_t)p->all_bytes);
	if (json)
		text = json_dumps(json, JSON_COMPACT);
	if (!path || !text)
		return error_memory(err);
	s->saved_ms = clock_monotonic_ms();
	return fs_write_atomic(path, text, strlen(text), 0600, err);
}

/* Loads the position of an interrupted scrub; starts over if the file is missing or invalid. */
static void load(struct scrubber *s)
{
	_cleanup_free_ char *path = path_join(s->store->root, STATE);
	json_int_t bucket, number, objects, bytes, unverified, damaged, all_bytes;
	const char *key;
	int stage;
	json_auto_t *json = path ? json_load_file(path, JSON_REJECT_DUPLICATES, NULL) : NULL;

	if (!json ||
		json_unpack(json, "{s:i, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "stage", &stage,
			"bucket", &bucket, "key", &key, "number", &number, "objects", &objects,
			"bytes", &bytes, "unverified", &unverified, "damaged", &damaged,
			"all_bytes", &all_bytes) < 0 ||
		stage < 0 || stage > CURSOR_END ||
		base64_decode(&s->at.key, key, strlen(key)) < 0) {
		buf_clear(&s->at.key);
		return;
	}
	s->at.stage = (enum cursor_stage)stage;
	s->at.bucket = bucket;
	s->at.number = number;
	s->scrub->resumed = true;
	s->scrub->done = (struct upkeep_progress){.objects = (uint64_t)objects,
		.bytes = (uint64_t)bytes,
		.unverified = (uint64_t)unverified,
		.damaged = (uint64_t)damaged,
		.all_bytes = (uint64_t)all_bytes};
}

/* --- reading --------------------------------------------------------------------------------- */

/* Waits until the bytes that were read so far do not exceed the rate. */
static void pace(struct scrubber *s, size_t len)
{
	uint64_t rate = s->scrub->bytes_per_second;
	int64_t due_ms;

	s->paced += len;
	if (!rate)
		return;
	due_ms = s->begun_ms + (int64_t)((double)s->paced * 1000 / (double)rate);
	while (clock_monotonic_ms() < due_ms && !(s->scrub->stop && atomic_load(s->scrub->stop))) {
		int64_t left = due_ms - clock_monotonic_ms();

		clock_sleep_ms(left > 100 ? 100 : left < 1 ? 1 : left);
	}
}

static int take(struct verify_sink *sink, const void *data, size_t len, struct penstock_error *err)
{
	struct scrubber *s = (struct scrubber *)sink;

	(void)data;
	s->scrub->done.bytes += len;
	if (s->scrub->progress)
		s->scrub->progress(s->scrub->cookie, &s->scrub->done);
	pace(s, len);
	return upkeep_cancelled(s->scrub->stop, err);
}

static void report(
	struct scrubber *s, const struct cursor_row *row, const struct penstock_error *why)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	s->scrub->done.damaged++;
	cursor_describe(&s->at, row, &text);
	buf_printf(&text, ": %s", why->message ? why->message : "out of memory");
	if (s->scrub->damaged)
		s->scrub->damaged(s->scrub->cookie, buf_str(&text));
}

/* Verifies an object. Ignores a failure if the object was replaced in the meantime, because its
 * files may be gone. */
static int scrub_row(struct scrubber *s, struct cursor_row *row, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	_cleanup_(store_object_unrefp) struct store_object *object = row->object;
	enum verify_result result;

	if (object->marker)
		return 0;
	result = verify_object(object, &s->sink, &why);
	if (why.code == PENSTOCK_E_CANCELLED || why.code == PENSTOCK_E_MEMORY)
		return error_move(err, &why);
	if ((result == VERIFY_DAMAGED || result == VERIFY_FAILED) && cursor_is_current(&s->at, row))
		report(s, row, &why);
	s->scrub->done.objects++;
	s->scrub->done.unverified += result == VERIFY_NOTHING;
	return 0;
}

/* Verifies the next row. Returns 1 if there was a row, 0 if not, or a negative code. */
static int scrub_next(struct scrubber *s, struct penstock_error *err)
{
	struct cursor_row row;
	int rc = cursor_next(&s->at, &row, err);

	if (rc < 0 && rc != -PENSTOCK_E_MEMORY && row.key[0]) {
		report(s, &row, err);
		penstock_error_release(err);
		return 1;
	}
	if (rc > 0) {
		rc = scrub_row(s, &row, err);
		return rc < 0 ? rc : 1;
	}
	return rc;
}

/* Verifies all rows from the current position. The next scrub reads an interrupted row again. */
static int scrub_all(struct scrubber *s, struct penstock_error *err)
{
	struct cursor before = CURSOR_INIT;
	int rc = 1;

	while (rc > 0) {
		uint64_t bytes = s->scrub->done.bytes;

		rc = cursor_copy(&before, &s->at) < 0 ? error_memory(err) : scrub_next(s, err);
		if (rc == -PENSTOCK_E_CANCELLED) {
			s->scrub->done.bytes = bytes;
			if (cursor_copy(&s->at, &before) < 0)
				rc = error_memory(err);
		} else if (rc > 0 && clock_monotonic_ms() - s->saved_ms >= SAVE_MS) {
			int saved = save(s, err);

			rc = saved < 0 ? saved : rc;
		}
	}
	cursor_release(&before);
	return rc;
}

int upkeep_scrub(struct store *store, struct upkeep_scrub *scrub, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	struct scrubber s = {.sink.write = take, .scrub = scrub, .store = store, .at = CURSOR_INIT};
	struct upkeep_stat stat = {0};
	int rc = db ? 0 : -PENSTOCK_E_IO;

	scrub->done = (struct upkeep_progress){0};
	s.at.db = db;
	s.begun_ms = s.saved_ms = clock_monotonic_ms();
	if (rc == 0 && !scrub->restart)
		load(&s);
	if (rc == 0 && !scrub->resumed) {
		rc = upkeep_stat(store, &stat, err);
		scrub->done.all_bytes = stat.total.bytes + stat.total.version_bytes +
					stat.total.upload_bytes;
		free(stat.buckets);
		free(stat.lags);
	}
	if (rc == 0)
		rc = scrub_all(&s, err);
	if (rc == -PENSTOCK_E_CANCELLED) {
		penstock_error_release(err);
		scrub->interrupted = true;
		rc = save(&s, err);
	} else if (rc == 0 && unlinkat(store->root_fd, STATE, 0) < 0 && errno != ENOENT) {
		rc = error_errno(err, errno, "cannot remove '%s/" STATE "'", store->root);
	}
	cursor_release(&s.at);
	return rc;
}
