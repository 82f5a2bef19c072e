#include "cli/print/full_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/frame/interrupt.h"

/* Control sequences of ECMA-48 and of xterm. */
#define OTHER_PAGE  "\033[?1049h\033[?25l" /* also hides the cursor */
#define FIRST_PAGE  "\033[?25h\033[?1049l"
#define BEGIN_FRAME "\033[?2026h\033[H\033[2J" /* supporting terminals show a frame at once */
#define END_FRAME   "\033[?2026l"

static struct {
	bool on, restores;
	struct termios before;
} page;

static void resized(int signal)
{
	(void)signal; /* the handler exists only to interrupt poll() */
}

int full_screen_begin(void)
{
	static char room[1 << 16];
	struct sigaction action = {.sa_handler = resized};
	struct termios keys;

	if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &page.before) < 0)
		return -1;
	cli_watch_signals();
	sigaction(SIGWINCH, &action, NULL);
	keys = page.before;
	keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	/* Disable Ctrl-Z and Ctrl-\, which would not restore the terminal. */
	keys.c_cc[VSUSP] = keys.c_cc[VQUIT] = _POSIX_VDISABLE;
	keys.c_cc[VMIN] = 1;
	keys.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &keys);
	page.on = true;
	if (!page.restores) {
		atexit(full_screen_end);
		setvbuf(stdout, room, _IOFBF, sizeof(room));
	}
	page.restores = true;
	fputs(OTHER_PAGE, stdout);
	return 0;
}

void full_screen_draw(void)
{
	fputs(BEGIN_FRAME, stdout);
}

void full_screen_end(void)
{
	if (!page.on)
		return;
	page.on = false;
	fputs(FIRST_PAGE, stdout);
	fflush(stdout);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &page.before);
}

unsigned full_screen_height(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row ? size.ws_row : 24;
}

int full_screen_key(int ms)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	char keys[8] = {0};
	ssize_t n;

	fputs(END_FRAME, stdout);
	fflush(stdout);
	if (cli_interrupted())
		return FULL_SCREEN_END;
	if (poll(&input, 1, ms) <= 0)
		return cli_interrupted() ? FULL_SCREEN_END : FULL_SCREEN_NONE;
	n = read(STDIN_FILENO, keys, 1);
	/* Read the rest of an escape sequence, which arrives together with its first byte. */
	if (n == 1 && *keys == '\033' && poll(&input, 1, 0) == 1)
		n += read(STDIN_FILENO, keys + 1, sizeof(keys) - 2) > 0;
	if (n <= 0)
		return n < 0 && errno == EINTR && !cli_interrupted() ? FULL_SCREEN_NONE
								     : FULL_SCREEN_END;
	if (str_starts(keys, "\033[A") || str_starts(keys, "\033OA"))
		return FULL_SCREEN_UP;
	if (str_starts(keys, "\033[B") || str_starts(keys, "\033OB"))
		return FULL_SCREEN_DOWN;
	return *keys == '\033' ? FULL_SCREEN_NONE : (unsigned char)*keys;
}
