/* What the files behind http_fetch.h share. */
#ifndef TRANSFER_FETCH_INTERNAL_H
#define TRANSFER_FETCH_INTERNAL_H

#include <pthread.h>

#include "net/http.h"
#include "transfer/http_fetch.h"

#define FETCH_PARALLEL_MAX 64

struct fetch;

/* One range on its way into the file. */
struct fetch_slot {
	struct http_request request;
	struct http_reply reply;
	struct fetch *fetch;
	bool used;
	atomic_bool flying;
	uint64_t index; /* of the chunk */
	uint64_t offset;
	uint64_t length;
	_Atomic uint64_t at; /* bytes of it that are in the file */
};

struct fetch {
	struct http_engine *engine;
	const char *url;
	const struct http_fetch_options *options;
	struct http_fetch_result *result;
	char *final_path;
	char *part_path;
	char *journal_path;
	int fd;	    /* of the part file, locked */
	bool fresh; /* it was made just now: what a journal says is not of it */

	/* What the resource is, from its first reply or the journal. */
	_Atomic uint64_t size; /* HTTP_LENGTH_UNKNOWN until it is known */
	char *etag;
	char *last_modified;
	atomic_bool web_page; /* its type says that it is one, its name does not */

	/* Ranges. */
	uint64_t chunk;
	uint64_t n_chunks;
	unsigned char *done;	 /* a bit per chunk; the calling thread's */
	_Atomic uint64_t prefix; /* chunks that are done from the first on */
	uint64_t next;		 /* chunk to look at next */
	int64_t journal_ms;	 /* when the journal was written last */

	/* The calling thread's own. */
	uint64_t consumed; /* bytes handed over */
	char *block;	   /* what they are read into */
	struct checksum *sha256;
	_Atomic uint64_t fetched;

	struct fetch_slot *slots;
	unsigned n_slots;

	/* Woken by the engine's thread. */
	pthread_mutex_t lock;
	pthread_cond_t moved;
	unsigned in_flight;
	struct penstock_error error; /* the first */
	atomic_int stop;	     /* the cancel flag of every request */

	/* One stream. */
	_Atomic uint64_t stream_at; /* bytes in the file */
	uint64_t stream_high;	    /* bytes that were there before the stream began again */
	bool stream_ended;
};

/* http_fetch_journal.c */
/* True: the part file holds what an earlier call fetched of the same resource. */
bool fetch_journal_load(struct fetch *f);
int fetch_journal_save(struct fetch *f, struct penstock_error *err);
void fetch_journal_remove(struct fetch *f);
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
/* The bitmap for `size` bytes in chunks of `f->chunk`. */
int fetch_chunks_init(struct fetch *f, struct penstock_error *err);

/* http_fetch_local.c */
/* The path behind file:// and of a plain path; NULL: another kind of URL. free() it. */
char *fetch_local_path(const char *url);
/* Copies the file at `path` into `f->fd`. */
int fetch_local(struct fetch *f, const char *path, struct penstock_error *err);

/* http_fetch.c */
/* Hands over what lies between `consumed` and `until`. */
int fetch_consume(struct fetch *f, uint64_t until, struct penstock_error *err);
/* Waits a little for the engine's thread to get on; passes the caller's wish to stop on. */
void fetch_wait(struct fetch *f);
bool fetch_failed(struct fetch *f);
int fetch_announce(struct fetch *f, uint64_t missing, struct penstock_error *err);

/* http_fetch_kind.c: is it what the address stands for? */
/* Refuses a body that was encoded unasked; notes whether it may be a web page. */
int fetch_check_headers(
	struct fetch *f, const struct http_reply *reply, struct penstock_error *err);
/* Whether a web page came in place of the file, by what was fetched of it. */
bool fetch_is_page(const struct fetch *f);
int fetch_page_error(struct penstock_error *err);

/* http_fetch_ranges.c */
enum fetch_way { FETCH_WAY_RANGES, FETCH_WAY_STREAM, FETCH_WAY_DONE };
/* The first request of a fresh fetch: finds out which way it goes. */
int fetch_probe(struct fetch *f, enum fetch_way *way, struct penstock_error *err);
/* Asks for the last byte: is what an earlier call fetched all of still what the server has? PENSTOCK_E_CHANGED if not. */
int fetch_recheck(struct fetch *f, struct penstock_error *err);
int fetch_ranges(struct fetch *f, struct penstock_error *err);
int fetch_stream(struct fetch *f, struct penstock_error *err);

#endif
