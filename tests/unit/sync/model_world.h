/* The world of the model: files, the programs that write them, and the events of these programs;
 * the observer and the journal, which handle the events. */
#ifndef TESTS_SYNC_MODEL_WORLD_H
#define TESTS_SYNC_MODEL_WORLD_H

#include "plan_fixture.h"

#include "base/cleanup.h"
#include "sync/plan/state.h"

#define RUNS	   1500
#define RACING	   (1U << 24) /* flag in a seed: programs run while the sync works */
#define STEPS	   80
#define BURST	   700 /* files at once, more than the queue of a directory can hold */
#define N_NAMES	   (8 + BURST)
#define VERSIONS   16384
#define EVENTS	   16384
#define LARGES	   64
#define JOBS	   4
#define DELIVER_MS 400 /* largest delay of an event */

enum status {
	WRITING,
	GOOD,
	DEAD,
	EITHER /* closed so close to a kill that both results are correct */
};

/* One content of a file. */
struct version {
	enum status status;
	uint64_t log; /* not 0 for a version of a file that was only appended to */
	uint64_t size;
};

struct file {
	bool exists, open, append;
	bool unsure; /* the plan may not know how the file's last writer ended */
	bool untold; /* at a restart: an event of the file was not delivered */
	enum close_kind fate; /* reported to the plan if the writer is not killed */
	unsigned version;
	uint64_t seq; /* number of its last close */
	bool large; /* the last close counts, and left a large file */
	uint64_t larges[LARGES]; /* numbers of the last closes, if all of them left a large file */
	unsigned n_larges;
	int64_t closed_ms;
	struct ident ident;
	int64_t opened_ms;
};

struct object {
	unsigned version; /* 0 if there is no object */
	uint64_t seq, ino;
};

struct event {
	char kind; /* 'm'odified, 'c'losed, 'v' moved here, 'a'ppeared, 'g'one */
	unsigned name;
	enum close_kind fate;
	int64_t at_ms;
};

struct upload {
	struct job job;
	unsigned name, version;
	uint64_t seq;
	struct ident ident;
	enum job_outcome outcome; /* JOB_DONE if not known at the start of the upload */
	enum job_kind kind;
	bool copy; /* sent from a copy, not from the file */
	bool busy;
	bool sent; /* the upload was valid before its last byte, so its object may appear */
	bool there; /* the store has the object, and its reply is in flight */
};

/* The state of an object according to the replies of the store. */
struct replies {
	uint64_t ino; /* inode of the published file; 0 if missing */
	/* inode of the file whose upload has failed since; UINT64_MAX for several files */
	uint64_t failed;
	bool open; /* the last request got no reply */
};

/* The state of a file according to the journal. */
struct record {
	bool published, has_close, suspect, gone, appended;
	struct ident object, close;
	uint64_t crc;
	char etag[ENTRY_ETAG_SIZE];
};

struct world {
	struct fixture f;
	uint64_t random;
	struct file files[N_NAMES];
	struct object store[N_NAMES], partial[N_NAMES];
	struct replies replies[N_NAMES];
	struct record journal[N_NAMES];
	/* Retention removed the file, so its object has to be deleted (retired), or may be deleted
	 * if the file returned (permitted). */
	bool retired[N_NAMES], permitted[N_NAMES];
	bool failed[N_NAMES], passed[N_NAMES];
	/* the reply to the upload of the object was lost (unsure), and penstock was then killed
	 * (forgotten) */
	bool unsure[N_NAMES], forgotten[N_NAMES];
	struct version versions[VERSIONS];
	unsigned n_versions;
	struct event events[EVENTS];
	unsigned n_events;
	struct upload uploads[JOBS];
	uint64_t seq, ticks;
	bool flaky, deadline, burst, racing;
	bool running; /* programs run while the sync works */
	unsigned n_names; /* number of names in use */
	unsigned step;
};

static struct world *world;
static jmp_buf failure;
static char what[256];
static bool trace;
static char seed_line[32]; /* printed by an abort */

static inline void broken(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static inline void broken(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	longjmp(failure, 1);
}

#define SAY(...)                                                                                   \
	do {                                                                                       \
		if (trace) {                                                                       \
			printf("%7lld ", (long long)world->f.now);                                 \
			printf(__VA_ARGS__);                                                       \
			putchar('\n');                                                             \
		}                                                                                  \
	} while (0)

static inline unsigned rnd(unsigned n)
{
	world->random = world->random * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (unsigned)((world->random >> 33) % n);
}

static const char *name_of(unsigned n)
{
	static const char *const few[] = {
		"a", "b", "latest", "d/x", "d/y", "d/latest", "d/log", "e/COMMIT.json"};
	static char many[32];

	if (n < 8)
		return few[n];
	snprintf(many, sizeof(many), "p/f%u", n - 8);
	return many;
}

static inline unsigned number_of(const struct entry *e)
{
	struct buf path = BUF_INIT(256);
	unsigned n = 0;

	entry_path(e, &path);
	if (str_starts(buf_str(&path), "p/f"))
		n = 8 + (unsigned)strtoul(buf_str(&path) + 3, NULL, 10);
	else
		while (strcmp(name_of(n), buf_str(&path)) != 0)
			n++;
	buf_release(&path);
	return n;
}

static inline bool same_dir(unsigned a, unsigned b)
{
	const char *x = strchr(name_of(a), '/'), *y;
	char dir = x ? *name_of(a) : 0;

	y = strchr(name_of(b), '/');
	return dir == (y ? *name_of(b) : 0);
}

static inline struct version *version_of(unsigned v)
{
	return &world->versions[v];
}

static inline struct entry *entry_of(unsigned n)
{
	return table_find_path(&world->f.table, name_of(n));
}

/* ---- the journal ---- */

static inline void on_record(
	void *cookie, enum journal_type type, struct entry *e, const struct ident *ident)
{
	struct record *r = &world->journal[number_of(e)];

	(void)cookie;
	switch (type) {
	case JOURNAL_PUBLISHED:
	case JOURNAL_APPENDED:
	case JOURNAL_GONE:
		*r = (struct record){.published = true,
			.appended = type == JOURNAL_APPENDED,
			.gone = type == JOURNAL_GONE,
			.object = *ident,
			.crc = e->crc};
		entry_etag(e, r->etag);
		break;
	case JOURNAL_CLOSED:
	case JOURNAL_SUSPECT:
		r->has_close = true;
		r->suspect = type == JOURNAL_SUSPECT;
		r->close = *ident;
		break;
	default:
		*r = (struct record){.published = false};
	}
}

/* ---- files, and the events about them ---- */

static inline void event(char kind, unsigned n, enum close_kind fate)
{
	if (world->n_events == EVENTS)
		broken("too many events");
	world->events[world->n_events++] = (struct event){kind, n, fate, world->f.now};
}

static inline void touch(struct file *f)
{
	f->ident.mtime_ns = f->ident.ctime_ns = (int64_t)++world->ticks;
}

static inline void new_version(struct file *f, enum status status, uint64_t size, uint64_t log)
{
	if (++world->n_versions == VERSIONS)
		broken("too many versions");
	f->version = world->n_versions;
	*version_of(f->version) = (struct version){status, log, size};
	f->ident.size = size;
}

static inline void create(unsigned n)
{
	struct file *f = &world->files[n];

	*f = (struct file){.exists = true, .ident.ino = ++world->ticks};
	new_version(f, WRITING, 0, 0);
	touch(f);
	world->retired[n] = false;
	event('a', n, CLOSE_TRUE);
}

static inline void write_file(unsigned n)
{
	struct file *f = &world->files[n];
	uint64_t log = f->append ? version_of(f->version)->log : 0;
	uint64_t size = rnd(3) ? 1 + rnd(1000) : LARGE + rnd(1000);

	if (f->append) {
		size = f->ident.size + 1 + rnd(100);
		log = log ? log : ++world->ticks;
	}
	new_version(f, WRITING, size, log);
	touch(f);
	event('m', n, CLOSE_TRUE);
}

static inline void open_file(unsigned n)
{
	static const enum close_kind fates[] = {CLOSE_TRUE, CLOSE_TRUE, CLOSE_UNSEEN, CLOSE_EXIT};
	struct file *f = &world->files[n];
	bool append = n == 6;

	if (!f->exists)
		create(n);
	else if (!append)
		write_file(n); /* the file is truncated */
	f->open = true;
	f->append = append;
	f->opened_ms = world->f.now;
	f->fate = fates[rnd(world->burst ? 2 : 4)];
}

static inline void note_large(struct file *f)
{
	if (!f->large || f->n_larges == LARGES)
		f->n_larges = 0;
	if (f->large)
		f->larges[f->n_larges++] = f->seq;
}

static inline void close_file(unsigned n)
{
	struct file *f = &world->files[n];
	struct version *v = version_of(f->version);

	f->open = false;
	f->unsure = f->fate != CLOSE_TRUE;
	if (v->status == WRITING)
		v->status = GOOD;
	f->large = v->status == GOOD && f->ident.size > PLAN_MARKER;
	f->seq = ++world->seq;
	note_large(f);
	f->closed_ms = world->f.now;
	event('c', n, f->fate);
}

/* Makes a program open, write or close a file. */
static inline void use_file(unsigned n, unsigned op)
{
	struct file *f = &world->files[n];

	if (op < 9) {
		if (!f->open && op < 7)
			open_file(n);
		if (f->open)
			write_file(n);
		if (f->open && rnd(3))
			close_file(n);
		SAY("writes %s: version %u, %u bytes%s", name_of(n), f->version,
			(unsigned)f->ident.size, f->open ? ", open" : "");
	} else if (f->open) {
		close_file(n);
		SAY("closes %s", name_of(n));
	}
}

/* Lets programs run between two calls of the sync that concern the file `n`. */
static inline void let_programs_run(unsigned n)
{
	if (world->running && rnd(4) == 0)
		use_file(rnd(2) ? n : rnd(7), rnd(11));
}

static inline void remove_file(unsigned n)
{
	world->files[n] = (struct file){.exists = false};
	event('g', n, CLOSE_TRUE);
}

/* A living process renames the file, so its content counts as closed. */
static inline void rename_file(unsigned from, unsigned to)
{
	struct file *f = &world->files[to];

	*f = world->files[from];
	world->files[from] = (struct file){.exists = false};
	f->ident.ctime_ns = (int64_t)++world->ticks;
	f->large = !f->open && f->ident.size > PLAN_MARKER;
	if (!f->open) {
		uint64_t log = version_of(f->version)->log;

		if (version_of(f->version)->status != GOOD)
			new_version(f, GOOD, f->ident.size, log);
		f->unsure = false;
		f->seq = ++world->seq;
		f->closed_ms = world->f.now;
	}
	f->n_larges = 0;
	note_large(f);
	world->retired[to] = false;
	event('g', from, CLOSE_TRUE);
	event('v', to, CLOSE_TRUE);
}

/* ---- events that observe.c makes ---- */

static inline void look(unsigned n)
{
	struct plan *p = &world->f.plan;
	struct file *f = &world->files[n];
	struct entry *e = entry_of(n);
	struct work *w;
	int rc = 0;

	if (!f->exists) {
		if (e)
			plan_gone(p, e, world->f.now);
		return;
	}
	e = at(&world->f, name_of(n));
	w = e->work;
	e->flags &= (uint16_t)~ENTRY_KEEP;
	if (w && e->state != ENTRY_GONE)
		return;
	if (e->state == ENTRY_GONE && !(w && w->send != SEND_IDLE))
		plan_returned(p, e);
	if (!e->work && ident_equal(&e->seen, &f->ident) && !(e->flags & ENTRY_APPENDED))
		return;
	if (f->open)
		rc = plan_changed(p, e, world->f.now);
	else
		rc = plan_closed(p, e, &f->ident, 0100644, CLOSE_UNSEEN, world->f.now);
	if (!f->open)
		plan_found(e);
	assert_int_equal(rc, 0);
}

static inline void on_close(unsigned n, bool moved, enum close_kind fate)
{
	struct file *f = &world->files[n];
	struct entry *e = entry_of(n);
	bool refused;

	if (!e || !e->work) {
		look(n);
		e = entry_of(n);
		if (!e)
			return;
		if (e->work && !e->work->modified && e->state == ENTRY_CLOSED) {
			plan_seen(e, moved);
			return;
		}
	}
	if (!f->exists)
		return;
	if (moved)
		plan_rewritten(e);
	if (moved || !e->work)
		fate = CLOSE_TRUE;
	/* The kernel refuses a lease on the file if the file was opened again, or if the kernel
	 * still counts the writer although it has reported the close. */
	refused = fate != CLOSE_KILLED && (f->open || (world->racing && rnd(4) == 0));
	plan_closed(
		&world->f.plan, e, &f->ident, 0100644, refused ? CLOSE_EXIT : fate, world->f.now);
	if (!refused)
		return;
	f->unsure = true;
	plan_refused(&world->f.plan, e, fate, world->f.now);
}

/* Requests refused leases on files again, as observe_writers() does. */
static inline void judge_again(void)
{
	for (struct work *w = world->f.table.works, *next; w; w = next) {
		const struct file *f = &world->files[number_of(w->entry)];

		next = w->all_next;
		if (w->entry->state == ENTRY_OPEN && w->opening->by_lease && f->exists && !f->open)
			plan_closed(&world->f.plan, w->entry, &f->ident, 0100644,
				w->opening->closed_as, world->f.now);
	}
}

static inline void deliver(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const struct event ev = world->events[i];
		struct entry *e = entry_of(ev.name);

		SAY("  event %c of %s", ev.kind, name_of(ev.name));

		switch (ev.kind) {
		case 'm':
			e = at(&world->f, name_of(ev.name));
			plan_changed(&world->f.plan, e, world->f.now);
			if (world->files[ev.name].append)
				e->work->appender = true;
			break;
		case 'c':
		case 'v':
			on_close(ev.name, ev.kind == 'v', ev.fate);
			break;
		default:
			look(ev.name);
		}
	}
	world->n_events -= n;
	memmove(world->events, world->events + n, world->n_events * sizeof(world->events[0]));
}

static inline void deliver_all(void)
{
	deliver(world->n_events);
}

/* Delivers some of the events; both events of a rename are delivered together. */
static inline void deliver_some(void)
{
	unsigned n = world->n_events ? rnd(world->n_events + 1) : 0;

	while (n && n < world->n_events && world->events[n].kind == 'v')
		n++;
	deliver(n);
}

/* Compares every name with the plan. An open file that has no writer any more was closed. */
static inline void scan(void)
{
	deliver_all();
	for (unsigned n = 0; n < world->n_names; n++) {
		struct file *f = &world->files[n];
		struct entry *e = entry_of(n);

		if (!f->exists && !e)
			continue;
		if (f->exists && e && e->state == ENTRY_OPEN && !f->open &&
			e->work->send == SEND_IDLE)
			plan_closed(
				&world->f.plan, e, &f->ident, 0100644, CLOSE_UNSEEN, world->f.now);
		else
			look(n);
	}
}

#endif
