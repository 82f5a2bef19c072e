/* `penstock doctor`: each part checks one aspect of the machine and reports its findings. */
#include <archive.h>
#include <curl/curl.h>
#include <errno.h>
#include <linux/close_range.h>
#include <microhttpd.h>
#include <openssl/crypto.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <penstock/version.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/frame/interrupt.h"
#include "cli/machine/doctor.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "records/claims.h"

enum { INSTANCES_WANTED = 128, WATCHES_WANTED = 65536, FILES_WANTED = 1024 };

/* ---- the kernel ---- */

static bool has_syscall(long number, long a, long b)
{
	long fd = syscall(number, a, b, 0);

	if (fd >= 0 && number == SYS_pidfd_open)
		close((int)fd);
	return fd >= 0 || errno != ENOSYS;
}

static void check_syscalls(struct doctor *doctor)
{
	struct utsname system;

	uname(&system);
	if (!has_syscall(SYS_pidfd_open, getpid(), 0))
		doctor_say(doctor, VERDICT_FAIL, "kernel", "use Linux 5.3 or later",
			"Linux %s has no pidfd_open", system.release);
	/* an empty range fails with EINVAL if the call exists */
	else if (!has_syscall(SYS_close_range, ~0U, 0))
		doctor_say(doctor, VERDICT_WARN, "kernel",
			"Linux 5.9 or later closes inherited descriptors in one call",
			"Linux %s has no close_range", system.release);
	else
		doctor_say(doctor, VERDICT_OK, "kernel", NULL, "Linux %s on %s", system.release,
			system.machine);
}

/* Returns the number in a file of /proc or /sys; 0 if there is none. */
static uint64_t read_number(const char *path)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);

	return fs_read(path, &text, NULL) == 0 ? strtoull(buf_str(&text), NULL, 10) : 0;
}

static void check_inotify(struct doctor *doctor)
{
	uint64_t instances = read_number("/proc/sys/fs/inotify/max_user_instances");
	uint64_t watches = read_number("/proc/sys/fs/inotify/max_user_watches");
	bool few = instances < INSTANCES_WANTED || watches < WATCHES_WANTED;
	_cleanup_close_ int fd = inotify_init1(IN_CLOEXEC);

	if (fd < 0)
		doctor_say(doctor, VERDICT_WARN, "inotify",
			"raise fs.inotify.max_user_instances; without inotify, output is found "
			"by scanning, seconds later",
			"%s", strerror(errno));
	else
		doctor_say(doctor, few ? VERDICT_WARN : VERDICT_OK, "inotify",
			few ? "sysctl fs.inotify.max_user_watches=524288 "
			      "fs.inotify.max_user_instances=512 allows large outputs to be watched"
			    : NULL,
			"%llu instances, %llu watches", (unsigned long long)instances,
			(unsigned long long)watches);
}

static void check_cgroups(struct doctor *doctor)
{
	if (access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0)
		doctor_say(doctor, VERDICT_OK, "cgroups", NULL, "version 2");
	else if (access("/sys/fs/cgroup/memory", R_OK) == 0)
		doctor_say(doctor, VERDICT_WARN, "cgroups",
			"version 2 gives more detail about steps that ran out of memory",
			"version 1");
	else
		doctor_say(doctor, VERDICT_WARN, "cgroups", "limits of containers are not visible",
			"/sys/fs/cgroup is not mounted");
}

static void check_files(struct doctor *doctor)
{
	struct rlimit limit;
	bool few;

	getrlimit(RLIMIT_NOFILE, &limit);
	few = limit.rlim_max < FILES_WANTED;
	doctor_say(doctor, few ? VERDICT_WARN : VERDICT_OK, "open files",
		few ? "raise the hard limit to 4096; a lower limit allows fewer parallel iterations"
		    : NULL,
		"at most %llu", (unsigned long long)limit.rlim_max);
}

static void check_clock(struct doctor *doctor)
{
	struct timex state = {0};
	int r = adjtimex(&state);
	time_t now = time(NULL);

	if (now < 1704067200) /* 2024: before this program was written */
		doctor_say(doctor, VERDICT_FAIL, "clock",
			"set the clock; object storage refuses requests if the clock is 15 minutes "
			"off",
			"the clock shows %lld seconds since 1970", (long long)now);
	else if (r < 0 || r == TIME_ERROR || (state.status & STA_UNSYNC))
		doctor_say(doctor, VERDICT_WARN, "clock",
			"run an NTP client; object storage refuses requests if the clock is 15 "
			"minutes off",
			"not synchronized");
	else
		doctor_say(doctor, VERDICT_OK, "clock", NULL, "synchronised");
}

/* ---- resources ---- */

static int count_holder(void *cookie, const struct claim_holder *holder)
{
	int *cpus = cookie;

	*cpus += holder->waiting ? 0 : holder->cpus;
	return 0;
}

static void check_resources(struct doctor *doctor)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ struct machine_capacity *machine = malloc(sizeof(*machine));
	char memory[STR_SIZE_SIZE];
	int claimed = 0;

	if (!machine)
		abort();
	machine_capacity(machine);
	str_format_size(machine->memory, memory);
	doctor_say(doctor, VERDICT_OK, "resources", NULL, "%d CPUs, %s of memory, %d GPUs",
		machine->cpus, memory, machine->gpus);
	if (claims_list(count_holder, &claimed, &err) < 0)
		doctor_say(doctor, VERDICT_FAIL, "claims", NULL, "%s", err.message);
	else
		doctor_say(doctor, VERDICT_OK, "claims", NULL, "%d of %d CPUs are claimed by runs",
			claimed, machine->cpus);
	doctor_gpus(doctor, machine->gpus);
}

/* ---- directories ---- */

static void check_space(struct doctor *doctor, const char *subject, const char *path)
{
	char size[STR_SIZE_SIZE];
	uint64_t bytes = 0;
	struct statvfs fs;

	if (fs_free_bytes(path, &bytes, NULL) < 0 || statvfs(path, &fs) < 0)
		return;
	str_format_size(bytes, size);
	if (bytes < 1 * GIB)
		doctor_say(doctor, VERDICT_FAIL, subject, "free some space, or set PENSTOCK_HOME",
			"%s free in %s", size, path);
	else if (fs.f_files && fs.f_favail < 10000)
		doctor_say(doctor, VERDICT_WARN, subject, "remove files, or set PENSTOCK_HOME",
			"%llu more files fit in %s", (unsigned long long)fs.f_favail, path);
	else
		doctor_say(doctor, bytes < 10 * GIB ? VERDICT_WARN : VERDICT_OK, subject,
			bytes < 10 * GIB ? "large inputs may not fit" : NULL, "%s free in %s", size,
			path);
}

static void check_home(struct doctor *doctor)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_free_ char *home = NULL;

	if (show_open(&records, &home, &err) < 0) {
		doctor_say(doctor, VERDICT_FAIL, "home",
			"set PENSTOCK_HOME to a directory that you can write to", "%s",
			err.message);
		return;
	}
	if (fs_is_network(home))
		doctor_say(doctor, VERDICT_WARN, "home",
			"a local file system is faster and shows changes at once; set "
			"PENSTOCK_HOME",
			"%s is on a network file system", home);
	else
		doctor_say(doctor, VERDICT_OK, "home", NULL, "%s", home);
	check_space(doctor, "space", home);
	doctor_containers(doctor, home);
}

static void check_certificates(struct doctor *doctor)
{
	static const char *const usual[] = {"/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};
	static const char *const given[] = {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};

	for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
		const char *path = getenv(given[i]);

		if (!path || !*path)
			continue;
		if (access(path, R_OK) == 0)
			doctor_say(
				doctor, VERDICT_OK, "certificates", NULL, "%s=%s", given[i], path);
		else
			doctor_say(doctor, VERDICT_FAIL, "certificates",
				"name a readable file, or unset the variable", "%s=%s: %s",
				given[i], path, strerror(errno));
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(usual); i++) {
		if (access(usual[i], R_OK) == 0) {
			doctor_say(doctor, VERDICT_OK, "certificates", NULL, "%s", usual[i]);
			return;
		}
	}
	doctor_say(doctor, VERDICT_WARN, "certificates",
		"install ca-certificates, or set SSL_CERT_FILE; https needs certificates",
		"no certificate authorities found");
}

static void check_machine(struct doctor *doctor)
{
	check_syscalls(doctor);
	check_inotify(doctor);
	check_cgroups(doctor);
	check_files(doctor);
	check_clock(doctor);
	check_resources(doctor);
	check_home(doctor);
	check_certificates(doctor);
	doctor_slurm(doctor);
}

/* ---- libraries and object storage ---- */

static void check_libraries(struct doctor *doctor)
{
	const curl_version_info_data *curl = curl_version_info(CURLVERSION_NOW);
	bool tls = (curl->features & CURL_VERSION_SSL) != 0;

	doctor_say(doctor, tls ? VERDICT_OK : VERDICT_FAIL, "libcurl",
		tls ? NULL : "install a libcurl that is built with TLS", "%s with %s",
		curl->version, curl->ssl_version ? curl->ssl_version : "no TLS");
	doctor_say(doctor, VERDICT_OK, "libraries", NULL,
		"penstock %s, %s, SQLite %s, %s, libmicrohttpd %s", PENSTOCK_VERSION,
		OpenSSL_version(OPENSSL_VERSION), sqlite3_libversion(), archive_version_string(),
		MHD_get_version());
}

static int stop_at_once(void *cookie, const struct object_info *info)
{
	(void)cookie;
	(void)info;
	return 1;
}

static int count_bucket(void *cookie, const struct object_info *info)
{
	unsigned *n = cookie;

	(void)info;
	++*n;
	return 0;
}

/* Starts the embedded store of this home, if the home has one, and lists its buckets. */
static void check_embedded(struct doctor *doctor)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(remote_release) struct remote remote = {0};
	unsigned n = 0;

	if (!remote_has_embedded())
		doctor_say(doctor, VERDICT_OK, "embedded store", NULL,
			"none yet; --endpoint-url embedded creates the store");
	else if (remote_open_embedded(&remote, &err) < 0 ||
		 bucket_list(remote.client, count_bucket, &n, &err) < 0)
		doctor_say(doctor, VERDICT_FAIL, "embedded store", NULL, "%s", err.message);
	else
		doctor_say(doctor, VERDICT_OK, "embedded store", NULL, "%u bucket%s", n,
			n == 1 ? "" : "s");
}

static void check_bucket(struct doctor *doctor, struct remote *remote, const struct location *at)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (object_list(object_at(remote->client, at->bucket, ""), NULL, stop_at_once, NULL,
		    remote->cancel, &err) < 0)
		doctor_say(doctor, VERDICT_FAIL, "bucket",
			err.code == PENSTOCK_E_NOT_FOUND || err.code == PENSTOCK_E_PERMISSION
				? NULL /* the message has the advice */
				: "check the name, the endpoint, the keys and the clock",
			"%s", err.message);
	else
		doctor_say(doctor, VERDICT_OK, "bucket", NULL, "%s can be listed", at->bucket);
}

/* Checks libraries, the embedded store and credentials. Lists a bucket of another store only with
 * --bucket. */
static void check_store(struct doctor *doctor, const struct cli *cli, const struct location *at)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(remote_release) struct remote remote = {0};
	const struct s3_settings *s;

	check_libraries(doctor);
	check_embedded(doctor);
	if (remote_open_scheme(&remote, cli, at->text && *at->text == 'g', &err) < 0) {
		doctor_say(doctor, *at->bucket ? VERDICT_FAIL : VERDICT_WARN, "credentials",
			"set credentials, unless all workflows use the embedded store or have keys of "
			"their own",
			"%s", err.message);
		return;
	}
	s = object_client_settings(remote.client);
	if (remote.embedded)
		doctor_say(doctor, VERDICT_OK, "credentials", NULL,
			"none; the embedded store is used");
	else
		doctor_say(doctor, VERDICT_OK, "credentials", NULL, "from %s, for %s in %s",
			s->source, s->endpoint_url, s->region);
	if (*at->bucket)
		check_bucket(doctor, &remote, at);
}

/* Reads --bucket: a name, or a place in the bucket. Returns 0, or the exit code after a message. */
static int read_bucket(const struct cli *cli, struct location *at)
{
	const char *given = cli_value(cli, "bucket");
	_cleanup_free_ char *url = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (!given)
		return 0;
	url = strstr(given, "://") ? strdup(given) : str_printf("s3://%s", given);
	if (!url)
		abort();
	if (location_parse(at, url, &err) < 0)
		return cli_fail_as(cli, &err, CLI_EXIT_USAGE);
	if (at->kind != LOCATION_OBJECT)
		return cli_misuse(
			cli, "invalid --bucket '%s': it must begin with s3:// or gs://", given);
	return 0;
}

/* ---- the verb ---- */

static int run_doctor(const struct cli *cli)
{
	struct doctor doctor = {.array = NULL};
	_cleanup_(location_release) struct location at = {0};
	int r = read_bucket(cli, &at);

	if (r)
		return r;
	doctor.grid = grid_new("STATUS", "SUBJECT", "DETAIL");
	doctor.array = cli_has(cli, "json") ? json_array() : NULL;
	doctor.grid.state_column = 0;
	doctor.grid.whole = true;
	check_machine(&doctor);
	check_store(&doctor, cli, &at);
	r = show_list(&doctor.grid, doctor.array, 0);
	if (cli_interrupted())
		return 128 + cli_interrupted();
	return r == 0 && doctor.worst == VERDICT_FAIL ? CLI_EXIT_CONFIG : r;
}

const struct command command_doctor = {
	.name = "doctor",
	.summary = "check this machine and recommend changes",
	.description =
		"Checks what penstock needs from this machine: features of the kernel, limits, "
		"resources, directories and their space, the clock, containers, Slurm, GPUs, "
		"libraries, the embedded store, and credentials for object storage. Each line is ok, warn (works with limitations) or fail, "
		"with advice.",
	.options = OPTIONS({0, "bucket", "URL",
				   "Also check access to this bucket, s3://BUCKET or gs://BUCKET"},
		{0, "json", NULL, "Print a list of JSON objects"}, REMOTE_OPTIONS),
	.examples = EXAMPLES(
		{"penstock doctor", "Check this machine, and list what should be changed"},
		{"penstock doctor --bucket s3://cifar10",
			"Also check that the bucket is readable with the credentials of the environment"}),
	.exits = EXITS({"78",
		"A check failed that would make runs fail; the line of the check has the remedy"}),
	.run = run_doctor,
};
