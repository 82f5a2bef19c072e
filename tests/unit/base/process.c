#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process/process.h"

static int spawn(struct process *p, const char *command, int out, struct penstock_error *err)
{
	const char *argv[] = {"/bin/sh", "-c", command, NULL};

	return process_spawn(p,
		&(struct process_spec){.argv = argv,
			.stdin_fd = -1,
			.stdout_fd = out,
			.stderr_fd = -1,
			.new_session = true},
		err);
}

/* The exit status of a child is returned as waitpid() gives it. */
static void a_child_runs_and_is_reaped(void **state)
{
	struct process p;
	int status = 0;

	(void)state;
	assert_int_equal(spawn(&p, "exit 7", -1, NULL), 0);

	assert_true(process_wait(&p, -1, &status));
	assert_int_equal(WEXITSTATUS(status), 7);
	process_release(&p);
}

/* A failure before exec is an error that names the program, and leaves no child. */
static void a_missing_program_is_the_callers_error(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *argv[] = {"/nonexistent/program", NULL};
	struct process p;

	(void)state;
	assert_int_equal(
		process_spawn(&p,
			&(struct process_spec){
				.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1},
			&err),
		-PENSTOCK_E_NOT_FOUND);

	assert_non_null(strstr(err.message, "/nonexistent/program"));
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* A child inherits only 0, 1 and 2, even if descriptors of the parent are not close-on-exec. */
static void a_child_inherits_no_other_descriptor(void **state)
{
	char text[256] = "";
	struct process p;
	int ends[2];
	int leaked = open("/dev/null", O_RDONLY);
	int status;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_true(leaked > 2);
	/* ls itself opens 3 for the directory. */
	assert_int_equal(spawn(&p, "ls /proc/self/fd | tr '\\n' ' '", ends[1], NULL), 0);
	close(ends[1]);

	assert_true(process_wait(&p, -1, &status));
	assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
	assert_string_equal(text, "0 1 2 3 ");
	close(ends[0]);
	close(leaked);
	process_release(&p);
}

static bool count_one(void *cookie, const struct process_info *info)
{
	(void)info;
	++*(int *)cookie;
	return true;
}

/* An orphan that ended is reaped; a child with a waiter is not. */
static void only_orphans_are_reaped(void **state)
{
	struct process p;
	int status = 0;
	pid_t orphan;
	siginfo_t info;

	(void)state;
	assert_int_equal(spawn(&p, "exit 7", -1, NULL), 0);
	orphan = fork(); /* an orphan, because process_spawn() did not create it */
	if (orphan == 0)
		_exit(3);
	assert_int_equal(waitid(P_PID, (id_t)orphan, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(waitid(P_PID, (id_t)p.pid, &info, WEXITED | WNOWAIT), 0);

	process_reap_orphans();

	assert_int_equal(waitpid(orphan, NULL, WNOHANG), -1);
	assert_true(process_is_spawned(p.pid));
	assert_true(process_wait(&p, 0, &status));
	assert_int_equal(WEXITSTATUS(status), 7);
	assert_false(process_is_spawned(p.pid));
	assert_false(process_has_children());
	process_release(&p);
}

/* Descendants are found, and installed signal handlers are detected. */
static void descendants_and_handlers_are_seen(void **state)
{
	struct process_info info;
	struct process p;
	int ends[2];
	int found = 0;
	int status;
	char c;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(
		spawn(&p, "trap 'exit 3' TERM; sleep 1000 & echo x; wait", ends[1], NULL), 0);
	close(ends[1]);
	assert_int_equal(read(ends[0], &c, 1), 1);

	assert_true(process_catches(p.pid, SIGTERM));
	assert_false(process_catches(p.pid, SIGUSR1));
	assert_true(process_info(p.pid, &info));
	assert_int_equal(info.parent, getpid());
	assert_int_equal(info.session, p.pid);
	assert_int_equal(process_descendants(p.pid, count_one, &found), 1);
	assert_int_equal(found, 1);
	process_signal(&p, SIGTERM);
	assert_true(process_wait(&p, -1, &status));
	assert_int_equal(WEXITSTATUS(status), 3);
	kill(-p.pid, SIGKILL);
	close(ends[0]);
	process_release(&p);
}

static int read_all(int fd, char *text, size_t size)
{
	size_t n = 0;
	ssize_t got;

	while (n + 1 < size && (got = read(fd, text + n, size - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	return (int)n;
}

/* The child gets exactly the requested directory, environment and CPUs. */
static void a_child_gets_what_was_asked_for(void **state)
{
	const char *argv[] = {"/bin/sh", "-c",
		"pwd; echo $A$HOME; grep -w Cpus_allowed_list /proc/self/status", NULL};
	const char *envp[] = {"A=1", NULL};
	const int cpus[] = {0};
	char text[256];
	struct process p;
	int ends[2];
	int status;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(process_spawn(&p,
				 &(struct process_spec){.argv = argv,
					 .envp = envp,
					 .cwd = "/usr",
					 .stdin_fd = -1,
					 .stdout_fd = ends[1],
					 .stderr_fd = -1,
					 .cpus = cpus,
					 .n_cpus = 1},
				 NULL),
		0);
	close(ends[1]);
	read_all(ends[0], text, sizeof(text));

	assert_string_equal(text, "/usr\n1\nCpus_allowed_list:\t0\n");
	assert_true(process_wait(&p, -1, &status));
	close(ends[0]);
	process_release(&p);
}

/* Signals that the parent ignores or blocks have their default action in the child. */
static void a_child_begins_with_default_signals(void **state)
{
	char text[256];
	struct process p;
	sigset_t all;
	sigset_t before;
	int ends[2];
	int status;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	signal(SIGPIPE, SIG_IGN);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	assert_int_equal(
		spawn(&p, "exec grep -E 'SigBlk|SigIgn' /proc/self/status", ends[1], NULL), 0);
	sigprocmask(SIG_SETMASK, &before, NULL);
	signal(SIGPIPE, SIG_DFL);
	close(ends[1]);
	read_all(ends[0], text, sizeof(text));

	assert_string_equal(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
	assert_true(process_wait(&p, -1, &status));
	close(ends[0]);
	process_release(&p);
}

/* A wait ends at its deadline, and a signal reaches the process by its pidfd. */
static void a_wait_has_a_deadline(void **state)
{
	struct process p;
	int status = 0;
	int64_t begin = clock_monotonic_ms();

	(void)state;
	assert_int_equal(spawn(&p, "exec sleep 1000", -1, NULL), 0);
	assert_false(process_wait(&p, 50, &status));
	assert_false(process_wait(&p, 0, &status));
	assert_true(clock_monotonic_ms() - begin >= 50);
	process_signal(&p, SIGKILL);

	assert_true(process_wait(&p, 10000, &status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
	assert_true(process_wait(&p, 0, &status)); /* the status stays after the end */
	process_signal(&p, SIGKILL);
	process_release(&p);
	process_release(&p);
}

/* A child made with die_with_parent ends with its parent. */
static void a_child_can_die_with_its_parent(void **state)
{
	struct pollfd ended = {.events = POLLIN};
	pid_t parent;
	pid_t child;
	int ends[2];

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	parent = fork();
	if (parent == 0) {
		const char *argv[] = {"/bin/sleep", "1000", NULL};
		struct process p;

		if (process_spawn(&p,
			    &(struct process_spec){.argv = argv,
				    .stdin_fd = -1,
				    .stdout_fd = -1,
				    .stderr_fd = -1,
				    .die_with_parent = true},
			    NULL) < 0 ||
			write(ends[1], &p.pid, sizeof(p.pid)) != sizeof(p.pid))
			_exit(1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(ends[0], &child, sizeof(child)), sizeof(child));
	ended.fd = (int)syscall(SYS_pidfd_open, child, 0);
	assert_true(ended.fd >= 0);

	kill(parent, SIGKILL);
	waitpid(parent, NULL, 0);
	assert_int_equal(poll(&ended, 1, 10000), 1);
	close(ended.fd);
	close(ends[0]);
	close(ends[1]);
}

enum { CANNOT_TEST = 77 }; /* exit code of a process that is not allowed to prepare its test */

/* Runs `body` in a separate process, and returns its exit code. */
static int in_process(void (*body)(void))
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void run_in_another_pid_namespace(void)
{
	const char *argv[] = {"/bin/true", NULL};
	struct process p;
	int status = -1;

	if (unshare(CLONE_NEWPID | (geteuid() ? CLONE_NEWUSER : 0)) < 0)
		_exit(CANNOT_TEST);
	if (process_spawn(&p,
		    &(struct process_spec){.argv = argv,
			    .stdin_fd = -1,
			    .stdout_fd = -1,
			    .stderr_fd = -1,
			    .die_with_parent = true},
		    NULL) < 0 ||
		!process_wait(&p, -1, &status))
		_exit(1);
	_exit(status ? 2 : 0);
}

/* As under `unshare --pid`: the child's parent has the id 0 in the child, which does not mean that
 * the parent has ended. */
static void a_child_may_be_in_another_pid_namespace(void **state)
{
	int code = in_process(run_in_another_pid_namespace);

	(void)state;
	if (code == CANNOT_TEST)
		skip();
	assert_int_equal(code, 0);
}

static void run_without_close_range(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = {ARRAY_SIZE(code), code};
	struct process p;
	int status;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
		_exit(CANNOT_TEST);
	if (spawn(&p, "exec sleep 10", -1, NULL) < 0)
		_exit(1);
	if (process_wait(&p, 0, &status))
		_exit(2);
	process_signal(&p, SIGKILL);
}

/* Linux 5.3 to 5.8 has no close_range(). If the child did not close its copy of the report pipe,
 * process_spawn() would wait until the child ends. */
static void a_child_can_run_without_close_range(void **state)
{
	int code = in_process(run_without_close_range);

	(void)state;
	if (code == CANNOT_TEST)
		skip();
	assert_int_equal(code, 0);
}

/* Start ticks and boot id identify a process: they do not change, and differ from those of other
 * processes. */
static void a_process_is_named_by_its_start(void **state)
{
	char boot[PROCESS_BOOT_ID_SIZE];
	char again[PROCESS_BOOT_ID_SIZE];
	struct process_info first;
	struct process_info second;

	(void)state;
	process_boot_id(boot);
	process_boot_id(again);
	assert_int_equal(strlen(boot), 36);
	assert_string_equal(boot, again);
	assert_true(process_info(getpid(), &first));
	assert_true(process_info(getpid(), &second));
	assert_true(first.start_ticks == second.start_ticks);
	assert_true(process_info(1, &second));
	assert_true(second.start_ticks < first.start_ticks);
	assert_false(process_info(0x3ffffff, &first));
}

/* ---- functions in namespaces ---- */

static int fork_and_wait(void *cookie, int report_fd, int body_fd)
{
	pid_t pid = process_fork_in_body();
	int status = 1;

	(void)cookie;
	(void)body_fd;
	if (pid == 0)
		_exit(0);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	close(report_fd);
	return status;
}

static void *flush_all(void *arg)
{
	atomic_int *tid = arg;

	atomic_store(tid, (int)gettid());
	fflush(NULL);
	return NULL;
}

/* Uses open(), because opening a stream would wait for the lock of libc's list of streams. */
static bool waits_for_a_lock(int tid)
{
	char path[64];
	char text[64] = "";
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	fd = tid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	return n > 0 && strtol(text, NULL, 10) == SYS_futex;
}

/* fork() of the C library waits for the lock of the list of streams, which another thread may have
 * held when the process was created. */
static void a_body_forks_while_others_hold_locks(void **state)
{
	struct process p = PROCESS_INIT;
	struct process_spec spec = {.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.body_fd = STDERR_FILENO,
		.body = fork_and_wait,
		.namespaces = geteuid() ? CLONE_NEWUSER : CLONE_NEWUTS};
	FILE *held = tmpfile();
	atomic_int tid = 0;
	pthread_t thread;
	int status = -1;
	int r;

	(void)state;
	assert_non_null(held);
	fputs("not written yet", held);
	flockfile(held);
	assert_int_equal(pthread_create(&thread, NULL, flush_all, &tid), 0);
	/* The thread holds the lock of the list while it waits for the stream. Opening another
	 * stream would wait for that lock. */
	while (!waits_for_a_lock(atomic_load(&tid)))
		clock_sleep_ms(1);

	r = process_spawn(&p, &spec, NULL);

	funlockfile(held);
	pthread_join(thread, NULL);
	fclose(held);
	if (r < 0)
		skip(); /* this user is not allowed to create namespaces */
	assert_true(process_wait(&p, 60000, &status));
	assert_int_equal(status, 0);
	process_release(&p);
}

/* If the caller gives no environment, a child inherits the parent's, without the secrets that only
 * penstock may have. Later children get the same environment. */
static void helpers_do_not_get_our_secrets(void **state)
{
	static const char *const all[] = {"PENSTOCK_SECRET_MINE=a", "PATH=/usr/bin:/bin", NULL};
	const char *argv[] = {"/bin/sh", "-c",
		"echo \"${PENSTOCK_SECRET_MINE-none} ${PENSTOCK_SECRET_ACCESS_KEY-none} "
		"${PENSTOCK_HOME-none} ${PENSTOCK_SECRETS-none} ${OTHER-none}\"",
		NULL};
	static const char *const expected[] = {"none none h s o\n", "a none none none none\n"};

	(void)state;
	setenv("PENSTOCK_SECRET_MINE", "m", 1);
	setenv("PENSTOCK_SECRET_ACCESS_KEY", "k", 1);
	setenv("PENSTOCK_HOME", "h", 1);
	setenv("PENSTOCK_SECRETS", "s", 1);
	setenv("OTHER", "o", 1);
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		char text[256] = "";
		struct process p;
		int ends[2], status;

		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		assert_int_equal(process_spawn(&p,
					 &(struct process_spec){.argv = argv,
						 .envp = i ? all : NULL,
						 .stdin_fd = -1,
						 .stdout_fd = ends[1],
						 .stderr_fd = -1},
					 NULL),
			0);
		assert_true(process_wait(&p, -1, &status));
		assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
		assert_string_equal(text, expected[i]);
		process_release(&p);
		close(ends[0]);
		close(ends[1]);
	}
	assert_string_equal(getenv("PENSTOCK_SECRET_MINE"), "m");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_runs_and_is_reaped),
		cmocka_unit_test(a_missing_program_is_the_callers_error),
		cmocka_unit_test(a_child_inherits_no_other_descriptor),
		cmocka_unit_test(only_orphans_are_reaped),
		cmocka_unit_test(descendants_and_handlers_are_seen),
		cmocka_unit_test(a_child_gets_what_was_asked_for),
		cmocka_unit_test(a_child_begins_with_default_signals),
		cmocka_unit_test(a_wait_has_a_deadline),
		cmocka_unit_test(a_child_can_die_with_its_parent),
		cmocka_unit_test(a_child_may_be_in_another_pid_namespace),
		cmocka_unit_test(a_child_can_run_without_close_range),
		cmocka_unit_test(a_body_forks_while_others_hold_locks),
		cmocka_unit_test(a_process_is_named_by_its_start),
		cmocka_unit_test(helpers_do_not_get_our_secrets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
