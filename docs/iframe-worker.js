// Browsers refuse workers to pages that are opened from the file system. There, the search runs in a hidden frame.
if (location.protocol === "file:")
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const script = this.inside.document.createElement("script");
      this.loaded = new Promise((resolve) => (script.onload = resolve));
      script.src = url;
      this.inside.document.body.appendChild(script);
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
