#include "fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/file.h>

#define WRITERS 4
#define READERS 4
#define ROUNDS	300

struct shared {
	struct fixture *f;
	atomic_bool stop;
	atomic_uint reads;
};

/* Puts objects of one letter that are large enough to be files. */
static void *replace(void *arg)
{
	struct shared *s = arg;
	size_t len = STORE_INLINE_MAX + 5000;
	char *data = malloc(len);

	for (int i = 0; i < ROUNDS; i++) {
		struct store_put p = {.bucket = "b", .key = i % 2 ? "k" : "l", .etag = "e"};

		memset(data, 'a' + i % 26, len - (size_t)(i % 7));
		p.body = make_body(s->f->store, data, len - (size_t)(i % 7), true);
		assert_int_equal(store_put(s->f->store, &p, NULL), STORE_OK);
		store_body_free(p.body);
	}
	free(data);
	return NULL;
}

static void *read_all(void *arg)
{
	struct shared *s = arg;

	while (!atomic_load(&s->stop)) {
		struct store_object *o = NULL;
		const char *data;

		if (store_object_get(s->f->store, "b", "k", &o, NULL) != STORE_OK)
			continue;
		data = store_object_map(o, 0, o->size);
		assert_non_null(data);
		for (size_t i = 1; i < o->size; i += 1000)
			assert_int_equal(data[i], data[0]);
		assert_int_equal(data[o->size - 1], data[0]);
		store_object_unref(o);
		atomic_fetch_add(&s->reads, 1);
	}
	return NULL;
}

/* Each reader sees one complete version while others replace it, and no surplus file is left. */
static void readers_never_see_a_mixture(void **state)
{
	struct fixture *f = *state;
	struct shared s = {.f = f};
	pthread_t writers[WRITERS], readers[READERS];

	for (int i = 0; i < READERS; i++)
		pthread_create(&readers[i], NULL, read_all, &s);
	for (int i = 0; i < WRITERS; i++)
		pthread_create(&writers[i], NULL, replace, &s);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	atomic_store(&s.stop, true);
	for (int i = 0; i < READERS; i++)
		pthread_join(readers[i], NULL);

	assert_true(atomic_load(&s.reads) > 0);
	store_close(f->store);
	f->store = NULL;
	assert_int_equal(count_files(f), 2);
	fixture_open(f, false);
}

struct race {
	struct fixture *f;
	pthread_barrier_t *barrier;
	unsigned wins;
};

static void *create_only(void *arg)
{
	struct race *r = arg;

	for (int i = 0; i < ROUNDS; i++) {
		char key[16];
		struct store_put p = {.condition.if_none_match = "*"};

		snprintf(key, sizeof(key), "r%d", i);
		p.key = key;
		pthread_barrier_wait(r->barrier);
		r->wins += put_full(r->f, &p, "x", 1) == STORE_OK;
	}
	return NULL;
}

/* Exactly one of several concurrent creations of a key succeeds. */
static void create_only_has_one_winner(void **state)
{
	struct fixture *f = *state;
	pthread_barrier_t barrier;
	struct race races[WRITERS];
	pthread_t threads[WRITERS];
	unsigned wins = 0;

	pthread_barrier_init(&barrier, NULL, WRITERS);
	for (int i = 0; i < WRITERS; i++) {
		races[i] = (struct race){.f = f, .barrier = &barrier};
		pthread_create(&threads[i], NULL, create_only, &races[i]);
	}
	for (int i = 0; i < WRITERS; i++) {
		pthread_join(threads[i], NULL);
		wins += races[i].wins;
	}
	pthread_barrier_destroy(&barrier);

	assert_int_equal(wins, ROUNDS);
}

struct watcher {
	sem_t begun, gate, done;
};

/* Blocks the committer for the key "gate", fails for "bad", and adds an event for other keys. */
static int on_change(void *cookie, struct store *store, const struct store_change *change)
{
	struct watcher *w = cookie;

	if (strcmp(change->key, "bad") == 0)
		return STORE_EVENT_NO_MEMORY;
	if (strcmp(change->key, "gate") != 0)
		return store_event_add(store, "hook", 0, "{}", 2);
	sem_post(&w->begun);
	sem_wait(&w->gate);
	return 0;
}

static void on_added(void *cookie)
{
	(void)cookie;
}

static void on_done(struct store_put *put, void *cookie)
{
	struct watcher *w = cookie;

	(void)put;
	sem_post(&w->done);
}

/* If a change in a batch fails, the batch is rolled back and its other changes are made again. */
static void an_event_that_is_dropped_in_a_retried_batch_counts_once(void **state)
{
	struct fixture *f = *state;
	static const char *const names[] = {"hook"};
	static const char *const keys[] = {"gate", "good", "bad"};
	const struct store_targets targets = {.kind = "", .names = names, .n = 1, .limit = 1};
	const struct store_origin origin = {.event = "ObjectCreated:Put"};
	struct store_put first = {.key = "first", .origin = &origin}, puts[3] = {0};
	struct watcher w;
	size_t strays;

	sem_init(&w.begun, 0, 0);
	sem_init(&w.gate, 0, 0);
	sem_init(&w.done, 0, 0);
	assert_int_equal(store_event_targets(f->store, &targets, &strays, NULL), STORE_OK);
	store_observe(f->store,
		&(struct store_observer){.change = on_change, .added = on_added, .cookie = &w});
	assert_int_equal(put_full(f, &first, "x", 1), STORE_OK);

	for (int i = 0; i < 3; i++) {
		puts[i] = (struct store_put){.bucket = "b",
			.key = keys[i],
			.body = make_body(f->store, "x", 1, true),
			.etag = "e",
			.origin = &origin,
			.done = on_done,
			.cookie = &w};
		store_put_submit(f->store, &puts[i]);
		if (i == 0)
			sem_wait(&w.begun);
	}
	sem_post(&w.gate);
	for (int i = 0; i < 3; i++)
		sem_wait(&w.done);

	assert_int_equal(puts[1].status, STORE_OK);
	assert_int_equal(puts[2].status, STORE_FAILED);
	assert_int_equal(store_event_count(f->store, "hook").waiting, 1);
	assert_int_equal(store_event_count(f->store, "hook").dropped, 1);
	for (int i = 0; i < 3; i++) {
		store_body_free(puts[i].body);
		penstock_error_release(&puts[i].error);
	}
	store_close(f->store); /* no thread uses `w` after this */
	f->store = NULL;
	fixture_open(f, false);
}

static void *delete_both(void *arg)
{
	struct fixture *f = arg;
	struct store_delete items[] = {{.key = "one"}, {.key = "two"}};

	assert_int_equal(store_delete(f->store, "b", 0, items, 2, NULL), STORE_OK);
	return NULL;
}

static void await_changes(struct fixture *f, size_t n)
{
	struct store_commits commits;
	int64_t end_ms = clock_monotonic_ms() + 60000;

	do {
		assert_true(clock_monotonic_ms() < end_ms);
		store_commits(f->store, &commits);
	} while (commits.waiting < n);
}

static void a_deletion_in_a_retried_batch_deletes_all_items(void **state)
{
	struct fixture *f = *state;
	static const char *const keys[] = {"gate", "bad"};
	const struct store_origin origin = {.event = "ObjectCreated:Put"};
	struct store_object *object = NULL;
	struct store_put puts[2];
	struct watcher w;
	pthread_t thread;

	sem_init(&w.begun, 0, 0);
	sem_init(&w.gate, 0, 0);
	sem_init(&w.done, 0, 0);
	store_observe(f->store,
		&(struct store_observer){.change = on_change, .added = on_added, .cookie = &w});
	assert_int_equal(put(f, "one", "e", "1"), STORE_OK);
	assert_int_equal(put(f, "two", "e", "2"), STORE_OK);

	for (int i = 0; i < 2; i++) {
		puts[i] = (struct store_put){.bucket = "b",
			.key = keys[i],
			.body = make_body(f->store, "x", 1, true),
			.etag = "e",
			.origin = &origin,
			.done = on_done,
			.cookie = &w};
		store_put_submit(f->store, &puts[i]);
		if (i == 0) {
			sem_wait(&w.begun);
			pthread_create(&thread, NULL, delete_both, f);
			await_changes(f, 2);
		}
	}
	sem_post(&w.gate);
	for (int i = 0; i < 2; i++)
		sem_wait(&w.done);
	pthread_join(thread, NULL);

	assert_int_equal(puts[1].status, STORE_FAILED);
	assert_int_equal(store_object_get(f->store, "b", "one", &object, NULL), STORE_NO_SUCH_KEY);
	assert_int_equal(store_object_get(f->store, "b", "two", &object, NULL), STORE_NO_SUCH_KEY);
	for (int i = 0; i < 2; i++) {
		store_body_free(puts[i].body);
		penstock_error_release(&puts[i].error);
	}
	store_close(f->store); /* no thread uses `w` after this */
	f->store = NULL;
	fixture_open(f, false);
}

static atomic_bool enough;

/* Checks if the store has an owner, as `penstock store stat` does. */
static void *look(void *arg)
{
	const struct fixture *f = arg;
	char path[128];

	snprintf(path, sizeof(path), "%s/lock", f->root);
	while (!atomic_load(&enough)) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		flock(fd, LOCK_SH | LOCK_NB);
		close(fd);
	}
	return NULL;
}

static void a_guest_that_looks_does_not_prevent_a_start(void **state)
{
	struct fixture *f = *state;
	struct store *second = NULL;
	pthread_t guest;

	assert_int_equal(pthread_create(&guest, NULL, look, f), 0);
	for (int i = 0; i < 100; i++) {
		store_close(f->store);
		f->store = NULL;
		fixture_open(f, false);
		assert_int_equal(
			store_open(&second, &(struct store_options){.root = f->root}, NULL),
			-PENSTOCK_E_EXISTS);
	}
	atomic_store(&enough, true);
	pthread_join(guest, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(readers_never_see_a_mixture),
		TEST(create_only_has_one_winner),
		TEST(an_event_that_is_dropped_in_a_retried_batch_counts_once),
		TEST(a_deletion_in_a_retried_batch_deletes_all_items),
		TEST(a_guest_that_looks_does_not_prevent_a_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
