// The report's page. Everything that a policy, a judge or a data set wrote reaches the document as text nodes only:
// `el` never parses markup, and the page's policy forbids other scripts, images and connections.
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
// Formatters are made once. toLocaleString would make one for each number, which takes a hundred times as long.
const FOUR_DIGITS = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 }), THOUSANDS = new Intl.NumberFormat("en");
const short = (x) => (known(x) ? (Math.abs(x) >= 1e6 ? String(+x.toPrecision(4)) : FOUR_DIGITS.format(+x.toPrecision(4))) : "–");
const count = (n) => THOUSANDS.format(n);
const percent = (x) => (known(x) ? `${+(100 * x).toPrecision(3)} %` : "–");
const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");
const dollars = (x) => (known(x) ? `${x && x < 0.01 ? +x.toPrecision(2) : x.toFixed(2)} US dollars` : "–");
const mean = (xs) => (xs.length ? xs.reduce((a, b) => a + b, 0) / xs.length : NaN);
const deviation = (xs) => { const m = mean(xs); return xs.length ? Math.sqrt(mean(xs.map((x) => (x - m) ** 2))) : NaN; };

// ---------------------------------------------------------------- the ledger's columns

const STATES = ["graded", "abstained", "skipped", "failed", "absent"];
const store = {
  generation: null, rows: 0, facts: { hidden: [], specs: [], usage: {}, judges: [] },
  numbers: {}, codes: {}, id: [], preview: [], names: {}, graders: new Map(),
  hidden: new Set(), marks: new Map(), marking: Promise.resolve(), signals: [], costs: { graders: {}, steps: [] }, comparison: null, audited: "0", audits: null,
};
// Another ledger stands where the page's was: no row number means what it meant.
const forget = (generation) => {
  Object.assign(store, { generation, rows: 0, numbers: {}, codes: {}, id: [], preview: [], names: {}, graders: new Map(), hidden: new Set(), signals: [], costs: { graders: {}, steps: [] }, comparison: null });
  Object.assign(state, { rows: [], row: null, groupKey: null, hits: new Map() });
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
// Hidden rows stay hidden: as many of them are the same.
const setFacts = (facts) => { store.facts = facts; if (facts.hidden.length !== store.hidden.size) store.hidden = new Set(facts.hidden); };
const setMarks = (marks) => { store.marks = new Map(marks.map((m) => [`${m.run} ${m.index}`, m])); };
const setAudits = (audits) => { store.audits = audits; if (audits) audits.wrong = new Set(audits.examples.map((one) => `${one.run} ${one.index}`)); counted = {}; };
const name = (key, row) => store.names[key][store.codes[key][row]];
const keyOf = (row) => `${name("run", row)} ${store.numbers.index[row]}`;
const groupKey = (row) => store.codes.group[row];
const markOf = (row) => store.marks.get(keyOf(row));
// The rows that count, and these by group: made once for what the store holds now.
let counted = {};
const counting = () => {
  const { rows, hidden, generation } = store;
  if (counted.rows !== rows || counted.hidden !== hidden || counted.generation !== generation) {
    counted = { rows, hidden, generation, shown: [], groups: new Map(), facts: new Map(), ranges: new Map(), looks: [] };
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
const missing = (row) => !["scored", "dropped"].includes(name("status", row));
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
    setAudits(data.audits ?? null);
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
    for (const { key, mark } of own) if (mark.mark || mark.note || known(mark.score)) store.marks.set(key, mark); else store.marks.delete(key);
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
  async search({ text, field, regex }) {
    const fields = { text: null, prompt: ["prompt"], response: ["response", "messages"], reason: ["grades"] }[field];
    const pattern = regex ? new RegExp(text.replace(/^\(\?i\)/, ""), text.startsWith("(?i)") ? "i" : "") : null, lower = text.toLowerCase(), found = [];
    const holds = (value) => (typeof value === "string" ? (pattern ? pattern.test(value) : value.toLowerCase().includes(lower))
      : value && typeof value === "object" && Object.entries(value).some(([key, item]) => !["type", "kind", "status", "spec", "run", "rollout_digest", "formulas"].includes(key) && holds(item)));
    for (const [row, [chunk, at]] of this.places) {
      const rollout = (await this.chunk(chunk))[at];
      if (fields ? fields.some((key) => holds(rollout[key])) : holds(rollout)) found.push(row);
    }
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

// Asks the server that the page came from.
const asked = async (path, options = {}, headers = {}) => {
  const reply = await fetch(path, { ...options, headers: { Authorization: `Bearer ${token}`, ...headers } });
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
};
const serverSource = {
  live: true,
  async fetch(path, options = {}) {
    const { generation } = store, answer = await asked(path, options, generation === null ? {} : { Generation: generation });
    if (generation !== store.generation) throw new Error("the ledger was replaced and is being read again");
    return answer;
  },
  // The first rows are drawn at once, all of them where a link names one.
  async open() { await this.refresh(/(rollout|group|row)=/.test(location.hash) ? Infinity : 1); },
  // Reads what the server has and the page has not; true where there was something.
  async refresh(most = Infinity) {
    await store.marking.catch(() => null);
    // the first block comes with the first answer: there is no way to and fro before rows can be drawn
    const { marking } = store, now = await this.fetch(store.generation === null ? "api/state?first" : "api/state");
    if (now.generation !== store.generation) {
      const first = store.generation === null;
      forget(now.generation);
      this.told = false;
      setFacts(now.facts);
      if (!first) { heading(); show(tabs().includes(state.tab) ? state.tab : "Overview"); }
    }
    const before = store.rows, hidden = store.hidden;
    setFacts(now.facts);
    // while the server reads, a block is worth its way when it is whole; the first one is, at once
    const blocks = now.caught_up || now.problem ? now.blocks : Math.max(before ? 0 : 1, Math.floor(now.facts.rows / 5000));
    for (let number = Math.floor(store.rows / 5000); number < Math.min(blocks, now.blocks, most); number++) {
      if (store.rows === now.facts.rows) break;
      addBlock(number === 0 && now.first ? now.first : await this.fetch(`api/block/${number}`));
      drawSoon();
    }
    const grown = store.rows > before || store.hidden !== hidden;
    if (marking === store.marking) setMarks(now.marks); // else these are the marks of before
    this.caughtUp = now.caught_up && store.rows >= now.facts.rows;
    say(now.problem || now.caught_up ? now.problem : `Reading the ledger: ${share(now.read, now.size)} of ${(now.size / 1e6).toFixed(0)} MB`);
    const audited = now.audited !== store.audited;
    if (audited) { store.audited = now.audited; setAudits(await this.fetch("api/audits")); }
    if (this.caughtUp && (grown || !this.told)) {
      this.told = true;
      store.signals = await this.fetch("api/signals");
      store.costs = await this.fetch("api/costs");
      return true;
    }
    return grown || audited;
  },
  rollout(row) { return this.fetch(`api/rollout/${row}`); },
  search({ text, field, regex }, from) { return this.fetch(`api/search?${new URLSearchParams({ text, field, from, ...(regex ? { regex: 1 } : {}) })}`); },
  mark(row, mark) { return this.fetch("api/mark", { method: "POST", body: JSON.stringify({ row, mark: mark.mark, note: mark.note, score: mark.score ?? null }) }); },
};
// What the address has behind its #: the server's secret, then what is looked at.
const token = location.hash.slice(1).split("&").find((part) => part && !part.includes("=")) ?? "";
const source = $("data") ? fileSource : serverSource;
const say = (text) => { $("notice").hidden = !text; $("notice").textContent = text; };

const dataTable = (heads, lines, words = []) => el("div", { class: "wide" }, el("table", {},
  el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", { scope: "col", class: words.includes(i) ? "words" : undefined }, head)))),
  el("tbody", {}, lines.map((line) => el("tr", {}, line.map((cell, i) => el("td", { class: words.includes(i) ? "words" : undefined }, cell)))))));

// ---------------------------------------------------------------- what is looked at, and what deserves it

const state = { tab: "Overview", query: "", terms: [], hits: new Map(), sort: { key: "look", down: true }, columns: {}, rows: [], row: null, groupKey: null };

// What deserves a look, besides failures. `look=cut` finds those of a kind.
const SUSPICIOUS = {
  audited: "An audit says wrong", empty: "Paid for an empty response", disagree: "Judge and rule disagree",
  cut: "Cut off, yet above the mean of its group", longest: "Best and by far the longest of its group", missing: "No reward, though no grader failed",
};
// What the rows of a group have in common.
const groupFacts = (key) => {
  const { facts } = counting();
  if (!facts.has(key)) {
    let size = 0, sum = 0, best = -Infinity;
    for (const row of groups().get(key) ?? []) {
      const raw = store.numbers.raw[row];
      if (known(raw)) { size++; sum += raw; if (raw > best) best = raw; }
    }
    facts.set(key, { mean: sum / size, best, size });
  }
  return facts.get(key);
};
const groupMean = (key) => groupFacts(key).mean;
const groupLengths = (key) => groups().get(key).map((row) => lengths()[row]).filter(known).sort((a, b) => a - b);
// Where a score stands in its grader's range, from 0 to 1.
const place = (grader, row) => {
  const { ranges } = counting();
  if (!ranges.has(grader)) ranges.set(grader, boundsOf(grader) ?? span(store.graders.get(grader).score.filter(known)));
  const [low, high] = ranges.get(grader), score = store.graders.get(grader).score[row];
  return known(score) && high > low ? (score - low) / (high - low) : NaN;
};
// Why a rollout deserves a look: {kind, points, words()}, made when first asked for; words are for the few that are in view.
const suspicions = (row) => {
  const { looks } = counting();
  return (looks[row] ??= lookAt(row));
};
const NOTHING = [];
const lookAt = (row) => {
  let found = NOTHING;
  const raw = store.numbers.raw[row], status = name("status", row), long = lengths()[row];
  const tell = (kind, points, words) => { if (found === NOTHING) found = []; found.push({ kind, points, words }); };
  if (status === "unfinished") return found;
  if (store.audits?.wrong?.has(keyOf(row))) tell("audited", 6, () => "the audit says wrong");
  for (const [grader, column] of store.graders) if (column.state[row] === 3) tell("failed", 1.5, () => `${grader} failed`);
  if (known(raw) && raw > 0 && long === 0) tell("empty", 5, () => "paid for nothing");
  const judges = store.facts.judges ?? [];
  for (const judge of judges) {
    for (const rule of store.graders.keys()) {
      const apart = judges.includes(rule) ? NaN : place(judge, row) - place(rule, row);
      if (Math.abs(apart) >= 0.7) tell("disagree", 1 + Math.abs(apart) + (apart > 0 ? 1 : 0), () => `${judge} ${short(store.graders.get(judge).score[row])}, ${rule} ${short(store.graders.get(rule).score[row])}`);
    }
  }
  if (known(raw)) {
    const group = groupFacts(groupKey(row));
    if (name("finish", row) === "length" && raw > group.mean) tell("cut", 2, () => "cut off, yet paid");
    if (group.size > 2 && raw === group.best && raw > group.mean) {
      const all = groupLengths(groupKey(row));
      if (long === all.at(-1) && long >= 2 * all[Math.floor(all.length / 2)]) tell("longest", 1, () => "best and longest");
    }
  } else if (missing(row) && !found.some((one) => one.kind === "failed")) tell("missing", 1, () => "no reward");
  return found;
};
const suspicion = (row) => { let sum = 0; for (const one of suspicions(row)) sum += one.points; return sum; };

// ---------------------------------------------------------------- the search and its rows

const hitKey = ({ text, field, regex }) => JSON.stringify([text, field, regex]);
const matches = () => {
  const tests = state.terms.map(({ not, rows, text, opposite }) => {
    const hits = text && state.hits.get(hitKey(text)).rows;
    return rows ? (row) => rows(row) !== not : (row) => hits.has(row) !== (not !== Boolean(opposite));
  });
  return shownRows().filter((row) => tests.every((test) => test(row)));
};
const textTerms = () => state.terms.filter((term) => term.text);
const searched = () => textTerms().every((term) => state.hits.get(hitKey(term.text))?.searched >= store.rows);
// Sets the search; a text that is none is said, and what is shown stays.
const setQuery = (text) => {
  state.query = text;
  try { state.terms = parseQuery(text); state.wrong = ""; } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    state.wrong = error.message;
    $("main").told?.();
    return;
  }
  lookFor();
};
// Finds the search's texts, in all rows or in those that came since the same was searched for, then shows the rows.
let looking = null;
const lookFor = async () => {
  const { terms, hits } = state, stale = () => state.terms !== terms || state.hits !== hits;
  if (looking === terms) return;
  looking = terms;
  try {
    for (const { text } of textTerms()) {
      const key = hitKey(text), rows = store.rows, before = hits.get(key);
      if (before?.searched >= rows) continue;
      $("main").told?.("searching …");
      const found = rows ? await source.search(text, before?.searched ?? 0) : [];
      if (stale()) return;
      hits.set(key, { searched: rows, rows: new Set([...before?.rows ?? [], ...found]) });
    }
  } catch (error) {
    if (stale()) return;
    state.wrong = String(error.message ?? error);
    $("main").told?.();
    return;
  } finally { if (looking === terms) looking = null; }
  if (state.tab === "Rollouts") $("main").update?.();
  if (pane && state.row !== null && needle() !== pane.needle) fill(state.row);
};

// ---------------------------------------------------------------- the table

const isConstant = (column) => { let first; for (const row of shownRows()) { const score = column.score[row]; if (column.state[row] !== 0) return false; first ??= score; if (score !== first) return false; } return shownRows().length > 1; };
const columns = () => {
  const { numbers } = store, several = (key) => store.names[key]?.length > 1;
  const numeric = (key, width, values, given) => ({ key, label: key, width, number: true, optional: true, value: (row) => values(row), text: (row) => short(values(row)), ...given });
  return [
    numeric("index", "64px", (row) => numbers.index[row], { off: true, optional: false }),
    { key: "reward", label: "reward", width: "72px", number: true, value: (row) => numbers.reward[row], text: (row) => fixed(numbers.reward[row]) },
    { key: "status", label: "status", width: "82px", optional: true, off: store.names.status?.length < 2, value: (row) => name("status", row), cell: (row) => (name("status", row) === "scored" ? el("span", { class: "quiet" }, "scored") : el("span", { class: `chip ${name("status", row)}` }, name("status", row))) },
    ...[...store.graders].map(([grader, column]) => ({
      key: `grader ${grader}`, label: plain(grader), width: "84px", number: true, optional: true, off: isConstant(column), value: (row) => column.score[row],
      cell: (row) => (column.state[row] === 0 ? fixed(column.score[row])
        : el("span", { class: `chip ${STATES[column.state[row]]}` }, column.state[row] === 3 ? plain(store.names.error[column.error[row]]?.[0] ?? "failed") : STATES[column.state[row]])),
    })),
    numeric("advantage", "84px", (row) => numbers.raw[row] - groupMean(groupKey(row)), { off: true, text: (row) => fixed(numbers.raw[row] - groupMean(groupKey(row))) }),
    numeric("length", "76px", (row) => lengths()[row], { label: store.facts.length ?? "length", wide: true }),
    numeric("step", "52px", (row) => numbers.step[row], { wide: true, off: !numbers.step?.some(known) }),
    numeric("tokens", "80px", (row) => numbers.tokens[row], { label: "judge tokens", off: true }),
    numeric("seconds", "76px", (row) => numbers.seconds[row], { off: true }),
    { key: "source", label: "source", width: "90px", optional: true, wide: true, off: !several("source"), value: (row) => name("source", row) },
    { key: "run", label: "run", width: "110px", optional: true, wide: true, off: true, value: (row) => name("run", row) },
    { key: "id", label: "id", width: "110px", optional: true, wide: true, off: true, value: (row) => store.id[row] },
    { key: "group", label: "group", width: "minmax(90px, .5fr)", optional: true, wide: true, value: (row) => name("group", row).id },
    { key: "mark", label: "mark", width: "70px", optional: true, wide: true, off: !store.marks.size, value: (row) => markOf(row)?.mark ?? "" },
    { key: "look", label: "look first", width: "minmax(150px, .9fr)", value: suspicion,
      cell: (row) => suspicions(row).map((one) => el("span", { class: `chip ${one.kind === "failed" ? "failed" : "look"}`, title: SUSPICIOUS[one.kind] ?? "" }, plain(one.words()))) },
    { key: "preview", label: "response", width: "minmax(120px, 1fr)", value: (row) => store.preview[row] ?? "", quiet: true },
  ];
};
const chosen = (column) => state.columns[column.key] ?? !column.off;

const sorted = (rows, all) => {
  const column = all.find((c) => c.key === state.sort.key);
  if (!column) return rows;
  const sign = state.sort.down ? -1 : 1, valued = [], without = [], values = new Array(store.rows);
  for (const row of rows) {
    const value = column.value(row);
    if (known(value)) { values[row] = value; valued.push(row); } else without.push(row);
  }
  valued.sort((a, b) => (values[a] < values[b] ? -sign : values[a] > values[b] ? sign : a - b));
  return valued.concat(without); // what has no value comes last, whichever way
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
  // Scrolls to where a person was: the line that was the first in view stays it; without one, to the selected line.
  const place = (before) => {
    const at = before === null ? lines.indexOf(selected()) : lines.indexOf(before.line);
    box.scrollTop = before === null ? Math.max(0, at * HEIGHT - box.clientHeight / 2) : at < 0 ? before.top : at * HEIGHT + before.beyond;
    draw();
  };
  // The top itself is kept, not its line: what comes above it is to be seen.
  const where = () => ({ top: box.scrollTop, beyond: box.scrollTop % HEIGHT, line: box.scrollTop < HEIGHT ? null : lines[Math.floor(box.scrollTop / HEIGHT)] });
  requestAnimationFrame(draw);
  return { box, draw, move, place, where, label };
};

let table = null;
let pane = null;
const rollouts = (main) => {
  main.className = "split";
  const total = el("output", { "aria-live": "polite" }), told = el("p", { class: "wrong", role: "alert", hidden: true });
  const search = el("input", { type: "search", id: "search", placeholder: 'search:  words   reward<0.3   judge.failed   text~/regex/   /', "aria-label": "Search", spellcheck: "false", oninput: (e) => typed(e.target.value) });
  // a choice in a menu is a term of the search
  const menus = [];
  const menu = (label, begin, options) => {
    if (options.length < 2 && !termOf(state.query, begin)) return null;
    const made = el("select", { "aria-label": label, class: "more", onchange: (e) => setQuery(withTerm(state.query, begin, e.target.value || null)) },
      el("option", { value: "" }, label), options.map((option) => el("option", { value: option }, plain(option))));
    menus.push(() => { made.value = termOf(state.query, begin); });
    return made;
  };
  const grades = () => [...store.graders].flatMap(([grader, column]) => [1, 2, 3].filter((code) => column.state.includes(code)).map((code) => `${quoted(grader)}.${STATES[code]}`)).filter((term) => !term.startsWith('"'));
  const grade = grades().length ? el("select", { "aria-label": "any grade", class: "more", onchange: (e) => setQuery([...state.query.split(/\s+/).filter((term) => term && !grades().includes(term)), e.target.value].filter(Boolean).join(" ")) },
    el("option", { value: "" }, "any grade"), grades().map((term) => el("option", { value: term }, plain(term)))) : null;
  const shownColumns = el("details", { class: "more columns" }, el("summary", {}, "columns"), el("div", {}, columns().map((column) => el("label", {},
    el("input", { type: "checkbox", checked: chosen(column), onchange: (e) => { state.columns[column.key] = e.target.checked; main.update(); } }), column.label))));
  const bar = el("div", { class: "filters", role: "search" }, search,
    el("button", { type: "button", class: "toggle", onclick: () => bar.classList.toggle("all") }, "filters"),
    menu("any status", "status=", store.names.status ?? []), menu("any source", "source=", store.names.source ?? []), menu("any phase", "phase=", store.names.phase ?? []),
    grade, menu("any failure", "error=", [...new Set((store.names.error ?? []).map(([error]) => error))]),
    menu("any look", "look=", Object.keys(SUSPICIOUS)), menu("any mark", "mark=", ["good", "bad"]), shownColumns,
    el("button", { type: "button", onclick: () => setQuery("") }, "clear"),
    el("button", { type: "button", class: "more", onclick: exportCsv }, "CSV"),
    el("button", { type: "button", class: "more", onclick: exportJsonl }, "JSONL"),
    store.marks.size ? el("button", { type: "button", class: "more", onclick: exportMarks }, "marks") : null, total);
  const panes = el("div", { class: "panes" });
  main.replaceChildren(bar, told, panes);
  main.told = (words = `${count(state.rows.length)} of ${count(shownRows().length)}`) => {
    told.hidden = !state.wrong;
    told.textContent = state.wrong;
    search.setAttribute("aria-invalid", state.wrong ? "true" : "false");
    total.textContent = words;
  };
  main.update = () => {
    if (document.activeElement !== search) search.value = state.query;
    menus.forEach((one) => one());
    if (grade) grade.value = state.query.split(/\s+/).find((term) => grades().includes(term)) ?? "";
    const ready = textTerms().every((term) => state.hits.has(hitKey(term.text)));
    if (!ready) { lookFor(); return main.told("searching …"); }
    const all = columns().filter((c) => chosen(c) && !(c.wide && state.row !== null));
    state.rows = sorted(matches(), columns());
    const before = table?.box, focused = before !== undefined && document.activeElement === before;
    const top = table?.label === "Rollouts" ? table.where() : null; // a person may be reading: keep the place
    main.told();
    table = grid({
      label: "Rollouts", columns: all, lines: state.rows, selected: () => state.row, onselect: (row) => openRollout(row), sort: state.sort,
      onsort: (key) => { state.sort = { key, down: state.sort.key === key ? !state.sort.down : true }; main.update(); },
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
    remember();
  };
  let timer = null;
  const typed = (text) => {
    clearTimeout(timer);
    timer = setTimeout(() => setQuery(text), 150);
  };
  search.value = state.query;
  if (searched()) main.update(); else lookFor();
};

const toRollouts = (query) => { state.row = null; pane = null; state.query = query; show("Rollouts"); setQuery(query); };
const openHere = (row) => openRollout(row);
const openRollout = (row) => {
  const before = state.row;
  state.row = row;
  if (state.tab !== "Rollouts") return show("Rollouts");
  if (before === null || !pane) { pane = null; $("main").update(); } // which fills it
  else { fill(row); remember(); }
};
const toggleRaw = () => { state.raw = !state.raw; if (state.tab === "Groups" && state.groupKey !== null) show("Groups"); else if (pane) fill(state.row); };
const closeRollout = () => { state.row = null; pane = null; $("main").update?.(); table?.box.focus(); };

const TURN = ["role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"];
const MEDIA = /^(input_)?(image|audio|video|file)(_url)?$/;
const asJson = (value) => el("pre", {}, visible(JSON.stringify(value, null, 2) ?? "", needle()));
// *shown*: how a text is drawn, by default as Markdown.
const conversation = (value, shown = shownText, note = () => null) => {
  if (typeof value === "string") return shown(value);
  if (!Array.isArray(value)) return asJson(value);
  return value.map((turn, at) => {
    if (typeof turn === "string") return shown(turn);
    if (!turn || typeof turn !== "object" || typeof turn.role !== "string") return asJson(turn);
    const { role } = turn, rest = Object.fromEntries(Object.entries(turn).filter(([key, item]) => item !== null && (!TURN.includes(key) || (key === "name" && typeof item === "object"))));
    const calls = Array.isArray(turn.tool_calls) ? turn.tool_calls : turn.tool_calls ? [turn.tool_calls] : [];
    const text = (item) => (typeof item === "string" ? shown(item) : asJson(item));
    const parts = Array.isArray(turn.content) ? turn.content : [turn.content];
    return el("div", { class: `turn ${["assistant", "tool"].includes(role) ? role : ""}` }, el("h3", {}, plain(role + (typeof turn.name === "string" ? ` ${turn.name}` : ""))),
      turn.reasoning_content ? el("details", {}, el("summary", {}, "thinking"), text(turn.reasoning_content)) : null,
      parts.filter((part) => part !== null && part !== undefined && part !== "").map((part) => {
        if (typeof part === "string") return shown(part);
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
      turn.tool_call_id ? el("p", {}, el("small", {}, plain(`answers ${turn.tool_call_id}`))) : null, note(at));
  });
};
const turnsAndOutcome = ({ turns, raw_reward: raw }) => {
  const earned = turns.reduce((a, b) => a + b, 0);
  return el("p", {}, `turns earned ${short(earned)}, the outcome ${short(raw - earned)}`);
};
// What the policy's turn that ends with a message earned, and what graders say of it.
const turnNote = (rollout) => (at) => {
  const turn = rollout.turn_of?.[at];
  if (!known(turn) || rollout.turn_of[at + 1] === turn) return null;
  const said = Object.entries(rollout.grades).filter(([, grade]) => grade.turns).map(([grader, grade]) => `${grader} ${known(grade.turns[turn]) ? short(grade.turns[turn]) : "–"}`);
  const earned = rollout.turns?.[turn];
  return el("p", { class: "earned" }, el("span", { class: "chip" }, `turn ${turn + 1}${known(earned) ? ` earned ${short(earned)}` : ""}`), el("small", { class: "quiet" }, plain(` ${said.join(" · ")}`)));
};
// A judge's prompt with the rollout's own text marked in it: what the judge was asked about.
const askedText = (response) => (text) => {
  const nodes = [], piece = typeof response === "string" ? response.trim() : "";
  let at = 0;
  for (let found; piece.length > 2 && nodes.length < 100 && (found = text.indexOf(piece, at)) >= 0; at = found + piece.length) {
    nodes.push(visible(text.slice(at, found), needle()), el("span", { class: "candidate", title: "the response" }, visible(piece, needle())));
  }
  return el("pre", {}, nodes, visible(text.slice(at), needle()));
};
// A judge's reply with its thinking set apart and its verdict marked: the JSON object, or the last line.
const repliedText = (text) => {
  const thinking = /^\s*<think>([\s\S]*?)<\/think>/.exec(text), rest = thinking ? text.slice(thinking[0].length) : text;
  const json = /\{[^{}]*\}\s*(?:```\s*)?$/.exec(rest), line = /[^\n]*\S\s*$/.exec(rest), at = (json ?? line)?.index ?? rest.length;
  return [thinking ? el("details", {}, el("summary", {}, "thinking"), el("pre", { class: "thinking" }, visible(thinking[1].trim(), needle()))) : null,
    el("pre", {}, visible(rest.slice(0, at), needle()), at < rest.length ? el("span", { class: "verdict", title: "the verdict" }, visible(rest.slice(at), needle())) : null)];
};
// The reward before its transform, where that is another number.
const rawOf = (row) => { const raw = store.numbers.raw[row]; return known(raw) && raw !== store.numbers.reward[row] ? [el("small", {}, `raw ${fixed(raw, 4)}`)] : []; };
// What is marked in texts: the words of the search.
const needle = () => { const words = state.terms.find((term) => term.text && !term.not && !term.text.regex); return words ? words.text.text.toLowerCase() : ""; };

const gradeLines = (grades) => dataTable(["grader", "grade", "why"], Object.entries(grades).map(([grader, grade]) => [
  plain(grader),
  grade.kind === "graded" ? fixed(grade.score) : el("span", { class: `chip ${grade.kind}` }, plain(grade.error ?? grade.kind)),
  grade.kind === "failed" ? visible(`${grade.detail ?? ""} (cause: ${grade.cause ?? "infrastructure"})`, needle()) : grade.kind === "skipped" ? plain(`behind ${grade.gate}`) : visible(grade.reason ?? "", needle()),
]), [2]);

const fill = async (row) => {
  const target = pane;
  if (!target) return;
  target.needle = needle();
  let rollout;
  try { rollout = await source.rollout(row); } catch (error) { say(String(error.message ?? error)); return; }
  if (state.row !== row || pane !== target) return;
  const marked = markOf(row);
  const members = groups().get(groupKey(row)) ?? [];
  const button = (mark) => el("button", { type: "button", "data-mark": mark, "aria-pressed": marked?.mark === mark ? "true" : "false", onclick: () => setMark(row, { mark: markOf(row)?.mark === mark ? "" : mark, score: null }) }, mark);
  formula.known = rollout?.formulas;
  const section = (title, value, shown, note) => (value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length) || (typeof value === "object" && !Object.keys(value).length) ? null
    : [el("h3", {}, title), conversation(value, shown, note)]);
  const given = (value) => (value === "" || Number.isNaN(+value) ? null : Math.min(1, Math.max(0, +value)));
  target.replaceChildren();
  add(target,
    el("div", { class: "bar-top" },
      el("button", { type: "button", onclick: closeRollout, "aria-label": "Close" }, "✕"),
      el("span", { class: "big" }, fixed(store.numbers.reward[row], 4)), ...rawOf(row),
      el("span", { class: `chip ${name("status", row)}` }, name("status", row)),
      members.length > 1 ? el("button", { type: "button", onclick: () => openGroup(groupKey(row)) }, `group of ${members.length}`) : null,
      button("good"), button("bad"),
      el("input", { class: "score", type: "number", min: 0, max: 1, step: "any", "aria-label": "Your score", placeholder: "0 … 1", value: marked?.score ?? "",
        onchange: (e) => { const score = given(e.target.value); setMark(row, { score, mark: score === null ? markOf(row)?.mark ?? "" : score > 0.5 ? "good" : score < 0.5 ? "bad" : "" }); } }),
      el("input", { class: "note", "aria-label": "Note", placeholder: "note", value: marked?.note ?? "", onchange: (e) => setMark(row, { note: e.target.value }) }),
      el("button", { type: "button", class: "raw", "aria-pressed": state.raw ? "true" : "false", title: "texts as they are, without Markdown and formulas (r)", onclick: toggleRaw }, "raw")),
    rollout === null ? el("p", { class: "empty" }, "The texts of this rollout are not in this file. ", el("code", {}, `judgekit view ${plain(store.facts.title)}`), " shows all of them.") : [
      rollout.contributions && Object.keys(rollout.contributions).length
        ? el("p", {}, plain(Object.entries(rollout.contributions).filter(([k, v]) => v || k !== "residual").map(([k, v]) => `${k} ${short(v)}`).join(" + ")), known(rollout.raw_reward) ? ` = ${short(rollout.raw_reward)}` : "") : null,
      rollout.turns?.length ? turnsAndOutcome(rollout) : null,
      (rollout.policies ?? []).map((policy) => el("p", {}, plain(policy))),
      gradeLines(rollout.grades),
      rollout.response === undefined ? el("p", { class: "empty" }, "This ledger keeps no texts. Write ", el("code", {}, "ledger: {path: …, texts: true}"), " to see prompts, responses and the judge's prompts here.") : null,
      section("prompt", rollout.prompt),
      section("trajectory", rollout.messages, undefined, turnNote(rollout)),
      rollout.response === undefined ? null : [el("h3", {}, "response"), rollout.response === "" ? el("p", { class: "empty" }, "empty") : conversation(rollout.response)],
      section("reference", rollout.ground_truth),
      Object.entries(rollout.grades).map(([grader, grade]) => {
        const { prompt, raw, thinking, ...rest } = grade.metadata ?? {};
        return prompt || raw || thinking || Object.keys(rest).length ? el("details", { open: grade.kind === "failed" },
          el("summary", {}, plain(`${grader}: ${raw || prompt ? "what the judge was asked and replied" : "details"}`)),
          section("asked", prompt, askedText(rollout.response)), section("thought", thinking, (text) => el("pre", { class: "thinking" }, visible(text, needle()))), section("replied", raw, repliedText), section("details", Object.keys(rest).length ? rest : "")) : null;
      }),
      section("extra", rollout.extra),
      el("h3", {}, "line"),
      el("p", {}, plain([rollout.id && `id ${rollout.id}`, `run ${rollout.run}`, `row ${rollout.index}`, `group ${name("group", row).id}`, rollout.data_source,
        rollout.finish_reason && `finished by ${rollout.finish_reason}`, `${short(lengths()[row])} ${store.facts.length} long`, `${short(store.numbers.seconds[row])} s`,
        rollout.usage && `${rollout.usage.calls ?? 0} calls, ${store.numbers.tokens[row]} tokens`, rollout.tags && JSON.stringify(rollout.tags)].filter(Boolean).join(" · "))),
    ]);
};

const setMark = async (row, changed) => {
  const { mark = "", note = "", score = null } = { ...markOf(row), ...changed };
  const made = { run: name("run", row), index: store.numbers.index[row], id: store.id[row], mark, note, ...(score === null ? {} : { score }) };
  const key = keyOf(row), before = store.marks.get(key);
  const put = (one) => (one?.mark || one?.note || known(one?.score) ? store.marks.set(key, one) : store.marks.delete(key));
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
  if (state.row !== row) return;
  pane?.querySelectorAll("[data-mark]").forEach((one) => one.setAttribute("aria-pressed", one.dataset.mark === mark ? "true" : "false"));
  pane?.querySelectorAll(".score").forEach((one) => { if (one !== document.activeElement) one.value = score ?? ""; });
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
    const all = groupLines(), before = table?.box, focused = before !== undefined && document.activeElement === before, top = table?.where() ?? null;
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
    if (top) table.place(top);
    if (focused) table.box.focus({ preventScroll: true });
  };
  main.update();
};
const drawn = (rollout, value) => { formula.known = rollout.formulas; return conversation(value); };
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
      el("button", { type: "button", onclick: () => toRollouts(`run=${quoted(name("run", rows[0]))} group=${quoted(group.id)}`) }, "all in the table")) : "",
    first ? el("details", { open: true }, el("summary", {}, "prompt"), el("div", {}, drawn(first, first.prompt))) : "",
    el("p", { class: "note" }, "Raw: before the group transform, and without what fills a missing reward. Advantage here: the raw reward minus the mean of the group's. Trainers scale it, each in its own way."),
    el("div", { class: "members" }, rows.map((row, i) => {
      const raw = store.numbers.raw[row], rollout = loaded[i];
      return el("article", { class: "member" },
        el("div", { class: "row-of" }, el("small", {}, "reward"), el("span", { class: "big" }, fixed(store.numbers.reward[row])), ...rawOf(row), el("span", { class: `chip ${name("status", row)}` }, name("status", row)),
          known(raw) ? `advantage ${raw - group.mean >= 0 ? "+" : ""}${fixed(raw - group.mean)}` : "no advantage",
          el("button", { type: "button", onclick: () => openRollout(row) }, "open")),
        el("div", { class: "row-of" }, [...store.graders].map(([grader, column]) => el("span", { class: `chip ${STATES[column.state[row]]}` },
          plain(`${grader} ${column.state[row] === 0 ? fixed(column.score[row]) : STATES[column.state[row]]}`)))),
        rollout === null ? el("p", { class: "empty" }, "not in this file") : rollout.response === undefined ? el("p", { class: "empty" }, "the ledger keeps no texts") : drawn(rollout, rollout.messages?.length ? rollout.messages : rollout.response));
    })));
};

// ---------------------------------------------------------------- comparison with an earlier ledger

const compare = (main, c = store.comparison, openRollout = openHere) => {
  const sides = [["before", c.before], ["after", c.after]];
  add(main, el("h2", {}, "Two ledgers"),
    dataTable(["", "ledger", "rollouts", "mean raw reward", "missing", "unfinished"], sides.map(([which, side]) => [which, plain(side.ledger), count(side.rollouts), fixed(side.reward_mean), count(side.missing), count(side.unfinished)]), [1]),
    el("p", {}, c.pairs ? `${count(c.pairs)} rollouts are in both; the rewards of ${count(c.rewards_changed)} changed${c.raw_rewards_changed < c.rewards_changed ? `, of ${count(c.raw_rewards_changed)} of them also before transforms and fills` : ""}.` : "No rollout is in both: they are different ones."),
    el("h2", {}, "Graders"),
    dataTable(["grader", "graded in both", "mean before", "mean after", "correlation", "scores moved", "kind changed"], Object.entries(c.graders).map(([grader, g]) =>
      [plain(grader), count(g.both_graded), fixed(g.mean_before), fixed(g.mean_after), fixed(g.correlation), count(g.scores_moved), count(g.kinds_changed)])),
    ...gradientOf(c.gradient, openRollout),
    el("h2", {}, "Rewards that changed most"),
    c.changed.length ? dataTable(["rollout", "raw before", "raw after", "reward before", "reward after", "grades that changed"], c.changed.map((line) => [
      el("button", { type: "button", onclick: () => openRollout(line.row) }, plain(line.id || line.group || String(line.row))), fixed(line.before), fixed(line.after), ...line.reward.map((x) => fixed(x)),
      Object.entries(line.grades).map(([grader, [a, b]]) => el("span", { class: "chip" }, plain(`${grader} ${typeof a === "number" ? fixed(a) : a} → ${typeof b === "number" ? fixed(b) : b}`)))]), [5])
      : el("p", { class: "empty" }, "none"));
};

const gradientOf = (g, openRollout) => g.groups === 0 ? [] : [
  el("h2", {}, "Gradient"),
  el("p", {}, plain(`Cosine of GRPO's advantages ${fixed(g.cosine)} over ${count(g.groups)} groups${Object.keys(g.cosine_by_source).length > 1 ? ` (${Object.entries(g.cosine_by_source).map(([source, x]) => `${source} ${fixed(x)}`).join(", ")})` : ""}. ` +
    `The best member changes in ${count(g.best_changed)}; ${count(g.became_flat)} become flat, ${count(g.stopped_being_flat)} stop being flat.`)),
  ...(g.most.length ? [dataTable(["group", "cosine", "rollout that moves most", "reward before", "reward after", "advantage before", "advantage after"], g.most.map((group) => {
    const member = group.members.find((m) => m.row === group.explained.row);
    return [plain(group.group), fixed(group.cosine), el("button", { type: "button", title: `before:\n${group.explained.before}\n\nafter:\n${group.explained.after}`, onclick: () => openRollout(member.row) }, plain(member.id || String(member.row))), ...member.rewards.map((x) => fixed(x)), ...member.advantages.map((x) => fixed(x))];
  }), [0])] : [])];

// ---------------------------------------------------------------- links: what is looked at stands in the address

const rowOfKey = (key) => shownRows().find((row) => keyOf(row) === key);
const remember = () => {
  const changed = Object.entries(state.columns).map(([key, on]) => (on ? "+" : "-") + key);
  const told = Object.entries({
    tab: state.tab === "Overview" ? null : state.tab, search: state.query, columns: changed.join("\n"),
    sort: state.sort.key === "look" && state.sort.down ? null : (state.sort.down ? "-" : "+") + state.sort.key,
    rollout: state.row !== null && state.tab === "Rollouts" ? keyOf(state.row) : null,
    group: state.groupKey !== null && state.tab === "Groups" ? keyOf(groups().get(state.groupKey)[0]) : null,
  }).filter(([, value]) => value);
  const hash = [token, new URLSearchParams(told).toString()].filter(Boolean).join("&");
  // the browser's way back leads to tabs, rollouts and groups, not through every letter of a search
  const seen = told.filter(([key]) => ["tab", "rollout", "group"].includes(key)).join(), same = [undefined, seen].includes(remember.seen);
  remember.seen = seen;
  if (hash === location.hash.slice(1)) return;
  try { history[same ? "replaceState" : "pushState"](null, "", hash ? `#${hash}` : location.pathname + location.search); } catch { /* a frame that may not */ }
};
const restore = () => {
  const told = new URLSearchParams(location.hash.slice(1).split("&").filter((part) => part.includes("=")).join("&"));
  const sort = told.get("sort"), key = (what) => (told.has(what) ? rowOfKey(told.get(what)) : undefined);
  const rollout = told.has("row") ? shownRows().find((row) => row === +told.get("row")) : key("rollout"), first = key("group");
  state.columns = Object.fromEntries((told.get("columns") ?? "").split("\n").filter(Boolean).map((one) => [one.slice(1), one[0] === "+"]));
  if (sort) state.sort = { key: sort.slice(1), down: sort[0] === "-" };
  state.row = rollout ?? null;
  state.groupKey = first === undefined ? null : groupKey(first);
  pane = null;
  state.query = told.get("search") ?? "";
  try { state.terms = parseQuery(state.query); state.wrong = ""; } catch (error) { state.wrong = error.message; state.terms = []; }
  show(tabs().includes(told.get("tab")) ? told.get("tab") : "Overview");
  for (const [what, found] of [["rollout", rollout], ["group", first]]) if (told.has(what) && found === undefined) say(`The ${what} of this link is not in the ledger.`);
};

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
  const heads = ["run", "index", "id", "group", "step", "data_source", "status", "reward", "raw_reward", `length_${store.facts.length}`, "mark", "score", "note", ...store.graders.keys()];
  const lines = state.rows.map((row) => [name("run", row), store.numbers.index[row], store.id[row], name("group", row).id, store.numbers.step[row], name("source", row), name("status", row),
    store.numbers.reward[row], store.numbers.raw[row], lengths()[row], markOf(row)?.mark, markOf(row)?.score, markOf(row)?.note,
    ...[...store.graders.values()].map((c) => (c.state[row] === 0 ? c.score[row] : STATES[c.state[row]]))].map(cell).join(","));
  save(`${stem()}.csv`, [[heads.map(cell).join(","), ...lines].join("\r\n")], "text/csv");
};
const exportJsonl = async () => {
  const lines = [];
  for (const row of state.rows.slice(0, 5000)) { const rollout = await source.rollout(row); if (rollout) { const { formulas, ...line } = rollout; lines.push(JSON.stringify(line)); } }
  if (lines.length < state.rows.length) say(`${count(lines.length)} of ${count(state.rows.length)} rollouts were exported: the others' texts are not here, or they are beyond 5,000.`);
  // no .jsonl: it is no ledger, has no spec, and long texts are cut
  save(`${stem()}.selection.ndjson`, [lines.join("\n") + "\n"], "application/x-ndjson");
};
// Marks, and labels for `judgekit certify --labels`, in one.
const exportMarks = () => save(`${stem()}.marks.jsonl`, [[...store.marks.values()].map((mark) => JSON.stringify({ ...mark, label: { good: 1, bad: 0 }[mark.mark] ?? null })).join("\n") + "\n"], "application/x-ndjson");

// ---------------------------------------------------------------- the page

const tabs = () => ["Overview", "Rollouts", "Groups", ...(store.comparison ? ["Compare"] : [])];
const show = (tab) => {
  state.tab = tab;
  const main = $("main");
  main.className = ""; main.update = main.step = null; main.replaceChildren(); table = null;
  if (tab !== "Rollouts") pane = null;
  $("tabs").replaceChildren(...tabs().map((label) => el("button", { type: "button", role: "tab", "aria-selected": label === tab ? "true" : "false", onclick: () => { if (label === "Groups") state.groupKey = null; show(label); } }, label)));
  ({ Overview: overview, Rollouts: rollouts, Groups: groupsView, Compare: compare })[tab](main);
  remember();
};
const heading = () => {
  const { facts } = store, statuses = new Map();
  for (const row of shownRows()) statuses.set(name("status", row), (statuses.get(name("status", row)) ?? 0) + 1);
  $("title").textContent = plain(facts.title);
  document.title = `${plain(facts.title)} · judgekit`; // a server's page has none: anyone may ask for it
  $("facts").textContent = [
    `${count(shownRows().length)} rollouts in ${count(groups().size)} group${groups().size === 1 ? "" : "s"}`,
    [...statuses].map(([status, n]) => `${count(n)} ${status}`).join(", "),
    facts.skipped ? `${facts.skipped} torn lines skipped` : "",
  ].filter(Boolean).join("; ");
};
// New rows: what is on the screen is kept where a person may be reading.
const refreshed = () => {
  heading();
  if (state.tab === "Rollouts") {
    const active = document.activeElement;
    if (!searched()) lookFor();
    else if (active === table?.box || !table?.box.contains(active)) $("main").update();
  }
  else if (state.tab === "Groups") $("main").update?.();
  else if (state.tab === "Overview" && !$("main").contains(document.activeElement) && !$("main").querySelector("details[open]") && !String(getSelection())) {
    const top = $("main").scrollTop;
    show("Overview");
    $("main").scrollTop = top;
  }
};
// While much comes, most of the time is for reading it: after a drawing, five times as long nothing is drawn.
const drawing = { owed: false, next: Infinity };
const drawNow = () => {
  const begin = performance.now();
  refreshed();
  Object.assign(drawing, { owed: false, next: performance.now() + 5 * (performance.now() - begin) });
};
const drawSoon = () => { drawing.owed = true; if (performance.now() >= drawing.next) drawNow(); };

const theme = (value) => {
  document.documentElement.dataset.theme = value;
  $("theme").textContent = value === "dark" ? "☀" : "☾";
  try { localStorage.setItem("judgekit theme", value); } catch { /* private window */ }
};
const KEYS = [["1 2 3 4", "overview, rollouts, groups, comparison"], ["/", "search"], ["j k", "next and previous rollout, or group"], ["g", "the rollout's group side by side"],
  ["m", "mark good"], ["n", "mark bad"], ["r", "texts raw, or with Markdown and formulas"], ["Esc", "close the rollout"], ["t", "light or dark"], ["?", "this list"]];
const help = () => {
  $("help").replaceChildren(el("h2", {}, "Keys"), dataTable(["key", "what it does"], KEYS.map(([key, what]) => [key.split(" ").map((k) => [el("kbd", {}, k), " "]).flat(), what]), [1]),
    el("form", { method: "dialog" }, el("button", { onclick: (e) => { e.preventDefault(); $("help").close(); } }, "close")));
  $("help").showModal();
};
const onkey = (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || $("help").open) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) { if (e.key === "Escape") e.target.blur(); return; }
  const toggle = (mark) => state.row !== null && state.tab === "Rollouts" && setMark(state.row, { mark: markOf(state.row)?.mark === mark ? "" : mark, score: null });
  const step = (by) => {
    if (state.tab === "Rollouts") table?.move(by);
    else $("main").step?.(by);
  };
  const action = {
    "/": () => { show("Rollouts"); $("search").focus(); }, "?": help, t: () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
    r: toggleRaw, j: () => step(1), k: () => step(-1), m: () => toggle("good"), n: () => toggle("bad"),
    g: () => state.row !== null && openGroup(groupKey(state.row)), Escape: () => state.row !== null && state.tab === "Rollouts" && closeRollout(),
  }[e.key] ?? (tabs()[+e.key - 1] && (() => { state.groupKey = null; show(tabs()[+e.key - 1]); }));
  if (action) { e.preventDefault(); action(); }
};

const startTheme = () => {
  let wanted = null;
  try { wanted = localStorage.getItem("judgekit theme"); } catch { /* private window */ }
  theme(wanted ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
};
const start = async () => {
  startTheme();
  $("help-open").addEventListener("click", help);
  document.addEventListener("keydown", onkey);
  try {
    await source.open();
  } catch (error) {
    say(`This page could not be opened: ${error.message ?? error}`);
    return;
  }
  // one of several that are served: the way back
  if (source.live && location.pathname !== "/") $("tabs").before(el("button", { type: "button", onclick: () => location.assign(`../#${token}`) }, "all runs"));
  heading();
  restore();
  addEventListener("hashchange", restore);
  document.documentElement.dataset.ready = "true";
  drawing.next = 0;
  while (source.live) {
    await new Promise((resolve) => setTimeout(resolve, source.caughtUp ? 2000 : 200));
    if (document.hidden) continue;
    try {
      const came = await source.refresh();
      if (came && source.caughtUp) drawNow(); else if (came || drawing.owed) drawSoon();
    } catch (error) { say(error instanceof TypeError ? `The server does not answer: ${error.message}` : error.message); }
  }
};
if ($("runs")) startRuns(); else start();
