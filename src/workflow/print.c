/* The model as JSON for people and scripts: every default applied, nothing secret. */
#include <string.h>

#include "base/cleanup.h"
#include "workflow/canonical.h"
#include "workflow/workflow.h"
#include "base/banned.h"

struct printer {
	struct buf *out;
	unsigned depth;
	bool first; /* no member was written at this level yet */
};

static void next_line(struct printer *p)
{
	if (!p->first)
		buf_add_char(p->out, ',');
	p->first = false;
	buf_add_char(p->out, '\n');
	for (unsigned i = 0; i < p->depth; i++)
		buf_add_str(p->out, "  ");
}

static void put_key(struct printer *p, const char *key)
{
	next_line(p);
	if (key) {
		json_add_text(p->out, key);
		buf_add_str(p->out, ": ");
	}
}

/* `key` is NULL within a list. */
static void open_with(struct printer *p, const char *key, char bracket)
{
	put_key(p, key);
	buf_add_char(p->out, bracket);
	p->depth++;
	p->first = true;
}

static void close_with(struct printer *p, char bracket)
{
	bool empty = p->first;

	p->depth--;
	p->first = true;
	if (!empty)
		next_line(p);
	p->first = false;
	buf_add_char(p->out, bracket);
}

static void put_string(struct printer *p, const char *key, const char *value)
{
	put_key(p, key);
	if (value)
		json_add_text(p->out, value);
	else
		buf_add_str(p->out, "null");
}

static void put_text(struct printer *p, const char *key, const struct workflow_text *text)
{
	put_string(p, key, workflow_shown(text));
}

static void put_number(struct printer *p, const char *key, int64_t value)
{
	put_key(p, key);
	buf_printf(p->out, "%lld", (long long)value);
}

static void put_flag(struct printer *p, const char *key, bool value)
{
	put_key(p, key);
	buf_add_str(p->out, value ? "true" : "false");
}

/* The reference only; for a value that stands in the file that is "***". */
static void put_credential(
	struct printer *p, const char *key, const struct workflow_credential *credential)
{
	switch (credential->source) {
	case WORKFLOW_FROM_NOWHERE:
		put_string(p, key, NULL);
		break;
	case WORKFLOW_FROM_SECRET:
	case WORKFLOW_FROM_ENV:
		put_key(p, key);
		buf_printf(p->out, "\"${{ %s.%s }}\"",
			credential->source == WORKFLOW_FROM_ENV ? "env" : "secrets",
			credential->name);
		break;
	default:
		put_string(p, key, "***");
	}
}

static void put_env(struct printer *p, const struct workflow_env_list *env)
{
	open_with(p, "env", '[');
	for (size_t i = 0; i < env->n; i++) {
		open_with(p, NULL, '{');
		put_string(p, "key", env->items[i].key);
		put_text(p, "value", &env->items[i].value);
		close_with(p, '}');
	}
	close_with(p, ']');
}

static void put_http(struct printer *p, const struct workflow_text *url)
{
	open_with(p, "http", '{');
	put_text(p, "url", url);
	close_with(p, '}');
}

static void put_s3(struct printer *p, const struct workflow_s3 *s3)
{
	open_with(p, s3->google ? "gs" : "s3", '{');
	if (!s3->google)
		put_text(p, "region", &s3->region);
	put_text(p, "bucketUrl", &s3->bucket_url);
	put_text(p, "path", &s3->path);
	put_credential(p, "accessKeyId", &s3->access_key_id);
	put_credential(p, "secretAccessKey", &s3->secret_access_key);
	if (s3->google)
		put_credential(p, "serviceAccountKey", &s3->service_account_key);
	if (s3->embedded)
		put_string(p, "endpointUrl", "embedded");
	else if (s3->endpoint_url.value || !s3->google)
		put_text(p, "endpointUrl", &s3->endpoint_url);
	put_flag(p, "deleteSync", s3->delete_sync.value);
	close_with(p, '}');
}

static void put_input(struct printer *p, const struct workflow_input *input)
{
	open_with(p, NULL, '{');
	if (input->kind == WORKFLOW_HTTP) {
		put_http(p, &input->http_url);
	} else if (input->kind == WORKFLOW_S3) {
		put_s3(p, &input->s3);
	} else {
		open_with(p, "local", '{');
		put_text(p, "path", &input->local_path);
		close_with(p, '}');
	}
	put_text(p, "path", &input->path);
	if (input->sha256.value)
		put_text(p, "sha256", &input->sha256);
	put_flag(p, "unpack", input->unpack.value);
	put_string(p, "mode", "copy");
	close_with(p, '}');
}

static void put_output(struct printer *p, const struct workflow_output *output)
{
	if (output->kind == WORKFLOW_NO_TRANSPORT) {
		put_string(p, "output", NULL);
		return;
	}
	open_with(p, "output", '{');
	if (output->kind == WORKFLOW_HTTP)
		put_http(p, &output->http_url);
	else
		put_s3(p, &output->s3);
	close_with(p, '}');
}

static void put_memory(struct printer *p, int64_t mem_per_cpu)
{
	if (mem_per_cpu)
		put_number(p, "memPerCpu", mem_per_cpu);
	else
		put_string(p, "memPerCpu", NULL);
}

static void put_resources(struct printer *p, const struct workflow_resources *res)
{
	open_with(p, "resources", '{');
	put_number(p, "tasks", res->tasks.value);
	put_number(p, "cpusPerTask", res->cpus_per_task.value);
	put_memory(p, res->mem_per_cpu.value);
	/* The older key, because steps inherit it and not the newer one. */
	if (res->gpus_per_task.given)
		put_number(p, "gpusPerTask", res->gpus_per_task.value);
	else
		put_number(p, "gpus", res->gpus.value);
	close_with(p, '}');
}

static void put_step(struct printer *p, const struct workflow_step *step)
{
	const struct workflow_step_resources *res = &step->run.resources;

	open_with(p, NULL, '{');
	put_text(p, "name", &step->name);
	if (step->has_run) {
		open_with(p, "run", '{');
		put_text(p, "command", &step->run.command);
		put_text(p, "shell", &step->run.shell);
		put_text(p, "workDir", &step->run.work_dir);
		put_env(p, &step->run.env);
		open_with(p, "resources", '{');
		put_number(p, "tasks", res->tasks.value);
		put_number(p, "cpusPerTask", res->cpus_per_task.value);
		put_memory(p, res->mem_per_cpu.value);
		put_number(p, "gpusPerTask", res->gpus_per_task.value);
		close_with(p, '}');
		close_with(p, '}');
	}
	close_with(p, '}');
}

int workflow_print_json(const struct workflow *wf, struct buf *out)
{
	struct printer p = {.out = out, .depth = 1, .first = true};

	buf_add_char(out, '{');
	put_text(&p, "name", &wf->name);
	put_resources(&p, &wf->resources);
	put_env(&p, &wf->env);
	put_flag(&p, "enableLogging", wf->enable_logging.value);
	open_with(&p, "inputs", '[');
	for (size_t i = 0; i < wf->n_inputs; i++)
		put_input(&p, &wf->inputs[i]);
	close_with(&p, ']');
	if (wf->input_mode.given)
		put_number(&p, "inputMode", wf->input_mode.value);
	put_output(&p, &wf->output);
	put_flag(&p, "continuousOutputSync", wf->continuous_output_sync.value);
	open_with(&p, "steps", '[');
	for (size_t i = 0; i < wf->n_steps; i++)
		put_step(&p, &wf->steps[i]);
	close_with(&p, ']');
	put_string(&p, "resume", wf->resume == WORKFLOW_RESUME_NEVER ? "never" : "auto");
	buf_add_str(out, "\n}\n");
	return buf_failed(out) ? -1 : 0;
}
