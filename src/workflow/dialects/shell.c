/* The shell around the commands of other runners' steps. */
#include "workflow/dialects/shell.h"

#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"

/* ---- the environment of a step ---- */

/* Machines and images of other runners have `pip`, `python` and `uv`, which can install any
 * package. These lines put a virtual environment of the run in their place. $PENSTOCK_PYTHON is the
 * version of Python. */
static const char python_lines[] =
	"if [ -z \"$VIRTUAL_ENV$CONDA_PREFIX\" ]; then\n"
	"\t( flock 9; [ -e \"$STORAGE_PATH/venv/bin/python\" ] ||\n"
	"\t\t\"python$PENSTOCK_PYTHON\" -m venv --system-site-packages \"$STORAGE_PATH/venv\" ) "
	"9>\"$STORAGE_PATH/.venv\"\n"
	"\tif [ -e \"$STORAGE_PATH/venv/bin/python\" ]; then "
	"export VIRTUAL_ENV=\"$STORAGE_PATH/venv\" PATH=\"$STORAGE_PATH/venv/bin:$PATH\"; fi\n"
	"fi\n"
	"if ! command -v uv >/dev/null; then uv() { local python=python3 dir=.venv; case $1 in\n"
	"\tpip) shift; python -m pip \"${@/--system/--no-input}\";;\n"
	"\tvenv) while shift; [ $# -gt 0 ]; do case $1 in -p|--python) python=python${2#python}; "
	"shift;; --python=*) python=${1#*=} python=python${python#python};; -*) ;; *) dir=$1;; esac; "
	"done; \"$python\" -m venv \"$dir\";;\n"
	"\t*) echo 'uv is not installed' >&2; return 127;; esac; }; fi\n";

/* Other runners start each run on a new machine. Here ~/.bashrc begins as an empty file of the run:
 * later steps read the lines that a step appends, and the user's own file does not change. */
static const char bashrc_lines[] =
	"if [ -L ~/.bashrc ]; then rm ~/.bashrc; fi; : >>~/.bashrc; . ~/.bashrc\n";

/* `conda activate` needs a shell function that conda.sh defines. */
static const char conda_lines[] =
	"for base in \"$(conda info --base 2>/dev/null)\" ~/miniconda3 ~/anaconda3 ~/miniforge3 "
	"/opt/conda; do\n"
	"\tif [ -n \"$base\" ] && [ -f \"$base/etc/profile.d/conda.sh\" ]; then "
	". \"$base/etc/profile.d/conda.sh\"; break; fi\n"
	"done\n";

/* Images have no sudo: for root, a function of that name runs the command. */
static const char sudo_lines[] =
	"if [ \"$(id -u)\" = 0 ] && ! command -v sudo >/dev/null; then\n"
	"\tsudo() { while case $1 in -*|*=*) ;; *) false; esac; do case $1 in *=*) export \"$1\";; "
	"esac; shift; done; \"$@\"; }\n"
	"\texport -f sudo\n"
	"fi\n";

/* ---- files at their targets ---- */

/*
 * `penstock_put FROM TO HOW` makes TO a link to FROM. If HOW is copy and both are directories, TO
 * keeps its files, and gets a link for each entry of FROM. The entries of the run's home are links
 * to those of the user's home. Before penstock_put adds an entry to a directory behind such a link,
 * penstock_own replaces the link with a directory of links, so that the user's directory does not
 * change.
 */
static const char put_lines[] =
	"penstock_links() { local e n; for e in \"$1\"/* \"$1\"/.[!.]*; do n=$2/${e##*/}; "
	"if [ -e \"$e\" ] && [ ! -e \"$n\" ] && [ ! -L \"$n\" ]; then ln -s -- \"$e\" \"$n\"; fi; done; "
	"}\n"
	"penstock_own() { if [ -z \"$penstock_home\" ]; then mkdir -p -- \"$1/\"; return; fi\n"
	"\tcase $1 in \"$penstock_home\"/*) penstock_own \"${1%/*}\";; esac\n"
	"\tif [ -L \"$1\" ]; then local real; real=$(readlink -f -- \"$1\"); rm -- \"$1\"; "
	"mkdir -- \"$1\"; penstock_links \"$real\" \"$1\"; else mkdir -p -- \"$1/\"; fi; }\n"
	"penstock_put() { local from to e; to=$2\n"
	"\tcase $1 in \"$DEEPSQUARE_OUTPUT\"/*) mkdir -p -- \"$1\";; esac; "
	"from=$(readlink -f -- \"$1\")\n"
	"\tcase $to in */) to=${to%/}; if [ -f \"$from\" ]; then to=$to/${from##*/}; fi;; esac\n"
	"\tpenstock_own \"${to%/*}\"\n"
	"\tif [ \"$(readlink -f -- \"$to\")\" = \"$from\" ]; then return; fi\n"
	"\tif [ \"$3\" = copy ] && [ -d \"$from\" ] && [ -d \"$to\" ]; then penstock_own \"$to\"\n"
	"\t\tfor e in \"$from\"/* \"$from\"/.[!.]*; do if [ -e \"$e\" ]; then "
	"penstock_put \"$e\" \"$to/${e##*/}\" copy; fi; done\n"
	"\telse if [ -d \"$to\" ] && [ ! -L \"$to\" ] && ! rmdir -- \"$to\" "
	"&& [ -d \"$from\" ]; then "
	"echo \"cannot mount '$1' at '$to': the directory has files\" >&2; exit 1; fi\n"
	"\tln -sfn -- \"$from\" \"$to\"; fi; }\n";

/* The home has a link for each entry of the user's home. */
static const char home_lines[] =
	"penstock_home=$STORAGE_PATH/home; mkdir -p \"$penstock_home\"\n"
	"if [ \"$HOME\" != \"$penstock_home\" ]; then penstock_links \"$HOME\" \"$penstock_home\"; fi\n"
	"export HOME=\"$penstock_home\"\n";

/*
 * Mounts in a namespace of the step: $1 is a shell and $2 its command, followed by FROM TO HOW for
 * each mount. If a target does not exist, the nearest existing directory above it is replaced,
 * within the namespace, by a new directory with a mount for each entry. The target is created in
 * the new directory, so the machine itself does not change. A missing target below the working
 * directory is created in place. All sources are mounted elsewhere first, because a target may
 * cover a source. HOW is copy, mount or ro; ro targets become read-only at the end, because a mount
 * from a read-only place is read-only, too.
 */
static const char mount_lines[] =
	"set -e\n"
	"mount --make-rprivate /\n"
	"root=$STORAGE_PATH/places; mkdir -p \"$root\"; ours=$'\\n'; here=$PWD; locked=()\n"
	"program=$1 body=$2; shift 2\n"
	"own() { local p=$root/${1//\\//_} e n\n"
	"\tmkdir -p \"$p\"; mount --bind \"$p\" \"$p\"; mount --make-unbindable \"$p\"\n"
	"\tfor e in \"${1%/}\"/* \"${1%/}\"/.[!.]*; do n=$p/${e##*/}\n"
	"\t\tif [ -L \"$e\" ]; then if [ ! -L \"$n\" ]; then cp -P \"$e\" \"$n\"; fi\n"
	"\t\telif [ -d \"$e\" ]; then mkdir -p \"$n\"; mount --rbind \"$e\" \"$n\"\n"
	"\t\telif [ -e \"$e\" ]; then : >>\"$n\"; mount --bind \"$e\" \"$n\"; fi\n"
	"\tdone\n"
	"\tif [ \"$1\" = / ]; then cd \"$p\"; pivot_root . .; umount -l .; cd /\n"
	"\telse mount --move \"$p\" \"$1\"; fi\n"
	"\tours=$ours$1$'\\n'; }\n"
	"stage() { case $1 in \"$DEEPSQUARE_OUTPUT\"/*) mkdir -p \"$1\";; esac\n"
	"\t[ -e \"$1\" ] || { echo \"cannot mount $1: it is not on this machine\" >&2; exit 1; }\n"
	"\tlocal from; from=$(readlink -f \"$1\"); staged=$root/.from/$2/${from##*/}\n"
	"\tif [ \"$from\" = / ]; then staged=$root/.from/$2/root; fi; mkdir -p \"${staged%/*}\"\n"
	"\tif [ -d \"$from\" ]; then mkdir -p \"$staged\"; else : >>\"$staged\"; fi\n"
	"\tmount --bind \"$from\" \"$staged\"; }\n"
	"place() { local from=$1 to=$2 a d e\n"
	"\tcase $to in */) to=${to%/}; if [ -f \"$from\" ]; then to=$to/${from##*/}; fi;; esac\n"
	"\tif [ -d \"$to\" ] && [ -d \"$from\" ] && [ \"$3\" = copy ]; then\n"
	"\t\tcase $ours in *$'\\n'\"$to\"$'\\n'*) ;; *) own \"$to\";; esac\n"
	"\t\tfor e in \"$from\"/* \"$from\"/.[!.]*; do if [ -e \"$e\" ]; then "
	"place \"$e\" \"$to/${e##*/}\" copy; fi; done\n"
	"\t\treturn\n"
	"\tfi\n"
	"\tif [ ! -e \"$to\" ]; then a=${to%/*}; while [ -n \"$a\" ] && [ ! -e \"$a\" ]; do a=${a%/*}; "
	"done\n"
	"\t\ta=${a:-/}; case $to in \"$here\"/*) ;; *) "
	"case $ours in *$'\\n'\"$a\"$'\\n'*) ;; *) own \"$a\";; esac;; esac\n"
	"\t\td=${to%/*}; mkdir -p \"$d/\"\n"
	"\t\twhile [ -n \"$d\" ] && [ \"$d\" != \"$a\" ]; do ours=$ours$d$'\\n'; d=${d%/*}; done\n"
	"\t\tif [ -d \"$from\" ]; then mkdir -p \"$to\"; else : >>\"$to\"; fi\n"
	"\tfi\n"
	"\tmount --bind \"$from\" \"$to\"; if [ \"$3\" = ro ]; then locked+=(\"$to\"); fi; }\n"
	"places=()\n"
	"while [ $# -gt 2 ]; do stage \"$1\" $#; places+=(\"$staged\" \"$2\" \"$3\"); shift 3; done\n"
	"set -- \"${places[@]}\"\n"
	"while [ $# -gt 2 ]; do place \"$1\" \"$2\" \"$3\"; shift 3; done\n"
	"for to in \"${locked[@]}\"; do mount -o remount,bind,ro \"$to\"; done\n"
	"cd \"$here\"\n"
	"exec \"$program\" -c \"$body\"";

void shell_place(struct shell *s, const char *from, const char *target, enum shell_how how)
{
	static const char *const words[] = {"copy", "mount"};
	bool at_home = *target == '~' && (!target[1] || target[1] == '/');
	const char *quoted = dialect_quoted(
		s->rd, at_home ? target + 1 + (target[1] == '/') : target);

	if (!quoted)
		return;
	if (at_home && !s->contained)
		s->own_home = true;
	if (at_home)
		buf_printf(&s->links, "penstock_put \"%s\" \"$HOME/\"%s %s\n", from, quoted,
			words[how]);
	else if (*target == '/' && !s->contained)
		buf_printf(&s->mounts, " \"%s\" %s %s", from, quoted, words[how]);
	else
		buf_printf(&s->links, "penstock_put \"%s\" %s%s %s\n", from,
			*target == '/' ? "" : "\"$PWD/\"", quoted, words[how]);
}

struct node *shell_input(struct shell *s, struct node *inputs, const char *target,
	enum shell_how how, const struct workflow_place *at)
{
	struct workflow_arena *arena = s->rd->arena;
	struct node *input = native_map(s->rd, inputs, NULL, at);
	size_t i = inputs ? inputs->n - 1 : 0;

	native_text(s->rd, input, "path", workflow_arena_printf(arena, "mounts/%zu", i), at);
	native_text(s->rd, input, "link", workflow_arena_printf(arena, ".mounts/%zu", i), at);
	shell_place(
		s, workflow_arena_printf(arena, "$STORAGE_PATH/work/.mounts/%zu", i), target, how);
	return input;
}

void shell_bind(struct shell *s, const char *host, const char *target, bool read_only)
{
	const char *from = dialect_quoted(s->rd, host), *to = dialect_quoted(s->rd, target);

	if (!from || !to || (strcmp(host, target) == 0 && !read_only))
		return;
	buf_printf(&s->mounts, " %s %s%s %s", from, *target == '/' ? "" : "\"$PWD\"/", to,
		read_only ? "ro" : "mount");
}

/* ---- the command ---- */

bool shell_has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p += len) {
		bool begins = p == text ||
			      (!isalnum((unsigned char)p[-1]) && !strchr("_-./", p[-1]));

		if (begins && !isalnum((unsigned char)p[len]) &&
			!strchr("_-.", p[len] ? p[len] : ' '))
			return true;
	}
	return false;
}

static void add_python(const struct shell *s, struct buf *out)
{
	static const char *const words[] = {"pip", "pip3", "python", "uv"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!shell_has_word(s->commands, words[i]))
			continue;
		buf_printf(out, "PENSTOCK_PYTHON=%s\n", s->python ? s->python : "3");
		buf_add_str(out, python_lines);
		return;
	}
}

const char *shell_mounted(struct shell *s, const char *program, const char *body)
{
	_cleanup_(buf_release) struct buf whole = BUF_INIT(LIMIT_STRING);

	if (!body || !s->mounts.len)
		return body;
	/* Users may mount if the kernel allows user namespaces; root does not need a user
	 * namespace. */
	buf_printf(&whole,
		"if [ \"$(id -u)\" = 0 ]; then set -- unshare --mount\n"
		"else set -- unshare --user --map-current-user --keep-caps --mount; fi\n"
		"exec \"$@\" -- /bin/bash -c %s places %s %s%s",
		dialect_quoted(s->rd, mount_lines), program, dialect_quoted(s->rd, body),
		buf_str(&s->mounts));
	return workflow_arena_take(s->rd->arena, &whole);
}

const char *shell_command(struct shell *s, const char *first, const char *commands)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	bool bashrc = !s->contained && strstr(s->commands, "/.bashrc");

	if (bashrc)
		s->own_home = true;
	buf_add_str(&out, first);
	if (s->links.len || s->own_home)
		buf_add_str(&out, put_lines);
	if (s->own_home)
		buf_add_str(&out, home_lines);
	if (bashrc)
		buf_add_str(&out, bashrc_lines);
	buf_add_str(&out, buf_str(&s->links));
	if (!s->contained)
		add_python(s, &out);
	if (shell_has_word(s->commands, "conda"))
		buf_add_str(&out, conda_lines);
	if (shell_has_word(commands, "sudo"))
		buf_add_str(&out, sudo_lines);
	buf_add_str(&out, commands);
	return shell_mounted(s, "/bin/bash", workflow_arena_take(s->rd->arena, &out));
}

void shell_init(struct shell *s, struct reader *rd, const char *commands)
{
	*s = (struct shell){.rd = rd,
		.commands = commands,
		.links = BUF_INIT(LIMIT_STRING),
		.mounts = BUF_INIT(LIMIT_STRING)};
}

void shell_release(struct shell *s)
{
	if (buf_failed(&s->links) || buf_failed(&s->mounts))
		s->rd->arena->no_memory = true;
	buf_release(&s->links);
	buf_release(&s->mounts);
}
