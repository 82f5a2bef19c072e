/*
 * The page of `penstock ui`: an HTTP server for the browsers of this user.
 *
 *	r = ui_start(&ui, &(struct ui_options){.home = home, .address = "127.0.0.1"}, err);
 *	if (r < 0)
 *		return r;
 *	printf("open %s\n", ui_url(ui));
 *	...
 *	ui_stop(ui);
 *
 * Most requests of the page run a verb of this program and return what the verb prints, so the page
 * shows what the verbs show, and an action on the page is a verb. Logs are read directly.
 *
 * The URL has a token. GET /?token=TOKEN sets a cookie that all requests below /api need; guard.h
 * has the other conditions.
 */
#ifndef UI_UI_H
#define UI_UI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct penstock_error;
struct ui;

struct ui_options {
	const char *home; /* home of the runs; borrowed, like all members */
	const char *address; /* an IPv4 or IPv6 address, without brackets */
	uint16_t port; /* 0 for a free port */
	bool read_only; /* refuse requests that change runs or objects */
	/* names of this host in URLs, in addition to localhost and the host name */
	const struct strlist *hosts;
	const struct strlist *outputs; /* places with runs of other machines to show */
};

int ui_start(struct ui **out, const struct ui_options *options, struct penstock_error *err);
/* Returns "http://127.0.0.1:8265/?token=…". */
const char *ui_url(const struct ui *ui);
/* Stops the server, and ends the verbs of requests in progress. `ui` may be NULL. */
void ui_stop(struct ui *ui);

#endif
