/* A store and its server as one process: the work of `penstock serve`. */
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include <stdbool.h>
#include <stdint.h>

struct penstock_error;

struct serve_options {
	const char *root;
	const char *address; /* as in struct server_options */
	uint16_t port;
	const char *master_key; /* as in struct store_options */
	const char *accounts; /* a file with accounts to add; may be NULL */
	bool relaxed;
	/* An unfinished upload is aborted if it gets no new part for this long; 0 for never. */
	int64_t upload_age_ms;
	int64_t log_interval_ms; /* time between two deliveries of access logs */
	int64_t webhook_retry_ms; /* as in notifier_start() */
	const char *replication; /* as in replicator_start(), like the next member; may be NULL */
	int64_t replication_retry_ms;
	int drain_ms; /* time for requests in flight to end after SIGTERM */
	const char *log_file; /* as in struct server_options, like the next five members */
	const char *domain;
	const char *tls_cert, *tls_key;
	const char *metrics_address;
	uint16_t metrics_port;
	int64_t lifecycle_day_ms; /* length of a day of lifecycle rules */
	/* Started by embedded_store_acquire(): exits when it has no users, and closes stdout and
	 * stderr once it accepts requests. */
	bool embedded;
};

/*
 * Prints "listening on URL" once requests are accepted, and notifies systemd if systemd has started
 * this process; a socket from systemd replaces the address. If `log_file` or `tls_cert` is set,
 * SIGHUP reopens the access log and reads the certificate again; otherwise SIGHUP is like SIGTERM
 * unless it was ignored. Returns 0 after SIGTERM or SIGINT, or when an embedded owner has no users
 * any more, once the requests in progress have ended or `drain_ms` has passed. Must be called
 * before the process has other threads; the signals stay blocked.
 */
int serve_run(const struct serve_options *options, struct penstock_error *err);

/* Returns a negative code if a name in the comma-separated list is not a valid host name. */
int serve_check_domains(const char *domains, struct penstock_error *err);
/* Splits "127.0.0.1:9000", "[::1]:9000" or ":9000"; `address` gets a copy. */
int serve_parse_listen(
	const char *text, char **address, uint16_t *port, struct penstock_error *err);
/* Like serve_parse_listen(), for metrics: "9100" and ":9100" mean the loopback address. */
int serve_parse_metrics(
	const char *text, char **address, uint16_t *port, struct penstock_error *err);

#endif
