"""/openapi.json describes the server: schemathesis generates requests from it and checks the answers."""
import json
import subprocess

from serving import ABACUS, PATIENCE_S, ROOT, serving

SCHEMATHESIS = ROOT / ".venv-schemathesis" / "bin" / "schemathesis"
# Two checks do not apply: vLLM's API accepts numbers and booleans in strings, which the schemas do not state; and
# schemas cannot express limits between fields (min_tokens and max_tokens, ids and the vocabulary).
LEFT_OUT = "negative_data_rejection,positive_data_acceptance"


def test_p01_schemathesis(tmp_path):
    with serving(ABACUS, "--max-model-len", 256, "--threads", 2) as server:
        outcome = subprocess.run(
            [SCHEMATHESIS, "run", server.url + "/openapi.json", "--max-examples", "5", "--max-time", "15", "--workers", "1", "--seed", "1",
             "--request-timeout", "60", "--exclude-checks", LEFT_OUT, "--no-color"],
            capture_output=True, text=True, timeout=2 * PATIENCE_S, cwd=tmp_path)
        assert outcome.returncode == 0, outcome.stdout[-5000:] + outcome.stderr[-2000:]
        assert server.get("/health")[0] == 200
        # No request caused a server error.
        assert 'status="5xx"' not in server.get("/metrics")[1].decode()


def test_every_described_route_answers(abacus):
    document = json.loads(abacus.get("/openapi.json")[1])
    assert len(document["paths"]) > 12
    for path, item in document["paths"].items():
        for method in item:
            status, _, text = abacus.request(method.upper(), path.replace("{model_id}", "m"), {} if "requestBody" in item[method] else None)
            missing = status == 404 and "{response_id}" in path
            assert status in (200, 400) or missing, (method, path, status, text)
