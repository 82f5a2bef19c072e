#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "server/request/account.h"
#include "server/embedded.h"
#include "server/serve.h"

#define PATIENCE_MS 20000

struct fixture {
	char root[64];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	unsetenv("PENSTOCK_ACCESS_KEY_ID");
	unsetenv("PENSTOCK_SECRET_ACCESS_KEY");
	snprintf(f->root, sizeof(f->root), "/tmp/embedded-test-XXXXXX");
	*state = f;
	return mkdtemp(f->root) ? 0 : -1;
}

static bool owner_alive(const struct fixture *f)
{
	char path[128];
	bool alive;
	int fd;

	snprintf(path, sizeof(path), "%s/lock", f->root);
	fd = open(path, O_RDWR);
	alive = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
	if (fd >= 0)
		close(fd);
	return alive;
}

static bool wait_gone(const struct fixture *f)
{
	int64_t deadline = clock_monotonic_ms() + PATIENCE_MS;

	while (owner_alive(f) && clock_monotonic_ms() < deadline)
		clock_sleep_ms(10);
	return !owner_alive(f);
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	bool gone = wait_gone(f);

	fs_remove_tree(f->root, NULL);
	free(f);
	return gone ? 0 : -1;
}

static struct embedded_store *acquire(struct fixture *f)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct embedded_store *store = NULL;

	if (embedded_store_acquire(&store,
		    &(struct embedded_store_options){.root = f->root, .relaxed = true}, &err) < 0)
		fail_msg("%s", err.message);
	return store;
}

/* The first user starts the owner, the second user finds it, and the owner exits after both have
 * gone. */
static void users_share_one_owner_which_then_leaves(void **state)
{
	struct fixture *f = *state;
	struct embedded_store *first = acquire(f), *second = acquire(f);

	assert_true(first->started);
	assert_false(second->started);
	assert_string_equal(first->endpoint, second->endpoint);
	assert_int_equal(first->pid, second->pid);
	assert_int_equal(strlen(first->account.secret_access_key), 40);
	assert_int_not_equal(getsid(first->pid), getsid(0));

	embedded_store_free(first);
	clock_sleep_ms(4000); /* longer than an owner runs without users */
	assert_true(owner_alive(f));
	embedded_store_free(second);
	assert_true(wait_gone(f));
}

/* A user that is killed does not keep the owner running, and does not stop it for other users. */
static void a_killed_user_lets_go(void **state)
{
	struct fixture *f = *state;
	int fds[2], status;
	pid_t pid;
	char c;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		struct embedded_store *store = acquire(f);

		(void)!write(fds[1], store->endpoint ? "y" : "n", 1);
		pause();
	}
	assert_int_equal(read(fds[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	assert_true(owner_alive(f));
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(fds[0]);
	close(fds[1]);

	assert_true(wait_gone(f));
}

/* A killed owner leaves its owner.json, which does not mislead the next user. */
static void a_killed_owner_is_replaced(void **state)
{
	struct fixture *f = *state;
	struct embedded_store *first = acquire(f), *second;
	int old = first->pid;
	char secret[64];

	snprintf(secret, sizeof(secret), "%s", first->account.secret_access_key);
	kill(old, SIGKILL);
	assert_true(wait_gone(f));
	second = acquire(f);

	assert_true(second->started);
	assert_int_not_equal(second->pid, old);
	assert_string_equal(second->account.secret_access_key, secret);
	embedded_store_free(first);
	embedded_store_free(second);
}

static void write_text(const struct fixture *f, const char *name, int mode, const char *text)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", f->root, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* A killed owner is not a mistake of the process that uses the store, so this process starts
 * another owner. */
static void an_owner_that_is_killed_while_it_starts_is_started_again(void **state)
{
	struct fixture *f = *state;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct embedded_store *store = NULL;
	char self[512] = "", script[1024], path[128];

	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(script, sizeof(script),
		"#!/bin/sh\nmkdir '%s/killed' 2>/dev/null && kill -9 $$\nexec '%s' \"$@\"\n",
		f->root, self);
	write_text(f, "owner", 0700, script);
	snprintf(path, sizeof(path), "%s/owner", f->root);

	if (embedded_store_acquire(&store,
		    &(struct embedded_store_options){
			    .root = f->root, .relaxed = true, .executable = path},
		    &err) < 0)
		fail_msg("%s", err.message);
	assert_true(store->started);
	assert_true(owner_alive(f));
	embedded_store_free(store);
}

/* If every owner is killed at once, the user gives up after some attempts. */
static void an_owner_that_is_killed_each_time_is_given_up(void **state)
{
	struct fixture *f = *state;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct embedded_store *store = NULL;
	char path[128];

	write_text(f, "owner", 0700, "#!/bin/sh\nkill -9 $$\n");
	snprintf(path, sizeof(path), "%s/owner", f->root);

	assert_int_equal(
		embedded_store_acquire(&store,
			&(struct embedded_store_options){.root = f->root, .executable = path},
			&err),
		-PENSTOCK_E_UNAVAILABLE);
	assert_non_null(strstr(err.message, f->root));
	penstock_error_release(&err);
}

/* Simulates a killed owner whose socket still accepts connections: the owner dies at the first
 * request. */
static void be_a_dying_owner(const struct fixture *f, int ready_fd)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM, 0), lock;
	socklen_t len = sizeof(address);
	char text[512], path[128];

	write_text(f, "lock", 0600, "token");
	snprintf(path, sizeof(path), "%s/lock", f->root);
	lock = open(path, O_RDWR);
	if (flock(lock, LOCK_EX) < 0 || bind(listener, (struct sockaddr *)&address, len) < 0 ||
		listen(listener, 5) < 0 ||
		getsockname(listener, (struct sockaddr *)&address, &len) < 0)
		_exit(1);
	snprintf(text, sizeof(text),
		"{\"pid\": %d, \"token\": \"token\", \"endpoint\": \"http://127.0.0.1:%d\", "
		"\"access_key_id\": \"x\", \"keys\": \"file\"}",
		(int)getpid(), ntohs(address.sin_port));
	write_text(f, "owner.json", 0600, text);
	(void)!write(ready_fd, "y", 1);
	(void)accept(listener, NULL, NULL);
	_exit(0);
}

static void an_owner_that_dies_when_it_is_asked_is_not_joined(void **state)
{
	struct fixture *f = *state;
	struct embedded_store *store;
	int fds[2], status;
	pid_t pid;
	char c;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0)
		be_a_dying_owner(f, fds[1]);
	assert_int_equal(read(fds[0], &c, 1), 1);

	store = acquire(f);

	assert_true(store->started);
	assert_int_not_equal(store->pid, pid);
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	close(fds[0]);
	close(fds[1]);
	embedded_store_free(store);
}

/* Users that arrive near the exit of an owner get an owner that accepts connections and does not
 * exit. */
static void newcomers_never_meet_a_leaving_owner(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 4; i++) {
		pid_t pids[4];

		for (int k = 0; k < 4; k++) {
			pids[k] = fork();
			if (pids[k] == 0) {
				struct embedded_store *store;

				/* near the exit of the owner, after 2.5 s without users */
				clock_sleep_ms(i ? 2350 + 60 * k + 37 * i : 0);
				store = acquire(f);
				_exit(kill(store->pid, 0) == 0 ? 0 : 1);
			}
		}
		for (int k = 0; k < 4; k++) {
			int status;

			assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
			assert_int_equal(status, 0);
		}
	}
}

/* The message has one line, and names the reason why the owner cannot start. */
static void a_failed_start_says_why(void **state)
{
	struct fixture *f = *state;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct embedded_store *store = NULL;
	char path[128];

	snprintf(path, sizeof(path), "%s/credentials", f->root);
	fs_write_atomic(path, "nonsense\n", 9, 0600, NULL);
	assert_int_equal(embedded_store_acquire(
				 &store, &(struct embedded_store_options){.root = f->root}, &err),
		-PENSTOCK_E_UNAVAILABLE);

	assert_non_null(strstr(err.message, "aws_access_key_id"));
	assert_null(strchr(err.message, '\n'));
	penstock_error_release(&err);
}

/* If the program cannot be executed, the message says so in one line. */
static void an_owner_that_cannot_be_executed_is_reported(void **state)
{
	struct fixture *f = *state;
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct embedded_store *store = NULL;

	assert_int_equal(embedded_store_acquire(&store,
				 &(struct embedded_store_options){
					 .root = f->root, .executable = "/nonexistent"},
				 &err),
		-PENSTOCK_E_UNAVAILABLE);

	assert_non_null(strstr(err.message, "cannot execute 'penstock serve'"));
}

/* A key pair from the environment is used unchanged; half of a pair is refused. */
static void keys_come_from_the_environment_or_a_private_file(void **state)
{
	struct fixture *f = *state;
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct account made, again;
	struct stat st;
	char path[128];

	assert_int_equal(account_load(&made, f->root, true, &err), 0);
	assert_int_equal(account_load(&again, f->root, false, &err), 0);
	assert_string_equal(made.secret_access_key, again.secret_access_key);
	account_release(&made);
	account_release(&again);
	snprintf(path, sizeof(path), "%s/credentials", f->root);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);

	setenv("PENSTOCK_ACCESS_KEY_ID", "a", 1);
	assert_int_equal(account_load(&made, f->root, true, &err), -PENSTOCK_E_INVALID);
	setenv("PENSTOCK_SECRET_ACCESS_KEY", "/+ \xc3\xbc=,", 1);
	assert_int_equal(account_load(&made, f->root, true, &err), 0);
	assert_string_equal(made.access_key_id, "a");
	assert_string_equal(made.secret_access_key, "/+ \xc3\xbc=,");
	assert_true(made.from_environment);
	account_release(&made);
	unsetenv("PENSTOCK_ACCESS_KEY_ID");
	unsetenv("PENSTOCK_SECRET_ACCESS_KEY");
}

/* Addresses to listen on are parsed strictly. */
static void listen_addresses_are_parsed(void **state)
{
	static const struct {
		const char *text, *address;
		uint16_t port;
	} good[] = {{"127.0.0.1:9000", "127.0.0.1", 9000}, {"[::1]:0", "::1", 0},
		{":80", "0.0.0.0", 80}};
	static const char *const bad[] = {"", "9000", "127.0.0.1", "h:70000", "h:", "h:-1", "h:1x"};
	uint16_t port;
	char *address;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(serve_parse_listen(good[i].text, &address, &port, NULL), 0);
		assert_string_equal(address, good[i].address);
		assert_int_equal(port, good[i].port);
		free(address);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(
			serve_parse_listen(bad[i], &address, &port, NULL), -PENSTOCK_E_INVALID);
}

/* embedded_store_acquire() executes the current program, which in this test is the test program. */
static int serve_main(int argc, char **argv)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	/* the options of `penstock serve` */
	struct serve_options o = {.address = "127.0.0.1",
		.log_interval_ms = 60000,
		.drain_ms = 10000,
		.lifecycle_day_ms = 86400000};

	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--root") == 0)
			o.root = argv[i + 1];
		else if (strcmp(argv[i], "--embedded") == 0)
			o.embedded = true;
		else if (strcmp(argv[i], "relaxed") == 0)
			o.relaxed = true;
	}
	if (serve_run(&o, &err) == 0)
		return 0;
	fprintf(stderr, "penstock: %s\n", err.message);
	return 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(users_share_one_owner_which_then_leaves),
		TEST(a_killed_user_lets_go),
		TEST(a_killed_owner_is_replaced),
		TEST(newcomers_never_meet_a_leaving_owner),
		TEST(an_owner_that_is_killed_while_it_starts_is_started_again),
		TEST(an_owner_that_is_killed_each_time_is_given_up),
		TEST(an_owner_that_dies_when_it_is_asked_is_not_joined),
		TEST(a_failed_start_says_why),
		TEST(an_owner_that_cannot_be_executed_is_reported),
		TEST(keys_come_from_the_environment_or_a_private_file),
		TEST(listen_addresses_are_parsed),
	};

	if (argc > 1 && strcmp(argv[1], "serve") == 0)
		return serve_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
