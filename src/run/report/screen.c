#include "run/report/screen.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/limits.h"

#define NOTE "penstock: the terminal is slow: %" PRIu64 " kB of output are in the log only\n"

bool screen_open(struct screen *screen, int fd)
{
	*screen = (struct screen){.fd = -1};
	if (fd < 0 || !isatty(fd))
		return false;
	/* O_NONBLOCK on `fd` itself would also affect the shell, which shares the open file. */
	screen->fd = open(fs_fd_path(fd).text, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	buf_init(&screen->text, 2 * (size_t)LIMIT_SCREEN);
	return screen->fd >= 0;
}

void screen_release(struct screen *screen)
{
	if (screen->fd >= 0)
		close(screen->fd);
	buf_release(&screen->text);
	screen->fd = -1;
}

static bool is_behind(const struct screen *screen)
{
	return screen->fd >= 0 && screen->text.len > 0;
}

/* Keeps the line that is being shown and the last LIMIT_SCREEN / 2 bytes, with a note between
 * them. */
static void skip(struct screen *screen)
{
	const char *begin = buf_str(&screen->text), *end = begin + screen->text.len;
	const char *shown = memchr(begin, '\n', screen->text.len);
	const char *kept = end - LIMIT_SCREEN / 2;
	const char *line = memchr(kept, '\n', (size_t)(end - kept));
	struct buf text = BUF_INIT(2 * (size_t)LIMIT_SCREEN);

	shown = shown && shown < kept ? shown + 1 : begin;
	kept = line ? line + 1 : kept;
	screen->skipped += (uint64_t)(kept - shown);
	buf_add(&text, begin, (size_t)(shown - begin));
	buf_printf(&text, NOTE, screen->skipped / 1000);
	buf_add(&text, kept, (size_t)(end - kept));
	buf_release(&screen->text);
	screen->text = text;
}

void screen_flush(struct screen *screen)
{
	while (is_behind(screen)) {
		ssize_t n = write(screen->fd, screen->text.data, screen->text.len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) { /* the terminal was closed */
			screen_release(screen);
			return;
		}
		buf_consume(&screen->text, (size_t)n);
		screen->stuck = false;
	}
}

struct pollfd screen_poll(const struct screen *screen)
{
	return (struct pollfd){is_behind(screen) ? screen->fd : -1, POLLOUT, 0};
}

void screen_settle(struct screen *screen, int ms)
{
	int64_t until = clock_monotonic_ms() + ms;
	int64_t left;

	while (!screen->stuck && is_behind(screen)) {
		struct pollfd p = screen_poll(screen);

		left = until - clock_monotonic_ms();
		if (left <= 0 || poll(&p, 1, (int)left) == 0)
			screen->stuck = true;
		screen_flush(screen);
	}
}

void screen_put(struct screen *screen, const char *data, size_t len)
{
	while (len && screen->fd >= 0) {
		size_t piece = len < LIMIT_SCREEN ? len : LIMIT_SCREEN;

		buf_add(&screen->text, data, piece);
		if (buf_failed(&screen->text))
			buf_clear(&screen->text);
		screen_flush(screen);
		if (screen->text.len > LIMIT_SCREEN)
			skip(screen);
		data += piece;
		len -= piece;
	}
}
