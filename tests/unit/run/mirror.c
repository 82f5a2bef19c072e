/* The local copy of a tracked run's metrics: the requests for an update, and the copied points. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "mini_http.h"
#include "run/tracking/mirror.h"
#include "s3/uri.h"

#define POINTS 20000

/* A server with one run. Its pages list points in the order in which they were added. */
struct fake {
	struct mini_http http;
	pthread_mutex_t lock; /* protects the members below */
	struct {
		const char *name;
		struct mlflow_point point;
	} points[POINTS];
	size_t n;
	unsigned lasts, histories;
	bool refuses, refuses_tokens, endless;
};

struct fixture {
	struct fake server;
	char dir[32], base[MINI_URL_SIZE];
	int64_t started_ms, ended_ms;
};

static void add_point(struct buf *out, const char *name, const struct mlflow_point *point)
{
	buf_printf(out, "%s{\"key\":\"%s\",\"timestamp\":%lld,\"step\":%lld,\"value\":",
		out->data[out->len - 1] == '[' ? "" : ",", name, (long long)point->time_ms,
		(long long)point->step);
	buf_printf(out, isnan(point->value) ? "\"NaN\"}" : "%.17g}", point->value);
}

/* Returns true if the metric has no later point: none with a higher step, and none with the same
 * step that was added later. */
static bool is_last(const struct fake *f, size_t i)
{
	for (size_t k = 0; k < f->n; k++) {
		bool later = f->points[k].point.step > f->points[i].point.step ||
			     (f->points[k].point.step == f->points[i].point.step && k > i);

		if (later && strcmp(f->points[k].name, f->points[i].name) == 0)
			return false;
	}
	return true;
}

static void write_last(struct fake *f, struct buf *out)
{
	f->lasts++;
	buf_add_str(out, "{\"run\":{\"info\":{\"run_id\":\"r1\"},\"data\":{\"metrics\":[");
	/* With many points, only the last one can be the last of its metric; skip the others to
	 * save time. */
	for (size_t i = f->n > 100 ? f->n - 1 : 0; i < f->n; i++) {
		if (is_last(f, i))
			add_point(out, f->points[i].name, &f->points[i].point);
	}
	buf_add_str(out, "]}}}");
}

static bool write_history(struct fake *f, const char *target, struct buf *out)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_STRING);
	const char *query = strchr(target, '?') + 1, *token = strstr(query, "page_token=");
	size_t skip = token ? strtoul(token + strlen("page_token="), NULL, 10) : 0, seen = 0,
	       sent = 0;

	f->histories++;
	if (token && f->refuses_tokens)
		return false;
	assert_int_equal(1, uri_query_get(query, "metric_key", &name));
	buf_add_str(out, "{\"metrics\":[");
	for (size_t i = 0; i < f->n && sent < 5000; i++) {
		if (strcmp(f->points[i].name, buf_str(&name)) != 0 || seen++ < skip)
			continue;
		add_point(out, f->points[i].name, &f->points[i].point);
		sent++;
	}
	buf_add_str(out, "]");
	if (sent == 5000 || f->endless)
		buf_printf(out, ",\"next_page_token\":\"%zu\"", skip + sent);
	buf_add_str(out, "}");
	return true;
}

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char refusal[] = "{\"error_code\":\"INVALID_PARAMETER_VALUE\"}";
	_cleanup_(buf_release) struct buf out = BUF_INIT(16 * MIB);
	struct fake *f = m->cookie;

	LOCK_SCOPE(&f->lock);
	if (f->refuses)
		return mini_reply(fd, "403 Forbidden", "", "no", 2);
	if (strstr(r->target, "/runs/get?"))
		write_last(f, &out);
	else if (!write_history(f, r->target, &out))
		return mini_reply(fd, "400 Bad Request", "", refusal, strlen(refusal));
	return mini_reply(fd, "200 OK", "", out.data, out.len);
}

static void log_point(struct fixture *f, const char *name, int64_t step, double value)
{
	LOCK_SCOPE(&f->server.lock);
	f->server.points[f->server.n].name = name;
	f->server.points[f->server.n++].point = (struct mlflow_point){
		step, clock_wall_ns() / NS_PER_MS, value};
}

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	strcpy(f->dir, "/tmp/mirror-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	pthread_mutex_init(&f->server.lock, NULL);
	mini_start(&f->server.http, answer, &f->server);
	mini_url(&f->server.http, "", f->base);
	*state = f;
	return 0;
}

static int end(void **state)
{
	struct fixture *f = *state;

	mini_stop(&f->server.http);
	pthread_mutex_destroy(&f->server.lock);
	assert_int_equal(0, fs_remove_tree(f->dir, NULL));
	free(f);
	return 0;
}

/* Updates the copy. Returns the result, with the message in `err`. */
static int update_run(struct fixture *f, const char *run, struct penstock_error *err)
{
	_cleanup_(mlflow_mirror_release) struct mlflow_mirror mirror = MLFLOW_MIRROR_INIT;
	const struct mlflow_login login = {0};
	int r = mlflow_mirror_open(&mirror, f->dir, run, err);

	f->server.lasts = f->server.histories = 0;
	return r < 0 ? r
		     : mlflow_mirror_update(&mirror,
			       &(struct mlflow_server){
				       .base = f->base, .login = &login, .patience_ms = 60000},
			       f->started_ms, f->ended_ms, err);
}

static void update(struct fixture *f)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (update_run(f, "r1", &err) < 0)
		fail_msg("%s", err.message);
}

struct wanted {
	const char *name;
	struct buf *out;
};

static int read_one(void *cookie, const char *name, const char *file, struct penstock_error *err)
{
	const struct wanted *wanted = cookie;

	return strcmp(name, wanted->name) == 0 ? fs_read(file, wanted->out, err) : 0;
}

/* Returns the steps and values of a metric in the copy: "0:0.5 1:nan ". The caller has to free the
 * text. */
static char *copied(const struct fixture *f, const char *run, const char *name)
{
	_cleanup_(mlflow_mirror_release) struct mlflow_mirror mirror = MLFLOW_MIRROR_INIT;
	_cleanup_(buf_release) struct buf lines = BUF_INIT(16 * MIB), out = BUF_INIT(16 * MIB);
	struct wanted wanted = {name, &lines};
	char *rest, *line;

	assert_int_equal(0, mlflow_mirror_open(&mirror, f->dir, run, NULL));
	assert_int_equal(0, mlflow_mirror_each(&mirror, read_one, &wanted, NULL));
	rest = lines.data;
	while (rest && (line = strtok_r(NULL, "\n", &rest))) {
		char value[32];
		long long step;

		assert_int_equal(2, sscanf(line, "%*d %31s %lld", value, &step));
		buf_printf(&out, "%lld:%s ", step, value);
	}
	return strdup(buf_str(&out));
}

static void assert_copied(const struct fixture *f, const char *name, const char *expected)
{
	_cleanup_free_ char *found = copied(f, "r1", name);

	assert_string_equal(expected, found);
}

/* ---- tests ---- */

/* An update requests the last points, and the history of each metric with a new last point. */
static void only_the_histories_that_changed_are_read(void **state)
{
	struct fixture *f = *state;

	log_point(f, "loss", 0, 0.5);
	log_point(f, "loss", 1, NAN);
	log_point(f, "a/../b", 7, 3);
	update(f);
	assert_int_equal(2, f->server.histories);
	assert_copied(f, "loss", "0:0.5 1:nan ");
	assert_copied(f, "a/../b", "7:3 ");

	update(f);
	assert_int_equal(1, f->server.lasts);
	assert_int_equal(0, f->server.histories);

	log_point(f, "loss", 2, 0.25);
	update(f);
	assert_int_equal(1, f->server.histories);
	assert_copied(f, "loss", "0:0.5 1:nan 2:0.25 ");
}

static void a_long_history_continues_at_its_last_page(void **state)
{
	struct fixture *f = *state;
	_cleanup_(buf_release) struct buf expected = BUF_INIT(16 * MIB);

	for (int i = 0; i < 12001; i++)
		buf_printf(&expected, "%d:%d ", i, i);
	for (int i = 0; i < 12000; i++)
		log_point(f, "loss", i, i);
	update(f);
	assert_int_equal(3, f->server.histories);

	log_point(f, "loss", 12000, 12000);
	update(f);
	assert_int_equal(1, f->server.histories);
	assert_copied(f, "loss", buf_str(&expected));

	/* Another server version may refuse the page token. */
	f->server.refuses_tokens = true;
	f->server.n = 4000;
	expected.len = (size_t)(strstr(expected.data, " 4000:") + 1 - expected.data);
	expected.data[expected.len] = '\0';
	update(f);
	assert_copied(f, "loss", buf_str(&expected));
}

/* The server's last point is that of the earlier attempt until the training has passed the step of
 * that point. */
static void steps_that_are_logged_again_are_read(void **state)
{
	struct fixture *f = *state;

	log_point(f, "loss", 0, 1);
	log_point(f, "loss", 9, 0.125);
	update(f);
	log_point(f, "loss", 5, 0.5);
	update(f);
	assert_int_equal(0, f->server.histories);

	f->started_ms = clock_wall_ns() / NS_PER_MS + 1000;
	f->ended_ms = f->started_ms - 1;
	update(f);
	assert_int_equal(1, f->server.histories);
	assert_copied(f, "loss", "0:1 9:0.125 5:0.5 ");

	f->ended_ms = 1;
	update(f);
	assert_int_equal(0, f->server.histories);
}

static void set_tried(const struct fixture *f, int64_t ms)
{
	_cleanup_free_ char *path = path_join(f->dir, "index.json"), *text = NULL;
	json_auto_t *index = json_load_file(path, 0, NULL);

	assert_non_null(index);
	json_object_set_new(index, "tried", json_integer(ms));
	text = json_dumps(index, 0);
	assert_int_equal(0, fs_write_atomic(path, text, strlen(text), 0600, NULL));
}

static void a_failure_is_repeated_for_some_time_without_a_request(void **state)
{
	struct fixture *f = *state;
	_cleanup_error_ struct penstock_error first = PENSTOCK_ERROR_INIT,
					      second = PENSTOCK_ERROR_INIT;
	unsigned before;

	log_point(f, "loss", 0, 1);
	update(f);
	f->server.refuses = true;
	assert_true(update_run(f, "r1", &first) < 0);
	before = atomic_load(&f->server.http.requests);
	assert_true(update_run(f, "r1", &second) < 0);
	assert_string_equal(first.message, second.message);
	assert_int_equal(before, atomic_load(&f->server.http.requests));
	assert_copied(f, "loss", "0:1 ");

	f->server.refuses = false;
	set_tried(f, 1);
	log_point(f, "loss", 1, 2);
	update(f);
	assert_copied(f, "loss", "0:1 1:2 ");
	update(f);
	assert_int_equal(1, f->server.lasts);
}

/* The message of a failure is stored in a file, so it must not contain a secret address. */
static void a_secret_address_is_in_no_file(void **state)
{
	struct fixture *f = *state;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *path = path_join(f->dir, "index.json");

	f->server.refuses = true;
	log_redact(strstr(f->base, "127.0.0.1"));
	assert_true(update_run(f, "r1", NULL) < 0);
	assert_int_equal(0, fs_read(path, &text, NULL));
	log_redact_clear();
	assert_non_null(strstr(buf_str(&text), "\"failure\""));
	assert_null(strstr(buf_str(&text), strstr(f->base, "127.0.0.1")));
}

/* A run that starts over has a new run at MLflow, and the copy must have no points of the earlier
 * run. */
static void another_run_has_no_points_of_the_last_one(void **state)
{
	struct fixture *f = *state;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *found = NULL;

	for (int i = 0; i < 5; i++)
		log_point(f, "loss", i, i);
	update(f);
	f->server.n = 0;
	log_point(f, "acc", 0, 1);
	if (update_run(f, "r2", &err) < 0)
		fail_msg("%s", err.message);
	found = copied(f, "r2", "acc");
	assert_string_equal("0:1 ", found);
	free(found);
	found = copied(f, "r2", "loss");
	assert_string_equal("", found);
}

/* A crash of the machine or another program may damage the copy. */
static void a_damaged_copy_is_read_again(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *file = path_join(f->dir, "0"),
			    *index = path_join(f->dir, "index.json");

	log_point(f, "loss", 0, 1);
	update(f);
	assert_int_equal(0, truncate(file, 3));
	log_point(f, "loss", 1, 2);
	update(f);
	assert_copied(f, "loss", "0:1 1:2 ");

	assert_int_equal(0, truncate(index, 10));
	update(f);
	assert_copied(f, "loss", "0:1 1:2 ");
}

static void a_server_that_repeats_an_empty_page_does_not_block(void **state)
{
	struct fixture *f = *state;

	f->server.endless = true;
	log_point(f, "loss", 0, 1);
	update(f);
	assert_int_equal(2, f->server.histories);
	assert_copied(f, "loss", "0:1 ");
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(only_the_histories_that_changed_are_read),
		WITH(a_long_history_continues_at_its_last_page),
		WITH(steps_that_are_logged_again_are_read),
		WITH(a_failure_is_repeated_for_some_time_without_a_request),
		WITH(a_secret_address_is_in_no_file),
		WITH(another_run_has_no_points_of_the_last_one),
		WITH(a_damaged_copy_is_read_again),
		WITH(a_server_that_repeats_an_empty_page_does_not_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
