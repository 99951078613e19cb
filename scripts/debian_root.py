"""The root folder of a small Debian: commands inside, and what an installation leaves there. For
test_debs.py, deb_services.py and test_torch2.py."""

import re
import shlex

# The state of dpkg and apt, logs and caches change with every installation.
CHANGING = ("var/lib/dpkg", "var/lib/apt", "var/cache", "var/log", "tmp", "root", "proc", "sys", "dev", "packages",
            "etc/ld.so.cache", "var/lib/systemd")
# Of these folders, the ones in which a path with the project's name is one of the packages' own.
# apt keeps under var/cache/apt what it fetched.
SHARED = ("var/log", "var/lib/systemd", "var/cache", "tmp")
KEPT_BY_APT = "var/cache/apt"
OWN_NAME = re.compile(r"\bina\b")


def mounting(root, folders=()):
    """Returns the text for a shell that mounts what programs inside need. `folders`: as for
    entering()."""
    place = shlex.quote(str(root))
    return " && ".join([
        f"mount -t proc proc {place}/proc", *(f"mount --rbind {at} {place}{at}" for at in ("/sys", "/dev")),
        *(f"mkdir -p {place}{at} && mount --bind {at} {place}{at}" for at in map(shlex.quote, map(str, folders)))])


def entering(root, *command, folders=()):
    """Returns the words that run `command` inside, in a tree of processes and mounts of its own, which
    end with it. `folders`: folders of this machine that have the same paths inside."""
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
            f'{mounting(root, folders)} && cd / && exec chroot "$0" "$@"', root, *command]


def is_changing(path):
    """Whether every installation changes `path`, which is relative to the root."""
    if not path.startswith(CHANGING):
        return False
    return not path.startswith(SHARED) or path.startswith(KEPT_BY_APT) or not OWN_NAME.search(path)


def files_of(root):
    """Returns paths below `root`, without those that every installation changes."""
    return {path.relative_to(root) for path in root.rglob("*") if not is_changing(str(path.relative_to(root)))}


def accounts_of(root):
    """Returns the names of users and groups, each as its file's line begins."""
    return {f"{name}: {line.split(':')[0]}" for name in ("passwd", "group")
            for line in (root / "etc" / name).read_text().splitlines()}


def contents(root):
    return files_of(root), accounts_of(root)


def check_nothing_left(root, before):
    """`before`: contents() before the installation."""
    for what, then, now in zip(("files", "accounts"), before, contents(root), strict=True):
        left = sorted(map(str, now - then))
        assert not left, f"{what} left by the packages: {left}"
