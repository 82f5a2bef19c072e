/*
 * Sources of temporary credentials: the metadata service of an instance or a container, another
 * program, or STS, which issues the keys of a role. Each constructor creates a provider that
 * fetches on first use and again before the keys expire; the constructor itself sends nothing.
 *
 *	#include "net/credentials/credentials.h"
 *
 *	r = credential_source_instance(&provider, err);
 *	if (r == 0)
 *		r = credentials_get(provider, &keys, err);
 *
 * A fetch has its own thread and its own HTTP engine: it never waits for the transfers that need
 * the keys, and callers can stop waiting for it.
 */
#ifndef NET_CREDENTIALS_SOURCES_H
#define NET_CREDENTIALS_SOURCES_H

#include <stddef.h>

struct penstock_error;
struct credentials;
struct credentials_provider;

/*
 * Creates a provider of fixed keys. Returns 1 if both `id` and `secret` are given, 0 if neither is
 * given, and -PENSTOCK_E_INVALID if only one is given; the message names `where`, the place of the
 * keys.
 */
int credential_source_pair(struct credentials_provider **out, const char *id, const char *secret,
	const char *session_token, const char *where, struct penstock_error *err);

/*
 * Creates a provider for the role of this EC2 instance, from version 2 of its metadata service
 * (with a session token). The address is AWS_EC2_METADATA_SERVICE_ENDPOINT, else the default
 * address of AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE ("IPv4", "IPv6"); AWS_METADATA_SERVICE_TIMEOUT
 * (seconds, default 1) and AWS_METADATA_SERVICE_NUM_ATTEMPTS (default 1) limit a query.
 */
int credential_source_instance(struct credentials_provider **out, struct penstock_error *err);

/*
 * Creates a provider for the role of this ECS task or EKS pod, from
 * AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or …_FULL_URI, with the token of
 * AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE (read each time) or …_TOKEN. Returns -PENSTOCK_E_INVALID
 * if neither URI is set, or if …_FULL_URI uses plain HTTP to a machine other than this one and the
 * services of ECS and EKS.
 */
int credential_source_container(struct credentials_provider **out, struct penstock_error *err);

/* Creates a provider of the keys that `command` (run by /bin/sh, for at most a minute) prints in
 * the credential_process format. */
int credential_source_process(
	struct credentials_provider **out, const char *command, struct penstock_error *err);

/* All strings are copied. */
struct sts_role {
	const char *sts_url; /* https://sts.REGION.amazonaws.com, or a store with STS */
	const char *region; /* region of the signature */
	const char *role_arn; /* web identity: NULL or "" if the store needs none */
	const char *session_name; /* penstock-PID if NULL */
	const char *external_id; /* may be NULL */
	unsigned duration_s; /* the server's default if 0 */
	const char *token_file; /* web identity: read each time */
};

/* Creates a provider that calls AssumeRole with the keys of `source`. The new provider owns
 * `source`, which is freed if the call fails. */
int credential_source_role(struct credentials_provider **out, const struct sts_role *role,
	struct credentials_provider *source, struct penstock_error *err);
/* Creates a provider that calls AssumeRoleWithWebIdentity with the token in `token_file`. */
int credential_source_web_identity(
	struct credentials_provider **out, const struct sts_role *role, struct penstock_error *err);

/* Generations of a secret that stay hidden in logs; older ones have long expired. */
#define HIDDEN_GENERATIONS 8

/* The last tokens of a source whose token is rotated; zero the struct before the first call. */
struct hidden_tokens {
	char *ring[HIDDEN_GENERATIONS];
	size_t n; /* number of tokens so far */
};
/* Masks the token in logs and forgets the oldest masked token; does nothing if the token is the
 * newest one already. Returns -1 if out of memory. */
int hidden_tokens_add(struct hidden_tokens *hidden, const char *token, size_t len);
/* Frees the tokens, which stay hidden in logs. */
void hidden_tokens_release(struct hidden_tokens *hidden);

/* ---- parsers shared by the sources, without side effects; also used by the fuzzer ---- */

/*
 * Parses {"AccessKeyId", "SecretAccessKey", "Token" or "SessionToken", "Expiration"}, with an
 * optional "Code" (anything but "Success" gives PENSTOCK_E_PERMISSION with its "Message") and
 * "Version" (1).
 */
int credentials_from_json(
	const char *text, size_t len, struct credentials *out, struct penstock_error *err);
/* Parses the reply of AssumeRole and AssumeRoleWithWebIdentity. */
int credentials_from_sts(
	const char *xml, size_t len, struct credentials *out, struct penstock_error *err);

#endif
