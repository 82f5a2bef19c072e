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
#define ON_THE_HOST "steps run as processes of this machine"

static const struct schema_field resources_fields[] = {
	{"tasks", NULL, NULL},
	{"cpusPerTask", NULL, NULL},
	{"memPerCpu", NULL, NULL},
	{"gpus", NULL, NULL},
	{"gpusPerTask", NULL, NULL},
	{"maxProcesses", NULL, NULL},
};
SCHEMA(schema_resources, "`resources`", resources_fields);

static const struct schema_field step_resources_fields[] = {
	{"tasks", NULL, NULL},
	{"cpusPerTask", NULL, NULL},
	{"memPerCpu", NULL, NULL},
	{"gpusPerTask", NULL, NULL},
	{"maxProcesses", NULL, NULL},
};
SCHEMA(schema_step_resources, "the `resources` of a step", step_resources_fields);

static const struct schema_field env_fields[] = {
	{"key", NULL, NULL},
	{"value", NULL, NULL},
};
SCHEMA(schema_env, "an entry of `env`", env_fields);

static const struct schema_field http_fields[] = {
	{"url", NULL, NULL},
};
SCHEMA(schema_http, "`http`", http_fields);

static const struct schema_field s3_fields[] = {
	{"region", NULL, NULL},
	{"bucketUrl", NULL, NULL},
	{"path", NULL, NULL},
	{"accessKeyId", NULL, NULL},
	{"secretAccessKey", NULL, NULL},
	{"endpointUrl", NULL, NULL},
	{"deleteSync", NULL, NULL},
};
SCHEMA(schema_s3, "`s3`", s3_fields);

static const struct schema_field gs_fields[] = {
	{"bucketUrl", NULL, NULL},
	{"path", NULL, NULL},
	{"serviceAccountKey", NULL, NULL},
	{"accessKeyId", NULL, NULL},
	{"secretAccessKey", NULL, NULL},
	{"endpointUrl", NULL, NULL},
	{"deleteSync", NULL, NULL},
};
SCHEMA(schema_gs, "`gs`", gs_fields);

static const struct schema_field local_fields[] = {
	{"path", NULL, NULL},
};
SCHEMA(schema_local, "`local`", local_fields);

static const struct schema_field artifacts_of_fields[] = {
	{"run", NULL, NULL},
	{"tag", NULL, NULL},
};
SCHEMA(schema_artifacts_of, "`artifacts` of an input", artifacts_of_fields);

static const struct schema_field context_fields[] = {
	{"path", NULL, NULL},
	{"ignore", NULL, NULL},
	{"maxBytes", NULL, NULL},
};
SCHEMA(schema_context, "`context`", context_fields);

static const struct schema_field python_fields[] = {
	{"requirements", NULL, NULL},
	{"version", NULL, NULL},
	{"systemPackages", NULL, NULL},
};
SCHEMA(schema_python, "`python`", python_fields);

static const struct schema_field input_fields[] = {
	{"http", &schema_http, NULL},
	{"s3", &schema_s3, NULL},
	{"gs", &schema_gs, NULL},
	{"local", &schema_local, NULL},
	{"artifacts", &schema_artifacts_of, NULL},
	{"path", NULL, NULL},
	{"link", NULL, NULL},
	{"sha256", NULL, NULL},
	{"unpack", NULL, NULL},
	{"mode", NULL, NULL},
};
SCHEMA(schema_input, "an input", input_fields);

static const struct schema_field output_fields[] = {
	{"http", &schema_http, NULL},
	{"s3", &schema_s3, NULL},
	{"gs", &schema_gs, NULL},
};
SCHEMA(schema_output, "`output`", output_fields);

static const struct schema_field mount_fields[] = {
	{"hostDir", NULL, NULL},
	{"containerDir", NULL, NULL},
	{"options", NULL, NULL},
};
SCHEMA(schema_mount, "a mount", mount_fields);

static const struct schema_field container_fields[] = {
	{"image", NULL, NULL},
	{"registry", NULL, NULL},
	{"username", NULL, NULL},
	{"password", NULL, NULL},
	{"apptainer", NULL, NULL},
	{"deepsquareHosted", NULL, NULL},
	{"x11", NULL, NULL},
	{"mountHome", NULL, NULL},
	{"readOnlyRootFS", NULL, NULL},
	{"mounts", &schema_mount, NULL},
};
SCHEMA(schema_container, "`container`", container_fields);

static const struct schema_field peer_fields[] = {
	{"publicKey", NULL, NULL},
	{"preSharedKey", NULL, NULL},
	{"allowedIPs", NULL, NULL},
	{"endpoint", NULL, NULL},
	{"persistentKeepalive", NULL, NULL},
};
SCHEMA(schema_peer, "a peer of `wireguard`", peer_fields);

static const struct schema_field wireguard_fields[] = {
	{"address", NULL, NULL},
	{"privateKey", NULL, NULL},
	{"peers", &schema_peer, NULL},
};
SCHEMA(schema_wireguard, "`wireguard`", wireguard_fields);

static const struct schema_field bore_fields[] = {
	{"boreAddress", NULL, NULL},
	{"targetPort", NULL, NULL},
	{"secret", NULL, NULL},
	{"address", NULL, NULL},
	{"port", NULL, NULL},
};
SCHEMA(schema_bore, "`bore`", bore_fields);

static const struct schema_field vnet_fields[] = {
	{"name", NULL, NULL},
	{"address", NULL, NULL},
};
SCHEMA(schema_vnet, "`vnet`", vnet_fields);

static const struct schema_field interface_fields[] = {
	{"wireguard", &schema_wireguard, NULL},
	{"bore", &schema_bore, NULL},
	{"vnet", &schema_vnet, NULL},
};
SCHEMA(schema_interface, "an entry of `customNetworkInterfaces`", interface_fields);

static const struct schema_field virtual_network_fields[] = {
	{"name", NULL, NULL},
	{"gatewayAddress", NULL, NULL},
};
SCHEMA(schema_virtual_network, "an entry of `virtualNetworks`", virtual_network_fields);

static const struct schema_field run_fields[] = {
	{"command", NULL, NULL},
	{"shell", NULL, NULL},
	{"workDir", NULL, NULL},
	{"env", &schema_env, NULL},
	{"resources", &schema_step_resources, NULL},
	{"restarts", NULL, NULL},
	{"timeout", NULL, NULL},
	{"hangTimeout", NULL, NULL},
	{"container", &schema_container, NULL},
	{"network", NULL, NULL},
	{"dns", NULL, NULL},
	{"customNetworkInterfaces", &schema_interface, NULL},
	{"mapUid", NULL, NULL},
	{"mapGid", NULL, NULL},
	{"mapRoot", NULL, NULL},
	{"disableCpuBinding", NULL, NULL},
	{"mpi", NULL, NULL},
};
SCHEMA(schema_run, "`run`", run_fields);

static const struct schema_field range_fields[] = {
	{"begin", NULL, NULL},
	{"end", NULL, NULL},
	{"increment", NULL, NULL},
};
SCHEMA(schema_range, "`range`", range_fields);

static const struct schema_field for_fields[] = {
	{"parallel", NULL, NULL},
	{"items", NULL, NULL},
	{"range", &schema_range, NULL},
	{"steps", &schema_step, NULL},
};
SCHEMA(schema_for, "`for`", for_fields);

static const struct schema_field launch_fields[] = {
	{"handleName", NULL, NULL},
	{"signalOnParentStepExit", NULL, NULL},
	{"steps", &schema_step, NULL},
};
SCHEMA(schema_launch, "`launch`", launch_fields);

static const struct schema_field use_fields[] = {
	{"source", NULL, NULL},
	{"args", &schema_env, NULL},
	{"exportEnvAs", NULL, NULL},
	{"steps", &schema_step, NULL},
	{"module", &schema_module, NULL},
};
SCHEMA(schema_use, "`use`", use_fields);

static const struct schema_field module_input_fields[] = {
	{"key", NULL, NULL},
	{"description", NULL, NULL},
	{"default", NULL, NULL},
};
SCHEMA(schema_module_input, "an input of a module", module_input_fields);

static const struct schema_field module_output_fields[] = {
	{"key", NULL, NULL},
	{"description", NULL, NULL},
};
SCHEMA(schema_module_output, "an output of a module", module_output_fields);

static const struct schema_field module_fields[] = {
	{"name", NULL, NULL},
	{"description", NULL, NULL},
	{"minimumResources", &schema_resources, NULL},
	{"inputs", &schema_module_input, NULL},
	{"outputs", &schema_module_output, NULL},
	{"steps", &schema_step, NULL},
};
SCHEMA(schema_module, "a module", module_fields);

static const struct schema_field step_fields[] = {
	{"name", NULL, NULL},
	{"dependsOn", NULL, NULL},
	{"if", NULL, NULL},
	{"run", &schema_run, NULL},
	{"steps", &schema_step, NULL},
	{"for", &schema_for, NULL},
	{"launch", &schema_launch, NULL},
	{"use", &schema_use, NULL},
	{"catch", &schema_step, NULL},
	{"finally", &schema_step, NULL},
};
SCHEMA(schema_step, "a step", step_fields);

static const struct schema_field notify_fields[] = {
	{"url", NULL, NULL},
	{"events", NULL, NULL},
};
SCHEMA(schema_notify, "`notify`", notify_fields);

static const struct schema_field notice_source_fields[] = {
	{"file", NULL, NULL},
	{"command", NULL, NULL},
};
SCHEMA(schema_notice_source, "a member of `preemption.sources`", notice_source_fields);

static const struct schema_field metadata_fields[] = {
	{"gcp", NULL, NULL},
	{"aws", NULL, NULL},
	{"azure", NULL, NULL},
};
SCHEMA(schema_metadata, "`preemption.metadata`", metadata_fields);

static const struct schema_field preemption_fields[] = {
	{"sources", &schema_notice_source, NULL},
	{"signal", NULL, NULL},
	{"grace", NULL, NULL},
	{"reserve", NULL, NULL},
	{"metadata", &schema_metadata, NULL},
};
SCHEMA(schema_preemption, "`preemption`", preemption_fields);
static const struct schema_field best_fields[] = {
	{"metric", NULL, NULL},
	{"mode", NULL, NULL},
	{"n", NULL, NULL},
};
SCHEMA(schema_best, "`best`", best_fields);

static const struct schema_field keep_fields[] = {
	{"latest", NULL, NULL},
	{"best", &schema_best, NULL},
	{"every", NULL, NULL},
};
SCHEMA(schema_keep, "`keep`", keep_fields);

static const struct schema_field checkpoints_fields[] = {
	{"path", NULL, NULL},
	{"pattern", NULL, NULL},
	{"keep", &schema_keep, NULL},
};
SCHEMA(schema_checkpoints, "`checkpoints`", checkpoints_fields);

static const struct schema_field retry_fields[] = {
	{"max", NULL, NULL},
	{"codes", NULL, NULL},
	{"classes", NULL, NULL},
	{"backoff", NULL, NULL},
};
SCHEMA(schema_retry, "`retry`", retry_fields);

static const struct schema_field job_fields[] = {
	{"name", NULL, NULL},
	{"resources", &schema_resources, NULL},
	{"env", &schema_env, NULL},
	{"enableLogging", NULL, NULL},
	{"input", &schema_input, NULL},
	{"inputs", &schema_input, NULL},
	{"inputMode", NULL, NULL},
	{"output", &schema_output, NULL},
	{"continuousOutputSync", NULL, NULL},
	{"steps", &schema_step, NULL},
	{"resume", NULL, NULL},
	{"virtualNetworks", &schema_virtual_network, NULL},
	{"context", &schema_context, NULL},
	{"python", &schema_python, NULL},
	{"artifacts", NULL, NULL},
	{"mounts", NULL, ON_THE_HOST ", which need no mounts"},
	{"secrets", NULL, "write ${{ secrets.NAME }} where the secret is needed"},
	{"preemption", &schema_preemption, NULL},
	{"retry", &schema_retry, NULL},
	{"timeout", NULL, NULL},
	{"hangTimeout", NULL, NULL},
	{"ports", NULL, NULL},
	{"notify", &schema_notify, NULL},
	{"checkpoints", &schema_checkpoints, NULL},
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
