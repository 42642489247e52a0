"""`sluice chat` at a terminal: a pseudo-terminal sends keys as people and terminals do."""
import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import threading

from test_interrupts import stuck_at

from recording import recording, stream
from serving import ABACUS, PATIENCE_S, command, end, run, wait_until

UP, LEFT, CTRL_A, CTRL_C, CTRL_D = "\x1b[A", "\x1b[D", "\x01", "\x03", "\x04"
PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"
READY = "\x1b[?2004h"  # enables bracketed paste: the program is ready to read a line


class Terminal:
    def __init__(self, ours, process):
        self.ours, self.process, self.seen, self.mark = ours, process, b"", 0
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        with contextlib.suppress(OSError):  # the other side has closed
            while data := os.read(self.ours, 4096):
                self.seen += data

    def text(self):
        """The output since the last line was typed."""
        return self.seen[self.mark:].decode(errors="replace")

    def plain(self):
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self.text())

    def keys(self, keys):
        os.write(self.ours, keys.encode())

    def prompted(self):
        wait_until(lambda: READY in self.text() or self.process.poll() is not None, lambda: "no prompt: %r" % self.text())
        assert self.process.poll() is None, self.text()

    def line(self, keys, begun=False):
        """Types a line, or the rest of one; returns the output until the next prompt."""
        if not begun:
            self.prompted()
        self.mark = len(self.seen)
        self.keys(keys + "\r")
        wait_until(lambda: READY in self.text(), lambda: "no prompt after %r: %r" % (keys, self.text()))
        return self.plain()

    def shows(self, words):
        wait_until(lambda: words in self.plain(), lambda: "no %r: %r" % (words, self.text()))

    def leave(self):
        self.prompted()
        # A key that arrives while the terminal changes its mode is lost, so press it again.
        for _ in range(6):
            self.keys(CTRL_D)
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert self.process.wait(10) == 0, self.text()
                return
        raise AssertionError("Ctrl-D does not leave: " + self.text())


@contextlib.contextmanager
def chatting(server, home, *flags, **environment):
    """A Terminal that chats with the server, or with the bundled model if `server` is None."""
    target = ["--url", server.url] if server else [ABACUS]
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    known = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment}
    process = subprocess.Popen(command("chat", *target, "--temperature", 0, "--max-tokens", 8, *flags), stdin=its, stdout=its, stderr=its,
                               env=known, cwd=home, preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)))
    os.close(its)
    terminal = Terminal(ours, process)
    try:
        yield terminal
    finally:
        end(process)
        os.close(ours)
        terminal.thread.join(10)


def messages(terminal, home):
    assert "saved" in terminal.line("/save talk.json")
    return [(m["role"], m["content"]) for m in json.loads((home / "talk.json").read_text())["messages"]]


def questions(terminal, home):
    return [content for role, content in messages(terminal, home) if role == "user"]


def test_a_line_is_edited(abacus, tmp_path):
    with chatting(abacus, tmp_path) as terminal:
        terminal.line("wo " + "x\x7f" + "three" + CTRL_A + "t" + "\x05 four" + LEFT * 4 + "\x17" + "and ")
        assert questions(terminal, tmp_path) == ["two and four"]
        terminal.line("Größe äö" + LEFT + "\x7f")
        assert questions(terminal, tmp_path)[-1] == "Größe ö"
        terminal.leave()


def test_the_history_is_kept_from_one_start_to_the_next(abacus, tmp_path):
    with chatting(abacus, tmp_path) as terminal:
        terminal.line("first question")
        terminal.line("second question")
        terminal.leave()
    history = tmp_path / ".local" / "state" / "sluice" / "chat_history"
    assert history.exists() and history.stat().st_mode & 0o077 == 0
    with chatting(abacus, tmp_path) as terminal:
        terminal.line(UP + UP)
        assert questions(terminal, tmp_path) == ["first question"]
        terminal.leave()


def test_the_history_can_be_elsewhere_or_nowhere(abacus, tmp_path):
    with chatting(abacus, tmp_path, "--history-file", "none") as terminal:
        terminal.line("secret")
        terminal.leave()
    assert not list(tmp_path.iterdir())
    with chatting(abacus, tmp_path, "--history-file", tmp_path / "lines") as terminal:
        terminal.line("word")
        terminal.leave()
    assert "word" in (tmp_path / "lines").read_text()
    (tmp_path / "file").write_text("")
    with chatting(abacus, tmp_path, "--history-file", tmp_path / "file" / "lines") as terminal:
        assert "warning: the history cannot be stored in" in terminal.line("word")
        assert "warning" not in terminal.line("word")
        terminal.leave()


def test_commands_are_completed(abacus, tmp_path):
    with chatting(abacus, tmp_path) as terminal:
        assert "/save FILE" in terminal.line("/he\t")
        terminal.prompted()
        terminal.mark = len(terminal.seen)
        terminal.keys("/s\t")
        terminal.shows("/save\n/system\n/stats\n")
        assert "system: be short" in terminal.line("y\tbe short", begun=True)
        assert "model: m" in terminal.line("/model \t")
        (tmp_path / "conversation.json").write_text('[{"role": "user", "content": "from a file"}]')
        assert "loaded 1 messages of conversation.json" in terminal.line("/load conv\t")
        terminal.leave()


def test_a_paste_is_one_message(abacus, tmp_path):
    text = "def f():\r\treturn 1\rend\n"
    with chatting(abacus, tmp_path) as terminal:
        terminal.line("look: " + PASTE_BEGINS + text + PASTE_ENDS + "done")
        assert questions(terminal, tmp_path) == ["look: def f():\n\treturn 1\nend\ndone"]
        terminal.line("from\\")
        terminal.line("here")
        assert questions(terminal, tmp_path)[-1] == "from\nhere"
        terminal.leave()


def test_commands(abacus, tmp_path):
    with chatting(abacus, tmp_path, "--system-prompt", "be short") as terminal:
        terminal.line("one")
        assert [role for role, _ in messages(terminal, tmp_path)] == ["system", "user", "assistant"]
        assert "system: be short" in terminal.line("/system")
        assert "system: be long and kind" in terminal.line("/system be long and kind")
        terminal.line("/clear")
        assert messages(terminal, tmp_path) == [("system", "be long and kind")]
        (tmp_path / "other.json").write_text(json.dumps({"messages": [{"role": "user", "content": "kept"}]}))
        assert "loaded 1 messages of other.json" in terminal.line("/load other.json")
        assert questions(terminal, tmp_path) == ["kept"]
        assert "error: cannot open absent.json" in terminal.line("/load absent.json")
        assert "which file?" in terminal.line("/save")
        assert "* m" in terminal.line("/model")
        assert "has no model x: expected one of m" in terminal.line("/model x")
        assert "did you mean /clear?" in terminal.line("/claer")
        terminal.line("//tmp is a folder")
        assert questions(terminal, tmp_path)[-1] == "/tmp is a folder"
        terminal.prompted()
        terminal.keys("/exit\r")
        assert terminal.process.wait(60) == 0


def test_stats_on_request(abacus, tmp_path):
    shape = r"\[\d+ tokens, the first after [\d.]+ s, then [\d.]+ tokens/s; \d+ prompt tokens, "
    with chatting(abacus, tmp_path) as terminal:
        assert "tokens/s" not in terminal.line("Tom has 3 apples.")
        assert "stats on" in terminal.line("/stats")
        shown = terminal.line("Tom has 3 apples and buys 4 more.")
        assert re.search(shape, shown), shown
        assert "stats off" in terminal.line("/stats")
        assert "tokens/s" not in terminal.line("And now?")
        terminal.leave()
    with chatting(abacus, tmp_path, "--stats") as terminal:
        assert re.search(shape, terminal.line("Tom has 3 apples."))
        terminal.leave()


def test_ctrl_c_gives_up_the_line(abacus, tmp_path):
    with chatting(abacus, tmp_path) as terminal:
        terminal.prompted()
        terminal.mark = len(terminal.seen)
        terminal.keys("never asked" + CTRL_C)
        terminal.shows("(Ctrl-D leaves)")
        terminal.line("asked")
        assert questions(terminal, tmp_path) == ["asked"]
        terminal.leave()


def test_ctrl_c_ends_an_answer(tmp_path):
    with stuck_at("/v1/chat/completions") as (server, asked), chatting(server, tmp_path, "--model-name", "m") as terminal:
        terminal.prompted()
        terminal.mark = len(terminal.seen)
        terminal.keys("one\r")
        assert asked.wait(PATIENCE_S)
        terminal.keys(CTRL_C)
        terminal.line("two")
        assert len(server.seen) == 2
        terminal.leave()


def test_colors_are_for_those_who_want_them(abacus, tmp_path):
    with chatting(abacus, tmp_path, "--stats") as terminal:
        terminal.line("one")
        assert "\x1b[2m[" in terminal.text() and "\x1b[1m" in terminal.text()
        terminal.leave()
    with chatting(abacus, tmp_path, "--stats", NO_COLOR="1") as terminal:
        terminal.line("one")
        assert "\x1b[2m" not in terminal.text() and "\x1b[1m" not in terminal.text()
        terminal.leave()


def test_a_terminal_that_can_do_nothing(abacus, tmp_path):
    with chatting(abacus, tmp_path, TERM="dumb") as terminal:
        terminal.shows("> ")
        terminal.keys("/system be short\r")
        terminal.shows("system: be short")
        terminal.keys("/exit\r")
        assert terminal.process.wait(60) == 0
        assert b"\x1b" not in terminal.seen, terminal.seen


MARKDOWN = "# Fruit\n\nTwo **ripe** ones:\n- `apple`\n- [pear](https://pear.example)\n\n| a | bb |\n|---|---|\n| ccc | d |\n\n```c\nint x = 2 * 3 * 4;\n```\nDone \x1b[31m\x07."


def saying(text, size=3):
    """A server that answers with this text, divided at other places than tokens."""
    pieces = [{"choices": [{"index": 0, "delta": {"content": text[at:at + size]}, "finish_reason": None}]} for at in range(0, len(text), size)]
    return recording(lambda i, body: stream(*pieces))


def test_markdown_is_rendered_while_it_comes(tmp_path):
    with saying(MARKDOWN) as server, chatting(server, tmp_path, "--model-name", "m", "--markdown") as terminal:
        shown = terminal.line("one")
        assert "Fruit\n\nTwo ripe ones:\n• apple\n• pear (https://pear.example)\n" in shown, shown
        assert "a   │ bb\n────┼───\nccc │ d\n" in shown and "int x = 2 * 3 * 4;\n" in shown, shown
        assert "\x1b[1mripe\x1b[0m" in terminal.text() and "\x1b[36mapple\x1b[0m" in terminal.text()
        assert "Done \\x1b[31m\\x07." in terminal.text() and "\x1b[31m" not in terminal.text(), "an answer cannot steer the terminal"
        assert messages(terminal, tmp_path)[-1] == ("assistant", MARKDOWN), "what is kept is the answer"
        assert "markdown off" in terminal.line("/markdown")
        shown = terminal.line("two")
        assert "Two **ripe** ones:\n- `apple`" in shown and "\\x1b[31m" in shown and "\x1b[31m" not in terminal.text(), shown
        terminal.leave()
    with saying(MARKDOWN) as server, chatting(server, tmp_path, "--model-name", "m", "--markdown", NO_COLOR="1") as terminal:
        shown = terminal.line("one")
        assert "Two **ripe** ones:\n• `apple`" in shown and "\x1b[1m" not in terminal.text(), terminal.text()
        terminal.leave()


def test_markdown_is_for_terminals(tmp_path):
    with saying(MARKDOWN) as server:
        result = run("chat", "--url", server.url, "--model-name", "m", "--markdown", "--quick", "one")
        assert result.returncode == 0 and result.stdout == MARKDOWN + "\n", result
        assert "--markdown has no effect" in result.stderr


def test_a_model_in_the_same_process_says_what_was_cached(tmp_path):
    with chatting(None, tmp_path, "--stats", "--max-model-len", 1024) as terminal:
        terminal.line("Tom has 3 apples and buys 4 more. How many apples does Tom have now? Tom has 3 apples.")
        shown = terminal.line("Tom has 3 apples and buys 4 more.")
        cached = re.search(r"prompt tokens, (\d+) % of them cached\]", shown)
        assert cached and int(cached[1]) > 0, shown
        terminal.leave()
