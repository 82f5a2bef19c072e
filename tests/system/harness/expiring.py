"""A store that refuses expired keys, and a source of temporary keys.

    with ExpiringStore() as store:          # a SmallStore that requires a session token that has not expired
        store.refused                       # number of requests refused because of expired keys
        store.tokens                        # tokens of the answered requests
        store.end()                         # makes the tokens of the answered requests expire now
    expiring.py keys SECONDS [MORE]         prints new keys for `credential_process`; the store accepts them MORE seconds longer
    expiring.py serve ADDRESS               runs such a store at ADDRESS; prints its URL

The token contains the time at which the keys expire, so the store need not know the source.
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
