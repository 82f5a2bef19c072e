/*
 * Output over HTTP: one file is PUT to the URL; several are zipped as output.zip and that is PUT.
 *
 *	sync_http_output(engine, "https://host/upload/x", output_dir, tmp_dir, NULL, &reply, err);
 *
 * The body that the server answers (often a download link) is given back. An empty directory sends
 * nothing. The zip holds directories, symbolic links, modes and times, and is written to `tmp_dir`
 * (created if missing) and removed again.
 */
#ifndef SYNC_HTTP_OUTPUT_H
#define SYNC_HTTP_OUTPUT_H

#include <stdatomic.h>

#include "base/buf.h"

struct http_engine;
struct penstock_error;

/* `reply` may be NULL; it gets as much as its limit allows. `cancel` may be NULL. */
int sync_http_output(struct http_engine *engine, const char *url, const char *dir,
	const char *tmp_dir, const atomic_int *cancel, struct buf *reply,
	struct penstock_error *err);

#endif
