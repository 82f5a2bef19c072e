/* Inputs and the output: HTTP, S3, Google Cloud Storage and files of this machine. */
#include <ctype.h>
#include <strings.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/document/secrets.h"
#include "workflow/native/native.h"

/* Returns the length of a typographic hyphen, which word processors insert for "-"; 0 if there is
 * none. */
static size_t hyphen_length(const char *s)
{
	static const char *const dashes[] = {
		"\xe2\x80\x90", "\xe2\x80\x91", "\xe2\x80\x92", "\xe2\x80\x93", "\xe2\x88\x92"};

	for (size_t i = 0; i < ARRAY_SIZE(dashes); i++) {
		if (str_starts(s, dashes[i]))
			return strlen(dashes[i]);
	}
	return 0;
}

/* Replaces typographic hyphens with "-": text that was pasted from a web page may have them. */
static void plain_dashes(struct reader *rd, const char *key, struct workflow_text *text)
{
	_cleanup_(buf_release) struct buf plain = BUF_INIT(LIMIT_STRING);
	const char *copy;
	bool odd = false;

	for (const char *p = text->value; *p;) {
		size_t len = hyphen_length(p);

		buf_add_char(&plain, len ? '-' : *p);
		odd = odd || len;
		p += len ? len : 1;
	}
	copy = odd ? workflow_arena_take(rd->arena, &plain) : NULL;
	if (!copy)
		return;
	reader_note_of(rd, &text->at, key, "has typographic hyphens: read as %s", quote(copy));
	text->value = copy;
}

/* Returns the mistake in `url`, for a message; NULL if there is none. */
static const char *url_mistake(const char *url)
{
	const char *host, *at;
	size_t len;

	for (const char *p = url; *p; p++) {
		if ((unsigned char)*p <= ' ')
			return "contains a space; write it as %20";
	}
	if (strncasecmp(url, "http://", 7) == 0)
		host = url + 7;
	else if (strncasecmp(url, "https://", 8) == 0)
		host = url + 8;
	else
		return "must begin with https:// or http://";
	len = strcspn(host, "/?#");
	at = memrchr(host, '@', len);
	if (at) {
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
		if (len == 0)
			return "has no port after `:`";
		memcpy(digits, port + 1, len < sizeof(digits) ? len : sizeof(digits) - 1);
		if (len >= sizeof(digits) || !str_to_u64(digits, 1, 65535, &number))
			return "has a port that is not from 1 to 65535";
	}
	return NULL;
}

void check_url(struct reader *rd, const char *key, struct workflow_text *url)
{
	_cleanup_(buf_release) struct buf masked = BUF_INIT(LIMIT_STRING);
	const char *mistake;

	if (!url->value)
		return;
	secret_redact_url(url->value);
	plain_dashes(rd, key, url);
	if (!reader_knows(rd, url))
		return;
	if (secret_mask_url(url->value, &masked) && !url->shown)
		url->shown = workflow_arena_take(rd->arena, &masked);
	mistake = url_mistake(url->value);
	if (mistake)
		reader_error_of(rd, &url->at, key, "%s: %s", mistake, quote(workflow_shown(url)));
}

static void check_http(struct reader *rd, const struct node *map, void *out)
{
	(void)map;
	check_url(rd, "url", out);
}

static const struct schema_key http_keys[] = {
	{"url", .kinds = KEY_TEXT, .member = 1, .size = sizeof(struct workflow_text),
		.flags = KEY_REQUIRED | KEY_SHOWN, .value = "URL",
		.says = "begins with `https://` or `http://`; the last part of its path is the "
			"name of the file"},
};
static const struct schema schema_http = {SCHEMA("http", "`http`", http_keys), .check = check_http};

/* ---- s3 and gs ---- */

static bool all_of(const char *s, const char *allowed)
{
	return s[strspn(s, allowed)] == '\0';
}

static void check_region(struct reader *rd, const struct node *map, struct workflow_s3 *s3)
{
	if (!node_get(map, "region") && s3->embedded)
		s3->region.value = "us-east-1";
	else if (!node_get(map, "region"))
		reader_missing(rd, map, &schema_s3, "region");
	if (s3->region.value)
		plain_dashes(rd, "region", &s3->region);
	if (reader_knows(rd, &s3->region) &&
		(!*s3->region.value || !all_of(s3->region.value, LETTERS_AND_DIGITS "-_.")))
		reader_refuse(rd, &s3->region, "region", "be letters, digits and `-`");
}

static bool is_s3_bucket(const char *name)
{
	size_t len = strlen(name);

	return len >= 3 && len <= 63 && all_of(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") &&
	       !strchr(".-", name[0]) && !strchr(".-", name[len - 1]) && !strstr(name, "..");
}

/* Reports a bucket that the store would refuse with a bare status 400, after the run has
 * started. */
static void refuse_bucket(struct reader *rd, const struct workflow_text *url, const char *name)
{
	char *other = workflow_arena_copy(rd->arena, name, strlen(name));

	for (char *c = other; c && *c; c++)
		*c = *c == '_' || *c == ' ' ? '-' : (char)tolower((unsigned char)*c);
	reader_error_of(rd, &url->at, "bucketUrl",
		"names the invalid bucket %s; use 3 to 63 lower-case letters, digits, `.` and `-`%s%s",
		quote(name), other && is_s3_bucket(other) ? ", such as " : "",
		other && is_s3_bucket(other) ? quote(other) : "");
}

/* Sets `bucket`, and appends the path of the URL to `prefix`. */
static void check_bucket(struct reader *rd, struct workflow_s3 *s3, struct buf *prefix)
{
	struct workflow_text *url = &s3->bucket_url;
	const char *name, *slash;
	size_t len;
	const char *scheme = s3->google ? "gs://" : "s3://";

	if (!url->value)
		return;
	plain_dashes(rd, "bucketUrl", url);
	if (!reader_knows(rd, url))
		return;
	if (!str_starts(url->value, scheme)) {
		reader_error_of(rd, &url->at, "bucketUrl",
			"must begin with %s, such as %smy-bucket: %s", scheme, scheme,
			quote(workflow_shown(url)));
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
		reader_error_of(rd, &url->at, "bucketUrl",
			"names the invalid bucket %s; use 3 to 63 letters, digits, `.`, `_` and `-`",
			quote(s3->bucket));
		return;
	}
	if (*slash && url->value[strlen(url->value) - 1] == '/')
		reader_note(rd, &url->at, "the `/` at the end of `%s` is ignored",
			reader_field(rd, "bucketUrl"));
	buf_add_str(prefix, slash);
}

static void check_path(struct reader *rd, struct workflow_s3 *s3, struct buf *prefix)
{
	struct workflow_text *path = &s3->path;
	const char *first;

	if (!reader_knows(rd, path))
		return;
	if (*path->value != '/') {
		path->value = workflow_arena_printf(rd->arena, "/%s", path->value);
		if (!path->value)
			return;
		reader_note_of(rd, &path->at, "path", "lacks the leading `/`, which is added: %s",
			reader_quoted(rd, path));
	}
	buf_add_str(prefix, path->value);
	first = buf_str(prefix) + strspn(buf_str(prefix), "/");
	if (reader_has_dots(buf_str(prefix)))
		reader_error_of(rd, &path->at, "path", "must not contain `.` or `..`: %s",
			quote(workflow_shown(path)));
	else if (prefix->len > LIMIT_WORKFLOW_PREFIX)
		reader_error_of(
			rd, &path->at, "path", "is longer than %d bytes", LIMIT_WORKFLOW_PREFIX);
	else if (str_starts(first, ".penstock/") || strcmp(first, ".penstock") == 0)
		reader_error_of(rd, &path->at, "path",
			"is in .penstock/, which is reserved for the state of runs");
}

static void check_endpoint(struct reader *rd, struct workflow_s3 *s3)
{
	struct workflow_text *endpoint = &s3->endpoint_url;

	if (!endpoint->value)
		return;
	if (strcmp(endpoint->value, "embedded") == 0 && !s3->google) {
		*endpoint = (struct workflow_text){.shown = "embedded", .at = endpoint->at};
		s3->embedded = true;
		return;
	}
	check_url(rd, "endpointUrl", endpoint);
	if (reader_knows(rd, endpoint) && strpbrk(endpoint->value, "?#@"))
		reader_error_of(rd, &endpoint->at, "endpointUrl",
			"must be scheme, host and port only; credentials belong in "
			"accessKeyId and secretAccessKey");
}

/* Published workflows have "EXO***" or "***" for keys. */
static void check_placeholder(
	struct reader *rd, const char *key, const struct workflow_credential *credential)
{
	if (credential->value && str_ends(credential->value, "***"))
		reader_note_of(rd, &credential->at, key,
			"ends in ***, which looks like a placeholder for the real key");
}

static void check_store(struct reader *rd, const struct node *map, const struct schema *schema,
	struct workflow_s3 *s3)
{
	_cleanup_(buf_release) struct buf prefix = BUF_INIT(LIMIT_WORKFLOW_FILE);
	bool id = node_get(map, "accessKeyId") != NULL;
	bool secret = node_get(map, "secretAccessKey") != NULL;
	const char *path;
	size_t len;

	s3->prefix = "";
	check_endpoint(rd, s3);
	if (!s3->google)
		check_region(rd, map, s3);
	check_bucket(rd, s3, &prefix);
	check_path(rd, s3, &prefix);
	/* "/a//b/" becomes "a//b/": no slash in front, and exactly one at the end. */
	path = buf_str(&prefix) + strspn(buf_str(&prefix), "/");
	len = strlen(path);
	while (len > 0 && path[len - 1] == '/')
		len--;
	s3->prefix = len ? workflow_arena_printf(rd->arena, "%.*s/", (int)len, path) : "";
	if (id != secret)
		reader_missing(rd, map, schema, id ? "secretAccessKey" : "accessKeyId");
	if (s3->service_account_key.value && (id || secret))
		reader_error_of(rd, &s3->service_account_key.at, "serviceAccountKey",
			"and an HMAC key are two identities; keep one");
	check_placeholder(rd, "accessKeyId", &s3->access_key_id);
	check_placeholder(rd, "secretAccessKey", &s3->secret_access_key);
}

static void check_s3(struct reader *rd, const struct node *map, void *out)
{
	check_store(rd, map, &schema_s3, out);
}

static const struct schema_key s3_keys[] = {
	{"region", TEXT(workflow_s3, region), .flags = KEY_SHOWN,
		.otherwise = "us-east-1 for `embedded`",
		.says = "the region of the store, or us-east-1 if the store has none; required, "
			"except for `embedded`"},
	{"bucketUrl", TEXT(workflow_s3, bucket_url), .flags = KEY_REQUIRED | KEY_SHOWN,
		.value = "`s3://BUCKET`", .says = "the bucket, such as s3://my-bucket"},
	{"path", TEXT(workflow_s3, path), .flags = KEY_REQUIRED | KEY_SHOWN,
		.value = "begins with `/`",
		.says = "`/` is the whole bucket; `/foo` is the object `foo` and everything below "
			"`foo/`, never `foobar`"},
	{"accessKeyId", CREDENTIAL(workflow_s3, access_key_id), .flags = KEY_SHOWN,
		.otherwise = "the first of environment, AWS profile, container and instance",
		.says = "give both keys or neither"},
	{"secretAccessKey", CREDENTIAL(workflow_s3, secret_access_key), .flags = KEY_SHOWN,
		.otherwise = "with `accessKeyId`", .says = "give both keys or neither"},
	{"endpointUrl", TEXT(workflow_s3, endpoint_url), .flags = KEY_REQUIRED | KEY_SHOWN,
		.value = "URL, or `embedded`",
		.says = "the URL of the store without bucket and credentials, such as "
			"https://s3.us-east-2.amazonaws.com, or `embedded`; that is penstock's "
			"own store on this machine"},
	{"deleteSync", FLAG(workflow_s3, delete_sync), .flags = KEY_SHOWN,
		.says = "for an output: if a file that this run published is deleted, its "
			"object is deleted, too; no effect on inputs"},
	{"createBucket", FLAG(workflow_s3, create_bucket),
		.says = "for an output: creates the bucket if it is missing, as the embedded "
			"store always does; no effect on inputs"},
};
const struct schema schema_s3 = {
	SCHEMA("s3", "`s3`", s3_keys), AT(workflow_s3, at), .check = check_s3};

static const struct schema schema_gs;

static void check_gs(struct reader *rd, const struct node *map, void *out)
{
	((struct workflow_s3 *)out)->google = true;
	check_store(rd, map, &schema_gs, out);
}

static const struct schema_key gs_keys[] = {
	{"bucketUrl", TEXT(workflow_s3, bucket_url), .flags = KEY_REQUIRED | KEY_SHOWN,
		.value = "`gs://BUCKET`", .says = "the bucket, such as gs://my-bucket"},
	{"path", TEXT(workflow_s3, path), .flags = KEY_REQUIRED | KEY_SHOWN,
		.value = "begins with `/`", .says = "`/` is the whole bucket; as for `s3`"},
	{"accessKeyId", CREDENTIAL(workflow_s3, access_key_id), .flags = KEY_SHOWN,
		.says = "an HMAC key instead of `serviceAccountKey`; give both keys or neither"},
	{"secretAccessKey", CREDENTIAL(workflow_s3, secret_access_key), .flags = KEY_SHOWN,
		.says = "the secret of the HMAC key; give both keys or neither"},
	{"serviceAccountKey", CREDENTIAL(workflow_s3, service_account_key), .flags = KEY_SHOWN,
		.otherwise = "the first of `GOOGLE_APPLICATION_CREDENTIALS`, HMAC key, gcloud and "
			     "machine",
		.says = "the JSON of a service account's key file, as `${{ secrets.GCP_KEY }}`"},
	{"endpointUrl", TEXT(workflow_s3, endpoint_url), .value = "URL",
		.otherwise = "`https://storage.googleapis.com`",
		.says = "another server, such as an emulator"},
	{"deleteSync", FLAG(workflow_s3, delete_sync), .flags = KEY_SHOWN, .says = "as for `s3`"},
	{"createBucket", FLAG(workflow_s3, create_bucket), .says = "as for `s3`"},
};
static const struct schema schema_gs = {
	SCHEMA("gs", "`gs`", gs_keys), AT(workflow_s3, at), .check = check_gs};

/* ---- local ---- */

static void check_local(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_text *path = out;

	if (path->value && !*path->value)
		reader_error_of(rd, &path->at, "path", "is empty");
	else if (path->value)
		reader_anchor(rd, node_get(map, "path"), path);
}

static const struct schema_key local_keys[] = {
	{"path", .kinds = KEY_TEXT, .member = 1, .size = sizeof(struct workflow_text),
		.flags = KEY_REQUIRED | KEY_SHOWN,
		.says = "a file or directory of this machine; a relative path starts at the folder "
			"of the workflow file"},
};
static const struct schema schema_local = {
	SCHEMA("local", "`local`", local_keys), .check = check_local};

/* ---- inputs ---- */

/* Returns false if an unknown key was reported: the key may be the misspelled transport. */
static bool all_keys_known(const struct node *map, const struct schema *schema)
{
	for (size_t i = 0; i < map->n; i++) {
		if (!schema_find(schema, map->entries[i].key))
			return false;
	}
	return true;
}

/* Returns the transport that `map` has. Reports a map without a transport, or with several. */
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
			reader_error_of(rd, &entry->key_at, NULL,
				"has both `%s` and `%s`; keep one%s", first, keys[i],
				is_input ? ", or list several sources in `inputs`" : "");
		if (!first) {
			first = keys[i];
			kind = kinds[i];
		}
	}
	if (!first && !rd->partial &&
		all_keys_known(map, is_input ? &schema_input : &schema_output))
		reader_error_of(rd, &map->at, NULL, "needs %s",
			is_input ? "`http`, `s3`, `gs`, `local` or `artifacts`"
				 : "`http`, `s3` or `gs`");
	return kind;
}

static void check_sha256(struct reader *rd, struct workflow_input *input)
{
	struct workflow_text *sum = &input->sha256;
	unsigned char bytes[32];
	char *lower;

	if (!reader_knows(rd, sum))
		return;
	if (str_unhex(sum->value, bytes, sizeof(bytes)) < 0) {
		reader_refuse(rd, sum, "sha256", "be 64 hexadecimal digits");
		return;
	}
	if (input->kind == WORKFLOW_S3)
		reader_error_of(rd, &sum->at, "sha256",
			"is for one file; each object of an S3 input is verified by itself");
	lower = workflow_arena_alloc(rd->arena, 2 * sizeof(bytes) + 1);
	if (lower)
		str_hex(bytes, sizeof(bytes), lower);
	sum->value = lower;
}

static void check_input(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_input *input = out;
	struct workflow_text *path = &input->path;
	size_t len = strlen(path->value), saved;

	input->kind = transport_of(rd, map, true);
	if (input->link.value) {
		rd->workflow->has_work_dir = true;
		if (strcmp(input->link.value, ".") != 0)
			check_below(rd, "link", "the working directory", &input->link);
	}
	if (len && !reader_is_open(rd, path) &&
		check_below(rd, "path", "the input directory", path)) {
		while (len > 0 && path->value[len - 1] == '/')
			len--;
		path->value = workflow_arena_copy(rd->arena, path->value, len);
	}
	check_sha256(rd, input);
	if (!input->unpack.given)
		input->unpack.value = input->kind == WORKFLOW_HTTP || input->kind == WORKFLOW_LOCAL;
	saved = reader_enter(rd, input->s3.google ? "gs" : "s3", 0);
	if (input->s3.delete_sync.value)
		reader_note_of(rd, &input->s3.delete_sync.at, "deleteSync",
			"has no effect: nothing is ever deleted from an input");
	if (input->s3.create_bucket.value)
		reader_note_of(rd, &input->s3.create_bucket.at, "createBucket",
			"has no effect: the bucket of an input must exist");
	reader_leave(rd, saved);
}

static const char *const copy_words[] = {"copy", NULL};

static const struct schema_key input_keys[] = {
	{"http", MAP(workflow_input, http_url, &schema_http),
		.shown = {IS(workflow_input, kind, WORKFLOW_HTTP)},
		.says = "one file from a web server"},
	{"s3", MAP(workflow_input, s3, &schema_s3),
		.shown = {IS(workflow_input, kind, WORKFLOW_S3), UNSET(workflow_input, s3.google)},
		.says = "objects of an S3 store"},
	{"gs", MAP(workflow_input, s3, &schema_gs),
		.shown = {IS(workflow_input, kind, WORKFLOW_S3), SET(workflow_input, s3.google)},
		.says = "objects of Google Cloud Storage"},
	{"local", MAP(workflow_input, local_path, &schema_local),
		.shown = {IS(workflow_input, kind, WORKFLOW_LOCAL)},
		.says = "a file or directory of this machine"},
	{"artifacts", MAP(workflow_input, artifacts, &schema_artifacts_of),
		.shown = {IS(workflow_input, kind, WORKFLOW_ARTIFACTS)},
		.says = "the output of another run"},
	{"path", TEXT(workflow_input, path), .flags = KEY_SHOWN, .preset_text = "",
		.value = "relative path", .otherwise = "the input directory",
		.says = "the place of the data below the input directory"},
	{"link", TEXT(workflow_input, link), .value = "relative path, or `.`",
		.says = "a path in the working directory that becomes a link to the data; `.`: "
			"a link there for each entry of the data"},
	{"sha256", TEXT(workflow_input, sha256), .value = "64 hexadecimal digits",
		.says = "the digest of the file before it is unpacked; not for `s3` and `gs`"},
	{"unpack", FLAG(workflow_input, unpack), .flags = KEY_SHOWN,
		.otherwise = "true for `http` and `local`, false for `s3` and `gs`",
		.says = "unpacks archives next to themselves, but not the archives in them"},
	{"mode", .kinds = KEY_WORD, .words = copy_words, .flags = KEY_SHOWN,
		.refused = "inputs are copied, never mounted", .says = "inputs are copied"},
};
const struct schema schema_input = {SCHEMA("input", "an input", input_keys),
	.size = sizeof(struct workflow_input), AT(workflow_input, at), .check = check_input};

static void check_output(struct reader *rd, const struct node *map, void *out)
{
	((struct workflow_output *)out)->kind = transport_of(rd, map, false);
}

static const struct schema_key output_keys[] = {
	{"http", MAP(workflow_output, http_url, &schema_http),
		.shown = {IS(workflow_output, kind, WORKFLOW_HTTP)},
		.says = "a web server: one file is sent with PUT, several are zipped first"},
	{"s3", MAP(workflow_output, s3, &schema_s3),
		.shown = {IS(workflow_output, kind, WORKFLOW_S3),
			UNSET(workflow_output, s3.google)},
		.says = "an S3 store"},
	{"gs", MAP(workflow_output, s3, &schema_gs),
		.shown = {IS(workflow_output, kind, WORKFLOW_S3), SET(workflow_output, s3.google)},
		.says = "Google Cloud Storage"},
};
const struct schema schema_output = {
	SCHEMA("output", "`output`", output_keys), AT(workflow_output, at), .check = check_output};

static bool read_input(struct reader *rd, struct node *item, void *out)
{
	reader_read(rd, item, &schema_input, out);
	return true;
}

void read_inputs(struct reader *rd, const struct node *job)
{
	struct workflow *wf = rd->workflow;
	struct node *single = node_get(job, "input");
	struct workflow_input *more, *all;
	size_t n, saved;

	more = reader_each(rd, job, "inputs", sizeof(*more), &n, read_input);
	all = workflow_arena_array(rd->arena, n + 1, sizeof(*all));
	if (!all)
		return;
	if (single) {
		saved = reader_enter(rd, "input", 0);
		read_input(rd, single, &all[wf->n_inputs++]);
		reader_leave(rd, saved);
	}
	if (n)
		memcpy(all + wf->n_inputs, more, n * sizeof(*all));
	wf->n_inputs += n;
	wf->inputs = all;
}
