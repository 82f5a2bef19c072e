/* Events: notices of changes that wait to be delivered, added in the transaction of the change. */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"

void store_observe(struct store *store, const struct store_observer *observer)
{
	store->observer = *observer;
}

int event_notify(struct store *store, const struct store_change *change)
{
	return store->observer.change && change->origin
		       ? store->observer.change(store->observer.cookie, store, change)
		       : 0;
}

int event_notify_removed(struct store *store, const char *bucket, const struct store_delete *item)
{
	char event[STORE_EVENT_SIZE];

	if (!item->origin)
		return 0;
	snprintf(event, sizeof(event), "%s:%s", item->origin->event,
		*item->made ? "DeleteMarkerCreated" : "Delete");
	return event_notify(store, &(struct store_change){.bucket = bucket,
					   .key = item->key,
					   .event = event,
					   .version = *item->made     ? item->made
						      : item->version ? item->version
								      : "",
					   .modified_ns = store_tick(store),
					   .origin = item->origin});
}

/* A target that does not take its events leaves the room of the others. */
int store_event_add(struct store *store, const char *target, const char *text, size_t len)
{
	struct event_queue *queue = event_queue_find(store, target);

	if (!queue)
		return 0;
	if (atomic_load(&queue->n) + (size_t)queue->changed >=
		LIMIT_NOTIFY_EVENTS / store->n_queues) {
		atomic_fetch_add(&queue->dropped, 1);
		return 0;
	}
	queue->changed++;
	queue->added = true;
	return db_exec(store->writer, SQL_EVENT_ADD, "tib", target, store_tick(store), text, len);
}

struct store_event_count store_event_count(const struct store *store, const char *target)
{
	struct event_queue *queue = event_queue_find(store, target);

	return queue ? (struct store_event_count){.waiting = atomic_load(&queue->n),
			       .dropped = atomic_load(&queue->dropped)}
		     : (struct store_event_count){0};
}

/* --- adding one without a change -------------------------------------------------------------- */

struct event_txn {
	struct txn txn;
	const char *target, *text;
	const int64_t *ids;
	size_t n;
	size_t removed; /* result */
};

static int apply_add(struct store *store, struct txn *txn)
{
	const struct event_txn *t = (const struct event_txn *)txn;

	return store_event_add(store, t->target, t->text, strlen(t->text));
}

enum store_status store_event_put(
	struct store *store, const char *target, const char *text, struct penstock_error *err)
{
	struct event_txn t = {.txn = {.apply = apply_add}, .target = target, .text = text};

	return txn_run(store, &t.txn, err);
}

_Static_assert(STORE_EVENT_NO_MEMORY == SQLITE_NOMEM, "an observer fails like the database");

/* --- delivery -------------------------------------------------------------------------------- */

static int apply_remove(struct store *store, struct txn *txn)
{
	const struct event_txn *t = (const struct event_txn *)txn;
	struct event_queue *queue = event_queue_find(store, t->target);

	for (size_t i = 0; i < t->n; i++) {
		int rc = db_exec(store->writer, SQL_EVENT_REMOVE, "i", t->ids[i]);

		if (rc)
			return rc;
		if (queue)
			queue->changed -= sqlite3_changes(store->writer->handle);
	}
	return 0;
}

enum store_status store_event_remove(struct store *store, const char *target, const int64_t *ids,
	size_t n, struct penstock_error *err)
{
	struct event_txn t = {.txn = {.apply = apply_remove}, .target = target, .ids = ids, .n = n};

	return txn_run(store, &t.txn, err);
}

/* Gets the first target after `*target`, in its place; sets *found if there is one. */
static int next_target(struct store *store, char **target, bool *found)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(store->writer, SQL_EVENT_TARGET, "t", *target);
	int rc = db_step(store->writer, st);
	char *next;

	*found = rc == SQLITE_ROW;
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? 0 : rc;
	next = strdup((const char *)sqlite3_column_text(st, 0));
	if (!next)
		return SQLITE_NOMEM;
	sqlite3_reset(st); /* it has a reference to the old one */
	free(*target);
	*target = next;
	return 0;
}

/* Counts what an earlier process has left. */
static int count_events(struct store *store, struct event_queue *queue)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_EVENT_COUNT, "t", queue->target);
	int rc = db_step(store->writer, st);

	if (rc != SQLITE_ROW)
		return rc;
	atomic_store(&queue->n, (size_t)sqlite3_column_int64(st, 0));
	return 0;
}

static int apply_targets(struct store *store, struct txn *txn)
{
	struct event_txn *t = (struct event_txn *)txn;
	_cleanup_free_ char *target = strdup("");
	bool found = true;
	int rc = target ? 0 : SQLITE_NOMEM;

	t->removed = 0;
	while (rc == 0 && (rc = next_target(store, &target, &found)) == 0 && found) {
		if (event_queue_find(store, target))
			continue;
		rc = db_exec(store->writer, SQL_EVENT_REMOVE_ALL, "t", target);
		t->removed += rc ? 0 : (size_t)sqlite3_changes(store->writer->handle);
	}
	for (size_t i = 0; rc == 0 && i < store->n_queues; i++)
		rc = count_events(store, &store->queues[i]);
	return rc;
}

enum store_status store_event_targets(struct store *store, const char *const *targets, size_t n,
	size_t *removed, struct penstock_error *err)
{
	struct event_txn t = {.txn = {.apply = apply_targets}};
	enum store_status status;

	*removed = 0;
	store->queues = calloc(n + 1, sizeof(*store->queues));
	while (store->queues && store->n_queues < n &&
		(store->queues[store->n_queues].target = strdup(targets[store->n_queues])))
		store->n_queues++;
	if (!store->queues || store->n_queues < n) {
		error_memory(err);
		return STORE_FAILED;
	}
	status = txn_run(store, &t.txn, err);
	*removed = t.removed;
	return status;
}

void store_event_list_free(struct store_event *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i].text);
	free(list);
}

static int add_event(sqlite3_stmt *st, struct store_event **list, size_t *n)
{
	struct store_event *grown = array_grow(*list, *n, sizeof(*grown));

	if (!grown)
		return -1;
	*list = grown;
	grown += *n;
	*grown = (struct store_event){.id = sqlite3_column_int64(st, 0),
		.added_ns = sqlite3_column_int64(st, 1),
		.len = (size_t)sqlite3_column_bytes(st, 2)};
	grown->text = malloc(grown->len + 1);
	if (!grown->text)
		return -1;
	if (grown->len)
		memcpy(grown->text, sqlite3_column_blob(st, 2), grown->len);
	grown->text[grown->len] = '\0';
	++*n;
	return 0;
}

enum store_status store_event_list(struct store *store, const char *target, size_t max,
	struct store_event **out, size_t *n, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	_cleanup_reset_ sqlite3_stmt *st = db ? db_bound(db, SQL_EVENT_LIST, "ti", target,
							(int64_t)max)
					      : NULL;
	struct store_event *list = NULL;
	size_t count = 0;
	int rc;

	if (!db)
		return STORE_FAILED;
	while ((rc = db_step(db, st)) == SQLITE_ROW && add_event(st, &list, &count) == 0)
		;
	if (rc == SQLITE_DONE) {
		*out = list;
		*n = count;
		return STORE_OK;
	}
	store_event_list_free(list, count);
	if (rc != SQLITE_ROW)
		return db_error(db, rc, "list events", err);
	error_memory(err);
	return STORE_FAILED;
}
