"""Terminals of 80 and 40 columns: progress lines neither wrap nor leave characters behind, and there are no colours if the output is not a
terminal."""
import contextlib
import json
import re
import subprocess

import pytest
from test_chat_tmux import Screen

from serving import ABACUS, command, run, wait_until

QUESTION = "Tom has 3 apples. He buys 4 more. How many apples does he have now?"


@contextlib.contextmanager
def screen(folder, columns, rows, *words):
    """A tmux screen of the given size. The command runs after a line that its progress display must not overwrite."""
    folder.mkdir(exist_ok=True)
    one = Screen(folder, [], "bash", "--norc", "-c", "sleep 1; echo before; %s; echo after; sleep 1000" % " ".join(words), columns=columns, rows=rows)
    try:
        yield one
    finally:
        subprocess.run(["tmux", "-S", str(one.socket), "kill-server"], capture_output=True)


def quoted(*words):
    return " ".join("'%s'" % word for word in command(*words))


def progress_of(folder, columns, *words):
    """The lines on the screen between "before" and "after", once the command has ended."""
    with screen(folder, columns, 80, quoted(*words)) as one:
        wait_until(lambda: "\nafter" in "\n" + one.text(), one.text, 300)
        lines = one.text().split("\n")
        return lines[lines.index("before") + 1:lines.index("after")]


@pytest.mark.parametrize("columns", [80, 40])
def test_a_bar_is_one_line(tmp_path, columns, abacus):
    (tmp_path / "text.txt").write_text((ABACUS / "README.md").read_text() * 4 if (ABACUS / "README.md").exists() else QUESTION * 200)
    lines = progress_of(tmp_path / "diff", columns, "diff", ABACUS, ABACUS, "--text", tmp_path / "text.txt", "--tokens", 256)
    assert lines[0].startswith("comparing") or lines[0].startswith("weights"), lines
    bars = [line for line in lines if line.startswith("comparing")]
    assert len(bars) == 1 and "100 %" in bars[0] and "iB" not in bars[0], bars
    assert columns < 60 or "256 of 256 tokens" in bars[0], bars

    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"question": QUESTION, "answer": "#### 7"}) + "\n" for _ in range(20)))
    lines = progress_of(tmp_path / "eval", columns, "eval", tmp_path / "q.jsonl", "--url", abacus.url)
    assert lines[0] == "20 of 20 questions", lines

    lines = progress_of(tmp_path / "bench", columns, "bench", "serve", "--url", abacus.url, "--model", ABACUS, "--served-model-name", "m", "--num-prompts", 40,
                        "--random-input-len", 16, "--random-output-len", 8)
    bars = [line for line in lines if re.match(r"\s*\d+%\|", line)]
    assert len(bars) == 1 and bars[0].startswith("100%|") and "40/40" in bars[0], lines


def test_help_and_greeting_in_40_columns(tmp_path, abacus):
    with screen(tmp_path, 40, 24, quoted("chat", "--url", abacus.url, "--temperature", 0, "--max-tokens", 40)) as one:
        wait_until(lambda: one.text().endswith("\n>"), one.text, 60)
        one.keys("日本語 Größe", "Left", "Left", "BSpace", "x")
        wait_until(lambda: one.text().endswith("> 日本語 Gröxße") or one.text().endswith("> 日本語 Gröxe") or "日本語 Gr" in one.text().split("\n")[-1], one.text, 60)
        one.keys("Enter")
        wait_until(lambda: one.text().endswith("\n>"), one.text, 60)


# Commands that end without a signal, with messages, warnings or errors.
PRINTING = [("help",), ("serve", "-h"), ("serve", "/no/such"), ("doctor",), ("inspect", ABACUS), ("list",), ("version",), ("explain-options", "port"),
            ("chat", ABACUS, QUESTION, "--max-tokens", 4), ("nonsense",), ("recipe", "lint", "/no/such")]


@pytest.mark.parametrize("words", PRINTING)
def test_no_colour_where_it_is_no_terminal(words):
    done = run(*words, env={"TERM": "xterm-256color", "CLICOLOR_FORCE": ""})
    assert "\x1b" not in done.stdout + done.stderr


def test_no_colour_in_the_log_of_a_server(abacus):
    assert "\x1b" not in abacus.log()


def test_errors_of_one_line_are_one_sentence():
    for words in (("serve", "/no/such"), ("chat", "--url", "ftp://x"), ("eval", "/no/such"), ("serve", ABACUS, "--port", "x")):
        done = run(*words, env={"HF_HUB_OFFLINE": "1"})
        assert done.returncode and re.search(r"^error: .+$", done.stderr, re.M), done.stderr
