#include "run/step/ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "run/attempt/attempt.h"
#include "run/cluster/memory.h"
#include "run/cluster/remote.h"
#include "run/cluster/slurm.h"
#include "run/step/run.h"

const char ranks_mpi_wrapper[] =
	"r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-0}}}; "
	"export RANK=\"${RANK:-$r}\" LOCAL_RANK=\"${LOCAL_RANK:-$r}\"; "
	"if [ -n \"${PENSTOCK_TASK_GPUS+x}\" ] && [ -z \"${CUDA_VISIBLE_DEVICES+x}\" ]; then "
	"export CUDA_VISIBLE_DEVICES=; "
	"for g in $PENSTOCK_TASK_GPUS; do "
	"if [ \"$r\" = 0 ]; then CUDA_VISIBLE_DEVICES=$g; fi; r=$((r-1)); done; fi; "
	"exec \"$0\" -c \"$1\"";

/* Adds the GPUs of one task as CUDA numbers them, "0,1". */
static void add_gpus(const struct ranks *ranks, size_t rank, struct buf *out)
{
	size_t each = ranks->n_gpus / ranks->n;

	for (size_t i = rank * each; i < (rank + 1) * each; i++)
		buf_printf(out, "%s%d", i > rank * each ? "," : "",
			ranks->only_gpus ? (int)i : ranks->gpus[i]);
}

static int add_ports(const struct ranks *ranks, struct strlist *env)
{
	for (size_t i = 0; i < ranks->n_ports; i++) {
		if (strlist_addf(env, "PORT_%zu=%d", i, ranks->ports[i]) < 0)
			return -1;
	}
	return 0;
}

static int add_common(const struct ranks *ranks, struct strlist *env)
{
	if (add_ports(ranks, env) < 0)
		return -1;
	if (ranks->n == 1)
		return 0;
	if (strlist_addf(env, "WORLD_SIZE=%zu", ranks->n) < 0 ||
		strlist_addf(env, "LOCAL_WORLD_SIZE=%zu", ranks->n) < 0 ||
		strlist_add(env, "NODE_RANK=0") < 0 ||
		strlist_add(env, "PENSTOCK_NODES=127.0.0.1") < 0 ||
		strlist_add(env, "MASTER_ADDR=127.0.0.1") < 0)
		return -1;
	return strlist_addf(env, "MASTER_PORT=%d", ranks->master_port);
}

int ranks_environment(const struct ranks *ranks, size_t rank, struct strlist *env)
{
	_cleanup_(buf_release) struct buf gpus = BUF_INIT(LIMIT_LOG_LINE);

	if (add_common(ranks, env) < 0)
		return -1;
	if (ranks->n > 1 && (strlist_addf(env, "RANK=%zu", rank) < 0 ||
				    strlist_addf(env, "LOCAL_RANK=%zu", rank) < 0))
		return -1;
	if (!ranks->gpus)
		return 0;
	add_gpus(ranks, rank, &gpus);
	return strlist_addf(env, "CUDA_VISIBLE_DEVICES=%s", buf_str(&gpus));
}

int ranks_cluster_environment(const struct ranks *ranks, struct strlist *env)
{
	if (add_ports(ranks, env) < 0)
		return -1;
	if (ranks->n == 1)
		return 0;
	if (strlist_add(env, "RANK=" REMOTE_RANK) < 0 ||
		strlist_add(env, "LOCAL_RANK=" REMOTE_LOCAL_RANK) < 0 ||
		strlist_addf(env, "WORLD_SIZE=%zu", ranks->n) < 0 ||
		strlist_add(env, "LOCAL_WORLD_SIZE=" REMOTE_LOCAL_WORLD_SIZE) < 0 ||
		strlist_add(env, "NODE_RANK=" REMOTE_NODE_RANK) < 0 ||
		strlist_add(env, "PENSTOCK_NODES=" REMOTE_NODES) < 0 ||
		strlist_add(env, "MASTER_ADDR=" REMOTE_MASTER_ADDR) < 0)
		return -1;
	return strlist_addf(env, "MASTER_PORT=%d", ranks->master_port);
}

int ranks_launcher_environment(const struct ranks *ranks, struct strlist *env)
{
	_cleanup_(buf_release) struct buf gpus = BUF_INIT(LIMIT_STRING);

	if (add_common(ranks, env) < 0)
		return -1;
	if (!ranks->gpus)
		return 0;
	for (size_t r = 0; r < ranks->n; r++) {
		buf_add_str(&gpus, r ? " " : "");
		add_gpus(ranks, r, &gpus);
	}
	return strlist_addf(env, "PENSTOCK_TASK_GPUS=%s", buf_str(&gpus));
}

/* ---- free ports ---- */

enum { LOWEST = 10000, HIGHEST = 65535, TRIES = 2000 };

/* Reads the range from which the kernel takes ports for connections: the kernel may take a port in
 * this range at any moment. */
static void read_ephemeral(int *low, int *high)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	*low = 32768;
	*high = 60999;
	if (f && fscanf(f, "%d %d", low, high) != 2) {
		*low = 32768;
		*high = 60999;
	}
}

/* Returns true if the port can be bound on every address of the family, or if IPv6 is not
 * available. */
static bool is_free_in(int family, int port)
{
	_cleanup_close_ int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	int one = 1;

	if (fd < 0)
		return family == AF_INET6;
	if (family == AF_INET)
		return bind(fd, (struct sockaddr *)&v4, sizeof(v4)) == 0;
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	return bind(fd, (struct sockaddr *)&v6, sizeof(v6)) == 0 || errno != EADDRINUSE;
}

static bool is_in(const int *ports, size_t n, int port)
{
	for (size_t i = 0; i < n; i++) {
		if (ports[i] == port)
			return true;
	}
	return false;
}

static int random_port(void)
{
	uint32_t n;

	if (getrandom(&n, sizeof(n), 0) != sizeof(n))
		n = (uint32_t)clock_monotonic_ns();
	return LOWEST + (int)(n % (HIGHEST - LOWEST + 1));
}

int free_ports(int *ports, size_t n, struct penstock_error *err)
{
	size_t found = 0;
	int low;
	int high;

	read_ephemeral(&low, &high);
	for (int i = 0; i < TRIES && found < n; i++) {
		int port = random_port();
		/* Avoid the kernel's range in the first half of the tries only, because no other
		 * port may be free. */
		bool avoid = i < TRIES / 2 && port >= low && port <= high;

		if (!avoid && !is_in(ports, found, port) && is_free_in(AF_INET, port) &&
			is_free_in(AF_INET6, port))
			ports[found++] = port;
	}
	if (found < n)
		return error_set(err, PENSTOCK_E_UNAVAILABLE,
			"cannot find %zu free TCP ports on this machine", n);
	return 0;
}

/* ---- on the nodes of a cluster ---- */

int step_cluster(struct task_cluster *out, const struct attempt *attempt,
	const struct slurm_allocation *slurm, const struct workflow_run *what, const char *name,
	unsigned long serial, char **dir, struct penstock_error *err)
{
	const struct workflow_step_resources *res = &what->resources;

	*dir = str_printf("%s/step-%lu", attempt->layout.tmp, serial);
	if (!*dir)
		return error_memory(err);
	*out = (struct task_cluster){
		.n = (size_t)res->tasks.value,
		.n_nodes = (size_t)slurm->n_nodes,
		.cpus = res->cpus_per_task.value,
		.mem_per_cpu = res->mem_per_cpu.value,
		.gpus = res->gpus_per_task.value,
		.no_binding = what->disable_cpu_binding.value,
		.mpi = what->mpi.value,
		.name = name,
		.inputs = slurm->job.node_dir && attempt->workflow->n_inputs ? attempt->layout.input
									     : NULL,
		.node_dir = slurm->job.node_dir,
		.run_id = attempt->id,
		.attempt = attempt->number,
		.dir = *dir,
		.notice = slurm->notice,
	};
	return 0;
}

void step_cluster_explain(
	const struct slurm_memory *memory, const struct workflow_run *what, struct step_end *end)
{
	const struct workflow_step_resources *res = &what->resources;

	if (!memory->over)
		return;
	end->oom = true;
	end->resources = res;
	end->memory_peak = memory->used;
	end->memory_limit =
		memory->limit ? memory->limit
			      : (uint64_t)(res->mem_per_cpu.value * res->cpus_per_task.value) * MIB;
	if (memory->limit) /* the limit of the step, which was killed as a whole */
		end->rank = -1;
}
