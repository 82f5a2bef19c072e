"""Managed policies, changes of users, groups and roles, and users who manage others."""
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from store.test_iam import OTHER, accounts, client, other, policy, refused, user_with_key  # noqa: F401

FULL = "arn:aws:iam::aws:policy/AmazonS3FullAccess"
READ = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"


def test_attached_policies_count_for_users_groups_and_their_versions(store):
    store.client.create_bucket(Bucket="data")
    iam, key, secret = user_with_key(store)
    s3 = client(store, "s3", key, secret)
    arn = iam.create_policy(PolicyName="Put", Path="/team/", PolicyDocument=policy("s3:PutObject"), Description="adds")["Policy"]["Arn"]

    assert arn == "arn:aws:iam::000000000000:policy/team/Put"
    assert refused(s3.put_object, Bucket="data", Key="k", Body=b"x") == "AccessDenied"
    iam.attach_user_policy(UserName="jo", PolicyArn=arn)
    iam.attach_user_policy(UserName="jo", PolicyArn=arn)
    s3.put_object(Bucket="data", Key="k", Body=b"x")
    assert iam.list_attached_user_policies(UserName="jo")["AttachedPolicies"] == [{"PolicyName": "Put", "PolicyArn": arn}]
    assert iam.get_policy(PolicyArn=arn)["Policy"]["AttachmentCount"] == 1
    assert iam.list_entities_for_policy(PolicyArn=arn)["PolicyUsers"][0]["UserName"] == "jo"
    version = iam.create_policy_version(PolicyArn=arn, PolicyDocument=policy("s3:GetObject"), SetAsDefault=True)["PolicyVersion"]
    assert version["VersionId"] == "v2" and version["IsDefaultVersion"]
    assert refused(s3.put_object, Bucket="data", Key="k", Body=b"y") == "AccessDenied"
    assert s3.get_object(Bucket="data", Key="k")["Body"].read() == b"x"
    iam.set_default_policy_version(PolicyArn=arn, VersionId="v1")
    s3.put_object(Bucket="data", Key="k", Body=b"z")
    assert iam.get_policy_version(PolicyArn=arn, VersionId="v2")["PolicyVersion"]["Document"]["Statement"][0]["Action"] == ["s3:GetObject"]
    assert refused(iam.delete_policy, PolicyArn=arn) == "DeleteConflict"
    assert refused(iam.delete_policy_version, PolicyArn=arn, VersionId="v1") == "DeleteConflict"
    assert refused(iam.delete_user, UserName="jo") == "DeleteConflict"
    iam.delete_policy_version(PolicyArn=arn, VersionId="v2")
    iam.detach_user_policy(UserName="jo", PolicyArn=arn)
    assert refused(iam.detach_user_policy, UserName="jo", PolicyArn=arn) == "NoSuchEntity"
    iam.delete_policy(PolicyArn=arn)
    assert refused(iam.get_policy, PolicyArn=arn) == "NoSuchEntity"

    iam.create_group(GroupName="readers")
    iam.add_user_to_group(GroupName="readers", UserName="jo")
    iam.attach_group_policy(GroupName="readers", PolicyArn=READ)
    assert s3.list_objects_v2(Bucket="data")["KeyCount"] == 1
    assert refused(s3.put_object, Bucket="data", Key="k", Body=b"y") == "AccessDenied"


def test_lists_of_policies(store):
    iam = client(store, "iam")
    for name in ("a", "b", "c"):
        iam.create_policy(PolicyName=name, Path="/x/" if name == "c" else "/", PolicyDocument=policy("s3:*"))

    assert refused(iam.create_policy, PolicyName="A", PolicyDocument=policy("s3:*")) == "EntityAlreadyExists"
    pages = iam.get_paginator("list_policies").paginate(Scope="Local", PaginationConfig={"PageSize": 2})
    assert [found["PolicyName"] for page in pages for found in page["Policies"]] == ["a", "b", "c"]
    assert [found["PolicyName"] for found in iam.list_policies(PathPrefix="/x/")["Policies"]] == ["c"]
    assert FULL in [found["Arn"] for found in iam.list_policies(Scope="AWS")["Policies"]]
    assert iam.list_policies(OnlyAttached=True)["Policies"] == []
    assert json.dumps(iam.get_policy_version(PolicyArn=FULL, VersionId="v1")["PolicyVersion"]["Document"]).count("s3:*") == 1
    assert refused(iam.create_policy_version, PolicyArn=FULL, PolicyDocument=policy("*")) == "AccessDenied"
    assert refused(iam.delete_policy, PolicyArn=FULL) == "AccessDenied"
    iam.create_role(RoleName="r", AssumeRolePolicyDocument=policy("sts:AssumeRole").replace('"Resource": "*"', '"Principal": "*"'))
    for at in range(10):
        arn = iam.create_policy(PolicyName=f"n{at}", PolicyDocument=policy("s3:*"))["Policy"]["Arn"]
        iam.attach_role_policy(RoleName="r", PolicyArn=arn)
    assert refused(iam.attach_role_policy, RoleName="r", PolicyArn=FULL) == "LimitExceeded"
    for _ in range(4):
        iam.create_policy_version(PolicyArn=arn, PolicyDocument=policy("s3:*"))
    assert refused(iam.create_policy_version, PolicyArn=arn, PolicyDocument=policy("s3:*")) == "LimitExceeded"


def test_policies_have_a_size(store):
    iam, _, _ = user_with_key(store)
    large = policy("s3:GetObject", resource=["arn:aws:s3:::data/" + "k" * 940] * 2)

    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=large)
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=large)
    assert refused(iam.put_user_policy, UserName="jo", PolicyName="q", PolicyDocument=policy("s3:*")) == "LimitExceeded"
    assert refused(iam.create_policy, PolicyName="p", PolicyDocument=policy("s3:*", resource="x" * 6200)) == "LimitExceeded"
    iam.create_policy(PolicyName="p", PolicyDocument=policy("s3:*", resource="arn:aws:s3:::" + "x" * 5000))


def test_documents_are_kept_without_white_space(store):
    """All records are in memory, and each space takes three characters in a reply."""
    iam, keys = client(store, "iam"), (store.access_key, store.secret_key)
    iam.create_user(UserName="jo")
    document = json.dumps(json.loads(policy("s3:*", resource='arn:aws:s3:::a \\" b')), indent=4)
    spaces = policy("s3:*", resource="arn:aws:s3:::" + " " * 2048)

    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=document + "\n" * 20_000)
    body = urllib.parse.urlencode({"Version": "2010-05-08", "Action": "GetUserPolicy", "UserName": "jo", "PolicyName": "p"}).encode()
    request = AWSRequest("POST", store.endpoint + "/", data=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    SigV4Auth(Credentials(*keys), "iam", "us-east-1").add_auth(request)
    with urllib.request.urlopen(urllib.request.Request(request.url, body, dict(request.headers))) as reply:
        kept = urllib.parse.unquote(re.search("<PolicyDocument>(.*)</PolicyDocument>", reply.read().decode()).group(1))
    assert kept == json.dumps(json.loads(document), separators=(",", ":"))
    assert refused(iam.put_user_policy, UserName="jo", PolicyName="q", PolicyDocument=spaces) == "LimitExceeded"


def test_descriptions_have_a_size(store):
    iam, long = client(store, "iam"), "\u00e9" * 1001
    trust = policy("sts:AssumeRole").replace('"Resource": "*"', '"Principal": {"AWS": "000000000000"}')

    assert refused(iam.create_policy, PolicyName="p", PolicyDocument=policy("s3:*"), Description=long) == "ValidationError"
    assert refused(iam.create_role, RoleName="r", AssumeRolePolicyDocument=trust, Description=long) == "ValidationError"
    iam.create_role(RoleName="r", AssumeRolePolicyDocument=trust, Description=long[1:])
    assert refused(iam.update_role, RoleName="r", Description=long) == "ValidationError"
    assert iam.get_role(RoleName="r")["Role"]["Description"] == long[1:]


def test_a_page_that_would_be_too_long_is_shortened(store):
    """The replies have at most 16 MiB, and a role may take 20 KiB."""
    iam, n = client(store, "iam"), 560
    condition = {"StringEquals": {"sts:ExternalId": "!" * 1750}}
    statement = {"Effect": "Allow", "Principal": {"AWS": "000000000000"}, "Action": "sts:AssumeRole", "Condition": condition}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    path = "/" + '"' * 510 + "/"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: iam.create_role(RoleName=f"r{i:03}", Path=path, AssumeRolePolicyDocument=trust,
                                                Description='"' * 1000), range(n)))  # fmt: skip

    first = iam.list_roles(MaxItems=1000)
    assert first["IsTruncated"]
    rest = iam.list_roles(MaxItems=1000, Marker=first["Marker"])
    assert [role["RoleName"] for role in first["Roles"] + rest["Roles"]] == [f"r{i:03}" for i in range(n)]


def test_policies_of_another_account_are_out_of_reach(accounts):  # noqa: F811
    arn = client(accounts, "iam").create_policy(PolicyName="p", PolicyDocument=policy("s3:*"))["Policy"]["Arn"]
    theirs = other(accounts, "iam")
    theirs.create_user(UserName="jo")

    assert refused(theirs.get_policy, PolicyArn=arn) == "NoSuchEntity"
    assert refused(theirs.attach_user_policy, UserName="jo", PolicyArn=arn) == "NoSuchEntity"
    assert refused(theirs.delete_policy, PolicyArn=arn) == "NoSuchEntity"


def test_entities_get_another_name(store):
    store.client.create_bucket(Bucket="data")
    iam, key, secret = user_with_key(store)
    iam.create_group(GroupName="all")
    iam.attach_group_policy(GroupName="all", PolicyArn=FULL)
    iam.add_user_to_group(GroupName="all", UserName="jo")
    iam.create_user(UserName="taken")

    assert refused(iam.update_user, UserName="jo", NewUserName="Taken") == "EntityAlreadyExists"
    iam.update_user(UserName="jo", NewUserName="joan", NewPath="/x/")
    iam.update_group(GroupName="all", NewGroupName="everyone")
    assert client(store, "sts", key, secret).get_caller_identity()["Arn"] == "arn:aws:iam::000000000000:user/x/joan"
    client(store, "s3", key, secret).list_objects_v2(Bucket="data")
    assert [group["GroupName"] for group in iam.list_groups_for_user(UserName="joan")["Groups"]] == ["everyone"]
    assert refused(iam.get_user, UserName="jo") == "NoSuchEntity"
    store.process.kill()
    store.process.wait()
    store.start()
    client(store, "s3", key, secret).list_objects_v2(Bucket="data")
    client(store, "iam").update_user(UserName="joan", NewUserName="JOAN")
    assert client(store, "iam").get_user(UserName="joan")["User"]["UserName"] == "JOAN"


def test_users_manage_what_their_policies_allow(store):
    iam, key, secret = user_with_key(store)
    jo = client(store, "iam", key, secret)
    iam.create_user(UserName="ann", Path="/team/")
    iam.create_user(UserName="bob")
    iam.put_user_policy(UserName="jo", PolicyName="team", PolicyDocument=policy(
        "iam:CreateUser", "iam:CreateAccessKey", "iam:GetUser", "iam:UpdateUser", resource="arn:aws:iam::000000000000:user/team/*"))  # fmt: skip

    jo.create_access_key(UserName="ann")
    jo.create_user(UserName="eve", Path="/team/")
    assert jo.get_user(UserName="ann")["User"]["Path"] == "/team/"
    jo.update_user(UserName="eve", NewUserName="eva")
    assert refused(jo.update_user, UserName="eva", NewPath="/") == "AccessDenied"
    assert refused(jo.create_access_key, UserName="bob") == "AccessDenied"
    assert refused(jo.create_access_key) == "AccessDenied"
    assert refused(jo.create_user, UserName="mallory") == "AccessDenied"
    assert refused(jo.put_user_policy, UserName="jo", PolicyName="p", PolicyDocument=policy("*")) == "AccessDenied"
    assert refused(jo.list_users) == "AccessDenied"
    attach = {"Effect": "Allow", "Action": "iam:AttachUserPolicy", "Resource": "*",
              "Condition": {"ArnNotEquals": {"iam:PolicyARN": "arn:aws:iam::aws:policy/AdministratorAccess"}}}  # fmt: skip
    iam.put_user_policy(UserName="jo", PolicyName="attach", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [attach]}))
    jo.attach_user_policy(UserName="jo", PolicyArn=READ)
    assert refused(jo.attach_user_policy, UserName="jo", PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess") == "AccessDenied"
    own = policy("iam:CreateAccessKey", "iam:ListAccessKeys", resource="arn:aws:iam::*:user/${aws:username}")
    iam.put_user_policy(UserName="jo", PolicyName="own", PolicyDocument=own)
    assert len(jo.list_access_keys()["AccessKeyMetadata"]) == 1
    jo.create_access_key()
    assert len(jo.list_access_keys(UserName="jo")["AccessKeyMetadata"]) == 2
    assert refused(jo.list_access_keys, UserName="ann") == "AccessDenied"
    iam.attach_user_policy(UserName="jo", PolicyArn="arn:aws:iam::aws:policy/IAMReadOnlyAccess")
    assert len(jo.list_users()["Users"]) == 4


def ask(store, keys, service="iam", **parameters):
    """Sends parameters that boto3 would not send. Returns the status and the code of the reply."""
    body = urllib.parse.urlencode({"Version": "2010-05-08" if service == "iam" else "2011-06-15", **parameters}).encode()
    request = AWSRequest("POST", store.endpoint + "/", data=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    SigV4Auth(Credentials(*keys), service, "us-east-1").add_auth(request)
    try:
        with urllib.request.urlopen(urllib.request.Request(request.url, body, dict(request.headers))) as reply:
            return reply.status, None
    except urllib.error.HTTPError as error:
        return error.code, re.search("<Code>(.*)</Code>", error.read().decode()).group(1)


def test_a_statement_that_denies_an_arn_is_not_evaded_by_another_spelling(store):
    """Names of entities are unique regardless of case, but an ARN must spell the name exactly."""
    iam, key, secret = user_with_key(store)
    arn = iam.create_policy(PolicyName="Boss", PolicyDocument=policy("s3:GetObject"))["Policy"]["Arn"]
    trust = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::000000000000:root"}, "Action": "sts:AssumeRole"}
    role = iam.create_role(RoleName="Boss", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}))["Role"]["Arn"]
    iam.put_user_policy(UserName="jo", PolicyName="all", PolicyDocument=policy("iam:*", "sts:*"))
    iam.put_user_policy(UserName="jo", PolicyName="no", PolicyDocument=policy("*", resource=[arn, role], effect="Deny"))
    version = {"Action": "CreatePolicyVersion", "PolicyDocument": policy("*"), "SetAsDefault": "true"}

    assert ask(store, (key, secret), PolicyArn=arn, **version) == (403, "AccessDenied")
    for other_arn in (arn.replace("policy/", "Policy/"), arn.replace("Boss", "boss")):
        assert ask(store, (key, secret), PolicyArn=other_arn, **version) == (404, "NoSuchEntity")
    for other_role in (role, role.replace("role/", "ROLE/"), role.replace("Boss", "boss")):
        assumed = ask(store, (key, secret), "sts", Action="AssumeRole", RoleArn=other_role, RoleSessionName="work")
        assert assumed == (403, "AccessDenied"), other_role
    assert [found["VersionId"] for found in iam.list_policy_versions(PolicyArn=arn)["Versions"]] == ["v1"]


def test_parameters_that_an_action_ignores_do_not_decide_on_it(store):
    iam, key, secret = user_with_key(store)
    keys, mine = (key, secret), "arn:aws:iam::000000000000:policy/mine"
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy(
        "iam:CreatePolicy", "iam:ListPolicies", "iam:ListUsers", resource=[mine, "arn:aws:iam::000000000000:user/jo"]))  # fmt: skip
    attach = {"Effect": "Allow", "Action": "iam:*", "Resource": "*", "Condition": {"ArnEquals": {"iam:PolicyARN": READ}}}
    iam.put_user_policy(UserName="jo", PolicyName="attach", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [attach]}))
    refused_ = 403, "AccessDenied"

    assert ask(store, keys, Action="CreatePolicy", PolicyName="other", PolicyArn=mine, PolicyDocument=policy("*")) == refused_
    assert ask(store, keys, Action="CreatePolicy", PolicyName="mine", PolicyDocument=policy("*")) == (200, None)
    assert ask(store, keys, Action="ListPolicies", PolicyArn=mine) == refused_
    assert ask(store, keys, Action="ListUsers", UserName="jo") == refused_
    assert ask(store, keys, Action="GetAccountSummary", UserName="jo") == refused_
    for action, more in [("PutUserPolicy", {"PolicyName": "root", "PolicyDocument": policy("*")}), ("CreateAccessKey", {})]:
        assert ask(store, keys, Action=action, UserName="jo", PolicyArn=READ, **more) == refused_, action
    assert ask(store, keys, Action="AttachUserPolicy", UserName="jo", PolicyArn=mine) == refused_
    assert ask(store, keys, Action="AttachUserPolicy", UserName="jo", PolicyArn=READ) == (200, None)


def test_a_parameter_that_cannot_be_decoded_is_not_a_missing_one(store):
    iam, keys = client(store, "iam"), (store.access_key, store.secret_key)

    for bad in ({"PermissionsBoundary": "\0"}, {"Path": "/a\0/"}, {"\0": "x"}):
        assert ask(store, keys, Action="CreateUser", UserName="jo", **bad) == (400, "ValidationError")
    assert refused(iam.get_user, UserName="jo") == "NoSuchEntity"
    assert ask(store, keys, "sts", Action="GetCallerIdentity", DurationSeconds="\0") == (400, "ValidationError")


def test_documents_with_many_spaces_are_read_as_they_were_written(store):
    """Spaces between tokens do not count towards the size limit of a document."""
    iam, document = client(store, "iam"), policy("s3:GetObject") + " " * 40_000
    iam.create_user(UserName="jo")

    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=document)
    arn = iam.create_policy(PolicyName="p", PolicyDocument=document)["Policy"]["Arn"]
    statement = {"Effect": "Allow", "Principal": {"AWS": "000000000000"}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.create_role(RoleName="r", AssumeRolePolicyDocument=trust + " " * 40_000)

    assert iam.get_user_policy(UserName="jo", PolicyName="p")["PolicyDocument"] == json.loads(document)
    assert iam.get_policy_version(PolicyArn=arn, VersionId="v1")["PolicyVersion"]["Document"] == json.loads(document)
    assert iam.get_role(RoleName="r")["Role"]["AssumeRolePolicyDocument"] == json.loads(trust)


def test_a_user_has_no_more_than_ten_groups(store):
    """For each request of a user, the store evaluates the policies of all groups of the user."""
    iam = client(store, "iam")
    iam.create_user(UserName="jo")
    for i in range(11):
        iam.create_group(GroupName=f"g{i}")
    for i in range(10):
        iam.add_user_to_group(GroupName=f"g{i}", UserName="jo")

    assert refused(iam.add_user_to_group, GroupName="g10", UserName="jo") == "LimitExceeded"
    iam.remove_user_from_group(GroupName="g0", UserName="jo")
    iam.add_user_to_group(GroupName="g10", UserName="jo")
    assert refused(iam.get_policy, PolicyArn="arn:aws:iam::000000000000:policy/" + "a" * 2000) == "NoSuchEntity"
    assert ask(store, (store.access_key, store.secret_key), Action="GetPolicy", PolicyArn="a" * 2049) == (400, "ValidationError")
