/*
 * A minimal server of durable PUTs, for bench/store_put.py: a thread for each connection reads a
 * body, writes it to a file and syncs the file. The server does not verify a signature, compute a
 * checksum or write an index.
 *
 *	bench-bare-puts DIRECTORY
 *
 * Prints the port of 127.0.0.1 on which it listens. After 32 files each thread replaces its oldest
 * file.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bare_file.h"

enum { HEAD = 16384, BODY = 16 << 20 };

static const char *directory;
static atomic_uint threads;

/* Reads until `data` has `wanted` bytes. Returns the number of bytes in `data`, which is less at
 * the end of the stream or after an error. */
static size_t fill(int fd, char *data, size_t have, size_t wanted, size_t room)
{
	while (have < wanted) {
		ssize_t n = read(fd, data + have, room - have);

		if (n <= 0)
			break;
		have += (size_t)n;
	}
	return have;
}

static void *serve(void *arg)
{
	static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
	unsigned thread = atomic_fetch_add(&threads, 1);
	int fd = (int)(long)arg;
	char *data = malloc(HEAD + BODY);
	size_t have = 0;

	for (unsigned at = 0; data; at++) {
		const char *end = NULL, *field;
		size_t size, head;

		while (!end && have < HEAD) {
			size_t before = have;

			have = fill(fd, data, have, have + 1, HEAD + BODY - 1);
			data[have] = '\0';
			end = strstr(data, "\r\n\r\n");
			if (have == before)
				break;
		}
		field = end ? strcasestr(data, "\r\nContent-Length:") : NULL;
		if (!field || field > end)
			break;
		head = (size_t)(end + 4 - data);
		size = strtoul(field + strlen("\r\nContent-Length:"), NULL, 10);
		have = fill(fd, data, have, head + size, head + size);
		if (have < head + size)
			break;
		bare_file_write(directory, thread, at, data + head, size);
		if (write(fd, reply, sizeof(reply) - 1) != (ssize_t)sizeof(reply) - 1)
			break;
		have = 0;
	}
	free(data);
	close(fd);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (argc != 2) {
		fprintf(stderr, "usage: bench-bare-puts DIRECTORY\n");
		return 64;
	}
	directory = argv[1];
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 1024) < 0 ||
		getsockname(fd, (struct sockaddr *)&at, &len) < 0)
		fail("listen");
	printf("%u\n", ntohs(at.sin_port));
	fflush(stdout);
	for (;;) {
		int connection = accept(fd, NULL, NULL);
		pthread_t id;

		if (connection < 0)
			continue;
		setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (pthread_create(&id, NULL, serve, (void *)(long)connection) == 0)
			pthread_detach(id);
	}
}
