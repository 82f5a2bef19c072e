#include "records/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"

/* Returns the file's text without its newline, or NULL if it is empty or cannot
 * be read. */
static const char *read_value(struct buf *b, const char *dir, const char *name)
{
	_cleanup_free_ char *path = path_join(dir, name);

	buf_clear(b);
	if (!path || fs_read(path, b, NULL) < 0 || b->len == 0)
		return NULL;
	if (b->data[b->len - 1] == '\n')
		buf_truncate(b, b->len - 1);
	return buf_str(b);
}

static void lower_cpus(struct cgroup_limits *out, double quota, double period)
{
	double cpus = period > 0 ? quota / period : 0;

	if (cpus > 0 && (out->cpus == 0 || cpus < out->cpus))
		out->cpus = cpus;
}

static void lower_memory(struct cgroup_limits *out, const char *text)
{
	uint64_t bytes;

	/* Version 1 writes "no limit" as the largest page-aligned number. */
	if (text && str_to_u64(text, 1, INT64_MAX / 2, &bytes) &&
		(out->memory == 0 || bytes < out->memory))
		out->memory = bytes;
}

/* Reads the group and all its parents up to the mount; inside a container the path may be
 * missing. */
static void read_upwards(
	const char *mount, const char *controller, const char *path, struct cgroup_limits *out)
{
	_cleanup_free_ char *dir = str_printf(
		"%s%s%s%s", mount, *controller ? "/" : "", controller, path);
	size_t top;

	if (!dir)
		return;
	top = strlen(dir) - strlen(path);
	for (;;) {
		char *slash;
		_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_LOG_LINE);
		const char *text = read_value(&b, dir, "cpu.max");
		double quota;
		double period;
		char *end;

		if (text && !str_starts(text, "max")) {
			quota = strtod(text, &end);
			lower_cpus(out, quota, strtod(end, NULL));
		}
		lower_memory(out, read_value(&b, dir, "memory.max"));
		text = read_value(&b, dir, "cpu.cfs_quota_us");
		quota = text ? strtod(text, NULL) : -1;
		text = read_value(&b, dir, "cpu.cfs_period_us");
		period = text ? strtod(text, NULL) : 0;
		if (quota > 0)
			lower_cpus(out, quota, period);
		lower_memory(out, read_value(&b, dir, "memory.limit_in_bytes"));
		slash = strrchr(dir + top, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* Reads a line of /proc/self/cgroup: "4:memory:/a/b", or "0::/a/b" for version 2. */
static void read_line(const char *mount, char *line, struct cgroup_limits *out)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!path)
		return;
	*path++ = '\0';
	controllers++;
	if (path[0] != '/' || strstr(path, "/../"))
		return;
	if (*controllers == '\0') {
		read_upwards(mount, "", path, out);
		read_upwards(mount, "unified", path, out);
	} else if (strcmp(controllers, "memory") == 0) {
		read_upwards(mount, "memory", path, out);
	} else if (strcmp(controllers, "cpu") == 0 || strstr(controllers, "cpu,") == controllers ||
		   strstr(controllers, ",cpu,") || str_ends(controllers, ",cpu")) {
		read_upwards(mount, "cpu", path, out);
	}
}

void cgroup_limits_read(const char *mount, const char *membership, struct cgroup_limits *out)
{
	_cleanup_free_ char *copy = strdup(membership);
	char *rest = copy;
	char *line;

	*out = (struct cgroup_limits){0};
	while (copy && (line = strsep(&rest, "\n")))
		read_line(mount, line, out);
}
