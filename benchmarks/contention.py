"""Takes processor time away from a measured program."""
import contextlib
import os
import pathlib
import subprocess
import sys
import time

# A busy loop that ends with the program that started it, however that ends.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10000): pass\n"


@contextlib.contextmanager
def busy_loops(count):
    loops = []
    try:
        for _ in range(count):
            loops.append(subprocess.Popen([sys.executable, "-c", BUSY]))
        time.sleep(0.5)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextlib.contextmanager
def processor_quota(cpus):
    """A command prefix that limits a command to this much processor time."""
    period_us = 100000
    root = pathlib.Path("/sys/fs/cgroup")
    unified = (root / "cgroup.controllers").exists()
    folder = (root if unified else root / "cpu") / ("sluice-marks-%d" % os.getpid())
    folder.mkdir()
    try:
        limits = {"cpu.max": "%d %d" % (cpus * period_us, period_us)} if unified else {
            "cpu.cfs_period_us": str(period_us), "cpu.cfs_quota_us": str(int(cpus * period_us))}
        for name, value in limits.items():
            if not (folder / name).exists():
                raise OSError("groups of processes have no %s here" % name)
            (folder / name).write_text(value)
        yield ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', folder / "cgroup.procs"]
    finally:
        folder.rmdir()
