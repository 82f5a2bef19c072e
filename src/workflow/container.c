/* The native dialect's `container`: what a step runs in instead of the machine itself. */
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/reader.h"
#include "base/banned.h"

/* ---- the image ---- */

/* Whether `s` is "sha256:" and 64 lower-case digits. */
static bool is_digest(const char *s)
{
	if (!str_starts(s, "sha256:"))
		return false;
	s += strlen("sha256:");
	return strspn(s, "0123456789abcdef") == 64 && s[64] == '\0';
}

/* What is wrong with the name of an image of a registry; NULL: nothing. */
static const char *name_mistake(const char *name)
{
	const char *at = strchr(name, '@');
	size_t len = at ? (size_t)(at - name) : strlen(name);
	const char *slash = memrchr(name, '/', len);
	const char *colon = memchr(
		slash ? slash : name, ':', len - (size_t)((slash ? slash : name) - name));
	const char *host_end = memchr(name, '/', len);

	if (at && !is_digest(at + 1))
		return "has no digest behind `@`: sha256: and 64 hexadecimal digits";
	if (colon) {
		size_t tag = len - (size_t)(colon + 1 - name);

		if (tag == 0 || tag > 128)
			return "has no tag of 1 to 128 characters behind `:`";
		for (size_t i = 0; i < tag; i++) {
			if (!isalnum((unsigned char)colon[1 + i]) && !strchr("._-", colon[1 + i]))
				return "has a tag with other characters than letters, digits, `.`, "
				       "`_` and `-`";
		}
		len = (size_t)(colon - name);
	}
	if (len == 0)
		return "names no image";
	for (size_t i = 0; i < len; i++) {
		bool in_host = host_end && name + i < host_end;

		if (isupper((unsigned char)name[i]) && !in_host)
			return "has capital letters, which no image's name has";
		if (!isalnum((unsigned char)name[i]) && !strchr("/._-", name[i]) &&
			!(name[i] == ':' && in_host))
			return "has other characters than lower-case letters, digits, `/`, `.`, "
			       "`_` and `-`";
	}
	if (name[0] == '/' || name[len - 1] == '/' || memmem(name, len, "//", 2))
		return "has an empty part between two `/`";
	return NULL;
}

static void read_image(struct reader *rd, const struct node *map, struct workflow_text *image)
{
	char quoted[QUOTE_SIZE];
	const char *mistake = NULL;

	image->at = map->at;
	if (!node_get(map, "image")) {
		reader_missing(rd, map, &schema_container, "image", "it is what the step runs in");
		return;
	}
	if (!reader_text(rd, map, "image", image) || reader_is_open(rd, image))
		return;
	if (str_starts(image->value, "docker://"))
		image->value += strlen("docker://");
	if (*image->value == '/') {
		if (str_ends(image->value, ".sif") || str_ends(image->value, ".sqsh") ||
			str_ends(image->value, ".squashfs"))
			mistake = "is a SIF or squashfs file, which nothing here unpacks; give the "
				  "image of a registry, or "
				  "a file of 'skopeo copy … oci-archive:FILE' or 'docker save'";
		else if (strstr(image->value, "/../") || str_ends(image->value, "/.."))
			mistake = "must not hold `..`";
	} else {
		mistake = name_mistake(image->value);
	}
	if (mistake)
		reader_error(rd, &image->at, "`%s` %s: %s", reader_field(rd, "image"), mistake,
			quote(workflow_shown(image), quoted));
}

static void read_registry(
	struct reader *rd, const struct node *map, struct workflow_container *container)
{
	struct workflow_text *registry = &container->registry;
	char quoted[QUOTE_SIZE];
	const char *host;
	size_t len;

	if (!reader_text(rd, map, "registry", registry) || reader_is_open(rd, registry))
		return;
	host = registry->value;
	if (str_starts(host, "https://"))
		host += strlen("https://");
	else if (str_starts(host, "http://"))
		host += strlen("http://");
	len = strlen(host);
	while (len > 0 && host[len - 1] == '/')
		len--;
	for (size_t i = 0; i < len; i++) {
		if (isalnum((unsigned char)host[i]) || strchr(".-:[]", host[i]))
			continue;
		len = 0;
	}
	if (!len)
		reader_error(rd, &registry->at,
			"`%s` is a host such as ghcr.io, with http:// before it where it has no "
			"TLS, not %s; "
			"what follows the host belongs into `image`",
			reader_field(rd, "registry"), quote(workflow_shown(registry), quoted));
	else if (container->image.value && *container->image.value == '/')
		reader_note(rd, &registry->at, "`%s` has no meaning for an image that is a file",
			reader_field(rd, "registry"));
}

static void read_login(
	struct reader *rd, const struct node *map, struct workflow_container *container)
{
	bool username = reader_text(rd, map, "username", &container->username);
	bool password = reader_credential(rd, map, "password", &container->password);

	if (username == password || (node_get(map, "username") && node_get(map, "password")))
		return;
	reader_missing(rd, map, &schema_container, username ? "password" : "username",
		"both are needed to log in; without both, the login of 'podman login' or 'docker "
		"login' is used");
}

/* ---- mounts ---- */

static void read_place(struct reader *rd, const struct node *map, const char *key, const char *hint,
	struct workflow_text *out)
{
	char quoted[QUOTE_SIZE];

	out->at = map->at;
	if (!node_get(map, key)) {
		reader_missing(rd, map, &schema_mount, key, hint);
		return;
	}
	if (!reader_text(rd, map, key, out) || reader_is_open(rd, out))
		return;
	if (*out->value != '/' || strstr(out->value, "/../") || str_ends(out->value, "/.."))
		reader_error(rd, &out->at, "`%s` must be an absolute path without `..`, not %s",
			reader_field(rd, key), quote(workflow_shown(out), quoted));
}

static void read_mount(struct reader *rd, const struct node *node, struct workflow_mount *mount)
{
	struct workflow_text options = {0};
	char quoted[QUOTE_SIZE];

	mount->at = node->at;
	if (!reader_check_map(rd, node, &schema_mount))
		return;
	read_place(rd, node, "hostDir", "it is the directory of this machine", &mount->host_dir);
	read_place(rd, node, "containerDir", "it is where the container sees it",
		&mount->container_dir);
	if (mount->container_dir.value && strcmp(mount->container_dir.value, "/") == 0)
		reader_error(rd, &mount->container_dir.at, "`%s` would cover the whole image",
			reader_field(rd, "containerDir"));
	if (!reader_text(rd, node, "options", &options) || reader_is_open(rd, &options))
		return;
	mount->read_only = strcmp(options.value, "ro") == 0;
	if (!mount->read_only && strcmp(options.value, "rw") != 0)
		reader_error(rd, &options.at, "`%s` is ro or rw, not %s",
			reader_field(rd, "options"), quote(options.value, quoted));
}

static void read_mounts(
	struct reader *rd, const struct node *map, struct workflow_mount **mounts, size_t *n)
{
	struct node *list = reader_list(rd, map, "mounts");

	if (!list || !list->n)
		return;
	*mounts = workflow_arena_array(rd->arena, list->n, sizeof(**mounts));
	if (!*mounts)
		return;
	*n = list->n;
	for (size_t i = 0; i < list->n; i++) {
		size_t saved = reader_enter(rd, "mounts", 0);
		size_t inner = reader_enter(rd, NULL, i);

		read_mount(rd, list->entries[i].value, &(*mounts)[i]);
		reader_leave(rd, inner);
		reader_leave(rd, saved);
	}
}

/* ---- the whole ---- */

/* Engines that other runners choose between. */
static void read_engine(struct reader *rd, const struct node *map)
{
	struct workflow_flag apptainer = {0};
	struct workflow_flag hosted = {0};

	if (reader_flag(rd, map, "apptainer", &apptainer) && apptainer.value)
		reader_note(rd, &apptainer.at,
			"`%s` is read as any container: the image is the same, only the engine "
			"differs",
			reader_field(rd, "apptainer"));
	if (reader_flag(rd, map, "deepsquareHosted", &hosted) && hosted.value)
		reader_note(rd, &hosted.at,
			"`%s` means a copy on DeepSquare's own machines; here the image comes from "
			"its registry",
			reader_field(rd, "deepsquareHosted"));
}

void read_container(struct reader *rd, const struct node *run, struct workflow_container *container)
{
	const struct node *map = reader_map(rd, run, "container");
	size_t saved;

	if (!map)
		return;
	saved = reader_enter(rd, "container", 0);
	container->given = true;
	container->at = map->at;
	if (reader_check_map(rd, map, &schema_container)) {
		read_image(rd, map, &container->image);
		read_registry(rd, map, container);
		read_login(rd, map, container);
		read_engine(rd, map);
		reader_flag(rd, map, "x11", &container->x11);
		reader_flag(rd, map, "mountHome", &container->mount_home);
		reader_flag(rd, map, "readOnlyRootFS", &container->read_only_root);
		read_mounts(rd, map, &container->mounts, &container->n_mounts);
	}
	reader_leave(rd, saved);
}

/* Whether one is, or may be: of a module that is not here nobody knows. */
static int is_contained(void *cookie, const struct workflow_step *step)
{
	(void)cookie;
	return (step->kind == WORKFLOW_STEP_RUN && step->run.container.given) ||
	       (step->kind == WORKFLOW_STEP_USE && !step->use.resolved);
}

void read_common_mounts(struct reader *rd, const struct node *job)
{
	struct workflow *wf = rd->workflow;

	read_mounts(rd, job, &wf->mounts, &wf->n_mounts);
	if (wf->n_mounts && wf->steps.n && !workflow_walk(&wf->steps, is_contained, NULL))
		reader_note(rd, &wf->mounts[0].at,
			"`mounts` has no effect: no step has a container, and this machine's "
			"directories are seen by the others as they are");
}
