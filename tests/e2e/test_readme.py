"""README.md's examples, unchanged, with a server started by README.md's command."""
import os
import re
import subprocess
import sys

import pytest

from serving import ABACUS, BIN, ROOT, run, serving

README = (ROOT / "README.md").read_text()
PORT = "127.0.0.1:8000"


def blocks(language):
    return re.findall(r"^```%s\n(.*?)^```" % language, README, re.M | re.S)


@pytest.fixture(scope="module", params=["models/abacus", "org/something-else"])
def named(request):
    """Starts a server for each way to name the model."""
    with serving(ABACUS, "--max-model-len", 1024, name=request.param) as server:
        yield server


def here(text, server):
    assert PORT in text
    return text.replace(PORT, "127.0.0.1:%d" % server.port)


def test_the_first_commands_are_those_of_make():
    assert re.findall(r"^make [\w-]+", blocks("")[0], re.M) == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:^|`)make ([a-z][\w-]+)", README, re.M)):
        assert re.search(r"^%s:" % re.escape(target), makefile, re.M), target


def test_the_request_by_curl(named):
    (script,) = [text for text in blocks("") if text.startswith("curl ")]
    done = subprocess.run(["bash", "-c", here(script, named)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "#### 37" in done.stdout, done.stdout + done.stderr


def test_the_program_with_openai(named):
    (program,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", here(program, named)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "#### 37" in done.stdout, done.stdout + done.stderr


def test_the_chat(named):
    (command,) = re.findall(r"`build/release/bin/sluice (chat --url [^`]+)`", README)
    done = run(*here(command, named).split(), input="Tom has 13 apples. He buys 24 more. How many apples does he have now?\n")
    assert done.returncode == 0 and "#### 37" in done.stdout, done.stdout + done.stderr


def test_the_variables_of_open_webui_lead_to_the_api(named):
    """Open WebUI itself needs 1 GB of packages, so the test sends its requests: the list of models, and then a chat."""
    (url, key) = re.search(r"`OPENAI_API_BASE_URL=(\S+) OPENAI_API_KEY=(\S+) open-webui serve`", README).groups()
    done = subprocess.run(["curl", "--fail", "--silent", here(url, named) + "/models", "--oauth2-bearer", key], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and '"object":"list"' in done.stdout.replace(" ", ""), done.stdout


def test_what_it_leads_to_is_there():
    for target in re.findall(r"\]\(([^)#\s]+)", README):
        assert (ROOT / target).exists(), target
    assert os.access(BIN / "sluice", os.X_OK)
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert "(docs/%s)" % page.name in README, "a page that README.md does not lead to: %s" % page.name
