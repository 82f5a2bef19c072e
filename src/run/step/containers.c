#include "run/step/containers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "image/image.h"
#include "image/kept.h"
#include "run/task/cdi.h"
#include "run/attempt/attempt.h"
#include "run/config/user_limits.h"

#define ROOT "/" CONTAINER_PLACES_LAST /* $STORAGE_PATH in a container */

/* ---- images ---- */

static bool same_text(const struct workflow_text *a, const struct workflow_text *b)
{
	return a->value && b->value ? strcmp(a->value, b->value) == 0 : a->value == b->value;
}

static struct container_image *find_image(
	const struct containers *containers, const struct workflow_container *asked)
{
	for (struct container_image *i = containers->images; i; i = i->next) {
		if (same_text(&i->asked->image, &asked->image) &&
			same_text(&i->asked->registry, &asked->registry) &&
			same_text(&i->asked->username, &asked->username))
			return i;
	}
	return NULL;
}

/* Returns the path of an image file: in the run's storage if the file exists there, else on this
 * machine. */
static char *file_of(const struct containers *containers, const char *path)
{
	char *inside = path_join(containers->attempt->layout.storage, path + 1);

	if (inside && access(inside, F_OK) == 0)
		return inside;
	free(inside);
	return strdup(path);
}

/* Removes old images if the images exceed the size limit. A failure is only a warning. */
static void bound_images(const struct containers *containers)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *dir = path_join(containers->attempt->home, "images");
	uint64_t bound = UINT64_MAX, freed = 0;

	if (!dir || (user_images_bound(&bound, &err) == 0 && bound == UINT64_MAX))
		return;
	if (err.code || image_kept_bound(dir, bound, &freed, &err) < 0)
		log_warn("cannot remove old images: %s", err.message);
}

/*
 * Creates empty directories and files as mount points, for images that lack them. The directory
 * that contains them is the lowest layer of every container, below the image's layers. Without it,
 * each container would create the mount points in its own directory on disk and remove them again.
 */
static void make_places(const char *images)
{
	static const char *const dirs[] = {"etc", "proc", "dev", "sys"};
	static const char *const files[] = {"etc/hosts", "etc/resolv.conf"};
	_cleanup_free_ char *path = path_join(images, CONTAINER_PLACES);
	_cleanup_close_ int dir = -1;
	bool made = true;

	if (!path || (mkdir(path, 0755) < 0 && errno != EEXIST))
		return;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* CONTAINER_PLACES_LAST is made last: if it exists, all places exist. */
	if (dir < 0 || faccessat(dir, CONTAINER_PLACES_LAST, F_OK, 0) == 0)
		return;
	/* Set the modes regardless of the umask, except the mode of the directory itself, which
	 * containers do not see. */
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		made = made && (mkdirat(dir, dirs[i], 0755) == 0 || errno == EEXIST) &&
		       fchmodat(dir, dirs[i], 0755, 0) == 0;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_close_ int fd = openat(
			dir, files[i], O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);

		made = made && fd >= 0 && fchmod(fd, 0644) == 0;
	}
	if (made)
		(void)!mkdirat(dir, CONTAINER_PLACES_LAST, 0755);
}

static int bring(struct containers *containers, const struct workflow_container *asked,
	struct container_image **out, struct penstock_error *err)
{
	bool is_file = *asked->image.value == '/';
	_cleanup_free_ char *reference = is_file ? file_of(containers, asked->image.value)
						 : strdup(asked->image.value);
	_cleanup_free_ char *dir = path_join(containers->attempt->home, "images");
	struct container_image *entry = calloc(1, sizeof(*entry));
	int r;

	if (!reference || !dir || !entry) {
		free(entry);
		return error_memory(err);
	}
	r = image_get(&entry->image,
		&(struct image_request){
			.reference = reference,
			.registry = asked->registry.value,
			.username = asked->username.value,
			.password = asked->password.value,
			.dir = dir,
			.engine = containers->engine,
			.cancel = containers->cancel,
			.patience_ms = containers->patience_ms,
			.progress = run_voice_stage,
			.say = run_voice_warning,
			.cookie = (void *)(uintptr_t)&containers->attempt->voice,
		},
		err);
	if (r < 0) {
		free(entry);
		return r;
	}
	make_places(dir);
	entry->asked = asked;
	entry->next = containers->images;
	containers->images = entry;
	*out = entry;
	if (is_file && entry->image->pulled)
		bound_images(containers);
	return 0;
}

struct bringing {
	struct containers *containers;
	struct penstock_error *err;
};

static int bring_of_step(void *cookie, const struct workflow_step *step)
{
	const struct bringing *b = cookie;
	const struct workflow_container *asked = &step->run.container;
	struct container_image *image;

	/* Do not read image files yet: an earlier step may create them. */
	if (step->kind != WORKFLOW_STEP_RUN || !asked->given || *asked->image.value == '/' ||
		find_image(b->containers, asked))
		return 0;
	return bring(b->containers, asked, &image, b->err);
}

int containers_pull(struct containers *containers, struct penstock_error *err)
{
	struct bringing b = {containers, err};
	bool brought = false;
	int r;

	executor_container_sweep(containers->attempt->layout.tmp);
	r = workflow_walk(&containers->attempt->workflow->steps, bring_of_step, &b);
	for (const struct container_image *i = containers->images; i; i = i->next)
		brought |= i->image->pulled;
	if (brought)
		bound_images(containers);
	return r;
}

void containers_release(struct containers *containers)
{
	while (containers->images) {
		struct container_image *image = containers->images;

		containers->images = image->next;
		image_free(image->image);
		free(image);
	}
}

int containers_describe(const struct containers *containers, struct buf *out)
{
	json_auto_t *list = json_array();
	_cleanup_free_ char *text = NULL;

	for (const struct container_image *i = containers->images; i; i = i->next)
		json_array_append_new(list, json_pack("{s:s, s:s}", "name", i->image->name,
						    "digest", i->image->digest));
	text = json_dumps(list, JSON_COMPACT);
	return text ? buf_add_str(out, text) : -1;
}

/* ---- the command ---- */

static bool is_blank(const char *text)
{
	return text[strspn(text, " \t\r\n")] == '\0';
}

int container_words(const char *line, struct strlist *out, struct penstock_error *err)
{
	const char *p = line;

	for (;;) {
		_cleanup_(buf_release) struct buf word = BUF_INIT(LIMIT_STRING);
		char quote = '\0';

		p += strspn(p, " \t\r\n");
		if (!*p)
			return 0;
		for (; *p && (quote || !strchr(" \t\r\n", *p)); p++) {
			if (*p == quote)
				quote = '\0';
			else if (!quote && (*p == '\'' || *p == '"'))
				quote = *p;
			else if (*p == '\\' && quote != '\'' && p[1] &&
				 (!quote || strchr("\"\\$`", p[1])))
				buf_add_char(&word, *++p);
			else
				buf_add_char(&word, *p);
		}
		if (quote)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot parse the command: missing closing %c", quote);
		if (strlist_add(out, buf_str(&word)) < 0 || buf_failed(&word))
			return error_memory(err);
	}
}

/* A shell runs the command. If the shell is ENTRYPOINT, or if there is no command, the image's
 * entry point gets the words of the command, or of the image's own command if there is none. */
static int set_argv(struct container_setup *setup, const struct workflow_run *what,
	const struct image *image, struct penstock_error *err)
{
	const char *command = what->command.value ? what->command.value : "";
	const char *const shell[] = {what->shell.value, "-c", command, NULL};
	int r = 0;

	if (!is_blank(command) && strcmp(what->shell.value, "ENTRYPOINT") != 0)
		return strlist_add_all(&setup->argv, shell) < 0 ? error_memory(err) : 0;
	if (strlist_add_all(&setup->argv, (const char *const *)image->config.entrypoint.items) < 0)
		return error_memory(err);
	if (!is_blank(command))
		r = container_words(command, &setup->argv, err);
	else if (strlist_add_all(&setup->argv, (const char *const *)image->config.cmd.items) < 0)
		r = error_memory(err);
	if (r == 0 && !setup->argv.n)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot run image '%s': it has no command; give a `command`", image->name);
	return r;
}

/* ---- the environment ---- */

/* Returns true for variables of the caller that mean the same in a container. */
static bool is_inherited(const char *pair, bool x11)
{
	static const char *const names[] = {"TERM=", "TZ=", "http_proxy=", "https_proxy=",
		"no_proxy=", "ftp_proxy=", "all_proxy=", "HTTP_PROXY=", "HTTPS_PROXY=", "NO_PROXY=",
		"ALL_PROXY=", "CUDA_VISIBLE_DEVICES=", "NVIDIA_", "SLURM_", "PMI_", "PMI2_",
		"PMIX_", "OMPI_", "NCCL_", "UCX_", "OMP_NUM_THREADS="};

	return str_starts_any(pair, names, ARRAY_SIZE(names)) ||
	       (x11 && str_starts(pair, "DISPLAY="));
}

/* Parses "KEY=value", with quotes around the value or "export" before the key; free() the result.
 * Returns NULL if the line is invalid. */
static char *environment_pair(char *line)
{
	char *equals, *value;
	size_t len;

	line += strspn(line, " \t");
	if (str_starts(line, "export "))
		line += strlen("export ");
	equals = strchr(line, '=');
	if (*line == '#' || !equals || equals == line)
		return NULL;
	value = equals + 1;
	len = strcspn(value, "\r\n");
	while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
		len--;
	if (len >= 2 && (*value == '"' || *value == '\'') && value[len - 1] == *value) {
		value++;
		len -= 2;
	}
	*equals = '\0';
	return str_printf("%s=%.*s", line, (int)len, value);
}

/* Reads a file of the image from the topmost layer that has it; a device in its place means that
 * the file was removed. Links are resolved within that layer. */
static int read_of_image(
	const struct image *image, const char *name, struct buf *out, struct penstock_error *err)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

	for (size_t i = image->layers.n; i-- > 0;) {
		_cleanup_close_ int top = open(
			image->layers.items[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		_cleanup_close_ int fd = top < 0 ? -1 : fs_open_in_root(top, name, flags);
		struct stat st;
		ssize_t n;
		char *room;

		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !st.st_size)
			return 0;
		room = buf_reserve(out, (size_t)st.st_size);
		if (!room)
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot read /%s of image '%s': it has more than %zu bytes", name,
				image->name, out->limit);
		n = fs_pread_all(fd, room, (size_t)st.st_size, 0);
		buf_grown(out, n > 0 ? (size_t)n : 0);
		return n < 0 ? error_errno(err, errno, "cannot read the image's /%s", name) : 0;
	}
	return 0;
}

static int set_pair(struct strlist *env, char *pair)
{
	char *equals = strchr(pair, '=');

	if (!equals)
		return 0;
	*equals = '\0';
	return strlist_set(env, pair, equals + 1);
}

static int set_environment(struct container_setup *setup, const struct workflow_container *asked,
	const struct image *image, struct penstock_error *err)
{
	static const struct run_layout seen = {
		.storage = (char *)(uintptr_t)ROOT,
		.input = (char *)(uintptr_t)(ROOT "/input"),
		.output = (char *)(uintptr_t)(ROOT "/output"),
		.env_file = (char *)(uintptr_t)(ROOT "/env"),
		.user_tmp = (char *)(uintptr_t)(ROOT "/tmp"),
		.world_tmp = (char *)(uintptr_t)(ROOT "/world-tmp"),
	};
	int r;

	for (char **pair = environ; *pair; pair++) {
		if (is_inherited(*pair, asked->x11.value) &&
			strlist_add(&setup->inherited, *pair) < 0)
			return error_memory(err);
	}
	if (asked->mount_home.value && str_env("HOME") &&
		strlist_set(&setup->inherited, "HOME", str_env("HOME")) < 0)
		return error_memory(err);
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_ENV_FILE);
	char *rest, *line;

	if (strlist_set(&setup->image_env, "PATH",
		    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") < 0)
		return error_memory(err);
	for (size_t i = 0; i < image->config.env.n; i++) {
		_cleanup_free_ char *pair = strdup(image->config.env.items[i]);

		if (!pair || set_pair(&setup->image_env, pair) < 0)
			return error_memory(err);
	}
	r = read_of_image(image, "etc/environment", &text, err);
	if (r < 0)
		return r;
	rest = text.len ? text.data : NULL;
	while (rest && (line = strsep(&rest, "\n"))) {
		_cleanup_free_ char *pair = environment_pair(line);

		if (pair && set_pair(&setup->image_env, pair) < 0)
			return error_memory(err);
	}
	setup->environment = (struct environment_container){
		.seen = &seen,
		.disk_tmp = ROOT "/disk/tmp",
		.disk_world_tmp = ROOT "/disk/world-tmp",
		.image = (const char *const *)setup->image_env.items,
		.inherited = (const char *const *)setup->inherited.items,
	};
	return 0;
}

/* ---- mounts ---- */

static void add_mount(struct container_setup *setup, const char *source, const char *place, bool ro)
{
	setup->mounts[setup->container.n_mounts++] = (struct container_mount){
		.source = source, .place = place, .read_only = ro};
}

static int add_mounts(struct container_setup *setup, const struct containers *containers,
	const struct workflow_mount *mounts, size_t n, struct penstock_error *err)
{
	for (size_t i = 0; i < n; i++) {
		const char *source = mounts[i].host_dir.value;

		if (access(source, F_OK) < 0) {
			error_errno(err, errno, "cannot use the mount '%s'", source);
			return workflow_error_at(containers->attempt->workflow, &mounts[i].at, err);
		}
		add_mount(setup, source, mounts[i].container_dir.value, mounts[i].read_only);
		setup->mounts[setup->container.n_mounts - 1].slave = mounts[i].slave;
	}
	return 0;
}

static int set_mounts(struct container_setup *setup, const struct containers *containers,
	const struct workflow_container *asked, struct penstock_error *err)
{
	const struct run_layout *layout = &containers->attempt->layout;
	const char *home = str_env("HOME");
	int r;

	setup->mounts = calloc(containers->attempt->workflow->n_mounts + asked->n_mounts + 8,
		sizeof(*setup->mounts));
	if (!setup->mounts)
		return error_memory(err);
	add_mount(setup, layout->storage, ROOT, false);
	add_mount(setup, layout->user_tmp, ROOT "/tmp", false);
	add_mount(setup, layout->world_tmp, ROOT "/world-tmp", false);
	add_mount(setup, layout->user_tmp, ROOT "/disk/tmp", false);
	add_mount(setup, layout->world_tmp, ROOT "/disk/world-tmp", false);
	if (asked->x11.value && access("/tmp/.X11-unix", F_OK) == 0)
		add_mount(setup, "/tmp/.X11-unix", "/tmp/.X11-unix", true);
	if (asked->mount_home.value && home && *home == '/' && home[1])
		add_mount(setup, home, home, false);
	/* A later mount covers an earlier one. */
	r = add_mounts(setup, containers, containers->attempt->workflow->mounts,
		containers->attempt->workflow->n_mounts, err);
	return r < 0 ? r : add_mounts(setup, containers, asked->mounts, asked->n_mounts, err);
}

/* ---- the setup of a task ---- */

int containers_task(struct container_setup *setup, struct containers *containers,
	const struct workflow_run *what, const int *gpus, size_t n_gpus, struct penstock_error *err)
{
	const struct workflow_container *asked = &what->container;
	struct container_image *found = find_image(containers, asked);
	const struct image *image;
	int r = 0;

	/* Read an image file now; containers_pull() skips image files. */
	if (!found) {
		r = bring(containers, asked, &found, err);
		if (r == 0)
			r = containers->pulled ? containers->pulled(containers->cookie, err) : 0;
	}
	if (r < 0)
		return r;
	image = found->image;
	setup->container.image = image;
	setup->container.tmp = containers->attempt->layout.tmp;
	setup->container.read_only_root = asked->read_only_root.value;
	setup->container.uid = what->map_uid.value;
	setup->container.gid = what->map_gid.value;
	setup->cwd = what->work_dir.value;
	if (!setup->cwd && containers->attempt->workflow->has_work_dir)
		setup->cwd = ROOT "/work";
	r = set_argv(setup, what, image, err);
	if (r == 0)
		r = set_environment(setup, asked, image, err);
	if (r == 0)
		r = set_mounts(setup, containers, asked, err);
	if (r == 0 && n_gpus)
		r = cdi_find(&setup->cdi, NULL, gpus, n_gpus, err);
	setup->container.mounts = setup->mounts;
	setup->container.cdi = setup->cdi;
	return r;
}

void containers_fill(const struct container_setup *setup, struct task_spec *task)
{
	task->argv = (const char *const *)setup->argv.items;
	task->cwd = setup->cwd;
	task->container = &setup->container;
}

void container_setup_release(struct container_setup *setup)
{
	strlist_release(&setup->argv);
	strlist_release(&setup->inherited);
	strlist_release(&setup->image_env);
	free(setup->mounts);
	json_decref(setup->cdi);
	*setup = (struct container_setup){0};
}
