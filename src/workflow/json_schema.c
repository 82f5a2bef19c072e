/*
 * The JSON Schema of workflow files, from the rows of the schema. The JSON Schema accepts every
 * file that penstock accepts, even with a note, and refuses unknown keys and values of the wrong
 * type. Conditions between keys are not part of the JSON Schema: `penstock validate` checks them.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "workflow/document/canonical.h"
#include "workflow/native/schema.h"
#include "workflow/workflow.h"

#define DEFINITIONS 64

/* In YAML the value of a text may be a number or a boolean, and any value may be null. */
#define TEXT_TYPE "\"type\": [\"string\", \"number\", \"boolean\", \"null\"]"
#define LIST_TYPE "\"type\": [\"array\", \"null\"], \"items\": "
#define REFERENCE "{\"type\": \"string\", \"pattern\": \"\\\\$\\\\{\\\\{\"}"

struct generator {
	struct buf *out;
	const struct schema *seen[DEFINITIONS]; /* schemas that are referred to */
	size_t n;
};

/* Appends Markdown as a JSON string, without backquotes, asterisks and the targets of links. */
static void add_description(struct buf *out, const char *text)
{
	_cleanup_(buf_release) struct buf plain = BUF_INIT(LIMIT_STRING);

	for (const char *p = text; *p; p++) {
		if (p[0] == ']' && p[1] == '(')
			p += strcspn(p, ")");
		else if (*p != '`' && *p != '*' && *p != '[')
			buf_add_char(&plain, *p);
	}
	if (buf_failed(&plain))
		out->failure = plain.failure;
	buf_add_str(out, ", \"description\": ");
	json_add_text(out, buf_str(&plain));
}

static void add_ref(struct generator *g, const struct schema *schema)
{
	size_t i = 0;

	while (i < g->n && g->seen[i] != schema)
		i++;
	if (i == g->n && i < DEFINITIONS)
		g->seen[g->n++] = schema;
	buf_printf(g->out, "{\"$ref\": \"#/definitions/%s\"}", schema->name);
}

/* Appends {"anyOf": [WORDS, a reference]}. */
static void add_words(struct buf *out, const char *const *words)
{
	buf_add_str(out, "{\"anyOf\": [{\"enum\": [");
	for (; *words; words++) {
		json_add_text(out, *words);
		buf_add_str(out, ", ");
	}
	buf_add_str(out, "null]}, " REFERENCE "]}");
}

static void add_text(struct buf *out, const struct schema_key *key)
{
	if (key->words)
		add_words(out, key->words);
	else
		buf_add_str(out, "{" TEXT_TYPE "}");
}

static void add_whole(struct buf *out, const struct schema_key *key)
{
	buf_printf(out,
		"{\"type\": [\"integer\", \"string\", \"null\"], \"minimum\": %lld, \"maximum\": "
		"%lld, \"pattern\": \"^([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$\"}",
		(long long)key->min, (long long)key->max);
}

/* Appends the schema of one kind of value of a row. */
static void add_kind(struct generator *g, const struct schema_key *key, unsigned kind)
{
	bool legacy;

	switch (kind) {
	case KEY_TEXT:
	case KEY_CREDENTIAL:
		add_text(g->out, key);
		break;
	case KEY_WHOLE:
		add_whole(g->out, key);
		break;
	case KEY_FLAG:
		buf_add_str(g->out,
			"{\"type\": [\"boolean\", \"string\", \"null\"], \"pattern\": "
			"\"^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[Yy][Ee][Ss]|[Nn][Oo]|[Oo][Nn]|"
			"[Oo][Ff][Ff]),?$\"}");
		break;
	case KEY_DURATION:
		buf_add_str(g->out, "{\"type\": [\"string\", \"number\", \"null\"], \"pattern\": "
				    "\"^[0-9.]+(ms|s|m|min|h|d)?$|\\\\$\\\\{\\\\{\"}");
		break;
	case KEY_WORD:
		add_words(g->out, key->words);
		break;
	case KEY_WORDS:
		add_words(g->out, key->words);
		buf_add_str(g->out, ", {" LIST_TYPE);
		add_words(g->out, key->words);
		buf_add_char(g->out, '}');
		break;
	case KEY_WHOLES:
		add_whole(g->out, key);
		buf_add_str(g->out, ", {" LIST_TYPE);
		add_whole(g->out, key);
		buf_add_char(g->out, '}');
		break;
	case KEY_TEXTS:
		buf_add_str(g->out, "{" LIST_TYPE "{\"anyOf\": [");
		add_text(g->out, key);
		if (key->kinds & KEY_LIST) {
			buf_add_str(g->out, ", ");
			add_ref(g, key->below);
		}
		buf_add_str(g->out, "]}}");
		break;
	case KEY_VARIABLES:
		/* Entries, and the legacy forms "KEY=VALUE" and a map. */
		buf_add_str(g->out, "{" LIST_TYPE "{\"anyOf\": [");
		add_ref(g, key->below);
		buf_add_str(g->out, ", {\"type\": \"string\", \"pattern\": \"=\"}]}}, {\"type\": "
				    "\"object\", \"additionalProperties\": {" TEXT_TYPE "}}");
		break;
	case KEY_MAP:
		/* `http` with a bucket is a legacy form of `s3`. */
		legacy = strcmp(key->name, "http") == 0;
		if (legacy)
			buf_add_str(g->out, "{\"anyOf\": [{\"$ref\": \"#/definitions/s3\"}, ");
		add_ref(g, key->below);
		if (legacy)
			buf_add_str(g->out, "]}");
		break;
	case KEY_LIST:
		buf_add_str(g->out, "{" LIST_TYPE);
		add_ref(g, key->below);
		buf_add_char(g->out, '}');
		break;
	default: /* KEY_ANY */
		buf_add_str(g->out, "true");
		break;
	}
}

static void add_key(struct generator *g, const struct schema_key *key)
{
	unsigned kinds = key->kinds & KEY_TEXTS ? key->kinds & ~(unsigned)KEY_LIST : key->kinds;
	const char *comma = "";

	json_add_text(g->out, key->name);
	buf_add_str(g->out, ": {\"anyOf\": [");
	for (unsigned kind = 1; kind <= kinds; kind <<= 1) {
		if (!(kinds & kind))
			continue;
		buf_add_str(g->out, comma);
		add_kind(g, key, kind);
		comma = ", ";
	}
	buf_add_char(g->out, ']');
	if (key->says)
		add_description(g->out, key->says);
	buf_add_char(g->out, '}');
}

static void add_definition(struct generator *g, const struct schema *schema)
{
	size_t n = 0;

	json_add_text(g->out, schema->name);
	buf_add_str(g->out, ": {\"type\": [\"object\", \"null\"]");
	for (size_t i = 0; i < schema->n; i++) {
		const struct schema_key *key = &schema->keys[i];

		if (!(key->flags & KEY_REQUIRED) || (key->flags & KEY_MOVABLE))
			continue;
		buf_printf(g->out, "%s\"%s\"", n++ ? ", " : ", \"required\": [", key->name);
	}
	if (n)
		buf_add_char(g->out, ']');
	/* A required key that legacy.c moves into its map may be next to the map instead. */
	for (size_t i = 0; i < schema->n; i++) {
		const struct schema *below = schema->keys[i].below;

		for (size_t j = 0; (schema->keys[i].kinds & KEY_MAP) && j < below->n; j++) {
			const char *name = below->keys[j].name;

			if (below->keys[j].flags & KEY_MOVABLE)
				buf_printf(g->out,
					", \"anyOf\": [{\"required\": [\"%s\"]}, {\"properties\": "
					"{\"%s\": {\"required\": [\"%s\"]}}}]",
					name, schema->keys[i].name, name);
		}
	}
	buf_add_str(g->out, ", \"properties\": {");
	for (size_t i = 0; i < schema->n; i++) {
		buf_add_str(g->out, i ? ", " : "");
		add_key(g, &schema->keys[i]);
	}
	/* The step around `run` may have keys of `run`, a legacy form. */
	if (schema == &schema_step) {
		const struct schema *run = schema_find(&schema_step, "run")->below;

		for (size_t i = 0; i < run->n; i++) {
			const char *name = run->keys[i].name;

			if (!schema_find(&schema_step, name) && !(run->keys[i].flags & KEY_LEGACY))
				buf_printf(g->out,
					", \"%s\": {\"$ref\": \"#/definitions/run/properties/%s\"}",
					name, name);
		}
	}
	buf_printf(g->out, "}%s}", schema->open ? "" : ", \"additionalProperties\": false");
}

int workflow_json_schema(struct buf *out)
{
	struct generator g = {.out = out, .seen = {&schema_job}, .n = 1};

	buf_add_str(out,
		"{\"$schema\": \"http://json-schema.org/draft-07/schema#\", \"title\": \"penstock "
		"workflow\", \"if\": {\"required\": [\"job\"]}, \"then\": {\"properties\": {\"job\": "
		"{\"$ref\": \"#/definitions/workflow\"}}, \"additionalProperties\": false}, "
		"\"else\": {\"$ref\": \"#/definitions/workflow\"}, \"definitions\": {");
	for (size_t i = 0; i < g.n; i++) {
		buf_add_str(out, i ? ", " : "");
		add_definition(&g, g.seen[i]);
	}
	buf_add_str(out, "}}");
	return buf_failed(out) ? -1 : 0;
}
