#include "s3_test.h"

#include "base/cleanup.h"
#include "s3/message/read_many.h"

static void lines_come_back_as_they_were(void **state)
{
	static const struct read_many_item items[] = {{.key = "a", .whole = true},
		{.key = "d/ä b%\n+", .offset = 5, .length = 0, .etag = "\"e-1\""},
		{.key = "x", .offset = UINT64_MAX, .length = UINT64_MAX}};
	_cleanup_(buf_release) struct buf body = BUF_INIT(1000);
	_cleanup_(buf_release) struct buf key = BUF_INIT(100);
	struct read_many_item item;
	char *at;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		assert_true(read_many_add(&body, &items[i]));
	assert_false(read_many_add(&body, &(struct read_many_item){.key = "x", .etag = "a b"}));
	assert_false(read_many_add(&body, &(struct read_many_item){.key = "x", .etag = ""}));
	assert_string_equal(buf_str(&body), "0 * - a\n5 0 \"e-1\" d/%C3%A4%20b%25%0A%2B\n"
					    "18446744073709551615 18446744073709551615 - x\n");
	at = body.data;
	for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
		assert_int_equal(read_many_next(&at, &key, &item), 1);
		assert_string_equal(item.key, items[i].key);
		assert_true(item.whole == items[i].whole && item.offset == items[i].offset &&
			    item.length == items[i].length);
		assert_true(!item.etag == !items[i].etag);
	}
	assert_int_equal(read_many_next(&at, &key, &item), 0);
}

static void other_lines_are_invalid(void **state)
{
	static const char *const texts[] = {"0 * - a", "0 * - \n", "0 * a\n", "1 * - a\n",
		"-1 5 - a\n", " 1 5 - a\n", "0 5x - a\n", "0 18446744073709551616 - a\n",
		"0 * - %zz\n", "0 * - %00\n", "\n", "0 * - 12345678901234567890123456789\n"};
	_cleanup_(buf_release) struct buf key = BUF_INIT(20);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		_cleanup_free_ char *text = strdup(texts[i]);
		struct read_many_item item;
		char *at = text;

		assert_int_equal(read_many_next(&at, &key, &item), -1);
		buf_release(&key);
		buf_init(&key, 20);
	}
}

static void results_come_back_as_they_were(void **state)
{
	static const struct read_many_result results[] = {
		{.status = 200, .length = 3073, .kind = CHECKSUM_CRC64NVME, .digest = "1234567"},
		{.status = 200}, {.status = 404}, {.status = 503}};
	uint8_t entry[READ_MANY_ENTRY];
	struct read_many_result back;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
		read_many_encode(&results[i], entry);
		assert_true(read_many_decode(entry, &back));
		assert_int_equal(back.status, results[i].status);
		assert_int_equal(back.length, results[i].length);
		assert_int_equal(back.kind, results[i].kind);
		assert_memory_equal(back.digest, results[i].digest, READ_MANY_DIGEST);
	}
	read_many_encode(&(struct read_many_result){.status = 404, .length = 1}, entry);
	assert_false(read_many_decode(entry, &back));
	read_many_encode(&(struct read_many_result){.status = 200, .kind = CHECKSUM_MD5}, entry);
	assert_false(read_many_decode(entry, &back));
	read_many_encode(&(struct read_many_result){.status = 2000}, entry);
	assert_false(read_many_decode(entry, &back));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_come_back_as_they_were),
		cmocka_unit_test(other_lines_are_invalid),
		cmocka_unit_test(results_come_back_as_they_were),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
