/*
 * Files that a browser sends to a store, in parts:
 *
 *	POST /api/upload?url=s3://bucket/key&size=N&modified=MS
 *							{"id", "part": bytes, "done": [1, 2, …]}
 *	PUT /api/upload?url=…&id=ID&number=3		the bytes of a part, in order
 *	POST /api/upload/finish?url=…&id=ID		stores the object
 *	DELETE /api/upload?url=…&id=ID			removes the upload
 *
 * The parts are kept in the file HOME/uploads/ID, so an upload continues after a lost connection, a
 * closed browser and a restart: uploads of the same URL, store, size and time of the file have the
 * same id. `penstock cp` stores the file, which is removed after that.
 */
#ifndef UI_UPLOAD_H
#define UI_UPLOAD_H

#include <stddef.h>

#include "ui/internal.h"

enum MHD_Result upload_begin(struct exchange *x);
/* Takes the next piece of the body. A refused body is received and dropped, because a browser reads
 * no reply before it has sent the whole body. */
void upload_part_add(struct exchange *x, const char *data, size_t len);
enum MHD_Result upload_part_end(struct exchange *x);
/* Frees the part, and removes its bytes if it is incomplete. `part` may be NULL. */
void upload_part_free(struct upload_part *part);
enum MHD_Result upload_finish(struct exchange *x);
enum MHD_Result upload_forget(struct exchange *x);

#endif
