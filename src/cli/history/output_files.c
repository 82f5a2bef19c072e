#include "cli/history/output_files.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "transfer/output_keys.h"

void output_files_release(struct output_files *files)
{
	for (size_t i = 0; i < files->n; i++)
		free(files->newest[i].path);
	*files = (struct output_files){0};
}

static int add(struct output_files *out, const char *path, uint64_t size, int64_t modified_ns)
{
	size_t at = out->n;
	char *copy;

	out->total++;
	out->bytes += size;
	while (at > 0 && out->newest[at - 1].modified_ns < modified_ns)
		at--;
	if (at == OUTPUT_FILES)
		return 0;
	copy = strdup(path);
	if (!copy)
		return -1;
	if (out->n == OUTPUT_FILES)
		free(out->newest[--out->n].path);
	memmove(&out->newest[at + 1], &out->newest[at], (out->n - at) * sizeof(out->newest[0]));
	out->newest[at] = (struct output_file){copy, size, modified_ns};
	out->n++;
	return 0;
}

struct listing {
	struct output_files *out;
	size_t prefix;
	struct output_keys keys;
	bool no_memory;
};

static int on_object(void *cookie, const struct object_info *info)
{
	struct listing *l = cookie;
	const char *path = info->key + l->prefix;

	if (output_keys_take(&l->keys, path) && *path)
		l->no_memory = add(l->out, path, info->size, info->modified_ns) < 0;
	return l->no_memory;
}

int output_files_in_store(struct output_files *out, struct object_ref at, const atomic_int *cancel,
	struct penstock_error *err)
{
	struct listing l = {.out = out, .prefix = strlen(at.key)};
	int r = object_list(at, NULL, on_object, &l, cancel, err);

	return r == 0 && l.no_memory ? error_memory(err) : r;
}

int output_files_in_dir(struct output_files *out, const char *dir, struct penstock_error *err)
{
	char *const paths[] = {(char *)dir, NULL};
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	const size_t len = strlen(dir) + 1;
	FTSENT *e;
	int r = 0;

	if (!fts)
		return error_errno(err, errno, "cannot list '%s'", dir);
	while (r == 0 && (e = fts_read(fts))) {
		const struct stat *st = e->fts_statp;

		if (e->fts_info == FTS_F && e->fts_pathlen > len)
			r = add(out, e->fts_path + len, (uint64_t)st->st_size,
				st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec);
	}
	fts_close(fts);
	return r < 0 ? error_memory(err) : 0;
}
