/*
 * The keys of the root of the store's first account: PENSTOCK_ACCESS_KEY_ID and
 * PENSTOCK_SECRET_ACCESS_KEY if they are set, else the keys in ROOT/credentials, which is created
 * with new keys if it is missing. The file is an AWS credentials file with the profile "default",
 * so other tools need only AWS_SHARED_CREDENTIALS_FILE=ROOT/credentials.
 */
#ifndef SERVER_REQUEST_ACCOUNT_H
#define SERVER_REQUEST_ACCOUNT_H

#include <stdbool.h>

struct penstock_error;

struct account {
	char *access_key_id;
	char *secret_access_key;
	bool from_environment;
};

/* Creates a missing file if `create` is true, else fails with PENSTOCK_E_NOT_FOUND. The secret is
 * masked in log lines from then on. */
int account_load(struct account *out, const char *root, bool create, struct penstock_error *err);
/* Wipes the secret. */
void account_release(struct account *account);

#endif
