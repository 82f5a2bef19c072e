/* Warns of plaintext keys in a workflow file. */
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/workflow/load.h"
#include "workflow/document/diagnostics.h"
#include "workflow/document/secrets.h"

#define MOST_WARNINGS 10
#define LOWER	      "abcdefghijklmnopqrstuvwxyz"
#define LETTERS	      LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS	      "0123456789"

static const char *const password_endings[] = {"PASSWORD", "PASSWD", "PASSPHRASE"};

struct keys {
	const struct workflow *wf;
	struct diagnostics *found; /* NULL for the log */
	struct strlist warned; /* places */
	size_t more;
};

/* Warns of one key. `what` is the variable, "password" for a registry, or NULL for a key of a
 * store. `name` is the name to propose for the secret. */
static void warn(
	struct keys *k, const struct workflow_place *at, const char *what, const char *name)
{
	_cleanup_(buf_release) struct buf place = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *text = NULL;

	/* Skip a value that is not in the file: an option's value, or a generated value, which has
	 * no line. */
	if (at->option || !at->line)
		return;
	workflow_place_format(k->wf, at, &place);
	/* Warn only once if several places of the workflow use the same part of the file. */
	for (size_t i = 0; i < k->warned.n; i++) {
		if (strcmp(k->warned.items[i], buf_str(&place)) == 0)
			return;
	}
	if (k->warned.n == MOST_WARNINGS) {
		k->more++;
		return;
	}
	strlist_add(&k->warned, buf_str(&place));
	text = str_printf(
		"plaintext secret in this file%s%s%s; store it with 'penstock secret set %s' "
		"and write ${{ secrets.%s }} here",
		what ? ", in '" : "", what ? what : "", what ? "'" : "", name, name);
	if (text && k->found)
		diagnostics_add(k->found, DIAGNOSTIC_NOTE, k->wf->file, at, "%s", text);
	else if (text)
		log_warn("%s: %s", buf_str(&place), text);
}

static bool warn_of_store(struct keys *k, const struct workflow_s3 *s3)
{
	const struct workflow_credential *key = s3->secret_access_key.source == WORKFLOW_FROM_FILE
							? &s3->secret_access_key
							: &s3->service_account_key;

	if (key->source != WORKFLOW_FROM_FILE || str_ends(key->value, "***"))
		return false;
	warn(k, &key->at, NULL, "NAME");
	return true;
}

/* Returns true for "$NAME" and "${NAME}", which refer to a key that is stored elsewhere. */
static bool is_variable_reference(const char *value)
{
	bool braces = str_starts(value, "${");
	const char *end = value + 1 + braces;

	if (*value != '$')
		return false;
	end += strspn(end, LETTERS DIGITS "_");
	return braces ? strcmp(end, "}") == 0 : *end == '\0';
}

/* Returns true for the name of a password. Unlike other keys, a password may be a word, or have any
 * characters. */
static bool is_password(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(password_endings); i++) {
		size_t n = strlen(password_endings[i]);

		if (len >= n && strcasecmp(name + len - n, password_endings[i]) == 0)
			return true;
	}
	return false;
}

/* Returns true for a path to the key: "creds/account.json", "account.json", "~/.secret/token". */
static bool is_path(const char *value)
{
	const char *dot = strrchr(value, '.');
	size_t ending = dot ? strspn(dot + 1, LOWER DIGITS) : 0;

	if (*value == '~' || *value == '.' || *value == '/')
		return true;
	return dot && dot[1] >= 'a' && dot[1] <= 'z' && ending <= 5 && !dot[1 + ending];
}

/* Returns true if the value cannot be a key, despite its name: "<|endoftext|>", "disabled",
 * "$HOME/account". */
static bool is_no_key(const char *name, const char *value)
{
	size_t len = strlen(value);

	if (is_variable_reference(value))
		return true;
	if (is_password(name))
		return len && *value == '<' && value[len - 1] == '>';
	return strpbrk(value, "$<|") || is_path(value) || strspn(value, LOWER) == len;
}

static void warn_of_variables(struct keys *k, const struct workflow_env_list *env)
{
	for (size_t i = 0; i < env->n; i++) {
		const struct workflow_env *item = &env->items[i];
		const struct workflow_text *value = &item->value;
		/* A plaintext secret is shown as "***", a reference as it was written. */
		bool secret = value->shown && strcmp(value->shown, "***") == 0;

		if (!secret && (value->shown || !secret_may_be_key(item->key, value->value)))
			continue;
		if (!str_ends(value->value, "***") && !is_no_key(item->key, value->value))
			warn(k, &value->at, item->key, item->key);
	}
}

static int warn_of_step(void *cookie, const struct workflow_step *step)
{
	struct keys *k = cookie;
	const struct workflow_credential *password = &step->run.container.password;

	warn_of_variables(k, &step->run.env);
	warn_of_variables(k, &step->use.args);
	if (password->source == WORKFLOW_FROM_FILE && !str_ends(password->value, "***"))
		warn(k, &password->at, "password", "REGISTRY_PASSWORD");
	return 0;
}

void load_warn_of_keys(const struct workflow *wf, struct diagnostics *found)
{
	struct keys k = {.wf = wf, .found = found};
	bool warned = wf->output.kind == WORKFLOW_S3 && warn_of_store(&k, &wf->output.s3);

	for (size_t i = 0; !warned && i < wf->n_inputs; i++)
		warned = wf->inputs[i].kind == WORKFLOW_S3 && warn_of_store(&k, &wf->inputs[i].s3);
	warn_of_variables(&k, &wf->env);
	workflow_walk(&wf->steps, warn_of_step, &k);
	if (k.more)
		log_warn("%s: %zu more plaintext secrets", wf->file, k.more);
	strlist_release(&k.warned);
}
