/* The listening sockets of a deployment, and the filter that chooses one of them. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "deploy/internal.h"

enum { BACKLOG = 4096, IP_SOURCE = 12 /* bytes before the source address in an IPv4 header */ };

/* Fills in an address. Returns its length, or 0 if `host` is invalid. */
static socklen_t fill(struct sockaddr_storage *out, const char *host, uint16_t port)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

	*out = (struct sockaddr_storage){0};
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		return sizeof(*v4);
	}
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		return sizeof(*v6);
	}
	return 0;
}

/* Returns the port of a bound socket, or 0 on error. */
static uint16_t port_of(int fd)
{
	struct sockaddr_in6 a = {0}; /* the port has the same offset in a sockaddr_in */
	socklen_t len = sizeof(a);

	return getsockname(fd, (struct sockaddr *)&a, &len) < 0 ? 0 : ntohs(a.sin6_port);
}

/* Returns a socket that listens on an address. If `shared` is true, other sockets of this user may
 * listen on the same address. */
static int listen_on(const char *host, uint16_t port, bool shared, struct penstock_error *err)
{
	struct sockaddr_storage address;
	socklen_t len = fill(&address, host, port);
	_cleanup_close_ int fd = -1;
	const int on = 1, off = 0, share = shared;

	if (!len)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot listen on '%s': it is not an IP address", host);
	fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &share, sizeof(share)) < 0 ||
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
		(address.ss_family == AF_INET6 &&
			setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0) ||
		bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, BACKLOG) < 0)
		return errno == EADDRINUSE
			       ? error_set(err, PENSTOCK_E_EXISTS,
					 "cannot listen on '%s' port %u: another process "
					 "listens there; use another port",
					 host, port)
			       : error_errno(
					 err, errno, "cannot listen on '%s' port %u", host, port);
	return take_fd(fd);
}

int traffic_find(const char *host, uint16_t *port, struct penstock_error *err)
{
	_cleanup_close_ int fd = listen_on(host, *port, false, err);

	if (fd < 0)
		return fd;
	*port = port_of(fd);
	return 0;
}

int traffic_open(int sockets[static 2], const char *host, uint16_t port, struct penstock_error *err)
{
	_cleanup_close_ int first = listen_on(host, port, true, err);
	int second;

	if (first < 0)
		return first;
	second = listen_on(host, port, true, err);
	if (second < 0)
		return second;
	sockets[0] = take_fd(first);
	sockets[1] = second;
	return traffic_steer(sockets, 0, 0, err);
}

/* Attaches a filter that returns the index of a socket in the group: `probe` for health checks,
 * `others` for all other connections. */
static int set_filter(int socket, unsigned probe, unsigned others, struct penstock_error *err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PROTOCOL)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_NET_OFF + IP_SOURCE)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TRAFFIC_PROBE_NUMBER, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, probe),
		BPF_STMT(BPF_RET | BPF_K, others),
	};
	const struct sock_fprog program = {.len = ARRAY_SIZE(code), .filter = code};

	if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)) < 0)
		return error_errno(err, errno, "cannot choose the server for new connections");
	return 0;
}

int traffic_steer(
	const int sockets[static 2], unsigned first, unsigned front, struct penstock_error *err)
{
	return set_filter(sockets[front], front == first, front != first, err);
}

static bool is_listening(int socket)
{
	int on = 0;
	socklen_t len = sizeof(on);

	return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0 && on;
}

int traffic_mend(
	const int sockets[static 2], unsigned *first, unsigned front, struct penstock_error *err)
{
	bool listens[2] = {is_listening(sockets[0]), is_listening(sockets[1])};
	int r = 0;

	if (listens[0] && listens[1])
		return 0;
	/* The socket that still listens is now the first of the group; it gets all connections
	 * until both sockets listen. */
	for (unsigned slot = 0; slot < 2; slot++) {
		if (listens[slot])
			r = set_filter(sockets[slot], 0, 0, err);
	}
	*first = listens[1] ? 1 : 0;
	for (unsigned slot = 0; r == 0 && slot < 2; slot++) {
		if (!listens[slot] && listen(sockets[slot], BACKLOG) < 0)
			r = error_errno(err, errno, "cannot listen on the socket again");
	}
	if (r == 0)
		r = traffic_steer(sockets, *first, front, err);
	return r < 0 ? r : 1;
}

unsigned traffic_waiting(int socket)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	/* For a listening socket, tcpi_unacked is the length of its accept queue. */
	return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ? 0 : info.tcpi_unacked;
}
