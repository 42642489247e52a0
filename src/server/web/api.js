// Calls to the server that the page came from. All addresses are relative to the page's own, so that it
// works behind a proxy's prefix.
import {readEvents} from "./events.js";
import {askForKey} from "./key.js";
import {kept} from "./kept.js";

export const base = new URL(".", document.baseURI);

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Both shapes of errors: {"error": {"message": ...}} and {"detail": ...}.
function messageOf(status, text) {
  try {
    const body = JSON.parse(text);
    const said = body.error?.message ?? body.message ?? body.detail ?? body.error;
    if (typeof said === "string") return said;
  } catch {
    // No JSON: a proxy's page, or nothing.
  }
  return `The server answered ${status}.`;
}

// The response, if it is a success. Asks for a key where the server wants one.
export async function call(path, {body, signal, method} = {}) {
  for (;;) {
    const key = kept.key();
    const headers = {};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const response = await fetch(new URL(path, base), {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
    if (response.ok) return response;
    const text = await response.text();
    if (response.status !== 401) throw new ApiError(response.status, messageOf(response.status, text));
    // Another call may have got a key meanwhile.
    if (kept.key() === key && !(await askForKey(Boolean(key)))) {
      throw new ApiError(401, "This server needs an API key.");
    }
  }
}

// The events of a streamed answer, parsed; ends at [DONE]. An error event throws.
export async function* stream(path, body, signal) {
  const response = await call(path, {body, signal});
  for await (const data of readEvents(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(event.error.code ?? 500, event.error.message ?? "The answer broke off.");
    yield event;
  }
}
