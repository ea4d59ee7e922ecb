"use strict";
// Everything that comes from the data enters the page as text (textContent), never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const make = (name, text, className) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
};
const percent = (value) => (100 * value).toFixed(value > 0 && value < 0.0995 ? 1 : 0) + " %";
const whole = (value) => value.toLocaleString("en");
const nameOf = (label) => data.names[label];
const STEP = 100;
let shown = STEP;
let order = { key: "p", down: true };

byId("title").textContent = data.title;
byId("told").textContent = data.told;
byId("how").textContent = data.how;
byId("limit").textContent = data.limit;
byId("text-filter").hidden = !data.rows.some((row) => row.text);

function drawHeat() {
  const table = byId("heat"), size = data.names.length;
  if (!data.matrix) {
    byId("heat-note").textContent = data.matrixNote;
    return;
  }
  table.classList.toggle("small", size > 16);
  const head = make("tr");
  head.append(make("th", "true ↓ label →"));
  data.names.forEach((name) => head.append(make("th", size > 16 ? "" : name)));
  table.append(head);
  data.matrix.forEach((row, i) => {
    const line = make("tr");
    line.append(make("th", nameOf(i), "row"));
    row.forEach((value, j) => {
      const button = make("button", value >= 0.995 ? "1" : value.toFixed(2).slice(1));
      button.type = "button";
      button.title = `${nameOf(i)} is labelled ${nameOf(j)} in ${percent(value)}`;
      button.style.background = `rgba(var(--heat), ${value.toFixed(3)})`;
      if (value > 0.55) button.style.color = "#fff";
      button.addEventListener("click", () => {
        byId("suggested").value = i;
        byId("given").value = j;
        shown = STEP;
        drawRows();
      });
      const cell = make("td");
      cell.append(button);
      line.append(cell);
    });
    table.append(line);
  });
  byId("heat-note").textContent = data.matrixNote;
}

function drawClasses() {
  const table = byId("classes"), head = make("tr");
  ["class", "its rows mislabelled", "", "labelled so", "of these suspect"].forEach((name, place) =>
    head.append(make("th", name, place > 2 ? "number" : "")));
  table.append(head);
  data.classes.forEach((entry, label) => {
    const line = make("tr"), bar = make("div", undefined, "bar"), fill = make("i"), cell = make("td");
    fill.style.width = `${(100 * entry.noise).toFixed(1)}%`;
    bar.append(fill);
    cell.append(bar);
    line.append(make("td", nameOf(label)), cell, make("td", percent(entry.noise), "number"));
    line.append(make("td", whole(entry.given), "number"), make("td", whole(entry.suspect), "number"));
    table.append(line);
  });
}

function fillSelects() {
  ["given", "suggested"].forEach((id) => {
    const any = make("option", "any");
    any.value = "";
    byId(id).append(any);
    data.names.forEach((name, label) => {
      const option = make("option", name);
      option.value = label;
      byId(id).append(option);
    });
  });
}

function chosen() {
  const text = byId("text").value.trim().toLowerCase();
  const given = byId("given").value, suggested = byId("suggested").value;
  const least = Number(byId("least").value) || 0;
  const found = data.rows.filter((row) =>
    row.p >= least &&
    (given === "" || row.given === Number(given)) &&
    (suggested === "" || row.suggested === Number(suggested)) &&
    (text === "" || row.text.toLowerCase().includes(text)));
  const value = { p: (row) => row.p, given: (row) => nameOf(row.given), suggested: (row) => nameOf(row.suggested),
    row: (row) => row.row, text: (row) => row.text }[order.key];
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  return found.sort((a, b) => (order.down ? -1 : 1) * compare(value(a), value(b)) || a.place - b.place);
}

function content(row) {
  const cell = make("td", undefined, "content");
  if (row.image) {
    const picture = make("img");
    picture.src = row.image;
    picture.alt = `row ${row.row}`;
    cell.append(picture);
  } else if (row.word !== undefined) {
    row.words.forEach((word, place) => {
      cell.append(place === row.word ? make("mark", word) : document.createTextNode(word), " ");
    });
  } else {
    cell.textContent = row.text;
  }
  return cell;
}

function drawRows() {
  const found = chosen(), body = byId("rows").tBodies[0];
  body.replaceChildren(...found.slice(0, shown).map((row) => {
    const line = make("tr");
    line.append(make("td", row.p.toFixed(3), "number"), make("td", nameOf(row.given), "label given"));
    line.append(make("td", nameOf(row.suggested), "label"), make("td", whole(row.row), "number"), content(row));
    return line;
  }));
  if (!found.length) {
    const line = make("tr"), cell = make("td", "No row is left by these filters.", "empty");
    cell.colSpan = 5;
    line.append(cell);
    body.append(line);
  }
  byId("count").textContent = `${whole(found.length)} of ${whole(data.rows.length)} on this page`;
  byId("more").hidden = found.length <= shown;
  document.querySelectorAll("#rows th").forEach((head) => {
    if (head.dataset.key === order.key) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

document.querySelectorAll("#rows th").forEach((head) =>
  head.firstElementChild.addEventListener("click", () => {
    const key = head.dataset.key;
    order = { key, down: order.key === key ? !order.down : key === "p" };
    drawRows();
  }));
["text", "given", "suggested", "least"].forEach((id) =>
  byId(id).addEventListener("input", () => {
    shown = STEP;
    drawRows();
  }));
byId("more").addEventListener("click", () => {
  shown += STEP;
  drawRows();
});
byId("clear").addEventListener("click", () => {
  byId("text").value = byId("given").value = byId("suggested").value = "";
  byId("least").value = "0";
  shown = STEP;
  drawRows();
});
data.rows.forEach((row, place) => {
  row.place = place;
});
drawHeat();
drawClasses();
fillSelects();
drawRows();
