#include "workflow/schema.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/banned.h"

#define SCHEMA(name, text, table)                                                                  \
	const struct schema name = {.what = (text), .fields = (table), .n = ARRAY_SIZE(table)}

/* clang-format off */
static const struct schema_field resources_fields[] = {
	{"tasks", NULL},
	{"cpusPerTask", NULL},
	{"memPerCpu", NULL},
	{"gpus", NULL},
	{"gpusPerTask", NULL},
	{"maxProcesses", NULL},
};
SCHEMA(schema_resources, "`resources`", resources_fields);

static const struct schema_field step_resources_fields[] = {
	{"tasks", NULL},
	{"cpusPerTask", NULL},
	{"memPerCpu", NULL},
	{"gpusPerTask", NULL},
	{"maxProcesses", NULL},
};
SCHEMA(schema_step_resources, "the `resources` of a step", step_resources_fields);

static const struct schema_field env_fields[] = {
	{"key", NULL},
	{"value", NULL},
};
SCHEMA(schema_env, "an entry of `env`", env_fields);

static const struct schema_field http_fields[] = {
	{"url", NULL},
};
SCHEMA(schema_http, "`http`", http_fields);

static const struct schema_field s3_fields[] = {
	{"region", NULL},
	{"bucketUrl", NULL},
	{"path", NULL},
	{"accessKeyId", NULL},
	{"secretAccessKey", NULL},
	{"endpointUrl", NULL},
	{"deleteSync", NULL},
};
SCHEMA(schema_s3, "`s3`", s3_fields);

static const struct schema_field gs_fields[] = {
	{"bucketUrl", NULL},
	{"path", NULL},
	{"serviceAccountKey", NULL},
	{"accessKeyId", NULL},
	{"secretAccessKey", NULL},
	{"endpointUrl", NULL},
	{"deleteSync", NULL},
};
SCHEMA(schema_gs, "`gs`", gs_fields);

static const struct schema_field local_fields[] = {
	{"path", NULL},
};
SCHEMA(schema_local, "`local`", local_fields);

static const struct schema_field artifacts_of_fields[] = {
	{"run", NULL},
	{"tag", NULL},
};
SCHEMA(schema_artifacts_of, "`artifacts` of an input", artifacts_of_fields);

static const struct schema_field context_fields[] = {
	{"path", NULL},
	{"ignore", NULL},
	{"maxBytes", NULL},
};
SCHEMA(schema_context, "`context`", context_fields);

static const struct schema_field python_fields[] = {
	{"requirements", NULL},
	{"version", NULL},
	{"systemPackages", NULL},
};
SCHEMA(schema_python, "`python`", python_fields);

static const struct schema_field input_fields[] = {
	{"http", &schema_http},
	{"s3", &schema_s3},
	{"gs", &schema_gs},
	{"local", &schema_local},
	{"artifacts", &schema_artifacts_of},
	{"path", NULL},
	{"link", NULL},
	{"sha256", NULL},
	{"unpack", NULL},
	{"mode", NULL},
};
SCHEMA(schema_input, "an input", input_fields);

static const struct schema_field output_fields[] = {
	{"http", &schema_http},
	{"s3", &schema_s3},
	{"gs", &schema_gs},
};
SCHEMA(schema_output, "`output`", output_fields);

static const struct schema_field mount_fields[] = {
	{"hostDir", NULL},
	{"containerDir", NULL},
	{"options", NULL},
};
SCHEMA(schema_mount, "a mount", mount_fields);

static const struct schema_field container_fields[] = {
	{"image", NULL},
	{"registry", NULL},
	{"username", NULL},
	{"password", NULL},
	{"apptainer", NULL},
	{"deepsquareHosted", NULL},
	{"x11", NULL},
	{"mountHome", NULL},
	{"readOnlyRootFS", NULL},
	{"mounts", &schema_mount},
};
SCHEMA(schema_container, "`container`", container_fields);

static const struct schema_field peer_fields[] = {
	{"publicKey", NULL},
	{"preSharedKey", NULL},
	{"allowedIPs", NULL},
	{"endpoint", NULL},
	{"persistentKeepalive", NULL},
};
SCHEMA(schema_peer, "a peer of `wireguard`", peer_fields);

static const struct schema_field wireguard_fields[] = {
	{"address", NULL},
	{"privateKey", NULL},
	{"peers", &schema_peer},
};
SCHEMA(schema_wireguard, "`wireguard`", wireguard_fields);

static const struct schema_field bore_fields[] = {
	{"boreAddress", NULL},
	{"targetPort", NULL},
	{"secret", NULL},
	{"address", NULL},
	{"port", NULL},
};
SCHEMA(schema_bore, "`bore`", bore_fields);

static const struct schema_field vnet_fields[] = {
	{"name", NULL},
	{"address", NULL},
};
SCHEMA(schema_vnet, "`vnet`", vnet_fields);

static const struct schema_field interface_fields[] = {
	{"wireguard", &schema_wireguard},
	{"bore", &schema_bore},
	{"vnet", &schema_vnet},
};
SCHEMA(schema_interface, "an entry of `customNetworkInterfaces`", interface_fields);

static const struct schema_field virtual_network_fields[] = {
	{"name", NULL},
	{"gatewayAddress", NULL},
};
SCHEMA(schema_virtual_network, "an entry of `virtualNetworks`", virtual_network_fields);

static const struct schema_field run_fields[] = {
	{"command", NULL},
	{"shell", NULL},
	{"workDir", NULL},
	{"env", &schema_env},
	{"resources", &schema_step_resources},
	{"restarts", NULL},
	{"timeout", NULL},
	{"hangTimeout", NULL},
	{"container", &schema_container},
	{"network", NULL},
	{"dns", NULL},
	{"customNetworkInterfaces", &schema_interface},
	{"mapUid", NULL},
	{"mapGid", NULL},
	{"mapRoot", NULL},
	{"disableCpuBinding", NULL},
	{"mpi", NULL},
};
SCHEMA(schema_run, "`run`", run_fields);

static const struct schema_field range_fields[] = {
	{"begin", NULL},
	{"end", NULL},
	{"increment", NULL},
};
SCHEMA(schema_range, "`range`", range_fields);

static const struct schema_field for_fields[] = {
	{"parallel", NULL},
	{"items", NULL},
	{"range", &schema_range},
	{"steps", &schema_step},
};
SCHEMA(schema_for, "`for`", for_fields);

static const struct schema_field launch_fields[] = {
	{"handleName", NULL},
	{"signalOnParentStepExit", NULL},
	{"steps", &schema_step},
};
SCHEMA(schema_launch, "`launch`", launch_fields);

static const struct schema_field use_fields[] = {
	{"source", NULL},
	{"args", &schema_env},
	{"exportEnvAs", NULL},
	{"steps", &schema_step},
	{"module", &schema_module},
};
SCHEMA(schema_use, "`use`", use_fields);

static const struct schema_field module_input_fields[] = {
	{"key", NULL},
	{"description", NULL},
	{"default", NULL},
};
SCHEMA(schema_module_input, "an input of a module", module_input_fields);

static const struct schema_field module_output_fields[] = {
	{"key", NULL},
	{"description", NULL},
};
SCHEMA(schema_module_output, "an output of a module", module_output_fields);

static const struct schema_field module_fields[] = {
	{"name", NULL},
	{"description", NULL},
	{"minimumResources", &schema_resources},
	{"inputs", &schema_module_input},
	{"outputs", &schema_module_output},
	{"steps", &schema_step},
};
SCHEMA(schema_module, "a module", module_fields);

static const struct schema_field step_fields[] = {
	{"name", NULL},
	{"dependsOn", NULL},
	{"if", NULL},
	{"run", &schema_run},
	{"steps", &schema_step},
	{"for", &schema_for},
	{"launch", &schema_launch},
	{"use", &schema_use},
	{"catch", &schema_step},
	{"finally", &schema_step},
};
SCHEMA(schema_step, "a step", step_fields);

static const struct schema_field notify_fields[] = {
	{"url", NULL},
	{"events", NULL},
};
SCHEMA(schema_notify, "`notify`", notify_fields);

static const struct schema_field notice_source_fields[] = {
	{"file", NULL},
	{"command", NULL},
};
SCHEMA(schema_notice_source, "a member of `preemption.sources`", notice_source_fields);

static const struct schema_field metadata_fields[] = {
	{"gcp", NULL},
	{"aws", NULL},
	{"azure", NULL},
};
SCHEMA(schema_metadata, "`preemption.metadata`", metadata_fields);

static const struct schema_field preemption_fields[] = {
	{"sources", &schema_notice_source},
	{"signal", NULL},
	{"grace", NULL},
	{"reserve", NULL},
	{"metadata", &schema_metadata},
};
SCHEMA(schema_preemption, "`preemption`", preemption_fields);
static const struct schema_field best_fields[] = {
	{"metric", NULL},
	{"mode", NULL},
	{"n", NULL},
};
SCHEMA(schema_best, "`best`", best_fields);

static const struct schema_field keep_fields[] = {
	{"latest", NULL},
	{"best", &schema_best},
	{"every", NULL},
};
SCHEMA(schema_keep, "`keep`", keep_fields);

static const struct schema_field checkpoints_fields[] = {
	{"path", NULL},
	{"pattern", NULL},
	{"keep", &schema_keep},
};
SCHEMA(schema_checkpoints, "`checkpoints`", checkpoints_fields);

static const struct schema_field retry_fields[] = {
	{"max", NULL},
	{"codes", NULL},
	{"classes", NULL},
	{"backoff", NULL},
};
SCHEMA(schema_retry, "`retry`", retry_fields);

static const struct schema_field job_fields[] = {
	{"name", NULL},
	{"resources", &schema_resources},
	{"env", &schema_env},
	{"enableLogging", NULL},
	{"input", &schema_input},
	{"inputs", &schema_input},
	{"inputMode", NULL},
	{"output", &schema_output},
	{"continuousOutputSync", NULL},
	{"steps", &schema_step},
	{"resume", NULL},
	{"virtualNetworks", &schema_virtual_network},
	{"context", &schema_context},
	{"python", &schema_python},
	{"artifacts", NULL},
	{"mounts", &schema_mount},
	{"secrets", NULL},
	{"preemption", &schema_preemption},
	{"retry", &schema_retry},
	{"timeout", NULL},
	{"hangTimeout", NULL},
	{"ports", NULL},
	{"notify", &schema_notify},
	{"checkpoints", &schema_checkpoints},
};
SCHEMA(schema_job, "a workflow", job_fields);
/* clang-format on */

const struct schema_field *schema_find(const struct schema *schema, const char *name)
{
	for (size_t i = 0; i < schema->n; i++) {
		if (strcmp(schema->fields[i].name, name) == 0)
			return &schema->fields[i];
	}
	return NULL;
}

/* Equal but for case, `_` and `-`: cpus_per_task is cpusPerTask. */
static bool is_same_word(const char *a, const char *b)
{
	for (;;) {
		while (*a == '_' || *a == '-')
			a++;
		while (*b == '_' || *b == '-')
			b++;
		if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
			return false;
		if (!*a)
			return true;
		a++;
		b++;
	}
}

/* The same letters in another order, which counts as two edits: too many for a short word. */
static bool is_shuffled(const char *a, const char *b)
{
	int counts[256] = {0};

	for (; *a; a++)
		counts[(unsigned char)*a]++;
	for (; *b; b++)
		counts[(unsigned char)*b]--;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		if (counts[i])
			return false;
	}
	return true;
}

/* The only key that begins with `name`: endpoint for endpointUrl. */
static const char *only_longer(const struct schema *schema, const char *name)
{
	const char *longer = NULL;

	for (size_t i = 0; strlen(name) >= 3 && i < schema->n; i++) {
		if (!str_starts(schema->fields[i].name, name))
			continue;
		if (longer)
			return NULL;
		longer = schema->fields[i].name;
	}
	return longer;
}

const char *schema_nearest(const struct schema *schema, const char *name)
{
	const char *names[32];
	const char *nearest;
	size_t n = 0;

	for (size_t i = 0; i < schema->n && n < ARRAY_SIZE(names); i++) {
		if (is_same_word(schema->fields[i].name, name) ||
			is_shuffled(schema->fields[i].name, name))
			return schema->fields[i].name;
		names[n++] = schema->fields[i].name;
	}
	/* The distance takes time by the product of both lengths. */
	if (strlen(name) > 64)
		return NULL;
	nearest = str_nearest(name, names, n);
	return nearest ? nearest : only_longer(schema, name);
}
