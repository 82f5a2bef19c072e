/* Many reads in one request: its lines, and the table of the reply. */
#include "fuzz.h"

#include "s3/message/read_many.h"

static void lines(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = calloc(1, size + 1);
	_cleanup_(buf_release) struct buf key = BUF_INIT(1025);
	char *at = text;
	struct read_many_item item, again;

	if (!text)
		return;
	memcpy(text, data, size);
	while (read_many_next(&at, &key, &item) > 0) {
		_cleanup_(buf_release) struct buf line = BUF_INIT(64 * 1024);
		_cleanup_(buf_release) struct buf same = BUF_INIT(1025);
		char *start;

		require(at <= text + size);
		/* An ETag in a request may contain any byte except a line break. */
		require(read_many_add(&line, &item) || !*item.etag || strchr(item.etag, '\n'));
		if (buf_failed(&line) || !line.len)
			continue;
		start = line.data;
		require(read_many_next(&start, &same, &again) == 1);
		require(start == line.data + line.len);
		require(strcmp(again.key, item.key) == 0 && again.whole == item.whole);
		require(again.offset == item.offset && again.length == item.length);
		require(!again.etag == !item.etag);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	lines(data, size);
	for (; size >= READ_MANY_ENTRY; data += READ_MANY_ENTRY, size -= READ_MANY_ENTRY) {
		struct read_many_result result;
		uint8_t again[READ_MANY_ENTRY];

		if (!read_many_decode(data, &result))
			continue;
		read_many_encode(&result, again);
		require(memcmp(again, data, READ_MANY_ENTRY) == 0);
	}
	return 0;
}
