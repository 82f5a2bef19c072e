/* Shared by the files of src/ui. */
#ifndef UI_INTERNAL_H
#define UI_INTERNAL_H

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/str.h"

#include <penstock/error.h>

#define UI_SECRET_SIZE 65 /* 64 hexadecimal digits and NUL */

struct log_cache;
struct outputs;
struct upload_part;

struct ui {
	char *home;
	bool read_only;
	struct strlist hosts;
	char token[UI_SECRET_SIZE]; /* part of the link */
	char session[UI_SECRET_SIZE]; /* value of the cookie */
	/* name of the cookie, which is unique because all ports of a host share cookies */
	char cookie[24];
	char *url;
	struct outputs *outputs;
	struct log_cache *logs;
	struct MHD_Daemon *daemon;
	atomic_int stopping;
};

/* A request, from its first line to the end of its reply; used by one thread. */
struct exchange {
	struct ui *ui;
	struct MHD_Connection *connection;
	const char *method, *path;
	struct upload_part *part; /* receives the body; NULL if it is ignored */
	bool has_body; /* a piece of the body has arrived */
	struct penstock_error refusal; /* error from opening the part when the body started */
	char *warning; /* percent-encoded, for X-Penstock-Warning; NULL if missing */
	/* number of places whose runs are missing in the reply, for X-Penstock-Unreadable */
	size_t unreadable;
};

/* Answers requests below /api; routes.c. */
enum MHD_Result ui_route(struct exchange *x);

#endif
