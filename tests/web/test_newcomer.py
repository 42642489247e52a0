"""A newcomer's first minutes: README.md's commands, typed into a terminal of 80 columns and 24 lines, and the page in Chromium.

The commands are unchanged except for the port, since 8000 may be in use."""
import os
import re
import shlex
import subprocess
import sys

import pytest
from test_chat_tmux import Screen

from serving import BIN, ROOT, free_port, wait_until
from test_chat import DONE

README = (ROOT / "README.md").read_text()
QUESTION = "Tom has 3 apples. He buys 4 more. How many apples does he have now?"


def blocks(language=""):
    return re.findall(r"^```%s\n(.*?)^```" % language, README, re.M | re.S)


def block_with(words):
    (text,) = [text for text in blocks() if text.startswith(words)]
    return text.rstrip("\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the same files as the project's, as far as README.md's commands use them."""
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / "build" / "release").mkdir(parents=True)
    (folder / "build" / "release" / "bin").symlink_to(BIN)
    (folder / "models").symlink_to(ROOT / "models")
    return folder


class Shell(Screen):
    def __init__(self, folder, cwd, name):
        (folder / name).mkdir(exist_ok=True)
        python = os.path.dirname(sys.executable)
        super().__init__(folder / name, ["PATH=%s:%s" % (python, os.environ["PATH"]), "PS1=$ ", "HF_HUB_OFFLINE=1"], "sh", "-c",
                         "cd %s && exec bash --norc --noprofile" % shlex.quote(str(cwd)), columns=80, rows=24)
        self.ends_with("$")

    def types(self, text):
        self.tmux("send-keys", "-t", "chat", "-l", text)
        self.keys("Enter")

    def shows(self, *words):
        wait_until(lambda: all(word in self.joined() for word in words), self.joined, 120)

    def joined(self):
        """All printed text; joins lines that the terminal has wrapped."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-", "-t", "chat").rstrip()

    def close(self):
        subprocess.run(["tmux", "-S", str(self.socket), "kill-server"], capture_output=True)


@pytest.fixture
def shell(place, tmp_path):
    shells = []

    def one(name):
        shells.append(Shell(tmp_path, place, name))
        return shells[-1]

    yield one
    for each in shells:
        each.close()


def test_run_and_chat(shell):
    screen = shell("one")
    screen.types(block_with("build/release/bin/sluice run models/abacus") + " --port 0")
    screen.shows("/? lists the commands, /bye or Ctrl-D leaves.")
    assert all(len(line) <= 80 for line in screen.joined().split("\n")[1:]), screen.joined()
    assert "Traceback" not in screen.joined() and "KV cache" not in screen.joined()
    screen.types(QUESTION)
    screen.shows("#### 7")
    screen.types("/bye")
    screen.ends_with("$")


def test_serve_ask_and_open_the_page(shell, browser):
    port = free_port()

    def here(text):
        return text.replace("8000", str(port))

    server = shell("server")
    server.types(here(block_with("build/release/bin/sluice serve models/abacus --port 8000")))
    server.shows("Application startup complete.", "open http://127.0.0.1:%d/ in a browser, or talk to it: sluice chat --url" % port)

    client = shell("client")
    client.types(here(block_with("curl ")))
    client.shows("#### 37")
    (program,) = blocks("python")
    (client.folder / "ask.py").write_text(here(program))
    client.types("clear; python3 %s" % (client.folder / "ask.py"))
    wait_until(lambda: "#### 37" in client.text(), client.text, 120)

    (chat,) = re.findall(r"`(build/release/bin/sluice chat --url [^`]+)`", README)
    client.types("clear; " + here(chat))
    wait_until(lambda: client.text().endswith("\n>"), client.text, 60)
    client.types(QUESTION)
    wait_until(lambda: "#### 7" in client.text(), client.text, 60)
    client.types("/bye")
    client.ends_with("$")

    with browser.page() as page:
        page.open("http://127.0.0.1:%d/" % port)
        page.wait("document.querySelector('#state').dataset.state === 'ready'")
        page.click("#examples li:first-child button")
        page.wait(DONE + " === 1")
        assert "= 8" in page.text(".message.assistant .text") and page.errors == []

    server.keys("C-c")
    server.ends_with("$")


def test_the_commands_that_it_names_are_there(place):
    for words in re.findall(r"`sluice ([a-z-]+)[ `]", README):
        done = subprocess.run([str(place / "build/release/bin/sluice"), "help", words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or words == "help", (words, done.stderr)


def test_a_stranger_knows_after_ten_lines():
    """README.md's first lines say what sluice is, for whom, what works and what does not; then they say how to try it."""
    head = "\n".join(README.splitlines()[:13])
    for words in ("serves large language models", "For whom", "What works today", "What does not", "unproven"):
        assert words in head, words
    assert README.index("unproven") < README.index("## Comparison with other servers") and README.index("## Try it") < 1500
    assert re.search(r"sluice run [A-Z]\w+/[\w.-]+", README), "a published model"
