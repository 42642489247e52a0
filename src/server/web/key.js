// Asks for the API key of the server.
import {byId} from "./dom.js";
import {kept} from "./kept.js";

let asked = null;  // promise of the open dialog; further calls wait for the same answer

// Resolves to whether there is a new key. `refused`: the server rejected the previous key.
export function askForKey(refused) {
  asked ??= ask(refused).finally(() => { asked = null; });
  return asked;
}

function ask(refused) {
  const dialog = byId("key-dialog");
  const form = dialog.querySelector("form");
  const field = byId("key-field");
  byId("key-note").textContent = refused
    ? "The server did not accept the key."
    : "This server needs an API key. It is sent to this server alone.";
  field.value = "";
  return new Promise((resolve) => {
    const done = (found) => {
      form.onsubmit = dialog.oncancel = byId("key-cancel").onclick = null;
      dialog.close();
      resolve(found);
    };
    form.onsubmit = (event) => {
      event.preventDefault();
      kept.setKey(field.value.trim(), byId("key-longer").checked);
      done(true);
    };
    dialog.oncancel = () => done(false);
    byId("key-cancel").onclick = () => done(false);
    dialog.showModal();
    field.focus();
  });
}
