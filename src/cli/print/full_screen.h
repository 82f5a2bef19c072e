/*
 * A page that fills the terminal and is redrawn repeatedly, and that reads single keys.
 *
 *	if (full_screen_begin() < 0)
 *		return 64;
 *	do {
 *		full_screen_draw();	// everything printed from here on is on an empty page
 *		puts("3 runs");
 *		key = full_screen_key(1000);
 *	} while (key != 'q' && key != FULL_SCREEN_END);
 *	full_screen_end();
 *
 * SIGINT, SIGTERM and SIGHUP end the wait for a key; cli_interrupted() then returns the signal. If
 * full_screen_end() was not called, the original page is restored at exit.
 */
#ifndef CLI_PRINT_FULL_SCREEN_H
#define CLI_PRINT_FULL_SCREEN_H

enum {
	FULL_SCREEN_NONE = 0, /* no key, or the size of the terminal has changed */
	FULL_SCREEN_END = -1, /* a signal, or the end of the input */
	FULL_SCREEN_UP = -2,
	FULL_SCREEN_DOWN = -3,
};

/* Switches the terminal to another page, and to input of single keys. Returns -1 if stdin or stdout
 * is not a terminal. */
int full_screen_begin(void);
void full_screen_draw(void);
/* Shows the page, and waits for a key, up to `ms`, or without a limit if `ms` is -1. */
int full_screen_key(int ms);
/* Restores the original page, either at the end or while another program uses the terminal. After
 * the other program has ended, call full_screen_begin() again. */
void full_screen_end(void);
/* Returns the number of lines. */
unsigned full_screen_height(void);

#endif
