#include "server/bucket/lifecycle.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "s3/bucket/lifecycle.h"
#include "server/request/tags.h"
#include "store/header.h"
#include "store/store.h"

/* New rules take effect after this time, so that a client that has set rules can read the rules
 * again before they make objects expire. */
#define CHANGE_MS 1000
/* The wall clock is read again after this time, because the clock may have been set. */
#define LOOK_MS (15 * 60 * 1000)

struct lifecycle {
	struct store *store;
	int64_t day_ns;
	pthread_t thread;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t woken;
	int64_t wanted_ms; /* under lock: time of a walk that is due before midnight, or 0 */
};

/* --- versions -------------------------------------------------------------------------------- */

/* The versions that one step deletes. */
struct batch {
	struct lifecycle_walk *walk;
	struct store_expiry items[LIMIT_LIFECYCLE_STEP];
	char *texts[2 * LIMIT_LIFECYCLE_STEP]; /* keys and tags of `items` */
	size_t n;
};

static bool rules_have_tags(const struct s3_lifecycle *rules)
{
	for (size_t i = 0; i < rules->n; i++)
		if (rules->rules[i].tags.n)
			return true;
	return false;
}

static bool row_ends(const struct lifecycle_walk *walk, const struct store_row *row,
	enum store_expiry_kind *kind)
{
	const struct s3_lifecycle_object object = {.key = row->key,
		.size = row->size,
		.modified_ns = row->modified_ns,
		.tags = store_header_find(row->headers, row->headers_len, TAGS_HEADER)};
	const struct s3_lifecycle_version version = {.object = object,
		.marker = row->marker,
		.since_ns = row->newer_ns,
		.newer = row->n_newer};
	struct s3_lifecycle_end end;

	if (row->newer_ns) {
		*kind = STORE_EXPIRE_VERSION;
		return s3_lifecycle_version_ends(walk->rules, &version, walk->day_ns, walk->now_ns);
	}
	if (row->marker) {
		*kind = STORE_EXPIRE_MARKER;
		return row->alone && s3_lifecycle_marker_ends(walk->rules, row->key,
					     row->modified_ns, walk->day_ns, walk->now_ns);
	}
	*kind = STORE_EXPIRE_OBJECT;
	return s3_lifecycle_object_end(walk->rules, &object, walk->day_ns, &end) &&
	       end.at_ns <= walk->now_ns;
}

/* Origin of expiry events, which no request has caused. */
static const struct store_origin origin = {.event = "LifecycleExpiration"};

static bool on_row(void *cookie, const struct store_row *row)
{
	struct batch *batch = cookie;
	struct store_expiry *item = &batch->items[batch->n];
	char **texts = &batch->texts[2 * batch->n];
	enum store_expiry_kind kind;

	if (!row_ends(batch->walk, row, &kind))
		return true;
	texts[0] = strdup(row->key);
	if (!texts[0])
		return false;
	batch->n++;
	*item = (struct store_expiry){.kind = kind,
		.key = texts[0],
		.modified_ns = row->modified_ns,
		.is_null = row->is_null,
		.origin = &origin};
	if (!rules_have_tags(batch->walk->rules))
		return true;
	item->header = TAGS_HEADER;
	item->value = store_header_find(row->headers, row->headers_len, TAGS_HEADER);
	if (!item->value)
		return true;
	texts[1] = strdup(item->value);
	item->value = texts[1];
	return texts[1] != NULL;
}

static void batch_free(struct batch *batch)
{
	for (size_t i = 0; i < ARRAY_SIZE(batch->texts); i++)
		free(batch->texts[i]);
	free(batch);
}

/* Returns false if the rules of the bucket have changed. */
static bool rules_hold(struct lifecycle_walk *walk)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);
	uint64_t generation = store_config_generation(walk->store);

	if (!walk->text || walk->generation == generation)
		return true;
	if (store_config_get(walk->store, walk->bucket, LIFECYCLE_CONFIG, &text, NULL) !=
			STORE_OK ||
		text.len != walk->text_len || memcmp(text.data, walk->text, text.len) != 0)
		return false;
	walk->generation = generation;
	return true;
}

/* Walks over some rows, and deletes the versions that have expired. */
static enum store_status step(struct lifecycle_walk *walk, const char *prefix,
	struct store_walk *place, struct penstock_error *err)
{
	struct batch *batch = calloc(1, sizeof(*batch));
	const struct store_walk_step rows = {.bucket = walk->bucket,
		.prefix = prefix,
		.max = LIMIT_LIFECYCLE_STEP,
		.row = on_row,
		.cookie = batch};
	const struct store_rules rules = {
		.name = LIFECYCLE_CONFIG, .text = walk->text, .len = walk->text_len};
	enum store_status status;

	if (!batch) {
		error_memory(err);
		return STORE_FAILED;
	}
	batch->walk = walk;
	status = store_walk(walk->store, &rows, place, err);
	if (status == STORE_OK && batch->n)
		status = store_expire(walk->store, walk->bucket, walk->text ? &rules : NULL,
			batch->items, batch->n, err);
	for (size_t i = 0; status == STORE_OK && i < batch->n; i++)
		walk->n_versions += batch->items[i].done;
	batch_free(batch);
	return status;
}

static enum store_status walk_versions(
	struct lifecycle_walk *walk, const char *prefix, struct penstock_error *err)
{
	_cleanup_free_ struct store_walk *place = calloc(1, sizeof(*place));
	enum store_status status = STORE_OK;

	if (!place) {
		error_memory(err);
		return STORE_FAILED;
	}
	while (status == STORE_OK && !place->ended && !atomic_load(walk->stop) && rules_hold(walk))
		status = step(walk, prefix, place, err);
	return status;
}

/* --- uploads --------------------------------------------------------------------------------- */

static enum store_status abort_upload(struct lifecycle_walk *walk,
	const struct store_list_entry *upload, struct penstock_error *err)
{
	enum store_status status;
	struct s3_lifecycle_end end;

	if (!s3_lifecycle_upload_end(
		    walk->rules, upload->key, upload->modified_ns, walk->day_ns, &end) ||
		end.at_ns > walk->now_ns)
		return STORE_OK;
	status = store_upload_abort(walk->store, walk->bucket, 0, upload->key, upload->etag, err);
	walk->n_uploads += status == STORE_OK;
	/* The upload may have been completed in the meantime. */
	return status == STORE_NO_SUCH_UPLOAD ? STORE_OK : status;
}

static enum store_status walk_uploads(
	struct lifecycle_walk *walk, const char *prefix, struct penstock_error *err)
{
	char after[LIMIT_S3_KEY + 1] = "", id[STORE_UPLOAD_ID_SIZE] = "";
	enum store_status status = STORE_OK;
	bool more = true;

	while (status == STORE_OK && more && !atomic_load(walk->stop) && rules_hold(walk)) {
		struct store_list page = {0};

		status = store_upload_list(walk->store,
			&(struct store_list_query){.bucket = walk->bucket,
				.prefix = prefix,
				.after = after,
				.max = LIMIT_LIFECYCLE_STEP},
			*id ? id : NULL, &page, err);
		for (size_t i = 0; status == STORE_OK && i < page.n && !atomic_load(walk->stop) &&
				   rules_hold(walk);
			i++)
			status = abort_upload(walk, &page.entries[i], err);
		more = page.truncated;
		if (page.n) {
			snprintf(after, sizeof(after), "%s", page.entries[page.n - 1].key);
			snprintf(id, sizeof(id), "%.32s", page.entries[page.n - 1].etag);
		}
		store_list_release(&page);
	}
	return status;
}

/* --- one bucket ------------------------------------------------------------------------------ */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Gets the prefixes of the enabled rules, except prefixes that begin with the prefix of another
 * rule. */
static size_t find_prefixes(const struct s3_lifecycle *rules, bool uploads, const char **out)
{
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < rules->n; i++) {
		const struct s3_lifecycle_rule *rule = &rules->rules[i];

		if (rule->enabled &&
			(uploads ? rule->upload_days > 0
				 : rule->days || rule->has_date || rule->lone_markers ||
						rule->noncurrent_days))
			out[n++] = rule->prefix ? rule->prefix : "";
	}
	qsort(out, n, sizeof(*out), by_text);
	for (size_t i = 0; i < n; i++)
		if (!kept || !str_starts(out[i], out[kept - 1]))
			out[kept++] = out[i];
	return kept;
}

int lifecycle_walk(struct lifecycle_walk *walk, struct penstock_error *err)
{
	_cleanup_free_ const char **prefixes = calloc(walk->rules->n + 1, sizeof(*prefixes));
	enum store_status status = STORE_OK;
	size_t n;

	if (!prefixes)
		return error_memory(err);
	n = find_prefixes(walk->rules, false, prefixes);
	for (size_t i = 0; i < n && status == STORE_OK; i++)
		status = walk_versions(walk, prefixes[i], err);
	n = find_prefixes(walk->rules, true, prefixes);
	for (size_t i = 0; i < n && status == STORE_OK; i++)
		status = walk_uploads(walk, prefixes[i], err);
	if (status == STORE_FAILED || status == STORE_NO_SPACE)
		return -(int)err->code;
	return 0; /* the bucket may have been deleted in the meantime */
}

static void walk_bucket(struct lifecycle *lifecycle, const struct store_config *config)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_lifecycle rules = {0};
	struct lifecycle_walk walk = {.store = lifecycle->store,
		.bucket = config->bucket,
		.rules = &rules,
		.day_ns = lifecycle->day_ns,
		.now_ns = clock_wall_ns(),
		.stop = &lifecycle->stop,
		.text = config->value,
		.text_len = config->len};
	int rc = s3_lifecycle_parse(config->value, config->len, &rules, &err);

	if (rc == 0)
		rc = lifecycle_walk(&walk, &err);
	else if (rc != -PENSTOCK_E_MEMORY)
		rc = 0; /* unreadable rules delete nothing; configs.c has reported them */
	if (rc < 0)
		log_warn("cannot apply the lifecycle rules of the bucket '%s': %s", config->bucket,
			err.message ? err.message : "out of memory");
	if (walk.n_versions || walk.n_uploads)
		log_info("lifecycle of the bucket '%s': deleted %zu versions and %zu uploads",
			config->bucket, walk.n_versions, walk.n_uploads);
	s3_lifecycle_release(&rules);
}

/* --- the thread ------------------------------------------------------------------------------ */

static void walk_all(struct lifecycle *lifecycle)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_config *configs = NULL;
	size_t n = 0;

	if (store_config_list(lifecycle->store, LIFECYCLE_CONFIG, &configs, &n, &err) != STORE_OK)
		log_warn("cannot read the lifecycle rules: %s",
			err.message ? err.message : "out of memory");
	for (size_t i = 0; i < n && !atomic_load(&lifecycle->stop); i++)
		walk_bucket(lifecycle, &configs[i]);
	store_config_list_free(configs, n);
}

/* Waits until a walk is due, or until the thread must end. */
static void wait_for_walk(struct lifecycle *lifecycle, int64_t walked_ns)
{
	int64_t next_ns = walked_ns - walked_ns % lifecycle->day_ns + lifecycle->day_ns;

	LOCK_SCOPE(&lifecycle->lock);
	while (!atomic_load(&lifecycle->stop)) {
		int64_t now_ns = clock_wall_ns(), ms = (next_ns - now_ns) / NS_PER_MS + 1;
		int64_t wanted_ms = lifecycle->wanted_ms
					    ? lifecycle->wanted_ms - clock_monotonic_ms()
					    : LOOK_MS;

		/* A walk is also due if the clock was set back. */
		if (now_ns >= next_ns || now_ns < walked_ns || wanted_ms <= 0)
			break;
		ms = ms < wanted_ms ? ms : wanted_ms;
		clock_cond_wait_ms(
			&lifecycle->woken, &lifecycle->lock, ms < LOOK_MS ? ms : LOOK_MS);
	}
	lifecycle->wanted_ms = 0;
}

static void *lifecycle_main(void *arg)
{
	struct lifecycle *lifecycle = arg;

	while (!atomic_load(&lifecycle->stop)) {
		int64_t now_ns = clock_wall_ns();

		walk_all(lifecycle);
		wait_for_walk(lifecycle, now_ns);
	}
	return NULL;
}

static void lifecycle_free(struct lifecycle *lifecycle)
{
	pthread_cond_destroy(&lifecycle->woken);
	pthread_mutex_destroy(&lifecycle->lock);
	free(lifecycle);
}

int lifecycle_start(
	struct lifecycle **out, struct store *store, int64_t day_ns, struct penstock_error *err)
{
	struct lifecycle *lifecycle = calloc(1, sizeof(*lifecycle));
	int rc;

	if (!lifecycle)
		return error_memory(err);
	lifecycle->store = store;
	lifecycle->day_ns = day_ns;
	pthread_mutex_init(&lifecycle->lock, NULL);
	clock_cond_init(&lifecycle->woken);
	rc = thread_start(&lifecycle->thread, "lifecycle", lifecycle_main, lifecycle, err);
	if (rc < 0)
		lifecycle_free(lifecycle);
	else
		*out = lifecycle;
	return rc;
}

void lifecycle_wake(struct lifecycle *lifecycle)
{
	if (!lifecycle)
		return;
	LOCK_SCOPE(&lifecycle->lock);
	lifecycle->wanted_ms = clock_monotonic_ms() + CHANGE_MS;
	pthread_cond_signal(&lifecycle->woken);
}

void lifecycle_stop(struct lifecycle *lifecycle)
{
	if (!lifecycle)
		return;
	atomic_store(&lifecycle->stop, true);
	lifecycle_wake(lifecycle);
	pthread_join(lifecycle->thread, NULL);
	lifecycle_free(lifecycle);
}
