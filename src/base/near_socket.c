#include "base/near_socket.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"

#define BACKLOG	       1024
#define SEND_BUFFER    (1 << 20) /* bytes; the kernel allows at most twice net.core.wmem_max */
#define DIRECTORY_SIZE 64
#define LOCK_ATTEMPTS  100
#define LOCK_PAUSE_MS  10
#define ADDRESS_SIZE   (INET6_ADDRSTRLEN + sizeof(".65535"))

/* Formats "127.0.0.1.9000". Returns false if the address is not of the loopback. */
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

/* Returns true if only root or we can replace our entries in this directory. */
static bool is_safe_parent(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
	       (st.st_uid == 0 || st.st_uid == geteuid()) &&
	       (!(st.st_mode & 022) || (st.st_mode & S_ISVTX));
}

/* Opens the user's preferred directory (0) or the fallback (1), and gets its path. Returns -1 if
 * the directory is missing, or if other users have access to it or can replace it. */
static int open_directory(unsigned which, bool make, char path[DIRECTORY_SIZE])
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (which == 0) {
		snprintf(path, DIRECTORY_SIZE, "/run/user/%u", (unsigned)geteuid());
		/* In a container any user may have created these directories. */
		if (!is_safe_parent("/run") || !is_safe_parent("/run/user") ||
			!is_safe_parent(path))
			return -1;
		snprintf(path, DIRECTORY_SIZE, "/run/user/%u/penstock", (unsigned)geteuid());
	} else {
		if (!is_safe_parent("/tmp"))
			return -1;
		snprintf(path, DIRECTORY_SIZE, "/tmp/penstock-%u", (unsigned)geteuid());
	}
	if (make)
		mkdir(path, 0700);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* In /tmp any user may have created the directory. */
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077))
		return -1;
	return take_fd(fd);
}

/* Builds the name of a socket. `hidden` selects the name that a socket has until it listens. */
static bool make_name(
	const char *directory, bool hidden, const char *address, struct sockaddr_un *name)
{
	struct stat ns;
	int n;

	if (stat("/proc/thread-self/ns/net", &ns) < 0)
		return false;
	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(name->sun_path, sizeof(name->sun_path), "%s/%s%llu-%s", directory,
		hidden ? "." : "", (unsigned long long)ns.st_ino, address);
	return n > 0 && (size_t)n < sizeof(name->sun_path);
}

static int make_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Returns 0 if a server listens, else errno. Does not block: a full backlog gives EAGAIN. */
static int try_name(const struct sockaddr_un *name)
{
	_cleanup_close_ int fd = make_socket();

	if (fd < 0 || connect(fd, (const struct sockaddr *)name, sizeof(*name)) < 0)
		return errno;
	return 0;
}

/* Other processes hold the lock only for a moment. A stopped process may hold the lock longer; do
 * not wait for such a process. */
static bool lock(int directory)
{
	for (unsigned attempts = 0; flock(directory, LOCK_EX | LOCK_NB) < 0; attempts++) {
		if (errno != EWOULDBLOCK || attempts == LOCK_ATTEMPTS)
			return false;
		clock_sleep_ms(LOCK_PAUSE_MS);
	}
	return true;
}

/* Removes the sockets of killed servers. The caller holds the lock, so that no socket is being
 * renamed meanwhile. */
static void sweep(int directory, const char *path)
{
	_cleanup_closedir_ DIR *dir = fs_list_at(directory, ".");
	const struct dirent *entry;

	while (dir && (entry = fs_next_entry(dir))) {
		struct sockaddr_un name = {.sun_family = AF_UNIX};
		int n = snprintf(
			name.sun_path, sizeof(name.sun_path), "%s/%s", path, entry->d_name);

		if (entry->d_type == DT_SOCK && n > 0 && (size_t)n < sizeof(name.sun_path) &&
			try_name(&name) == ECONNREFUSED)
			unlinkat(directory, entry->d_name, 0);
	}
}

static int listen_in(unsigned which, const char *address, struct sockaddr_un *name)
{
	char path[DIRECTORY_SIZE];
	struct sockaddr_un hidden;
	_cleanup_close_ int directory = open_directory(which, true, path);
	_cleanup_close_ int fd = -1;

	/* A socket on a file system shared by several machines looks dead from all machines but
	 * one. */
	if (directory < 0 || fs_is_network(path) || !make_name(path, true, address, &hidden) ||
		!make_name(path, false, address, name) || !lock(directory))
		return -1;
	sweep(directory, path);
	fd = make_socket();
	if (fd < 0 || bind(fd, (struct sockaddr *)&hidden, sizeof(hidden)) < 0)
		return -1;
	if (listen(fd, BACKLOG) < 0 || rename(hidden.sun_path, name->sun_path) < 0) {
		unlink(hidden.sun_path);
		return -1;
	}
	return take_fd(fd);
}

int near_listen(const struct sockaddr *address, struct sockaddr_un *name)
{
	char text[ADDRESS_SIZE];
	int fd;

	if (!format_address(address, text))
		return -1;
	fd = listen_in(0, text, name);
	return fd >= 0 ? fd : listen_in(1, text, name);
}

void near_unlink(const struct sockaddr_un *name)
{
	unlink(name->sun_path);
}

bool near_find(const struct sockaddr *address, struct sockaddr_un *name)
{
	char path[DIRECTORY_SIZE], text[ADDRESS_SIZE];

	if (!format_address(address, text))
		return false;
	for (unsigned which = 0; which < 2; which++) {
		_cleanup_close_ int directory = open_directory(which, false, path);

		if (directory >= 0 && make_name(path, false, text, name) && try_name(name) == 0)
			return true;
	}
	return false;
}

void near_tune(int fd)
{
	const int size = SEND_BUFFER;
	int domain = AF_UNSPEC;
	socklen_t len = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}
