"""What an installation leaves in the root folder of a small Debian, for test_debs.py and
deb_services.py."""

# The state of dpkg and apt, logs and caches change with every installation.
CHANGING = ("var/lib/dpkg", "var/lib/apt", "var/cache", "var/log", "tmp", "root", "proc", "sys", "dev", "packages",
            "etc/ld.so.cache", "var/lib/systemd")


def files_of(root):
    """Returns paths below `root`, without those that every installation changes."""
    return {path.relative_to(root) for path in root.rglob("*")
            if not str(path.relative_to(root)).startswith(CHANGING)}


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
