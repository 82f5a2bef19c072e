/*
 * Passes the login (user and password) in the address of a Git repository to git. The login is
 * removed from the address, because git and its helpers have the address among their arguments,
 * which every user can read. Instead git gets the login through a credential helper that reads a
 * file in memory: the login is in no argument, in no environment and on no disk.
 *
 *	git_login_take(&login, url, err);	// url has no user any more
 *	git_login_way(&way, &login, GIT_LOGIN_FIRST, err);
 *	... git with way.options, and way.fd as descriptor PROCESS_HANDED_FD ...
 *	git_login_way_release(&way); git_login_release(&login);
 */
#ifndef CLI_WORKFLOW_GIT_LOGIN_H
#define CLI_WORKFLOW_GIT_LOGIN_H

#include <stdbool.h>

#include "base/str.h"

struct penstock_error;

struct git_login {
	char *place; /* "https://host:port"; NULL if the address has no user */
	char *user; /* without percent encoding, like the password */
	/* NULL if the address has only a user: the user may be a token, or git's own helpers may
	 * know the password */
	char *password;
};
void git_login_release(struct git_login *login);

/*
 * Removes the login from `url` if `url` begins with https:// or http://. Fails with
 * PENSTOCK_E_INVALID if the login cannot be passed to git, or if an address of another scheme has a
 * password.
 */
int git_login_take(struct git_login *out, char *url, struct penstock_error *err);

enum git_login_ways {
	/* uses the login of the address; no other helper is asked for the login or stores it */
	GIT_LOGIN_FIRST,
	/* for a user without a password: asks git's own helpers for the password */
	GIT_LOGIN_HELPERS,
};

struct git_login_way {
	struct strlist options; /* "-c", … */
	int fd; /* 0 if no file is needed */
};
/* clang-format off */
#define GIT_LOGIN_WAY_INIT { { NULL, 0 }, 0 }
/* clang-format on */
int git_login_way(struct git_login_way *out, const struct git_login *login,
	enum git_login_ways which, struct penstock_error *err);
void git_login_way_release(struct git_login_way *way);

#endif
