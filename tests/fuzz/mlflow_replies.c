/* Replies of an MLflow server, and its address. The first byte selects how the rest is parsed. */
#include "run/tracking/mlflow.h"

#include <ctype.h>

#include "fuzz.h"

static void address(const char *text)
{
	_cleanup_(buf_release) struct buf base = BUF_INIT(1 << 20);
	_cleanup_(mlflow_login_release) struct mlflow_login login = {0};

	if (mlflow_split_uri(text, &base, &login) < 0)
		return;
	require(base.len <= strlen(text));
	require(!login.user == !login.password);
}

static int reply(char which, const char *text, size_t len, char id[static MLFLOW_ID_SIZE])
{
	int r = -1;

	if (which == 'e')
		return mlflow_read_experiment(text, len, id, NULL);
	if (which == 'r')
		return mlflow_read_run(text, len, id, NULL);
	if (which == 'f') {
		r = mlflow_read_found(text, len, id, NULL);
		/* An empty id means that no run was found. */
		return r == 0 && !*id ? -1 : r;
	}
	mlflow_refused_with(text, len, "RESOURCE_DOES_NOT_EXIST");
	return r;
}

static int check_point(void *cookie, const char *name, const struct mlflow_point *point)
{
	require(*name && point->step != INT64_MIN);
	require(point->time_ms >= 0 && point->time_ms <= INT64_MAX / 1000000);
	return ++*(int *)cookie == 1000 ? -1 : 0;
}

/* Reads the last points, or a page of a history. */
static void points(char which, const char *text, size_t len)
{
	_cleanup_(buf_release) struct buf next = BUF_INIT(64);
	int seen = 0, r;

	r = which == 'l' ? mlflow_read_last(text, len, check_point, &seen, NULL)
			 : mlflow_read_history(text, len, check_point, &seen, &next, NULL);
	require(seen <= 1000 && (r < 0 || seen < 1000));
	require(next.len <= 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char id[MLFLOW_ID_SIZE] = "";

	if (!size)
		return 0;
	_cleanup_free_ char *text = fuzz_text(data + 1, size - 1);

	if (data[0] == 'u') {
		address(text);
		return 0;
	}
	if (data[0] == 'l' || data[0] == 'h') {
		points((char)data[0], text, size - 1);
		return 0;
	}
	require((reply((char)data[0], text, size - 1, id) == 0) == (*id != '\0'));
	for (const char *p = id; *p; p++)
		require(isalnum((unsigned char)*p) || *p == '_' || *p == '-');
	return 0;
}
