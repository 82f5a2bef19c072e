#include "copy/content_type.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/fs.h"

/* Types that browsers and data tools use, sorted by the ending. Ambiguous endings are not listed: a
 * missing type does less harm than a wrong one. */
static const struct {
	const char *ending;
	const char *type;
} types[] = {
	{"avif", "image/avif"},
	{"bmp", "image/bmp"},
	{"bz2", "application/x-bzip2"},
	{"css", "text/css"},
	{"csv", "text/csv"},
	{"flac", "audio/flac"},
	{"gif", "image/gif"},
	{"gz", "application/gzip"},
	{"htm", "text/html"},
	{"html", "text/html"},
	{"ico", "image/vnd.microsoft.icon"},
	{"ipynb", "application/x-ipynb+json"},
	{"jpeg", "image/jpeg"},
	{"jpg", "image/jpeg"},
	{"js", "text/javascript"},
	{"json", "application/json"},
	{"jsonl", "application/jsonl"},
	{"log", "text/plain"},
	{"md", "text/markdown"},
	{"mjs", "text/javascript"},
	{"mp3", "audio/mpeg"},
	{"mp4", "video/mp4"},
	{"ndjson", "application/x-ndjson"},
	{"ogg", "audio/ogg"},
	{"parquet", "application/vnd.apache.parquet"},
	{"pdf", "application/pdf"},
	{"png", "image/png"},
	{"svg", "image/svg+xml"},
	{"tar", "application/x-tar"},
	{"tgz", "application/gzip"},
	{"tif", "image/tiff"},
	{"tiff", "image/tiff"},
	{"tsv", "text/tab-separated-values"},
	{"txt", "text/plain"},
	{"wasm", "application/wasm"},
	{"wav", "audio/x-wav"},
	{"webm", "video/webm"},
	{"webp", "image/webp"},
	{"xml", "application/xml"},
	{"xz", "application/x-xz"},
	{"yaml", "application/yaml"},
	{"yml", "application/yaml"},
	{"zip", "application/zip"},
	{"zst", "application/zstd"},
};

static int by_ending(const void *name, const void *entry)
{
	return strcasecmp(name, ((const __typeof__(types[0]) *)entry)->ending);
}

const char *content_type_of(const char *name)
{
	const char *base = path_last(name);
	const char *dot = strrchr(base, '.');
	const __typeof__(types[0]) *found = NULL;

	if (dot && dot > base)
		found = bsearch(dot + 1, types, ARRAY_SIZE(types), sizeof(types[0]), by_ending);
	return found ? found->type : NULL;
}
