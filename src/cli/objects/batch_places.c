/* Finds the places that a line of a batch reads and writes. Adds a place if in doubt, because a
 * superfluous place only makes lines wait longer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/must.h"
#include "base/str.h"
#include "cli/objects/batch_lines.h"
#include "copy/place.h"

/* ---- places as texts ---- */

#define ANY_FILE "file:"

static char *must(char *text)
{
	if (!text)
		abort();
	return text;
}

static bool leads_up(const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 2 && strncmp(path, "..", 2) == 0)
			return true;
		path += len + (path[len] == '/');
	}
	return false;
}

/* Returns "file:" and a path: the real path of the part of `path` that exists, followed by the
 * other components as given. Returns NULL if the place cannot be determined. */
static char *real_path(const char *path)
{
	_cleanup_free_ char *known = NULL, *begin = NULL;
	size_t len = strlen(path);

	for (;;) {
		free(begin);
		begin = must(strndup(*path ? path : ".", len ? len : 1));
		if (!len && *path != '/')
			begin[0] = '.';
		known = realpath(begin, NULL);
		if (known)
			break;
		if (!len || (errno != ENOENT && errno != ENOTDIR))
			return NULL;
		while (len && path[len - 1] == '/')
			len--;
		while (len && path[len - 1] != '/')
			len--;
	}
	while (path[len] == '/')
		len++;
	if (leads_up(path + len))
		return NULL;
	return must(str_printf("file:%s%s%s", strcmp(known, "/") == 0 ? "" : known,
		path[len] ? "/" : "", path + len));
}

static char *local_text(const char *path)
{
	char *text = real_path(path);

	return text ? text : must(strdup(ANY_FILE));
}

/* Returns the text of the place itself, or of `name` below it; NULL for standard input and
 * output. */
static char *place_text(const struct place *place, const char *name)
{
	_cleanup_free_ char *path = NULL;

	switch (place->kind) {
	case LOCATION_LOCAL:
		if (!name)
			return local_text(place->path);
		path = must(str_printf("%s/%s", place->base, name));
		return local_text(path);
	case LOCATION_OBJECT:
		return must(str_printf("object:%s/%s%s", place->bucket,
			name ? place->base : place->key, name ? name : ""));
	case LOCATION_HTTP:
		return must(str_printf("%s%s", name ? place->base : place->url, name ? name : ""));
	case LOCATION_STDIO:
		break;
	}
	return NULL;
}

/* Takes ownership of the text, which may be NULL. */
static void add(struct batch_line *line, char *text, bool tree, bool write)
{
	struct batch_place *grown;

	if (!text)
		return;
	grown = realloc(line->places, (line->n_places + 1) * sizeof(*grown));
	if (!grown)
		abort();
	line->places = grown;
	tree = tree || strcmp(text, ANY_FILE) == 0;
	/* Remove the trailing slash, so that the tree also overlaps its own directory, which
	 * another line may name without a slash. */
	if (tree && str_starts(text, "file:")) {
		while (str_ends(text, "/"))
			text[strlen(text) - 1] = '\0';
	}
	grown[line->n_places++] = (struct batch_place){text, tree, write};
}

bool batch_places_clash(const struct batch_line *a, const struct batch_line *b)
{
	for (size_t i = 0; i < a->n_places; i++) {
		for (size_t j = 0; j < b->n_places; j++) {
			const struct batch_place *p = &a->places[i], *q = &b->places[j];

			if ((p->write || q->write) &&
				(strcmp(p->text, q->text) == 0 ||
					(p->tree && str_starts(q->text, p->text)) ||
					(q->tree && str_starts(p->text, q->text))))
				return true;
		}
	}
	return false;
}

/* ---- by verb ---- */

static bool is_one_of(const char *verb, const char *const *list)
{
	while (*list && strcmp(*list, verb) != 0)
		list++;
	return *list;
}

/* Adds the places of cp or mv; `places` are the sources and, last, the target. */
static void plan_copy(struct batch_line *line, const struct place *places, size_t n)
{
	const struct place *target = &places[n - 1];
	bool recursive = cli_has(line->cli, "recursive"), all = false;
	bool move = strcmp(cli_verb(line->cli), "mv") == 0;
	bool into = target->directory || n > 2 || places[0].wildcard;

	MUST(n > 1);
	for (size_t i = 0; i < n - 1; i++) {
		const struct place *source = &places[i];
		bool tree = source->wildcard || recursive || source->directory;
		_cleanup_free_ char *name = place_name(source);

		all = all || tree || !name;
		if (source->kind != LOCATION_HTTP)
			add(line, place_text(source, source->wildcard ? "" : NULL), tree, move);
		if (into && !tree && name)
			add(line, place_text(target, name), false, true);
	}
	/* A local name may be a directory by the time the line runs. */
	if (all || !into)
		add(line, place_text(target, into ? "" : NULL),
			all || target->kind == LOCATION_LOCAL, true);
	line->heavy = all;
}

static void plan_others(struct batch_line *line, const struct place *places, size_t n)
{
	const char *verb = cli_verb(line->cli);
	bool write = !is_one_of(
		verb, (const char *const[]){"cat", "du", "ls", "presign", "stat", NULL});
	bool rm = strcmp(verb, "rm") == 0;

	for (size_t i = 0; i < n; i++) {
		const struct place *place = &places[i];
		bool tree = !rm || place->wildcard || place->directory;

		add(line, place_text(place, place->wildcard ? "" : NULL), tree, write);
		line->heavy = line->heavy || (rm && tree);
	}
	/* Without an operand the verb reads or writes all buckets. */
	if (!n)
		add(line, strdup("object:"), true, write);
}

void batch_line_plan(struct batch_line *line)
{
	static const char *const parallel[] = {"cp", "mv", "rm", "sync", NULL};
	static const char *const copies[] = {"cp", "mv", NULL};
	const char *verb = cli_verb(line->cli);
	bool copy = is_one_of(verb, copies), sync = strcmp(verb, "sync") == 0, fine = true;
	size_t n = cli_n_operands(line->cli), parsed = 0;
	struct place *places = calloc(n + 1, sizeof(*places));

	if (!places)
		abort();
	line->in_turn = !is_one_of(verb, parallel) ||
			(strcmp(verb, "rm") == 0 && cli_has(line->cli, "uploads"));
	for (; fine && parsed < n; parsed += fine) {
		bool raw = sync || (copy && (parsed == n - 1 || cli_has(line->cli, "raw")));

		fine = place_parse(&places[parsed], cli_operand(line->cli, parsed), raw, NULL) == 0;
		line->in_turn = line->in_turn || (fine && places[parsed].kind == LOCATION_STDIO);
	}
	if (!fine) {
		line->in_turn = true; /* the verb itself reports the error */
	} else if (copy) {
		plan_copy(line, places, n);
	} else if (sync) {
		add(line, place_text(&places[0], ""), true, false);
		add(line, place_text(&places[1], ""), true, true);
		line->heavy = true;
	} else {
		plan_others(line, places, n);
	}
	for (size_t i = 0; i < parsed; i++)
		place_release(&places[i]);
	free(places);
}
