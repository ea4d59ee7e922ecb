// Decisions: in memory, in the browser's storage, and in a file. Labels are class numbers here and names in the file.
const rows = data.rows, source = data.review, size = rows.p.length;
const FORMAT = "glc_hf decisions", FORMAT_VERSION = 1, FILE_NAME = "decisions.json";
const CODES = ["", "keep", "suggested", "class", "skip"];
const KEEP = 1, SUGGESTED = 2, OTHER = 3, SKIP = 4;
const storageKey = `glc_hf decisions ${source.key}`;
const decisions = new Map();  // "row" or "row:word" → { code, label, given, check }
const steps = [];  // one entry per step: a list of [key, decision before the step]
const keyOf = (index) => (rows.position ? `${rows.row[index]}:${rows.position[index]}` : String(rows.row[index]));
const decisionOf = (index) => decisions.get(keyOf(index));
const codeOf = (index) => decisionOf(index)?.code ?? 0;
let fileHandle = null, unsaved = 0, stored = true, timer = 0, writing = Promise.resolve();

function tell(message, problem = false) {
  byId("status").textContent = message;
  byId("status").classList.toggle("problem", problem);
}

/** Set or remove (`null`) decisions: pairs of key and decision. */
function change(pairs, undoable = true) {
  const before = pairs.map(([key]) => [key, decisions.get(key)]);
  pairs.forEach(([key, decision]) => (decision ? decisions.set(key, decision) : decisions.delete(key)));
  if (undoable) steps.push(before);
  unsaved += pairs.length;
  clearTimeout(timer);
  timer = setTimeout(keep, 150);
}

function decide(index, code, label) {
  const given = rows.given[index];
  if (code !== SKIP) code = label === given ? KEEP : label === rows.suggested[index] ? SUGGESTED : OTHER;
  change([[keyOf(index), { code, label: code === SKIP ? null : label, given, check: rows.check[index] }]]);
}

/** Undo the last step. Returns the key of its first row. */
function undoStep() {
  const step = steps.pop();
  if (!step) return null;
  change(step, false);
  return step[0]?.[0] ?? null;
}

// ---------------------------------------------------------------- the browser's storage
function keep() {
  clearTimeout(timer);
  timer = 0;
  try {
    const lines = [...decisions].map(([key, d]) => [key, d.code, d.label, d.given, d.check]);
    localStorage.setItem(storageKey, JSON.stringify(lines));
    stored = true;
  } catch (error) {
    stored = false;
    tell("The browser can't store these decisions (its storage is full or switched off): save them to a file before you close "
      + "the page.", true);
  }
  if (fileHandle) writeToHandle();
}

function restore() {
  let lines;
  try {
    lines = JSON.parse(localStorage.getItem(storageKey) ?? "[]");
    decisions.clear();
    lines.forEach(([key, code, label, given, check]) => decisions.set(key, { code, label, given, check }));
  } catch (error) {
    stored = false;
    tell("The browser's storage can't be read: load your decisions file, if you have one, and save decisions to a file.", true);
  }
  return decisions.size;
}

// ---------------------------------------------------------------- the file
function fileText() {
  const label = (value) => (value === null ? null : source.named ? nameOf(value) : value);
  const entries = [...decisions].map(([key, d]) => {
    const [row, word] = key.split(":").map(Number);
    const place = word === undefined ? { row } : { row, word };
    return { ...place, decision: CODES[d.code], label: label(d.label), given_label: label(d.given), check: d.check };
  }).sort((a, b) => a.row - b.row || (a.word ?? 0) - (b.word ?? 0));
  const head = {
    format: FORMAT, format_version: FORMAT_VERSION, saved: new Date().toISOString(), dataset: source.dataset,
    label_names: source.named ? data.names : null, num_labels: data.names.length, num_decisions: entries.length,
  };
  const lines = entries.map((entry) => "    " + JSON.stringify(entry));
  return JSON.stringify(head, null, 2).slice(0, -2) + ',\n  "decisions": [\n' + lines.join(",\n") + "\n  ]\n}\n";
}

/** Write to the chosen file, one write after the other, so that an older one never comes last. */
function writeToHandle() {
  writing = writing.then(writeOnce);
  return writing;
}

async function writeOnce() {
  if (!fileHandle) return;
  try {
    const count = unsaved, writer = await fileHandle.createWritable();
    await writer.write(fileText());
    await writer.close();
    unsaved -= count;
    tell(`Saved to ${fileHandle.name}. Further decisions are saved to it too.`);
  } catch (error) {
    fileHandle = null;
    tell(`The file can't be written (${error.message}): save the decisions again.`, true);
  }
}

async function saveFile() {
  if (fileHandle) return writeToHandle();
  if (window.showSaveFilePicker) {
    try {
      const types = [{ description: "Decisions", accept: { "application/json": [".json"] } }];
      fileHandle = await window.showSaveFilePicker({ suggestedName: FILE_NAME, types });
      return writeToHandle();
    } catch (error) {
      if (error.name === "AbortError") return undefined;  // the dialog was closed; other errors: download instead
    }
  }
  const link = create("a"), url = URL.createObjectURL(new Blob([fileText()], { type: "application/json" }));
  link.href = url;
  link.download = FILE_NAME;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  unsaved = 0;
  tell(`${integer(decisions.size)} decisions saved as ${FILE_NAME} in your downloads folder.`);
  return undefined;
}

/** Return the decisions in the text of a file; raise an error that says what is wrong. */
function readFileText(text) {
  let content;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw new Error("it is cut short, or it is not a decisions file");
  }
  if (content?.format !== FORMAT || !Array.isArray(content.decisions)) throw new Error("it is not a decisions file");
  if (content.format_version > FORMAT_VERSION) throw new Error("it was saved by a later version of glc_hf");
  if (content.dataset?.fingerprint !== source.dataset.fingerprint) throw new Error("it belongs to another dataset");
  if (content.num_decisions !== content.decisions.length) throw new Error("some of its decisions are missing");
  const numbers = new Map(data.names.map((name, label) => [source.named ? name : label, label]));
  return content.decisions.map((entry) => {
    const place = entry.word === undefined ? `row ${entry.row}` : `row ${entry.row}, word ${entry.word}`;
    const code = CODES.indexOf(entry.decision);
    if (!(code > 0)) throw new Error(`${place}: there is no decision “${entry.decision}”`);
    if (!(entry.row >= 0 && entry.row < source.dataset.rows)) throw new Error(`${place}: there is no such row`);
    if (code !== SKIP && !numbers.has(entry.label)) throw new Error(`${place}: there is no class “${entry.label}”`);
    const key = entry.word === undefined ? String(entry.row) : `${entry.row}:${entry.word}`;
    const label = code === SKIP ? null : numbers.get(entry.label);
    return [key, { code, label, given: numbers.get(entry.given_label) ?? null, check: entry.check ?? null }];
  });
}

async function loadFile(file) {
  try {
    const pairs = readFileText(await file.text());
    change(pairs);
    tell(`${integer(pairs.length)} decisions loaded from ${file.name}.`);
  } catch (error) {
    tell(`${file.name} was not loaded: ${error.message}.`, true);
  }
}
