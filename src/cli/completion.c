#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "cli/options.h"
#include "base/banned.h"

static void add_case(struct buf *out, const struct command *command)
{
	const struct option_spec *o;

	buf_printf(out, "\t%s)\n\t\toptions='", command->name);
	for (size_t i = 0; (o = options_at(command, i)); i++)
		buf_printf(out, "%s--%s", i ? " " : "", o->name);
	buf_add_str(out, "'\n");
	if (command->operands && strstr(command->operands, "RUN"))
		buf_add_str(out, "\t\t"
				 "wants_run=yes\n");
	buf_add_str(out, "\t\t;;\n");
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
	for (const struct command *const *c = commands; *c; c++)
		add_case(out, *c);
	buf_add_str(out,
		"\tesac\n"
		"\tif [[ $current == -* ]]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n"
		"\telif [[ -n $wants_run ]]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$(penstock ps -a 2>/dev/null |\n"
		"\t\t\tsed '1d; s/ .*//')\" -- \"$current\")\n"
		"\telse\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
		"\tfi\n"
		"}\n"
		"complete -o filenames -F _penstock penstock\n");
}
