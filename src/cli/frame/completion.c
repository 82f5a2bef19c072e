#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "cli/frame/options.h"
#include "workflow/native/schema.h"

/* Appends the paths of `--set` below `prefix`. Skips steps in steps and modules. */
static void add_paths(struct buf *out, const struct schema *schema, const char *prefix)
{
	for (size_t i = 0; i < schema->n; i++) {
		const struct schema_key *key = &schema->keys[i];
		_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_STRING);

		if ((key->flags & KEY_LEGACY) || strcmp(key->name, "module") == 0 ||
			(key->below == &schema_step && *prefix))
			continue;
		buf_printf(&path, "%s%s", prefix, key->name);
		if (key->kinds & KEY_VARIABLES) {
			buf_printf(out, " %s.", buf_str(&path));
		} else if (key->below) {
			buf_add_str(&path, key->kinds & KEY_LIST ? "[0]." : ".");
			add_paths(out, key->below, buf_str(&path));
		} else {
			buf_printf(out, " %s=", buf_str(&path));
		}
	}
}

void completion_bash(struct buf *out, const struct command *const *commands)
{
	buf_add_str(out,
		"# bash completion of penstock, made by `penstock --completion bash`\n"
		"_penstock()\n{\n"
		"\tlocal current=${COMP_WORDS[COMP_CWORD]} verb='' options='' wants_run='' i\n\n"
		"\tCOMPREPLY=()\n"
		"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
		"\t\t[[ ${COMP_WORDS[i]} != -* ]] && verb=${COMP_WORDS[i]} && break\n"
		"\tdone\n"
		"\tcase $verb in\n\t'')\n\t\toptions='");
	for (const struct command *const *c = commands; *c; c++)
		buf_printf(out, "%s ", (*c)->name);
	buf_add_str(out, "help version --help --version'\n"
			 "\t\t[[ $current == -* || -n $options ]] && "
			 "mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n"
			 "\t\treturn\n\t\t;;\n"
			 "\thelp)\n\t\toptions='");
	for (const struct command *const *c = commands; *c; c++)
		buf_printf(out, "%s%s", c == commands ? "" : " ", (*c)->name);
	buf_add_str(out,
		"'\n\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n"
		"\t\treturn\n\t\t;;\n");
	for (const struct command *const *c = commands; *c; c++) {
		buf_printf(out, "\t%s)\n\t\toptions='", (*c)->name);
		for (size_t i = 0; options_at(*c, i); i++)
			buf_printf(out, "%s--%s", i ? " " : "", options_at(*c, i)->name);
		buf_printf(out, "'\n%s\t\t;;\n",
			(*c)->operands && strstr((*c)->operands, "RUN") ? "\t\twants_run=yes\n"
									: "");
	}
	buf_add_str(out, "\tesac\n"
			 "\tif [[ ${COMP_WORDS[COMP_CWORD - 1]} == @(-s|--set) && "
			 "\" $options \" == *' --set '* ]]; then\n"
			 "\t\tcompopt -o nospace 2>/dev/null\n"
			 "\t\tmapfile -t COMPREPLY < <(compgen -W '");
	add_paths(out, &schema_job, "");
	buf_add_str(out,
		"' -- \"$current\")\n"
		"\telif [[ $current == -* ]]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n"
		"\telif [[ -n $wants_run ]]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$(penstock ps -a 2>/dev/null |\n"
		"\t\t\tsed -E '1d; s/^(.*[^ ])  +([0-9a-f]{12})  .*/\\1 \\2/')\" -- \"$current\")\n"
		"\telse\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
		"\tfi\n"
		"}\n"
		"complete -o filenames -F _penstock penstock\n");
}
