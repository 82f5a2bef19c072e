/*
 * Determined's launch layers, for runs on one machine. A layer reports to Determined's master, and
 * starts a launcher such as torch.distributed.run. Here the command starts the launcher itself,
 * which starts a process for each slot.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"

#define LAUNCH	"-m determined.launch."
#define HARNESS "python3 -m determined.exec.harness"

/* A launch layer in the text of a command. Offsets are positions in the command's text. */
struct launch {
	size_t python; /* start of the interpreter */
	size_t module; /* start of "-m" */
	size_t end; /* end of the simple command */
	const char *name;
	const char *options; /* options before "--"; "" if there is no "--" */
	const char *script; /* the script with its arguments */
};

static const char *part(struct reader *rd, const char *text, size_t begin, size_t end)
{
	while (begin < end && strchr(" \t", text[begin]))
		begin++;
	while (end > begin && strchr(" \t", text[end - 1]))
		end--;
	return workflow_arena_copy(rd->arena, text + begin, end - begin);
}

/* Returns the end of the word at `at`. Quotes and escapes belong to the word; control operators end
 * it. */
static size_t word_end(const char *text, size_t at)
{
	char quoted = 0;

	for (; text[at]; at++) {
		if (text[at] == '\\' && quoted != '\'' && text[at + 1])
			at++;
		else if (quoted ? text[at] == quoted : (text[at] == '\'' || text[at] == '"'))
			quoted = quoted ? 0 : text[at];
		else if (!quoted && strchr(" \t\n;|&()<>", text[at]))
			break;
	}
	return at;
}

static size_t skip_space(const char *text, size_t at)
{
	while (text[at] == ' ' || text[at] == '\t' || (text[at] == '\\' && text[at + 1] == '\n'))
		at += text[at] == '\\' ? 2 : 1;
	return at;
}

/* Finds the interpreter before `at`; the interpreter may have options: "python3 -u". Returns false
 * if there is no interpreter. */
static bool find_python(const char *text, size_t at, size_t *python)
{
	while (at) {
		size_t end = at, name;

		while (end && strchr(" \t", text[end - 1]))
			end--;
		for (at = end; at && !strchr(" \t\n;|&()", text[at - 1]);)
			at--;
		if (at == end)
			return false;
		if (text[at] == '-')
			continue;
		for (name = end; name > at && text[name - 1] != '/';)
			name--;
		*python = at;
		return str_starts(text + name, "python") &&
		       name + strlen("python") +
				       strspn(text + name + strlen("python"), "0123456789.") ==
			       end;
	}
	return false;
}

/* Reads the launch layer whose "-m" is at `module`. */
static bool read_launch(struct reader *rd, const char *text, size_t module, struct launch *out)
{
	size_t name = module + strlen(LAUNCH), at = word_end(text, name), begin = at;
	size_t dashes = 0, end = at;

	*out = (struct launch){.module = module,
		.options = "",
		.name = workflow_arena_copy(rd->arena, text + name, at - name)};
	/* Redirections stay with the script. */
	while (text[at = skip_space(text, at)] && !strchr("\n;|&()", text[at])) {
		end = strchr("<>", text[at]) ? at + 1 : word_end(text, at);
		if (!dashes && end - at == 2 && strncmp(text + at, "--", 2) == 0)
			dashes = at;
		at = end;
	}
	out->end = end;
	if (dashes)
		out->options = part(rd, text, begin, dashes);
	out->script = part(rd, text, dashes ? dashes + 2 : begin, end);
	return out->name && out->options && out->script && find_python(text, module, &out->python);
}

/* Returns the command for the script `--trial X` or `--trial=X`; NULL for any other script. */
static const char *trial_of(struct reader *rd, const char *script)
{
	const char *rest = script;
	size_t len;

	if (!str_starts(rest, "--trial ") && !str_starts(rest, "--trial="))
		return NULL;
	rest += strlen("--trial=");
	rest += strspn(rest, " \t");
	len = word_end(rest, 0);
	return len && !rest[len + strspn(rest + len, " \t")]
		       ? workflow_arena_printf(rd->arena, HARNESS " %.*s", (int)len, rest)
		       : NULL;
}

/* Returns the command of the script, without the layer's own options; NULL if other options precede
 * the script. Corrects `*single`: true if one process without a launcher is enough. */
static const char *script_of(struct reader *rd, const struct launch *l, bool *single)
{
	const char *script = l->script;

	/* TensorFlow needs no launcher on one machine; the options of its layer may be on either
	 * side of "--". */
	if (strcmp(l->name, "tensorflow") == 0) {
		*single = true;
		if (*l->options && *l->options != '-')
			return NULL;
		if (str_starts(script, "--port")) {
			script += strlen("--port");
			script += strspn(script, "= \t");
			script += strspn(script, "0123456789");
			script += strspn(script, " \t");
		}
	}
	if (strcmp(l->name, "horovod") == 0 && str_starts(script, "--autohorovod")) {
		script += strlen("--autohorovod");
		script += strspn(script, " \t");
	} else {
		*single = strcmp(l->name, "tensorflow") == 0;
	}
	if (str_starts(script, "--trial"))
		return trial_of(rd, script);
	return *script && *script != '-' ? script : NULL;
}

static const char *launched(struct reader *rd, const char *text, const struct launch *l,
	int64_t slots, const char *script)
{
	long long n = slots ? slots : 1;
	int python = (int)(l->module - l->python);

	text += l->python;
	if (strcmp(l->name, "torch_distributed") == 0)
		return workflow_arena_printf(rd->arena,
			"env USE_TORCH_DISTRIBUTED=True %.*s-m torch.distributed.run --standalone "
			"--nnodes=1 --nproc_per_node=%lld --max_restarts=0 %s%s--no_python %s",
			python, text, n, l->options, *l->options ? " " : "", script);
	/* DeepSpeed uses the GPUs in CUDA_VISIBLE_DEVICES. The port depends on the process id, so
	 * that two runs can share this machine. */
	if (strcmp(l->name, "deepspeed") == 0)
		return workflow_arena_printf(rd->arena,
			"env USE_DEEPSPEED=1 %.*s-m deepspeed.launcher.runner --master_addr localhost "
			"--master_port $((20000 + $$ %% 10000)) --no_python --no_local_rank %s",
			python, text, script);
	return workflow_arena_printf(rd->arena,
		"env USE_HOROVOD=1 %.*s-m horovod.runner.launch -np %lld -H localhost:%lld %s%s-- %s",
		python, text, n, n, l->options, *l->options ? " " : "", script);
}

/* Returns the command that replaces the layer; NULL after an error, which is reported. */
static const char *translate(struct reader *rd, const struct node *at, const char *text,
	const struct launch *l, int64_t slots)
{
	static const char *const names[] = {
		"torch_distributed", "deepspeed", "horovod", "tensorflow"};
	bool known = false, single = false;
	const char *script;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		known |= strcmp(names[i], l->name) == 0;
	if (!known) {
		reader_error(rd, &at->at,
			"the launcher determined.launch.%s is not supported; use "
			"torch_distributed, deepspeed, horovod or tensorflow, or a script",
			l->name);
		return NULL;
	}
	single = slots <= 1;
	script = script_of(rd, l, &single);
	if (!script) {
		reader_error(rd, &at->at,
			"the arguments of determined.launch.%s are neither `--trial MODULE:CLASS` "
			"nor a script; write options before `--`",
			l->name);
		return NULL;
	}
	reader_note(rd, &at->at,
		"determined.launch.%s starts %s on this machine, without Determined's master",
		l->name, single ? "the script" : "a process for each slot");
	return single ? script : launched(rd, text, l, slots, script);
}

bool determined_is_launched(const char *text)
{
	return strstr(text, LAUNCH) != NULL;
}

const char *determined_launch(
	struct reader *rd, const struct node *at, const char *text, int64_t slots)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	const char *found;

	while ((found = strstr(text, LAUNCH))) {
		struct launch l;
		const char *command;

		if (!read_launch(rd, text, (size_t)(found - text), &l)) {
			if (!rd->arena->no_memory)
				reader_error(rd, &at->at,
					"determined.launch is only recognised after an interpreter, "
					"as in `python3 -m determined.launch.torch_distributed`");
			return NULL;
		}
		command = translate(rd, at, text, &l, slots);
		if (!command)
			return NULL;
		buf_add(&out, text, l.python);
		buf_add_str(&out, command);
		text += l.end;
	}
	buf_add_str(&out, text);
	return workflow_arena_take(rd->arena, &out);
}

/* Determined starts every trial by its layer for torch. A single process does not need the
 * layer. */
const char *determined_trial(struct reader *rd, const char *class, int64_t slots)
{
	return slots > 1 ? workflow_arena_printf(rd->arena,
				   "python3 " LAUNCH "torch_distributed --trial %s", class)
			 : workflow_arena_printf(rd->arena, HARNESS " %s", class);
}
