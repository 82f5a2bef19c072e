#include "run/stage/input.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/sum/checksum.h"
#include "transfer/http_fetch.h"

#define PROGRESS_EVERY_MS 100

/* ---- names ---- */

/* Returns the URL for display: without user, query (which may contain a signature) and fragment. */
static char *public_url(const char *url)
{
	const char *scheme = strstr(url, "://");
	const char *host = scheme ? scheme + 3 : url;
	size_t authority = strcspn(host, "/?#");
	const char *at = memrchr(host, '@', authority);
	const char *from = at ? at + 1 : host;

	return str_printf("%.*s%.*s", (int)(host - url), url, (int)strcspn(from, "?#"), from);
}

char *stage_local_path(const struct workflow *workflow, const char *path)
{
	const char *file = workflow->file, *slash = file ? strrchr(file, '/') : NULL;

	if (path[0] == '/' || !slash || strstr(file, "://"))
		return strdup(path);
	return str_printf("%.*s/%s", (int)(slash - file), file, path);
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

/* Computes the id, a digest of the input's values. A NUL before each value separates them. */
static int identify(struct stage_input *in, struct penstock_error *err)
{
	const struct workflow_input *w = in->input;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	const char *const parts[] = {or_empty(w->http_url.value), or_empty(in->local),
		w->s3.embedded				    ? "embedded"
		: w->s3.google && !w->s3.endpoint_url.value ? "gs"
							    : or_empty(w->s3.endpoint_url.value),
		or_empty(w->s3.bucket), or_empty(w->s3.prefix), or_empty(w->path.value),
		or_empty(w->sha256.value)};
	uint8_t digest[CHECKSUM_MAX_SIZE];
	int r;

	buf_printf(&text, "%d %d %d", (int)w->kind, w->unpack.value, w->unpack.given);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		buf_add_char(&text, '\0');
		buf_add_str(&text, parts[i]);
	}
	if (buf_failed(&text))
		return buf_error(&text, "an input's address", err);
	r = checksum_of(CHECKSUM_SHA256, text.data, text.len, digest, err);
	if (r == 0)
		str_hex(digest, 32, in->id);
	return r;
}

static int name_file(struct stage_input *in, const char *url, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_STRING);
	int r = http_fetch_name(url, &name);

	if (r < 0 || buf_failed(&name))
		return buf_error(&name, "an input's file name", err);
	in->file_name = buf_take(&name);
	return 0;
}

static int name_source(struct stage_input *in, struct penstock_error *err)
{
	const struct workflow_input *w = in->input;
	const char *path;
	struct stat st;

	switch (w->kind) {
	case WORKFLOW_HTTP:
		in->source = public_url(workflow_shown(&w->http_url));
		return in->source ? name_file(in, w->http_url.value, err) : error_memory(err);
	case WORKFLOW_S3:
		path = workflow_shown(&w->s3.path);
		in->source = str_printf(
			"%s%s%s", workflow_shown(&w->s3.bucket_url), *path == '/' ? "" : "/", path);
		return in->source ? 0 : error_memory(err);
	case WORKFLOW_LOCAL:
		in->local = stage_local_path(in->options->workflow, w->local_path.value);
		in->source = stage_local_path(
			in->options->workflow, workflow_shown(&w->local_path));
		if (!in->source || !in->local)
			return error_memory(err);
		if (stat(in->local, &st) == 0 && S_ISDIR(st.st_mode))
			return 0;
		/* A missing file also needs a name; the error is reported later. */
		const char *slash = strrchr(in->local, '/');
		in->file_name = strdup(slash && slash[1] ? slash + 1 : in->local);
		return in->file_name ? 0 : error_memory(err);
	default:
		return error_set(err, PENSTOCK_E_INTERNAL, "an input without a transport");
	}
}

int stage_input_init(struct stage_input *in, const struct stage_options *options, size_t index,
	struct penstock_error *err)
{
	const struct workflow_input *w = &options->workflow->inputs[index];
	int r;

	*in = (struct stage_input){.options = options, .input = w, .index = index};
	r = name_source(in, err);
	if (r == 0)
		r = identify(in, err);
	if (r == 0) {
		in->dir = w->path.value && w->path.value[0]
				  ? path_join(options->layout->input, w->path.value)
				  : strdup(options->layout->input);
		in->fetch_dir = str_printf("%s/stage-%.16s", options->layout->state, in->id);
		if (!in->dir || !in->fetch_dir)
			r = error_memory(err);
	}
	if (r < 0)
		stage_input_release(in);
	return r;
}

void stage_input_release(struct stage_input *in)
{
	free(in->source);
	free(in->dir);
	free(in->file_name);
	free(in->fetch_dir);
	free(in->local);
	in->source = in->dir = in->file_name = in->fetch_dir = in->local = NULL;
}

/* ---- progress and space ---- */

void stage_input_report(struct stage_input *in)
{
	const struct stage_options *o = in->options;
	int64_t done = atomic_load(&in->done);

	if (o->progress)
		o->progress(o->cookie, in->source, done > 0 ? (uint64_t)done : 0,
			atomic_load(&in->total));
}

void stage_input_moved(struct stage_input *in, int64_t bytes)
{
	int64_t last = atomic_load(&in->reported_ms), now = clock_monotonic_ms();

	atomic_fetch_add(&in->done, bytes);
	if (now - last >= PROGRESS_EVERY_MS &&
		atomic_compare_exchange_strong(&in->reported_ms, &last, now))
		stage_input_report(in);
}

int stage_input_reserve(struct stage_input *in, uint64_t bytes, struct penstock_error *err)
{
	char need[STR_SIZE_SIZE], have[STR_SIZE_SIZE];
	long long left;

	if (bytes > INT64_MAX / 2)
		bytes = INT64_MAX / 2;
	left = atomic_fetch_sub(in->space, (long long)bytes);
	if (left >= (long long)bytes)
		return 0;
	atomic_fetch_add(in->space, (long long)bytes);
	str_format_size(bytes, need);
	str_format_size(left > 0 ? (uint64_t)left : 0, have);
	return error_set(err, PENSTOCK_E_NO_SPACE,
		"cannot store the inputs in '%s': %s needed, %s free; free some space, or set "
		"PENSTOCK_HOME to a larger disk",
		in->options->layout->input, need, have);
}
