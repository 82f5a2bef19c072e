#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "dataset/ahead.h"
#include "dataset/dataset.h"
#include "mini_http.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "transfer/objects.h"

#define SHARDS 8
#define SIZE   1000
#define BATCH  16

/* A store with the objects "0" to "7"; all bytes of an object are its name. */
struct fixture {
	struct mini_http m;
	struct http_engine *engine, *own; /* `own`: for the child */
	struct object_client *client, *own_client;
	atomic_uint opened;
	atomic_bool silent;
	struct dataset *set;
	struct ahead *ahead;
	uint64_t ids[BATCH];
	char data[BATCH * SIZE];
};

static bool list(int fd)
{
	char text[4096];
	size_t n = (size_t)snprintf(
		text, sizeof(text), "<ListBucketResult><IsTruncated>false</IsTruncated>");

	for (int i = 0; i < SHARDS; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n,
			"<Contents><Key>%d</Key><Size>%d</Size><ETag>&quot;e&quot;</ETag>"
			"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>",
			i, SIZE);
	n += (size_t)snprintf(text + n, sizeof(text) - n, "</ListBucketResult>");
	return mini_reply(fd, "200 OK", "Content-Type: application/xml\r\n", text, n);
}

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	char content[SIZE];

	if (strstr(r->target, "list-type"))
		return list(fd);
	if (strstr(r->target, ".penstock-index"))
		return mini_reply(fd, "404 Not Found", "", "", 0);
	if (atomic_load(&f->silent)) {
		while (recv(fd, content, sizeof(content), 0) > 0)
			;
		return false;
	}
	memset(content, r->target[strlen("/bucket/")], SIZE);
	return mini_serve(r, fd, "\"e\"", content, SIZE);
}

static void make_client(
	const struct fixture *f, struct http_engine **engine, struct object_client **client)
{
	char url[MINI_URL_SIZE];

	mini_url(&f->m, "", url);
	assert_int_equal(http_engine_new(engine, NULL, NULL), 0);
	assert_int_equal(object_client_open(client, *engine,
				 &(struct store_place){.endpoint_url = url,
					 .region = "us-east-1",
					 .access_key_id = "key",
					 .secret_access_key = "secret"},
				 NULL),
		0);
}

/* The child makes the second call. */
static int open_client(
	void *cookie, bool google, struct object_client **out, struct penstock_error *err)
{
	struct fixture *f = cookie;

	(void)google;
	(void)err;
	if (atomic_fetch_add(&f->opened, 1) == 0) {
		make_client(f, &f->engine, &f->client);
		*out = f->client;
	} else {
		clock_sleep_ms(20); /* gives another thread time to call, too */
		make_client(f, &f->own, &f->own_client);
		*out = f->own_client;
	}
	return 0;
}

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const struct dataset_options options = {
		.place = {.url = "s3://bucket", .open = open_client, .cookie = f},
		.format = "objects"};

	mini_start(&f->m, answer, f);
	assert_int_equal(dataset_open(&f->set, &options, NULL), 0);
	assert_int_equal(ahead_new(&f->ahead, f->set, 4, NULL), 0);
	for (size_t i = 0; i < BATCH; i++)
		f->ids[i] = i * 5 % SHARDS;
	*state = f;
	return 0;
}

static int finish(void **state)
{
	struct fixture *f = *state;

	ahead_free(f->ahead);
	dataset_free(f->set);
	object_client_free(f->client);
	http_engine_free(f->engine);
	mini_stop(&f->m);
	free(f);
	return 0;
}

static bool is_right(const struct fixture *f, const char *data)
{
	for (size_t i = 0; i < BATCH; i++) {
		if (data[i * SIZE] != (char)('0' + f->ids[i]) ||
			memcmp(data + i * SIZE, data + i * SIZE + 1, SIZE - 1) != 0)
			return false;
	}
	return true;
}

#define ROUNDS 20
#define JOBS   6

static void *use(void *cookie)
{
	struct fixture *f = cookie;
	_cleanup_free_ char *data = malloc(JOBS * sizeof(f->data));

	for (int i = 0; i < ROUNDS; i++) {
		struct ahead_job *jobs[JOBS];

		for (size_t k = 0; k < JOBS; k++)
			if (ahead_start(f->ahead, f->ids, BATCH, data + k * sizeof(f->data),
				    &jobs[k], NULL) < 0)
				return NULL;
		for (size_t k = 0; k < JOBS; k++) {
			if (k % 3 == 2)
				ahead_drop(jobs[k]);
			else if (ahead_wait(jobs[k], NULL) < 0 ||
				 !is_right(f, data + k * sizeof(f->data)))
				return NULL;
		}
	}
	return f;
}

static void threads_start_wait_for_and_drop_batches(void **state)
{
	struct fixture *f = *state;
	pthread_t threads[4];

	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use, f), 0);
	for (size_t i = 0; i < 4; i++) {
		void *result;

		pthread_join(threads[i], &result);
		assert_ptr_equal(result, f);
	}
}

/* The server never replies. Some jobs are running, some are waiting for a thread, and some were not
 * started. */
static void jobs_that_are_left_end_at_once(void **state)
{
	struct fixture *f = *state;
	static char data[10][sizeof(f->data)];
	struct ahead_job *jobs[10];
	int64_t start;

	atomic_store(&f->silent, true);
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(ahead_start(f->ahead, f->ids, BATCH, data[i], &jobs[i], NULL), 0);
	assert_false(ahead_ended(jobs[1], 100));
	start = clock_monotonic_ms();
	ahead_drop(jobs[9]);
	ahead_drop(jobs[0]);
	assert_in_range(clock_monotonic_ms() - start, 0, 1000);
	ahead_free(f->ahead);
	f->ahead = NULL;
	assert_in_range(clock_monotonic_ms() - start, 0, 1500);
}

static void a_failed_batch_reports_its_error(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct fixture *f = *state;
	struct ahead_job *job;

	f->ids[3] = SHARDS;
	assert_int_equal(ahead_start(f->ahead, f->ids, BATCH, f->data, &job, NULL), 0);
	assert_int_equal(ahead_wait(job, &err), -(int)PENSTOCK_E_INVALID);
	assert_non_null(strstr(err.message, "s3://bucket"));
	assert_int_equal(ahead_start(f->ahead, f->ids, 0, NULL, &job, NULL), 0);
	assert_true(ahead_ended(job, 60000));
	assert_true(ahead_ended(job, 0));
	assert_int_equal(ahead_wait(job, NULL), 0);
}

static int be_child(struct fixture *f, struct ahead_job *of_parent)
{
	static char data[4][sizeof(f->data)];
	struct ahead_job *jobs[4];

	ahead_drop(of_parent);
	/* Several threads make the first reads of the child at the same time. */
	for (size_t i = 0; i < 4; i++)
		if (ahead_start(f->ahead, f->ids, BATCH, data[i], &jobs[i], NULL) < 0)
			return 1;
	for (size_t i = 0; i < 4; i++)
		if (ahead_wait(jobs[i], NULL) < 0 || !is_right(f, data[i]))
			return 2;
	if (atomic_load(&f->opened) != 2)
		return 3;
	ahead_free(f->ahead);
	dataset_free(f->set);
	object_client_free(f->own_client);
	http_engine_free(f->own);
	return 0;
}

static void a_child_reads_with_threads_and_connections_of_its_own(void **state)
{
	struct fixture *f = *state;
	struct ahead_job *job;
	int status;
	pid_t child;

#ifdef __SANITIZE_THREAD__
	/* ThreadSanitizer mistakes a thread of the child for the parent's thread that had the same
	 * stack. */
	skip();
#endif
	assert_int_equal(ahead_start(f->ahead, f->ids, BATCH, f->data, &job, NULL), 0);
	assert_int_equal(ahead_wait(job, NULL), 0);
	assert_int_equal(ahead_start(f->ahead, f->ids, BATCH, f->data, &job, NULL), 0);
	child = fork();
	if (child == 0)
		_exit(be_child(f, job));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(ahead_wait(job, NULL), 0);
	assert_true(is_right(f, f->data));
}

static void a_child_cannot_wait_for_a_batch_of_its_parent(void **state)
{
	struct fixture *f = *state;
	struct ahead_job *job;
	int status;
	pid_t child;

	assert_int_equal(ahead_start(f->ahead, f->ids, BATCH, f->data, &job, NULL), 0);
	child = fork();
	if (child == 0) {
		status = ahead_wait(job, NULL) == -(int)PENSTOCK_E_INVALID ? 0 : 1;
		ahead_free(f->ahead);
		dataset_free(f->set);
		_exit(status);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	ahead_drop(job);
}

int main(void)
{
#define RULE(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {
		RULE(threads_start_wait_for_and_drop_batches),
		RULE(jobs_that_are_left_end_at_once),
		RULE(a_failed_batch_reports_its_error),
		RULE(a_child_reads_with_threads_and_connections_of_its_own),
		RULE(a_child_cannot_wait_for_a_batch_of_its_parent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
