/* Every allocation for the journals fails once: the call returns an error, or works without a
 * journal. */
#include "alloc_fail.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "transfer/put/delta.h"
#include "transfer/get/journal.h"

#define SIZE (2 * MIB + 5)

static char dir[] = "/tmp/penstock-journals-XXXXXX";
static char path[64], record[64];
static char *data;
static int source = -1;

/* A download whose first block was left by an earlier call; recorded blocks are complete or
 * missing. */
static int download(struct penstock_error *err)
{
	struct get_part part = GET_PART_INIT;
	struct get_blocks blocks = {0};
	struct get_run run = {0};
	uint64_t at = 0, offset, length;
	int64_t there = 0;
	int r = get_part_open(&part, path, "the source", err);

	if (r == 0)
		r = get_blocks_init(&blocks, SIZE, CHECKSUM_CRC64NVME, err);
	if (r == 0)
		there = get_part_begin(&part, "\"etag\"", &blocks, err);
	if (r == 0 && there < 0)
		r = (int)there;
	if (r == 0 && get_blocks_next(&blocks, &at, GET_BLOCK_MAX, &offset, &length)) {
		length = length < MIB ? length : MIB;
		r = fs_pwrite_all(part.fd, data + offset, length, (off_t)offset);
		if (r == 0 && get_blocks_add(&blocks, &run, offset, data + offset, length) < 0)
			r = error_memory(err);
	}
	get_run_release(&run);
	get_blocks_release(&blocks);
	get_part_release(&part);
	return r;
}

static int difference(struct penstock_error *err)
{
	_cleanup_(record_file_close) struct record_file file = RECORD_FILE_INIT;
	_cleanup_(delta_sums_release) struct delta_sums earlier = {0}, now = {0};
	_cleanup_(delta_plan_release) struct delta_plan plan = {0};
	_cleanup_free_ char *etag = NULL;
	int r = record_file_open(&file, record, err);

	if (r == 0 && delta_read(&file, &earlier, &etag) < 0)
		r = error_memory(err);
	if (r == 0)
		r = delta_sums_init(&now, SIZE, etag ? &earlier : NULL, CHECKSUM_CRC64NVME, err);
	if (r == 0)
		r = delta_scan(&now, source, NULL, err);
	if (r == 0 && etag)
		r = delta_plan(&plan, &now, &earlier, MIB, MIB, err);
	if (r == 0)
		delta_write(&file, &now, "\"etag\"");
	return r;
}

static void each_fails_once(int (*work)(struct penstock_error *err))
{
	for (size_t n = 1;; n++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		bool failed;
		int r;

		alloc_fail_arm(n);
		r = work(&err);
		failed = alloc_fail_disarm();
		if (r < 0) {
			assert_true(failed);
			assert_int_equal(PENSTOCK_E_MEMORY, err.code);
		}
		penstock_error_release(&err);
		if (!failed)
			return;
	}
}

static void going_on_with_a_download(void **state)
{
	(void)state;
	each_fails_once(download); /* without, and then with the data of earlier calls */
	each_fails_once(download);
}

static void finding_what_changed(void **state)
{
	(void)state;
	each_fails_once(difference);
	each_fails_once(difference);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(going_on_with_a_download),
		cmocka_unit_test(finding_what_changed),
	};
	int failed;

	data = calloc(1, SIZE);
	source = memfd_create("source", MFD_CLOEXEC);
	if (!data || source < 0 || fs_write_all(source, data, SIZE) < 0 || !mkdtemp(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/file", dir);
	snprintf(record, sizeof(record), "%s/record.sent", dir);
	alloc_fail_skip_library("libcrypto");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	fs_remove_tree(dir, NULL);
	close(source);
	free(data);
	return failed;
}
