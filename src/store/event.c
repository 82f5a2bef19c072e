/* Events: notifications of changes, added in the transaction of the change and kept until they are
 * delivered. */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

int store_event_add(
	struct store *store, const char *target, uint64_t bytes, const char *text, size_t len)
{
	struct event_queue *queue = event_queue_find(store, target);

	if (!queue)
		return 0;
	if (queue->limit && atomic_load(&queue->n) + (size_t)queue->changed >= queue->limit) {
		queue->changed_dropped++;
		return 0;
	}
	queue->changed++;
	queue->changed_bytes += (int64_t)bytes;
	queue->added = true;
	return db_exec(store->writer, SQL_EVENT_ADD, "tib", target, clock_wall_ns(), text, len);
}

struct store_event_count store_event_count(const struct store *store, const char *target)
{
	struct event_queue *queue = event_queue_find(store, target);

	return queue ? (struct store_event_count){.waiting = atomic_load(&queue->n),
			       .bytes = atomic_load(&queue->bytes),
			       .dropped = atomic_load(&queue->dropped)}
		     : (struct store_event_count){0};
}

/* --- adding an event without a change -------------------------------------------------------- */

struct event_txn {
	struct txn txn;
	const char *target, *text;
	const struct store_event_end *ends;
	size_t n;
};

static int apply_add(struct store *store, struct txn *txn)
{
	const struct event_txn *t = (const struct event_txn *)txn;

	return store_event_add(store, t->target, 0, t->text, strlen(t->text));
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
		const struct store_event_end *end = &t->ends[i];
		int rc = db_exec(store->writer, SQL_EVENT_REMOVE, "i", end->id);

		if (rc == 0 && queue && sqlite3_changes(store->writer->handle)) {
			queue->changed--;
			queue->changed_bytes -= (int64_t)end->bytes;
		}
		if (rc == 0 && end->note)
			rc = annotation_apply(store, txn, end->note);
		txn->status = STORE_OK; /* the version of the note may have been deleted */
		if (rc)
			return rc;
	}
	return 0;
}

enum store_status store_event_remove(struct store *store, const char *target,
	const struct store_event_end *ends, size_t n, struct penstock_error *err)
{
	struct event_txn t = {.txn = {.apply = apply_remove, .frees = true},
		.target = target,
		.ends = ends,
		.n = n};

	return txn_run(store, &t.txn, err);
}

/* --- targets --------------------------------------------------------------------------------- */

struct targets_txn {
	struct txn txn;
	const struct store_targets *targets;
	const struct event_queue *before; /* first of the queues that existed before the call */
	size_t strays; /* result */
};

/* Replaces `*target` with the next target and sets `*found` to true, or sets `*found` to false if
 * there is no next target. */
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
	sqlite3_reset(st); /* the statement refers to the old target */
	free(*target);
	*target = next;
	return 0;
}

/* Counts the events of a target that an earlier process has left. */
static int count_events(struct store *store, const char *target, size_t *n, uint64_t *bytes)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(store->writer, SQL_EVENT_COUNT, "t", target);
	int rc = db_step(store->writer, st);

	if (rc != SQLITE_ROW)
		return rc;
	*n = (size_t)sqlite3_column_int64(st, 0);
	*bytes = (uint64_t)sqlite3_column_int64(st, 1);
	return 0;
}

static bool is_of_kind(const char *target, const char *kind)
{
	return str_starts(target, kind) && !strchr(target + strlen(kind), '/');
}

static int find_strays(struct store *store, struct targets_txn *t)
{
	_cleanup_free_ char *target = strdup("");
	bool found = true;
	int rc = target ? 0 : SQLITE_NOMEM;

	t->strays = 0;
	while (rc == 0 && (rc = next_target(store, &target, &found)) == 0 && found) {
		size_t n = 0;
		uint64_t bytes;

		if (event_queue_find(store, target) || !is_of_kind(target, t->targets->kind))
			continue;
		rc = count_events(store, target, &n, &bytes);
		if (rc == 0 && !t->targets->keep_strays)
			rc = db_exec(store->writer, SQL_EVENT_REMOVE_ALL, "t", target);
		t->strays += n;
	}
	return rc;
}

static int apply_targets(struct store *store, struct txn *txn)
{
	struct targets_txn *t = (struct targets_txn *)txn;
	int rc = find_strays(store, t);

	for (struct event_queue *q = atomic_load(&store->queues); rc == 0 && q != t->before;
		q = q->next) {
		size_t n = 0;
		uint64_t bytes = 0;

		rc = count_events(store, q->target, &n, &bytes);
		atomic_store(&q->n, n);
		atomic_store(&q->bytes, bytes);
	}
	return rc;
}

static int add_queue(struct store *store, const char *target, size_t limit)
{
	struct event_queue *queue = calloc(1, sizeof(*queue));

	if (!queue || !(queue->target = strdup(target))) {
		free(queue);
		return -1;
	}
	queue->limit = limit;
	queue->next = atomic_load(&store->queues);
	atomic_store(&store->queues, queue);
	return 0;
}

enum store_status store_event_targets(struct store *store, const struct store_targets *targets,
	size_t *strays, struct penstock_error *err)
{
	struct targets_txn t = {.txn = {.apply = apply_targets, .frees = true},
		.targets = targets,
		.before = atomic_load(&store->queues)};
	enum store_status status;

	*strays = 0;
	for (size_t i = 0; i < targets->n; i++)
		if (add_queue(store, targets->names[i], targets->limit) < 0) {
			error_memory(err);
			return STORE_FAILED;
		}
	status = txn_run(store, &t.txn, err);
	*strays = t.strays;
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

int64_t store_event_lag_ns(struct store *store, const char *target)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int64_t now_ns = clock_wall_ns(), oldest_ns = now_ns;
	struct store_event *events = NULL;
	size_t n = 0;

	if (store_event_list(store, target, 1, &events, &n, &err) == STORE_OK && n)
		oldest_ns = events[0].added_ns;
	store_event_list_free(events, n);
	return oldest_ns < now_ns ? now_ns - oldest_ns : 0;
}
