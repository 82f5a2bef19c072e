/* Shards on the web: HTTP cannot list files, so the URL or an index names the shards. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "base/thread.h"
#include "dataset/source/internal.h"
#include "net/http/http.h"
#include "s3/date.h"
#include "s3/uri.h"
#include "transfer/listing.h"
#include "transfer/reads.h"

/* ---- URLs ---- */

int source_web_url(const struct source *s, const char *name, struct buf *out)
{
	buf_add_str(out, s->prefix);
	if (!s->encode)
		buf_add_str(out, name);
	else if (uri_encode(out, name, strlen(name), true) < 0)
		return -1;
	buf_add_str(out, s->query);
	return buf_failed(out) ? -1 : 0;
}

/* Divides the URL into the prefix, which ends in "/", the names below the prefix, and the query. */
static int divide(struct source *s, const char *url, struct penstock_error *err)
{
	const char *host = strstr(url, "://") + 3, *root = host + strcspn(host, "/?#{}");
	const char *end = root + strcspn(root, "?#"), *at = root + strcspn(root, "{}?#");

	if (*root == '{' || *root == '}')
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot open '%s': braces are for names of files, not for hosts", s->url);
	while (at > root && at[-1] != '/')
		at--;
	s->prefix = at > root ? strndup(url, (size_t)(at - url))
			      : str_printf("%.*s/", (int)(root - url), url);
	s->query = strndup(end, strcspn(end, "#"));
	s->pattern = strndup(at, (size_t)(end - at));
	return s->prefix && s->query && s->pattern ? 0 : error_memory(err);
}

/* ---- finding ---- */

struct finding {
	struct source *source;
	const struct strlist *names;
	struct web_file {
		uint64_t size;
		char *version;
	} * files;
	atomic_int stop;
};

static int find_file(void *cookie, size_t i, struct penstock_error *err)
{
	struct finding *f = cookie;
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	struct web_info info;
	int r;

	if (source_web_url(f->source, f->names->items[i], &url) < 0)
		return buf_error(&url, "a URL", err);
	r = web_find(f->source->engine, buf_str(&url), &f->stop, &info, err);
	if (r < 0)
		return r;
	f->files[i].size = info.size;
	f->files[i].version = strdup(info.version);
	return f->files[i].version ? 0 : error_memory(err);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Finds all files, and makes shards of them. A name that is repeated is one shard. */
static int find_files(struct source *s, struct strlist *names, const atomic_int *cancel,
	struct penstock_error *err)
{
	struct finding f = {.source = s, .names = names};
	int r;

	qsort(names->items, names->n, sizeof(*names->items), by_name);
	f.files = calloc(names->n + 1, sizeof(*f.files));
	if (!f.files)
		return error_memory(err);
	r = thread_each(
		&(struct thread_work){.name = "shards",
			.n = names->n,
			.parallel = names->n < LIMIT_DATASET_SCANS ? names->n : LIMIT_DATASET_SCANS,
			.fn = find_file,
			.cookie = &f,
			.cancel = cancel,
			.stop = &f.stop},
		err);
	if (r == 0 && atomic_load(&f.stop))
		r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	for (size_t i = 0; r == 0 && i < names->n; i++) {
		if (i == 0 || strcmp(names->items[i], names->items[i - 1]) != 0)
			r = source_add(s,
				&(struct entry){.path = names->items[i],
					.size = f.files[i].size,
					.etag = f.files[i].version},
				err);
	}
	for (size_t i = 0; i < names->n; i++)
		free(f.files[i].version);
	free(f.files);
	return r;
}

/* ---- directories ---- */

/* Uses the times in an index of local files as the versions: servers send the time of a file as
 * Last-Modified. */
static int use_times(struct source *s, const struct source_list *list, struct penstock_error *err)
{
	char date[DATE_HTTP_SIZE];
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->n; i++) {
		const struct source_entry *e = &list->entries[i];

		date_format_http(e->mtime_ns / NS_PER_S, date);
		r = source_add(s,
			&(struct entry){.path = (char *)(uintptr_t)(list->text + e->name),
				.size = e->size,
				.etag = date},
			err);
	}
	return r;
}

/* Takes the shards of an index, or of an index.json. */
static int open_directory(
	struct source *s, const struct source_place *place, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist names = {0};
	struct source_list list = {0};
	int r;

	s->encode = true;
	r = place->listed ? place->listed(place->listed_cookie, s, &list, err) : 0;
	if (r > 0 && !list.objects)
		return use_times(s, &list, err);
	if (r > 0)
		source_borrow(s, &list);
	if (r)
		return r < 0 ? r : 0;
	r = place->named ? place->named(place->listed_cookie, s, &names, err) : 0;
	if (r < 0)
		return r;
	if (names.n == 0)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot open '%s': HTTP does not list files, and there is no "
			".penstock-index and no index.json; name one file, or the shards, as in "
			"'train-{000..099}.tar', or write an index with 'penstock dataset index' "
			"where the files are",
			s->url);
	return find_files(s, &names, place->cancel, err);
}

int source_open_web(struct source *s, const struct source_place *place, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist names = {0};
	_cleanup_(buf_release) struct buf shown = BUF_INIT(LIMIT_STRING);
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	char *text;
	int r;

	/* The query may have a signature, so it is not shown. */
	http_url_display(place->url, &shown);
	text = strdup(buf_str(&shown));
	if (!text)
		return error_memory(err);
	free(s->url);
	s->url = text;
	r = divide(s, place->url, err);
	if (r == 0)
		r = place->open_web(place->cookie, &s->engine, err);
	if (r < 0)
		return r;
	if (!*s->pattern || strcmp(s->pattern, "index.json") == 0)
		return open_directory(s, place, err);
	s->single = !strpbrk(s->pattern, "{}");
	r = source_expand(s->url, s->pattern, &names, err);
	if (r < 0)
		return r;
	r = find_files(s, &names, place->cancel, &own);
	if (r < 0 && s->single && own.code != PENSTOCK_E_CANCELLED && !own.repeats)
		error_suffix(&own, "; the URL of a directory ends in '/'");
	return r < 0 ? error_move(err, &own) : 0;
}

int source_web_get(const struct source *s, const char *name, const atomic_int *cancel,
	struct buf *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;

	if (source_web_url(s, name, &url) < 0)
		return buf_error(&url, "a URL", err);
	return http_perform(s->engine,
		&(struct http_request){.method = "GET",
			.url = buf_str(&url),
			.follow_redirects = true,
			.resend_ms = LIMIT_HTTP_RESEND_MS,
			.patience_ms = LIMIT_OPEN_PATIENCE_MS,
			.cancel = cancel,
			.sink = HTTP_SINK_TO_BUF(out)},
		&reply, err);
}
