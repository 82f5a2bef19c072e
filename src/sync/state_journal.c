/* Writes the journal of a running sync, and replays the journal of an earlier sync. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "transfer/state/part_file.h"
#include "sync/internal.h"

/* number of the last syncs that a journal names, so that a manifest of one of them is recognised as
 * this machine's own */
#define NONCES		32
#define JOURNAL_REWRITE (64 * MIB) /* bytes: a larger journal may be rewritten */

void state_note(void *cookie, enum journal_type type, struct entry *e, const struct ident *ident)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct sync *s = cookie;
	struct journal_record r = {.type = type, .ident = *ident, .mode = e->mode};
	char etag[ENTRY_ETAG_SIZE];

	entry_path(e, &path);
	if (buf_failed(&path)) {
		journal_lost(s->journal);
		return;
	}
	r.path = buf_str(&path);
	if (type == JOURNAL_CLOSED && (e->flags & ENTRY_SYNCED) && !s->settling)
		r.key = JOURNAL_SYNCED;
	if (type == JOURNAL_PUBLISHED || type == JOURNAL_APPENDED || type == JOURNAL_GONE) {
		entry_etag(e, etag);
		r.etag = etag;
		r.crc = e->crc;
		r.has_crc = (e->flags & ENTRY_HAS_CRC) != 0;
	}
	journal_add(s->journal, &r);
}

static int fill_entry(void *cookie, struct entry *e)
{
	struct sync *s = cookie;
	const struct ident *object = e->work ? &e->work->published : &e->seen;

	if (e->below || S_ISLNK(e->mode))
		return 0;
	/* If the run has started over, objects of its earlier attempts are recorded only in the
	 * manifest. */
	if ((e->flags & ENTRY_PUBLISHED) && !(e->flags & ENTRY_OLDER))
		state_note(s, e->flags & ENTRY_APPENDED ? JOURNAL_APPENDED : JOURNAL_PUBLISHED, e,
			object);
	if (e->state == ENTRY_CLOSED || e->state == ENTRY_PARKED)
		state_note(s, JOURNAL_CLOSED, e, &e->seen);
	else if (e->state == ENTRY_SUSPECT)
		state_note(s, JOURNAL_SUSPECT, e, &e->seen);
	/* Excludes files that are still to be restored. */
	else if (e->state == ENTRY_GONE && (e->flags & ENTRY_PUBLISHED) &&
		 !(e->flags & (ENTRY_OLDER | ENTRY_KEEP)))
		state_note(s, JOURNAL_GONE, e, object);
	return 0;
}

static void fill(void *cookie, struct journal *to)
{
	struct sync *s = cookie;
	struct journal *kept = s->journal;

	s->journal = to;
	for (size_t i = s->nonces.n > NONCES ? s->nonces.n - NONCES : 0; i < s->nonces.n; i++)
		journal_add(to, &(struct journal_record){.type = JOURNAL_RUN,
					.path = s->o.run_id,
					.etag = s->nonces.items[i],
					.key = s->journal_boot});
	leftovers_fill(s, to);
	for (const struct kept *k = s->kept; k; k = k->hh.next)
		journal_add(to, &(struct journal_record){.type = JOURNAL_KEPT,
					.path = k->path,
					.etag = k->etag,
					.key = k->key,
					.ident.size = k->size});
	table_each(&s->table, fill_entry, s);
	if (s->generation || s->journal_generation)
		journal_add(to, &(struct journal_record){.type = JOURNAL_MANIFEST,
					.etag = s->manifest_etag,
					.ident.size = s->generation > s->journal_generation
							      ? s->generation
							      : s->journal_generation});
	if (s->restored_generation)
		journal_add(to, &(struct journal_record){.type = JOURNAL_RESTORED,
					.ident.size = s->restored_generation});
	s->journal = kept;
}

int state_rewrite_journal(struct sync *s, struct penstock_error *err)
{
	int rc = journal_rewrite(s->journal, fill, s, err);

	s->journal_live_size = journal_size(s->journal);
	return rc;
}

void state_write_journal(struct sync *s)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	uint64_t size = journal_size(s->journal);

	if (journal_write(s->journal) < 0) {
		if (!s->journal_warned)
			sync_emit(s, SYNC_WARNING, NULL, 0,
				"cannot write the journal: %s; after a crash of penstock, "
				"complete files may count as incomplete",
				strerror(errno));
		s->journal_warned = true;
		return;
	}
	s->journal_dirty |= journal_size(s->journal) != size;
	if (!s->journal_syncing &&
		(journal_damaged(s->journal) ||
			(journal_size(s->journal) > JOURNAL_REWRITE &&
				journal_size(s->journal) > 4 * s->journal_live_size)))
		state_rewrite_journal(s, &err);
}

/* ---- at the start ---- */

struct replay {
	struct sync *s;
	bool memory; /* out of memory */
	bool foreign;
};

static int replay_file(struct sync *s, struct entry *e, const struct journal_record *r)
{
	if (r->type == JOURNAL_PUBLISHED || r->type == JOURNAL_APPENDED ||
		r->type == JOURNAL_GONE) {
		if (e->work)
			table_drop_work(&s->table, e);
		e->seen = r->ident;
		e->crc = r->crc;
		e->flags = ENTRY_PUBLISHED;
		e->flags |= r->has_crc ? ENTRY_HAS_CRC : 0;
		e->flags |= r->type == JOURNAL_APPENDED ? ENTRY_APPENDED : 0;
		plan_set_state(&s->plan, e, EVENT_RECORDED,
			r->type == JOURNAL_GONE ? ENTRY_GONE : ENTRY_CLEAN);
		if (entry_set_etag(e, r->etag) < 0)
			return -1;
	} else {
		if (!table_work(&s->table, e, 0))
			return -1;
		e->seen = r->ident;
		plan_set_state(&s->plan, e, EVENT_RECORDED,
			r->type == JOURNAL_CLOSED ? ENTRY_CLOSED : ENTRY_SUSPECT);
		e->flags &= (uint16_t)~ENTRY_SYNCED;
		e->flags |= strcmp(r->key, JOURNAL_SYNCED) == 0 ? ENTRY_SYNCED : 0;
	}
	e->mode = r->mode;
	return 0;
}

static int replay_record(void *cookie, const struct journal_record *r)
{
	struct replay *replay = cookie;
	struct sync *s = replay->s;
	struct entry *e;

	switch (r->type) {
	case JOURNAL_RUN:
		replay->foreign |= strcmp(r->path, s->o.run_id) != 0;
		s->continued = true;
		snprintf(s->journal_boot, sizeof(s->journal_boot), "%s", r->key);
		if (*r->etag)
			replay->memory |= strlist_add(&s->nonces, r->etag) < 0;
		return replay->foreign || replay->memory;
	case JOURNAL_PARTS:
	case JOURNAL_PARTS_OVER:
		replay->memory |= leftovers_replay(s, r) < 0;
		return replay->memory;
	case JOURNAL_KEPT:
		replay->memory |= keep_add(s, r->path, r->etag, r->key, r->ident.size) < 0;
		return replay->memory;
	case JOURNAL_UNKEPT:
		keep_drop(s, r->key);
		return 0;
	case JOURNAL_MANIFEST:
		s->journal_generation = r->ident.size;
		return 0;
	case JOURNAL_RESTORED:
		s->restored_generation = r->ident.size;
		return 0;
	case JOURNAL_FORGET:
		e = table_find_path(&s->table, r->path);
		if (e && !e->below)
			table_remove(&s->table, e);
		return 0;
	case JOURNAL_CLOSED:
	case JOURNAL_PUBLISHED:
	case JOURNAL_APPENDED:
	case JOURNAL_SUSPECT:
	case JOURNAL_GONE:
		break;
	}
	e = table_get_path(&s->table, r->path);
	if (e && e->below) { /* a directory had the name before */
		table_remove(&s->table, e);
		e = table_get_path(&s->table, r->path);
	}
	replay->memory |= e ? replay_file(s, e, r) < 0 : errno == ENOMEM;
	return replay->memory;
}

/* ---- after a restart of the machine ---- */

void boot_believe(struct sync *s)
{
	memcpy(s->journal_boot, s->boot, sizeof(s->journal_boot));
}

/*
 * Compares the boot of the journal with the current boot. A crash of the machine loses data that
 * was not on disk, and most file systems keep size and time of a file whose new blocks are missing.
 * So the journal records the id of the boot. After a restart of the machine, a published file is
 * accepted only if it has the content of its object, and a file that was closed and not sent is
 * suspect, unless sync_settle() has synced the file.
 */
static void boot_judge(struct sync *s)
{
	/* On a network file system no bytes are lost, because the close has sent them to the
	 * server. A journal without a boot id is trusted. */
	s->doubt = s->boot[0] && s->journal_boot[0] && strcmp(s->boot, s->journal_boot) != 0 &&
		   !s->leases_unreliable;
	if (s->doubt)
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"the machine was restarted since the output was written: local files are "
			"accepted only if they match their objects");
	else
		boot_believe(s);
}

/* ---- the start ---- */

int state_replay(struct sync *s, struct penstock_error *err)
{
	struct replay replay = {.s = s};
	unsigned torn = 0;
	int rc = s->o.journal_path
			 ? journal_replay(s->o.journal_path, replay_record, &replay, &torn, err)
			 : 0;

	if (rc < 0)
		return rc;
	if (replay.memory)
		return error_memory(err);
	if (replay.foreign)
		return error_set(err, PENSTOCK_E_INVALID,
			"the journal '%s' does not belong to run '%s'", s->o.journal_path,
			s->o.run_id);
	if (s->o.journal_path && strlist_add(&s->nonces, s->nonce) < 0)
		return error_memory(err);
	if (torn)
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"the journal has %u damaged lines; their changes are checked again", torn);
	boot_judge(s);
	return journal_open(&s->journal, s->o.journal_path, err);
}

/* ---- the only copy ---- */

static bool is_only_here(const struct entry *e)
{
	return !e->below && (e->state == ENTRY_CLOSED || e->state == ENTRY_PARKED);
}

static int find_unsynced(void *cookie, struct entry *e)
{
	(void)cookie;
	return is_only_here(e) && !(e->flags & ENTRY_SYNCED);
}

/* Sets ENTRY_SYNCED before syncfs(): a close during syncfs() clears the flag again. */
static int mark(void *cookie, struct entry *e)
{
	(void)cookie;
	if (is_only_here(e))
		e->flags |= ENTRY_SYNCED;
	return 0;
}

static int unmark(void *cookie, struct entry *e)
{
	(void)cookie;
	e->flags &= (uint16_t)~ENTRY_SYNCED;
	return 0;
}

void sync_settle(struct sync *s)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int rc;

	pthread_mutex_lock(&s->lock);
	if (s->leases_unreliable || !s->o.journal_path ||
		!table_each(&s->table, find_unsynced, NULL)) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	table_each(&s->table, mark, NULL);
	s->settling = true;
	pthread_mutex_unlock(&s->lock);
	rc = syncfs(s->root_fd) < 0 ? error_errno(&err, errno, "cannot sync the file system") : 0;
	pthread_mutex_lock(&s->lock);
	s->settling = false;
	if (rc < 0)
		table_each(&s->table, unmark, NULL);
	else
		rc = state_rewrite_journal(s, &err);
	if (rc < 0)
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"cannot protect the unsent output against a power loss: %s",
			err.message ? err.message : penstock_code_name(err.code));
	pthread_mutex_unlock(&s->lock);
	sync_deliver(s);
}

/* ---- the files at the start ---- */

/* Removes the part file of a restore that was killed. */
static void drop_part(const struct sync *s, const char *path)
{
	_cleanup_free_ char *part = NULL;

	if (part_file_first_name(path, &part, NULL) == 0)
		unlinkat(s->root_fd, part, 0);
}

static int reconcile(void *cookie, struct entry *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct sync *s = cookie;
	struct ident seen = e->seen, now;
	int64_t now_ms = clock_monotonic_ms();
	bool closed = e->state == ENTRY_CLOSED;
	struct stat st;

	if (e->below || S_ISLNK(e->mode) || e->state == ENTRY_GONE)
		return 0;
	entry_path(e, &path);
	if (buf_failed(&path))
		return -1;
	if (fstatat(s->root_fd, buf_str(&path), &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		!S_ISREG(st.st_mode)) {
		/* The manifest decides later whether the object may be deleted. */
		if (e->work)
			table_drop_work(&s->table, e);
		e->flags |= ENTRY_KEEP;
		plan_set_state(&s->plan, e, EVENT_RECORDED, ENTRY_GONE);
		drop_part(s, buf_str(&path));
		return 0;
	}
	ident_of_stat(&now, &st);
	if (s->doubt) /* the end of the file may be torn */
		e->flags &= (uint16_t)~ENTRY_APPENDED;
	if (!e->work && ident_equal(&now, &seen) && !(e->flags & ENTRY_APPENDED))
		return 0;
	if (closed && e->work && ident_equal(&now, &seen) &&
		(!s->doubt || (e->flags & ENTRY_SYNCED))) {
		plan_rewritten(e);
		return plan_closed(&s->plan, e, &now, st.st_mode, CLOSE_TRUE, now_ms);
	}
	return plan_suspect(&s->plan, e, &now, now_ms);
}

int state_reconcile(struct sync *s, struct penstock_error *err)
{
	return table_each(&s->table, reconcile, s) < 0 ? error_memory(err) : 0;
}
