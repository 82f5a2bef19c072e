/* The log of an attempt that was on another machine: brought here once, from beside the output. */
#ifndef CLI_LOGS_FETCH_H
#define CLI_LOGS_FETCH_H

struct penstock_error;
struct records_run;

/* Nothing where `path` is there already. PENSTOCK_E_NOT_FOUND: it is kept nowhere; the error says what would keep it. */
int logs_fetch(const char *home, const struct records_run *run, int attempt, const char *path,
	struct penstock_error *err);

#endif
