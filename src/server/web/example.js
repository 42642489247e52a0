// Makes an example of a request body from a schema of openapi.json.

const question = "Tom has 3 apples and buys 5 more. How many apples does he have now?";

const known = {
  messages: [{role: "user", content: question}],
  prompt: question,
  input: question,
  max_tokens: 64,
  tokens: [1, 2, 3],
};
const optional = ["max_tokens"];

// The properties and required names of a schema, including those of the schemas it is composed of.
function membersOf(schema, document, depth = 0) {
  if (!schema || depth > 8) return {properties: {}, required: []};
  if (schema.$ref) return membersOf(document.components.schemas[schema.$ref.split("/").pop()], document, depth + 1);
  const parts = schema.allOf ?? (schema.anyOf ?? schema.oneOf)?.slice(0, 1) ?? [];
  const merged = {properties: {...schema.properties}, required: [...(schema.required ?? [])]};
  for (const part of parts) {
    const members = membersOf(part, document, depth + 1);
    Object.assign(merged.properties, members.properties);
    merged.required.push(...members.required);
  }
  return merged;
}

function valueOf(schema) {
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  const type = [schema.type].flat()[0];
  return {string: "", integer: schema.minimum ?? 1, number: schema.minimum ?? 1, boolean: false, array: [], object: {}}[type] ?? null;
}

export function exampleOf(path, schema, document, model) {
  const {properties, required} = membersOf(schema, document);
  const example = {};
  if ("model" in properties && model) example.model = model;
  for (const name of new Set([...required, ...optional])) {
    if (!(name in properties) || name === "model") continue;
    example[name] = name === "messages" && path.endsWith("/batch") ? [known.messages] : known[name] ?? valueOf(properties[name]);
  }
  return example;
}
