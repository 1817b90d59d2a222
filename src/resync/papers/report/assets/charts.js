// Charts, drawn by uPlot.
"use strict";
var resync = globalThis.resync ?? (globalThis.resync = {});

(() => {
  const { AXES, SAMPLED_FIRST, curvesOf, drawable, shown, titleOf } = resync;
  const CUT = 0.15;  // the share of the training whose values may lie outside of the chart
  const FEW = 3;  // lines that are switched off and still named
  const LEAST_HEIGHT = 230, MOST_HEIGHT = 380;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // What a reader sees of a text: `H_base` as H with an index; search and copies find it all the same.
  function withSymbols(text) {
    const symbol = () => element("span", { class: "symbol" }, element("i", {}, "H"), element("span", {}, "_"), element("sub", {}, "base"));
    return text.split("H_base").flatMap((part, index) => (index ? [symbol(), part] : [part]));
  }

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name in made && typeof value !== "string") made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children.flatMap((child) => (typeof child === "string" ? withSymbols(child) : [child])));
    return made;
  }
  resync.element = element;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function visible(color) {
    if (!dark.matches) return color;
    const parts = [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));
    const light = (0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]) / 255;
    const share = Math.max(0, 0.62 - light);  // of white, so that dark colours stand out from a dark page
    return `#${parts.map((part) => Math.round(part + (245 - part) * share * 1.35).toString(16).padStart(2, "0")).join("")}`;
  }

  class Chart {
    constructor(place) {
      this.place = place;
      this.spec = JSON.parse(place.dataset.spec);
      this.runs = new Map();
      this.state = { metric: this.spec.metrics?.[0], axis: "epoch", seeds: false, logX: false, logY: false, whole: false };
      this.off = new Set(this.all.flatMap((line, index) => (line.off ? [index] : [])));
    }

    // All lines of the chart, and those that are switched on.
    get all() {
      return this.spec.lines;
    }

    get lines() {
      return this.all.map((line, index) => ({ line, index })).filter(({ index }) => !this.off.has(index));
    }

    curves() {
      return this.lines.flatMap(({ line }) => curvesOf(line, this.runs, this.state).map((curve) => ({ ...curve, line })));
    }

    // The unit of x for what the curves show: its size and the title of the axis.
    unitOf(curves) {
      const axis = AXES[this.state.axis];
      const longest = Math.max(0, ...curves.flatMap(({ x }) => x.filter((value) => value !== null)));
      const [, size, unit] = axis.units.find(([least]) => longest >= least) ?? [0, 1, ""];
      return { size, title: unit ? `${axis.title} (${unit})` : axis.title };
    }

    get title() {
      return titleOf(this.state.metric);
    }

    async load() {
      const wanted = this.lines.flatMap(({ line }) => line.runs).filter((id) => !this.runs.has(id));
      await Promise.all(wanted.map(async (id) => this.runs.set(id, await resync.load(this.place.dataset.root, id))));
    }

    async start() {
      try {
        await this.load();
      } catch (error) {
        this.place.replaceChildren(element("p", { class: "soft" }, `The chart cannot be drawn: ${error.message}.`));
        return;
      }
      this.build();
      this.draw();
      this.place.style.minHeight = "";
      new ResizeObserver(() => this.resize()).observe(this.plotPlace);
      dark.addEventListener("change", () => { this.buildLegend(); this.draw(); });
    }

    metrics() {
      const names = new Set(this.spec.metrics);
      for (const run of this.runs.values()) for (const table of [run.metrics, run.steps]) for (const name of Object.keys(table)) names.add(name);
      return [...names].filter((name) => !["step", "epoch", "round"].includes(name));
    }

    // What can be chosen, and the switches.
    choices() {
      const metric = element("select", { "aria-label": "Metric" });
      for (const name of this.metrics()) metric.append(new Option(titleOf(name), name));
      metric.value = this.state.metric;
      const axis = element("select", { "aria-label": "Horizontal axis" });
      for (const [name, { title }] of Object.entries(AXES)) axis.append(new Option(title, name));
      metric.addEventListener("change", () => this.change({ metric: metric.value }));
      axis.addEventListener("change", () => this.change({ axis: axis.value }));
      return [metric, element("label", {}, "against", axis), ...this.switches([["seeds", "each seed"], ["logX", "log x"], ["logY", "log y"], ["whole", "whole range"]])];
    }

    switches(named) {
      return named.map(([name, text]) => {
        const box = element("input", { type: "checkbox", checked: this.state[name] });
        box.addEventListener("change", () => this.change({ [name]: box.checked }));
        return element("label", {}, box, text);
      });
    }

    build() {
      const reset = element("button", { type: "button" }, "Reset zoom");
      reset.addEventListener("click", () => this.zoom(null));
      const csv = element("button", { type: "button" }, "CSV");
      csv.addEventListener("click", () => this.download());
      this.legend = element("ul", { class: "lines", "aria-label": "Lines" });
      this.values = element("p", { class: "values", role: "status" });
      this.plotPlace = element("div", { class: "plot", tabindex: "0", role: "application", "aria-label": `${this.place.dataset.title}: arrow keys read values, + and - zoom, Escape resets` });
      this.plotPlace.addEventListener("keydown", (event) => this.key(event));
      this.place.replaceChildren(
        element("div", { class: "controls" }, ...this.choices(), reset, csv),
        this.legend, this.plotPlace, this.values, ...this.meaning(),
      );
      this.buildLegend();
    }

    meaning() {
      const parts = ["Lines: mean over seeds", "bands: from the smallest to the largest"];
      const words = new Set(this.all.flatMap((line) => Object.values(line.published ?? {}).map(([, word]) => word)));
      for (const word of words) parts.push(`${word === "published" ? "dotted" : "dash-dotted"}: ${word}`);
      return this.all.some((line) => line.declared > 1) ? [element("p", { class: "soft" }, `${parts.join("; ")}.`)] : [];
    }

    buildLegend() {
      const hidden = this.all.filter((line) => line.off).length > FEW && !this.more;
      const buttons = this.all.map((line, index) => {
        if (line.off && hidden) return null;
        const button = element("button", { type: "button", "aria-pressed": String(!this.off.has(index)) });
        const dash = line.dash.length ? ` stroke-dasharray="${line.dash.map((part) => part * 1.6).join(" ")}"` : "";
        button.innerHTML = `<svg width="26" height="8" aria-hidden="true"><path d="M1 4h24" stroke="${visible(line.color)}" stroke-width="2.2"${dash}/></svg>`;
        button.append(element("span", {}, line.label));
        if (line.declared > 1) button.append(element("span", { class: "soft" }, line.runs.length < line.declared ? `${line.runs.length} of ${line.declared} seeds` : `n=${line.declared}`));
        button.addEventListener("click", async () => {
          if (!this.off.delete(index)) this.off.add(index);
          button.setAttribute("aria-pressed", String(!this.off.has(index)));
          await this.load();
          this.draw();
        });
        return element("li", {}, button);
      }).filter(Boolean);
      if (hidden) {
        const more = element("button", { type: "button" }, `${this.all.length - buttons.length} other series`);
        more.addEventListener("click", () => { this.more = true; this.buildLegend(); this.legend.querySelector("[aria-pressed=false]").focus(); });
        buttons.push(element("li", {}, more));
      }
      this.legend.replaceChildren(...buttons);
    }

    change(entries) {
      Object.assign(this.state, entries);
      this.draw();
    }

    draw() {
      const curves = this.curves(), { size, title } = this.unitOf(curves);
      this.drawn = curves.map((curve) => ({ ...curve, columns: drawable(curve, this.state, size) })).filter(({ columns }) => columns[0].length);
      this.axisTitle = title;
      this.plot?.destroy();
      this.plot = null;
      this.plotPlace.replaceChildren();
      this.values.textContent = "";
      if (!this.drawn.length) {
        this.plotPlace.append(element("p", { class: "soft" }, `No run that is switched on has ${this.title}.`));
        return;
      }
      const data = globalThis.uPlot.join(this.drawn.map(({ columns }) => columns));
      this.plot = new globalThis.uPlot(this.options(), data, this.plotPlace);
    }

    options() {
      const ratio = devicePixelRatio || 1;
      const axis = {
        stroke: css("--ink"), font: "12px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif",
        grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--line"), width: 1 },
        values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : shown(tick))),
      };
      const few = Math.max(...this.drawn.map(({ columns }) => columns[0].length)) <= 40;
      const stepped = this.state.metric === "h" ? { paths: globalThis.uPlot.paths.stepped({ align: 1 }) } : {};
      const hidden = { stroke: "transparent", width: 0, points: { show: false }, ...stepped };
      const series = this.drawn.flatMap(({ line, label, thin }) => [
        {
          label, stroke: visible(line.color), width: thin ? 1.1 : 2, dash: line.dash.map((part) => part * 1.7 * ratio),
          points: { show: few && !thin && this.state.metric !== "h", size: 5, fill: visible(line.color) }, ...stepped,
        },
        hidden, hidden,
      ]);
      return {
        width: this.plotPlace.clientWidth, height: this.height(),
        legend: { show: false },
        cursor: { drag: { x: true, y: false, dist: 5 }, dataIdx: nearest, points: { size: (_, series) => (series % 3 === 1 ? 8 : 0) } },
        scales: {
          x: { time: false, distr: this.state.logX ? 3 : 1, range: (_, low, high) => (low < high ? [low, high] : [low - 1, low + 1]) },
          y: { distr: this.state.logY ? 3 : 1, range: (plot) => this.range(plot) },
        },
        axes: [
          { ...axis, label: this.axisTitle, labelSize: 22, size: 34, space: 70 },
          { ...axis, size: (_, ticks) => 16 + 7 * Math.max(3, ...(ticks ?? []).map((tick) => tick.length)) },
        ],
        series: [{ label: this.axisTitle }, ...series],
        bands: this.drawn.map(({ line }, index) => ({ series: [3 * index + 3, 3 * index + 2], fill: `${visible(line.color)}2e` })),
        hooks: { draw: [(plot) => this.drawPublished(plot)], setCursor: [(plot) => this.read(plot)] },
      };
    }

    // Limits of y that show what lies between the limits of x, after the first part of the training, and what was published.
    range(plot) {
      const { min, max } = plot.series[0];  // the scale of x still has its limits before a zoom
      const whole = Math.max(...this.drawn.map(({ columns }) => columns[0].at(-1)));
      const from = this.state.whole || SAMPLED_FIRST.has(this.state.metric) || this.state.logX ? -Infinity : CUT * whole;
      const within = (least) => this.drawn.flatMap(({ columns: [x, ...ys] }) =>
        ys.flatMap((y) => y.filter((value, index) => value !== null && value !== undefined && x[index] >= Math.max(min, least) && x[index] <= max)));
      let values = within(from);
      if (!values.length) values = within(-Infinity);
      values.push(...this.levels().map(({ level }) => level));
      if (!values.length) return this.state.logY ? [0.1, 1] : [0, 1];
      let low = values[0], high = values[0];
      for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
      if (this.state.logY) return [low / 1.1, high * 1.1];
      const air = 0.06 * (high - low) || Math.abs(high) * 0.05 || 1;
      return [low - air, high + air];
    }

    levels() {
      return this.lines.flatMap(({ line }) => {
        const [level, word] = line.published?.[this.state.metric] ?? [];
        return level === undefined || (this.state.logY && level <= 0) ? [] : [{ line, level, name: `${word} ` }];
      });
    }

    drawPublished(plot) {
      const { ctx, bbox } = plot, ratio = devicePixelRatio || 1;
      ctx.save();
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = "left";  // curves begin far from what they end at
      for (const { line, level, name } of this.levels()) {
        const y = plot.valToPos(level, "y", true);
        ctx.strokeStyle = ctx.fillStyle = visible(line.color);
        ctx.lineWidth = ratio;
        ctx.setLineDash((name === "published " || !name ? [2, 3] : [6, 3, 2, 3]).map((part) => part * ratio));
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
        ctx.fillText(`${name}${shown(level)}`, bbox.left + 4 * ratio, y - 4 * ratio);
      }
      ctx.restore();
    }

    read(plot) {
      const { left, idx } = plot.cursor;
      if (left === null || left < 0 || idx === null || idx === undefined) {
        this.values.textContent = "";
        return;
      }
      const x = plot.posToVal(left, "x");
      const texts = this.drawn.map(({ label, columns: [xs, ys, lows, highs] }) => {
        const at = closest(xs, x);
        const band = lows[at] !== highs[at] ? ` (${shown(lows[at])} to ${shown(highs[at])})` : "";
        return `${label}: ${shown(ys[at])}${band}`;
      });
      this.values.replaceChildren(...withSymbols(`${this.axisTitle} ${shown(x)} · ${texts.join(" · ")}`));
    }

    zoom(limits) {
      const xs = this.plot?.data[0];
      if (!xs?.length) return;
      this.plot.setScale("x", limits ?? { min: xs[0], max: xs.at(-1) });
    }

    key(event) {
      if (!this.plot || event.target !== this.plotPlace) return;
      const { plot } = this, { min, max } = plot.scales.x;
      const xs = plot.data[0].filter((x) => x >= min && x <= max);
      const here = plot.cursor.left >= 0 ? closest(xs, plot.posToVal(plot.cursor.left, "x")) : -1;
      const middle = here >= 0 ? xs[here] : (min + max) / 2;
      const act = {
        ArrowLeft: () => this.moveTo(xs[Math.max(0, here - 1)]),
        ArrowRight: () => this.moveTo(xs[Math.min(xs.length - 1, here + 1)]),
        "+": () => this.zoom({ min: middle - (middle - min) / 2, max: middle + (max - middle) / 2 }),
        "-": () => this.zoom({ min: Math.max(plot.data[0][0], middle - 2 * (middle - min)), max: Math.min(plot.data[0].at(-1), middle + 2 * (max - middle)) }),
        Escape: () => this.zoom(null),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    }

    moveTo(x) {
      this.plot.setCursor({ left: this.plot.valToPos(x, "x"), top: this.plot.over.clientHeight / 2 });
    }

    height() {
      return Math.round(Math.min(MOST_HEIGHT, Math.max(LEAST_HEIGHT, this.plotPlace.clientWidth * 0.42)));
    }

    resize() {
      const width = this.plotPlace.clientWidth;
      if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: this.height() });
    }

    download() {
      const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
      const rows = this.drawn.flatMap(({ label, columns: [xs, ys, lows, highs] }) =>
        xs.map((x, index) => [quoted(label), x, ys[index] ?? "", lows[index] ?? "", highs[index] ?? ""].join(",")));
      const head = ["line", this.axisTitle, this.title, "smallest", "largest"].map(quoted).join(",");
      const link = element("a", { download: `${this.state.metric ?? "points"}.csv` });
      link.href = URL.createObjectURL(new Blob([`${[head, ...rows].join("\n")}\n`], { type: "text/csv" }));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }
  }

  // A figure that shows something else than curves of training, from its points.
  class FigureChart extends Chart {
    get all() {
      return this.panel?.lines ?? [];
    }

    async load() {
      this.panels = (await resync.load(this.place.dataset.root, this.spec.points)).panels;
      if (!this.panel) this.show(0);
    }

    show(index) {
      this.panel = this.panels[index];
      // Logarithmic where half of the values lie further apart than a linear axis can show.
      const wide = (column) => {
        const values = this.panel.lines.flatMap(({ points }) => points?.[column] ?? []).filter((value) => value !== null).sort((one, other) => one - other);
        const quartile = (share) => values[Math.floor(share * (values.length - 1))];
        return values[0] > 0 && quartile(0.75) > 10 * quartile(0.25);
      };
      this.off.clear();
      Object.assign(this.state, { whole: true, logX: wide(0), logY: wide(1) });
    }

    choices() {
      const panel = element("select", { "aria-label": "Panel" });
      this.panels.forEach(({ name, x, y }, index) => panel.append(new Option(`${name ? `(${name}) ` : ""}${y} against ${x}`, index)));
      panel.value = this.panels.indexOf(this.panel);
      panel.addEventListener("change", () => { this.show(Number(panel.value)); this.build(); this.draw(); });
      return [panel, ...this.switches([["logX", "log x"], ["logY", "log y"]])];
    }

    curves() {
      return this.lines.filter(({ line }) => line.points).map(({ line }) => {
        const [x, y, low, high] = line.points;
        return { x, y, low, high, line, label: line.label };
      });
    }

    unitOf() {
      return { size: 1, title: this.panel.x };
    }

    get title() {
      return this.panel.y;
    }

    levels() {
      return this.lines.flatMap(({ line }) => (line.level === undefined || (this.state.logY && line.level <= 0) ? [] : [{ line, level: line.level, name: "" }]));
    }
  }

  function closest(xs, x) {
    let best = 0;
    xs.forEach((value, index) => { if (Math.abs(value - x) < Math.abs(xs[best] - x)) best = index; });
    return best;
  }

  // The nearest point of a curve: with common x of all curves, most of a curve's values are absent.
  function nearest(plot, series, index) {
    const values = plot.data[series];
    if (!series || (values[index] !== null && values[index] !== undefined)) return index;
    for (let distance = 1; distance < values.length; distance++) {
      for (const other of [index - distance, index + distance]) {
        if (values[other] !== null && values[other] !== undefined) return other;
      }
    }
    return index;
  }

  resync.chart = (place) => {
    place.hidden = false;
    const kind = "points" in JSON.parse(place.dataset.spec) ? FigureChart : Chart;
    return new kind(place).start();
  };

  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      resync.chart(target);
    }
  }, { rootMargin: "600px" });
  addEventListener("DOMContentLoaded", () => {
    for (const place of document.querySelectorAll(".chart[data-spec]")) {
      place.hidden = false;
      place.style.minHeight = "20rem";  // its place is kept, so that nothing moves when it is drawn
      observer.observe(place);
    }
  });
})();
