/* `penstock doctor`: reports findings, and checks containers, Slurm and GPUs. */
#include "cli/machine/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "base/str.h"

enum { TOOL_MS = 10000 };

static const char *const verdict_names[] = {"ok", "warn", "fail"};

void doctor_say(struct doctor *doctor, enum verdict verdict, const char *subject,
	const char *advice, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (verdict > doctor->worst)
		doctor->worst = verdict;
	json_array_append_new(doctor->array,
		json_pack("{s:s, s:s, s:o, s:o}", "status", verdict_names[verdict], "subject",
			subject, "detail", json_text(buf_str(&text)), "advice", json_text(advice)));
	grid_add(&doctor->grid, verdict_names[verdict]);
	grid_add(&doctor->grid, subject);
	grid_addf(
		&doctor->grid, "%s%s%s", buf_str(&text), advice ? "; " : "", advice ? advice : "");
}

/* ---- containers ---- */

/* Results of try_container(), which are exit codes of the child process. */
enum { BOX_FINE, BOX_NO_NAMESPACE, BOX_NO_OVERLAY, BOX_IN_MEMORY };

static bool write_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool mount_overlay_below(const char *dir)
{
	_cleanup_free_ char *to = path_join(dir, "merged");
	_cleanup_free_ char *options = str_printf(
		"lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", dir, dir, dir);
	static const char *const names[] = {"lower", "upper", "work", "merged"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_free_ char *path = path_join(dir, names[i]);

		if (!path || (mkdir(path, 0700) < 0 && errno != EEXIST))
			return false;
	}
	return to && options && mount("overlay", to, "overlay", 0, options) == 0;
}

/* Creates the namespaces and the overlay of a container. */
static int try_container(const char *dir)
{
	char map[32];
	unsigned uid = geteuid(), gid = getegid();

	if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) < 0)
		return BOX_NO_NAMESPACE;
	if (uid) {
		snprintf(map, sizeof(map), "0 %u 1", uid);
		if (!write_file("/proc/self/setgroups", "deny") ||
			!write_file("/proc/self/uid_map", map))
			return BOX_NO_NAMESPACE;
		snprintf(map, sizeof(map), "0 %u 1", gid);
		if (!write_file("/proc/self/gid_map", map))
			return BOX_NO_NAMESPACE;
	}
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return BOX_NO_NAMESPACE;
	if (mount_overlay_below(dir))
		return BOX_FINE;
	/* The upper directory of an overlay cannot be on a network file system or on another
	 * overlay: try a directory in memory. */
	if (mount("tmpfs", dir, "tmpfs", 0, NULL) == 0 && mount_overlay_below(dir))
		return BOX_IN_MEMORY;
	return BOX_NO_OVERLAY;
}

void doctor_containers(struct doctor *doctor, const char *home)
{
	_cleanup_free_ char *dir = path_join(home, "doctor-XXXXXX");
	int status = 0;
	pid_t child;

	if (!dir || !mkdtemp(dir))
		return; /* the check of the home has reported the error */
	child = fork();
	if (child == 0)
		_exit(try_container(dir));
	if (child < 0 || waitpid(child, &status, 0) < 0)
		status = -1;
	fs_remove_tree(dir, NULL);
	switch (status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : BOX_NO_NAMESPACE) {
	case BOX_FINE:
		doctor_say(doctor, VERDICT_OK, "containers", NULL,
			"%snamespaces and overlayfs work", geteuid() ? "user " : "");
		break;
	case BOX_IN_MEMORY:
		doctor_say(doctor, VERDICT_WARN, "containers",
			"put PENSTOCK_HOME on a local file system such as ext4 or xfs",
			"the file system of '%s' cannot hold an overlay, so files that steps write "
			"into their image are kept in memory",
			home);
		break;
	case BOX_NO_OVERLAY:
		doctor_say(doctor, VERDICT_WARN, "containers",
			"steps with `container` need Linux 5.11 or later with overlayfs",
			"overlayfs cannot be mounted");
		break;
	default:
		doctor_say(doctor, VERDICT_WARN, "containers",
			"allow user namespaces with sysctl kernel.unprivileged_userns_clone=1, "
			"user.max_user_namespaces and "
			"kernel.apparmor_restrict_unprivileged_userns=0",
			"steps with `container` need user namespaces, which this machine does "
			"not allow");
	}
}

/* ---- other programs ---- */

/* Runs a program and reads its output. Returns false and sets `err` if the program is missing or
 * fails. */
static bool ask(const char *const *given, struct buf *out, struct penstock_error *err)
{
	_cleanup_free_ char *program = fs_find_program(str_env("PATH"), given[0]);
	const char *argv[] = {program, given[1], given[2], NULL};
	int status = 0;
	int r = process_run(
		&(struct process_spec){
			.argv = argv, .stdin_fd = -1, .stderr_fd = -1, .new_session = true},
		&(struct process_run_options){
			.name = given[0], .timeout_ms = TOOL_MS, .out.text = out, .err.text = out},
		&status, err);

	if (r == 0 && status != 0)
		r = error_set(err, PENSTOCK_E_UNAVAILABLE, "%s: %.*s", given[0],
			(int)strcspn(buf_str(out), "\n"), buf_str(out));
	return r == 0;
}

static unsigned count_lines(const char *text)
{
	unsigned n = 0;

	for (; (text = strchr(text, '\n')); text++)
		n++;
	return n;
}

void doctor_slurm(struct doctor *doctor)
{
	static const char *const sinfo[] = {"sinfo", "--noheader", "--format=%R", NULL};
	static const char *const needed[] = {"sinfo", "sbatch", "squeue", "scancel", "srun"};
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_SLURM_REPLY);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *missing = NULL;
	size_t found = 0;

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		_cleanup_free_ char *program = fs_find_program(str_env("PATH"), needed[i]);

		if (program)
			found++;
		else
			missing = needed[i];
	}
	if (!found)
		doctor_say(doctor, VERDICT_OK, "Slurm", NULL, "not on this machine");
	else if (missing)
		doctor_say(doctor, VERDICT_WARN, "Slurm", "install Slurm's client commands",
			"'--on slurm' needs %s, which is missing", missing);
	else if (!ask(sinfo, &out, &err))
		doctor_say(doctor, VERDICT_WARN, "Slurm",
			"'--on slurm' needs a controller that answers", "%s", err.message);
	else
		doctor_say(doctor, VERDICT_OK, "Slurm", NULL, "%u partition%s",
			count_lines(buf_str(&out)), count_lines(buf_str(&out)) == 1 ? "" : "s");
}

void doctor_gpus(struct doctor *doctor, int gpus)
{
	static const char *const smi[] = {
		"nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", NULL};
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_SLURM_REPLY);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *program = fs_find_program(str_env("PATH"), "nvidia-smi");

	if (!program)
		doctor_say(doctor, gpus ? VERDICT_WARN : VERDICT_OK, "GPU",
			gpus ? "install the driver's tools" : NULL, "%s",
			gpus ? "nvidia-smi is missing" : "none");
	else if (!ask(smi, &out, &err))
		doctor_say(doctor, VERDICT_WARN, "GPU",
			"check the driver: its version must equal the version of the kernel module",
			"%s", err.message);
	else if ((int)count_lines(buf_str(&out)) != gpus)
		doctor_say(doctor, VERDICT_WARN, "GPU",
			"the driver's device files are missing; nvidia-modprobe makes them",
			"nvidia-smi lists %u GPUs, and /dev has %d", count_lines(buf_str(&out)),
			gpus);
	else
		doctor_say(doctor, VERDICT_OK, "GPU", NULL, "%.*s",
			(int)strcspn(buf_str(&out), "\n"), buf_str(&out));
}
