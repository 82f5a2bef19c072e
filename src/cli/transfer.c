#include "cli/transfer.h"

#include <curl/curl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/content_type.h"
#include "net/http.h"
#include "records/records.h"
#include "base/banned.h"

/* ---- options ---- */

int transfer_begin(struct transfer *t, const struct cli *cli)
{
	const struct strlist *metadata;
	const char *part_size = cli_value(cli, "part-size");
	int64_t parallel;
	int r = remote_metadata(cli, &metadata);

	if (r)
		return r;
	remote_many_requests();
	t->cli = cli;
	t->dry_run = cli_has(cli, "dry-run");
	t->preserve = cli_has(cli, "preserve");
	t->force = cli_has(cli, "force");
	t->filter = (struct path_filter){cli_values(cli, "include"), cli_values(cli, "exclude")};
	t->links = cli_has(cli, "no-follow-symlinks") ? WALK_LINKS_SKIP
		   : t->preserve		      ? WALK_LINKS_KEEP
						      : WALK_LINKS_FOLLOW;
	if (t->preserve && (strlist_get(metadata, "mtime") || strlist_get(metadata, "mode")))
		return cli_misuse(cli, "--preserve keeps mtime and mode, which --metadata names");
	if (part_size && (!str_to_size(part_size, &t->put.part_size) ||
				 t->put.part_size < LIMIT_S3_PART_MIN ||
				 t->put.part_size > LIMIT_S3_PART_MAX))
		return cli_misuse(cli, "--part-size must be 5MiB to 5GiB");
	if (!cli_number(cli, "parallel", 1, LIMIT_HTTP_CONNECTIONS, 0, &parallel))
		return CLI_EXIT_USAGE;
	t->parallel = (unsigned)parallel;
	t->put.if_none_match = cli_has(cli, "if-none-match");
	t->put.content_type = cli_value(cli, "content-type");
	t->put.storage_class = cli_value(cli, "storage-class");
	t->put.metadata = metadata->n ? metadata : NULL;
	t->resume = cli_has(cli, "resume");
	t->delta = cli_has(cli, "delta");
	report_begin(&t->report, cli, t->dry_run);
	return 0;
}

/* ---- items on their way ---- */

char *object_text(bool google, const char *bucket, const char *key)
{
	char *text = NULL;

	if (asprintf(&text, "%s://%s/%s", google ? "gs" : "s3", bucket, key) < 0)
		abort();
	return text;
}

static char *url_text(const char *url)
{
	struct buf text = BUF_INIT(LIMIT_STRING);
	char *taken;

	http_url_display(url, &text);
	taken = buf_take(&text);
	if (!taken)
		abort();
	return taken;
}

static char *copy_text(const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		abort();
	return copy;
}

static char *source_text(const struct transfer *t, const struct bulk_item *item)
{
	if (item->from_key)
		return object_text(item->from_client == t->from ? t->from_google : t->to_google,
			item->from_bucket, item->from_key);
	return item->from_url ? url_text(item->from_url) : copy_text(item->path);
}

static char *target_text(const struct transfer *t, const struct bulk_item *item)
{
	if (item->to_key)
		return object_text(t->to_google, item->to_bucket, item->to_key);
	return item->to_url ? url_text(item->to_url) : copy_text(item->path);
}

/* What can be said of an item; the texts are owned. */
struct told {
	struct report_item item;
	char *from, *to;
};

static void told_release(struct told *told)
{
	free(told->from);
	free(told->to);
}

static void tell_of(const struct transfer *t, const struct bulk_item *item, struct told *out)
{
	static const char *const actions[] = {[BULK_UPLOAD] = "upload",
		[BULK_DOWNLOAD] = "download",
		[BULK_COPY] = "copy",
		[BULK_DELETE] = "delete"};
	char *from = source_text(t, item);

	*out = (struct told){.from = from};
	if (item->kind != BULK_DELETE)
		out->to = target_text(t, item);
	out->item = (struct report_item){.action = actions[item->kind],
		.moved = item->remove_source,
		.from = from,
		.to = out->to};
}

/* Says what the condition was; the store only says that it did not hold. */
static void explain(const struct transfer *t, const struct told *told, struct penstock_error *err)
{
	if (err->code == PENSTOCK_E_PRECONDITION && t->put.if_none_match)
		error_set(err, PENSTOCK_E_PRECONDITION,
			"%s is there already, and --if-none-match does not write over it",
			told->to);
}

static void on_done(void *cookie, const struct bulk_item *item, const struct object_info *info,
	const struct penstock_error *failure)
{
	struct transfer *t = cookie;
	_cleanup_(told_release) struct told told = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (t->aside) {
		if (failure && !t->aside->code)
			error_set(t->aside, failure->code, "%s",
				failure->message ? failure->message : "");
		return;
	}
	tell_of(t, item, &told);
	if (!failure) {
		if (info) {
			told.item.size = info->size;
			told.item.etag = info->etag;
		} else if (item->known) {
			told.item.size = item->known->size;
		}
		report_done(&t->report, &told.item);
		return;
	}
	if (failure->code == PENSTOCK_E_PRECONDITION && t->no_clobber) {
		report_skipped(&t->report, &told.item);
		return;
	}
	error_set(&err, failure->code, "%s", failure->message ? failure->message : "");
	explain(t, &told, &err);
	t->failed += failure->code != PENSTOCK_E_CANCELLED;
	report_failed(&t->report, &told.item, &err);
}

static void on_progress(void *cookie, int64_t bytes)
{
	struct transfer *t = cookie;

	report_moved(&t->report, bytes);
}

/* What is known of uploads is kept with our own things: beside the source it would be part of it. */
static int find_directories(struct transfer *t, struct penstock_error *err)
{
	_cleanup_free_ char *home = NULL;
	int r = t->resume || t->delta ? records_home(&home, err) : 0;

	if (r < 0)
		return r;
	if ((t->resume && !(t->resume_dir = path_join(home, "transfers"))) ||
		(t->delta && !(t->delta_dir = path_join(home, "sent"))))
		return error_memory(err);
	t->put.resume_dir = t->resume_dir;
	t->put.delta_dir = t->delta_dir;
	return 0;
}

static int open_bulk(struct transfer *t, struct penstock_error *err)
{
	int r = find_directories(t, err);

	if (r < 0)
		return r;
	return bulk_new(&t->bulk, t->remote.engine,
		&(struct bulk_options){.cancel = t->remote.cancel,
			.parallel = t->parallel,
			.put = &t->put,
			.resume = t->resume,
			.set_times = true,
			.preserve = t->preserve,
			.symlinks = t->preserve,
			.twin = t->remote.twin,
			.progress = on_progress,
			.on_done = on_done,
			.cookie = t},
		err);
}

/* Whether two endpoints lead to one address; one that cannot be resolved leads nowhere. */
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
			/* "[::1]" */
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

static bool is_same_store(const struct transfer *t)
{
	const char *from = t->source.settings.endpoint_url, *to = t->remote.settings.endpoint_url;

	if (t->from == t->to || strcmp(from, to) == 0)
		return true;
	/* Amazon's buckets are the same from each of its regions. */
	return (strstr(from, ".amazonaws.com") && strstr(to, ".amazonaws.com")) ||
	       same_address(from, to);
}

int transfer_open(struct transfer *t, const struct place *from, const struct place *to,
	struct penstock_error *err)
{
	/* Google's and the others' are never one store. */
	bool elsewhere = remote_has_source(t->cli) ||
			 (from && to && from->at.google != to->at.google);
	int r;

	if (elsewhere && !from)
		return error_set(err, PENSTOCK_E_INVALID,
			"--source-endpoint-url and its like are for s3:// sources, and there is "
			"none");
	r = remote_open_engine(&t->remote, err);
	if (r == 0 && (to || (from && !elsewhere)))
		r = remote_open(&t->remote, t->cli, err);
	if (r == 0 && elsewhere)
		r = remote_open_source(&t->source, &t->remote, t->cli, from->at.google, err);
	if (r < 0)
		return r;
	t->to = to ? t->remote.client : NULL;
	t->from = !from ? NULL : elsewhere ? t->source.client : t->remote.client;
	t->to_google = to && to->at.google;
	t->from_google = from && from->at.google;
	t->same_store = from && to && is_same_store(t);
	return open_bulk(t, err);
}

/* 1: the item is over, and was told. A store answers for its objects; this is about files. */
static int check_over(struct transfer *t, struct bulk_item *item)
{
	_cleanup_(told_release) struct told told = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct stat st;
	bool there, special;

	item->if_none_match = t->no_clobber || t->put.if_none_match;
	if (item->kind != BULK_DOWNLOAD || lstat(item->path, &st) < 0)
		return 0;
	there = item->if_none_match;
	/* /dev/null would become a file. */
	special = stat(item->path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
	if (!there && !special)
		return 0;
	tell_of(t, item, &told);
	if (there && t->no_clobber) {
		report_skipped(&t->report, &told.item);
		return 1;
	}
	if (there) {
		error_set(&err, PENSTOCK_E_PRECONDITION, "it is there already");
		explain(t, &told, &err);
	} else {
		error_set(&err, PENSTOCK_E_INVALID,
			"%s is a device, a socket or a pipe, and would become a file; '-' writes "
			"to "
			"standard output",
			item->path);
	}
	t->failed++;
	report_failed(&t->report, &told.item, &err);
	return 1;
}

int transfer_push(
	struct transfer *t, const struct bulk_item *item, uint64_t size, struct penstock_error *err)
{
	_cleanup_(told_release) struct told told = {0};
	struct bulk_item own = *item;
	const char *named = item->to_key ? item->to_key : item->to_url;

	if (own.kind != BULK_DELETE && !t->aside) {
		report_found(&t->report, size);
		if (check_over(t, &own))
			return 0;
	}
	if (own.kind == BULK_UPLOAD && !t->put.content_type && named)
		own.content_type = content_type_of(named);
	if (!t->dry_run || t->aside)
		return bulk_push(t->bulk, &own, err);
	tell_of(t, &own, &told);
	told.item.size = size;
	report_done(&t->report, &told.item);
	if (remote_interrupted())
		return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	return 0;
}

void transfer_item_failed(struct transfer *t, const char *from, struct penstock_error *err)
{
	t->failed++;
	report_failed(&t->report, &(struct report_item){.action = "skip", .from = from}, err);
}

int transfer_finish(struct transfer *t, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error first = PENSTOCK_ERROR_INIT;
	struct bulk_totals totals = {0};
	int r;

	report_walked(&t->report);
	if (!t->bulk)
		return 0;
	r = bulk_finish(t->bulk, &totals, &first);
	if (r < 0 && (!totals.failed || first.code == PENSTOCK_E_CANCELLED))
		return error_move(err, &first);
	return 0;
}

int transfer_fail(struct transfer *t, struct penstock_error *err)
{
	/* What was pushed before is still under way, and is whole or not there. */
	if (t->bulk)
		bulk_finish(t->bulk, NULL, NULL);
	report_error(&t->report, err);
	return transfer_end(t);
}

void transfer_close(struct transfer *t)
{
	bulk_free(t->bulk);
	t->bulk = NULL;
	free(t->resume_dir);
	free(t->delta_dir);
	t->resume_dir = t->delta_dir = NULL;
	remote_release(&t->source);
	remote_release(&t->remote);
}

int transfer_end(struct transfer *t)
{
	transfer_close(t);
	return report_end(&t->report);
}
