/* The model as JSON for people and scripts: every default applied, nothing secret. */
#include <stdio.h>
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

static void put_env(struct printer *p, const char *key, const struct workflow_env_list *env)
{
	open_with(p, key, '[');
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
	} else if (input->kind == WORKFLOW_ARTIFACTS) {
		open_with(p, "artifacts", '{');
		put_text(p, input->artifacts.tag.value ? "tag" : "run",
			input->artifacts.tag.value ? &input->artifacts.tag : &input->artifacts.run);
		close_with(p, '}');
	} else {
		open_with(p, "local", '{');
		put_text(p, "path", &input->local_path);
		close_with(p, '}');
	}
	put_text(p, "path", &input->path);
	if (input->link.value)
		put_text(p, "link", &input->link);
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
	if (res->max_processes.given)
		put_number(p, "maxProcesses", res->max_processes.value);
	close_with(p, '}');
}

static void put_texts(struct printer *p, const char *key, const struct workflow_texts *texts)
{
	open_with(p, key, '[');
	for (size_t i = 0; i < texts->n; i++)
		put_text(p, NULL, &texts->items[i]);
	close_with(p, ']');
}

static void put_wireguard(struct printer *p, const struct workflow_interface *interface)
{
	open_with(p, "wireguard", '{');
	put_texts(p, "address", &interface->wireguard.address);
	put_credential(p, "privateKey", &interface->wireguard.private_key);
	open_with(p, "peers", '[');
	for (size_t i = 0; i < interface->wireguard.n_peers; i++) {
		const struct workflow_peer *peer = &interface->wireguard.peers[i];

		open_with(p, NULL, '{');
		put_text(p, "publicKey", &peer->public_key);
		put_credential(p, "preSharedKey", &peer->pre_shared_key);
		put_texts(p, "allowedIPs", &peer->allowed_ips);
		put_text(p, "endpoint", &peer->endpoint);
		put_number(p, "persistentKeepalive", peer->persistent_keepalive.value);
		close_with(p, '}');
	}
	close_with(p, ']');
	close_with(p, '}');
}

static void put_interface(struct printer *p, const struct workflow_interface *interface)
{
	open_with(p, NULL, '{');
	if (interface->kind == WORKFLOW_WIREGUARD) {
		put_wireguard(p, interface);
	} else if (interface->kind == WORKFLOW_BORE) {
		open_with(p, "bore", '{');
		put_text(p, "boreAddress", &interface->bore.address);
		put_number(p, "targetPort", interface->bore.target_port.value);
		put_credential(p, "secret", &interface->bore.secret);
		close_with(p, '}');
	} else {
		open_with(p, "vnet", '{');
		put_text(p, "name", &interface->vnet.name);
		put_text(p, "address", &interface->vnet.address);
		close_with(p, '}');
	}
	close_with(p, '}');
}

static void put_network(struct printer *p, const struct workflow_run *run)
{
	static const char *const names[] = {
		[WORKFLOW_NETWORK_HOST] = "host",
		[WORKFLOW_NETWORK_SLIRP4NETNS] = "slirp4netns",
		[WORKFLOW_NETWORK_PASTA] = "pasta",
	};

	if (run->network != WORKFLOW_NETWORK_HOST)
		put_string(p, "network", names[run->network]);
	if (run->dns.n)
		put_texts(p, "dns", &run->dns);
	if (!run->n_interfaces)
		return;
	open_with(p, "customNetworkInterfaces", '[');
	for (size_t i = 0; i < run->n_interfaces; i++)
		put_interface(p, &run->interfaces[i]);
	close_with(p, ']');
}

static void put_duration(struct printer *p, const char *key, const struct workflow_number *number)
{
	char text[32];

	if (!number->given)
		return;
	snprintf(text, sizeof(text), "%lldms", (long long)number->value);
	put_string(p, key, text);
}

static void put_timeouts(struct printer *p, const struct workflow_timeouts *t)
{
	put_duration(p, "timeout", &t->timeout);
	put_duration(p, "hangTimeout", &t->hang);
}

static void put_notice_sources(struct printer *p, const struct workflow_preemption *preemption)
{
	static const char *const names[] = {
		[WORKFLOW_NOTICE_AUTO] = "auto",
		[WORKFLOW_NOTICE_GCP] = "gcp",
		[WORKFLOW_NOTICE_AWS] = "aws",
		[WORKFLOW_NOTICE_AZURE] = "azure",
	};

	open_with(p, "sources", '[');
	for (size_t i = 0; i < preemption->n_sources; i++) {
		const struct workflow_notice_source *source = &preemption->sources[i];

		if (!source->value.value) {
			put_string(p, NULL, names[source->kind]);
			continue;
		}
		open_with(p, NULL, '{');
		put_text(p, source->kind == WORKFLOW_NOTICE_FILE ? "file" : "command",
			&source->value);
		close_with(p, '}');
	}
	close_with(p, ']');
}

/* Only what was given: the rest may stand in a configuration file. */
static void put_preemption(struct printer *p, const struct workflow_preemption *preemption)
{
	const struct workflow_text *addresses[] = {
		&preemption->gcp, &preemption->aws, &preemption->azure};
	static const char *const names[] = {"gcp", "aws", "azure"};
	bool addressed = preemption->gcp.value || preemption->aws.value || preemption->azure.value;

	if (!preemption->sources_given && !preemption->signal_given && !preemption->grace.given &&
		!preemption->reserve.given && !addressed)
		return;
	open_with(p, "preemption", '{');
	if (preemption->sources_given)
		put_notice_sources(p, preemption);
	if (preemption->signal_given)
		put_string(p, "signal",
			preemption->signal ? sigabbrev_np(preemption->signal) : "none");
	put_duration(p, "grace", &preemption->grace);
	put_duration(p, "reserve", &preemption->reserve);
	if (addressed) {
		open_with(p, "metadata", '{');
		for (int i = 0; i < 3; i++) {
			if (addresses[i]->value)
				put_text(p, names[i], addresses[i]);
		}
		close_with(p, '}');
	}
	close_with(p, '}');
}

static void put_retry(struct printer *p, const struct workflow_retry *retry)
{
	static const char *const names[] = {
		"input", "image", "oom", "user", "output", "node", "timeout"};
	char text[32];

	if (!retry->max.value)
		return;
	open_with(p, "retry", '{');
	put_number(p, "max", retry->max.value);
	if (retry->n_codes) {
		open_with(p, "codes", '[');
		for (size_t i = 0; i < retry->n_codes; i++)
			put_number(p, NULL, retry->codes[i]);
		close_with(p, ']');
	}
	if (retry->classes) {
		open_with(p, "classes", '[');
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			if (retry->classes & 1U << i)
				put_string(p, NULL, names[i]);
		}
		close_with(p, ']');
	}
	snprintf(text, sizeof(text), "%lldms", (long long)retry->backoff.value);
	put_string(p, "backoff", text);
	close_with(p, '}');
}

static void put_notify(struct printer *p, const struct workflow_notify *notify)
{
	if (!notify->url.value)
		return;
	open_with(p, "notify", '{');
	put_string(p, "url", notify->url.reference);
	open_with(p, "events", '[');
	if (notify->events & WORKFLOW_NOTIFY_START)
		put_string(p, NULL, "start");
	if (notify->events & WORKFLOW_NOTIFY_END)
		put_string(p, NULL, "end");
	if (notify->events & WORKFLOW_NOTIFY_FAILURE)
		put_string(p, NULL, "failure");
	close_with(p, ']');
	close_with(p, '}');
}

static void put_checkpoints(struct printer *p, const struct workflow_checkpoints *c)
{
	if (!c->given)
		return;
	open_with(p, "checkpoints", '{');
	put_text(p, "path", &c->path);
	if (c->pattern.value)
		put_text(p, "pattern", &c->pattern);
	if (c->keeps) {
		open_with(p, "keep", '{');
		if (c->latest.given)
			put_number(p, "latest", c->latest.value);
		if (c->every.given)
			put_number(p, "every", c->every.value);
		if (c->metric.value) {
			open_with(p, "best", '{');
			put_text(p, "metric", &c->metric);
			put_string(p, "mode", c->larger ? "max" : "min");
			put_number(p, "n", c->best.value);
			close_with(p, '}');
		}
		close_with(p, '}');
	}
	close_with(p, '}');
}

static void put_run(struct printer *p, const struct workflow_run *run)
{
	const struct workflow_step_resources *res = &run->resources;

	open_with(p, "run", '{');
	put_text(p, "command", &run->command);
	put_text(p, "shell", &run->shell);
	put_text(p, "workDir", &run->work_dir);
	put_env(p, "env", &run->env);
	open_with(p, "resources", '{');
	put_number(p, "tasks", res->tasks.value);
	put_number(p, "cpusPerTask", res->cpus_per_task.value);
	put_memory(p, res->mem_per_cpu.value);
	put_number(p, "gpusPerTask", res->gpus_per_task.value);
	if (res->max_processes.given)
		put_number(p, "maxProcesses", res->max_processes.value);
	close_with(p, '}');
	if (run->restarts.value)
		put_number(p, "restarts", run->restarts.value);
	put_timeouts(p, &run->timeouts);
	put_network(p, run);
	if (run->map_uid.given)
		put_number(p, "mapUid", run->map_uid.value);
	if (run->map_gid.given)
		put_number(p, "mapGid", run->map_gid.value);
	if (run->disable_cpu_binding.value)
		put_flag(p, "disableCpuBinding", true);
	if (run->mpi.value)
		put_text(p, "mpi", &run->mpi);
	close_with(p, '}');
}

/* What a workflow of a project has beside its steps. */
static void put_project(struct printer *p, const struct workflow *wf)
{
	static const char *const ignore[] = {
		[WORKFLOW_IGNORE_NONE] = "none",
		[WORKFLOW_IGNORE_GIT] = "gitignore",
		[WORKFLOW_IGNORE_DET] = "detignore",
	};

	if (wf->context.path.value) {
		open_with(p, "context", '{');
		put_text(p, "path", &wf->context.path);
		put_string(p, "ignore", ignore[wf->context.ignore]);
		if (wf->context.max_bytes.value)
			put_number(p, "maxBytes", wf->context.max_bytes.value);
		close_with(p, '}');
	}
	if (wf->python.requirements.value || wf->python.version.value) {
		open_with(p, "python", '{');
		put_text(p, "requirements", &wf->python.requirements);
		put_text(p, "version", &wf->python.version);
		put_flag(p, "systemPackages", wf->python.system_packages.value);
		close_with(p, '}');
	}
	if (wf->n_artifacts) {
		open_with(p, "artifacts", '[');
		for (size_t i = 0; i < wf->n_artifacts; i++)
			put_text(p, NULL, &wf->artifacts[i]);
		close_with(p, ']');
	}
}

static void put_steps(struct printer *p, const char *key, const struct workflow_steps *steps);

static void put_for(struct printer *p, const struct workflow_step *step)
{
	const struct workflow_for *loop = &step->loop;

	open_with(p, "for", '{');
	put_flag(p, "parallel", loop->parallel.value);
	if (loop->has_items) {
		put_texts(p, "items", &loop->items);
	} else {
		open_with(p, "range", '{');
		put_number(p, "begin", loop->begin);
		put_number(p, "end", loop->end);
		put_number(p, "increment", loop->increment);
		close_with(p, '}');
	}
	put_steps(p, "steps", &step->steps);
	close_with(p, '}');
}

static void put_launch(struct printer *p, const struct workflow_step *step)
{
	open_with(p, "launch", '{');
	put_text(p, "handleName", &step->launch.handle);
	put_number(p, "signalOnParentStepExit", step->launch.signal.value);
	put_steps(p, "steps", &step->steps);
	close_with(p, '}');
}

static void put_use(struct printer *p, const struct workflow_step *step)
{
	open_with(p, "use", '{');
	put_text(p, "source", &step->use.source);
	put_env(p, "args", &step->use.args);
	put_text(p, "exportEnvAs", &step->use.export_env_as);
	if (step->use.resolved) {
		open_with(p, "module", '{');
		put_text(p, "name", &step->use.module_name);
		put_env(p, "inputs", &step->use.env);
		put_texts(p, "outputs", &step->use.outputs);
	}
	put_steps(p, "steps", &step->steps);
	if (step->use.resolved)
		close_with(p, '}');
	close_with(p, '}');
}

static void put_step(struct printer *p, const struct workflow_step *step)
{
	open_with(p, NULL, '{');
	put_text(p, "name", &step->name);
	if (step->depends_on.n)
		put_texts(p, "dependsOn", &step->depends_on);
	if (step->condition.value)
		put_text(p, "if", &step->condition);
	if (step->kind == WORKFLOW_STEP_RUN)
		put_run(p, &step->run);
	else if (step->kind == WORKFLOW_STEP_GROUP)
		put_steps(p, "steps", &step->steps);
	else if (step->kind == WORKFLOW_STEP_FOR)
		put_for(p, step);
	else if (step->kind == WORKFLOW_STEP_LAUNCH)
		put_launch(p, step);
	else if (step->kind == WORKFLOW_STEP_USE)
		put_use(p, step);
	if (step->catch_steps.n)
		put_steps(p, "catch", &step->catch_steps);
	if (step->finally_steps.n)
		put_steps(p, "finally", &step->finally_steps);
	close_with(p, '}');
}

static void put_steps(struct printer *p, const char *key, const struct workflow_steps *steps)
{
	open_with(p, key, '[');
	for (size_t i = 0; i < steps->n; i++)
		put_step(p, &steps->items[i]);
	close_with(p, ']');
}

static void put_virtual_networks(struct printer *p, const struct workflow *wf)
{
	if (!wf->n_virtual_networks)
		return;
	open_with(p, "virtualNetworks", '[');
	for (size_t i = 0; i < wf->n_virtual_networks; i++) {
		open_with(p, NULL, '{');
		put_text(p, "name", &wf->virtual_networks[i].name);
		put_text(p, "gatewayAddress", &wf->virtual_networks[i].gateway_address);
		close_with(p, '}');
	}
	close_with(p, ']');
}

int workflow_print_json(const struct workflow *wf, struct buf *out)
{
	struct printer p = {.out = out, .depth = 1, .first = true};

	buf_add_char(out, '{');
	put_text(&p, "name", &wf->name);
	put_resources(&p, &wf->resources);
	put_env(&p, "env", &wf->env);
	put_flag(&p, "enableLogging", wf->enable_logging.value);
	open_with(&p, "inputs", '[');
	for (size_t i = 0; i < wf->n_inputs; i++)
		put_input(&p, &wf->inputs[i]);
	close_with(&p, ']');
	if (wf->input_mode.given)
		put_number(&p, "inputMode", wf->input_mode.value);
	put_output(&p, &wf->output);
	put_flag(&p, "continuousOutputSync", wf->continuous_output_sync.value);
	put_virtual_networks(&p, wf);
	put_project(&p, wf);
	put_steps(&p, "steps", &wf->steps);
	put_string(&p, "resume", wf->resume == WORKFLOW_RESUME_NEVER ? "never" : "auto");
	put_timeouts(&p, &wf->timeouts);
	if (wf->ports.value)
		put_number(&p, "ports", wf->ports.value);
	put_notify(&p, &wf->notify);
	put_preemption(&p, &wf->preemption);
	put_checkpoints(&p, &wf->checkpoints);
	put_retry(&p, &wf->retry);
	buf_add_str(out, "\n}\n");
	return buf_failed(out) ? -1 : 0;
}
