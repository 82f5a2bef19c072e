/* How a run joins the embedded store of its home, and leaves it. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli/history/artifacts_place.h"
#include "server/embedded.h"
#include "base/banned.h"

static int join_embedded(void *cookie, struct stores_embedded *out, struct penstock_error *err)
{
	const char *home = cookie;
	_cleanup_free_ char *root = path_join(home, "store");
	struct embedded_store *store = NULL;
	int r;

	if (!root)
		return error_memory(err);
	r = embedded_store_acquire(&store, &(struct embedded_store_options){.root = root}, err);
	if (r < 0)
		return r;
	log_info("using the embedded store in %s", root);
	*out = (struct stores_embedded){
		.endpoint_url = embedded_store_endpoint(store),
		.access_key = embedded_store_access_key_id(store),
		.secret_key = embedded_store_secret_access_key(store),
		.handle = store,
	};
	return 0;
}

static void leave_embedded(struct stores_embedded *embedded)
{
	embedded_store_free(embedded->handle);
	*embedded = (struct stores_embedded){0};
}

struct stores_embedded_ops run_embedded_ops(char *home)
{
	return (struct stores_embedded_ops){join_embedded, leave_embedded, home};
}
