#include "cli/history/names.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "cli/print/util.h"
#include "records/records.h"

struct listing {
	cli_name_fn *fn;
	void *cookie;
	struct strlist names; /* a name may have many runs */
};

static int each_run(void *cookie, const struct records_run *run)
{
	struct listing *l = cookie;
	const char *state = run_state_name(run->last.state);

	l->fn(l->cookie, run->id, run->name ? run->name : state);
	for (size_t i = 0; run->name && i < l->names.n; i++) {
		if (strcmp(l->names.items[i], run->name) == 0)
			return 0;
	}
	if (run->name && strlist_add(&l->names, run->name) == 0)
		l->fn(l->cookie, run->name, state);
	return 0;
}

static void each_tag(const char *home, bool colon, struct listing *l)
{
	_cleanup_free_ char *path = path_join(home, "tags");
	_cleanup_closedir_ DIR *dir = path ? opendir(path) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		size_t len = strlen(entry->d_name);
		_cleanup_free_ char *tag = NULL;

		if (!str_ends(entry->d_name, ".json"))
			continue;
		tag = str_printf("%s%.*s", colon ? ":" : "", (int)(len - 5), entry->d_name);
		if (tag)
			l->fn(l->cookie, tag, "tag");
	}
}

void history_names(enum cli_names kind, cli_name_fn *fn, void *cookie)
{
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_free_ char *home = NULL;
	_cleanup_free_ char *db = NULL;
	struct listing l = {fn, cookie, {0}};

	if (records_home(&home, NULL) < 0 || !(db = path_join(home, "runs.db")) ||
		access(db, R_OK) < 0)
		return;
	if (kind != CLI_NAMES_RUNS)
		each_tag(home, kind == CLI_NAMES_COLON_TAGS, &l);
	else if (show_open(&records, NULL, NULL) == 0)
		records_list(records, each_run, &l, NULL);
	strlist_release(&l.names);
}
