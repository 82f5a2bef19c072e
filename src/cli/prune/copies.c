/* Prunes copies of replaced objects, in the stores of outputs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/history/artifacts_place.h"
#include "cli/prune/prune.h"
#include "records/layout.h"
#include "records/supervisor.h"
#include "sync/record/journal.h"

#define NO_AGE INT64_MIN

char *copies_state(const struct copies_place *place)
{
	return str_printf("%s" RUN_STATE_ROOT "%s/", place->prefix, place->id);
}

/* ---- runs that wrote to an output ---- */

struct noted {
	struct strlist *ids;
	size_t prefix;
	bool no_memory;
};

static int note_run(void *cookie, const struct object_info *info)
{
	struct noted *noted = cookie;
	const char *id = info->key + noted->prefix;
	size_t len = strcspn(id, "/");

	if (info->is_prefix && len == RECORDS_ID_SIZE - 1 &&
		strspn(id, "0123456789abcdef") >= len &&
		strlist_addf(noted->ids, "%.*s", (int)len, id) < 0)
		noted->no_memory = true;
	return noted->no_memory;
}

int copies_runs(struct strlist *ids, const struct copies_place *place, struct penstock_error *err)
{
	_cleanup_free_ char *root = str_printf("%s" RUN_STATE_ROOT, place->prefix);
	struct noted noted = {.ids = ids};
	int r;

	if (!root)
		return error_memory(err);
	noted.prefix = strlen(root);
	r = object_list(
		object_at(place->client, place->bucket, root), "/", note_run, &noted, NULL, err);
	return r == 0 && noted.no_memory ? error_memory(err) : r;
}

/* A run without a state object counts as ended, and a run with an unknown state as live. */
int copies_live(const struct copies_place *place, const char *home_id, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STATE_OBJECT);
	_cleanup_free_ char *state = copies_state(place);
	_cleanup_free_ char *key = state ? str_printf("%sstate.json", state) : NULL;
	json_auto_t *root = NULL;
	const char *name, *owner;
	int r;

	if (!key)
		return error_memory(err);
	r = object_get(object_at(place->client, place->bucket, key), NULL, &text, NULL, err);
	if (error_expected(r, PENSTOCK_E_NOT_FOUND, err))
		return 0;
	if (r < 0)
		return r;
	root = json_loadb(buf_str(&text), text.len, 0, NULL);
	name = json_string_value(json_object_get(root, "state"));
	owner = json_string_value(json_object_get(json_object_get(root, "owner"), "home_id"));
	if (home_id && owner && strcmp(home_id, owner) == 0)
		return 0;
	for (int i = 0; name && i < RUN_STATE_COUNT_; i++) {
		if (strcmp(name, run_state_name((enum run_state)i)) == 0)
			return run_state_is_live((enum run_state)i);
	}
	return 1;
}

/* ---- the journal of this machine ---- */

/* Returns the path of the run's journal or, if the run's storage is gone, of the journal that is
 * kept as `published`. Returns NULL if the run has no journal. */
static char *journal_of(const char *home, const char *id)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_free_ char *journal = NULL;

	if (run_layout_init(&layout, home, id, 1, NULL) < 0 ||
		!(journal = path_join(layout.state, "sync")))
		return NULL;
	if (access(journal, F_OK) == 0)
		return take_pointer(journal);
	return access(layout.published, F_OK) == 0 ? strdup(layout.published) : NULL;
}

int copies_forget(const char *home, const char *id, const struct replaced_list *list,
	struct penstock_error *err)
{
	_cleanup_free_ char *path = journal_of(home, id);
	struct journal *journal = NULL;
	int r = path ? journal_open(&journal, path, err) : 0;

	if (!path || r < 0)
		return r;
	for (size_t i = 0; i < list->n; i++) {
		if (list->items[i].gone)
			journal_add(journal, &(struct journal_record){.type = JOURNAL_UNKEPT,
						     .path = list->items[i].path,
						     .key = list->items[i].key});
	}
	if (journal_write(journal) < 0)
		r = error_errno(err, errno, "cannot write the journal '%s'", path);
	journal_free(journal);
	return r;
}

static int count_copy(void *cookie, const struct journal_record *r)
{
	long *n = cookie;

	*n += r->type == JOURNAL_KEPT && !str_starts(r->key, "version:");
	*n -= r->type == JOURNAL_UNKEPT;
	return 0;
}

/* ---- pruning ---- */

/* Reports, as one item, the copies to remove: those of objects that a run published or, if
 * `only_copy` is set, those of all other objects. Returns true if the caller must remove them
 * now. */
static bool takes(struct pruning *p, const struct copies_place *place,
	const struct replaced_list *list, struct prune_item *item)
{
	_cleanup_free_ char *what = str_printf("%s://%s/%s" RUN_STATE_ROOT "%s/" REPLACED_DIR,
		place->scheme, place->bucket, place->prefix, place->id);
	bool removed;

	for (size_t i = 0; i < list->n; i++) {
		const struct replaced_copy *copy = &list->items[i];

		if (!copy->going || copy->by_run == item->only_copy)
			continue;
		item->n++;
		item->bytes += copy->size;
		if (copy->made_ns > item->used_ns)
			item->used_ns = copy->made_ns;
	}
	item->what = what;
	removed = item->n && what && prune_takes(p, item);
	item->what = NULL;
	return removed;
}

/* Subtracts copies that could not be removed from the sum of removed copies, and adds them to the
 * sum of failures. */
static void report_rest(
	struct pruning *p, const struct replaced_list *list, const struct prune_item *item)
{
	uint64_t n = 0, bytes = 0;

	for (size_t i = 0; i < list->n; i++) {
		const struct replaced_copy *copy = &list->items[i];

		if (!copy->going || copy->gone || copy->by_run == item->only_copy)
			continue;
		n++;
		bytes += copy->size;
	}
	if (n)
		prune_stays(p, item, "failed", n, bytes);
}

static int prune_run(struct pruning *p, const struct copies_place *place,
	const struct replaced_bound *bound, bool live, struct replaced_list *list,
	struct penstock_error *err)
{
	_cleanup_free_ char *state = copies_state(place);
	struct replaced_bound all = *bound;
	struct replaced_sum removed = {0};
	struct prune_item theirs = {
		.kind = "replaced", .run = place->id, .in_use = live, .only_copy = true};
	struct prune_item ours = {.kind = "replaced", .run = place->id, .in_use = live};
	bool own, others;
	int r;

	if (!state)
		return error_memory(err);
	r = replaced_read(list, object_at(place->client, place->bucket, state), NULL, err);
	if (r < 0)
		return r;
	all.all = true;
	if (replaced_choose(list, &all) == 0)
		return 0;
	others = takes(p, place, list, &theirs);
	/* Without --force, copies of objects that no run published stay: do not count these copies
	 * among the newest copies to keep. */
	if (!p->force)
		replaced_choose(list, bound);
	own = takes(p, place, list, &ours);
	for (size_t i = 0; i < list->n; i++)
		list->items[i].going &= list->items[i].by_run ? own : others;
	r = replaced_remove(list, object_at(place->client, place->bucket, ""), &removed, err);
	if (others)
		report_rest(p, list, &theirs);
	if (own)
		report_rest(p, list, &ours);
	return r;
}

static struct replaced_bound bound_of(
	const struct pruning *p, const struct workflow_replaced *workflow)
{
	const struct workflow_number *age = workflow ? &workflow->age : NULL;
	int64_t keep = workflow ? workflow->keep.value : 0;

	return (struct replaced_bound){
		.keep = (uint64_t)(p->keep >= 0 ? p->keep : keep),
		.before_ns = p->has_age		 ? p->before_ns
			     : age && age->given ? clock_wall_ns() - age->value * NS_PER_MS
						 : NO_AGE,
	};
}

int prune_replaced_at(
	struct pruning *p, const struct copies_place *place, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist ids = {0};
	struct copies_place one = *place;
	int r;

	/* The run's workflow, which may have a bound, is not known here. */
	if (p->keep < 0 && !p->has_age)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot prune copies in a store: a limit is missing; use --keep or "
			"--older-than");
	r = copies_runs(&ids, place, err);
	for (size_t i = 0; r == 0 && i < ids.n; i++) {
		_cleanup_(replaced_release) struct replaced_list list = {0};
		struct replaced_bound bound = bound_of(p, NULL);
		int live;

		if (p->keep < 0)
			bound.keep = UINT64_MAX;
		snprintf(one.id, sizeof(one.id), "%s", ids.items[i]);
		live = copies_live(&one, NULL, err);
		r = live < 0 ? live : prune_run(p, &one, &bound, live > 0, &list, err);
	}
	return r;
}

/* `locked` is true if the caller holds the lock of the run, and false if the run is live. */
static int prune_place(
	struct pruning *p, struct artifacts_place *found, bool locked, struct penstock_error *err)
{
	_cleanup_(replaced_release) struct replaced_list list = {0};
	const struct replaced_bound bound = bound_of(p, &found->workflow->replaced);
	struct copies_place place = {.prefix = found->prefix};
	char home_id[RECORDS_HOME_ID_SIZE];
	int r = artifacts_open(found, p->home, err), f;

	if (r == 0)
		r = records_home_id(p->home, home_id, err);
	if (r < 0)
		return r;
	place.client = found->store->client;
	place.bucket = found->store->bucket;
	place.scheme = object_client_scheme(place.client);
	snprintf(place.id, sizeof(place.id), "%s", found->id);
	r = locked ? copies_live(&place, home_id, err) : 1;
	if (r < 0)
		return r;
	r = prune_run(p, &place, &bound, r > 0, &list, err);
	/* Forget the copies even after a failure, because some of them were removed. */
	f = locked ? copies_forget(p->home, place.id, &list, r == 0 ? err : NULL) : 0;
	return r == 0 ? f : r;
}

int prune_replaced_of(struct pruning *p, const char *id, struct penstock_error *err)
{
	_cleanup_(artifacts_place_release) struct artifacts_place found = {0};
	_cleanup_free_ char *path = run_path(p->home, id, RUN_FILE_LOCK);
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	_cleanup_close_ int lock = -1;
	int r = path ? artifacts_find(&found, p->home, p->records, id, false, err)
		     : error_memory(err);

	if (r < 0 || found.dir) /* without a store there are no copies */
		return error_expected(r, PENSTOCK_E_UNSUPPORTED, err) ? 0 : r;
	r = supervisor_begin(path, id, &lock, &why);
	if (r < 0 && r != -(int)PENSTOCK_E_EXISTS)
		return error_move(err, &why);
	return prune_place(p, &found, r == 0, err);
}

struct candidates {
	const struct pruning *p;
	struct strlist ids;
	int r;
	struct penstock_error *err;
};

/* Adds a run if its journal has copies. For most runs, the journal shows without a request to the
 * store that there are no copies. */
static int note_candidate(void *cookie, const struct records_run *run)
{
	struct candidates *c = cookie;
	_cleanup_free_ char *journal = run->output ? journal_of(c->p->home, run->id) : NULL;
	long n = 0;

	if (journal)
		c->r = journal_replay(journal, count_copy, &n, NULL, c->err);
	if (c->r == 0 && n > 0 && strlist_add(&c->ids, run->id) < 0)
		c->r = error_memory(c->err);
	return c->r < 0;
}

int prune_replaced(struct pruning *p, struct penstock_error *err)
{
	struct candidates c = {.p = p, .err = err};
	int r = records_list(p->records, note_candidate, &c, err);

	r = r < 0 ? r : c.r;
	for (size_t i = 0; r == 0 && i < c.ids.n; i++) {
		struct penstock_error why = PENSTOCK_ERROR_INIT;

		/* An unavailable store does not stop the pruning of other runs. */
		if (prune_replaced_of(p, c.ids.items[i], &why) < 0)
			prune_failed(p, NULL, &why);
	}
	strlist_release(&c.ids);
	return r;
}
