/* One server process: its command, its health check, its end. */
#include "../copy/copy_store.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "deploy/internal.h"

enum { PATIENCE_MS = 30000 };

struct world {
	struct copy_store s;
	struct deploy_options o;
	struct backend b;
	const char *status; /* status line of the health URL */
	struct mini_http health;
	char url[MINI_URL_SIZE];
};

static bool answer_health(struct mini_http *m, const struct mini_request *r, int fd)
{
	const struct world *w = m->cookie;

	(void)r;
	mini_reply(fd, w->status, "", "", 0);
	return false;
}

static int begin_world(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	copy_store_begin(&w->s);
	mini_start(&w->health, answer_health, w);
	mini_url(&w->health, "/ok", w->url);
	w->o = (struct deploy_options){.engine = w->s.f.engine,
		.client = w->s.s3,
		.bucket = "bucket",
		.prefix = "models/m/",
		.home = w->s.dir,
		.host = "127.0.0.1",
		.traffic = DEPLOY_REUSEPORT,
		.health = w->url};
	w->b.dir = str_printf("%s/cached", w->s.dir);
	assert_true(model_set(&w->b.model, "7", "c7"));
	w->b.model.directory = strdup("7/");
	*state = w;
	return 0;
}

static int end_world(void **state)
{
	struct world *w = *state;

	backend_release(&w->b);
	mini_stop(&w->health);
	copy_store_end(&w->s);
	free(w);
	return 0;
}

/* Starts /bin/sh with the script and the words after it. */
static void start(struct world *w, const char *script, const char *word, uint16_t port)
{
	const char *command[] = {"sh", "-c", script, "sh", word, w->s.dir, NULL};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	w->o.command = command;
	if (backend_start(&w->b, &w->o, port, -1, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(BACKEND_STARTING, w->b.phase);
}

static int wait_for_end(struct world *w)
{
	int64_t end = clock_monotonic_ms() + PATIENCE_MS;
	int status;

	while (!backend_has_ended(&w->b, &status)) {
		assert_true(clock_monotonic_ms() < end);
		clock_sleep_ms(1);
	}
	return status;
}

static void words_in_braces_are_replaced(void **state)
{
	struct world *w = *state;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *expected = str_printf(
		"%s/cached/m/7 %s/cached/m 7 {x} 81|81 7 c\n", w->s.dir, w->s.dir);
	_cleanup_free_ char *out = path_join(w->s.dir, "out");
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	setenv("LISTEN_FDS", "1", 1);
	start(w, "echo \"$1|$PORT $PENSTOCK_MODEL_VERSION c$LISTEN_FDS\" >\"$2/out\"",
		"{model} {base} {version} {x} {port}", 81);
	assert_int_equal(-1, access(out, F_OK));
	backend_go(&w->b);
	assert_int_equal(0, wait_for_end(w));
	assert_int_equal(0, fs_read(out, &text, &err));
	assert_string_equal(expected, buf_str(&text));
}

static void a_server_without_its_parent_does_not_start(void **state)
{
	struct world *w = *state;
	_cleanup_free_ char *out = path_join(w->s.dir, "out");

	start(w, "echo >\"$2/out\"", "", 81);
	close(w->b.gate);
	w->b.gate = 0;
	assert_int_equal(1, WEXITSTATUS(wait_for_end(w)));
	assert_int_equal(-1, access(out, F_OK));
}

static void an_unknown_program_is_an_error(void **state)
{
	struct world *w = *state;
	const char *command[] = {"no-such-program", NULL};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	w->o.command = command;
	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND, backend_start(&w->b, &w->o, 81, -1, &err));
	assert_int_equal(BACKEND_NONE, w->b.phase);
}

static void what_it_leaves_ends_with_it(void **state)
{
	struct world *w = *state;
	_cleanup_free_ char *fifo = path_join(w->s.dir, "fifo");
	_cleanup_close_ int fd = -1;
	char byte;
	int status;

	assert_int_equal(0, mkfifo(fifo, 0600));
	start(w, "exec 9>\"$2/fifo\"; sleep 1000 & exit 3", "", 81);
	backend_go(&w->b);
	fd = open(fifo, O_RDONLY | O_CLOEXEC);
	status = wait_for_end(w);
	assert_true(WIFEXITED(status));
	assert_int_equal(3, WEXITSTATUS(status));
	assert_int_equal(0, read(fd, &byte, 1)); /* no process can write any more */
}

static void its_health_is_asked(void **state)
{
	static const struct {
		const char *status;
		bool by_url, by_default;
	} given[] = {
		{"200 OK", true, true},
		{"204 No Content", true, true},
		{"404 Not Found", false, true},
		{"503 Service Unavailable", false, false},
	};
	struct world *w = *state;
	uint16_t port = (uint16_t)w->health.port;

	start(w, "exec sleep 1000", "", port);
	for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;

		w->status = given[i].status;
		w->o.health = "/ready";
		assert_int_equal(given[i].by_url, backend_ask(&w->b, &w->o, port, true, &err) == 0);
		penstock_error_release(&err);
		w->o.health = w->url;
		assert_int_equal(given[i].by_url, backend_ask(&w->b, &w->o, 1, true, &err) == 0);
		penstock_error_release(&err);
		w->o.health = NULL;
		assert_int_equal(
			given[i].by_default, backend_ask(&w->b, &w->o, port, true, &err) == 0);
		penstock_error_release(&err);
	}
	process_signal(&w->b.process, SIGKILL);
	assert_int_equal(SIGKILL, WTERMSIG(wait_for_end(w)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			words_in_braces_are_replaced, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_server_without_its_parent_does_not_start, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			an_unknown_program_is_an_error, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			what_it_leaves_ends_with_it, begin_world, end_world),
		cmocka_unit_test_setup_teardown(its_health_is_asked, begin_world, end_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
