"""`sluice completion` in real shells, and the manual page checked by man."""
import os
import shlex
import subprocess

import pytest

from serving import BIN, run

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with files to complete, and a cache with one model."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "some folder").mkdir()
    (folder / "some.yaml").write_text("port: 1\n")
    snapshot = folder / "hub" / "models--acme--tiny" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    references = folder / "hub" / "models--acme--tiny" / "refs"
    references.mkdir()
    (references / "main").write_text(COMMIT)
    return folder


def shell(words, place):
    environment = {"PATH": "%s:%s" % (BIN, os.environ["PATH"]), "HF_HUB_CACHE": str(place / "hub"), "HOME": str(place), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=place, env=environment)
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def bash(place, *words):
    """The completions that bash offers for the last word."""
    script = "source <(sluice completion bash); COMP_WORDS=(%s); COMP_CWORD=%d; _sluice sluice; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
        shlex.join(["sluice", *words]), len(words))
    return shell(["bash", "--norc", "-c", script], place).splitlines()


def test_bash_offers_commands(place):
    assert {"serve", "chat", "bench", "recipe", "help", "completion"} <= set(bash(place, ""))
    assert bash(place, "comp") == ["complete", "completion"]
    assert bash(place, "bench", "l") == ["latency"]
    assert "serve" in bash(place, "help", "s")


def test_bash_offers_the_options_of_the_command(place):
    assert bash(place, "serve", "--max-num-bat") == ["--max-num-batched-tokens"]
    assert "--random-input-len" in bash(place, "bench", "serve", "--rand")
    assert bash(place, "serve", "--random") == [""]
    assert bash(place, "doctor", "--port") == [""]


def test_bash_offers_choices(place):
    assert {"auto", "bfloat16"} <= set(bash(place, "serve", "m", "--dtype", ""))
    assert bash(place, "serve", "m", "--dtype", "bf") == ["bfloat16"]
    assert bash(place, "serve", "m", "--dtype", "=", "bf") == ["bfloat16"]
    assert "bfloat16" in bash(place, "serve", "m", "--dtype", "=")
    assert bash(place, "completion", "z") == ["zsh"]


def test_bash_offers_files_folders_and_models(place):
    assert set(bash(place, "serve", "--config", "some")) == {"some folder", "some.yaml"}
    assert bash(place, "serve", "--download-dir", "some") == ["some folder"]
    assert bash(place, "serve", "acme") == ["acme/tiny"]
    assert set(bash(place, "serve", "")) == {"acme/tiny", "some folder", "hub"}
    assert bash(place, "serve", "--port", "") == [""]


def test_zsh_reads_its_script(place):
    (place / "_sluice").write_text(run("completion", "zsh").stdout)
    shell(["zsh", "-f", "-n", str(place / "_sluice")], place)
    # compinit registers it as the completion of sluice.
    script = "fpath=(%s $fpath); autoload -Uz compinit; compinit -u -D; print $_comps[sluice]" % shlex.quote(str(place))
    assert shell(["zsh", "-f", "-c", script], place).strip() == "_sluice"


def test_fish_reads_and_runs_its_script(place):
    script = place / "sluice.fish"
    script.write_text(run("completion", "fish").stdout)
    shell(["fish", "--no-execute", str(script)], place)

    def offered(line):
        out = shell(["fish", "--no-config", "-c", "source %s; complete -C %s" % (shlex.quote(str(script)), shlex.quote(line))], place)
        return [line.split("\t")[0] for line in out.splitlines()]

    assert offered("sluice comp") == ["complete", "completion"]
    assert offered("sluice bench lat") == ["latency"]
    assert offered("sluice serve --max-num-bat") == ["--max-num-batched-tokens"]
    assert offered("sluice serve m --dtype bf") == ["bfloat16"]
    assert offered("sluice serve acme") == ["acme/tiny"]
    assert offered("sluice doctor --por") == []


def test_man_reads_the_page(tmp_path):
    page = tmp_path / "sluice.1"
    page.write_text(run("help", "--man").stdout)
    done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"})
    assert done.returncode == 0 and not done.stderr, done.stderr
    shown = subprocess.run(["man", "-l", str(page)], capture_output=True, text=True, timeout=120,
                           env={**os.environ, "LC_ALL": "C.UTF-8", "MANPAGER": "cat", "MANWIDTH": "100"}).stdout
    assert "--max-num-batched-tokens integer" in shown and "EXIT STATUS" in shown
