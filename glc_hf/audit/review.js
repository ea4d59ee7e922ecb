// The list of labels (only the visible rows exist as elements), the card of the current one, filters and keys.
const MOST_CHIPS = 10, searchable = data.names.length > MOST_CHIPS;
// Classes that are digits have their own keys.
const chipKeys = !searchable && data.names.every((name) => /^\d$/.test(name)) ? data.names : [..."1234567890"];
const ROW_HEIGHT = 60, MAX_HEIGHT = 12_000_000;  // browsers limit the height of an element
const list = byId("list"), space = byId("space");
let shown = [];  // positions in `rows` that match the filters, in order
let current = 0;  // position in `shown`
let lowerCase = null;

// ---------------------------------------------------------------- filters
const pairOf = (index) => rows.given[index] * data.names.length + rows.suggested[index];

function fillPairs() {
  const counts = new Map();
  for (let index = 0; index < size; index++) counts.set(pairOf(index), (counts.get(pairOf(index)) ?? 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  byId("pair").append(new Option("any", ""), ...sorted.map(([pair, count]) => pairOption(pair, count)));
}

function pairOption(pair, count) {
  const given = Math.floor(pair / data.names.length), suggested = pair % data.names.length;
  return new Option(`${nameOf(given)} → ${nameOf(suggested)} (${integer(count)})`, pair);
}

const STATES = {
  all: () => true,
  open: (code) => !code,
  decided: (code) => code > 0 && code !== SKIP,
  keep: (code) => code === KEEP,
  changed: (code) => code === SUGGESTED || code === OTHER,
  skip: (code) => code === SKIP,
};

function matches() {
  const text = byId("text").value.trim().toLowerCase(), pair = byId("pair").value;
  const minimum = Number(byId("minimum").value) || 0, state = byId("state").value, ofState = STATES[state];
  const onlyNext = byId("next").checked;
  if (text && !lowerCase) lowerCase = rows.text.map((content) => content.toLowerCase());
  return (index) =>
    rows.p[index] >= minimum &&
    (!onlyNext || index in data.next) &&
    (pair === "" || pairOf(index) === Number(pair)) &&
    (state === "all" || ofState(codeOf(index))) &&
    (text === "" || lowerCase[index].includes(text));
}

/** The rank of a row among those to check next; the others come after them. */
const rankOf = (index) => data.next[index]?.[0] ?? size;

const ORDERS = {
  p: null,  // as stored
  doubt: (a, b) => Math.abs(rows.p[a] - 0.5) - Math.abs(rows.p[b] - 0.5),
  next: (a, b) => rankOf(a) - rankOf(b),
  row: (a, b) => rows.row[a] - rows.row[b] || (rows.position ? rows.position[a] - rows.position[b] : 0),
};

/** Apply the filters. The row `index` stays the current one if it is still there. */
function filter(index = null) {
  const test = matches(), order = ORDERS[byId("order").value];
  shown = [];
  for (let row = 0; row < size; row++) if (test(row)) shown.push(row);
  if (order) shown.sort(order);
  current = index === null ? 0 : Math.max(0, shown.indexOf(index));
  resize();
  if (index === null) list.scrollTop = 0;
  draw();
}

// ---------------------------------------------------------------- the list
function resize() {
  space.style.height = `${Math.min(shown.length * ROW_HEIGHT, MAX_HEIGHT)}px`;
}

/** The first visible row, as a fraction. Beyond MAX_HEIGHT a pixel of the scroll bar stands for more than a pixel. */
function firstVisible() {
  if (shown.length * ROW_HEIGHT <= MAX_HEIGHT) return list.scrollTop / ROW_HEIGHT;
  return (list.scrollTop / (MAX_HEIGHT - list.clientHeight)) * (shown.length - list.clientHeight / ROW_HEIGHT);
}

/** Scroll so that a row and its neighbors are visible. */
function scrollToRow(position) {
  const visible = list.clientHeight / ROW_HEIGHT, first = firstVisible(), last = Math.max(shown.length - visible, 0);
  if (position >= first + Math.min(position, 1) && position + 1 <= first + visible - (position + 1 < shown.length)) return;
  const target = Math.min(Math.max(position < first + 1 ? position - 1 : position + 2 - visible, 0), last);
  list.scrollTop = shown.length * ROW_HEIGHT <= MAX_HEIGHT
    ? target * ROW_HEIGHT
    : (target / last) * (MAX_HEIGHT - list.clientHeight);
}

function stateText(index) {
  const decision = decisionOf(index);
  if (!decision) return "";
  return decision.code === KEEP ? "✓ kept" : decision.code === SKIP ? "skipped" : `→ ${nameOf(decision.label)}`;
}

function rowElement(position, top) {
  const index = shown[position], line = create("div", undefined, "row"), labels = create("span", undefined, "labels");
  line.id = `row-${index}`;
  line.dataset.position = position;
  line.setAttribute("role", "option");
  line.setAttribute("aria-selected", position === current);
  line.setAttribute("aria-posinset", position + 1);
  line.setAttribute("aria-setsize", shown.length);
  line.style.top = `${top}px`;
  const same = rows.given[index] === rows.suggested[index];
  labels.append(create("span", nameOf(rows.given[index]), same ? "" : "given"));
  if (!same) labels.append(" → ", create("span", nameOf(rows.suggested[index]), "suggested"));
  if (index in data.next) labels.append(create("span", "check next", "next"));
  const text = create("span", undefined, "text");
  if (rows.image) {
    line.append(picture(index, ""));
    text.textContent = `row ${integer(rows.row[index])}, p(wrong) ${rows.p[index].toFixed(2)}`;
  } else {
    line.append(create("span", rows.p[index].toFixed(3), "p"));
    if (rows.words) text.append(create("mark", wordOf(index)), " … ");
    text.append(rows.text[index].slice(0, 160));
  }
  line.append(labels, create("span", stateText(index), "state"), text);
  return line;
}

function drawList() {
  const first = firstVisible(), start = Math.max(0, Math.floor(first) - 4);
  const end = Math.min(shown.length, Math.ceil(first + list.clientHeight / ROW_HEIGHT) + 4);
  const lines = [];
  for (let position = start; position < end; position++) {
    lines.push(rowElement(position, list.scrollTop + (position - first) * ROW_HEIGHT));
  }
  list.hidden = !shown.length;
  byId("empty").hidden = shown.length > 0;
  space.replaceChildren(...lines);
  const active = byId(`row-${shown[current]}`);
  if (active) list.setAttribute("aria-activedescendant", active.id);
  else list.removeAttribute("aria-activedescendant");
}

// ---------------------------------------------------------------- the card
const wordOf = (index) => rows.words[index][rows.mark[index]];

function picture(index, description) {
  const image = create("img");
  image.addEventListener("load", () => image.classList.toggle("pixels", image.naturalWidth < 100));
  image.src = rows.image[index];
  image.alt = description;
  return image;
}

function drawContent(index) {
  const content = byId("content");
  content.classList.toggle("has-image", Boolean(rows.image));
  if (rows.image) content.replaceChildren(picture(index, `row ${rows.row[index]}`));
  else if (rows.words) {
    content.replaceChildren();
    rows.words[index].forEach((word, place) =>
      content.append(place ? " " : "", place === rows.mark[index] ? create("mark", word) : word));
  } else content.textContent = rows.text[index];
  content.scrollTop = 0;
}

/** The classes with a key: all of a few classes, otherwise those suggested most often; or what the search finds. */
function chipLabels() {
  const text = byId("class-search").value.trim().toLowerCase();
  if (!text) return usualClasses;
  const found = data.names.map((name, label) => label).filter((label) => nameOf(label).toLowerCase().includes(text));
  const rank = (label) => (nameOf(label).toLowerCase() === text ? 0 : nameOf(label).toLowerCase().startsWith(text) ? 1 : 2);
  return found.sort((a, b) => rank(a) - rank(b) || a - b).slice(0, MOST_CHIPS);
}

let usualClasses = data.names.map((name, label) => label);
if (searchable) {
  const counts = new Array(usualClasses.length).fill(0);
  rows.suggested.forEach((label) => counts[label]++);
  usualClasses = usualClasses.sort((a, b) => counts[b] - counts[a] || a - b).slice(0, MOST_CHIPS);
}

function drawCard() {
  const index = shown[current], none = index === undefined, decision = none ? undefined : decisionOf(index);
  const chips = none ? [] : chipLabels();
  byId("card").querySelectorAll("button, #class-search").forEach((node) => (node.disabled = none));
  byId("search-label").hidden = !searchable;
  byId("chips").replaceChildren(...chips.map((label, place) => {
    const button = create("button", undefined, "plain");
    button.type = "button";
    button.append(create("kbd", chipKeys[place]), create("span", nameOf(label)));
    button.setAttribute("aria-pressed", decision?.label === label);
    button.addEventListener("click", (event) => choose(event, OTHER, label));
    return button;
  }));
  byId("reason").hidden = none || !(index in data.next);
  if (none) {
    byId("place").replaceChildren();
    byId("labels").textContent = "Nothing to review";
    byId("content").replaceChildren();
    byId("keep").firstElementChild.textContent = "Keep";
    byId("take").firstElementChild.textContent = "Take the suggestion";
    return;
  }
  const given = rows.given[index], suggested = rows.suggested[index], same = given === suggested;
  const word = rows.position ? `, word ${integer(rows.position[index])}` : "";
  byId("place").replaceChildren(
    create("span", `row ${integer(rows.row[index])}${word}`),
    create("span", `${integer(current + 1)} of ${integer(shown.length)}`),
    create("span", `p(wrong) ${rows.p[index].toFixed(3)}`));
  byId("labels").replaceChildren(
    create("small", "given"), create("span", nameOf(given), same ? "" : "given"),
    create("small", same ? "no other label is more probable" : "suggested"),
    create("span", same ? "" : nameOf(suggested), "suggested"));
  if (index in data.next) byId("reason").textContent = `Suggested to check next: ${data.next[index][1]}`;
  drawContent(index);
  byId("keep").firstElementChild.textContent = `Keep ${nameOf(given)}`;
  byId("take").firstElementChild.textContent = same ? "No suggestion" : `Take ${nameOf(suggested)}`;
  byId("take").disabled = same;
  byId("keep").setAttribute("aria-pressed", decision?.code === KEEP);
  byId("take").setAttribute("aria-pressed", decision?.code === SUGGESTED);
  byId("skip").setAttribute("aria-pressed", decision?.code === SKIP);
}

function drawProgress() {
  const counts = [0, 0, 0, 0, 0];
  decisions.forEach((decision) => counts[decision.code]++);
  const done = counts[KEEP] + counts[SUGGESTED] + counts[OTHER], total = Math.max(size, decisions.size);
  byId("counts").textContent = `${integer(done)} of ${integer(total)} decided: ${integer(counts[KEEP])} kept, `
    + `${integer(done - counts[KEEP])} changed; ${integer(counts[SKIP])} skipped`;
  byId("progress").setAttribute("aria-valuemax", Math.max(total, 1));
  byId("progress").setAttribute("aria-valuenow", done);
  byId("progress").firstElementChild.style.width = `${(100 * done) / Math.max(total, 1)}%`;
  byId("undo").disabled = !steps.length;
  byId("count").textContent = `${integer(shown.length)} of ${integer(size)} match`;
}

function draw() {
  if (shown.length) scrollToRow(current);
  drawList();
  drawCard();
  drawProgress();
}

// ---------------------------------------------------------------- actions
function move(step) {
  current = Math.min(Math.max(current + step, 0), Math.max(shown.length - 1, 0));
  draw();
}

function nextOpen() {
  for (let step = 1; step <= shown.length; step++) {
    const position = (current + step) % shown.length;
    if (!codeOf(shown[position])) {
      current = position;
      return draw();
    }
  }
  return tell("No undecided row matches the filters.");
}

/** Decide on the current row and go to the next one. */
function choose(event, code, label) {
  const index = shown[current];
  if (index === undefined || (code === SUGGESTED && rows.given[index] === rows.suggested[index])) return;
  tell("");
  decide(index, code, label);
  byId("class-search").value = "";
  if (!matches()(index)) shown.splice(current, 1);  // the next row takes its place
  else current++;
  current = Math.max(0, Math.min(current, shown.length - 1));
  resize();
  draw();
  // After a click with the mouse or in the search, keys act on the list again, not on the clicked button.
  if (event?.detail > 0 || document.activeElement === byId("class-search") || document.activeElement === document.body) {
    list.focus({ preventScroll: true });
  }
}

const keepLabel = (event) => choose(event, KEEP, rows.given[shown[current]]);
const takeSuggestion = (event) => choose(event, SUGGESTED, rows.suggested[shown[current]]);
const skipRow = (event) => choose(event, SKIP, null);

function undo() {
  const key = undoStep();
  if (key === null) return;
  tell("Undone.");
  let index = 0;
  while (index < size && keyOf(index) !== key) index++;
  filter(index < size ? index : null);
}

function choosePair(given, suggested) {
  const pair = given * data.names.length + suggested, select = byId("pair");
  if (![...select.options].some((option) => option.value === String(pair))) select.append(pairOption(pair, 0));
  select.value = pair;
  filter();
  byId("review-title").scrollIntoView();
}

const KEYS = {
  k: keepLabel, s: takeSuggestion, Enter: takeSuggestion, x: skipRow, u: undo, n: nextOpen,
  j: () => move(1), ArrowDown: () => move(1), p: () => move(-1), ArrowUp: () => move(-1),
  PageDown: () => move(Math.floor(list.clientHeight / ROW_HEIGHT)), PageUp: () => move(-Math.floor(list.clientHeight / ROW_HEIGHT)),
  Home: () => move(-size), End: () => move(size),
  c: () => (searchable ? byId("class-search") : byId("chips").firstElementChild)?.focus(),
  "/": () => byId("text").focus(),
};

document.addEventListener("keydown", (event) => {
  const target = event.target, key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const typing = target.matches("input, select, textarea"), control = event.ctrlKey || event.metaKey;
  if (control && key === "s") {
    event.preventDefault();
    saveFile();
  } else if (control && key === "z" && !typing) {
    event.preventDefault();
    undo();
  } else if (key === "Escape") {
    byId("class-search").value = "";
    list.focus({ preventScroll: true });
    drawCard();
  } else if (target.id === "class-search" && key === "Enter") {
    event.preventDefault();
    const label = target.value.trim() ? chipLabels()[0] : undefined;
    if (label === undefined) tell("No class has this name.");
    else choose(event, OTHER, label);
  } else if (!typing && !control && !event.altKey) {
    if (key === "Enter" && target.matches("button, a, summary")) return;  // it activates the element
    const place = chipKeys.indexOf(key), label = place >= 0 ? chipLabels()[place] : undefined;
    const action = label !== undefined ? () => choose(event, OTHER, label) : KEYS[key];
    if (!action) return;
    event.preventDefault();
    action(event);
  }
});

list.addEventListener("scroll", () => requestAnimationFrame(drawList), { passive: true });
list.addEventListener("click", (event) => {
  const line = event.target.closest(".row");
  if (!line) return;
  current = Number(line.dataset.position);
  draw();
});
["pair", "state", "order", "next"].forEach((id) => byId(id).addEventListener("change", () => filter()));
["text", "minimum"].forEach((id) => byId(id).addEventListener("input", () => filter()));
byId("clear").addEventListener("click", () => {
  byId("text").value = byId("pair").value = "";
  byId("minimum").value = "0";
  byId("state").value = "all";
  byId("next").checked = false;
  filter();
});
byId("keep").addEventListener("click", keepLabel);
byId("take").addEventListener("click", takeSuggestion);
byId("skip").addEventListener("click", skipRow);
byId("undo").addEventListener("click", undo);
byId("save").addEventListener("click", saveFile);
byId("load").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (file) await loadFile(file);
  event.target.value = "";
  filter(shown[current]);
});
byId("class-search").addEventListener("input", drawCard);
window.addEventListener("resize", drawList);
window.addEventListener("storage", (event) => {  // decisions made in another tab
  if (event.key !== storageKey) return;
  restore();
  filter(shown[current]);
});
window.addEventListener("pagehide", () => timer && keep());
window.addEventListener("beforeunload", (event) => !stored && unsaved && event.preventDefault());

// On narrow screens the filters and the keys are folded away.
const wide = window.matchMedia("(min-width: 60rem)");
const fold = () => (byId("filters").open = byId("keys").open = wide.matches);
wide.addEventListener("change", fold);
fold();
drawMatrix(choosePair);
drawClasses();
drawSources();
if (!Object.keys(data.next).length) {
  byId("next-filter").hidden = true;
  byId("order").querySelector("[value=next]").remove();
}
byId("text-filter").hidden = !rows.text.some((text) => text);
fillPairs();
const restored = restore();
filter();
if (restored) {
  tell(`${integer(restored)} decisions from your last visit.`);
  if (shown.some((index) => !codeOf(index)) && codeOf(shown[current])) nextOpen();
}
list.focus({ preventScroll: true });
