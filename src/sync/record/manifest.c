#include "sync/record/manifest.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/record/names.h"

#define FORMAT	"penstock manifest"
#define VERSION 1

static const char *const list_names[MANIFEST_LISTS_] = {"files", "replaced", "partial"};

/* Writes `"name":"encoded"`, after a comma unless the member is the first of its object
 * ("path"). */
static int put_name(FILE *f, const char *name, const char *value)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_SYNC_LINE);

	names_encode(&text, value);
	if (buf_failed(&text))
		return -1;
	fprintf(f, "%s\"%s\":\"%s\"", strcmp(name, "path") == 0 ? "" : ",", name, buf_str(&text));
	return 0;
}

int manifest_begin(FILE *f, const struct manifest_head *head)
{
	char now[CLOCK_RFC3339_SIZE];
	int rc;

	clock_format_rfc3339(clock_wall_ns(), now);
	fprintf(f, "{\"format\":\"" FORMAT "\",\"version\":%d", VERSION);
	rc = put_name(f, "run", head->run);
	fprintf(f, ",\"attempt\":%d,\"generation\":%" PRIu64 ",\"written\":\"%s\",\"files\":[\n",
		head->attempt, head->generation, now);
	return rc;
}

void manifest_list(FILE *f, enum manifest_list list)
{
	fprintf(f, "],\"%s\":[\n", list_names[list]);
}

int manifest_item(FILE *f, enum manifest_list list, const struct manifest_item *item, bool first)
{
	int rc;

	fputs(first ? "{" : ",{", f);
	rc = put_name(f, "path", item->path);
	if (list == MANIFEST_FILES) {
		fprintf(f, ",\"type\":\"%s\"",
			S_ISDIR(item->mode)   ? "dir"
			: S_ISLNK(item->mode) ? "link"
					      : "file");
		fprintf(f, ",\"mtime\":%" PRId64 ",\"mode\":\"%04o\"", item->mtime_ns,
			(unsigned)(item->mode & 07777));
	}
	if (item->link)
		rc |= put_name(f, "link", item->link);
	if (list != MANIFEST_FILES || S_ISREG(item->mode))
		fprintf(f, ",\"size\":%" PRIu64, item->size);
	if (item->etag && *item->etag)
		rc |= put_name(f, "etag", item->etag);
	if (item->kept)
		rc |= put_name(f, "kept", item->kept);
	if (item->has_crc)
		fprintf(f, ",\"crc64\":\"%016" PRIx64 "\"", item->crc);
	if (item->deleted)
		fputs(",\"deleted\":true", f);
	if (item->older)
		fputs(",\"older\":true", f);
	fputs("}\n", f);
	return rc;
}

void manifest_end(FILE *f)
{
	fputs("]}\n", f);
}

bool manifest_written(FILE *f)
{
	return fflush(f) == 0 && !ferror(f);
}

struct reader {
	FILE *f;
	const char *name;
	unsigned number;
	char line[LIMIT_SYNC_LINE];
};

static int corrupt(const struct reader *r, const char *why, struct penstock_error *err)
{
	return error_set(
		err, PENSTOCK_E_CORRUPT, "cannot read '%s': line %u: %s", r->name, r->number, why);
}

/* Reads the next line without its newline. Returns 0, 1 at the end of the file, or a negative
 * code. */
static int next_line(struct reader *r, struct penstock_error *err)
{
	char *end;

	r->number++;
	if (!fgets(r->line, sizeof(r->line), r->f))
		return ferror(r->f) ? error_errno(err, errno, "cannot read '%s'", r->name) : 1;
	end = strchr(r->line, '\n');
	if (!end)
		return corrupt(r,
			feof(r->f) ? "the manifest is truncated in the middle of a line"
				   : "the line is too long",
			err);
	*end = '\0';
	return 0;
}

/* Stores the decoded string member in `*out`, or NULL if the member is missing. Returns false if
 * the member is invalid. */
static bool get_name(json_t *object, const char *member, struct buf *into, const char **out)
{
	const char *text = json_string_value(json_object_get(object, member));

	*out = NULL;
	if (!text)
		return json_object_get(object, member) == NULL;
	if (names_decode(into, text) < 0)
		return false;
	*out = buf_str(into);
	return true;
}

/* Returns true for a relative path without empty, "." and ".." parts and parts of more than 255
 * bytes. The path is used below the output directory. */
static bool path_is_safe(const char *path)
{
	for (;;) {
		size_t n = strcspn(path, "/");

		if (n == 0 || n > 255 || (n == 1 && path[0] == '.') ||
			(n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		if (!path[n])
			return true;
		path += n + 1;
	}
}

static bool get_mode(json_t *object, struct manifest_item *item)
{
	const char *type = json_string_value(json_object_get(object, "type"));
	const char *mode = json_string_value(json_object_get(object, "mode"));

	if (!type || !mode || strlen(mode) != 4 || strspn(mode, "01234567") != 4)
		return false;
	item->mode = (mode_t)strtoul(mode, NULL, 8) |
		     (strcmp(type, "dir") == 0		 ? S_IFDIR
			     : strcmp(type, "link") == 0 ? S_IFLNK
							 : S_IFREG);
	return strcmp(type, "file") == 0 || S_ISDIR(item->mode) ||
	       (S_ISLNK(item->mode) && item->link && *item->link);
}

static bool get_crc(json_t *object, struct manifest_item *item)
{
	const char *text = json_string_value(json_object_get(object, "crc64"));
	uint64_t crc;

	if (!text)
		return true;
	item->has_crc = str_unhex(text, &crc, sizeof(crc)) == 0;
	item->crc = item->has_crc ? be64toh(crc) : 0;
	return item->has_crc;
}

static int read_item(const struct reader *r, enum manifest_list list, manifest_fn fn, void *cookie,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	_cleanup_(buf_release) struct buf link = BUF_INIT(LIMIT_SYNC_NAME);
	_cleanup_(buf_release) struct buf kept = BUF_INIT(LIMIT_SYNC_NAME);
	_cleanup_(buf_release) struct buf etag = BUF_INIT(LIMIT_SYNC_NAME);
	const char *text = r->line[0] == ',' ? r->line + 1 : r->line;
	json_t *object = json_loadb(text, strlen(text), JSON_REJECT_DUPLICATES, NULL);
	struct manifest_item item = {.mode = S_IFREG};
	int rc;

	if (!json_is_object(object) || !get_name(object, "path", &path, &item.path) ||
		!get_name(object, "link", &link, &item.link) ||
		!get_name(object, "kept", &kept, &item.kept) ||
		!get_name(object, "etag", &etag, &item.etag) || !item.path ||
		!path_is_safe(item.path) || !get_crc(object, &item) ||
		(list == MANIFEST_FILES && !get_mode(object, &item)) ||
		json_integer_value(json_object_get(object, "size")) < 0) {
		json_decref(object);
		return corrupt(r, "the line is not an entry of a manifest", err);
	}
	if (!item.etag)
		item.etag = "";
	item.size = (uint64_t)json_integer_value(json_object_get(object, "size"));
	item.mtime_ns = json_integer_value(json_object_get(object, "mtime"));
	item.deleted = json_is_true(json_object_get(object, "deleted"));
	item.older = json_is_true(json_object_get(object, "older"));
	rc = fn(cookie, list, &item);
	json_decref(object);
	return rc ? 1 : 0;
}

static int read_head(const struct reader *r, struct manifest_head *head, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf whole = BUF_INIT(LIMIT_SYNC_LINE + 8);
	_cleanup_(buf_release) struct buf run = BUF_INIT(sizeof(head->run));
	const char *format, *id;
	json_int_t version;
	json_t *object;
	int rc = 0;

	buf_printf(&whole, "%s]}", r->line);
	object = json_loadb(buf_str(&whole), whole.len, 0, NULL);
	format = json_string_value(json_object_get(object, "format"));
	version = json_integer_value(json_object_get(object, "version"));
	if (!format || strcmp(format, FORMAT) != 0 || !str_ends(r->line, "\"files\":["))
		rc = corrupt(r, "the file is not a manifest of penstock", err);
	else if (version != VERSION)
		rc = error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot read '%s': version %d is not supported; use a newer penstock",
			r->name, (int)version);
	else if (!get_name(object, "run", &run, &id) || !id)
		rc = corrupt(r, "the id of the run is missing", err);
	else {
		snprintf(head->run, sizeof(head->run), "%s", id);
		head->attempt = (int)json_integer_value(json_object_get(object, "attempt"));
		head->generation = (uint64_t)json_integer_value(
			json_object_get(object, "generation"));
	}
	json_decref(object);
	return rc;
}

static int read_lists(struct reader *r, manifest_fn fn, void *cookie, struct penstock_error *err)
{
	enum manifest_list list = MANIFEST_FILES;
	char heading[32];
	int rc;

	for (;;) {
		rc = next_line(r, err);
		if (rc > 0)
			return corrupt(r, "the manifest is truncated", err);
		if (rc < 0)
			return rc;
		if (strcmp(r->line, "]}") == 0)
			break;
		if (r->line[0] != ']') {
			rc = read_item(r, list, fn, cookie, err);
			if (rc)
				return rc < 0 ? rc : 0;
			continue;
		}
		list++;
		if (list == MANIFEST_LISTS_)
			return corrupt(r, "the manifest has too many lists", err);
		snprintf(heading, sizeof(heading), "],\"%s\":[", list_names[list]);
		if (strcmp(r->line, heading) != 0)
			return corrupt(r, "the line is not the heading of the next list", err);
	}
	if (list != MANIFEST_PARTIAL || next_line(r, NULL) != 1)
		return corrupt(
			r, "lists are missing, or data follows the end of the manifest", err);
	return 0;
}

int manifest_read(FILE *f, const char *name, struct manifest_head *head, manifest_fn fn,
	void *cookie, struct penstock_error *err)
{
	_cleanup_free_ struct reader *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return error_memory(err);
	r->f = f;
	r->name = name;
	rc = next_line(r, err);
	if (rc > 0)
		rc = corrupt(r, "the manifest is empty", err);
	if (rc == 0)
		rc = read_head(r, head, err);
	return rc < 0 ? rc : read_lists(r, fn, cookie, err);
}
