// Search, filters and sorting of tables, all kept in the address: #paper=qsr&verdict=fails&q=top-1&sort=Difference:descending.
"use strict";
var resync = globalThis.resync ?? (globalThis.resync = {});

(() => {
  const form = document.querySelector("form.filters:not(#choice)");
  const rows = [...document.querySelectorAll("tr[data-row]")];
  const tables = [...document.querySelectorAll("table[data-sortable]")];
  const selects = form ? [...form.querySelectorAll("select")] : [];
  const rest = form?.elements.rest, fields = form ? [form.elements.q, ...selects] : [];
  const texts = new Map();
  const STEP = 50;  // rows that a reader gets at a time
  let most = STEP;
  const more = document.createElement("button");
  more.type = "button";
  more.textContent = `Show ${STEP} more`;

  const valuesOf = (row, name) => (name === "item" ? row.dataset.item.split(" ").filter(Boolean) : [row.dataset[name]]);

  function fillSelects() {
    for (const select of selects) {
      const counts = new Map();
      for (const row of rows) {
        for (const value of valuesOf(row, select.name)) counts.set(value, (counts.get(value) ?? 0) + 1);
      }
      select.append(new Option("all", ""));
      for (const [value, count] of [...counts].sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }))) {
        select.append(new Option(`${value} (${count})`, value));
      }
    }
  }

  function textOf(row) {
    if (!texts.has(row)) texts.set(row, `${row.textContent} ${row.id} ${row.dataset.item ?? ""}`.toLowerCase());
    return texts.get(row);
  }

  function filterRows() {
    const words = form.elements.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = selects.filter((select) => select.value);
    // Lines that say nothing are in the way of a reader who has not asked for anything.
    const all = rest.checked || words.length || chosen.length;
    let shown = 0, fitting = 0;
    for (const row of rows) {
      const fits = (all || !("rest" in row.dataset)) && chosen.every((select) => valuesOf(row, select.name).includes(select.value));
      const matches = fits && words.every((word) => textOf(row).includes(word));
      fitting += matches;
      row.hidden = !(matches && fitting <= most);
      shown += !row.hidden;
    }
    for (const section of document.querySelectorAll("section.lines")) {
      section.hidden = !section.querySelector("tr[data-row]:not([hidden])");
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length} shown`;
    more.hidden = shown === fitting;
  }

  function sortKey(cell) {
    const text = (cell.dataset.value ?? cell.textContent).trim();
    const number = Number.parseFloat(text.replaceAll(",", "").replace("\u2212", "-"));
    return { text, number: /^[-+\u2212]?[\d.]/.test(text) && Number.isFinite(number) ? number : null };
  }

  function sortTable(table, column, direction) {
    const headings = [...[...table.tHead.rows].at(-1).cells];
    headings.forEach((heading, index) => {
      if (index === column && direction) heading.setAttribute("aria-sort", direction);
      else heading.removeAttribute("aria-sort");
    });
    const body = table.tBodies[0];
    table.original ??= [...body.rows];
    const sign = direction === "descending" ? -1 : 1;
    const keyed = table.original.map((row) => ({ row, key: sortKey(row.cells[column]) }));
    if (direction) {
      keyed.sort(({ key: one }, { key: other }) => {
        if ((one.text === "") !== (other.text === "")) return one.text === "" ? 1 : -1;
        if (one.number !== null && other.number !== null) return sign * (one.number - other.number);
        if ((one.number === null) !== (other.number === null)) return one.number === null ? 1 : -1;
        return sign * one.text.localeCompare(other.text, "en", { numeric: true });
      });
    }
    body.append(...keyed.map(({ row }) => row));
  }

  function prepareSorting() {
    for (const table of tables) {
      for (const heading of [...table.tHead.rows].at(-1).cells) {
        if ("unsorted" in heading.dataset) continue;
        const button = document.createElement("button");
        button.type = "button";
        button.append(...heading.childNodes);
        heading.replaceChildren(button);
        button.addEventListener("click", () => {
          const next = { ascending: "descending", descending: "" }[heading.getAttribute("aria-sort")] ?? "ascending";
          sortTable(table, heading.cellIndex, next);
          if (form) writeAddress();
        });
      }
    }
  }

  function writeAddress() {
    const state = new URLSearchParams();
    for (const field of fields) if (field.value) state.set(field.name, field.value);
    if (rest.checked) state.set("rest", "1");
    for (const table of tables) {
      const heading = table.querySelector("th[aria-sort]");
      const kind = table.closest("section")?.dataset.kind;
      if (heading) state.append("sort", [kind ?? "", heading.cellIndex, heading.getAttribute("aria-sort")].join(":"));
    }
    // Only what follows # may change on a page of a file system.
    history.replaceState(null, "", `#${state}`);
  }

  function readAddress() {
    const hash = decodeURIComponent(location.hash.slice(1));
    const target = hash && !hash.includes("=") ? document.getElementById(hash) : null;
    if (form) {
      const state = new URLSearchParams(target ? "" : location.hash.slice(1));
      for (const field of fields) field.value = state.get(field.name) ?? "";
      rest.checked = state.has("rest") || Boolean(target?.closest("tr[data-rest]"));
      if (target?.closest("tr[data-row]")) most = Infinity;
      for (const select of selects) if (select.selectedIndex < 0) select.value = "";
      for (const table of tables) if (table.querySelector("th[aria-sort]")) sortTable(table, 0, "");
      for (const sort of state.getAll("sort")) {
        const [kind, column, direction] = sort.split(":");
        const table = tables.find((candidate) => (candidate.closest("section")?.dataset.kind ?? "") === kind);
        if (table?.tHead.rows[0].cells[column] && ["ascending", "descending"].includes(direction)) {
          sortTable(table, Number(column), direction);
        }
      }
      filterRows();
    }
    for (let place = target; place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true;
    target?.scrollIntoView();
  }

  function prepareChoice() {
    const link = document.getElementById("compare");
    if (!link) return;
    const page = link.getAttribute("href");
    document.addEventListener("change", () => {
      const chosen = [...document.querySelectorAll("input[name=run]:checked")].map((box) => box.value);
      link.href = chosen.length ? `${page}#${new URLSearchParams({ runs: chosen.join(",") })}` : page;
      link.textContent = chosen.length ? `Compare ${chosen.length} runs` : "Compare the chosen runs";
    });
  }

  prepareSorting();
  prepareChoice();
  if (form) {
    form.hidden = false;
    fillSelects();
    const change = () => { most = STEP; filterRows(); writeAddress(); };
    document.querySelector("main").append(more);
    more.addEventListener("click", () => { most += STEP; filterRows(); });
    const skip = document.querySelector("a.skip[hidden]");
    skip.hidden = false;
    skip.addEventListener("click", (event) => { event.preventDefault(); form.elements.q.focus(); });
    rest.parentElement.append(` (${rows.filter((row) => "rest" in row.dataset).length})`);
    form.addEventListener("input", (event) => { if (event.target.name !== "run") change(); });
    form.addEventListener("reset", () => setTimeout(change));
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  addEventListener("hashchange", readAddress);
  readAddress();
})();
