/* Notices: replies of metadata services, detection of the cloud, the processes of a task that get a
 * signal, and the effect of requests and notices. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <penstock/error.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/process/process.h"
#include "run/notices/interrupts.h"
#include "run/notices/replies.h"
#include "run/notices/settings.h"
#include "run/process/leaders.h"

#define TEXT(s) (s), strlen(s)

/* ---- replies ---- */

static void only_true_is_a_preemption_of_gcp(void **state)
{
	(void)state;
	assert_true(reply_gcp_preempted(TEXT("TRUE")));
	assert_true(reply_gcp_preempted(TEXT(" true\r\n")));
	assert_false(reply_gcp_preempted(TEXT("FALSE")));
	assert_false(reply_gcp_preempted(TEXT("")));
	assert_false(reply_gcp_preempted(TEXT("TRUE FALSE")));
	assert_false(reply_gcp_preempted("TRUE\0", 5));
	assert_int_equal(
		GCP_TERMINATES, reply_gcp_maintenance(TEXT("TERMINATE_ON_HOST_MAINTENANCE\n")));
	assert_int_equal(GCP_MIGRATES, reply_gcp_maintenance(TEXT("MIGRATE_ON_HOST_MAINTENANCE")));
	assert_int_equal(GCP_NO_MAINTENANCE, reply_gcp_maintenance(TEXT("NONE")));
	assert_int_equal(GCP_NO_MAINTENANCE, reply_gcp_maintenance(TEXT("")));
}

static void an_action_of_aws_has_a_name_and_a_time(void **state)
{
	struct aws_action action;

	(void)state;
	assert_true(reply_aws_action(
		TEXT("{\"action\":\"terminate\",\"time\":\"2017-09-18T08:22:00Z\"}"), &action));
	assert_string_equal("terminate", action.action);
	assert_int_equal(INT64_C(1505722920), action.time_ns / NS_PER_S);
	/* The time in the document may be missing or invalid. */
	assert_true(reply_aws_action(TEXT("{\"action\":\"stop\",\"time\":\"soon\"}"), &action));
	assert_int_equal(0, action.time_ns);
	assert_false(reply_aws_action(TEXT("{\"action\":\"reboot\"}"), &action));
	assert_false(reply_aws_action(TEXT("<html>404</html>"), &action));
	assert_false(reply_aws_action(TEXT("[]"), &action));
	assert_true(reply_aws_rebalance(TEXT("{\"noticeTime\":\"2020-11-05T08:22:00Z\"}")));
	assert_false(reply_aws_rebalance(TEXT("{\"noticeTime\":\"never\"}")));
	assert_false(reply_aws_rebalance(TEXT("")));
}

#define EVENT(type, resources)                                                                     \
	"{\"EventId\":\"A-1\",\"EventStatus\":\"Scheduled\",\"EventType\":\"" type                 \
	"\",\"ResourceType\":\"VirtualMachine\",\"Resources\":[" resources                         \
	"],\"NotBefore\":\"Mon, 19 Sep 2016 18:29:47 GMT\"}"
#define EVENTS(event) "{\"DocumentIncarnation\":1,\"Events\":[" event "]}"

static int azure(const char *text, struct azure_event *event)
{
	return reply_azure_events(text, strlen(text), "vm-7", event);
}

static void an_event_of_azure_counts_where_it_preempts_this_machine(void **state)
{
	struct azure_event event = {0};

	(void)state;
	assert_int_equal(1, azure(EVENTS(EVENT("Preempt", "\"VM-7\"")), &event));
	assert_string_equal("A-1", event.id);
	assert_int_equal(1474309787, event.not_before_s);
	assert_true(event.alone);
	assert_int_equal(1, azure(EVENTS(EVENT("Preempt", "\"vm-6\",\"vm-7\"")), &event));
	assert_false(event.alone);
	assert_int_equal(0, azure(EVENTS(EVENT("Preempt", "\"vm-70\"")), &event));
	assert_int_equal(0, azure(EVENTS(EVENT("Reboot", "\"vm-7\"")), &event));
	assert_int_equal(0, azure(EVENTS(""), &event));
	assert_int_equal(1, azure(EVENTS("{},7," EVENT("Preempt", "3,\"vm-7\"")), &event));
	assert_int_equal(-1, azure("{}", &event));
	assert_int_equal(-1, azure("", &event));
}

static void the_lead_goes_by_the_clock_of_who_tells_it(void **state)
{
	const char *date = "Mon, 19 Sep 2016 18:29:00 GMT";

	(void)state;
	/* The lead, the time until the deadline, does not depend on the local clock, which is years
	 * off. */
	assert_int_equal(47000, reply_lead_ms(1474309787, date, 0));
	assert_int_equal(47000, reply_lead_ms(1474309787, NULL, 1474309740));
	assert_int_equal(LEAD_MIN_MS, reply_lead_ms(1474309000, date, 0));
	assert_int_equal(LEAD_MAX_MS, reply_lead_ms(INT64_MAX, NULL, -5));
}

/* ---- the machine ---- */

static void put_file(const char *dir, const char *name, const char *text)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(0, fs_write_atomic(path, text, strlen(text), 0600, NULL));
}

static void the_firmware_says_whose_machine_it_is(void **state)
{
	char dir[] = "/tmp/penstock-dmi-XXXXXX";

	(void)state;
	assert_int_equal(NOTICE_CLOUD_UNKNOWN, notice_machine("/nowhere/at/all"));
	assert_non_null(mkdtemp(dir));
	assert_int_equal(NOTICE_CLOUD_NONE, notice_machine(dir));
	put_file(dir, "sys_vendor", "Microsoft Corporation\n");
	assert_int_equal(NOTICE_CLOUD_NONE, notice_machine(dir)); /* any machine on Hyper-V */
	put_file(dir, "chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n");
	assert_int_equal(NOTICE_CLOUD_AZURE, notice_machine(dir));
	put_file(dir, "sys_vendor", "Amazon EC2\n");
	assert_int_equal(NOTICE_CLOUD_AWS, notice_machine(dir));
	put_file(dir, "product_name", "Google Compute Engine\n");
	assert_int_equal(NOTICE_CLOUD_GCP, notice_machine(dir));
	fs_remove_tree(dir, NULL);
}

/* ---- the processes of a task that get a signal ---- */

static pid_t start(const char *script, int *out)
{
	int ends[2];
	pid_t pid;

	assert_int_equal(0, pipe(ends));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(ends[1], 1);
		close(ends[0]);
		setpgid(0, 0);
		execl("/bin/bash", "bash", "-c", script, NULL);
		_exit(127);
	}
	close(ends[1]);
	*out = ends[0];
	return pid;
}

/* Reads one line of the output. */
static void wait_for_line(int fd, char *out, size_t size)
{
	size_t n = 0;

	while (n + 1 < size) {
		struct pollfd ready = {fd, POLLIN, 0};

		assert_int_equal(1, poll(&ready, 1, 60000));
		assert_int_equal(1, read(fd, out + n, 1));
		if (out[n] == '\n')
			break;
		n++;
	}
	out[n] = '\0';
}

static void end(pid_t pid, int fd)
{
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd);
}

static void who_handles_the_signal_is_told(void **state)
{
	char line[64];
	int fd;
	pid_t pid = start("trap 'echo told' TERM; echo up; while :; do sleep 0.02; done", &fd);

	(void)state;
	wait_for_line(fd, line, sizeof(line));
	assert_int_equal(1, leaders_signal(pid, SIGTERM));
	wait_for_line(fd, line, sizeof(line));
	assert_string_equal("told", line);
	assert_int_equal(0, leaders_signal(pid, SIGUSR1)); /* SIGUSR1 would kill the shell */
	assert_int_equal(0, kill(pid, 0));
	end(pid, fd);
}

/* A program without a handler is not signalled, because the signal would kill it. Its workers are
 * not signalled, even if they have a handler. */
static void workers_of_a_program_are_not_told(void **state)
{
	char line[64];
	int fd;
	pid_t pid = start("/usr/bin/python3 -c \""
			  "import os, signal, time\n"
			  "r, w = os.pipe()\n"
			  "if os.fork() == 0:\n"
			  "    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"
			  "    os.write(w, b'1')\n"
			  "    while True: time.sleep(0.05)\n"
			  "os.read(r, 1)\n"
			  "print('up', flush=True)\n"
			  "os.wait()\n"
			  "print('gone', flush=True)\"; exit 3",
		&fd);
	struct pollfd more;

	(void)state;
	wait_for_line(fd, line, sizeof(line));
	assert_string_equal("up", line);
	assert_int_equal(0, leaders_signal(pid, SIGTERM));
	more = (struct pollfd){fd, POLLIN, 0};
	assert_int_equal(0, poll(&more, 1, 200));
	end(pid, fd);
}

/* If a shell started the program, the program gets the signal. */
static void a_shell_stands_for_its_program(void **state)
{
	char line[64];
	int fd;
	pid_t pid = start("bash -c \"trap 'echo inner told; exit' TERM; echo up; while :; do sleep "
			  "0.02; done\"; exit 0",
		&fd);

	(void)state;
	wait_for_line(fd, line, sizeof(line));
	assert_int_equal(1, leaders_signal(pid, SIGTERM));
	wait_for_line(fd, line, sizeof(line));
	assert_string_equal("inner told", line);
	end(pid, fd);
}

/* Starts a program that blocks the signal and waits for it; `how` is the code that waits. */
static pid_t start_waiter(const char *how, int *out)
{
	char script[512];

	snprintf(script, sizeof(script),
		"exec /usr/bin/python3 -c \"\n"
		"import ctypes, os, signal, threading, time\n"
		"TERM, USR1 = signal.SIGTERM, signal.SIGUSR1\n"
		"def block(*s): signal.pthread_sigmask(signal.SIG_BLOCK, s)\n"
		"def took(n): print('took', int(n), flush=True)\n"
		"def ready(): print('ready', flush=True)\n"
		"%s\"",
		how);
	return start(script, out);
}

static void tell_until_taken(const char *how)
{
	int64_t until_ms = clock_monotonic_ms() + 60000;
	char line[64];
	int fd;
	pid_t pid = start_waiter(how, &fd);

	wait_for_line(fd, line, sizeof(line));
	assert_string_equal("ready", line);
	while (leaders_signal(pid, SIGTERM) == 0)
		assert_true(clock_monotonic_ms() < until_ms);
	wait_for_line(fd, line, sizeof(line));
	assert_string_equal("took 15", line);
	end(pid, fd);
}

static void who_waits_for_the_signal_is_told(void **state)
{
	(void)state;
	if (access("/proc/self/syscall", R_OK) < 0)
		skip(); /* this kernel does not show what a thread waits for */
	tell_until_taken("block(TERM); ready(); took(signal.sigwait({TERM, USR1}))\n");
	tell_until_taken("block(TERM); threading.Thread(target=lambda: "
			 "took(signal.sigwait({TERM}))).start()\n"
			 "ready(); time.sleep(1000)\n");
	tell_until_taken(
		"block(TERM); libc = ctypes.CDLL(None)\n"
		"mask = ctypes.create_string_buffer((1 << 14).to_bytes(8, 'little'), 128)\n"
		"fd = libc.signalfd(-1, mask, 0); ready()\n"
		"took(os.read(fd, 128)[0])\n");
}

/* The signal would kill each of these programs: at once if a thread neither blocks the signal nor
 * waits for it, else when the program unblocks the signal. */
static void who_only_blocks_the_signal_is_not_told(void **state)
{
	static const char *const hows[] = {
		"block(TERM); ready(); time.sleep(1000)\n",
		"block(USR1); ready(); signal.sigwait({USR1})\n",
		"t = threading.Thread(target=lambda: (block(TERM), ready(), "
		"signal.sigwait({TERM})))\n"
		"t.start(); t.join()\n",
	};
	char line[64];

	(void)state;
	for (size_t i = 0; i < sizeof(hows) / sizeof(*hows); i++) {
		int fd;
		pid_t pid = start_waiter(hows[i], &fd);

		wait_for_line(fd, line, sizeof(line));
		for (int k = 0; k < 20; k++)
			assert_int_equal(0, leaders_signal(pid, SIGTERM));
		end(pid, fd);
	}
}

/* A pid that now belongs to another process is not signalled, even if that process handles the
 * signal. */
static void only_what_we_began_is_told(void **state)
{
	char line[64];
	int fd;
	pid_t pid = start("trap 'echo told' TERM; echo up; while :; do sleep 0.02; done", &fd);
	pid_t other;
	int status;

	(void)state;
	wait_for_line(fd, line, sizeof(line));
	other = fork();
	if (other == 0)
		_exit((int)leaders_signal(pid, SIGTERM));
	assert_int_equal(other, waitpid(other, &status, 0));
	assert_int_equal(0, WEXITSTATUS(status));
	end(pid, fd);
}

/* ---- requests and notices ---- */

static void several_notices_ask_once(void **state)
{
	struct interrupts i = {.event_fd = -1};
	struct notice notice, got;

	(void)state;
	pthread_mutex_init(&i.lock, NULL);
	interrupts_phase(&i, PHASE_STEPS);
	notice_set(&notice, "signal", "SIGTERM");
	interrupts_notice(&i, &notice);
	interrupts_notice(&i, &notice);
	notice_set(&notice, "gcp", "TRUE");
	notice_set_lead(&notice, 10000);
	interrupts_notice(&i, &notice);

	assert_int_equal(1, interrupts_count(&i));
	assert_int_equal(INTERRUPT_PREEMPT, interrupts_reason(&i));
	assert_true(interrupts_get_notice(&i, &got));
	assert_string_equal("signal", got.source); /* the first notice's source */
	assert_true(got.hard && got.deadline_ms <= clock_monotonic_ms() + 10000);
}

static void a_notice_that_is_withdrawn_can_be_forgotten(void **state)
{
	struct interrupts i = {.event_fd = -1};
	struct notice notice, got;

	(void)state;
	pthread_mutex_init(&i.lock, NULL);
	interrupts_phase(&i, PHASE_STEPS);
	notice_set(&notice, "azure", "Preempt");
	interrupts_notice(&i, &notice);
	interrupts_forget_notice(&i); /* has no effect: the notice was not withdrawn */
	assert_int_equal(INTERRUPT_PREEMPT, interrupts_reason(&i));
	notice.withdrawn = true;
	notice_set(&got, "file", "gone");
	got.withdrawn = true;
	interrupts_notice(&i, &got); /* a notice of another source */
	assert_true(interrupts_get_notice(&i, &got) && !got.withdrawn);
	interrupts_notice(&i, &notice);
	assert_true(interrupts_get_notice(&i, &got) && got.withdrawn);
	interrupts_forget_notice(&i);

	assert_false(interrupts_get_notice(&i, &got));
	assert_int_equal(INTERRUPT_NONE, interrupts_reason(&i));
	assert_int_equal(0, interrupts_count(&i));
}

static struct notice notice_of(unsigned origin, int64_t lead_ms)
{
	struct notice notice;

	notice_set(&notice, "file", "go");
	notice.origin = origin;
	notice_set_lead(&notice, lead_ms);
	return notice;
}

/* Both notices may have the same name. The deadline is the earliest one of the notices that are
 * still in effect. */
static void a_notice_stands_while_one_source_does(void **state)
{
	struct interrupts i = {.event_fd = -1};
	struct notice one = notice_of(1, 90000), two = notice_of(2, 10000), got;

	(void)state;
	pthread_mutex_init(&i.lock, NULL);
	interrupts_phase(&i, PHASE_STEPS);
	interrupts_notice(&i, &one);
	interrupts_notice(&i, &two);
	assert_true(interrupts_get_notice(&i, &got) && got.deadline_ms == two.deadline_ms);
	two.withdrawn = true;
	interrupts_notice(&i, &two);
	assert_true(interrupts_get_notice(&i, &got) && !got.withdrawn && got.eased == 1);
	assert_int_equal(one.deadline_ms, got.deadline_ms);
	assert_false(interrupts_forget_notice(&i));
	one.withdrawn = true;
	interrupts_notice(&i, &one);
	assert_true(interrupts_get_notice(&i, &got) && got.withdrawn);

	assert_true(interrupts_forget_notice(&i));
}

static void the_environment_names_sources_if_no_file_does(void **state)
{
	const struct workflow_preemption none = {0}, given = {.sources_given = true};
	struct notice_settings s;

	(void)state;
	setenv("PENSTOCK_CONFIG", "/nowhere/at/all", 1);
	setenv("PENSTOCK_SYSTEM_CONFIG", "/nowhere/at/all", 1);

	setenv("PENSTOCK_PREEMPTION_SOURCES", "aws,none,auto", 1);
	assert_int_equal(0, notice_settings_read(&s, &none, NULL));
	assert_true(s.preemption.sources_given && s.preemption.n_sources == 2);
	assert_int_equal(WORKFLOW_NOTICE_AWS, s.preemption.sources[0].kind);
	assert_int_equal(WORKFLOW_NOTICE_AUTO, s.preemption.sources[1].kind);
	notice_settings_release(&s);

	setenv("PENSTOCK_PREEMPTION_SOURCES", ",gcp,", 1);
	assert_int_equal(0, notice_settings_read(&s, &none, NULL));
	assert_true(s.preemption.sources_given && s.preemption.n_sources == 1);
	assert_int_equal(WORKFLOW_NOTICE_GCP, s.preemption.sources[0].kind);
	notice_settings_release(&s);

	setenv("PENSTOCK_PREEMPTION_SOURCES", "azur", 1);
	assert_int_equal(-PENSTOCK_E_INVALID, notice_settings_read(&s, &none, NULL));
	notice_settings_release(&s);
	assert_int_equal(0, notice_settings_read(&s, &given, NULL));
	assert_int_equal(0, s.preemption.n_sources);
	notice_settings_release(&s);

	unsetenv("PENSTOCK_PREEMPTION_SOURCES");
	assert_int_equal(0, notice_settings_read(&s, &none, NULL));
	assert_false(s.preemption.sources_given);
	notice_settings_release(&s);
}

static void a_reason_is_text_of_one_line(void **state)
{
	struct notice notice;
	char text[300];

	(void)state;
	memset(text, 'x', sizeof(text));
	memcpy(text, "\xc3(\xff\xed\xa0\x80\n\xe2\x82\xac", 10);
	memcpy(text + 198, "\xc3\xa9", 3);
	notice_set(&notice, "file", text);

	assert_memory_equal("?(???? \xe2\x82\xac", notice.reason, 10);
	assert_string_equal("x?", notice.reason + 197);
}

static void a_recommendation_asks_for_nothing(void **state)
{
	struct interrupts i = {.event_fd = -1};
	struct notice notice, got;

	(void)state;
	pthread_mutex_init(&i.lock, NULL);
	notice_set(&notice, "aws", "rebalance\nrecommendation");
	notice.soon = true;
	interrupts_notice(&i, &notice);

	assert_int_equal(0, interrupts_count(&i));
	assert_int_equal(INTERRUPT_NONE, interrupts_reason(&i));
	assert_int_equal(0, atomic_load(&i.cancel));
	assert_true(interrupts_get_soon(&i, &got));
	assert_string_equal("rebalance recommendation", got.reason); /* without the line break */
	notice.withdrawn = true;
	interrupts_notice(&i, &notice);
	assert_false(interrupts_get_soon(&i, &got));
	notice.withdrawn = false;
	interrupts_notice(&i, &notice);
	assert_true(interrupts_get_soon(&i, &got));
}

static void a_request_before_the_steps_counts_in_them(void **state)
{
	struct interrupts i = {0};
	struct pollfd event = {.events = POLLIN};
	sigset_t set, before;

	(void)state;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, &before);
	assert_int_equal(0, interrupts_start(&i, NULL));
	kill(getpid(), SIGINT);
	event.fd = i.event_fd;
	assert_int_equal(1, poll(&event, 1, 60000));
	interrupts_phase(&i, PHASE_STEPS);
	assert_int_equal(1, interrupts_count(&i));
	assert_int_equal(INTERRUPT_STOP, interrupts_reason(&i));
	assert_int_equal(0, atomic_load(&i.cancel));
	interrupts_phase(&i, PHASE_FLUSH);
	assert_int_equal(0, interrupts_count(&i));
	interrupts_stop(&i);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_true_is_a_preemption_of_gcp),
		cmocka_unit_test(an_action_of_aws_has_a_name_and_a_time),
		cmocka_unit_test(an_event_of_azure_counts_where_it_preempts_this_machine),
		cmocka_unit_test(the_lead_goes_by_the_clock_of_who_tells_it),
		cmocka_unit_test(the_firmware_says_whose_machine_it_is),
		cmocka_unit_test(who_handles_the_signal_is_told),
		cmocka_unit_test(workers_of_a_program_are_not_told),
		cmocka_unit_test(a_shell_stands_for_its_program),
		cmocka_unit_test(who_waits_for_the_signal_is_told),
		cmocka_unit_test(who_only_blocks_the_signal_is_not_told),
		cmocka_unit_test(only_what_we_began_is_told),
		cmocka_unit_test(several_notices_ask_once),
		cmocka_unit_test(a_notice_that_is_withdrawn_can_be_forgotten),
		cmocka_unit_test(a_notice_stands_while_one_source_does),
		cmocka_unit_test(the_environment_names_sources_if_no_file_does),
		cmocka_unit_test(a_reason_is_text_of_one_line),
		cmocka_unit_test(a_recommendation_asks_for_nothing),
		cmocka_unit_test(a_request_before_the_steps_counts_in_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
