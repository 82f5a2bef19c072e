#include "base/near_socket.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/banned.h"

#define BACKLOG	     1024
#define SEND_BUFFER  (1 << 20) /* bytes; the kernel takes twice net.core.wmem_max at most */
#define ADDRESS_SIZE (INET6_ADDRSTRLEN + sizeof(".65535"))

/* "127.0.0.1.9000"; false: none of the loopback. */
static bool format_address(const struct sockaddr *address, char out[ADDRESS_SIZE])
{
	char host[INET6_ADDRSTRLEN];
	unsigned port;

	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const void *)address;

		if (ntohl(v4->sin_addr.s_addr) >> 24 != IN_LOOPBACKNET)
			return false;
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		port = ntohs(v4->sin_port);
	} else if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const void *)address;

		if (!IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr))
			return false;
		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		port = ntohs(v6->sin6_port);
	} else {
		return false;
	}
	snprintf(out, ADDRESS_SIZE, "%s.%u", host, port);
	return true;
}

static int open_own(const char *path, bool make)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (make)
		mkdir(path, 0700);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* In /tmp anybody may have made it. */
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077))
		return -1;
	return take_fd(fd);
}

/* The user's directory; -1: none. */
static int open_directory(bool make, char *path, size_t size)
{
	int fd;

	snprintf(path, size, "/run/user/%u/penstock", (unsigned)geteuid());
	fd = open_own(path, make);
	if (fd >= 0)
		return fd;
	snprintf(path, size, "/tmp/penstock-%u", (unsigned)geteuid());
	return open_own(path, make);
}

static bool make_name(
	const char *directory, const struct sockaddr *address, struct sockaddr_un *name)
{
	char text[ADDRESS_SIZE];
	struct stat ns;
	int n;

	if (!format_address(address, text) || stat("/proc/self/ns/net", &ns) < 0)
		return false;
	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(name->sun_path, sizeof(name->sun_path), "%s/%llu-%s", directory,
		(unsigned long long)ns.st_ino, text);
	return n > 0 && (size_t)n < sizeof(name->sun_path);
}

static int make_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* errno; 0: somebody listens. It does not wait: where the backlog is full, it is EAGAIN. */
static int try_name(const struct sockaddr_un *name)
{
	_cleanup_close_ int fd = make_socket();

	if (fd < 0 || connect(fd, (const struct sockaddr *)name, sizeof(*name)) < 0)
		return errno;
	return 0;
}

/* A server that is killed leaves its socket. None is there before it listens: see near_listen(). */
static void sweep(int directory, const char *path)
{
	int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;

	if (!dir) {
		if (copy >= 0)
			close(copy);
		return;
	}
	while ((entry = readdir(dir))) {
		struct sockaddr_un name = {.sun_family = AF_UNIX};
		int n = snprintf(
			name.sun_path, sizeof(name.sun_path), "%s/%s", path, entry->d_name);

		if (entry->d_type == DT_SOCK && n > 0 && (size_t)n < sizeof(name.sun_path) &&
			entry->d_name[0] != '.' && try_name(&name) == ECONNREFUSED)
			unlinkat(directory, entry->d_name, 0);
	}
	closedir(dir);
}

int near_listen(const struct sockaddr *address, struct sockaddr_un *name)
{
	char path[64];
	struct sockaddr_un new = {.sun_family = AF_UNIX};
	_cleanup_close_ int directory = open_directory(true, path, sizeof(path));
	_cleanup_close_ int fd = -1;

	if (directory < 0 || !make_name(path, address, name))
		return -1;
	sweep(directory, path);
	fd = make_socket();
	/* Seen only when it listens. */
	snprintf(new.sun_path, sizeof(new.sun_path), "%s/.%ld", path, (long)getpid());
	unlink(new.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&new, sizeof(new)) < 0)
		return -1;
	if (listen(fd, BACKLOG) < 0 || rename(new.sun_path, name->sun_path) < 0) {
		unlink(new.sun_path);
		return -1;
	}
	return take_fd(fd);
}

void near_unlink(const struct sockaddr_un *name)
{
	unlink(name->sun_path);
}

bool near_find(const struct sockaddr *address, struct sockaddr_un *name)
{
	char path[64];
	char text[ADDRESS_SIZE];
	_cleanup_close_ int directory = -1;

	if (!format_address(address, text))
		return false;
	directory = open_directory(false, path, sizeof(path));
	return directory >= 0 && make_name(path, address, name) && try_name(name) == 0;
}

void near_tune(int fd)
{
	const int size = SEND_BUFFER;
	int domain = AF_UNSPEC;
	socklen_t len = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}
