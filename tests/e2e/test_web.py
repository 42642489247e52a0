"""The web page at /: its headers, and that it loads nothing from elsewhere. tests/web tests it in a browser."""
import pathlib
import re

from serving import ABACUS, ROOT, serving

WEB = ROOT / "src" / "server" / "web"
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
MAX_BYTES = 150_000
POLICY = {"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'", "img-src": "'self' data:",
          "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'",
          "trusted-types": "'none'"}


def loaded_by(name, text):
    """The addresses that a file loads, as written in it."""
    if name.endswith(".html"):
        return re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="([^"]+)"', text)
    return re.findall(r'^(?:import|export)[^;]*?from "([^"]+)"|^import "([^"]+)"|\bimport\(|@import|\burl\(', text, re.M)


def test_the_page_and_all_that_it_loads(abacus):
    status, headers, page = abacus.request("GET", "/", headers=BROWSER)
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    assert dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; ")) == POLICY
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    total, names = len(page), loaded_by("index.html", page.decode())
    seen = set()
    while names:
        name = names.pop()
        assert name and "/" not in name.removeprefix("web/").removeprefix("./"), name
        name = pathlib.PurePosixPath(name).name
        if name in seen:
            continue
        seen.add(name)
        status, headers, text = abacus.request("GET", "/web/" + name)
        assert status == 200, name
        assert abacus.request("GET", "/web/" + name, headers={"If-None-Match": headers["etag"]})[0] == 304
        total += len(text)
        names += [next(filter(None, found), None) if isinstance(found, tuple) else found for found in loaded_by(name, text.decode())]
    assert len(seen) > 15 and total < MAX_BYTES, (sorted(seen), total)
    # The folder has no file that no page loads.
    assert {path.name for path in WEB.iterdir() if path.suffix in (".js", ".css")} - seen == {"docs.js", "docs.css", "example.js"}


def test_text_never_becomes_markup_and_nothing_comes_from_elsewhere():
    for path in sorted(WEB.glob("*.*")):
        text = path.read_text()
        if path.suffix in (".js", ".html", ".css", ".svg"):
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|srcdoc|DOMParser", text), path
            addresses = set(re.findall(r"https?://[\w.]+[^\s\"'`)]*", text)) - {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}
            assert not addresses, (path, addresses)
        if path.suffix == ".html":
            assert not re.search(r"<style|<script>|\son\w+=|\sstyle=", text), path


def test_names_of_predecessors_and_the_switch():
    with serving(ABACUS, "--max-model-len", 256, program="vllm") as server:
        assert server.request("GET", "/", headers=BROWSER)[0] == 200
        assert server.request("GET", "/")[::2] == (404, b'{"detail":"Not Found"}')
    with serving(ABACUS, "--max-model-len", 256, "--disable-web") as server:
        for path in ("/", "/web/main.js"):
            assert server.request("GET", path, headers=BROWSER)[::2] == (404, b'{"detail":"Not Found"}')
        assert server.request("GET", "/docs")[0] == 200
