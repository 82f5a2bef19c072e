#include "run/stage/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/str.h"

#define FORMAT 1 /* format of the file; other formats are ignored */

/* ---- writing ---- */

static json_t *mark_json(const struct stage_mark *m)
{
	/* An ETag that is not UTF-8 is left out. */
	return json_pack("{s:s, s:b, s:b, s:s, s:I, s:I, s:o*, s:s*}", "id", m->id, "fetched",
		m->fetched, "complete", m->complete, "source", m->source, "bytes",
		(json_int_t)m->bytes, "files", (json_int_t)m->files, "etag",
		m->etag ? json_string(m->etag) : NULL, "sha256", m->sha256[0] ? m->sha256 : NULL);
}

/* Writes the file. Call it with the lock held. */
static int save(const struct stage_state *state, struct penstock_error *err)
{
	json_auto_t *root = json_pack("{s:i, s:s, s:b, s:I, s:I, s:I, s:[]}", "format", FORMAT,
		"boot", state->boot, "mode_set", state->mode_set, "device",
		(json_int_t)state->device, "inode", (json_int_t)state->inode, "birth",
		(json_int_t)state->birth_ns, "inputs");
	_cleanup_free_ char *text = NULL;

	for (size_t i = 0; root && i < state->n; i++)
		json_array_append_new(json_object_get(root, "inputs"), mark_json(&state->marks[i]));
	text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
	if (!text)
		return error_memory(err);
	return fs_write_atomic(state->path, text, strlen(text), 0600, err);
}

int stage_state_set(struct stage_state *state, size_t i, const struct stage_mark *mark,
	struct penstock_error *err)
{
	LOCK_SCOPE(&state->lock);
	struct stage_mark *m = &state->marks[i];
	char *etag = mark->etag ? strdup(mark->etag) : NULL;

	if (mark->etag && !etag)
		return error_memory(err);
	free(m->etag);
	m->etag = etag;
	m->fetched = mark->fetched;
	m->complete = mark->complete;
	m->bytes = mark->bytes;
	m->files = mark->files;
	memcpy(m->sha256, mark->sha256, sizeof(m->sha256));
	return save(state, err);
}

int stage_state_set_mode(struct stage_state *state, struct penstock_error *err)
{
	LOCK_SCOPE(&state->lock);

	state->mode_set = true;
	return save(state, err);
}

bool stage_state_is_complete(const struct stage_state *state)
{
	for (size_t i = 0; i < state->n; i++) {
		if (!state->marks[i].complete)
			return false;
	}
	return true;
}

int stage_state_provenance(
	const struct stage_state *state, struct buf *out, struct penstock_error *err)
{
	json_auto_t *list = json_array();
	_cleanup_free_ char *text = NULL;

	for (size_t i = 0; list && i < state->n; i++) {
		json_t *o = mark_json(&state->marks[i]);

		json_object_del(o, "id");
		json_object_del(o, "fetched");
		json_object_del(o, "complete");
		json_array_append_new(list, o);
	}
	text = list ? json_dumps(list, JSON_COMPACT) : NULL;
	if (!text)
		return error_memory(err);
	return buf_add_str(out, text) < 0 ? buf_error(out, "the list of inputs", err) : 0;
}

/* ---- reading ---- */

static bool same_number(const json_t *root, const char *key, uint64_t value)
{
	return (uint64_t)json_integer_value(json_object_get(root, key)) == value;
}

static bool matches(const struct stage_state *state, const json_t *root)
{
	const json_t *inputs = json_object_get(root, "inputs");
	const char *boot = json_string_value(json_object_get(root, "boot"));

	if (!boot || strcmp(boot, state->boot) != 0)
		return false;
	if (!same_number(root, "format", FORMAT) || !same_number(root, "device", state->device) ||
		!same_number(root, "inode", state->inode) ||
		!same_number(root, "birth", state->birth_ns) || json_array_size(inputs) != state->n)
		return false;
	for (size_t i = 0; i < state->n; i++) {
		const char *id = json_string_value(
			json_object_get(json_array_get(inputs, i), "id"));

		if (!id || strcmp(id, state->marks[i].id) != 0)
			return false;
	}
	return true;
}

/* ---- the directory ---- */

static int identify(struct stage_state *state, const char *dir, struct penstock_error *err)
{
	struct statx st;

	process_boot_id(state->boot);
	if (statx(AT_FDCWD, dir, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &st) < 0)
		return error_errno(err, errno, "cannot get the status of '%s'", dir);
	state->device = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor;
	state->inode = st.stx_ino;
	state->birth_ns = st.stx_mask & STATX_BTIME
				  ? (uint64_t)st.stx_btime.tv_sec * NS_PER_S + st.stx_btime.tv_nsec
				  : 0;
	return 0;
}

/* Returns the name for JSON: if it is not UTF-8, bytes above 0x7f become %XX. free() the result. */
static char *printable(const char *source)
{
	json_auto_t *probe = json_string(source);
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	if (probe)
		return strdup(source);
	for (const unsigned char *p = (const unsigned char *)source; *p; p++) {
		if (*p < 0x80)
			buf_add_char(&out, (char)*p);
		else
			buf_printf(&out, "%%%02X", *p);
	}
	return buf_take(&out);
}

static int make_marks(struct stage_state *state, const char *const *ids, const char *const *sources,
	size_t n, struct penstock_error *err)
{
	state->marks = calloc(n + 1, sizeof(*state->marks));
	if (!state->marks)
		return error_memory(err);
	state->n = n;
	for (size_t i = 0; i < n; i++) {
		memcpy(state->marks[i].id, ids[i], sizeof(state->marks[i].id));
		state->marks[i].source = printable(sources[i]);
		if (!state->marks[i].source)
			return error_memory(err);
	}
	return 0;
}

static int open_state(
	struct stage_state *state, const struct run_layout *layout, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_JSON_DOCUMENT);
	json_auto_t *root = NULL;
	int r;

	state->path = path_join(layout->state, "stage.json");
	if (!state->path)
		return error_memory(err);
	r = fs_mkdirs(layout->state, 0700, err);
	if (r == 0)
		r = fs_mkdirs(layout->input, 0700, err);
	if (r == 0)
		r = identify(state, layout->input, err);
	if (r < 0)
		return r;
	/* An invalid file counts as a missing one. */
	if (fs_read(state->path, &text, NULL) == 0)
		root = json_loadb(buf_str(&text), text.len, 0, NULL);
	if (root && matches(state, root)) {
		state->mode_set = json_is_true(json_object_get(root, "mode_set"));
		for (size_t i = 0; i < state->n; i++) {
			const json_t *o = json_array_get(json_object_get(root, "inputs"), i);
			const char *etag = json_string_value(json_object_get(o, "etag"));
			const char *sha256 = json_string_value(json_object_get(o, "sha256"));
			struct stage_mark *m = &state->marks[i];

			m->fetched = json_is_true(json_object_get(o, "fetched"));
			m->complete = json_is_true(json_object_get(o, "complete"));
			m->bytes = (uint64_t)json_integer_value(json_object_get(o, "bytes"));
			m->files = (uint64_t)json_integer_value(json_object_get(o, "files"));
			if (etag && !(m->etag = strdup(etag)))
				return error_memory(err);
			if (sha256 && strlen(sha256) == 64)
				memcpy(m->sha256, sha256, sizeof(m->sha256));
		}
		return 0;
	}
	/* Remove all files of an earlier staging. */
	_cleanup_closedir_ DIR *dir = opendir(layout->state);
	const struct dirent *e;
	if (!dir)
		return error_errno(err, errno, "cannot list '%s'", layout->state);
	r = fs_remove_tree(layout->input, err);
	while (r == 0 && (e = fs_next_entry(dir))) {
		_cleanup_free_ char *path = NULL;

		if (!str_starts(e->d_name, "stage-"))
			continue;
		path = path_join(layout->state, e->d_name);
		r = path ? fs_remove_tree(path, err) : error_memory(err);
	}
	if (r == 0 && errno)
		r = error_errno(err, errno, "cannot list '%s'", layout->state);
	r = r < 0 ? r : fs_mkdirs(layout->input, 0700, err);
	if (r == 0)
		r = identify(state, layout->input, err);
	return r == 0 ? save(state, err) : r;
}

int stage_state_open(struct stage_state *state, const struct run_layout *layout,
	const char *const *ids, const char *const *sources, size_t n, struct penstock_error *err)
{
	int r;

	*state = (struct stage_state){0};
	pthread_mutex_init(&state->lock, NULL);
	r = make_marks(state, ids, sources, n, err);
	if (r == 0)
		r = open_state(state, layout, err);
	if (r < 0)
		stage_state_release(state);
	return r;
}

void stage_state_release(struct stage_state *state)
{
	if (!state->marks)
		return;
	for (size_t i = 0; i < state->n; i++) {
		free(state->marks[i].source);
		free(state->marks[i].etag);
	}
	free(state->marks);
	free(state->path);
	pthread_mutex_destroy(&state->lock);
	*state = (struct stage_state){0};
}
