#include "server/monitor/listen.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"

static int listen_failed(const char *address, uint16_t port, int e, struct penstock_error *err)
{
	if (e == EADDRINUSE)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot listen on '%s' port %u: another process uses this port; use another port; "
			"port 0 selects a free port",
			address, port);
	if (e == EADDRNOTAVAIL)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot listen on '%s': this is not an address of this machine; use 0.0.0.0 "
			"for all addresses",
			address);
	return error_errno(err, e, "cannot listen on '%s' port %u", address, port);
}

int listen_on(const char *address, uint16_t port, struct penstock_error *err)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
	_cleanup_close_ int fd = -1;
	int one = 1;

	if (!is_v4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot listen on '%s': this is not an IP address; use 127.0.0.1:9000 or "
			"[::1]:9000",
			address);
	fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_errno(err, errno, "cannot create a socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
		    is_v4 ? sizeof(v4) : sizeof(v6)) < 0 ||
		listen(fd, 1024) < 0)
		return listen_failed(address, port, errno, err);
	return take_fd(fd);
}

int listen_url(int fd, const char *scheme, char **url, struct penstock_error *err)
{
	struct sockaddr_in6 bound = {0}; /* the port of an IPv4 address is at the same offset */
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&bound;
	socklen_t len = sizeof(bound);
	char text[INET6_ADDRSTRLEN];
	unsigned port;

	if (getsockname(fd, (struct sockaddr *)&bound, &len) < 0)
		return error_errno(err, errno, "cannot get the port");
	port = ntohs(bound.sin6_port);
	if (bound.sin6_family == AF_INET && inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text)))
		*url = str_printf("%s://%s:%u", scheme, text, port);
	else if (bound.sin6_family == AF_INET6 &&
		 inet_ntop(AF_INET6, &bound.sin6_addr, text, sizeof(text)))
		*url = str_printf("%s://[%s]:%u", scheme, text, port);
	else
		return error_set(err, PENSTOCK_E_INVALID,
			"the inherited socket is not a TCP socket; check the socket unit");
	return *url ? 0 : error_memory(err);
}

_Static_assert(offsetof(struct sockaddr_in6, sin6_port) == offsetof(struct sockaddr_in, sin_port),
	"the port is at the same offset");
