/* Signs the heads of requests that are not sent by the engine. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "s3/date.h"
#include "transfer/reads/internal.h"

int reads_signer_init(struct reads_signer *s, struct object_reads *reads, const atomic_int *cancel,
	struct penstock_error *err)
{
	struct credentials_provider *provider = reads->client->settings.credentials;
	int r = 0;

	*s = (struct reads_signer){.reads = reads,
		.now = clock_wall_ns() / NS_PER_S + atomic_load(&reads->client->skew_s)};
	if (!credentials_anonymous(provider))
		r = credentials_get_within(provider,
			&(struct credentials_patience){.cancel = cancel,
				.cancel_all = http_engine_cancel(reads->client->engine)},
			&s->keys, err);
	date_format_basic(s->now, s->date);
	return r;
}

void reads_signer_release(struct reads_signer *s)
{
	credentials_release(&s->keys);
}

int reads_sign(
	struct reads_signer *s, struct sigv4_request request, bool sums, struct penstock_error *err)
{
	const struct credentials *k = &s->keys;
	const struct sigv4_credentials keys = {
		.access_key = k->access_key_id,
		.secret_key = k->secret_access_key,
		.session_token = k->session_token,
	};
	struct sigv4_header headers[5] = {{"host", s->reads->client->authority}};
	struct buf *out = &s->reads->heads;

	request.headers = headers;
	request.n_headers = 1;
	if (sums)
		headers[request.n_headers++] = (struct sigv4_header){
			"x-amz-checksum-mode", "ENABLED"};
	if (k->access_key_id) {
		headers[request.n_headers++] = (struct sigv4_header){"x-amz-date", s->date};
		headers[request.n_headers++] = (struct sigv4_header){
			"x-amz-content-sha256", request.payload_hash};
	}
	if (k->session_token)
		headers[request.n_headers++] = (struct sigv4_header){
			"x-amz-security-token", k->session_token};
	for (size_t i = 0; i < request.n_headers; i++)
		buf_printf(out, "%s: %s\r\n", headers[i].name, headers[i].value);
	if (k->access_key_id) {
		buf_add_str(out, "Authorization: ");
		int r = sigv4_sign(&s->reads->sigv4, &request,
			(struct sigv4_identity){
				&keys, s->reads->client->settings.region, "s3", s->now},
			out, NULL, err);

		if (r < 0)
			return r;
		buf_add_str(out, "\r\n");
	}
	buf_add_str(out, "\r\n");
	return buf_failed(out) ? buf_error(out, "a request", err) : 0;
}
