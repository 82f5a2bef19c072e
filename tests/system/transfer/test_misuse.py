"""Arguments of cp, mv, sync, put and rm that cannot be intended: one line explains the error, and
the verb does nothing."""
import pytest


@pytest.fixture
def s3(penstock, store, tmp_path):
    """Runs verbs in a directory with the file "a" and the directory "d"; s3://bucket has "a"."""
    store.client.create_bucket(Bucket="bucket")
    store.client.put_object(Bucket="bucket", Key="a", Body=b"there")
    (tmp_path / "a").write_text("here")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_text("x")

    def run(*arguments, **more):
        return penstock.run(*arguments, env=store.env | more.pop("env", {}), cwd=tmp_path, **more)

    run.store, run.folder = store, tmp_path
    return run


REFUSED = {
    "size and content as criteria": (["sync", "--size-only", "--checksum", "d", "s3://bucket/d"], "--checksum"),
    "size and time as criteria": (["sync", "--exact-timestamps", "--size-only", "d", "s3://bucket/d"], "--exact-timestamps"),
    "skip and fail": (["cp", "--no-clobber", "--if-none-match", "a", "s3://bucket/b"], "--if-none-match"),
    "present and missing": (["put", "--if-match", '"x"', "--if-none-match", "s3://bucket/b"], "--if-match"),
    "an age for objects": (["rm", "--older-than", "7d", "s3://bucket/a"], "--older-than"),
    "a pattern for uploads": (["rm", "--uploads", "--include", "x*", "s3://bucket/"], "--include"),
    "an invalid header name": (["cp", "--metadata", "a b=1", "a", "s3://bucket/b"], "'a b=1'"),
    "an invalid header value": (["cp", "--metadata", "x=1\n2", "a", "s3://bucket/b"], "'x'"),
    "an invalid header name for a pipe": (["put", "--metadata", "a:b=1", "s3://bucket/b"], "'a:b=1'"),
    "a name twice": (["cp", "--metadata", "x=1", "--metadata", "X=2", "a", "s3://bucket/b"], "'X'"),
    "a time twice": (["cp", "--preserve", "--metadata", "mtime=1", "a", "s3://bucket/b"], "mtime"),
    "a list in the output": (["cp", "--json", "s3://bucket/a", "-"], "--json"),
    "an invalid port": (["cp", "--endpoint-url", "http://127.0.0.1:99999", "a", "s3://bucket/b"], "port"),
    "a port without digits": (["cp", "--endpoint-url", "http://localhost:x", "a", "s3://bucket/b"], "port"),
}


@pytest.mark.parametrize("arguments, says", REFUSED.values(), ids=REFUSED)
def test_it_is_refused(s3, arguments, says):
    done = s3(*arguments, input=b"")

    assert says in done.exits(64).err and len(done.err.splitlines()) == 1
    assert done.out == "" and s3.store.keys("bucket") == ["a"] and s3.store.bytes("bucket", "a") == b"there"


# These options do not apply to runs. A user may expect them to protect the run, so `rm` refuses
# them.
@pytest.mark.parametrize("option", [["--dry-run"], ["--include", "x"], ["--older-than", "7d"]], ids=lambda option: option[0])
def test_runs_are_not_removed_with_what_is_for_objects(s3, option):
    (s3.folder / "w.yaml").write_text("name: mine\nsteps: [{name: s, run: {command: 'true'}}]\nresources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}\n")
    s3("run", "w.yaml").ok()

    assert option[0] in s3("rm", *option, "mine").exits(64).err

    assert "mine" in s3("ps", "-a").ok().out
    assert s3("rm", "mine").ok().out.startswith("removed run")


# Messages about a transfer are not part of its bytes.
def test_lines_about_items_are_not_among_the_bytes(s3):
    done = s3("cp", "--verbose", "s3://bucket/a", "-").ok()

    assert done.out == "there" and "s3://bucket/a -> -" in done.err


# The program adds the name of the item to a message that lacks the name. A short name such as "d"
# is part of many words, so the program looks for a whole word.
def test_each_failure_names_what_failed(s3):
    assert "--recursive" in s3("cp", "d", "s3://bucket/").exits(66).err
    first, second = s3("cp", "d", "none", "s3://bucket/").exits(66).err.splitlines()[:2]
    assert "--recursive" in first and "none" in second and "No such file or directory" in second
