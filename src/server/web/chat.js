// The visible conversation, and the answers that are streamed into it and into others.
import {streamAnswer} from "./answer.js";
import {announce, byId} from "./dom.js";
import {MessageView} from "./message_view.js";
import {requestBody} from "./request.js";

// The page follows the text while it is scrolled to within this many pixels of the end.
const followRange = 48;
const saveInterval = 3000;

export class Chat {
  // `model()`: name of the selected model. `onchange`: called when the list of conversations must be updated.
  constructor(conversations, {model, onchange}) {
    this.conversations = conversations;
    this.model = model;
    this.onchange = onchange;
    this.running = new Map();  // conversation -> AbortController
    this.views = [];
    this.frame = null;
    this.scroller = byId("scroller");
    this.list = byId("messages");
    this.isFollowing = true;
    this.scroller.addEventListener("scroll", () => {
      const {scrollHeight, scrollTop, clientHeight} = this.scroller;
      this.isFollowing = scrollHeight - scrollTop - clientHeight < followRange;
    }, {passive: true});
  }

  show(conversation) {
    this.conversation = conversation;
    this.views = [];
    this.list.replaceChildren();
    this.isFollowing = true;
    this.#showMessages();
    this.onchange();
  }

  // Scrolls to this position and stops following the text.
  scrollTo(top) {
    this.isFollowing = false;
    this.scroller.scrollTop = top;
  }

  get isRunning() {
    return this.running.has(this.conversation);
  }

  send(text, images = []) {
    const message = {role: "user", content: text};
    if (images.length > 0) message.images = images;
    this.conversation.messages.push(message);
    this.#answer();
  }

  stop() {
    this.running.get(this.conversation)?.abort();
  }

  stopAll() {
    for (const controller of this.running.values()) controller.abort();
  }

  forget(conversation) {
    this.running.get(conversation)?.abort();
  }

  editLast() {
    this.views.findLast((view) => view.message.role === "user")?.edit();
  }

  #truncate(length) {
    this.conversation.messages.length = length;
    for (const view of this.views.splice(length)) view.root.remove();
  }

  #actions = {
    edit: (message, text) => this.#restart(this.conversation.messages.indexOf(message), () => this.send(text, message.images)),
    retry: (message) => this.#restart(this.conversation.messages.indexOf(message), () => this.#answer()),
    answerCalls: (message, results) => {
      results.forEach((content, i) => {
        this.conversation.messages.push({role: "tool", content, toolCallId: message.toolCalls[i].id});
      });
      this.#answer();
    },
  };

  // Removes the messages from `index` on, then calls `then`.
  async #restart(index, then) {
    const {conversation} = this;
    const run = this.running.get(conversation);
    run?.abort();
    await run?.ended;
    if (this.conversation !== conversation) return;
    this.#truncate(index);
    then();
  }

  async #answer() {
    const {conversation} = this;
    if (this.running.has(conversation)) return;
    const message = {role: "assistant", content: ""};
    const history = [...conversation.messages];
    conversation.messages.push(message);
    const controller = new AbortController();
    let end;
    controller.ended = new Promise((resolve) => { end = resolve; });
    this.running.set(conversation, controller);
    conversation.isRunning = true;
    this.isFollowing = true;
    this.conversations.save(conversation);
    this.#showMessages();
    this.onchange();
    announce("The answer begins.");
    let saved = performance.now();
    const body = requestBody(this.model(), conversation.settings, history);
    await streamAnswer(body, message, controller.signal, () => {
      if (conversation === this.conversation) this.#schedule();
      if (performance.now() - saved < saveInterval) return;
      saved = performance.now();
      this.conversations.save(conversation);
    });
    this.running.delete(conversation);
    delete conversation.isRunning;
    if (this.conversations.find(conversation.id)) this.conversations.save(conversation);
    end();
    if (conversation === this.conversation) {
      this.#showMessages();
      announce(message.error ? `The answer failed: ${message.error}` : `The answer is complete. ${message.content.slice(0, 500)}`);
    }
    this.onchange();
  }

  // Renders at most once per frame, however many tokens arrived.
  #schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.#showMessages();
    });
  }

  #showMessages() {
    const {messages} = this.conversation;
    byId("welcome").hidden = messages.length > 0;
    const firstNew = this.views.length;
    for (const message of messages.slice(firstNew)) {
      const view = new MessageView(message, this.#actions);
      this.views.push(view);
      this.list.append(view.root);
    }
    const last = this.views.length - 1;
    this.views.forEach((view, i) => {
      // Only new messages and the previously last one can have changed.
      if (i >= firstNew - 1) view.update(this.isRunning && i === last, i === last);
    });
    if (this.isFollowing) this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}
