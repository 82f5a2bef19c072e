/* Keys printed by another program: credential_process of the AWS configuration. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "net/credentials/sources.h"
#include "net/credentials/credentials.h"

#define TIMEOUT_MS 60000

/* Prints the program's stderr with secrets masked. `last` also flushes text that may be the
 * beginning of a secret. */
static void show(struct buf *text, bool last)
{
	_cleanup_(buf_release) struct buf masked = BUF_INIT(2 * MIB);
	size_t taken = log_redact_stream(&masked, buf_str(text), text->len, last);

	fs_write_all(STDERR_FILENO, buf_str(&masked), masked.len);
	buf_consume(text, taken);
}

static int take_stderr(void *cookie, const char *data, size_t len, struct penstock_error *err)
{
	(void)err;
	if (buf_add(cookie, data, len) < 0)
		buf_clear(cookie); /* the whole text may be one secret */
	show(cookie, false);
	return 0;
}

static int run(
	const char *command, const atomic_int *cancel, struct buf *out, struct penstock_error *err)
{
	const char *const argv[] = {"/bin/sh", "-c", command, NULL};
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	int status = 0;
	int r = process_run(
		&(struct process_spec){
			.argv = argv, .stdin_fd = -1, .new_session = true, .die_with_parent = true},
		&(struct process_run_options){.name = "the command",
			.timeout_ms = TIMEOUT_MS,
			.cancel = cancel,
			.out.text = out,
			.err = {.take = take_stderr, .cookie = &text}},
		&status, err);

	show(&text, true);
	if (r == 0 && status != 0)
		r = error_set(err, PENSTOCK_E_PERMISSION, "the command failed with %s %d",
			WIFEXITED(status) ? "exit code" : "signal",
			WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	return r;
}

static int fetch(
	void *cookie, const atomic_int *cancel, struct credentials *out, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_METADATA_REPLY);
	int r = run(cookie, cancel, &text, err);

	if (r == 0)
		r = credentials_from_json(buf_str(&text), text.len, out, err);
	return r;
}

int credential_source_process(
	struct credentials_provider **out, const char *command, struct penstock_error *err)
{
	char *copy = strdup(command);

	if (!copy)
		return error_memory(err);
	return credentials_provider_new_fetcher(out,
		&(struct credentials_fetcher){.name = "the profile's credential_process",
			.fetch = fetch,
			.release = free,
			.cookie = copy},
		err);
}
