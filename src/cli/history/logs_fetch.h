/* Fetches the log of an attempt on another machine, once, from the place of the output. */
#ifndef CLI_HISTORY_LOGS_FETCH_H
#define CLI_HISTORY_LOGS_FETCH_H

struct penstock_error;
struct records_run;

/* Does nothing if `path` exists. Fails with PENSTOCK_E_NOT_FOUND if the log was not kept; the error
 * names the option that keeps it. */
int logs_fetch(const char *home, const struct records_run *run, int attempt, const char *path,
	struct penstock_error *err);

#endif
