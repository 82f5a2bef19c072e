#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "sync/names.h"
#include "sync/queue.h"
#include "sync/sync_internal.h"
#include "transfer/part_file.h"
#include "base/banned.h"

#define MANIFEST_MS   1000 /* least time between two manifests of a running sync */
#define NONCES	      32 /* syncs that a journal names; the manifest is of the last of them, or older */
#define MANIFEST_COST 20 /* times the cost of one is the least time between two */

int state_string(const struct sync_options *o, char **state, struct penstock_error *err)
{
	if (asprintf(state, "%s%s/", o->prefix, o->state_prefix) < 0) {
		*state = NULL;
		return error_memory(err);
	}
	return 0;
}

/* The journal. */

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

	if (e->below || S_ISLNK(e->mode))
		return 0;
	/* What is older is none of this run's now; the manifest knows it. */
	if ((e->flags & ENTRY_PUBLISHED) && !(e->flags & ENTRY_OLDER))
		state_note(s, e->flags & ENTRY_APPENDED ? JOURNAL_APPENDED : JOURNAL_PUBLISHED, e,
			e->work ? &e->work->published : &e->seen);
	if (e->state == ENTRY_CLOSED || e->state == ENTRY_PARKED)
		state_note(s, JOURNAL_CLOSED, e, &e->seen);
	else if (e->state == ENTRY_SUSPECT)
		state_note(s, JOURNAL_SUSPECT, e, &e->seen);
	else if (e->state == ENTRY_GONE && (e->flags & ENTRY_PUBLISHED) &&
		 !(e->flags & (ENTRY_OLDER | ENTRY_KEEP))) /* not what is yet to be restored */
		state_note(s, JOURNAL_GONE, e, &e->seen);
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

static void free_kept(struct kept *k)
{
	free(k->path);
	free(k->etag);
	free(k->key);
	free(k);
}

bool state_has_kept(const struct sync *s, const char *key)
{
	struct kept *k;

	HASH_FIND_STR(s->kept, key, k);
	return k != NULL;
}

void state_free_kept(struct sync *s)
{
	struct kept *k, *next;

	HASH_ITER (hh, s->kept, k, next) {
		HASH_DEL(s->kept, k);
		free_kept(k);
	}
}

int state_add_kept(
	struct sync *s, const char *path, const char *etag, const char *key, uint64_t size)
{
	struct kept *k;

	if (state_has_kept(s, key))
		return 0;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -1;
	k->size = size;
	k->path = strdup(path);
	k->etag = strdup(etag);
	k->key = strdup(key);
	if (!k->path || !k->etag || !k->key) {
		free_kept(k);
		return -1;
	}
	HASH_ADD_KEYPTR(hh, s->kept, k->key, strlen(k->key), k);
	if (s->journal)
		journal_add(s->journal, &(struct journal_record){.type = JOURNAL_KEPT,
						.path = path,
						.etag = etag,
						.key = key,
						.ident.size = size});
	s->plan.manifest_dirty = true;
	return 0;
}

struct replay {
	struct sync *s;
	bool memory; /* ran out of it */
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
		e->state = r->type == JOURNAL_GONE ? ENTRY_GONE : ENTRY_CLEAN;
		if (entry_set_etag(e, r->etag) < 0)
			return -1;
	} else {
		if (!table_work(&s->table, e, 0))
			return -1;
		e->seen = r->ident;
		e->state = r->type == JOURNAL_CLOSED ? ENTRY_CLOSED : ENTRY_SUSPECT;
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
		replay->memory |= state_add_kept(s, r->path, r->etag, r->key, r->ident.size) < 0;
		return replay->memory;
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
	if (e && e->below) { /* a directory had its name before */
		table_remove(&s->table, e);
		e = table_get_path(&s->table, r->path);
	}
	replay->memory |= e ? replay_file(s, e, r) < 0 : errno == ENOMEM;
	return replay->memory;
}

int state_replay(struct sync *s, struct penstock_error *err)
{
	struct replay replay = {.s = s};
	unsigned torn = 0;
	int rc;

	if (!s->o.journal_path)
		return 0;
	rc = journal_replay(s->o.journal_path, replay_record, &replay, &torn, err);
	if (rc < 0)
		return rc;
	if (replay.memory)
		return error_memory(err);
	if (replay.foreign)
		return error_set(err, PENSTOCK_E_INVALID,
			"the journal %s belongs to another run than %s", s->o.journal_path,
			s->o.run_id);
	if (strlist_add(&s->nonces, s->nonce) < 0)
		return error_memory(err);
	boot_judge(s);
	if (torn)
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"the journal has %u damaged lines; those changes are looked at again",
			torn);
	return 0;
}

/* What a restore that was killed has fetched of a file so far is nobody's output. */
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
		/* Whether it may be deleted in the bucket is known once its manifest is. */
		if (e->work)
			table_drop_work(&s->table, e);
		e->flags |= ENTRY_KEEP;
		e->state = ENTRY_GONE;
		drop_part(s, buf_str(&path));
		return 0;
	}
	ident_of_stat(&now, &st);
	if (s->doubt) /* nobody knows what stands behind what was published of it */
		e->flags &= (uint16_t)~ENTRY_APPENDED;
	if (!e->work && ident_equal(&now, &seen) && !(e->flags & ENTRY_APPENDED))
		return 0;
	if (closed && e->work && ident_equal(&now, &seen) &&
		(!s->doubt || (e->flags & ENTRY_SYNCED))) {
		e->work->modified = true;
		return plan_closed(&s->plan, e, &now, st.st_mode, CLOSE_TRUE, now_ms);
	}
	e->state = ENTRY_CLEAN;
	return plan_suspect(&s->plan, e, &now, now_ms);
}

int state_reconcile(struct sync *s, struct penstock_error *err)
{
	return table_each(&s->table, reconcile, s) < 0 ? error_memory(err) : 0;
}

/* The manifest. */

int state_fetch_manifest(const struct sync_options *o, const char *state,
	struct manifest_head *head, struct object_info *info, manifest_fn fn, void *cookie,
	struct penstock_error *err)
{
	_cleanup_free_ char *key = NULL, *path = NULL, *name = NULL;
	FILE *f;
	int rc;

	if (asprintf(&key, "%smanifest.json", state) < 0 ||
		asprintf(&path, "%s/manifest.in", o->private_dir) < 0 ||
		asprintf(&name, "%s://%s/%s", object_client_scheme(o->client), o->bucket, key) < 0)
		return error_memory(err);
	rc = object_get_file(o->client, o->bucket, key, path,
		&(struct object_get_options){.cancel = o->cancel}, info, err);
	if (rc < 0)
		return rc;
	f = fopen(path, "re");
	unlink(path);
	if (!f)
		return error_errno(err, errno, "cannot read %s", path);
	rc = manifest_read(f, name, head, fn, cookie, err);
	fclose(f);
	if (rc == 0 && o->run_id && strcmp(head->run, o->run_id) != 0)
		rc = error_set(err, PENSTOCK_E_INVALID, "%s belongs to the run %s, not to %s", name,
			head->run, o->run_id);
	return rc;
}

struct merge {
	struct sync *s;
	bool newer; /* than the journal: another machine had the run since */
	bool older; /* than the attempt that began anew */
	uint64_t older_files, older_bytes;
	bool memory;
};

/* One file of the manifest, beside what the journal and the directory say. */
static void merge_file(struct merge *m, struct entry *e, const struct manifest_item *item)
{
	struct ident ident = {.size = item->size, .mtime_ns = item->mtime_ns};
	bool local = e->seen.ino != 0 && e->state != ENTRY_GONE;
	bool older = m->older || item->older;
	char etag[ENTRY_ETAG_SIZE];

	if (e->state == ENTRY_PARKED) /* it has an object, so it needs a work */
		m->memory |= line_unpark(&m->s->plan, e, clock_monotonic_ms()) < 0;
	if (older && S_ISREG(item->mode)) {
		m->older_files++;
		m->older_bytes += item->size;
	}
	entry_etag(e, etag);
	if (older && !local)
		e->flags |= ENTRY_OLDER;
	if ((e->flags & ENTRY_PUBLISHED) && (!m->newer || strcmp(etag, item->etag) == 0))
		return;
	/* Also what has been written here since: until that is published the older one stands there. */
	if (older)
		e->flags |= ENTRY_OLDER;
	if (S_ISREG(item->mode)) {
		e->flags &= (uint16_t) ~(ENTRY_HAS_CRC | ENTRY_APPENDED);
		e->flags |= ENTRY_PUBLISHED | (item->has_crc ? ENTRY_HAS_CRC : 0);
		e->crc = item->crc;
		m->memory |= entry_set_etag(e, item->etag) < 0;
		if (e->work) {
			e->work->published = ident;
		} else if (local) { /* what is here is older */
			e->seen = ident;
			e->mode = item->mode;
		}
	} else if (!local && S_ISLNK(item->mode) && !e->text) {
		e->text = strdup(item->link);
		m->memory |= !e->text;
	} else if (!local && S_ISDIR(item->mode)) {
		m->memory |= !table_make_dir(&m->s->table, e);
	}
	if (local || (e->below && !S_ISDIR(item->mode)))
		return;
	e->mode = item->mode;
	e->seen = ident;
	e->state = ENTRY_GONE;
	if (!item->deleted && !older)
		e->flags |= ENTRY_KEEP;
}

static int merge_item(void *cookie, enum manifest_list list, const struct manifest_item *item)
{
	struct merge *m = cookie;
	struct entry *e;

	if (list == MANIFEST_REPLACED) {
		m->memory |= state_add_kept(m->s, item->path, item->etag,
				     item->kept ? item->kept : "", item->size) < 0;
		return m->memory;
	}
	e = table_get_path(&m->s->table, item->path);
	if (!e) { /* something else has the name now, or memory is short */
		m->memory |= errno == ENOMEM;
		return m->memory;
	}
	if (list == MANIFEST_PARTIAL)
		e->flags |= ENTRY_IN_PARTIAL;
	else
		merge_file(m, e, item);
	return m->memory;
}

struct fetched {
	struct merge merge;
	const struct manifest_head *head; /* read before the first item */
	const struct object_info *info;	  /* likewise */
};

static int merge_locked(void *cookie, enum manifest_list list, const struct manifest_item *item)
{
	struct fetched *f = cookie;
	int rc;

	pthread_mutex_lock(&f->merge.s->lock);
	f->merge.newer = f->head->generation > f->merge.s->journal_generation &&
			 !leftovers_is_ours(f->merge.s, f->info);
	f->merge.older = f->head->attempt < f->merge.s->o.anew;
	rc = merge_item(&f->merge, list, item);
	pthread_mutex_unlock(&f->merge.s->lock);
	return rc;
}

/* What this run published and is not there any more was deleted, now that it may be. */
static int settle_gone(void *cookie, struct entry *e)
{
	struct sync *s = cookie;

	if (s->plan.may_delete && e->state == ENTRY_GONE && !e->work && !e->below &&
		(e->flags & ENTRY_PUBLISHED) && !(e->flags & ENTRY_OLDER)) {
		e->flags &= (uint16_t)~ENTRY_KEEP;
		e->state = ENTRY_CLEAN;
		plan_gone(&s->plan, e, clock_monotonic_ms());
	}
	return 0;
}

int state_attach(struct sync *s, struct penstock_error *err)
{
	struct manifest_head head = {.generation = 0};
	_cleanup_(object_info_release) struct object_info info = {0};
	struct fetched fetched = {.merge.s = s, .head = &head, .info = &info};
	struct object_conditions honoured = {0};
	bool found, restored;
	int rc = object_probe_conditions(s->o.client, s->o.bucket, s->state, &honoured, err);

	if (rc < 0)
		return rc;
	rc = state_fetch_manifest(&s->o, s->state, &head, &info, merge_locked, &fetched, err);
	found = rc == 0;
	if (rc == -PENSTOCK_E_NOT_FOUND) {
		penstock_error_release(err);
		rc = 0;
	}
	if (rc == 0 && fetched.merge.memory)
		rc = error_memory(err);
	if (rc == 0)
		rc = keep_find(s, err);
	if (rc < 0)
		return rc;
	if (fetched.merge.older_files)
		sync_emit(s, SYNC_KEPT, NULL, fetched.merge.older_bytes, "%" PRIu64 " file%s",
			fetched.merge.older_files, fetched.merge.older_files == 1 ? "" : "s");
	leftovers_end(s, found);
	pthread_mutex_lock(&s->lock);
	s->conditions = honoured.put;
	s->complete_conditions = honoured.complete;
	s->remove_conditions = honoured.remove;
	s->generation = head.generation;
	/* Written, and killed before that was noted: then all that is here is as new as it says. */
	if (s->generation > s->journal_generation && leftovers_is_ours(s, &info))
		s->journal_generation = s->generation;
	snprintf(s->manifest_etag, sizeof(s->manifest_etag), "%s", found ? info.etag : "");
	s->manifest_ns = info.modified_ns;
	restored = !found || s->restored_generation == head.generation;
	/* Begun anew there is nothing to restore: what is there is older, and never taken for this run's own. */
	s->plan.may_retire = restored || head.attempt < s->o.anew;
	s->plan.may_delete = s->o.delete_sync && restored;
	if (s->o.delete_sync && !s->plan.may_delete)
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"deleteSync deletes nothing: the earlier state of this run was not "
			"restored");
	table_each(&s->table, settle_gone, s);
	/* An attempt that continues this one must not take what was before it for its own. */
	s->plan.manifest_dirty |= fetched.merge.older;
	/* What an attempt that was killed published last is in the journal, and perhaps in no manifest. */
	s->plan.manifest_dirty |= s->continued;
	s->attached = true;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

struct writing {
	struct sync *s;
	FILE *f;
	enum manifest_list list;
	bool first;
	bool failed; /* out of memory */
	size_t items;
};

static int write_item(void *cookie, struct entry *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME),
					  kept = BUF_INIT(LIMIT_SYNC_NAME);
	struct writing *w = cookie;
	const struct ident *ident = e->work ? &e->work->published : &e->seen;
	bool gone = e->state == ENTRY_GONE, keep = (e->flags & ENTRY_KEEP) != 0;
	char etag[ENTRY_ETAG_SIZE];
	struct manifest_item item = {.size = ident->size, .mtime_ns = ident->mtime_ns};
	struct stat st;

	entry_path(e, &path);
	if (buf_failed(&path)) {
		w->failed = true;
		return -1;
	}
	item.path = buf_str(&path);
	if (w->list == MANIFEST_PARTIAL) {
		if (!(e->flags & ENTRY_IN_PARTIAL))
			return 0;
		buf_printf(&kept, "%spartial/", w->s->state);
		names_key(&kept, item.path);
		w->failed |= buf_failed(&kept);
		item.kept = buf_str(&kept);
		item.size = e->work && e->work->opening ? e->work->opening->sent.size : 0;
	} else if (e->below || S_ISLNK(e->mode)) {
		if (gone && !keep)
			return 0;
		if (fstatat(w->s->root_fd, item.path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
			item.mode = st.st_mode;
			item.mtime_ns = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
		} else if (!gone) {
			return 0; /* known only as the parent of what was there once */
		} else {
			item.mode = e->below ? S_IFDIR | (e->mode & 07777) : e->mode;
		}
		if ((e->below != NULL) != S_ISDIR(item.mode))
			return 0;
		item.link = S_ISLNK(item.mode) ? e->text : NULL;
		if (S_ISLNK(item.mode) && !item.link)
			return 0;
	} else {
		if (!(e->flags & ENTRY_PUBLISHED))
			return 0;
		entry_etag(e, etag);
		item.etag = etag;
		item.mode = S_IFREG | (e->mode & 07777);
		item.crc = e->crc;
		item.has_crc = (e->flags & ENTRY_HAS_CRC) != 0;
		item.deleted = gone && !keep;
		item.older = (e->flags & ENTRY_OLDER) != 0;
	}
	w->failed |= manifest_item(w->f, w->list, &item, w->first) < 0;
	w->first = false;
	w->items++;
	return w->failed ? -1 : 0;
}

/* Under lock. Returns the number of entries; -1: out of memory. */
static ssize_t write_all(struct sync *s, FILE *f)
{
	struct manifest_head head = {.attempt = s->o.attempt, .generation = s->generation + 1};
	struct writing w = {.s = s, .f = f, .list = MANIFEST_FILES, .first = true};

	snprintf(head.run, sizeof(head.run), "%s", s->o.run_id);
	w.failed = manifest_begin(f, &head) < 0;
	table_each(&s->table, write_item, &w);
	manifest_list(f, MANIFEST_REPLACED);
	for (const struct kept *k = s->kept; k; k = k->hh.next) {
		w.failed |= manifest_item(f, MANIFEST_REPLACED,
				    &(struct manifest_item){.path = k->path,
					    .etag = k->etag,
					    .kept = k->key,
					    .size = k->size},
				    k == s->kept) < 0;
		w.items++;
	}
	manifest_list(f, MANIFEST_PARTIAL);
	w.list = MANIFEST_PARTIAL;
	w.first = true;
	table_each(&s->table, write_item, &w);
	manifest_end(f);
	return w.failed ? -1 : (ssize_t)w.items;
}

static FILE *stream_of(int fd)
{
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w+");

	if (!f && fd >= 0)
		close(fd);
	return f;
}

static FILE *manifest_file(const struct sync *s)
{
	return stream_of(open(s->o.private_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
}

static FILE *manifest_in_memory(void)
{
	return stream_of(memfd_create("penstock-manifest", MFD_CLOEXEC));
}

/*
 * 1: an answer to an earlier try was lost, and what stands there is what was to be sent; 0: it is an
 * earlier one of this process, whose answer was lost: send again, `etag` is what must be there.
 */
static int manifest_conflict(struct sync *s, const char *key, const char *upload,
	char etag[OBJECT_ETAG_SIZE], struct object_info *info, struct penstock_error *err)
{
	struct object_info there = {0};
	const char *by;
	bool ours;
	int rc = object_head(s->o.client, s->o.bucket, key, &there, err);

	if (rc == -PENSTOCK_E_NOT_FOUND) {
		/* Whoever deletes it takes nothing over. */
		penstock_error_release(err);
		etag[0] = '\0';
		return 0;
	}
	if (rc < 0)
		return rc;
	by = strlist_get(&there.metadata, "penstock-upload");
	if (by && strcmp(by, upload) == 0) {
		*info = there;
		return 1;
	}
	ours = by && strncmp(by, s->nonce, strlen(s->nonce)) == 0;
	snprintf(etag, OBJECT_ETAG_SIZE, "%s", there.etag);
	object_info_release(&there);
	return ours ? 0
		    : error_set(err, PENSTOCK_E_PRECONDITION,
			      "another run took this output over; nothing more is published");
}

static int put_manifest(struct sync *s, int fd, uint64_t size, char etag[OBJECT_ETAG_SIZE],
	uint64_t number, struct object_info *info, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist metadata = {0};
	_cleanup_free_ char *key = NULL, *upload = NULL;

	if (asprintf(&key, "%smanifest.json", s->state) < 0 ||
		asprintf(&upload, "%s-m%lu", s->nonce, (unsigned long)number) < 0 ||
		strlist_addf(&metadata, "penstock-upload=%s", upload) < 0)
		return error_memory(err);
	for (bool again = false;; again = true) {
		int rc = object_put_file(s->o.client, s->o.bucket, key, fd, size,
			&(struct object_put_options){
				.if_match = s->conditions && *etag ? etag : NULL,
				.if_none_match = s->conditions && !*etag,
				.content_type = "application/json",
				.metadata = &metadata,
				.parallel =
					1, /* of many files it is large, and so is the table then */
				.cancel = &s->cancel},
			info, err);

		if (again ||
			!(rc == -PENSTOCK_E_PRECONDITION || (rc == -PENSTOCK_E_NOT_FOUND && *etag)))
			return rc;
		penstock_error_release(err);
		rc = manifest_conflict(s, key, upload, etag, info, err);
		if (rc)
			return rc > 0 ? 0 : rc;
	}
}

int state_write_manifest(struct sync *s, struct penstock_error *err)
{
	int64_t started_ms = clock_monotonic_ms(), cost_ms;
	char etag[OBJECT_ETAG_SIZE];
	struct object_info info = {0};
	uint64_t number;
	ssize_t items;
	FILE *f;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	f = manifest_file(s);
	items = f ? write_all(s, f) : 0;
	if (!f || fflush(f) != 0) {
		/* The disk is full: the manifest is small beside what it saves. */
		if (f)
			fclose(f);
		f = manifest_in_memory();
		items = f ? write_all(s, f) : 0;
	}
	cost_ms = clock_monotonic_ms() - started_ms;
	s->plan.manifest_dirty = false;
	number = ++s->uploads;
	snprintf(etag, sizeof(etag), "%s", s->manifest_etag);
	pthread_mutex_unlock(&s->lock);
	if (items < 0)
		rc = error_memory(err);
	else if (!f || fflush(f) != 0)
		rc = error_errno(err, errno, "cannot write the manifest");
	if (rc == 0 && (items || *etag))
		rc = put_manifest(s, fileno(f), (uint64_t)ftello(f), etag, number, &info, err);
	if (f)
		fclose(f);
	pthread_mutex_lock(&s->lock);
	if (rc < 0)
		s->plan.manifest_dirty = true;
	if (rc == 0 && info.etag[0]) {
		snprintf(s->manifest_etag, sizeof(s->manifest_etag), "%s", info.etag);
		s->journal_generation = ++s->generation;
		journal_add(s->journal, &(struct journal_record){.type = JOURNAL_MANIFEST,
						.etag = s->manifest_etag,
						.ident.size = s->generation});
	}
	s->manifest_ms = clock_monotonic_ms() + (cost_ms * MANIFEST_COST > MANIFEST_MS
								? cost_ms * MANIFEST_COST
								: MANIFEST_MS);
	pthread_mutex_unlock(&s->lock);
	object_info_release(&info);
	return rc;
}

int state_still_owner(struct sync *s, bool *owner, struct penstock_error *err)
{
	_cleanup_free_ char *key = NULL;
	struct object_info there = {0};
	const char *by;
	int rc;

	*owner = true;
	if (!s->conditions)
		return 0;
	if (asprintf(&key, "%smanifest.json", s->state) < 0)
		return error_memory(err);
	rc = object_head(s->o.client, s->o.bucket, key, &there, err);
	if (rc == -PENSTOCK_E_NOT_FOUND) {
		penstock_error_release(err); /* deleted: that is no other owner */
		return 0;
	}
	if (rc < 0)
		return rc;
	by = strlist_get(&there.metadata, "penstock-upload");
	pthread_mutex_lock(&s->lock);
	*owner = strcmp(there.etag, s->manifest_etag) == 0 ||
		 (by && strncmp(by, s->nonce, strlen(s->nonce)) == 0);
	pthread_mutex_unlock(&s->lock);
	object_info_release(&there);
	return 0;
}

void state_lost(struct sync *s)
{
	pthread_mutex_lock(&s->lock);
	s->plan.stopped = true;
	if (!s->lost)
		sync_emit(s, SYNC_LOST, NULL, 0,
			"another run took this output over; nothing more is published");
	s->lost = true;
	pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
}
