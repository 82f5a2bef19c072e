#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "cli/workflow/load.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "transfer/objects.h"
#include "base/banned.h"

static int read_stdin(struct buf *bytes, struct penstock_error *err)
{
	return fs_read("/dev/stdin", bytes, err) < 0 ? error_prefix(err, "standard input") : 0;
}

static int fetch_object(const char *url, struct buf *bytes, struct penstock_error *err)
{
	struct object_client *client = NULL;
	struct http_engine *engine = NULL;
	_cleanup_free_ char *bucket = NULL;
	const char *key = strchr(url + 5, '/');
	int r;

	if (!key || !key[1] || key == url + 5)
		return error_set(
			err, PENSTOCK_E_INVALID, "'%s': expected %.5sBUCKET/KEY", url, url);
	bucket = strndup(url + 5, (size_t)(key - url) - 5);
	if (!bucket)
		return error_memory(err);
	r = http_engine_new(&engine, &(struct http_engine_options){0}, err);
	if (r == 0)
		r = object_client_open(
			&client, engine, &(struct store_place){.google = *url == 'g'}, err);
	if (r == 0)
		r = object_get(object_at(client, bucket, key + 1), NULL, bytes, NULL, err);
	object_client_free(client);
	http_engine_free(engine);
	return r;
}

/* Requires a file or a pipe; a directory is a common mistake. */
static int read_file(const char *path, struct buf *bytes, struct penstock_error *err)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"%s is a directory; give the workflow file in it", path);
	return fs_read(path, bytes, err);
}

int load_bytes(const char *source, struct buf *bytes, char **shown, struct penstock_error *err)
{
	int r;

	if (strcmp(source, "-") == 0) {
		r = read_stdin(bytes, err);
		*shown = r < 0 ? NULL : strdup("<stdin>");
	} else if (str_starts(source, "s3://") || str_starts(source, "gs://")) {
		r = fetch_object(source, bytes, err);
		*shown = r < 0 ? NULL : strdup(source);
	} else {
		r = read_file(source, bytes, err);
		*shown = r < 0 ? NULL : realpath(source, NULL);
	}
	if (r < 0)
		return r;
	return *shown ? 0 : error_memory(err);
}
