"""The systemd unit, the compose file and the Kubernetes manifest in deploy/."""
import re
import subprocess

import pytest

from serving import ABACUS, BIN, ROOT, serving


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


def test_the_manifest_of_kubernetes_starts_a_server_and_asks_it_the_right_questions(tmp_path):
    """The manifest's arguments, with this machine's model and folders, start a server; its probes name routes that exist and need no
    key."""
    yaml = pytest.importorskip("yaml")
    kinds = {item["kind"]: item for item in yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "sluice.yaml").read_text())}
    pod = kinds["Deployment"]["spec"]["template"]
    container, = pod["spec"]["containers"]
    assert kinds["Deployment"]["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert kinds["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert container["command"] == ["sluice", "serve"]
    (tmp_path / "api-keys").write_text("sk-cluster\n")
    words = [word.replace("/keys/", "%s/" % tmp_path).replace("/models", str(tmp_path)) for word in container["args"][1:]
             if not word.startswith(("--host", "--port"))]
    with serving(ABACUS, *words, "--max-model-len", 512) as server:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert server.request("GET", container[probe]["httpGet"]["path"])[0] == 200
        assert server.request("GET", pod["metadata"]["annotations"]["prometheus.io/path"])[0] == 200
        assert server.request("GET", "/v1/models")[0] == 401
        assert server.request("GET", "/v1/models", headers={"Authorization": "Bearer sk-cluster"})[0] == 200


def known_flags():
    return set(re.findall(r"`(--?[a-z0-9-]+)`", (ROOT / "docs" / "options.md").read_text()))


def containers(document):
    """All containers that a Kubernetes document starts."""
    if isinstance(document, dict):
        yield from document.get("containers") or []
        for value in document.values():
            yield from containers(value)
    elif isinstance(document, list):
        for value in document:
            yield from containers(value)


@pytest.mark.parametrize("name", ["kubernetes.yaml", "leaderworkerset.yaml", "compose.two-nodes.yaml"])
def test_the_files_of_several_ranks_have_options_that_there_are(name):
    yaml = pytest.importorskip("yaml")
    documents = list(yaml.safe_load_all((ROOT / "deploy" / name).read_text()))
    found = [service for document in documents for service in (document.get("services") or {}).values()] + list(containers(documents))
    assert found
    for container in found:
        words = " ".join(container["command"] + (container.get("args") or [])).split()
        assert "sluice" in words and "serve" in words
        flags = [word for word in words if word.startswith("-") and word != "-c"]
        assert "-tp" in flags
        assert not [flag for flag in flags if flag not in known_flags()]


def test_the_job_of_slurm_is_a_script_with_options_that_there_are():
    job = ROOT / "deploy" / "slurm.sbatch"
    assert subprocess.run(["sh", "-n", job]).returncode == 0
    command = job.read_text().rsplit("sluice serve", 1)[1]
    flags = re.findall(r"(?<= )--?[a-z-]+", command)
    assert "-tp" in flags and not [flag for flag in flags if flag not in known_flags()]
