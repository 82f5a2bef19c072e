#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"

static char dir[64];

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/penstock-fs-test-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return fs_remove_tree(dir, NULL);
}

static const char *at(const char *name)
{
	static char paths[4][256];
	static int next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static void put(const char *path, const char *text)
{
	assert_int_equal(fs_write_atomic(path, text, strlen(text), 0644, NULL), 0);
}

static void check_text(const char *path, const char *text)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(1000);

	assert_int_equal(fs_read(path, &b, NULL), 0);
	assert_string_equal(buf_str(&b), text);
}

/* A file is replaced completely, with its mode, and no temporary file is left. */
static void a_file_is_replaced_whole(void **state)
{
	struct stat st;

	(void)state;
	put(at("f"), "old");
	assert_int_equal(fs_write_atomic(at("f"), "new", 3, 0600, NULL), 0);

	check_text(at("f"), "new");
	assert_int_equal(stat(at("f"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(unlink(at("f")), 0);
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(mkdir(dir, 0700), 0);
}

/* If the new file cannot be written, the old one stays and no temporary file is left. */
static void a_failed_replacement_leaves_the_old_file(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int status;
	pid_t pid;

	(void)state;
	put(at("f"), "old");
	pid = fork();
	if (pid == 0) {
		/* A write of more than 10 bytes fails, as on a full disk. */
		const struct rlimit limit = {10, 10};
		char text[100] = "";

		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &limit);
		_exit(fs_write_atomic(at("f"), text, sizeof(text), 0644, NULL) !=
			-PENSTOCK_E_NO_SPACE);
	}
	waitpid(pid, &status, 0);

	assert_int_equal(status, 0);
	check_text(at("f"), "old");
	assert_int_equal(unlink(at("f")), 0);
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(fs_write_atomic(at("no/f"), "x", 1, 0644, &err), -PENSTOCK_E_NOT_FOUND);
	assert_non_null(strstr(err.message, at("no/f")));
}

/* Reading stops exactly at the buffer's limit. */
static void reading_is_bounded(void **state)
{
	_cleanup_(buf_release) struct buf exact = BUF_INIT(5);
	_cleanup_(buf_release) struct buf small = BUF_INIT(4);
	_cleanup_(buf_release) struct buf big = BUF_INIT(300000);
	_cleanup_(buf_release) struct buf full = BUF_INIT(0);
	char *text = calloc(1, 200001);

	(void)state;
	put(at("f"), "12345");
	assert_int_equal(fs_read(at("f"), &exact, NULL), 0);
	assert_string_equal(buf_str(&exact), "12345");
	assert_int_equal(fs_read(at("f"), &small, NULL), -PENSTOCK_E_LIMIT);
	memset(text, 'x', 200000);
	put(at("f"), text);
	assert_int_equal(fs_read(at("f"), &big, NULL), 0);
	assert_int_equal(big.len, 200000);
	assert_int_equal(fs_read(at("missing"), &small, NULL), -PENSTOCK_E_NOT_FOUND);
	/* A directory cannot be read, and the error is not that of the buffer's limit. */
	assert_int_equal(fs_read(dir, &full, NULL), -PENSTOCK_E_IO);
	assert_true(fs_read(dir, &small, NULL) < 0);
	free(text);
}

/* Missing parents are created and existing directories are accepted; a file in the path is an
 * error. */
static void directories_are_made_with_their_parents(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(fs_mkdirs(at("a/b//c/"), 0700, NULL), 0);
	assert_int_equal(fs_mkdirs(at("a/b/c"), 0700, NULL), 0);
	assert_int_equal(stat(at("a/b/c"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	put(at("a/file"), "");
	assert_true(fs_mkdirs(at("a/file/x"), 0700, NULL) < 0);
	assert_true(fs_mkdirs(at("a/file"), 0700, NULL) < 0);
	assert_int_equal(fs_mkdirs("/", 0700, NULL), 0);
	assert_true(fs_mkdirs("", 0700, NULL) < 0);
}

/* A tree is removed with everything in it, except the targets of its links. */
static void a_tree_is_removed_without_following_links(void **state)
{
	(void)state;
	assert_int_equal(fs_mkdirs(at("tree/a/b"), 0755, NULL), 0);
	assert_int_equal(fs_mkdirs(at("other"), 0755, NULL), 0);
	put(at("other/precious"), "x");
	put(at("tree/a/f"), "");
	assert_int_equal(symlink("../../other", at("tree/a/link")), 0);
	assert_int_equal(symlink("/nonexistent", at("tree/dangling")), 0);
	assert_int_equal(mkfifo(at("tree/pipe"), 0600), 0);

	assert_int_equal(fs_remove_tree(at("tree"), NULL), 0);
	assert_int_equal(access(at("tree"), F_OK), -1);
	check_text(at("other/precious"), "x");
	assert_int_equal(fs_remove_tree(at("tree"), NULL), 0);

	assert_int_equal(symlink("other", at("link")), 0);
	assert_int_equal(fs_remove_tree(at("link"), NULL), 0);
	check_text(at("other/precious"), "x");
	assert_int_equal(fs_remove_tree(at("other/precious"), NULL), 0);
	assert_int_equal(access(at("other/precious"), F_OK), -1);
}

/* A tree that is deeper than the limit of descriptors and has paths longer than PATH_MAX is
 * removed. */
static void a_very_deep_tree_is_removed(void **state)
{
	pid_t pid;
	int status;

	(void)state;
	pid = fork();
	if (pid == 0) {
		const struct rlimit limit = {64, 64};

		if (chdir(dir) < 0 || mkdir("deep", 0700) < 0 || chdir("deep") < 0)
			_exit(1);
		for (int i = 0; i < 2000; i++) {
			if (mkdir("directory", 0700) < 0 || chdir("directory") < 0)
				_exit(2);
			if (i % 100 == 0 && close(open("file", O_CREAT | O_WRONLY, 0600)) < 0)
				_exit(3);
		}
		if (chdir("/") < 0)
			_exit(4);
		setrlimit(RLIMIT_NOFILE, &limit);
		_exit(fs_remove_tree(at("deep"), NULL) < 0 ? 5 : 0);
	}
	waitpid(pid, &status, 0);

	assert_int_equal(status, 0);
	assert_int_equal(access(at("deep"), F_OK), -1);
}

/* The owner can remove a tree whose directories have no permissions. */
static void unwritable_directories_are_removed(void **state)
{
	pid_t pid;
	int status;

	(void)state;
	assert_int_equal(chmod(dir, 0777), 0);
	pid = fork();
	if (pid == 0) {
		/* Permissions do not restrict the superuser. */
		if (geteuid() == 0 && setuid(65534) < 0)
			_exit(1);
		if (fs_mkdirs(at("t/a/b"), 0700, NULL) < 0)
			_exit(2);
		put(at("t/a/f"), "x");
		put(at("t/a/b/f"), "x");
		if (chmod(at("t/a/b"), 0) < 0 || chmod(at("t/a"), 0500) < 0 ||
			chmod(at("t"), 0) < 0)
			_exit(3);
		_exit(fs_remove_tree(at("t"), NULL) < 0 ? 4 : 0);
	}
	waitpid(pid, &status, 0);

	assert_int_equal(status, 0);
	assert_int_equal(access(at("t"), F_OK), -1);
}

/* An error while a directory is listed must not look like a short list. */
static void an_error_is_not_the_end_of_a_directory(void **state)
{
	_cleanup_closedir_ DIR *whole = opendir(dir), *broken = opendir(dir);
	_cleanup_close_ int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct dirent *e;

	(void)state;
	assert_non_null(whole);
	assert_non_null(broken);
	assert_true(file >= 0);
	put(at("a"), "a");
	e = fs_next_entry(whole);
	assert_non_null(e);
	assert_string_equal(e->d_name, "a");
	assert_null(fs_next_entry(whole));
	assert_int_equal(errno, 0);

	assert_true(dup2(file, dirfd(broken)) >= 0);
	assert_null(fs_next_entry(broken));
	assert_int_equal(errno, ENOTDIR);
}

/* Only one descriptor at a time holds a lock, and other processes can see that it is held. The
 * kernel releases the lock with its descriptor, even when the holder is killed. */
static void a_lock_is_had_once(void **state)
{
	int first = open(at("lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int second = open(at("lock"), O_RDWR | O_CLOEXEC);
	int looking = open(at("lock"), O_RDONLY | O_CLOEXEC);
	int blind = open(at("lock"), O_PATH | O_CLOEXEC);

	(void)state;
	assert_false(fs_lock_held(looking));
	assert_true(fs_lock_held(blind)); /* true because `blind` cannot be queried */
	close(blind);
	assert_int_equal(fs_lock(first), 0);
	assert_int_equal(fs_lock(second), 1);
	assert_true(fs_lock_held(looking));
	assert_int_equal(fs_lock(looking), -1); /* not open for writing */
	close(first);

	assert_false(fs_lock_held(looking));
	assert_int_equal(fs_lock(second), 0);
	close(second);
	close(looking);
}

/* If the name is taken, the existing file is not replaced. */
static void a_file_gets_an_unused_name(void **state)
{
	(void)state;
	put(at("a"), "a");
	put(at("b"), "b");

	assert_int_equal(fs_rename_new(at("a"), at("b")), -1);
	assert_int_equal(errno, EEXIST);
	check_text(at("b"), "b");
	assert_int_equal(fs_rename_new(at("a"), at("c")), 0);
	check_text(at("c"), "a");
	assert_int_equal(access(at("a"), F_OK), -1);
	assert_int_equal(fs_rename_new(at("a"), at("d")), -1);
	assert_int_equal(errno, ENOENT);
}

/* Bytes are copied to their offset, even on another file system. */
static void a_range_is_copied_to_each_file_system(void **state)
{
	_cleanup_close_ int from = memfd_create("from", MFD_CLOEXEC);
	_cleanup_close_ int same = memfd_create("same", MFD_CLOEXEC);
	_cleanup_close_ int other = open(at("other"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	const int targets[] = {same, other};
	char text[8] = "";

	(void)state;
	assert_int_equal(fs_write_all(from, "0123456789", 10), 0);
	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		assert_int_equal(fs_copy_range(from, targets[i], 2, 4), 4);
		assert_int_equal(fs_copy_range(from, targets[i], 6, 1000), 4);
		assert_int_equal(fs_copy_range(from, targets[i], 10, 1000), 0);
		assert_int_equal(fs_pread_all(targets[i], text, 8, 2), 8);
		assert_memory_equal(text, "23456789", 8);
	}
	assert_int_equal(fs_copy_range(from, -1, 0, 1), -1);
}

/* Paths are joined with one slash. */
static void paths_are_joined(void **state)
{
	_cleanup_free_ char *plain = path_join("a", "b");
	_cleanup_free_ char *slash = path_join("a/", "b");
	_cleanup_free_ char *root = path_join("/", "b");

	(void)state;
	assert_string_equal(plain, "a/b");
	assert_string_equal(slash, "a/b");
	assert_string_equal(root, "/b");
}

/* Free space is more than 0 and less than the maximum; a missing path is an error. */
static void free_space_is_known(void **state)
{
	uint64_t bytes = 0;

	(void)state;
	assert_int_equal(fs_free_bytes(dir, &bytes, NULL), 0);
	assert_true(bytes > 0 && bytes < UINT64_C(1) << 60);
	assert_int_equal(fs_free_bytes(at("no"), &bytes, NULL), -PENSTOCK_E_NOT_FOUND);
	assert_false(fs_is_network(dir));
	assert_false(fs_is_network(at("no")));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_file_is_replaced_whole),
		TEST(a_failed_replacement_leaves_the_old_file),
		TEST(reading_is_bounded),
		TEST(directories_are_made_with_their_parents),
		TEST(a_tree_is_removed_without_following_links),
		TEST(a_very_deep_tree_is_removed),
		TEST(unwritable_directories_are_removed),
		TEST(an_error_is_not_the_end_of_a_directory),
		TEST(a_lock_is_had_once),
		TEST(a_file_gets_an_unused_name),
		TEST(a_range_is_copied_to_each_file_system),
		TEST(paths_are_joined),
		TEST(free_space_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
