// Tables of the report: a click on a heading, or Enter or Space on it, sorts; a link to a row opens its details.
"use strict";

function key(row, column) {
  const field = row.cells[column];
  const value = field.dataset.value;
  return value === undefined ? { text: field.textContent } : { number: Number(value) };
}

function isMissing(row, column) {
  const field = row.cells[column];
  return field.dataset.value === undefined && field.textContent === "–";
}

// Numbers by value before texts; fields without a value stay last whichever way.
function compare(column, sign) {
  return (a, b) => {
    const missing = isMissing(a, column) - isMissing(b, column);
    if (missing) return missing;
    const x = key(a, column);
    const y = key(b, column);
    if ("number" in x && "number" in y) return sign * (x.number - y.number);
    if ("number" in x || "number" in y) return "number" in x ? -1 : 1;
    return sign * x.text.localeCompare(y.text, "en", { numeric: true });
  };
}

function sort(heading) {
  const table = heading.closest("table");
  const ascending = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const body = table.tBodies[0];
  body.append(...Array.from(body.rows).sort(compare(heading.cellIndex, ascending ? 1 : -1)));
}

function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target; part; part = part.parentElement) {
    if (part instanceof HTMLDetailsElement) part.open = true;
  }
  if (target) target.scrollIntoView();
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sort(button.closest("th")));
}
window.addEventListener("hashchange", open);
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
// A link to the address that is shown already changes nothing, so opens nothing by itself.
for (const link of document.querySelectorAll('a[href^="#"]')) link.addEventListener("click", () => setTimeout(open));
open();
