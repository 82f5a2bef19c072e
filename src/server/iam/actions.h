/* The actions of the query API. */
#ifndef SERVER_IAM_ACTIONS_H
#define SERVER_IAM_ACTIONS_H

struct query;

/* Users, groups and roles. */
void iam_create(struct query *q);
void iam_get(struct query *q);
void iam_list(struct query *q);
void iam_delete(struct query *q);

void iam_create_key(struct query *q);
void iam_list_keys(struct query *q);
void iam_update_key(struct query *q);
void iam_delete_key(struct query *q);

/* Inline policies. */
void iam_put_policy(struct query *q);
void iam_get_policy(struct query *q);
void iam_list_policies(struct query *q);
void iam_delete_policy(struct query *q);

/* Members of groups. */
void iam_add_member(struct query *q);
void iam_remove_member(struct query *q);
void iam_groups_of_user(struct query *q);

/* Managed policies (server/directory/managed.h), and their attachment to entities. */
void iam_create_managed(struct query *q);
void iam_get_managed(struct query *q);
void iam_list_managed(struct query *q);
void iam_delete_managed(struct query *q);
void iam_create_version(struct query *q);
void iam_get_version(struct query *q);
void iam_list_versions(struct query *q);
void iam_set_version(struct query *q);
void iam_delete_version(struct query *q);
void iam_attach(struct query *q);
void iam_detach(struct query *q);
void iam_list_attached(struct query *q);
void iam_list_holders(struct query *q);

/* The numbers of entities in an account, and their quotas. */
void iam_summary(struct query *q);
/* Replies with an empty list, because the store refuses AssumeRoleWithWebIdentity. */
void iam_list_providers(struct query *q);

/* Changes of existing users, groups and roles. */
void iam_update(struct query *q);
void iam_update_role(struct query *q);
void iam_update_trust(struct query *q);

void sts_caller(struct query *q);
void sts_assume_role(struct query *q);
void sts_session_token(struct query *q);

#endif
