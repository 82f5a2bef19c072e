#include "server/directory/managed.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "server/directory/record.h"

#define ALLOWS(actions)                                                                            \
	"{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Action\":" actions     \
	",\"Resource\":\"*\"}]}"

static const struct managed_builtin builtins[] = {
	{"AdministratorAccess", "ANPAIWMBCKSKIEE64ZLYK", ALLOWS("\"*\"")},
	{"AmazonS3FullAccess", "ANPAIFIR6V6BVTRAHWINE", ALLOWS("[\"s3:*\"]")},
	{"AmazonS3ReadOnlyAccess", "ANPAIZTJ4DXE7G6AGAE6M", ALLOWS("[\"s3:Get*\",\"s3:List*\"]")},
	{"IAMFullAccess", "ANPAI7XKCFMBPM3QQRRVQ", ALLOWS("[\"iam:*\"]")},
	{"IAMReadOnlyAccess", "ANPAJKSO7NDY4T57MWDSQ", ALLOWS("[\"iam:Get*\",\"iam:List*\"]")},
};

const struct managed_builtin *managed_builtin(size_t i)
{
	return i < ARRAY_SIZE(builtins) ? &builtins[i] : NULL;
}

const struct managed_builtin *managed_builtin_find(const char *arn)
{
	if (!str_starts(arn, MANAGED_BUILTIN_ARN))
		return NULL;
	arn += strlen(MANAGED_BUILTIN_ARN);
	for (size_t i = 0; i < ARRAY_SIZE(builtins); i++)
		if (strcmp(builtins[i].name, arn) == 0)
			return &builtins[i];
	return NULL;
}

const char *managed_document(const json_t *records, const char *arn)
{
	const struct managed_builtin *builtin = managed_builtin_find(arn);
	const json_t *policy;

	if (builtin)
		return builtin->document;
	policy = record_by_arn(records, arn, NULL);
	return json_string_value(
		json_object_get(json_object_get(json_object_get(policy, "versions"),
					record_text(policy, "default")),
			"document"));
}
