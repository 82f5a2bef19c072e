/* The cancel flag of a call and that of a handle both end the call at once, in any state of the
 * call. */
#include <penstock/transfer.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "mini_http.h"

#define KEYS                                                                                       \
	"<a><Credentials><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"      \
	"<SessionToken>t</SessionToken></Credentials></a>"
/* HANG_MS is the delay before the cancel, after which all calls hang. SOON_MS is the time in which
 * calls must end after the cancel; it is long enough for a busy machine. */
#define HANG_MS 300
#define SOON_MS 1500

static char directory[] = "/tmp/penstock-cancel-XXXXXX";

struct world {
	struct mini_http server;
	char url[MINI_URL_SIZE];
	atomic_uint sts; /* requests for keys */
	atomic_bool answered; /* requests for keys get replies now */
	atomic_uint copies, aborts;
	const char *size; /* size of objects */
	bool copies_at_once;
	struct penstock_cancel *cancel;
	int64_t cancelled_ms;
};

static bool hang(struct mini_http *m, const atomic_bool *until)
{
	while (!atomic_load(&m->stopping) && !(until && atomic_load(until)))
		clock_sleep_ms(5);
	return until != NULL;
}

static bool answer_copy(struct world *w, struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char made[] = "<CopyObjectResult><ETag>\"0123456789abcdef0123456789abcdef\""
				   "</ETag></CopyObjectResult>";
	static const char begun[] = "<InitiateMultipartUploadResult><UploadId>u</UploadId>"
				    "</InitiateMultipartUploadResult>";

	if (strcmp(r->method, "HEAD") == 0)
		return mini_printf(fd,
			"HTTP/1.1 200 OK\r\nETag: \"0123456789abcdef0123456789abcdef\"\r\n"
			"Content-Length: %s\r\n\r\n",
			w->size);
	if (strcmp(r->method, "POST") == 0)
		return mini_reply(fd, "200 OK", "", begun, strlen(begun));
	if (strcmp(r->method, "DELETE") == 0) {
		atomic_fetch_add(&w->aborts, 1);
		return mini_reply(fd, "204 No Content", "", "", 0);
	}
	atomic_fetch_add(&w->copies, 1);
	return w->copies_at_once ? mini_reply(fd, "200 OK", "", made, strlen(made)) : hang(m, NULL);
}

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct world *w = m->cookie;

	if (strcmp(r->target, "/sts") != 0)
		return answer_copy(w, m, r, fd);
	atomic_fetch_add(&w->sts, 1);
	return hang(m, &w->answered) && mini_reply(fd, "200 OK", "", KEYS, strlen(KEYS));
}

static void *cancel_soon(void *arg)
{
	struct world *w = arg;

	clock_sleep_ms(HANG_MS);
	w->cancelled_ms = clock_monotonic_ms();
	penstock_cancel_set(w->cancel);
	return NULL;
}

/* If `role`, the keys come from STS, which never replies; otherwise the keys are known. */
static void begin(struct world *w, bool role)
{
	static const char config[] = "[default]\nrole_arn = arn:x\nsource_profile = base\n"
				     "[profile base]\naws_access_key_id = B\n"
				     "aws_secret_access_key = b\n";
	char *path = path_join(directory, "config"), url[MINI_URL_SIZE];

	memset(w, 0, sizeof(*w));
	w->size = "5";
	mini_start(&w->server, answer, w);
	mini_url(&w->server, "", w->url);
	mini_url(&w->server, "/sts", url);
	assert_int_equal(0, fs_write_atomic(path, config, strlen(config), 0600, NULL));
	unsetenv("AWS_PROFILE");
	unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	setenv("AWS_CONFIG_FILE", path, 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials", 1);
	setenv("AWS_ENDPOINT_URL_STS", url, 1);
	setenv("AWS_ENDPOINT_URL_S3", w->url, 1);
	setenv("AWS_ACCESS_KEY_ID", role ? "" : "A", 1);
	setenv("AWS_SECRET_ACCESS_KEY", role ? "" : "a", 1);
	w->cancel = penstock_cancel_new();
	free(path);
}

static void end(struct world *w)
{
	mini_stop(&w->server);
	penstock_cancel_free(w->cancel);
}

static struct penstock_transfer *handle(struct penstock_cancel *cancel)
{
	struct penstock_transfer_options o = PENSTOCK_TRANSFER_OPTIONS_INIT;
	struct penstock_transfer *t = NULL;

	o.cancel = cancel;
	assert_int_equal(0, penstock_transfer_new(&t, &o, NULL));
	return t;
}

struct get {
	struct penstock_transfer *t;
	struct penstock_cancel *cancel; /* passed to the call */
	int r;
	int64_t ended_ms;
	pthread_t thread;
};

static void *get(void *arg)
{
	struct get *g = arg;
	struct penstock_call_options o = PENSTOCK_CALL_OPTIONS_INIT;
	void *data = NULL;
	size_t size;

	o.cancel = g->cancel;
	g->r = penstock_get_memory(g->t, "s3://bucket/key", &data, &size, &o, NULL, NULL);
	g->ended_ms = clock_monotonic_ms();
	penstock_free(data);
	return NULL;
}

/* Six calls wait for keys at the same time, and one fetch serves all of them. */
static void assert_keys_are_given_up(bool of_handle)
{
	struct world w;
	struct get gets[6];
	pthread_t thread;
	int64_t freed_ms;

	begin(&w, true);
	struct penstock_transfer *t = handle(of_handle ? w.cancel : NULL);

	for (int i = 0; i < 6; i++) {
		gets[i] = (struct get){.t = t, .cancel = of_handle ? NULL : w.cancel};
		pthread_create(&gets[i].thread, NULL, get, &gets[i]);
	}
	pthread_create(&thread, NULL, cancel_soon, &w);
	pthread_join(thread, NULL);
	for (int i = 0; i < 6; i++)
		pthread_join(gets[i].thread, NULL);
	penstock_transfer_free(t);
	freed_ms = clock_monotonic_ms();
	for (int i = 0; i < 6; i++) {
		assert_int_equal(-(int)PENSTOCK_E_CANCELLED, gets[i].r);
		assert_in_range(gets[i].ended_ms - w.cancelled_ms, 0, SOON_MS);
	}
	assert_in_range(freed_ms - w.cancelled_ms, 0, SOON_MS);
	assert_int_equal(1, atomic_load(&w.sts));
	end(&w);
}

static void a_cancel_ends_all_calls_that_wait_for_keys(void **state)
{
	(void)state;
	assert_keys_are_given_up(false);
}

static void the_cancel_of_a_handle_ends_all_calls_that_wait_for_keys(void **state)
{
	(void)state;
	assert_keys_are_given_up(true);
}

static void a_cancel_ends_a_copy_within_a_store(void **state)
{
	/* Sizes of objects that are copied in one request, and in parts. The copies hang. */
	static const char *const sizes[] = {"5", "6442450944"};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct world w;
		struct penstock_call_options o = PENSTOCK_CALL_OPTIONS_INIT;
		pthread_t thread;

		begin(&w, false);
		w.size = sizes[i];
		o.cancel = w.cancel;
		struct penstock_transfer *t = handle(NULL);

		pthread_create(&thread, NULL, cancel_soon, &w);
		assert_int_equal(-(int)PENSTOCK_E_CANCELLED,
			penstock_copy(t, "s3://bucket/key", "s3://bucket/to", &o, NULL, NULL));
		assert_in_range(clock_monotonic_ms() - w.cancelled_ms, 0, SOON_MS);
		pthread_join(thread, NULL);
		assert_true(atomic_load(&w.copies) >= 1);
		assert_int_equal(i, atomic_load(&w.aborts));
		penstock_transfer_free(t);
		end(&w);
	}
}

static void count(void *cookie, int64_t bytes)
{
	atomic_fetch_add((atomic_llong *)cookie, bytes);
}

static void a_copy_within_a_store_tells_what_it_moved(void **state)
{
	struct world w;
	struct penstock_call_options o = PENSTOCK_CALL_OPTIONS_INIT;
	atomic_llong moved = 0;

	(void)state;
	begin(&w, false);
	w.copies_at_once = true;
	o.progress = count;
	o.cookie = &moved;
	struct penstock_transfer *t = handle(NULL);

	assert_int_equal(0, penstock_copy(t, "s3://bucket/key", "s3://bucket/to", &o, NULL, NULL));

	assert_int_equal(5, atomic_load(&moved));
	penstock_transfer_free(t);
	end(&w);
}

/* The pipe remains open, and no byte arrives. */
static void the_cancel_of_a_handle_ends_a_stream_that_gives_nothing(void **state)
{
	struct world w;
	pthread_t thread;
	int ends[2];

	(void)state;
	begin(&w, false);
	assert_int_equal(0, pipe(ends));
	struct penstock_transfer *t = handle(w.cancel);

	pthread_create(&thread, NULL, cancel_soon, &w);
	assert_int_equal(-(int)PENSTOCK_E_CANCELLED,
		penstock_put_stream(t, "s3://bucket/key", ends[0], NULL, NULL, NULL));
	assert_in_range(clock_monotonic_ms() - w.cancelled_ms, 0, SOON_MS);
	pthread_join(thread, NULL);
	penstock_transfer_free(t);
	close(ends[0]);
	close(ends[1]);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cancel_ends_all_calls_that_wait_for_keys),
		cmocka_unit_test(the_cancel_of_a_handle_ends_all_calls_that_wait_for_keys),
		cmocka_unit_test(a_cancel_ends_a_copy_within_a_store),
		cmocka_unit_test(a_copy_within_a_store_tells_what_it_moved),
		cmocka_unit_test(the_cancel_of_a_handle_ends_a_stream_that_gives_nothing),
	};
	int r;

	if (!mkdtemp(directory))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	fs_remove_tree(directory, NULL);
	return r;
}
