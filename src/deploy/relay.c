/* Connections that wait at a socket whose server has ended. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "deploy/internal.h"

enum {
	MOST = 256, /* connections at a time; further connections wait */
	IDLE_S = 30, /* time before the kernel probes a silent peer */
	IDLE_PROBES = 3,
	ACK_MS = 60000, /* time within which a peer must acknowledge sent bytes */
	CLOSE_MS = 5000 /* time that the client has to close after the server has closed */
};

static atomic_uint relayed;

struct direction {
	int from, to;
	int server; /* `from` or `to` */
	bool broken; /* ended by an error, not by the sender */
};

static void *pass(void *cookie)
{
	struct direction *d = cookie;
	char block[16 * KIB];
	ssize_t n;

	while ((n = recv(d->from, block, sizeof(block), 0)) > 0) {
		for (ssize_t sent = 0, m; n > 0 && sent < n; sent += m) {
			m = send(d->to, block + sent, (size_t)(n - sent), MSG_NOSIGNAL);
			if (m < 0)
				n = -1;
		}
		if (n < 0)
			break;
	}
	d->broken = n < 0;
	if (d->broken)
		shutdown(d->server, SHUT_RDWR); /* ends the other direction, too */
	else
		shutdown(d->to, SHUT_WR);
	return NULL;
}

static void notice_death(int fd)
{
	const int on = 1, idle = IDLE_S, probes = IDLE_PROBES, ack = ACK_MS;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ack, sizeof(ack));
}

/* Connects to the server in front, at the address to which the client has connected. */
static int connect_to_front(int client, struct penstock_error *err)
{
	struct sockaddr_storage address = {0};
	socklen_t len = sizeof(address);
	_cleanup_close_ int fd = -1;

	if (getsockname(client, (struct sockaddr *)&address, &len) < 0)
		return error_errno(err, errno, "cannot find the address of the service");
	fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, len) < 0)
		return error_errno(err, errno, "cannot connect to the server");
	return take_fd(fd);
}

static void *relay(void *cookie)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_close_ int client = (int)(intptr_t)cookie;
	_cleanup_close_ int server = connect_to_front(client, &err);
	struct direction there = {client, server, server, false};
	struct direction back = {server, client, server, false};
	struct pollfd closed = {client, POLLRDHUP, 0};
	const struct linger reset = {1, 0};
	pthread_t thread;

	if (server < 0 || thread_start(&thread, "relay", pass, &there, &err) < 0) {
		log_warn("cannot relay a connection: %s", err.message);
		atomic_fetch_sub(&relayed, 1);
		return NULL;
	}
	notice_death(client);
	notice_death(server);
	pass(&back);
	if (back.broken)
		setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	else
		poll(&closed, 1, CLOSE_MS);
	shutdown(client, SHUT_RD);
	pthread_join(thread, NULL);
	atomic_fetch_sub(&relayed, 1);
	return NULL;
}

static bool is_probe(const struct sockaddr_in *peer)
{
	return peer->sin_family == AF_INET && ntohl(peer->sin_addr.s_addr) == TRAFFIC_PROBE_NUMBER;
}

void relay_waiting(int socket)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int flags = fcntl(socket, F_GETFL);

	/* accept4() must not block if a child of the dead server accepts the connection first. All
	 * holders of the socket share O_NONBLOCK, so the old flags are restored. */
	if (flags < 0 || fcntl(socket, F_SETFL, flags | O_NONBLOCK) < 0)
		return;
	while (atomic_load(&relayed) < MOST) {
		struct sockaddr_storage peer = {0};
		socklen_t len = sizeof(peer);
		int client = accept4(socket, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC);
		pthread_t thread;

		if (client < 0)
			break;
		atomic_fetch_add(&relayed, 1);
		if (!is_probe((const struct sockaddr_in *)&peer) &&
			thread_start(&thread, "relay", relay, (void *)(intptr_t)client, &err) ==
				0) {
			pthread_detach(thread);
			continue;
		}
		atomic_fetch_sub(&relayed, 1);
		close(client);
		if (err.code)
			log_warn("cannot relay a connection: %s", err.message);
		penstock_error_release(&err);
	}
	fcntl(socket, F_SETFL, flags);
}
