/* Completion: the shells pass the words of the command line, and get the words that may come
 * next. */
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "cli/frame/options.h"
#include "workflow/native/schema.h"

/* The line that makes a shell offer names of files, too; unlike other lines, it has no word. */
#define FILES_LINE "\tfiles\n"

struct completion {
	struct buf *out;
	const char *current; /* the beginning of the word to complete */
	const char *before; /* text in front of each candidate: "--on=" */
};

static void offer(void *cookie, const char *word, const char *says)
{
	const struct completion *c = cookie;

	/* Print only the first line of a description. Skip a word with a blank, which bash would
	 * split in two. */
	if (str_starts(word, c->current) && !strpbrk(word, " \t\n"))
		buf_printf(c->out, "%s%s\t%.*s\n", c->before, word, (int)strcspn(says, "\n"), says);
}

/* Offers each of "WORD|WORD". */
static void offer_words(const struct completion *c, const char *words, const char *says)
{
	while (*words) {
		size_t len = strcspn(words, "|");
		_cleanup_free_ char *word = strndup(words, len);

		if (word)
			offer((void *)c, word, says);
		words += len + (words[len] == '|');
	}
}

/* Offers the paths of `--set` below `prefix`. Skips modules, and steps within other steps. */
static void offer_paths(const struct completion *c, const struct schema *schema, const char *prefix)
{
	for (size_t i = 0; i < schema->n; i++) {
		const struct schema_key *key = &schema->keys[i];
		_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_STRING);

		if ((key->flags & KEY_LEGACY) || strcmp(key->name, "module") == 0 ||
			(key->below == &schema_step && *prefix))
			continue;
		buf_printf(&path, "%s%s", prefix, key->name);
		if (key->below && !(key->kinds & KEY_VARIABLES)) {
			buf_add_str(&path, key->kinds & KEY_LIST ? "[0]." : ".");
			offer_paths(c, key->below, buf_str(&path));
			continue;
		}
		buf_add_char(&path, key->kinds & KEY_VARIABLES ? '.' : '=');
		offer((void *)c, buf_str(&path), "");
	}
}

static void offer_verbs(const struct completion *c, const struct command *const *commands)
{
	for (; *commands; commands++)
		offer((void *)c, (*commands)->name, (*commands)->summary);
	offer((void *)c, "help", "show the help of a verb");
	offer((void *)c, "version", "print the version");
}

static void offer_options(const struct completion *c, const struct command *command)
{
	const struct option_spec *o;

	for (size_t i = 0; (o = options_at(command, i)); i++) {
		_cleanup_free_ char *word = str_printf("--%s", o->name);

		if (word)
			offer((void *)c, word, o->help);
	}
}

/* ---- operands and values ---- */

static void (*list_names)(enum cli_names kind, cli_name_fn *fn, void *cookie);

void cli_set_names(void (*list)(enum cli_names kind, cli_name_fn *fn, void *cookie))
{
	list_names = list;
}

void cli_each_name(enum cli_names kind, cli_name_fn *fn, void *cookie)
{
	if (list_names)
		list_names(kind, fn, cookie);
}

static bool has_word(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = words; (at = strstr(at, word)); at++) {
		if ((at == words || !strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", at[-1])) &&
			!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", at[len] ? at[len] : ' '))
			return true;
	}
	return false;
}

/* Offers the values of one placeholder: "RUN|:TAG|DIR", "list|get", "WORKFLOW...". */
static void offer_values(const struct completion *c, const char *placeholder, size_t len)
{
	_cleanup_free_ char *text = strndup(placeholder, len);
	_cleanup_(buf_release) struct buf words = BUF_INIT(LIMIT_STRING);
	bool run, tag, colon;

	if (!text)
		return;
	run = has_word(text, "RUN");
	tag = has_word(text, "TAG");
	colon = strstr(text, ":TAG") != NULL;
	/* Words in lower case are literal words. */
	for (const char *at = text; *at; at += strcspn(at, "|"), at += *at == '|') {
		size_t n = strcspn(at, "|");

		at += strspn(at, "[");
		n = strcspn(at, "|].");
		if (n && strspn(at, "abcdefghijklmnopqrstuvwxyz-") == n)
			buf_printf(&words, "%s%.*s", words.len ? "|" : "", (int)n, at);
	}
	if (words.len)
		offer_words(c, buf_str(&words), "");
	if (run)
		cli_each_name(CLI_NAMES_RUNS, offer, (void *)c);
	if (tag)
		cli_each_name(colon ? CLI_NAMES_COLON_TAGS : CLI_NAMES_TAGS, offer, (void *)c);
	if (!run && !tag && !words.len && !str_starts(text + strspn(text, "["), "s3://"))
		buf_add_str(c->out, FILES_LINE);
}

/* Offers operand `i`. A spec such as "add TAG RUN | list | rm TAG" has alternatives; the first
 * operand selects one of them. */
static void offer_operand(
	const struct completion *c, const struct command *command, const char *first, size_t i)
{
	const char *at = command->operands ? command->operands : "";

	for (const char *next; *at; at = next) {
		const char *end = strstr(at, " | ");
		size_t len = end ? (size_t)(end - at) : strlen(at), k = 0;
		size_t head = strcspn(at, " ");

		next = at + len + (end ? 3 : 0);
		/* Skip alternatives that begin with a literal word other than `first`. */
		if (i && end != at && strstr(command->operands, " | ") &&
			(strlen(first) != head || strncmp(at, first, head) != 0) && *at >= 'a' &&
			*at <= 'z')
			continue;
		for (const char *word = at; word < at + len;) {
			size_t n = strcspn(word, " ");
			bool last = word + n >= at + len;

			if (n > (size_t)(at + len - word))
				n = (size_t)(at + len - word);
			if (k == i || (last && k < i && strstr(word, "..."))) {
				offer_values(c, word, n);
				break;
			}
			k++;
			word += n + 1;
		}
	}
}

/* Offers the values of an option. The table lacks the values of --set and of the common options. */
static void offer_argument(const struct completion *c, const struct option_spec *option)
{
	if (strcmp(option->name, "set") == 0)
		offer_paths(c, &schema_job, "");
	else if (strcmp(option->name, "log-level") == 0)
		offer_words(c, "debug|info|warn|error|quiet", "");
	else if (strcmp(option->name, "color") == 0)
		offer_words(c, "auto|always|never", "");
	else if (strchr(option->argument, '|') &&
		 !strpbrk(option->argument, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
		offer_words(c, option->argument, "");
	else if (has_word(option->argument, "RUN"))
		cli_each_name(CLI_NAMES_RUNS, offer, (void *)c);
	else if (has_word(option->argument, "FILE") || has_word(option->argument, "DIR") ||
		 has_word(option->argument, "PATH"))
		buf_add_str(c->out, FILES_LINE);
}

/* Returns the option that `word` names if the option takes a separate argument; NULL otherwise. */
static const struct option_spec *option_of(const struct command *command, const char *word)
{
	const struct option_spec *o;

	if (*word != '-')
		return NULL;
	for (size_t i = 0; (o = options_at(command, i)); i++) {
		if (o->argument && ((word[1] == '-' && strcmp(word + 2, o->name) == 0) ||
					   (o->letter && word[1] == o->letter && !word[2])))
			return o;
	}
	return NULL;
}

void completion_words(
	struct buf *out, const struct command *const *commands, char *const *words, size_t n)
{
	struct completion c = {out, n ? words[n - 1] : "", ""};
	const struct command *command = NULL;
	const struct option_spec *option = NULL;
	const char *verb = NULL, *first = "", *equals;
	size_t operands = 0;

	for (size_t i = 0; i + 1 < n; i++) {
		bool value = option != NULL;

		option = value ? NULL : option_of(command, words[i]);
		if (value || option || *words[i] == '-')
			continue;
		if (!verb) {
			verb = words[i];
			command = command_find(commands, verb);
		} else if (operands++ == 0) {
			first = words[i];
		}
	}
	equals = strchr(c.current, '=');
	if (option) {
		offer_argument(&c, option);
	} else if (*c.current == '-' && equals) {
		_cleanup_free_ char *name = strndup(c.current, (size_t)(equals - c.current));
		_cleanup_free_ char *before = strndup(c.current, (size_t)(equals + 1 - c.current));

		option = name && before ? option_of(command, name) : NULL;
		c.current = equals + 1;
		c.before = before;
		if (option)
			offer_argument(&c, option);
	} else if (*c.current == '-') {
		offer_options(&c, command);
	} else if (!verb || strcmp(verb, "help") == 0) {
		offer_verbs(&c, commands);
	} else if (command) {
		offer_operand(&c, command, first, operands);
	}
}

/* ---- the scripts ---- */

static const char bash[] =
	"# bash completion of penstock, made by `penstock --completion bash`\n"
	"_penstock()\n"
	"{\n"
	"\tlocal words=() line word files='' current=${COMP_WORDS[COMP_CWORD]} before=''\n"
	"\n"
	"\t# Readline also splits a line at '=' and ':'. Here both are part of a word.\n"
	"\tread -ra words <<<\"${COMP_LINE:0:COMP_POINT}\"\n"
	"\t[[ ${COMP_LINE:0:COMP_POINT} == *[[:blank:]] ]] && words+=('')\n"
	"\tword=${words[${#words[@]} - 1]}\n"
	"\tbefore=${word%\"$current\"}\n"
	"\t[[ $current == [=:] ]] && before=$word\n"
	"\tCOMPREPLY=()\n"
	"\twhile IFS= read -r line; do\n"
	"\t\tif [[ $line == $'\\t'* ]]; then\n"
	"\t\t\tfiles=yes\n"
	"\t\t\tcontinue\n"
	"\t\tfi\n"
	"\t\tline=${line%%$'\\t'*}\n"
	"\t\tCOMPREPLY+=(\"${line#\"$before\"}\")\n"
	"\tdone < <(\"${COMP_WORDS[0]}\" --complete \"${words[@]:1}\" 2>/dev/null)\n"
	"\tif [[ -n $files ]]; then\n"
	"\t\tcompopt -o filenames 2>/dev/null\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
	"\telif [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=.] ]]; then\n"
	"\t\tcompopt -o nospace 2>/dev/null\n"
	"\tfi\n"
	"}\n"
	"complete -F _penstock penstock\n";

static const char zsh[] =
	"#compdef penstock\n"
	"# zsh completion of penstock, made by `penstock --completion zsh`\n"
	"_penstock()\n"
	"{\n"
	"\tlocal -a found joined\n"
	"\tlocal line files word\n"
	"\n"
	"\tfor line in \"${(@f)$(\"${words[1]}\" --complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\"; do\n"
	"\t\tif [[ $line == $'\\t'* ]]; then\n"
	"\t\t\tfiles=yes\n"
	"\t\telif [[ -n $line ]]; then\n"
	"\t\t\tword=${line%%$'\\t'*}\n"
	"\t\t\tif [[ $word == *[=.] ]]; then\n"
	"\t\t\t\tjoined+=(\"$word\")\n"
	"\t\t\telse\n"
	"\t\t\t\tfound+=(\"${word//:/\\\\:}:${line#*$'\\t'}\")\n"
	"\t\t\tfi\n"
	"\t\tfi\n"
	"\tdone\n"
	"\t(( ${#found} )) && _describe -t penstock penstock found\n"
	"\t(( ${#joined} )) && compadd -S '' -a joined\n"
	"\t[[ -n $files ]] && _files\n"
	"}\n"
	"# If compinit loads this file, the file is the body of the function.\n"
	"if [[ ${funcstack[1]} == _penstock ]]; then\n"
	"\t_penstock \"$@\"\n"
	"else\n"
	"\tcompdef _penstock penstock\n"
	"fi\n";

static const char fish[] = "# fish completion of penstock, made by `penstock --completion fish`\n"
			   "function __penstock_complete\n"
			   "\tset -l words (commandline -opc) (commandline -ct)\n"
			   "\tset -l found ($words[1] --complete $words[2..-1] 2>/dev/null)\n"
			   "\tif contains -- \\tfiles $found\n"
			   "\t\t__fish_complete_path (commandline -ct)\n"
			   "\telse\n"
			   "\t\tprintf '%s\\n' $found\n"
			   "\tend\n"
			   "end\n"
			   "complete -c penstock -f -a '(__penstock_complete)'\n";

const char *completion_script(const char *shell)
{
	static const struct {
		const char *shell, *script;
	} scripts[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

	for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
		if (strcmp(scripts[i].shell, shell) == 0)
			return scripts[i].script;
	}
	return NULL;
}
