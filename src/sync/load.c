#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "sync/names.h"
#include "sync/sync_internal.h"
#include "base/banned.h"

struct visit {
	const struct sync_manifest_visitor *visitor;
	const char *prefix;
};

static int visit_item(void *cookie, enum manifest_list list, const struct manifest_item *item)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 4);
	const struct visit *v = cookie;
	int (*fn)(void *, const struct sync_manifest_entry *) = list == MANIFEST_FILES
									? v->visitor->file
								: list == MANIFEST_REPLACED
									? v->visitor->replaced
									: v->visitor->partial;

	if (!fn)
		return 0;
	buf_add_str(&key, v->prefix);
	names_key(&key, item->path);
	return fn(v->visitor->cookie, &(struct sync_manifest_entry){.path = item->path,
					      .key = buf_str(&key),
					      .size = item->size,
					      .mtime_ns = item->mtime_ns,
					      .mode = item->mode,
					      .link = item->link,
					      .etag = item->etag,
					      .deleted = item->deleted,
					      .kept = item->kept});
}

int sync_manifest_load(struct object_client *client, const char *bucket, const char *prefix,
	const char *state_prefix, const char *tmp_dir, const struct sync_manifest_visitor *visitor,
	struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_free_ char *state = NULL;
	struct visit v = {.visitor = visitor, .prefix = prefix};
	struct sync_options o = {.client = client,
		.bucket = bucket,
		.prefix = prefix,
		.state_prefix = state_prefix,
		.private_dir = tmp_dir};
	struct manifest_head head;
	int rc = state_string(&o, &state, err);

	if (rc == 0)
		rc = fs_mkdirs(tmp_dir, 0700, err);
	return rc < 0 ? rc : state_fetch_manifest(&o, state, &head, &info, visit_item, &v, err);
}
