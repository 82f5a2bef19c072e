/* The two modes of a fetch: parallel ranges under a validator, or one stream. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "transfer/web/internal.h"
#include "transfer/web/request.h"

#define JOURNAL_EVERY_MS 1000
#define POLL_MS		 50 /* interval for checking the caller's cancel flag */

/* ---- shared by both ---- */

static void progress(struct fetch *f, int64_t bytes)
{
	if (bytes > 0)
		f->fetched += (uint64_t)bytes;
	if (f->options->progress)
		f->options->progress(f->options->cookie, bytes);
}

/* Wakes the calling thread after progress of the engine's thread. */
static void signal_moved(struct fetch *f)
{
	LOCK_SCOPE(&f->fan.lock);
	pthread_cond_signal(&f->fan.changed);
}

/* Waits for progress of the engine's thread, at most POLL_MS. */
static void wait_for_bytes(struct fetch *f)
{
	LOCK_SCOPE(&f->fan.lock);
	clock_cond_wait_ms(&f->fan.changed, &f->fan.lock, POLL_MS);
}

static int write_at(
	struct fetch *f, const void *data, size_t len, uint64_t at, struct penstock_error *err)
{
	if (fs_pwrite_all(f->fd, data, len, (off_t)at) < 0)
		return error_errno(err, errno, "cannot write '%s'", f->part_path);
	progress(f, (int64_t)len);
	return 0;
}

static bool strong(const char *etag)
{
	return etag && *etag == '"';
}

/* Returns the validator for If-Range: a strong ETag, else a date; NULL if there is neither. */
static const char *validator(const struct fetch *f)
{
	return strong(f->etag) ? f->etag : f->last_modified;
}

static int learn(struct fetch *f, const struct http_reply *reply, struct penstock_error *err)
{
	const char *etag = http_reply_header(reply, "ETag");
	const char *modified = http_reply_header(reply, "Last-Modified");

	free(take_pointer(f->etag));
	free(take_pointer(f->last_modified));
	f->etag = etag ? strdup(etag) : NULL;
	f->last_modified = modified ? strdup(modified) : NULL;
	if ((etag && !f->etag) || (modified && !f->last_modified))
		return error_memory(err);
	f->size = reply->total_size;
	return fetch_check_headers(f, reply, err);
}

/* Builds a request for the resource; `if_range` may be NULL. Release its headers. */
static int request_init(const struct fetch *f, struct http_request *request, const char *if_range,
	struct penstock_error *err)
{
	*request = (struct http_request){
		.patience_ms = f->options->patience_ms, .cancel = f->options->cancel};
	return web_request(request, f->url, if_range, err);
}

/* ---- the first request ---- */

struct probe {
	struct fetch *fetch;
	enum fetch_way way;
	uint64_t at;
};

static enum http_take probe_write(
	void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct probe *p = cookie;

	if (write_at(p->fetch, data, len, p->at, err) < 0)
		return HTTP_REFUSE;
	p->at += len;
	return HTTP_TAKEN;
}

static int probe_restart(void *cookie)
{
	struct probe *p = cookie;

	progress(p->fetch, -(int64_t)p->at);
	p->at = 0;
	return 0;
}

static int probe_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct probe *p = cookie;
	int r = learn(p->fetch, reply, err);

	if (r < 0)
		return r;
	if (reply->status != 206) {
		/* fetch_stream() sends a new request, so this reply is not read. */
		p->way = FETCH_WAY_STREAM;
		return error_set(err, PENSTOCK_E_UNSUPPORTED, "the server does not send ranges");
	}
	if (p->fetch->size == HTTP_LENGTH_UNKNOWN ||
		(!validator(p->fetch) && p->fetch->size > p->fetch->chunk)) {
		p->way = FETCH_WAY_STREAM;
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"the server sends no validator for its ranges");
	}
	p->way = FETCH_WAY_RANGES;
	return 0;
}

/* Returns true for a status that some servers send because they do not support Range. */
static bool dislikes_ranges(const struct penstock_error *err)
{
	return err->http_status == 416 || err->http_status == 400 || err->http_status == 405 ||
	       err->http_status == 501;
}

int fetch_probe(struct fetch *f, enum fetch_way *way, struct penstock_error *err)
{
	struct probe p = {.fetch = f, .way = FETCH_WAY_STREAM};
	struct http_request request;
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r = request_init(f, &request, NULL, &own);

	request.range = (struct http_range){
		.wanted = true, .length = f->chunk, .full_is_fine = true};
	request.sink = (struct http_sink){.kind = HTTP_SINK_CALLBACK,
		.write = probe_write,
		.restart = probe_restart,
		.cookie = &p};
	request.on_headers = probe_headers;
	request.cookie = &p;
	if (r == 0)
		r = http_perform(f->engine, &request, &reply, &own);
	strlist_release(&request.headers);
	*way = p.way;
	if (r < 0 && p.way == FETCH_WAY_STREAM &&
		(r == -(int)PENSTOCK_E_UNSUPPORTED || dislikes_ranges(&own))) {
		f->size = HTTP_LENGTH_UNKNOWN;
		return 0;
	}
	if (r < 0)
		return error_move(err, &own);
	r = fetch_chunks_init(f, err);
	if (r == 0)
		fetch_set_done(f, 0);
	if (r == 0)
		r = fetch_announce(f, f->size - p.at, err);
	return r;
}

/* ---- ranges ---- */

static enum http_take range_write(
	void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct fetch_slot *slot = cookie;

	if (len > slot->length - slot->at) {
		error_set(err, PENSTOCK_E_PROTOCOL,
			"the server sent more than the requested %" PRIu64 " bytes", slot->length);
		return HTTP_REFUSE;
	}
	if (write_at(slot->fetch, data, len, slot->offset + slot->at, err) < 0)
		return HTTP_REFUSE;
	slot->at += len;
	/* Only bytes in the first incomplete chunk can be passed on, and so need a wake-up. */
	if (slot->index == slot->fetch->prefix && slot->fetch->options->consume)
		signal_moved(slot->fetch);
	return HTTP_TAKEN;
}

static int changed(struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CHANGED, "the resource changed while it was fetched");
}

static int range_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct fetch_slot *slot = cookie;
	struct fetch *f = slot->fetch;
	const char *etag = http_reply_header(reply, "ETag");
	const char *modified = http_reply_header(reply, "Last-Modified");

	/* Because of If-Range, a server sends a changed resource as a whole. */
	if (reply->status != 206)
		return changed(err);
	if ((strong(f->etag) && etag && strcmp(etag, f->etag) != 0) ||
		(!strong(f->etag) && f->last_modified && modified &&
			strcmp(modified, f->last_modified) != 0) ||
		(reply->total_size != HTTP_LENGTH_UNKNOWN && reply->total_size != f->size))
		return changed(err);
	return fetch_check_headers(f, reply, err);
}

static void range_done(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct fetch_slot *slot = cookie;
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

	(void)request;
	if (err && web_is_replaced(reply)) {
		changed(err);
	} else if (!err && slot->at != slot->length) {
		/* A server that does not send the size may send a part as if it were the whole
		 * range. */
		error_set(&own, PENSTOCK_E_CHANGED, "%" PRIu64 " bytes received of %" PRIu64,
			(uint64_t)slot->at, slot->length);
		err = &own;
	}
	fan_ended(&slot->fetch->fan, &slot->flying, err);
}

static int range_start(
	struct fetch *f, struct fetch_slot *slot, uint64_t index, struct penstock_error *err)
{
	struct http_request *request = &slot->request;
	int r;

	slot->fetch = f;
	slot->index = index;
	slot->offset = index * f->chunk;
	slot->length = f->size - slot->offset < f->chunk ? f->size - slot->offset : f->chunk;
	slot->at = 0;
	slot->reply = (struct http_reply)HTTP_REPLY_INIT;
	slot->used = true;
	r = request_init(f, request, validator(f), err);
	if (r < 0)
		return r;
	request->range = (struct http_range){
		.wanted = true, .offset = slot->offset, .length = slot->length};
	request->sink = (struct http_sink){
		.kind = HTTP_SINK_CALLBACK, .write = range_write, .cookie = slot};
	request->on_headers = range_headers;
	request->done = range_done;
	request->cookie = slot;
	return fan_submit(&f->fan, request, &slot->reply, &slot->flying, err);
}

int fetch_recheck(struct fetch *f, struct penstock_error *err)
{
	const char *v = validator(f);
	struct fetch_slot slot = {.fetch = f};
	struct http_request request;
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	int r;

	if (!v)
		return changed(err);
	r = request_init(f, &request, v, err);
	request.range = (struct http_range){.wanted = true, .offset = f->size - 1, .length = 1};
	request.on_headers = range_headers;
	request.cookie = &slot;
	if (r == 0)
		r = http_perform(f->engine, &request, &reply, err);
	strlist_release(&request.headers);
	return r < 0 && web_is_replaced(&reply) ? changed(err) : r;
}

/* Records a range that has ended, and empties its slot. */
static void range_collect(struct fetch *f, struct fetch_slot *slot)
{
	if (!slot->used)
		return;
	if (slot->at == slot->length)
		fetch_set_done(f, slot->index);
	strlist_release(&slot->request.headers);
	http_reply_release(&slot->reply);
	slot->used = false;
}

static int ranges_pump(struct fetch *f, struct penstock_error *err)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < f->n_slots; i++) {
		struct fetch_slot *slot = &f->slots[i];

		if (atomic_load(&slot->flying))
			continue;
		range_collect(f, slot);
		while (f->next < f->n_chunks && fetch_done(f, f->next))
			f->next++;
		if (f->next == f->n_chunks || fan_failed(&f->fan))
			continue;
		r = range_start(f, slot, f->next++, err);
	}
	return r;
}

/* Returns the number of bytes from the first on that are in the file, including the bytes of the
 * first incomplete range. */
static uint64_t contiguous(const struct fetch *f)
{
	uint64_t bytes = f->prefix * f->chunk;

	if (f->prefix == f->n_chunks)
		return f->size;
	for (unsigned i = 0; i < f->n_slots; i++) {
		if (f->slots[i].used && f->slots[i].index == f->prefix)
			return bytes + f->slots[i].at;
	}
	return bytes;
}

static int ranges_loop(struct fetch *f, struct penstock_error *err)
{
	int r = 0;

	while (r == 0 && !fan_failed(&f->fan)) {
		int64_t now = clock_monotonic_ms();
		uint64_t edge;

		r = ranges_pump(f, err);
		edge = contiguous(f);
		if (r == 0 && now - f->journal_ms >= JOURNAL_EVERY_MS && validator(f)) {
			f->journal_ms = now;
			r = fetch_journal_save(f, err);
		}
		if (r < 0)
			break;
		if (f->consumed < edge) {
			/* Pass on a piece at a time, so that new ranges are started in between. */
			uint64_t bite = edge - f->consumed > LIMIT_FETCH_BLOCK
						? f->consumed + LIMIT_FETCH_BLOCK
						: edge;

			r = fetch_consume(f, bite, err);
			continue;
		}
		if (f->prefix == f->n_chunks)
			break;
		wait_for_bytes(f);
	}
	return r;
}

int fetch_ranges(struct fetch *f, struct penstock_error *err)
{
	unsigned n = f->options->parallel ? f->options->parallel : 8;
	bool complete;
	int r;

	if (n > FETCH_PARALLEL_MAX)
		n = FETCH_PARALLEL_MAX;
	f->slots = calloc(n, sizeof(*f->slots));
	if (!f->slots)
		return error_memory(err);
	f->n_slots = n;
	f->result->ranges = f->n_chunks > 1;
	fan_init(&f->fan, f->engine, f->options->cancel);
	r = ranges_loop(f, err);
	fan_stop(&f->fan);
	for (unsigned i = 0; i < n; i++)
		range_collect(f, &f->slots[i]);
	complete = f->prefix == f->n_chunks && f->consumed == f->size;
	if (r == 0 && !complete)
		r = fan_finish(&f->fan, err);
	fan_release(&f->fan);
	/* Save the journal, so that the next call can resume. */
	if (!complete && r != -(int)PENSTOCK_E_CHANGED && validator(f))
		fetch_journal_save(f, NULL);
	return r;
}

/* ---- one stream ---- */

/* Verifies that the bytes that were present before a restart arrive again unchanged. */
static int stream_compare(
	struct fetch *f, const char *data, size_t len, uint64_t at, struct penstock_error *err)
{
	char there[16 * 1024];

	for (size_t done = 0; done < len;) {
		size_t n = len - done < sizeof(there) ? len - done : sizeof(there);

		ssize_t got = fs_pread_all(f->fd, there, n, (off_t)(at + done));

		if (got != (ssize_t)n)
			return error_errno(
				err, got < 0 ? errno : EIO, "cannot read '%s'", f->part_path);
		if (memcmp(there, data + done, n) != 0)
			return changed(err);
		done += n;
	}
	return 0;
}

static enum http_take stream_write(
	void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct fetch *f = cookie;
	uint64_t at = f->stream_at;
	size_t again = f->stream_high > at
			       ? (f->stream_high - at < len ? (size_t)(f->stream_high - at) : len)
			       : 0;

	if (again && stream_compare(f, data, again, at, err) < 0)
		return HTTP_REFUSE;
	if (again < len && f->size == HTTP_LENGTH_UNKNOWN && f->options->on_more &&
		f->options->on_more(f->options->cookie, len - again, err) < 0)
		return HTTP_REFUSE;
	if (again < len &&
		write_at(f, (const char *)data + again, len - again, at + again, err) < 0)
		return HTTP_REFUSE;
	f->stream_at = at + len;
	if (f->options->consume)
		signal_moved(f);
	return HTTP_TAKEN;
}

static int stream_restart(void *cookie)
{
	struct fetch *f = cookie;
	uint64_t at = f->stream_at;

	if (at > f->stream_high)
		f->stream_high = at;
	f->stream_at = 0;
	return 0;
}

static int stream_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct fetch *f = cookie;

	if (f->stream_high && f->size != HTTP_LENGTH_UNKNOWN && reply->total_size != f->size)
		return changed(err);
	if (reply->status == 200)
		return learn(f, reply, err);
	return 0;
}

static void stream_done(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct fetch *f = cookie;

	(void)request;
	(void)reply;
	fan_ended(&f->fan, NULL, err);
}

static bool stream_ended(struct fetch *f)
{
	LOCK_SCOPE(&f->fan.lock);
	return !f->fan.in_flight;
}

static int stream_loop(struct fetch *f, struct penstock_error *err)
{
	bool announced = false;
	int r = 0;

	while (r == 0 && !fan_failed(&f->fan)) {
		bool over = stream_ended(f);
		uint64_t edge = f->stream_at;

		if (!announced && (edge || over)) {
			announced = true;
			r = fetch_announce(f, f->size, err);
		}
		/* After a restart, `stream_at` may be less than `consumed` until the old bytes were
		 * compared. */
		if (r == 0 && f->consumed < edge)
			r = fetch_consume(f, edge, err);
		else if (over)
			break;
		else if (r == 0)
			wait_for_bytes(f);
	}
	return r;
}

int fetch_stream(struct fetch *f, struct penstock_error *err)
{
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	struct http_request request;
	int r;

	if (ftruncate(f->fd, 0) < 0)
		return error_errno(err, errno, "cannot write '%s'", f->part_path);
	r = request_init(f, &request, NULL, err);
	request.sink = (struct http_sink){.kind = HTTP_SINK_CALLBACK,
		.write = stream_write,
		.restart = stream_restart,
		.cookie = f};
	request.on_headers = stream_headers;
	request.done = stream_done;
	request.cookie = f;
	fan_init(&f->fan, f->engine, f->options->cancel);
	if (r == 0)
		r = fan_submit(&f->fan, &request, &reply, NULL, err);
	if (r == 0)
		r = stream_loop(f, err);
	fan_stop(&f->fan);
	if (r == 0)
		r = fan_finish(&f->fan, err);
	fan_release(&f->fan);
	strlist_release(&request.headers);
	if (r == 0 && f->size == HTTP_LENGTH_UNKNOWN)
		f->size = f->stream_at;
	if (r == 0 && f->stream_at != f->size)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"%" PRIu64 " bytes received, but %" PRIu64 " were announced",
			(uint64_t)f->stream_at, f->size);
	return r;
}
