"use strict";
// The page's samples: listed, filtered, and read as text or token by token. Model text becomes text nodes, never markup.

const { vocabulary, samples } = JSON.parse(document.getElementById("data").textContent);
const [TEXT, STRUCTURAL, UNKNOWN] = [0, 1, 2];
const ANY_BROKEN = "any-broken", NONE_BROKEN = "none-broken", ANY_REMARK = "any-remark";
const at = (id) => document.getElementById(id);
const state = { shown: [], sample: -1, view: "text", token: -1 };

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

const narrow = matchMedia("(max-width: 760px)"); // as in the style
const count = (n) => n.toLocaleString("en");
const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;

// --- What a sequence of tokens says -------------------------------------------------------------------------------

/** Numbers of a sequence's tokens in the vocabulary. They are LEB128 in base64. */
function numbers(sequence) {
  if (sequence.numbers) return sequence.numbers;
  const bytes = atob(sequence.tokens);
  const found = [];
  for (let i = 0, value = 0, shift = 0; i < bytes.length; i++) {
    const byte = bytes.charCodeAt(i);
    value |= (byte & 127) << shift;
    shift += 7;
    if (byte < 128) {
      found.push(value);
      value = shift = 0;
    }
  }
  sequence.whole = new Map(sequence.completed ?? []);
  return (sequence.numbers = found);
}

const ids = (sequence) => numbers(sequence).map((n) => vocabulary[n][0]);

function textOf(sequence, index) {
  return sequence.whole.get(index) ?? vocabulary[sequence.numbers[index]][2];
}

/** A section's text as [kind, text, index] pieces; each structural token is a piece of its own. */
function pieces(sequence, section, start, end) {
  if (sequence.pieces) return sequence.pieces[section];
  const all = numbers(sequence);
  const made = [];
  for (let i = start; i < end; i++) {
    const kind = vocabulary[all[i]][1];
    const last = made.at(-1);
    if (kind === TEXT && last && last[0] === TEXT) last[1].push(textOf(sequence, i));
    else made.push([kind, [textOf(sequence, i)], i]);
  }
  return made.map(([kind, texts, index]) => [kind, texts.join(""), index]);
}

function wholeText(sample) {
  if (sample.text === undefined) {
    sample.text = sample.spans
      .flatMap(([, start, end], section) => pieces(sample.output, section, start, end))
      .map((piece) => piece[1])
      .join("");
    sample.searched = (sample.id + "\n" + sample.text).toLowerCase();
  }
  return sample.text;
}

// --- What laws say of samples: some are broken, some only remark ------------------------------------------------------

for (const sample of samples) {
  const laws = (error) => [...new Set(sample.findings.filter((f) => f.error === error).map((f) => f.law))];
  sample.breaks = laws(true);
  sample.remarks = laws(false).filter((law) => !sample.breaks.includes(law));
}

// --- The list and its filters ---------------------------------------------------------------------------------------

const filters = {
  stratum: at("filter-stratum"),
  finish: at("filter-finish"),
  law: at("filter-law"),
  text: at("filter-text"),
};

function fillFilters() {
  const fill = (select, entries) => select.append(...entries.map(([value, text]) => make("option", { value }, text)));
  const counted = (values) => {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
    return [...counts].map(([value, n]) => [value, `${value} (${n})`]);
  };
  fill(filters.stratum, [["", "all"], ...counted(samples.map((s) => s.stratum))]);
  fill(filters.finish, [["", "all"], ...counted(samples.map((s) => s.finish ?? "none"))]);
  const laws = (how, of) => counted(samples.flatMap(of)).sort().map(([law, text]) => [`${how} ${law}`, `${how} ${text}`]);
  fill(filters.law, [
    ["", "all"],
    [ANY_BROKEN, "any broken"],
    [NONE_BROKEN, "none broken"],
    [ANY_REMARK, "any remark"],
    ...laws("breaks", (s) => s.breaks),
    ...laws("remark of", (s) => s.remarks),
  ]);
}

function lawMatches(sample, law) {
  if (law === ANY_BROKEN) return sample.breaks.length > 0;
  if (law === NONE_BROKEN) return sample.breaks.length === 0;
  if (law === ANY_REMARK) return sample.remarks.length > 0;
  return sample.breaks.some((l) => law === `breaks ${l}`) || sample.remarks.some((l) => law === `remark of ${l}`);
}

function matches(sample) {
  const law = filters.law.value;
  if (filters.stratum.value && sample.stratum !== filters.stratum.value) return false;
  if (filters.finish.value && (sample.finish ?? "none") !== filters.finish.value) return false;
  if (law && !lawMatches(sample, law)) return false;
  const asked = filters.text.value.trim().toLowerCase();
  if (!asked) return true;
  wholeText(sample);
  return sample.searched.includes(asked);
}

function applyFilters() {
  state.shown = samples.map((_, number) => number).filter((number) => matches(samples[number]));
  for (const item of at("list").children) item.hidden = !state.shown.includes(Number(item.dataset.sample));
  at("filter-count").textContent = `${state.shown.length} of ${samples.length}`;
  if (!state.shown.includes(state.sample)) show(state.shown[0] ?? -1);
}

function badges(sample) {
  const badge = (text, kind) => make("span", { class: `badge ${kind}` }, text);
  const made = [badge(sample.stratum, "stratum")];
  if (sample.finish !== "stop") made.push(badge(sample.finish ?? "no finish type", "odd"));
  if (sample.quarantined) made.push(badge("quarantined", "bad"));
  else if (sample.breaks.length) made.push(badge(`breaks ${plural(sample.breaks.length, "law")}`, "bad"));
  if (sample.remarks.length) made.push(badge(plural(sample.remarks.length, "remark"), "odd"));
  return made;
}

function fillList() {
  at("list").append(
    ...samples.map((sample, number) =>
      make(
        "li",
        { "data-sample": number },
        make(
          "button",
          { type: "button", onclick: () => choose(number) },
          make("span", { class: "name" }, sample.id),
          make("span", { class: "length" }, count(sample.length)),
          make("span", { class: "badges" }, ...badges(sample)),
        ),
      ),
    ),
  );
}

/** On a narrow page the sample stands below the list, out of sight. */
function choose(number) {
  show(number);
  if (narrow.matches) at("sample").scrollIntoView();
}

// --- One sample -----------------------------------------------------------------------------------------------------

function show(number, { view = state.view, token = -1 } = {}) {
  state.sample = number;
  state.view = view;
  hideTip();
  for (const item of at("list").children) {
    const current = Number(item.dataset.sample) === number;
    item.firstChild.setAttribute("aria-current", current);
    if (current) keepVisible(item);
  }
  const article = at("sample");
  if (number < 0) {
    const why = samples.length ? "No sample passes the filters." : "There is no output.";
    article.replaceChildren(make("p", { class: "note" }, why));
    return;
  }
  const sample = samples[number];
  article.replaceChildren(heading(sample), findings(sample), tools(sample), prompt(sample), body(sample));
  state.token = -1;
  if (token >= 0) select(token, { scroll: true });
}

/** Scrolls the list alone, and only as far as needed. */
function keepVisible(item) {
  const list = at("list");
  const top = item.offsetTop - list.offsetTop;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + item.offsetHeight > list.scrollTop + list.clientHeight)
    list.scrollTop = top + item.offsetHeight - list.clientHeight;
}

function heading(sample) {
  const said = [
    plural(sample.length, "token"),
    sample.prompt ? `prompt ${count(numbers(sample.prompt).length)}` : "prompt not recorded",
    ...(sample.reasoningEnd >= 0 ? [`reasoning ends @${sample.reasoningEnd}`] : sample.reasoningOpened ? ["no end of reasoning"] : []),
    `finish ${sample.finish ?? "not known"}`,
  ];
  return make(
    "header",
    {},
    make("h3", { id: "sample-id" }, sample.id),
    make("p", { class: "said" }, ...badges(sample), ...said.map((text) => make("span", {}, text))),
  );
}

function findings(sample) {
  const list = make("ul", { class: "findings", id: "findings" });
  for (const finding of sample.findings) {
    const item = make(
      "li",
      { class: finding.error ? "error" : "remark" },
      make("code", {}, finding.law),
      ` ${finding.detail}`,
    );
    if (finding.index !== null && finding.index >= 0 && finding.index < sample.length)
      item.append(" ", make("button", { type: "button", onclick: () => goTo(finding.index) }, `show @${finding.index}`));
    list.append(item);
  }
  if (sample.quarantined) list.append(make("li", { class: "error" }, "Quarantined: never exported to training samples."));
  return list;
}

function tools(sample) {
  const view = (name, text) =>
    make("button", { type: "button", id: `view-${name}`, "aria-pressed": state.view === name, onclick: () => setView(name) }, text);
  const jump = make("input", { id: "jump", type: "number", min: 0, max: sample.length - 1, placeholder: "index", "aria-label": "Go to index" });
  jump.addEventListener("keydown", (event) => {
    if (event.key === "Enter") goTo(jump.valueAsNumber);
  });
  const copier = (id, text, what) => make("button", { type: "button", id, onclick: () => copy(what(), text) }, `Copy ${text}`);
  const ends = sample.reasoningEnd >= 0 ? [make("button", { type: "button", id: "go-reasoning-end", onclick: () => goTo(sample.reasoningEnd) }, "End of reasoning")] : [];
  return make(
    "div",
    { class: "tools" },
    make("span", { class: "switch", role: "group", "aria-label": "View" }, view("text", "Text"), view("tokens", "Tokens")),
    make("label", {}, "Go to ", jump),
    ...ends,
    copier("copy-output", "output ids", () => JSON.stringify(ids(sample.output))),
    ...(sample.prompt ? [copier("copy-prompt", "prompt ids", () => JSON.stringify(ids(sample.prompt)))] : []),
    copier("copy-id", "sample id", () => (sample.exactId === undefined ? sample.id : decodeURIComponent(sample.exactId))),
  );
}

function prompt(sample) {
  if (!sample.prompt) return make("details", { id: "prompt" }, make("summary", {}, "Prompt, not recorded"));
  const length = numbers(sample.prompt).length;
  const details = make("details", { id: "prompt" }, make("summary", {}, `Prompt, ${plural(length, "token")}`));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) {
      const spans = [["prompt", 0, length]];
      details.append(...(state.view === "text" ? asText(sample.prompt, spans) : asTokens(sample.prompt, spans, 0)));
    }
  });
  return details;
}

function body(sample) {
  const made = make("div", { id: "body", class: state.view });
  if (state.view === "tokens") {
    made.tabIndex = 0;
    made.setAttribute("role", "group");
    made.setAttribute("aria-label", "Output tokens; the arrow keys walk through them");
    made.append(legend(), ...asTokens(sample.output, sample.spans, 1));
    made.addEventListener("focus", () => state.token < 0 && sample.length && select(0));
    made.addEventListener("blur", hideTip);
  } else {
    made.append(...asText(sample.output, sample.spans));
  }
  return made;
}

function legend() {
  const entry = (kind, text) => make("span", { class: kind }, text);
  return make(
    "p",
    { class: "legend" },
    entry("mask0", "prompt, loss mask 0"),
    entry("reasoning", "reasoning, 1"),
    entry("answer", "answer, 1"),
    entry("tools-part", "tool calls, 1"),
    entry("stop", "stop, 1"),
  );
}

function part(kind, start, end, content) {
  const label = make("h4", {}, kind, make("small", {}, ` ${end - start === 1 ? start : `${start}\u2013${end - 1}`} \u00b7 ${plural(end - start, "token")}`));
  return make("section", { class: `part ${kind === "tools" ? "tools-part" : kind}`, "data-part": kind }, label, content);
}

function asText(sequence, spans) {
  const end = samples[state.sample].output === sequence ? samples[state.sample].reasoningEnd : -1;
  numbers(sequence);
  return spans.map(([kind, start, stop], section) => {
    const text = make("pre", {});
    for (const [kindOf, value, index] of pieces(sequence, section, start, stop)) {
      if (kindOf === TEXT) text.append(value);
      else text.append(make("span", { class: kindOf === UNKNOWN ? "unknown" : index === end ? "structural end" : "structural" }, value));
    }
    return part(kind, start, stop, text);
  });
}

function asTokens(sequence, spans, mask) {
  const all = numbers(sequence);
  const end = mask ? samples[state.sample].reasoningEnd : -1;
  return spans.map(([kind, start, stop]) => {
    const text = make("pre", { class: mask ? "mask1" : "mask0" });
    const made = document.createDocumentFragment();
    for (let i = start; i < stop; i++) {
      const [, kindOf, , bytes] = vocabulary[all[i]];
      const token = document.createElement("span");
      token.className = kindOf === STRUCTURAL ? (i === end ? "t structural end" : "t structural") : kindOf === UNKNOWN ? "t unknown" : "t";
      token.dataset.i = i;
      const shown = textOf(sequence, i) || bytes || "\u2205";
      if (bytes) token.classList.add("bytes");
      token.textContent = shown.replaceAll("\n", "\u21b5\n").replaceAll("\t", "\u21e5\t");
      made.append(token);
    }
    text.append(made);
    text.sequence = sequence;
    return part(kind, start, stop, text);
  });
}

function setView(view) {
  if (view !== state.view) show(state.sample, { view });
}

function goTo(index) {
  const { length } = samples[state.sample];
  if (Number.isInteger(index) && index >= 0 && index < length) show(state.sample, { view: "tokens", token: index });
  else say(length ? `No such index: there are 0 to ${length - 1}, whole numbers.` : "This output has no tokens.");
}

// --- One token ------------------------------------------------------------------------------------------------------

const tokenAt = (index) => at("body").querySelector(`[data-i="${index}"]`);

function select(index, { scroll = false } = {}) {
  tokenAt(state.token)?.classList.remove("current");
  state.token = index;
  const token = tokenAt(index);
  token.classList.add("current");
  if (scroll) {
    at("body").focus({ preventScroll: true });
    token.scrollIntoView({ block: "center" });
  } else token.scrollIntoView({ block: "nearest" });
  showTip(token);
}

function showTip(token) {
  const sequence = token.parentNode.sequence;
  const index = Number(token.dataset.i);
  const [id, kind, , bytes] = vocabulary[numbers(sequence)[index]];
  const text = textOf(sequence, index);
  const mask = token.closest(".mask0") ? 0 : 1;
  const tip = at("tip");
  const rows = [
    ["index", String(index)],
    ["id", String(id)],
    ["text", bytes ? (text ? `${bytes} completes ${text}` : `${bytes}, a part of a character`) : JSON.stringify(text)],
    ["section", token.closest("[data-part]").dataset.part + (kind === STRUCTURAL ? ", structural" : kind === UNKNOWN ? ", not in the vocabulary" : "")],
    ["loss mask", String(mask)],
  ];
  tip.replaceChildren(...rows.flatMap(([name, value]) => [make("span", { class: "name" }, name), make("span", { "data-tip": name }, value)]));
  tip.hidden = false;
  const place = token.getClientRects()[0] ?? token.getBoundingClientRect();
  const left = Math.max(8, Math.min(place.left, document.documentElement.clientWidth - tip.offsetWidth - 8));
  const above = place.top - tip.offsetHeight - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 8 ? above : place.bottom + 8}px`;
}

function hideTip() {
  at("tip").hidden = true;
}

at("sample").addEventListener("mousemove", (event) => {
  // Browsers also say so when something scrolls under a pointer that rests; that is nobody's wish.
  if (!event.movementX && !event.movementY) return;
  const token = event.target.closest(".t");
  if (token) showTip(token);
  else hideTip();
});
at("sample").addEventListener("mouseleave", hideTip);
at("sample").addEventListener("click", (event) => {
  const token = event.target.closest(".t");
  if (!token) return;
  if (token.closest("#body")) select(Number(token.dataset.i));
  else showTip(token);
});
addEventListener("scroll", () => !document.activeElement.matches("#body") && hideTip(), { passive: true });

// --- Copying, theme, keys -------------------------------------------------------------------------------------------

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Some browsers give a page from disk no clipboard; the old way still works there.
    const area = make("textarea", { value: text, class: "away" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`Copied ${what}.`);
}

let silence;
function say(text) {
  at("said").textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => (at("said").textContent = ""), 2500);
}

const dark = matchMedia("(prefers-color-scheme: dark)");
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("eagle3-theme", theme);
  } catch {
    // A browser that stores nothing for pages from disk starts with the system's theme every time.
  }
}
function toggleTheme() {
  const now = document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  setTheme(now === "dark" ? "light" : "dark");
}
try {
  const stored = localStorage.getItem("eagle3-theme");
  if (stored) document.documentElement.dataset.theme = stored;
} catch {
  // As above.
}

function step(by) {
  const place = state.shown.indexOf(state.sample) + by;
  if (place >= 0 && place < state.shown.length) show(state.shown[place]);
}

const keys = {
  j: () => step(1),
  k: () => step(-1),
  t: () => setView(state.view === "text" ? "tokens" : "text"),
  p: () => (at("prompt").open = !at("prompt").open),
  g: () => at("jump").focus(),
  c: () => at("copy-output").click(),
  d: toggleTheme,
  "/": () => filters.text.focus(),
  "?": () => at("help").showModal(),
  ArrowRight: () => walk(1),
  ArrowLeft: () => walk(-1),
};

function walk(by) {
  if (state.view !== "tokens" || state.sample < 0) return;
  const index = state.token + by;
  if (index >= 0 && index < samples[state.sample].length) select(index);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || at("help").open) return;
  if (event.key === "Escape") {
    hideTip();
    document.activeElement.blur();
  } else if (!event.target.matches("input, select, textarea") && keys[event.key]) {
    if (state.sample < 0 && "tpgc".includes(event.key)) return;
    event.preventDefault();
    keys[event.key]();
  }
});

at("theme").addEventListener("click", toggleTheme);
at("help-open").addEventListener("click", () => at("help").showModal());
for (const select of [filters.stratum, filters.finish, filters.law]) select.addEventListener("change", applyFilters);
filters.text.addEventListener("input", applyFilters);
at("filter-reset").addEventListener("click", () => {
  for (const filter of Object.values(filters)) filter.value = "";
  applyFilters();
});

for (const row of document.querySelectorAll("[data-law]")) {
  for (const [how, what, laws] of [["breaks", "broken", "breaks"], ["remark of", "remarked on", "remarks"]]) {
    const found = samples.filter((sample) => sample[laws].includes(row.dataset.law)).length;
    if (!found) continue;
    const law = `${how} ${row.dataset.law}`;
    const button = make("button", { type: "button", class: "show-law", "data-filter": law }, `show ${count(found)} ${what}`);
    button.addEventListener("click", () => {
      for (const filter of Object.values(filters)) filter.value = "";
      filters.law.value = law;
      applyFilters();
      show(state.shown[0]);
      at("samples").scrollIntoView();
    });
    row.lastElementChild.append(button, " ");
  }
}

fillFilters();
fillList();
applyFilters();
