#include "s3/access/decision.h"

bool access_decide(const struct access_facts *f)
{
	bool granted = f->bucket == POLICY_ALLOW || f->acl;

	if (f->identity >= POLICY_DENY || f->bucket >= POLICY_DENY)
		return false;
	switch (f->relation) {
	case OWN_ACCOUNT:
		return f->identity == POLICY_ALLOW || f->bucket == POLICY_ALLOW;
	case OTHER_ACCOUNT:
		return !f->restricted && f->identity == POLICY_ALLOW &&
		       (granted || f->bucket == POLICY_DELEGATE);
	case ANONYMOUS:
		return !f->restricted && granted;
	case AWS_SERVICE:
		return granted;
	}
	return false;
}
