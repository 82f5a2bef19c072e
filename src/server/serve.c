#include "server/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/str.h"
#include "server/bucket/access_log.h"
#include "server/bucket/lifecycle.h"
#include "server/bucket/notifier.h"
#include "server/bucket/replicator.h"
#include "server/directory/identity.h"
#include "server/request/account.h"
#include "server/request/headers.h"
#include "server/server.h"
#include "store/store.h"

/* Time that an owner without users waits for new users. */
#define IDLE_MS 2500
/* Interval of the check for users. */
#define LOOK_MS 100
/* Interval of the check for a new certificate. */
#define TLS_MS 2000
/* Interval of the check for unfinished uploads, unless a quarter of their maximum age is
 * shorter. */
#define EXPIRE_MS (3600 * 1000)
/* Size in bytes above which the log of an embedded owner is truncated when the owner starts. */
#define SERVER_LOG_MAX (1 * MIB)

/* SD_LISTEN_FDS_START of systemd */
#define SOCKET_OF_SYSTEMD 3

struct owner {
	const struct serve_options *options;
	struct store *store;
	struct access_log *access_log;
	struct lifecycle *lifecycle;
	struct notifier *notify;
	struct replicator *replicator;
	struct server *server;
	struct account account;
	char token[33]; /* token of this start, as in ROOT/lock and owner.json */
	int users_fd;
	/* The walk over the unfinished uploads. */
	struct store_upload_place upload;
	size_t n_aborted;
};

int serve_parse_listen(const char *text, char **address, uint16_t *port, struct penstock_error *err)
{
	const char *colon = strrchr(text, ':');
	const char *from = text, *to = colon;
	uint64_t number;

	if (!colon || !str_to_u64(colon + 1, 0, UINT16_MAX, &number))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot listen on '%s': expected ADDRESS:PORT, such as 127.0.0.1:9000; "
			"port 0 selects a free port",
			text);
	if (*from == '[' && to > from + 1 && to[-1] == ']') {
		from++;
		to--;
	}
	*address = from == to ? strdup("0.0.0.0") : strndup(from, (size_t)(to - from));
	if (!*address)
		return error_memory(err);
	*port = (uint16_t)number;
	return 0;
}

int serve_parse_metrics(
	const char *text, char **address, uint16_t *port, struct penstock_error *err)
{
	_cleanup_free_ char *whole = NULL;

	if (strchr(text, ':') && *text != ':')
		return serve_parse_listen(text, address, port, err);
	whole = str_printf("127.0.0.1:%s", text + (*text == ':'));
	return whole ? serve_parse_listen(whole, address, port, err) : error_memory(err);
}

/* Returns true for a host name: labels between dots, the last of which is not a number. */
static bool is_domain(const char *name, size_t len)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-0123456789";
	size_t n = 0, digits = 0;

	for (const char *end = name + len; name <= end; name += n + 1) {
		n = strspn(name, letters);
		digits = strspn(name, "0123456789");
		n = n > (size_t)(end - name) ? (size_t)(end - name) : n;
		if (!n || n > 63 || *name == '-' || name[n - 1] == '-' ||
			(name + n < end && name[n] != '.'))
			return false;
	}
	return len <= 253 && digits < n;
}

int serve_check_domains(const char *domains, struct penstock_error *err)
{
	for (const char *p = domains;; p++) {
		size_t len = strcspn(p, ",");

		if (!is_domain(p, len))
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot serve the domain '%.*s': expected a name without a port, "
				"such as s3.example.com",
				(int)len, p);
		p += len;
		if (!*p)
			return 0;
	}
}

/* --- owner.json ------------------------------------------------------------------------------ */

static int write_token(struct owner *owner, struct penstock_error *err)
{
	unsigned char random[16];
	int fd = store_lock_fd(owner->store);

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return error_set(err, PENSTOCK_E_INTERNAL, "cannot generate a token");
	str_hex(random, sizeof(random), owner->token);
	if (ftruncate(fd, 0) < 0 || fs_pwrite_all(fd, owner->token, 32, 0) < 0)
		return error_errno(err, errno, "cannot write '%s/lock'", owner->options->root);
	return 0;
}

static int write_owner(struct owner *owner, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(owner->options->root, "owner.json");
	_cleanup_free_ char *text = NULL;
	json_auto_t *json = json_pack("{s:i,s:s,s:s,s:s,s:s}", "pid", (int)getpid(), "token",
		owner->token, "endpoint", server_url(owner->server), "access_key_id",
		owner->account.access_key_id, "keys",
		owner->account.from_environment ? "environment" : "file");

	if (json)
		text = json_dumps(json, JSON_INDENT(2));
	if (!path || !text)
		return error_memory(err);
	return fs_write_atomic(path, text, strlen(text), 0600, err);
}

static void remove_owner(const char *root)
{
	_cleanup_free_ char *path = path_join(root, "owner.json");

	if (path)
		unlink(path);
}

/* --- exit ------------------------------------------------------------------------------------ */

/* Returns true if an embedded owner may exit now. The owner then holds the users' lock, and a new
 * user waits for this lock until the owner has exited. */
static bool may_leave(struct owner *owner, int64_t *busy_ms)
{
	int64_t now = clock_monotonic_ms();
	int64_t request_ms = server_last_activity(owner->server) / NS_PER_MS;

	if (request_ms > *busy_ms)
		*busy_ms = request_ms;
	if (server_active(owner->server) || flock(owner->users_fd, LOCK_EX | LOCK_NB) < 0) {
		*busy_ms = now;
		return false;
	}
	if (now - *busy_ms >= IDLE_MS)
		return true;
	flock(owner->users_fd, LOCK_UN);
	return false;
}

/* Checks some unfinished uploads if a check is due, and aborts abandoned uploads. Returns the time
 * until the next step. Between two steps the owner handles signals and checks for users. */
static int64_t expire_uploads(struct owner *owner, int64_t *next_ms)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int64_t age_ms = owner->options->upload_age_ms, now = clock_monotonic_ms();
	enum store_status status;
	size_t n = 0;

	if (!age_ms || age_ms > clock_wall_ns() / NS_PER_MS)
		return EXPIRE_MS;
	if (now < *next_ms)
		return *next_ms - now;
	status = store_upload_expire(
		owner->store, clock_wall_ns() - age_ms * NS_PER_MS, &owner->upload, &n, &err);
	owner->n_aborted += n;
	if (status == STORE_OK && owner->upload.bucket)
		return 0;
	if (status != STORE_OK)
		log_warn("cannot abort old uploads: %s",
			err.message ? err.message : "out of memory");
	if (owner->n_aborted)
		log_info("store '%s': aborted %zu unfinished uploads", owner->options->root,
			owner->n_aborted);
	owner->upload = (struct store_upload_place){0};
	owner->n_aborted = 0;
	*next_ms = now + (age_ms / 4 > EXPIRE_MS ? EXPIRE_MS : age_ms / 4 + 1);
	return *next_ms - now;
}

static void reopen_log(struct owner *owner)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (server_reopen_log(owner->server, &err) < 0)
		log_warn("%s", err.message ? err.message : "out of memory");
}

static void renew_tls(struct owner *owner, bool forced)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (owner->options->tls_cert && server_renew_tls(owner->server, forced, &err) < 0)
		log_warn("%s; the previous certificate is still used",
			err.message ? err.message : "out of memory");
}

/* Returns true if SIGHUP opens files again. Otherwise SIGHUP ends the server, like SIGTERM. */
static bool has_files(const struct serve_options *options)
{
	return options->log_file || options->tls_cert;
}

static void wait_for_end(struct owner *owner, const sigset_t *signals)
{
	int64_t busy_ms = clock_monotonic_ms(), expire_ms = 0;

	for (;;) {
		int64_t ms = expire_uploads(owner, &expire_ms);
		struct timespec look;

		if (owner->options->embedded && ms > LOOK_MS)
			ms = LOOK_MS;
		if (owner->options->tls_cert && ms > TLS_MS)
			ms = TLS_MS;
		look = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS};
		switch (sigtimedwait(signals, NULL, &look)) {
		case SIGHUP:
			if (!has_files(owner->options))
				return;
			reopen_log(owner);
			renew_tls(owner, true);
			continue;
		case -1:
			renew_tls(owner, false);
			break;
		default:
			return;
		}
		if (owner->options->embedded && may_leave(owner, &busy_ms))
			return;
	}
}

/* --- the process ----------------------------------------------------------------------------- */

/* Returns the socket that systemd passes, or 0 if there is none. */
static int inherited_socket(struct penstock_error *err)
{
	const char *pid = str_env("LISTEN_PID"), *n = str_env("LISTEN_FDS");
	uint64_t number = 0, count = 0;

	if (!pid || !n || !str_to_u64(pid, 1, INT32_MAX, &number) || (pid_t)number != getpid() ||
		!str_to_u64(n, 1, INT32_MAX, &count))
		return 0;
	if (count != 1)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use %llu sockets of systemd: expected one; check the socket unit",
			(unsigned long long)count);
	if (fcntl(SOCKET_OF_SYSTEMD, F_SETFD, FD_CLOEXEC) < 0 ||
		fcntl(SOCKET_OF_SYSTEMD, F_SETFL, O_NONBLOCK) < 0)
		return error_errno(err, errno, "cannot use the socket of systemd");
	return SOCKET_OF_SYSTEMD;
}

/* Sends a state to systemd, as sd_notify(3) does. */
static void notify_systemd(const char *state)
{
	const char *path = str_env("NOTIFY_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = -1;
	socklen_t len;

	if (!path || strlen(path) >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, strlen(path));
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	if (to.sun_path[0] == '@')
		to.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 ||
		sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, len) < 0)
		log_debug("cannot notify systemd: %s", strerror(errno));
}

/* Prints the address; an embedded owner then closes its inherited descriptors. */
static int announce(struct owner *owner, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(owner->options->root, "server.log");
	const char *metrics = server_metrics_url(owner->server);
	bool written = printf("listening on %s\n%s%s%s", server_url(owner->server),
			       metrics ? "metrics on " : "", metrics ? metrics : "",
			       metrics ? "\n" : "") >= 0 &&
		       fflush(stdout) == 0;
	struct stat st;
	int null, log;

	/* An embedded owner continues if it cannot print: the process that started it may have
	 * exited, and other processes may already use this owner. */
	if (!written && !owner->options->embedded)
		return error_errno(err, errno, "cannot write to stdout");
	if (!owner->options->embedded) {
		bool given = str_env("PENSTOCK_ACCESS_KEY_ID") != NULL;

		log_info("keys: %s%s", given ? "$PENSTOCK_ACCESS_KEY_ID" : owner->options->root,
			given ? "" : "/credentials");
		log_info("example: %s%s%sAWS_ENDPOINT_URL=%s penstock mb s3://bucket",
			given ? "" : "AWS_SHARED_CREDENTIALS_FILE=",
			given ? "" : owner->options->root, given ? "" : "/credentials ",
			server_url(owner->server));
		return 0;
	}
	clearerr(stdout);
	if (!path)
		return error_memory(err);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (null < 0 || log < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log, 2) < 0)
		return error_errno(err, errno,
			"cannot redirect the standard streams to /dev/null and '%s'", path);
	if (fstat(log, &st) == 0 && st.st_size > (off_t)SERVER_LOG_MAX && ftruncate(log, 0) < 0)
		log_debug("cannot truncate '%s': %s", path, strerror(errno));
	close(null);
	close(log);
	return 0;
}

/* Called after announce(), when stderr of an embedded owner is its log. */
static void warn_relaxed(const struct serve_options *o)
{
	if (o->relaxed)
		log_warn(
			"store '%s': relaxed durability: a power failure or a crash of the "
			"machine loses acknowledged changes of up to the last %d s; use '--durability "
			"full' for data that must not be lost",
			o->root, STORE_RELAXED_MS / 1000);
}

static int start(struct owner *owner, struct penstock_error *err)
{
	const struct serve_options *o = owner->options;
	_cleanup_free_ char *users = path_join(o->root, "users");
	int fd = 0;
	int rc = users ? store_open(&owner->store,
				 &(struct store_options){.root = o->root,
					 .master_key = o->master_key,
					 .relaxed = o->relaxed,
					 /* With TLS this process encrypts the bytes, so it does not
					  * send from mappings. */
					 .no_mapping = o->tls_cert != NULL},
				 err)
		       : error_memory(err);

	if (rc < 0)
		return rc;
	remove_owner(o->root); /* left by an owner that was killed */
	rc = write_token(owner, err);
	if (rc == 0)
		rc = account_load(&owner->account, o->root, true, err);
	if (rc == 0) {
		owner->users_fd = open(users, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (owner->users_fd < 0)
			rc = error_errno(err, errno, "cannot open '%s'", users);
	}
	if (rc == 0)
		rc = notifier_start(
			&owner->notify, owner->store, o->root, o->webhook_retry_ms, err);
	if (rc == 0)
		rc = replicator_start(&owner->replicator, owner->store, o->replication,
			o->replication_retry_ms, err);
	if (rc == 0)
		rc = lifecycle_start(
			&owner->lifecycle, owner->store, o->lifecycle_day_ms * NS_PER_MS, err);
	if (rc == 0)
		rc = access_log_start(
			&owner->access_log, owner->store, ACCOUNT_FIRST, o->log_interval_ms, err);
	if (rc == 0)
		rc = fd = inherited_socket(err);
	if (rc >= 0)
		rc = server_start(&owner->server,
			&(struct server_options){.store = owner->store,
				.access_log = owner->access_log,
				.lifecycle = owner->lifecycle,
				.notify = owner->notify,
				.replicator = owner->replicator,
				.address = o->address,
				.port = o->port,
				.listen_fd = fd,
				.log_file = o->log_file,
				.metrics_address = o->metrics_address,
				.metrics_port = o->metrics_port,
				.access_key_id = owner->account.access_key_id,
				.secret_access_key = owner->account.secret_access_key,
				.accounts = o->accounts,
				.domain = o->domain,
				.tls_cert = o->tls_cert,
				.tls_key = o->tls_key},
			err);
	if (rc == 0)
		rc = write_owner(owner, err);
	if (rc == 0)
		rc = announce(owner, err);
	if (rc == 0)
		warn_relaxed(o);
	return rc;
}

int serve_run(const struct serve_options *options, struct penstock_error *err)
{
	struct owner owner = {.options = options, .users_fd = -1};
	sigset_t signals;
	int rc;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	if (has_files(options) || !process_ignores(SIGHUP))
		sigaddset(&signals, SIGHUP);
	/* The signals stay blocked: a second signal must not interrupt the orderly exit. */
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* Each connection takes a descriptor. */
	process_raise_files();
	rc = start(&owner, err);
	if (rc == 0) {
		notify_systemd("READY=1");
		wait_for_end(&owner, &signals);
		notify_systemd("STOPPING=1");
	}
	if (owner.store)
		remove_owner(options->root);
	server_stop(owner.server, options->drain_ms);
	access_log_stop(owner.access_log); /* after the last request */
	lifecycle_stop(owner.lifecycle);
	notifier_stop(owner.notify); /* after all changes, like replicator_stop() */
	replicator_stop(owner.replicator);
	store_close(owner.store);
	account_release(&owner.account);
	/* The users' lock is released last, so that a waiting user finds everything free. */
	if (owner.users_fd >= 0)
		close(owner.users_fd);
	return rc;
}
