#include "copy/internal.h"

#include <curl/curl.h>
#include <errno.h>
#include <libgen.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "copy/content_type.h"
#include "net/http/http.h"

/* ---- reports ---- */

void copy_report_failed(
	struct copy *c, const struct copy_item *item, const struct penstock_error *err)
{
	const char *subject = item->from ? item->from : item->to;
	const char *message = err->message ? err->message : penstock_code_name(err->code);
	/* If the target's bucket is missing, every item fails. The bucket of one source may be
	 * missing while other sources are in other buckets. */
	bool to_target = strcmp(item->action, "upload") == 0 || strcmp(item->action, "copy") == 0;
	bool repeats = err->repeats && (err->code != PENSTOCK_E_NOT_FOUND || to_target);
	bool ends = c->o.stop_at_first_error || repeats;
	bool first = ends && (!c->first.code || (c->first.code == PENSTOCK_E_CANCELLED &&
							err->code != PENSTOCK_E_CANCELLED));

	c->failed += err->code != PENSTOCK_E_CANCELLED;
	/* Adds the name of the item if the message lacks it. */
	if (first && (!subject || strstr(message, subject)))
		error_set(&c->first, err->code, "%s", message);
	else if (first)
		error_set(&c->first, err->code, "%s: %s", subject, message);
	if (first)
		c->first.http_status = err->http_status;
	if (first)
		c->first.repeats = err->repeats;
	if (repeats)
		bulk_stop(c->bulk);
	if (c->o.report.failed)
		c->o.report.failed(c->o.report.cookie, item, err);
}

int copy_refuse(struct penstock_error *err, const struct place *place, const char *why)
{
	return error_set(err, PENSTOCK_E_INVALID, "%s: %s", place->text, why);
}

char *copy_object_text(struct object_ref object)
{
	return str_printf(
		"%s://%s/%s", object_client_scheme(object.client), object.bucket, object.key);
}

/* Returns one side of an item for messages. free() it; NULL if out of memory. */
static char *side_text(struct object_ref object, const char *url, const char *path)
{
	struct buf text = BUF_INIT(LIMIT_STRING);

	if (object.key)
		return copy_object_text(object);
	if (!url)
		return strdup(path);
	http_url_display(url, &text);
	return buf_take(&text);
}

/* The report of an item, with the texts that it points to. */
struct described {
	struct copy_item item;
	char *from, *to;
};

static void described_release(struct described *described)
{
	free(described->from);
	free(described->to);
}

static void describe(struct copy *c, const struct bulk_item *item, struct described *out)
{
	static const char *const actions[] = {[BULK_UPLOAD] = "upload",
		[BULK_DOWNLOAD] = "download",
		[BULK_COPY] = "copy",
		[BULK_DELETE] = "delete"};
	bool deletion = item->kind == BULK_DELETE;
	const char *name = NULL;

	*out = (struct described){.from = side_text(item->from, item->from_url, item->path)};
	if (!deletion)
		out->to = side_text(item->to, item->to_url, item->path);
	if (item->kind == BULK_DOWNLOAD && item->path_root) {
		name = item->path + item->path_root;
		name += *name == '/';
	}
	c->no_memory |= !out->from || (!deletion && !out->to);
	out->item = (struct copy_item){.action = actions[item->kind],
		.moved = item->remove_source,
		.from = out->from,
		.to = out->to,
		.name = name,
		.tag = item->tag};
}

/* ---- the ends of items ---- */

/* Names the existing target in the error if If-None-Match failed. */
static void explain(
	const struct copy *c, const struct described *described, struct penstock_error *err)
{
	if (err->code == PENSTOCK_E_PRECONDITION && c->o.put.if_none_match)
		error_set(err, PENSTOCK_E_PRECONDITION, "cannot write '%s': it exists already",
			described->to);
}

static void on_done(void *cookie, const struct bulk_item *item, const struct object_info *info,
	const struct penstock_error *failure)
{
	struct copy *c = cookie;
	_cleanup_(described_release) struct described described = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (c->unreported) {
		if (info && c->unreported_info) {
			c->unreported_info->size = info->size;
			memcpy(c->unreported_info->etag, info->etag, OBJECT_ETAG_SIZE);
		}
		if (failure && !c->unreported->code)
			error_set(c->unreported, failure->code, "%s",
				failure->message ? failure->message : "");
		return;
	}
	describe(c, item, &described);
	if (!failure) {
		if (info) {
			described.item.size = info->size;
			described.item.etag = info->etag;
		} else if (item->known) {
			described.item.size = item->known->size;
		}
		copy_report(c, c->o.report.done, &described.item);
		return;
	}
	if (failure->code == PENSTOCK_E_PRECONDITION && c->o.no_clobber) {
		copy_report(c, c->o.report.skipped, &described.item);
		return;
	}
	error_set(&err, failure->code, "%s", failure->message ? failure->message : "");
	err.http_status = failure->http_status;
	err.repeats = failure->repeats;
	explain(c, &described, &err);
	copy_report_failed(c, &described.item, &err);
}

int copy_item_failed(struct copy *c, const char *from, struct penstock_error *item_err,
	struct penstock_error *err)
{
	if (item_err->code == PENSTOCK_E_CANCELLED)
		return error_move(err, item_err);
	copy_report_failed(c, &(struct copy_item){.action = "skip", .from = from}, item_err);
	penstock_error_release(item_err);
	if (!c->first.code)
		return 0;
	return error_move(err, &c->first);
}

/* ---- the life of a copy ---- */

static void on_progress(void *cookie, int64_t bytes)
{
	struct copy *c = cookie;

	c->o.report.moved(c->o.report.cookie, bytes);
}

static void on_kept(void *cookie, uint64_t bytes)
{
	struct copy *c = cookie;

	c->o.report.kept(c->o.report.cookie, bytes);
}

static void on_resumed(void *cookie, uint64_t bytes)
{
	struct copy *c = cookie;

	c->o.report.resumed(c->o.report.cookie, bytes);
}

int copy_begin(struct copy *c, const struct copy_options *options, struct penstock_error *err)
{
	static const struct strlist none;

	*c = (struct copy){.o = *options};
	if (!c->o.filter.include)
		c->o.filter.include = &none;
	if (!c->o.filter.exclude)
		c->o.filter.exclude = &none;
	return bulk_new(&c->bulk, c->o.engine,
		&(struct bulk_options){.cancel = c->o.cancel,
			.parallel = c->o.parallel,
			.put = &c->o.put,
			.resume = c->o.resume,
			.set_times = true,
			.preserve = c->o.preserve,
			.symlinks = c->o.preserve,
			.no_sync = c->o.no_sync,
			.stop_at_first_error = c->o.stop_at_first_error,
			.twin = c->o.twin,
			.progress = c->o.report.moved ? on_progress : NULL,
			.kept = c->o.report.kept ? on_kept : NULL,
			.resumed = c->o.report.resumed ? on_resumed : NULL,
			.on_done = on_done,
			.cookie = c},
		err);
}

/* Checks the target of a download; a store checks the condition of an upload or copy itself.
 * Returns 1 if the item was reported and must not be transferred. */
static int check_existing(struct copy *c, struct bulk_item *item)
{
	_cleanup_(described_release) struct described described = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct stat st;
	bool exists, special;

	item->if_none_match = c->o.no_clobber || c->o.put.if_none_match;
	if (item->kind != BULK_DOWNLOAD || lstat(item->path, &st) < 0)
		return 0;
	exists = item->if_none_match;
	/* A download would replace a device such as /dev/null with a regular file. */
	special = stat(item->path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
	if (!exists && !special)
		return 0;
	describe(c, item, &described);
	if (exists && c->o.no_clobber) {
		copy_report(c, c->o.report.skipped, &described.item);
		return 1;
	}
	if (exists) {
		error_set(&err, PENSTOCK_E_PRECONDITION, "the target exists already");
		explain(c, &described, &err);
	} else {
		error_set(&err, PENSTOCK_E_INVALID,
			"cannot replace '%s': it is a device, a socket or a pipe; '-' writes to "
			"standard output",
			item->path);
	}
	copy_report_failed(c, &described.item, &err);
	return 1;
}

/* Called for a copy that was cancelled. Returns the error of the item whose failure cancelled the
 * copy, if there is one, else -PENSTOCK_E_CANCELLED. */
static int cancelled_by(struct copy *c, struct penstock_error *err)
{
	if (!c->first.code && (!c->o.stop_at_first_error || copy_is_cancelled(c)))
		return -(int)PENSTOCK_E_CANCELLED;
	bulk_finish(c->bulk, NULL, NULL);
	if (!c->first.code)
		return -(int)PENSTOCK_E_CANCELLED;
	penstock_error_release(err);
	return error_move(err, &c->first);
}

int copy_push(
	struct copy *c, const struct bulk_item *item, uint64_t size, struct penstock_error *err)
{
	_cleanup_(described_release) struct described described = {0};
	struct bulk_item own = *item;
	const char *named = item->to.key ? item->to.key : item->to_url;
	int r;

	if (own.kind != BULK_DELETE && !c->unreported) {
		c->found++;
		if (c->o.report.found)
			c->o.report.found(c->o.report.cookie, size);
		if (check_existing(c, &own))
			return 0;
	}
	if (own.kind == BULK_UPLOAD && !c->o.put.content_type && named)
		own.content_type = content_type_of(named);
	if (!c->o.dry_run || c->unreported) {
		r = bulk_push(c->bulk, &own, err);
		return r == -(int)PENSTOCK_E_CANCELLED ? cancelled_by(c, err) : r;
	}
	describe(c, &own, &described);
	described.item.size = size;
	copy_report(c, c->o.report.done, &described.item);
	return copy_is_cancelled(c) ? error_set(err, PENSTOCK_E_CANCELLED, "cancelled") : 0;
}

int copy_set_mode_later(struct copy *c, const struct target *target, mode_t mode)
{
	struct copy_mode m = {.path_root = target->path_root, .mode = mode}, *modes;

	modes = array_grow(c->modes, c->n_modes, sizeof(m));
	if (!modes)
		return -1;
	c->modes = modes;
	m.path = strdup(target->path);
	if (!m.path)
		return -1;
	modes[c->n_modes++] = m;
	return 0;
}

/* Sets the mode of a directory. Follows no links below m->path_root, because a link could lead out
 * of the tree. */
static int set_mode(const struct copy_mode *m, struct penstock_error *err)
{
	const char *below = m->path + m->path_root;
	_cleanup_close_ int at = bulk_open_root(m->path, m->path_root, err);
	_cleanup_close_ int fd = -1;
	size_t end;

	if (at < 0)
		return at;
	fd = fs_open_below(at, below, strlen(below), false, &end);
	return fd >= 0 && chmod(fs_fd_path(fd).text, m->mode) == 0
		       ? 0
		       : error_errno(err, errno, "cannot set the mode of '%s'", m->path);
}

/* Sets the modes of inner directories first, because the mode of an outer one may refuse access. */
static void set_modes(struct copy *c)
{
	while (c->n_modes) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct copy_mode *m = &c->modes[--c->n_modes];

		if (set_mode(m, &err) < 0)
			copy_report_failed(
				c, &(struct copy_item){.action = "skip", .from = m->path}, &err);
		free(m->path);
	}
}

int copy_finish(struct copy *c, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error first = PENSTOCK_ERROR_INIT;
	struct bulk_totals totals = {0};
	int r;

	if (c->o.report.walked)
		c->o.report.walked(c->o.report.cookie);
	r = bulk_finish(c->bulk, &totals, &first);
	set_modes(c);
	if (c->first.code)
		return error_move(err, &c->first);
	if (r < 0 && (!totals.failed || first.code == PENSTOCK_E_CANCELLED))
		return error_move(err, &first);
	return c->no_memory ? error_memory(err) : 0;
}

void copy_cancel(struct copy *c)
{
	bulk_stop(c->bulk);
}

void copy_end(struct copy *c)
{
	bulk_free(c->bulk);
	c->bulk = NULL;
	for (size_t i = 0; i < c->n_modes; i++)
		free(c->modes[i].path);
	free(c->modes);
	c->modes = NULL;
	c->n_modes = 0;
	penstock_error_release(&c->first);
}

/* ---- both sides ---- */

void copy_item_target(const struct copy *c, const struct target *target, const struct place *place,
	struct bulk_item *item)
{
	if (target->key) {
		item->to = object_at(c->o.to, place->bucket, target->key);
	} else if (target->url) {
		item->to_url = target->url;
	} else {
		item->path = target->path;
		item->path_root = target->path_root;
	}
}

int copy_explain_missing(struct object_ref object, const char *text, struct penstock_error *err)
{
	if (err->code == PENSTOCK_E_NOT_FOUND && *object.key &&
		bucket_head(object.client, object.bucket, NULL) == -(int)PENSTOCK_E_NOT_FOUND)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"%s: there is no bucket '%s'; create it or check its name and the endpoint",
			text, object.bucket);
	return -(int)err->code;
}

int copy_make_target(
	struct copy *c, const struct place *target, bool directory, struct penstock_error *err)
{
	_cleanup_free_ char *parent = NULL;
	struct stat st;

	if (target->kind != LOCATION_LOCAL || !*target->base || c->o.dry_run)
		return 0;
	if (directory && stat(target->base, &st) == 0 && !S_ISDIR(st.st_mode))
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot copy several files to '%s': it is not a directory", target->base);
	parent = strdup(target->base);
	if (!parent)
		return error_memory(err);
	return fs_mkdirs(directory ? target->base : dirname(parent), 0777, err);
}

/* Returns true if two endpoints have an address in common; false if one cannot be resolved. */
static bool same_address(const char *a, const char *b)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found[2] = {NULL, NULL};
	const char *urls[2] = {a, b};
	bool same = false;

	for (int i = 0; i < 2; i++) {
		CURLU *url = curl_url();
		char *host = NULL, *port = NULL;

		if (url && curl_url_set(url, CURLUPART_URL, urls[i], 0) == CURLUE_OK &&
			curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
			curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK) {
			/* An IPv6 address has brackets: "[::1]". */
			size_t len = strlen(host);
			bool bracket = *host == '[' && len > 2;

			if (bracket)
				host[len - 1] = '\0';
			if (getaddrinfo(host + bracket, port, &hints, &found[i]) != 0)
				found[i] = NULL;
		}
		curl_free(host);
		curl_free(port);
		curl_url_cleanup(url);
	}
	for (const struct addrinfo *x = found[0]; x && !same; x = x->ai_next) {
		for (const struct addrinfo *y = found[1]; y && !same; y = y->ai_next)
			same = x->ai_addrlen == y->ai_addrlen &&
			       memcmp(x->ai_addr, y->ai_addr, x->ai_addrlen) == 0;
	}
	for (int i = 0; i < 2; i++) {
		if (found[i])
			freeaddrinfo(found[i]);
	}
	return same;
}

/* Returns true for an endpoint of Amazon; the endpoints in China are another store. */
static bool is_amazon(const char *endpoint)
{
	static const char domain[] = ".amazonaws.com";
	const char *host = strstr(endpoint, "://"), *end = host ? strstr(host, domain) : NULL;

	/* The host name must end after the domain. */
	return end && strcspn(host + 3, "/:") == (size_t)(end + strlen(domain) - (host + 3));
}

bool copy_is_same_store(const char *a, const char *b)
{
	/* All endpoints of Amazon count as one store: its regions share the bucket names. */
	return strcmp(a, b) == 0 || (is_amazon(a) && is_amazon(b)) || same_address(a, b);
}
