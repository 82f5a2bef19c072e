/*
 * The table of the requests. Most of them are a verb whose words the request completes:
 *
 *	"--json"		a word
 *	"$run"			a parameter that the request must have
 *	"$url"			one that must be s3://… or gs://…
 *	"?grace:--grace"	an option, if the request has the parameter
 *	"?store"		the options of the store that it names
 */
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "net/credentials/aws_config.h"
#include "records/layout.h"
#include "ui/log.h"
#include "ui/answer.h"
#include "ui/upload.h"
#include "ui/verb.h"

#include <penstock/version.h>

#define WORDS	9
#define READ_MS 120000 /* for a verb that only reads */
#define PIECE	(64 * KIB) /* of contents that are passed on */

enum output {
	LIST, /* JSON with an ETag */
	DONE, /* {"out": text}: the verb changes something, and may take long */
	BYTES /* contents of any size */
};

struct route {
	const char *method, *path;
	enum MHD_Result (*own)(struct exchange *x); /* NULL: the verb below */
	enum output output;
	const char *words[WORDS];
};

/* ---- words ---- */

/* Adds what a word of the table means. Returns the name of a parameter that is missing or invalid,
 * or NULL. */
static const char *add_word(
	const struct exchange *x, const char *word, struct strlist *words, bool *no_memory)
{
	const char *option, *value;
	char name[16];

	if (*word == '$') {
		value = param(x, word + 1);
		if (!value || (strcmp(word, "$url") == 0 && !verb_is_object(value)))
			return word + 1;
		*no_memory |= strlist_add(words, value) < 0;
		return NULL;
	}
	if (*word != '?') {
		*no_memory |= strlist_add(words, word) < 0;
		return NULL;
	}
	option = strchr(word, ':');
	snprintf(name, sizeof(name), "%.*s", option ? (int)(option - word - 1) : 15, word + 1);
	value = param(x, name);
	if (value && !option)
		*no_memory |= verb_add_store(words, value) < 0;
	else if (value)
		*no_memory |= strlist_addf(words, "%s=%s", option + 1, value) < 0;
	return NULL;
}

/* ---- contents ---- */

/* The bytes that were read to learn if the verb fails, then the rest. */
struct contents {
	struct verb *verb;
	size_t n, sent; /* of `head` */
	char head[PIECE];
};

static ssize_t pass_on(void *cookie, uint64_t position, char *data, size_t max)
{
	struct contents *contents = cookie;
	_cleanup_(buf_release) struct buf message = BUF_INIT(LIMIT_STRING);
	size_t n = contents->n - contents->sent;
	ssize_t got;

	(void)position;
	if (n) {
		n = n < max ? n : max;
		memcpy(data, contents->head + contents->sent, n);
		contents->sent += n;
		return (ssize_t)n;
	}
	got = verb_read(contents->verb, data, max);
	if (got > 0)
		return got;
	/* The browser notices a reply that is cut. */
	return got == 0 && verb_wait(contents->verb, &message) == 0
		       ? MHD_CONTENT_READER_END_OF_STREAM
		       : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void contents_free(void *cookie)
{
	struct contents *contents = cookie;

	verb_close(contents->verb);
	free(contents);
}

/* Makes the browser save the contents under the last name of the path. */
static void add_disposition(const struct exchange *x, struct MHD_Response *response)
{
	const char *path = param(x, "path") ? param(x, "path") : param(x, "url");
	const char *name = path ? strrchr(path, '/') : NULL;
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_STRING);

	name = name ? name + 1 : path;
	buf_add_str(&value, "attachment; filename*=UTF-8''");
	for (; name && *name; name++) {
		bool plain = strchr("-._", *name) || (*name >= '0' && *name <= '9') ||
			     (*name >= 'A' && *name <= 'Z') || (*name >= 'a' && *name <= 'z');

		buf_printf(&value, plain ? "%c" : "%%%02X", (unsigned char)*name);
	}
	if (!buf_failed(&value))
		MHD_add_response_header(response, "Content-Disposition", buf_str(&value));
}

static enum MHD_Result reply_contents(struct exchange *x, const struct strlist *words)
{
	_cleanup_(buf_release) struct buf message = BUF_INIT(LIMIT_STRING);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct contents *contents = calloc(1, sizeof(*contents));
	struct MHD_Response *response;
	ssize_t n;
	int code;

	if (!contents)
		return MHD_NO;
	if (verb_open(&contents->verb, words, &err) < 0) {
		contents_free(contents);
		return answer_failure(x, &err);
	}
	n = verb_read(contents->verb, contents->head, sizeof(contents->head));
	code = n > 0 ? 0 : verb_wait(contents->verb, &message);
	if (n < 0 || code) {
		contents_free(contents);
		return answer_verb_failed(x, code, buf_str(&message));
	}
	contents->n = (size_t)n;
	if (n == 0) {
		contents_free(contents);
		response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
	} else {
		response = MHD_create_response_from_callback(
			MHD_SIZE_UNKNOWN, PIECE, pass_on, contents, contents_free);
		if (!response)
			contents_free(contents);
	}
	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", "application/octet-stream");
	if (param(x, "download"))
		add_disposition(x, response);
	return answer(x, MHD_HTTP_OK, response);
}

/* ---- verbs ---- */

static enum MHD_Result reply_printed(struct exchange *x, struct buf *out)
{
	_cleanup_free_ char *text = NULL;

	while (out->len && out->data[out->len - 1] == '\n')
		buf_truncate(out, out->len - 1);
	text = buf_take(out);
	str_make_utf8(text);
	return answer_json(x, json_pack("{s:s}", "out", text));
}

static enum MHD_Result run_route(struct exchange *x, const struct route *route)
{
	_cleanup_(verb_result_release) struct verb_result result = VERB_RESULT_INIT;
	_cleanup_(strlist_release) struct strlist words = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool no_memory = false;

	for (size_t i = 0; i < WORDS && route->words[i]; i++) {
		const char *name = add_word(x, route->words[i], &words, &no_memory);

		if (name)
			return answer_error(
				x, MHD_HTTP_BAD_REQUEST, "'%s' is missing or invalid", name);
	}
	if (no_memory)
		return MHD_NO;
	if (route->output == BYTES)
		return reply_contents(x, &words);
	if (verb_run(&words, route->output == LIST ? READ_MS : 0, &x->ui->stopping, &result, &err) <
		0)
		return answer_failure(x, &err);
	if (result.code)
		return answer_verb_failed(x, result.code, buf_str(&result.message));
	return route->output == LIST ? answer_tagged(x, "application/json", &result.out)
				     : reply_printed(x, &result.out);
}

/* ---- others ---- */

static enum MHD_Result about(struct exchange *x)
{
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	str_make_utf8(host);
	return answer_json(x, json_pack("{s:s, s:s, s:s, s:b}", "version", PENSTOCK_VERSION, "host",
				      host, "home", x->ui->home, "readOnly", x->ui->read_only));
}

/* The workflow as it was run, which has no secrets. */
static enum MHD_Result workflow(struct exchange *x)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_UI_PIECE);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *id = param(x, "run");
	_cleanup_free_ char *path = NULL;
	int r;

	if (!id || strspn(id, "0123456789abcdef") != strlen(id))
		return answer_error(x, MHD_HTTP_BAD_REQUEST, "'run' is a whole id");
	path = run_path(x->ui->home, id, RUN_FILE_WORKFLOW);
	r = path ? fs_read(path, &text, &err) : error_memory(&err);
	return r < 0 ? answer_failure(x, &err)
		     : answer_tagged(x, "text/plain; charset=utf-8", &text);
}

static void add_name(json_t *names, const char *name)
{
	size_t i;
	json_t *known;

	json_array_foreach (names, i, known) {
		if (strcmp(json_string_value(json_object_get(known, "name")), name) == 0)
			return;
	}
	json_array_append_new(names, json_pack("{s:s}", "name", name));
}

/* The store of the environment, that of this home, and those of the profiles. */
static enum MHD_Result stores(struct exchange *x)
{
	_cleanup_(aws_config_release) struct aws_config config = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	json_t *names;

	if (aws_config_load(&config, &err) < 0)
		return answer_failure(x, &err);
	names = json_array();
	add_name(names, "default");
	add_name(names, "embedded");
	for (size_t i = 0; i < config.n; i++) {
		const char *section = config.entries[i].section;

		if (str_starts(section, "profile "))
			add_name(names, section + strlen("profile "));
	}
	return answer_json(x, names);
}

static const struct route routes[] = {
	{"GET", "/api/about", about, LIST, {0}},
	{"GET", "/api/stores", stores, LIST, {0}},
	{"GET", "/api/log", log_bytes, LIST, {0}},
	{"GET", "/api/log-lines", log_lines, LIST, {0}},
	{"GET", "/api/log-search", log_search, LIST, {0}},
	{"GET", "/api/workflow", workflow, LIST, {0}},
	{"POST", "/api/upload", upload_begin, LIST, {0}},
	{"PUT", "/api/upload", upload_part_end, LIST, {0}},
	{"POST", "/api/upload/finish", upload_finish, LIST, {0}},
	{"DELETE", "/api/upload", upload_forget, LIST, {0}},

	{"GET", "/api/runs", NULL, LIST, {"ps", "--all", "--json"}},
	{"GET", "/api/run", NULL, LIST, {"show", "--json", "--", "$run"}},
	{"GET", "/api/metrics", NULL, LIST, {"metrics", "--json", "--", "$run"}},
	{"GET", "/api/checkpoints", NULL, LIST, {"checkpoints", "--json", "--", "list", "$run"}},
	{"GET", "/api/files", NULL, LIST, {"artifacts", "--json", "--", "list", "$run"}},
	{"GET", "/api/file", NULL, BYTES,
		{"artifacts", "?offset:--offset", "?length:--length", "--", "cat", "$run",
			"$path"}},
	{"GET", "/api/runners", NULL, LIST, {"runners", "--json", "--on=local"}},
	{"GET", "/api/cluster", NULL, LIST, {"runners", "--json", "--on=slurm"}},
	{"GET", "/api/claims", NULL, LIST, {"ps", "--claims", "--json"}},

	{"GET", "/api/buckets", NULL, LIST, {"ls", "--json", "?store"}},
	{"GET", "/api/list", NULL, LIST,
		{"ls", "--json", "?store", "?after:--after", "?limit:--limit", "--", "$url"}},
	{"GET", "/api/stat", NULL, LIST, {"stat", "--json", "?store", "--", "$url"}},
	{"GET", "/api/object", NULL, BYTES,
		{"cat", "?store", "?offset:--offset", "?length:--length", "--", "$url"}},
	{"POST", "/api/link", NULL, DONE,
		{"presign", "?store", "?expires:--expires", "--", "$url"}},
	{"POST", "/api/remove", NULL, DONE, {"rm", "--quiet", "?store", "--raw", "--", "$url"}},

	{"POST", "/api/stop", NULL, DONE, {"stop", "--quiet", "?grace:--grace", "--", "$run"}},
	{"POST", "/api/preempt", NULL, DONE,
		{"preempt", "--quiet", "?grace:--grace", "--", "$run"}},
	{"POST", "/api/resume", NULL, DONE, {"resume", "--quiet", "--detach", "--", "$run"}},
};

enum MHD_Result ui_route(struct exchange *x)
{
	const char *method = strcmp(x->method, "HEAD") == 0 ? "GET" : x->method;
	bool found = false;

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		const struct route *route = &routes[i];

		if (strcmp(x->path, route->path) != 0)
			continue;
		found = true;
		if (strcmp(method, route->method) == 0)
			return route->own ? route->own(x) : run_route(x, route);
	}
	return found ? answer_error(x, MHD_HTTP_METHOD_NOT_ALLOWED, "unknown method")
		     : answer_error(x, MHD_HTTP_NOT_FOUND, "unknown request");
}
