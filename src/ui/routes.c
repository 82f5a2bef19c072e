/*
 * The table of the requests. Most requests run a verb; the table has the words of the verb, which
 * the request completes:
 *
 *	"--json"		a word
 *	"$run"			a parameter that the request must have
 *	"$url"			a parameter that must be s3://… or gs://…
 *	"$place"		the URL of the parameter, which must be a place (verb.h)
 *	"/path"			a parameter that is a path below "place"
 *	"?grace:--grace"	an option, if the request has the parameter
 *	"?recursive=--recursive"	a word, if the request has the parameter
 *	"?store"		the options of the store that the parameter names
 *	"?place"		the options of the store of the place
 */
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "net/credentials/aws_config.h"
#include "records/claims.h"
#include "records/layout.h"
#include "s3/uri.h"
#include "ui/log.h"
#include "ui/answer.h"
#include "ui/outputs.h"
#include "ui/upload.h"
#include "ui/verb.h"

#include <penstock/version.h>

#define WORDS	11
#define READ_MS 120000 /* timeout of a verb that only reads */
#define PIECE	(64 * KIB) /* maximum bytes of contents that are passed on at a time */
/* The page shows the last message of a verb with this option as a warning. */
#define ONLY_WARNINGS "--log-level=warn"

enum output {
	LIST, /* JSON with an ETag */
	DONE, /* {"out": text}: the verb may change something and take long */
	BYTES /* contents of any size */
};

struct route {
	const char *method, *path;
	enum MHD_Result (*own)(struct exchange *x); /* NULL to run the verb below */
	enum output output;
	const char *words[WORDS];
	/* For a run of another machine, whose output is the parameter "place". */
	enum MHD_Result (*own_there)(struct exchange *x);
	const char *words_there[WORDS];
};

/* ---- words ---- */

/* Adds the words of the command line for one word of the table. Returns the name of a parameter
 * that is missing or invalid, or NULL if all are valid. */
static const char *add_word(
	const struct exchange *x, const char *word, struct strlist *words, bool *no_memory)
{
	const char *option, *value, *place;
	char name[16];

	if (*word == '$') {
		value = param(x, word + 1);
		if (strcmp(word, "$place") == 0)
			value = verb_place_url(value);
		if (!value || (strcmp(word, "$url") == 0 && !verb_is_object(value)))
			return word + 1;
		*no_memory |= strlist_add(words, value) < 0;
		return NULL;
	}
	if (*word == '/') {
		value = param(x, word + 1);
		place = verb_place_url(param(x, "place"));
		if (!value || !place)
			return word + 1;
		*no_memory |= strlist_addf(words, "%s%s", place, value) < 0;
		return NULL;
	}
	if (*word != '?') {
		*no_memory |= strlist_add(words, word) < 0;
		return NULL;
	}
	option = strpbrk(word, ":=");
	snprintf(name, sizeof(name), "%.*s", option ? (int)(option - word - 1) : 15, word + 1);
	value = param(x, name);
	if (strcmp(name, "place") == 0 && !verb_place_url(value))
		return "place";
	if (strcmp(name, "place") == 0)
		*no_memory |= verb_add_place_store(words, value) < 0;
	else if (value && !option)
		*no_memory |= verb_add_store(words, value) < 0;
	else if (value && *option == '=')
		*no_memory |= strlist_add(words, option + 1) < 0;
	else if (value)
		*no_memory |= strlist_addf(words, "%s=%s", option + 1, value) < 0;
	return NULL;
}

/* ---- contents ---- */

/* Output of a verb: first the bytes in `head`, which were read to find out if the verb fails, and
 * then the bytes from `verb`. */
struct contents {
	struct verb *verb;
	size_t n, sent; /* bytes in `head`, and bytes of `head` that were sent */
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
	/* If the verb fails, the reply is cut off, which the browser notices. */
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
	if (name)
		uri_encode(&value, name, strlen(name), false);
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
	if (verb_open(&contents->verb, words, &x->ui->stopping, &err) < 0) {
		contents_free(contents);
		return answer_failure(x, &err);
	}
	n = verb_read(contents->verb, contents->head, sizeof(contents->head));
	code = n == 0 ? verb_wait(contents->verb, &message) : 0;
	if (n < 0 || code) {
		contents_free(contents);
		return n < 0 ? MHD_NO : answer_verb_failed(x, code, buf_str(&message));
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

/* Completes the words. Returns false after an error reply, with its result in `*sent`. */
static bool make_words(
	struct exchange *x, const char *const *given, struct strlist *words, enum MHD_Result *sent)
{
	bool no_memory = false;

	*sent = MHD_NO;
	for (size_t i = 0; i < WORDS && given[i]; i++) {
		const char *name = add_word(x, given[i], words, &no_memory);

		if (!name)
			continue;
		*sent = answer_error(x, MHD_HTTP_BAD_REQUEST, "'%s' is missing or invalid", name);
		return false;
	}
	return !no_memory;
}

/* Runs a verb. Returns true if the verb succeeds, or false after an error reply, with the result of
 * the reply in `*sent`. */
static bool run_words(struct exchange *x, const char *const *given, int timeout_ms,
	struct verb_result *result, enum MHD_Result *sent)
{
	_cleanup_(strlist_release) struct strlist words = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (!make_words(x, given, &words, sent))
		return false;
	if (verb_run(&words, timeout_ms, &x->ui->stopping, result, &err) < 0)
		*sent = answer_failure(x, &err);
	else if (result->code)
		*sent = answer_verb_failed(x, result->code, buf_str(&result->message));
	else
		return true;
	return false;
}

static enum MHD_Result run_route(
	struct exchange *x, const struct route *route, const char *const *given)
{
	_cleanup_(verb_result_release) struct verb_result result = VERB_RESULT_INIT;
	_cleanup_(strlist_release) struct strlist words = {0};
	enum MHD_Result sent;

	if (route->output == BYTES)
		return make_words(x, given, &words, &sent) ? reply_contents(x, &words) : sent;
	if (!run_words(x, given, route->output == LIST ? READ_MS : 0, &result, &sent))
		return sent;
	if (route->output == LIST && result.message.len)
		answer_warn(x, buf_str(&result.message));
	return route->output == LIST ? answer_tagged(x, "application/json", &result.out)
				     : reply_printed(x, &result.out);
}

/* ---- requests with a function of their own ---- */

static enum MHD_Result about(struct exchange *x)
{
	_cleanup_free_ char *home = strdup(x->ui->home);
	_cleanup_free_ char *user = claim_user_name(geteuid());
	char host[256] = "";

	if (!home || !user)
		return MHD_NO;
	gethostname(host, sizeof(host) - 1);
	/* JSON must be UTF-8. */
	str_make_utf8(host);
	str_make_utf8(home);
	str_make_utf8(user);
	return answer_json(
		x, json_pack("{s:s, s:s, s:s, s:s, s:b}", "version", PENSTOCK_VERSION, "host", host,
			   "home", home, "user", user, "readOnly", x->ui->read_only));
}

/* Sends the workflow as it was run; this text contains no secrets. */
static enum MHD_Result workflow(struct exchange *x)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_UI_PIECE);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *id = param(x, "run"), *place = param(x, "place");
	_cleanup_free_ char *stored = NULL;
	_cleanup_(strlist_release) struct strlist words = {0};
	_cleanup_free_ char *path = NULL;
	int r;

	if (!id || strspn(id, "0123456789abcdef") != strlen(id))
		return answer_error(x, MHD_HTTP_BAD_REQUEST, "'run' must be a whole id");
	if (verb_place_url(place)) {
		stored = str_printf("%s" RUN_STATE_ROOT "%s/workflow", place, id);
		if (!stored || strlist_add(&words, "cat") < 0 || verb_add_place(&words, stored) < 0)
			return MHD_NO;
		return reply_contents(x, &words);
	}
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

/* Lists a page of the objects below a prefix: {"dirs", "objects", "next"}. The parameter `deleted`
 * includes deleted objects. */
static enum MHD_Result list(struct exchange *x)
{
	static const char *const words[] = {"ls", ONLY_WARNINGS, "--json", "--raw",
		"?deleted=--deleted", "?store", "?after:--after", "?limit:--limit", "--", "$url",
		NULL};
	_cleanup_(verb_result_release) struct verb_result result = VERB_RESULT_INIT;
	json_t *dirs, *objects, *row, *last = NULL;
	json_auto_t *rows = NULL;
	enum MHD_Result sent;
	int64_t limit;
	size_t i;

	if (!param_number(x, "limit", 1, LIMIT_UI_ROWS, LIMIT_UI_ROWS, &limit))
		return answer_error(x, MHD_HTTP_BAD_REQUEST, "'limit' is invalid");
	if (!run_words(x, words, READ_MS, &result, &sent))
		return sent;
	rows = json_loadb(buf_str(&result.out), result.out.len, 0, NULL);
	dirs = json_array();
	objects = json_array();
	json_array_foreach (rows, i, row) {
		json_t *prefix = json_object_get(row, "prefix");

		last = prefix ? prefix : json_object_get(row, "key");
		if (prefix)
			json_array_append(dirs, prefix);
		else
			json_array_append(objects, row);
	}
	return answer_json(x, json_pack("{s:o, s:o, s:O}", "dirs", dirs, "objects", objects, "next",
				      (int64_t)json_array_size(rows) < limit ? json_null() : last));
}

/* Lists the store of the environment, the embedded store, and the stores of the profiles. */
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
	{"GET", "/api/about", .own = about},
	{"GET", "/api/runs", .own = outputs_runs},
	{"GET", "/api/failures", .own = outputs_failures},
	{"GET", "/api/run", .words = {"show", ONLY_WARNINGS, "--json", "--", "$run"},
		.own_there = outputs_run},
	{"GET", "/api/metrics",
		.words = {"metrics", ONLY_WARNINGS, "--json", "?points:--points", "--", "$run"},
		.words_there = {"metrics", ONLY_WARNINGS, "--json", "?points:--points", "?place",
			"--", "$place"}},
	{"GET", "/api/checkpoints",
		.words = {"checkpoints", ONLY_WARNINGS, "--json", "--", "list", "$run"},
		.words_there = {"checkpoints", ONLY_WARNINGS, "--json", "?place", "--", "list",
			"$place"}},
	{"GET", "/api/files", .words = {"artifacts", ONLY_WARNINGS, "--json", "--", "list", "$run"},
		.own_there = outputs_files},
	{"GET", "/api/file", .output = BYTES,
		.words = {"artifacts", "?offset:--offset", "?length:--length", "--", "cat", "$run",
			"$path"},
		.words_there = {"cat", "?offset:--offset", "?length:--length", "?place", "--",
			"/path"}},
	{"GET", "/api/log", .own = log_bytes},
	{"GET", "/api/log-lines", .own = log_lines},
	{"GET", "/api/log-search", .own = log_search},
	{"GET", "/api/workflow", .own = workflow},
	{"GET", "/api/runners", .words = {"runners", ONLY_WARNINGS, "--json", "--on=local"}},
	{"GET", "/api/cluster", .words = {"runners", ONLY_WARNINGS, "--json", "--on=slurm"}},
	{"GET", "/api/claims", .words = {"ps", ONLY_WARNINGS, "--claims", "--json"}},

	{"GET", "/api/stores", .own = stores},
	{"GET", "/api/buckets", .words = {"ls", ONLY_WARNINGS, "--json", "?store"}},
	{"GET", "/api/list", .own = list},
	{"GET", "/api/stat",
		.words = {"stat", ONLY_WARNINGS, "--json", "--tags", "?store",
			"?version:--version-id", "--", "$url"}},
	/* The versions of all keys that begin with the key of the URL. */
	{"GET", "/api/versions",
		.words = {"ls", ONLY_WARNINGS, "--json", "--raw", "--versions", "--limit=1000",
			"?store", "?after:--after", "?version:--after-version", "--", "$url"}},
	{"GET", "/api/object", .output = BYTES,
		.words = {"cat", "?store", "?version:--version-id", "?offset:--offset",
			"?length:--length", "--", "$url"}},
	{"POST", "/api/link", .output = DONE,
		.words = {"presign", "?store", "?expires:--expires", "--", "$url"}},
	{"POST", "/api/remove", .output = DONE,
		.words = {"rm", "--quiet", "?store", "--raw", "?recursive=--recursive", "--",
			"$url"}},
	{"POST", "/api/remove-version", .output = DONE,
		.words = {"rm", "--quiet", "?store", "?bypass=--bypass-governance-retention",
			"--version-id", "$version", "--", "$url"}},
	{"POST", "/api/restore", .output = DONE,
		.words = {"restore", "--quiet", "?store", "--version-id", "$version", "--",
			"$url"}},
	{"POST", "/api/upload", .own = upload_begin},
	{"PUT", "/api/upload", .own = upload_part_end},
	{"POST", "/api/upload/finish", .own = upload_finish},
	{"DELETE", "/api/upload", .own = upload_forget},

	{"POST", "/api/stop", .output = DONE,
		.words = {"stop", "--quiet", "?grace:--grace", "--", "$run"}},
	{"POST", "/api/preempt", .output = DONE,
		.words = {"preempt", "--quiet", "?grace:--grace", "--", "$run"}},
	{"POST", "/api/resume", .output = DONE,
		.words = {"resume", "--quiet", "--detach", "--", "$run"},
		.words_there = {"resume", "--quiet", "--detach", "?place", "--", "/run"}},
};

/* Answers for a run of this home, or of another machine. */
static enum MHD_Result follow(struct exchange *x, const struct route *route)
{
	if (param(x, "place") && route->own_there)
		return route->own_there(x);
	/* Allow only the places of --output: a link to the page may name any place, and a resume
	 * runs the commands of the workflow at the place. */
	if (param(x, "place") && *route->words_there && strcmp(x->method, "POST") == 0 &&
		!outputs_has(x->ui, param(x, "place")))
		return answer_error(x, MHD_HTTP_FORBIDDEN,
			"cannot change the run in '%s': --output does not include this location",
			param(x, "place"));
	if (param(x, "place") && *route->words_there)
		return run_route(x, route, route->words_there);
	return route->own ? route->own(x) : run_route(x, route, route->words);
}

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
			return follow(x, route);
	}
	return found ? answer_error(x, MHD_HTTP_METHOD_NOT_ALLOWED, "unknown method")
		     : answer_error(x, MHD_HTTP_NOT_FOUND, "unknown request");
}
