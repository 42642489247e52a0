#!/usr/bin/env python3
"""Makes two wheels in build/dist from the folder that tools/dist.sh made there for a processor architecture: `make wheel`.

Usage: tools/wheel.py [x86_64|aarch64]    by default this machine's

sluice: the program, its libraries, the bundled model, licences, and the command `sluice`. sluice-vllm-names: the commands `vllm` and
`trtllm-serve` and the modules with those names; `pip install sluice[vllm]` requires it. The same folder gives the same bytes.
"""
import base64
import hashlib
import pathlib
import platform
import re
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DIST = ROOT / "build" / "dist"
PLATFORM = "manylinux_2_36_%s"
# The libraries of glibc and the loader that this platform guarantees (PEP 600); all others must be in the wheel.
SYSTEM = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2"}
SUMMARY = "Serves large language models behind the OpenAI API: a native program, without Python in it"


def fail(message):
    sys.exit("tools/wheel.py: " + message)


def metadata(name, version, *lines, text=""):
    head = ["Metadata-Version: 2.1", "Name: " + name, "Version: " + version, "License: Apache-2.0", "Requires-Python: >=3.8", *lines]
    return ("\n".join(head) + "\n" + (("\n" + text) if text else "")).encode()


def entry_points(**functions):
    return ("[console_scripts]\n" + "".join("%s = sluice:%s\n" % (name.replace("_", "-"), function) for name, function in functions.items())).encode()


class Wheel:
    def __init__(self, distribution, version, tag, when):
        self.stem = "%s-%s" % (distribution.replace("-", "_"), version)
        self.path = DIST / ("%s-%s.whl" % (self.stem, tag))
        self.files = {}
        self.tag, self.when = tag, when

    def add(self, name, data, executable=False):
        self.files[name] = (data, executable)

    def add_folder(self, folder, place):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                self.add((pathlib.PurePosixPath(place) / path.relative_to(folder)).as_posix(), path.read_bytes(), bool(path.stat().st_mode & 0o100))

    def info(self, name, data):
        self.add("%s.dist-info/%s" % (self.stem, name), data)

    def write(self):
        purelib = "true" if self.tag.endswith("-any") else "false"
        self.info("WHEEL", ("Wheel-Version: 1.0\nGenerator: sluice\nRoot-Is-Purelib: %s\nTag: %s\n" % (purelib, self.tag)).encode())
        record = "%s.dist-info/RECORD" % self.stem
        lines = []
        for name, (data, _) in self.files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append('%s,sha256=%s,%d' % (name, digest, len(data)))
        self.add(record, "".join(line + "\n" for line in [*sorted(lines), record + ",,"]).encode())
        # Write dist-info last, as PEP 427 recommends, so that tools find metadata at the archive's end.
        order = sorted(self.files, key=lambda name: (name.startswith(self.stem + ".dist-info/"), name == record, name))
        new = self.path.with_suffix(".new")
        with zipfile.ZipFile(new, "w") as archive:
            for name in order:
                data, executable = self.files[name]
                item = zipfile.ZipInfo(name, self.when)
                item.create_system = 3  # Unix: the attributes are a mode
                item.external_attr = (0o100755 if executable else 0o100644) << 16
                item.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(item, data, compresslevel=9)
        new.replace(self.path)
        print("%s: %d bytes" % (self.path.relative_to(ROOT), self.path.stat().st_size))


def check_libraries(folder, tag):
    """Checks that the program needs only libraries that are in the wheel or guaranteed by its tag."""
    for path in [folder / "bin" / "sluice", *sorted((folder / "lib").glob("*.so*"))]:
        out = subprocess.run(["objdump", "-p", path], check=True, capture_output=True, text=True).stdout
        for name in re.findall(r"^ +NEEDED +(\S+)$", out, re.M):
            if name not in SYSTEM and not (folder / "lib" / name).exists():
                fail("%s needs %s: expected a library of %s or one that lies beside it" % (path, name, tag))
        for version in re.findall(r"GLIBC_(\d+)\.(\d+)", out):
            if tuple(map(int, version)) > (2, 36):
                fail("%s needs glibc %s: expected 2.36 at most, as %s says; build on Debian 12" % (path, ".".join(version), tag))


def main(words):
    if words[1:] or words[:1] not in ([], ["x86_64"], ["aarch64"]):
        sys.exit(__doc__)
    machine = words[0] if words else platform.machine()
    folders = [f for f in sorted(DIST.glob("sluice-*-linux-" + machine)) if f.is_dir()]
    if len(folders) != 1:
        fail("expected one folder build/dist/sluice-VERSION-linux-%s, found %d: run make dist (for aarch64 on another machine with "
             "DIST_PRESET=arm), and remove those of other versions" % (machine, len(folders)))
    (folder,) = folders
    version = folder.name.split("-")[1]
    tag = PLATFORM % machine
    check_libraries(folder, tag)
    seconds = int(subprocess.run([ROOT / "tools" / "source_date.sh"], check=True, capture_output=True, text=True).stdout)
    when = time.gmtime(seconds)[:6]

    wheel = Wheel("sluice", version, "py3-none-" + tag, when)
    for path in sorted((ROOT / "tools" / "wheel" / "sluice").glob("*.py")):
        wheel.add("sluice/" + path.name, path.read_bytes())
    wheel.add("sluice/bin/sluice", (folder / "bin" / "sluice").read_bytes(), executable=True)
    for path in sorted((folder / "lib").glob("*.so*")):
        wheel.add("sluice/lib/" + path.name, path.read_bytes(), executable=True)
    wheel.add_folder(folder / "models", "sluice/models")
    wheel.add_folder(folder / "licenses", wheel.stem + ".dist-info/licenses")
    wheel.info("licenses/LICENSE", (folder / "LICENSE").read_bytes())
    # Where shells and man look in an installation prefix.
    wheel.add_folder(folder / "share", wheel.stem + ".data/data/share")
    wheel.info("METADATA", metadata("sluice", version, "Summary: " + SUMMARY, "License-File: LICENSE", "Provides-Extra: vllm",
                                    "Requires-Dist: sluice-vllm-names==%s; extra == 'vllm'" % version,
                                    "Description-Content-Type: text/markdown", text=(folder / "README.md").read_text()))
    wheel.info("entry_points.txt", entry_points(sluice="main"))
    wheel.write()

    names = Wheel("sluice-vllm-names", version, "py3-none-any", when)
    names.add_folder(folder / "lib" / "sluice" / "python", "")
    names.info("licenses/LICENSE", (folder / "LICENSE").read_bytes())
    names.info("METADATA", metadata("sluice-vllm-names", version, "Summary: The commands vllm and trtllm-serve, done by sluice",
                                    "License-File: LICENSE", "Requires-Dist: sluice==" + version))
    names.info("entry_points.txt", entry_points(vllm="vllm", trtllm_serve="trtllm_serve"))
    names.write()
    subprocess.run([ROOT / "tools" / "checksums.sh"], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
