/* The native dialect's inputs and output: HTTP, S3 and files of this machine. */
#include <ctype.h>
#include <strings.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/reader.h"
#include "workflow/secrets.h"
#include "base/banned.h"

/* The length of a dash that word processors make of "-", or 0. */
static size_t odd_dash(const char *s)
{
	static const char *const dashes[] = {
		"\xe2\x80\x90", "\xe2\x80\x91", "\xe2\x80\x92", "\xe2\x80\x93", "\xe2\x88\x92"};

	for (size_t i = 0; i < ARRAY_SIZE(dashes); i++) {
		if (str_starts(s, dashes[i]))
			return strlen(dashes[i]);
	}
	return 0;
}

/* Texts pasted from web pages have non-breaking hyphens where "-" is meant. */
static void plain_dashes(struct reader *rd, const char *key, struct workflow_text *text)
{
	_cleanup_(buf_release) struct buf plain = BUF_INIT(LIMIT_STRING);
	char quoted[QUOTE_SIZE];
	bool odd = false;

	for (const char *p = text->value; *p;) {
		size_t len = odd_dash(p);

		buf_add_char(&plain, len ? '-' : *p);
		odd = odd || len;
		p += len ? len : 1;
	}
	if (buf_failed(&plain))
		rd->arena->no_memory = true;
	if (!odd || buf_failed(&plain))
		return;
	reader_note(rd, &text->at, "`%s` has typographic hyphens: read as %s",
		reader_field(rd, key), quote(buf_str(&plain), quoted));
	text->value = workflow_arena_copy(rd->arena, buf_str(&plain), plain.len);
}

/* What is wrong with `url`; NULL: nothing. */
static const char *url_mistake(const char *url)
{
	const char *host;
	size_t len;

	for (const char *p = url; *p; p++) {
		if ((unsigned char)*p <= ' ')
			return "holds a space; write it as %20";
	}
	if (strncasecmp(url, "http://", 7) == 0)
		host = url + 7;
	else if (strncasecmp(url, "https://", 8) == 0)
		host = url + 8;
	else
		return "must begin with https:// or http://";
	len = strcspn(host, "/?#");
	if (memrchr(host, '@', len)) {
		const char *at = memrchr(host, '@', len);

		len -= (size_t)(at + 1 - host);
		host = at + 1;
	}
	if (len == 0 || *host == ':')
		return "names no host";
	if (*host == '[' && !memchr(host, ']', len))
		return "has a `[` without `]` in its host";
	if (*host != '[') {
		const char *port = memchr(host, ':', len);
		uint64_t number;
		char digits[8] = {0};

		if (!port)
			return NULL;
		len -= (size_t)(port + 1 - host);
		if (len == 0 || len >= sizeof(digits))
			return "has no port behind `:`";
		memcpy(digits, port + 1, len);
		if (!str_to_u64(digits, 1, 65535, &number))
			return "has a port that is not from 1 to 65535";
	}
	return NULL;
}

/* A URL that may hold a user or a signature; what is shown of it does not. */
static bool read_url(
	struct reader *rd, const struct node *map, const char *key, struct workflow_text *out)
{
	_cleanup_(buf_release) struct buf masked = BUF_INIT(LIMIT_STRING);
	const struct node *node = node_get(map, key);
	const char *mistake;
	char quoted[QUOTE_SIZE];

	if (node && node->kind == NODE_SCALAR)
		secret_redact_url(node->text);
	if (!reader_text(rd, map, key, out))
		return false;
	plain_dashes(rd, key, out);
	if (!out->value || reader_is_open(rd, out))
		return out->value != NULL;
	if (secret_mask_url(out->value, &masked) && !out->shown)
		out->shown = workflow_arena_copy(rd->arena, buf_str(&masked), masked.len);
	if (buf_failed(&masked))
		rd->arena->no_memory = true;
	mistake = url_mistake(out->value);
	if (!mistake)
		return true;
	reader_error(rd, &out->at, "`%s` %s: %s", reader_field(rd, key), mistake,
		quote(workflow_shown(out), quoted));
	return false;
}

static void read_http(struct reader *rd, const struct node *map, struct workflow_text *url)
{
	size_t saved = reader_enter(rd, "http", 0);

	if (reader_check_map(rd, map, &schema_http)) {
		if (!node_get(map, "url"))
			reader_missing(rd, map, &schema_http, "url", "");
		read_url(rd, map, "url", url);
	}
	reader_leave(rd, saved);
}

static bool all_of(const char *s, const char *allowed)
{
	return s[strspn(s, allowed)] == '\0';
}

#define LETTERS_AND_DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static const struct schema *schema_of(const struct workflow_s3 *s3)
{
	return s3->google ? &schema_gs : &schema_s3;
}

static void read_region(struct reader *rd, const struct node *map, struct workflow_s3 *s3)
{
	char quoted[QUOTE_SIZE];

	if (!node_get(map, "region")) {
		if (s3->embedded)
			s3->region = (struct workflow_text){.value = "us-east-1", .at = map->at};
		else
			reader_missing(rd, map, &schema_s3, "region",
				"the store's region, or us-east-1 where it has none");
		return;
	}
	if (!reader_text(rd, map, "region", &s3->region))
		return;
	plain_dashes(rd, "region", &s3->region);
	if (s3->region.value && !reader_is_open(rd, &s3->region) &&
		(!*s3->region.value || !all_of(s3->region.value, LETTERS_AND_DIGITS "-_.")))
		reader_error(rd, &s3->region.at, "`%s` is letters, digits and `-`, not %s",
			reader_field(rd, "region"), quote(workflow_shown(&s3->region), quoted));
}

static bool is_s3_bucket(const char *name)
{
	size_t len = strlen(name);

	return len >= 3 && len <= 63 && all_of(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") &&
	       !strchr(".-", name[0]) && !strchr(".-", name[len - 1]) && !strstr(name, "..");
}

/* Before anything starts: the store would refuse it with a bare 400. */
static void refuse_bucket(struct reader *rd, const struct workflow_text *url, const char *name)
{
	char *other = workflow_arena_copy(rd->arena, name, strlen(name));
	char quoted[QUOTE_SIZE], hint[QUOTE_SIZE];

	for (char *c = other; c && *c; c++)
		*c = *c == '_' || *c == ' ' ? '-' : (char)tolower((unsigned char)*c);
	reader_error(rd, &url->at,
		"`%s` names the bucket %s: 3 to 63 lower-case letters, digits, `.` and `-`%s%s",
		reader_field(rd, "bucketUrl"), quote(name, quoted),
		other && is_s3_bucket(other) ? ", such as " : "",
		other && is_s3_bucket(other) ? quote(other, hint) : "");
}

/* Sets `bucket`, and appends what stands behind it to `prefix`. */
static void read_bucket(
	struct reader *rd, const struct node *map, struct workflow_s3 *s3, struct buf *prefix)
{
	struct workflow_text *url = &s3->bucket_url;
	const char *name, *slash;
	char quoted[QUOTE_SIZE];
	size_t len;

	const char *scheme = s3->google ? "gs://" : "s3://";

	if (!node_get(map, "bucketUrl")) {
		reader_missing(rd, map, schema_of(s3), "bucketUrl",
			s3->google ? "such as gs://my-bucket" : "such as s3://my-bucket");
		return;
	}
	if (!reader_text(rd, map, "bucketUrl", url))
		return;
	plain_dashes(rd, "bucketUrl", url);
	if (!url->value || reader_is_open(rd, url))
		return;
	if (!str_starts(url->value, scheme)) {
		reader_error(rd, &url->at, "`%s` must begin with %s, such as %smy-bucket: %s",
			reader_field(rd, "bucketUrl"), scheme, scheme,
			quote(workflow_shown(url), quoted));
		return;
	}
	name = url->value + strlen(scheme);
	len = strcspn(name, "/");
	slash = name + len;
	s3->bucket = workflow_arena_copy(rd->arena, name, len);
	if (!s3->bucket)
		return;
	if (!s3->google && !is_s3_bucket(s3->bucket)) {
		refuse_bucket(rd, url, s3->bucket);
		return;
	}
	if (len < 3 || len > 63 || !isalnum((unsigned char)*name) ||
		!all_of(s3->bucket, LETTERS_AND_DIGITS "._-")) {
		reader_error(rd, &url->at,
			"`%s` names the bucket %s: 3 to 63 letters, digits, `.`, `_` and `-`",
			reader_field(rd, "bucketUrl"), quote(s3->bucket, quoted));
		return;
	}
	if (*slash && url->value[strlen(url->value) - 1] == '/')
		reader_note(rd, &url->at, "the `/` at the end of `%s` is left out",
			reader_field(rd, "bucketUrl"));
	buf_add_str(prefix, slash);
}

/* "/a//b/" to "a//b/": the slashes at both ends are ours to set. */
static const char *make_prefix(struct reader *rd, const char *path)
{
	size_t len;

	path += strspn(path, "/");
	len = strlen(path);
	while (len > 0 && path[len - 1] == '/')
		len--;
	if (len == 0)
		return "";
	return workflow_arena_printf(rd->arena, "%.*s/", (int)len, path);
}

/* Whether a segment of the path is "." or "..". */
bool reader_has_dots(const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/");

		if ((len == 1 && path[0] == '.') || (len == 2 && path[0] == '.' && path[1] == '.'))
			return true;
		path += len + (path[len] == '/');
	}
	return false;
}

static void read_path(
	struct reader *rd, const struct node *map, struct workflow_s3 *s3, struct buf *prefix)
{
	struct workflow_text *path = &s3->path;
	char quoted[QUOTE_SIZE];

	if (!node_get(map, "path")) {
		reader_missing(rd, map, schema_of(s3), "path", "`/` is the whole bucket");
		return;
	}
	if (!reader_text(rd, map, "path", path) || reader_is_open(rd, path))
		return;
	if (*path->value != '/') {
		path->value = workflow_arena_printf(rd->arena, "/%s", path->value);
		if (!path->value)
			return;
		reader_note(rd, &path->at, "`%s` begins with `/`: read as %s",
			reader_field(rd, "path"), quote(workflow_shown(path), quoted));
	}
	buf_add_str(prefix, path->value);
	if (reader_has_dots(buf_str(prefix)))
		reader_error(rd, &path->at, "`%s` has `.` or `..` in it: %s",
			reader_field(rd, "path"), quote(workflow_shown(path), quoted));
	else if (prefix->len > LIMIT_WORKFLOW_PREFIX)
		reader_error(rd, &path->at, "`%s` is longer than %d bytes",
			reader_field(rd, "path"), LIMIT_WORKFLOW_PREFIX);
	else if (str_starts(buf_str(prefix), "/.penstock/") ||
		 strcmp(buf_str(prefix), "/.penstock") == 0)
		reader_error(rd, &path->at,
			"`%s` lies in .penstock/, where penstock keeps its state",
			reader_field(rd, "path"));
}

static void read_endpoint(struct reader *rd, const struct node *map, struct workflow_s3 *s3)
{
	struct workflow_text *endpoint = &s3->endpoint_url;
	const struct node *node = node_get(map, "endpointUrl");

	endpoint->at = map->at;
	/* There is one Google; another place is for tests. */
	if (!node && s3->google)
		return;
	if (!node) {
		reader_missing(rd, map, &schema_s3, "endpointUrl",
			"the store's URL, such as https://s3.us-east-2.amazonaws.com, or "
			"`embedded`");
		return;
	}
	if (node->kind == NODE_SCALAR && strcmp(node->text, "embedded") == 0 && !s3->google) {
		endpoint->at = node->at;
		s3->embedded = true;
		return;
	}
	if (!read_url(rd, map, "endpointUrl", endpoint) || reader_is_open(rd, endpoint))
		return;
	if (strpbrk(endpoint->value, "?#@"))
		reader_error(rd, &endpoint->at,
			"`%s` is scheme, host and port only; credentials stand in accessKeyId and "
			"secretAccessKey",
			reader_field(rd, "endpointUrl"));
}

/* The seeds' "EXO***" and "***" stand for keys that the author did not show. */
static void check_placeholder(
	struct reader *rd, const char *key, const struct workflow_credential *credential)
{
	if (credential->value && str_ends(credential->value, "***"))
		reader_note(rd, &credential->at,
			"`%s` ends in ***, which looks like a placeholder for the real key",
			reader_field(rd, key));
}

static void read_credentials(struct reader *rd, const struct node *map, struct workflow_s3 *s3)
{
	bool id = node_get(map, "accessKeyId") != NULL;
	bool secret = node_get(map, "secretAccessKey") != NULL;

	reader_credential(rd, map, "accessKeyId", &s3->access_key_id);
	reader_credential(rd, map, "secretAccessKey", &s3->secret_access_key);
	if (id != secret)
		reader_missing(rd, map, schema_of(s3), id ? "secretAccessKey" : "accessKeyId",
			"give both keys, or neither to use those of the environment");
	if (s3->google &&
		reader_credential(rd, map, "serviceAccountKey", &s3->service_account_key) &&
		(id || secret))
		reader_error(rd, &s3->service_account_key.at,
			"`%s` and an HMAC key are two identities; keep one",
			reader_field(rd, "serviceAccountKey"));
	check_placeholder(rd, "accessKeyId", &s3->access_key_id);
	check_placeholder(rd, "secretAccessKey", &s3->secret_access_key);
}

/* `s3`, or `gs` where `google`. */
static void read_s3(struct reader *rd, const struct node *map, struct workflow_s3 *s3, bool google,
	bool is_input)
{
	_cleanup_(buf_release) struct buf prefix = BUF_INIT(LIMIT_WORKFLOW_FILE);
	size_t saved = reader_enter(rd, google ? "gs" : "s3", 0);

	s3->at = map->at;
	s3->prefix = "";
	s3->google = google;
	if (reader_check_map(rd, map, schema_of(s3))) {
		read_endpoint(rd, map, s3);
		if (!google)
			read_region(rd, map, s3);
		read_bucket(rd, map, s3, &prefix);
		read_path(rd, map, s3, &prefix);
		s3->prefix = make_prefix(rd, buf_str(&prefix));
		read_credentials(rd, map, s3);
		if (reader_flag(rd, map, "deleteSync", &s3->delete_sync) && is_input &&
			s3->delete_sync.value)
			reader_note(rd, &s3->delete_sync.at,
				"`%s` has no effect: nothing is ever deleted from an input",
				reader_field(rd, "deleteSync"));
	}
	reader_leave(rd, saved);
}

/* A relative path starts at the workflow's folder, also for a record that is read elsewhere. */
void reader_anchor(struct reader *rd, struct node *node, struct workflow_text *path)
{
	const char *file = rd->workflow->file;
	const char *slash = strrchr(file, '/');
	const char *absolute;

	if (*path->value == '/' || *file != '/' || reader_is_open(rd, path))
		return;
	absolute = workflow_arena_printf(
		rd->arena, "%.*s/%s", (int)(slash - file), file, path->value);
	if (!absolute)
		return;
	path->value = absolute;
	if (!path->shown)
		node->text = absolute;
}

static void read_local(struct reader *rd, const struct node *map, struct workflow_input *input)
{
	size_t saved = reader_enter(rd, "local", 0);
	struct node *node = node_get(map, "path");

	if (reader_check_map(rd, map, &schema_local)) {
		if (!node)
			reader_missing(rd, map, &schema_local, "path",
				"a file or directory of this machine");
		else if (reader_text(rd, map, "path", &input->local_path) &&
			 !*input->local_path.value)
			reader_error(rd, &input->local_path.at, "`%s` is empty",
				reader_field(rd, "path"));
		else if (input->local_path.value)
			reader_anchor(rd, node, &input->local_path);
	}
	reader_leave(rd, saved);
}

/* An unknown key was reported, and is what the missing one should have been. */
static bool all_keys_known(const struct node *map, const struct schema *schema)
{
	for (size_t i = 0; i < map->n; i++) {
		if (!schema_find(schema, map->entries[i].key))
			return false;
	}
	return true;
}

/* Which of http, s3, gs and local `map` has; reports none, and more than one. */
static enum workflow_transport transport_of(
	struct reader *rd, const struct node *map, bool is_input)
{
	static const char *const keys[] = {"http", "s3", "gs", "local", "artifacts"};
	static const enum workflow_transport kinds[] = {
		WORKFLOW_HTTP, WORKFLOW_S3, WORKFLOW_S3, WORKFLOW_LOCAL, WORKFLOW_ARTIFACTS};
	enum workflow_transport kind = WORKFLOW_NO_TRANSPORT;
	const char *first = NULL;

	for (size_t i = 0; i < (is_input ? 5 : 3); i++) {
		const struct node_entry *entry = node_find(map, keys[i]);

		if (!entry || node_is_null(entry->value))
			continue;
		if (first)
			reader_error(rd, &entry->key_at, "`%s` has both `%s` and `%s`; keep one%s",
				buf_str(&rd->path), first, keys[i],
				is_input ? ", or list several sources in `inputs`" : "");
		if (!first) {
			first = keys[i];
			kind = kinds[i];
		}
	}
	if (!first && !rd->partial &&
		all_keys_known(map, is_input ? &schema_input : &schema_output))
		reader_error(rd, &map->at, "`%s` needs %s", buf_str(&rd->path),
			is_input ? "`http`, `s3`, `gs`, `local` or `artifacts`"
				 : "`http`, `s3` or `gs`");
	return kind;
}

/* Where below the input directory the data goes. */
static void read_below(struct reader *rd, const struct node *map, struct workflow_input *input)
{
	struct workflow_text *path = &input->path;
	char quoted[QUOTE_SIZE];
	size_t len;

	path->value = "";
	if (!reader_text(rd, map, "path", path) || reader_is_open(rd, path)) {
		path->value = path->value ? path->value : "";
		return;
	}
	if (*path->value == '/' || reader_has_dots(path->value)) {
		reader_error(rd, &path->at,
			"`%s` lies below the input directory: no `/` in front, no `.` or `..`, not "
			"%s",
			reader_field(rd, "path"), quote(workflow_shown(path), quoted));
		return;
	}
	len = strlen(path->value);
	while (len > 0 && path->value[len - 1] == '/')
		len--;
	path->value = workflow_arena_copy(rd->arena, path->value, len);
}

static void read_sha256(struct reader *rd, const struct node *map, struct workflow_input *input)
{
	struct workflow_text *sum = &input->sha256;
	unsigned char bytes[32];
	char quoted[QUOTE_SIZE];
	char *lower;

	if (!reader_text(rd, map, "sha256", sum) || reader_is_open(rd, sum))
		return;
	if (str_unhex(sum->value, bytes, sizeof(bytes)) < 0) {
		reader_error(rd, &sum->at, "`%s` is 64 hexadecimal digits, not %s",
			reader_field(rd, "sha256"), quote(workflow_shown(sum), quoted));
		return;
	}
	if (input->kind == WORKFLOW_S3)
		reader_error(rd, &sum->at,
			"`%s` is of one file; an S3 input is checked object by object",
			reader_field(rd, "sha256"));
	lower = workflow_arena_alloc(rd->arena, 2 * sizeof(bytes) + 1);
	if (lower)
		str_hex(bytes, sizeof(bytes), lower);
	sum->value = lower;
}

static void read_mode(struct reader *rd, const struct node *map)
{
	struct workflow_text mode = {0};
	char quoted[QUOTE_SIZE];

	if (!reader_text(rd, map, "mode", &mode) || strcmp(mode.value, "copy") == 0)
		return;
	if (strcmp(mode.value, "mount") == 0)
		reader_error(rd, &mode.at,
			"`mode: mount` is not supported by this version: inputs are copied; remove "
			"it, or write `mode: copy`");
	else
		reader_error(rd, &mode.at, "`%s` is copy, not %s", reader_field(rd, "mode"),
			quote(workflow_shown(&mode), quoted));
}

/* At the path of the input, which is a map or is reported. */
static void read_input(struct reader *rd, const struct node *map, struct workflow_input *input)
{
	const struct node *below;

	input->at = map->at;
	input->path.value = "";
	if (!reader_check_map(rd, map, &schema_input))
		return;
	input->kind = transport_of(rd, map, true);
	if ((below = node_get(map, "http")))
		read_http(rd, below, &input->http_url);
	if ((below = node_get(map, "s3")))
		read_s3(rd, below, &input->s3, false, true);
	else if ((below = node_get(map, "gs")))
		read_s3(rd, below, &input->s3, true, true);
	if ((below = node_get(map, "local")))
		read_local(rd, below, input);
	if ((below = node_get(map, "artifacts")))
		read_artifacts_of(rd, below, input);
	read_link(rd, map, input);
	read_below(rd, map, input);
	read_sha256(rd, map, input);
	read_mode(rd, map);
	input->unpack.value = input->kind == WORKFLOW_HTTP || input->kind == WORKFLOW_LOCAL;
	reader_flag(rd, map, "unpack", &input->unpack);
}

void read_inputs(struct reader *rd, const struct node *job)
{
	struct workflow *wf = rd->workflow;
	const struct node *single = node_get(job, "input");
	const struct node *list = reader_list(rd, job, "inputs");
	size_t n = (single ? 1 : 0) + (list ? list->n : 0);
	size_t saved;

	if (!n)
		return;
	wf->inputs = workflow_arena_array(rd->arena, n, sizeof(*wf->inputs));
	if (!wf->inputs)
		return;
	if (single) {
		saved = reader_enter(rd, "input", 0);
		read_input(rd, single, &wf->inputs[wf->n_inputs++]);
		reader_leave(rd, saved);
	}
	saved = reader_enter(rd, "inputs", 0);
	for (size_t i = 0; list && i < list->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		read_input(rd, list->entries[i].value, &wf->inputs[wf->n_inputs++]);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
}

void read_output(struct reader *rd, const struct node *job)
{
	struct workflow_output *output = &rd->workflow->output;
	const struct node *map = node_get(job, "output");
	const struct node *below;
	size_t saved;

	output->at = job->at;
	if (!map)
		return;
	saved = reader_enter(rd, "output", 0);
	output->at = map->at;
	if (reader_check_map(rd, map, &schema_output)) {
		output->kind = transport_of(rd, map, false);
		if ((below = node_get(map, "http")))
			read_http(rd, below, &output->http_url);
		if ((below = node_get(map, "s3")))
			read_s3(rd, below, &output->s3, false, false);
		else if ((below = node_get(map, "gs")))
			read_s3(rd, below, &output->s3, true, false);
	}
	reader_leave(rd, saved);
}
