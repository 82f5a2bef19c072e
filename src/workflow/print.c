/* The model as JSON, by the rows of the schema: every default applied, no secrets. */
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "workflow/document/canonical.h"
#include "workflow/document/reference.h"
#include "workflow/native/native.h"
#include "workflow/workflow.h"

/* ---- JSON for humans: indented, one member on each line ---- */

struct json_writer {
	struct buf *out;
	unsigned depth;
	bool filled; /* the current level has a member */
};

static void next_line(struct json_writer *w)
{
	if (w->filled)
		buf_add_char(w->out, ',');
	w->filled = true;
	json_add_line(w->out, w->depth);
}

static void add_key(struct json_writer *w, const char *key)
{
	if (w->depth)
		next_line(w);
	if (key) {
		json_add_text(w->out, key);
		buf_add_str(w->out, ": ");
	}
}

/* `key` is NULL in a list. A failure (out of memory) is kept in `out`. */
static void json_write_open(struct json_writer *w, const char *key, char bracket)
{
	add_key(w, key);
	buf_add_char(w->out, bracket);
	w->depth++;
	w->filled = false;
}

static void json_write_close(struct json_writer *w, char bracket)
{
	bool filled = w->filled;

	w->depth--;
	w->filled = false;
	if (filled)
		next_line(w);
	w->filled = true;
	buf_add_char(w->out, bracket);
}

/* Writes null if `value` is NULL. */
static void json_write_string(struct json_writer *w, const char *key, const char *value)
{
	add_key(w, key);
	if (value)
		json_add_text(w->out, value);
	else
		buf_add_str(w->out, "null");
}

static void json_write_number(struct json_writer *w, const char *key, int64_t value)
{
	add_key(w, key);
	buf_printf(w->out, "%lld", (long long)value);
}

/* ---- values ---- */

static void put_text(struct json_writer *w, const char *key, const struct workflow_text *text)
{
	json_write_string(w, key, workflow_shown(text));
}

/* Writes the reference to a credential; "***" if its value is in the file or in an option. */
static void put_credential(
	struct json_writer *w, const char *key, const struct workflow_credential *credential)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	switch (credential->source) {
	case WORKFLOW_FROM_NOWHERE:
		json_write_string(w, key, NULL);
		break;
	case WORKFLOW_FROM_SECRET:
	case WORKFLOW_FROM_ENV:
		buf_printf(&text, "${{ %s.%s }}", reference_prefix(credential->source),
			credential->name);
		if (buf_failed(&text))
			w->out->failure = text.failure;
		json_write_string(w, key, buf_str(&text));
		break;
	default:
		json_write_string(w, key, "***");
	}
}

static void put_variables(
	struct json_writer *w, const char *key, const struct workflow_env_list *env)
{
	json_write_open(w, key, '[');
	for (size_t i = 0; i < env->n; i++) {
		json_write_open(w, NULL, '{');
		json_write_string(w, "key", env->items[i].key);
		put_text(w, "value", &env->items[i].value);
		json_write_close(w, '}');
	}
	json_write_close(w, ']');
}

static void put_texts(
	struct json_writer *w, const char *key, const struct workflow_text *items, size_t n)
{
	json_write_open(w, key, '[');
	for (size_t i = 0; i < n; i++)
		put_text(w, NULL, &items[i]);
	json_write_close(w, ']');
}

/* ---- values that no row describes ---- */

static void put_schema(struct json_writer *w, const struct schema *schema, const char *out);

static void put_list(struct json_writer *w, const char *key, const struct schema *schema,
	const char *items, size_t n)
{
	json_write_open(w, key, '[');
	for (size_t i = 0; i < n; i++) {
		json_write_open(w, NULL, '{');
		put_schema(w, schema, items + i * schema->size);
		json_write_close(w, '}');
	}
	json_write_close(w, ']');
}

/* Writes the steps of `use`, inside their module if the module was loaded. */
static void put_module(struct json_writer *w, const struct workflow_step *step)
{
	if (step->use.resolved) {
		json_write_open(w, "module", '{');
		put_text(w, "name", &step->use.module_name);
		put_variables(w, "inputs", &step->use.env);
		put_texts(w, "outputs", step->use.outputs.items, step->use.outputs.n);
	}
	put_list(w, "steps", &schema_step, (const char *)step->steps.items, step->steps.n);
	if (step->use.resolved)
		json_write_close(w, '}');
}

static void put_notices(struct json_writer *w, const struct workflow_preemption *preemption)
{
	if (preemption->sources_given) {
		json_write_open(w, "sources", '[');
		for (size_t i = 0; i < preemption->n_sources; i++) {
			const struct workflow_notice_source *source = &preemption->sources[i];

			if (!source->value.value) {
				json_write_string(w, NULL, workflow_notice_words[source->kind]);
				continue;
			}
			json_write_open(w, NULL, '{');
			put_text(w, source->kind == WORKFLOW_NOTICE_FILE ? "file" : "command",
				&source->value);
			json_write_close(w, '}');
		}
		json_write_close(w, ']');
	}
	if (preemption->signal_given)
		json_write_string(w, "signal",
			preemption->signal ? sigabbrev_np(preemption->signal) : "none");
}

/* ---- rows ---- */

static bool any_given(const struct schema *schema, const char *out);

static bool is_given(const struct schema_key *key, const char *member, size_t length)
{
	if (key->kinds & KEY_MAP)
		return any_given(key->below, member);
	if (key->length)
		return length > 0;
	if (key->kinds & KEY_TEXTS)
		return ((const struct workflow_texts *)member)->n > 0;
	if (key->kinds & (KEY_WHOLE | KEY_DURATION))
		return ((const struct workflow_number *)member)->given;
	if (key->kinds & KEY_FLAG)
		return ((const struct workflow_flag *)member)->given;
	if (key->kinds & KEY_CREDENTIAL)
		return ((const struct workflow_credential *)member)->source !=
		       WORKFLOW_FROM_NOWHERE;
	if (key->kinds & KEY_VARIABLES)
		return ((const struct workflow_env_list *)member)->n > 0;
	if (key->kinds & KEY_WORDS)
		return *(const unsigned *)member != 0;
	if ((key->kinds & KEY_WORD) && key->size == sizeof(bool))
		return *(const bool *)member;
	if ((key->kinds & KEY_WORD) && key->size == sizeof(unsigned))
		return *(const unsigned *)member != 0;
	return ((const struct workflow_text *)member)->value != NULL;
}

static size_t length_at(const struct schema_key *key, const char *out)
{
	return key->length ? *(const size_t *)(out + key->length - 1) : 0;
}

static bool holds(const struct schema_condition *c, const char *out)
{
	static const char zeros[sizeof(int64_t)];
	const void *member = out + c->member - 1;

	if (!c->member)
		return true;
	return (c->size == sizeof(int) ? *(const int *)member == c->value
				       : memcmp(member, zeros, c->size) == 0) != c->differs;
}

static bool is_shown(const struct schema_key *key, const char *out)
{
	if (!key->member || !holds(&key->shown[0], out) || !holds(&key->shown[1], out))
		return false;
	return (key->flags & KEY_SHOWN) ||
	       is_given(key, out + key->member - 1, length_at(key, out));
}

static bool any_given(const struct schema *schema, const char *out)
{
	const struct workflow_preemption *preemption = (const void *)out;

	if (schema == &schema_preemption && (preemption->sources_given || preemption->signal_given))
		return true;
	for (size_t i = 0; i < schema->n; i++) {
		if (is_shown(&schema->keys[i], out))
			return true;
	}
	return false;
}

static void put_value(struct json_writer *w, const struct schema_key *key, const char *out)
{
	const char *member = out + key->member - 1;
	size_t length = length_at(key, out);
	const struct workflow_texts *texts = (const void *)member;
	const struct workflow_number *number = (const void *)member;

	if (key->kinds & KEY_MAP) {
		json_write_open(w, key->name, '{');
		put_schema(w, key->below, member);
		json_write_close(w, '}');
	} else if (key->kinds & KEY_LIST) {
		put_list(w, key->name, key->below, *(const char *const *)member, length);
	} else if (key->kinds & KEY_WHOLES) {
		json_write_open(w, key->name, '[');
		for (size_t i = 0; i < length; i++)
			json_write_number(w, NULL, (*(const int *const *)member)[i]);
		json_write_close(w, ']');
	} else if ((key->kinds & KEY_TEXTS) && key->length) {
		put_texts(w, key->name, *(const struct workflow_text *const *)member, length);
	} else if (key->kinds & KEY_TEXTS) {
		put_texts(w, key->name, texts->items, texts->n);
	} else if (key->kinds & KEY_VARIABLES) {
		put_variables(w, key->name, (const void *)member);
	} else if (key->kinds & KEY_CREDENTIAL) {
		put_credential(w, key->name, (const void *)member);
	} else if (key->kinds & KEY_WORDS) {
		json_write_open(w, key->name, '[');
		for (size_t i = 0; key->words[i]; i++) {
			if (*(const unsigned *)member & 1U << i)
				json_write_string(w, NULL, key->words[i]);
		}
		json_write_close(w, ']');
	} else if (key->kinds & KEY_WORD) {
		if (key->size == sizeof(struct workflow_text))
			put_text(w, key->name, (const void *)member);
		else
			json_write_string(w, key->name,
				key->words[key->size == sizeof(bool) ? *(const bool *)member
								     : *(const unsigned *)member]);
	} else if (key->kinds & KEY_FLAG) {
		add_key(w, key->name);
		buf_add_str(
			w->out, ((const struct workflow_flag *)member)->value ? "true" : "false");
	} else if (key->kinds & KEY_DURATION) {
		add_key(w, key->name);
		buf_printf(w->out, "\"%lldms\"", (long long)number->value);
	} else if ((key->kinds & KEY_WHOLE) && number->value < key->min) { /* not limited */
		json_write_string(w, key->name, NULL);
	} else if (key->kinds & KEY_WHOLE) {
		json_write_number(w, key->name, number->value);
	} else {
		put_text(w, key->name, (const void *)member);
	}
}

static void put_schema(struct json_writer *w, const struct schema *schema, const char *out)
{
	if (schema == &schema_preemption)
		put_notices(w, (const void *)out);
	for (size_t i = 0; i < schema->n; i++) {
		const struct schema_key *key = &schema->keys[i];

		if (is_shown(key, out))
			put_value(w, key, out);
		else if (!key->member && (key->flags & KEY_SHOWN)) /* the key has only one value */
			json_write_string(w, key->name, key->words[0]);
		else if ((key->kinds & KEY_MAP) && (key->flags & KEY_SHOWN))
			json_write_string(w, key->name, NULL);
	}
	if (schema == &schema_use)
		put_module(w, (const void *)out);
}

int workflow_print_json(const struct workflow *wf, struct buf *out)
{
	struct json_writer w = {.out = out};

	json_write_open(&w, NULL, '{');
	put_schema(&w, &schema_job, (const char *)wf);
	json_write_close(&w, '}');
	buf_add_char(out, '\n');
	return buf_failed(out) ? -1 : 0;
}
