/* `pull`: images of containers brought before they are needed. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/commands.h"
#include "image/image.h"
#include "net/http.h"
#include "records/records.h"
#include "base/banned.h"

static void say(void *cookie, const char *text)
{
	(void)cookie;
	log_warn("%s", text);
}

static int pull(const char *reference, const struct cli *cli, const char *dir,
	struct http_engine *engine, struct penstock_error *err)
{
	struct image *image = NULL;
	int r = image_get(&image,
		&(struct image_request){
			.reference = reference,
			.registry = cli_value(cli, "registry"),
			.dir = dir,
			.engine = engine,
			.say = say,
		},
		err);

	if (r == 0 && !cli_quiet(cli))
		printf("%s %s\n", image->name, image->digest);
	image_free(image);
	return r;
}

static int run_pull(const struct cli *cli)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(http_engine_freep) struct http_engine *engine = NULL;
	_cleanup_free_ char *home = NULL;
	_cleanup_free_ char *dir = NULL;
	int r = records_home(&home, &err);

	if (r == 0) {
		dir = path_join(home, "images");
		r = dir ? http_engine_new(&engine, &(struct http_engine_options){0}, &err)
			: error_memory(&err);
	}
	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++)
		r = pull(cli_operand(cli, i), cli, dir, engine, &err);
	return r < 0 ? cli_fail(cli, &err) : 0;
}

static const struct option_spec options[] = {
	{0, "registry", "HOST",
		"The registry, where it is not part of the name; http:// before it where it has no "
		"TLS"},
	{0, NULL, NULL, NULL},
};

static const struct command_example examples[] = {
	{"penstock pull debian:12", "Brings an image of Docker's registry"},
	{"penstock pull ghcr.io/org/name@sha256:...", "Brings an image by its digest"},
	{NULL, NULL},
};

static const struct command_exit exits[] = {
	{"66", "There is no such image or tag, or none for this machine"},
	{"69", "The registry does not answer"},
	{"77", "The registry wants a login, or refuses the one it got"},
	{NULL, NULL},
};

const struct command command_pull = {
	.name = "pull",
	.summary = "bring images of containers",
	.operands = "IMAGE...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description = "Brings images from their registries, or from files that 'skopeo copy' or "
		       "'docker save' wrote, and "
		       "keeps them for the runs that need them, each layer once. A run does the "
		       "same for the images of "
		       "its steps.\n"
		       "\n"
		       "Logins are those of 'podman login' and 'docker login'. For each image its "
		       "name and the digest "
		       "of what is there now are printed.",
	.options = options,
	.examples = examples,
	.exits = exits,
	.run = run_pull,
};
