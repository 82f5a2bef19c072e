#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "records/cgroup.h"
#include "records/claims.h"

/* ---- capacity ---- */

_Static_assert(CPU_SETSIZE <= CLAIMS_MAX_CPUS, "cpu_list fits a whole set");

static int compare_ints(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static void count_gpus(struct machine_capacity *m)
{
	const char *given = getenv("PENSTOCK_GPUS");
	_cleanup_closedir_ DIR *dir = NULL;
	uint64_t n;

	if (given && str_to_u64(given, 0, CLAIMS_MAX_GPUS, &n)) {
		for (; m->gpus < (int)n; m->gpus++)
			m->gpu_list[m->gpus] = m->gpus;
		return;
	}
	dir = opendir("/dev");
	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (str_starts(e->d_name, "nvidia") &&
			str_to_u64(e->d_name + strlen("nvidia"), 0, INT32_MAX, &n) &&
			m->gpus < CLAIMS_MAX_GPUS)
			m->gpu_list[m->gpus++] = (int)n;
	}
	qsort(m->gpu_list, (size_t)m->gpus, sizeof(int), compare_ints);
}

void machine_capacity(struct machine_capacity *machine)
{
	_cleanup_(buf_release) struct buf membership = BUF_INIT(LIMIT_LOG_LINE);
	struct cgroup_limits limits = {0};

	memset(machine, 0, sizeof(*machine));
	cpu_set_t set;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		CPU_SET(0, &set); /* there are more CPUs than a cpu_set_t holds: assume one CPU */
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET((size_t)i, &set))
			machine->cpu_list[machine->n_cpus++] = i;
	}
	machine->cpus = machine->n_cpus;
	count_gpus(machine);
	machine->memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	if (fs_read("/proc/self/cgroup", &membership, NULL) == 0)
		cgroup_limits_read("/sys/fs/cgroup", buf_str(&membership), &limits);
	if (limits.cpus > 0 && ceil(limits.cpus) < machine->cpus)
		machine->cpus = (int)ceil(limits.cpus);
	if (limits.memory > 0 && limits.memory < machine->memory)
		machine->memory = limits.memory;
}

/* ---- requests ---- */

static int64_t product(int64_t a, int64_t b)
{
	int64_t r;

	return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

/* Parts of the message: the request, such as "8 CPUs and 2 GPUs", the machine's resources, such as
 * "2 CPUs and 0 GPUs", and the overrides. */
struct misfit {
	struct buf asked;
	struct buf there;
	struct buf overrides;
	int n;
};

static void add_misfit(struct misfit *m, const char *asked, const char *there)
{
	buf_printf(&m->asked, "%s%s", m->n ? " and " : "", asked);
	buf_printf(&m->there, "%s%s", m->n ? " and " : "", there);
	m->n++;
}

static void add_count(struct misfit *m, int64_t asked, int64_t there, const char *one)
{
	char a[64];
	char b[64];

	snprintf(a, sizeof(a), "%" PRId64 " %s%s", asked, one, asked == 1 ? "" : "s");
	snprintf(b, sizeof(b), "%" PRId64 " %s%s", there, one, there == 1 ? "" : "s");
	add_misfit(m, a, b);
}

static void check_cpus(const struct machine_capacity *machine, const char *path,
	struct claim_request *r, struct misfit *m)
{
	int64_t cpus = product(r->tasks, r->cpus_per_task), each;

	if (cpus <= machine->cpus)
		return;
	add_count(m, cpus, machine->cpus, "CPU");
	if (r->tasks > machine->cpus) {
		r->tasks = machine->cpus;
		buf_printf(&m->overrides, " --set %s.tasks=%" PRId64, path, r->tasks);
	}
	each = machine->cpus / r->tasks;
	if (each != r->cpus_per_task)
		buf_printf(&m->overrides, " --set %s.cpusPerTask=%" PRId64, path, each);
	r->cpus_per_task = each;
}

static void check_memory(const struct machine_capacity *machine, const char *path,
	int64_t asked_cpus, struct claim_request *r, struct misfit *m)
{
	int64_t there = (int64_t)(machine->memory / MIB);
	int64_t asked = product(r->mem_per_cpu, asked_cpus);
	int64_t cpus = product(r->tasks, r->cpus_per_task);
	char a[64];
	char b[64];

	/* The memory may suffice for the smaller number of CPUs that check_cpus() suggests. */
	if (product(r->mem_per_cpu, cpus) <= there)
		return;
	snprintf(a, sizeof(a), "%" PRId64 " MB of memory", asked);
	snprintf(b, sizeof(b), "%" PRId64 " MB", there);
	add_misfit(m, a, b);
	r->mem_per_cpu = there / cpus;
	buf_printf(&m->overrides, " --set %s.memPerCpu=%" PRId64, path, r->mem_per_cpu);
}

static void check_gpus(const struct machine_capacity *machine, const char *path,
	struct claim_request *r, struct misfit *m)
{
	const char *key = r->gpus_key ? r->gpus_key : "gpus";
	bool per_task = strcmp(key, "gpusPerTask") == 0;
	int64_t each = per_task ? machine->gpus / r->tasks : machine->gpus;

	if (r->gpus <= machine->gpus)
		return;
	add_count(m, r->gpus, machine->gpus, "GPU");
	buf_printf(&m->overrides, " --set %s.%s=%" PRId64, path, key, each);
	r->gpus = per_task ? each * r->tasks : each;
}

/* Returns the machine's capacity within the limits of our user. */
static const struct machine_capacity *limited(const struct machine_capacity *machine,
	const struct claim_limits *limits, struct machine_capacity *copy)
{
	*copy = *machine;
	if (limits->cpus >= 0 && limits->cpus < copy->cpus)
		copy->cpus = (int)limits->cpus;
	if (limits->memory >= 0 && (uint64_t)limits->memory < copy->memory)
		copy->memory = (uint64_t)limits->memory;
	if (limits->gpus >= 0 && limits->gpus < copy->gpus)
		copy->gpus = (int)limits->gpus;
	return copy;
}

static int check_fits(const struct machine_capacity *machine, struct claim_request *request,
	const char *whose, struct penstock_error *err)
{
	const char *path = request->path ? request->path : "resources";
	struct misfit m = {
		BUF_INIT(LIMIT_LOG_LINE), BUF_INIT(LIMIT_LOG_LINE), BUF_INIT(LIMIT_LOG_LINE), 0};
	int64_t asked = product(request->tasks, request->cpus_per_task);
	int r = 0;

	if (request->tasks < 1 || request->cpus_per_task < 1 || request->mem_per_cpu < 0 ||
		request->gpus < 0)
		return error_set(
			err, PENSTOCK_E_INTERNAL, "invalid claim: no tasks, or a negative number");
	check_cpus(machine, path, request, &m);
	check_memory(machine, path, asked, request, &m);
	check_gpus(machine, path, request, &m);
	if (m.n > 0)
		r = error_set(err, PENSTOCK_E_INVALID,
			"the workflow asks for %s, %s %s; run with%s", buf_str(&m.asked), whose,
			buf_str(&m.there), buf_str(&m.overrides));
	buf_release(&m.asked);
	buf_release(&m.there);
	buf_release(&m.overrides);
	return r;
}

int claim_check_fits(const struct machine_capacity *machine, const struct claim_request *request,
	struct claim_request *fitting, struct penstock_error *err)
{
	struct machine_capacity copy;
	struct claim_request own = *request;
	int r = check_fits(machine, &own, "this machine has", err);

	if (r == 0 && request->limits) {
		if (request->limits->runs == 0 || request->limits->cpus == 0)
			r = error_set(err, PENSTOCK_E_INVALID,
				"the limits of this user allow no runs; see 'penstock runners'");
		else
			r = check_fits(limited(machine, request->limits, &copy), &own,
				"the limit of this user is", err);
	}
	if (fitting)
		*fitting = own;
	return r;
}
