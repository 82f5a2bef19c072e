/*
 * Measures the least cost of moving files between two processes of one machine: without HTTP,
 * signatures, checksums or a database. No client and server together can be faster.
 *
 *	ls SOURCE/... | bare-copies up|down TARGET
 *
 * One process sends the files over a Unix socket, one at a time; the other process writes each file
 * to TARGET and replies. With "up", the sender reads the bytes, as a client must for a checksum;
 * with "down", the sender uses sendfile(), as a server does. The figure is the processor time of
 * both processes.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE ((size_t)256 << 10)

static char piece[PIECE];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void move_all(int fd, char *data, size_t len, int sending)
{
	while (len) {
		ssize_t n = sending ? write(fd, data, len) : recv(fd, data, len, 0);

		if (n <= 0)
			fail("socket");
		data += n;
		len -= (size_t)n;
	}
}

static void send_file(int to, const char *path, int copy)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint64_t left;
	char reply;

	if (fd < 0 || fstat(fd, &st) < 0)
		fail(path);
	left = (uint64_t)st.st_size;
	move_all(to, (char *)&left, sizeof(left), 1);
	while (left) {
		size_t want = left < PIECE ? (size_t)left : PIECE;
		ssize_t n = copy ? read(fd, piece, want) : sendfile(to, fd, NULL, want);

		if (n <= 0)
			fail(path);
		if (copy)
			move_all(to, piece, (size_t)n, 1);
		left -= (uint64_t)n;
	}
	close(fd);
	move_all(to, &reply, 1, 0);
}

static void receive_files(int from, const char *folder)
{
	char path[4096], reply = 1;
	uint64_t left;

	for (unsigned number = 0; recv(from, &left, sizeof(left), MSG_WAITALL) == sizeof(left);
		number++) {
		int fd;

		snprintf(path, sizeof(path), "%s/%u", folder, number);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0)
			fail(path);
		while (left) {
			size_t n = left < PIECE ? (size_t)left : PIECE;

			move_all(from, piece, n, 0);
			if (write(fd, piece, n) != (ssize_t)n)
				fail(path);
			left -= n;
		}
		close(fd);
		move_all(from, &reply, 1, 1);
	}
}

int main(int argc, char **argv)
{
	char path[4096];
	int ends[2], status, copy;
	pid_t child;

	if (argc != 3 || (strcmp(argv[1], "up") != 0 && strcmp(argv[1], "down") != 0)) {
		fprintf(stderr, "usage: bare-copies up|down TARGET < NAMES\n");
		return 64;
	}
	copy = strcmp(argv[1], "up") == 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		fail("socketpair");
	child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		close(ends[0]);
		receive_files(ends[1], argv[2]);
		_exit(0);
	}
	close(ends[1]);
	while (fgets(path, sizeof(path), stdin)) {
		path[strcspn(path, "\n")] = '\0';
		send_file(ends[0], path, copy);
	}
	close(ends[0]);
	if (waitpid(child, &status, 0) != child || status != 0)
		fail("the receiver");
	return 0;
}
