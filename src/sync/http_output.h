/*
 * Output over HTTP: a single file is PUT to the URL; a directory with several files, or with links,
 * is packed into a zip, and the zip is PUT.
 *
 *	sync_http_output(engine, "https://host/upload/x", output_dir, tmp_dir, NULL, &reply, err);
 *
 * The body of the server's reply (often a download link) is returned. Nothing is sent if the
 * directory has neither files nor links. The zip holds directories, symbolic links, modes and
 * times; it is written to `tmp_dir` (created if missing) and removed again.
 */
#ifndef SYNC_HTTP_OUTPUT_H
#define SYNC_HTTP_OUTPUT_H

#include <stdatomic.h>

#include "base/buf.h"

struct http_engine;
struct penstock_error;

/* `reply` is an empty buffer, which receives as much of the body as its limit allows, or NULL.
 * `cancel` may be NULL. */
int sync_http_output(struct http_engine *engine, const char *url, const char *dir,
	const char *tmp_dir, const atomic_int *cancel, struct buf *reply,
	struct penstock_error *err);

#endif
