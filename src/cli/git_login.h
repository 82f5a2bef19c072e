/*
 * The user and password in the address of a Git repository, on their way to git. They are taken out of the address,
 * for git and its helpers have that among their arguments, which everybody reads. What stands instead of them asks for
 * them by a helper of git's, which reads a file in memory: they are in no argument, in no environment and on no disk.
 *
 *	git_login_take(&login, url, err);	url has no user any more
 *	git_login_way(&way, &login, GIT_LOGIN_FIRST, err);
 *	... git with way.options, and way.fd as descriptor PROCESS_HANDED_FD ...
 *	git_login_way_release(&way);	git_login_release(&login);
 */
#ifndef CLI_GIT_LOGIN_H
#define CLI_GIT_LOGIN_H

#include <stdbool.h>

#include "base/str.h"

struct penstock_error;

struct git_login {
	char *place; /* "https://host:port"; NULL: the address has no user */
	char *user;  /* these two without percent signs */
	char *password; /* NULL: there is a user alone, which may be a token, or whom git's own helpers know */
};
void git_login_release(struct git_login *login);

/*
 * Takes it out of `url`, where it begins with https:// or http://. PENSTOCK_E_INVALID: it is none that git could be told,
 * or the address of another scheme has a password.
 */
int git_login_take(struct git_login *out, char *url, struct penstock_error *err);

enum git_login_ways {
	GIT_LOGIN_FIRST, /* what stands in the address; nobody else is asked, nor told what it was */
	GIT_LOGIN_HELPERS, /* for a user alone: git's own helpers are asked for his password */
};

struct git_login_way {
	struct strlist options; /* "-c", … */
	int fd;			/* 0: none is needed */
};
/* clang-format off */
#define GIT_LOGIN_WAY_INIT { { NULL, 0 }, 0 }
/* clang-format on */
int git_login_way(struct git_login_way *out, const struct git_login *login,
	enum git_login_ways which, struct penstock_error *err);
void git_login_way_release(struct git_login_way *way);

#endif
