// The report's page. Everything that a policy, a judge or a data set wrote reaches the document as text nodes only:
// `el` never parses markup, and the page's policy forbids other scripts, images and connections.
"use strict";
(() => {

// ---------------------------------------------------------------- elements and texts

const el = (tag, options = {}, ...children) => {
  const svg = ["svg", "g", "rect", "line", "path", "circle", "text", "title"].includes(tag) && options.svg !== false;
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else if (key !== "svg" && value !== undefined && value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  return add(node, ...children);
};
const add = (node, ...children) => {
  // one by one: a text may have more pieces than a call takes arguments
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
};
const $ = (id) => document.getElementById(id);

// Controls, bidirectional marks, zero-width and tag characters, lone surrogates, fillers: what a reader cannot see.
const HIDDEN = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u200B-\u200F\u2028-\u202E\u2060-\u206F\u2800\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFFB\u{1D173}-\u{1D17A}\u{E0000}-\u{E0FFF}\p{Cf}\p{Default_Ignorable_Code_Point}]|\p{Surrogate}/gu;
const codepoint = (c) => "U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
const isEmojiStyle = (text, at, c) => c === "\uFE0F" && at > 0 && /\p{Extended_Pictographic}$/u.test(text.slice(Math.max(0, at - 2), at));
// A plain string with hidden characters named, for cells, titles and labels.
const plain = (text) => String(text).replace(HIDDEN, (c, at, whole) => (isEmojiStyle(whole, at, c) ? c : `⟨${codepoint(c)}⟩`));
// Nodes for *text*: hidden characters as labelled boxes, what was searched for marked.
const visible = (text, needle = "") => {
  const nodes = [];
  let marks = 0;
  const words = (part) => {
    let at = 0;
    const lower = needle && part.toLowerCase();
    while (needle && marks < 1000) {
      marks++;
      const found = lower.length === part.length ? lower.indexOf(needle, at) : -1;
      if (found < 0) break;
      nodes.push(part.slice(at, found), el("mark", {}, part.slice(found, found + needle.length)));
      at = found + needle.length;
    }
    nodes.push(part.slice(at));
  };
  let from = 0, run = null; // equal ones in a row stand as one box with their number
  const close = () => {
    if (run) nodes.push(el("span", { class: "hidden-char", title: "not visible" }, codepoint(run.character) + (run.times > 1 ? ` × ${run.times}` : "")));
    run = null;
  };
  for (const match of text.matchAll(HIDDEN)) {
    if (isEmojiStyle(text, match.index, match[0])) continue;
    if (run?.character === match[0] && match.index === from) run.times++;
    else {
      close();
      if (match.index > from) words(text.slice(from, match.index));
      run = { character: match[0], times: 1 };
    }
    from = match.index + match[0].length;
  }
  close();
  words(text.slice(from));
  return nodes;
};
const known = (x) => x !== null && x !== undefined && !Number.isNaN(x);
const fixed = (x, digits = 3) => (known(x) ? (Math.abs(x) >= 1e5 ? x.toExponential(2) : x.toFixed(digits)) : "–");
const short = (x) => (known(x) ? String(+x.toPrecision(4)) : "–");
const count = (n) => n.toLocaleString("en");
const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");
const dollars = (x) => (known(x) ? `${x && x < 0.01 ? +x.toPrecision(2) : x.toFixed(2)} US dollars` : "–");
const mean = (xs) => (xs.length ? xs.reduce((a, b) => a + b, 0) / xs.length : NaN);
const deviation = (xs) => { const m = mean(xs); return xs.length ? Math.sqrt(mean(xs.map((x) => (x - m) ** 2))) : NaN; };

// ---------------------------------------------------------------- the ledger's columns

const STATES = ["graded", "abstained", "skipped", "failed", "absent"];
const store = {
  generation: null, rows: 0, facts: { hidden: [], specs: [], usage: {}, judges: [] },
  numbers: {}, codes: {}, id: [], preview: [], names: {}, graders: new Map(),
  hidden: new Set(), marks: new Map(), marking: Promise.resolve(), signals: [], costs: { graders: {}, steps: [] }, comparison: null,
};
// Another ledger stands where the page's was: no row number means what it meant.
const forget = (generation) => {
  Object.assign(store, { generation, rows: 0, numbers: {}, codes: {}, id: [], preview: [], names: {}, graders: new Map(), hidden: new Set(), signals: [], costs: { graders: {}, steps: [] }, comparison: null });
  Object.assign(state, { rows: [], row: null, groupKey: null, hits: null });
  Object.assign(state.filter, { error: "", only: null, group: null });
  pane = looking = null;
};
const fit = (list, length, fill) => { while (list.length < length) list.push(fill); list.length = length; };

// Blocks come in order; the last one comes again when a live ledger has grown.
const addBlock = (block) => {
  const { start } = block;
  const extend = (list, more) => { list.length = Math.min(list.length, start); for (const x of more) list.push(x); };
  for (const [key, more] of Object.entries(block.names)) {
    const names = (store.names[key] ??= []);
    names.length = Math.min(names.length, block.known[key]);
    for (const name of more) names.push(name);
  }
  for (const [key, more] of Object.entries(block.numbers)) extend((store.numbers[key] ??= []), more);
  for (const [key, more] of Object.entries(block.codes)) extend((store.codes[key] ??= []), more);
  extend(store.id, block.id);
  extend(store.preview, block.preview);
  store.rows = start + block.rows;
  for (const [name, [score, state, error]] of Object.entries(block.graders)) {
    if (!store.graders.has(name)) store.graders.set(name, { score: [], state: [], error: [] });
    const column = store.graders.get(name);
    fit(column.score, start, null); fit(column.state, start, 4); fit(column.error, start, -1);
    extend(column.score, score); extend(column.state, state); extend(column.error, error);
  }
  for (const column of store.graders.values()) {
    fit(column.score, store.rows, null); fit(column.state, store.rows, 4); fit(column.error, store.rows, -1);
  }
};
const setFacts = (facts) => { store.facts = facts; store.hidden = new Set(facts.hidden); };
const setMarks = (marks) => { store.marks = new Map(marks.map((m) => [`${m.run} ${m.index}`, m])); };
const name = (key, row) => store.names[key][store.codes[key][row]];
const keyOf = (row) => `${name("run", row)} ${store.numbers.index[row]}`;
const groupKey = (row) => store.codes.group[row];
const markOf = (row) => store.marks.get(keyOf(row));
// The rows that count, and these by group: made once for what the store holds now.
let counted = {};
const counting = () => {
  const { rows, hidden, generation } = store;
  if (counted.rows !== rows || counted.hidden !== hidden || counted.generation !== generation) {
    counted = { rows, hidden, generation, shown: [], groups: new Map() };
    for (let row = 0; row < rows; row++) {
      if (hidden.has(row)) continue;
      counted.shown.push(row);
      const key = groupKey(row), members = counted.groups.get(key);
      if (members) members.push(row); else counted.groups.set(key, [row]);
    }
  }
  return counted;
};
const shownRows = () => counting().shown;
const groups = () => counting().groups;
const lengths = () => store.numbers[store.facts.length === "tokens" ? "response_tokens" : "response_chars"] ?? [];
const finished = (row) => name("status", row) !== "unfinished";
const scoredReward = (row) => (name("status", row) === "scored" ? store.numbers.reward[row] : null);
// ---------------------------------------------------------------- where rollouts come from: this file, or a server

const unpack = async (id) => {
  const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
};

const fileSource = {
  live: false,
  chunks: new Map(),
  places: new Map(),
  async open() {
    const data = await unpack("data");
    setFacts(data.facts); setMarks(data.marks);
    store.signals = data.signals;
    store.costs = data.costs;
    store.comparison = data.comparison ?? null;
    store.audits = data.audits ?? null;
    data.blocks.forEach(addBlock);
    data.chunks.forEach((rows, chunk) => rows.forEach((row, at) => this.places.set(row, [chunk, at])));
    await this.merge();
    this.others = new BroadcastChannel(`judgekit marks ${location.pathname}`);
    this.others.onmessage = async () => { if (await this.merge()) refreshed(); };
  },
  // Takes over what was marked in this browser, also by another page of this report; true where that was news.
  async merge() {
    let own = [];
    try {
      own = await (await this.kept("readonly")).call("getAll", IDBKeyRange.bound([location.pathname], [location.pathname, []]));
    } catch { /* no storage: there is nothing to take over */ }
    const before = JSON.stringify([...store.marks]);
    for (const { key, mark } of own) if (mark.mark || mark.note) store.marks.set(key, mark); else store.marks.delete(key);
    return before !== JSON.stringify([...store.marks]);
  },
  chunk(number) {
    if (!this.chunks.has(number)) this.chunks.set(number, unpack(`chunk-${number}`));
    return this.chunks.get(number);
  },
  async rollout(row) {
    const place = this.places.get(row);
    return place ? (await this.chunk(place[0]))[place[1]] : null;
  },
  async search(given) {
    const found = [], text = given.toLowerCase();
    const holds = (value) => (typeof value === "string" ? value.toLowerCase().includes(text)
      : value && typeof value === "object" && Object.entries(value).some(([key, item]) => !["type", "kind", "status", "spec"].includes(key) && holds(item)));
    for (const [row, [chunk, at]] of this.places) if (holds((await this.chunk(chunk))[at])) found.push(row);
    return found;
  },
  // A file cannot write beside its ledger: marks stay in this browser until they are exported.
  async mark(row, mark) {
    const key = keyOf(row);
    try {
      await (await this.kept("readwrite")).call("put", { key, mark }, [location.pathname, key]);
      this.others.postMessage(null);
    } catch { say("Marks are lost when this page is closed: export them."); }
  },
  // The browser's table of marks. Not localStorage: Chromium loses what it holds in some reloads of a file's page.
  async kept(mode) {
    const done = (asked) => new Promise((resolve, reject) => { asked.onsuccess = () => resolve(asked.result); asked.onerror = () => reject(asked.error); });
    this.database ??= await (() => {
      const asked = indexedDB.open("judgekit", 1);
      asked.onupgradeneeded = () => asked.result.createObjectStore("marks");
      return done(asked);
    })();
    const marks = this.database.transaction("marks", mode).objectStore("marks");
    return { call: (name, ...given) => done(marks[name](...given)) };
  },
};

const serverSource = {
  live: true,
  async fetch(path, options = {}) {
    const { generation } = store;
    const reply = await fetch(path, { ...options, headers: { Authorization: `Bearer ${location.hash.slice(1)}`, ...(generation === null ? {} : { Generation: generation }) } });
    if (!reply.ok) throw new Error(await reply.text());
    const answer = await reply.json();
    if (generation !== store.generation) throw new Error("the ledger was replaced and is being read again");
    return answer;
  },
  async open() { await this.refresh(); },
  // Reads what the server has and the page has not; true where there was something.
  async refresh() {
    await store.marking.catch(() => null);
    const { marking } = store, now = await this.fetch("/api/state");
    if (now.generation !== store.generation) {
      const first = store.generation === null;
      forget(now.generation);
      this.told = false;
      setFacts(now.facts);
      if (!first) { heading(); show(tabs().includes(state.tab) ? state.tab : "Overview"); }
    }
    const grown = now.facts.rows > store.rows || now.facts.hidden.length !== store.hidden.size;
    for (let number = Math.floor(store.rows / 5000); number < now.blocks; number++) {
      if (store.rows === now.facts.rows) break;
      addBlock(await this.fetch(`/api/block/${number}`));
      if (number % 4 === 0 && number < now.blocks - 1) { setFacts(now.facts); refreshed(); }
    }
    setFacts(now.facts);
    if (marking === store.marking) setMarks(now.marks); // else these are the marks of before
    this.caughtUp = now.caught_up;
    say(now.problem || now.caught_up ? now.problem : `Reading the ledger: ${share(now.read, now.size)} of ${(now.size / 1e6).toFixed(0)} MB`);
    const audited = now.audited !== store.audited;
    if (audited) { store.audited = now.audited; store.audits = await this.fetch("/api/audits"); }
    if (now.caught_up && (grown || !this.told)) {
      this.told = true;
      store.signals = await this.fetch("/api/signals");
      store.costs = await this.fetch("/api/costs");
      if (now.compares) store.comparison = await this.fetch("/api/comparison");
      return true;
    }
    return grown || audited;
  },
  rollout(row) { return this.fetch(`/api/rollout/${row}`); },
  search(text, from) { return this.fetch(`/api/search?text=${encodeURIComponent(text)}&from=${from}`); },
  mark(row, mark) { return this.fetch("/api/mark", { method: "POST", body: JSON.stringify({ row, mark: mark.mark, note: mark.note }) }); },
};
const source = $("data") ? fileSource : serverSource;
const say = (text) => { $("notice").hidden = !text; $("notice").textContent = text; };

// ---------------------------------------------------------------- figures

const ticks = (low, high, wanted = 4) => {
  const raw = (high - low) / wanted || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw);
  const found = [];
  for (let i = 0; i <= 2 * wanted; i++) { // counted: beyond 2^53 a sum may not grow
    const x = (Math.ceil(low / step) + i) * step;
    if (x > high + step * 1e-6) break;
    found.push(Math.abs(x) < step * 1e-6 ? 0 : x);
  }
  return found;
};
const W = 320, H = 130, LEFT = 40, BOTTOM = 18;
const span = (values) => {
  let low = Infinity, high = -Infinity;
  for (const x of values) { if (x < low) low = x; if (x > high) high = x; }
  const around = Math.max(0.5, Math.abs(low) / 10);
  return low === high ? [low - around, high + around] : [low, high];
};
const frame = (label, [x0, x1], [y0, y1]) => {
  const x = (v) => LEFT + ((v - x0) / (x1 - x0)) * (W - LEFT - 6);
  const y = (v) => H - ((v - y0) / (y1 - y0)) * (H - 6);
  const picture = el("svg", { viewBox: `0 0 ${W} ${H + BOTTOM}`, role: "img", "aria-label": label },
    ticks(y0, y1, 3).map((v) => [
      el("line", { class: "axis", x1: LEFT, x2: W - 6, y1: y(v), y2: y(v) }),
      el("text", { x: LEFT - 5, y: y(v) + 3, "text-anchor": "end" }, short(v))]),
    ticks(x0, x1).map((v) => el("text", { x: x(v), y: H + 13, "text-anchor": "middle" }, short(v))));
  return { picture, x, y };
};
const captioned = (picture, ...words) => el("figure", {}, el("figcaption", {}, ...words), picture);

const histogram = (label, values, onpick = null, bins = 20) => {
  if (!values.length) return captioned(el("p", { class: "empty" }, "none"), label);
  const [low, high] = span(values);
  if (new Set(values.slice(0, 1000)).size < 2 && Math.min(...span(values)) === low && values.every((v) => v === values[0])) bins = 1;
  const counts = Array(bins).fill(0);
  for (const v of values) counts[Math.min(bins - 1, Math.floor(((v - low) / (high - low)) * bins))]++;
  const middle = mean(values);
  const { picture, x, y } = frame(`${label}: mean ${fixed(middle)} of ${values.length}`, [low, high], [0, Math.max(...counts)]);
  counts.forEach((n, i) => {
    const from = low + (i * (high - low)) / bins, to = low + ((i + 1) * (high - low)) / bins;
    if (!n) return;
    const pick = () => onpick?.(from, to);
    picture.append(el("rect", {
      class: "bar", x: x(from) + 0.5, width: Math.max(1, x(to) - x(from) - 1), y: y(n), height: H - y(n),
      tabindex: onpick ? 0 : undefined, role: onpick ? "button" : undefined,
      "aria-label": `${short(from)} to ${short(to)}: ${n}`, onclick: pick, onkeydown: (e) => e.key === "Enter" && pick(),
    }, el("title", {}, `${short(from)} … ${short(to)}: ${count(n)}`)));
  });
  picture.append(el("line", { class: "mean", x1: x(middle), x2: x(middle), y1: 2, y2: H }));
  return captioned(picture, el("b", {}, label), ` · mean ${fixed(middle)}, std ${fixed(deviation(values))}, n ${count(values.length)}`);
};

// *points*: [x, value, half-width of the band].
const curve = (label, points) => {
  points = points.filter(([, v]) => known(v));
  if (points.length < 2) return null;
  const values = points.flatMap(([, v, band]) => (known(band) ? [v - band, v + band] : [v]));
  const { picture, x, y } = frame(`${label} over training steps`, span(points.map(([s]) => s)), span(values));
  const path = (at) => points.map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(at(p)).toFixed(1)}`).join("");
  if (points.some(([, , band]) => band)) {
    const back = [...points].reverse().map((p) => `L${x(p[0]).toFixed(1)} ${y(p[1] - (p[2] || 0)).toFixed(1)}`).join("");
    picture.append(el("path", { class: "band", d: path((p) => p[1] + (p[2] || 0)) + back + "Z" }));
  }
  picture.append(el("path", { class: "curve", d: path((p) => p[1]) }));
  points.forEach(([s, v]) => points.length <= 120 && picture.append(el("circle", { class: "dot", cx: x(s), cy: y(v), r: 3 }, el("title", {}, `step ${s}: ${short(v)}`))));
  return captioned(picture, el("b", {}, label), ` · ${short(points[0][1])} → ${short(points.at(-1)[1])}`);
};

const scatter = (label, rows, xs, ys, onpick) => {
  rows = rows.filter((row) => known(xs[row]) && known(ys[row]));
  if (rows.length < 2) return null;
  const step = Math.ceil(rows.length / 2000);
  const { picture, x, y } = frame(label, span(rows.map((r) => xs[r])), span(rows.map((r) => ys[r])));
  for (let i = 0; i < rows.length; i += step) {
    const row = rows[i];
    picture.append(el("circle", { class: "dot", cx: x(xs[row]), cy: y(ys[row]), r: 2.5, onclick: () => onpick(row) }, el("title", {}, `${short(xs[row])}, ${short(ys[row])}`)));
  }
  return captioned(picture, el("b", {}, label), step > 1 ? ` · every ${step}th of ${count(rows.length)} rollouts` : "");
};

const dataTable = (heads, lines, words = []) => el("div", { class: "wide" }, el("table", {},
  el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", { scope: "col", class: words.includes(i) ? "words" : undefined }, head)))),
  el("tbody", {}, lines.map((line) => el("tr", {}, line.map((cell, i) => el("td", { class: words.includes(i) ? "words" : undefined }, cell)))))));

// ---------------------------------------------------------------- overview

const overview = (main) => {
  const rows = shownRows();
  const scores = (column, from = rows) => from.map((row) => column.score[row]).filter(known);
  const raised = store.signals.filter((signal) => signal.raised), quiet = store.signals.filter((signal) => !signal.raised);
  const listed = (found) => el("ul", { class: "signals" }, found.map((signal) => el("li", { class: signal.raised ? "raised" : undefined },
    plain(signal.text), " ", el("small", {}, `limit ${short(signal.limit)}`))));
  add(main,
    el("h2", {}, "Signals"),
    raised.length ? listed(raised) : el("p", {}, store.signals.length ? "No signal is raised." : "Too few rollouts for any: they need 64 rewards or 16 groups."),
    quiet.length ? el("details", {}, el("summary", {}, `${quiet.length} more within their limits`), listed(quiet)) : null,
    ...(store.audits ? audits(store.audits) : []),
    el("h2", {}, "Graders"),
    dataTable(["grader", "graded", "mean", "std", "abstained", "skipped", "failed", "causes"], [...store.graders].map(([grader, column]) => {
      const kinds = [0, 0, 0, 0, 0], causes = new Map();
      for (const row of rows) {
        kinds[column.state[row]]++;
        if (column.state[row] === 3) causes.set(column.error[row], (causes.get(column.error[row]) ?? 0) + 1);
      }
      const found = scores(column);
      return [plain(grader), count(kinds[0]), fixed(mean(found)), fixed(deviation(found)), ...[1, 2, 3].map((i) => count(kinds[i])),
        [...causes].sort((a, b) => b[1] - a[1]).map(([code, n]) => el("button", { type: "button", onclick: () => toRollouts({ grader, error: String(code) }) },
          plain(`${store.names.error[code][0]} (${store.names.error[code][1]}) × ${count(n)}`)))];
    }), [7]));
  if (Object.keys(store.costs.graders).length) add(main, el("h2", {}, "What the judges used"), costTable());
  const toReward = (from, to) => toRollouts({ status: "scored", rewardMin: from, rewardMax: to });
  add(main, el("h2", {}, "Scores"), el("div", { class: "figures" },
    histogram("reward of the scored", rows.map(scoredReward).filter(known), toReward),
    [...store.graders].map(([grader, column]) => histogram(plain(grader), scores(column)))));
  const curves = overSteps(rows);
  add(main, el("h2", {}, "Over training steps"), curves.length
    ? el("div", { class: "figures" }, curves)
    : el("p", { class: "empty" }, "The ledger names no steps, or one only. Hosts tag them; in Python: run(rollouts, tags={\"step\": …})."));
  add(main, el("h2", {}, "What the reward goes with"), el("div", { class: "figures" },
    scatter(`raw reward against length in ${store.facts.length}`, rows, lengths(), store.numbers.raw, openRollout),
    scatter("raw reward against seconds", rows, store.numbers.seconds, store.numbers.raw, openRollout)));
  add(main, ...againstRules(rows), ...calibration(rows), ...trees());
};

// What a second grader found: the curve with its interval and its line, the alarm, and the best paid of what it calls wrong.
const audits = (found) => {
  const points = found.steps.map((point, at) => [typeof point.step === "number" ? point.step : at, point]).filter(([, point]) => known(point.paid_wrong));
  const rowOf = new Map(shownRows().map((row) => [keyOf(row), row]));
  const text = (value) => el("span", { class: "visible" }, visible(value.length > 300 ? `${value.slice(0, 300)}…` : value));
  return [el("h2", {}, "Audits"),
    el("ul", { class: "signals" }, el("li", { class: found.alarm ? "raised" : undefined }, plain(found.in_words))),
    points.length > 1 ? el("div", { class: "figures" }, auditCurve(found, points)) : el("p", { class: "empty" }, "A curve takes two audited steps."),
    found.examples.length ? dataTable(["step", plain(found.watch), plain(found.grader), "best paid, though the audit says wrong"], found.examples.map((one) => {
      const row = rowOf.get(`${one.run} ${one.index}`);
      return [plain(one.step), fixed(one.watch.score), fixed(one.grader.score), row === undefined ? text(one.response)
        : el("button", { type: "button", onclick: () => openRollout(row) }, text(one.response || "(empty)"))];
    }), [3]) : null];
};
const auditCurve = (found, points) => {
  const highest = Math.max(0.05, ...points.map(([, point]) => Math.max(point.paid_wrong, point.high ?? 0, point.line ?? 0)));
  const { picture, x, y } = frame("paid, though the audit says wrong, over training steps", span(points.map(([step]) => step)), [0, Math.min(1, highest)]);
  const path = (kept, at) => kept.map(([step, point], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(at(point)).toFixed(1)}`).join("");
  const banded = points.filter(([, point]) => known(point.low) && known(point.high)), lined = points.filter(([, point]) => known(point.line));
  if (banded.length > 1) {
    picture.append(el("path", { class: "band", d: `${path(banded, (p) => Math.min(p.high, highest))}${path([...banded].reverse(), (p) => p.low).replace("M", "L")}Z` }));
  }
  if (lined.length > 1) picture.append(el("path", { class: "bound", d: path(lined, (p) => p.line) }));
  picture.append(el("path", { class: "curve", d: path(points, (p) => p.paid_wrong) }));
  points.filter(([, point]) => point.alarm).forEach(([step, point]) => picture.append(
    el("circle", { class: "alarm", cx: x(step), cy: y(point.paid_wrong), r: 4 }, el("title", {}, `alarm at step ${step}`))));
  const last = points.at(-1)[1];
  return captioned(picture, el("b", {}, "paid, though wrong"), ` · ${fixed(last.paid_wrong, 2)} in the last audits, with its interval; broken: what it may be (${fixed(last.line, 2)})`);
};

// Tokens, and money where the price of all of them is known.
const costTable = () => {
  const graders = Object.entries(store.costs.graders), lines = graders.length > 1 ? [...graders, ["in all", store.costs]] : graders;
  const priced = graders.some(([, used]) => known(used.usd));
  return [dataTable(["grader", "calls", "prompt tokens", "of them cached", "written", ...(priced ? ["cost"] : [])], lines.map(([grader, used]) =>
    [plain(grader), count(used.calls), count(used.prompt_tokens), count(used.cached_tokens), count(used.completion_tokens), ...(priced ? [dollars(used.usd)] : [])])),
  graders.every(([, used]) => known(used.usd)) ? null : el("p", {}, el("small", {}, "A cost is shown where the price is known: layers: {price: …} of the judge in reward.yaml, or --price-in and --price-out."))];
};

const overSteps = (rows) => {
  const steps = new Map();
  for (const row of rows) {
    const step = store.numbers.step[row];
    if (!known(step)) continue;
    if (!steps.has(step)) steps.set(step, []);
    steps.get(step).push(row);
  }
  const ordered = [...steps].sort((a, b) => a[0] - b[0]);
  if (ordered.length < 2) return [];
  const per = (label, figure) => curve(label, ordered.map(([step, members]) => [step, ...[figure(members)].flat()]));
  const spread = (values) => [mean(values), deviation(values)];
  const flat = (members) => {
    const found = new Map();
    for (const row of members) {
      if (!known(store.numbers.raw[row])) continue;
      const key = groupKey(row);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(store.numbers.raw[row]);
    }
    const several = [...found.values()].filter((values) => values.length > 1);
    return several.length ? several.filter((values) => values.every((v) => v === values[0])).length / several.length : NaN;
  };
  const of = (key) => (members) => mean(members.map((row) => store.numbers[key][row]).filter(known));
  return [
    per("reward", (members) => spread(members.map(scoredReward).filter(known))),
    ...[...store.graders].map(([grader, column]) => per(plain(grader), (members) => spread(members.map((row) => column.score[row]).filter(known)))),
    per("share of rewards missing", (members) => { const ended = members.filter(finished); return ended.filter((row) => name("status", row) !== "scored").length / ended.length; }),
    ...[...store.graders].filter(([, column]) => rows.some((row) => column.state[row] === 3)).map(([grader, column]) =>
      per(`${plain(grader)}: share failed`, (members) => members.filter((row) => column.state[row] === 3).length / members.length)),
    per("share of groups with equal rewards", flat),
    per(`response length in ${store.facts.length}`, (members) => mean(members.map((row) => lengths()[row]).filter(known))),
    store.facts.usage.calls ? per("judge tokens per rollout", of("tokens")) : null,
    curve("judge tokens in a step", store.costs.steps.map((used) => [used.step, used.prompt_tokens + used.completion_tokens])),
    curve("US dollars in a step", store.costs.steps.map((used) => [used.step, used.usd])),
    ...Object.keys(store.costs.graders).length < 2 ? [] : Object.keys(store.costs.graders).map((grader) =>
      curve(`${plain(grader)}: US dollars in a step`, store.costs.steps.map((used) => [used.step, used.graders[grader]?.usd]))),
    per("seconds of grading per rollout", of("seconds")),
  ].filter(Boolean);
};

// The middle of a grader's range, or of the scores seen where the range is open.
const middleOf = (grader) => {
  const range = store.facts.specs.map((spec) => spec.graders[grader]?.range).find(Boolean) ?? [];
  const [low, high] = range.every((x) => typeof x === "number") && range.length ? range : span(store.graders.get(grader).score.filter(known));
  return (low + high) / 2;
};
const againstRules = (rows) => {
  const judges = store.facts.judges ?? [], rules = [...store.graders.keys()].filter((g) => !judges.includes(g));
  if (!judges.length || !rules.length) return [];
  return [el("h2", {}, "Judge against rule"), el("p", {}, "High and low: above and below the middle of the grader's range. The cells open the rollouts."),
    ...judges.flatMap((judge) => rules.map((rule) => {
      const a = store.graders.get(judge), b = store.graders.get(rule), high = middleOf(judge), top = middleOf(rule);
      const both = rows.filter((row) => known(a.score[row]) && known(b.score[row]));
      const cell = (judgeHigh, ruleHigh) => {
        const found = both.filter((row) => a.score[row] > high === judgeHigh && b.score[row] > top === ruleHigh);
        return el("button", { type: "button", onclick: () => toRollouts({ only: { rows: new Set(found), words: `${judge} ${judgeHigh ? "high" : "low"}, ${rule} ${ruleHigh ? "high" : "low"}` } }) },
          `${count(found.length)} (${share(found.length, both.length)})`);
      };
      return both.length ? dataTable([plain(`${judge} \\ ${rule}`), "low", "high"], [["high", cell(true, false), cell(true, true)], ["low", cell(false, false), cell(false, true)]]) : null;
    }))];
};

// A person's marks as labels: does a grader put the good ones above the bad ones?
const calibration = (rows) => {
  const marked = rows.filter((row) => markOf(row)?.mark);
  if (!marked.length) return [];
  const lines = [...store.graders].map(([grader, column]) => {
    const of = (mark) => marked.filter((row) => markOf(row).mark === mark).map((row) => column.score[row]).filter(known);
    const good = of("good"), bad = of("bad");
    let above = 0;
    for (const g of good) for (const b of bad) above += g > b ? 1 : g === b ? 0.5 : 0;
    return [plain(grader), count(good.length), fixed(mean(good)), count(bad.length), fixed(mean(bad)), good.length && bad.length ? fixed(above / (good.length * bad.length)) : "–"];
  });
  return [el("h2", {}, "Graders against your marks"),
    dataTable(["grader", "good", "mean", "bad", "mean", "AUC"], lines),
    el("p", {}, "AUC: how often a rollout that you marked good has the higher score than one marked bad; 0.5 is chance.")];
};

const trees = () => [el("h2", {}, "How it was graded"), ...store.facts.specs.map((spec) => el("div", {},
  el("pre", {}, visible(JSON.stringify(spec.reward, null, 2))),
  el("p", {}, plain(`transform ${spec.transform}; missing rewards: ${JSON.stringify(spec.missing_reward)}; `),
    plain(Object.entries(spec.graders).map(([g, { version, range }]) => `${g} ${version} ${JSON.stringify(range)}`).join(", ")))))];

// ---------------------------------------------------------------- rollouts: filters, table, detail

const noFilter = () => ({ text: "", status: "", source: "", grader: "", kind: "", error: "", mark: "", phase: "", stepMin: null, stepMax: null, rewardMin: null, rewardMax: null, group: null, only: null });
const state = { tab: "Overview", filter: noFilter(), sort: { key: null, down: true }, rows: [], row: null, groupKey: null, hits: null };

const matches = () => {
  const f = state.filter, hits = state.hits?.rows;
  const between = (x, low, high) => (low === null || (known(x) && x >= low)) && (high === null || (known(x) && x <= high));
  const column = f.grader && store.graders.get(f.grader);
  return shownRows().filter((row) =>
    (!hits || hits.has(row)) && (!f.only || f.only.rows.has(row)) && (f.group === null || groupKey(row) === f.group)
    && (!f.status || name("status", row) === f.status) && (!f.source || name("source", row) === f.source) && (!f.phase || name("phase", row) === f.phase)
    && between(store.numbers.step[row], f.stepMin, f.stepMax) && between(store.numbers.reward[row], f.rewardMin, f.rewardMax)
    && (!f.kind || (column ? STATES[column.state[row]] === f.kind : [...store.graders.values()].some((c) => STATES[c.state[row]] === f.kind)))
    && (!f.error || (column ? String(column.error[row]) === f.error : [...store.graders.values()].some((c) => String(c.error[row]) === f.error)))
    && (!f.mark || (f.mark === "any" ? markOf(row) : markOf(row)?.mark === f.mark)));
};

const columns = () => [
  { key: "reward", label: "reward", width: "72px", number: true, value: (row) => store.numbers.reward[row], text: (row) => fixed(store.numbers.reward[row]) },
  { key: "status", label: "status", width: "82px", value: (row) => name("status", row), cell: (row) => (name("status", row) === "scored" ? el("span", { class: "quiet" }, "scored") : el("span", { class: `chip ${name("status", row)}` }, name("status", row))) },
  ...[...store.graders].map(([grader, column]) => ({
    key: `grader ${grader}`, label: plain(grader), width: "84px", number: true, optional: true, value: (row) => column.score[row],
    cell: (row) => (column.state[row] === 0 ? fixed(column.score[row])
      : el("span", { class: `chip ${STATES[column.state[row]]}` }, column.state[row] === 3 ? plain(store.names.error[column.error[row]]?.[0] ?? "failed") : STATES[column.state[row]])),
  })),
  { key: "length", label: store.facts.length ?? "length", width: "76px", number: true, optional: true, wide: true, value: (row) => lengths()[row], text: (row) => short(lengths()[row]) },
  store.numbers.step?.some(known) && { key: "step", label: "step", width: "52px", number: true, optional: true, wide: true, value: (row) => store.numbers.step[row], text: (row) => short(store.numbers.step[row]) },
  store.names.source?.length > 1 && { key: "source", label: "source", width: "90px", optional: true, wide: true, value: (row) => name("source", row) },
  { key: "group", label: "group", width: "90px", optional: true, wide: true, value: (row) => name("group", row).id },
  { key: "preview", label: "response", width: "minmax(160px, 1fr)", value: (row) => store.preview[row] ?? "", quiet: true },
].filter(Boolean);

const sorted = (rows, all) => {
  const column = all.find((c) => c.key === state.sort.key);
  if (!column) return rows;
  const sign = state.sort.down ? -1 : 1;
  const values = new Map(rows.map((row) => [row, column.value(row)]));
  // what has no value comes last, whichever way
  return rows.sort((a, b) => {
    const x = values.get(a), y = values.get(b);
    if (!known(x) || !known(y)) return known(x) ? -1 : known(y) ? 1 : a - b;
    return (x < y ? -1 : x > y ? 1 : 0) * sign || a - b;
  });
};

// A table of any length: only the lines in view are in the document.
const grid = ({ label, columns: all, lines, selected, onselect, sort, onsort }) => {
  const HEIGHT = 30;
  const narrow = matchMedia("(max-width: 760px)").matches;
  const cols = narrow ? all.filter((c) => !c.optional) : all;
  const template = { gridTemplateColumns: cols.map((c) => c.width).join(" ") };
  const body = el("div", { style: { height: `${lines.length * HEIGHT}px`, position: "relative" } });
  const box = el("div", { class: "grid", role: "grid", tabindex: 0, "aria-label": label, "aria-rowcount": lines.length + 1 },
    el("div", { class: "head", role: "row", style: template }, cols.map((c) => el("button", {
      type: "button", role: "columnheader", class: c.number ? "number" : undefined, title: c.label,
      "aria-sort": sort?.key === c.key ? (sort.down ? "descending" : "ascending") : "none", onclick: () => onsort(c.key),
    }, c.label + (sort?.key === c.key ? (sort.down ? " ↓" : " ↑") : "")))), body);
  if (!lines.length) body.append(el("p", { class: "empty" }, "No rollout fits these filters."));
  const draw = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - 10), last = Math.min(lines.length, first + Math.ceil((box.clientHeight || 800) / HEIGHT) + 22);
    if (lines.length) body.replaceChildren(...lines.slice(first, last).map((line, i) => el("div", {
      class: "row", role: "row", "aria-rowindex": first + i + 2, "aria-selected": line === selected() ? "true" : "false", "data-line": first + i,
      style: { ...template, top: `${(first + i) * HEIGHT}px` }, onclick: () => { onselect(line); draw(); },
    }, cols.map((c) => el("div", { class: `cell ${c.number ? "number" : ""} ${c.quiet ? "quiet" : ""}`, role: "gridcell" },
      c.cell ? c.cell(line) : c.text ? c.text(line) : plain(c.value(line) ?? ""))))));
  };
  const move = (by) => {
    const at = lines.indexOf(selected());
    const to = Math.max(0, Math.min(lines.length - 1, at < 0 && Math.abs(by) < 1e6 ? 0 : at + by));
    if (!lines.length) return;
    onselect(lines[to]);
    const top = to * HEIGHT;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + 2 * HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * HEIGHT - box.clientHeight;
    draw();
  };
  box.addEventListener("scroll", draw, { passive: true });
  box.addEventListener("keydown", (e) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[e.key];
    if (by) { e.preventDefault(); move(by); }
  });
  // Scrolls to *top*; without one, to the selected line.
  const place = (top) => {
    const at = lines.indexOf(selected());
    box.scrollTop = top ?? Math.max(0, at * HEIGHT - box.clientHeight / 2);
    draw();
  };
  requestAnimationFrame(draw);
  return { box, draw, move, place, label };
};

let table = null;
let pane = null;
let looking = null;
// Searches all rows, or only those that came since the same was searched for.
const lookFor = async (again = false) => {
  if (again && looking === state.filter.text) return; // which goes on with them
  looking = state.filter.text;
  const { text } = state.filter, wanted = text.trim(), searched = store.rows;
  const before = again && state.hits?.text === text ? state.hits : { rows: [], searched: 0 };
  let found = null;
  try { if (wanted) found = await source.search(wanted, before.searched); } catch (error) { say(String(error.message ?? error)); return; } finally { if (looking === text) looking = null; }
  if (state.filter.text !== text) return;
  state.hits = found && { text, searched, rows: new Set([...before.rows, ...found]) };
  $("main").update?.();
  if (pane && !again) fill(state.row);
  if (found && searched < store.rows) lookFor(true);
};
const rollouts = (main) => {
  main.className = "split";
  const f = state.filter;
  const set = (key, value) => { f[key] = value; f.only = key === "only" ? value : f.only; update(); };
  const select = (key, label, options) => options.length > 1 || f[key]
    ? el("select", { "aria-label": label, class: "more", onchange: (e) => set(key, e.target.value) },
      el("option", { value: "" }, label), options.map(([value, text]) => el("option", { value, selected: f[key] === value }, plain(text))))
    : null;
  const number = (key, label) => el("input", {
    type: "number", step: "any", class: "number more", "aria-label": label, placeholder: label, value: f[key] ?? undefined,
    oninput: (e) => set(key, e.target.value === "" ? null : +e.target.value),
  });
  const listed = (values) => values.map((value) => [value, value]);
  const total = el("output", { "aria-live": "polite" });
  const search = el("input", { type: "search", id: "search", placeholder: "search prompts, responses, reasons   /", "aria-label": "Search", value: f.text, oninput: (e) => searchFor(e.target.value) });
  const bar = el("div", { class: "filters", role: "search" }, search,
    el("button", { type: "button", class: "toggle", onclick: () => bar.classList.toggle("all") }, "filters"),
    select("status", "any status", listed(store.names.status ?? [])),
    select("source", "any source", listed(store.names.source ?? [])),
    select("phase", "any phase", listed(store.names.phase ?? [])),
    select("grader", "any grader", listed([...store.graders.keys()])),
    select("kind", "any grade", listed(STATES.slice(0, 4))),
    select("error", "any failure", (store.names.error ?? []).map(([error, cause], i) => [String(i), `${error} (${cause})`])),
    select("mark", "any mark", [["any", "marked"], ["good", "good"], ["bad", "bad"]]),
    number("rewardMin", "reward ≥"), number("rewardMax", "reward ≤"),
    store.numbers.step?.some(known) ? [number("stepMin", "step ≥"), number("stepMax", "step ≤")] : null,
    el("button", { type: "button", onclick: () => { state.filter = noFilter(); state.hits = null; show("Rollouts"); } }, "clear"),
    el("button", { type: "button", class: "more", onclick: exportCsv }, "CSV"),
    el("button", { type: "button", class: "more", onclick: exportJsonl }, "JSONL"),
    store.marks.size ? el("button", { type: "button", class: "more", onclick: exportMarks }, "marks") : null, total);
  const panes = el("div", { class: "panes" });
  main.replaceChildren(bar, panes);
  const update = () => {
    const all = columns().filter((c) => !(c.wide && state.row !== null));
    state.rows = sorted(matches(), all);
    const before = table?.box, focused = before !== undefined && document.activeElement === before;
    const top = table?.label === "Rollouts" ? table.box.scrollTop : null; // a person may be reading: keep the place
    total.textContent = `${count(state.rows.length)} of ${count(shownRows().length)}`
      + (f.only ? ` · ${plain(f.only.words)}` : "") + (f.group === null ? "" : " · one group");
    table = grid({
      label: "Rollouts", columns: all, lines: state.rows, selected: () => state.row, onselect: (row) => openRollout(row), sort: state.sort,
      onsort: (key) => { state.sort = { key, down: state.sort.key === key ? !state.sort.down : true }; update(); },
    });
    pane = state.row !== null ? (pane ?? el("section", { class: "detail", "aria-label": "Rollout", tabindex: -1 })) : null;
    panes.className = pane ? "panes open" : "panes";
    // an opened rollout is not moved: it would lose its place, and whoever reads it theirs
    if (before?.parentNode === panes) before.replaceWith(table.box); else panes.replaceChildren(table.box);
    if (pane && pane.parentNode !== panes) panes.append(pane);
    for (const other of [...panes.children]) if (other !== table.box && other !== pane) other.remove();
    table.place(top);
    if (focused) table.box.focus({ preventScroll: true });
    if (pane && !pane.firstChild) fill(state.row);
  };
  let timer = null;
  const searchFor = (text) => {
    f.text = text;
    clearTimeout(timer);
    timer = setTimeout(lookFor, 150);
  };
  main.update = update;
  update();
};

const toRollouts = (filter) => { state.filter = { ...noFilter(), ...filter }; state.hits = null; state.row = null; pane = null; show("Rollouts"); };
const openRollout = (row) => {
  const before = state.row;
  state.row = row;
  if (state.tab !== "Rollouts") return show("Rollouts");
  if (before === null || !pane) { pane = null; $("main").update(); } // which fills it
  else fill(row);
};
const closeRollout = () => { state.row = null; pane = null; $("main").update?.(); table?.box.focus(); };

const TURN = ["role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"];
const MEDIA = /^(input_)?(image|audio|video|file)(_url)?$/;
const asJson = (value) => el("pre", {}, visible(JSON.stringify(value, null, 2) ?? "", needle()));
const conversation = (value) => {
  if (typeof value === "string") return el("pre", {}, visible(value, needle()));
  if (!Array.isArray(value)) return el("pre", {}, visible(JSON.stringify(value, null, 2), needle()));
  return value.map((turn) => {
    if (typeof turn === "string") return el("pre", {}, visible(turn, needle()));
    if (!turn || typeof turn !== "object" || typeof turn.role !== "string") return asJson(turn);
    const { role } = turn, rest = Object.fromEntries(Object.entries(turn).filter(([key, item]) => item !== null && (!TURN.includes(key) || (key === "name" && typeof item === "object"))));
    const calls = Array.isArray(turn.tool_calls) ? turn.tool_calls : turn.tool_calls ? [turn.tool_calls] : [];
    const text = (item) => (typeof item === "string" ? el("pre", {}, visible(item, needle())) : asJson(item));
    const parts = Array.isArray(turn.content) ? turn.content : [turn.content];
    return el("div", { class: `turn ${["assistant", "tool"].includes(role) ? role : ""}` }, el("h3", {}, plain(role + (typeof turn.name === "string" ? ` ${turn.name}` : ""))),
      turn.reasoning_content ? el("details", {}, el("summary", {}, "thinking"), text(turn.reasoning_content)) : null,
      parts.filter((part) => part !== null && part !== undefined && part !== "").map((part) => {
        if (typeof part === "string") return el("pre", {}, visible(part, needle()));
        if (typeof part !== "object") return text(String(part));
        const more = Object.keys(part).some((key) => !["type", "text"].includes(key));
        if (typeof part.text === "string" && !more) return text(part.text);
        if (!MEDIA.test(part.type)) return asJson(part);
        const where = part.image_url?.url ?? part.image_url ?? part.image ?? part.input_audio?.data ?? part.video_url?.url ?? part.url;
        if (typeof where !== "string") return asJson(part);
        return el("p", {}, el("span", { class: "chip" }, plain(part.type ?? "part")), ` ${plain(String(where).slice(0, 120))}${String(where).length > 120 ? "…" : ""} (not loaded)`);
      }),
      calls.map((call) => el("div", {}, el("span", { class: "chip" }, `calls ${plain(call?.function?.name ?? "")}`),
        el("pre", {}, visible(typeof call?.function?.arguments === "string" ? call.function.arguments : JSON.stringify(call?.function?.arguments ?? call, null, 2), needle())))),
      Object.keys(rest).length ? asJson(rest) : null,
      turn.tool_call_id ? el("p", {}, el("small", {}, plain(`answers ${turn.tool_call_id}`))) : null);
  });
};
// The reward before its transform, where that is another number.
const rawOf = (row) => { const raw = store.numbers.raw[row]; return known(raw) && raw !== store.numbers.reward[row] ? [el("small", {}, `raw ${fixed(raw, 4)}`)] : []; };
const needle = () => state.filter.text.trim().toLowerCase();

const gradeLines = (grades) => dataTable(["grader", "grade", "why"], Object.entries(grades).map(([grader, grade]) => [
  plain(grader),
  grade.kind === "graded" ? fixed(grade.score) : el("span", { class: `chip ${grade.kind}` }, plain(grade.error ?? grade.kind)),
  grade.kind === "failed" ? visible(`${grade.detail ?? ""} (cause: ${grade.cause ?? "infrastructure"})`, needle()) : grade.kind === "skipped" ? plain(`behind ${grade.gate}`) : visible(grade.reason ?? "", needle()),
]), [2]);

const fill = async (row) => {
  const target = pane;
  if (!target) return;
  let rollout;
  try { rollout = await source.rollout(row); } catch (error) { say(String(error.message ?? error)); return; }
  if (state.row !== row || pane !== target) return;
  const marked = markOf(row);
  const members = groups().get(groupKey(row)) ?? [];
  const button = (mark) => el("button", { type: "button", "data-mark": mark, "aria-pressed": marked?.mark === mark ? "true" : "false", onclick: () => setMark(row, markOf(row)?.mark === mark ? "" : mark) }, mark);
  const section = (title, value) => (value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length) || (typeof value === "object" && !Object.keys(value).length) ? null
    : [el("h3", {}, title), conversation(value)]);
  target.replaceChildren();
  add(target,
    el("div", { class: "bar-top" },
      el("button", { type: "button", onclick: closeRollout, "aria-label": "Close" }, "✕"),
      el("span", { class: "big" }, fixed(store.numbers.reward[row], 4)), ...rawOf(row),
      el("span", { class: `chip ${name("status", row)}` }, name("status", row)),
      members.length > 1 ? el("button", { type: "button", onclick: () => openGroup(groupKey(row)) }, `group of ${members.length}`) : null,
      button("good"), button("bad"),
      el("input", { class: "note", "aria-label": "Note", placeholder: "note", value: marked?.note ?? "", onchange: (e) => setMark(row, markOf(row)?.mark ?? "", e.target.value) })),
    rollout === null ? el("p", { class: "empty" }, "The texts of this rollout are not in this file. ", el("code", {}, `judgekit view ${plain(store.facts.title)}`), " shows all of them.") : [
      rollout.contributions && Object.keys(rollout.contributions).length
        ? el("p", {}, plain(Object.entries(rollout.contributions).filter(([k, v]) => v || k !== "residual").map(([k, v]) => `${k} ${short(v)}`).join(" + ")), known(rollout.raw_reward) ? ` = ${short(rollout.raw_reward)}` : "") : null,
      (rollout.policies ?? []).map((policy) => el("p", {}, plain(policy))),
      gradeLines(rollout.grades),
      rollout.response === undefined ? el("p", { class: "empty" }, "This ledger keeps no texts. Write ", el("code", {}, "ledger: {path: …, texts: true}"), " to see prompts, responses and the judge's prompts here.") : null,
      section("prompt", rollout.prompt),
      section("trajectory", rollout.messages),
      rollout.response === undefined ? null : [el("h3", {}, "response"), rollout.response === "" ? el("p", { class: "empty" }, "empty") : conversation(rollout.response)],
      section("reference", rollout.ground_truth),
      Object.entries(rollout.grades).map(([grader, grade]) => {
        const { prompt, raw, thinking, ...rest } = grade.metadata ?? {};
        return prompt || raw || thinking || Object.keys(rest).length ? el("details", { open: grade.kind === "failed" },
          el("summary", {}, plain(`${grader}: ${raw || prompt ? "what the judge was asked and replied" : "details"}`)),
          section("asked", prompt), section("thought", thinking), section("replied", raw), section("details", Object.keys(rest).length ? JSON.stringify(rest, null, 2) : "")) : null;
      }),
      section("extra", rollout.extra && Object.keys(rollout.extra).length ? JSON.stringify(rollout.extra, null, 2) : ""),
      el("h3", {}, "line"),
      el("p", {}, plain([rollout.id && `id ${rollout.id}`, `run ${rollout.run}`, `row ${rollout.index}`, `group ${name("group", row).id}`, rollout.data_source,
        rollout.finish_reason && `finished by ${rollout.finish_reason}`, `${short(lengths()[row])} ${store.facts.length} long`, `${short(store.numbers.seconds[row])} s`,
        rollout.usage && `${rollout.usage.calls ?? 0} calls, ${store.numbers.tokens[row]} tokens`, rollout.tags && JSON.stringify(rollout.tags)].filter(Boolean).join(" · "))),
    ]);
};

const setMark = async (row, mark, note = markOf(row)?.note ?? "") => {
  const made = { run: name("run", row), index: store.numbers.index[row], id: store.id[row], mark, note };
  const key = keyOf(row), before = store.marks.get(key);
  const put = (one) => (one?.mark || one?.note ? store.marks.set(key, one) : store.marks.delete(key));
  // at once, since what is clicked next builds on it; and written one after the other
  put(made);
  const saved = store.marking.catch(() => null).then(() => source.mark(row, made));
  store.marking = saved;
  try { await saved; } catch (error) {
    if (store.marks.get(key) === made) put(before);
    say(String(error.message ?? error));
    return;
  }
  // nothing else is redrawn: a person may be about to click
  if (state.row === row) pane?.querySelectorAll("[data-mark]").forEach((one) => one.setAttribute("aria-pressed", one.dataset.mark === mark ? "true" : "false"));
};

// ---------------------------------------------------------------- groups: members side by side

const groupSort = { key: "spread", down: true };
const groupLines = () => {
  const all = [...groups()].map(([key, rows]) => {
    const values = rows.map((row) => store.numbers.raw[row]).filter(known);
    return { key, rows, id: name("group", rows[0]).id, prompt: name("group", rows[0]).prompt, size: rows.length, mean: mean(values), spread: deviation(values),
      missing: rows.filter((row) => finished(row) && !known(store.numbers.raw[row])).length, unfinished: rows.filter((row) => !finished(row)).length };
  });
  const sign = groupSort.down ? -1 : 1;
  return all.sort((a, b) => { const x = a[groupSort.key], y = b[groupSort.key]; return !known(x) || !known(y) ? known(x) ? -1 : known(y) ? 1 : 0 : (x < y ? -1 : x > y ? 1 : 0) * sign; });
};
const groupsView = (main) => {
  if (state.groupKey !== null) return members(main);
  main.className = "split";
  const value = (column) => (group) => group[column];
  main.update = () => {
    const all = groupLines(), before = table?.box, focused = before !== undefined && document.activeElement === before, top = before?.scrollTop ?? 0;
    table = grid({
      label: "Groups", lines: all, selected: () => null, onselect: (group) => openGroup(group.key), sort: groupSort,
      onsort: (key) => { groupSort.down = groupSort.key === key ? !groupSort.down : true; groupSort.key = key; main.update(); },
      columns: [
        { key: "id", label: "group", width: "120px", value: value("id") },
        { key: "size", label: "members", width: "80px", number: true, value: value("size"), text: (g) => count(g.size), optional: true },
        { key: "mean", label: "mean raw reward", width: "130px", number: true, value: value("mean"), text: (g) => fixed(g.mean) },
        { key: "spread", label: "std", width: "70px", number: true, value: value("spread"), text: (g) => fixed(g.spread) },
        { key: "missing", label: "missing", width: "70px", number: true, value: value("missing"), text: (g) => count(g.missing), optional: true },
        all.some((g) => g.unfinished) && { key: "unfinished", label: "unfinished", width: "90px", number: true, value: value("unfinished"), text: (g) => count(g.unfinished), optional: true },
        { key: "prompt", label: "prompt", width: "minmax(160px, 1fr)", value: value("prompt"), quiet: true },
      ].filter(Boolean),
    });
    main.replaceChildren(el("div", { class: "panes" }, table.box));
    table.place(top);
    if (focused) table.box.focus({ preventScroll: true });
  };
  main.update();
};
const MEMBERS = 60; // side by side: of more, these, evenly over their rewards
const openGroup = (key) => { state.groupKey = key; show("Groups"); };
const members = async (main) => {
  main.className = "";
  const all = groupLines();
  const at = all.findIndex((group) => group.key === state.groupKey);
  const group = all[at];
  if (!group) { state.groupKey = null; return show("Groups"); }
  const go = main.step = (by) => openGroup(all[(at + by + all.length) % all.length].key);
  // its other members have come
  main.update = () => { if ((groups().get(group.key) ?? []).length !== group.size && !String(getSelection())) members(main); };
  const every = [...group.rows].sort((a, b) => (store.numbers.raw[b] ?? -Infinity) - (store.numbers.raw[a] ?? -Infinity));
  const rows = every.length > MEMBERS ? Array.from({ length: MEMBERS }, (_, i) => every[Math.round((i * (every.length - 1)) / (MEMBERS - 1))]) : every;
  const loaded = await Promise.all(rows.map((row) => source.rollout(row).catch(() => null)));
  if (state.tab !== "Groups" || state.groupKey !== group.key) return;
  const first = loaded.find((rollout) => rollout?.prompt);
  main.replaceChildren(
    el("div", { class: "row-of" }, el("button", { type: "button", onclick: () => { state.groupKey = null; show("Groups"); } }, "all groups"),
      el("button", { type: "button", onclick: () => go(-1) }, "← previous"), el("button", { type: "button", onclick: () => go(1) }, "next →"),
      el("b", {}, plain(group.id)), `${count(group.size)} members, mean raw reward ${fixed(group.mean)}, std ${fixed(group.spread)}`),
    rows.length < every.length ? el("p", {}, `${count(rows.length)} of them are shown, evenly over their rewards; ${count(every.length - rows.length)} are not. `,
      el("button", { type: "button", onclick: () => toRollouts({ group: group.key }) }, "all in the table")) : "",
    first ? el("details", { open: true }, el("summary", {}, "prompt"), el("div", {}, conversation(first.prompt))) : "",
    el("p", {}, el("small", {}, "Raw: before the group transform, and without what fills a missing reward. Advantage here: the raw reward minus the mean of the group's. Trainers scale it, each in its own way.")),
    el("div", { class: "members" }, rows.map((row, i) => {
      const raw = store.numbers.raw[row], rollout = loaded[i];
      return el("article", { class: "member" },
        el("div", { class: "row-of" }, el("small", {}, "reward"), el("span", { class: "big" }, fixed(store.numbers.reward[row])), ...rawOf(row), el("span", { class: `chip ${name("status", row)}` }, name("status", row)),
          known(raw) ? `advantage ${raw - group.mean >= 0 ? "+" : ""}${fixed(raw - group.mean)}` : "no advantage",
          el("button", { type: "button", onclick: () => openRollout(row) }, "open")),
        el("div", { class: "row-of" }, [...store.graders].map(([grader, column]) => el("span", { class: `chip ${STATES[column.state[row]]}` },
          plain(`${grader} ${column.state[row] === 0 ? fixed(column.score[row]) : STATES[column.state[row]]}`)))),
        rollout === null ? el("p", { class: "empty" }, "not in this file") : rollout.response === undefined ? el("p", { class: "empty" }, "the ledger keeps no texts") : conversation(rollout.messages?.length ? rollout.messages : rollout.response));
    })));
};

// ---------------------------------------------------------------- comparison with an earlier ledger

const compare = (main) => {
  const c = store.comparison;
  const sides = [["before", c.before], ["after", c.after]];
  add(main, el("h2", {}, "Two ledgers"),
    dataTable(["", "ledger", "rollouts", "mean raw reward", "missing", "unfinished"], sides.map(([which, side]) => [which, plain(side.ledger), count(side.rollouts), fixed(side.reward_mean), count(side.missing), count(side.unfinished)]), [1]),
    el("p", {}, c.pairs ? `${count(c.pairs)} rollouts are in both; the rewards of ${count(c.rewards_changed)} changed${c.raw_rewards_changed < c.rewards_changed ? `, of ${count(c.raw_rewards_changed)} of them also before transforms and fills` : ""}.` : "No rollout is in both: they are different ones."),
    el("h2", {}, "Graders"),
    dataTable(["grader", "graded in both", "mean before", "mean after", "correlation", "scores moved", "kind changed"], Object.entries(c.graders).map(([grader, g]) =>
      [plain(grader), count(g.both_graded), fixed(g.mean_before), fixed(g.mean_after), fixed(g.correlation), count(g.scores_moved), count(g.kinds_changed)])),
    ...gradientOf(c.gradient),
    el("h2", {}, "Rewards that changed most"),
    c.changed.length ? dataTable(["rollout", "raw before", "raw after", "reward before", "reward after", "grades that changed"], c.changed.map((line) => [
      el("button", { type: "button", onclick: () => openRollout(line.row) }, plain(line.id || line.group || String(line.row))), fixed(line.before), fixed(line.after), ...line.reward.map((x) => fixed(x)),
      Object.entries(line.grades).map(([grader, [a, b]]) => el("span", { class: "chip" }, plain(`${grader} ${typeof a === "number" ? fixed(a) : a} → ${typeof b === "number" ? fixed(b) : b}`)))]), [5])
      : el("p", { class: "empty" }, "none"));
};

const gradientOf = (g) => g.groups === 0 ? [] : [
  el("h2", {}, "Gradient"),
  el("p", {}, plain(`Cosine of GRPO's advantages ${fixed(g.cosine)} over ${count(g.groups)} groups${Object.keys(g.cosine_by_source).length > 1 ? ` (${Object.entries(g.cosine_by_source).map(([source, x]) => `${source} ${fixed(x)}`).join(", ")})` : ""}. ` +
    `The best member changes in ${count(g.best_changed)}; ${count(g.became_flat)} become flat, ${count(g.stopped_being_flat)} stop being flat.`)),
  ...(g.most.length ? [dataTable(["group", "cosine", "rollout that moves most", "reward before", "reward after", "advantage before", "advantage after"], g.most.map((group) => {
    const member = group.members.find((m) => m.row === group.explained.row);
    return [plain(group.group), fixed(group.cosine), el("button", { type: "button", title: `before:\n${group.explained.before}\n\nafter:\n${group.explained.after}`, onclick: () => openRollout(member.row) }, plain(member.id || String(member.row))), ...member.rewards.map((x) => fixed(x)), ...member.advantages.map((x) => fixed(x))];
  }), [0])] : [])];

// ---------------------------------------------------------------- export

const save = (filename, parts, type) => {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  el("a", { href: url, download: filename }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};
const stem = () => store.facts.title.replace(/\.jsonl$/, "");
const exportCsv = () => {
  // a spreadsheet runs what begins like a formula: quoted
  const cell = (value) => { const text = known(value) ? String(value) : ""; return `"${(typeof value !== "number" && /^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`; };
  const heads = ["run", "index", "id", "group", "step", "data_source", "status", "reward", "raw_reward", `length_${store.facts.length}`, "mark", "note", ...store.graders.keys()];
  const lines = state.rows.map((row) => [name("run", row), store.numbers.index[row], store.id[row], name("group", row).id, store.numbers.step[row], name("source", row), name("status", row),
    store.numbers.reward[row], store.numbers.raw[row], lengths()[row], markOf(row)?.mark, markOf(row)?.note,
    ...[...store.graders.values()].map((c) => (c.state[row] === 0 ? c.score[row] : STATES[c.state[row]]))].map(cell).join(","));
  save(`${stem()}.csv`, [[heads.map(cell).join(","), ...lines].join("\r\n")], "text/csv");
};
const exportJsonl = async () => {
  const lines = [];
  for (const row of state.rows.slice(0, 5000)) { const rollout = await source.rollout(row); if (rollout) lines.push(JSON.stringify(rollout)); }
  if (lines.length < state.rows.length) say(`${count(lines.length)} of ${count(state.rows.length)} rollouts were exported: the others' texts are not here, or they are beyond 5,000.`);
  // no .jsonl: it is no ledger, has no spec, and long texts are cut
  save(`${stem()}.selection.ndjson`, [lines.join("\n") + "\n"], "application/x-ndjson");
};
const exportMarks = () => save(`${stem()}.marks.jsonl`, [[...store.marks.values()].map((mark) => JSON.stringify(mark)).join("\n") + "\n"], "application/x-ndjson");

// ---------------------------------------------------------------- the page

const tabs = () => ["Overview", "Rollouts", "Groups", ...(store.comparison ? ["Compare"] : [])];
const show = (tab) => {
  state.tab = tab;
  const main = $("main");
  main.className = ""; main.update = main.step = null; main.replaceChildren(); table = null;
  if (tab !== "Rollouts") pane = null;
  $("tabs").replaceChildren(...tabs().map((label) => el("button", { type: "button", role: "tab", "aria-selected": label === tab ? "true" : "false", onclick: () => { if (label === "Groups") state.groupKey = null; show(label); } }, label)));
  ({ Overview: overview, Rollouts: rollouts, Groups: groupsView, Compare: compare })[tab](main);
};
const heading = () => {
  const { facts } = store, statuses = new Map();
  for (const row of shownRows()) statuses.set(name("status", row), (statuses.get(name("status", row)) ?? 0) + 1);
  $("title").textContent = plain(facts.title);
  document.title = `${plain(facts.title)} · judgekit`; // a server's page has none: anyone may ask for it
  const usage = facts.usage ?? {};
  $("facts").textContent = [
    `${count(shownRows().length)} rollouts in ${count(groups().size)} groups`,
    [...statuses].map(([status, n]) => `${count(n)} ${status}`).join(", "),
    usage.calls ? `${count(usage.calls)} judge calls, ${count(usage.prompt_tokens ?? 0)} prompt tokens (${share(usage.cached_tokens ?? 0, usage.prompt_tokens ?? 0)} from the prefix cache), ${count(usage.completion_tokens ?? 0)} written${known(store.costs.usd) ? `, ${dollars(store.costs.usd)}` : ""}` : "",
    facts.skipped ? `${facts.skipped} torn lines skipped` : "",
  ].filter(Boolean).join("; ");
};
// New rows: what is on the screen is kept where a person may be reading.
const refreshed = () => {
  heading();
  if (state.tab === "Rollouts") {
    const active = document.activeElement;
    if (state.filter.text.trim() && !(state.hits?.searched === store.rows)) lookFor(true);
    else if (active === table?.box || !table?.box.contains(active)) $("main").update();
  }
  else if (state.tab === "Groups") $("main").update?.();
  else if (state.tab === "Overview" && !$("main").contains(document.activeElement) && !$("main").querySelector("details[open]") && !String(getSelection())) {
    const top = $("main").scrollTop;
    show("Overview");
    $("main").scrollTop = top;
  }
};

const theme = (value) => {
  document.documentElement.dataset.theme = value;
  $("theme").textContent = value === "dark" ? "☀" : "☾";
  try { localStorage.setItem("judgekit theme", value); } catch { /* private window */ }
};
const KEYS = [["1 2 3 4", "overview, rollouts, groups, comparison"], ["/", "search"], ["j k", "next and previous rollout, or group"], ["g", "the rollout's group side by side"],
  ["m", "mark good"], ["n", "mark bad"], ["Esc", "close the rollout"], ["t", "light or dark"], ["?", "this list"]];
const help = () => {
  $("help").replaceChildren(el("h2", {}, "Keys"), dataTable(["key", "what it does"], KEYS.map(([key, what]) => [key.split(" ").map((k) => [el("kbd", {}, k), " "]).flat(), what]), [1]),
    el("form", { method: "dialog" }, el("button", { onclick: (e) => { e.preventDefault(); $("help").close(); } }, "close")));
  $("help").showModal();
};
const onkey = (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || $("help").open) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) { if (e.key === "Escape") e.target.blur(); return; }
  const toggle = (mark) => state.row !== null && state.tab === "Rollouts" && setMark(state.row, markOf(state.row)?.mark === mark ? "" : mark);
  const step = (by) => {
    if (state.tab === "Rollouts") table?.move(by);
    else $("main").step?.(by);
  };
  const action = {
    "/": () => { show("Rollouts"); $("search").focus(); }, "?": help, t: () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
    j: () => step(1), k: () => step(-1), m: () => toggle("good"), n: () => toggle("bad"),
    g: () => state.row !== null && openGroup(groupKey(state.row)), Escape: () => state.row !== null && state.tab === "Rollouts" && closeRollout(),
  }[e.key] ?? (tabs()[+e.key - 1] && (() => { state.groupKey = null; show(tabs()[+e.key - 1]); }));
  if (action) { e.preventDefault(); action(); }
};

const start = async () => {
  let wanted = null;
  try { wanted = localStorage.getItem("judgekit theme"); } catch { /* private window */ }
  theme(wanted ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  $("help-open").addEventListener("click", help);
  document.addEventListener("keydown", onkey);
  try {
    await source.open();
  } catch (error) {
    say(`This page could not be opened: ${error.message ?? error}`);
    return;
  }
  heading();
  show("Overview");
  document.documentElement.dataset.ready = "true";
  while (source.live) {
    await new Promise((resolve) => setTimeout(resolve, source.caughtUp ? 2000 : 200));
    if (document.hidden) continue;
    try { if (await source.refresh()) refreshed(); } catch (error) { say(error instanceof TypeError ? `The server does not answer: ${error.message}` : error.message); }
  }
};
start();
})();
