#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "records/claims.h"

static char dir[64];

static const struct machine_capacity machine = {
	.cpus = 4,
	.n_cpus = 4,
	.cpu_list = {0, 1, 2, 5},
	.memory = 1024 * MIB,
	.gpus = 2,
	.gpu_list = {0, 1},
};

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/penstock-claims-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	return setenv("PENSTOCK_CLAIMS_DIR", dir, 1);
}

static int tear_down(void **state)
{
	(void)state;
	return fs_remove_tree(dir, NULL);
}

static struct claim_request ask(const char *run, int64_t cpus, int64_t gpus)
{
	return (struct claim_request){
		.run_id = run, .name = "cifar10", .tasks = 1, .cpus_per_task = cpus, .gpus = gpus};
}

static struct claim *acquire(const struct claim_request *request)
{
	struct claim *claim = NULL;

	assert_int_equal(claim_acquire(&claim, &machine, request, NULL, NULL), 0);
	assert_non_null(claim);
	return claim;
}

/* Returns the number of files in the directory, without the lock. */
static int count_files(void)
{
	DIR *d = opendir(dir);
	int n = 0;

	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.' && strcmp(e->d_name, "lock") != 0;
	closedir(d);
	return n;
}

struct tally {
	int holding;
	int waiting;
	int cpus;
	char last_waiting[32];
};

static int count(void *cookie, const struct claim_holder *holder)
{
	struct tally *t = cookie;

	t->holding += !holder->waiting;
	t->waiting += holder->waiting;
	t->cpus += holder->waiting ? 0 : holder->cpus;
	if (holder->waiting)
		snprintf(t->last_waiting, sizeof(t->last_waiting), "%s", holder->run_id);
	return 0;
}

static struct tally tally(void)
{
	struct tally t = {0};

	assert_int_equal(claims_list(count, &t, NULL), 0);
	return t;
}

static void until(int holding, int waiting)
{
	int64_t deadline = clock_monotonic_ms() + 10000;
	struct tally t = tally();

	while (t.holding != holding || t.waiting != waiting) {
		assert_true(clock_monotonic_ms() < deadline);
		clock_sleep_ms(5);
		t = tally();
	}
}

/* Two claims never share a CPU or a GPU, and leave no files after their release. */
static void claims_do_not_overlap(void **state)
{
	struct claim_request first = ask("aaa", 2, 1);
	struct claim_request second = ask("bbb", 2, 1);
	struct claim *a;
	struct claim *b;
	size_t n;

	(void)state;
	a = acquire(&first);
	b = acquire(&second);

	assert_int_equal(claim_cpus(a, &n)[0], 0);
	assert_int_equal(n, 2);
	assert_int_equal(claim_cpus(a, &n)[1], 1);
	assert_int_equal(claim_cpus(b, &n)[0], 2);
	assert_int_equal(claim_cpus(b, &n)[1], 5);
	assert_int_equal(claim_gpus(a, &n)[0], 0);
	assert_int_equal(claim_gpus(b, &n)[0], 1);
	assert_int_equal(tally().cpus, 4);
	claim_release(a);
	claim_release(b);
	assert_int_equal(count_files(), 0);
}

/* Checks that the message contains each of `facts`, which end with NULL. */
static void check_misfit(const struct claim_request *request, const char *const *facts)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	assert_int_equal(claim_check_fits(&machine, request, NULL, &err), -PENSTOCK_E_INVALID);
	for (; *facts; facts++)
		assert_non_null(strstr(err.message, *facts));
}

/* A request that can never fit is an error that lists all necessary overrides; a request that fits
 * exactly succeeds. */
static void what_can_never_fit_names_the_overrides(void **state)
{
	struct claim_request r = ask("a", 8, 0);

	(void)state;
	check_misfit(&r, (const char *[]){"8 CPU", "4 CPU", "--set resources.cpusPerTask=4", NULL});
	r.gpus = 3;
	r.mem_per_cpu = 600;
	check_misfit(&r, (const char *[]){"8 CPU", "4800 MB", "3 GPU", "4 CPU", "1024 MB", "2 GPU",
				 "--set resources.cpusPerTask=4", "--set resources.memPerCpu=256",
				 "--set resources.gpus=2", NULL});
	r = ask("a", 2, 4);
	r.tasks = 9;
	r.path = "steps.0.resources";
	r.gpus_key = "gpusPerTask";
	check_misfit(&r,
		(const char *[]){"18 CPU", "4 GPU", "4 CPU", "2 GPU",
			"--set steps.0.resources.tasks=4", "--set steps.0.resources.cpusPerTask=1",
			"--set steps.0.resources.gpusPerTask=0", NULL});
	r = ask("a", INT64_MAX / 2, 0);
	r.tasks = 5;
	assert_int_equal(claim_check_fits(&machine, &r, NULL, NULL), -PENSTOCK_E_INVALID);
	r = ask("a", 4, 2);
	r.mem_per_cpu = 256;
	assert_int_equal(claim_check_fits(&machine, &r, NULL, NULL), 0);
}

struct waiter {
	struct claim_request request;
	atomic_int cancel;
	char reason[512];
	struct claim *claim;
	int result;
	pthread_t thread;
};

static void on_wait(void *cookie, const char *text)
{
	struct waiter *w = cookie;

	assert_string_equal(w->reason, ""); /* called only once */
	snprintf(w->reason, sizeof(w->reason), "%s", text);
}

static void *wait_for_claim(void *cookie)
{
	struct waiter *w = cookie;

	w->result = claim_acquire(&w->claim, &machine, &w->request,
		&(struct claim_wait){.cancel = &w->cancel, .on_wait = on_wait, .cookie = w}, NULL);
	return NULL;
}

static void start(struct waiter *w)
{
	assert_int_equal(pthread_create(&w->thread, NULL, wait_for_claim, w), 0);
}

/* A small request does not overtake an earlier, larger one. */
static void waiters_are_served_in_order(void **state)
{
	struct claim_request r = ask("first", 3, 0);
	struct claim *holder;
	struct waiter big = {.request = ask("big", 4, 0)};
	struct waiter small = {.request = ask("small", 1, 0)};

	(void)state;
	holder = acquire(&r);
	start(&big);
	until(1, 1);
	start(&small);
	until(1, 2);
	assert_string_equal(tally().last_waiting, "small");
	claim_release(holder);

	pthread_join(big.thread, NULL);
	assert_int_equal(big.result, 0);
	assert_string_equal(big.reason, "waiting for 4 CPUs, held by run first (cifar10)");
	assert_string_equal(tally().last_waiting, "small");
	claim_release(big.claim);
	pthread_join(small.thread, NULL);
	assert_non_null(strstr(small.reason, "run big (cifar10)"));
	assert_int_equal(small.result, 0);
	claim_release(small.claim);
	assert_int_equal(count_files(), 0);
}

/* A cancelled waiter leaves the queue at once. */
static void a_wait_can_be_cancelled(void **state)
{
	struct claim_request r = ask("holder", 4, 0);
	struct claim *holder;
	struct waiter w = {.request = ask("waiter", 1, 0)};
	int64_t begin;

	(void)state;
	holder = acquire(&r);
	start(&w);
	until(1, 1);
	begin = clock_monotonic_ms();
	atomic_store(&w.cancel, 1);

	pthread_join(w.thread, NULL);
	assert_int_equal(w.result, -PENSTOCK_E_CANCELLED);
	assert_true(clock_monotonic_ms() - begin < 1000);
	assert_int_equal(count_files(), 1);
	claim_release(holder);
}

/* The claim of a killed holder is released, and its file is removed. */
static void a_dead_holder_holds_nothing(void **state)
{
	struct claim_request r = ask("dead", 4, 2);
	struct claim *claim;
	int ends[2];
	pid_t pid;
	char c;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		acquire(&r);
		_exit(write(ends[1], "x", 1) != 1 || pause());
	}
	assert_int_equal(read(ends[0], &c, 1), 1);
	assert_int_equal(tally().holding, 1);

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(tally().holding, 0);
	r.run_id = "next";
	claim = acquire(&r);
	assert_int_equal(count_files(), 1);
	claim_release(claim);
	close(ends[0]);
	close(ends[1]);
}

/* A waiter of a dead process does not block the queue. */
static void a_dead_waiter_leaves_the_line(void **state)
{
	struct claim_request all = ask("holder", 3, 0);
	struct claim_request one = ask("one", 1, 0);
	struct claim *holder;
	struct claim *claim;
	pid_t pid;

	(void)state;
	holder = acquire(&all);
	pid = fork();
	if (pid == 0) {
		all.cpus_per_task = 4;
		acquire(&all);
		_exit(0);
	}
	until(1, 1);

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	claim = acquire(&one);
	claim_release(claim);
	claim_release(holder);
}

/* The sum of all claims of memory is limited. */
static void memory_is_claimed(void **state)
{
	struct claim_request r = ask("a", 1, 0);
	struct waiter w = {.request = ask("b", 1, 0)};
	struct claim *a;

	(void)state;
	r.mem_per_cpu = 600;
	w.request.mem_per_cpu = 500;
	a = acquire(&r);
	start(&w);
	until(1, 1);
	claim_release(a);

	pthread_join(w.thread, NULL);
	assert_string_equal(w.reason, "waiting for 500 MB of memory, held by run a (cifar10)");
	claim_release(w.claim);
}

static void put(const char *name, const char *text)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(fs_write_atomic(path, text, strlen(text), 0644, NULL), 0);
}

/* Links, pipes and invalid files of other users are not followed, and do not block a claim. */
static void foreign_files_do_no_harm(void **state)
{
	struct claim_request r = ask("a", 4, 0);
	char path[200];
	char target[200];
	struct claim *a;

	(void)state;
	put("target", "precious");
	put("claim-0-1-garbage", "{\"run\": 3");
	put("ticket-0000000000000000-0-1-x", "");
	snprintf(path, sizeof(path), "%s/claim-0-1-link", dir);
	snprintf(target, sizeof(target), "%s/target", dir);
	assert_int_equal(symlink(target, path), 0);
	snprintf(path, sizeof(path), "%s/claim-0-1-pipe", dir);
	assert_int_equal(mkfifo(path, 0644), 0);
	snprintf(path, sizeof(path), "%s/claim-0-1-directory", dir);
	assert_int_equal(mkdir(path, 0755), 0);

	a = acquire(&r);
	assert_int_equal(tally().holding, 1);
	claim_release(a);
	assert_int_equal(access(target, F_OK), 0);
}

/* Control characters in the run name of another user do not reach the terminal. */
static void foreign_names_are_shown_harmless(void **state)
{
	struct waiter w = {.request = ask("mine", 4, 0)};
	char path[200];
	int fd;

	(void)state;
	put("claim-0-1-x",
		"{\"run\": \"a\\u001b[2J\", \"name\": \"b\\nc\", \"pid\": 1, \"cpus\": 1, "
		"\"cpu_list\": [0], \"memory\": 0, \"gpus\": 0, \"gpu_list\": []}");
	snprintf(path, sizeof(path), "%s/claim-0-1-x", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	start(&w);
	until(1, 1);
	close(fd);

	pthread_join(w.thread, NULL);
	assert_string_equal(w.reason, "waiting for 4 CPUs, held by run a?[2J (b?c)");
	claim_release(w.claim);
}

/* A lock file that is a link is refused, and its target is not created. */
static void a_lock_that_is_a_link_is_refused(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct claim_request r = ask("a", 1, 0);
	struct claim *claim = NULL;
	char path[200];
	char target[200];

	(void)state;
	snprintf(path, sizeof(path), "%s/lock", dir);
	snprintf(target, sizeof(target), "%s/elsewhere", dir);
	assert_int_equal(symlink(target, path), 0);

	assert_true(claim_acquire(&claim, &machine, &r, NULL, &err) < 0);
	assert_non_null(strstr(err.message, path));
	assert_int_equal(access(target, F_OK), -1);
}

/* Without the sticky bit, other users could replace the files in the directory. */
static void an_unsafe_directory_is_refused(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct claim_request r = ask("a", 1, 0);
	struct claim *claim = NULL;

	(void)state;
	assert_int_equal(chmod(dir, 0777), 0);
	assert_int_equal(claim_acquire(&claim, &machine, &r, NULL, &err), -PENSTOCK_E_PERMISSION);
	assert_non_null(strstr(err.message, "chmod +t"));
	assert_int_equal(chmod(dir, 01777), 0);

	assert_int_equal(claim_acquire(&claim, &machine, &r, NULL, NULL), 0);
	claim_release(claim);
}

/* With a CPU quota of 2, the sum of the claims is limited to 2, although there are 4 CPUs. */
static void a_quota_bounds_the_sum(void **state)
{
	struct machine_capacity quota = machine;
	struct claim_request r = ask("a", 2, 0);
	struct waiter w = {.request = ask("b", 1, 0)};
	struct claim *a = NULL;
	struct claim *b = NULL;
	atomic_int cancelled = 1;

	(void)state;
	quota.cpus = 2;
	assert_int_equal(claim_acquire(&a, &quota, &r, NULL, NULL), 0);
	assert_int_equal(claim_acquire(&b, &quota, &w.request,
				 &(struct claim_wait){.cancel = &cancelled}, NULL),
		-PENSTOCK_E_CANCELLED);
	claim_release(a);

	assert_int_equal(claim_acquire(&b, &quota, &w.request, NULL, NULL), 0);
	claim_release(b);
}

/* Eight processes claim and release 2 of 4 CPUs, 25 times each, and never hold more than 4
 * together. */
static void many_processes_never_overdraw(void **state)
{
	struct claim_request r = ask("p", 2, 0);
	pid_t pids[8];

	(void)state;
	for (int i = 0; i < 8; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			for (int n = 0; n < 25; n++) {
				struct claim *c = acquire(&r);

				if (tally().cpus > 4)
					_exit(1);
				claim_release(c);
			}
			_exit(0);
		}
	}
	for (int i = 0; i < 8; i++) {
		int status;

		waitpid(pids[i], &status, 0);
		assert_int_equal(status, 0);
	}
	assert_int_equal(count_files(), 0);
}

/* A user with a limit of one GPU gets one GPU, but not a second one at the same time. */
static void a_limit_is_reached_and_not_passed(void **state)
{
	const struct claim_limits limits = {.cpus = -1, .memory = -1, .gpus = 1, .runs = -1};
	struct claim_request first = ask("aaa", 1, 1), second = ask("bbb", 1, 1);
	const atomic_int cancelled = 1;
	struct claim *a, *b = NULL;
	size_t n;

	(void)state;
	first.limits = second.limits = &limits;

	assert_int_equal(claim_acquire(&a, &machine, &first,
				 &(struct claim_wait){.cancel = &cancelled}, NULL),
		0);
	assert_int_equal(claim_acquire(&b, &machine, &second,
				 &(struct claim_wait){.cancel = &cancelled}, NULL),
		-PENSTOCK_E_CANCELLED);

	claim_gpus(a, &n);
	assert_int_equal(n, 1);
	assert_null(b);
	claim_release(a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(claims_do_not_overlap),
		TEST(what_can_never_fit_names_the_overrides),
		TEST(waiters_are_served_in_order),
		TEST(a_wait_can_be_cancelled),
		TEST(a_dead_holder_holds_nothing),
		TEST(a_dead_waiter_leaves_the_line),
		TEST(memory_is_claimed),
		TEST(foreign_files_do_no_harm),
		TEST(foreign_names_are_shown_harmless),
		TEST(a_lock_that_is_a_link_is_refused),
		TEST(an_unsafe_directory_is_refused),
		TEST(a_quota_bounds_the_sum),
		TEST(a_limit_is_reached_and_not_passed),
		TEST(many_processes_never_overdraw),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
