#!/usr/bin/env python3
"""Writes random schemas, with the keywords of make_cases.py, and instances that jsonschema finds valid or invalid, for
json_schema_suite_test. An instance is one text, or several texts that differ in the order of properties. If the instance is valid,
at least one of the texts must be accepted, else none.

    python3 -m venv v && v/bin/pip install jsonschema==4.26.0
    v/bin/python tools/json_schema/make_random_cases.py tests/data/json_schema/random.jsonl [SEED] [ROWS]
"""
import itertools
import json
import pathlib
import random
import sys

from jsonschema import Draft202012Validator
from make_cases import stated, text

NAMES = ["a", "b", "c", "d"]
SCALARS = [None, True, False, 0, 1, 2, 3, 5, 8, 10, -1, -4, 99, 0.5, 2.5, -1.25, "", "a", "b", "ab", "abc", "aaaa", "é", "1", "12"]
PATTERNS = ["^[a-z]+$", "^a", "b$", "^(ab|c)$", "^[0-9]{1,3}$", "^a{2,}$"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def value(self, depth=2):
        kind = self.r.random()
        if depth == 0 or kind < 0.6:
            return self.r.choice(SCALARS)
        if kind < 0.8:
            return [self.value(depth - 1) for _ in range(self.r.randint(0, 3))]
        return {name: self.value(depth - 1) for name in sorted(self.r.sample(NAMES, self.r.randint(0, 3)))}

    def size(self, schema, name, most):
        if self.r.random() < 0.5:
            schema["min" + name] = self.r.randint(0, most)
        if self.r.random() < 0.5:
            schema["max" + name] = self.r.randint(schema.get("min" + name, 0), most + 1)

    def number(self):
        schema = {"type": self.r.choice(["integer", "number"])}
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if self.r.random() < 0.3:
                schema[name] = self.r.choice([-2, 0, 1, 2.5, 5, 9, 10, 11.25])
        if self.r.random() < 0.25:
            schema["multipleOf"] = self.r.choice([1, 2, 3, 5])
        return schema

    def string(self):
        schema = {"type": "string"}
        self.size(schema, "Length", 4)
        if self.r.random() < 0.3:
            schema["pattern"] = self.r.choice(PATTERNS)
        return schema

    def array(self, depth):
        schema = {"type": "array"}
        if self.r.random() < 0.6:
            schema["items"] = self.schema(depth - 1)
        if self.r.random() < 0.3:
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(self.r.randint(1, 3))]
        self.size(schema, "Items", 3)
        if self.r.random() < 0.1:
            schema["items"] = {"enum": self.r.sample(SCALARS, 3)}
            schema["uniqueItems"] = True
        return schema

    def object(self, depth):
        schema = {"type": "object"}
        if self.r.random() < 0.8:
            schema["properties"] = {name: self.schema(depth - 1) for name in sorted(self.r.sample(NAMES, self.r.randint(1, 4)))}
        if self.r.random() < 0.5:
            schema["required"] = sorted(self.r.sample(NAMES, self.r.randint(1, 2)))
        if self.r.random() < 0.7:
            schema["additionalProperties"] = self.r.choice([False, False, True, self.schema(0)])
        if self.r.random() < 0.4:
            self.size(schema, "Properties", 3)
        if self.r.random() < 0.15:
            schema["dependentRequired"] = {"a": ["b"]}
        if self.r.random() < 0.1:
            schema["propertyNames"] = {"maxLength": 1}
        if self.r.random() < 0.1:
            schema["patternProperties"] = {"^a.*$": self.schema(0)}
        return schema

    def schema(self, depth):
        kind = self.r.random()
        if depth < 0 or kind < 0.08:
            return self.r.choice([True, False, {}, {"type": self.r.choice(["string", "integer", "boolean", "null"])}])
        if kind < 0.2:
            return self.number()
        if kind < 0.3:
            return self.string()
        if kind < 0.4:
            return {"enum": [self.value(1) for _ in range(self.r.randint(1, 4))]}
        if kind < 0.5:
            return self.array(depth)
        if kind < 0.68:
            return self.object(depth)
        if kind < 0.74:
            return {"$ref": "#/$defs/" + self.r.choice("xy")}
        schema = self.r.choice([{}, self.number(), self.string(), self.object(depth - 1), {"type": ["string", "integer"]}])
        for name in self.r.sample(["allOf", "anyOf", "oneOf", "not", "if", "const"], self.r.randint(1, 2)):
            if name == "const":
                schema["const"] = self.value(1)
            elif name == "not":
                schema["not"] = self.schema(depth - 1)
            elif name == "if":
                schema.update({"if": self.schema(depth - 1), "then": self.schema(depth - 1), "else": self.schema(depth - 1)})
            else:
                schema[name] = [self.schema(depth - 1) for _ in range(self.r.randint(1, 3))]
        return schema

    def instances(self, schema):
        """Some almost valid instances: values from the schema, combined."""
        seen = []

        def walk(node):
            if isinstance(node, dict):
                for name, part in node.items():
                    if name in ("const", "minimum", "maximum"):
                        seen.append(part)
                    elif name == "enum":
                        seen.extend(part)
                    else:
                        walk(part)
            elif isinstance(node, list):
                for part in node:
                    walk(part)
        walk(schema)
        for _ in range(60):
            leaf = lambda: self.r.choice(seen) if seen and self.r.random() < 0.4 else self.value(1)
            shape = self.r.random()
            if shape < 0.35:
                yield leaf()
            elif shape < 0.6:
                yield [leaf() for _ in range(self.r.randint(0, 4))]
            else:
                yield {name: leaf() for name in self.r.sample(NAMES, self.r.randint(0, 4))}


def orders(value):
    """The texts of a value, with its properties in every order."""
    names = {name: i for i, name in enumerate(NAMES)}
    if not isinstance(value, dict) or len(value) < 2:
        return text(value, names)
    return ["{%s}" % ",".join('"%s":%s' % (key, text(member, names)) for key, member in order)
            for order in itertools.permutations(value.items())]


def main():
    generator = Generator(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    rows = int(sys.argv[3]) if len(sys.argv) > 3 else 300
    with pathlib.Path(sys.argv[1]).open("w") as out:
        while rows > 0:
            schema = generator.schema(2)
            if isinstance(schema, bool):
                continue
            schema["$defs"] = {"x": generator.schema(0), "y": generator.schema(0)}
            schema = stated(schema, False)
            validator = Draft202012Validator(schema)
            row = {"keyword": "random", "case": "", "schema": schema, "valid": [], "invalid": []}
            try:
                for instance in generator.instances(schema):
                    found = row["valid" if validator.is_valid(instance) else "invalid"]
                    written = orders(instance)
                    if len(found) < 6 and written not in found:
                        found.append(written)
            except RecursionError:
                continue
            if row["valid"] or generator.r.random() < 0.2:
                out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
                rows -= 1


if __name__ == "__main__":
    main()
