/* The spare of a deployment: the same program, which waits for the end of the active process. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "deploy/internal.h"

#define MARK	"PENSTOCK_DEPLOY_SPARE" /* environment variable of a spare */
#define DISMISS 'x'
enum {
	HANDED = 3, /* descriptors: the lock and two sockets */
	PAUSE_MS = 1000, /* time between two starts */
	DISMISS_MS = 2000, /* time until a dismissed spare is killed */
	COMMAND_LINE = 1 << 20 /* bytes */
};

/* A message of one byte, with the descriptors. */
struct packet {
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * HANDED)];
	char byte;
	struct iovec data;
	struct msghdr message;
};

/* `n` is the number of descriptors that the packet has, or has room for. */
static void packet_init(struct packet *p, size_t n)
{
	*p = (struct packet){0};
	p->data = (struct iovec){&p->byte, 1};
	p->message = (struct msghdr){.msg_iov = &p->data,
		.msg_iovlen = 1,
		.msg_control = p->control,
		.msg_controllen = CMSG_SPACE(sizeof(int) * n)};
}

/* Descriptors that deploy_is_needed() has received. */
static struct spare_hand received;
static bool took_over;

/* Waits for the descriptors, then for the end of the active process, which closes the channel. */
bool deploy_is_needed(void)
{
	struct packet p;
	const struct cmsghdr *c;
	int fds[HANDED];
	ssize_t n;

	if (!str_env(MARK))
		return true;
	unsetenv(MARK);
	prctl(PR_SET_NAME, "penstock");
	packet_init(&p, HANDED);
	do
		n = recvmsg(PROCESS_HANDED_FD, &p.message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	c = CMSG_FIRSTHDR(&p.message);
	if (n != 1 || !c || c->cmsg_type != SCM_RIGHTS)
		return false;
	n = (ssize_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(fds, CMSG_DATA(c), (size_t)n * sizeof(int));
	received = (struct spare_hand){
		.lock = fds[0], .sockets = {n == HANDED ? fds[1] : -1, n == HANDED ? fds[2] : -1}};
	do
		n = read(PROCESS_HANDED_FD, &p.byte, 1);
	while (n < 0 && errno == EINTR);
	close(PROCESS_HANDED_FD);
	took_over = n <= 0;
	return took_over;
}

bool spare_take_over(struct spare_hand *out)
{
	if (took_over)
		*out = received;
	return took_over;
}

static int send_hand(int channel, const struct spare_hand *hand, struct penstock_error *err)
{
	const int fds[HANDED] = {hand->lock, hand->sockets[0], hand->sockets[1]};
	size_t n = hand->sockets[0] < 0 ? 1 : HANDED;
	struct packet p;
	struct cmsghdr *c;

	packet_init(&p, n);
	c = CMSG_FIRSTHDR(&p.message);
	c->cmsg_len = CMSG_LEN(sizeof(int) * n);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(c), fds, sizeof(int) * n);
	if (sendmsg(channel, &p.message, MSG_NOSIGNAL) < 0)
		return error_errno(err, errno, "cannot pass the sockets to the spare process");
	return 0;
}

/* Adds the arguments of this process to `argv`. */
static int own_arguments(struct strlist *argv, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(COMMAND_LINE);
	int r = fs_read("/proc/self/cmdline", &text, err);

	if (r < 0)
		return r;
	for (const char *p = buf_str(&text); p < buf_str(&text) + text.len; p += strlen(p) + 1) {
		if (strlist_add(argv, p) < 0)
			return error_memory(err);
	}
	return argv->n ? 0
		       : error_set(err, PENSTOCK_E_INTERNAL,
				 "cannot read '/proc/self/cmdline': it is empty");
}

static int start(struct spare *s, const struct spare_hand *hand, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist argv = {0}, envp = {0};
	_cleanup_close_ int ours = -1, theirs = -1;
	int ends[2], r = own_arguments(&argv, err);

	if (r < 0)
		return r;
	if (strlist_add_all(&envp, (const char *const *)environ) < 0 ||
		strlist_add(&envp, MARK "=1") < 0)
		return error_memory(err);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return error_errno(err, errno, "cannot create a socket");
	ours = ends[0];
	theirs = ends[1];
	r = send_hand(ours, hand, err);
	if (r == 0)
		r = process_spawn(&s->process,
			&(struct process_spec){.argv = (const char *const *)argv.items,
				.file = "/proc/self/exe",
				.envp = (const char *const *)envp.items,
				.stdin_fd = -1,
				.stdout_fd = STDOUT_FILENO,
				.stderr_fd = STDERR_FILENO,
				.handed_fd = theirs,
				.new_session = true},
			err);
	if (r < 0)
		return r;
	s->channel = take_fd(ours);
	return 0;
}

static void forget(struct spare *s)
{
	process_release(&s->process);
	close(s->channel);
	s->process = (struct process)PROCESS_INIT;
}

int spare_keep(struct spare *s, const struct spare_hand *hand, struct penstock_error *err)
{
	int64_t now = clock_monotonic_ms();
	int status;

	if (s->process.pid) {
		if (!process_wait(&s->process, 0, &status))
			return 0;
		forget(s);
	}
	if (s->started_ms && now - s->started_ms < PAUSE_MS)
		return 0;
	s->started_ms = now;
	return start(s, hand, err);
}

void spare_dismiss(struct spare *s)
{
	const char byte = DISMISS;
	int status;

	if (!s->process.pid)
		return;
	/* Kill a spare that does not end: the spare would take over. */
	if (send(s->channel, &byte, 1, MSG_NOSIGNAL) != 1 ||
		!process_wait(&s->process, DISMISS_MS, &status))
		process_signal(&s->process, SIGKILL);
	forget(s);
}
