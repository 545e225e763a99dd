/* Browsers refuse a web worker to a page opened from disk: the search of the documentation runs in a hidden frame there. */
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const code = inside.document.createElement("script");
      this.sent = new Promise((loaded) => (code.onload = () => loaded(inside)));
      code.src = new URL(script, document.baseURI);
      inside.document.head.append(code);
    }

    postMessage(data) {
      this.sent.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
