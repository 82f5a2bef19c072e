/* Reads the manifest in the bucket at the start, and writes the manifest while the sync runs. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/must.h"
#include "sync/plan/line.h"
#include "sync/internal.h"

#define MANIFEST_MS   1000 /* minimum time between two manifests of a running sync */
#define MANIFEST_COST 20 /* minimum pause: this multiple of the time to write a manifest */

/* ---- read ---- */

/* Reads the manifest through a file in the private directory. Returns -PENSTOCK_E_NOT_FOUND if the
 * store has no manifest. */
static int fetch_manifest(const struct sync *s, struct manifest_head *head,
	struct object_info *info, manifest_fn fn, void *cookie, struct penstock_error *err)
{
	const struct sync_options *o = &s->o;
	_cleanup_free_ char *path = path_join(o->private_dir, "manifest.in");
	_cleanup_free_ char *name = str_printf(
		"%s://%s/%s", object_client_scheme(o->client), o->bucket, s->manifest);
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	FILE *f;
	int rc;

	if (!path || !name)
		return error_memory(err);
	rc = object_get_file(sync_at(s, s->manifest), path,
		&(struct object_get_options){.cancel = o->cancel}, info, &own);
	/* Only a reply of the store shows that there is no manifest. Without a reply the restore
	 * must fail: it must not continue as if there were no manifest. */
	if (rc == -PENSTOCK_E_NOT_FOUND && !own.http_status)
		return error_set(err, PENSTOCK_E_IO, "%s", own.message);
	if (rc < 0)
		return error_move(err, &own);
	f = fopen(path, "re");
	if (!f)
		return error_set(err, PENSTOCK_E_IO, "cannot read '%s': %m", path);
	unlink(path);
	rc = manifest_read(f, name, head, fn, cookie, err);
	fclose(f);
	if (rc == 0 && strcmp(head->run, o->run_id) != 0)
		rc = error_set(err, PENSTOCK_E_INVALID, "'%s' belongs to the run '%s', not to '%s'",
			name, head->run, o->run_id);
	return rc;
}

struct merge {
	struct sync *s;
	const struct manifest_head *head; /* read before the first item */
	const struct object_info *info; /* read before the first item */
	/* the manifest is newer than the journal: another machine has owned the run since */
	bool newer;
	bool older; /* the manifest is from an attempt before the run started over */
	uint64_t older_files, older_bytes;
	bool memory;
};

/* Merges one file of the manifest with the journal and the directory. */
static void merge_file(struct merge *m, struct entry *e, const struct manifest_item *item)
{
	struct ident ident = {.size = item->size, .mtime_ns = item->mtime_ns};
	bool local = (e->work || e->seen.ino != 0) && e->state != ENTRY_GONE;
	bool older = m->older || item->older;
	char etag[ENTRY_ETAG_SIZE];

	if (e->state == ENTRY_PARKED) /* the entry has an object, so it needs a `struct work` */
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
	/* The flag is also set for a file that was written locally since. Until that file is
	 * published, the object is from the older attempt. */
	if (older)
		e->flags |= ENTRY_OLDER;
	if (S_ISREG(item->mode)) {
		e->flags &= (uint16_t) ~(ENTRY_HAS_CRC | ENTRY_APPENDED);
		e->flags |= ENTRY_PUBLISHED | (item->has_crc ? ENTRY_HAS_CRC : 0);
		e->crc = item->crc;
		m->memory |= entry_set_etag(e, item->etag) < 0;
		if (e->work) {
			e->work->published = ident;
		} else if (local) { /* the local file is older */
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
	plan_set_state(&m->s->plan, e, EVENT_RECORDED, ENTRY_GONE);
	if (!item->deleted && !older)
		e->flags |= ENTRY_KEEP;
}

static int merge_item(void *cookie, enum manifest_list list, const struct manifest_item *item)
{
	struct merge *m = cookie;
	struct entry *e;

	LOCK_SCOPE(&m->s->lock);
	m->newer = m->head->generation > m->s->journal_generation &&
		   !leftovers_is_ours(m->s, m->info);
	m->older = m->head->attempt < m->s->o.began;
	if (list == MANIFEST_REPLACED) {
		m->memory |= keep_add(m->s, item->path, item->etag, item->kept ? item->kept : "",
				     item->size) < 0;
		return m->memory;
	}
	e = table_get_path(&m->s->table, item->path);
	if (!e) { /* another kind of file has the name now, or out of memory */
		m->memory |= errno == ENOMEM;
		return m->memory;
	}
	if (list == MANIFEST_PARTIAL)
		e->flags |= ENTRY_IN_PARTIAL;
	else
		merge_file(m, e, item);
	return m->memory;
}

/* Deletes the object of a file that is gone, if deletion is allowed now and this run published the
 * object. */
static int settle_gone(void *cookie, struct entry *e)
{
	struct sync *s = cookie;

	if (s->plan.may_delete && e->state == ENTRY_GONE && !e->work && !e->below &&
		(e->flags & ENTRY_PUBLISHED) && !(e->flags & ENTRY_OLDER)) {
		plan_delete(&s->plan, e, clock_monotonic_ms());
	}
	return 0;
}

int state_attach(struct sync *s, struct penstock_error *err)
{
	struct manifest_head head = {.generation = 0};
	_cleanup_(object_info_release) struct object_info info = {0};
	struct merge merge = {.s = s, .head = &head, .info = &info};
	struct object_conditions honoured = {0};
	bool found, restored;
	int rc = object_probe_conditions(sync_at(s, s->state), &honoured, err);

	if (rc < 0)
		return rc;
	rc = fetch_manifest(s, &head, &info, merge_item, &merge, err);
	found = rc == 0;
	if (error_expected(rc, PENSTOCK_E_NOT_FOUND, err))
		rc = 0;
	if (rc == 0 && merge.memory)
		rc = error_memory(err);
	if (rc == 0)
		rc = keep_find(s, err);
	if (rc < 0)
		return rc;
	if (merge.older_files)
		sync_emit(s, SYNC_KEPT, NULL, merge.older_bytes, "%" PRIu64 " file%s",
			merge.older_files, merge.older_files == 1 ? "" : "s");
	leftovers_end(s, found);
	pthread_mutex_lock(&s->lock);
	s->conditions = honoured.put;
	s->complete_conditions = honoured.complete;
	s->remove_conditions = honoured.remove;
	s->generation = head.generation;
	/* An earlier sync was killed after it wrote the manifest and before the journal recorded
	 * the manifest: the local files are as new as the manifest. */
	if (s->generation > s->journal_generation && leftovers_is_ours(s, &info))
		s->journal_generation = s->generation;
	snprintf(s->manifest_etag, sizeof(s->manifest_etag), "%s", found ? info.etag : "");
	s->manifest_ns = info.modified_ns;
	restored = !found || s->restored_generation == head.generation;
	/* If the run started over there is nothing to restore: the objects are older, and attempts
	 * since then do not treat them as their own. */
	s->plan.may_retire = restored || head.attempt < s->o.began;
	s->plan.may_delete = s->o.delete_sync && s->plan.may_retire;
	if (s->o.delete_sync && !s->plan.may_delete)
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"deleteSync deletes nothing: the earlier state of this run was not "
			"restored");
	table_each(&s->table, settle_gone, s);
	/* Write a manifest that marks the older objects, so that an attempt that continues this one
	 * does not treat them as its own. */
	s->plan.manifest_dirty |= merge.older;
	/* The last publications of an attempt that was killed are in the journal, and perhaps in no
	 * manifest. */
	s->plan.manifest_dirty |= s->continued;
	s->attached = true;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* ---- written ---- */

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
		sync_partial_key(w->s, item.path, &kept);
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
			return 0; /* known only as the parent of a file that existed earlier */
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

/* Writes a whole manifest. Returns the number of entries, or -1 if out of memory. Under lock. */
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

/*
 * Examines the manifest in the bucket after the store has refused a condition. Returns 1 if the
 * bucket has the manifest to be written, and only the reply was lost. Returns 0 if the manifest
 * must be sent again, because the bucket has no manifest, or has an earlier manifest of this
 * process that got no reply: `etag` is then the ETag that the object must have. Returns
 * -PENSTOCK_E_PRECONDITION if another run wrote the manifest.
 */
static int manifest_conflict(struct sync *s, const char *upload, char etag[OBJECT_ETAG_SIZE],
	struct object_info *info, struct penstock_error *err)
{
	struct object_info there = {0};
	const char *by;
	bool ours;
	int rc = object_head(sync_at(s, s->manifest), &there, err);

	if (error_expected(rc, PENSTOCK_E_NOT_FOUND, err)) {
		/* A missing manifest does not mean that another run took the output over. */
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
			      "cannot publish any more: another run has taken over this output");
}

static int put_manifest(struct sync *s, int fd, uint64_t size, char etag[OBJECT_ETAG_SIZE],
	uint64_t number, struct object_info *info, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist metadata = {0};
	_cleanup_free_ char *upload = str_printf("%s-m%lu", s->nonce, (unsigned long)number);

	if (!upload || strlist_addf(&metadata, "penstock-upload=%s", upload) < 0)
		return error_memory(err);
	for (bool again = false;; again = true) {
		int rc = object_put_file(sync_at(s, s->manifest), fd, size,
			&(struct object_put_options){
				.if_match = s->conditions && *etag ? etag : NULL,
				.if_none_match = s->conditions && !*etag,
				.content_type = "application/json",
				.metadata = &metadata,
				/* limits the memory, because the manifest and the table of many
				 * files are large */
				.parallel = 1,
				.cancel = &s->cancel},
			info, err);

		if (again ||
			!(rc == -PENSTOCK_E_PRECONDITION || (rc == -PENSTOCK_E_NOT_FOUND && *etag)))
			return rc;
		penstock_error_release(err);
		rc = manifest_conflict(s, upload, etag, info, err);
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
	/* otherwise the new manifest would lack files of the manifest in the bucket */
	MUST(s->attached);
	f = stream_of(open(s->o.private_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	items = f ? write_all(s, f) : 0;
	if (!f || !manifest_written(f)) {
		/* If the disk is full, the manifest is written in memory: it is small compared with
		 * the files that it lists. */
		if (f)
			fclose(f);
		f = stream_of(memfd_create("penstock-manifest", MFD_CLOEXEC));
		items = f ? write_all(s, f) : 0;
	}
	cost_ms = clock_monotonic_ms() - started_ms;
	s->plan.manifest_dirty = false;
	number = ++s->uploads;
	snprintf(etag, sizeof(etag), "%s", s->manifest_etag);
	pthread_mutex_unlock(&s->lock);
	if (items < 0)
		rc = error_memory(err);
	else if (!f || !manifest_written(f))
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
	_cleanup_(object_info_release) struct object_info there = {0};
	char before[OBJECT_ETAG_SIZE];
	const char *by;
	int rc;

	*owner = true;
	if (!s->conditions)
		return 0;
	/* Compare with the ETags from before and after the request, because this process may write
	 * the manifest meanwhile. */
	pthread_mutex_lock(&s->lock);
	snprintf(before, sizeof(before), "%s", s->manifest_etag);
	pthread_mutex_unlock(&s->lock);
	rc = object_head(sync_at(s, s->manifest), &there, err);
	if (rc < 0) /* a missing manifest does not mean that there is another owner */
		return error_expected(rc, PENSTOCK_E_NOT_FOUND, err) ? 0 : rc;
	by = strlist_get(&there.metadata, "penstock-upload");
	LOCK_SCOPE(&s->lock);
	*owner = strcmp(there.etag, before) == 0 || strcmp(there.etag, s->manifest_etag) == 0 ||
		 (by && strncmp(by, s->nonce, strlen(s->nonce)) == 0);
	return 0;
}

void state_lost(struct sync *s)
{
	LOCK_SCOPE(&s->lock);
	s->plan.stopped = true;
	if (!s->status.lost)
		sync_emit(s, SYNC_LOST, NULL, 0,
			"another run took this output over; nothing more is published");
	s->status.lost = true;
	pthread_cond_broadcast(&s->idle);
}
