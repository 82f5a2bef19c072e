#include "ui/ui.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "server/monitor/listen.h"
#include "ui/guard.h"
#include "ui/internal.h"
#include "ui/log.h"
#include "ui/outputs.h"
#include "ui/page.h"
#include "ui/answer.h"
#include "ui/upload.h"

/* ---- requests ---- */

static enum MHD_Result dispatch(struct exchange *x)
{
	const char *token = param(x, "token");

	if (str_starts(x->path, "/api/"))
		return ui_route(x);
	if (strcmp(x->path, "/") == 0 && token)
		return guard_login(x, token);
	return page_reply(x);
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *connection, const char *path,
	const char *method, const char *version, const char *data, size_t *len, void **con_cls)
{
	struct exchange *x = *con_cls;
	const char *reason = NULL;
	unsigned status;

	(void)version;
	if (!x) {
		x = calloc(1, sizeof(*x));
		if (!x)
			return MHD_NO;
		*con_cls = x;
		*x = (struct exchange){
			.ui = cls, .connection = connection, .method = method, .path = path};
		status = guard_check(x, &reason);
		return status ? answer_error(x, status, "%s", reason) : MHD_YES;
	}
	x->method = method;
	x->path = path;
	if (*len) {
		if (strcmp(method, "PUT") == 0)
			upload_part_add(x, data, *len);
		*len = 0;
		return MHD_YES;
	}
	return dispatch(x);
}

static void completed(void *cls, struct MHD_Connection *connection, void **con_cls,
	enum MHD_RequestTerminationCode code)
{
	struct exchange *x = *con_cls;

	(void)cls;
	(void)connection;
	(void)code;
	if (x) {
		upload_part_free(x->part);
		penstock_error_release(&x->refusal);
		free(x->warning);
	}
	free(x);
	*con_cls = NULL;
}

/* ---- start and stop ---- */

static int start(struct ui *ui, const struct ui_options *options, struct penstock_error *err)
{
	_cleanup_close_ int fd = listen_on(options->address, options->port, err);
	_cleanup_free_ char *url = NULL;
	int r = fd < 0 ? fd : listen_url(fd, "http", &url, err);

	if (r < 0)
		return r;
	ui->url = str_printf("%s/?token=%s", url, ui->token);
	if (!ui->url)
		return error_memory(err);
	/* Each connection has a thread, because requests wait for verbs; browsers open only a few
	 * connections. */
	ui->daemon = MHD_start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0,
		NULL, NULL, handle, ui, MHD_OPTION_LISTEN_SOCKET, take_fd(fd),
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)LIMIT_UI_CONNECTIONS,
		MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)LIMIT_UI_VISITOR,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)LIMIT_UI_SECONDS,
		MHD_OPTION_NOTIFY_COMPLETED, completed, NULL, MHD_OPTION_END);
	return ui->daemon
		       ? 0
		       : error_set(err, PENSTOCK_E_IO, "cannot start the HTTP server of the page");
}

int ui_start(struct ui **out, const struct ui_options *options, struct penstock_error *err)
{
	struct ui *ui = calloc(1, sizeof(*ui));
	int r;

	if (!ui)
		return error_memory(err);
	ui->read_only = options->read_only;
	r = str_copy(&ui->home, options->home) ? guard_init(ui, err) : error_memory(err);
	for (size_t i = 0; r == 0 && options->hosts && i < options->hosts->n; i++)
		r = strlist_add(&ui->hosts, options->hosts->items[i]) < 0 ? error_memory(err) : 0;
	if (r == 0)
		r = outputs_init(ui, options->outputs, err);
	if (r == 0)
		r = log_cache_init(ui, err);
	if (r == 0)
		r = start(ui, options, err);
	if (r < 0) {
		ui_stop(ui);
		return r;
	}
	*out = ui;
	return 0;
}

const char *ui_url(const struct ui *ui)
{
	return ui->url;
}

void ui_stop(struct ui *ui)
{
	if (!ui)
		return;
	atomic_store(&ui->stopping, 1);
	if (ui->daemon)
		MHD_stop_daemon(ui->daemon);
	outputs_free(ui->outputs);
	log_cache_free(ui->logs);
	strlist_release(&ui->hosts);
	str_wipe(ui->url);
	free(ui->home);
	free(ui);
}
