#include "ui/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "records/layout.h"
#include "records/records.h"
#include "ui/answer.h"
#include "ui/log_copy.h"
#include "ui/outputs.h"
#include "ui/verb.h"

#define BLOCK	 (256 * KIB)
#define INDEXES	 8 /* maximum number of indexes in memory */
#define MATCHES	 1000 /* maximum number of matches in a reply */
#define SEARCHED (256 * MIB) /* bytes after which a search ends, and reports where to continue */
#define POLL_MS	 50
#define WAIT_MS	 20000
#define FETCH_MS 60000

/* Maximum number of places in an index, which has the place of every `every`-th line. */
#define PLACES 10000
struct log_index {
	char *path; /* NULL if unused */
	uint64_t file; /* inode number */
	uint64_t size; /* bytes that were scanned */
	uint64_t lines; /* lines that begin in these bytes */
	bool between; /* the next byte begins a line */
	uint64_t every; /* a power of two */
	uint64_t *places; /* array of PLACES byte offsets */
	size_t n;
	uint64_t used; /* value of log_cache.uses at the last use */
};

struct log_cache {
	pthread_mutex_t lock;
	struct log_index indexes[INDEXES];
	uint64_t uses;
};

/* A log that is open. */
struct log {
	char *path;
	int fd;
	uint64_t size;
	uint64_t file;
	bool live; /* the log may grow */
};

static void log_release(struct log *log)
{
	free(log->path);
	if (log->fd >= 0)
		close(log->fd);
}

/* ---- opening ---- */

/* Returns true while the supervisor of the run lives, and has started no later attempt. */
static bool is_live(const struct ui *ui, const char *id, int64_t attempt)
{
	_cleanup_(run_layout_release) struct run_layout next = {0};
	_cleanup_close_ int fd = -1;

	if (run_layout_init(&next, ui->home, id, (int)attempt + 1, NULL) < 0 ||
		access(next.log, F_OK) == 0)
		return false;
	fd = open(next.lock, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && fs_lock_held(fd);
}

/* Makes `penstock logs` fetch the log of an attempt on another machine to this machine. */
static int fetch(const struct ui *ui, const char *id, int64_t attempt, struct penstock_error *err)
{
	_cleanup_(verb_result_release) struct verb_result result = VERB_RESULT_INIT;
	_cleanup_(strlist_release) struct strlist words = {0};
	int r;

	if (verb_add(&words, "logs", "--lines=0", NULL) < 0 ||
		strlist_addf(&words, "--attempt=%" PRId64, attempt) < 0 ||
		verb_add(&words, "--", id, NULL) < 0)
		return error_memory(err);
	r = verb_run(&words, FETCH_MS, &ui->stopping, &result, err);
	if (r == 0 && result.code)
		r = error_set(err, PENSTOCK_E_NOT_FOUND, "%s", buf_str(&result.message));
	return r;
}

static int open_log(struct log *log, const struct ui *ui, const char *id, int64_t attempt,
	struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	struct stat st;
	int r = run_layout_init(&layout, ui->home, id, (int)attempt, err);

	if (r < 0)
		return r;
	log->path = take_pointer(layout.log);
	log->live = is_live(ui, id, attempt);
	log->fd = open(log->path, O_RDONLY | O_CLOEXEC);
	/* Do not fetch the log of a live run: a run that waits has no log yet. */
	if (log->fd < 0 && errno == ENOENT && !log->live) {
		r = fetch(ui, id, attempt, err);
		log->fd = r < 0 ? -1 : open(log->path, O_RDONLY | O_CLOEXEC);
	}
	if (r < 0 || (log->fd < 0 && log->live && errno == ENOENT))
		return r;
	if (log->fd < 0 || fstat(log->fd, &st) < 0)
		return error_errno(err, errno, "cannot open the log of attempt %" PRId64, attempt);
	log->size = (uint64_t)st.st_size;
	log->file = st.st_ino;
	return 0;
}

/* Opens the copy of a log of another machine. */
static int open_copy(struct log *log, struct exchange *x, const char *id, int64_t attempt,
	struct penstock_error *err)
{
	struct stat st;

	log->path = log_copy(x->ui, param(x, "place"), id, (int)attempt, err);
	if (!log->path)
		return -(int)err->code;
	log->live = outputs_is_live(x->ui, id);
	log->fd = open(log->path, O_RDONLY | O_CLOEXEC);
	if (log->fd < 0 || fstat(log->fd, &st) < 0)
		return error_errno(err, errno, "cannot open '%s'", log->path);
	log->size = (uint64_t)st.st_size;
	log->file = st.st_ino;
	return 0;
}

/* Opens the log that the request names. Returns false after an error reply, with its result in
 * `*sent`. */
static bool open_named(struct exchange *x, struct log *log, enum MHD_Result *sent)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *id = param(x, "run");
	int64_t attempt;
	int r;

	if (!records_is_id(id) || !param_number(x, "attempt", 1, INT32_MAX - 1, 1, &attempt)) {
		*sent = answer_error(x, MHD_HTTP_BAD_REQUEST,
			"'run' must be a whole id, and 'attempt' the number of an attempt");
		return false;
	}
	r = verb_place_url(param(x, "place")) ? open_copy(log, x, id, attempt, &err)
					      : open_log(log, x->ui, id, attempt, &err);
	if (r == 0)
		return true;
	*sent = answer_failure(x, &err);
	return false;
}

/* ---- bytes ---- */

/* Waits until the log is longer than `size` or ends, for WAIT_MS at most. Returns false after an
 * error reply, with its result in `*sent`. */
static bool wait_for_more(struct exchange *x, struct log *log, uint64_t size, enum MHD_Result *sent)
{
	int64_t end = clock_monotonic_ms() + WAIT_MS;

	while (log->live && log->size <= size && clock_monotonic_ms() < end &&
		!atomic_load(&x->ui->stopping)) {
		struct log now = {.fd = -1};

		clock_sleep_ms(POLL_MS);
		if (!open_named(x, &now, sent)) {
			log_release(&now);
			return false;
		}
		log_release(log);
		*log = now;
	}
	return true;
}

enum MHD_Result log_bytes(struct exchange *x)
{
	_cleanup_(log_release) struct log log = {.fd = -1};
	_cleanup_(buf_release) struct buf body = BUF_INIT(LIMIT_UI_PIECE + 1);
	struct MHD_Response *response;
	enum MHD_Result sent = MHD_NO;
	char number[24], *data;
	int64_t offset, length;
	ssize_t n = 0;

	if (!param_number(x, "offset", -LIMIT_UI_PIECE, INT64_MAX, 0, &offset) ||
		!param_number(x, "length", 1, LIMIT_UI_PIECE, LIMIT_UI_PIECE, &length))
		return answer_error(x, MHD_HTTP_BAD_REQUEST, "invalid offset or length");
	if (!open_named(x, &log, &sent))
		return sent;
	if (offset < 0)
		offset = (uint64_t)-offset > log.size ? 0 : (int64_t)log.size + offset;
	if (param(x, "wait") && !wait_for_more(x, &log, (uint64_t)offset, &sent))
		return sent;
	data = buf_reserve(&body, (size_t)length);
	if (data && log.fd >= 0)
		n = fs_pread_all(log.fd, data, (size_t)length, (off_t)offset);
	if (!data || n < 0)
		return answer_error(x, MHD_HTTP_INTERNAL_SERVER_ERROR, "cannot read the log");
	buf_grown(&body, (size_t)n);
	response = MHD_create_response_from_buffer(
		body.len, (void *)(uintptr_t)buf_str(&body), MHD_RESPMEM_MUST_COPY);
	if (!response)
		return MHD_NO;
	snprintf(number, sizeof(number), "%" PRIu64, log.size);
	MHD_add_response_header(response, "Content-Type", "text/plain; charset=utf-8");
	MHD_add_response_header(response, "X-Log-Size", number);
	snprintf(number, sizeof(number), "%" PRId64, offset);
	MHD_add_response_header(response, "X-Log-Offset", number);
	MHD_add_response_header(response, "X-Log-Live", log.live ? "1" : "0");
	return answer(x, MHD_HTTP_OK, response);
}

/* ---- the index ---- */

int log_cache_init(struct ui *ui, struct penstock_error *err)
{
	ui->logs = calloc(1, sizeof(*ui->logs));
	if (!ui->logs)
		return error_memory(err);
	pthread_mutex_init(&ui->logs->lock, NULL);
	return 0;
}

static void index_release(struct log_index *index)
{
	free(index->path);
	free(index->places);
	*index = (struct log_index){0};
}

void log_cache_free(struct log_cache *cache)
{
	if (!cache)
		return;
	for (size_t i = 0; i < INDEXES; i++)
		index_release(&cache->indexes[i]);
	pthread_mutex_destroy(&cache->lock);
	free(cache);
}

/* Returns the index of the log, which may be a new index that replaces the least recently used
 * index. Returns NULL if out of memory. */
static struct log_index *find_index(struct log_cache *cache, const struct log *log)
{
	struct log_index *least = cache->indexes;

	for (size_t i = 0; i < INDEXES; i++) {
		struct log_index *index = &cache->indexes[i];

		if (index->path && strcmp(index->path, log->path) == 0) {
			if (index->file == log->file && index->size <= log->size)
				return index;
			/* The log was truncated or replaced. */
			least = index;
			break;
		}
		if (index->used < least->used)
			least = index;
	}
	index_release(least);
	least->path = strdup(log->path);
	least->places = calloc(PLACES, sizeof(*least->places));
	least->file = log->file;
	least->every = 1;
	least->between = true;
	if (least->path && least->places)
		return least;
	index_release(least);
	return NULL;
}

/* Records the beginning of a line. */
static void add_line(struct log_index *index, uint64_t place)
{
	if (index->lines % index->every == 0) {
		if (index->n == PLACES) {
			index->every *= 2;
			index->n /= 2;
			for (size_t i = 1; i < index->n; i++)
				index->places[i] = index->places[2 * i];
		}
		if (index->lines % index->every == 0)
			index->places[index->n++] = place;
	}
	index->lines++;
}

/* Scans the bytes that were added to the log. Fails if `stop` is set, or if out of memory. */
static int extend(struct log_index *index, const struct log *log, const atomic_int *stop)
{
	_cleanup_free_ char *block = malloc(BLOCK);

	while (block && index->size < log->size) {
		uint64_t left = log->size - index->size;
		ssize_t n = fs_pread_all(
			log->fd, block, left < BLOCK ? (size_t)left : BLOCK, (off_t)index->size);
		const char *end = block + n, *newline;

		if (n <= 0)
			break;
		if (atomic_load(stop))
			return -1;
		for (const char *at = block; at < end; at = newline + 1) {
			if (index->between)
				add_line(index, index->size + (uint64_t)(at - block));
			newline = memchr(at, '\n', (size_t)(end - at));
			index->between = newline != NULL;
			if (!newline)
				break;
		}
		index->size += (uint64_t)n;
	}
	return block ? 0 : -1;
}

static json_t *index_json(const struct log_index *index, const struct log *log)
{
	json_t *places = json_array();

	for (size_t i = 0; i < index->n; i++)
		json_array_append_new(places, json_integer((json_int_t)index->places[i]));
	return json_pack("{s:I, s:I, s:I, s:o}", "size", (json_int_t)log->size, "lines",
		(json_int_t)index->lines, "every", (json_int_t)index->every, "offsets", places);
}

enum MHD_Result log_lines(struct exchange *x)
{
	_cleanup_(log_release) struct log log = {.fd = -1};
	struct log_cache *cache = x->ui->logs;
	enum MHD_Result sent = MHD_NO;
	struct log_index *index;
	json_t *value = NULL;

	if (!open_named(x, &log, &sent))
		return sent;
	{
		LOCK_SCOPE(&cache->lock);
		index = find_index(cache, &log);
		if (index && extend(index, &log, &x->ui->stopping) == 0) {
			index->used = ++cache->uses;
			value = index_json(index, &log);
		}
	}
	return value ? answer_json(x, value) : MHD_NO;
}

/* ---- search ---- */

struct search {
	const char *text;
	size_t len;
	json_t *matches;
	uint64_t line; /* number of the line at `offset` */
	uint64_t offset;
};

static bool contains(const char *line, size_t len, const struct search *search)
{
	int first = tolower((unsigned char)search->text[0]);

	for (size_t i = 0; i + search->len <= len; i++) {
		if (tolower((unsigned char)line[i]) == first &&
			strncasecmp(line + i, search->text, search->len) == 0)
			return true;
	}
	return false;
}

/* Searches the whole lines of a block; a line that is longer than the block is split. Returns the
 * number of bytes that were searched. */
static size_t search_block(struct search *search, const char *block, size_t n, bool last)
{
	size_t done = 0;

	while (done < n && json_array_size(search->matches) < MATCHES) {
		const char *newline = memchr(block + done, '\n', n - done);
		size_t len = newline ? (size_t)(newline - block) - done : n - done;

		if (!newline && !last && done > 0)
			break;
		if (contains(block + done, len, search))
			json_array_append_new(search->matches,
				json_pack("{s:I, s:I}", "offset",
					(json_int_t)search->offset + (json_int_t)done, "line",
					(json_int_t)search->line));
		search->line += newline ? 1 : 0;
		done += len + (newline ? 1 : 0);
	}
	return done;
}

/* Returns the number, from 0, of the line that begins at `offset`; 0 on failure. */
static uint64_t line_at(struct exchange *x, const struct log *log, uint64_t offset)
{
	struct log_cache *cache = x->ui->logs;
	struct log_index *index;
	struct log_index part = {.every = 1};
	struct log before = *log;
	uint64_t line = 0, place = 0;

	if (offset == 0)
		return 0;
	{
		LOCK_SCOPE(&cache->lock);
		index = find_index(cache, log);
		if (!index || extend(index, log, &x->ui->stopping) < 0)
			return 0;
		for (size_t i = 0; i < index->n && index->places[i] <= offset; i++) {
			place = index->places[i];
			line = i * index->every;
		}
	}
	/* Counts the lines between `place` and `offset`. */
	before.size = offset;
	part.size = place;
	part.places = calloc(PLACES, sizeof(*part.places));
	if (part.places && place < offset && extend(&part, &before, &x->ui->stopping) == 0)
		line += part.lines + part.between;
	free(part.places);
	return line;
}

enum MHD_Result log_search(struct exchange *x)
{
	_cleanup_(log_release) struct log log = {.fd = -1};
	struct search search = {.text = param(x, "text")};
	_cleanup_free_ char *block = NULL;
	enum MHD_Result sent = MHD_NO;
	uint64_t begin;
	int64_t offset;

	if (!search.text)
		return answer_error(x, MHD_HTTP_BAD_REQUEST, "'text' is missing");
	if (!param_number(x, "offset", 0, INT64_MAX, 0, &offset))
		return answer_error(x, MHD_HTTP_BAD_REQUEST, "'offset' is invalid");
	if (!open_named(x, &log, &sent))
		return sent;
	block = malloc(BLOCK);
	search.len = strlen(search.text);
	search.matches = json_array();
	search.offset = begin = (uint64_t)offset;
	search.line = line_at(x, &log, begin);
	while (block && log.fd >= 0 && search.offset < log.size && !atomic_load(&x->ui->stopping) &&
		search.offset - begin < SEARCHED && json_array_size(search.matches) < MATCHES) {
		ssize_t n = fs_pread_all(log.fd, block, BLOCK, (off_t)search.offset);

		if (n <= 0)
			break;
		search.offset += search_block(
			&search, block, (size_t)n, search.offset + (uint64_t)n >= log.size);
	}
	return answer_json(
		x, json_pack("{s:o, s:o}", "matches", search.matches, "next",
			   search.offset < log.size ? json_integer((json_int_t)search.offset)
						    : json_null()));
}
