// Images for the next message: chosen, pasted or dropped.
import {announce, el, toast} from "./dom.js";

// Maximum size of a request (--max-request-bytes), reduced by base64's overhead.
const maxBytes = 40_000_000;

function readImage(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

export class Attachments {
  // `place`: shows the images. `zone`: accepts dropped images. `field`: accepts pasted ones. `chooser`: the file input.
  constructor(place, {zone, field, chooser}) {
    this.place = place;
    this.urls = [];  // data: URLs
    chooser.addEventListener("change", () => {
      this.#add([...chooser.files]);
      chooser.value = "";
    });
    field.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length === 0) return;
      event.preventDefault();
      this.#add(files);
    });
    zone.addEventListener("dragover", (event) => {
      if ([...event.dataTransfer.types].includes("Files")) event.preventDefault();
    });
    zone.addEventListener("drop", (event) => {
      if (event.dataTransfer.files.length === 0) return;
      event.preventDefault();
      this.#add([...event.dataTransfer.files]);
    });
  }

  // Returns the images and removes them from here.
  take() {
    const urls = this.urls;
    this.urls = [];
    this.#show();
    return urls;
  }

  async #add(files) {
    for (const file of files) {
      if (!file.type.startsWith("image/")) {
        toast(`${file.name || "The file"} is no image.`);
      } else if (file.size > maxBytes) {
        toast(`${file.name || "The image"} is larger than ${maxBytes / 1e6} MB.`);
      } else {
        try {
          this.urls.push(await readImage(file));
          announce("An image was attached.");
        } catch {
          toast(`${file.name || "The image"} cannot be read.`);
        }
      }
    }
    this.#show();
  }

  #show() {
    this.place.hidden = this.urls.length === 0;
    this.place.replaceChildren(...this.urls.map((url, i) => el("li", {}, thumbnail(url, i), el("button", {
      type: "button", class: "quiet", "aria-label": `Remove image ${i + 1}`, onclick: () => {
        this.urls.splice(i, 1);
        this.#show();
      }}, "×"))));
  }
}

export function thumbnail(url, index) {
  return el("img", {class: "thumbnail", src: url, alt: `Image ${index + 1}`});
}
