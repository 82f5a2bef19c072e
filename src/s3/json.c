#include "s3/json.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"

static _Thread_local bool allocation_failed;
static json_malloc_t plain_malloc;

static void *note_malloc(size_t size)
{
	void *memory = plain_malloc(size);

	allocation_failed = allocation_failed || !memory;
	return memory;
}

static void note_allocations(void)
{
	json_free_t plain_free;

	json_get_alloc_funcs(&plain_malloc, &plain_free);
	json_set_alloc_funcs(note_malloc, plain_free);
}

int s3_json_load(const char *text, size_t len, json_t **out, struct penstock_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	json_error_t problem;
	json_t *root;

	pthread_once(&once, note_allocations);
	allocation_failed = false;
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &problem);
	if (allocation_failed) {
		json_decref(root);
		return error_memory(err);
	}
	if (!root)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the document is not valid JSON: line %d: %s", problem.line, problem.text);
	*out = root;
	return 0;
}
