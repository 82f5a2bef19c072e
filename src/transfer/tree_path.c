/* Which path below the directory a key gets. */
#include <string.h>

#include "base/error.h"
#include "transfer/tree.h"
#include "base/banned.h"

#define COMPONENT_MAX 255 /* bytes, as Linux file systems have it */

static int no_path(const char *key, const char *why, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"the object \"%s\" cannot become a file: %s; rename it or leave its prefix out",
		key, why);
}

static int check_components(const char *key, const char *path, struct penstock_error *err)
{
	for (const char *at = path; *at;) {
		size_t len = strcspn(at, "/");

		if (len == 0)
			return no_path(key,
				at == path ? "its path is absolute" : "its path has an empty part",
				err);
		if ((len == 1 && at[0] == '.') || (len == 2 && at[0] == '.' && at[1] == '.'))
			return no_path(key, "its path contains \".\" or \"..\"", err);
		if (len > COMPONENT_MAX)
			return no_path(key, "a part of its path is longer than 255 bytes", err);
		at += len;
		if (*at == '/')
			at++;
	}
	return 0;
}

int tree_relative_path(
	const char *prefix, const char *key, struct buf *out, struct penstock_error *err)
{
	size_t len;
	const char *path;
	int r;

	while (*prefix == '/')
		prefix++;
	len = strlen(prefix);
	while (len && prefix[len - 1] == '/')
		len--;
	if (len == 0) {
		path = key;
	} else if (strncmp(key, prefix, len) != 0 || (key[len] && key[len] != '/')) {
		return error_set(err, PENSTOCK_E_NOT_FOUND, "\"%s\" is not below \"%.*s\"", key,
			(int)len, prefix);
	} else if (key[len] == '\0') {
		const char *slash = memrchr(key, '/', len);

		path = slash ? slash + 1 : key;
	} else {
		path = key + len + 1;
	}
	r = check_components(key, path, err);
	if (r < 0)
		return r;
	buf_add_str(out, path);
	return buf_failed(out) ? buf_error(out, "the path", err) : 0;
}
