// Names and keyboard access that the theme does not give: of its search, its buttons at code, and what scrolls.
function name() {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((each, number) => each.setAttribute("aria-label", `Code ${number + 1}`));
  document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code").forEach((each) => (each.tabIndex = 0));
}
let asked = 0;
new MutationObserver(() => {
  cancelAnimationFrame(asked);
  asked = requestAnimationFrame(name);
}).observe(document.body, { childList: true, subtree: true });
name();
