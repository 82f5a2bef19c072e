/* A growing file that gets shorter while its checksum is computed. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/fs.h"
#include "sync/internal.h"

#define SIZE (3 << 20) /* more than one read */

static const char *shortened; /* this file is truncated at the next read of its second block */

ssize_t pread(int fd, void *data, size_t len, off_t offset)
{
	if (shortened && offset > 0) {
		assert_int_equal(truncate(shortened, offset), 0);
		shortened = NULL;
	}
	return (ssize_t)syscall(SYS_pread64, fd, data, len, offset);
}

/* The writer still has the file open and will write more, so the sync must not wait for a close;
 * the next check sends the file. */
static void a_file_that_gets_shorter_meanwhile_has_changed(void **state)
{
	char dir[] = "/tmp/grown-XXXXXX", path[sizeof(dir) + 4];
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct sync s = {.o.prefix = "", .root_fd = -1};
	const struct job job = {.kind = JOB_GROWN, .appender = true};
	struct job_result r;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/log", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && ftruncate(fd, SIZE) == 0);
	close(fd);
	s.root_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	shortened = path;

	upload_run(&s, &job, "log", &r, &err);

	assert_null(shortened);
	assert_int_equal(r.outcome, JOB_CHANGED);
	penstock_error_release(&err);
	close(s.root_fd);
	assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_that_gets_shorter_meanwhile_has_changed)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
