#include "run/task/bundle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "image/image.h"
#include "run/task/executor.h"
#include "run/task/cdi.h"

/* Docker's default capabilities, without those for making devices, raw sockets and the audit
 * log. */
static const char *const capabilities[] = {"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID",
	"CAP_FOWNER", "CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP",
	"CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL"};

static const char *const masked[] = {"/proc/acpi", "/proc/kcore", "/proc/keys",
	"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
	"/proc/scsi", "/sys/firmware", "/sys/dev/block"};

static const char *const read_only[] = {
	"/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"};

/* jansson's *_new() functions take ownership of the last argument, even if they fail. */
static json_t *strings(const char *const *items, size_t n)
{
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(array, json_string(items[i]));
	return array;
}

static json_t *list(const char *const *items)
{
	size_t n = 0;

	while (items && items[n])
		n++;
	return strings(items, n);
}

static json_t *process_of(const struct task_spec *spec)
{
	const struct image_config *image = &spec->container->image->config;
	const char *cwd = spec->cwd ? spec->cwd : image->working_dir ? image->working_dir : "/";
	json_t *sets = json_object();

	static const char *const names[] = {"bounding", "effective", "permitted"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		json_object_set_new(
			sets, names[i], strings(capabilities, ARRAY_SIZE(capabilities)));
	return json_pack("{s:b, s:{s:I, s:I}, s:o, s:o, s:s, s:o, s:b}", "terminal", 0, "user",
		"uid", (json_int_t)spec->container->uid, "gid", (json_int_t)spec->container->gid,
		"args", list(spec->argv), "env", list(spec->envp), "cwd", cwd, "capabilities", sets,
		"noNewPrivileges", 1);
}

/* ---- mounts ---- */

static void add_mount(json_t *mounts, const char *place, const char *type, const char *source,
	const char *options)
{
	json_t *words = json_array();

	while (*options) {
		size_t n = strcspn(options, ",");

		json_array_append_new(words, json_stringn(options, n));
		options += n + (options[n] == ',');
	}
	json_array_append_new(mounts, json_pack("{s:s, s:s, s:s, s:o}", "destination", place,
					      "type", type, "source", source, "options", words));
}

/* Returns the option that makes mounts below a directory read-only, too, which Linux supports since
 * 5.12. crun accepts the option only for directories; there are no mounts below a file. */
static const char *sealed(const char *source)
{
	struct stat st;

	if (stat(source, &st) < 0 || !S_ISDIR(st.st_mode))
		return "";
	return syscall(SYS_mount_setattr, -1, "", 0, NULL, 0) == 0 || errno != ENOSYS ? ",rro" : "";
}

/* Adds a bind mount with `options` and the options that make it read-only. */
static void add_read_only(
	json_t *mounts, const char *source, const char *place, const char *options)
{
	char all[128];

	snprintf(all, sizeof(all), "%s,ro%s", options, sealed(source));
	add_mount(mounts, place, "bind", source, all);
}

static void add_bind(json_t *mounts, const char *source, const char *place, bool read_only_mount)
{
	if (read_only_mount)
		add_read_only(mounts, source, place, "rbind,rprivate,nosuid,nodev");
	else
		add_mount(mounts, place, "bind", source, "rbind,rprivate,nosuid,nodev,rw");
}

/* Returns true if the container's user is not root: without a mapping, the caller is root in the
 * container. */
static bool is_mapped(const struct task_container *container)
{
	return container->uid || container->gid;
}

static json_t *mounts_of(const char *dir, const struct task_spec *spec, bool rootless)
{
	const struct task_container *container = spec->container;
	bool own_network = spec->network.kind != TASK_NETWORK_HOST;
	json_t *mounts = json_array();

	/* Use the /proc of the init if the process that mounts does not own the pid namespace. */
	if (is_mapped(container))
		add_mount(mounts, "/proc", "bind", "/proc", "rbind,rprivate,nosuid,noexec,nodev");
	else
		add_mount(mounts, "/proc", "proc", "proc", "nosuid,noexec,nodev");
	add_mount(mounts, "/dev", "tmpfs", "tmpfs", "nosuid,strictatime,mode=755,size=65536k");
	add_mount(mounts, "/dev/pts", "devpts", "devpts",
		rootless || is_mapped(container)
			? "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620"
			: "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5");
	/* Without `size`, /dev/shm may use half of the memory, like /dev/shm of the machine: data
	 * loaders share batches in it. */
	add_mount(mounts, "/dev/shm", "tmpfs", "shm", "nosuid,noexec,nodev,mode=1777");
	add_mount(mounts, "/dev/mqueue", "mqueue", "mqueue", "nosuid,noexec,nodev");
	/* sysfs can be mounted only by the owner of the network namespace. */
	if ((rootless && !own_network) || is_mapped(container))
		add_read_only(mounts, "/sys", "/sys", "rbind,rprivate,nosuid,noexec,nodev");
	else
		add_mount(mounts, "/sys", "sysfs", "sysfs", "nosuid,noexec,nodev,ro");
	/* Mount the files of /etc that describe this machine. */
	_cleanup_free_ char *resolv = path_join(dir, "resolv.conf");

	if (own_network && resolv)
		add_bind(mounts, resolv, "/etc/resolv.conf", true);
	else if (access("/etc/resolv.conf", R_OK) == 0)
		add_bind(mounts, "/etc/resolv.conf", "/etc/resolv.conf", true);
	if (access("/etc/hosts", R_OK) == 0)
		add_bind(mounts, "/etc/hosts", "/etc/hosts", true);
	for (size_t i = 0; i < container->n_mounts; i++) {
		const struct container_mount *m = &container->mounts[i];

		if (!m->slave)
			add_bind(mounts, m->source, m->place, m->read_only);
		else if (m->read_only)
			add_read_only(mounts, m->source, m->place, "rbind,rslave,nosuid,nodev");
		else
			add_mount(mounts, m->place, "bind", m->source,
				"rbind,rslave,nosuid,nodev,rw");
	}
	return mounts;
}

bool bundle_has_slave(const struct task_container *container)
{
	bool found = false;

	for (size_t i = 0; i < container->n_mounts; i++)
		found = found || container->mounts[i].slave;
	return found;
}

/* ---- the document ---- */

static json_t *mapping(int64_t id)
{
	return json_pack(
		"[{s:I, s:i, s:i}]", "containerID", (json_int_t)id, "hostID", 0, "size", 1);
}

static json_t *linux_of(const struct task_container *container)
{
	json_t *root = json_pack("{s:[{s:s}, {s:s}], s:o, s:o}", "namespaces", "type", "mount",
		"type", "ipc", "maskedPaths", strings(masked, ARRAY_SIZE(masked)), "readonlyPaths",
		strings(read_only, ARRAY_SIZE(read_only)));

	/* A container whose user is not root needs another user namespace: if penstock is not root,
	 * the namespace of the init has only one id, and maps it to root. */
	if (root && is_mapped(container)) {
		json_array_append_new(
			json_object_get(root, "namespaces"), json_pack("{s:s}", "type", "user"));
		json_object_set_new(root, "uidMappings", mapping(container->uid));
		json_object_set_new(root, "gidMappings", mapping(container->gid));
	}
	if (root && bundle_has_slave(container))
		json_object_set_new(root, "rootfsPropagation", json_string("rslave"));
	return root;
}

static bool is_text(const char *s)
{
	return str_is_utf8(s, strlen(s));
}

int bundle_check(const struct task_spec *spec, struct penstock_error *err)
{
	const struct task_container *container = spec->container;

	for (size_t i = 0; spec->argv[i]; i++) {
		if (!is_text(spec->argv[i]))
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot start the container: argument %zu of its command is not UTF-8",
				i);
	}
	/* Print only the name: the value may be a secret. */
	for (size_t i = 0; spec->envp && spec->envp[i]; i++) {
		if (!is_text(spec->envp[i]))
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot start the container: the variable '%.*s' is not UTF-8",
				(int)strcspn(spec->envp[i], "="), spec->envp[i]);
	}
	for (size_t i = 0; i < container->n_mounts; i++) {
		const struct container_mount *m = &container->mounts[i];

		if (!is_text(m->source) || !is_text(m->place))
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot mount '%s' at '%s' in the container: a path is not UTF-8",
				m->source, m->place);
	}
	return 0;
}

char *bundle_text(const char *dir, const struct task_spec *spec, bool rootless)
{
	json_auto_t *root = json_pack("{s:s, s:o, s:{s:s, s:b}, s:o, s:o}", "ociVersion", "1.0.2",
		"process", process_of(spec), "root", "path", "rootfs", "readonly",
		(int)spec->container->read_only_root, "mounts", mounts_of(dir, spec, rootless),
		"linux", linux_of(spec->container));

	if (!root || (spec->container->cdi && cdi_apply(root, spec->container->cdi) < 0))
		return NULL;
	return json_dumps(root, JSON_COMPACT);
}
