/*
 * The lines are a prefix, a key and a URL. A key that becomes the name of a local file must stay
 * below its directory, and a URL must be shown without its secrets.
 */
#include "fuzz.h"

#include "copy/place.h"
#include "net/http/http.h"
#include "transfer/http_fetch.h"

/* Returns true if `path` is relative and has no empty, "." or ".." component. */
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
			return true; /* the key of a directory ends with '/' */
	}
}

/* An accepted name stays below any directory, and below any prefix of a store. */
static void key(const char *prefix, const char *name)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(place_release) struct place place = {0};
	_cleanup_(target_release) struct target target = {0};
	int rc = place_check_file_name(name, &err);

	require_error(rc, &err);
	if (rc == 0)
		require(stays_below(name));
	require(place_of_directory(&place, prefix) == 0);
	require((target_resolve(&target, &place, name, NULL) == 0) == (rc == 0));
	if (rc == 0)
		require(str_ends(target.path, name) && str_starts(target.path, place.base) &&
			target.path[strlen(target.path) - strlen(name) - 1] == '/');
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
