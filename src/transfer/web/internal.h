/* Shared by the files that implement http_fetch.h. */
#ifndef TRANSFER_WEB_INTERNAL_H
#define TRANSFER_WEB_INTERNAL_H

#include "transfer/client/internal.h"
#include "transfer/http_fetch.h"

#define FETCH_PARALLEL_MAX 64

struct fetch;

/* One range in flight. */
struct fetch_slot {
	struct http_request request;
	struct http_reply reply;
	struct fetch *fetch;
	bool used;
	atomic_bool flying;
	uint64_t index; /* index of the chunk */
	uint64_t offset;
	uint64_t length;
	_Atomic uint64_t at; /* bytes written to the file */
};

struct fetch {
	struct http_engine *engine;
	const char *url;
	const struct http_fetch_options *options;
	struct http_fetch_result *result;
	char *final_path;
	char *part_path;
	char *journal_path;
	int fd; /* descriptor of the part file, locked */
	/* the part file was just created, so a journal that exists describes another file */
	bool fresh;

	/* Properties of the resource, from its first reply or the journal. */
	_Atomic uint64_t size; /* HTTP_LENGTH_UNKNOWN if not known */
	char *etag;
	char *last_modified;
	atomic_bool web_page; /* the Content-Type is that of a web page, although the name is not */

	/* For ranges. */
	uint64_t chunk;
	uint64_t n_chunks;
	unsigned char *done; /* one bit per chunk; owned by the calling thread */
	_Atomic uint64_t prefix; /* chunks completed from the first on */
	uint64_t next; /* chunk to check next */
	int64_t journal_ms; /* time of the last write of the journal */

	/* Owned by the calling thread. */
	uint64_t consumed; /* bytes passed on */
	char *block; /* buffer for reading bytes back */
	struct checksum *sha256;
	_Atomic uint64_t fetched;

	struct fetch_slot *slots;
	unsigned n_slots;

	struct fan fan; /* the requests of ranges or of the stream */

	/* For one stream. */
	_Atomic uint64_t stream_at; /* offset of the next byte of the stream */
	uint64_t stream_high; /* bytes present before the stream was restarted */
};

/* ---- journal.c ---- */
/* Loads the journal. Returns true if the part file has bytes that an earlier call fetched from the
 * same resource. */
bool fetch_journal_load(struct fetch *f);
int fetch_journal_save(struct fetch *f, struct penstock_error *err);
static inline bool fetch_done(const struct fetch *f, uint64_t chunk)
{
	return f->done[chunk / 8] >> (chunk % 8) & 1;
}
static inline void fetch_set_done(struct fetch *f, uint64_t chunk)
{
	f->done[chunk / 8] |= (unsigned char)(1u << (chunk % 8));
	while (f->prefix < f->n_chunks && fetch_done(f, f->prefix))
		f->prefix++;
}
/* Allocates the bitmap for `size` bytes in chunks of `f->chunk`. */
int fetch_chunks_init(struct fetch *f, struct penstock_error *err);

/* ---- local.c ---- */
/* Returns the path of a file:// URL or a plain path; NULL for another kind of URL, or if out of
 * memory. free() it. */
char *fetch_local_path(const char *url);
/* Copies the file at `path` into `f->fd`. */
int fetch_local(struct fetch *f, const char *path, struct penstock_error *err);

/* ---- progress.c ---- */
/* Passes on the bytes between `consumed` and `until`. */
int fetch_consume(struct fetch *f, uint64_t until, struct penstock_error *err);
int fetch_announce(struct fetch *f, uint64_t missing, struct penstock_error *err);

/* ---- kind.c: detects a reply that is not the file ---- */
/* Refuses a body in an unrequested encoding; records if the body may be a web page. */
int fetch_check_headers(
	struct fetch *f, const struct http_reply *reply, struct penstock_error *err);
/* Returns true if the fetched bytes are a web page in place of the file. */
bool fetch_is_page(const struct fetch *f);
int fetch_page_error(struct penstock_error *err);

/* ---- ranges.c ---- */
enum fetch_way { FETCH_WAY_RANGES, FETCH_WAY_STREAM, FETCH_WAY_DONE };
/* Sends the first request of a new fetch, and chooses the mode. */
int fetch_probe(struct fetch *f, enum fetch_way *way, struct penstock_error *err);
/* Requests the last byte, to verify that the server still has the file that an earlier call fetched
 * completely. Fails with PENSTOCK_E_CHANGED if the file has changed. */
int fetch_recheck(struct fetch *f, struct penstock_error *err);
int fetch_ranges(struct fetch *f, struct penstock_error *err);
int fetch_stream(struct fetch *f, struct penstock_error *err);

#endif
