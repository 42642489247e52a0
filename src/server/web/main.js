// Connects the parts of the page.
import {ApiError, base, call} from "./api.js";
import {Attachments} from "./attachments.js";
import {Chat} from "./chat.js";
import {Conversations} from "./conversations.js";
import {announce, byId, copyButton, el, toast} from "./dom.js";
import {EngineView} from "./engine.js";
import {History} from "./history.js";
import {kept} from "./kept.js";
import {asCurl, asPython, requestBody} from "./request.js";
import {lastSettings, SettingsPanel} from "./settings.js";
import {makeTabs} from "./tabs.js";

const examples = [
  "Tom has 3 apples and buys 5 more. How many apples does he have now?",
  "Explain what a hash table is, with a short example in Python.",
  "Write a haiku about water.",
];
// Interval between requests for the models while the server is not ready.
const retryMs = 1000;
const wideSide = matchMedia("(min-width: 1100px)");

const conversations = new Conversations();
const picker = byId("model");
const prompt = byId("prompt");
const send = byId("send");

const chat = new Chat(conversations, {model: () => picker.value, onchange: refresh});
const history = new History(conversations, {onopen: open, onremove: (conversation) => {
  chat.forget(conversation);
  if (conversation === chat.conversation) begin();
  else refresh();
}});
const settings = new SettingsPanel(byId("settings"), () => {
  if (conversations.find(chat.conversation.id)) conversations.save(chat.conversation);
});
conversations.onDropped = (text) => toast(text);

function open(conversation) {
  settings.show(conversation.settings);
  chat.show(conversation);
  closeHistory();
}

function begin() {
  open(conversations.create({...lastSettings()}));
  prompt.focus();
}

function refresh() {
  if (!chat.conversation) return;
  history.show(chat.conversation);
  send.textContent = chat.isRunning ? "Stop" : "Send";
  send.classList.toggle("stop", chat.isRunning);
  send.disabled = !chat.isRunning && picker.disabled;
  document.title = chat.conversation.messages.length > 0 ? `${chat.conversation.title} – sluice` : "sluice";
}

// --- The prompt

function fitPrompt() {
  prompt.style.height = "auto";
  prompt.style.height = `${Math.min(prompt.scrollHeight + 2, innerHeight * 0.4)}px`;
}

const attachments = new Attachments(byId("attachments"), {zone: document.body, field: prompt, chooser: byId("image-files")});
byId("attach").addEventListener("click", () => byId("image-files").click());

function sendPrompt(text) {
  if (chat.isRunning || picker.disabled || !(text.trim() || attachments.urls.length > 0)) return;
  if (!settings.isValid) {
    panelTabs[1].click();
    byId("settings").reportValidity();
    return;
  }
  prompt.value = "";
  fitPrompt();
  chat.send(text, attachments.take());
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (chat.isRunning) chat.stop();
  else sendPrompt(prompt.value);
});
prompt.addEventListener("input", fitPrompt);
prompt.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    sendPrompt(prompt.value);
  } else if (event.key === "ArrowUp" && prompt.value === "" && !chat.isRunning) {
    event.preventDefault();
    chat.editLast();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && chat.isRunning && !document.querySelector("dialog[open]")) chat.stop();
  if (event.altKey && event.code === "KeyN") {
    event.preventDefault();
    begin();
  }
});
byId("new-chat").addEventListener("click", begin);
byId("examples").append(...examples.map((text) => el("li", {}, el("button", {type: "button", onclick: () => {
  sendPrompt(text);
  prompt.focus();
}}, text))));

// --- Panels that can be hidden

const sidePanel = byId("side");
const showSide = byId("show-side");

function setSide(isShown) {
  sidePanel.hidden = !isShown;
  showSide.setAttribute("aria-expanded", String(isShown));
}
showSide.addEventListener("click", () => {
  setSide(sidePanel.hidden);
  if (wideSide.matches) kept.set("sluice.side", sidePanel.hidden ? "hidden" : null);
});
const fitSide = () => setSide(wideSide.matches && kept.get("sluice.side") !== "hidden");
wideSide.addEventListener("change", fitSide);
fitSide();

const panelTabs = [byId("tab-engine"), byId("tab-settings")];
makeTabs(panelTabs, (tab) => {
  for (const other of panelTabs) byId(other.getAttribute("aria-controls")).hidden = other !== tab;
});

function setHistory(isShown) {
  byId("history").classList.toggle("shown", isShown);
  byId("show-history").setAttribute("aria-expanded", String(isShown));
}
function closeHistory() {
  setHistory(false);
}
byId("show-history").addEventListener("click", () => setHistory(!byId("history").classList.contains("shown")));

// --- Colours

const themes = ["", "light", "dark"];
const themeNames = {"": "System colours", light: "Light", dark: "Dark"};
const themeButton = byId("theme");

function showTheme() {
  const theme = kept.get("sluice.theme") ?? "";
  themeButton.textContent = themeNames[theme];
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}
themeButton.addEventListener("click", () => {
  const next = themes[(themes.indexOf(kept.get("sluice.theme") ?? "") + 1) % themes.length];
  kept.set("sluice.theme", next || null);
  showTheme();
  announce(themeNames[next]);
});
showTheme();

// --- The conversation as a request

const codeDialog = byId("code-dialog");
const codeTabs = [byId("tab-curl"), byId("tab-python")];

function showCode(tab) {
  if (!chat.conversation) return;
  const text = byId("code-text");
  try {
    // Omits the answer at the end, because the code shows the request for that answer.
    const messages = [...chat.conversation.messages];
    if (messages.at(-1)?.role === "assistant") messages.pop();
    if (messages.length === 0) messages.push({role: "user", content: prompt.value || examples[0]});
    const body = requestBody(picker.value, chat.conversation.settings, messages);
    const hasKey = Boolean(kept.key());
    text.textContent = tab === codeTabs[0]
      ? asCurl(new URL("v1/chat/completions", base).href, body, hasKey)
      : asPython(new URL("v1", base).href, body, hasKey);
  } catch (error) {
    text.textContent = `The settings' JSON cannot be read: ${error.message}`;
  }
  text.setAttribute("aria-labelledby", tab.id);
}
makeTabs(codeTabs, showCode);
byId("show-code").addEventListener("click", () => {
  showCode(codeTabs.find((tab) => tab.getAttribute("aria-selected") === "true"));
  codeDialog.showModal();
});
byId("code-actions").append(
  el("button", {type: "button", class: "quiet", onclick: () => codeDialog.close()}, "Close"),
  copyButton(() => byId("code-text").textContent));
codeDialog.addEventListener("click", (event) => {
  if (event.target === codeDialog) codeDialog.close();
});

// --- The server

const state = byId("state");

function setState(name, text) {
  if (state.dataset.state === name && state.textContent === text) return;
  state.dataset.state = name;
  state.textContent = text;
}

const engine = new EngineView(byId("engine"), (isReachable) => {
  if (!isReachable) setState("lost", "unreachable");
  else if (!picker.disabled) setState("ready", "ready");
});

async function loadModels() {
  let models;
  try {
    models = (await (await call("v1/models")).json()).data;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      setState("lost", "no key");
      state.append(" ", el("button", {type: "button", class: "quiet", onclick: loadModels}, "Enter key"));
      return;
    }
    const isLoading = error instanceof ApiError && error.status === 503;
    setState(isLoading ? "waiting" : "lost", isLoading ? "loading the model" : "unreachable");
    setTimeout(loadModels, retryMs);
    return;
  }
  const chosen = kept.get("sluice.model");
  picker.replaceChildren(...models.map((model) => el("option", {value: model.id}, model.id)));
  if (models.some((model) => model.id === chosen)) picker.value = chosen;
  picker.disabled = models.length === 0;
  picker.title = models[0]?.max_model_len ? `Context of ${models[0].max_model_len.toLocaleString("en")} tokens` : "";
  setState("ready", "ready");
  refresh();
  // With trtllm-serve's dialect, /metrics is a different endpoint, whose records are removed when read.
  engine.start(models[0]?.owned_by === "tensorrt_llm" ? "prometheus/metrics" : "metrics");
}
picker.addEventListener("change", () => kept.set("sluice.model", picker.value));
addEventListener("pagehide", () => {
  chat.stopAll();
  kept.setPlace({id: chat.conversation.id, top: chat.isFollowing ? null : chat.scroller.scrollTop, draft: prompt.value});
});

// After a reload, restores the conversation, the scroll position and the draft.
function restore() {
  const place = kept.place();
  const conversation = place && conversations.find(place.id);
  if (conversation) {
    open(conversation);
    if (typeof place.top === "number") chat.scrollTo(place.top);
  } else {
    begin();
  }
  if (typeof place?.draft === "string") {
    prompt.value = place.draft;
    fitPrompt();
  }
}

restore();
loadModels();
