/*
 * Where temporary credentials come from: the metadata service of an instance or a container, another
 * program, or STS in exchange for a role. Each makes a provider that fetches when keys are first asked
 * for and again before they end; the constructors send nothing.
 *
 *	credential_source_instance(&provider, err);
 *	credentials_get(provider, &keys, err);
 *
 * A fetch runs on a thread and with an HTTP engine of its own: it never waits for the transfers that need
 * the keys, and who waits for it may leave.
 */
#ifndef NET_CREDENTIAL_SOURCES_H
#define NET_CREDENTIAL_SOURCES_H

#include <stddef.h>

struct penstock_error;
struct credentials;
struct credentials_provider;

/*
 * The role of this EC2 instance, from its metadata service, version 2 (a session token first). The
 * address is AWS_EC2_METADATA_SERVICE_ENDPOINT, else that of
 * AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE ("IPv4", "IPv6"); AWS_METADATA_SERVICE_TIMEOUT (seconds, 1)
 * and AWS_METADATA_SERVICE_NUM_ATTEMPTS (1) bound a try.
 */
int credential_source_instance(struct credentials_provider **out, struct penstock_error *err);

/*
 * The role of this ECS task or EKS pod: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or …_FULL_URI, with the
 * token of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE (read anew each time) or …_TOKEN. PENSTOCK_E_INVALID:
 * neither URI is set, or one over plain HTTP that is not on this machine.
 */
int credential_source_container(struct credentials_provider **out, struct penstock_error *err);

/* What `command` (run by /bin/sh, at most a minute) prints, in the credential_process format. */
int credential_source_process(
	struct credentials_provider **out, const char *command, struct penstock_error *err);

/* All strings are copied. */
struct sts_role {
	const char *sts_url;	  /* https://sts.REGION.amazonaws.com, or a store that has STS */
	const char *region;	  /* to sign for */
	const char *role_arn;	  /* web identity: NULL or "" where the store needs none */
	const char *session_name; /* NULL: penstock-PID */
	const char *external_id;  /* NULL: none */
	unsigned duration_s;	  /* 0: the server's own */
	const char *token_file;	  /* web identity: read anew each time */
};

/* AssumeRole with the keys of `source`, which becomes the new provider's (also on failure). */
int credential_source_role(struct credentials_provider **out, const struct sts_role *role,
	struct credentials_provider *source, struct penstock_error *err);
/* AssumeRoleWithWebIdentity with the token in `token_file`. */
int credential_source_web_identity(
	struct credentials_provider **out, const struct sts_role *role, struct penstock_error *err);

/* ---- what the sources share; pure, and the fuzzer's way in ---- */

/*
 * Reads {"AccessKeyId", "SecretAccessKey", "Token" or "SessionToken", "Expiration"}, with an optional
 * "Code" (other than "Success": PENSTOCK_E_PERMISSION with its "Message") and "Version" (1).
 */
int credentials_from_json(
	const char *text, size_t len, struct credentials *out, struct penstock_error *err);
/* Reads the reply of AssumeRole and AssumeRoleWithWebIdentity. */
int credentials_from_sts(
	const char *xml, size_t len, struct credentials *out, struct penstock_error *err);

#endif
