#include "run/provenance.h"

#include <jansson.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <penstock/version.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "run/step/containers.h"
#include "run/internal.h"
#include "run/workdir/project.h"

/* Reads the commit of the context, which an earlier attempt may have copied. Returns NULL if there
 * is no commit. */
static json_t *context_commit(const struct run *run)
{
	_cleanup_free_ char *path = path_join(run->attempt.layout.state, PROJECT_COMMIT);
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	if (!path || access(path, F_OK) < 0 || fs_read(path, &text, NULL) < 0)
		return NULL;
	return json_loadb(buf_str(&text), text.len, 0, NULL);
}

int provenance_record(struct run *run, struct penstock_error *err)
{
	const char *given = run->options->provenance;
	_cleanup_(json_decrefp) json_t *root = given ? json_loads(given, 0, NULL) : json_object();
	json_t *commit = context_commit(run);
	_cleanup_free_ char *text = NULL, *tracking = NULL;
	_cleanup_(buf_release) struct buf images = BUF_INIT(LIMIT_STRING);
	struct utsname system;

	if (commit)
		json_object_set_new(root, "context", commit);
	if (!json_is_object(root))
		return error_set(err, PENSTOCK_E_INTERNAL, "the provenance is not a JSON object");
	uname(&system);
	if (containers_describe(&run->host.containers, &images) < 0 ||
		(run->host.containers.images &&
			json_object_set_new(root, "images",
				json_loadb(buf_str(&images), images.len, 0, NULL)) < 0))
		return error_memory(err);
	if (json_object_set_new(root, "penstock", json_string(PENSTOCK_VERSION)) < 0 ||
		json_object_set_new(root, "host", json_string(system.nodename)) < 0 ||
		json_object_set_new(root, "kernel", json_string(system.release)) < 0 ||
		json_object_set_new(
			root, "inputs", json_loads(run->staged ? run->staged : "[]", 0, NULL)) < 0)
		return error_memory(err);
	if (run->tracking.attempt) {
		tracking = tracking_describe(&run->tracking);
		if (!tracking ||
			json_object_set_new(root, "tracking", json_loads(tracking, 0, NULL)) < 0)
			return error_memory(err);
	}
	if (run->attempt.workflow->price.value &&
		json_object_set_new(
			root, "price", json_string(run->attempt.workflow->price.value)) < 0)
		return error_memory(err);
	text = json_dumps(root, JSON_COMPACT);
	if (!text)
		return error_memory(err);
	return records_set_provenance(
		run->attempt.records, run->attempt.id, run->attempt.number, text, err);
}
