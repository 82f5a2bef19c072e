/* Uploads that send only the differences from the object that they replace. */
#include "parts_store.h"

#include <dirent.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "transfer/put/delta.h"

#define FILE_SIZE (24 * MIB + 77)
#define BLOCK	  (256 * KIB)

static char directory[] = "/tmp/penstock-delta-XXXXXX";
static char *bytes; /* content of the source file */

static int put_size(struct fixture *f, size_t size, const char *if_match)
{
	_cleanup_free_ char *path = path_join(directory, "source");
	_cleanup_free_ char *records = path_join(directory, "records/below");
	_cleanup_close_ int fd = -1;

	assert_int_equal(0, fs_write_atomic(path, bytes, size, 0644, NULL));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	store.sent_bytes = store.copied_bytes = 0;
	store.sent_parts = store.copied_parts = store.puts = 0;
	object_info_release(&f->info);
	return object_put_file(object_at(f->s3, "bucket", "key"), fd, size,
		&(struct object_put_options){.delta_dir = records, .if_match = if_match}, &f->info,
		&f->err);
}

static int put(struct fixture *f)
{
	return put_size(f, FILE_SIZE, NULL);
}

static void change(size_t at, size_t len)
{
	for (size_t i = at; i < at + len; i += 997)
		bytes[i] ^= 1;
}

static void assert_stored(struct fixture *f, size_t size)
{
	assert_int_equal(size, store.object_len);
	assert_memory_equal(bytes, store.object, size);
	assert_string_equal(store.object_etag, f->info.etag);
	assert_int_equal(size, f->info.size);
	assert_int_equal(0, store_alive());
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	store_reset();
	for (size_t i = 0; i < FILE_SIZE; i++)
		bytes[i] = (char)(i * 2654435761u >> 13);
	assert_int_equal(0, mkdir(directory, 0700));
	begin(f, store_answer);
	*state = f;
	assert_int_equal(0, put(f));
	assert_int_equal(1, store.puts);
	return 0;
}

static int tear_down(void **state)
{
	end(*state);
	store_reset();
	free(*state);
	return fs_remove_tree(directory, NULL);
}

/* ---- uploads ---- */

static void only_what_differs_is_sent(void **state)
{
	struct fixture *f = *state;

	for (int round = 0; round < 3; round++) {
		change((size_t)round * 7 * MIB + 12345, 300 * KIB);

		assert_int_equal(0, put_size(f, FILE_SIZE, store.object_etag));

		assert_true(store.sent_bytes <= 5 * MIB + 2 * BLOCK);
		assert_int_equal(FILE_SIZE, store.sent_bytes + store.copied_bytes);
		assert_stored(f, FILE_SIZE);
	}
}

static void a_file_that_grew_sends_its_end(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(0, put_size(f, 20 * MIB + 5, NULL));
	assert_int_equal(0, put_size(f, FILE_SIZE - 7, NULL));

	assert_true(store.sent_bytes <= 4 * MIB + BLOCK + 77);
	assert_stored(f, FILE_SIZE - 7);

	/* If the file became shorter, only its new last block is sent. */
	assert_int_equal(0, put_size(f, 20 * MIB + 5, NULL));
	assert_true(store.sent_bytes <= BLOCK);
	assert_stored(f, 20 * MIB + 5);
}

static void where_half_has_changed_all_is_sent(void **state)
{
	struct fixture *f = *state;

	change(0, FILE_SIZE / 2 + MIB);

	assert_int_equal(0, put(f));

	assert_int_equal(0, store.copied_parts);
	assert_int_equal(1, store.puts);
	assert_stored(f, FILE_SIZE);
}

static void a_store_without_copies_gets_all_of_it(void **state)
{
	struct fixture *f = *state;

	store.no_copies = true;
	change(MIB, 10);
	assert_int_equal(0, put(f));
	assert_stored(f, FILE_SIZE);

	/* The client remembers that the store copies no parts, and starts no upload with copies
	 * again. */
	change(MIB, 10);
	unsigned uploads = store.uploads;
	assert_int_equal(0, put(f));
	assert_int_equal(uploads, store.uploads);
	assert_stored(f, FILE_SIZE);
}

static void somebody_elses_object_is_not_built_upon(void **state)
{
	struct fixture *f = *state;
	char *other = calloc(1, FILE_SIZE);

	pthread_mutex_lock(&store_lock);
	store_object(other, FILE_SIZE);
	pthread_mutex_unlock(&store_lock);
	free(other);
	change(MIB, 10);

	assert_int_equal(0, put(f));

	assert_int_equal(0, store.copied_parts);
	assert_stored(f, FILE_SIZE);
}

/* Ceph ignores the condition on the source of a copy. */
static void a_store_that_ignores_the_condition_is_found_out(void **state)
{
	struct fixture *f = *state;

	for (int sums = 1; sums >= 0; sums--) {
		char *other = calloc(1, FILE_SIZE);

		store.no_sums = !sums;
		store.ignores_if_match = true;
		pthread_mutex_lock(&store_lock);
		store_object(other, FILE_SIZE);
		pthread_mutex_unlock(&store_lock);
		free(other);
		change(MIB, 10);

		assert_int_equal(0, put(f));

		assert_true(store.copied_parts > 0);
		assert_stored(f, FILE_SIZE);
	}
}

static void a_copy_of_other_bytes_is_found_out(void **state)
{
	struct fixture *f = *state;

	store.copies_wrongly = true;
	change(MIB, 10);

	assert_int_equal(0, put(f));

	assert_true(store.copied_parts > 0);
	assert_stored(f, FILE_SIZE);
}

/* Blocks without a valid record count as changed. */
static void a_damaged_record_costs_what_it_told_of(void **state)
{
	_cleanup_free_ char *records = path_join(directory, "records/below");
	_cleanup_free_ char *path = NULL;
	_cleanup_closedir_ DIR *d = opendir(records);
	struct fixture *f = *state;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (e->d_name[0] != '.')
			path = path_join(records, e->d_name);
	}
	_cleanup_close_ int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	/* Damage the first line of checksums, which covers 64 of the 97 blocks. */
	assert_int_equal(0, fs_pwrite_all(fd, "zz", 2, 400));

	assert_int_equal(0, put(f));
	assert_stored(f, FILE_SIZE);
	assert_int_equal(0, store.copied_parts);

	change(MIB, 10);
	assert_int_equal(0, put(f));
	assert_true(store.copied_parts > 0);
	assert_stored(f, FILE_SIZE);
}

static void a_condition_that_fails_is_no_reason_to_send_it_whole(void **state)
{
	struct fixture *f = *state;

	change(MIB, 10);

	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION, put_size(f, FILE_SIZE, "\"not that one\""));

	assert_int_equal(0, store_alive());
}

/* ---- the plan ---- */

struct files {
	struct delta_sums now, earlier;
};

static void files_init(struct files *t, uint64_t size, uint64_t earlier)
{
	assert_int_equal(0, delta_sums_init(&t->now, size, NULL, CHECKSUM_CRC64NVME, NULL));
	assert_int_equal(
		0, delta_sums_init(&t->earlier, earlier, &t->now, CHECKSUM_CRC64NVME, NULL));
}

static void files_release(struct files *t)
{
	delta_sums_release(&t->now);
	delta_sums_release(&t->earlier);
}

/* Checks that every part has the right offset and a sufficient size, and that copied blocks are
 * unchanged. */
static void check_plan(const struct files *t, const struct delta_plan *plan, uint64_t least)
{
	uint64_t at = 0, sent = 0;

	for (unsigned i = 0; i < plan->n; i++) {
		const struct delta_span *span = &plan->spans[i];

		assert_int_equal(at, span->offset);
		assert_true(span->length > 0);
		if (i + 1 < plan->n)
			assert_true(span->length >= least);
		for (uint64_t b = span->offset / t->now.block;
			span->copy && b * t->now.block < span->offset + span->length; b++) {
			assert_true(b < t->earlier.n);
			assert_memory_equal(t->now.tags[b], t->earlier.tags[b], DELTA_TAG);
		}
		sent += span->copy ? 0 : span->length;
		at += span->length;
	}
	assert_int_equal(t->now.size, at);
	assert_int_equal(plan->sent, sent);
}

/* Returns the smallest number of blocks that any plan sends, by trying all plans (up to 2^20). */
static uint64_t fewest(const struct files *t, uint64_t least, uint64_t from)
{
	uint64_t n = t->now.n, best = UINT64_MAX;
	bool same = true;

	if (from == n)
		return 0;
	for (uint64_t end = from + 1; end <= n; end++) {
		uint64_t rest;

		same = same && end - 1 < t->earlier.n &&
		       memcmp(t->now.tags[end - 1], t->earlier.tags[end - 1], DELTA_TAG) == 0;
		if (end < n && end - from < least)
			continue;
		rest = fewest(t, least, end);
		if (rest == UINT64_MAX)
			continue;
		rest += same ? 0 : end - from;
		best = rest < best ? rest : best;
	}
	return best;
}

static void no_plan_sends_less(void **state)
{
	uint32_t random = 1;

	(void)state;
	for (int round = 0; round < 100; round++) {
		struct files t;
		struct delta_plan plan;
		uint64_t n = 1 + (random >> 8) % 11, least = 1 + (random >> 16) % 5;

		files_init(&t, n * BLOCK, n * BLOCK);
		for (uint64_t i = 0; i < n; i++) {
			random = random * 1664525 + 1013904223;
			t.now.tags[i][0] = (random >> 24) % 4 == 0;
		}
		assert_int_equal(0,
			delta_plan(&plan, &t.now, &t.earlier, least * BLOCK, least * BLOCK, NULL));
		check_plan(&t, &plan, least * BLOCK);
		assert_int_equal(fewest(&t, least, 0) * BLOCK, plan.sent);
		delta_plan_release(&plan);
		files_release(&t);
	}
}

/* In a file of 100 MB, a contiguous 5 % have changed, at any offset. */
static void five_percent_cost_little_more(void **state)
{
	const uint64_t size = 100 * 1000 * 1000;

	(void)state;
	for (uint64_t at = 0; at + 5000000 <= size; at += 1234567) {
		struct files t;
		struct delta_plan plan;

		files_init(&t, size, size);
		for (uint64_t i = at / BLOCK; i <= (at + 4999999) / BLOCK; i++)
			t.now.tags[i][3] = 1;
		assert_int_equal(0, delta_plan(&plan, &t.now, &t.earlier, 5 * MIB, 8 * MIB, NULL));
		check_plan(&t, &plan, 5 * MIB);
		/* There may be too few blocks before the change for a separate part. */
		assert_true(plan.sent * 100 <= size * (at < 5 * MIB ? 11 : 6));
		delta_plan_release(&plan);
		files_release(&t);
	}
}

static void large_files_have_few_blocks_and_few_parts(void **state)
{
	struct files t;
	struct delta_plan plan;
	uint64_t size = UINT64_C(1) << 40;

	(void)state;
	files_init(&t, size, size);
	t.now.tags[77][0] = 1;

	assert_int_equal(0, delta_plan(&plan, &t.now, &t.earlier, 5 * MIB, 8 * MIB, NULL));

	assert_int_equal(16384, t.now.n);
	check_plan(&t, &plan, 5 * MIB);
	assert_int_equal(t.now.block, plan.sent);
	assert_true(plan.n <= 8193);
	delta_plan_release(&plan);
	files_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(only_what_differs_is_sent, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_that_grew_sends_its_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			where_half_has_changed_all_is_sent, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_store_without_copies_gets_all_of_it, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			somebody_elses_object_is_not_built_upon, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_store_that_ignores_the_condition_is_found_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_copy_of_other_bytes_is_found_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_damaged_record_costs_what_it_told_of, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_condition_that_fails_is_no_reason_to_send_it_whole, set_up, tear_down),
		cmocka_unit_test(no_plan_sends_less),
		cmocka_unit_test(five_percent_cost_little_more),
		cmocka_unit_test(large_files_have_few_blocks_and_few_parts),
	};
	int failed;

	bytes = malloc(FILE_SIZE);
	if (!bytes || !mkdtemp(directory) || rmdir(directory) < 0)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(bytes);
	return failed;
}
