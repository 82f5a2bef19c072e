/* Connections that wait at a socket whose server has gone. */
#include <errno.h>
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

enum { MOST = 256 /* connections at a time; others wait */ };

static atomic_uint accepting, relayed;

struct direction {
	int from, to;
};

static void *pass(void *cookie)
{
	const struct direction *d = cookie;
	char block[16 * KIB];
	ssize_t n;

	while ((n = recv(d->from, block, sizeof(block), 0)) > 0) {
		for (ssize_t sent = 0, m; sent < n; sent += m) {
			m = send(d->to, block + sent, (size_t)(n - sent), MSG_NOSIGNAL);
			if (m < 0) {
				shutdown(d->from, SHUT_RDWR);
				return NULL;
			}
		}
	}
	shutdown(d->to, SHUT_WR);
	return NULL;
}

/* Connects to the server in front, which has the same address. */
static int connect_to_front(int socket_, struct penstock_error *err)
{
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);
	_cleanup_close_ int fd = -1;

	if (getsockname(socket_, (struct sockaddr *)&address, &len) < 0)
		return error_errno(err, errno, "cannot find the address of the service");
	fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, len) < 0)
		return error_errno(err, errno, "cannot connect to the server");
	return take_fd(fd);
}

static void *relay(void *cookie)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int socket = (int)(intptr_t)cookie;
	struct pollfd p = {socket, POLLIN, 0};
	_cleanup_close_ int client = -1, server = -1;
	pthread_t back;

	/* Children of the server may accept connections, too. */
	if (poll(&p, 1, 0) == 1)
		client = accept4(socket, NULL, NULL, SOCK_CLOEXEC);
	atomic_fetch_sub(&accepting, 1);
	if (client >= 0) {
		struct direction there = {client, -1}, here = {-1, client};

		there.to = here.from = server = connect_to_front(socket, &err);
		if (server >= 0 && thread_start(&back, "relay", pass, &here, &err) == 0) {
			pass(&there);
			pthread_join(back, NULL);
		} else {
			log_warn("cannot relay a connection: %s", err.message);
		}
	}
	atomic_fetch_sub(&relayed, 1);
	return NULL;
}

void relay_waiting(int socket, unsigned waiting)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	pthread_t thread;

	while (atomic_load(&accepting) < waiting && atomic_load(&relayed) < MOST) {
		atomic_fetch_add(&accepting, 1);
		atomic_fetch_add(&relayed, 1);
		if (thread_start(&thread, "relay", relay, (void *)(intptr_t)socket, &err) < 0) {
			atomic_fetch_sub(&accepting, 1);
			atomic_fetch_sub(&relayed, 1);
			log_warn("cannot relay a connection: %s", err.message);
			return;
		}
		pthread_detach(thread);
	}
}
