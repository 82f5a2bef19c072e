/* The first byte selects how the rest is parsed: as a reference, manifest, configuration,
 * challenge, token or login file. */
#include "fuzz.h"

#include "image/manifest.h"
#include "image/reference.h"

static void check_reference(const char *text)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct image_reference ref = {0};
	int r = image_reference_parse(&ref, text, NULL, &err);

	require_error(r, &err);
	if (r == 0) {
		_cleanup_free_ char *name = image_reference_name(&ref);
		struct image_reference again = {0};
		_cleanup_free_ char *same = NULL;

		/* The reference becomes part of an address. */
		require(ref.repository[0] != '/' && !strstr(ref.repository, "..") &&
			!strpbrk(ref.repository, " ?#%@:\n\\"));
		require(!ref.tag || !strpbrk(ref.tag, " /?#%@:\n\\"));
		require(!strpbrk(ref.host, " /?#%@\n\\"));
		require(ref.tag || ref.digest);
		require(image_reference_parse(&again, name, NULL, NULL) == 0);
		same = image_reference_name(&again);
		require(strcmp(name, same) == 0);
		image_reference_release(&again);
	}
	image_reference_release(&ref);
}

static void check_manifest(const char *text, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct image_manifest manifest = {0};
	int r = image_manifest_parse(&manifest, text, len, &err);

	require_error(r, &err);
	if (r == 0) {
		require(image_digest_is_valid(manifest.config.digest));
		require(manifest.n_layers <= LIMIT_IMAGE_LAYERS);
		require(!manifest.is_index || manifest.n_layers == 0);
	}
	for (size_t i = 0; i < manifest.n_layers; i++)
		require(image_digest_is_valid(manifest.layers[i].digest));
	image_manifest_release(&manifest);
}

static void check_config(const char *text, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct image_config config = {0};

	require_error(image_config_parse(&config, text, len, &err), &err);
	image_config_release(&config);
}

static void check_login(const char *text, size_t len)
{
	static const char *const hosts[] = {"ghcr.io", "registry-1.docker.io", "127.0.0.1:5000"};

	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct image_login login = {0};
		int r = image_login_parse(&login, text, len, hosts[i], "org/name", &err);

		require_error(r > 0 ? 0 : r, &err);
		require(r != 1 || (login.username && login.password) || login.helper);
		/* The helper becomes part of the name of a program. */
		require(!login.helper || !strpbrk(login.helper, "/ \n"));
		image_login_release(&login);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image_challenge challenge = {0};

	if (size < 1)
		return 0;
	_cleanup_free_ char *text = fuzz_text(data + 1, size - 1);

	switch (data[0] % 6) {
	case 0:
		check_reference(text);
		break;
	case 1:
		check_manifest(text, size - 1);
		break;
	case 2:
		check_config(text, size - 1);
		break;
	case 3:
		check_login(text, size - 1);
		break;
	case 4:
		if (image_challenge_parse(&challenge, text))
			require(challenge.basic || challenge.realm);
		image_challenge_release(&challenge);
		break;
	default: {
		_cleanup_free_ char *token = image_token_parse(text, size - 1);

		/* The token goes into a header. */
		require(!token || (*token && !strpbrk(token, " \r\n\t")));
		break;
	}
	}
	return 0;
}
