#include "run/rank/free_ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/banned.h"

enum { LOWEST = 10000, HIGHEST = 65535, TRIES = 2000 };

/* Reads the range from which the kernel takes ports for connections: such a port may be taken a
 * moment later. */
static void read_ephemeral(int *low, int *high)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	*low = 32768;
	*high = 60999;
	if (f && fscanf(f, "%d %d", low, high) != 2) {
		*low = 32768;
		*high = 60999;
	}
}

/* Binds to every address of the family; true also if the family does not exist. */
static bool is_free_in(int family, int port)
{
	_cleanup_close_ int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	int one = 1;

	if (fd < 0)
		return family == AF_INET6;
	if (family == AF_INET)
		return bind(fd, (struct sockaddr *)&v4, sizeof(v4)) == 0;
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	return bind(fd, (struct sockaddr *)&v6, sizeof(v6)) == 0 || errno != EADDRINUSE;
}

static bool is_in(const int *ports, size_t n, int port)
{
	for (size_t i = 0; i < n; i++) {
		if (ports[i] == port)
			return true;
	}
	return false;
}

static int random_port(void)
{
	uint32_t n;

	if (getrandom(&n, sizeof(n), 0) != sizeof(n))
		n = (uint32_t)clock_monotonic_ns();
	return LOWEST + (int)(n % (HIGHEST - LOWEST + 1));
}

int free_ports(int *ports, size_t n, struct penstock_error *err)
{
	size_t found = 0;
	int low;
	int high;

	read_ephemeral(&low, &high);
	for (int i = 0; i < TRIES && found < n; i++) {
		int port = random_port();
		/* If the kernel's range is nearly everything, no other port is left. */
		bool avoid = i < TRIES / 2 && port >= low && port <= high;

		if (!avoid && !is_in(ports, found, port) && is_free_in(AF_INET, port) &&
			is_free_in(AF_INET6, port))
			ports[found++] = port;
	}
	if (found < n)
		return error_set(err, PENSTOCK_E_UNAVAILABLE,
			"cannot find %zu free TCP ports on this machine", n);
	return 0;
}
