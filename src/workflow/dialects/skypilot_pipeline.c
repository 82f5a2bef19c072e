/* Files of several SkyPilot tasks, one document each, which run one after another. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"

/* Returns the end of the document at `text`: the line of the next marker, or `end`. */
static const char *end_of(const char *text, const char *end)
{
	const char *line = text;

	while (line < end) {
		const char *next = memchr(line, '\n', (size_t)(end - line));

		if (line > text && end - line >= 3 && memcmp(line, "---", 3) == 0 &&
			(line + 3 == end || strchr(" \t\r\n", line[3])))
			return line;
		line = next ? next + 1 : end;
	}
	return end;
}

/* Returns the document, without reporting its mistakes; NULL if it is not a map. */
static const struct node *read_part(struct workflow_arena *arena, const char *text, size_t len)
{
	_cleanup_(diagnostics_release) struct diagnostics ignored = {0};
	const struct node *root = document_read(arena, "", text, len, &ignored);

	return root && root->kind == NODE_MAP ? root : NULL;
}

/* Returns the name of task `index` of the file; NULL if `root` is not a task. */
static const char *name_of(struct workflow_arena *arena, const struct node *root, size_t index)
{
	const char *name = dialect_text(root, "name");

	if (!root || (!node_find(root, "run") && !node_find(root, "setup")))
		return NULL;
	return name ? name : workflow_arena_printf(arena, "task-%zu", index);
}

/* Calls `fn` for each task of a file that has several documents, until `fn` returns true. */
static void each_task(struct workflow_arena *arena, const char *data, size_t len,
	bool (*fn)(void *cookie, const char *name, const char *text, size_t len), void *cookie)
{
	const char *end = data + len, *text = data, *next = end_of(text, end);
	size_t index = 0;

	if (next == end)
		return;
	for (; text < end; text = next) {
		const char *name;

		next = end_of(text, end);
		name = name_of(arena, read_part(arena, text, (size_t)(next - text)), index + 1);
		index += name != NULL;
		if (name && fn(cookie, name, text, (size_t)(next - text)))
			return;
	}
}

static bool add_name(void *cookie, const char *name, const char *text, size_t len)
{
	(void)text;
	(void)len;
	return strlist_add(cookie, name) < 0;
}

void skypilot_tasks(
	struct workflow_arena *arena, const char *data, size_t len, struct strlist *names)
{
	each_task(arena, data, len, add_name, names);
}

struct picking {
	const char *name, *text;
	size_t len;
};

static bool pick(void *cookie, const char *name, const char *text, size_t len)
{
	struct picking *p = cookie;

	if (strcmp(p->name, name) != 0)
		return false;
	p->text = text;
	p->len = len;
	return true;
}

const char *skypilot_pick(struct reader *rd, const char *data, size_t len)
{
	struct picking p = {.name = rd->options->pick};
	const struct node *head = p.name ? read_part(rd->arena, data,
						   (size_t)(end_of(data, data + len) - data))
					 : NULL;
	const struct node *order = node_get(head, "execution");
	char *copy;

	if (p.name)
		each_task(rd->arena, data, len, pick, &p);
	if (!p.text)
		return data;
	if (order && order->kind == NODE_SCALAR && strcmp(order->text, "parallel") == 0)
		reader_error(rd, &order->at,
			"`execution: parallel` is not supported: the tasks of a file run one after "
			"another; run each file by itself");
	rd->before = workflow_arena_copy(rd->arena, data, (size_t)(p.text - data));
	/* All other documents become spaces, so that the lines keep their numbers. */
	copy = workflow_arena_copy(rd->arena, data, len);
	for (size_t i = 0; copy && i < len; i++) {
		const char *at = data + i;
		bool marker = at >= p.text && at < p.text + 3 && *at == '-';

		if ((at < p.text || at >= p.text + p.len || marker) && *at != '\n')
			copy[i] = ' ';
	}
	return copy ? copy : data;
}
