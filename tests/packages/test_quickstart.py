"""`make quickstart` on a system without development packages."""
import subprocess

from conftest import TOOLS


def test_a_bare_debian_with_git_and_make_is_enough(root):
    bare = root("bookworm", "git", "make")
    subprocess.run([TOOLS / "copy-tree", bare.path / "root/penstock"], check=True)
    bare.run("git", "init", "-q", "/root/penstock")
    bare.run("git", "-C", "/root/penstock", "add", ".")

    out = bare.run("make", "-C", "/root/penstock", "quickstart")

    assert "Weights of the resumed training" in out and "== Done in" in out
    # The quickstart installs neither daemons nor tools that only the tests need.
    assert not {"slurm-wlm", "nginx-light", "clang", "awscli"} & set(bare.run("dpkg-query", "-W", "-f", "${Package}\n").split())
