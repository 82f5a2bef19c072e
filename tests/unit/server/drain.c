/* The shutdown of the server, which does not wait for queued requests of workers. */
#include "../store/fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "server/access/settings.h"
#include "server/request/request.h"
#include "server/server.h"

#define TAGGINGS (LIMIT_SERVER_WORKERS + 5)
#define PUTS	 3
#define LARGE	 (STORE_INLINE_MAX + 1)

/* While a test holds the lock, no version can change. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_int n_changes;

static int on_version(void *cookie, struct store *store, const struct store_new_version *version)
{
	(void)cookie;
	(void)store;
	LOCK_SCOPE(&gate);
	if (version->note)
		atomic_fetch_add(&n_changes, 1);
	return 0;
}

static void on_added(void *cookie)
{
	(void)cookie;
}

static struct server *start(struct fixture *f)
{
	static const char policy[] =
		"{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Principal\":\"*\","
		"\"Action\":\"s3:*\",\"Resource\":\"arn:aws:s3:::bkt/*\"}]}";
	struct server *server = NULL;

	store_observe(f->store, &(struct store_observer){.version = on_version, .added = on_added});
	assert_int_equal(store_bucket_create(f->store, "bkt", "", NULL), STORE_OK);
	assert_int_equal(
		store_bucket_set_versioning(f->store, "bkt", 0, STORE_VERSIONED, NULL), STORE_OK);
	assert_int_equal(
		store_config_set(f->store, "bkt", 0, POLICY_CONFIG, policy, strlen(policy), NULL),
		STORE_OK);
	assert_int_equal(
		put_full(f, &(struct store_put){.bucket = "bkt", .key = "k"}, "text", 4), STORE_OK);
	assert_int_equal(server_start(&server,
				 &(struct server_options){.store = f->store,
					 .address = "127.0.0.1",
					 .access_key_id = "key",
					 .secret_access_key = "secret"},
				 NULL),
		0);
	return server;
}

static int send_to(const struct server *server, const char *path, const char *body, size_t len)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char head[200];

	at.sin_port = htons((uint16_t)strtoul(strrchr(server_url(server), ':') + 1, NULL, 10));
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	snprintf(head, sizeof(head), "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
		path, len);
	assert_int_equal(send(fd, head, strlen(head), MSG_NOSIGNAL), strlen(head));
	assert_int_equal(send(fd, body, len, MSG_NOSIGNAL), len);
	return fd;
}

static void wait_for_waiting(struct server *server, unsigned n)
{
	int64_t end_ms = clock_monotonic_ms() + 60000;

	while (atomic_load(&server->waiting) < n) {
		assert_true(clock_monotonic_ms() < end_ms);
		clock_sleep_ms(1);
	}
}

static void *stop(void *server)
{
	server_stop(server, 0);
	return NULL;
}

static void queued_requests_are_refused(void **state)
{
	static char large[LARGE];
	struct fixture *f = *state;
	struct server *server = start(f);
	int fds[TAGGINGS + PUTS];
	pthread_t thread;
	char text[200];

	pthread_mutex_lock(&gate);
	for (int i = 0; i < TAGGINGS; i++) {
		snprintf(text, sizeof(text),
			"<Tagging><TagSet><Tag><Key>k</Key><Value>%d</Value></Tag></TagSet></Tagging>",
			i);
		fds[i] = send_to(server, "/bkt/k?tagging", text, strlen(text));
	}
	wait_for_waiting(server, TAGGINGS);
	for (int i = 0; i < PUTS; i++) {
		snprintf(text, sizeof(text), "/bkt/new-%d", i);
		fds[TAGGINGS + i] = send_to(server, text, large, sizeof(large));
	}
	wait_for_waiting(server, TAGGINGS + PUTS);
	assert_int_equal(pthread_create(&thread, NULL, stop, server), 0);
	while (!atomic_load(&server->stopping))
		clock_sleep_ms(1);
	pthread_mutex_unlock(&gate);
	pthread_join(thread, NULL);

	assert_in_range(atomic_load(&n_changes), 1, LIMIT_SERVER_WORKERS);
	for (int i = 0; i < PUTS; i++) {
		struct store_object *object = NULL;

		snprintf(text, sizeof(text), "new-%d", i);
		assert_int_equal(
			store_object_get(f->store, "bkt", text, &object, NULL), STORE_NO_SUCH_KEY);
	}
	for (int i = 0; i < TAGGINGS + PUTS; i++)
		close(fds[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(queued_requests_are_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
