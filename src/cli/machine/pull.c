/* `pull`: pulls container images before they are needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/frame/interrupt.h"
#include "cli/print/progress.h"
#include "image/image.h"
#include "image/kept.h"
#include "net/http/http.h"
#include "records/records.h"
#include "run/config/user_limits.h"

static void say(void *cookie, const char *text)
{
	struct progress *progress = cookie;

	progress_clear(progress);
	log_warn("%s", text);
}

static void moved(void *cookie, const char *name, uint64_t done, uint64_t total)
{
	struct progress *progress = cookie;

	progress_update(progress, name, done, total);
}

/* Holds all images until the size bound is enforced, so that no image is removed to make room for
 * another. `*pulled` is the number of complete images, even after a failure. */
static int pull_all(const struct cli *cli, const char *dir, struct http_engine *engine,
	uint64_t bound, size_t *pulled, struct penstock_error *err)
{
	_cleanup_(progress_freep) struct progress *progress = progress_new(cli_quiet(cli));
	size_t n = cli_n_operands(cli);
	_cleanup_free_ struct image **images = calloc(n, sizeof(void *));
	uint64_t freed = 0;
	bool brought = false;
	int r = images ? 0 : error_memory(err);

	for (size_t i = 0; r == 0 && i < n; i++) {
		r = image_get(&images[i],
			&(struct image_request){.reference = cli_operand(cli, i),
				.registry = cli_value(cli, "registry"),
				.dir = dir,
				.engine = engine,
				.cancel = cli_interrupt_flag(),
				.progress = moved,
				.say = say,
				.cookie = progress},
			err);
		progress_clear(progress);
		brought |= r == 0 && images[i]->pulled;
		*pulled += r == 0;
		if (r == 0 && !cli_quiet(cli))
			printf("%s %s\n", images[i]->name, images[i]->digest);
	}
	if (r == 0 && brought && bound != UINT64_MAX)
		r = image_kept_bound(dir, bound, &freed, err);
	for (size_t i = 0; images && i < n; i++)
		image_free(images[i]);
	return r;
}

static void report_interrupt(const struct cli *cli, size_t pulled, const struct penstock_error *err)
{
	const char *kept = err->message ? strstr(err->message, "kept ") : NULL;
	size_t n = cli_n_operands(cli);

	if (!kept)
		kept = "kept no layer";
	if (n > 1)
		log_info("interrupted: pulled %zu of %zu images, and %s of the next; the same "
			 "command pulls the rest",
			pulled, n, kept);
	else
		log_info("interrupted: %s; the same command pulls the rest", kept);
}

static int run_pull(const struct cli *cli)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(http_engine_freep) struct http_engine *engine = NULL;
	_cleanup_free_ char *home = NULL;
	_cleanup_free_ char *dir = NULL;
	size_t pulled = 0;
	uint64_t bound;
	int r = user_images_bound(&bound, &err);

	if (r < 0)
		return cli_fail_as(cli, &err, CLI_EXIT_CONFIG);
	r = records_home(&home, &err);
	if (r == 0) {
		dir = path_join(home, "images");
		r = dir ? http_engine_new(&engine,
				  &(struct http_engine_options){.cancel = cli_watch_signals()},
				  &err)
			: error_memory(&err);
	}
	if (r == 0)
		r = pull_all(cli, dir, engine, bound, &pulled, &err);
	/* The last image may be complete before an interrupt is seen. */
	if (r == 0 || !cli_interrupted())
		return r < 0 ? cli_fail(cli, &err) : 0;
	report_interrupt(cli, pulled, &err);
	penstock_error_release(&err);
	return 128 + cli_interrupted();
}

const struct command command_pull = {
	.name = "pull",
	.summary = "pull container images",
	.operands = "IMAGE...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description =
		"Pulls images from their registries, or from files that 'skopeo copy' or "
		"'docker save' wrote, and keeps them for the runs that need them, each layer "
		"once. A run does the same for the images of its steps.\n"
		"\n"
		"Logins are those of 'podman login' and 'docker login'. The name and the current "
		"digest of each image are printed.",
	.options = OPTIONS({0, "registry", "HOST",
		"Registry, if it is not part of the name; with http:// in front if it has no TLS"}),
	.examples = EXAMPLES({"penstock pull debian:12", "Pull an image from Docker's registry"},
		{"penstock pull ghcr.io/org/name@sha256:...", "Pull an image by its digest"}),
	.exits = EXITS({"66", "There is no such image or tag, or no image for this machine"},
		{"69", "The registry does not respond"},
		{"77", "The registry requires a login, or refused the given one"},
		{"78", "A configuration file is invalid"},
		{"130", "Interrupted; complete layers are kept"}),
	.run = run_pull,
};
