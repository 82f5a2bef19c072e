#include "s3/bucket/cors.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/ascii.h"
#include "s3/message/table.h"
#include "s3/message/xml.h"
#include "s3/uri.h"

#define ID_MAX 255 /* characters, as AWS documents it */

/* ---- the document ---- */

static const struct field rule_fields[] = {D("/ID", TEXT, s3_cors_rule, id),
	D("/AllowedOrigin", TEXTS, s3_cors_rule, origins),
	D("/AllowedMethod", TEXTS, s3_cors_rule, methods),
	D("/AllowedHeader", TEXTS, s3_cors_rule, headers),
	D("/ExposeHeader", TEXTS, s3_cors_rule, exposed),
	D("/MaxAgeSeconds", TEXT, s3_cors_rule, max_age), END};
static const struct table cors_table = {.what = "the CORSConfiguration",
	.strict = true,
	.roots = {"CORSConfiguration"},
	.items = {"/CORSRule"},
	.item_fields = rule_fields,
	.not_empty = true,
	ITEMS(s3_cors, rules, n, LIMIT_S3_CORS_RULES)};

bool s3_cors_method_is_valid(const char *method)
{
	static const char *const known[] = {"GET", "PUT", "HEAD", "POST", "DELETE"};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(method, known[i]) == 0)
			return true;
	return false;
}

/* Returns false if the text has a blank or a control character, which could end a header of the
 * reply. */
static bool is_line(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text <= ' ' || *text == 0x7f)
			return false;
	return true;
}

static bool check_patterns(struct s3_cors *cors, const struct s3_texts *texts, const char *element)
{
	for (size_t i = 0; i < texts->n; i++) {
		const char *text = texts->items[i], *star = strchr(text, '*');

		if (!*text || !is_line(text))
			return s3_refuse_malformed(&cors->refusal);
		if (star && strchr(star + 1, '*'))
			return s3_refuse(&cors->refusal, S3_E_INVALID_REQUEST,
				"%s \"%.64s\" can not have more than one wildcard.", element, text);
	}
	return true;
}

static bool check_rule(struct s3_cors *cors, const struct s3_cors_rule *rule)
{
	uint64_t seconds;
	size_t exposed = 0;

	if (!rule->origins.n || !rule->methods.n ||
		(rule->max_age && !str_to_u64(rule->max_age, 0, INT32_MAX, &seconds)))
		return s3_refuse_malformed(&cors->refusal);
	if (rule->id && strlen(rule->id) > ID_MAX)
		return s3_refuse(&cors->refusal, S3_E_INVALID_REQUEST,
			"The ID of a CORS rule can not have more than %d characters.", ID_MAX);
	for (size_t i = 0; i < rule->methods.n; i++)
		if (!s3_cors_method_is_valid(rule->methods.items[i]))
			return s3_refuse(&cors->refusal, S3_E_INVALID_REQUEST,
				"Found unsupported HTTP method in CORS config. Unsupported method "
				"is %.40s",
				rule->methods.items[i]);
	for (size_t i = 0; i < rule->exposed.n; i++) {
		const char *name = rule->exposed.items[i];

		exposed += strlen(name) + 2;
		if (exposed > LIMIT_S3_CORS_EXPOSED)
			return s3_refuse(&cors->refusal, S3_E_INVALID_REQUEST,
				"The ExposeHeaders of a CORS rule can not have more than %zu "
				"bytes.",
				LIMIT_S3_CORS_EXPOSED);

		if (strchr(name, '*'))
			return s3_refuse(&cors->refusal, S3_E_INVALID_REQUEST,
				"ExposeHeader \"%.64s\" contains wildcard. We currently do not "
				"support wildcard for ExposeHeader.",
				name);
		if (!*name || !is_line(name))
			return s3_refuse_malformed(&cors->refusal);
	}
	return check_patterns(cors, &rule->origins, "AllowedOrigin") &&
	       check_patterns(cors, &rule->headers, "AllowedHeader");
}

void s3_cors_release(struct s3_cors *message)
{
	arena_release(&message->arena);
	*message = (struct s3_cors){0};
}

int s3_cors_parse(const char *xml, size_t len, struct s3_cors *out, struct penstock_error *err)
{
	int rc = table_parse(&cors_table, out, xml, len, err);
	bool valid = true;

	if (rc < 0)
		return s3_refuse_table(&out->refusal, rc);
	for (size_t i = 0; valid && i < out->n; i++)
		valid = check_rule(out, &out->rules[i]);
	if (valid)
		return 0;
	arena_release(&out->arena);
	out->rules = NULL;
	out->n = 0;
	return s3_refusal_error(&out->refusal, cors_table.what, err);
}

static void write_texts(struct buf *out, const char *element, const struct s3_texts *texts)
{
	for (size_t i = 0; i < texts->n; i++)
		xml_element(out, element, texts->items[i]);
}

void s3_cors_write(struct buf *out, const struct s3_cors *cors)
{
	xml_declaration(out);
	xml_open_root(out, "CORSConfiguration");
	for (size_t i = 0; i < cors->n; i++) {
		const struct s3_cors_rule *rule = &cors->rules[i];

		xml_open(out, "CORSRule");
		xml_element(out, "ID", rule->id);
		write_texts(out, "AllowedMethod", &rule->methods);
		write_texts(out, "AllowedOrigin", &rule->origins);
		write_texts(out, "AllowedHeader", &rule->headers);
		xml_element(out, "MaxAgeSeconds", rule->max_age);
		write_texts(out, "ExposeHeader", &rule->exposed);
		xml_close(out, "CORSRule");
	}
	xml_close(out, "CORSConfiguration");
}

/* ---- the rule of a request ---- */

static bool same(const char *a, const char *b, size_t n, bool any_case)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i] && !(any_case && ascii_lower(a[i]) == ascii_lower(b[i])))
			return false;
	return true;
}

/* Compares a text with a pattern that may have one '*'. */
static bool fits(const char *pattern, struct span text, bool any_case)
{
	const char *star = strchr(pattern, '*');
	size_t before = star ? (size_t)(star - pattern) : strlen(pattern);
	size_t after = star ? strlen(star + 1) : 0;

	if (star ? text.n < before + after : text.n != before)
		return false;
	return same(pattern, text.p, before, any_case) &&
	       (!star || same(star + 1, text.p + text.n - after, after, any_case));
}

static const char *find_pattern(const struct s3_texts *patterns, struct span text, bool any_case)
{
	for (size_t i = 0; i < patterns->n; i++)
		if (fits(patterns->items[i], text, any_case))
			return patterns->items[i];
	return NULL;
}

/* Gets the next name of a list of headers. Returns false at the end. */
static bool next_name(const char **at, struct span *name)
{
	const char *p = *at + strspn(*at, " \t,");

	name->p = p;
	name->n = strcspn(p, ",");
	*at = p + name->n;
	while (name->n && (p[name->n - 1] == ' ' || p[name->n - 1] == '\t'))
		name->n--;
	return name->n > 0;
}

static bool allows_headers(const struct s3_cors_rule *rule, const char *list)
{
	struct span name;

	for (const char *at = list ? list : ""; next_name(&at, &name);)
		if (!find_pattern(&rule->headers, name, true))
			return false;
	return true;
}

const struct s3_cors_rule *s3_cors_match(
	const struct s3_cors *cors, const struct s3_cors_request *req, const char **origin)
{
	const struct span from = {req->origin, strlen(req->origin)};
	const struct span method = {req->method, strlen(req->method)};

	for (size_t i = 0; i < cors->n; i++) {
		const struct s3_cors_rule *rule = &cors->rules[i];
		const char *pattern = find_pattern(&rule->origins, from, false);

		if (!pattern || !find_pattern(&rule->methods, method, false) ||
			!allows_headers(rule, req->headers))
			continue;
		*origin = strcmp(pattern, "*") == 0 ? "*" : req->origin;
		return rule;
	}
	return NULL;
}

void s3_cors_join(struct buf *out, const struct s3_texts *texts)
{
	for (size_t i = 0; i < texts->n; i++)
		buf_printf(out, "%s%s", i ? ", " : "", texts->items[i]);
}

void s3_cors_join_names(struct buf *out, const char *list)
{
	struct span name;
	bool more = false;

	while (next_name(&list, &name)) {
		buf_add_str(out, more ? ", " : "");
		for (size_t i = 0; i < name.n; i++)
			buf_add_char(out, ascii_lower(name.p[i]));
		more = true;
	}
}
