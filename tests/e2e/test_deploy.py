"""The unit of systemd and the compose file in deploy/."""
import re
import shutil
import subprocess

import pytest

from serving import BIN, ROOT


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_the_unit_is_valid_and_hardened(tmp_path):
    unit = tmp_path / "sluice.service"
    text = (ROOT / "deploy" / "systemd" / "sluice.service").read_text()
    unit.write_text(text.replace("/usr/bin/sluice", str(BIN / "sluice")))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert verified.returncode == 0 and not verified.stderr, verified.stderr
    assert subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit],
                          capture_output=True).returncode == 0


def test_the_compose_file_has_options_that_there_are():
    yaml = pytest.importorskip("yaml")
    service = yaml.safe_load((ROOT / "deploy" / "production" / "compose.yaml").read_text())["services"]["sluice"]
    assert service["command"][:2] == ["sluice", "serve"]
    known = (ROOT / "docs" / "options.md").read_text()
    flags = re.findall(r"--[a-z-]+", " ".join(service["command"]))
    assert flags and not [flag for flag in flags if "`%s`" % flag not in known]
