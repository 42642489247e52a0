// What the browser keeps for this page, or holds until the page is closed where it keeps nothing.

const held = new Map();

function read(storage, name) {
  try {
    return storage().getItem(name) ?? held.get(name) ?? null;
  } catch {
    return held.get(name) ?? null;
  }
}

// False where the browser does not take it.
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

// Getting at a storage throws where the browser forbids it.
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
  // Where this tab was when it was last left; null where that is not known.
  place() {
    try {
      return JSON.parse(read(session, "sluice.place"));
    } catch {
      return null;
    }
  },
  setPlace: (place) => write(session, "sluice.place", JSON.stringify(place)),
  key: () => read(session, keyName) || read(local, keyName),
  // For this tab, or for longer.
  setKey(value, longer) {
    write(local, keyName, longer ? value : null);
    write(session, keyName, longer ? null : value);
  },
};
