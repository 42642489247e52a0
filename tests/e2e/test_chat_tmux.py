"""`sluice chat` in tmux: the screen's content after keys, pastes and a change of the window's size."""
import os
import shlex
import subprocess

import pytest

from serving import command, wait_until


class Screen:
    def __init__(self, folder, environment, *words, columns=100, rows=40):
        self.socket, self.folder = folder / "tmux", folder
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "chat", "-x", str(columns), "-y", str(rows),
                  shlex.join(["env", *environment, *words]))

    def tmux(self, *words):
        done = subprocess.run(["tmux", "-S", str(self.socket), *words], capture_output=True, text=True, env=self.environment, timeout=60)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def text(self):
        return self.tmux("capture-pane", "-p", "-t", "chat").rstrip()

    def keys(self, *keys):
        self.tmux("send-keys", "-t", "chat", *keys)

    def paste(self, text):
        (self.folder / "text").write_text(text)
        self.tmux("load-buffer", str(self.folder / "text"))
        self.tmux("paste-buffer", "-p", "-t", "chat")

    def ends_with(self, *lines):
        wait_until(lambda: self.text().split("\n")[-len(lines):] == list(lines), lambda: "expected %r, found %r" % (lines, self.text()), 60)


@pytest.fixture
def start(abacus, tmp_path):
    screens = []

    def one():
        screens.append(Screen(tmp_path, [], *command("chat", "--url", abacus.url, "--temperature", 0, "--max-tokens", 40)))
        screens[-1].ends_with(">")
        return screens[-1]

    yield one
    if screens:
        subprocess.run(["tmux", "-S", str(screens[-1].socket), "kill-server"], capture_output=True)


def test_keys_pastes_and_a_window_that_changes(start):
    screen = start()
    screen.keys("He buys 4 mxre.", "Left", "Left", "Left", "BSpace", "o", "C-a", "Tom has 3 apples. ", "C-e", " How many?")
    screen.ends_with("> Tom has 3 apples. He buys 4 more. How many?")
    screen.keys("Enter")
    screen.ends_with("There are 3 + 4 = 7 apples.", "#### 7", ">")
    screen.keys("Up")
    screen.ends_with("#### 7", "> Tom has 3 apples. He buys 4 more. How many?")
    screen.keys("C-c")
    screen.ends_with("> Tom has 3 apples. He buys 4 more. How many?", "(Ctrl-D leaves)", ">")
    screen.keys("/cle", "Tab")
    screen.ends_with("> /clear")
    screen.keys("Enter")
    screen.ends_with("> /clear", ">")
    screen.tmux("resize-window", "-t", "chat", "-x", "30", "-y", "20")
    screen.paste("Tom has 3 apples.\nHe buys 4 more.\nHow many?")
    wait_until(lambda: " ".join(screen.text().split()).endswith("> Tom has 3 apples.␤He buys 4 more.␤How many?"), screen.text, 60)
    screen.keys("Enter")
    wait_until(lambda: screen.text().split("How many?")[-1].endswith("\n>"), screen.text, 60)
    screen.keys("C-d")
    wait_until(lambda: subprocess.run(["tmux", "-S", str(screen.socket), "list-sessions"], capture_output=True).returncode, "it has not ended", 60)
    again = start()
    again.keys("C-r", "clea")
    wait_until(lambda: "/clear" in again.text(), again.text, 60)
