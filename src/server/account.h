/*
 * The keys of the store's one account: PENSTOCK_ACCESS_KEY_ID and PENSTOCK_SECRET_ACCESS_KEY where
 * they are set, else those of ROOT/credentials, which is made with new ones if it is not there. The
 * file is an AWS credentials file with the profile "default", so that
 * AWS_SHARED_CREDENTIALS_FILE=ROOT/credentials is all that other tools need.
 */
#ifndef SERVER_ACCOUNT_H
#define SERVER_ACCOUNT_H

#include <stdbool.h>

struct penstock_error;

struct account {
	char *access_key_id;
	char *secret_access_key;
	bool from_environment;
};

/* `create`: make the file where it is missing; otherwise that is PENSTOCK_E_NOT_FOUND. The secret is
 * masked in log lines from then on. */
int account_load(struct account *out, const char *root, bool create, struct penstock_error *err);
/* Wipes the secret. */
void account_release(struct account *account);

#endif
