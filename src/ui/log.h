/*
 * Logs of runs, read in pieces: a browser shows a log of any length without fetching all of it.
 *
 *	GET /api/log?run=3f2a91c05d7e&attempt=2&offset=-4096
 *		the last bytes, with the headers X-Log-Size, X-Log-Offset (of the first byte) and
 *		X-Log-Live (1 if the log may grow). With wait=1 the reply comes when there is a byte
 *		at the offset, when the log has ended, or after 20 s.
 *	GET /api/log-lines?run=…&attempt=2
 *		{"size", "lines", "every", "offsets"}: the place of every `every`-th line
 *	GET /api/log-search?run=…&attempt=2&text=loss&offset=0
 *		{"matches": [{"offset", "line"}], "next": offset or null}
 *
 * The log of an attempt on another machine is fetched first, by `penstock logs`.
 */
#ifndef UI_LOG_H
#define UI_LOG_H

#include "ui/internal.h"

struct penstock_error;

int log_cache_init(struct ui *ui, struct penstock_error *err);
/* `cache` may be NULL. */
void log_cache_free(struct log_cache *cache);

enum MHD_Result log_bytes(struct exchange *x);
enum MHD_Result log_lines(struct exchange *x);
enum MHD_Result log_search(struct exchange *x);

#endif
