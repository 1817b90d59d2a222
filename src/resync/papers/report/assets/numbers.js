// The numbers of runs and figures, each in a script <name>/data.js, and the curves that follow from them.
"use strict";
var resync = globalThis.resync ?? (globalThis.resync = {});

(() => {
  const AXES = {
    epoch: { title: "Epoch", column: "epoch", units: [] },
    step: { title: "Step", column: "step", units: [] },
    time: { title: "Time, modelled if simulated", column: "training_seconds", units: [[7200, 3600, "h"], [300, 60, "min"], [0, 1, "s"]] },
    bytes: { title: "Sent by a worker", column: "bytes_sent", units: [[1e9, 1e9, "GB"], [1e6, 1e6, "MB"], [1e3, 1e3, "kB"], [0, 1, "bytes"]] },
  };
  const SAMPLED_FIRST = new Set(["h", "lr"]);  // steps.csv has them more often than metrics.csv

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

  function shown(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-5 || size >= 1e7)) return Number(value.toPrecision(3)).toExponential();
    if (size !== 0 && size < 0.01) return value.toLocaleString("en", { maximumSignificantDigits: 3 });
    return value.toLocaleString("en", { maximumFractionDigits: size >= 1000 ? 0 : size >= 10 ? 2 : 4 });
  }
  resync.shown = shown;

  function titleOf(name) {
    const known = resync.metrics[name];
    if (!known) return name;
    return known.unit === "1" ? known.title : `${known.title} (${known.unit})`;
  }
  resync.titleOf = titleOf;

  function interpolated(xs, ys, at) {
    let right = xs.findIndex((x) => x >= at);
    if (right < 0) right = xs.length - 1;
    const left = Math.max(0, right - 1);
    if (xs[right] === xs[left]) return ys[right];
    return ys[left] + ((ys[right] - ys[left]) * (at - xs[left])) / (xs[right] - xs[left]);
  }

  // The points of a run: x and y, without those where either is unknown.
  function pointsOf(run, metric, axis) {
    const denser = SAMPLED_FIRST.has(metric) && run.steps.step?.length >= run.metrics.step.length;
    const table = run.steps[metric] && (denser || !run.metrics[metric]) ? run.steps : run.metrics;
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
    const pairs = line.runs.map((id) => ({ run: runs.get(id), points: pointsOf(runs.get(id), state.metric, state.axis) }));
    const known = pairs.filter(({ points }) => points);
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

  Object.assign(resync, { AXES, SAMPLED_FIRST, curvesOf, drawable });
})();
