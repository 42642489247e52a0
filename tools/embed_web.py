#!/usr/bin/env python3
"""Writes the files of the web page as C++: the table that src/server/web/web_files.h declares.

Usage: tools/embed_web.py OUTPUT.cc FILE...
"""
import hashlib
import pathlib
import sys

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
DELIMITER = "embedded"


def row(path):
    content = path.read_text(encoding="utf-8")
    if ")%s\"" % DELIMITER in content:
        raise SystemExit("%s: expected no )%s\" in it, which ends the literal" % (path, DELIMITER))
    if path.suffix not in TYPES:
        raise SystemExit("%s: expected a file of one of the types %s" % (path, " ".join(TYPES)))
    etag = hashlib.sha256(content.encode()).hexdigest()[:24]
    return '{"%s", "%s", R"("%s")", R"%s(%s)%s"},\n' % (path.name, TYPES[path.suffix], etag, DELIMITER, content, DELIMITER)


def main(output, *names):
    files = sorted((pathlib.Path(name) for name in names), key=lambda path: path.name)
    pathlib.Path(output).write_text(
        '#include "server/web/web_files.h"\n\nnamespace sluice {\nnamespace {\n\nconstexpr WebFile kWebFiles[] = {\n'
        + "".join(map(row, files)) + "};\n\n}  // namespace\n\nstd::span<const WebFile> WebFiles() {\n  return kWebFiles;\n}\n\n}  // namespace sluice\n",
        encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
