"""Fault injection: makes allocations and system calls of a server's threads fail (tests/robustness/fault_shim.cc)."""
import struct
import subprocess

from serving import ROOT

SHIM = ROOT / "tests" / "robustness" / "fault_shim.cc"


def shim_environment(folder):
    """The environment that loads the shim, which is built in `folder`, before the C library."""
    library = folder / "fault_shim.so"
    subprocess.run(["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library), str(SHIM), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


class Switch:
    """A file that fault_shim.cc maps into memory. It switches faults on, selects the calls that fail, and counts calls."""

    def __init__(self, path, on):
        self.path = path
        path.write_bytes((b"1" if on else b"0") + bytes(55))

    def arm(self, call, thread, nth):
        """Makes the nth of the following calls of a thread with this name fail."""
        self.set(False)
        with open(self.path, "r+b") as f:
            f.write(struct.pack("<8sQQ16s16s", b"0", 0, nth, thread.encode(), call.encode()))
        self.set(True)

    def set(self, on):
        with open(self.path, "r+b") as f:
            f.write(b"1" if on else b"0")

    def count(self):
        return struct.unpack("<Q", self.path.read_bytes()[8:16])[0]
