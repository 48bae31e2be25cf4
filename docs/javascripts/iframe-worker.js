/* Search where the site is opened from a folder: browsers start no worker from a file, so a hidden frame runs its script.

The theme's search asks for a Worker with postMessage and a "message" event; its script calls addEventListener,
postMessage and importScripts. */

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.answer(data);
      this.inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve());
      this.ready = this.load(url);
    }

    load(url) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        Object.assign(script, { src: url, onload: done, onerror: failed });
        this.inside.document.body.append(script);
      });
    }

    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
