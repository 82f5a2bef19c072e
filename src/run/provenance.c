#include "run/provenance.h"

#include <jansson.h>
#include <stdlib.h>
#include <sys/utsname.h>

#include <penstock/version.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "run/containers.h"
#include "run/run_internal.h"
#include "base/banned.h"

int provenance_record(struct run *run, struct penstock_error *err)
{
	const char *given = run->options->provenance;
	_cleanup_(json_decrefp) json_t *root = given ? json_loads(given, 0, NULL) : json_object();
	_cleanup_free_ char *text = NULL;
	_cleanup_(buf_release) struct buf images = BUF_INIT(LIMIT_STRING);
	struct utsname system;

	if (!json_is_object(root))
		return error_set(err, PENSTOCK_E_INTERNAL, "the provenance is not a JSON object");
	uname(&system);
	if (containers_describe(run, &images) < 0 ||
		(run->images && json_object_set_new(root, "images",
					json_loadb(buf_str(&images), images.len, 0, NULL)) < 0))
		return error_memory(err);
	if (json_object_set_new(root, "penstock", json_string(PENSTOCK_VERSION)) < 0 ||
		json_object_set_new(root, "host", json_string(system.nodename)) < 0 ||
		json_object_set_new(root, "kernel", json_string(system.release)) < 0 ||
		json_object_set_new(
			root, "inputs", json_loads(run->staged ? run->staged : "[]", 0, NULL)) < 0)
		return error_memory(err);
	text = json_dumps(root, JSON_COMPACT);
	if (!text)
		return error_memory(err);
	return records_set_provenance(run->options->records, run->id, run->attempt, text, err);
}
