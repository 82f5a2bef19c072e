/* What a restore that was killed has left of the files that it fetched. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "sync/sync_internal.h"
#include "transfer/objects.h"
#include "transfer/part_file.h"
#include "base/banned.h"

bool restore_is_own_part(const struct sync *s, const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	_cleanup_free_ char *name = strdup(path);
	const struct entry *e;
	size_t stem;

	if (!name || !part_file_is_marked(base, &stem))
		return false;
	name[(size_t)(base - path) + stem] = '\0';
	e = table_find_path(&s->table, name);
	return e && !e->below && (e->flags & ENTRY_PUBLISHED);
}

bool restore_is_begun(const struct sync *s, const char *path)
{
	static const char journal[] = ".journal";
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	_cleanup_free_ char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	_cleanup_free_ char *name = strdup(path);
	_cleanup_close_ int fd = -1;
	const struct entry *e;

	if (!dir || !name || !str_ends(path, OBJECT_PART_SUFFIX))
		return false;
	name[strlen(name) - strlen(OBJECT_PART_SUFFIX)] = '\0';
	if (str_ends(name, journal))
		name[strlen(name) - strlen(journal)] = '\0';
	e = table_find_path(&s->table, name);
	if (!e || e->below || !(e->flags & ENTRY_PUBLISHED))
		return false;
	fd = openat(s->root_fd, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && part_file_is_ours(fd, base);
}
