"""A file system with a hostile server: a file on it blocks every process that touches it."""

import ctypes
import errno
import os
import stat
import struct

from peer import LIBC

CLONE_NEWNS = 0x20000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000
LOOKUP, FORGET, GETATTR, OPEN, STATFS = 1, 2, 3, 14, 17
RELEASE, FLUSH, INIT, DESTROY, BATCH_FORGET = 18, 25, 26, 38, 42
IN_HEADER = struct.Struct("IIQQIIII")
OUT_HEADER = struct.Struct("IiQ")
REQUEST_BYTES = 1 << 17
OWNERLESS = 0o666
NAME_NODE, ROOT_NODE = 2, 1
LONG_S = 1 << 20


def attributes(node):
    """Returns a struct fuse_attr."""
    mode = stat.S_IFDIR | 0o755 if node == ROOT_NODE else stat.S_IFREG | OWNERLESS
    return struct.pack("QQQQQQIIIIIIIIII", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096,
                       0)


class Silent:
    """Answers all requests but those of kind `silent`."""

    def __init__(self, device, silent):
        self.device = device
        self.silent = silent

    def serve(self):
        while True:
            try:
                request = os.read(self.device, REQUEST_BYTES)
            except OSError as error:
                if error.errno in (errno.ENODEV, errno.EBADF):
                    return
                continue
            _, kind, unique, node = IN_HEADER.unpack_from(request)[:4]
            if kind in (FORGET, BATCH_FORGET) or kind == self.silent and node != ROOT_NODE:
                continue
            status, body = self.answer(kind, node)
            size = OUT_HEADER.size + len(body)
            os.write(self.device, OUT_HEADER.pack(size, status, unique) + body)

    def answer(self, kind, node):
        if kind == INIT:
            return 0, struct.pack("IIIIHHIIHHIIIIIIII", 7, 31, 65536, 0, 16, 12, 65536, 1, 1, 0, 0,
                                  0, 0, 0, 0, 0, 0, 0)
        if kind == LOOKUP:
            # Attributes stay valid forever, unless requests for attributes are to go unanswered.
            valid = 0 if self.silent == GETATTR else LONG_S
            head = struct.pack("QQQQII", NAME_NODE, 0, LONG_S, valid, 0, 0)
            return 0, head + attributes(NAME_NODE)
        if kind == GETATTR:
            return 0, struct.pack("QII", LONG_S, 0, 0) + attributes(node)
        if kind == OPEN:
            return 0, struct.pack("QII", 1, 0, 0)
        if kind == STATFS:
            return 0, struct.pack("QQQQQIIII", 0, 0, 0, 0, 0, 4096, 255, 4096, 0) + bytes(24)
        if kind in (RELEASE, FLUSH, DESTROY):
            return 0, b""
        return -errno.ENOSYS, b""


class SilentFiles:
    """A file system with such a server, in a mount namespace of the calling process. open_file()
    gives descriptors; stop() ends all waits. The mount ends with the process. Needs root to mount.
    `folder`: the mount point, which is made."""

    def __init__(self, silent, folder):
        self.pid = 0
        self.folder = folder
        if LIBC.unshare(CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        os.mkdir(folder)
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={device},rootmode=40755,user_id=0,group_id=0,allow_other".encode()
        if LIBC.mount(b"siege", self.folder.encode(), b"fuse", MS_NOSUID | MS_NODEV, options) != 0:
            error = ctypes.get_errno()
            os.close(device)
            raise OSError(error, "mount fuse")
        self.pid = os.fork()
        if self.pid == 0:
            # The end of this process closes the device, which ends the file system and all waits
            # for it.
            Silent(device, silent).serve()
            os._exit(0)
        os.close(device)

    def open_file(self):
        return os.open(f"{self.folder}/file", os.O_RDWR)

    def stop(self):
        if self.pid:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
            self.pid = 0
