"""A store that refuses keys that have ended, and a source of such keys.

    with ExpiringStore() as store:          # SmallStore, but each request needs a session token whose time has not passed
        store.refused                       # how many requests came with keys that had ended
        store.tokens                        # those of the requests that it answered
        store.end()                         # keys that came until now end, although their time has not passed
    expiring.py keys SECONDS [MORE]         prints new keys, as `credential_process` wants them; the store takes them MORE seconds longer
    expiring.py serve ADDRESS               such a store on that address; prints its URL

The token of the keys says when they end, so store and source need not know each other.
"""
import json
import re
import secrets
import sys
import time

if __name__ == "__main__":
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import small_store


def keys(lifetime_s, more_s=0):
    end = time.time() + lifetime_s
    expiration = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(end)) + f".{int(end * 1000) % 1000:03}Z"
    return {"AccessKeyId": "ASIAENDING", "SecretAccessKey": "secret-that-ends", "Token": f"ends-{int((end + more_s) * 1000)}-{secrets.token_hex(8)}",
            "Expiration": expiration}  # fmt: skip


class _Handler(small_store._Handler):
    def answer(self):
        owner = self.server.owner
        token = re.fullmatch(r"ends-(\d+)-[0-9a-f]+", self.headers.get("x-amz-security-token", ""))
        if token and int(token[1]) > time.time() * 1000 and token[0] not in owner.ended:
            owner.tokens.add(token[0])
            return super().answer()
        owner.refused += 1
        self.whole()
        return self.fail(400, "ExpiredToken")

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = answer


class ExpiringStore(small_store.SmallStore):
    def __init__(self, address="127.0.0.1", **more):
        self.refused, self.tokens, self.ended = 0, set(), frozenset()
        super().__init__(address=address, handler=_Handler, **more)

    def end(self):
        self.ended = frozenset(self.tokens)


def main(verb, argument, more="0"):
    if verb == "keys":
        printed = keys(float(argument), float(more))
        print(json.dumps({"Version": 1, "SessionToken": printed.pop("Token")} | printed))
        return
    with ExpiringStore(argument) as store:
        print(store.endpoint, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
