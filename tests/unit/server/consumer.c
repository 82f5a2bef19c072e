/* Consumers of events: order, pauses, and the removal of events. */
#include "../store/fixture.h"

#include <pthread.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "server/bucket/consumer.h"

enum { PATIENCE_MS = 60000, LONG_PAUSE_MS = 3600000 };

static const char *const queues[] = {"q", "other"};

/* A consumer, and a log of its calls. */
struct queue {
	struct consumer consumer; /* must be the first member */
	const char *results; /* next results: 'w' wait, 'g' give up, any other: the event is done */
	struct store_annotation note; /* added to every event, unless its key is NULL */
	struct buf log; /* protected by `lock` */
	atomic_size_t waiting; /* number of events at the last call */
};

static struct fixture *f;
static struct consumers all;
static struct queue list[ARRAY_SIZE(queues)];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t logged;
static int n_unread; /* protected by `lock` */

static void add_to_log(struct consumer *c, const char *text)
{
	LOCK_SCOPE(&lock);
	buf_add_str(&((struct queue *)c)->log, text);
	pthread_cond_broadcast(&logged);
}

static enum consumer_result settle(struct consumer *c, struct store_event *event,
	struct store_event_end *end, struct store_annotation *note, struct penstock_error *err)
{
	struct queue *queue = (struct queue *)c;
	char result = *queue->results;

	atomic_store(&queue->waiting, store_event_count(c->all->store, c->queue).waiting);
	queue->results += result != '\0';
	if (queue->note.key) {
		*note = queue->note;
		end->note = note;
	}
	if (result == 'w')
		error_set(err, PENSTOCK_E_IO, "unreachable");
	add_to_log(c, event->text);
	return result == 'w' ? CONSUMER_WAIT : result == 'g' ? CONSUMER_GAVE_UP : CONSUMER_SETTLED;
}

static void paused(struct consumer *c, const struct penstock_error *err)
{
	char text[64];

	snprintf(text, sizeof(text), " paused %d ms: %s ", (int)c->pause_ms, err->message);
	add_to_log(c, text);
}

static void resumed(struct consumer *c)
{
	(void)c;
}

static const struct consumer_ops ops = {
	.thread = "test", .what = "test", .settle = settle, .paused = paused, .resumed = resumed};

static void add(const char *queue, const char *text)
{
	assert_int_equal(store_event_put(f->store, queue, text, NULL), STORE_OK);
}

static void start(size_t i)
{
	assert_int_equal(consumer_start(&list[i].consumer, &all, queues[i], queues[i], NULL), 0);
}

static void await_log(size_t i, const char *text)
{
	int64_t end_ms = clock_monotonic_ms() + PATIENCE_MS;

	LOCK_SCOPE(&lock);
	while (strcmp(buf_str(&list[i].log), text) != 0) {
		if (clock_monotonic_ms() > end_ms)
			fail_msg("'%s' is not '%s'", buf_str(&list[i].log), text);
		clock_cond_wait_until_ms(&logged, &lock, end_ms);
	}
}

static int begin_with(void **state, int64_t pause_ms)
{
	size_t strays;

	if (setup(state) < 0)
		return -1;
	f = *state;
	clock_cond_init(&logged);
	memset(list, 0, sizeof(list));
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		list[i].results = "";
		buf_init(&list[i].log, MIB);
	}
	consumers_init(&all, &ops, f->store, pause_ms);
	return store_event_targets(f->store,
		       &(struct store_targets){
			       .kind = "", .names = queues, .n = ARRAY_SIZE(queues)},
		       &strays, NULL) == STORE_OK
		       ? 0
		       : -1;
}

static int begin(void **state)
{
	return begin_with(state, 1);
}

static int begin_with_long_pauses(void **state)
{
	return begin_with(state, LONG_PAUSE_MS);
}

static int end(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		buf_release(&list[i].log);
	pthread_cond_destroy(&logged);
	return teardown(state);
}

static void events_are_settled_in_their_order_and_removed(void **state)
{
	_cleanup_(buf_release) struct buf expected = BUF_INIT(MIB);

	(void)state;
	for (int i = 0; i < 250; i++) {
		char text[16];

		snprintf(text, sizeof(text), "%d,", i);
		add("q", text);
		buf_add_str(&expected, text);
	}
	start(0);
	await_log(0, buf_str(&expected));
	consumers_stop(&all);

	assert_int_equal(store_event_count(f->store, "q").waiting, 0);
}

static void each_pause_is_twice_as_long_until_an_event_is_settled(void **state)
{
	(void)state;
	list[0].results = "www.w";
	add("q", "a");
	add("q", "b");
	start(0);
	await_log(0, "a paused 1 ms: unreachable a paused 2 ms: unreachable "
		     "a paused 4 ms: unreachable ab paused 1 ms: unreachable b");
	consumers_stop(&all);

	assert_int_equal(store_event_count(f->store, "q").waiting, 0);
}

static void on_line(void *cookie, enum log_level level, const char *line)
{
	(void)cookie;
	(void)level;
	LOCK_SCOPE(&lock);
	n_unread += strstr(line, "'q': cannot read the events") != NULL;
	pthread_cond_broadcast(&logged);
}

static void await_unread(int n)
{
	int64_t end_ms = clock_monotonic_ms() + PATIENCE_MS;

	LOCK_SCOPE(&lock);
	while (n_unread < n) {
		assert_true(clock_monotonic_ms() < end_ms);
		clock_cond_wait_until_ms(&logged, &lock, end_ms);
	}
}

/* A read error is no failure of the receiver, so the pause does not grow. */
static void events_that_cannot_be_read_are_read_again_after_the_first_pause(void **state)
{
	(void)state;
	add("q", "a");
	fixture_exec(f, "ALTER TABLE events RENAME TO hidden");
	log_set_sink(on_line, NULL);
	start(0);
	await_unread(30); /* with pauses that grow, this would take hours */
	fixture_exec(f, "ALTER TABLE hidden RENAME TO events");
	await_log(0, "a");
	consumers_stop(&all);
	log_set_sink(NULL, NULL);

	assert_int_equal(store_event_count(f->store, "q").waiting, 0);
}

static void an_event_that_is_given_up_is_removed_before_the_next(void **state)
{
	(void)state;
	list[0].results = "g";
	add("q", "a");
	add("q", "b");
	start(0);
	await_log(0, "ab");
	consumers_stop(&all);

	assert_int_equal(atomic_load(&list[0].waiting), 1);
}

static void a_note_is_stored_when_its_event_is_removed(void **state)
{
	struct store_object *object;

	(void)state;
	put(f, "k", "e", "text");
	list[0].note = (struct store_annotation){
		.bucket = "b", .key = "k", .name = ":note", .value = "done", .any = true};
	add("q", "a");
	start(0);
	await_log(0, "a");
	consumers_stop(&all);

	object = get(f, "k");
	assert_string_equal(store_object_header(object, ":note"), "done");
	store_object_unref(object);
}

static void a_new_event_wakes_the_consumer_of_its_queue(void **state)
{
	(void)state;
	start(0);
	start(1);
	add("q", "a");
	list[0].consumer.added = true;
	consumers_wake(&all);
	await_log(0, "a");
	assert_false(list[0].consumer.added);
	add("other", "b");
	consumer_wake(&list[1].consumer);
	await_log(1, "b");
	consumers_stop(&all);

	await_log(0, "a");
}

/* The consumer of another queue does not wait for the pause. */
static void a_pause_ends_when_the_consumers_are_stopped(void **state)
{
	(void)state;
	list[0].results = "w";
	add("q", "a");
	add("other", "b");
	start(0);
	await_log(0, "a paused 60000 ms: unreachable ");
	start(1);
	await_log(1, "b");
	consumers_stop(&all);

	assert_int_equal(store_event_count(f->store, "q").waiting, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(events_are_settled_in_their_order_and_removed),
		TEST(each_pause_is_twice_as_long_until_an_event_is_settled),
		TEST(events_that_cannot_be_read_are_read_again_after_the_first_pause),
		TEST(an_event_that_is_given_up_is_removed_before_the_next),
		TEST(a_note_is_stored_when_its_event_is_removed),
		TEST(a_new_event_wakes_the_consumer_of_its_queue),
		cmocka_unit_test_setup_teardown(
			a_pause_ends_when_the_consumers_are_stopped, begin_with_long_pauses, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
