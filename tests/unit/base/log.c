#include "alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"

static char last[3 * LIMIT_LOG_LINE];
static enum log_level last_level;
static int lines;

static void keep_line(void *cookie, enum log_level level, const char *line)
{
	(void)cookie;
	snprintf(last, sizeof(last), "%s", line);
	last_level = level;
	lines++;
}

static int set_up(void **state)
{
	(void)state;
	log_set_sink(keep_line, NULL);
	log_set_level(LOG_INFO);
	last[0] = '\0';
	lines = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	log_redact_clear();
	log_set_sink(NULL, NULL);
	return 0;
}

/* Lines below the level are not formatted. */
static void levels_are_obeyed(void **state)
{
	(void)state;
	log_debug("%s", (abort(), ""));
	assert_int_equal(lines, 0);
	log_warn("w%d", 1);
	assert_string_equal(last, "w1");
	assert_int_equal(last_level, LOG_WARN);
	assert_int_equal(log_set_level_name("quiet"), 0);
	log_error("not even this");
	assert_int_equal(lines, 1);
	assert_int_equal(log_set_level_name("loud"), -1);
	assert_int_equal(log_set_level_name(NULL), 0);
	assert_false(log_enabled(LOG_ERROR));
}

/* The lines of a thread have a time if the thread's own level is debug, even if the process has
 * another level. */
static void the_own_level_of_a_thread_decides_if_its_lines_have_a_time(void **state)
{
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);

	(void)state;
	assert_non_null(stream);
	log_set_sink(NULL, NULL);
	log_set_stream(stream);
	log_own_level();
	log_set_level(LOG_DEBUG);
	log_info("x");
	log_no_own_level();
	log_info("y");
	log_set_stream(NULL);
	fclose(stream);

	assert_non_null(strstr(text, "Z info penstock: x\npenstock: y\n"));
	free(text);
}

/* A file or object name cannot forge a line, and cannot send commands to a terminal. */
static void names_are_only_text(void **state)
{
	(void)state;
	log_warn("'%s'", "a\nerror\tb\033[2J\xc2\x9b\xc3\xa4\x7f");
	assert_string_equal(last, "'a\n  error\tb?[2J?\xc3\xa4?'");
}

/* Secrets are masked, the longest first; a very short secret is not masked. */
static void secrets_are_masked(void **state)
{
	(void)state;
	log_redact("hunter2");
	log_redact("hunter2-and-more");
	log_redact("abc");
	log_redact(NULL);

	log_info("a hunter2-and-more b hunter2c abc");
	assert_string_equal(last, "a *** b ***c abc");
}

/* A secret is masked in URL encoding and in base64, at every offset in the encoded text. */
static void encoded_secrets_are_masked(void **state)
{
	(void)state;
	log_redact("S3cr3t/+ key=!");

	log_info("%s",
		"a S3cr3t%2F%2B%20key%3D%21 b S3cr3t%2f%2b%20key%3d%21 c S3cr3t/%2B%20key%3D%21");
	assert_string_equal(last, "a *** b *** c ***");
	/* base64 of the secret alone, after "u:", and after "us:"; characters that also encode bits
	 * of neighbouring bytes are not masked */
	log_info("UzNjcjN0Lysga2V5PSE= dTpTM2NyM3QvKyBrZXk9IQ== dXM6UzNjcjN0Lysga2V5PSEK");
	assert_string_equal(last, "***E= dTp***Q== dXM6***EK");
}

/* The password of a URL, or the user if there is no password, is masked as written, decoded, and as
 * in basic authentication. */
static void users_of_urls_are_masked(void **state)
{
	(void)state;
	log_redact_user("http://me:p%40ss-word@proxy:3128/x@y");
	log_redact_user("https://lonely-token@host/");
	log_redact_user("http://host/a@b:c");
	log_redact_user("no url");

	log_info("me p%%40ss-word p@ss-word lonely-token b:c bWU6cEBzcy13b3Jk");
	assert_string_equal(last, "me *** *** *** b:c ***");
}

/* Signatures in URLs are found by the parameter's name, so those of other programs are masked,
 * too. */
static void signatures_in_urls_are_masked(void **state)
{
	(void)state;
	log_info("GET "
		 "https://b/k?X-Amz-Expires=60&X-Amz-Signature=0123abcd&x-amz-security-token=T/+= "
		 "done");
	assert_string_equal(last,
		"GET https://b/k?X-Amz-Expires=60&X-Amz-Signature=***&x-amz-security-token=*** "
		"done");
	log_info("https://a?sig=Zm9v;design=1");
	assert_string_equal(last, "https://a?sig=***");
	log_info("https://"
		 "a?q-signature=0a&x-oss-signature=1a&private_token=2a&Authorization=3a&jwt=4a "
		 "https://a?design=5a&sort_key=6a&author=7a&keys=8a&=9a&signature");
	assert_string_equal(last,
		"https://"
		"a?q-signature=***&x-oss-signature=***&private_token=***&Authorization=***&jwt=*** "
		"https://a?design=5a&sort_key=6a&author=7a&keys=8a&=9a&signature");
}

/* A secret in a stream is masked even if the reads split it. */
static void secrets_in_streams_are_masked_at_every_cut(void **state)
{
	static const char text[] = "x sec sec-ret y secret-long z sec";

	(void)state;
	log_redact("sec-ret");
	log_redact("secret-long");
	for (size_t cut = 0; cut <= strlen(text); cut++) {
		_cleanup_(buf_release) struct buf out = BUF_INIT(1000);
		char rest[100];
		size_t took = log_redact_stream(&out, text, cut, false);

		assert_true(took <= cut);
		snprintf(rest, sizeof(rest), "%s", text + took);
		assert_int_equal(log_redact_stream(&out, rest, strlen(rest), true), strlen(rest));
		assert_string_equal(buf_str(&out), "x sec *** y *** z sec");
	}
}

/* At the end of a stream, the incomplete start of a longer secret may contain a shorter secret. */
static void a_short_secret_at_the_end_of_a_stream_is_masked(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(100);

	(void)state;
	log_redact("abcdefgh");
	log_redact("abcd");
	assert_int_equal(log_redact_stream(&out, "x abcd", 6, true), 6);
	assert_string_equal(buf_str(&out), "x ***");
}

/* Streams may contain zero bytes. */
static void streams_carry_zeroes(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(1000);

	(void)state;
	log_redact("secret");
	assert_int_equal(log_redact_stream(&out, "a\0secret\0b", 10, true), 10);
	assert_int_equal(out.len, 7);
	assert_memory_equal(out.data, "a\0***\0b", 7);
}

/* A line that is too long is replaced by a notice, because a truncated line could show a part of a
 * secret. */
static void overlong_lines_are_replaced(void **state)
{
	char *text = malloc(2 * LIMIT_LOG_LINE);

	(void)state;
	memset(text, 'x', 2 * LIMIT_LOG_LINE - 1);
	text[2 * LIMIT_LOG_LINE - 1] = '\0';
	log_info("long: %s", text);
	assert_non_null(strstr(last, "long: "));
	assert_null(strstr(last, "xxx"));
	free(text);
}

static void *log_much(void *cookie)
{
	for (int i = 0; i < 500; i++) {
		char secret[16];

		snprintf(secret, sizeof(secret), "secret-%d", i);
		log_redact(secret);
		log_info("%s", secret);
	}
	return cookie;
}

/* Threads log and redact at the same time. */
static void threads_share_the_log(void **state)
{
	pthread_t threads[4];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_create(&threads[i], NULL, log_much, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(lines, 2000);
	assert_string_equal(last, "***");
}

/* A secret is masked until every caller that registered it has withdrawn it, and costs no time
 * afterwards. */
static void a_secret_is_forgotten_when_all_who_gave_it_take_it_back(void **state)
{
	_cleanup_(buf_release) struct buf shown = BUF_INIT(1000);
	size_t before;

	(void)state;
	log_redact("another-secret");
	before = log_redact_count();
	log_redact("token-of-an-hour");
	log_redact("token-of-an-hour");

	log_redact_forget("token-of-an-hour");
	log_redact_into(&shown, "token-of-an-hour another-secret ");
	log_redact_forget("token-of-an-hour");
	log_redact_into(&shown, "token-of-an-hour another-secret");

	assert_string_equal(buf_str(&shown), "*** *** token-of-an-hour ***");
	assert_int_equal(log_redact_count(), before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* If there is no memory to register a secret, no text is shown, because it could contain the
 * secret. */
static void without_memory_for_a_secret_no_text_is_shown(void **state)
{
	_cleanup_(buf_release) struct buf shown = BUF_INIT(1000), streamed = BUF_INIT(1000);
	int rc = 0;

	(void)state;
	for (size_t n = 1; n <= 3; n++) {
		buf_clear(&shown);
		buf_clear(&streamed);
		alloc_fail_arm(n);
		rc = log_redact("hunter2hunter2");
		assert_true(alloc_fail_disarm());

		assert_int_equal(rc, -1);
		assert_true(log_redact_failed());
		log_redact_into(&shown, "the key is hunter2hunter2");
		assert_null(strstr(buf_str(&shown), "hunter2"));
		assert_non_null(strstr(buf_str(&shown), "withheld"));
		assert_int_equal(log_redact_stream(&streamed, "hunter2hunter2", 14, true), 14);
		assert_null(strstr(buf_str(&streamed), "hunter2"));
		log_redact_clear();
		assert_false(log_redact_failed());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(levels_are_obeyed),
		TEST(the_own_level_of_a_thread_decides_if_its_lines_have_a_time),
		TEST(names_are_only_text),
		TEST(secrets_are_masked),
		TEST(encoded_secrets_are_masked),
		TEST(users_of_urls_are_masked),
		TEST(signatures_in_urls_are_masked),
		TEST(secrets_in_streams_are_masked_at_every_cut),
		TEST(a_short_secret_at_the_end_of_a_stream_is_masked),
		TEST(streams_carry_zeroes),
		TEST(overlong_lines_are_replaced),
		TEST(threads_share_the_log),
		TEST(a_secret_is_forgotten_when_all_who_gave_it_take_it_back),
		cmocka_unit_test(without_memory_for_a_secret_no_text_is_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
