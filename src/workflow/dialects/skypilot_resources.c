/* `resources` of a SkyPilot task. */
#include "workflow/dialects/skypilot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"

#define MAX_GPUS 4096

/* clang-format off */
#define ONE_MACHINE "has no effect: the run is on this machine"

static const struct schema_key recovery_keys[] = {
	{"strategy", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"max_restarts_on_errors", .kinds = KEY_WHOLE, .max = 1000},
	{"recover_on_exit_codes", .kinds = KEY_WHOLE | KEY_TEXTS, .max = 255},
};
static const struct schema schema_recovery = {SCHEMA(NULL, "`job_recovery`", recovery_keys)};

static const struct schema_key resources_keys[] = {
	{"accelerators", .kinds = KEY_TEXT | KEY_FREE | KEY_TEXTS},
	{"gpus", .kinds = KEY_TEXT | KEY_FREE | KEY_TEXTS, .note = "is read as `accelerators`"},
	{"cpus", .kinds = KEY_TEXT},
	{"memory", .kinds = KEY_TEXT},
	{"image_id", .kinds = KEY_TEXT | KEY_FREE},
	{"ports", .kinds = KEY_ANY, .note = "has no effect: a step can use every free port of this machine"},
	{"infra", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"cloud", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"region", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"zone", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"instance_type", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"use_spot", .kinds = KEY_FLAG, .note = ONE_MACHINE ", and continues after an interruption anyway"},
	{"disk_size", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"disk_tier", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"local_disk", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"network_tier", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"max_hourly_cost", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"labels", .kinds = KEY_FREE, .note = ONE_MACHINE},
	{"autostop", .kinds = KEY_ANY, .note = ONE_MACHINE ", which keeps running"},
	{"accelerator_args", .kinds = KEY_FREE, .note = ONE_MACHINE},
	{"priority", .kinds = KEY_WHOLE, .min = -1000, .max = 1000, .note = ONE_MACHINE},
	{"priority_class", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"job_recovery", .kinds = KEY_TEXT | KEY_MAP, .below = &schema_recovery},
	{"spot_recovery", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"any_of", .kinds = KEY_LIST, .below = &skypilot_resources},
	{"ordered", .kinds = KEY_LIST, .below = &skypilot_resources},
};
const struct schema skypilot_resources = {SCHEMA(NULL, "`resources`", resources_keys)};
/* clang-format on */

/* ---- accelerators ---- */

static const struct node *accelerators_of(const struct node *resources)
{
	const struct node *found = node_get(resources, "accelerators");

	return found ? found : node_get(resources, "gpus");
}

/* Returns the number of GPUs in "H100:8", in "H100" or, in a map, in H100: 8; a fraction of a GPU
 * counts as a whole GPU. Returns -1 for other forms. */
static int64_t count_of(const char *kind, const struct node *value)
{
	const char *colon = strchr(kind, ':');
	const char *text = value && !node_is_null(value)
				   ? (value->kind == NODE_SCALAR ? value->text : "")
				   : (colon ? colon + 1 : "1");
	char *end;
	double count = strtod(text, &end);

	if (end == text || *end || !(count >= 0) || count > MAX_GPUS)
		return -1;
	return (int64_t)ceil(count);
}

static bool fits(const struct task *t, int64_t gpus)
{
	const struct workflow_site *site = &t->rd->site;

	return !site->cpus || gpus <= site->gpus;
}

/* Returns the count of the first alternative that fits this machine, else of the first
 * alternative. */
static int64_t read_accelerators(struct task *t, const struct node *node)
{
	int64_t first = -1;

	if (node->kind == NODE_SCALAR)
		first = count_of(node->text, NULL);
	for (size_t i = 0; node->kind != NODE_SCALAR && i < node->n; i++) {
		const struct node_entry *entry = &node->entries[i];
		int64_t count = entry->key ? count_of(entry->key, entry->value)
					   : count_of(entry->value->text, NULL);

		if (count < 0) {
			first = -1;
			break;
		}
		if (first < 0 || (!fits(t, first) && fits(t, count)))
			first = count;
	}
	if (node->kind != NODE_SCALAR && !node->n)
		return 0;
	if (first < 0)
		reader_error(t->rd, &node->at,
			"`resources.accelerators` must be a kind and a number from 0 to %d, such "
			"as H100:8, or a map or list of these",
			MAX_GPUS);
	return first < 0 ? 0 : first;
}

static bool is_other_device(struct task *t, const struct node *node)
{
	const char *kind = node->kind == NODE_SCALAR ? node->text
			   : node->n != 1	     ? ""
			   : node->entries[0].key    ? node->entries[0].key
						     : node->entries[0].value->text;

	return dialect_other_device(t->rd, node, kind);
}

/* Returns true if a count is a part of a GPU. */
static bool is_fraction(const struct node *node)
{
	const char *colon = node->kind == NODE_SCALAR ? strchr(node->text, ':') : NULL;

	if (node->kind == NODE_MAP && node->n)
		return node->entries[0].value->kind == NODE_SCALAR &&
		       strchr(node->entries[0].value->text, '.');
	return colon && strchr(colon, '.');
}

static void note_kind(struct task *t, const struct node *node)
{
	if (node->kind != NODE_SCALAR && node->n > 1)
		reader_note(t->rd, &node->at,
			"the alternative with %lld GPU%s is used; the kind of the GPUs is not "
			"checked",
			(long long)t->gpus, t->gpus == 1 ? "" : "s");
	else if (t->gpus)
		reader_note(t->rd, &node->at, "the kind of the %lld GPU%s is not checked%s",
			(long long)t->gpus, t->gpus == 1 ? "" : "s",
			is_fraction(node) ? ", and a part of a GPU counts as a whole GPU" : "");
}

/* ---- the choice ---- */

/* Returns `base` with the keys of `over`. */
static const struct node *merged(struct task *t, const struct node *base, const struct node *over)
{
	struct node *out = native_map(t->rd, NULL, NULL, &over->at);

	for (size_t i = 0; i < over->n; i++)
		native_put(t->rd, out, over->entries[i].key, over->entries[i].value);
	for (size_t i = 0; i < base->n; i++) {
		if (!node_find(over, base->entries[i].key))
			native_put(t->rd, out, base->entries[i].key, base->entries[i].value);
	}
	return out ? out : base;
}

static const struct node *choose(struct task *t, const struct node *base)
{
	const struct node *list = node_get(base, "ordered");
	const struct node *first = NULL;

	if (!list)
		list = node_get(base, "any_of");
	if (!list || list->kind != NODE_LIST || !list->n)
		return base;
	for (size_t i = 0; i < list->n; i++) {
		const struct node *one = merged(t, base, list->entries[i].value);
		const struct node *kinds = accelerators_of(one);
		size_t errors = t->rd->found->errors;
		int64_t gpus = kinds ? read_accelerators(t, kinds) : 0;

		if (t->rd->found->errors > errors)
			return base;
		if (!first)
			first = one;
		if (fits(t, gpus)) {
			first = one;
			break;
		}
	}
	reader_note(t->rd, &list->at,
		"the first of the %zu alternatives whose GPUs fit this machine is used", list->n);
	return first;
}

/* ---- CPUs and memory ---- */

static char *without_suffix(struct task *t, const char *text, const char *suffix)
{
	return workflow_arena_copy(
		t->rd->arena, text, strlen(text) - (str_ends(text, suffix) ? strlen(suffix) : 0));
}

/* Reads "4", "4+" for at least 4, or "0.5" for a part of a CPU. */
static int64_t read_cpus(struct task *t, const struct node *node)
{
	char *number = without_suffix(t, node->text, "+");
	char *end = number;
	double cpus = number ? strtod(number, &end) : 1;

	if (number && (end == number || *end || !(cpus > 0) || cpus > 65536)) {
		reader_error(t->rd, &node->at,
			"`resources.cpus` must be a number such as 4 or 4+, from 1 to 65536, "
			"not %s",
			quote(node->text));
		return 1;
	}
	return (int64_t)ceil(cpus);
}

/* Returns the memory for all CPUs together, in MiB: "32" and "32+" are GiB, "64GB" has a unit, and
 * "2x" is GiB for each CPU. Returns 0 after an error, which is reported. */
static int64_t read_memory(struct task *t, const struct node *node, int64_t cpus)
{
	char *amount = without_suffix(t, node->text, "+");
	bool each = amount && str_ends(amount, "x");
	int64_t bytes;

	amount = amount ? without_suffix(t, amount, "x") : NULL;
	if (amount && amount[strspn(amount, "0123456789.")] == '\0')
		amount = workflow_arena_printf(t->rd->arena, "%sGiB", amount);
	if (!amount)
		return 0;
	if (!dialect_memory(amount, &bytes) || bytes > (INT64_C(1) << 50)) {
		reader_error(t->rd, &node->at,
			"`resources.memory` must be an amount in GiB such as 32 or 32+, not %s",
			quote(node->text));
		return 0;
	}
	return bytes / MIB * (each ? cpus : 1);
}

/* Adds the restarts, and the exit codes after which the run is retried, up to
 * LIMIT_WORKFLOW_RETRIES times. These retries do not count as restarts. */
static void put_recovery(struct task *t, const struct node *recovery)
{
	struct node *codes = node_get(recovery, "recover_on_exit_codes");
	struct node *retry;

	t->restarts = dialect_whole(recovery, "max_restarts_on_errors", 0);
	if (!codes)
		return;
	retry = native_map(t->rd, t->job, "retry", &codes->at);
	native_number(t->rd, retry, "max", LIMIT_WORKFLOW_RETRIES, &codes->at);
	if (codes->kind == NODE_LIST)
		native_put(t->rd, retry, "codes", codes);
	else
		native_put(t->rd, native_list(t->rd, retry, "codes", &codes->at), NULL, codes);
}

void skypilot_put_resources(struct task *t)
{
	const struct node *base = node_get(t->root, "resources");
	struct native_share share = {.nodes = t->nodes};

	t->resources = base && base->kind == NODE_MAP ? choose(t, base) : NULL;
	share.gpu_at = accelerators_of(t->resources);
	share.cpu_at = node_get(t->resources, "cpus");
	share.memory_at = node_get(t->resources, "memory");
	put_recovery(t, node_get(t->resources, "job_recovery"));
	if (share.gpu_at) {
		t->gpus = share.gpus = read_accelerators(t, share.gpu_at);
		if (is_other_device(t, share.gpu_at)) {
			t->gpus = share.gpus = 0;
			share.gpu_at = NULL;
		} else {
			note_kind(t, share.gpu_at);
		}
	}
	share.cpus = share.cpu_at ? read_cpus(t, share.cpu_at) : dialect_cpus(t->rd);
	if (share.memory_at)
		share.memory = read_memory(t, share.memory_at, share.cpus);
	native_resources(t->rd, t->job, base ? &base->at : &t->root->at, &share);
}
