#!/usr/bin/env python3
"""Writes tests/data/json_schema/suite.jsonl, for json_schema_suite_test, from the official JSON-Schema-Test-Suite (draft 2020-12).
The source archive of jsonschema on PyPI contains the suite.

    pip download --no-binary jsonschema --no-deps jsonschema==4.26.0 && tar xf jsonschema-4.26.0.tar.gz
    tools/json_schema/make_cases.py jsonschema-4.26.0/json/tests/draft2020-12 tests/data/json_schema/suite.jsonl

A row is a schema with its valid and invalid instances as texts: compact, numbers as in RFC 8785, properties in the
schema's order. Where JSON Schema's default differs from the program's (README.md), the schema states the default
explicitly.
"""
import json
import pathlib
import sys

IMPLIED = ("properties", "additionalProperties", "unevaluatedProperties", "items", "prefixItems", "unevaluatedItems")
TYPES = ["null", "boolean", "number", "string", "array", "object"]
ONE = ("not", "if", "then", "else", "items", "additionalProperties", "contains", "propertyNames", "unevaluatedItems",
       "unevaluatedProperties", "contentSchema")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def whole(pattern):
    """A regex for the whole of every string in which this pattern matches."""
    return ("" if pattern.startswith("^") else "^.*") + pattern + ("" if pattern.endswith("$") else ".*$")


def stated(schema, leaves_over):
    """The schema with its defaults made explicit. leaves_over: the schema has an unevaluated... keyword, which explicit defaults
    would affect."""
    if not isinstance(schema, dict):
        return schema
    new = {}
    for name, value in schema.items():
        if name in ONE:
            value = stated(value, leaves_over)
        elif name in LISTS:
            value = [stated(part, leaves_over) for part in value]
        elif name in MAPS:
            value = {key: stated(part, leaves_over) for key, part in value.items()}
        if name == "pattern" and isinstance(value, str):
            value = whole(value)
        elif name == "patternProperties":
            value = {whole(key): part for key, part in value.items()}
        if name != "$schema":
            new[name] = value
    if "type" not in new and any(name in new for name in IMPLIED):
        new["type"] = TYPES
    if not leaves_over:
        if "properties" in new or "patternProperties" in new:
            new.setdefault("additionalProperties", True)
        if "prefixItems" in new:
            new.setdefault("items", True)
    return new


def named(schema, names):
    """Collects the names of properties, in order."""
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name == "const" and isinstance(value, dict):
                names.update({key: len(names) + i for i, key in enumerate(value)})
            if name in ("properties", "required") and isinstance(value, (dict, list)):
                for key in value:
                    if isinstance(key, str):
                        names.setdefault(key, len(names))
            named(value, names)
    elif isinstance(schema, list):
        for value in schema:
            named(value, names)
    return names


def text(value, names):
    if isinstance(value, dict):
        ordered = sorted(value.items(), key=lambda item: names.get(item[0], len(names)))
        return "{%s}" % ",".join("%s:%s" % (text(key, names), text(member, names)) for key, member in ordered)
    if isinstance(value, list):
        return "[%s]" % ",".join(text(item, names) for item in value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


def rows(folder):
    files = sorted(folder.glob("*.json")) + sorted(folder.glob("optional/format/*.json"))
    for path in files:
        is_format = path.parent.name == "format"
        keyword = "format: " + path.stem if is_format else path.stem
        if keyword == "format":
            continue  # its cases only test that a format is an annotation
        for case in json.loads(path.read_text()):
            schema = case["schema"]
            words = json.dumps(schema)
            if is_format and "format" not in words:
                continue
            names = named(schema, {})
            row = {"keyword": keyword, "case": case["description"], "schema": stated(schema, "unevaluated" in words),
                   "valid": [], "invalid": []}
            for test in case["tests"]:
                try:
                    instance = text(test["data"], names)
                    instance.encode()
                except UnicodeEncodeError:
                    continue  # half of a surrogate pair
                row["valid" if test["valid"] else "invalid"].append(instance)
            yield row


def main():
    folder, target = map(pathlib.Path, sys.argv[1:])
    with target.open("w") as out:
        for row in rows(folder):
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
