/*
 * Lines: a prefix, a key, a URL. What becomes the name of a file here must stay below its
 * directory, and what is shown of a URL must not hold its secrets.
 */
#include "fuzz.h"

#include "net/http.h"
#include "transfer/http_fetch.h"
#include "transfer/tree.h"

/* A relative path without empty, "." and ".." components. */
static bool stays_below(const char *path)
{
	if (!*path)
		return false;
	for (;;) {
		size_t n = strcspn(path, "/");

		if (n == 0 || (n == 1 && path[0] == '.') ||
			(n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += n;
		if (!*path++)
			return true;
		if (!*path)
			return true; /* a directory's mark */
	}
}

static void key(const char *prefix, const char *name)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_STRING);
	int rc = tree_relative_path(prefix, name, &path, &err);

	require_error(rc < 0 ? rc : 0, &err);
	if (rc == 0 && path.len > 0)
		require(stays_below(buf_str(&path)));
}

static void url(const char *text)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_STRING),
					  shown = BUF_INIT(LIMIT_STRING);

	if (http_fetch_name(text, &name) == 0) {
		require(name.len > 0 && !strchr(buf_str(&name), '/'));
		require(strcmp(buf_str(&name), ".") != 0 && strcmp(buf_str(&name), "..") != 0);
		for (size_t i = 0; i < name.len; i++)
			require((unsigned char)name.data[i] >= ' ' && name.data[i] != 0x7f);
	}
	http_url_display(text, &shown);
	require(!strchr(buf_str(&shown), '?'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	char *at = text;
	char *prefix = fuzz_line(&at);
	char *name = fuzz_line(&at);
	char *address = fuzz_line(&at);

	if (name)
		key(prefix, name);
	if (address)
		url(address);
	return 0;
}
