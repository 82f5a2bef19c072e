#include "transfer/part_file.h"

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
#include "transfer/objects.h"
#include "base/banned.h"

int part_file_name(const char *path, const char *middle, char **out, struct penstock_error *err)
{
	static const char suffix[] = OBJECT_PART_SUFFIX;
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	int n;

	if (strlen(name) + strlen(middle) + sizeof(suffix) - 1 <= NAME_MAX) {
		n = asprintf(out, "%s%s%s", path, middle, suffix);
	} else {
		for (const char *c = name; *c; c++)
			hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
		n = asprintf(out, "%.*s.%016" PRIx64 "%s%s", (int)(name - path), path, hash, middle,
			suffix);
	}
	if (n < 0) {
		*out = NULL;
		return error_memory(err);
	}
	return 0;
}

int part_file_random_name(const char *path, char **out, struct penstock_error *err)
{
	char middle[20];
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) < 0)
		random = (uint64_t)clock_wall_ns();
	snprintf(middle, sizeof(middle), ".%016" PRIx64, random);
	return part_file_name(path, middle, out, err);
}

/* Still under its name, and a file that nobody else can have meant something by. */
static bool is_ours(int fd, const char *name)
{
	struct stat st, named;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
	       st.st_uid == geteuid() && fs_lock(fd) == 0 && lstat(name, &named) == 0 &&
	       st.st_ino == named.st_ino && st.st_dev == named.st_dev;
}

/* -1: it is somebody else's. */
static int take_over(const char *name)
{
	_cleanup_close_ int fd = open(
		name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	bool ours = fd >= 0 && is_ours(fd, name) && ftruncate(fd, 0) == 0;

	return ours ? take_fd(fd) : -1;
}

static int make(const char *name)
{
	_cleanup_close_ int fd = open(
		name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);

	/* Where a lock is not to be had nobody else gets one, either. Who takes it over before it is locked has it. */
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
			      : part_file_name(path, "", &name, err);

		if (r < 0)
			return r;
		*fd = make(name);
		if (*fd < 0 && errno != EEXIST)
			return error_errno(err, errno, "cannot create %s", name);
		if (*fd < 0 && tries == 0)
			*fd = take_over(name);
		if (*fd >= 0) {
			*part = take_pointer(name);
			return 0;
		}
		if (tries == PART_FILE_NAMES)
			return error_errno(err, EEXIST, "cannot create %s", name);
	}
}
