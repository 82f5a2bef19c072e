/* Implements the trees of <penstock/transfer.h> on top of src/copy. */
#include <penstock/transfer.h>

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "copy/copy.h"
#include "library/library.h"

struct tree_call {
	struct penstock_tree_options options;
	struct penstock_tree_result result;
	struct strlist include, exclude;
	struct place from, to;
	struct penstock_error first;
};

static void tree_call_release(struct tree_call *call)
{
	strlist_release(&call->include);
	strlist_release(&call->exclude);
	place_release(&call->from);
	place_release(&call->to);
	penstock_error_release(&call->first);
}

static void report(const struct tree_call *call, const struct copy_item *item,
	const struct penstock_error *error)
{
	if (call->options.each)
		call->options.each(call->options.cookie, item->from, item->to, item->size, error);
}

static void on_done(void *cookie, const struct copy_item *item)
{
	struct tree_call *call = cookie;

	if (strcmp(item->action, "delete") == 0) {
		call->result.removed++;
	} else {
		call->result.copied++;
		call->result.bytes += item->size;
	}
	report(call, item, NULL);
}

static void on_same(void *cookie, const struct copy_item *item)
{
	struct tree_call *call = cookie;

	(void)item;
	call->result.same++;
}

static void on_failed(void *cookie, const struct copy_item *item, const struct penstock_error *err)
{
	struct tree_call *call = cookie;
	const char *message = err->message ? err->message : penstock_code_name(err->code);

	if (err->code == PENSTOCK_E_CANCELLED)
		return;
	call->result.failed++;
	if (!call->first.code)
		error_set(&call->first, err->code, "%s: %s", item->from ? item->from : "", message);
	report(call, item, err);
}

static void on_moved(void *cookie, int64_t bytes)
{
	struct tree_call *call = cookie;

	call->options.progress(call->options.cookie, bytes);
}

static int add_all(struct strlist *to, const char *const *from, struct penstock_error *err)
{
	for (; from && *from; from++) {
		if (strlist_add(to, *from) < 0)
			return error_memory(err);
	}
	return 0;
}

/* Parses `text`, a tree, as the place of the objects or files below it. */
static int parse(struct place *out, const char *text, struct penstock_error *err)
{
	_cleanup_free_ char *whole = location_prefix(text);
	int r;

	if (!whole)
		return error_memory(err);
	r = place_parse(out, whole, true, err);
	if (r == 0 && out->kind != LOCATION_OBJECT && out->kind != LOCATION_LOCAL)
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid tree '%s'; expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or a "
			"directory",
			text);
	return r;
}

static int begin(struct tree_call *call, const char *from, const char *to,
	const struct penstock_tree_options *given, struct penstock_error *err)
{
	const struct copy_sync sync = {.source = &call->from, .target = &call->to};
	int r = library_adopt(
		&call->options, sizeof(call->options), given, "struct penstock_tree_options", err);

	if (r == 0)
		r = add_all(&call->include, call->options.include, err);
	if (r == 0)
		r = add_all(&call->exclude, call->options.exclude, err);
	if (r == 0)
		r = parse(&call->from, from, err);
	if (r == 0)
		r = parse(&call->to, to, err);
	return r == 0 ? copy_sync_check(&sync, err) : r;
}

static int open_side(struct penstock_transfer *t, const struct place *place,
	const atomic_int *cancel, struct object_client **out, struct penstock_error *err)
{
	*out = NULL;
	return place_is_object(place) ? library_client(t, place->google, cancel, out, err) : 0;
}

static int run(struct tree_call *call, struct copy *copy, struct penstock_error *err)
{
	const struct copy_sync sync = {
		.source = &call->from, .target = &call->to, .remove = call->options.remove};
	const struct copy_request request = {
		.sources = &call->from, .n = 1, .target = &call->to, .recursive = true};
	int r = copy_sync_check_overlap(copy, &sync, err);

	if (r == 0 && call->options.update)
		return copy_sync_trees(copy, &sync, err);
	if (r == 0)
		r = copy_sources(copy, &request, err);
	return r == 0 ? copy_finish(copy, err) : r;
}

int penstock_copy_tree(struct penstock_transfer *t, const char *from, const char *to,
	const struct penstock_tree_options *given, struct penstock_tree_result *result,
	struct penstock_error *err)
{
	_cleanup_(tree_call_release) struct tree_call call = {0};
	struct penstock_tree_result room = {0};
	struct copy_options options = {.engine = t->engine};
	struct copy copy = {0};
	int r = begin(&call, from, to, given, err);

	if (r == 0 && result)
		r = library_adopt(&room, sizeof(room), result, "struct penstock_tree_result", err);
	options.cancel = call.options.cancel ? &call.options.cancel->flag : NULL;
	if (r == 0)
		r = open_side(t, &call.from, options.cancel, &options.from, err);
	if (r == 0)
		r = open_side(t, &call.to, options.cancel, &options.to, err);
	options.same_store = options.from && options.from == options.to;
	options.filter = (struct path_filter){&call.include, &call.exclude};
	options.put.if_none_match = call.options.if_none_match;
	options.parallel = call.options.parallel;
	options.report = (struct copy_report){.done = on_done,
		.same = on_same,
		.failed = on_failed,
		.moved = call.options.progress ? on_moved : NULL,
		.cookie = &call};
	if (r == 0)
		r = copy_begin(&copy, &options, err);
	if (r == 0)
		r = run(&call, &copy, err);
	copy_end(&copy);
	if (r == 0 && call.first.code)
		r = error_move(err, &call.first);
	if (result && room.struct_size)
		library_give(result, &call.result, sizeof(call.result));
	return r;
}
