#include "workflow/native/template.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/document/canonical.h"

enum { MAX_VARIABLES = 32, MAX_ARGUMENTS = 8, MAX_DEPTH = 32 };

enum value_kind { VALUE_NIL, VALUE_NODE, VALUE_TEXT, VALUE_NUMBER, VALUE_BOOL, VALUE_ROOT };

struct value {
	enum value_kind kind;
	const struct node *node; /* a map or a list; NULL for other kinds */
	const char *text;
	int64_t number; /* value of a number or of a bool */
};

struct variable {
	const char *name;
	struct value value;
};

struct template
{
	const struct template_context *context;
	const char *begin, *p;
	const char *action; /* the start of the current action, for messages */
	struct buf *out;
	struct value dot;
	struct variable variables[MAX_VARIABLES];
	size_t n_variables;
	unsigned depth;
	bool active; /* the current block is executed; a skipped block is only parsed */
	const char *mistake;
};

static struct value nil(void)
{
	return (struct value){.kind = VALUE_NIL};
}

static struct value fail(struct template *t, const char *what, const char *name, size_t len)
{
	if (!t->mistake)
		t->mistake = workflow_arena_printf(t->context->arena, "%s%s%.*s%s", what,
			len ? " `" : "", (int)len, name, len ? "`" : "");
	if (!t->mistake)
		t->mistake = "out of memory";
	return nil();
}

/* Counts bytes that were read or produced: without a limit, nested `range` could take hours, and
 * much memory. */
static void spend(struct template *t, size_t n)
{
	*t->context->spent += n;
	if (*t->context->spent > LIMIT_WORKFLOW_TEMPLATES)
		fail(t,
			"the templates of all modules produce too much text; shorten the lists of "
			"`range`, or use fewer modules",
			"", 0);
}

static struct value value_text(const char *text)
{
	return (struct value){.kind = text ? VALUE_TEXT : VALUE_NIL, .text = text};
}

static struct value value_number(int64_t number)
{
	return (struct value){.kind = VALUE_NUMBER, .number = number};
}

static struct value value_bool(bool is)
{
	return (struct value){.kind = VALUE_BOOL, .number = is};
}

static struct value value_of_node(struct template *t, const struct node *node)
{
	if (!node || node_is_null(node))
		return nil();
	if (node->kind == NODE_SCALAR) {
		enum scalar_type type = scalar_type(node);
		int64_t number;

		spend(t, strlen(node->text));
		if (type == SCALAR_INT && str_to_i64(node->text, INT64_MIN, INT64_MAX, &number))
			return value_number(number);
		if (type == SCALAR_BOOL)
			return value_bool(strcasecmp(node->text, "true") == 0);
		return value_text(node->text);
	}
	return (struct value){.kind = VALUE_NODE, .node = node};
}

static const char *text_of(struct template *t, const struct value *v)
{
	switch (v->kind) {
	case VALUE_TEXT:
		spend(t, strlen(v->text));
		return v->text;
	case VALUE_NUMBER:
		return workflow_arena_printf(t->context->arena, "%lld", (long long)v->number);
	case VALUE_BOOL:
		return v->number ? "true" : "false";
	case VALUE_NIL:
		return "";
	default:
		fail(t, "a map or list is not text; use toYaml", "", 0);
		return "";
	}
}

static bool is_true(const struct value *v)
{
	switch (v->kind) {
	case VALUE_TEXT:
		return *v->text;
	case VALUE_NUMBER:
	case VALUE_BOOL:
		return v->number != 0;
	case VALUE_NODE:
		return v->node->n > 0;
	default:
		return v->kind == VALUE_ROOT;
	}
}

/* ---- toYaml ---- */

static void add_scalar(struct buf *out, const struct node *node)
{
	if (scalar_type(node) == SCALAR_TEXT)
		json_add_text(out, node->text);
	else
		buf_add_str(out, *node->text ? node->text : "null");
}

/* Writes one line for each member, so that the text fits into a list or map of its kind. */
static struct value to_yaml(struct template *t, const struct value *v)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_WORKFLOW_FILE);

	if (v->kind == VALUE_TEXT)
		json_add_text(&out, v->text);
	else if (v->kind != VALUE_NODE)
		buf_add_str(&out, text_of(t, v));
	for (size_t i = 0; v->kind == VALUE_NODE && i < v->node->n; i++) {
		const struct node_entry *entry = &v->node->entries[i];

		buf_add_str(&out, i ? "\n" : "");
		if (v->node->kind == NODE_LIST) {
			buf_add_str(&out, "- ");
		} else {
			json_add_text(&out, entry->key);
			buf_add_str(&out, ": ");
		}
		json_add_tree(&out, entry->value, NULL, false, add_scalar);
	}
	if (buf_failed(&out))
		return fail(t, "the result of toYaml is too long", "", 0);
	spend(t, out.len);
	return value_text(workflow_arena_copy(t->context->arena, buf_str(&out), out.len));
}

static struct value indented(struct template *t, int64_t by, const char *text, bool newline)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_WORKFLOW_FILE);

	if (by < 0 || by > 100)
		return fail(t, "an indent must be from 0 to 100", "", 0);
	if (newline)
		buf_add_char(&out, '\n');
	for (const char *p = text;;) {
		size_t len = strcspn(p, "\n");

		for (int64_t i = 0; i < by; i++)
			buf_add_char(&out, ' ');
		buf_add(&out, p, len);
		if (!p[len])
			break;
		buf_add_char(&out, '\n');
		p += len + 1;
	}
	if (buf_failed(&out))
		return fail(t, "the indented text is too long", "", 0);
	spend(t, out.len);
	return value_text(workflow_arena_copy(t->context->arena, buf_str(&out), out.len));
}

/* ---- functions ---- */

static int64_t number_of(struct template *t, const struct value *v)
{
	int64_t n = 0;

	if (v->kind == VALUE_NUMBER || v->kind == VALUE_BOOL)
		return v->number;
	if (v->kind != VALUE_TEXT || !str_to_i64(v->text, INT64_MIN, INT64_MAX, &n))
		fail(t, "not a number", "", 0);
	return n;
}

static struct value compare(struct template *t, const char *name, const struct value *args)
{
	bool numbers = args[0].kind == VALUE_NUMBER && args[1].kind == VALUE_NUMBER;
	int order;

	if (numbers)
		order = args[0].number < args[1].number ? -1 : args[0].number > args[1].number;
	else
		order = strcmp(text_of(t, &args[0]), text_of(t, &args[1]));
	if (name[0] == 'e')
		return value_bool(order == 0);
	if (name[0] == 'n')
		return value_bool(order != 0);
	if (name[0] == 'l')
		return value_bool(order < 0 || (name[1] == 'e' && order == 0));
	return value_bool(order > 0 || (name[1] == 'e' && order == 0));
}

static struct value arithmetic(
	struct template *t, const char *name, const struct value *args, size_t n)
{
	int64_t result = n ? number_of(t, &args[0]) : 0;

	for (size_t i = 1; i < n; i++) {
		int64_t x = number_of(t, &args[i]);
		bool over = *name == 'a'   ? __builtin_add_overflow(result, x, &result)
			    : *name == 's' ? __builtin_sub_overflow(result, x, &result)
					   : __builtin_mul_overflow(result, x, &result);

		if (over)
			return fail(t, "a number is too large", "", 0);
	}
	return value_number(result);
}

static struct value quoted(struct template *t, const char *text, bool single)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_WORKFLOW_FILE);

	if (single)
		buf_printf(&out, "'%s'", text);
	else
		json_add_text(&out, text);
	if (buf_failed(&out))
		return fail(t, "the quoted text is too long", "", 0);
	return value_text(workflow_arena_copy(t->context->arena, buf_str(&out), out.len));
}

static struct value recased(struct template *t, const char *text, int (*to)(int c))
{
	char *copy = workflow_arena_copy(t->context->arena, text, strlen(text));

	for (char *c = copy; c && *c; c++)
		*c = (char)to((unsigned char)*c);
	return value_text(copy);
}

static struct value trimmed(struct template *t, const char *text)
{
	static const char space[] = " \t\r\n";
	size_t len;

	text += strspn(text, space);
	len = strlen(text);
	while (len && strchr(space, text[len - 1]))
		len--;
	return value_text(workflow_arena_copy(t->context->arena, text, len));
}

static const struct {
	const char *name;
	size_t min, max;
} functions[] = {{"toYaml", 1, 1}, {"indent", 2, 2}, {"nindent", 2, 2}, {"eq", 2, 2}, {"ne", 2, 2},
	{"lt", 2, 2}, {"le", 2, 2}, {"gt", 2, 2}, {"ge", 2, 2}, {"not", 1, 1},
	{"and", 1, MAX_ARGUMENTS}, {"or", 1, MAX_ARGUMENTS}, {"add", 1, MAX_ARGUMENTS},
	{"sub", 2, 2}, {"mul", 1, MAX_ARGUMENTS}, {"default", 2, 2}, {"quote", 1, 1},
	{"squote", 1, 1}, {"upper", 1, 1}, {"lower", 1, 1}, {"trim", 1, 1}};

static struct value call(struct template *t, const char *name, const struct value *args, size_t n)
{
	if (strcmp(name, "toYaml") == 0)
		return to_yaml(t, &args[0]);
	if (str_ends(name, "indent"))
		return indented(t, number_of(t, &args[0]), text_of(t, &args[1]), *name == 'n');
	if (strcmp(name, "not") == 0)
		return value_bool(!is_true(&args[0]));
	if (strlen(name) == 2 && *name != 'o')
		return compare(t, name, args);
	if (strcmp(name, "and") == 0 || strcmp(name, "or") == 0) {
		size_t i = 0;

		/* The result is the first argument that decides the truth value, else the last
		 * argument. */
		while (i + 1 < n && is_true(&args[i]) == (*name == 'a'))
			i++;
		return args[i];
	}
	if (strcmp(name, "default") == 0)
		return is_true(&args[1]) ? args[1] : args[0];
	if (str_ends(name, "quote"))
		return quoted(t, text_of(t, &args[0]), *name == 's');
	if (strcmp(name, "upper") == 0)
		return recased(t, text_of(t, &args[0]), toupper);
	if (strcmp(name, "lower") == 0)
		return recased(t, text_of(t, &args[0]), tolower);
	if (strcmp(name, "trim") == 0)
		return trimmed(t, text_of(t, &args[0]));
	return arithmetic(t, name, args, n);
}

/* ---- expressions ---- */

static void skip_space(struct template *t)
{
	t->p += strspn(t->p, " \t\r\n");
}

static bool is_name(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static size_t name_length(const char *p)
{
	return strspn(p, LETTERS_AND_DIGITS "_");
}

/* Returns true at "}}", "-}}", "|", ")" or the end of the text. */
static bool is_at_end(const struct template *t)
{
	return !*t->p || str_starts(t->p, "}}") || str_starts(t->p, "-}}") || *t->p == '|' ||
	       *t->p == ')';
}

static struct value field(struct template *t, const struct value *v, const char *name, size_t len)
{
	const struct workflow_resources *res = t->context->resources;

	if (!t->active) /* `.` has no value in a skipped block */
		return nil();
	if (v->kind == VALUE_ROOT) {
		if (len == 3 && strncasecmp(name, "job", len) == 0)
			return value_of_node(t, t->context->job);
		if (len == 4 && strncasecmp(name, "step", len) == 0)
			return value_of_node(t, t->context->step);
		return fail(t, "the top level has only .Job and .Step, not", name, len);
	}
	if (v->kind == VALUE_NIL)
		return nil();
	if (v->kind != VALUE_NODE || v->node->kind != NODE_MAP)
		return fail(t, "this value has no field", name, len);
	if (v->node == node_get(t->context->job, "resources")) {
		if (len == 4 && strncasecmp(name, "gpus", len) == 0)
			return value_number(res->gpus.value);
		if (len == 11 && strncasecmp(name, "cpusPerTask", len) == 0)
			return value_number(res->cpus_per_task.value);
		if (len == 9 && strncasecmp(name, "memPerCpu", len) == 0)
			return value_number(res->mem_per_cpu.value);
		if (len == 5 && strncasecmp(name, "tasks", len) == 0)
			return value_number(res->tasks.value);
	}
	spend(t, v->node->n);
	for (size_t i = 0; i < v->node->n; i++) {
		const char *key = v->node->entries[i].key;

		if (strlen(key) == len && strncasecmp(key, name, len) == 0)
			return value_of_node(t, v->node->entries[i].value);
	}
	return nil();
}

/* Reads ".A.B" after a value. */
static struct value fields(struct template *t, struct value v)
{
	while (*t->p == '.' && is_name(t->p[1])) {
		size_t len = name_length(t->p + 1);

		v = field(t, &v, t->p + 1, len);
		t->p += 1 + len;
	}
	return v;
}

static struct variable *find_variable(struct template *t, const char *name, size_t len)
{
	for (size_t i = t->n_variables; i-- > 0;) {
		if (strlen(t->variables[i].name) == len &&
			strncmp(t->variables[i].name, name, len) == 0)
			return &t->variables[i];
	}
	return NULL;
}

static struct value literal_text(struct template *t)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	char quote_mark = *t->p++;

	for (; *t->p && *t->p != quote_mark; t->p++) {
		if (*t->p == '\\' && quote_mark == '"' && t->p[1]) {
			t->p++;
			buf_add_char(&out, *t->p == 'n' ? '\n' : *t->p == 't' ? '\t' : *t->p);
		} else {
			buf_add_char(&out, *t->p);
		}
	}
	if (!*t->p || buf_failed(&out))
		return fail(t, "a quoted text does not end", "", 0);
	t->p++;
	return value_text(workflow_arena_copy(t->context->arena, buf_str(&out), out.len));
}

static struct value pipeline(struct template *t);

static struct value variable(struct template *t)
{
	size_t len = name_length(t->p + 1);
	const struct variable *found;

	t->p++;
	if (!len)
		return fields(t, (struct value){.kind = VALUE_ROOT});
	found = find_variable(t, t->p, len);
	if (!found)
		return fail(t, "unknown variable", t->p - 1, len + 1);
	t->p += len;
	return fields(t, found->value);
}

static bool is_literal(const char *p, size_t len, struct value *out)
{
	static const struct variable literals[] = {{"true", {.kind = VALUE_BOOL, .number = 1}},
		{"false", {.kind = VALUE_BOOL}}, {"nil", {.kind = VALUE_NIL}}};

	for (size_t i = 0; i < ARRAY_SIZE(literals); i++) {
		if (strlen(literals[i].name) == len && memcmp(p, literals[i].name, len) == 0) {
			*out = literals[i].value;
			return true;
		}
	}
	return false;
}

static struct value operand(struct template *t)
{
	struct value v;
	size_t len;

	skip_space(t);
	len = name_length(t->p);
	if (*t->p == '(') {
		t->p++;
		if (++t->depth > MAX_DEPTH)
			return fail(t, "the nesting is too deep", "", 0);
		v = pipeline(t);
		t->depth--;
		if (*t->p != ')')
			return fail(t, "a `)` is missing", "", 0);
		t->p++;
		return fields(t, v);
	}
	if (*t->p == '$')
		return variable(t);
	if (*t->p == '"' || *t->p == '`')
		return literal_text(t);
	if (*t->p == '.') {
		if (is_name(t->p[1]))
			return fields(t, t->dot);
		t->p++;
		return t->dot;
	}
	if (isdigit((unsigned char)*t->p) || (*t->p == '-' && isdigit((unsigned char)t->p[1]))) {
		char *end;
		int64_t n = strtoll(t->p, &end, 10);

		t->p = end;
		return value_number(n);
	}
	if (is_literal(t->p, len, &v)) {
		t->p += len;
		return v;
	}
	return fail(t, "unsupported part of Go's templates:", t->p, len ? len : strnlen(t->p, 8));
}

/* Reads a function with its arguments, or one operand; `piped` is the last argument. */
static struct value command(struct template *t, const struct value *piped)
{
	struct value args[MAX_ARGUMENTS + 1], v;
	const char *name;
	size_t len, n = 0, which = 0;

	skip_space(t);
	name = t->p;
	len = isalpha((unsigned char)*name) ? name_length(name) : 0;
	if (!len || is_literal(name, len, &v)) {
		v = operand(t);
		skip_space(t);
		return piped ? fail(t, "a function must follow `|`", "", 0) : v;
	}
	while (which < ARRAY_SIZE(functions) &&
		(strlen(functions[which].name) != len ||
			strncmp(functions[which].name, name, len) != 0))
		which++;
	if (which == ARRAY_SIZE(functions))
		return fail(t, "unsupported function of templates:", name, len);
	t->p += len;
	for (skip_space(t); !is_at_end(t) && !t->mistake; skip_space(t)) {
		if (n == MAX_ARGUMENTS - 1)
			return fail(t, "too many arguments for", name, len);
		args[n++] = operand(t);
	}
	if (piped)
		args[n++] = *piped;
	if (t->mistake)
		return nil();
	if (n < functions[which].min || n > functions[which].max)
		return fail(t, "wrong number of arguments for", name, len);
	return t->active ? call(t, functions[which].name, args, n) : nil();
}

static struct value pipeline(struct template *t)
{
	struct value v = command(t, NULL);

	while (!t->mistake && *t->p == '|') {
		t->p++;
		v = command(t, &v);
	}
	return v;
}

/* ---- actions ---- */

enum block_end { BLOCK_TEXT, BLOCK_ELSE, BLOCK_ELSE_IF, BLOCK_END };

static enum block_end block(struct template *t);

/* Like block(), for a part of `if` or `range`. As in Go, the variables of the part are not visible
 * after it. */
static enum block_end inner_block(struct template *t)
{
	size_t n_variables = t->n_variables;
	enum block_end end = block(t);

	t->n_variables = n_variables;
	return end;
}

/* Reads the end of an action. */
static void end_action(struct template *t)
{
	skip_space(t);
	spend(t, (size_t)(t->p - t->action));
	if (str_starts(t->p, "-}}")) {
		t->p += 3;
		skip_space(t);
	} else if (str_starts(t->p, "}}")) {
		t->p += 2;
	} else {
		fail(t, "unsupported part of Go's templates:", t->p, strnlen(t->p, 12));
	}
}

static bool takes_word(struct template *t, const char *word)
{
	size_t len = strlen(word);

	if (strncmp(t->p, word, len) != 0 || is_name(t->p[len]))
		return false;
	t->p += len;
	return true;
}

/* Reads the blocks between `if` and its `end`. */
static void if_block(struct template *t)
{
	bool outer = t->active;
	struct value v = pipeline(t);
	bool taken = is_true(&v);
	enum block_end end;

	end_action(t);
	t->active = outer && taken;
	while (!t->mistake && (end = inner_block(t)) != BLOCK_END) {
		if (end == BLOCK_TEXT) {
			fail(t, "an `end` is missing", "", 0);
			break;
		}
		t->active = outer && !taken;
		if (end == BLOCK_ELSE_IF) {
			v = pipeline(t);
			end_action(t);
			t->active = t->active && is_true(&v);
			taken |= is_true(&v);
		} else {
			taken = true;
		}
	}
	t->active = outer;
}

static void range_block(struct template *t)
{
	bool outer = t->active;
	struct value v = pipeline(t), dot = t->dot;
	size_t n = v.kind == VALUE_NODE ? v.node->n : 0;
	const char *body;

	if (v.kind != VALUE_NODE && v.kind != VALUE_NIL)
		fail(t, "`range` needs a list", "", 0);
	end_action(t);
	body = t->p;
	for (size_t i = 0; i < (n ? n : 1) && !t->mistake; i++) {
		t->p = body;
		t->active = outer && n;
		if (n)
			t->dot = value_of_node(t, v.node->entries[i].value);
		if (inner_block(t) != BLOCK_END)
			fail(t, "`range` has no `end`, or an `else`, which is not supported", "",
				0);
		if (buf_failed(t->out))
			break;
	}
	t->dot = dot;
	t->active = outer;
}

/* Reads "$x := …" or "$x = …". Returns false if this is not an assignment. */
static bool assignment(struct template *t)
{
	const char *p = t->p + 1;
	size_t len = name_length(p);
	const char *after = p + len + strspn(p + len, " \t");
	bool declares = str_starts(after, ":=");
	struct variable *v;
	struct value value;

	if (!len || (!declares && (*after != '=' || after[1] == '=')))
		return false;
	t->p = after + (declares ? 2 : 1);
	value = pipeline(t);
	if (!t->active)
		return true;
	v = declares ? NULL : find_variable(t, p, len);
	if (!v && !declares) {
		fail(t, "unknown variable", p - 1, len + 1);
	} else if (v) {
		v->value = value;
	} else if (t->n_variables == MAX_VARIABLES) {
		fail(t, "too many variables", "", 0);
	} else {
		const char *name = workflow_arena_copy(t->context->arena, p, len);

		if (name)
			t->variables[t->n_variables++] = (struct variable){name, value};
	}
	return true;
}

/* Reads an action after its "{{" or "{{-". */
static enum block_end action(struct template *t)
{
	struct value v;

	if (str_starts(t->p, "/*")) {
		const char *end = strstr(t->p, "*/");

		if (!end)
			fail(t, "a comment does not end", "", 0);
		t->p = end ? end + 2 : t->p;
		end_action(t);
		return BLOCK_TEXT;
	}
	if (takes_word(t, "end")) {
		end_action(t);
		return BLOCK_END;
	}
	if (takes_word(t, "else")) {
		skip_space(t);
		if (takes_word(t, "if"))
			return BLOCK_ELSE_IF;
		end_action(t);
		return BLOCK_ELSE;
	}
	if (++t->depth > MAX_DEPTH)
		fail(t, "the nesting is too deep", "", 0);
	if (t->mistake)
		return BLOCK_TEXT;
	if (takes_word(t, "if")) {
		if_block(t);
	} else if (takes_word(t, "range")) {
		range_block(t);
	} else {
		if (*t->p != '$' || !assignment(t)) {
			v = pipeline(t);
			if (t->active && !t->mistake)
				buf_add_str(t->out, text_of(t, &v));
		}
		end_action(t);
	}
	t->depth--;
	return BLOCK_TEXT;
}

/* Reads up to the `else` or `end` of the calling block; returns BLOCK_TEXT at the end of the
 * text. */
static enum block_end block(struct template *t)
{
	while (!t->mistake && *t->p) {
		const char *p = t->p;

		/* The next "{{", except in "${{ secrets.NAME }}", which is a reference of the
		 * workflow. */
		while ((p = strstr(p, "{{")) && p > t->p && p[-1] == '$')
			p += 2;
		const char *brace = p;
		size_t len = brace ? (size_t)(brace - t->p) : strlen(t->p);
		const char *text = t->p;
		enum block_end end;

		t->p += len;
		spend(t, len);
		if (brace) {
			t->action = brace;
			t->p += 2;
			if (*t->p == '-' && isspace((unsigned char)t->p[1])) {
				t->p++;
				while (len && isspace((unsigned char)text[len - 1]))
					len--;
			}
			skip_space(t);
		}
		if (t->active)
			buf_add(t->out, text, len);
		if (!brace)
			return BLOCK_TEXT;
		end = action(t);
		if (end != BLOCK_TEXT)
			return end;
	}
	return BLOCK_TEXT;
}

const char *template_render(
	const struct template_context *context, const char *text, struct buf *out, int *line)
{
	struct template t = {.context = context,
		.begin = text,
		.p = text,
		.action = text,
		.out = out,
		.dot = {.kind = VALUE_ROOT},
		.active = true};

	if (block(&t) != BLOCK_TEXT)
		fail(&t, "`end` or `else` without a beginning", "", 0);
	if (!t.mistake && buf_failed(out))
		t.mistake = "the result of the template is too long";
	*line = 1;
	for (const char *p = text; p < t.action; p++)
		*line += *p == '\n';
	return t.mistake;
}
