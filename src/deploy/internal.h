/* Parts of a deployment: for the files of src/deploy alone. */
#ifndef DEPLOY_INTERNAL_H
#define DEPLOY_INTERNAL_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/process/process.h"
#include "checkpoint/commit.h"
#include "deploy/deploy.h"
#include "transfer/objects.h"

/* ---- versions.c: the versions in the bucket ---- */

#define MODEL_CONTENT_SIZE 33 /* hexadecimal digits of the checksum, and a NUL */

struct model_file {
	char *path; /* below the prefix */
	char etag[OBJECT_ETAG_SIZE];
	uint64_t size;
};

/* One version. The content of a version is a checksum of the names, sizes and ETags of its files: a
 * version whose files change becomes a different version. */
struct model {
	char *name; /* name of its directory; for a whole prefix, 12 digits of `content` */
	char *directory; /* "" or "3/", below the prefix */
	char content[MODEL_CONTENT_SIZE];
	struct model_file *files;
	size_t n;
	uint64_t size; /* bytes */
	bool committed; /* the version has the commit of a checkpoint */
};
void model_release(struct model *model);
/* Sets name and content, and releases the other members. Returns false if out of memory. */
bool model_set(struct model *to, const char *name, const char *content);
/* Copies name and content, unless `from` is empty. Returns false if out of memory. */
bool model_copy_name(struct model *to, const struct model *from);

/* Results of earlier looks, which are searches for versions by versions_look(). Zero the struct
 * before the first look. */
struct versions {
	const struct deploy_options *o;
	struct seen_commit *commits;
	size_t n_commits;
	size_t next_commit; /* place where the search for the next commit begins */
	struct seen_content *contents;
	size_t n_contents;
	/* commits of the last look that lack the metric of `best`; 0 if any commit has the
	 * metric */
	size_t n_unmeasured;
};
void versions_release(struct versions *v);
/* Contents that are not served, because their fetch or their server failed. */
struct refused {
	struct refused_content {
		char content[MODEL_CONTENT_SIZE];
		int64_t until_ms; /* monotonic end of the refusal; 0 if refused forever */
	} * contents;
	size_t n;
};
bool refused_has(const struct refused *refused, const char *content);
/* Finds the newest complete version, or the best version. Returns 1 with the version in `out`,
 * which the caller releases, or 0 if there is no such version. `*settles` is true if a version was
 * too new or changed during the look, so that the next look may find another version. */
int versions_look(struct versions *v, const struct refused *refused, struct model *out,
	bool *settles, struct penstock_error *err);

/* ---- cache.c: versions on this machine ---- */

/* A version in the cache, which is not removed until cached_release(). */
struct cached {
	char *dir; /* HOME/models/PLACE/CONTENT; the files are below NAME/ in it; owned */
	int lock;
};
void cached_release(struct cached *cached);
#define DEPLOYMENTS	 "deploy" /* below HOME; has a directory for each deployment */
#define DEPLOYMENT_LOCK	 "lock" /* in these directories; locked by the active process */
#define DEPLOYMENT_STATE "state.json"
/* Returns HOME/KIND/ID, where ID is the checksum of `text`, or NULL if out of memory; free() it. */
char *deploy_dir(const struct deploy_options *o, const char *kind, const char *text);
/* Returns the directory of a version, or NULL if out of memory; free() it. */
char *model_dir(const struct deploy_options *o, const char *content);
/* Returns the last part of the prefix, or the bucket if the prefix is empty; NULL if out of memory.
 * free() the result. */
char *model_name(const struct deploy_options *o);
/* Fetches the missing files of a version, and verifies all of them. */
int model_fetch(const struct deploy_options *o, const struct model *model, const atomic_int *cancel,
	struct cached *out, struct penstock_error *err);
/* Verifies a cached version. Fails with PENSTOCK_E_NOT_FOUND if it is not in the cache. */
int model_find(const struct deploy_options *o, const char *content, const atomic_int *cancel,
	struct cached *out, struct penstock_error *err);

/* ---- traffic.c: the sockets ---- */

/*
 * Two listening sockets with one address, one for each server. A socket filter of their group
 * chooses the socket that gets a new connection: the socket of the server in front, which is in
 * service, or of the other server if the connection comes from TRAFFIC_PROBE, the source address of
 * health checks.
 * Both sockets stay open while servers come and go, so their order in the group does not change,
 * unless a server shuts its socket down (traffic_mend()).
 */
#define TRAFFIC_PROBE	     "127.80.69.78"
#define TRAFFIC_PROBE_NUMBER 0x7f50454e

/* Finds a free port if `*port` is 0. Fails with PENSTOCK_E_EXISTS if another process listens on the
 * address: that process would get some of our connections. */
int traffic_find(const char *host, uint16_t *port, struct penstock_error *err);
int traffic_open(
	int sockets[static 2], const char *host, uint16_t port, struct penstock_error *err);
/* Sends new connections to the socket of slot `front`. `first` is the slot whose socket comes first
 * in the group. */
int traffic_steer(
	const int sockets[static 2], unsigned first, unsigned front, struct penstock_error *err);
/* Listens again if a server has shut a socket down for all its holders. Returns 1 if a socket was
 * shut down; `*first` and the filter may then have changed. */
int traffic_mend(
	const int sockets[static 2], unsigned *first, unsigned front, struct penstock_error *err);
/* Returns the number of connections that no server has accepted yet. */
unsigned traffic_waiting(int socket);

/* ---- relay.c: connections that wait at a socket whose server has ended ---- */

/* Accepts the waiting connections, closes health checks, and relays all other connections to the
 * server in front. Each connection has a thread, which ends with the connection. The server sees
 * connections from this machine. Does not block. */
void relay_waiting(int socket);

/* ---- backend.c: one process ---- */

enum backend_phase {
	BACKEND_NONE,
	BACKEND_STARTING, /* not yet healthy */
	BACKEND_READY, /* in front, or kept in case the newer server in front fails */
	BACKEND_ENDING /* asked to end */
};

struct backend {
	enum backend_phase phase;
	struct process process;
	uint64_t start_ticks; /* identifies the process, together with the pid */
	struct model model; /* only name, directory and content */
	char *dir; /* directory of its version in the cache, or the link to it; owned */
	uint16_t health_port;
	int64_t since_ms; /* start of the phase */
	int64_t asked_ms; /* last health check */
	unsigned unhealthy; /* failed health checks in a row */
	char *why; /* reason of the last failed check; owned */
	int gate; /* descriptor: a line written to it starts the command; 0 afterwards */
	bool killed; /* this process killed the server because of `why` */
};
void backend_release(struct backend *s);
/* Starts a server of s->model. `socket` is -1 if the server listens itself. */
int backend_start(struct backend *s, const struct deploy_options *o, uint16_t port, int socket,
	struct penstock_error *err);
void backend_set(struct backend *s, enum backend_phase phase);
/* Requests the health URL of the server. An error is the reason why the server is not healthy. */
int backend_ask(struct backend *s, const struct deploy_options *o, uint16_t port, bool front,
	struct penstock_error *err);
/* Lets the command start, after its pid is recorded. Without this call the server ends with this
 * process. */
void backend_go(struct backend *s);
/* Returns true if the server has ended, and kills the processes that it has left. `status` is the
 * status from waitpid(), or -1 if the server is not our child. */
bool backend_has_ended(struct backend *s, int *status);

/* ---- spare.c: the process that continues after a kill ---- */

struct spare {
	struct process process;
	int channel;
	int64_t started_ms;
};
/* Descriptors that a spare gets from the active process. */
struct spare_hand {
	int lock;
	int sockets[2]; /* -1 if servers listen themselves */
};
/* Gets the descriptors if this process is a spare that took over; otherwise returns false. */
bool spare_take_over(struct spare_hand *out);
/* Starts a spare unless one is running; at most one start per second. */
int spare_keep(struct spare *s, const struct spare_hand *hand, struct penstock_error *err);
/* Ends the spare. */
void spare_dismiss(struct spare *s);

/* ---- replicas.c: the state object next to the model ---- */

#define REPLICAS_KEY ".penstock/deploy.json" /* below the prefix */
enum { REPLICAS_TERM_MS = 15000 }; /* a replica that rolls writes more often than this */

struct replicas {
	const struct deploy_options *o;
	char *name; /* "HOST:PORT" */
	/* Heartbeat numbers of other replicas that roll, and when each number was first seen. */
	struct seen_beat *beats;
	size_t n_beats;
	int64_t beat; /* heartbeat number of this replica: counts the writes of its entry */
	const atomic_int *cancel; /* ends requests in progress */
};
struct replica_state {
	const char *state; /* "serving", "rolling", "failed", "waiting" */
	/* the version in service; NULL, or without a name, if there is none */
	const struct model *model;
	/* the version that rolls; may be NULL or without a name, like `model` */
	const struct model *next;
	/* the last version that failed; may be NULL or without a name, like `model` */
	const struct model *failed;
	const char *why; /* reason why `failed` has failed */
};
int replicas_open(struct replicas *r, const struct deploy_options *o, uint16_t port,
	struct penstock_error *err);
void replicas_release(struct replicas *r);
/* Writes this replica's entry, or removes it if `state` is NULL. Does nothing with `no_state`. */
int replicas_write(
	struct replicas *r, const struct replica_state *state, struct penstock_error *err);
/* Writes the entry as "rolling" unless `unavailable` other replicas already roll. Returns 1 if it
 * is this replica's turn, else 0. With `no_state`, it is always this replica's turn. */
int replicas_take_turn(
	struct replicas *r, const struct replica_state *state, struct penstock_error *err);

/* ---- follow.c: the thread that looks for versions ---- */

/* State that is passed, under `lock`, between the thread of follow.c and the main thread of the
 * deployment, called `main` below. */
struct follow {
	const struct deploy_options *o;
	pthread_t thread;
	bool started;
	atomic_int stop;
	atomic_int give_up; /* ends the last request if it takes too long */
	bool ended; /* the thread has ended */
	uint16_t port;
	/* served by an earlier process; offered from the cache, without a request to the store */
	struct model last;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* Set by the thread: a verified version whose turn it is, until main takes it. */
	bool offers;
	struct model next;
	struct cached cached;
	/* Set by main, except `missing`. */
	struct model tried; /* the last offer that main has taken */
	bool wakes; /* the thread has to read the members below */
	bool missing; /* set by the thread: there is no bucket, and nothing to serve */
	bool rolling; /* `tried` replaces another version, and has not finished */
	bool changed; /* the thread has not read `serving` and `failed` since their last change */
	struct model serving;
	struct model failed; /* the last version that failed */
	char *why;
	struct refused refused;
	bool refuses_more; /* `refused` and `failed` have changed since follow_pack_failures() */
};
void follow_init(struct follow *f, const struct deploy_options *o);
/* Starts the thread. If a version is in service, main must have reported it before. */
int follow_start(struct follow *f, uint16_t port, struct penstock_error *err);
/* Removes this replica's entry from the state object, unless the last write of the entry failed;
 * then ends the thread, and releases the members. */
void follow_stop(struct follow *f);
/* Reports the version in service. `rolled` is true if the version was offered and has just gone
 * into service; earlier failures are then forgotten. */
void follow_serving(struct follow *f, const struct model *model, bool rolled);
/* Reports a version that failed. The version is never offered again if `for_ever` is true, else
 * only after a minute. */
void follow_failed(struct follow *f, const struct model *model, const char *why, bool for_ever);
/* Reports a version whose server has ended and had not become healthy before the process that
 * started the server was killed. The version is offered again. */
void follow_not_started(struct follow *f, const struct model *model);
/* Returns an object for the state of this machine: the contents that are not offered, and the last
 * version that failed. Returns NULL if out of memory. */
json_t *follow_pack_failures(struct follow *f);
/* Returns true if more versions have failed since the last call of follow_pack_failures(). */
bool follow_refuses_more(struct follow *f);
/* Takes the failures from the state of an earlier process, before follow_start(). */
void follow_unpack_failures(struct follow *f, const json_t *state);
/* Returns true if there is no bucket, and nothing to serve. */
bool follow_is_in_vain(struct follow *f);
/* Takes the offer. If `rolls` is true, the version's turn lasts until follow_serving() or
 * follow_failed() reports the version. Returns false if there is no offer. */
bool follow_take(struct follow *f, bool rolls, struct model *model, struct cached *cached);

#endif
