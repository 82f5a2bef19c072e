#include "model.h"
#include "log.h"

#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR 512

struct content {
	char *data;
	size_t size, room;
};

struct file;

struct entry {
	const char *name; /* points into the log */
	struct file *file;
};

struct names {
	struct entry *list;
	size_t n, room;
};

/* The states of a file or directory: as the program sees it, as it is certainly on disk, and as
 * model_build() creates it. */
enum view { LIVE, DURABLE, DRAFT, VIEWS };

struct file {
	uint64_t ino;
	bool directory;
	char path[PATH_MAX]; /* below the root, with the name that it was created with */
	struct content content[VIEWS];
	struct names names[VIEWS];
	unsigned pending; /* unsynced operations that concern the file */
	char *pooled; /* a copy of the file on disk, which hard links share */
};

/* A change that is not synced yet. A rename remains here until both directories are synced. */
struct op {
	const struct record *record;
	size_t position;
	struct file *file; /* the directory if the operation is on a name */
	struct file *other; /* the new directory of a rename */
	struct file *child;
	bool done, other_done;
};

struct model {
	const char *map;
	size_t map_len;
	const struct record **records;
	size_t n, at;
	struct file **files;
	size_t n_files, room_files;
	struct op *ops;
	size_t n_ops, room_ops;
	struct file *root;
	const char *ignore;
	char pool[PATH_MAX];
	unsigned n_pooled;
};

#define GROW(list, n, room)                                                                        \
	do {                                                                                       \
		if ((n) == (room)) {                                                               \
			(room) = (room) ? 2 * (room) : 16;                                         \
			(list) = reallocarray((list), (room), sizeof(*(list)));                    \
			if (!(list))                                                               \
				err(1, "out of memory");                                           \
		}                                                                                  \
	} while (0)

static const char *record_name(const struct record *r)
{
	return (const char *)(r + 1);
}

static const char *record_data(const struct record *r)
{
	return record_name(r) + r->name_len;
}

/* --- contents and names -------------------------------------------------------------------- */

static void content_resize(struct content *c, size_t size)
{
	if (size > c->room) {
		c->room = size * 2;
		c->data = realloc(c->data, c->room);
		if (!c->data)
			err(1, "out of memory");
	}
	if (size > c->size)
		memset(c->data + c->size, 0, size - c->size);
	c->size = size;
}

static void content_write(struct content *c, size_t offset, const char *data, size_t len)
{
	if (offset + len > c->size)
		content_resize(c, offset + len);
	memcpy(c->data + offset, data, len);
}

/* Names in the log are not terminated. */
static struct entry *names_find(struct names *names, const char *name, size_t len)
{
	for (size_t i = 0; i < names->n; i++)
		if (strlen(names->list[i].name) == len &&
			memcmp(names->list[i].name, name, len) == 0)
			return &names->list[i];
	return NULL;
}

static void names_remove(struct names *names, const char *name, size_t len)
{
	struct entry *e = names_find(names, name, len);

	if (e)
		*e = names->list[--names->n];
}

static void names_set(struct names *names, const char *name, size_t len, struct file *file)
{
	struct entry *e = names_find(names, name, len);

	if (!e) {
		GROW(names->list, names->n, names->room);
		e = &names->list[names->n++];
		e->name = strndup(name, len);
	}
	e->file = file;
}

static void file_copy(struct file *f, enum view from, enum view to)
{
	f->content[to].size = 0;
	content_resize(&f->content[to], f->content[from].size);
	if (f->content[from].size)
		memcpy(f->content[to].data, f->content[from].data, f->content[from].size);
	f->names[to].n = 0;
	for (size_t i = 0; i < f->names[from].n; i++) {
		GROW(f->names[to].list, f->names[to].n, f->names[to].room);
		f->names[to].list[f->names[to].n++] = f->names[from].list[i];
	}
}

/* --- the log ------------------------------------------------------------------------------- */

bool model_temporary(char *path, size_t size)
{
	const char *top = getenv("TMPDIR");

	snprintf(path, size, "%s/power-XXXXXX", top ? top : "/tmp");
	return mkdtemp(path) != NULL;
}

struct model *model_load(const char *path, const char *ignore)
{
	struct model *m = calloc(1, sizeof(*m));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t room = 0, at = 0;
	struct stat st;

	if (!m || fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0)
		err(1, "%s", path);
	m->map_len = (size_t)st.st_size;
	m->map = mmap(NULL, m->map_len, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (m->map == MAP_FAILED)
		err(1, "%s", path);
	m->ignore = ignore;
	if (!model_temporary(m->pool, sizeof(m->pool)))
		err(1, "%s", m->pool);
	while (at + sizeof(struct record) <= m->map_len) {
		const struct record *r = (const void *)(m->map + at);

		at += sizeof(*r) + r->name_len + r->data_len;
		at = (at + RECORD_ALIGN - 1) & ~(size_t)(RECORD_ALIGN - 1);
		if (at > m->map_len)
			errx(1, "'%s' ends within a record", path);
		if (r->type == RECORD_UNKNOWN)
			errx(1, "cannot use the log: '%.*s' is not recorded", (int)r->name_len,
				record_name(r));
		/* NOLINTNEXTLINE(bugprone-sizeof-expression): the elements are pointers */
		GROW(m->records, m->n, room);
		m->records[m->n++] = r;
	}
	return m;
}

void model_free(struct model *m)
{
	for (size_t i = 0; i < m->n_files; i++)
		if (m->files[i]->pooled)
			unlink(m->files[i]->pooled);
	rmdir(m->pool);
	munmap((void *)m->map, m->map_len);
	free(m);
}

size_t model_position(const struct model *m)
{
	return m->at;
}

size_t model_length(const struct model *m)
{
	return m->n;
}

size_t model_pending(const struct model *m)
{
	return m->n_ops;
}

size_t model_reply(const struct model *m, const char *id)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->records[i]->type == RECORD_REPLY && m->records[i]->name_len == strlen(id) &&
			memcmp(record_name(m->records[i]), id, strlen(id)) == 0)
			return i;
	return SIZE_MAX;
}

/* Returns the newest file with that inode: the file system reuses the number of a removed file. */
static struct file *find_file(const struct model *m, uint64_t ino)
{
	for (size_t i = m->n_files; i > 0; i--)
		if (m->files[i - 1]->ino == ino)
			return m->files[i - 1];
	return NULL;
}

static struct file *new_file(struct model *m, const struct record *r, struct file *dir)
{
	struct file *f = calloc(1, sizeof(*f));

	if (!f)
		err(1, "out of memory");
	f->ino = dir ? r->other : r->ino;
	f->directory = !dir || r->type == RECORD_MKDIR;
	if (dir)
		snprintf(f->path, sizeof(f->path), "%.2000s/%.*s", dir->path, (int)r->name_len,
			record_name(r));
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): the elements are pointers */
	GROW(m->files, m->n_files, m->room_files);
	m->files[m->n_files++] = f;
	return f;
}

/* --- operations ---------------------------------------------------------------------------- */

enum how { DROPPED, KEPT, TORN, SIZE_ONLY };

static void write_torn(struct content *c, const struct record *r, unsigned *seed)
{
	const char *data = record_data(r);

	/* A disk writes whole sectors of the file, wherever the call began. */
	for (size_t at = 0; at < r->data_len;) {
		size_t len = SECTOR - (r->offset + at) % SECTOR;

		if (len > r->data_len - at)
			len = r->data_len - at;
		if (rand_r(seed) % 2)
			content_write(c, r->offset + at, data + at, len);
		at += len;
	}
}

static void apply_data(struct content *c, const struct record *r, enum how how, unsigned *seed)
{
	size_t end = r->offset + (r->type == RECORD_WRITE ? r->data_len : 0);

	if (r->type == RECORD_TRUNCATE)
		content_resize(c, r->offset);
	else if (r->type == RECORD_WRITE && how == KEPT)
		content_write(c, r->offset, record_data(r), r->data_len);
	else if (r->type == RECORD_WRITE && how == TORN)
		write_torn(c, r, seed);
	else if (end > c->size)
		content_resize(c, end);
}

static void apply_name(const struct op *op, enum view view)
{
	const struct record *r = op->record;
	const char *name = record_name(r);
	size_t len = strnlen(name, r->name_len);

	if (r->type == RECORD_UNLINK) {
		names_remove(&op->file->names[view], name, len);
	} else if (r->type == RECORD_RENAME) {
		names_remove(&op->file->names[view], name, len);
		names_set(
			&op->other->names[view], name + len + 1, r->name_len - len - 1, op->child);
	} else {
		names_set(&op->file->names[view], name, len, op->child);
	}
}

static bool is_name_op(const struct op *op)
{
	uint32_t type = op->record->type;

	return type != RECORD_WRITE && type != RECORD_TRUNCATE && type != RECORD_EXTEND;
}

static void apply(const struct op *op, enum view view, enum how how, unsigned *seed)
{
	if (how == DROPPED)
		return;
	if (is_name_op(op))
		apply_name(op, view);
	else
		apply_data(&op->file->content[view], op->record, how, seed);
}

static void note_op(struct model *m, const struct record *r)
{
	struct op op = {.record = r, .position = m->at, .file = find_file(m, r->ino)};

	if (!op.file)
		errx(1, "record %zu changes a file that was never created", m->at);
	if (r->type == RECORD_CREATE || r->type == RECORD_MKDIR) {
		op.child = new_file(m, r, op.file);
	} else if (r->type == RECORD_LINK) {
		op.child = find_file(m, r->other);
	} else if (r->type == RECORD_RENAME) {
		struct entry *e = names_find(&op.file->names[LIVE], record_name(r),
			strnlen(record_name(r), r->name_len));

		op.other = find_file(m, r->other);
		op.child = e ? e->file : NULL;
		op.other_done = op.other == op.file;
		if (!op.other || !op.child)
			errx(1, "record %zu renames a file that was never created", m->at);
	}
	op.file->pending++;
	if (op.file->pooled) {
		unlink(op.file->pooled);
		free(op.file->pooled);
		op.file->pooled = NULL;
	}
	apply(&op, LIVE, KEPT, NULL);
	GROW(m->ops, m->n_ops, m->room_ops);
	m->ops[m->n_ops++] = op;
}

/* --- syncs --------------------------------------------------------------------------------- */

static bool in_class(const struct file *f, const char *class)
{
	const char *data = strstr(f->path, "/data");
	size_t len = strlen(f->path);

	if (strcmp(class, "wal") == 0)
		return len > 4 && strcmp(f->path + len - 4, "-wal") == 0;
	if (strcmp(class, "database") == 0)
		return len > 8 && strcmp(f->path + len - 8, "/meta.db") == 0;
	if (strcmp(class, "data") == 0)
		return data && !f->directory;
	if (strcmp(class, "data-dir") == 0)
		return data && f->directory && data[5];
	if (strcmp(class, "data-parent") == 0)
		return data && f->directory && !data[5];
	return strcmp(class, "root") == 0 && f->directory && !data;
}

bool model_at_commit(const struct model *m)
{
	const struct record *r = m->at < m->n ? m->records[m->at] : NULL;
	const struct file *f = r && r->type == RECORD_SYNC_END ? find_file(m, r->ino) : NULL;

	return !r || (f && in_class(f, "wal"));
}

static size_t sync_begin(const struct model *m, const struct record *end)
{
	for (size_t i = m->at; i > 0; i--) {
		const struct record *r = m->records[i - 1];

		if (r->type == RECORD_SYNC_BEGIN && r->process == end->process &&
			r->other == end->other)
			return i - 1;
	}
	errx(1, "record %zu ends a sync that never began", m->at);
}

static void sync_done(struct model *m, const struct record *r)
{
	size_t begin = sync_begin(m, r), left = 0;
	struct file *f = r->ino ? find_file(m, r->ino) : NULL;

	if (r->ino && !f)
		return;
	if (m->ignore && f && in_class(f, m->ignore))
		return;
	for (size_t i = 0; i < m->n_ops; i++) {
		struct op *op = &m->ops[i];

		if (op->position < begin) {
			op->done = op->done || !r->ino || op->file == f;
			op->other_done = op->other_done || !op->other || !r->ino || op->other == f;
		}
		if (op->done && op->other_done) {
			apply(op, DURABLE, KEPT, NULL);
			op->file->pending--;
		} else {
			m->ops[left++] = *op;
		}
	}
	m->n_ops = left;
}

static void process(struct model *m)
{
	const struct record *r = m->records[m->at];

	switch (r->type) {
	case RECORD_ROOT:
		if (!m->root)
			m->root = new_file(m, r, NULL);
		break;
	case RECORD_SYNC_END:
		sync_done(m, r);
		break;
	case RECORD_SYNC_BEGIN:
	case RECORD_REPLY:
		break;
	default:
		note_op(m, r);
	}
	m->at++;
}

bool model_next_point(struct model *m, size_t every)
{
	size_t n = 0;

	if (m->at == m->n)
		return false;
	do {
		n += m->records[m->at]->type != RECORD_REPLY;
		process(m);
	} while (m->at < m->n && (!every || n < every) &&
		 m->records[m->at]->type != RECORD_SYNC_END);
	return true;
}

/* --- building ------------------------------------------------------------------------------ */

struct chooser {
	unsigned mode, seed;
	unsigned odds; /* a change is kept with a probability of `odds` / 8 */
	size_t stop; /* number of changes that a prefix keeps */
};

static enum how choose(struct chooser *c, const struct op *op, size_t index)
{
	switch (c->mode) {
	case BUILD_NOTHING:
		return DROPPED;
	case BUILD_EVERYTHING:
		return KEPT;
	case BUILD_NO_DATA:
		return SIZE_ONLY;
	case BUILD_NO_NAMES:
		return is_name_op(op) ? DROPPED : KEPT;
	case BUILD_ONLY_NAMES:
		return is_name_op(op) ? KEPT : DROPPED;
	case BUILD_PREFIX:
		return index < c->stop			     ? KEPT
		       : index == c->stop && !is_name_op(op) ? TORN
							     : DROPPED;
	default:
		if ((unsigned)rand_r(&c->seed) % 8 >= c->odds)
			return is_name_op(op) || rand_r(&c->seed) % 4 ? DROPPED : SIZE_ONLY;
		return is_name_op(op) || rand_r(&c->seed) % 3 ? KEPT : TORN;
	}
}

static void write_file(const char *path, const struct content *c)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	for (size_t at = 0; fd >= 0 && at < c->size;) {
		ssize_t n = write(fd, c->data + at, c->size - at);

		if (n < 0)
			err(1, "%s", path);
		at += (size_t)n;
	}
	if (fd < 0 || close(fd) < 0)
		err(1, "%s", path);
}

static bool has_end(const char *path, const char *end)
{
	size_t len = strlen(path), end_len = strlen(end);

	return len >= end_len && strcmp(path + len - end_len, end) == 0;
}

/* Data files are not changed after they are complete, so those without unsynced operations can be
 * hard links to one copy. */
static bool link_pooled(struct model *m, struct file *f, const char *path)
{
	if (f->pending || !strstr(f->path, "/data/"))
		return false;
	if (!f->pooled) {
		if (asprintf(&f->pooled, "%s/%u", m->pool, m->n_pooled++) < 0)
			err(1, "out of memory");
		write_file(f->pooled, &f->content[DURABLE]);
	}
	return link(f->pooled, path) == 0;
}

static void build_tree(struct model *m, struct file *f, const char *path, unsigned *seed)
{
	if (!f->directory) {
		struct content *c = &f->content[DRAFT];

		if (link_pooled(m, f, path))
			return;
		/* SQLite writes its -shm file through a mapping, so its content after a crash is
		 * unknown: use random bytes. */
		if (has_end(f->path, "-shm"))
			for (size_t i = 0; i < c->size; i++)
				c->data[i] = (char)rand_r(seed);
		write_file(path, c);
		return;
	}
	if (mkdir(path, 0700) < 0 && f != m->root)
		err(1, "%s", path);
	for (size_t i = 0; i < f->names[DRAFT].n; i++) {
		char *below;

		if (asprintf(&below, "%s/%s", path, f->names[DRAFT].list[i].name) < 0)
			err(1, "out of memory");
		build_tree(m, f->names[DRAFT].list[i].file, below, seed);
		free(below);
	}
}

void model_build(struct model *m, unsigned mode, unsigned seed, const char *dir)
{
	struct chooser c = {.mode = mode, .seed = seed};

	c.odds = 1 + (unsigned)rand_r(&c.seed) % 7;
	c.stop = m->n_ops ? (unsigned)rand_r(&c.seed) % m->n_ops : 0;
	for (size_t i = 0; i < m->n_files; i++)
		if (m->files[i]->pending || m->files[i]->directory || !m->files[i]->pooled)
			file_copy(m->files[i], DURABLE, DRAFT);
	/* A rename changes a second directory, whose own changes may all be synced. */
	for (size_t i = 0; i < m->n_ops; i++)
		apply(&m->ops[i], DRAFT, choose(&c, &m->ops[i], i), &c.seed);
	build_tree(m, m->root, dir, &c.seed);
}

/* --- comparison of the log with the disk ----------------------------------------------------- */

static bool matches_file(const struct file *f, const char *path)
{
	const struct content *c = &f->content[LIVE];
	FILE *file = fopen(path, "rb");
	char *data = malloc(c->size + 1);
	bool same = false;

	if (file && data)
		same = fread(data, 1, c->size + 1, file) == c->size &&
		       (!c->size || memcmp(data, c->data, c->size) == 0);
	if (!same)
		printf("'%s' differs from the log\n", path);
	if (file)
		fclose(file);
	free(data);
	return same;
}

static bool matches_dir(struct file *f, const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	size_t n = 0;
	bool same = true;

	if (!dir)
		err(1, "%s", path);
	while ((entry = readdir(dir)) != NULL) {
		const char *name = entry->d_name;
		struct entry *e;
		char *below;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		n++;
		e = names_find(&f->names[LIVE], name, strlen(name));
		if (asprintf(&below, "%s/%s", path, name) < 0)
			err(1, "out of memory");
		if (!e)
			printf("'%s' is not in the log\n", below);
		if (!e || (e->file->directory && !matches_dir(e->file, below)) ||
			(!e->file->directory && !has_end(name, "-shm") &&
				!matches_file(e->file, below)))
			same = false;
		free(below);
	}
	closedir(dir);
	if (n < f->names[LIVE].n)
		printf("'%s' has %zu names in the log, and %zu on the disk\n", path,
			f->names[LIVE].n, n);
	return same && n == f->names[LIVE].n;
}

bool model_matches(struct model *m, const char *dir)
{
	while (m->at < m->n)
		process(m);
	return matches_dir(m->root, dir);
}
