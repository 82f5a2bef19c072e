#include "cli/print/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/clock.h"

#define WAIT_MS 2000

/* Protected by the lock of the new stderr, which stdio holds while it calls put(). */
static struct {
	int fd; /* does not block */
	bool stuck; /* the last wait timed out */
} terminal = {.fd = -1};

/* Always reports success: a failure would only set the error flag of the stream. */
static ssize_t put(void *cookie, const char *data, size_t len)
{
	int64_t until = clock_monotonic_ms() + WAIT_MS;

	(void)cookie;
	for (size_t done = 0; done < len;) {
		struct pollfd p = {terminal.fd, POLLOUT, 0};
		ssize_t n = write(terminal.fd, data + done, len - done);
		int64_t left = until - clock_monotonic_ms();

		if (n > 0) {
			done += (size_t)n;
			terminal.stuck = false;
			continue;
		}
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			break;
		if (terminal.stuck || left <= 0 || poll(&p, 1, (int)left) == 0) {
			terminal.stuck = true;
			break;
		}
	}
	return (ssize_t)len;
}

void terminal_never_blocks(void)
{
	FILE *stream;

	if (terminal.fd >= 0 || !isatty(STDERR_FILENO))
		return;
	/* O_NONBLOCK on the inherited descriptor would also apply to the shell. */
	terminal.fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	stream = terminal.fd < 0 ? NULL
				 : fopencookie(NULL, "w", (cookie_io_functions_t){.write = put});
	if (!stream || setvbuf(stream, NULL, _IONBF, 0) != 0)
		return;
	stderr = stream;
}
