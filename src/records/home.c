#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "records/records.h"
#include "base/banned.h"

static char *home_path(void)
{
	const char *own = getenv("PENSTOCK_HOME");
	const char *data = getenv("XDG_DATA_HOME");
	const char *user = getenv("HOME");
	char *path = NULL;

	if (own && *own) {
		if (own[0] == '/')
			return strdup(own);
		_cleanup_free_ char *cwd = getcwd(NULL, 0);
		return cwd ? path_join(cwd, own) : NULL;
	}
	if (data && data[0] == '/')
		return path_join(data, "penstock");
	if (asprintf(&path, "%s/.local/share/penstock", user && *user ? user : "/root") < 0)
		return NULL;
	return path;
}

int records_home(char **home, struct penstock_error *err)
{
	_cleanup_free_ char *path = home_path();
	int r;

	if (!path)
		return error_memory(err);
	r = fs_mkdirs(path, 0700, err);
	if (r < 0)
		return error_prefix(err, "set PENSTOCK_HOME to a directory that you may write");
	*home = take_pointer(path);
	return 0;
}
