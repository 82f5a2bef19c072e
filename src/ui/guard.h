/*
 * Decides if a request may be answered.
 *
 *	#include "ui/answer.h"
 *
 *	status = guard_check(x, &reason);
 *	if (status)
 *		return answer_error(x, status, "%s", reason);
 *
 * A request is answered under these conditions:
 *
 * - The Host is an IP address, localhost, the name of this machine, or a name given with --host:
 *   any other name that resolves to this machine (DNS rebinding) is refused.
 * - Requests below /api, and all requests except GET and HEAD, have the cookie, and come from the
 *   page itself as far as the browser reports (Sec-Fetch-Site, Origin).
 * - Requests other than GET and HEAD have the header X-Penstock, which no page of another origin
 *   can send, and are refused with --read-only.
 */
#ifndef UI_GUARD_H
#define UI_GUARD_H

#include "ui/internal.h"

struct penstock_error;

/* Creates the token, the content of the cookie and its name. */
int guard_init(struct ui *ui, struct penstock_error *err);
/* Returns 0 if the request may be answered, else the status of the refusal, with a static
 * `*reason`. */
unsigned guard_check(struct exchange *x, const char **reason);
/* Answers GET /?token=TOKEN. */
enum MHD_Result guard_login(struct exchange *x, const char *token);

#endif
