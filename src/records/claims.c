#include "records/claims.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "records/claims_dir.h"

/* inotify reports removed claims; polling finds a holder that died without removing its claim. */
enum { CANCEL_POLL_MS = 100, POLL_MS = 300 };

struct claim {
	int dir; /* descriptor of the directory with the claim's file */
	int fd; /* the file, locked */
	struct claims_file file;
};

/* One request in progress. */
struct attempt {
	const struct machine_capacity *machine;
	const struct claim_request *request;
	struct claims_dirs dirs;
	struct claims_file wanted; /* the strings are borrowed */
	struct claims_file ticket; /* name is "" if there is no ticket yet */
	int ticket_fd;
	int cpu_list[CLAIMS_MAX_CPUS];
	int gpu_list[CLAIMS_MAX_GPUS];
};

static uint64_t random_number(void)
{
	uint64_t n = 0;

	if (getrandom(&n, sizeof(n), 0) != sizeof(n))
		n = (uint64_t)clock_monotonic_ns();
	return n;
}

/* ---- decisions ---- */

static bool is_in(const int *list, int n, int number)
{
	for (int i = 0; i < n; i++) {
		if (list[i] == number)
			return true;
	}
	return false;
}

/* Sets `chosen` to at most `wanted` numbers of `all` that no claim has. Returns how many were
 * chosen. */
static int choose_free(const struct claims_scan *scan, bool gpus, const int *all, int n_all,
	int wanted, int *chosen)
{
	int n = 0;

	for (int i = 0; i < n_all && n < wanted; i++) {
		bool taken = false;

		for (size_t f = 0; f < scan->n && !taken; f++) {
			const struct claims_file *file = &scan->files[f];

			if (!file->who.waiting)
				taken = gpus ? is_in(file->gpu_list, file->who.gpus, all[i])
					     : is_in(file->cpu_list, file->who.cpus, all[i]);
		}
		if (!taken)
			chosen[n++] = all[i];
	}
	return n;
}

/* Chooses free CPUs for the request, and returns their number. Under a quota, the process may use
 * fewer CPUs than its affinity mask has, so the sum of the claims is limited, too. */
static int free_cpus(struct attempt *a, const struct claims_scan *scan)
{
	int n = choose_free(scan, false, a->machine->cpu_list, a->machine->n_cpus,
		a->wanted.who.cpus, a->cpu_list);
	int left = a->machine->cpus;

	if (a->machine->cpus >= a->machine->n_cpus)
		return n;
	for (size_t i = 0; i < scan->n; i++)
		left -= scan->files[i].who.waiting ? 0 : scan->files[i].who.cpus;
	left = left < 0 ? 0 : left;
	return n < left ? n : left;
}

static uint64_t free_memory(const struct attempt *a, const struct claims_scan *scan)
{
	uint64_t left = a->machine->memory;

	for (size_t i = 0; i < scan->n; i++) {
		uint64_t taken = scan->files[i].who.waiting ? 0 : scan->files[i].who.memory;

		left -= taken < left ? taken : left;
	}
	return left;
}

/* Returns the first ticket before ours, or NULL if it is our turn. */
static const struct claims_file *before_us(const struct attempt *a, const struct claims_scan *scan)
{
	for (size_t i = 0; i < scan->n; i++) {
		const struct claims_file *file = &scan->files[i];

		if (file->who.waiting && !file->held)
			return strcmp(file->name, a->ticket.name) == 0 ? NULL : file;
	}
	return NULL;
}

static void add_missing(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_missing(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	if (b->len)
		buf_add_str(b, " and ");
	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

enum { OVER_CPUS = 1, OVER_MEMORY = 2, OVER_GPUS = 4, OVER_RUNS = 8 };

/* Returns the limits (OVER_…) that the sum of `there` and `who` exceeds. */
static unsigned over_limits(const struct claim_limits *limits, const struct claim_limits *there,
	const struct claim_holder *who)
{
	unsigned over = 0;

	if (limits->cpus >= 0 && there->cpus + who->cpus > limits->cpus)
		over |= OVER_CPUS;
	if (limits->memory >= 0 && there->memory + (int64_t)who->memory > limits->memory)
		over |= OVER_MEMORY;
	if (limits->gpus >= 0 && there->gpus + who->gpus > limits->gpus)
		over |= OVER_GPUS;
	if (limits->runs >= 0 && there->runs + 1 > limits->runs)
		over |= OVER_RUNS;
	return over;
}

static unsigned asked_for(const struct claim_holder *who)
{
	return OVER_RUNS | (who->cpus ? OVER_CPUS : 0u) | (who->memory ? OVER_MEMORY : 0u) |
	       (who->gpus ? OVER_GPUS : 0u);
}

/*
 * Returns the last of the earlier runs of our user that wait and need some of the resources of this
 * request, or NULL if no such run waits. Adds the limits for which these runs wait to `over`. A
 * waiting run that exceeds no limit either waits for earlier runs that need the same resources, or
 * is about to take its resources, which are therefore reserved for that run.
 */
static const struct claims_file *held_before_us(const struct attempt *a,
	const struct claims_scan *scan, const struct claim_limits *there, unsigned *over)
{
	const struct claims_file *before = NULL;
	unsigned ours = asked_for(&a->wanted.who);
	unsigned waited_for = 0;

	for (size_t i = 0; i < scan->n && strcmp(scan->files[i].name, a->ticket.name) != 0; i++) {
		const struct claims_file *file = &scan->files[i];
		unsigned theirs;

		if (!file->held || file->who.uid != geteuid())
			continue;
		theirs = over_limits(a->request->limits, there, &file->who);
		if (!theirs)
			theirs = waited_for & asked_for(&file->who);
		if (!theirs)
			theirs = asked_for(&file->who);
		waited_for |= theirs;
		if (!(theirs & ours))
			continue;
		*over |= theirs & ours;
		before = file;
	}
	return before;
}

/* Returns true if the request must wait for other runs of its user; `over` gets the limits for the
 * message. */
static bool is_held(const struct attempt *a, const struct claims_scan *scan, struct buf *over,
	const struct claims_file **before)
{
	const struct claim_limits *limits = a->request->limits;
	struct claim_limits there = {0}; /* the sum of our user's claims */
	unsigned which;

	if (!limits)
		return false;
	for (size_t i = 0; i < scan->n; i++) {
		const struct claims_file *file = &scan->files[i];

		if (file->who.waiting || file->who.uid != geteuid())
			continue;
		there.cpus += file->who.cpus;
		there.memory += (int64_t)file->who.memory;
		there.gpus += file->who.gpus;
		there.runs++;
	}
	which = over_limits(limits, &there, &a->wanted.who);
	*before = which ? NULL : held_before_us(a, scan, &there, &which);
	if (which & OVER_CPUS)
		add_missing(over, "%" PRId64 " CPUs", limits->cpus);
	if (which & OVER_MEMORY)
		add_missing(over, "%" PRId64 " MB of memory", limits->memory / (int64_t)MIB);
	if (which & OVER_GPUS)
		add_missing(over, "%" PRId64 " GPUs", limits->gpus);
	if (which & OVER_RUNS)
		add_missing(over, "%" PRId64 " run%s at a time", limits->runs,
			limits->runs == 1 ? "" : "s");
	return which || *before;
}

/* ---- messages ---- */

char *claim_user_name(uid_t uid)
{
	_cleanup_free_ char *memory = NULL;
	struct passwd entry;
	struct passwd *found = NULL;
	int r = ERANGE;

	for (size_t size = 4 * KIB; r == ERANGE && size <= MIB; size *= 2) {
		free(memory);
		memory = malloc(size);
		if (!memory)
			return NULL;
		r = getpwuid_r(uid, &entry, memory, size, &found);
	}
	return found ? strdup(found->pw_name) : str_printf("%u", (unsigned)uid);
}

static void add_holder(struct buf *b, const struct claim_holder *who)
{
	_cleanup_free_ char *user = claim_user_name(who->uid);

	buf_printf(b, "run %s", who->run_id);
	if (who->name[0])
		buf_printf(b, " (%s)", who->name);
	if (who->uid != geteuid() && user)
		buf_printf(b, " of user %s", user);
}

/* Appends the first three holders, of all users or only of our user. */
static void add_holders(struct buf *b, const struct claims_scan *scan, bool ours)
{
	int shown = 0;
	int more = 0;

	for (size_t i = 0; i < scan->n && !scan->files[i].who.waiting; i++) {
		if (ours && scan->files[i].who.uid != geteuid())
			continue;
		if (shown == 3) {
			more++;
			continue;
		}
		buf_add_str(b, shown++ ? ", " : "");
		add_holder(b, &scan->files[i].who);
	}
	if (more)
		buf_printf(b, " and %d more", more);
}

/* Reports the reason of a wait. `which` names the missing resources or, if `held`, the limits of
 * our user. */
static void report_wait(const struct claim_wait *wait, const struct claims_scan *scan, bool held,
	const struct buf *which, const struct claims_file *before)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);

	if (!wait || !wait->on_wait)
		return;
	if (held)
		buf_printf(&text, "waiting for other runs of this user%s%s",
			which->len ? ": the limit is " : "", buf_str(which));
	else
		buf_printf(&text, "waiting%s%s", which->len ? " for " : "", buf_str(which));
	if (before && (held || !which->len)) {
		buf_add_str(&text, held ? "; in line after " : " in line after ");
		add_holder(&text, &before->who);
	} else {
		buf_add_str(&text, ", held by ");
		add_holders(&text, scan, held);
	}
	wait->on_wait(wait->cookie, buf_str(&text));
}

/* ---- acquiring ---- */

static void drop_ticket(struct attempt *a)
{
	if (a->ticket_fd < 0)
		return;
	unlinkat(a->dirs.fds[a->dirs.own], a->ticket.name, 0);
	close(a->ticket_fd);
	a->ticket_fd = -1;
	a->ticket = (struct claims_file){0};
}

/* Takes a place in line, or outside of the line if `held` is set. A ticket that enters or leaves
 * the line gets a new place at the end. */
static int take_ticket(
	struct attempt *a, const struct claims_scan *scan, bool held, struct penstock_error *err)
{
	uint64_t sequence = 0;

	if (a->ticket_fd >= 0 && a->ticket.held == held)
		return 0;
	drop_ticket(a);
	/* Files are sorted: the last file is the last in line. */
	if (scan->n && scan->files[scan->n - 1].who.waiting)
		sequence = scan->files[scan->n - 1].sequence;
	a->ticket = a->wanted;
	a->ticket.who.waiting = true;
	a->ticket.held = held;
	a->ticket.cpu_list = NULL;
	a->ticket.gpu_list = NULL;
	snprintf(a->ticket.name, sizeof(a->ticket.name), "%s-%016" PRIu64 "-%u-%d-%016" PRIx64,
		held ? "limit" : "ticket", sequence + 1, (unsigned)geteuid(), (int)getpid(),
		random_number());
	return claims_file_write(&a->dirs, &a->ticket, &a->ticket_fd, err);
}

static int *copy_list(const int *list, int n)
{
	int *copy = calloc((size_t)n + 1, sizeof(*copy));

	if (copy)
		memcpy(copy, list, (size_t)n * sizeof(*copy));
	return copy;
}

static int take_claim(struct attempt *a, struct claim **out, struct penstock_error *err)
{
	struct claim *claim = calloc(1, sizeof(*claim));
	int r;

	if (!claim)
		return error_memory(err);
	claim->dir = claim->fd = -1;
	claim->file = a->wanted;
	claim->file.who.run_id = NULL; /* borrowed by `wanted` */
	claim->file.who.name = NULL;
	claim->file.cpu_list = copy_list(a->cpu_list, a->wanted.who.cpus);
	claim->file.gpu_list = copy_list(a->gpu_list, a->wanted.who.gpus);
	a->wanted.cpu_list = claim->file.cpu_list;
	a->wanted.gpu_list = claim->file.gpu_list;
	snprintf(claim->file.name, sizeof(claim->file.name), "claim-%u-%d-%016" PRIx64,
		(unsigned)geteuid(), (int)getpid(), random_number());
	snprintf(a->wanted.name, sizeof(a->wanted.name), "%s", claim->file.name);
	r = claim->file.cpu_list && claim->file.gpu_list
		    ? claims_file_write(&a->dirs, &a->wanted, &claim->fd, err)
		    : error_memory(err);
	if (r < 0) {
		claim_release(claim);
		return r;
	}
	claim->dir = a->dirs.fds[a->dirs.own];
	a->dirs.fds[a->dirs.own] = -1; /* the claim owns the directory now */
	*out = claim;
	return 0;
}

/* Makes one attempt: takes everything (*out) or a place in line. */
static int try_once(struct attempt *a, const struct claim_wait *wait, bool report,
	struct claim **out, struct penstock_error *err)
{
	_cleanup_(claims_scan_release) struct claims_scan scan = {0};
	_cleanup_(buf_release) struct buf which = BUF_INIT(LIMIT_LOG_LINE);
	const struct claims_file *before = NULL;
	bool held = false;
	int r = claims_dirs_lock(&a->dirs, wait ? wait->cancel : NULL, err);

	if (r < 0)
		return r;
	r = claims_scan_read(&scan, &a->dirs, true, err);
	if (r == 0)
		held = is_held(a, &scan, &which, &before);
	if (r == 0 && !held) {
		int cpus = free_cpus(a, &scan);
		int gpus = choose_free(&scan, true, a->machine->gpu_list, a->machine->gpus,
			a->wanted.who.gpus, a->gpu_list);

		before = before_us(a, &scan);
		if (cpus < a->wanted.who.cpus)
			add_missing(&which, "%d CPU%s", a->wanted.who.cpus,
				a->wanted.who.cpus == 1 ? "" : "s");
		if (free_memory(a, &scan) < a->wanted.who.memory)
			add_missing(&which, "%" PRIu64 " MB of memory", a->wanted.who.memory / MIB);
		if (gpus < a->wanted.who.gpus)
			add_missing(&which, "%d GPU%s", a->wanted.who.gpus,
				a->wanted.who.gpus == 1 ? "" : "s");
	}
	if (r == 0 && !held && !before && which.len == 0) {
		drop_ticket(a);
		r = take_claim(a, out, err);
	} else if (r == 0) {
		/* A held request waits outside of the line, because it would block other users in
		 * the line. */
		r = take_ticket(a, &scan, held, err);
		if (r == 0 && report)
			report_wait(wait, &scan, held, &which, before);
	}
	claims_dirs_unlock(&a->dirs);
	return r;
}

static int watch_removals(const struct claims_dirs *dirs)
{
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	for (int i = 0; fd >= 0 && i < CLAIMS_DIRS; i++) {
		if (dirs->fds[i] >= 0)
			inotify_add_watch(fd, dirs->paths[i], IN_DELETE | IN_ONLYDIR);
	}
	return fd; /* -1 if the limit of inotify instances is reached; then only polling is left */
}

/* Waits until a claim was released, or until the next poll. */
static int wait_a_while(int events, const struct claim_wait *wait, struct penstock_error *err)
{
	int64_t until = clock_monotonic_ms() + POLL_MS;
	char drained[4096];

	while (clock_monotonic_ms() < until) {
		struct pollfd fd = {events, POLLIN, 0};

		if (wait && wait->cancel && atomic_load(wait->cancel))
			return error_set(err, PENSTOCK_E_CANCELLED,
				"cancelled while waiting for resources of this machine");
		if (poll(&fd, 1, CANCEL_POLL_MS) <= 0)
			continue;
		while (read(events, drained, sizeof(drained)) > 0)
			;
		return 0;
	}
	return 0;
}

static int wait_in_line(struct attempt *a, const struct claim_wait *wait, struct claim **out,
	struct penstock_error *err)
{
	_cleanup_close_ int events = -1;
	struct claim *claim = NULL;
	int r = try_once(a, wait, true, &claim, err);

	if (r == 0 && !claim)
		events = watch_removals(&a->dirs);
	while (r == 0 && !claim) {
		r = try_once(a, wait, false, &claim, err);
		if (r == 0 && !claim)
			r = wait_a_while(events, wait, err);
	}
	drop_ticket(a);
	if (r == 0)
		*out = claim;
	return r;
}

int claim_acquire(struct claim **out, const struct machine_capacity *machine,
	const struct claim_request *request, const struct claim_wait *wait,
	struct penstock_error *err)
{
	struct attempt *a;
	int64_t cpus;
	int r = claim_check_fits(machine, request, NULL, err);

	if (r < 0)
		return r;
	a = calloc(1, sizeof(*a));
	if (!a)
		return error_memory(err);
	cpus = request->tasks * request->cpus_per_task;
	a->machine = machine;
	a->request = request;
	a->ticket_fd = -1;
	a->wanted = (struct claims_file){
		.who = {.uid = geteuid(),
			.pid = getpid(),
			.run_id = request->run_id,
			.name = request->name ? request->name : "",
			.cpus = (int)cpus,
			.memory = (uint64_t)(cpus * request->mem_per_cpu) * MIB,
			.gpus = (int)request->gpus},
	};
	r = claims_dirs_open(&a->dirs, true, err);
	if (r == 0) {
		r = wait_in_line(a, wait, out, err);
		claims_dirs_release(&a->dirs);
	}
	free(a);
	return r;
}

void claim_release(struct claim *claim)
{
	if (!claim)
		return;
	if (claim->dir >= 0) {
		unlinkat(claim->dir, claim->file.name, 0);
		close(claim->dir);
	}
	if (claim->fd >= 0)
		close(claim->fd);
	free(claim->file.cpu_list);
	free(claim->file.gpu_list);
	free(claim);
}

const int *claim_cpus(const struct claim *claim, size_t *n)
{
	*n = claim ? (size_t)claim->file.who.cpus : 0;
	return claim ? claim->file.cpu_list : NULL;
}

const int *claim_gpus(const struct claim *claim, size_t *n)
{
	*n = claim ? (size_t)claim->file.who.gpus : 0;
	return claim ? claim->file.gpu_list : NULL;
}

/* ---- listing ---- */

int claims_list(int (*fn)(void *cookie, const struct claim_holder *holder), void *cookie,
	struct penstock_error *err)
{
	struct claims_dirs dirs;
	struct claims_scan scan;
	int r = claims_dirs_open(&dirs, false, err);

	if (r < 0)
		return r;
	r = claims_scan_read(&scan, &dirs, false, err);
	claims_dirs_release(&dirs);
	if (r < 0)
		return r;
	for (size_t i = 0; i < scan.n; i++) {
		struct claim_holder holder = scan.files[i].who;

		holder.gpu_list = scan.files[i].gpu_list;
		if (fn(cookie, &holder))
			break;
	}
	claims_scan_release(&scan);
	return 0;
}
