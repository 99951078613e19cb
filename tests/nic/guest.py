"""A small guest for tests of drivers: a kernel of Debian's, busybox, and the product's programs with
the libraries that they need, in an initramfs.
"""

import pathlib
import re
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MODULES = ("virtio_pci", "virtio_net", "vfio_iommu_type1", "vfio_pci", "8021q")
DRIVERS = pathlib.Path("/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0")
WANTED_DRIVERS = ("bus_pci", "bus_vdev", "mempool_ring", "net_virtio", "net_e1000", "net_vmxnet3", "net_ring")
TOOLS = ("/usr/bin/ip",)


class NoKernel(RuntimeError):
    """Debian's kernel package cannot be had."""


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False, timeout=300, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def kernel(cache):
    """Returns the folder of an unpacked kernel, which it downloads once. Nothing is installed."""
    folder = cache / "kernel"
    if folder.exists():
        return folder
    depends = run("apt-cache", "depends", "--important", "linux-image-amd64")
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    if not found:
        raise NoKernel("apt knows no linux-image-amd64: run 'apt-get update'")
    with tempfile.TemporaryDirectory(prefix="ina-kernel-", dir=cache) as parts:
        try:
            run("apt-get", "download", "-q", found[1], cwd=parts)
        except RuntimeError as error:
            raise NoKernel(str(error)) from None
        package = next(pathlib.Path(parts).glob("*.deb"))
        unpacked = pathlib.Path(parts) / "unpacked"
        run("dpkg-deb", "-x", package, unpacked)
        made = pathlib.Path(parts) / "kernel"
        made.mkdir()
        shutil.copy(next((unpacked / "boot").glob("vmlinuz-*")), made / "vmlinuz")
        for module in unpacked.rglob("*.ko"):
            shutil.copy(module, made)
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():  # another test was faster
                raise
    return folder


def in_order(folder, names):
    """The files of modules and of those that they depend on, which come first."""
    order = []

    def add(name):
        path = folder / f"{name}.ko"
        if not path.exists():
            path = folder / f"{name.replace('_', '-')}.ko"
        if path in order or not path.exists():  # built in
            return
        for below in re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())[1].decode().split(","):
            if below:
                add(below)
        order.append(path)

    for name in names:
        add(name)
    return order


def libraries(programs, library_path):
    """The libraries of programs, and the loader."""
    found = set()
    for line in run("ldd", *programs, env={"LD_LIBRARY_PATH": library_path, "PATH": "/usr/bin"}).splitlines():
        words = line.split()
        path = words[2] if "=>" in words else words[0]
        if path.startswith("/") and not path.endswith(":"):
            found.add(pathlib.Path(path))
    return found


def put(root, path):
    """Copies a file to its own path, with the symbolic links that lead to it."""
    path = path.parent.resolve() / path.name
    to = root / path.relative_to("/")
    if to.exists() or to.is_symlink():
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        to.symlink_to(path.readlink())
        put(root, path.parent / path.readlink())
    else:
        shutil.copy(path, to)


def pack(root, archive):
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with archive.open("wb") as out:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=root, input=names.encode(),
                       stdout=out, check=True, timeout=120)


def make_root(root, kernel_folder, programs, library_folder):
    """`programs`, and libina of `library_folder`, become /ina."""
    for name in ("bin", "modules", "ina", "usr/lib", "usr/lib64", "usr/bin"):
        (root / name).mkdir(parents=True)
    for name in ("lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    shutil.copy("/usr/bin/busybox", root / "bin")
    shutil.copy(HERE / "guest_init.sh", root / "init")
    (root / "init").chmod(0o755)
    own = [*programs, library_folder / "libina.so.0"]
    for path in own:
        shutil.copy(path, root / "ina" / path.name)
        subprocess.run(["strip", "--strip-debug", root / "ina" / path.name], check=True, timeout=60)
    drivers = [path for name in WANTED_DRIVERS for path in DRIVERS.glob(f"librte_{name}.so*")]
    needed = libraries([*own, *TOOLS, *{path.resolve() for path in drivers}], str(library_folder))
    for path in (*drivers, *map(pathlib.Path, TOOLS), *needed):
        if not path.is_relative_to(library_folder):
            put(root, path)
    modules = in_order(kernel_folder, MODULES)
    for module in modules:
        shutil.copy(module, root / "modules")
    (root / "modules/order").write_text("".join(f"{module.name}\n" for module in modules))


def make(folder, kernel_folder, programs, library_folder, cases):
    """Makes `folder`/vmlinuz and `folder`/initrd; `cases`: lines for guest_init.sh."""
    root = folder / "root"
    make_root(root, kernel_folder, programs, library_folder)
    (root / "cases").write_text("".join(f"{case}\n" for case in cases))
    pack(root, folder / "initrd")
    shutil.rmtree(root)
    shutil.copy(kernel_folder / "vmlinuz", folder / "vmlinuz")
