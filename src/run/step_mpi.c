#include "run/step_mpi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "run/executors/boxed.h"
#include "run/executors/remote.h"
#include "run/step_launcher.h"
#include "base/banned.h"

int step_mpi_box(char **out, const char *tmp, struct penstock_error *err)
{
	_cleanup_free_ char *box = path_join(tmp, BOXED_PREFIX "mpi-XXXXXX");

	if (!box)
		return error_memory(err);
	if (!mkdtemp(box))
		return error_errno(err, errno, "cannot make a directory in %s", tmp);
	*out = take_pointer(box);
	return 0;
}

/* Somebody else than root may be root in his containers; to the launcher's server he has to be who he is. */
static void keep_user(struct task_container *container, const struct workflow_run *what)
{
	if (!what->map_uid.given)
		container->uid = geteuid();
	if (!what->map_gid.given)
		container->gid = getegid();
}

int step_mpi_wrap(struct task_spec *task, const struct workflow_run *what, const int *gpus,
	size_t n_gpus, struct strlist *argv, struct strlist *env, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_MPI_TASK);
	_cleanup_free_ char *program = realpath("/proc/self/exe", NULL);
	struct task_container container = *task->container;
	struct task_spec rank = *task;
	int r;

	keep_user(&container, what);
	rank.container = &container;
	rank.network = (struct task_network){0}; /* the launcher's */
	r = remote_describe_rank(&rank, gpus, n_gpus, &text, err);
	if (r == 0)
		r = launcher_words(what, strlist_get(env, "PATH"), argv, err);
	if (r < 0)
		return r;
	if (!program || strlist_add(argv, program) < 0 || strlist_add(argv, REMOTE_RANK_WORD) < 0 ||
		strlist_set(env, REMOTE_RANK_VARIABLE, buf_str(&text)) < 0)
		return error_memory(err);
	task->argv = (const char *const *)argv->items;
	task->container = NULL;
	return 0;
}
