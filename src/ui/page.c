#include "ui/page.h"

#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "page_files.h"
#include "ui/answer.h"

/* Decompresses the file. Returns false if out of memory. */
static bool unpack(const struct page_file *file, struct buf *out)
{
	_cleanup_free_ struct inflate_state *state = malloc(sizeof(*state));
	char *text = buf_reserve(out, file->unpacked);

	if (!state || !text)
		return false;
	isal_inflate_init(state);
	state->crc_flag = ISAL_GZIP;
	state->next_in = (uint8_t *)(uintptr_t)file->data;
	state->avail_in = (uint32_t)file->size;
	state->next_out = (uint8_t *)text;
	state->avail_out = (uint32_t)file->unpacked;
	if (isal_inflate(state) != ISAL_DECOMP_OK || state->avail_out)
		return false;
	buf_grown(out, file->unpacked);
	return true;
}

enum MHD_Result page_reply(struct exchange *x)
{
	const char *name = strcmp(x->path, "/") == 0 ? "index.html" : x->path + (*x->path == '/');
	const char *known = sent_header(x, "If-None-Match");
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_UI_REPLY);
	const struct page_file *file = NULL;
	struct MHD_Response *response;
	bool same;

	for (size_t i = 0; i < ARRAY_SIZE(page_files) && !file; i++) {
		if (strcmp(page_files[i].name, name) == 0)
			file = &page_files[i];
	}
	if (!file)
		return answer_error(x, MHD_HTTP_NOT_FOUND, "there is no page at this path");
	if (!accepts_gzip(x))
		return unpack(file, &text) ? answer_tagged(x, file->type, &text) : MHD_NO;
	same = known && strcmp(known, file->etag) == 0;
	response = MHD_create_response_from_buffer(
		same ? 0 : file->size, (void *)(uintptr_t)file->data, MHD_RESPMEM_PERSISTENT);
	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", file->type);
	MHD_add_response_header(response, "Content-Encoding", "gzip");
	MHD_add_response_header(response, "ETag", file->etag);
	MHD_add_response_header(response, "Vary", "Accept-Encoding");
	return answer(x, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, response);
}
