#include "run/notices/settings.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "run/config/times.h"
#include "run/config/user_limits.h"
#include "workflow/document/document.h"
#include "workflow/workflow.h"

static void fill_text(struct workflow_text *to, const struct workflow_text *from)
{
	if (!to->value)
		*to = *from;
}

static void fill_number(struct workflow_number *to, const struct workflow_number *from)
{
	if (!to->given)
		*to = *from;
}

static int read_file(struct notice_settings *out, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	_cleanup_(buf_release) struct buf mistake = BUF_INIT(LIMIT_LOG_LINE);
	struct workflow_preemption preemption = {0};
	struct diagnostics found = {0};
	const char *name = workflow_arena_copy(&out->arena, path, strlen(path));
	struct node *root;
	struct node *map;
	int r;

	if (access(path, F_OK) < 0)
		return 0;
	if (!name)
		return error_memory(err);
	r = fs_read(path, &text, err);
	if (r < 0 || text.len == 0)
		return r;
	root = document_read(&out->arena, name, buf_str(&text), text.len, &found);
	map = root && root->kind == NODE_MAP ? node_get(root, "preemption") : NULL;
	if (map)
		workflow_read_preemption(&out->arena, name, map, &preemption, &found);
	if (out->arena.no_memory)
		r = error_memory(err);
	else if (found.n && diagnostic_format(&found.items[0], &mistake) == 0)
		r = error_set(err, PENSTOCK_E_INVALID, "%s", buf_str(&mistake));
	diagnostics_release(&found);
	if (r == 0) {
		/* Fill in missing values. */
		if (!out->preemption.sources_given && preemption.sources_given) {
			out->preemption.sources_given = true;
			out->preemption.sources = preemption.sources;
			out->preemption.n_sources = preemption.n_sources;
		}
		if (!out->preemption.signal_given && preemption.signal_given) {
			out->preemption.signal_given = true;
			out->preemption.signal = preemption.signal;
		}
		fill_number(&out->preemption.grace, &preemption.grace);
		fill_number(&out->preemption.reserve, &preemption.reserve);
		fill_text(&out->preemption.gcp, &preemption.gcp);
		fill_text(&out->preemption.aws, &preemption.aws);
		fill_text(&out->preemption.azure, &preemption.azure);
	}
	return r;
}

/* Reads the sources from $PENSTOCK_PREEMPTION_SOURCES, if neither the workflow nor a file names
 * any. */
static int read_environment(struct notice_settings *out, struct penstock_error *err)
{
	const char *names = getenv("PENSTOCK_PREEMPTION_SOURCES");
	struct workflow_preemption *p = &out->preemption;
	char *rest, *name;

	if (!names || p->sources_given)
		return 0;
	p->sources_given = true;
	p->sources = workflow_arena_array(&out->arena, strlen(names) / 2 + 1, sizeof(*p->sources));
	rest = workflow_arena_copy(&out->arena, names, strlen(names));
	if (!p->sources || !rest)
		return error_memory(err);
	while ((name = strsep(&rest, ","))) {
		size_t k = 0;

		if (!*name || strcmp(name, "none") == 0)
			continue;
		while (workflow_notice_words[k] && strcmp(name, workflow_notice_words[k]) != 0)
			k++;
		if (!workflow_notice_words[k])
			return error_set(err, PENSTOCK_E_INVALID,
				"invalid PENSTOCK_PREEMPTION_SOURCES: '%s' is not auto, gcp, aws, "
				"azure or none",
				name);
		p->sources[p->n_sources++].kind = (enum workflow_notice_kind)k;
	}
	return 0;
}

int notice_settings_read(struct notice_settings *out, const struct workflow_preemption *workflow,
	struct penstock_error *err)
{
	_cleanup_free_ char *own = user_config_path();
	int r;

	*out = (struct notice_settings){.preemption = *workflow};
	if (!own)
		return error_memory(err);
	r = read_file(out, own, err);
	if (r == 0)
		r = read_file(out, system_config_path(), err);
	return r < 0 ? r : read_environment(out, err);
}

void notice_settings_release(struct notice_settings *settings)
{
	workflow_arena_release(&settings->arena);
}

int64_t notice_settings_grace_ms(const struct notice_settings *settings)
{
	const struct workflow_number *given = &settings->preemption.grace;

	if (stop_grace_given_ms() >= 0)
		return stop_grace_given_ms() ? stop_grace_given_ms() : 1;
	return given->given ? given->value : STOP_GRACE_DEFAULT_MS;
}
