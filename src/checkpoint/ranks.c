#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "checkpoint/save_internal.h"

#define PAUSE_MS     2
#define PAUSE_MAX_MS 50
#define GAVE_UP_MS   3000 /* ms until rank 0 accepts the word "" (save.h) of a rank that gave up */
#define GAVE_UP	     COMMIT_HIDDEN "gave-up" /* the metric that reports that a rank gives up */

static void part_name(unsigned rank, char out[static 64])
{
	snprintf(out, 64, COMMIT_HIDDEN "rank-%u.json", rank);
}

/* Returns 1, or 0 if the file is missing or cannot be read now; callers try again later. */
static int read_small(const struct save *s, const char *name, struct buf *out)
{
	_cleanup_close_ int fd = openat(
		s->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	buf_clear(out);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 ||
		(uint64_t)st.st_size > LIMIT_COMMIT || !buf_reserve(out, (size_t)st.st_size))
		return 0;
	n = fs_pread_all(fd, out->data, (size_t)st.st_size, 0);
	if (n > 0)
		buf_grown(out, (size_t)n);
	return n > 0;
}

/* Sleeps before the caller looks again for files of other ranks. Fails with PENSTOCK_E_CANCELLED if
 * cancelled, and after `until_ms` with PENSTOCK_E_TIMEOUT, for which the caller sets the
 * message. */
static int rest(
	const struct save *s, int64_t until_ms, int64_t *pause_ms, struct penstock_error *err)
{
	if (s->o.cancel && *s->o.cancel)
		return error_set(err, PENSTOCK_E_CANCELLED,
			"interrupted while checkpoint '%s' waited for other ranks", s->path);
	if (clock_monotonic_ms() >= until_ms)
		return -(int)PENSTOCK_E_TIMEOUT;
	clock_sleep_ms(*pause_ms);
	*pause_ms = *pause_ms * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : *pause_ms * 2;
	return 0;
}

/* ---- rank 0 ---- */

int ranks_open(struct save *s, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(SAVE_WORD);
	unsigned char random[(SAVE_WORD - 1) / 2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return error_errno(err, errno, "cannot get random numbers");
	str_hex(random, sizeof(random), s->word);
	buf_add_str(&text, s->word);
	return buf_failed(&text) ? buf_error(&text, "a word", err)
				 : save_place(s, SAVE_WORD_NAME, &text, err);
}

/* Adds the part of `rank` to `whole`. Returns 1, or 0 if there is no part yet. Fails if the rank
 * has given up. A part without rank 0's word is ignored, because an earlier save may have left the
 * part. Unless `patient`, the word "" is accepted from a rank that has given up. */
static int take_part(const struct save *s, unsigned rank, bool patient, struct commit *whole,
	struct buf *text, struct penstock_error *err)
{
	_cleanup_(commit_freep) struct commit *part = NULL;
	char name[64];

	part_name(rank, name);
	if (!read_small(s, name, text) ||
		commit_parse(&part, text->data, text->len, name, NULL) < 0)
		return 0;
	if (strcmp(part->run, s->word) != 0 &&
		(patient || *part->run || !commit_find_metric(part, GAVE_UP)))
		return 0;
	if (commit_find_metric(part, GAVE_UP))
		return error_set(err, PENSTOCK_E_CANCELLED,
			"cannot save checkpoint '%s': rank %u has given up", s->path, rank);
	if (part->world_size != s->o.world_size)
		return error_set(err, PENSTOCK_E_INVALID,
			"rank %u has a world size of %u in checkpoint '%s', but this rank has %u",
			rank, part->world_size, s->path, s->o.world_size);
	if (whole->n_files + part->n_files > LIMIT_CHECKPOINT_FILES)
		return error_set(err, PENSTOCK_E_LIMIT, "checkpoint '%s' has more than %d files",
			s->path, LIMIT_CHECKPOINT_FILES);
	for (size_t i = 0; i < part->n_files; i++) {
		const struct commit_file *f = &part->files[i];

		if (commit_add_file(whole, f->name, f->size, f->crc) < 0)
			return error_memory(err);
	}
	return 1;
}

static int name_missing(const struct save *s, const bool *there, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	unsigned n = 0;

	for (unsigned rank = 1; rank < s->o.world_size; rank++) {
		if (there[rank])
			continue;
		n++;
		if (n <= 8)
			buf_printf(&text, "%s%u", n > 1 ? ", " : "", rank);
		else if (n == 9)
			buf_add_str(&text, ", …");
	}
	return error_set(err, PENSTOCK_E_TIMEOUT,
		"cannot commit checkpoint '%s': %u of %u ranks did not finish their part in %.0f "
		"s: %s",
		s->path, n, s->o.world_size, (double)s->o.timeout_ms / 1000, buf_str(&text));
}

int ranks_gather(struct save *s, struct commit *whole, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	_cleanup_free_ bool *there = calloc(s->o.world_size, sizeof(*there));
	int64_t began_ms = clock_monotonic_ms(), pause_ms = PAUSE_MS;
	int64_t until_ms = began_ms + s->o.timeout_ms;
	unsigned missing = s->o.world_size - 1;
	int r = 0;

	if (!there)
		return error_memory(err);
	for (;;) {
		bool patient = clock_monotonic_ms() < began_ms + GAVE_UP_MS;

		for (unsigned rank = 1; rank < s->o.world_size; rank++) {
			if (there[rank])
				continue;
			r = take_part(s, rank, patient, whole, &text, err);
			if (r < 0)
				return r;
			there[rank] = r == 1;
			missing -= (unsigned)r;
		}
		if (!missing)
			return 0;
		r = rest(s, until_ms, &pause_ms, err);
		if (r < 0)
			return r == -(int)PENSTOCK_E_TIMEOUT ? name_missing(s, there, err) : r;
	}
}

void ranks_close(const struct save *s)
{
	char name[64];

	for (unsigned rank = 1; rank < s->o.world_size; rank++) {
		part_name(rank, name);
		unlinkat(s->fd, name, 0);
	}
	unlinkat(s->fd, SAVE_WORD_NAME, 0);
}

/* ---- the other ranks ---- */

static int say(struct save *s, const char *word, bool gave_up, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	_cleanup_(commit_freep) struct commit *part = save_describe(s, word);
	char name[64];
	int r;

	if (!part || (gave_up && commit_set_metric(part, GAVE_UP, 1) < 0))
		return error_memory(err);
	part_name(s->o.rank, name);
	r = commit_sort_files(part, err);
	if (r == 0)
		r = commit_format(part, &text, err);
	return r == 0 ? save_place(s, name, &text, err) : r;
}

static bool is_committed(const struct save *s)
{
	return faccessat(s->fd, COMMIT_NAME, F_OK, 0) == 0;
}

/* Returns true if rank 0 gave up and removed the directory before this rank answered. */
static bool is_removed(const struct save *s)
{
	struct stat st;

	return fstat(s->fd, &st) == 0 ? st.st_nlink == 0 : errno == ESTALE; /* NFS */
}

static int find_word(const struct save *s, char word[static SAVE_WORD])
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);

	if (!read_small(s, SAVE_WORD_NAME, &text) || text.len != SAVE_WORD - 1)
		return 0;
	memcpy(word, text.data, SAVE_WORD - 1);
	word[SAVE_WORD - 1] = '\0';
	return 1;
}

int ranks_answer(struct save *s, struct penstock_error *err)
{
	int64_t until_ms = clock_monotonic_ms() + s->o.timeout_ms, pause_ms = PAUSE_MS;

	for (;;) {
		char word[SAVE_WORD];
		int r = 0;

		if (find_word(s, word)) {
			if (strcmp(word, s->word) != 0) {
				r = say(s, word, false, err);
				memcpy(s->word, word, sizeof(word));
			}
		} else if (is_committed(s)) {
			return 0;
		} else if (s->word[0] || is_removed(s)) {
			return error_set(err, PENSTOCK_E_CANCELLED,
				"cannot save checkpoint '%s': rank 0 has given up", s->path);
		}
		if (r == 0 && is_committed(s))
			return 0;
		if (r == 0)
			r = rest(s, until_ms, &pause_ms, err);
		if (r == -(int)PENSTOCK_E_TIMEOUT && !(err && err->code))
			r = error_set(err, PENSTOCK_E_TIMEOUT,
				"cannot save checkpoint '%s': rank 0 did not commit it in %.0f s",
				s->path, (double)s->o.timeout_ms / 1000);
		if (r < 0)
			return r;
	}
}

void ranks_give_up(struct save *s)
{
	char word[SAVE_WORD];

	say(s, find_word(s, word) ? word : "", true, NULL);
}

void ranks_join(const struct save *s)
{
	char name[64];

	part_name(s->o.rank, name);
	unlinkat(s->fd, name, 0);
}
