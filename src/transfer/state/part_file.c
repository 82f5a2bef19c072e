#include "transfer/state/part_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
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
#include "transfer/objects.h"
#include "transfer/state/record_file.h"

#define SUFFIX_LEN (sizeof(OBJECT_PART_SUFFIX) - 1)

/* Appends the start of the file name: `name`, or its digest if the file name would be too long. */
static int put_base(struct buf *out, const char *name, size_t rest)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	if (strlen(name) + rest <= NAME_MAX)
		return buf_add_str(out, name);
	for (const char *c = name; *c; c++)
		hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
	return buf_printf(out, ".%016" PRIx64, hash);
}

int part_file_name(const char *path, const char *middle, char **out, struct penstock_error *err)
{
	struct buf text = BUF_INIT(LIMIT_STRING);

	buf_add(&text, path, (size_t)(basename(path) - path));
	put_base(&text, basename(path), strlen(middle) + SUFFIX_LEN);
	buf_add_str(&text, middle);
	buf_add_str(&text, OBJECT_PART_SUFFIX);
	*out = buf_take(&text);
	return *out ? 0 : error_memory(err);
}

/* ---- names that identify their owner ---- */

/* Length of a mark: ".", a number, and a digest of that number and the base of the name, eight
 * hexadecimal digits each. */
#define MARK_LEN 17

static uint32_t mark_check(const char *base, size_t len, uint32_t number)
{
	uint32_t hash = UINT32_C(0x811c9dc5) ^ number;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)base[i]) * UINT32_C(0x01000193);
	return hash ^ hash >> 15;
}

static int marked_name(const char *path, uint32_t number, char **out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf base = BUF_INIT(LIMIT_STRING);
	char middle[MARK_LEN + 1];

	put_base(&base, basename(path), MARK_LEN + SUFFIX_LEN);
	if (buf_failed(&base))
		return error_memory(err);
	snprintf(middle, sizeof(middle), ".%08" PRIx32 "%08" PRIx32, number,
		mark_check(buf_str(&base), base.len, number));
	return part_file_name(path, middle, out, err);
}

int part_file_random_name(const char *path, char **out, struct penstock_error *err)
{
	uint32_t random = 0;

	if (getrandom(&random, sizeof(random), 0) < 0)
		random = (uint32_t)clock_wall_ns();
	return marked_name(path, random | 1, out, err);
}

int part_file_first_name(const char *path, char **out, struct penstock_error *err)
{
	return marked_name(path, 0, out, err);
}

static bool is_marked(const char *name, size_t len, size_t *stem)
{
	char digits[MARK_LEN], *end = NULL;
	unsigned long long mark;

	if (len <= MARK_LEN + SUFFIX_LEN ||
		memcmp(name + len - SUFFIX_LEN, OBJECT_PART_SUFFIX, SUFFIX_LEN) != 0)
		return false;
	len -= MARK_LEN + SUFFIX_LEN;
	memcpy(digits, name + len + 1, MARK_LEN - 1);
	digits[MARK_LEN - 1] = '\0';
	if (name[len] != '.' || strspn(digits, "0123456789abcdef") != MARK_LEN - 1)
		return false;
	mark = strtoull(digits, &end, 16);
	if ((uint32_t)mark != mark_check(name, len, (uint32_t)(mark >> 32)))
		return false;
	*stem = len;
	return true;
}

bool part_file_is_marked(const char *name, size_t *stem)
{
	return is_marked(name, strlen(name), stem);
}

/* Reads the start of a file, NUL-terminated; "" if the file cannot be read. */
static void read_head(int dir, const char *name, char *head, size_t size)
{
	_cleanup_close_ int fd = openat(
		dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	ssize_t n = fd < 0 ? -1 : fs_pread_all(fd, head, size - 1, 0);

	head[n > 0 ? n : 0] = '\0';
}

/* Returns true if a download's journal that starts with `head` (get/journal.c) names `part`. */
static bool names_part(const char *head, const char *part)
{
	const char *line = strchr(head, '\n'), *end = line ? strchr(line + 1, '\n') : NULL;
	const char *source = line ? strstr(line, " S ") : NULL;
	_cleanup_free_ char *named = NULL;

	/* " S " is followed by the digest of the source and a space. */
	if (!end || !source || source >= end || end - source <= 68)
		return false;
	named = strndup(source + 68, (size_t)(end - source) - 68);
	return named && record_decode(named) && strcmp(named, part) == 0;
}

static bool has_journal(int dir, const char *name)
{
	_cleanup_free_ char *stem = strndup(name, strlen(name) - SUFFIX_LEN);
	_cleanup_free_ char *journal = NULL;
	char head[2048];

	if (!stem || part_file_name(stem, ".journal", &journal, NULL) < 0)
		return false;
	read_head(dir, journal, head, sizeof(head));
	return record_file_begins(head) && names_part(head, name);
}

bool part_file_is_ours(int dir, const char *name)
{
	size_t stem;
	char head[64];

	if (str_ends(name, OBJECT_PART_SUFFIX ".json"))
		return is_marked(name, strlen(name) - strlen(".json"), &stem);
	if (!str_ends(name, OBJECT_PART_SUFFIX))
		return false;
	if (part_file_is_marked(name, &stem))
		return true;
	if (str_ends(name, ".journal" OBJECT_PART_SUFFIX)) {
		read_head(dir, name, head, sizeof(head));
		if (record_file_begins(head))
			return true;
	}
	return has_journal(dir, name);
}

/* ---- files ---- */

bool part_file_is_private(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
	       st.st_uid == geteuid();
}

/* Opens, locks and empties an existing file. Returns -1 if another process uses the file, or the
 * file is not private. */
static int take_over(const char *name)
{
	_cleanup_close_ int fd = open(
		name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	bool ours = fd >= 0 && part_file_is_private(fd) && fs_lock(fd) == 0 &&
		    fs_is_named(fd, name) && ftruncate(fd, 0) == 0;

	return ours ? take_fd(fd) : -1;
}

static int make(const char *name)
{
	_cleanup_close_ int fd = open(
		name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);

	/* If fs_lock() fails, the file system has no locks, so no other process can take over the
	 * file. If another process took over the file before this process locked it, that process
	 * owns the file. */
	if (fd >= 0 && fs_lock(fd) > 0) {
		errno = EEXIST;
		return -1;
	}
	return take_fd(fd);
}

int part_file_open(const char *path, int *fd, char **part, struct penstock_error *err)
{
	for (int tries = 0;; tries++) {
		_cleanup_free_ char *name = NULL;
		int r = tries ? part_file_random_name(path, &name, err)
			      : part_file_first_name(path, &name, err);

		if (r < 0)
			return r;
		*fd = make(name);
		if (*fd < 0 && errno != EEXIST)
			return error_errno(err, errno, "cannot create '%s'", name);
		if (*fd < 0 && tries == 0)
			*fd = take_over(name);
		if (*fd >= 0) {
			*part = take_pointer(name);
			return 0;
		}
		if (tries == PART_FILE_NAMES)
			return error_errno(err, EEXIST, "cannot create '%s'", name);
	}
}
