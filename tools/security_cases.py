#!/usr/bin/env python3
"""The cases of docs/security.md: which tests cover them, and how those tests ended last.

Usage: tools/security_cases.py page [--check]        writes the tables of docs/security.md; --check fails if they are out of date
       tools/security_cases.py list                  the tests as JSON: {"pytest": [...], "gtest": {PROGRAM: [...]}}
       tools/security_cases.py record SECONDS REPORT...
                                                     stores the results of these reports (pytest's XML, GoogleTest's JSON) in
                                                     tests/robustness/last_run.json

A case is covered by the functions of tests/e2e, tests/robustness and tests/distributed that have its id in their names (test_p04_v82_json covers P04
and V82), and by the unit tests that tests/robustness/plan.json names. For a case without tests, the plan contains a reason.
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROBUSTNESS = ROOT / "tests" / "robustness"
PAGE = ROOT / "docs" / "security.md"
LAST_RUN = ROBUSTNESS / "last_run.json"
LAST_SOAK = ROBUSTNESS / "last_soak.json"
BEGIN, END = "<!-- written by tools/security_cases.py -->", "<!-- end -->"
FUNCTION = re.compile(r"^def (test_\w+)\(", re.M)
IDS = re.compile(r"(?<=_)[a-z]\d\d(?=_|$)")
GTEST = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.M)


def functions():
    """(file, function, ids) of each test function with a case in its name."""
    for folder in ("e2e", "robustness", "distributed"):
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
            for name in FUNCTION.findall(path.read_text()):
                ids = [found.upper() for found in IDS.findall(name)]
                if ids:
                    yield path.relative_to(ROOT), name, ids


def unit_tests():
    """"PROGRAM Suite.Name" of all unit tests, from their sources."""
    return {"%s_test %s.%s" % (path.relative_to(ROOT / "src").parts[0], suite, name)
            for path in (ROOT / "src").rglob("*_test.cc") for suite, name in GTEST.findall(path.read_text())}


def cases():
    """The plan, with the tests of each case. Exits if the plan has faults."""
    plan = json.loads((ROBUSTNESS / "plan.json").read_text())
    by_id = {case["id"]: case for case in plan}
    there, faults = unit_tests(), []
    if len(by_id) != len(plan):
        faults.append("an id stands twice in plan.json")
    for case in plan:
        case["functions"] = []
        faults += ["%s: there is no test %s" % (case["id"], name) for name in case.get("tests", []) if name not in there]
    for path, name, ids in functions():
        for found in ids:
            if found in by_id:
                by_id[found]["functions"].append((path, name))
            else:
                faults.append("%s: %s names %s, which is no case of plan.json" % (path, name, found))
    faults += ["%s has neither a test nor a reason" % case["id"] for case in plan
               if not case["functions"] and not case.get("tests") and not case.get("reason")]
    if faults:
        sys.exit("\n".join(faults))
    return plan


def listed():
    functions_of, programs = set(), {}
    for case in cases():
        functions_of |= {"%s::%s" % found for found in case["functions"]}
        for test in case.get("tests", []):
            program, name = test.split(" ")
            programs.setdefault(program, set()).add(name)
    return {"pytest": sorted(functions_of), "gtest": {program: sorted(names) for program, names in sorted(programs.items())}}


def outcomes_of(report):
    """(test, passed | failed | skipped) of each test in a report of pytest (XML) or GoogleTest (JSON)."""
    if report.endswith(".json"):
        for suite in json.loads(pathlib.Path(report).read_text())["testsuites"]:
            for case in suite["testsuite"]:
                ran = case["result"] == "COMPLETED"
                # A parameterised suite is PREFIX/Suite, and its tests are Name/PARAMETER.
                yield ("%s.%s" % (suite["name"].rsplit("/", 1)[-1], case["name"].split("/")[0]),
                       "failed" if "failures" in case else "passed" if ran else "skipped")
    else:
        for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
            kinds = {child.tag for child in case}
            yield case.get("name").split("[")[0], "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"


def record(seconds, reports):
    """Stores the results. A test with parameters failed if it failed with one of them, and passed if it passed with one."""
    found = {}
    for report in reports:
        for name, outcome in outcomes_of(report):
            found.setdefault(name, set()).add(outcome)
    results = {name: "failed" if "failed" in outcomes else "passed" if "passed" in outcomes else "skipped"
               for name, outcomes in sorted(found.items())}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    LAST_RUN.write_text(json.dumps({"date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "commit": commit, "seconds": seconds,
                                    "processors": os.cpu_count(), "results": results}, indent=1) + "\n")


def outcome_of(case, results):
    names = [name for _, name in case["functions"]] + [test.split(" ")[1] for test in case.get("tests", [])]
    if not names:
        return "-"
    outcomes = [results.get(name, "not run") for name in names]
    if "failed" in outcomes:
        return "**failed**: " + ", ".join("`%s`" % name for name, outcome in zip(names, outcomes) if outcome == "failed")
    if len(set(outcomes)) == 1:
        return outcomes[0]
    return ", ".join("%d %s" % (outcomes.count(kind), kind) for kind in ("passed", "skipped", "not run") if kind in outcomes)


def table(plan, results, head):
    lines = ["| id | case | tests | last run |", "|---|---|---|---|"]
    for case in plan:
        if not head(case["id"]):
            continue
        what = case["case"] + (" (%s)" % case["cve"] if case.get("cve") else "")
        tests = ["`%s`" % name for _, name in case["functions"]] + ["`%s`" % test.split(" ")[1] for test in case.get("tests", [])]
        if case.get("reason"):
            tests.append(case["reason"])
        lines.append("| %s | %s | %s | %s |" % (case["id"], what, ", ".join(tests), outcome_of(case, results)))
    return lines


def page():
    plan = cases()
    run = json.loads(LAST_RUN.read_text()) if LAST_RUN.exists() else {"results": {}}
    results = run["results"]
    lines = [BEGIN, ""]
    if results:
        lines += ["Last run: %s, commit %s, %d tests in %d s on %d processors, %d failed." % (
            run["date"], run["commit"], len(results), run["seconds"], run["processors"], list(results.values()).count("failed")), ""]
    lines += table(plan, results, lambda name: name[0] != "V")
    lines += ["", "Classes of published faults:", ""]
    lines += table(plan, results, lambda name: name[0] == "V")
    if LAST_SOAK.exists():
        soak = json.loads(LAST_SOAK.read_text())
        lines += ["", "Last soak: %s, %d s of %s, %d requests (%s), %d answers compared, %d preemptions. Resident memory: median %s MiB in the second quarter, "
                  "%s MiB in the last quarter; growth %s MiB per hour (least squares). %s." % (
                      soak["date"], soak["seconds"], soak["program"], sum(soak["requests"].values()),
                      ", ".join("%d %s" % (count, kind) for kind, count in sorted(soak["requests"].items())), soak["checked_answers"], soak["preemptions"] or 0,
                      soak["resident_mib_second_quarter"], soak["resident_mib_last_quarter"], soak["slope_mib_per_hour"],
                      "Passed" if not soak["failures"] else "Failed: " + "; ".join(soak["failures"])[:500])]
    lines += ["", END]
    return "\n".join(lines)


def main(words):
    if words[:1] == ["list"]:
        print(json.dumps(listed()))
    elif words[:1] == ["record"] and len(words) > 2:
        record(float(words[1]), words[2:])
    elif words[:1] == ["page"]:
        text = PAGE.read_text()
        new = text[:text.index(BEGIN)] + page() + text[text.index(END) + len(END):]
        if words[1:] == ["--check"]:
            if new != text:
                print("docs/security.md does not list the tests there are: run `make docs`")
                return 1
        else:
            PAGE.write_text(new)
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
