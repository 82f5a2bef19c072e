/* Each allocation of a data set fails once; the failure is reported, and no memory leaks. */
#include "alloc_fail.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "dataset/ahead.h"
#include "dataset/dataset.h"

#define N 40

static char dir[64];
static const uint64_t ids[N] = {7, 3, 99, 3, 0, 50, 51, 52};

static void write_file(const char *name, size_t size)
{
	_cleanup_free_ char *path = path_join(dir, name);
	FILE *file = fopen(path, "w");

	for (size_t i = 0; i < size; i++)
		fputc((int)i, file);
	assert_int_equal(fclose(file), 0);
}

static int begin(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/penstock-dataset-XXXXXX");
	assert_non_null(mkdtemp(dir));
	write_file("a", 250);
	write_file("b", 250);
	return 0;
}

static int finish(void **state)
{
	(void)state;
	return fs_remove_tree(dir, NULL);
}

static int use(struct dataset *set, struct ahead *ahead, struct penstock_error *err)
{
	char data[2][N * 5];
	struct ahead_job *jobs[2] = {NULL, NULL};
	int r = dataset_read(set, ids, N, data[0], NULL, err);

	for (int i = 0; i < 2 && r == 0; i++)
		r = ahead_start(ahead, ids, N, data[i], &jobs[i], err);
	if (r == 0)
		r = ahead_wait(take_pointer(jobs[0]), err);
	ahead_drop(jobs[0]);
	ahead_drop(jobs[1]);
	return r;
}

static int run(const char *format, struct penstock_error *err)
{
	struct dataset *set = NULL;
	struct ahead *ahead = NULL;
	int r = dataset_open(&set,
		&(struct dataset_options){
			.place = {.url = dir}, .format = format, .record_size = format ? 5 : 0},
		err);

	if (r == 0 && !format)
		assert_int_equal(dataset_count(set), 2);
	if (r == 0 && format)
		r = ahead_new(&ahead, set, 2, err);
	if (r == 0 && format)
		r = use(set, ahead, err);
	ahead_free(ahead);
	dataset_free(set);
	return r;
}

static void each_allocation_may_fail(void **state)
{
	static const char *const names[] = {"records", NULL};
	int reported = 0;

	(void)state;
	for (int k = 0; k < 2; k++) {
		for (size_t n = 1;; n++) {
			_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
			int r;

			alloc_fail_arm(n);
			r = run(names[k], &err);
			if (!alloc_fail_disarm()) {
				assert_int_equal(r, 0);
				break;
			}
			/* The failure to start a thread is PENSTOCK_E_IO. */
			assert_true(
				r == 0 || r == -(int)PENSTOCK_E_MEMORY || r == -(int)PENSTOCK_E_IO);
			reported += r < 0;
		}
	}
	assert_true(reported > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, begin, finish);
}
