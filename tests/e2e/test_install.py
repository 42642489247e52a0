"""deploy/install.sh with a server on the loopback interface: after an error, nothing is installed and existing files are unchanged."""
import contextlib
import functools
import hashlib
import http.server
import io
import os
import pathlib
import platform
import subprocess
import tarfile
import threading

import pytest

from serving import ROOT

SCRIPT = ROOT / "deploy" / "install.sh"
MACHINE = platform.machine()


def archive(version, program=None):
    """An archive like that of `make dist`; its program prints its version."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as tar:
        for name, text, mode in (("bin/sluice", program or "#!/bin/sh\necho sluice %s\n" % version, 0o755), ("LICENSE", "text\n", 0o644),
                                 ("share/man/man1/sluice.1", ".TH SLUICE 1\n", 0o644),
                                 ("share/bash-completion/completions/sluice", "# completion\n", 0o644)):
            item = tarfile.TarInfo("sluice-%s-linux-%s/%s" % (version, MACHINE, name))
            item.size, item.mode = len(text), mode
            tar.addfile(item, io.BytesIO(text.encode()))
    return out.getvalue()


class Place:
    def __init__(self, folder, url):
        self.published, self.prefix, self.url = folder / "published", folder / "prefix", url

    def publish(self, version, data=None, digest=None, machine=MACHINE):
        data = archive(version) if data is None else data
        name = "sluice-%s-linux-%s.tar.xz" % (version, machine)
        (self.published / name).write_bytes(data)
        (self.published / "SHA256SUMS").write_text("%s  other.whl\n%s  %s\n" % ("0" * 64, digest or hashlib.sha256(data).hexdigest(), name))
        return name

    def install(self, *words, **environment):
        known = {"PATH": os.environ["PATH"], "HOME": str(self.prefix.parent / "home"), **environment}
        return subprocess.run(["sh", str(SCRIPT), *map(str, words)], capture_output=True, text=True, timeout=120, env=known)

    def refused(self, *words):
        """Runs an installation that fails; checks its message, and that the folder is unchanged."""
        before = self.contents()
        done = self.install(self.url, self.prefix)
        assert done.returncode == 1 and "install.sh: " in done.stderr, (done.returncode, done.stdout, done.stderr)
        for word in words:
            assert word in done.stderr, done.stderr
        assert self.contents() == before

    def contents(self):
        return sorted((str(p.relative_to(self.prefix)), p.is_file() and p.read_bytes()) for p in self.prefix.rglob("*"))

    def version(self):
        return subprocess.run([self.prefix / "bin" / "sluice"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture()
def place(tmp_path):
    (tmp_path / "published").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path / "published")) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Place(tmp_path, "http://127.0.0.1:%d" % server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def test_it_installs_and_says_what_to_put_on_path(place):
    place.publish("1.2.3")
    done = place.install(place.url + "/", place.prefix)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "installed sluice 1.2.3 as %s/bin/sluice" % place.prefix in done.stdout
    assert 'export PATH="%s/bin:$PATH"' % place.prefix in done.stdout
    assert place.version() == "sluice 1.2.3"
    assert (place.prefix / "share" / "man" / "man1" / "sluice.1").read_text() == ".TH SLUICE 1\n"
    assert (place.prefix / "share" / "bash-completion" / "completions" / "sluice").exists()
    assert [p.name for p in (place.prefix / "lib").iterdir()] == ["sluice-dist"]
    on_path = place.install(place.url, place.prefix, PATH="%s/bin:%s" % (place.prefix, os.environ["PATH"]))
    assert on_path.returncode == 0 and "export PATH" not in on_path.stdout


def test_variables_name_the_source_and_home_is_the_default(place):
    place.publish("1.0")
    done = place.install(SLUICE_INSTALL_URL=place.url)
    assert done.returncode == 0, done.stderr
    assert (place.prefix.parent / "home" / ".local" / "bin" / "sluice").exists()
    nothing = place.install()
    assert nothing.returncode == 1 and "SLUICE_INSTALL_URL" in nothing.stderr


def test_a_newer_version_replaces_the_older(place):
    for version in ("1.0", "2.0"):
        for old in place.published.iterdir():
            old.unlink()
        place.publish(version)
        assert place.install(place.url, place.prefix).returncode == 0
        assert place.version() == "sluice " + version


def test_the_archive_of_this_kind_of_processor_is_taken(place, tmp_path):
    """A folder has packages for several architectures; uname selects the machine's."""
    sums = ""
    for machine in ("x86_64", "aarch64"):
        data = archive("1.0", program="#!/bin/sh\necho for %s\n" % machine)
        name = "sluice-1.0-linux-%s.tar.xz" % machine
        (place.published / name).write_bytes(data)
        sums += "%s  %s\n" % (hashlib.sha256(data).hexdigest(), name)
    (place.published / "SHA256SUMS").write_text(sums)
    tools = tmp_path / "tools"
    tools.mkdir()
    for machine in ("x86_64", "aarch64"):
        uname = tools / "uname"
        uname.write_text('#!/bin/sh\n[ "$1" = -m ] && echo %s || echo Linux\n' % machine)
        uname.chmod(0o755)
        done = place.install(place.url, place.prefix, PATH="%s:%s" % (tools, os.environ["PATH"]))
        assert done.returncode == 0, done.stderr
        assert place.version() == "for " + machine


def test_what_is_wrong_installs_nothing(place):
    place.refused("SHA256SUMS cannot be downloaded")
    name = place.publish("1.0", digest="f" * 64)
    place.refused(name, "SHA-256 expected ffff", "nothing is installed")
    whole = archive("1.0")
    place.publish("1.0", data=whole[:len(whole) // 2], digest=hashlib.sha256(whole).hexdigest())
    place.refused("SHA-256 expected", "(%d bytes)" % (len(whole) // 2))
    (place.published / name).unlink()
    place.refused(name, "cannot be downloaded")
    place.publish("1.0", machine="vax")
    place.refused("names no archive for " + MACHINE, "vax")
    place.publish("1.0", data=b"no archive")
    place.refused("cannot be unpacked")


def test_a_failed_update_leaves_the_program_that_was_there(place):
    place.publish("1.0")
    assert place.install(place.url, place.prefix).returncode == 0
    for old in place.published.iterdir():
        old.unlink()
    place.publish("2.0", data=archive("2.0", program="#!/bin/sh\necho no such library >&2\nexit 127\n"))
    place.refused("does not start here: no such library")
    assert place.version() == "sluice 1.0"


@pytest.mark.parametrize("missing", ["xz", "curl"])
def test_a_tool_that_is_missing_is_named(place, tmp_path, missing):
    place.publish("1.0")
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for path in pathlib.Path(folder).iterdir():
            if path.name not in (missing, "wget"):
                with contextlib.suppress(FileExistsError):
                    (tools / path.name).symlink_to(path)
    done = place.install(place.url, place.prefix, PATH=str(tools))
    assert done.returncode == 1 and missing in done.stderr
    assert not place.contents()
