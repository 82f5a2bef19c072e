#include "cli/frame/tables.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native/schema.h"

const struct fact environment_table[] = {
	{"PENSTOCK_HOME", "`$XDG_DATA_HOME/penstock`, else `~/.local/share/penstock`",
		"the directory of runs and records"},
	{"PENSTOCK_CLAIMS_DIR", "`/run/lock/penstock` or `/tmp/penstock-claims`",
		"the directory in which the runs of this machine share its CPUs, memory and GPUs"},
	{"PENSTOCK_CONFIG",
		"`$XDG_CONFIG_HOME/penstock/config.yaml` or `~/.config/penstock/config.yaml`",
		"the configuration of the user"},
	{"PENSTOCK_SYSTEM_CONFIG", "`/etc/penstock/config.yaml`",
		"the configuration of the administrator"},
	{"PENSTOCK_LOG", "`info`", "as `--log-level`"},
	{"PENSTOCK_SECRET_NAME", NULL, "the secret *NAME* of a workflow; see `penstock secret`"},
	{"PENSTOCK_ACCESS_KEY_ID", "a key that `penstock serve` makes",
		"the access key of the embedded store"},
	{"PENSTOCK_SECRET_ACCESS_KEY", "a key that `penstock serve` makes",
		"the secret key of the embedded store"},
	{"PENSTOCK_MASTER_KEY_FILE", "`ROOT/master-key`",
		"the file with the master key for encrypted objects, as `penstock serve "
		"--master-key`"},
	{"PENSTOCK_STOP_GRACE", "30", "seconds between the request to stop a step and its kill"},
	{"PENSTOCK_LAUNCH_GRACE", "30", "seconds that a launch gets to exit when its scope ends"},
	{"PENSTOCK_FLUSH_PATIENCE", "30",
		"seconds without progress after which the last upload of a run gives up, if the "
		"workflow has no `storePatience`"},
	{"PENSTOCK_NETWORK_PATIENCE", "90",
		"seconds without progress for which a starting run waits for an input or a "
		"store that cannot be reached or responds with 5xx"},
	{"PENSTOCK_NETWORK_STALL", "30",
		"seconds without a byte after which a connection is replaced"},
	{"PENSTOCK_READ_MANY", "`yes`",
		"`no`: a data set in penstock's own store is read by a GET for each sample, as in "
		"any other store"},
	{"PENSTOCK_UNPACK_RATIO", "500",
		"an archive that unpacks to more than 256 MiB and to more than this many times its "
		"size is refused"},
	{"PENSTOCK_LEASE_TERM", "30",
		"seconds after which another machine may take over a run whose owner is silent"},
	{"PENSTOCK_MACHINE", "the boot id of the kernel and the PID namespace",
		"the name of this machine in the records of runs"},
	{"PENSTOCK_GPUS", "the devices of this machine", "the number of GPUs of this machine"},
	{"PENSTOCK_PYTHON", "`python3`", "the Python of `python` without a `version`"},
	{"PENSTOCK_PREEMPTION_SOURCES", "`auto`",
		"sources of [preemption notices](preemption.md), separated by commas, if no file "
		"names any"},
	{"PENSTOCK_METADATA_GCP", "the cloud's", "the address of Google Cloud's metadata service"},
	{"PENSTOCK_METADATA_AWS", "the cloud's", "the address of AWS's metadata service"},
	{"PENSTOCK_METADATA_AZURE", "the cloud's", "the address of Azure's metadata service"},
	{"NO_GCE_CHECK", NULL, "true: do not ask Google Cloud's metadata service for notices"},
	{"PENSTOCK_SLURM_NODE_DIR", "`slurm.nodeDir` of the configuration",
		"a directory on the disk of each node of a [Slurm](slurm.md) job"},
	{"PENSTOCK_SLURM_REQUEUES", "`MaxBatchRequeue` of Slurm",
		"requeues of a [Slurm](slurm.md) job before the run is submitted again"},
	{"AWS_ACCESS_KEY_ID", "the AWS profile", "the access key of S3 stores"},
	{"AWS_SECRET_ACCESS_KEY", "the AWS profile", "the secret key of S3 stores"},
	{"AWS_SESSION_TOKEN", NULL, "the token of temporary keys"},
	{"AWS_PROFILE", "`default`", "the profile in the files of AWS"},
	{"AWS_CONFIG_FILE", "`~/.aws/config`", "the configuration file of AWS"},
	{"AWS_SHARED_CREDENTIALS_FILE", "`~/.aws/credentials`", "the credentials file of AWS"},
	{"AWS_REGION", "`$AWS_DEFAULT_REGION`", "the region of S3 stores"},
	{"AWS_DEFAULT_REGION", "the AWS profile", "the region, if `AWS_REGION` is not set"},
	{"AWS_ENDPOINT_URL_S3", "`$AWS_ENDPOINT_URL`",
		"the address of the S3 store, or `embedded`"},
	{"AWS_ENDPOINT_URL_STS", "`$AWS_ENDPOINT_URL`", "the address of the token service"},
	{"AWS_ENDPOINT_URL", "AWS's own", "the address of all AWS services"},
	{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false",
		"true: ignore the addresses in `AWS_ENDPOINT_URL` and similar variables"},
	{"AWS_ROLE_ARN", "the AWS profile", "the role for a web identity"},
	{"AWS_ROLE_SESSION_NAME", NULL, "the name of the session of `AWS_ROLE_ARN`"},
	{"AWS_WEB_IDENTITY_TOKEN_FILE", "the AWS profile", "the file with the web identity"},
	{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", NULL,
		"the path from which a container on AWS gets its keys"},
	{"AWS_CONTAINER_CREDENTIALS_FULL_URI", NULL,
		"a full address from which a container gets its keys"},
	{"AWS_CONTAINER_AUTHORIZATION_TOKEN", NULL,
		"the token for requests to `AWS_CONTAINER_CREDENTIALS_FULL_URI`"},
	{"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", NULL,
		"a file with the token for these requests"},
	{"AWS_EC2_METADATA_DISABLED", "false", "true: do not ask the EC2 metadata service"},
	{"AWS_EC2_METADATA_SERVICE_ENDPOINT", "`http://169.254.169.254`",
		"the address of the EC2 metadata service"},
	{"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "`IPv4`",
		"`IPv6`: use the IPv6 address of the EC2 metadata service"},
	{"AWS_METADATA_SERVICE_TIMEOUT", "1", "seconds for a request to the EC2 metadata service"},
	{"AWS_METADATA_SERVICE_NUM_ATTEMPTS", "1",
		"attempts of a request to the EC2 metadata service"},
	{"AWS_REQUEST_CHECKSUM_CALCULATION", "`when_supported`",
		"`when_required`: uploads without checksums in headers"},
	{"AWS_RESPONSE_CHECKSUM_VALIDATION", "`when_supported`",
		"`when_required`: downloads are not verified by the store's checksums"},
	{"AWS_CA_BUNDLE", "`$CURL_CA_BUNDLE`, else `$SSL_CERT_FILE`",
		"the file with certificate authorities"},
	{"GOOGLE_APPLICATION_CREDENTIALS", "gcloud's own credentials",
		"the key file for Google Cloud Storage"},
	{"STORAGE_EMULATOR_HOST", "`https://storage.googleapis.com`",
		"the address of Google Cloud Storage, such as an emulator"},
	{"GOOGLE_CLOUD_PROJECT", "the project of the key file",
		"the project that new buckets belong to"},
	{"GCE_METADATA_HOST", "`metadata.google.internal`",
		"the host of Google Cloud's metadata service"},
	{"CLOUDSDK_CONFIG", "`~/.config/gcloud`", "the configuration directory of gcloud"},
	{"GS_ACCESS_KEY_ID", NULL, "an HMAC key for Google Cloud Storage"},
	{"GS_SECRET_ACCESS_KEY", NULL, "the secret of the HMAC key"},
	{"MLFLOW_TRACKING_USERNAME", "the user of `tracking.mlflow.uri`",
		"the user at MLflow; MLflow's client reads this variable, too"},
	{"MLFLOW_TRACKING_PASSWORD", NULL, "the password of `MLFLOW_TRACKING_USERNAME`"},
	{"MLFLOW_TRACKING_TOKEN", NULL, "a token for MLflow, instead of user and password"},
	{"REGISTRY_AUTH_FILE", "the files of podman and docker",
		"the file with logins for image registries"},
	{"DOCKER_CONFIG", "`~/.docker`", "the configuration directory of docker"},
	{"SSL_CERT_DIR", "the system's", "a directory of certificate authorities"},
	{"TMPDIR", "`/var/tmp`", "the directory of temporary files"},
	{"LISTEN_PID", NULL, "set by systemd: the process that gets sockets"},
	{"LISTEN_FDS", NULL, "set by systemd: the number of sockets for `penstock serve`"},
	{"NOTIFY_SOCKET", NULL, "set by systemd: where `penstock serve` reports that it is ready"},
	{"NO_COLOR", NULL, "not empty: no colours"},
	{NULL, NULL, NULL},
};

const struct fact exit_table[] = {
	{"0", NULL, "every step succeeded and the output is complete"},
	{"1 to 63, 79 to 127", NULL,
		"the code of the step that failed; a step's code of 64 to 78 is shown as 79"},
	{"64", NULL, "the command line is invalid"},
	{"65", NULL,
		"the workflow is invalid, names an invalid image, or can never fit this "
		"machine; or a name matches several runs"},
	{"66", NULL,
		"an input, file, image, run or bucket is missing; or an input is damaged or "
		"cannot be reached"},
	{"69", NULL, "a service does not respond, or another process holds a needed resource"},
	{"70", NULL, "penstock or this machine failed (disk, memory, closed output)"},
	{"73", NULL,
		"the output is incomplete; `penstock flush` uploads the rest; takes precedence "
		"over the code of a step"},
	{"75", NULL,
		"stopped by SIGTERM or [another notice](preemption.md); the same command continues "
		"the run"},
	{"77", NULL, "credentials or permissions were refused"},
	{"78", NULL, "a configuration file is invalid"},
	{"124", NULL, "a `timeout` or `hangTimeout` was exceeded"},
	{"128+n", NULL, "killed by signal n; 130 after Ctrl-C"},
	{NULL, NULL, NULL},
};

void table_add_plain(struct buf *out, const char *text)
{
	bool code = false;

	for (const char *p = text; *p; p++) {
		const char *end = p + strcspn(p, "]");
		bool opens = *p == '[' && end[0] == ']' && end[1] == '(';

		if (*p == '`')
			code = !code;
		else if (!code && p[0] == ']' && p[1] == '(')
			p += strcspn(p, ")");
		else if (code || (*p != '*' && !opens))
			buf_add_char(out, *p);
	}
}

/* ---- scdoc ---- */

/* Appends Markdown in the format of scdoc(5): code becomes bold, and links become their text. */
static void add_scdoc(struct buf *out, const char *text)
{
	bool code = false;

	for (const char *p = text; *p; p++) {
		if (*p == '`') {
			code = !code;
			buf_add_char(out, '*');
		} else if (!code && p[0] == ']' && p[1] == '(') {
			p += strcspn(p, ")");
		} else if (!code && (*p == '*' || *p == '[')) {
			continue;
		} else {
			if (strchr("*_\\~#<", *p))
				buf_add_char(out, '\\');
			buf_add_char(out, *p);
		}
	}
}

static void add_entry(struct buf *out, const char *name, const char *value, const char *otherwise,
	const char *says)
{
	buf_add_char(out, '*');
	for (const char *p = name; *p; p++)
		buf_printf(out, "%s%c", *p == '_' ? "\\" : "", *p);
	buf_add_char(out, '*');
	if (value) {
		buf_add_str(out, " (");
		add_scdoc(out, value);
		buf_add_char(out, ')');
	}
	buf_add_str(out, "\n\t");
	add_scdoc(out, says);
	if (otherwise && strcmp(otherwise, "none") != 0) {
		buf_add_str(out, strcmp(otherwise, "required") == 0 ? "; " : "; default: ");
		add_scdoc(out, otherwise);
	}
	buf_add_str(out, "\n\n");
}

/* ---- values and defaults of keys ---- */

static void add_value(struct buf *out, const struct schema_key *key)
{
	if (key->value)
		buf_add_str(out, key->value);
	else if (key->kinds & (KEY_WORD | KEY_WORDS)) {
		buf_add_str(out, key->kinds & KEY_WORDS ? "list of " : "");
		for (size_t i = 0; key->words[i]; i++)
			buf_printf(out, "%s`%s`", i ? ", " : "", key->words[i]);
	} else if (key->kinds & (KEY_WHOLE | KEY_WHOLES))
		buf_printf(out, "%s%lld to %lld", key->kinds & KEY_WHOLES ? "list of " : "",
			(long long)key->min, (long long)key->max);
	else if (key->kinds & KEY_FLAG)
		buf_add_str(out, "true or false");
	else if (key->kinds & KEY_DURATION)
		buf_add_str(out, "duration");
	else if (key->kinds & KEY_VARIABLES)
		buf_add_str(out, "list of `key`, `value`");
	else if (key->kinds & KEY_CREDENTIAL)
		buf_add_str(out, "text or a [reference](#secrets-and-references)");
	else if (key->kinds & KEY_LIST)
		buf_add_str(out, "list of maps");
	else if (key->kinds & KEY_TEXTS)
		buf_add_str(out, "list of texts");
	else
		buf_add_str(out, key->kinds & KEY_MAP ? "map" : "text");
}

static void add_default(struct buf *out, const struct schema_key *key)
{
	if (key->flags & KEY_REQUIRED)
		buf_add_str(out, "required");
	else if (key->otherwise)
		buf_add_str(out, key->otherwise);
	else if (key->kinds & KEY_WORD)
		buf_printf(out, "`%s`", key->words[key->preset]);
	else if (key->kinds & KEY_FLAG)
		buf_add_str(out, key->preset ? "true" : "false");
	else if (key->kinds & KEY_DURATION && key->preset)
		buf_printf(out, "%llds", (long long)key->preset / 1000);
	else if (key->preset)
		buf_printf(out, "%lld", (long long)key->preset);
	else if (key->preset_text)
		buf_printf(out, "`%s`", key->preset_text);
	else
		buf_add_str(out, "none");
}

static void add_key(struct buf *out, const struct schema_key *key, bool markdown)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf otherwise = BUF_INIT(LIMIT_STRING);

	add_value(&value, key);
	add_default(&otherwise, key);
	if (markdown)
		buf_printf(out, "| `%s` | %s | %s | %s |\n", key->name, buf_str(&value),
			buf_str(&otherwise), key->says);
	else
		add_entry(out, key->name, buf_str(&value), buf_str(&otherwise), key->says);
}

void table_add_meaning(struct buf *out, const struct schema_key *key)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf otherwise = BUF_INIT(LIMIT_STRING);
	size_t len = strlen(key->says) - (str_ends(key->says, "; ours") ? strlen("; ours") : 0);
	const char *before = " (";

	buf_add(&text, key->says, len);
	add_default(&otherwise, key);
	/* A map has no value of its own: its keys follow. */
	if (!key->below) {
		buf_add_str(&text, before);
		add_value(&text, key);
		before = "; ";
	}
	if (strcmp(buf_str(&otherwise), "required") == 0)
		buf_printf(&text, "%srequired", before);
	else if (strcmp(buf_str(&otherwise), "none") != 0)
		buf_printf(&text, "%sdefault: %s", before, buf_str(&otherwise));
	else if (key->below)
		before = "";
	if (*before)
		buf_add_char(&text, ')');
	table_add_plain(out, buf_str(&text));
}

/* Returns the schema `name` at or below `schema`; NULL if there is none. */
static const struct schema *find_schema(
	const struct schema *schema, const char *name, unsigned depth)
{
	const struct schema *found = strcmp(schema->name, name) == 0 ? schema : NULL;

	for (size_t i = 0; !found && depth < 8 && i < schema->n; i++) {
		if (schema->keys[i].below)
			found = find_schema(schema->keys[i].below, name, depth + 1);
	}
	return found;
}

bool table_write(struct buf *out, const char *name, bool markdown)
{
	bool variables = strcmp(name, "environment") == 0;
	const struct schema *schema;

	if (variables || strcmp(name, "exit-codes") == 0) {
		const struct fact *f = variables ? environment_table : exit_table;

		if (markdown)
			buf_add_str(
				out, variables ? "| variable | default | meaning |\n|---|---|---|\n"
					       : "| code | meaning |\n|---|---|\n");
		for (; f->name; f++) {
			if (!markdown)
				add_entry(out, f->name, NULL, f->otherwise, f->says);
			else if (variables)
				buf_printf(out, "| `%s` | %s | %s |\n", f->name,
					f->otherwise ? f->otherwise : "none", f->says);
			else
				buf_printf(out, "| %s | %s |\n", f->name, f->says);
		}
		return true;
	}
	schema = find_schema(&schema_job, name, 0);
	if (!schema)
		return false;
	if (markdown)
		buf_add_str(out, "| key | value | default | meaning |\n|---|---|---|---|\n");
	for (size_t i = 0; i < schema->n; i++) {
		if (!(schema->keys[i].flags & KEY_LEGACY))
			add_key(out, &schema->keys[i], markdown);
	}
	return true;
}
