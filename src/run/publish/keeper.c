#include "run/publish/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/read.h"
#include "run/publish/publisher.h"

char *keeper_relative(const struct publisher *p, const char *name)
{
	const char *path = p->attempt->workflow->checkpoints.path.value;

	return strcmp(path, ".") == 0 ? strdup(name) : path_join(path, name);
}

char *keeper_local(const struct publisher *p, const char *relative)
{
	return path_join(p->attempt->layout.output, relative);
}

char *checkpoint_commit(const char *relative, bool single)
{
	return str_printf(single ? "%s" COMMIT_SUFFIX : "%s/" COMMIT_NAME, relative);
}

int keeper_init(struct keeper *k, struct publisher *p, struct penstock_error *err)
{
	const char *path = p->attempt->workflow->checkpoints.path.value;

	*k = (struct keeper){.publisher = p, .cancel = &p->reaction->interrupts.cancel};
	k->dir = strcmp(path, ".") == 0 ? strdup(p->attempt->layout.output)
					: path_join(p->attempt->layout.output, path);
	return k->dir ? 0 : error_memory(err);
}

void keeper_release(struct keeper *k)
{
	free(k->dir);
	free(k->verified);
	strlist_release(&k->going);
	commit_list_release(&k->older);
	*k = (struct keeper){0};
}

bool keeper_is_inside(struct keeper *k)
{
	const char *path = k->publisher->attempt->workflow->checkpoints.path.value;
	_cleanup_close_ int output = open(k->publisher->attempt->layout.output,
		O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int dir = -1;
	size_t at;

	if (output >= 0)
		dir = fs_open_below(output, path, strlen(path), false, &at);
	if (dir < 0 && errno != ENOENT && !k->publisher->checkpoints.said_link)
		run_say(&k->publisher->attempt->voice, RUN_EVENT_WARNING,
			"'%s' is a link, or below one: nothing is removed or committed there",
			k->dir);
	k->publisher->checkpoints.said_link |= dir < 0 && errno != ENOENT;
	return dir >= 0;
}
