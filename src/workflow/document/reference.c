#include "workflow/document/reference.h"

#include <string.h>

#include "base/cleanup.h"
#include "workflow/document/document.h"

static const char *const prefixes[] = {
	[WORKFLOW_FROM_NOWHERE] = "",
	[WORKFLOW_FROM_FILE] = "file",
	[WORKFLOW_FROM_OPTION] = "option",
	[WORKFLOW_FROM_SECRET] = "secrets",
	[WORKFLOW_FROM_ENV] = "env",
};

const char *reference_prefix(enum workflow_source source)
{
	return prefixes[source];
}

static bool parse_name(const char *s, size_t len, struct reference *out)
{
	for (size_t i = WORKFLOW_FROM_FILE; i < ARRAY_SIZE(prefixes); i++) {
		size_t n = strlen(prefixes[i]);

		if (len <= n + 1 || memcmp(s, prefixes[i], n) != 0 || s[n] != '.')
			continue;
		out->source = (enum workflow_source)i;
		out->name = s + n + 1;
		out->name_len = len - n - 1;
		/* Names of variables are words; names of fields may contain anything. */
		return i == WORKFLOW_FROM_FILE || i == WORKFLOW_FROM_OPTION ||
		       (!(*out->name >= '0' && *out->name <= '9') &&
			       strspn(out->name, LETTERS_AND_DIGITS "_") >= out->name_len);
	}
	return false;
}

int reference_find(const char *text, struct reference *out)
{
	const char *start = strstr(text, "${{");
	const char *name, *end;

	if (!start)
		return 0;
	*out = (struct reference){.start = start};
	name = start + 3;
	end = strstr(name, "}}");
	if (!end)
		return -1;
	out->end = end + 2;
	while (name < end && *name == ' ')
		name++;
	while (end > name && end[-1] == ' ')
		end--;
	return parse_name(name, (size_t)(end - name), out) ? 1 : -1;
}

bool reference_is_all(const char *text, struct reference *out)
{
	text += strspn(text, " ");
	return reference_find(text, out) == 1 && out->start == text &&
	       out->end[strspn(out->end, " ")] == '\0';
}
