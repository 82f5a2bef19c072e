/*
 * The files of the page, which are part of this program, compressed by gzip. Clients that do not
 * accept gzip get them decompressed.
 *
 *	return page_reply(x);	// x->path is "/", "/app.js", …
 */
#ifndef UI_PAGE_H
#define UI_PAGE_H

#include "ui/internal.h"

enum MHD_Result page_reply(struct exchange *x);

#endif
