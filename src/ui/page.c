#include "ui/page.h"

#include <string.h>

#include "base/cleanup.h"
#include "page_files.h"
#include "ui/answer.h"

enum MHD_Result page_reply(struct exchange *x)
{
	const char *name = strcmp(x->path, "/") == 0 ? "index.html" : x->path + (*x->path == '/');
	const char *accepted = sent_header(x, "Accept-Encoding"),
		   *known = sent_header(x, "If-None-Match");
	const struct page_file *file = NULL;
	struct MHD_Response *response;
	bool same;

	for (size_t i = 0; i < ARRAY_SIZE(page_files) && !file; i++) {
		if (strcmp(page_files[i].name, name) == 0)
			file = &page_files[i];
	}
	if (!file)
		return answer_error(x, MHD_HTTP_NOT_FOUND, "there is no page at this path");
	if (!accepted || !strstr(accepted, "gzip"))
		return answer_error(x, MHD_HTTP_NOT_ACCEPTABLE,
			"the page is sent compressed only; send Accept-Encoding: gzip");
	same = known && strcmp(known, file->etag) == 0;
	response = MHD_create_response_from_buffer(
		same ? 0 : file->size, (void *)(uintptr_t)file->data, MHD_RESPMEM_PERSISTENT);
	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", file->type);
	MHD_add_response_header(response, "Content-Encoding", "gzip");
	MHD_add_response_header(response, "ETag", file->etag);
	return answer(x, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, response);
}
