"use strict";
// Text from the dataset is inserted as text (textContent), never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
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
const PAGE_SIZE = 100;
let shown = PAGE_SIZE;
let order = { key: "p", descending: true };

["title", "summary", "explanation", "limit"].forEach((id) => {
  byId(id).textContent = data[id];
});
byId("warnings").append(...data.warnings.map((warning) => create("li", warning)));
byId("warnings").hidden = !data.warnings.length;
byId("heat-note").textContent = data.matrixNote;
byId("text-filter").hidden = !data.rows.some((row) => row.text);

function drawMatrix() {
  if (!data.matrix) return;
  const table = byId("heat"), head = create("tr"), small = data.names.length > 16;
  table.classList.toggle("small", small);
  head.append(create("th", "true ↓ given →"), ...data.names.map((name) => create("th", small ? "" : name)));
  table.append(head);
  data.matrix.forEach((row, i) => {
    const line = create("tr");
    line.append(create("th", nameOf(i), "row"));
    row.forEach((value, j) => {
      const button = create("button", value >= 0.995 ? "1" : value.toFixed(2).slice(1));
      button.type = "button";
      button.title = `${percent(value)} of class ${nameOf(i)} is labeled ${nameOf(j)}`;
      button.style.background = `rgba(var(--heat), ${value.toFixed(3)})`;
      if (value > 0.55) button.style.color = "#fff";
      button.addEventListener("click", () => {
        byId("suggested").value = i;
        byId("given").value = j;
        drawFirstRows();
      });
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
    head.append(create("th", name, index > 2 ? "number" : "")));
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

function fillSelects() {
  ["given", "suggested"].forEach((id) =>
    byId(id).append(new Option("any", ""), ...data.names.map((name, label) => new Option(name, label))));
}

function filteredRows() {
  const text = byId("text").value.trim().toLowerCase();
  const given = byId("given").value, suggested = byId("suggested").value;
  const minimum = Number(byId("minimum").value) || 0;
  const rows = data.rows.filter((row) =>
    row.p >= minimum &&
    (given === "" || row.given === Number(given)) &&
    (suggested === "" || row.suggested === Number(suggested)) &&
    (text === "" || row.text.toLowerCase().includes(text)));
  const key = order.key;
  const value = (row) => (key === "given" || key === "suggested" ? nameOf(row[key]) : row[key]);
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  return rows.sort((a, b) => (order.descending ? -1 : 1) * compare(value(a), value(b)));
}

function contentCell(row) {
  const cell = create("td", undefined, "content");
  if (row.image) {
    const image = create("img");
    image.src = row.image;
    image.alt = `row ${row.row}`;
    cell.append(image);
  } else if (row.word !== undefined) {
    row.words.forEach((word, index) => {
      cell.append(index === row.word ? create("mark", word) : document.createTextNode(word), " ");
    });
  } else {
    cell.textContent = row.text;
  }
  return cell;
}

function drawRows() {
  const rows = filteredRows(), body = byId("rows").tBodies[0];
  body.replaceChildren(...rows.slice(0, shown).map((row) => {
    const line = create("tr");
    line.append(create("td", row.p.toFixed(3), "number"), create("td", nameOf(row.given), "label given"));
    line.append(create("td", nameOf(row.suggested), "label"), create("td", integer(row.row), "number"), contentCell(row));
    return line;
  }));
  if (!rows.length) {
    const line = create("tr"), cell = create("td", "No rows match the filters.", "empty");
    cell.colSpan = 5;
    line.append(cell);
    body.append(line);
  }
  byId("count").textContent = `${integer(rows.length)} of ${integer(data.rows.length)} match`;
  byId("more").hidden = rows.length <= shown;
  document.querySelectorAll("#rows th").forEach((head) => {
    if (head.dataset.key === order.key) head.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

function drawFirstRows() {
  shown = PAGE_SIZE;
  drawRows();
}

document.querySelectorAll("#rows th").forEach((head) =>
  head.firstElementChild.addEventListener("click", () => {
    const key = head.dataset.key;
    order = { key, descending: order.key === key ? !order.descending : key === "p" };
    drawRows();
  }));
["text", "given", "suggested", "minimum"].forEach((id) => byId(id).addEventListener("input", drawFirstRows));
byId("more").addEventListener("click", () => {
  shown += PAGE_SIZE;
  drawRows();
});
byId("clear").addEventListener("click", () => {
  byId("text").value = byId("given").value = byId("suggested").value = "";
  byId("minimum").value = "0";
  drawFirstRows();
});
drawMatrix();
drawClasses();
drawSources();
fillSelects();
drawRows();
