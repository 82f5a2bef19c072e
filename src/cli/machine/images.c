/* `images`: lists and removes cached container images. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/print/util.h"
#include "image/kept.h"
#include "records/records.h"

/* Number of digits of a digest that are shown; an operand must have at least as many. */
#define SHORT_DIGITS 12

static const char *name_of(const struct image_kept *image)
{
	return image->names.n ? image->names.items[0] : NULL;
}

static const char *digits_of(const struct image_kept *image)
{
	return image->digest + strlen("sha256:");
}

/* ---- list ---- */

static int list(const struct image_kept_list *list, bool json)
{
	struct grid grid = grid_new("DIGEST", "SIZE", "USED", "STATE", "NAME");
	json_t *all = json ? json_array() : NULL;

	for (size_t i = list->n; i-- > 0;) {
		const struct image_kept *image = &list->items[i];
		char size[STR_SIZE_SIZE], used[SHOW_TIME_SIZE];
		json_t *names = json_array();

		for (size_t k = 0; k < image->names.n; k++)
			json_array_append_new(names, json_text(image->names.items[k]));
		json_array_append_new(
			all, json_pack("{s:s, s:o, s:I, s:o, s:b}", "digest", image->digest,
				     "names", names, "bytes", (json_int_t)image->bytes, "used",
				     json_time(image->used_ns), "in_use", (int)image->in_use));
		str_format_size(image->bytes, size);
		grid_addf(&grid, "%.*s", SHORT_DIGITS, digits_of(image));
		grid_add(&grid, size);
		grid_add(&grid, show_time(image->used_ns, used));
		grid_add(&grid, image->in_use ? "in use" : "");
		grid_add(&grid, name_of(image));
	}
	if (json || list->n)
		return show_list(&grid, all, 0);
	grid_release(&grid);
	fprintf(stderr, "no images\n");
	return 0;
}

/* ---- removing ---- */

static bool is_named(const struct image_kept *image, const char *word)
{
	const char *digits = str_starts(word, "sha256:") ? word + strlen("sha256:") : word;

	for (size_t i = 0; i < image->names.n; i++) {
		if (strcmp(image->names.items[i], word) == 0)
			return true;
	}
	return strlen(digits) >= SHORT_DIGITS && str_starts(digits_of(image), digits);
}

static void print_removed(void *cookie, const struct image_kept *image)
{
	const char *name = name_of(image);

	(void)cookie;
	printf("%s\n", name ? name : image->digest);
}

static int rm(const struct cli *cli, const char *dir, const struct image_kept_list *list,
	struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 1; r == 0 && i < cli_n_operands(cli); i++) {
		const char *word = cli_operand(cli, i);
		bool found = false;

		for (size_t k = 0; r == 0 && k < list->n; k++) {
			if (!is_named(&list->items[k], word))
				continue;
			found = true;
			r = image_kept_remove(dir, &list->items[k], err);
			if (r == 0)
				print_removed(NULL, &list->items[k]);
		}
		if (!found)
			r = error_set(err, PENSTOCK_E_NOT_FOUND,
				"cannot find image '%s'; 'penstock images' lists the images by their "
				"full names and the beginnings of their digests",
				word);
	}
	return r;
}

static int run_images(const struct cli *cli)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(image_kept_release) struct image_kept_list images = {0};
	_cleanup_free_ char *home = NULL;
	_cleanup_free_ char *dir = NULL;
	const char *what = cli_operand(cli, 0) ? cli_operand(cli, 0) : "list";
	const char *size = cli_value(cli, "max-size");
	uint64_t max_bytes = UINT64_MAX, freed = 0;
	char text[STR_SIZE_SIZE];
	int64_t older_ms;
	int r;

	if (!cli_duration_ms(cli, "older-than", -1, &older_ms))
		return CLI_EXIT_USAGE;
	if (size && !str_to_size(size, &max_bytes))
		return cli_misuse(
			cli, "invalid --max-size '%s': expected a size such as 50G", size);
	if (strcmp(what, "list") != 0 && strcmp(what, "rm") != 0 && strcmp(what, "prune") != 0)
		return cli_misuse(cli, "'%s' is not one of list, rm and prune", what);
	if ((strcmp(what, "rm") == 0) != (cli_n_operands(cli) > 1))
		return cli_misuse(cli, "only rm takes the names of images, and needs at least one");
	r = records_home(&home, &err);
	if (r == 0) {
		dir = path_join(home, "images");
		r = dir ? image_kept_read(&images, dir, &err) : error_memory(&err);
	}
	if (r == 0 && strcmp(what, "list") == 0)
		return list(&images, cli_has(cli, "json"));
	if (r == 0 && strcmp(what, "rm") == 0)
		r = rm(cli, dir, &images, &err);
	else if (r == 0)
		r = image_kept_prune(dir, &images,
			&(struct image_prune){
				.before_ns = older_ms < 0 ? INT64_MIN
							  : clock_wall_ns() - older_ms * NS_PER_MS,
				.max_bytes = max_bytes,
				.removed = print_removed,
			},
			&err);
	if (r == 0)
		r = image_kept_sweep(dir, &freed, &err);
	str_format_size(freed, text);
	if (r == 0 && !cli_quiet(cli))
		fprintf(stderr, "%s freed\n", text);
	return r < 0 ? cli_fail(cli, &err) : 0;
}

const struct command command_images = {
	.name = "images",
	.summary = "list and remove container images",
	.operands = "[list|rm|prune] [IMAGE...]",
	.min_operands = 0,
	.max_operands = (unsigned)-1,
	.description =
		"Lists the images that 'penstock pull' and runs have pulled, and removes some "
		"of them. IMAGE is a name from the list, or the beginning of a digest.\n"
		"\n"
		"Images in use by a run are kept. Without an option, prune removes only layers "
		"that belong to no image any more.",
	.options = OPTIONS({0, "json", NULL, "list: print a list of objects"},
		{0, "older-than", "DURATION",
			"prune: remove images not used for this long, such as 30d"},
		{0, "max-size", "SIZE",
			"prune: remove the least recently used images until the others take at most "
			"this, such as 50G"}),
	.examples = EXAMPLES({"penstock images", "List the images, the most recently used first"},
		{"penstock images prune --max-size 50G", "Free space, for example from a timer"}),
	.exits = EXITS({"66", "There is no such image"},
		{"69", "The image is in use by a run, or an image is being pulled"}),
	.run = run_images,
};
