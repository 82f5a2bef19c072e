#include "sync/kernel/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/fs.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"

#define COPY_STEP (1 * MIB) /* bytes copied between two checks for a waiting writer */
/* bytes at the end of a copy that a writer may have to wait for; about 1 ms */
#define PATIENT_TAIL (4 * MIB)

static enum lease lease_take(int fd)
{
	/* A broken lease raises a signal in this process. SIGURG is ignored by default, and an
	 * ignored signal interrupts nothing; SIGIO, the default of a lease, would kill the
	 * process. */
	if (fcntl(fd, F_SETSIG, SIGURG) < 0)
		return LEASE_UNKNOWN;
	if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0)
		return LEASE_FREE;
	return errno == EAGAIN ? LEASE_WRITER : LEASE_UNKNOWN;
}

static void lease_return(int fd)
{
	fcntl(fd, F_SETLEASE, F_UNLCK);
}

enum lease lease_check(int fd)
{
	enum lease lease = lease_take(fd);

	if (lease == LEASE_FREE)
		lease_return(fd);
	return lease;
}

static int copy_while_held(
	int fd, int to, uint64_t size, bool held, bool patient, struct penstock_error *why)
{
	_cleanup_free_ char *block = malloc(COPY_STEP);
	uint64_t at = 0;

	if (!block)
		return error_memory(why);
	while (at < size) {
		size_t want = size - at < COPY_STEP ? (size_t)(size - at) : COPY_STEP;
		ssize_t n = fs_pread_all(fd, block, want, (off_t)at);

		if (n < 0)
			return error_errno(why, errno, "cannot read the file");
		if ((size_t)n < want)
			return error_set(why, PENSTOCK_E_CHANGED, "the file became shorter");
		if (fs_pwrite_all(to, block, want, (off_t)at) < 0)
			return error_errno(why, errno, "cannot write the snapshot");
		at += want;
		if (held && at < size && fcntl(fd, F_GETLEASE) != F_RDLCK &&
			!(patient && size - at <= PATIENT_TAIL))
			return error_set(why, PENSTOCK_E_CHANGED, "a writer opened the file");
	}
	return 0;
}

int lease_snapshot(int fd, uint64_t size, const char *tmp_dir, bool patient, enum lease *lease,
	struct penstock_error *why)
{
	_cleanup_close_ int to = open(tmp_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int rc = 0;

	if (to < 0)
		return error_errno(why, errno, "cannot create a snapshot in '%s'", tmp_dir);
	*lease = lease_take(fd);
	if (*lease == LEASE_WRITER)
		return error_set(why, PENSTOCK_E_CHANGED, "a writer has the file open");
	if (ioctl(to, FICLONE, fd) < 0 || ftruncate(to, (off_t)size) < 0)
		rc = copy_while_held(fd, to, size, *lease == LEASE_FREE, patient, why);
	if (*lease == LEASE_FREE)
		lease_return(fd);
	return rc < 0 ? rc : take_fd(to);
}

int lease_read(int fd, void *to, size_t size, enum lease *lease)
{
	ssize_t n = -1;

	*lease = lease_take(fd);
	if (*lease == LEASE_WRITER)
		return -1;
	n = fs_pread_all(fd, to, size, 0);
	if (*lease == LEASE_FREE)
		lease_return(fd);
	return n == (ssize_t)size ? 0 : -1;
}
