#include "run/workdir/code_store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive/pack.h"
#include "archive/tree.h"
#include "archive/unpack.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/owner/lease.h"

/* Names of the metadata. */
#define DIGEST	"penstock-context="
#define ATTEMPT "penstock-attempt="
#define HOST	"penstock-host="

int code_store_look(
	const struct code_store *store, struct code_published *out, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct object_info info = {0};
	int r = object_head(store->at, &info, &e);

	*out = (struct code_published){0};
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	for (size_t i = 0; i < info.metadata.n; i++) {
		const char *item = info.metadata.items[i];
		uint64_t attempt;

		if (str_starts(item, DIGEST))
			snprintf(out->digest, sizeof(out->digest), "%s", item + strlen(DIGEST));
		else if (str_starts(item, ATTEMPT) &&
			 str_to_u64(item + strlen(ATTEMPT), 0, INT_MAX, &attempt))
			out->attempt = (int)attempt;
		else if (str_starts(item, HOST))
			snprintf(out->host, sizeof(out->host), "%s", item + strlen(HOST));
	}
	object_info_release(&info);
	return 0;
}

static int check_size(const struct context_files *files, struct penstock_error *err)
{
	char shown[STR_SIZE_SIZE];
	uint64_t bytes = 0;

	for (size_t i = 0; i < files->n; i++)
		bytes += S_ISREG(files->items[i].mode) ? files->items[i].size : 0;
	if (bytes <= LIMIT_CONTEXT_PUBLISHED)
		return 0;
	str_format_size(LIMIT_CONTEXT_PUBLISHED, shown);
	return error_set(err, PENSTOCK_E_LIMIT, "the context is larger than %s", shown);
}

static int pack(const struct context_files *files, const char *dir, struct packer *packer,
	struct penstock_error *err)
{
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char target[4096];
	struct stat st;
	int r = 0;

	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", dir);
	for (size_t i = 0; r == 0 && i < files->n; i++) {
		const char *path = files->items[i].path;
		ssize_t n;

		/* In the zip, two names that are not UTF-8 could become the same name. */
		if (!str_is_utf8(path, strlen(path)))
			return error_set(
				err, PENSTOCK_E_UNSUPPORTED, "the name of '%s' is not UTF-8", path);
		if (fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return error_errno(
				err, errno, "cannot get the status of '%s/%s'", dir, path);
		n = S_ISLNK(st.st_mode) ? readlinkat(fd, path, target, sizeof(target) - 1) : -1;
		if (n >= 0) {
			target[n] = '\0';
			r = tree_check_link(path, target, err);
		}
		if (r == 0)
			r = packer_add(packer, &(struct packer_member){fd, path, path, &st}, err);
	}
	return r;
}

struct put {
	const struct code_store *store;
	const struct strlist *metadata;
	int fd;
	uint64_t size;
};

static int put(void *cookie, struct penstock_error *err)
{
	const struct put *p = cookie;
	const struct object_put_options options = {
		.content_type = "application/zip",
		.metadata = p->metadata,
		.cancel = p->store->cancel,
	};

	return object_put_file(p->store->at, p->fd, p->size, &options, NULL, err);
}

int code_store_put(const struct code_store *store, const struct context_files *files,
	const char *dir, const struct code_published *about, struct penstock_error *err)
{
	_cleanup_(packer_freep) struct packer *packer = NULL;
	_cleanup_(strlist_release) struct strlist metadata = {0};
	_cleanup_close_ int fd = -1;
	struct put p = {.store = store, .metadata = &metadata};
	struct stat st;
	int r = check_size(files, err);

	if (r == 0)
		r = packer_new(&packer, store->tmp, store->cancel, err);
	if (r == 0)
		r = pack(files, dir, packer, err);
	if (r < 0)
		return r;
	fd = packer_finish(packer, err);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read the packed context");
	if (strlist_addf(&metadata, DIGEST "%s", about->digest) < 0 ||
		strlist_addf(&metadata, ATTEMPT "%d", about->attempt) < 0 ||
		strlist_addf(&metadata, HOST "%s", about->host) < 0)
		return error_memory(err);
	p.fd = fd;
	p.size = (uint64_t)st.st_size;
	return lease_perform(store->lease, store->cancel, put, &p, err);
}

int code_store_get(const struct code_store *store, char **dir, struct penstock_error *err)
{
	_cleanup_free_ char *zip = str_printf("%s/context.zip", store->tmp);
	_cleanup_free_ char *to = str_printf("%s/context", store->tmp);
	struct unpack_stats stats;
	int r;

	if (!zip || !to)
		return error_memory(err);
	r = fs_remove_tree(to, err);
	if (r == 0)
		r = fs_mkdirs(to, 0700, err);
	if (r == 0)
		r = object_get_file(store->at, zip,
			&(struct object_get_options){.cancel = store->cancel}, NULL, err);
	if (r == 0)
		r = unpack_file(zip, to,
			&(struct unpack_options){.name = ".penstock-context.zip",
				.always = true,
				.cancel = store->cancel},
			&stats, err);
	unlink(zip);
	if (r == 0)
		*dir = take_pointer(to);
	return r;
}
