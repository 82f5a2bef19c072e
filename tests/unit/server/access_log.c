/* The memory for access logs: accounts share it, and lines are delivered before the memory is
 * full. */
#include "../store/fixture.h"

#include <pthread.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/bucket/logging.h"
#include "server/bucket/access_log.h"

#define HOUR_MS (3600 * 1000)
#define MINE	"111122223333"
#define OTHER	"222233334444"
#define LONG	(9 * MIB / 10) /* size of a line, less than that of a log object */

/* While a test holds the lock, no object can be created. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static int on_version(void *cookie, struct store *store, const struct store_new_version *version)
{
	(void)cookie;
	(void)store;
	(void)version;
	LOCK_SCOPE(&gate);
	return 0;
}

static void on_added(void *cookie)
{
	(void)cookie;
}

static void add_bucket(struct fixture *f, const char *name, const char *owner)
{
	assert_int_equal(
		store_bucket_add(f->store,
			&(struct store_new_bucket){.name = name, .region = "", .owner = owner},
			NULL),
		STORE_OK);
}

static void add_logged(struct fixture *f, const char *name, const char *owner, const char *target)
{
	_cleanup_free_ char *xml = str_printf(
		"<BucketLoggingStatus><LoggingEnabled><TargetBucket>%s</TargetBucket>"
		"<TargetPrefix></TargetPrefix></LoggingEnabled></BucketLoggingStatus>",
		target);

	assert_non_null(xml);
	add_bucket(f, name, owner);
	assert_int_equal(
		store_config_set(f->store, name, 0, LOGGING_CONFIG, xml, strlen(xml), NULL),
		STORE_OK);
}

static struct access_log *start(struct fixture *f)
{
	struct access_log *log;

	assert_int_equal(access_log_start(&log, f->store, "000000000000", HOUR_MS, NULL), 0);
	return log;
}

static void add_line(struct access_log *log, const char *bucket, size_t len)
{
	_cleanup_free_ char *path = calloc(1, len + 1);

	assert_non_null(path);
	memset(path, 'p', len);
	access_log_add(log, bucket,
		&(struct s3_log_record){.owner = "o",
			.bucket = bucket,
			.operation = "REST.GET.OBJECT",
			.method = "GET",
			.path = path,
			.time_ns = clock_wall_ns(),
			.status = 200});
}

/* Returns the number of bytes of the objects of a bucket. */
static size_t bytes_in(struct fixture *f, const char *bucket)
{
	struct store_list list;
	size_t n = 0;

	assert_int_equal(
		store_list_objects(f->store,
			&(struct store_list_query){.bucket = bucket, .max = 1000}, &list, NULL),
		STORE_OK);
	for (size_t i = 0; i < list.n; i++)
		n += list.entries[i].size;
	store_list_release(&list);
	return n;
}

static void an_account_leaves_room_for_others(void **state)
{
	struct fixture *f = *state;
	struct access_log *log;

	store_observe(f->store, &(struct store_observer){.version = on_version, .added = on_added});
	add_bucket(f, "log", MINE);
	store_bucket_set_versioning(f->store, "log", 0, STORE_VERSIONED, NULL);
	add_bucket(f, "other-log", OTHER);
	add_logged(f, "src", MINE, "log");
	add_logged(f, "other-src", OTHER, "other-log");
	log = start(f);

	pthread_mutex_lock(&gate); /* no line can be delivered */
	for (size_t i = 0; i <= LIMIT_SERVER_LOG / LONG; i++)
		add_line(log, "src", LONG);
	add_line(log, "other-src", 1000);
	pthread_mutex_unlock(&gate);
	access_log_stop(log);

	assert_true(bytes_in(f, "other-log") > 1000);
	assert_in_range(bytes_in(f, "log"), LIMIT_SERVER_LOG / 2 - 2 * LONG, LIMIT_SERVER_LOG / 2);
}

static void short_logs_of_many_buckets_are_delivered_early(void **state)
{
	struct fixture *f = *state;
	int64_t end_ms = clock_monotonic_ms() + 60000;
	struct access_log *log;
	char name[16];

	add_bucket(f, "log", MINE);
	for (size_t i = 0; i <= LIMIT_SERVER_LOG_FRESH / LONG; i++) {
		snprintf(name, sizeof(name), "src-%zu", i);
		add_logged(f, name, MINE, "log");
	}
	log = start(f);

	for (size_t i = 0; i <= LIMIT_SERVER_LOG_FRESH / LONG; i++) {
		snprintf(name, sizeof(name), "src-%zu", i);
		add_line(log, name, LONG);
	}

	while (bytes_in(f, "log") < LIMIT_SERVER_LOG_FRESH) {
		assert_true(clock_monotonic_ms() < end_ms);
		clock_sleep_ms(1);
	}
	access_log_stop(log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(an_account_leaves_room_for_others),
		TEST(short_logs_of_many_buckets_are_delivered_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
