#include "server/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/near_socket.h"
#include "base/str.h"
#include "server/directory/accounts.h"
#include "server/directory/directory.h"
#include "server/access/settings.h"
#include "server/bucket/configs.h"
#include "server/bucket/expiry.h"
#include "server/bucket/notifier.h"
#include "server/bucket/replicator.h"
#include "server/handle.h"
#include "server/monitor/listen.h"
#include "server/monitor/log_file.h"
#include "server/monitor/metrics.h"
#include "server/monitor/monitor.h"
#include "server/request/connections.h"
#include "server/request/hash.h"
#include "server/request/request.h"
#include "server/request/workers.h"
#include "server/tls.h"

/* Minimum time between MHD_quiesce_daemon() and MHD_stop_daemon(): within this time the connection
 * that the daemon accepted last is counted in `open`. */
#define QUIET_MS 1000

/* A priority string of GnuTLS. Finite-field groups are excluded: a client without keys could ask
 * for the largest group, whose handshake takes 0.4 s of CPU time. */
static char tls_priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-DHE-RSA:-GROUP-DH-ALL";

static void signer_free(void *arg)
{
	sigv4_release(arg);
	free(arg);
}

/* Signatures cover the bytes as received, so nothing is decoded here. */
static size_t keep_escapes(void *cls, struct MHD_Connection *connection, char *text)
{
	(void)cls;
	(void)connection;
	return strlen(text);
}

/* The last log line of libmicrohttpd in this thread, which has the reason of a failed start. */
static _Thread_local char last_log[512];

static void mhd_log(void *cls, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
static void mhd_log(void *cls, const char *fmt, va_list ap)
{
	char line[sizeof(last_log)];
	size_t len;

	(void)cls;
	vsnprintf(line, sizeof(line), fmt, ap);
	len = strcspn(line, "\n");
	line[len] = '\0';
	log_debug("store server: %s", line);
	memcpy(last_log, line, sizeof(last_log));
}

/* A daemon at the TCP port. After a change of the certificate a new daemon replaces this daemon,
 * whose connections end with their next reply. */
struct port {
	struct server *server;
	struct MHD_Daemon *daemon;
	int fd; /* the daemon's socket; a thread may use it until the daemon has stopped */
	int64_t quiet_ms; /* time at which the daemon stopped accepting */
	atomic_bool replaced;
	atomic_uint open; /* connections */
	struct port *next; /* the next older daemon */
};

static void count_connection(struct server *server, enum MHD_ConnectionNotificationCode what)
{
	if (what == MHD_CONNECTION_NOTIFY_CLOSED)
		atomic_fetch_sub(&server->open, 1);
	else
		atomic_fetch_add(&server->open, 1);
}

/* Counts the connection. Enlarges the send buffer of a new connection, so that a reply of 256 KiB
 * is written at once if possible. */
static void on_near_connection(void *cls, struct MHD_Connection *connection, void **mine,
	enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	struct server *server = cls;

	(void)mine;
	count_connection(server, what);
	if (what == MHD_CONNECTION_NOTIFY_STARTED && info)
		near_tune(info->connect_fd);
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **mine,
	enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct port *port = cls;

	count_connection(port->server, what);
	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		connections_closed(port->server->connections, *mine);
		atomic_fetch_sub(&port->open, 1);
		return;
	}
	atomic_fetch_add(&port->open, 1);
	if (info)
		*mine = connections_opened(
			port->server->connections, info->connect_fd, &port->replaced);
}

/* A request in flight takes a descriptor in addition to the descriptor of its connection: a quarter
 * of the descriptors is left for requests. */
static unsigned connection_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 ||
		files.rlim_cur - files.rlim_cur / 4 > LIMIT_SERVER_CONNECTIONS)
		return LIMIT_SERVER_CONNECTIONS;
	return (unsigned)(files.rlim_cur - files.rlim_cur / 4);
}

/* Takes over `fd`. On failure libmicrohttpd does not report if it has closed `fd`, so the caller
 * must not close `fd`. `notify` gets `cookie`; `tls` may be NULL. */
static struct MHD_Daemon *start_daemon(struct server *server, int fd,
	MHD_NotifyConnectionCallback notify, void *cookie, unsigned limit, const struct tls *tls)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned loops = cpus < 2		     ? 2
			 : cpus > LIMIT_SERVER_LOOPS ? LIMIT_SERVER_LOOPS
						     : (unsigned)cpus;
	struct MHD_OptionItem secure[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, tls ? tls->cert : NULL},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, tls ? tls->key : NULL},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, tls_priorities}, {MHD_OPTION_END, 0, NULL}};

	last_log[0] = '\0';
	return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TURBO |
					MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
					(tls ? MHD_USE_TLS : 0),
		0, NULL, NULL, request_handle, server, MHD_OPTION_EXTERNAL_LOGGER, mhd_log, NULL,
		MHD_OPTION_ARRAY, tls ? secure : &secure[3], MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_THREAD_POOL_SIZE, loops, MHD_OPTION_CONNECTION_LIMIT, limit,
		/* Half of the limit, so that one address leaves room for others; does not apply to
		 * Unix sockets. */
		MHD_OPTION_PER_IP_CONNECTION_LIMIT, limit / 2, MHD_OPTION_NOTIFY_CONNECTION, notify,
		cookie, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)LIMIT_SERVER_CONNECTION,
		MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)(16 * KIB),
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)LIMIT_SERVER_IDLE_SECONDS,
		MHD_OPTION_URI_LOG_CALLBACK, request_new, server, MHD_OPTION_STRICT_FOR_CLIENT,
		/* Strict only in versions since 1.0: earlier versions check less, and reply to
		 * fewer errors, so framing.c checks instead. */
		MHD_get_version()[0] == '0' ? 0 : 1, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes,
		NULL, MHD_OPTION_NOTIFY_COMPLETED, request_completed, server, MHD_OPTION_END);
}

/* Starts a daemon at a listening socket, which is taken over, and makes it the current daemon. */
static int open_port(
	struct server *server, int fd, const struct tls *tls, struct penstock_error *err)
{
	struct port *port = calloc(1, sizeof(*port));

	if (!port) {
		close(fd);
		return error_memory(err);
	}
	port->server = server;
	port->fd = fd;
	port->daemon = start_daemon(server, fd, on_connection, port, connection_limit(), tls);
	if (!port->daemon) {
		free(port);
		if (tls)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot serve TLS with '%s' and '%s': %s", server->tls_cert,
				server->tls_key,
				*last_log ? last_log : "libmicrohttpd has no TLS; use a proxy");
		return error_set(err, PENSTOCK_E_IO, "cannot start the HTTP server");
	}
	port->next = server->port;
	server->port = port;
	return 0;
}

static int start_port(struct server *server, int fd, struct penstock_error *err)
{
	int rc = connections_start(&server->connections, connection_limit(),
		(int64_t)LIMIT_SERVER_STRANGER_SECONDS * 1000, err);

	if (rc == 0 && server->tls_cert)
		rc = tls_load(&server->tls, server->tls_cert, server->tls_key, err);
	if (rc == 0)
		return open_port(server, fd, server->tls, err);
	close(fd);
	return rc;
}

/* --- new certificates ------------------------------------------------------------------------ */

/* Stops accepting connections. */
static int quiesce(struct MHD_Daemon *daemon)
{
	return daemon ? MHD_quiesce_daemon(daemon) : MHD_INVALID_SOCKET;
}

static void stop_daemon(struct MHD_Daemon *daemon, int fd)
{
	if (daemon)
		MHD_stop_daemon(daemon);
	if (fd != MHD_INVALID_SOCKET)
		close(fd);
}

/* Stops the daemons of older certificates that have no connections any more. */
static void close_old_ports(struct server *server)
{
	struct port **at = &server->port->next;

	while (*at) {
		struct port *port = *at;

		if (atomic_load(&port->open) || clock_monotonic_ms() - port->quiet_ms < QUIET_MS) {
			at = &port->next;
			continue;
		}
		*at = port->next;
		stop_daemon(port->daemon, port->fd);
		free(port);
	}
}

/* The new daemon starts first, at the same socket: if it cannot start, the old daemon continues. */
static int renew(struct server *server, struct tls *tls, struct penstock_error *err)
{
	struct port *old = server->port;
	int fd = fcntl(old->fd, F_DUPFD_CLOEXEC, 0), rc;

	if (fd < 0)
		return error_errno(err, errno, "cannot use the new certificate");
	rc = open_port(server, fd, tls, err);
	if (rc < 0)
		return rc;
	atomic_store(&old->replaced, true);
	old->fd = quiesce(old->daemon);
	old->quiet_ms = clock_monotonic_ms();
	return 0;
}

int server_renew_tls(struct server *server, bool forced, struct penstock_error *err)
{
	struct tls_files now = tls_look(server->tls_cert, server->tls_key);
	struct tls *tls = NULL;
	int rc;

	close_old_ports(server);
	if (!forced && tls_files_equal(&now, &server->tls->files))
		return 0;
	server->tls->files = now;
	rc = tls_load(&tls, server->tls_cert, server->tls_key, err);
	if (rc == 0 && tls_equal(tls, server->tls)) {
		tls_free(tls);
		return 0;
	}
	if (rc == 0)
		rc = renew(server, tls, err);
	if (rc < 0) { /* invalid files are not tried again until they change */
		tls_free(tls);
		if (rc == -PENSTOCK_E_MEMORY)
			server->tls->files = (struct tls_files){0};
		return rc;
	}
	tls_free(server->tls);
	server->tls = tls;
	log_info("the certificate in '%s' is used from now on", server->tls_cert);
	return 0;
}

/* Opens the near socket in addition to the TCP socket. Without a near socket clients use TCP. */
static void start_near(struct server *server, int tcp)
{
	struct sockaddr_in6 bound = {0};
	socklen_t len = sizeof(bound);
	int fd;

	if (getsockname(tcp, (struct sockaddr *)&bound, &len) < 0)
		return;
	fd = near_listen((struct sockaddr *)&bound, &server->near_name);
	if (fd < 0)
		return;
	server->near = start_daemon(
		server, fd, on_near_connection, server, connection_limit() / 4, NULL);
	if (!server->near)
		near_unlink(&server->near_name);
}

/* --- metrics --------------------------------------------------------------------------------- */

static double webhook_waiting(const struct notifier_stat *stat)
{
	return (double)stat->waiting;
}

static double webhook_lag(const struct notifier_stat *stat)
{
	return (double)stat->lag_ns / NS_PER_S;
}

static double webhook_dropped(const struct notifier_stat *stat)
{
	return (double)stat->dropped;
}

static double webhook_refused(const struct notifier_stat *stat)
{
	return (double)stat->refused;
}

static const struct webhook_metric {
	const char *name, *kind, *help;
	const char *labels; /* labels that follow the label of the webhook */
	double (*value)(const struct notifier_stat *stat);
} webhook_metrics[] = {
	{"penstock_webhook_events", "gauge", "Events that wait for delivery.", "", webhook_waiting},
	{"penstock_webhook_lag_seconds", "gauge", "Age of the oldest event that waits.", "",
		webhook_lag},
	{"penstock_webhook_dropped_total", "counter",
		"Events that were dropped: too many waited, or the webhook refused them.",
		",reason=\"full\"", webhook_dropped},
	{"penstock_webhook_dropped_total", NULL, NULL, ",reason=\"refused\"", webhook_refused},
};

/* Writes the metrics of all webhooks, with their names, which the operator has chosen, as
 * labels. */
static void write_webhooks(struct notifier *notify, struct buf *out)
{
	struct notifier_stat stat;

	for (size_t m = 0; m < ARRAY_SIZE(webhook_metrics); m++) {
		const struct webhook_metric *metric = &webhook_metrics[m];

		for (size_t i = 0; notifier_stat(notify, i, &stat); i++) {
			if (i == 0 && metric->kind)
				metrics_write_heading(
					out, metric->name, metric->kind, metric->help);
			buf_printf(out, "%s{webhook=\"%s\"%s} %.9g\n", metric->name, stat.name,
				metric->labels, metric->value(&stat));
		}
	}
}

static double replication_waiting(const struct replicator_stat *stat)
{
	return (double)stat->waiting;
}

static double replication_bytes(const struct replicator_stat *stat)
{
	return (double)stat->bytes;
}

static double replication_lag(const struct replicator_stat *stat)
{
	return (double)stat->lag_ns / NS_PER_S;
}

static double replication_sent(const struct replicator_stat *stat)
{
	return (double)stat->sent;
}

static double replication_failed(const struct replicator_stat *stat)
{
	return (double)stat->failed;
}

static const struct {
	const char *name, *kind, *help;
	double (*value)(const struct replicator_stat *stat);
} replication_metrics[] = {
	{"penstock_replication_pending_objects", "gauge",
		"Versions and delete markers that wait to be sent.", replication_waiting},
	{"penstock_replication_pending_bytes", "gauge", "Bytes of the versions that wait.",
		replication_bytes},
	{"penstock_replication_lag_seconds", "gauge", "Age of the oldest version that waits.",
		replication_lag},
	{"penstock_replication_sent_total", "counter",
		"Versions and delete markers that were sent.", replication_sent},
	{"penstock_replication_failed_total", "counter",
		"Versions that were given up, because the destination refused them.",
		replication_failed},
};

static void write_replication(struct replicator *replicator, struct buf *out)
{
	struct replicator_stat stat;

	for (size_t m = 0; m < ARRAY_SIZE(replication_metrics); m++)
		for (size_t i = 0; replicator_stat(replicator, i, &stat); i++) {
			if (i == 0)
				metrics_write_heading(out, replication_metrics[m].name,
					replication_metrics[m].kind, replication_metrics[m].help);
			buf_printf(out, "%s{target=\"%s\"} %.9g\n", replication_metrics[m].name,
				stat.name, replication_metrics[m].value(&stat));
		}
}

static void write_metrics(void *cookie, struct buf *out)
{
	struct server *server = cookie;
	struct store_commits commits;
	uint64_t free_bytes = 0;

	store_commits(server->store, &commits);
	metrics_write_value(out, "penstock_start_time_seconds", "gauge",
		"Time at which the server started.", (double)server->started_ns / 1e9);
	metrics_write_value(out, "penstock_connections", "gauge", "Open connections.",
		atomic_load(&server->open));
	metrics_write_value(out, "penstock_requests_in_flight", "gauge",
		"Requests that have begun but not ended.", atomic_load(&server->active));
	metrics_write_value(out, "penstock_commit_queue", "gauge",
		"Changes that wait to be committed.", (double)commits.waiting);
	metrics_write_value(out, "penstock_commits_total", "counter",
		"Transactions that were committed or have failed.", (double)commits.transactions);
	metrics_write_value(out, "penstock_changes_total", "counter",
		"Changes that were committed or have failed.", (double)commits.changes);
	metrics_write_value(out, "penstock_relaxed_durability", "gauge",
		"1 if changes are acknowledged before they are durable, else 0.",
		store_is_relaxed(server->store));
	metrics_write_value(out, "penstock_damaged_reads_total", "counter",
		"Reads of objects whose bytes do not match their checksum.",
		(double)atomic_load(&server->damaged));
	if (store_free_bytes(server->store, &free_bytes, NULL) == 0)
		metrics_write_value(out, "penstock_disk_free_bytes", "gauge",
			"Free bytes on the disk of the store.", (double)free_bytes);
	write_webhooks(server->notify, out);
	write_replication(server->replicator, out);
	metrics_write(server->metrics, route_name, out);
}

static bool is_ready(void *cookie)
{
	struct server *server = cookie;

	return !atomic_load(&server->draining);
}

static int start_metrics(
	struct server *server, const struct server_options *o, struct penstock_error *err)
{
	const struct monitor_source source = {
		.write = write_metrics, .ready = is_ready, .cookie = server};
	int rc = metrics_new(&server->metrics, route_count(), err);

	return rc < 0 ? rc
		      : monitor_start(&server->monitor, o->metrics_address, o->metrics_port,
				&source, err);
}

const char *server_metrics_url(const struct server *server)
{
	return monitor_url(server->monitor);
}

int server_reopen_log(struct server *server, struct penstock_error *err)
{
	return server->log_file ? log_file_reopen(server->log_file, err) : 0;
}

/* --- start and end --------------------------------------------------------------------------- */

static void server_free(struct server *server)
{
	monitor_stop(server->monitor); /* first: the monitor reads the other members */
	hasher_stop(server->hasher); /* the hasher passes work to the workers */
	workers_stop(server->workers);
	connections_stop(server->connections);
	tls_free(server->tls);
	settings_stop(server->settings);
	configs_free(server->expiry);
	directory_close(server->directory);
	pthread_key_delete(server->signer);
	log_file_close(server->log_file);
	metrics_free(server->metrics);
	quota_release(&server->held);
	free(server->url);
	free(server);
}

int server_start(
	struct server **out, const struct server_options *options, struct penstock_error *err)
{
	struct server *server = calloc(1, sizeof(*server));
	uint64_t seed = 0;
	int fd = -1, rc;

	if (!server)
		return error_memory(err);
	if (pthread_key_create(&server->signer, signer_free) != 0) {
		free(server);
		return error_memory(err);
	}
	/* Request ids should differ between starts, but nothing depends on that. */
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0)
		seed = (uint64_t)clock_wall_ns();
	quota_init(&server->held, LIMIT_SERVER_HELD);
	atomic_init(&server->next_id, seed);
	atomic_init(&server->last_activity, clock_monotonic_ns());
	server->store = options->store;
	server->lifecycle = options->lifecycle;
	server->access_log = options->access_log;
	server->notify = options->notify;
	server->replicator = options->replicator;
	server->domain = options->domain;
	server->tls_cert = options->tls_cert;
	server->tls_key = options->tls_key;
	server->started_ns = clock_wall_ns();
	rc = directory_open(&server->directory,
		&(struct directory_options){.store = options->store,
			.access_key_id = options->access_key_id,
			.secret_access_key = options->secret_access_key},
		err);
	if (rc >= 0 && options->accounts)
		rc = accounts_read(server->directory, options->accounts, err);
	if (rc >= 0 && settings_start(&server->settings) < 0)
		rc = error_memory(err);
	if (rc >= 0)
		rc = fd = options->listen_fd ? options->listen_fd
					     : listen_on(options->address, options->port, err);
	if (rc >= 0)
		rc = listen_url(fd, server->tls_cert ? "https" : "http", &server->url, err);
	if (rc >= 0 && options->log_file)
		rc = log_file_open(&server->log_file, options->log_file, err);
	if (rc >= 0 && options->metrics_address)
		rc = start_metrics(server, options, err);
	if (rc >= 0)
		rc = workers_start(&server->workers, err);
	if (rc >= 0)
		rc = expiry_new(&server->expiry, server->store, err);
	if (rc >= 0)
		rc = hasher_start(&server->hasher, err);
	if (rc >= 0) {
		rc = start_port(server, fd, err);
		if (rc == 0 && !server->tls_cert)
			start_near(server, fd);
		fd = -1;
	}
	if (rc < 0) {
		if (fd >= 0)
			close(fd);
		server_free(server);
		return rc;
	}
	*out = server;
	return 0;
}

const char *server_url(const struct server *server)
{
	return server->url;
}

unsigned server_active(const struct server *server)
{
	return atomic_load(&server->active);
}

int64_t server_last_activity(const struct server *server)
{
	return atomic_load(&server->last_activity);
}

void server_stop(struct server *server, int drain_ms)
{
	int64_t deadline = clock_monotonic_ms() + drain_ms;
	MHD_socket near;

	if (!server)
		return;
	atomic_store(&server->draining, true);
	server->port->fd = quiesce(server->port->daemon);
	near = quiesce(server->near);
	if (server->near)
		near_unlink(&server->near_name);
	while (server_active(server) && clock_monotonic_ms() < deadline)
		clock_sleep_ms(5);
	/* The daemon must not be stopped while connections are suspended. */
	atomic_store(&server->stopping, true);
	while (atomic_load(&server->waiting))
		clock_sleep_ms(1);
	while (server->port) {
		struct port *port = server->port;

		server->port = port->next;
		stop_daemon(port->daemon, port->fd);
		free(port);
	}
	stop_daemon(server->near, near);
	server_free(server);
}
