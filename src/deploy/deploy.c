#include "deploy/deploy.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "deploy/internal.h"

enum {
	TICK_MS = 50,
	ASK_START_MS = 100, /* time between the first health checks of a server that starts */
	ASK_SHARE = 10, /* later, the pause is the time since the start, divided by ASK_SHARE */
	/* time between two health checks of a server in service; the maximum for a server that
	 * starts */
	ASK_READY_MS = 5000,
	UNHEALTHY = 3, /* failed health checks in a row after which a server in service is killed */
	BACK_OFF_MS = 100, /* pause before a server starts again, doubled by each failure */
	BACK_OFF_MAX_MS = 10000,
	FAILURES = 3, /* failed starts in a row after which the previous version returns */
	HANDSHAKE_MS = 200,
	STEADY_MS = 60000, /* time in a phase after which earlier failures do not count */
	SAME = 1000 /* maximum number of deployments of one model and host with port 0 */
};

struct deployment {
	const struct deploy_options *o;
	uint16_t port;
	char *dir, *state_path, *link; /* HOME/deploy/ID, and two paths in it */
	struct spare_hand hand;
	struct spare spare;
	struct follow follow;

	struct backend servers[2];
	unsigned front; /* the slot of the server that gets new connections */
	unsigned first; /* the slot whose socket comes first in the SO_REUSEPORT group */
	/* earliest time at which a ready server that is not in front is asked to end */
	int64_t retire_ms;
	struct model previous; /* the version that was in service before the current one */
	/* The version whose server starts in front at `again_ms`. */
	struct model again;
	int64_t again_ms;
	unsigned failures;
	/* DEPLOY_SIGNAL: the version that the server is replacing; empty once the new version is
	 * healthy. */
	struct model leaving;
	struct model last; /* the last version in front */
	bool unsaved; /* the last write of the state failed; the next tick repeats it */
};

/* ---- the state of this machine ---- */

static const char *const phases[] = {[BACKEND_NONE] = "none",
	[BACKEND_STARTING] = "starting",
	[BACKEND_READY] = "ready",
	[BACKEND_ENDING] = "ending"};

static json_t *pack_model(const struct model *m)
{
	return m->name ? json_pack("{s:s, s:s, s:s}", "version", m->name, "directory",
				 m->directory ? m->directory : "", "content", m->content)
		       : json_null();
}

static bool copy_model(struct model *to, const struct model *from)
{
	return model_set(to, from->name, from->content) &&
	       str_copy(&to->directory, from->directory);
}

/* Writes the state that a spare or a restart needs, and that keeps versions in use from being
 * removed. */
static void save(struct deployment *d)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *text = NULL;
	char boot_id[PROCESS_BOOT_ID_SIZE];
	json_auto_t *root = NULL, *failures = follow_pack_failures(&d->follow);
	json_t *servers = json_array();

	for (size_t i = 0; i < 2; i++) {
		const struct backend *s = &d->servers[i];

		json_array_append_new(servers,
			s->phase == BACKEND_NONE
				? json_null()
				: json_pack("{s:i, s:I, s:i, s:s, s:o}", "pid", (int)s->process.pid,
					  "start_ticks", (json_int_t)s->start_ticks, "health_port",
					  s->health_port, "phase", phases[s->phase], "model",
					  pack_model(&s->model)));
	}
	process_boot_id(boot_id);
	root = json_pack("{s:s, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o}", "boot_id", boot_id,
		"port", d->port, "first", (int)d->first, "front", (int)d->front, "servers", servers,
		"last", pack_model(&d->last), "previous", pack_model(&d->previous), "leaving",
		pack_model(&d->leaving), "again", pack_model(&d->again));
	if (root && json_object_update(root, failures) == 0)
		text = json_dumps(root, JSON_INDENT(1));
	if ((text ? fs_write_atomic(d->state_path, text, strlen(text), 0600, &err)
		  : error_memory(&err)) == 0) {
		d->unsaved = false;
	} else if (!d->unsaved) {
		log_warn(
			"cannot write the state: %s; if this process is killed, the deployment cannot continue",
			err.message);
		d->unsaved = true;
	}
}

static bool unpack_model(struct model *out, const json_t *from)
{
	const char *name = json_string_value(json_object_get(from, "version"));
	const char *directory = json_string_value(json_object_get(from, "directory"));
	const char *content = json_string_value(json_object_get(from, "content"));

	return name && directory && content && model_set(out, name, content) &&
	       str_copy(&out->directory, directory);
}

/* Returns the directory that a server of the version gets: in the cache, or the link into the
 * cache. Returns NULL if out of memory; free() the result. */
static char *backend_dir(const struct deployment *d, const struct model *model)
{
	return d->o->traffic == DEPLOY_SIGNAL ? strdup(d->link) : model_dir(d->o, model->content);
}

/* Takes over a server of an earlier process, if the server still runs. */
static void adopt(struct deployment *d, struct backend *s, const json_t *from)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(from, "pid"));
	uint64_t ticks = (uint64_t)json_integer_value(json_object_get(from, "start_ticks"));
	const char *phase = json_string_value(json_object_get(from, "phase"));
	struct process_info info;
	int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	if (fd < 0)
		return;
	if (!process_info(pid, &info) || info.start_ticks != ticks || info.state == 'Z' ||
		!unpack_model(&s->model, json_object_get(from, "model")) ||
		!(s->dir = backend_dir(d, &s->model))) {
		close(fd);
		return;
	}
	s->process = (struct process){.pid = pid, .pidfd = fd};
	s->start_ticks = ticks;
	s->health_port = (uint16_t)json_integer_value(json_object_get(from, "health_port"));
	backend_set(s, BACKEND_STARTING);
	for (unsigned i = BACKEND_STARTING; phase && i < ARRAY_SIZE(phases); i++) {
		if (strcmp(phases[i], phase) == 0)
			backend_set(s, i);
	}
}

/* Continues a start that was in progress: the thread of follow.c must not offer the starting
 * version again, and a version that was rolling keeps its turn. */
static void continue_start(struct deployment *d)
{
	const struct backend *front = &d->servers[d->front], *other = &d->servers[!d->front];
	const struct backend *s = front->phase == BACKEND_STARTING ? front : other;
	bool starts = s->phase == BACKEND_STARTING;

	if (!model_copy_name(&d->follow.tried, starts ? &s->model : &d->again))
		log_warn("out of memory");
	d->follow.rolling = starts && (s == other || d->leaving.name);
}

/* Reads the state of an earlier process; `over` is true if this process takes over from a killed
 * process. Returns true if the server in front was ready and has ended since. */
static bool load(struct deployment *d, bool over)
{
	json_auto_t *root = json_load_file(d->state_path, 0, NULL);
	const char *boot_id = json_string_value(json_object_get(root, "boot_id"));
	const json_t *servers = json_object_get(root, "servers");
	const char *phase;
	char now[PROCESS_BOOT_ID_SIZE];

	process_boot_id(now);
	unpack_model(&d->follow.last, json_object_get(root, "last"));
	unpack_model(&d->last, json_object_get(root, "last"));
	unpack_model(&d->previous, json_object_get(root, "previous"));
	d->front = d->o->traffic != DEPLOY_SIGNAL &&
		   json_integer_value(json_object_get(root, "front")) == 1;
	if (!boot_id || strcmp(boot_id, now) != 0)
		return false;
	if (d->port == 0)
		d->port = (uint16_t)json_integer_value(json_object_get(root, "port"));
	for (size_t i = 0; i < 2; i++)
		adopt(d, &d->servers[i], json_array_get(servers, i));
	/* Only a server that is changing to another version can return to its old version. */
	if (d->o->traffic == DEPLOY_SIGNAL && d->servers[0].phase == BACKEND_STARTING)
		unpack_model(&d->leaving, json_object_get(root, "leaving"));
	if (!over)
		return false;
	d->first = json_integer_value(json_object_get(root, "first")) == 1;
	unpack_model(&d->again, json_object_get(root, "again"));
	/* Only a process that takes over keeps the list of refused versions: when a user has
	 * restarted the deployment, these versions are tried again. */
	follow_unpack_failures(&d->follow, root);
	phase = json_string_value(json_object_get(json_array_get(servers, d->front), "phase"));
	return d->servers[d->front].phase == BACKEND_NONE && phase &&
	       strcmp(phase, phases[BACKEND_READY]) == 0;
}

/* ---- servers ---- */

static int point_link(struct deployment *d, const struct model *model)
{
	_cleanup_free_ char *dir = model_dir(d->o, model->content), *name = model_name(d->o);
	_cleanup_free_ char *to = dir && name ? str_printf("%s/%s/%s", dir, name, model->directory)
					      : NULL;
	_cleanup_free_ char *new = str_printf("%s.new", d->link);

	if (!to || !new)
		return -1;
	unlink(new);
	return symlink(to, new) < 0 || rename(new, d->link) < 0 ? -1 : 0;
}

/* Gives up a version, after the caller has chosen the version that serves instead. With `for_ever`
 * the version is never tried again. Without `for_ever` the machine may be the cause, and the
 * version is tried again later. The state is written before the message, so that a process that
 * takes over after the message does not try the version again. */
static void failed(struct deployment *d, const struct model *model, const char *why, bool for_ever)
{
	const struct backend *front = &d->servers[d->front];
	bool stays = front->phase == BACKEND_READY;
	const struct model *other = front->phase == BACKEND_NONE ? &d->again : &front->model;

	follow_failed(&d->follow, model, why, for_ever);
	save(d);
	if (other->name)
		log_warn("cannot serve version '%s': %s; version '%s' %s", model->name, why,
			other->name, stays ? "stays in service" : "returns");
	else
		log_warn("cannot serve version '%s': %s; no version is in service", model->name,
			why);
}

/* Starts a server of `model` in front after a pause. Takes ownership of the members of `model`. */
static void start_later(struct deployment *d, struct model *model)
{
	unsigned shift = d->failures < 10 ? d->failures : 10;
	int64_t pause = d->failures ? (int64_t)BACK_OFF_MS << shift : 0;

	model_release(&d->again);
	d->again = *model;
	*model = (struct model){0};
	d->again_ms = clock_monotonic_ms() + (pause < BACK_OFF_MAX_MS ? pause : BACK_OFF_MAX_MS);
}

/* Starts a server of `model`, whose members are moved. */
static void start(struct deployment *d, unsigned slot, struct model *model)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct backend *s = &d->servers[slot];
	int r = 0;

	s->model = *model;
	*model = (struct model){0};
	s->dir = backend_dir(d, &s->model);
	if (!s->dir)
		r = error_memory(&err);
	if (r == 0 && d->o->traffic == DEPLOY_SIGNAL && point_link(d, &s->model) < 0)
		r = error_errno(&err, errno, "cannot create the link '%s'", d->link);
	if (r == 0)
		r = backend_start(s, d->o, d->port, d->hand.sockets[slot], &err);
	if (r < 0) {
		struct model kept = s->model;

		s->model = (struct model){0};
		backend_release(s);
		/* No process could be started, so the version is probably not the cause. */
		d->failures++;
		if (slot == d->front) {
			log_warn("cannot start version '%s' now: %s; trying again", kept.name,
				err.message);
			start_later(d, &kept);
		} else {
			failed(d, &kept, err.message, false);
		}
		model_release(&kept);
	}
	/* The server starts even if save() fails: serve() repeats the write. If this process is
	 * killed before that write, the server is left behind, but having no server would be
	 * worse. */
	save(d);
	backend_go(s);
}

/* Sends new connections to the server in `slot`. The state is written first, and all of it at once,
 * so that a process that takes over does not send new connections to the other server again. */
static void in_service(struct deployment *d, unsigned slot, bool rolled)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct backend *s = &d->servers[slot];

	d->front = slot;
	if (!copy_model(&d->last, &s->model))
		log_warn("out of memory");
	follow_serving(&d->follow, &s->model, rolled);
	save(d);
	if (d->o->traffic == DEPLOY_SOCKET &&
		traffic_steer(d->hand.sockets, d->first, slot, &err) < 0)
		log_error("%s", err.message);
	log_info("version '%s' is in service on %s port %u (process %d)", s->model.name, d->o->host,
		d->port, (int)s->process.pid);
}

/* Returns the time for which the old server stays ready after the new server took over.
 * HANDSHAKE_MS is the minimum, because connections whose handshake is in progress are in no accept
 * queue yet. */
static int64_t retire_after(const struct deployment *d)
{
	return d->o->watch_ms > HANDSHAKE_MS ? d->o->watch_ms : HANDSHAKE_MS;
}

/* Called when the server in `slot` has become healthy after its start or a signal. */
static void ready(struct deployment *d, unsigned slot)
{
	struct backend *s = &d->servers[slot];
	bool rolled = slot != d->front || d->leaving.name;

	backend_set(s, BACKEND_READY);
	if (d->leaving.name) {
		model_release(&d->previous);
		d->previous = d->leaving;
		d->leaving = (struct model){0};
	}
	if (slot != d->front) {
		if (d->servers[d->front].phase != BACKEND_NONE &&
			!copy_model(&d->previous, &d->servers[d->front].model))
			model_release(&d->previous);
		model_release(&d->again);
		/* A server that is still starting in the other slot would take the traffic back. */
		if (d->servers[!slot].phase == BACKEND_STARTING) {
			process_signal(&d->servers[!slot].process, SIGTERM);
			backend_set(&d->servers[!slot], BACKEND_ENDING);
		}
		d->retire_ms = s->since_ms + retire_after(d);
		d->failures = 0;
	}
	in_service(d, slot, rolled);
}

static bool is_cached(const struct deployment *d, const struct model *model)
{
	_cleanup_free_ char *dir = model->name ? model_dir(d->o, model->content) : NULL;

	return dir && access(dir, F_OK) == 0;
}

/* Called when the server in front has ended. */
static void front_ended(struct deployment *d, struct model *model, bool was_ready, const char *why)
{
	struct backend *other = &d->servers[!d->front];

	if (d->leaving.name) {
		struct model before = d->leaving;

		d->leaving = (struct model){0};
		start_later(d, &before);
		failed(d, model, why, true);
	} else if (other->phase == BACKEND_READY) {
		d->front = !d->front;
		/* Call failed() before in_service(): otherwise the version is offered again. */
		failed(d, model, why, true);
		in_service(d, d->front, false);
	} else if (++d->failures >= FAILURES && !was_ready) {
		struct model before = d->previous;

		/* If there is no previous version, follow.c offers another version. */
		d->previous = (struct model){0};
		d->failures = 0;
		if (is_cached(d, &before))
			start_later(d, &before);
		model_release(&before);
		failed(d, model, why, false);
	} else {
		log_warn("restarting version '%s': %s", model->name, why);
		start_later(d, model);
	}
}

static void describe_end(const struct backend *s, int status, char *out, size_t size)
{
	if (s->killed)
		snprintf(out, size, "its server did not become healthy: %s", s->why);
	else if (status == -1)
		snprintf(out, size, "its server has ended");
	else if (WIFSIGNALED(status))
		snprintf(out, size, "its server was ended by signal %d", WTERMSIG(status));
	else
		snprintf(out, size, "its server exited with code %d", WEXITSTATUS(status));
}

static void ended(struct deployment *d, unsigned slot, int status)
{
	struct backend *s = &d->servers[slot];
	enum backend_phase phase = s->phase;
	struct model model = s->model;
	char why[512];

	if (clock_monotonic_ms() - s->since_ms >= STEADY_MS)
		d->failures = 0;
	describe_end(s, status, why, sizeof(why));
	s->model = (struct model){0};
	backend_release(s);
	if (phase != BACKEND_ENDING && slot == d->front)
		front_ended(d, &model, phase == BACKEND_READY, why);
	else if (phase == BACKEND_STARTING && status == -1) /* not a child of this process */
		follow_not_started(&d->follow, &model);
	else if (phase == BACKEND_STARTING)
		failed(d, &model, why, d->servers[d->front].phase == BACKEND_READY);
	model_release(&model);
	save(d);
}

/* DEPLOY_SIGNAL: makes the server load the previous version again. */
static void signal_back(struct deployment *d)
{
	struct backend *s = &d->servers[0];
	struct model refused = s->model;
	_cleanup_free_ char *why = take_pointer(s->why);

	s->model = d->leaving;
	d->leaving = (struct model){0};
	if (point_link(d, &s->model) < 0)
		log_error("cannot create the link '%s': %s", d->link, strerror(errno));
	process_signal(&s->process, d->o->signal);
	backend_set(s, BACKEND_STARTING);
	failed(d, &refused, why ? why : "its server did not become healthy", true);
	model_release(&refused);
}

/* Asks a server for its health if a check is due, and acts on the reply. */
static void ask(struct deployment *d, unsigned slot)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct backend *s = &d->servers[slot];
	bool starting = s->phase == BACKEND_STARTING;
	int64_t now = clock_monotonic_ms();
	/* A server that takes long to load is asked less and less often. */
	int64_t pause = starting ? (now - s->since_ms) / ASK_SHARE : ASK_READY_MS;

	if (pause < ASK_START_MS)
		pause = ASK_START_MS;
	else if (pause > ASK_READY_MS)
		pause = ASK_READY_MS;
	if (now - s->asked_ms < pause)
		return;
	if (backend_ask(s, d->o, d->port, slot == d->front, &err) == 0) {
		s->unhealthy = 0;
		if (starting)
			ready(d, slot);
		return;
	}
	free(s->why);
	str_copy(&s->why, err.message);
	s->unhealthy++;
	if (starting ? now - s->since_ms < d->o->start_ms : s->unhealthy < UNHEALTHY)
		return;
	if (d->leaving.name) {
		signal_back(d);
	} else {
		s->killed = s->why != NULL;
		process_signal(&s->process, SIGKILL);
	}
}

static void step(struct deployment *d, unsigned slot)
{
	struct backend *s = &d->servers[slot];
	int64_t now = clock_monotonic_ms();
	int status;

	if (s->phase == BACKEND_NONE) {
		if (slot == d->front && d->again.name && now >= d->again_ms)
			start(d, slot, &d->again);
		else if (slot != d->front && d->o->traffic == DEPLOY_SOCKET &&
			 d->servers[d->front].phase == BACKEND_READY &&
			 traffic_waiting(d->hand.sockets[slot]))
			relay_waiting(d->hand.sockets[slot]);
		return;
	}
	if (backend_has_ended(s, &status)) {
		ended(d, slot, status);
	} else if (s->phase == BACKEND_ENDING) {
		if (now - s->since_ms > d->o->drain_ms)
			process_signal(&s->process, SIGKILL);
	} else if (s->phase == BACKEND_STARTING || (slot == d->front && d->o->health)) {
		ask(d, slot);
	} else if (slot != d->front && now >= d->retire_ms &&
		   (d->o->traffic != DEPLOY_SOCKET || !traffic_waiting(d->hand.sockets[slot]) ||
			   now >= d->retire_ms + d->o->drain_ms)) {
		process_signal(&s->process, SIGTERM);
		backend_set(s, BACKEND_ENDING);
		save(d);
	}
}

/* Takes the version that the thread of follow.c offers, once its server can start or reload. */
static void take_offer(struct deployment *d)
{
	const struct backend *front = &d->servers[d->front];
	unsigned slot = front->phase == BACKEND_NONE && !d->again.name ? d->front : !d->front;
	struct cached cached;
	struct model model;

	if (d->o->traffic == DEPLOY_SIGNAL) {
		if (front->phase == BACKEND_STARTING || d->again.name)
			return;
		slot = 0;
	} else if (d->servers[slot].phase != BACKEND_NONE) {
		return;
	}
	if (!follow_take(
		    &d->follow, slot != d->front || front->phase != BACKEND_NONE, &model, &cached))
		return;
	if (front->phase == BACKEND_READY && strcmp(front->model.content, model.content) == 0) {
		follow_serving(&d->follow, &model, true);
	} else if (d->servers[slot].phase == BACKEND_NONE) {
		start(d, slot, &model);
	} else {
		struct backend *s = &d->servers[slot];

		d->leaving = s->model;
		s->model = model;
		model = (struct model){0};
		backend_set(s, BACKEND_STARTING);
		s->asked_ms = s->since_ms; /* the first check is after the signal */
		save(d);
		if (point_link(d, &s->model) == 0)
			process_signal(&s->process, d->o->signal);
		else
			signal_back(d);
	}
	cached_release(&cached);
	model_release(&model);
}

/* ---- begin and end ---- */

/* Asks all servers to end, waits, and kills servers that have not ended after `drain_ms`. */
static void end_servers(struct deployment *d)
{
	for (size_t i = 0; i < 2; i++) {
		struct backend *s = &d->servers[i];

		if (s->phase == BACKEND_NONE || s->phase == BACKEND_ENDING)
			continue;
		process_signal(&s->process, SIGTERM);
		backend_set(s, BACKEND_ENDING);
	}
	for (size_t i = 0; i < 2; i++) {
		struct backend *s = &d->servers[i];
		int status;

		while (s->phase != BACKEND_NONE && !backend_has_ended(s, &status)) {
			struct pollfd p = {s->process.pidfd, POLLIN, 0};

			if (clock_monotonic_ms() - s->since_ms > d->o->drain_ms)
				process_signal(&s->process, SIGKILL);
			poll(&p, 1, TICK_MS);
		}
		backend_release(s);
	}
}

static int name_files(struct deployment *d, struct penstock_error *err)
{
	d->state_path = d->dir ? path_join(d->dir, DEPLOYMENT_STATE) : NULL;
	d->link = d->dir ? path_join(d->dir, "model") : NULL;
	return d->state_path && d->link ? 0 : error_memory(err);
}

/* Returns HOME/deploy/ID, where ID is the checksum of model, address and `number`. Returns NULL if
 * out of memory. */
static char *deployment_dir(const struct deploy_options *o, unsigned number)
{
	_cleanup_free_ char *text = str_printf(
		"%s/%s %s:%u %u", o->bucket, o->prefix, o->host, o->port, number);

	return text ? deploy_dir(o, DEPLOYMENTS, text) : NULL;
}

/* Takes the lock of this model and address. With port 0, takes the first of SAME locks that is
 * free. */
static int lock(struct deployment *d, struct penstock_error *err)
{
	int r = 1;

	for (unsigned i = 0; r == 1 && i < (d->o->port ? 1 : SAME); i++) {
		_cleanup_free_ char *path = NULL;

		free(d->dir);
		d->dir = deployment_dir(d->o, i);
		path = d->dir ? path_join(d->dir, DEPLOYMENT_LOCK) : NULL;
		if (!path)
			return error_memory(err);
		r = fs_mkdirs(d->dir, 0700, err);
		if (r < 0)
			return r;
		if (d->hand.lock >= 0)
			close(d->hand.lock);
		d->hand.lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		r = d->hand.lock < 0 ? -1 : fs_lock(d->hand.lock);
		if (r < 0)
			return error_errno(err, errno, "cannot lock '%s'", path);
	}
	return r == 0 ? 0
		      : error_set(err, PENSTOCK_E_EXISTS,
				"cannot deploy '%s/%s' on '%s' port %u: another process deploys "
				"this model there; use another port",
				d->o->bucket, d->o->prefix, d->o->host, d->o->port);
}

/* Finds the directory of the lock that the previous process has passed on. */
static int find_dir(struct deployment *d, struct penstock_error *err)
{
	char path[PATH_MAX];
	ssize_t n = readlink(fs_fd_path(d->hand.lock).text, path, sizeof(path) - 1);

	if (n < 0)
		return error_set(err, PENSTOCK_E_INTERNAL, "cannot find the directory of the lock");
	path[n] = '\0';
	*strrchr(path, '/') = '\0';
	d->dir = strdup(path);
	return d->dir ? 0 : error_memory(err);
}

static void keep_spare(struct deployment *d)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (spare_keep(&d->spare, &d->hand, &err) < 0)
		log_warn("cannot start a spare process: %s", err.message);
}

/* Takes over from a process that was killed, or starts a deployment. */
static int begin(struct deployment *d, struct penstock_error *err)
{
	bool over = spare_take_over(&d->hand), lost;
	struct model last = {0};
	int r = over ? find_dir(d, err) : lock(d, err);

	if (r == 0)
		r = name_files(d, err);
	if (r < 0)
		return r;
	lost = load(d, over);
	/* Start a spare at once, because this process may be killed soon, too. */
	if (over)
		keep_spare(d);
	if (!over && is_cached(d, &d->last) && !copy_model(&d->previous, &d->last))
		r = error_memory(err);
	if (over)
		log_warn("the previous process was killed; its servers continue");
	else if (d->o->traffic == DEPLOY_SOCKET)
		end_servers(d); /* the earlier process has not passed on its sockets */
	if (d->servers[0].phase == BACKEND_NONE && d->servers[1].phase == BACKEND_NONE && !over) {
		d->port = d->o->port;
		r = traffic_find(d->o->host, &d->port, err);
	}
	if (r == 0 && d->o->traffic == DEPLOY_SOCKET && !over)
		r = traffic_open(d->hand.sockets, d->o->host, d->port, err);
	if (r == 0 && d->o->traffic == DEPLOY_SOCKET)
		r = traffic_steer(d->hand.sockets, d->first, d->front, err);
	d->retire_ms = clock_monotonic_ms() + retire_after(d);
	/* The signal may have been lost with the previous process. */
	if (r == 0 && d->leaving.name && d->servers[0].phase == BACKEND_STARTING &&
		point_link(d, &d->servers[0].model) == 0)
		process_signal(&d->servers[0].process, d->o->signal);
	if (r == 0 && d->servers[d->front].phase == BACKEND_READY)
		in_service(d, d->front, false);
	else if (r == 0 && lost && copy_model(&last, &d->last))
		front_ended(d, &last, true, "its server has ended");
	model_release(&last);
	if (r == 0)
		save(d);
	if (over)
		continue_start(d);
	if (r == 0)
		r = follow_start(&d->follow, d->port, err);
	return r;
}

/* Listens again if a server has called shutdown() on its socket, which stops all processes that
 * share the socket from listening. */
static void mend_sockets(struct deployment *d)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r;

	if (d->o->traffic != DEPLOY_SOCKET)
		return;
	r = traffic_mend(d->hand.sockets, &d->first, d->front, &err);
	if (r < 0)
		log_error("%s", err.message);
	if (r != 0)
		save(d);
}

static void serve(struct deployment *d)
{
	while (!atomic_load(d->o->cancel) && !follow_is_in_vain(&d->follow)) {
		struct pollfd p[] = {
			{d->servers[0].phase ? d->servers[0].process.pidfd : -1, POLLIN, 0},
			{d->servers[1].phase ? d->servers[1].process.pidfd : -1, POLLIN, 0}};

		keep_spare(d);
		mend_sockets(d);
		for (unsigned i = 0; i < 2; i++)
			step(d, i);
		take_offer(d);
		if (d->unsaved || follow_refuses_more(&d->follow))
			save(d);
		poll(p, ARRAY_SIZE(p), TICK_MS);
	}
}

static void close_sockets(struct deployment *d)
{
	for (size_t i = 0; i < 2; i++) {
		if (d->hand.sockets[i] >= 0)
			close(d->hand.sockets[i]);
		d->hand.sockets[i] = -1;
	}
}

static void deployment_release(struct deployment *d)
{
	for (size_t i = 0; i < 2; i++)
		backend_release(&d->servers[i]);
	close_sockets(d);
	if (d->hand.lock >= 0)
		close(d->hand.lock);
	model_release(&d->previous);
	model_release(&d->again);
	model_release(&d->leaving);
	model_release(&d->last);
	free(d->dir);
	free(d->state_path);
	free(d->link);
}

int deploy_run(const struct deploy_options *options, struct penstock_error *err)
{
	_cleanup_(deployment_release) struct deployment d = {.o = options,
		.port = options->port,
		.hand = {.lock = -1, .sockets = {-1, -1}},
		.spare.process = PROCESS_INIT,
		.follow.cached.lock = -1};
	const char *program = options->command[0];
	_cleanup_free_ char *found = fs_find_tool(program);
	int r;

	if (!found && !strpbrk(program, "/{"))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find the program '%s'; check the command and PATH", program);
	follow_init(&d.follow, options);
	r = begin(&d, err);
	if (r == 0)
		serve(&d);
	/* Dismiss the spare first: it would take over if a second signal ended this process. */
	spare_dismiss(&d.spare);
	if (r == 0 && !atomic_load(options->cancel))
		r = error_set(
			err, PENSTOCK_E_NOT_FOUND, "cannot find bucket '%s'", options->bucket);
	/* Close the sockets first, so that new connections are refused at once and do not wait
	 * until the servers have ended. */
	close_sockets(&d);
	end_servers(&d);
	if (r == 0)
		save(&d);
	follow_stop(&d.follow);
	return r;
}
