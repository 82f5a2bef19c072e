#include "fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/*
 * A child process writes from several threads, and reports each acknowledged write through a pipe.
 * The test kills the child with SIGKILL at a random moment, and compares the store with the
 * reports.
 */
#define THREADS 4
#define KEYS	6 /* keys of each thread */
#define KILLS	60

/* The version and the key determine size and bytes, so a mix of versions is detected. */
static size_t version_size(unsigned v)
{
	return v % 3 == 0 ? 100 + v % 1000 : STORE_INLINE_MAX + 1 + (size_t)v * 7919 % 200000;
}

static void version_fill(char *data, unsigned v)
{
	size_t len = version_size(v);

	memset(data, 'a' + (int)(v % 26), len);
	memcpy(data, &v, sizeof(v));
	memcpy(data + len - sizeof(v), &v, sizeof(v));
}

struct report {
	unsigned key;
	unsigned version;
};

struct writer {
	struct fixture *f;
	int pipe;
	unsigned thread;
	unsigned first; /* first version of this round */
};

static void *write_versions(void *arg)
{
	struct writer *w = arg;
	char *data = malloc(STORE_INLINE_MAX + 300000);

	for (unsigned v = w->first;; v++) {
		struct report r = {.key = w->thread * KEYS + v % KEYS, .version = v};
		struct store_put p = {.bucket = "b"};
		char key[16], etag[16];

		snprintf(key, sizeof(key), "k%u", r.key);
		snprintf(etag, sizeof(etag), "v%u", v);
		version_fill(data, v);
		p.key = key;
		p.etag = etag;
		p.body = make_body(w->f->store, data, version_size(v), true);
		if (store_put(w->f->store, &p, NULL) != STORE_OK)
			_exit(3);
		store_body_free(p.body);
		if (write(w->pipe, &r, sizeof(r)) != sizeof(r))
			_exit(4);
	}
	return NULL;
}

static void child_main(struct fixture *f, int pipe_fd, unsigned first)
{
	struct writer writers[THREADS];
	pthread_t thread;

	/* Syncs do nothing in this test, because the page cache survives SIGKILL and the order of
	 * writes is the same. */
	fixture_open(f, false);
	for (unsigned i = 0; i < THREADS; i++) {
		writers[i] = (struct writer){.f = f, .pipe = pipe_fd, .thread = i, .first = first};
		pthread_create(&thread, NULL, write_versions, &writers[i]);
	}
	pause();
}

static unsigned stored_version(struct fixture *f, unsigned key)
{
	struct store_object *o = NULL;
	char name[16], *data, *wanted;
	unsigned v;

	snprintf(name, sizeof(name), "k%u", key);
	if (store_object_get(f->store, "b", name, &o, NULL) == STORE_NO_SUCH_KEY)
		return 0;
	assert_non_null(o);
	v = (unsigned)strtoul(o->etag + 1, NULL, 10);
	assert_int_equal(o->size, version_size(v));
	data = content(o);
	wanted = malloc(o->size);
	version_fill(wanted, v);
	assert_memory_equal(data, wanted, o->size);
	free(wanted);
	free(data);
	store_object_unref(o);
	return v;
}

/* After a kill at any moment, each acknowledged object or a later version of it is complete, and no
 * surplus file is left. */
static void a_kill_loses_nothing_acknowledged(void **state)
{
	struct fixture *f = *state;
	unsigned acknowledged[THREADS * KEYS] = {0};
	unsigned highest = 1, seed = 7, total = 0;

	store_close(f->store);
	f->store = NULL;
	for (int kill_no = 0; kill_no < KILLS; kill_no++) {
		size_t files = 0, wanted_files = 0;
		struct report r;
		int fds[2], status;
		pid_t pid;
		int64_t deadline;

		assert_int_equal(pipe(fds), 0);
		pid = fork();
		if (pid == 0) {
			close(fds[0]);
			child_main(f, fds[1], highest);
		}
		close(fds[1]);
		/* Wait for one acknowledgement, and then for a random fraction of the next
		 * milliseconds. */
		assert_int_equal(read(fds[0], &r, sizeof(r)), sizeof(r));
		do {
			if (r.version > acknowledged[r.key])
				acknowledged[r.key] = r.version;
			if (r.version >= highest)
				highest = r.version + 1;
			total++;
		} while (rand_r(&seed) % 40 && read(fds[0], &r, sizeof(r)) == sizeof(r));
		usleep((useconds_t)rand_r(&seed) % 3000);
		kill(pid, SIGKILL);
		while (read(fds[0], &r, sizeof(r)) == sizeof(r)) {
			if (r.version > acknowledged[r.key])
				acknowledged[r.key] = r.version;
			if (r.version >= highest)
				highest = r.version + 1;
		}
		close(fds[0]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));

		fixture_open(f, false);
		for (unsigned k = 0; k < THREADS * KEYS; k++) {
			unsigned v = stored_version(f, k);

			assert_true(v >= acknowledged[k]);
			if (v >= highest)
				highest = v + 1;
			wanted_files += v && version_size(v) > STORE_INLINE_MAX;
		}
		deadline = clock_monotonic_ms() + 20000;
		while ((files = count_files(f)) != wanted_files && clock_monotonic_ms() < deadline)
			clock_sleep_ms(1);
		assert_int_equal(files, wanted_files);
		store_close(f->store);
		f->store = NULL;
	}
	assert_true(total > KILLS);
}

/* --- with versioning ------------------------------------------------------------------------- */

#define REPORTS 4096

static void assert_whole(const struct store_object *o, unsigned v)
{
	char *data = content((struct store_object *)(uintptr_t)o),
	     *wanted = malloc(version_size(v));

	assert_int_equal(o->size, version_size(v));
	version_fill(wanted, v);
	assert_memory_equal(data, wanted, o->size);
	free(wanted);
	free(data);
}

/* Returns the number of acknowledged writes whose versions exist. Deletes all versions. */
static size_t take_versions(struct fixture *f, const struct report *reports, size_t n)
{
	struct store_list_query query = {.bucket = "b", .max = 10000};
	struct store_list list = {0};
	size_t found = 0;

	assert_int_equal(store_version_list(f->store, &query, NULL, &list, NULL), STORE_OK);
	assert_false(list.truncated);
	for (size_t i = 0; i < list.n; i++) {
		struct store_list_entry *e = &list.entries[i];
		unsigned key = (unsigned)atoi(e->key + 1), v = (unsigned)atoi(e->etag + 1);
		struct store_delete item = {.key = e->key, .version = e->version};
		struct store_object *o = NULL;

		assert_int_equal(
			store_version_get(f->store, "b", e->key, e->version, &o, NULL), STORE_OK);
		assert_whole(o, v);
		store_object_unref(o);
		for (size_t k = 0; k < n; k++)
			found += reports[k].key == key && reports[k].version == v;
		assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
		assert_true(item.existed);
	}
	store_list_release(&list);
	return found;
}

static void a_kill_loses_no_version(void **state)
{
	struct fixture *f = *state;
	struct report *reports = calloc(REPORTS, sizeof(*reports));
	unsigned seed = 8;

	assert_int_equal(
		store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL), STORE_OK);
	store_close(f->store);
	f->store = NULL;
	for (int kill_no = 0; kill_no < KILLS / 2; kill_no++) {
		int64_t deadline = clock_monotonic_ms() + 20000;
		size_t n = 0;
		int fds[2], status;
		pid_t pid;

		assert_int_equal(pipe(fds), 0);
		pid = fork();
		if (pid == 0) {
			close(fds[0]);
			child_main(f, fds[1], 1);
		}
		close(fds[1]);
		do {
			assert_int_equal(
				read(fds[0], &reports[n++], sizeof(*reports)), sizeof(*reports));
		} while (rand_r(&seed) % 40 && n < REPORTS / 2);
		usleep((useconds_t)rand_r(&seed) % 3000);
		kill(pid, SIGKILL);
		while (n < REPORTS &&
			read(fds[0], &reports[n], sizeof(*reports)) == sizeof(*reports))
			n++;
		close(fds[0]);
		assert_int_equal(waitpid(pid, &status, 0), pid);

		fixture_open(f, false);
		assert_int_equal(take_versions(f, reports, n), n);
		while (count_files(f) && clock_monotonic_ms() < deadline)
			clock_sleep_ms(1);
		assert_int_equal(count_files(f), 0);
		store_close(f->store);
		f->store = NULL;
	}
	free(reports);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_kill_loses_nothing_acknowledged, setup, teardown),
		cmocka_unit_test_setup_teardown(a_kill_loses_no_version, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
