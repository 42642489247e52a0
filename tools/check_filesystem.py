#!/usr/bin/env python3
"""Finds calls of std::filesystem functions that throw, outside src/cli and tests: paths come from requests and disks, so failures must
be Results. Overloads that take a std::error_code do not throw (except for lack of memory). Prints each place; exits with 1 if there is one.

Usage: tools/check_filesystem.py
"""
import pathlib
import re
import sys

SRC = pathlib.Path(__file__).resolve().parents[1] / "src"
# Function: minimum number of arguments of its overloads with an error code; 2 if not listed.
ARGUMENTS = {"current_path": 1, "temp_directory_path": 1,
             **dict.fromkeys(["copy", "copy_file", "copy_symlink", "create_directory_symlink", "create_hard_link", "create_symlink", "equivalent",
                              "permissions", "rename", "resize_file"], 3)}
FUNCTIONS = [*ARGUMENTS, "absolute", "canonical", "create_directories", "create_directory", "directory_iterator", "exists", "file_size",
             "hard_link_count", "is_block_file", "is_character_file", "is_directory", "is_empty", "is_fifo", "is_other", "is_regular_file",
             "is_socket", "is_symlink", "last_write_time", "proximate", "read_symlink", "recursive_directory_iterator", "relative", "remove",
             "remove_all", "space", "status", "symlink_status", "weakly_canonical"]
CALL = re.compile(r"\b(?:std::filesystem|fs)::(%s)(?:\s+\w+)?\s*[({]" % "|".join(FUNCTIONS))
# A range-based for loop over a directory: the iterator's ++ throws.
RANGE = re.compile(r"for \([^;()]*:\s*(?:std::filesystem|fs)::(?:recursive_)?directory_iterator\b")


def arguments(text, begin):
    """Number of arguments of the call whose opening bracket is directly before `begin`."""
    depth, commas, any_text = 1, 0, False
    for place in range(begin, len(text)):
        character = text[place]
        depth += character in "([{"
        depth -= character in ")]}"
        if depth == 0:
            break
        commas += depth == 1 and character == ","
        any_text = any_text or not character.isspace()
    return commas + 1 if any_text else 0


def problems(text):
    for found in CALL.finditer(text):
        given = arguments(text, found.end())
        if given < ARGUMENTS.get(found[1], 2) and not (found[1].endswith("iterator") and given == 0):  # an end iterator
            yield found.start(), "%s throws: pass a std::error_code" % found[1]
    for found in RANGE.finditer(text):
        yield found.start(), "a range-for over a directory throws: use increment(error)"


def main():
    total = 0
    for path in sorted(SRC.rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu") or path.relative_to(SRC).parts[0] == "cli":
            continue
        if re.search(r"_(test|testing|fuzz|benchmark|main)$", path.stem) or path.name == "fuzz_input.h":
            continue
        text = path.read_text()
        for place, words in problems(text):
            print("%s:%d: %s" % (path.relative_to(SRC.parent), text.count("\n", 0, place) + 1, words))
            total += 1
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
