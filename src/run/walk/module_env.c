#include "run/walk/module_env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/step/env_file.h"
#include "base/banned.h"

static char *file_of(const struct run_layout *layout, const char *path)
{
	char *file = NULL;

	return asprintf(&file, "%s.%s", layout->env_file, path) < 0 ? NULL : file;
}

int module_env_begin(
	const struct run_layout *layout, const char *path, char **file, struct penstock_error *err)
{
	_cleanup_free_ char *name = file_of(layout, path);
	_cleanup_close_ int fd = -1;

	if (!name)
		return error_memory(err);
	fd = fs_open_plain(name, O_WRONLY | O_CREAT, 0600, err);
	if (fd < 0)
		return fd;
	*file = take_pointer(name);
	return 0;
}

/* A value of several lines is written between two marks that it does not contain. */
static void add_variable(struct buf *out, const char *key, const char *value)
{
	unsigned n = 0;
	char mark[24] = "END";

	if (!strchr(value, '\n')) {
		buf_printf(out, "%s=%s\n", key, value);
		return;
	}
	while (strstr(value, mark))
		snprintf(mark, sizeof(mark), "END_%u", n++);
	buf_printf(out, "%s<<%s\n%s\n%s\n", key, mark, value, mark);
}

int module_env_export(const struct run_layout *layout, const char *path,
	const struct workflow_use *use, const char *outer, struct penstock_error *err)
{
	_cleanup_free_ char *name = file_of(layout, path);
	_cleanup_(strlist_release) struct strlist env = {0};
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_ENV_FILE);
	_cleanup_close_ int fd = -1;
	int r;

	if (!use->export_env_as.value)
		return 0;
	if (!name)
		return error_memory(err);
	r = env_file_read(name, &env, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < use->outputs.n; i++) {
		const char *value = strlist_get(&env, use->outputs.items[i].value);
		_cleanup_free_ char *key = NULL;

		if (!value)
			continue;
		if (asprintf(&key, "%s_%s", use->export_env_as.value, use->outputs.items[i].value) <
			0)
			return error_memory(err);
		add_variable(&text, key, value);
	}
	if (buf_failed(&text))
		return buf_error(&text, "the outputs of the module", err);
	if (!outer)
		outer = layout->env_file;
	fd = fs_open_plain(outer, O_WRONLY | O_APPEND | O_CREAT, 0600, err);
	if (fd < 0)
		return fd;
	if (write(fd, buf_str(&text), text.len) != (ssize_t)text.len)
		return error_errno(err, errno, "cannot write %s", outer);
	return 0;
}
