/*
 * A durable file of the bare programs: bench/bare_writes.c and bench/bare_puts.c.
 *
 *	static unsigned at;
 *
 *	bare_file_write("/tmp/d", 3, at++, "bytes", 5);
 */
#ifndef BENCH_BARE_FILE_H
#define BENCH_BARE_FILE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void fail(const char *call)
{
	perror(call);
	exit(1);
}

/* Writes and syncs a new file. Each thread uses 32 names in turn, and then replaces its oldest
 * file. */
static void bare_file_write(
	const char *directory, unsigned thread, unsigned at, const char *body, size_t size)
{
	char name[4096];
	ssize_t n;
	int fd;

	snprintf(name, sizeof(name), "%s/%u-%u", directory, thread, at % 32);
	unlink(name);
	fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		fail("open");
	for (size_t done = 0; done < size; done += (size_t)n) {
		n = write(fd, body + done, size - done);
		if (n < 0)
			fail("write");
	}
	if (fsync(fd) < 0 || close(fd) < 0)
		fail("fsync");
}

#endif
