/* Starts the tasks of an execution: environment, command line and descriptors. */
#include "run/step/execution.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "net/credentials/credentials.h"
#include "run/cluster/remote.h"
#include "run/process/cgroups.h"
#include "run/step/ranks.h"
#include "run/report/output.h"
#include "run/stage/stores.h"
#include "run/step/containers.h"
#include "run/step/environment.h"
#include "run/step/launcher.h"
#include "run/step/network.h"
#include "run/task/box.h"
#include "run/task/keys.h"
#include "transfer/objects.h"

/* ---- the environment ---- */

/* Returns true if the keys expire. Such keys are not put into the environment, but served while the
 * tasks run. */
static bool keys_end(const struct s3_settings *settings)
{
	_cleanup_(credentials_release) struct credentials keys = {0};

	if (!credentials_renewable(settings->credentials))
		return false;
	/* If the source is unavailable now, assume that its keys expire, except those of Google. */
	if (credentials_get(settings->credentials, &keys, NULL) < 0)
		return !settings->google;
	return keys.access_key_id && keys.expires_at_ns;
}

/* The endpoint of temporary keys; `settings` is NULL if all keys are in the environment. */
struct step_keys {
	const struct s3_settings *settings;
	const struct key_server *server; /* NULL on a cluster, whose nodes have their own servers */
	const char *uri, *token;
};

static int serve_keys(const struct step_run *step, const struct run_store *store,
	struct step_keys *out, struct penstock_error *err)
{
	const struct s3_settings *settings = store ? object_client_settings(store->client) : NULL;
	struct key_server *server = NULL;
	int r;

	if (!settings || !keys_end(settings))
		return 0;
	/* Make the token here, so that this process masks it in the output of the nodes. */
	if (step->clustered) {
		char *token = step->host->keys_token;

		r = *token ? 0 : key_token_make(token, err);
		*out = (struct step_keys){settings, NULL, REMOTE_KEYS_URI, token};
		return r;
	}
	r = key_server_get(&server, &step->host->keys, settings->credentials, NULL, err);
	if (r == 0)
		*out = (struct step_keys){
			settings, server, key_server_uri(server), key_server_token(server)};
	return r;
}

static int build_environment(const struct step_run *step, const struct step_run_spec *spec,
	const struct step_keys *keys, const struct strlist *defaults,
	const struct environment_container *container, struct strlist *env,
	struct penstock_error *err)
{
	char deadline[STEP_DEADLINE_SIZE];
	const struct step_host *host = step->host;
	const struct attempt *attempt = host->attempt;

	step_deadline(&host->times, attempt->workflow, spec->step, deadline);
	return environment_build(
		&(struct environment_spec){
			.workflow = attempt->workflow,
			.step = spec->step,
			.defaults = (const char *const *)defaults->items,
			.extra = spec->env,
			.env_file = spec->env_file,
			.layout = &attempt->layout,
			.store = spec->store ? spec->store->client : NULL,
			.keys_uri = keys->uri,
			.keys_token = keys->token,
			.run_id = attempt->id,
			.attempt = attempt->number,
			.serial = host->serial,
			.deadline = deadline,
			.checkpoint_dir = attempt->workflow->checkpoints.path.value,
			.checkpoint = spec->checkpoint,
			.venv = container ? NULL : host->venv,
			.tracking = host->tracking,
			.inherited = (const char *const *)environ,
			.container = container,
		},
		env, err);
}

int step_fill_ranks(struct step_run *step, struct ranks *ranks, struct penstock_error *err)
{
	const struct step_host *host = step->host;

	*ranks = (struct ranks){
		.n = (size_t)step->what->resources.tasks.value,
		/* A container has only its own GPUs, counted from 0. */
		.gpus = host->machine.gpus && !step->what->container.given ? step->share.gpus
									   : NULL,
		.n_gpus = step->share.n_gpus,
		.only_gpus = cgroup_holds_devices(step->group.cgroup) ||
			     step->share.n_gpus == (size_t)host->machine.gpus,
		.ports = host->ports,
		.n_ports = (size_t)host->attempt->workflow->ports.value,
	};
	return ranks->n > 1 ? free_ports(&ranks->master_port, 1, err) : 0;
}

/* ---- starting ---- */

int step_watch_fd(const struct step_run *step, int fd, uint64_t which, struct penstock_error *err)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = which};

	if (epoll_ctl(step->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return error_errno(err, errno, "cannot watch a step's task");
	return 0;
}

const char *step_cwd(const struct step_run *step)
{
	const struct attempt *attempt = step->host->attempt;

	if (step->what->work_dir.value)
		return step->what->work_dir.value;
	return attempt->workflow->has_work_dir ? attempt->layout.work : attempt->layout.storage;
}

/* Command line and environment of one task; freed once the task has started. */
struct starting {
	struct strlist env;
	struct strlist launch;
	struct strlist launch_env; /* environment of a launcher with ranks in containers */
	struct container_setup setup;
	struct step_network network;
	struct step_keys keys;
};

static void starting_release(struct starting *s)
{
	strlist_release(&s->env);
	strlist_release(&s->launch);
	strlist_release(&s->launch_env);
	container_setup_release(&s->setup);
	step_network_release(&s->network);
}

static int prepare_task(struct step_run *step, const struct step_run_spec *spec,
	const struct ranks *ranks, size_t rank, struct starting *s, struct task_spec *task,
	struct penstock_error *err)
{
	const struct workflow_run *what = step->what;
	bool launcher = !step->clustered && launcher_wanted(what);
	bool contained = what->container.given;
	_cleanup_(strlist_release) struct strlist defaults = {0};
	size_t each = step->share.n_gpus / step->n;
	int r = 0;

	if ((step->clustered   ? ranks_cluster_environment(ranks, &defaults)
		    : launcher ? ranks_launcher_environment(ranks, &defaults)
			       : ranks_environment(ranks, rank, &defaults)) < 0)
		return error_memory(err);
	if (contained)
		r = containers_task(&s->setup, &step->host->containers, what,
			step->share.gpus + rank * each, launcher ? 0 : each, err);
	if (r == 0)
		r = step_network_describe(&s->network, what, err);
	if (r == 0)
		r = serve_keys(step, spec->store, &s->keys, err);
	if (r == 0)
		r = build_environment(step, spec, &s->keys, &defaults,
			contained ? &s->setup.environment : NULL, &s->env, err);
	if (r == 0 && launcher && !contained)
		r = launcher_command(what, strlist_get(&s->env, "PATH"), &s->launch, err);
	if (r < 0)
		return r;
	if (contained)
		containers_fill(&s->setup, task);
	if (launcher && !contained)
		task->argv = (const char *const *)s->launch.items;
	task->envp = (const char *const *)s->env.items;
	task->network = s->network.network;
	task->keys = s->keys.server;
	task->tmp = step->host->attempt->layout.tmp;
	if (launcher && contained) {
		/* The launcher runs outside of the containers, with the environment of a step
		 * without a container. */
		r = build_environment(step, spec, &s->keys, &defaults, NULL, &s->launch_env, err);
		if (r == 0)
			r = box_make(&step->mpi_box, step->host->attempt->layout.tmp, "mpi-", err);
		if (r < 0)
			return r;
		s->setup.container.tmp = step->mpi_box;
		r = step_mpi_wrap(task, step->what, step->share.gpus, step->share.n_gpus,
			&s->launch, &s->launch_env, err);
		task->envp = (const char *const *)s->launch_env.items;
		task->cwd = step_cwd(step);
		return r;
	}
	return 0;
}

/* Returns the CPUs of one task: all CPUs of the run if binding is disabled, all CPUs of the step if
 * the step has more tasks than CPUs, else an equal part of them. */
static const int *cpus_of(const struct step_run *step, size_t rank, size_t *n)
{
	size_t each = step->share.n_cpus / step->n;

	if (step->what->disable_cpu_binding.value)
		return claim_cpus(step->host->claim, n);
	if (!each) {
		*n = step->share.n_cpus;
		return step->share.n_cpus ? step->share.cpus : NULL;
	}
	*n = each;
	return step->share.cpus + rank * each;
}

static void on_stderr(void *cookie, const char *data, size_t len)
{
	slurm_memory_read(cookie, data, len);
}

int step_start_task(struct step_run *step, const struct step_run_spec *spec,
	const struct ranks *ranks, size_t rank, struct penstock_error *err)
{
	const struct workflow_run *what = step->what;
	_cleanup_(starting_release) struct starting starting = {0};
	struct host_command plain;
	struct step_task *t = &step->tasks[rank];
	_cleanup_free_ char *dir = NULL;
	struct task_cluster cluster;
	struct task_spec task = {
		.argv = plain.argv,
		.cwd = step_cwd(step),
	};
	char label[32];
	int r;

	host_command(&plain, what);
	r = prepare_task(step, spec, ranks, rank, &starting, &task, err);
	snprintf(label, sizeof(label), "[%zu] ", rank);
	if (r == 0 && step->clustered) {
		r = step_cluster(&cluster, step->host->attempt, step->host->slurm, what, step->name,
			step->serial, &dir, err);
		task.cluster = &cluster;
		if (starting.keys.settings) {
			cluster.keys_endpoint = starting.keys.settings->endpoint_url;
			cluster.keys_region = starting.keys.settings->region;
			cluster.keys_token = starting.keys.token;
		}
	}
	if (r == 0) /* srun and MPI launchers label the lines of their tasks themselves */
		r = output_add(step->host->attempt->voice.output,
			step->n > 1 ? label
			: launcher_wanted(what) ||
					(step->clustered && what->resources.tasks.value > 1)
				? ""
				: NULL,
			&t->output, err);
	if (r < 0)
		return r;
	if (step->clustered)
		output_task_parse(t->output, on_stderr, &step->memory);
	task.stdout_fd = output_task_fd(t->output, 1);
	task.stderr_fd = output_task_fd(t->output, 2);
	task.cpus = cpus_of(step, rank, &task.n_cpus);
	task.cgroups = cgroup_fds(step->group.cgroup, &task.n_cgroups);
	task.born_in = cgroup_born_fd(step->group.cgroup);
	r = step->executor->start(&t->task, &task, err);
	if (r < 0)
		return r;
	output_task_started(t->output);
	step->n_started++;
	return step_watch_fd(step, t->task->event_fd, rank, err);
}
