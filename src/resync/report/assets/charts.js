// Charts of training curves, drawn by uPlot from the numbers of the runs (each in a script <run>/data.js).
"use strict";
var resync = globalThis.resync ?? (globalThis.resync = {});

(() => {
  const AXES = {
    epoch: { title: "Epoch", column: "epoch", units: [] },
    step: { title: "Step", column: "step", units: [] },
    time: { title: "Training time", column: "training_seconds", units: [[7200, 3600, "h"], [300, 60, "min"], [0, 1, "s"]] },
    bytes: { title: "Sent by a worker", column: "bytes_sent", units: [[1e9, 1e9, "GB"], [1e6, 1e6, "MB"], [1e3, 1e3, "kB"], [0, 1, "bytes"]] },
  };
  const SAMPLED_FIRST = new Set(["h", "lr"]);  // steps.csv has them more often than metrics.csv
  const CUT = 0.15;  // the share of the training whose values may lie outside of the chart
  const LEAST_HEIGHT = 230, MOST_HEIGHT = 380;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const waiting = new Map(), requested = new Map();
  resync.loaded = (run, data) => waiting.get(run)?.(data);
  resync.load = (root, run) => {
    if (!requested.has(run)) {
      requested.set(run, new Promise((resolve, reject) => {
        waiting.set(run, resolve);
        const script = document.createElement("script");
        script.src = `${root}/${run}/data.js`;
        script.onerror = () => reject(new Error(`${script.src} cannot be read`));
        document.head.append(script);
      }));
    }
    return requested.get(run);
  };

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name in made && typeof value !== "string") made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children);
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

  function shown(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(2);
    return value.toLocaleString("en", { maximumFractionDigits: size >= 1000 ? 0 : size >= 10 ? 2 : 4 });
  }
  resync.shown = shown;

  function interpolated(xs, ys, at) {
    let right = xs.findIndex((x) => x >= at);
    if (right < 0) right = xs.length - 1;
    const left = Math.max(0, right - 1);
    if (xs[right] === xs[left]) return ys[right];
    return ys[left] + ((ys[right] - ys[left]) * (at - xs[left])) / (xs[right] - xs[left]);
  }

  // The points of a run: x and y, without those where either is unknown.
  function pointsOf(run, metric, axis) {
    const sampled = run.steps[metric] && (SAMPLED_FIRST.has(metric) || !run.metrics[metric]);
    const table = sampled && run.steps.step.length >= (run.metrics.step?.length ?? 0) ? run.steps : run.metrics;
    const y = table[metric];
    if (!y) return null;
    const column = AXES[axis].column;
    const x = table[column] ?? table.step.map((step) => run.metrics[column] ? interpolated(run.metrics.step, run.metrics[column], step) : null);
    const first = SAMPLED_FIRST.has(metric) && table.step[0] === 0 ? 1 : 0;  // before the first round
    return { step: table.step.slice(first), x: x.slice(first), y: metric === "h" ? withWholeRounds(y.slice(first)) : y.slice(first) };
  }

  // The end of the training cuts the last round, which is no change of the period.
  function withWholeRounds(h) {
    const before = h.findLastIndex((value) => value !== h.at(-1));
    return before >= 0 && h[before] > h.at(-1) ? h.map((value, index) => (index > before ? h[before] : value)) : h;
  }

  // One curve per line: the mean over its finished seeds with the smallest and largest; or each seed by itself.
  function curvesOf(line, runs, state) {
    const found = line.runs.map((id) => ({ run: runs.get(id), points: pointsOf(runs.get(id), state.metric, state.axis) }));
    const known = found.filter(({ points }) => points);
    const finished = known.filter(({ run }) => run.status !== "diverged");
    const alike = finished.every(({ points }) => points.step.every((step, at) => step === finished[0].points.step[at] || at >= finished[0].points.step.length));
    const alone = state.seeds || !alike;
    const single = (alone ? known : known.filter(({ run }) => run.status === "diverged")).map(({ run, points }) => ({
      ...points, low: points.y, high: points.y, label: `${line.label}, seed ${run.seed}${run.status === "diverged" ? ", diverged" : ""}`, thin: true,
    }));
    if (alone || !finished.length) return single;
    const length = Math.min(...finished.map(({ points }) => points.y.length));
    const at = (index, name) => finished.map(({ points }) => points[name][index]);
    const mean = (values) => (values.includes(null) ? null : values.reduce((sum, value) => sum + value, 0) / values.length);
    const indices = [...Array(length).keys()];
    const note = finished.length === line.declared || line.declared === undefined ? `n=${finished.length}` : `${finished.length} of ${line.declared} seeds`;
    return [{
      x: indices.map((index) => mean(at(index, "x"))),
      y: indices.map((index) => mean(at(index, "y"))),
      low: indices.map((index) => (at(index, "y").includes(null) ? null : Math.min(...at(index, "y")))),
      high: indices.map((index) => (at(index, "y").includes(null) ? null : Math.max(...at(index, "y")))),
      label: line.runs.length > 1 ? `${line.label} (${note})` : line.label,
    }, ...single];
  }

  // What uPlot needs: x increasing and, on logarithmic axes, positive values.
  function drawable(curve, state, unit) {
    const columns = [[], [], [], []];
    curve.x.forEach((x, index) => {
      const row = [x === null ? null : x / unit, curve.y[index], curve.low[index], curve.high[index]];
      if (row[0] === null || (state.logX && row[0] <= 0)) return;
      const kept = row.map((value, position) => (position && state.logY && value <= 0 ? null : value));
      const last = columns[0].length - 1;
      if (last >= 0 && columns[0][last] >= kept[0]) columns.forEach((column, position) => { column[last] = kept[position]; });
      else columns.forEach((column, position) => column.push(kept[position]));
    });
    return columns;
  }

  class Chart {
    constructor(place) {
      this.place = place;
      this.spec = JSON.parse(place.dataset.spec);
      this.runs = new Map();
      this.state = { metric: this.spec.metrics[0], axis: "epoch", seeds: false, logX: false, logY: false, whole: false };
      this.off = new Set(this.spec.lines.flatMap((line, index) => (line.off ? [index] : [])));
    }

    get lines() {
      return this.spec.lines.map((line, index) => ({ line, index })).filter(({ index }) => !this.off.has(index));
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

    build() {
      const metric = element("select", { "aria-label": "Metric" });
      for (const name of this.metrics()) metric.append(new Option(titleOf(name), name));
      metric.value = this.state.metric;
      const axis = element("select", { "aria-label": "Horizontal axis" });
      for (const [name, { title }] of Object.entries(AXES)) axis.append(new Option(title, name));
      metric.addEventListener("change", () => this.change({ metric: metric.value }));
      axis.addEventListener("change", () => this.change({ axis: axis.value }));
      const boxes = [["seeds", "each seed"], ["logX", "log x"], ["logY", "log y"], ["whole", "whole range"]].map(([name, text]) => {
        const box = element("input", { type: "checkbox" });
        box.addEventListener("change", () => this.change({ [name]: box.checked }));
        return element("label", {}, box, text);
      });
      const reset = element("button", { type: "button" }, "Reset zoom");
      reset.addEventListener("click", () => this.zoom(null));
      const csv = element("button", { type: "button" }, "CSV");
      csv.addEventListener("click", () => this.download());
      this.legend = element("ul", { class: "lines", "aria-label": "Lines" });
      this.values = element("p", { class: "values", role: "status" });
      this.plotPlace = element("div", { class: "plot", tabindex: "0", role: "application", "aria-label": `${this.place.dataset.title}: arrow keys read values, + and - zoom, Escape resets` });
      this.plotPlace.addEventListener("keydown", (event) => this.key(event));
      this.place.replaceChildren(
        element("div", { class: "controls" }, metric, element("label", {}, "against", axis), ...boxes, reset, csv),
        this.legend, this.plotPlace, this.values,
      );
      this.buildLegend();
    }

    buildLegend() {
      this.legend.replaceChildren(...this.spec.lines.map((line, index) => {
        const button = element("button", { type: "button", "aria-pressed": String(!this.off.has(index)) });
        const dash = line.dash.length ? ` stroke-dasharray="${line.dash.map((part) => part * 1.6).join(" ")}"` : "";
        button.innerHTML = `<svg width="26" height="8" aria-hidden="true"><path d="M1 4h24" stroke="${visible(line.color)}" stroke-width="2.2"${dash}/></svg>`;
        button.append(line.label);
        button.addEventListener("click", async () => {
          if (!this.off.delete(index)) this.off.add(index);
          button.setAttribute("aria-pressed", String(!this.off.has(index)));
          await this.load();
          this.draw();
        });
        return element("li", {}, button);
      }));
    }

    change(entries) {
      Object.assign(this.state, entries);
      this.draw();
    }

    draw() {
      const state = this.state, axis = AXES[state.axis];
      const curves = this.lines.flatMap(({ line }) => curvesOf(line, this.runs, state).map((curve) => ({ ...curve, line })));
      const longest = Math.max(0, ...curves.flatMap(({ x }) => x.filter((value) => value !== null)));
      const [, size, unit] = axis.units.find(([least]) => longest >= least) ?? [0, 1, ""];
      this.curves = curves.map((curve) => ({ ...curve, columns: drawable(curve, state, size) })).filter(({ columns }) => columns[0].length);
      this.axisTitle = unit ? `${axis.title} (${unit})` : axis.title;
      this.plot?.destroy();
      this.plot = null;
      this.plotPlace.replaceChildren();
      this.values.textContent = "";
      if (!this.curves.length) {
        this.plotPlace.append(element("p", { class: "soft" }, `No run that is switched on has ${titleOf(state.metric)}.`));
        return;
      }
      const data = globalThis.uPlot.join(this.curves.map(({ columns }) => columns));
      this.plot = new globalThis.uPlot(this.options(), data, this.plotPlace);
    }

    options() {
      const ratio = devicePixelRatio || 1;
      const axis = {
        stroke: css("--ink"), font: "12px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif",
        grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--line"), width: 1 },
        values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : shown(tick))),
      };
      const few = Math.max(...this.curves.map(({ columns }) => columns[0].length)) <= 40;
      const stepped = this.state.metric === "h" ? { paths: globalThis.uPlot.paths.stepped({ align: 1 }) } : {};
      const hidden = { stroke: "transparent", width: 0, points: { show: false }, ...stepped };
      const series = this.curves.flatMap(({ line, label, thin }) => [
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
          x: { time: false, distr: this.state.logX ? 3 : 1 },
          y: { distr: this.state.logY ? 3 : 1, range: (plot) => this.range(plot) },
        },
        axes: [
          { ...axis, label: this.axisTitle, labelSize: 22, size: 34 },
          { ...axis, size: (_, ticks) => 16 + 7 * Math.max(3, ...(ticks ?? []).map((tick) => tick.length)) },
        ],
        series: [{ label: this.axisTitle }, ...series],
        bands: this.curves.map(({ line }, index) => ({ series: [3 * index + 3, 3 * index + 2], fill: `${visible(line.color)}2e` })),
        hooks: { draw: [(plot) => this.drawPublished(plot)], setCursor: [(plot) => this.read(plot)] },
      };
    }

    // Limits of y that show what lies between the limits of x, after the first part of the training, and what was published.
    range(plot) {
      const { min, max } = plot.series[0];  // the scale of x still has its limits before a zoom
      const whole = Math.max(...this.curves.map(({ columns }) => columns[0].at(-1)));
      const from = this.state.whole || SAMPLED_FIRST.has(this.state.metric) || this.state.logX ? -Infinity : CUT * whole;
      const within = (least) => this.curves.flatMap(({ columns: [x, ...ys] }) =>
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
        const level = line.published?.[this.state.metric];
        return level === undefined || (this.state.logY && level <= 0) ? [] : [{ line, level }];
      });
    }

    drawPublished(plot) {
      const { ctx, bbox } = plot, ratio = devicePixelRatio || 1;
      ctx.save();
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = "right";
      for (const { line, level } of this.levels()) {
        const y = plot.valToPos(level, "y", true);
        ctx.strokeStyle = ctx.fillStyle = visible(line.color);
        ctx.lineWidth = ratio;
        ctx.setLineDash([2 * ratio, 3 * ratio]);
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
        ctx.fillText(`published ${shown(level)}`, bbox.left + bbox.width - 4 * ratio, y - 4 * ratio);
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
      const texts = this.curves.map(({ label, columns: [xs, ys, lows, highs] }) => {
        const at = closest(xs, x);
        const band = lows[at] !== highs[at] ? ` (${shown(lows[at])} to ${shown(highs[at])})` : "";
        return `${label}: ${shown(ys[at])}${band}`;
      });
      this.values.textContent = `${this.axisTitle} ${shown(x)} · ${texts.join(" · ")}`;
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
      const rows = this.curves.flatMap(({ label, columns: [xs, ys, lows, highs] }) =>
        xs.map((x, index) => [quoted(label), x, ys[index] ?? "", lows[index] ?? "", highs[index] ?? ""].join(",")));
      const head = ["line", this.axisTitle, titleOf(this.state.metric), "smallest", "largest"].map(quoted).join(",");
      const link = element("a", { download: `${this.state.metric}.csv` });
      link.href = URL.createObjectURL(new Blob([`${[head, ...rows].join("\n")}\n`], { type: "text/csv" }));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }
  }

  function titleOf(name) {
    const known = resync.metrics[name];
    if (!known) return name;
    return known.unit === "1" ? known.title : `${known.title} (${known.unit})`;
  }
  resync.titleOf = titleOf;

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
    // The chart stands for the printed figure, which stays at hand below it.
    const printed = place.parentElement.querySelector("details.printed");
    if (printed) printed.open = false;
    return new Chart(place).start();
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
