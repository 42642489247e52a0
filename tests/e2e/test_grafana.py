"""Dashboard and alerts use only metrics that the server has, and Prometheus can parse them."""
import json
import re
import shutil
import subprocess

import pytest

from serving import DATA, ROOT

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "sluice.json").read_text())
# Words of PromQL and of Grafana's queries that are not metrics.
LANGUAGE = {"and", "changes", "histogram_quantile", "sum", "max", "rate", "by", "le", "label_values"}
# Metrics that Prometheus itself records about its targets.
TARGETS = {"up"}
# Labels that Prometheus adds to collected samples.
OF_PROMETHEUS = {"instance"}


def queries():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]


def labels_of(expression):
    """Labels in selectors, in groupings and in template variables."""
    found = set(re.findall(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"', expression))
    for group in re.findall(r"\bby\s*\(([^)]*)\)", expression):
        found |= {label.strip() for label in group.split(",")}
    found |= set(re.findall(r"label_values\(.*,\s*([a-z_]+)\)", expression))
    return found


def metrics_of(expression):
    labels = labels_of(expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", " ", expression)
    return {word for word in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare) if word not in LANGUAGE | labels}


@pytest.fixture(scope="module")
def samples(abacus):
    """Name -> set of labels, of all samples of a server that has answered a request."""
    abacus.complete("Tom has 3", max_tokens=4)
    found = {}
    for line in abacus.get("/metrics")[1].decode().splitlines():
        match = re.match(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ", line)
        if match and not line.startswith("#"):
            found.setdefault(match[1], set()).update(re.findall(r'([a-z_]+)="', match[2] or ""))
    return found


@pytest.mark.parametrize("title, expression", list(queries()), ids=lambda text: text[:40])
def test_a_query_finds_something(samples, title, expression):
    names = metrics_of(expression)
    assert names, expression
    for name in names:
        assert name in samples, "%s: the server has no %s" % (title, name)
        unknown = labels_of(expression) - samples[name] - OF_PROMETHEUS
        assert not unknown, "%s: %s has no label %s" % (title, name, unknown)


def test_alerts_find_something_and_say_what_to_do(samples):
    yaml = pytest.importorskip("yaml")
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        assert rule["annotations"]["summary"] and rule["annotations"]["action"] and rule["labels"]["severity"] in ("page", "warn")
        names = metrics_of(rule["expr"])
        assert names, rule
        missing = names - TARGETS - set(samples)
        assert not missing, "%s: the server has no %s" % (rule["alert"], missing)


@pytest.fixture(scope="module")
def promtool():
    found = subprocess.run([ROOT / "tools" / "promtool.sh", ROOT / "build" / "promtool"], stdout=subprocess.PIPE, text=True)
    assert found.returncode == 0, "no promtool: see above"

    def check(*words, stdin=None, codes=(0,)):
        result = subprocess.run([found.stdout.strip(), *words], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert result.returncode in codes, result.stdout
        return result.stdout

    return check


def test_prometheus_takes_what_is_deployed(promtool, tmp_path):
    for source in ("production/prometheus.yml", "prometheus/alerts.yml"):
        shutil.copy(ROOT / "deploy" / source, tmp_path)
    assert "10 rules found" in promtool("check", "config", "--lint-fatal", tmp_path / "prometheus.yml")
    promtool("check", "config", ROOT / "deploy" / "grafana" / "prometheus.yml")
    expressions = [expression.replace("$__rate_interval", "5m") for _, expression in queries() if "label_values" not in expression]
    assert expressions
    rules = [{"record": "panel:%d" % i, "expr": expression} for i, expression in enumerate(expressions)]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "panels.yml")


def test_alerts_fire_when_they_should(promtool, samples):
    file = DATA / "prometheus" / "alerts_test.yml"
    promtool("test", "rules", file)
    # The alert tests use only series that the server has.
    series = re.findall(r"series: '([a-z_:]+)\{(.*?)\}'", file.read_text())
    assert len(series) > 20
    for name, labels in series:
        there = samples.get(name, set()) | OF_PROMETHEUS | {"job"}
        assert name in TARGETS or name in samples, name
        assert set(re.findall(r'([a-z_]+)="', labels)) <= there, name


def test_prometheus_reads_the_metrics(promtool, abacus):
    """Exit code 3 means that promtool recommends other names, as it does for vLLM's metrics."""
    found = promtool("check", "metrics", stdin=abacus.get("/metrics")[1].decode(), codes=(0, 3))
    assert "error" not in found.lower(), found


def test_panels_do_not_overlap():
    places = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in places, panel["title"]
                places.add((x, y))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
