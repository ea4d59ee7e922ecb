"use strict";
// Text from the dataset is inserted as text (textContent), never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
document.getElementById("data").textContent = "";  // the text takes as much memory as the rows
const byId = (id) => document.getElementById(id);
const create = (tag, text, className) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
};
const percent = (value) => (100 * value).toFixed(value > 0 && value < 0.0995 ? 1 : 0) + " %";
const integer = (value) => value.toLocaleString("en");
const nameOf = (label) => data.names[label];

["title", "summary", "explanation", "limit"].forEach((id) => {
  byId(id).textContent = data[id];
});
byId("warnings").append(...data.warnings.map((warning) => create("li", warning)));
byId("warnings").hidden = !data.warnings.length;
byId("heat-note").textContent = data.matrixNote;

/** Draw the matrix; `choosePair(given, suggested)` is called for a clicked cell. */
function drawMatrix(choosePair) {
  if (!data.matrix) {
    byId("heat").hidden = true;
    return;
  }
  const table = byId("heat"), head = create("tr"), dense = data.names.length > 16;
  const headCell = (name, scope, className) => {
    const cell = create("th", name, className);
    cell.scope = scope;
    return cell;
  };
  table.classList.toggle("dense", dense);
  head.append(create("td", dense ? "" : "true ↓ given →", "soft"));
  head.append(...data.names.map((name) => (dense ? create("td") : headCell(name, "col"))));
  table.append(head);
  data.matrix.forEach((row, i) => {
    const line = create("tr");
    line.append(headCell(nameOf(i), "row", "row-name"));
    row.forEach((value, j) => {
      const button = create("button", dense ? "" : value >= 0.995 ? "1" : value.toFixed(2).slice(1));
      button.type = "button";
      button.title = `${percent(value)} of class ${nameOf(i)} is labeled ${nameOf(j)}`;
      button.style.setProperty("--share", value.toFixed(3));
      if (dense) {
        button.setAttribute("aria-label", button.title);
        button.tabIndex = -1;  // hundreds of stops; the filter by pair does the same
      }
      button.addEventListener("click", () => choosePair(j, i));
      const cell = create("td");
      cell.append(button);
      line.append(cell);
    });
    table.append(line);
  });
}

function drawClasses() {
  const table = byId("classes"), head = create("tr");
  ["class", "noise rate", "", "given", "suspect"].forEach((name, index) =>
    head.append(create(name ? "th" : "td", name, index > 2 ? "number" : "")));
  table.append(head);
  data.classes.forEach((entry, label) => {
    const line = create("tr"), bar = create("div", undefined, "bar"), fill = create("i"), cell = create("td");
    fill.style.width = `${(100 * entry.noise).toFixed(1)}%`;
    bar.append(fill);
    cell.append(bar);
    line.append(create("td", nameOf(label)), cell, create("td", percent(entry.noise), "number"));
    line.append(create("td", integer(entry.given), "number"), create("td", integer(entry.suspect), "number"));
    table.append(line);
  });
}

function drawSources() {
  if (!data.sources) return;
  const line = (cells, tag) => {
    const row = create("tr");
    row.append(...cells.map((cell) => create(tag, cell)));
    return row;
  };
  byId("sources").append(line(data.sources.header, "th"), ...data.sources.lines.map((cells) => line(cells, "td")));
  byId("hurting").append(...data.sources.hurting.map((sentence) => create("li", sentence)));
  byId("hurting").hidden = !data.sources.hurting.length;
  byId("sources-panel").hidden = false;
}
