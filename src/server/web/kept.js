// Values stored in the browser for this page, or in memory if the browser stores nothing.

const held = new Map();

function read(storage, name) {
  try {
    return storage().getItem(name) ?? held.get(name) ?? null;
  } catch {
    return held.get(name) ?? null;
  }
}

// Returns false if the browser refuses to store the value.
function write(storage, name, value) {
  try {
    if (value === null) storage().removeItem(name);
    else storage().setItem(name, value);
    held.delete(name);
    return true;
  } catch {
    if (value === null) held.delete(name);
    else held.set(name, value);
    return false;
  }
}

// Functions, because accessing a storage throws if the browser forbids it.
const local = () => localStorage;
const session = () => sessionStorage;
const keyName = "sluice.key";

export const kept = {
  get: (name) => read(local, name),
  set: (name, value) => write(local, name, value),
  names() {
    try {
      return Object.keys(localStorage);
    } catch {
      return [];
    }
  },
  // The last conversation, scroll position and draft of this tab; null if unknown.
  place() {
    try {
      return JSON.parse(read(session, "sluice.place"));
    } catch {
      return null;
    }
  },
  setPlace: (place) => write(session, "sluice.place", JSON.stringify(place)),
  key: () => read(session, keyName) || read(local, keyName),
  // `longer`: store the key beyond this tab's session.
  setKey(value, longer) {
    write(local, keyName, longer ? value : null);
    write(session, keyName, longer ? null : value);
  },
};
