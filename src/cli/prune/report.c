/* Reports the things that `penstock prune` removes, and the sums. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/prune/prune.h"

#define IN_USE "in use"

static uint64_t parts_of(const struct prune_item *item)
{
	return item->n ? item->n : 1;
}

static void count(struct prune_sum *sum, const struct prune_item *item)
{
	sum->n += parts_of(item);
	sum->bytes += item->bytes;
}

bool prune_takes(struct pruning *p, struct prune_item *item)
{
	const char *stays = item->in_use		   ? IN_USE
			    : item->only_copy && !p->force ? "only copy"
							   : NULL;
	char size[STR_SIZE_SIZE], used[SHOW_TIME_SIZE];

	count(item->in_use ? &p->in_use : stays ? &p->only_copy : &p->removed, item);
	str_format_size(item->bytes, size);
	item->index = json_array_size(p->items);
	json_array_append_new(
		p->items, json_pack("{s:s, s:o, s:o, s:I, s:I, s:o, s:b, s:o}", "kind", item->kind,
				  "what", json_text(item->what), "run", json_text(item->run), "n",
				  (json_int_t)parts_of(item), "bytes", (json_int_t)item->bytes,
				  "used", json_time(item->used_ns), "only_copy", item->only_copy,
				  "stays", json_text(stays)));
	grid_add(&p->grid, item->kind);
	grid_add(&p->grid, size);
	grid_add(&p->grid, show_time(item->used_ns, used));
	item->cell = p->grid.cells.n;
	grid_add(&p->grid, stays	      ? stays
			   : !item->only_copy ? ""
			   : p->dry_run	      ? "only copy: would be removed"
					      : "only copy: removed");
	grid_add(&p->grid, item->what);
	return !stays && !p->dry_run;
}

void prune_stays(struct pruning *p, const struct prune_item *item, const char *why, uint64_t n,
	uint64_t bytes)
{
	struct prune_sum *sum = strcmp(why, IN_USE) == 0 ? &p->in_use : &p->failed;
	char *cell = strdup(why);

	if (!cell)
		abort();
	p->removed.n -= n;
	p->removed.bytes -= bytes;
	sum->n += n;
	sum->bytes += bytes;
	json_object_set_new(json_array_get(p->items, item->index), "stays", json_string(why));
	free(p->grid.cells.items[item->cell]);
	p->grid.cells.items[item->cell] = cell;
}

void prune_failed(struct pruning *p, const struct prune_item *item, struct penstock_error *err)
{
	if (item)
		prune_stays(p, item, "failed", parts_of(item), item->bytes);
	p->failures++;
	cli_fail(p->cli, err);
}

static json_t *sum_json(const struct prune_sum *sum)
{
	return json_pack("{s:I, s:I}", "n", (json_int_t)sum->n, "bytes", (json_int_t)sum->bytes);
}

static void print_sums(const struct pruning *p)
{
	char size[STR_SIZE_SIZE];

	str_format_size(p->removed.bytes, size);
	fprintf(stderr, "%s%" PRIu64 " item%s, %s\n", p->dry_run ? "would remove " : "removed ",
		p->removed.n, p->removed.n == 1 ? "" : "s", size);
	str_format_size(p->in_use.bytes, size);
	if (p->in_use.n)
		fprintf(stderr, "%" PRIu64 " in use, %s\n", p->in_use.n, size);
	str_format_size(p->only_copy.bytes, size);
	if (p->only_copy.n)
		fprintf(stderr, "%" PRIu64 " may be the only copy, %s; --force removes %s\n",
			p->only_copy.n, size, p->only_copy.n == 1 ? "it" : "them");
	str_format_size(p->failed.bytes, size);
	if (p->failed.n)
		fprintf(stderr, "%" PRIu64 " could not be removed, %s\n", p->failed.n, size);
}

int prune_print(struct pruning *p)
{
	if (cli_has(p->cli, "json"))
		show_json(json_pack("{s:b, s:o, s:o, s:o, s:o, s:o}", "dry_run", p->dry_run,
			"items", p->items, "removed", sum_json(&p->removed), "in_use",
			sum_json(&p->in_use), "only_copy", sum_json(&p->only_copy), "failed",
			sum_json(&p->failed)));
	if (cli_has(p->cli, "json") || !p->grid.cells.n)
		grid_release(&p->grid);
	else
		grid_print(&p->grid);
	if (!cli_quiet(p->cli) && !cli_has(p->cli, "json"))
		print_sums(p);
	return p->failures ? CLI_EXIT_UNAVAILABLE : 0;
}
