/* The temporary files of downloads: each download has its own, next to any existing file. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "transfer/objects.h"
#include "transfer/state/part_file.h"

struct place {
	char dir[64], path[96], plain[128], other[96];
};

static void begin(struct place *p)
{
	_cleanup_free_ char *first = NULL;

	snprintf(p->dir, sizeof(p->dir), "/tmp/part-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->path, sizeof(p->path), "%s/f", p->dir);
	assert_int_equal(0, part_file_first_name(p->path, &first, NULL));
	snprintf(p->plain, sizeof(p->plain), "%s", first);
	snprintf(p->other, sizeof(p->other), "%s/precious", p->dir);
}

static void write_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_int_equal(0, fs_write_all(fd, text, strlen(text)));
}

static void assert_holds(const char *path, const char *text)
{
	_cleanup_(buf_release) struct buf got = BUF_INIT(1024);

	assert_int_equal(0, fs_read(path, &got, NULL));
	assert_string_equal(text, buf_str(&got));
}

/* Opens a part file, writes to it, and returns its descriptor. */
static int opened(const struct place *p, bool plain)
{
	_cleanup_free_ char *part = NULL;
	struct stat st, named;
	int fd = -1;

	assert_int_equal(0, part_file_open(p->path, &fd, &part, NULL));
	assert_int_equal(plain, strcmp(part, p->plain) == 0);
	assert_true(str_starts(part, p->path) && str_ends(part, OBJECT_PART_SUFFIX));
	assert_int_equal(0, fstat(fd, &st));
	assert_int_equal(0, lstat(part, &named));
	assert_int_equal(st.st_ino, named.st_ino);
	assert_int_equal(0, st.st_size);
	assert_int_equal(0, fs_write_all(fd, "mine", 4));
	return fd;
}

/* The part file of a killed download is reused from its beginning. */
static void a_leftover_is_taken_over(void **state)
{
	struct place p;

	(void)state;
	begin(&p);
	write_file(p.plain, "what a longer object was");

	close(opened(&p, true));

	assert_holds(p.plain, "mine");
	assert_int_equal(0, fs_remove_tree(p.dir, NULL));
}

/* Two concurrent downloads have the same target; neither writes to the part file of the other. */
static void a_file_that_is_written_to_stays_its_writers(void **state)
{
	struct place p;
	int one, two;

	(void)state;
	begin(&p);

	one = opened(&p, true);
	two = opened(&p, false);

	assert_holds(p.plain, "mine");
	close(one);
	close(two);
	assert_int_equal(0, fs_remove_tree(p.dir, NULL));
}

/* In a directory of other users, a predictable name may be a link to any file. */
static void what_stands_there_by_design_is_not_touched(void **state)
{
	struct place p;

	(void)state;
	begin(&p);
	write_file(p.other, "precious");

	assert_int_equal(0, symlink(p.other, p.plain));
	close(opened(&p, false));
	assert_int_equal(0, unlink(p.plain));
	assert_int_equal(0, link(p.other, p.plain));
	close(opened(&p, false));
	assert_int_equal(0, unlink(p.plain));
	assert_int_equal(0, mkfifo(p.plain, 0666));
	close(opened(&p, false));
	assert_int_equal(0, unlink(p.plain));
	assert_int_equal(0, mkdir(p.plain, 0777));
	close(opened(&p, false));

	assert_holds(p.other, "precious");
	assert_int_equal(0, fs_remove_tree(p.dir, NULL));
}

/* A name that is too long for the suffix gets another part file name, which works the same way. */
static void long_names_have_part_files_too(void **state)
{
	_cleanup_free_ char *part = NULL;
	_cleanup_close_ int fd = -1;
	char path[512];
	struct place p;

	(void)state;
	begin(&p);
	snprintf(path, sizeof(path), "%s/%0250d", p.dir, 7);

	assert_int_equal(0, part_file_open(path, &fd, &part, NULL));

	assert_true(str_ends(part, OBJECT_PART_SUFFIX));
	assert_int_equal(0, rename(part, path));
	assert_int_equal(0, fs_remove_tree(p.dir, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_leftover_is_taken_over),
		cmocka_unit_test(a_file_that_is_written_to_stays_its_writers),
		cmocka_unit_test(what_stands_there_by_design_is_not_touched),
		cmocka_unit_test(long_names_have_part_files_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
