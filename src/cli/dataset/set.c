#include "cli/dataset/set.h"

#include <string.h>

#include "base/limits.h"
#include "cli/frame/interrupt.h"
#include "net/credentials/credentials.h"

static bool read_number(const struct cli *cli, const char *name, uint64_t *out)
{
	int64_t value;

	if (!cli_number(cli, name, 0, INT64_MAX, 0, &value))
		return false;
	*out = (uint64_t)value;
	return true;
}

int set_options(struct set_operand *in, const struct cli *cli, const char *format)
{
	struct dataset_options *o = &in->options;
	const char *dtype = cli_value(cli, "dtype");

	in->cli = cli;
	o->format = cli_value(cli, format);
	if (dtype)
		o->dtype = dtype_find(dtype, strlen(dtype));
	if (!read_number(cli, "record-size", &o->record_size) ||
		!read_number(cli, "header", &o->header) ||
		!read_number(cli, "trailer", &o->trailer) ||
		!read_number(cli, "window", &o->window) || !read_number(cli, "stride", &o->stride))
		return CLI_EXIT_USAGE;
	o->place.cancel = cli_watch_signals();
	return 0;
}

static int open_client(
	void *cookie, bool google, struct object_client **out, struct penstock_error *err)
{
	struct set_operand *in = cookie;
	const struct remote *target = in->target;
	bool elsewhere = target && remote_has_source(in->cli);
	int r = 0;

	if (target && target->client && !elsewhere &&
		object_client_settings(target->client)->google == google) {
		*out = target->client;
		return 0;
	}
	if (!in->remote.client && elsewhere)
		r = remote_open_source(&in->remote, target, in->cli, google, err);
	else if (!in->remote.client)
		r = remote_open_scheme(&in->remote, in->cli, google, err);
	*out = in->remote.client;
	return r;
}

static int open_web(void *cookie, struct http_engine **out, struct penstock_error *err)
{
	struct set_operand *in = cookie;
	int r = in->remote.engine ? 0 : remote_open_engine(&in->remote, err);

	*out = in->remote.engine;
	return r;
}

int set_open(struct set_operand *in, const char *url, struct penstock_error *err)
{
	in->options.place.url = url;
	in->options.place.open = open_client;
	in->options.place.open_web = open_web;
	in->options.place.cookie = in;
	return dataset_open(&in->set, &in->options, err);
}

int set_fail(const struct cli *cli, struct penstock_error *err)
{
	enum penstock_code code = (enum penstock_code)err->code;
	int exit_code = remote_fail(cli, err);

	if (cli_interrupted())
		return exit_code;
	return code == PENSTOCK_E_CORRUPT || code == PENSTOCK_E_CHANGED ||
			       code == PENSTOCK_E_UNSUPPORTED || code == PENSTOCK_E_LIMIT
		       ? CLI_EXIT_INPUT
		       : exit_code;
}

void set_release(struct set_operand *in)
{
	dataset_free(in->set);
	remote_release(&in->remote);
	in->set = NULL;
}
