/* Session tokens: only those that the store has signed are valid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "s3/sum/checksum.h"
#include "server/directory/session.h"

static const struct session_key key = {{1, 2, 3}}, other = {{3, 2, 1}};

static void seal(struct buf *token)
{
	json_t *terms = json_pack("{s:s,s:i}", "key", "ASIA1", "expires", 7);

	assert_int_equal(session_seal(&key, terms, token), 0);
	json_decref(terms);
}

static void a_token_is_read_with_its_key_only(void **state)
{
	struct buf token = BUF_INIT(4096);
	json_t *terms;

	(void)state;
	seal(&token);
	terms = session_open(&key, token.data);
	assert_non_null(terms);
	assert_string_equal(json_string_value(json_object_get(terms, "key")), "ASIA1");
	assert_int_equal(json_integer_value(json_object_get(terms, "expires")), 7);
	json_decref(terms);
	assert_null(session_open(&other, token.data));
	buf_release(&token);
}

static void no_changed_token_is_read(void **state)
{
	struct buf token = BUF_INIT(4096), raw = BUF_INIT(4096), text = BUF_INIT(4096);

	(void)state;
	seal(&token);
	assert_int_equal(base64_decode(&raw, token.data, token.len), 0);
	for (size_t i = 0; i < raw.len; i++) {
		raw.data[i] ^= 1;
		buf_clear(&text);
		assert_int_equal(base64_encode(&text, raw.data, raw.len), 0);
		assert_null(session_open(&key, text.data));
		raw.data[i] ^= 1;
		buf_clear(&text);
		assert_int_equal(base64_encode(&text, raw.data, i), 0);
		assert_null(session_open(&key, buf_str(&text)));
	}
	assert_null(session_open(&key, "%%%"));
	buf_release(&text);
	buf_release(&raw);
	buf_release(&token);
}

static void a_secret_depends_on_both_keys(void **state)
{
	char a[SESSION_SECRET_SIZE], b[SESSION_SECRET_SIZE];

	(void)state;
	assert_int_equal(session_secret(&key, "ASIA1", a), 0);
	assert_int_equal(strlen(a), SESSION_SECRET_SIZE - 1);
	assert_int_equal(session_secret(&key, "ASIA1", b), 0);
	assert_string_equal(a, b);
	assert_int_equal(session_secret(&key, "ASIA2", b), 0);
	assert_string_not_equal(a, b);
	assert_int_equal(session_secret(&other, "ASIA1", b), 0);
	assert_string_not_equal(a, b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_is_read_with_its_key_only),
		cmocka_unit_test(no_changed_token_is_read),
		cmocka_unit_test(a_secret_depends_on_both_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
