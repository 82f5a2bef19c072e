/* Replies of a server of MLflow, and its address. The first byte: which one; the rest is the text.
 */
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
		/* Nothing may be found. */
		return r == 0 && !*id ? -1 : r;
	}
	mlflow_refused_with(text, len, "RESOURCE_DOES_NOT_EXIST");
	return r;
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
	require((reply((char)data[0], text, size - 1, id) == 0) == (*id != '\0'));
	for (const char *p = id; *p; p++)
		require(isalnum((unsigned char)*p) || *p == '_' || *p == '-');
	return 0;
}
