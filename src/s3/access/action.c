#include "s3/access/action.h"

#include <string.h>

#include "base/cleanup.h"
#include "s3/access/pattern.h"
#include "s3/ascii.h"

/* The actions that AWS documents; the store does not serve all of them. */
static const char *const actions[] = {"AbortMultipartUpload", "BypassGovernanceRetention",
	"CreateAccessPoint", "CreateBucket", "CreateBucketMetadataTableConfiguration", "CreateJob",
	"CreateMultiRegionAccessPoint", "DeleteAccessPoint", "DeleteAccessPointPolicy",
	"DeleteBucket", "DeleteBucketMetadataTableConfiguration", "DeleteBucketPolicy",
	"DeleteBucketWebsite", "DeleteJobTagging", "DeleteObject", "DeleteObjectTagging",
	"DeleteObjectVersion", "DeleteObjectVersionTagging", "DeleteStorageLensConfiguration",
	"DescribeJob", "GetAccelerateConfiguration", "GetAccessPoint", "GetAccessPointPolicy",
	"GetAccessPointPolicyStatus", "GetAccountPublicAccessBlock", "GetAnalyticsConfiguration",
	"GetBucketAcl", "GetBucketCORS", "GetBucketLocation", "GetBucketLogging",
	"GetBucketMetadataTableConfiguration", "GetBucketNotification",
	"GetBucketObjectLockConfiguration", "GetBucketOwnershipControls", "GetBucketPolicy",
	"GetBucketPolicyStatus", "GetBucketPublicAccessBlock", "GetBucketRequestPayment",
	"GetBucketTagging", "GetBucketVersioning", "GetBucketWebsite", "GetEncryptionConfiguration",
	"GetIntelligentTieringConfiguration", "GetInventoryConfiguration", "GetJobTagging",
	"GetLifecycleConfiguration", "GetMetricsConfiguration", "GetObject", "GetObjectAcl",
	"GetObjectAttributes", "GetObjectLegalHold", "GetObjectRetention", "GetObjectTagging",
	"GetObjectTorrent", "GetObjectVersion", "GetObjectVersionAcl", "GetObjectVersionAttributes",
	"GetObjectVersionForReplication", "GetObjectVersionTagging", "GetObjectVersionTorrent",
	"GetReplicationConfiguration", "GetStorageLensConfiguration", "InitiateReplication",
	"ListAccessPoints", "ListAllMyBuckets", "ListBucket", "ListBucketMultipartUploads",
	"ListBucketVersions", "ListJobs", "ListMultipartUploadParts",
	"ListStorageLensConfigurations", "ListTagsForResource", "ObjectOwnerOverrideToBucketOwner",
	"PauseReplication", "PutAccelerateConfiguration", "PutAccessPointPolicy",
	"PutAccountPublicAccessBlock", "PutAnalyticsConfiguration", "PutBucketAcl", "PutBucketCORS",
	"PutBucketLogging", "PutBucketNotification", "PutBucketObjectLockConfiguration",
	"PutBucketOwnershipControls", "PutBucketPolicy", "PutBucketPublicAccessBlock",
	"PutBucketRequestPayment", "PutBucketTagging", "PutBucketVersioning", "PutBucketWebsite",
	"PutEncryptionConfiguration", "PutIntelligentTieringConfiguration",
	"PutInventoryConfiguration", "PutLifecycleConfiguration", "PutMetricsConfiguration",
	"PutObject", "PutObjectAcl", "PutObjectLegalHold", "PutObjectRetention", "PutObjectTagging",
	"PutObjectVersionAcl", "PutObjectVersionTagging", "PutReplicationConfiguration",
	"PutStorageLensConfiguration", "ReplicateDelete", "ReplicateObject", "ReplicateTags",
	"RestoreObject", "TagResource", "UntagResource", "UpdateJobPriority", "UpdateJobStatus"};

bool action_is_known(const struct pattern *pattern)
{
	static const char prefix[] = "s3:";
	const size_t n = sizeof(prefix) - 1;
	struct pattern name = {.text = pattern->text + n, .len = pattern->len - n};

	if (pattern->len == 2 && memcmp(pattern->text, "\0*", 2) == 0)
		return true;
	if (pattern->len <= n || !ascii_starts(pattern->text, prefix))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (pattern_match(&name, actions[i], true, NULL))
			return true;
	return false;
}
