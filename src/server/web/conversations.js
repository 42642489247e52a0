// Conversations, stored in the browser up to limits: the oldest are removed first.
import {kept} from "./kept.js";

// Browsers store five million characters per origin; other pages may have the same origin.
const maxCharacters = 3_500_000;
const maxConversations = 200;
const prefix = "sluice.conversation.";

const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);

export class Conversations {
  constructor() {
    this.all = [];  // newest first
    this.onDropped = () => {};  // called if something could not be stored
    for (const name of kept.names()) {
      if (!name.startsWith(prefix)) continue;
      try {
        this.all.push(checked(JSON.parse(kept.get(name))));
      } catch {
        kept.set(name, null);  // not written by this page
      }
    }
    this.#sort();
  }

  find(id) {
    return this.all.find((conversation) => conversation.id === id);
  }

  // A conversation is not stored before its first message.
  create(settings) {
    return {id: newId(), title: "New conversation", updated: Date.now(), settings, messages: []};
  }

  save(conversation) {
    // Conversations saved within one millisecond are ordered, too.
    conversation.updated = Math.max(Date.now(), (this.all[0]?.updated ?? 0) + 1);
    const first = conversation.messages.find((message) => message.role === "user");
    if (first) conversation.title = (first.content || "An image").trim().replace(/\s+/g, " ").slice(0, 80) || conversation.title;
    if (!this.all.includes(conversation)) this.all.push(conversation);
    this.#sort();
    this.#write(conversation);
  }

  remove(conversation) {
    this.all = this.all.filter((other) => other !== conversation);
    kept.set(prefix + conversation.id, null);
  }

  restore(conversation) {
    this.all.push(conversation);
    this.#sort();
    this.#write(conversation);
  }

  #sort() {
    this.all.sort((a, b) => b.updated - a.updated);
  }

  #write(conversation) {
    const text = JSON.stringify(conversation);
    const dropped = [];
    const drop = () => {
      const oldest = this.all.findLast((other) => other !== conversation && !other.isRunning);
      if (!oldest) return false;
      this.remove(oldest);
      dropped.push(oldest.title);
      return true;
    };
    while (this.all.length > maxConversations && drop());
    while (this.#charactersBeside(conversation) + text.length > maxCharacters && drop());
    let isKept = text.length <= maxCharacters && kept.set(prefix + conversation.id, text);
    while (!isKept && text.length <= maxCharacters && drop()) {
      isKept = kept.set(prefix + conversation.id, text);
    }
    if (dropped.length > 0) this.onDropped(`The browser's space is full: ${dropped.length} old conversations were removed.`);
    else if (!isKept && !this.wasTold) {
      this.wasTold = true;
      this.onDropped("The browser does not keep this conversation: it ends with this page.");
    }
  }

  #charactersBeside(conversation) {
    let sum = 0;
    for (const name of kept.names()) {
      if (name.startsWith(prefix) && name !== prefix + conversation.id) sum += kept.get(name)?.length ?? 0;
    }
    return sum;
  }
}

function checked(conversation) {
  const {id, title, updated, settings, messages} = conversation;
  if (typeof id !== "string" || typeof title !== "string" || !Array.isArray(messages)) throw new Error("not a conversation");
  for (const message of messages) {
    if (typeof message.role !== "string" || typeof message.content !== "string") throw new Error("not a message");
    const isImage = (url) => typeof url === "string" && url.startsWith("data:image/");
    if (message.images !== undefined && !(Array.isArray(message.images) && message.images.every(isImage))) throw new Error("not images");
  }
  return {id, title, updated: Number(updated) || 0, settings: settings ?? {}, messages};
}
