// Paper has no folds and no dark mode: open what is folded and turn the lights on while printing.
const paper = matchMedia("print");
let before = null;
paper.addEventListener("change", () => {
  const root = document.documentElement;
  const folds = document.querySelectorAll("article details");
  if (paper.matches) {
    before = { theme: root.dataset.theme, open: [...folds].filter((fold) => fold.open) };
    root.dataset.theme = "light";
    for (const fold of folds) fold.open = true;
  } else if (before) {
    root.dataset.theme = before.theme;
    for (const fold of folds) fold.open = before.open.includes(fold);
    before = null;
  }
});

// A table that is wider than the page scrolls inside itself: by keyboard, too.
const reach = () => {
  for (const table of document.querySelectorAll(".bd-article table")) {
    if (table.closest(".sh-panel")) continue;
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
    else table.removeAttribute("tabindex");
  }
};
reach();
addEventListener("resize", reach);
