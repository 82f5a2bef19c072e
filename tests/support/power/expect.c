#include "expect.h"
#include "views.h"

#include <err.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "s3/sum/checksum.h"
#include "store/store.h"
#include "store/upkeep/upkeep.h"

/* One change of a bucket, an object or a part, or (ALL) the digests of all views after a reply.
 * `position` is the number of log records before the reply; SIZE_MAX if there was no reply. */
struct event {
	size_t position;
	bool present;
	char etag[STORE_ETAG_SIZE];
	uint64_t size;
	uint32_t crc;
	char meta[64];
	/* ALL: digests of the views from `first` to `end` */
	uint32_t *digests;
	size_t first, end;
	bool steps; /* ALL: the views change one after another */
};

enum kind { BUCKET, OBJECT, PART, ALL };

/* All changes of one thing, in the order of their requests. */
struct thing {
	enum kind kind;
	char bucket[64]; /* PART: the upload's id */
	char key[256];
	unsigned number;
	struct event *events;
	size_t n, room;
};

struct upload {
	char bucket[64], key[256], id[STORE_UPLOAD_ID_SIZE];
	size_t created, ended; /* positions; SIZE_MAX if there was no reply */
	bool asked_to_end;
};

struct expected {
	struct thing *things;
	size_t n, room;
	struct upload *uploads;
	size_t n_uploads, room_uploads;
	struct views *views;
	size_t checks;
	/* members for the current check */
	struct store *store;
	size_t position;
	bool relaxed;
};

size_t expected_checks(const struct expected *e)
{
	return e->checks;
}

/* --- the file of expectations -------------------------------------------------------------- */

static struct thing *find(
	struct expected *e, enum kind kind, const char *bucket, const char *key, unsigned number)
{
	for (size_t i = 0; i < e->n; i++) {
		struct thing *t = &e->things[i];

		if (t->kind == kind && t->number == number && strcmp(t->bucket, bucket) == 0 &&
			strcmp(t->key, key) == 0)
			return t;
	}
	return NULL;
}

static struct upload *find_upload(struct expected *e, const char *id)
{
	for (size_t i = 0; i < e->n_uploads; i++)
		if (strcmp(e->uploads[i].id, id) == 0)
			return &e->uploads[i];
	return NULL;
}

static void add(struct expected *e, enum kind kind, const char *bucket, const char *key,
	unsigned number, struct event event)
{
	struct thing *t = find(e, kind, bucket, key, number);

	if (!t) {
		if (e->n == e->room) {
			e->room = e->room ? 2 * e->room : 64;
			e->things = reallocarray(e->things, e->room, sizeof(*t));
		}
		t = &e->things[e->n++];
		*t = (struct thing){.kind = kind, .number = number};
		snprintf(t->bucket, sizeof(t->bucket), "%s", bucket);
		snprintf(t->key, sizeof(t->key), "%s", key);
	}
	if (t->n == t->room) {
		t->room = t->room ? 2 * t->room : 8;
		t->events = reallocarray(t->events, t->room, sizeof(event));
	}
	if (!t->events)
		err(1, "out of memory");
	t->events[t->n++] = event;
}

static void add_upload(struct expected *e, const struct upload *u)
{
	if (e->n_uploads == e->room_uploads) {
		e->room_uploads = e->room_uploads ? 2 * e->room_uploads : 16;
		e->uploads = reallocarray(e->uploads, e->room_uploads, sizeof(*u));
		if (!e->uploads)
			err(1, "out of memory");
	}
	e->uploads[e->n_uploads++] = *u;
}

static bool parse_digests(struct expected *e, const struct model *m, const char *line)
{
	struct event event = {.present = true};
	char word[16], reply[64];
	int at = 0, len = 0;

	if (sscanf(line, "%15s %63s %zu%n", word, reply, &event.first, &at) != 3)
		return false;
	event.steps = strcmp(word, "steps") == 0;
	event.position = model_reply(m, reply);
	event.digests = calloc(views_count(e->views) + 1, sizeof(*event.digests));
	if (!event.digests)
		err(1, "out of memory");
	event.end = event.first;
	while (event.end < views_count(e->views) &&
		sscanf(line + at, "%x%n", &event.digests[event.end], &len) == 1) {
		event.end++;
		at += len;
	}
	add(e, ALL, "", "", 0, event);
	return (event.steps || strcmp(word, "shows") == 0) && strcmp(line + at, "\n") == 0;
}

static bool parse_line(struct expected *e, const struct model *m, const char *line)
{
	char a[256], b[256], reply[64];
	struct event event = {.present = true};
	unsigned number;
	struct upload u;

	if (sscanf(line, "bucket %63s %15s %63s", a, b, reply) == 3) {
		event.present = strcmp(b, "make") == 0;
		event.position = model_reply(m, reply);
		add(e, BUCKET, a, "", 0, event);
	} else if (sscanf(line, "object %63s %255s %63s %39s %lu %x %63s", a, b, reply, event.etag,
			   &event.size, &event.crc, event.meta) == 7) {
		event.position = model_reply(m, reply);
		add(e, OBJECT, a, b, 0, event);
	} else if (sscanf(line, "gone %63s %255s %63s", a, b, reply) == 3) {
		event.present = false;
		event.position = model_reply(m, reply);
		add(e, OBJECT, a, b, 0, event);
	} else if (sscanf(line, "upload %63s %255s %32s %63s", u.bucket, u.key, u.id, reply) == 4) {
		u.created = model_reply(m, reply);
		u.ended = SIZE_MAX;
		u.asked_to_end = false;
		add_upload(e, &u);
	} else if (sscanf(line, "part %32s %u %63s %39s %lu", a, &number, reply, event.etag,
			   &event.size) == 5) {
		event.position = model_reply(m, reply);
		add(e, PART, a, "", number, event);
	} else if (sscanf(line, "ended %32s %63s", a, reply) == 2 && find_upload(e, a)) {
		find_upload(e, a)->ended = model_reply(m, reply);
		find_upload(e, a)->asked_to_end = true;
	} else {
		return views_take(e->views, line) || parse_digests(e, m, line);
	}
	return true;
}

struct expected *expected_load(const char *path, const struct model *m)
{
	struct expected *e = calloc(1, sizeof(*e));
	FILE *file = fopen(path, "re");
	size_t room = 0, lines = 0;
	char *line = NULL;

	if (!e || !file)
		err(1, "%s", path);
	e->views = views_new();
	while (getline(&line, &room, file) > 0) {
		lines++;
		if (!parse_line(e, m, line))
			errx(1, "%s:%zu: invalid line: %s", path, lines, line);
	}
	free(line);
	fclose(file);
	return e;
}

/* --- allowed states ------------------------------------------------------------------------ */

/*
 * Sets the range of events that may be the last one to have happened: from the last event that was
 * acknowledged before the power loss to the first one that was acknowledged after it. *from is -1
 * if the thing may be absent.
 */
static void possible(const struct expected *e, const struct thing *t, ssize_t *from, ssize_t *to)
{
	*from = -1;
	for (size_t i = 0; i < t->n; i++)
		if (t->events[i].position < e->position)
			*from = (ssize_t)i;
	*to = *from;
	while (*to + 1 < (ssize_t)t->n) {
		(*to)++;
		if (t->events[*to].position != SIZE_MAX)
			break;
	}
	if (e->relaxed)
		*from = -1;
}

static bool may_be_absent(const struct expected *e, const struct thing *t)
{
	ssize_t from, to;

	possible(e, t, &from, &to);
	for (ssize_t i = from; i <= to; i++)
		if (i < 0 || !t->events[i].present)
			return true;
	return false;
}

static const struct event *possible_event(
	const struct expected *e, const struct thing *t, const char *etag, const char *meta)
{
	ssize_t from, to;

	possible(e, t, &from, &to);
	for (ssize_t i = from < 0 ? 0 : from; i <= to; i++)
		if (t->events[i].present && strcmp(t->events[i].etag, etag) == 0 &&
			(!meta || strcmp(t->events[i].meta, meta) == 0))
			return &t->events[i];
	return NULL;
}

static bool wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static bool wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	return false;
}

/* --- objects ------------------------------------------------------------------------------- */

static bool read_crc(struct store_object *object, uint32_t *crc)
{
	static char data[1 << 20];
	struct store_reader *reader = NULL;
	uint64_t at = 0;
	ssize_t n = 0;

	*crc = 0;
	if (store_reader_new(object, &reader, NULL) < 0)
		return false;
	while (at < object->size &&
		(n = store_reader_read(reader, at, data, sizeof(data), NULL)) > 0) {
		*crc = crc32_update(*crc, data, (size_t)n);
		at += (uint64_t)n;
	}
	store_reader_free(reader);
	return at == object->size;
}

static bool check_content(
	const struct thing *t, struct store_object *object, const struct event *event)
{
	uint32_t crc;

	if (object->size != event->size)
		return wrong("'%s/%s' has %lu bytes, not %lu", t->bucket, t->key, object->size,
			event->size);
	if (!read_crc(object, &crc))
		return wrong("cannot read '%s/%s'", t->bucket, t->key);
	if (crc != event->crc)
		return wrong("the bytes of '%s/%s' do not match ETag '%s'", t->bucket, t->key,
			object->etag);
	return true;
}

static bool check_object(struct expected *e, const struct thing *t)
{
	struct penstock_error error = PENSTOCK_ERROR_INIT;
	struct store_object *object = NULL;
	enum store_status status = store_object_get(e->store, t->bucket, t->key, &object, &error);
	const struct event *event;
	const char *meta;
	bool good;

	e->checks++;
	if (status == STORE_NO_SUCH_KEY || status == STORE_NO_SUCH_BUCKET)
		return may_be_absent(e, t) ||
		       wrong("'%s/%s' was acknowledged and is gone", t->bucket, t->key);
	if (status != STORE_OK)
		return wrong("cannot get '%s/%s': %s", t->bucket, t->key,
			error.message ? error.message : "failed");
	meta = store_object_header(object, "x-amz-meta-v");
	event = possible_event(e, t, object->etag, meta ? meta : "-");
	good = event ? check_content(t, object, event)
		     : wrong("'%s/%s' has the impossible version (%s, %s)", t->bucket, t->key,
			       object->etag, meta ? meta : "-");
	store_object_unref(object);
	return good;
}

/* Checks that every listed key was put, and can be read with the listed size and ETag. */
static bool check_listing(struct expected *e, const char *bucket)
{
	struct store_list list = {0};
	enum store_status status = store_list_objects(
		e->store, &(struct store_list_query){.bucket = bucket, .max = 10000}, &list, NULL);
	bool good = status == STORE_OK || wrong("cannot list bucket '%s'", bucket);

	for (size_t i = 0; good && i < list.n; i++) {
		const struct store_list_entry *entry = &list.entries[i];
		const struct thing *t = find(e, OBJECT, bucket, entry->key, 0);
		struct store_object *object = NULL;

		good = t != NULL ||
		       wrong("'%s/%s' is listed, but was never put", bucket, entry->key);
		if (!good)
			break;
		status = store_object_get(e->store, bucket, entry->key, &object, NULL);
		good = (status == STORE_OK && object->size == entry->size &&
			       strcmp(object->etag, entry->etag) == 0) ||
		       wrong("'%s/%s' differs from the listing", bucket, entry->key);
		store_object_unref(object);
	}
	store_list_release(&list);
	return good;
}

static bool check_bucket(struct expected *e, const struct thing *t)
{
	enum store_status status = store_bucket_get(e->store, t->bucket, NULL, NULL);

	if (status == STORE_NO_SUCH_BUCKET)
		return may_be_absent(e, t) ||
		       wrong("bucket '%s' was acknowledged and is gone", t->bucket);
	if (status != STORE_OK)
		return wrong("cannot look up bucket '%s'", t->bucket);
	return (possible_event(e, t, "", NULL) ||
		       wrong("bucket '%s' exists, but was deleted", t->bucket)) &&
	       check_listing(e, t->bucket);
}

/* --- uploads ------------------------------------------------------------------------------- */

static bool check_parts(
	struct expected *e, const struct upload *u, const struct store_part *parts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct thing *t = find(e, PART, u->id, "", parts[i].number);

		if (!t || !possible_event(e, t, parts[i].etag, NULL))
			return wrong("upload '%s' has a part %u that was never sent", u->id,
				parts[i].number);
	}
	for (size_t i = 0; i < e->n; i++) {
		const struct thing *t = &e->things[i];
		bool found = t->kind != PART || strcmp(t->bucket, u->id) != 0 ||
			     may_be_absent(e, t);

		for (size_t k = 0; !found && k < n; k++)
			found = parts[k].number == t->number;
		if (!found)
			return wrong("part %u of upload '%s' was acknowledged and is gone",
				t->number, u->id);
	}
	return true;
}

/* Completes an upload with its parts and reads the object, to check that the parts are complete. */
static bool complete(
	struct expected *e, const struct upload *u, const struct store_part *parts, size_t n)
{
	struct store_complete c = {.bucket = u->bucket,
		.key = u->key,
		.upload = u->id,
		.parts = parts,
		.n_parts = n,
		.etag = "00000000000000000000000000000000-1"};
	struct store_object *object = NULL;
	struct store_reader *reader = NULL;
	uint64_t at = 0;
	bool good = true;

	if (store_complete(e->store, &c, NULL) != STORE_OK ||
		store_object_get(e->store, u->bucket, u->key, &object, NULL) != STORE_OK ||
		store_reader_new(object, &reader, NULL) < 0)
		return wrong("cannot complete upload '%s'", u->id);
	for (size_t i = 0; good && i < n; i++) {
		struct checksum md5;
		uint8_t digest[CHECKSUM_MAX_SIZE];
		char *data = malloc(parts[i].size + 1), text[33];

		good = data && store_reader_read(reader, at, data, parts[i].size, NULL) ==
				       (ssize_t)parts[i].size;
		if (good && checksum_init(&md5, CHECKSUM_MD5, NULL) == 0) {
			checksum_update(&md5, data, parts[i].size);
			checksum_final(&md5, digest);
			checksum_release(&md5);
			for (size_t k = 0; k < 16; k++)
				snprintf(text + 2 * k, 3, "%02x", digest[k]);
			good = strcmp(text, parts[i].etag) == 0;
		}
		free(data);
		at += parts[i].size;
	}
	store_reader_free(reader);
	store_object_unref(object);
	return good || wrong("upload '%s' has an incomplete part", u->id);
}

static bool check_upload(struct expected *e, const struct upload *u)
{
	struct store_upload found = {0};
	struct store_part_page page = {0};
	bool good;
	enum store_status status = store_upload_get(
		e->store, u->bucket, u->key, u->id, &found, NULL);

	e->checks++;
	store_upload_release(&found);
	if (status == STORE_NO_SUCH_UPLOAD || status == STORE_NO_SUCH_BUCKET)
		return e->relaxed || u->created >= e->position || u->asked_to_end ||
		       wrong("upload '%s' was acknowledged and is gone", u->id);
	if (status != STORE_OK)
		return wrong("cannot look up upload '%s'", u->id);
	if (u->ended < e->position && !e->relaxed)
		return wrong("upload '%s' exists, but was ended", u->id);
	status = store_part_list(e->store, u->bucket, u->key, u->id, 0, 10000, &page, NULL);
	good = status == STORE_OK || wrong("cannot list the parts of upload '%s'", u->id);
	good = good && check_parts(e, u, page.parts, page.n);
	/* Any subset of the parts can be completed, because only the last part is smaller than the
	 * minimum size. */
	if (good && page.n)
		good = complete(e, u, page.parts, page.n);
	free(page.parts);
	return good;
}

/* --- the store as a whole -------------------------------------------------------------- */

static bool has_digest(const struct event *event, size_t view, uint32_t digest)
{
	return view < event->first || view >= event->end || event->digests[view] == digest;
}

/* Returns the number of views that differ from the state after change `i`. If that change has
 * several steps, a view may also have the state before the change. */
static size_t differences(
	const struct expected *e, const struct thing *t, ssize_t i, const uint32_t *now, bool print)
{
	const struct event *event = &t->events[i];
	size_t n = 0;

	for (size_t view = 0; view < views_count(e->views); view++) {
		if (has_digest(event, view, now[view]) ||
			(event->steps && i > 0 && has_digest(event - 1, view, now[view])))
			continue;
		n++;
		if (print)
			printf("'%s' differs from the state after change %zd\n",
				views_name(e->views, view), i);
	}
	return n;
}

/* Checks that all views agree with one of the changes that may have been the last. */
static bool check_views(struct expected *e, const char *root)
{
	const struct thing *t = find(e, ALL, "", "", 0);
	size_t n = views_count(e->views), least = SIZE_MAX;
	uint32_t *now = calloc(n + 1, sizeof(*now));
	size_t first = n, end = 0;
	ssize_t from, to, nearest = 0;

	if (!now)
		err(1, "out of memory");
	if (!t) {
		free(now);
		return true;
	}
	possible(e, t, &from, &to);
	for (ssize_t i = from < 0 ? 0 : from; i <= to; i++) {
		first = t->events[i].first < first ? t->events[i].first : first;
		end = t->events[i].end > end ? t->events[i].end : end;
	}
	e->checks += end - first;
	if (views_look(e->views, first, end, e->store, root, now))
		for (ssize_t i = from < 0 ? 0 : from; least && i <= to; i++) {
			size_t differ = differences(e, t, i, now, false);

			nearest = differ < least ? i : nearest;
			least = differ < least ? differ : least;
		}
	if (least)
		differences(e, t, nearest, now, least < SIZE_MAX);
	free(now);
	return !least ||
	       wrong("the store has none of the states after changes %zd to %zd", from, to);
}

static void print_damaged(void *cookie, const char *text)
{
	(void)cookie;
	printf("damaged: %s\n", text);
}

/* Does the work of `penstock store scrub`. */
static bool scrub_all(struct expected *e)
{
	struct penstock_error error = PENSTOCK_ERROR_INIT;
	struct upkeep_scrub scrub = {.damaged = print_damaged};

	if (upkeep_scrub(e->store, &scrub, &error) < 0)
		return wrong("scrub: %s", error.message);
	return !scrub.done.damaged || wrong("the store is damaged");
}

/* A crash leaves surplus files, which the next start removes. Therefore surplus files are an error
 * only after a clean close. */
struct problems {
	bool clean;
	size_t n;
};

static void print_problem(
	void *cookie, enum upkeep_problem problem, bool mendable, const char *text)
{
	struct problems *problems = cookie;

	(void)mendable;
	if (problem == UPKEEP_SURPLUS && !problems->clean)
		return;
	problems->n++;
	printf("%s: %s\n", upkeep_problem_name(problem), text);
}

/* Does the work of `penstock store check`, on a closed store. */
static bool check_rest(const char *root)
{
	struct penstock_error error = PENSTOCK_ERROR_INIT;
	struct problems problems = {0};
	struct upkeep_report report = {.problem = print_problem, .cookie = &problems};
	struct store *guest = NULL;
	uint32_t clean = 0;
	bool good;

	views_query(root, "SELECT value FROM meta WHERE name='clean'", &clean);
	problems.clean = clean;
	good = store_open(&guest, &(struct store_options){.root = root, .guest = true}, &error) ==
		       0 &&
	       upkeep_check(guest, &report, &error) == 0;
	store_close(guest);
	if (!good)
		return wrong("check: %s", error.message);
	return !problems.n || wrong("the store is inconsistent");
}

/* --- use after the power loss --------------------------------------------------------------- */

static bool put_one(struct expected *e, const char *key, size_t size, unsigned seed)
{
	struct store_put put = {.bucket = "after", .key = key, .etag = "e"};
	char *data = malloc(size);
	struct thing t = {.bucket = "after"};
	struct store_object *object = NULL;
	struct event event = {.size = size};
	bool good;

	if (!data)
		err(1, "out of memory");
	for (size_t i = 0; i < size; i++)
		data[i] = (char)(i * 31 + seed);
	event.crc = crc32_update(0, data, size);
	good = store_body_new(e->store, size, true, &put.body, NULL) == 0 &&
	       store_body_write(put.body, data, size, NULL) == 0 &&
	       store_body_sync(put.body, NULL) == 0 &&
	       store_put(e->store, &put, NULL) == STORE_OK &&
	       store_object_get(e->store, "after", key, &object, NULL) == STORE_OK;
	snprintf(t.key, sizeof(t.key), "%s", key);
	good = (good && check_content(&t, object, &event)) ||
	       wrong("cannot put after the power loss");
	store_object_unref(object);
	store_body_free(put.body);
	free(data);
	return good;
}

static bool go_on(struct expected *e, unsigned seed)
{
	struct store_delete item = {.key = "small"};

	if (store_bucket_create(e->store, "after", "", NULL) != STORE_OK)
		return wrong("cannot create a bucket after the power loss");
	if (!put_one(e, "small", 100, seed) || !put_one(e, "large", 40000, seed))
		return false;
	for (size_t i = 0; i < e->n_uploads; i++)
		if (!check_upload(e, &e->uploads[i]))
			return false;
	if (store_delete(e->store, "after", 0, &item, 1, NULL) != STORE_OK ||
		item.status != STORE_OK || !item.existed)
		return wrong("cannot delete after the power loss");
	return true;
}

/* Replaces the boot id in the store. The replay runs in the same boot as the recorded store, but
 * has to look like a later boot. */
static void change_boot(const char *root)
{
	static const size_t slots[] = {0, 4096};
	static const char other[] = "00000000-0000-0000-0000-000000000000";
	char path[512], first;
	int fd;

	snprintf(path, sizeof(path), "%s/relaxed", root);
	fd = open(path, O_RDWR | O_CLOEXEC);
	for (size_t i = 0; fd >= 0 && i < sizeof(slots) / sizeof(slots[0]); i++) {
		if (fs_pread_all(fd, &first, 1, (off_t)slots[i]) == 1 && first)
			fs_pwrite_all(fd, other, strlen(other), (off_t)slots[i]);
	}
	if (fd >= 0)
		close(fd);
}

bool expected_check(struct expected *e, const char *root, const struct power_loss *loss)
{
	struct penstock_error error = PENSTOCK_ERROR_INIT;
	bool good = true;

	e->position = loss->position;
	e->relaxed = loss->relaxed;
	change_boot(root);
	if (store_open(&e->store, &(struct store_options){.root = root, .relaxed = loss->relaxed},
		    &error) < 0)
		return wrong("cannot open the store: %s", error.message);
	for (size_t i = 0; good && i < e->n; i++) {
		if (e->things[i].kind == BUCKET)
			good = check_bucket(e, &e->things[i]);
		else if (e->things[i].kind == OBJECT)
			good = check_object(e, &e->things[i]);
	}
	good = good && check_views(e, root) && (!loss->upkeep || scrub_all(e)) &&
	       go_on(e, loss->seed);
	store_close(e->store);
	return good && (!loss->upkeep || check_rest(root));
}
