/*
 * Measures the time to verify a signature and to make one, and the speed of the checksums. Prints
 * medians of several rounds: `ninja -C build bench/bench-sigv4 && build/bench/bench-sigv4`.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "s3/sum/checksum.h"
#include "s3/sign/chunked.h"
#include "s3/sign/sigv4.h"

#define ROUNDS	 9
#define REQUESTS 100000
#define NOW	 INT64_C(1369353600)
#define DATA	 ((size_t)8 << 20)

static struct sigv4 ws;
static struct sigv4_header headers[] = {{"Host", "127.0.0.1:9000"}, {"Accept-Encoding", "identity"},
	{"User-Agent", "Boto3/1.40 md/Botocore#1.40 ua/2.1 os/linux"},
	{"X-Amz-Date", "20130524T000000Z"}, {"X-Amz-Content-SHA256", "UNSIGNED-PAYLOAD"},
	{"amz-sdk-invocation-id", "3fc2a3b6-7c0f-4a5e-9d0d-0d8f2f1f6d5a"},
	{"amz-sdk-request", "attempt=1"}, {"Authorization", NULL}};
static struct sigv4_request req = {.method = "GET",
	.path = "/bucket/train/shard-000123/sample-00004567.jpg",
	.query = "",
	.headers = headers,
	.n_headers = ARRAY_SIZE(headers) - 1,
	.payload_hash = "UNSIGNED-PAYLOAD"};
static const struct sigv4_credentials keys = {
	"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns processor time, which a busy machine affects less than wall time. */
static int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* Returns the median of ROUNDS runs of `once`, in nanoseconds divided by `n`. */
static double median_ns(void (*once)(void), double n)
{
	double ns[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		int64_t start = cpu_ns();

		once();
		ns[i] = (double)(cpu_ns() - start) / n;
	}
	qsort(ns, ROUNDS, sizeof(*ns), by_value);
	return ns[ROUNDS / 2];
}

static void verify_all(void)
{
	struct sigv4_auth auth;

	for (int i = 0; i < REQUESTS; i++) {
		if (sigv4_parse(&req, &auth) != SIGV4_VALID ||
			sigv4_verify(&ws, &req, &auth, keys.secret_key, NOW) != SIGV4_VALID) {
			fputs("the signature does not verify\n", stderr);
			exit(1);
		}
	}
}

static void sign_all(void)
{
	struct buf auth = BUF_INIT(LIMIT_HTTP_HEADERS);

	for (int i = 0; i < REQUESTS; i++) {
		buf_clear(&auth);
		if (sigv4_sign(&ws, &req, (struct sigv4_identity){&keys, "us-east-1", "s3", NOW},
			    &auth, NULL, NULL) < 0)
			exit(1);
	}
	buf_release(&auth);
}

static uint8_t *data;
static enum checksum_kind kind;

static void checksum_all(void)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];

	checksum_of(kind, data, DATA, digest, NULL);
}

int main(void)
{
	struct buf auth = BUF_INIT(LIMIT_HTTP_HEADERS);

	if (sigv4_init(&ws, NULL) < 0 ||
		sigv4_sign(&ws, &req, (struct sigv4_identity){&keys, "us-east-1", "s3", NOW}, &auth,
			NULL, NULL) < 0)
		return 1;
	printf("sign    %7.0f ns per request\n", median_ns(sign_all, REQUESTS));
	headers[ARRAY_SIZE(headers) - 1].value = buf_str(&auth);
	req.n_headers = ARRAY_SIZE(headers);
	req.payload_hash = NULL;
	printf("verify  %7.0f ns per request\n", median_ns(verify_all, REQUESTS));
	data = malloc(DATA);
	if (!data)
		return 1;
	memset(data, 'x', DATA);
	for (int k = CHECKSUM_NONE + 1; k < CHECKSUM_KIND_COUNT_; k++) {
		kind = (enum checksum_kind)k;
		printf("%-9s %6.2f GB/s\n", checksum_name(kind) ? checksum_name(kind) : "MD5",
			1 / median_ns(checksum_all, (double)DATA));
	}
	buf_release(&auth);
	free(data);
	sigv4_release(&ws);
	return 0;
}
