/* The penstock process on a node of a cluster, between srun and the task. */
#include "run/cluster/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "run/cluster/hostlist.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"
#include "image/image.h"
#include "records/claims.h"
#include "net/credentials/credentials.h"
#include "run/task/cdi.h"
#include "run/task/keys.h"
#include "run/cluster/node_inputs.h"
#include "run/cluster/node_usage.h"
#include "run/process/gpus.h"
#include "run/process/live.h"
#include "run/process/leaders.h"

enum { EXIT_INTERNAL = 70, EXIT_CONFIG = 78, NOTIFY_AGAIN_MS = 250 };

struct remote {
	struct buf input; /* input not yet processed */
	bool input_ended;
	bool launched; /* an MPI launcher has started this process as a rank */
	json_t *root;

	struct strlist argv, env;
	struct strlist dns;
	struct task_interface *interfaces;
	struct task_network network;
	char *cwd, *dir, *notice, *tmp, *own_tmp;
	size_t rank;

	struct node_inputs inputs;
	struct image image;
	struct container_mount *mounts;
	struct strlist mount_texts;
	struct task_container container;
	json_t *cdi;

	/* the store for which tasks get temporary keys, with the credentials that this node
	 * finds */
	struct s3_settings store;
	struct key_server *keys; /* NULL if the task gets no temporary keys */

	const struct executor *executor;
	struct task *task;
	int signal_fd;
	bool signalled; /* Slurm has signalled this process, like every process of the step */
	int to_notify; /* a signal that the leader does not handle yet; 0 if there is none */
	struct node_usage usage;
};

static void remote_release(struct remote *r)
{
	key_servers_free(r->keys);
	s3_settings_release(&r->store);
	node_inputs_release(&r->inputs);
	node_usage_end(&r->usage);
	buf_release(&r->input);
	json_decref(r->root);
	json_decref(r->cdi);
	strlist_release(&r->argv);
	strlist_release(&r->env);
	strlist_release(&r->image.layers);
	strlist_release(&r->dns);
	strlist_release(&r->mount_texts);
	free(r->mounts);
	free(r->cwd);
	free(r->dir);
	free(r->notice);
	free(r->tmp);
	free(r->own_tmp);
	free(r->interfaces);
	if (r->signal_fd >= 0)
		close(r->signal_fd);
}

/* ---- reading the description ---- */

/* Returns a copy of the text, which the caller frees; NULL if the value is missing or invalid, or
 * out of memory. */
static char *text_of(const json_t *value)
{
	const char *hex = json_string_value(json_object_get(value, "hex"));
	size_t len = hex ? strlen(hex) / 2 : 0;
	char *raw;

	if (json_is_string(value))
		return strdup(json_string_value(value));
	raw = hex ? calloc(1, len + 1) : NULL;
	if (raw && str_unhex(hex, raw, len) < 0) {
		free(raw);
		return NULL;
	}
	return raw;
}

static int read_words(const json_t *array, struct strlist *out)
{
	const json_t *value;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)array, i, value) {
		_cleanup_free_ char *text = text_of(value);

		if (!text || strlist_add(out, text) < 0)
			return -1;
	}
	return 0;
}

/* Reads the first line; the input after it stays in the buffer. */
static int read_line(struct remote *r, struct penstock_error *err)
{
	char *end;

	buf_init(&r->input, LIMIT_SLURM_TASK);
	while (!r->input.len || !(end = memchr(r->input.data, '\n', r->input.len))) {
		char *room = buf_reserve(&r->input, 64 * KIB);
		ssize_t n = room ? read(STDIN_FILENO, room, 64 * KIB) : -1;

		if (!room)
			return buf_error(&r->input, "the task's description", err);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_set(err, PENSTOCK_E_IO,
				"cannot read the task: standard input has no description of it; "
				"this command is for steps on the nodes of a cluster");
		buf_grown(&r->input, (size_t)n);
	}
	r->root = json_loadb(r->input.data, (size_t)(end - r->input.data), 0, NULL);
	buf_consume(&r->input, (size_t)(end - r->input.data) + 1);
	if (!json_is_object(r->root))
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot read the task: its description is damaged");
	return 0;
}

static int add_mount(struct remote *r, const char *source, const char *place, bool read_only)
{
	size_t i = r->container.n_mounts;

	if (!source || !place || strlist_add(&r->mount_texts, source) < 0 ||
		strlist_add(&r->mount_texts, place) < 0)
		return -1;
	r->mounts[i].source = r->mount_texts.items[2 * i];
	r->mounts[i].place = r->mount_texts.items[2 * i + 1];
	r->mounts[i].read_only = read_only;
	r->container.n_mounts++;
	return 0;
}

/* Returns the directory for the files that a task writes to its root: `given`, or a directory on
 * the node if `given` is on a network file system, which overlays do not support. */
static char *local_tmp(char *given)
{
	const char *tmp = str_env("TMPDIR");

	if (given && fs_is_network(given)) {
		free(given);
		return strdup(tmp ? tmp : "/tmp");
	}
	return given;
}

static int read_container(struct remote *r, const json_t *given)
{
	const json_t *mounts = json_object_get(given, "mounts");
	const char *pmix = str_env("PMIX_SERVER_TMPDIR");
	const json_t *mount;
	size_t i;

	if (!given)
		return 0;
	/* Leaves room for the mounts of PMIx, of /dev/shm and of the inputs. */
	r->mounts = calloc(json_array_size(mounts) + 4, sizeof(*r->mounts));
	r->tmp = local_tmp(text_of(json_object_get(given, "tmp")));
	if (!r->mounts || !r->tmp ||
		read_words(json_object_get(given, "layers"), &r->image.layers) < 0)
		return -1;
	json_array_foreach ((json_t *)(uintptr_t)mounts, i, mount) {
		_cleanup_free_ char *source = text_of(json_object_get(mount, "source"));
		_cleanup_free_ char *place = text_of(json_object_get(mount, "place"));

		if (add_mount(r, source, place, json_is_true(json_object_get(mount, "ro"))) < 0)
			return -1;
		r->mounts[r->container.n_mounts - 1].slave = json_is_true(
			json_object_get(mount, "slave"));
	}
	/* Ranks of one machine communicate through /dev/shm. */
	if ((pmix && add_mount(r, pmix, pmix, false) < 0) ||
		(r->launched && add_mount(r, "/dev/shm", "/dev/shm", false) < 0))
		return -1;
	r->image.name = (char *)(uintptr_t)json_string_value(json_object_get(given, "image"));
	r->image.config.working_dir = (char *)(uintptr_t)json_string_value(
		json_object_get(given, "workingDir"));
	r->container.image = &r->image;
	r->container.tmp = r->tmp;
	r->container.mounts = r->mounts;
	r->container.uid = json_integer_value(json_object_get(given, "uid"));
	r->container.gid = json_integer_value(json_object_get(given, "gid"));
	r->container.read_only_root = json_is_true(json_object_get(given, "readOnly"));
	return 0;
}

static int read_network(struct remote *r, const json_t *given)
{
	const json_t *interfaces = json_object_get(given, "interfaces");
	const json_t *interface;
	size_t i;

	if (!given)
		return 0;
	r->interfaces = calloc(json_array_size(interfaces) + 1, sizeof(*r->interfaces));
	if (!r->interfaces || read_words(json_object_get(given, "dns"), &r->dns) < 0)
		return -1;
	json_array_foreach ((json_t *)(uintptr_t)interfaces, i, interface) {
		r->interfaces[i] = (struct task_interface){
			.kind = (enum task_interface_kind)json_integer_value(
				json_object_get(interface, "kind")),
			.config = json_string_value(json_object_get(interface, "config")),
			.server = json_string_value(json_object_get(interface, "server")),
			.secret = json_string_value(json_object_get(interface, "secret")),
			.port = (int)json_integer_value(json_object_get(interface, "port")),
		};
	}
	r->network = (struct task_network){
		.kind = (enum task_network_kind)json_integer_value(json_object_get(given, "kind")),
		.dns = r->dns.n ? (const char *const *)r->dns.items : NULL,
		.interfaces = r->interfaces,
		.n_interfaces = i,
	};
	return 0;
}

/* Starts the key server of this node. On failure the task runs without keys: it may need none. */
static void serve_keys(struct remote *r)
{
	const json_t *given = json_object_get(r->root, "keys");
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct key_server *server;

	if (given &&
		(s3_settings_resolve(&r->store,
			 &(struct store_place){.endpoint_url = json_string_value(
						       json_object_get(given, "endpoint")),
				 .region = json_string_value(json_object_get(given, "region"))},
			 &err) < 0 ||
			key_server_get(&server, &r->keys, r->store.credentials,
				json_string_value(json_object_get(given, "token")), &err) < 0))
		log_warn("cannot get keys for the step on this node: %s", err.message);
}

/* ---- identity ---- */

static const char *number_or(const char *name, const char *fallback)
{
	const char *value = str_env(name);

	return value ? value : fallback;
}

/* Replaces the placeholders for values that only this node knows. */
static int set_ranks(struct remote *r)
{
	struct strlist *env = &r->env;
	/* The first node of this list runs the first task of the step. */
	const char *list = number_or(
		"SLURM_STEP_NODELIST", number_or("SLURM_JOB_NODELIST", "localhost"));
	_cleanup_free_ char *first = hostlist_first(list);
	_cleanup_free_ char *nodes = hostlist_words(list);
	const char *tasks = number_or("SLURM_STEP_TASKS_PER_NODE", "1");
	const char *node = number_or("SLURM_NODEID", "0");
	int here = hostlist_count(tasks, (size_t)strtoul(node, NULL, 10));
	char count[16];
	const struct {
		const char *placeholder;
		const char *value;
	} known[] = {
		{"=" REMOTE_RANK, number_or("SLURM_PROCID", "0")},
		{"=" REMOTE_LOCAL_RANK, number_or("SLURM_LOCALID", "0")},
		{"=" REMOTE_LOCAL_WORLD_SIZE, count},
		{"=" REMOTE_NODE_RANK, node},
		{"=" REMOTE_NODES, nodes ? nodes : "localhost"},
		{"=" REMOTE_MASTER_ADDR, first ? first : "localhost"},
		{"=" REMOTE_KEYS_URI, r->keys ? key_server_uri(r->keys) : ""},
	};

	snprintf(count, sizeof(count), "%d", here > 0 ? here : 1);
	for (size_t i = 0; i < env->n; i++) {
		for (size_t k = 0; k < ARRAY_SIZE(known); k++) {
			char *pair = NULL;
			int len = (int)strcspn(env->items[i], "=");

			if (strcmp(env->items[i] + len, known[k].placeholder) != 0)
				continue;
			pair = str_printf("%.*s=%s", len, env->items[i], known[k].value);
			if (!pair)
				return -1;
			free(env->items[i]);
			env->items[i] = pair;
			break;
		}
	}
	return 0;
}

/* Copies to `env` the variables of this process that begin with one of `names`. */
static int take_variables(struct strlist *env, const char *const *names, size_t n)
{
	for (char **pair = environ; *pair; pair++) {
		_cleanup_free_ char *key = NULL;
		const char *equals = strchr(*pair, '=');

		if (!equals || !str_starts_any(*pair, names, n))
			continue;
		key = strndup(*pair, (size_t)(equals - *pair));
		if (!key || strlist_set(env, key, equals + 1) < 0)
			return -1;
	}
	return 0;
}

/* Gets the rank from the first variable in `names` that the launcher has set. Sets RANK and
 * LOCAL_RANK to the rank unless they are set. */
static int set_launched_rank(struct remote *r)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
	char text[24];

	for (size_t i = ARRAY_SIZE(names); i-- > 0;) {
		const char *value = str_env(names[i]);

		if (value)
			r->rank = strtoul(value, NULL, 10);
	}
	snprintf(text, sizeof(text), "%zu", r->rank);
	if ((!strlist_get(&r->env, "RANK") && strlist_set(&r->env, "RANK", text) < 0) ||
		(!strlist_get(&r->env, "LOCAL_RANK") &&
			strlist_set(&r->env, "LOCAL_RANK", text) < 0))
		return -1;
	/* Ranks must not read each other's memory directly: that needs the pid of the other rank,
	 * but a rank sees only the pids of its own container. */
	if (strlist_set(&r->env, "OMPI_MCA_btl_vader_single_copy_mechanism", "none") < 0 ||
		strlist_set(&r->env, "OMPI_MCA_smsc", "^cma,knem,xpmem") < 0)
		return -1;
	return 0;
}

/* Selects this rank's share of the step's GPUs. */
static int find_rank_gpus(struct remote *r, struct penstock_error *err)
{
	const json_t *given = json_object_get(r->root, "gpus");
	const char *world = strlist_get(&r->env, "WORLD_SIZE");
	size_t n = world ? strtoul(world, NULL, 10) : 1;
	size_t each = json_array_size(given) / (n ? n : 1);
	int gpus[CLAIMS_MAX_GPUS];
	int e;

	if (!each || each > CLAIMS_MAX_GPUS)
		return 0;
	for (size_t i = 0; i < each; i++)
		gpus[i] = (int)json_integer_value(json_array_get(given, r->rank * each + i));
	e = cdi_find(&r->cdi, NULL, gpus, each, err);
	r->container.cdi = r->cdi;
	return e;
}

static int read_rank(struct remote *r, struct penstock_error *err)
{
	static const char *const of_launcher[] = {
		"OMPI_", "PMIX_", "PMI_", "PMI2_", "OPAL_", "PRTE_", "HYDI_", "MPI_LOCAL", "MPIR_"};
	/* No child may see the variable. */
	const char *text = str_env(REMOTE_RANK_VARIABLE);

	buf_init(&r->input, LIMIT_SLURM_TASK);
	r->input_ended = true;
	r->root = text ? json_loads(text, 0, NULL) : NULL;
	unsetenv(REMOTE_RANK_VARIABLE);
	if (!json_is_object(r->root))
		return error_set(err, PENSTOCK_E_IO,
			"cannot read the task: the environment has no description of it; this "
			"command is for ranks started by an MPI launcher");
	r->cwd = text_of(json_object_get(r->root, "cwd"));
	if (read_words(json_object_get(r->root, "argv"), &r->argv) < 0 ||
		read_words(json_object_get(r->root, "env"), &r->env) < 0 ||
		read_container(r, json_object_get(r->root, "container")) < 0 ||
		take_variables(&r->env, of_launcher, ARRAY_SIZE(of_launcher)) < 0 ||
		set_launched_rank(r) < 0)
		return error_memory(err);
	/* PMIx fails without a home directory, which a user unknown to the image does not have. */
	if (r->container.uid && !strlist_get(&r->env, "HOME") &&
		strlist_set(&r->env, "HOME", "/") < 0)
		return error_memory(err);
	/* Give each rank its own range of pids: MPI ranks that share memory identify themselves by
	 * their pid. Pids end at 32768 on small machines, and a rank may use some pids before its
	 * final process. */
	const char *world = strlist_get(&r->env, "WORLD_SIZE");
	size_t n = world ? strtoul(world, NULL, 10) : 1;
	size_t each = n < 30 ? 1000 : 30000 / n;

	r->container.last_pid = (int)((r->rank + 1) * each);
	return find_rank_gpus(r, err);
}

static int read_spec(struct remote *r, struct penstock_error *err)
{
	/* Slurm's variables for each task: its rank, its GPUs, and the way in which tasks
	 * connect. */
	static const char *const of_slurm[] = {"SLURM_", "SLURMD_", "PMI_", "PMI2_", "PMIX_",
		"CUDA_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=", "GPU_DEVICE_ORDINAL=",
		"ZE_AFFINITY_MASK=", "HOSTNAME="};
	struct utsname system;
	int e = read_line(r, err);

	if (e < 0)
		return e;
	r->cwd = text_of(json_object_get(r->root, "cwd"));
	r->dir = text_of(json_object_get(r->root, "dir"));
	r->notice = text_of(json_object_get(r->root, "notice"));
	r->own_tmp = local_tmp(text_of(json_object_get(r->root, "tmp")));
	r->rank = strtoul(number_or("SLURM_PROCID", "0"), NULL, 10);
	serve_keys(r);
	if (!r->dir || read_words(json_object_get(r->root, "argv"), &r->argv) < 0 ||
		read_words(json_object_get(r->root, "env"), &r->env) < 0 ||
		read_container(r, json_object_get(r->root, "container")) < 0 ||
		read_network(r, json_object_get(r->root, "network")) < 0 ||
		take_variables(&r->env, of_slurm, ARRAY_SIZE(of_slurm)) < 0 || set_ranks(r) < 0)
		return error_memory(err);
	uname(&system);
	if (access(r->dir, W_OK) < 0)
		return error_errno(err, errno,
			"cannot write to '%s' on node '%s'; PENSTOCK_HOME must be on a file system that "
			"all nodes see",
			r->dir, system.nodename);
	/* Find the GPUs that Slurm has assigned to this task: a container gets only these. */
	int gpus[CLAIMS_MAX_GPUS];
	size_t n;

	if (!r->container.image)
		return 0;
	n = gpus_parse(str_env("CUDA_VISIBLE_DEVICES"), gpus, CLAIMS_MAX_GPUS);
	e = n ? cdi_find(&r->cdi, NULL, gpus, n, err) : 0;
	r->container.cdi = r->cdi;
	return e;
}

/* ---- end and signals ---- */

static void write_end(const struct remote *r, const struct task_end *end)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *path = NULL;
	char text[96];
	int n;

	if (r->launched) /* the launcher needs only the exit code */
		return;
	path = str_printf("%s/end.%zu", r->dir, r->rank);
	n = snprintf(text, sizeof(text), "%d %d %d %" PRId64 "\n", end->code, end->signal,
		(int)end->oom, clock_wall_ns());
	if (path && fs_write_atomic(path, text, (size_t)n, 0600, &err) < 0)
		log_warn("%s", err.message);
}

/* Returns true if Slurm ends the step because one of its tasks has failed. Then the signal of Slurm
 * is not a notice. */
static bool a_peer_failed(const struct remote *r)
{
	size_t n = strtoul(
		number_or("SLURM_STEP_NUM_TASKS", number_or("SLURM_NTASKS", "1")), NULL, 10);

	for (size_t rank = 0; rank < n; rank++) {
		struct task_end end;
		int64_t when;

		if (remote_read_end(r->dir, rank, &end, &when) && (end.code || end.signal))
			return true;
	}
	return false;
}

static void take_input(struct remote *r, bool read_more)
{
	char *end;

	while (r->input.len && (end = memchr(r->input.data, '\n', r->input.len))) {
		*end = '\0';
		uint64_t signal;

		if (str_starts(r->input.data, "notify ") &&
			str_to_u64(r->input.data + 7, 1, 64, &signal)) {
			if (!(r->signalled && signal == SIGTERM))
				r->to_notify = (int)signal;
		} else if (strcmp(r->input.data, "kill") == 0) {
			r->executor->kill(r->task);
		} else if (str_starts(r->input.data, "signal ") &&
			   str_to_u64(r->input.data + 7, 1, 64, &signal)) {
			/* Skip SIGTERM if the task already got it from Slurm. */
			if (!(r->signalled && signal == SIGTERM))
				r->executor->signal(r->task, (int)signal);
		}
		buf_consume(&r->input, (size_t)(end - r->input.data) + 1);
	}
	if (!read_more)
		return;
	char *room = buf_reserve(&r->input, 4 * KIB);
	ssize_t n = room ? read(STDIN_FILENO, room, 4 * KIB) : 0;

	if (n > 0) {
		buf_grown(&r->input, (size_t)n);
		take_input(r, false);
	} else if (n == 0 || errno != EINTR) {
		r->input_ended = true;
		r->executor->kill(r->task);
	}
}

/* Waits for the end of the task. Returns its exit code as a shell does: 128 + N for signal N. */
static int wait_for_end(struct remote *r)
{
	struct task_end end;

	take_input(r, false);
	while (!r->executor->ended(r->task, &end)) {
		struct pollfd fds[] = {{r->task->event_fd, POLLIN, 0}, {r->signal_fd, POLLIN, 0},
			{r->input_ended ? -1 : STDIN_FILENO, POLLIN, 0}};
		int64_t wait_ms = r->launched ? -1 : node_usage_sample(&r->usage, r->dir);

		if (r->to_notify) {
			unsigned notified = r->executor->notify
						    ? r->executor->notify(r->task, r->to_notify)
						    : leaders_signal(r->task->pid, r->to_notify);

			if (notified)
				r->to_notify = 0;
		}
		if (r->to_notify && (wait_ms < 0 || wait_ms > NOTIFY_AGAIN_MS))
			wait_ms = NOTIFY_AGAIN_MS;
		if (poll(fds, ARRAY_SIZE(fds), (int)wait_ms) < 0 && errno != EINTR)
			r->executor->kill(r->task);
		if (fds[1].revents) {
			/* Every process of the step got the signal, including the task, but not
			 * the supervisor. */
			struct signalfd_siginfo info;
			_cleanup_close_ int fd = -1;

			while (read(r->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
				if (info.ssi_signo == SIGCONT)
					continue;
				if (r->launched) {
					r->executor->signal(r->task, (int)info.ssi_signo);
					continue;
				}
				if (r->signalled)
					continue;
				r->signalled = true;
				if (!r->notice || a_peer_failed(r))
					continue;
				fd = open(r->notice, O_WRONLY | O_APPEND | O_CLOEXEC);
				if (fd < 0 || fs_write_all(fd, "!", 1) < 0)
					log_warn("cannot write '%s': %s", r->notice,
						strerror(errno));
			}
		}
		if (fds[2].revents)
			take_input(r, true);
	}
	r->executor->kill(r->task); /* the processes that the task left */
	write_end(r, &end);
	return end.signal ? 128 + end.signal : end.code;
}

/* Returns true if Slurm has asked the task to end, or if the supervisor has sent a command or has
 * exited. */
static bool is_wanted(void *cookie)
{
	const struct remote *r = cookie;
	struct pollfd fds[] = {{r->signal_fd, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};

	return r->input.len > 0 || poll(fds, ARRAY_SIZE(fds), 0) > 0;
}

/* Makes the task read the copy of the inputs on this node. A container sees the copy under the path
 * that the task knows; other tasks get its path in $DEEPSQUARE_INPUT. Without a copy the task reads
 * the inputs in the home. */
static void stage_inputs(struct remote *r)
{
	const json_t *given = json_object_get(r->root, "inputs");
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *from = text_of(json_object_get(given, "from")),
			    *where = text_of(json_object_get(given, "where"));
	const char *id = json_string_value(json_object_get(given, "run"));
	const char *seen = strlist_get(&r->env, "DEEPSQUARE_INPUT");
	int e;

	if (!from || !where || !id || !seen)
		return;
	e = node_inputs_take(&r->inputs,
		&(struct node_inputs_spec){
			.from = from,
			.where = where,
			.id = id,
			.attempt = (int)json_integer_value(json_object_get(given, "attempt")),
			.hurry = is_wanted,
			.cookie = r,
		},
		&err);
	if (e == 0 &&
		(r->container.image ? add_mount(r, r->inputs.path, seen, false)
				    : strlist_set(&r->env, "DEEPSQUARE_INPUT", r->inputs.path)) < 0)
		e = error_memory(&err);
	if (e < 0 && e != -(int)PENSTOCK_E_CANCELLED)
		log_warn("cannot use a copy of the inputs in '%s': %s", from, err.message);
}

static int start(struct remote *r, struct penstock_error *err)
{
	struct task_spec spec = {
		.argv = (const char *const *)r->argv.items,
		.envp = (const char *const *)r->env.items,
		.cwd = r->cwd,
		.stdout_fd = STDOUT_FILENO,
		.stderr_fd = STDERR_FILENO,
		.network = r->network,
		.tmp = r->own_tmp,
		.container = r->container.image ? &r->container : NULL,
		.keys = r->keys,
	};
	char number[16];
	uint64_t pmi;

	snprintf(number, sizeof(number), "%d", PROCESS_HANDED_FD);

	/* Pass on the descriptor for PMI-1 and PMI-2, whose number the task reads from PMI_FD. */
	if (!spec.container && spec.network.kind == TASK_NETWORK_HOST && str_env("PMI_FD") &&
		str_to_u64(str_env("PMI_FD"), 3, INT32_MAX, &pmi)) {
		if (strlist_set(&r->env, "PMI_FD", number) < 0)
			return error_memory(err);
		spec.envp = (const char *const *)r->env.items;
		spec.handed_fd = (int)pmi;
	}
	r->executor = spec.container			       ? &executor_container
		      : spec.network.kind != TASK_NETWORK_HOST ? &executor_isolated
							       : &executor_process;
	return r->executor->start(&r->task, &spec, err);
}

/* Records the live task for `penstock exec`, which starts a Slurm step of its own on this node. */
static void record_life(const struct remote *r)
{
	_cleanup_(live_step_release) struct live_step live = {.serial = r->rank, .n = 1};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct utsname system;

	if (r->launched)
		return;
	uname(&system);
	live.name = strdup("");
	live.cwd = strdup(r->cwd ? r->cwd : "/");
	live.node = strdup(number_or("SLURMD_NODENAME", system.nodename));
	live.pids = calloc(1, sizeof(*live.pids));
	if (!live.name || !live.cwd || !live.node || !live.pids)
		return;
	live.pids[0] = r->task->pid;
	if (r->executor->enter && r->executor->enter(r->task, &live.enter) < 0)
		return;
	if (live_write(r->dir, &live, &err) < 0)
		log_debug("%s", err.message);
}

static int task_main(bool launched)
{
	_cleanup_(remote_release) struct remote r = {
		.inputs.lock = -1, .signal_fd = -1, .launched = launched, .usage = NODE_USAGE_INIT};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	sigset_t set;
	int code;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGCONT);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigdelset(&set, SIGCHLD);
	sigdelset(&set, SIGPIPE);
	r.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (r.signal_fd < 0) {
		log_error("cannot watch for signals: %s", strerror(errno));
		return EXIT_INTERNAL;
	}
	if (launched)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	if ((launched ? read_rank(&r, &err) : read_spec(&r, &err)) < 0) {
		log_error("%s", err.message);
		return EXIT_CONFIG;
	}
	stage_inputs(&r);
	if (start(&r, &err) < 0) {
		log_error("%s", err.message);
		write_end(&r, &(struct task_end){.code = EXIT_INTERNAL});
		executor_container_finish();
		return EXIT_INTERNAL;
	}
	record_life(&r);
	code = wait_for_end(&r);
	if (r.dir)
		live_remove(r.dir, r.rank);
	r.executor->free(r.task);
	executor_container_finish(); /* waits for the cleanup in the background */
	return code;
}

int remote_task_main(void)
{
	return task_main(false);
}

int remote_rank_main(void)
{
	return task_main(true);
}
