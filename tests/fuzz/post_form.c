/*
 * The body of a form. The first line is the Content-Type; the first byte of the rest selects the
 * size of the pieces in which the parser gets the body. All sizes give the same fields, the same
 * bytes and the same result.
 */
#include "fuzz.h"

#include <strings.h>

#include "server/form/multipart.h"

#define MANY ((size_t)1 << 20)

static int on_field(
	void *cookie, const char *name, const char *value, size_t len, struct penstock_error *err)
{
	(void)err;
	require(value[len] == '\0');
	require(strcasecmp(name, "file") != 0);
	buf_printf(cookie, "field %s %zu ", name, len);
	buf_add(cookie, value, len);
	return 0;
}

static int on_file(void *cookie, const char *name, struct penstock_error *err)
{
	(void)err;
	buf_printf(cookie, "file %s ", name);
	return 0;
}

static int on_data(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	(void)err;
	require(len > 0);
	buf_add(cookie, data, len);
	return 0;
}

/* Appends the events of the parser and its result to `log`. */
static void parse(const char *type, const char *body, size_t len, size_t piece, struct buf *log)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct multipart m = {0};
	int rc = multipart_init(&m, type,
		&(struct multipart_events){
			.field = on_field, .file = on_file, .data = on_data, .cookie = log},
		&err);

	while (rc == 0 && len) {
		size_t n = len < piece ? len : piece;
		/* The buffer has exactly `n` bytes, so that ASan detects a read beyond its end. */
		_cleanup_free_ char *copy = malloc(n);

		require(copy);
		memcpy(copy, body, n);
		rc = multipart_feed(&m, copy, n, &err);
		body += n;
		len -= n;
	}
	if (rc == 0)
		rc = multipart_finish(&m, &err);
	require_error(rc, &err);
	multipart_release(&m);
	buf_printf(log, " %d", rc);
}

/* Writes a form whose file is `body`, and parses it; the parser must return the same bytes. */
static void write_and_read(const char *body, size_t len, size_t piece)
{
	static const char head[] =
		"--b\r\nContent-Disposition: form-data; name=\"k\"\r\n\r\nv\r\n"
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
	static const char tail[] = "\r\n--b--\r\n";
	_cleanup_(buf_release) struct buf text = BUF_INIT(MANY);
	_cleanup_(buf_release) struct buf log = BUF_INIT(MANY), wanted = BUF_INIT(MANY);

	if (len && memmem(body, len, "\n--b", 4))
		return;
	buf_add(&text, head, sizeof(head) - 1);
	buf_add(&text, body, len);
	buf_add(&text, tail, sizeof(tail) - 1);
	parse("multipart/form-data; boundary=b", text.data, text.len, piece, &log);
	buf_add_str(&wanted, "field k 1 vfile f ");
	buf_add(&wanted, body, len);
	buf_add_str(&wanted, " 0");
	require(log.len == wanted.len && memcmp(log.data, wanted.data, log.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	_cleanup_(buf_release) struct buf whole = BUF_INIT(MANY), other = BUF_INIT(MANY);
	char *end = memchr(text, '\n', size), *body;
	size_t len, piece;

	if (!end || end + 1 == text + size)
		return 0;
	*end = '\0';
	piece = (unsigned char)end[1] % 32 + 1U;
	body = end + 2;
	len = size - (size_t)(body - text);
	parse(text, body, len, MANY, &whole);
	parse(text, body, len, piece, &other);
	require(whole.len == other.len && memcmp(whole.data, other.data, whole.len) == 0);
	buf_clear(&other);
	parse(text, body, len, 1, &other);
	require(whole.len == other.len && memcmp(whole.data, other.data, whole.len) == 0);
	write_and_read(body, len, piece);
	return 0;
}
