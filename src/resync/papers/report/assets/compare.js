// The comparison of the runs in the address: #runs=<id>,<id>,...
"use strict";

addEventListener("DOMContentLoaded", () => {
  const { element, shown } = resync;
  const COLORS = ["#000000", "#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"];
  const DASHES = [[], [5, 1.5], [2, 1.2], [5, 1.2, 1, 1.2]];
  const form = document.getElementById("choice");
  const place = document.getElementById("comparison"), nothing = place.innerHTML;
  const chosenList = document.getElementById("chosen");

  const chosen = () => {
    const ids = (new URLSearchParams(location.hash.slice(1)).get("runs") ?? "").split(",");
    return [...new Set(ids)].filter((id) => id in resync.runs);
  };
  const choose = (ids) => { location.hash = ids.length ? new URLSearchParams({ runs: ids.join(",") }) : ""; };
  const nameOf = (id) => `${resync.runs[id]} (${id.split("/")[1]})`;

  function table(title, ids, rows) {
    const head = element("tr", {}, element("th", { scope: "col" }, title), ...ids.map((id) =>
      element("th", { scope: "col" }, element("a", { href: `${id}/index.html` }, nameOf(id)))));
    const body = rows.map(([name, values]) => element("tr", {}, element("th", { scope: "row" }, name), ...values.map((value) => element("td", {}, value))));
    const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, made);
  }

  function chart(ids) {
    const known = ["val_top1", "test_bleu", "val_bits_per_character", "val_loss", "train_loss"];
    return (runs) => {
      const metric = known.find((name) => runs.some((run) => run.metrics[name])) ?? known.at(-1);
      const lines = ids.map((id, index) => ({
        label: nameOf(id), color: COLORS[index % COLORS.length], dash: DASHES[Math.floor(index / COLORS.length) % DASHES.length], runs: [id], declared: 1,
      }));
      return element("div", { class: "chart screen", "data-root": ".", "data-title": "Comparison of runs", "data-spec": JSON.stringify({ metrics: [metric], lines }) });
    };
  }

  async function draw() {
    const ids = chosen();
    chosenList.replaceChildren(...ids.map((id) => {
      const button = element("button", { type: "button", "aria-label": `Remove ${id}` }, `${nameOf(id)} ×`);
      button.addEventListener("click", () => choose(ids.filter((other) => other !== id)));
      return element("li", {}, button);
    }));
    if (!ids.length) {
      place.innerHTML = nothing;
      return;
    }
    const runs = await Promise.all(ids.map((id) => resync.load(".", id)));
    if (chosen().join() !== ids.join()) return;  // another choice was made meanwhile
    const differing = (key) => {
      const names = new Set(runs.flatMap((run) => Object.keys(run[key])));
      return [...names].map((name) => [name, runs.map((run) => run[key][name])]).filter(([, values]) => new Set(values.map(String)).size > 1);
    };
    const settings = differing("settings").map(([name, values]) => [element("code", {}, name), values.map((value) => value ?? "–")]);
    const final = differing("final").filter(([name]) => name in resync.metrics)
      .map(([name, values]) => [resync.titleOf(name), values.map((value) => shown(value))]);
    const made = chart(ids)(runs);
    place.replaceChildren(
      element("section", {}, element("h2", {}, "Curves"), made),
      element("h2", {}, "Settings that differ"),
      settings.length ? table("Setting", ids, settings) : element("p", {}, "None: the runs differ at most in their seeds."),
      element("h2", {}, "Results that differ"),
      final.length ? table("Metric", ids, final) : element("p", {}, "None."),
    );
    resync.chart(made);
  }

  form.hidden = false;
  for (const [id, label] of Object.entries(resync.runs)) form.querySelector("datalist").append(new Option(label, id));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const id = form.elements.run.value.trim();
    if (!(id in resync.runs)) {
      form.elements.run.setCustomValidity("No run of this scale has this name.");
      form.elements.run.reportValidity();
      return;
    }
    form.elements.run.value = "";
    choose([...chosen(), id]);
  });
  form.elements.run.addEventListener("input", () => form.elements.run.setCustomValidity(""));
  addEventListener("hashchange", draw);
  draw();
});
