// The overview: what is wrong first, then how the run went.

const overview = (main) => {
  const rows = shownRows(), width = Math.max(280, main.clientWidth - (main.clientWidth > 760 ? 32 : 22));
  const scored = rows.map(scoredReward).filter(known);
  add(main, ...wrong(rows), tiles(rows, scored), el("div", { class: "beside" }, graderPanel(rows), Object.keys(store.costs.graders).length ? el("section", {}, el("h2", {}, "What the judges used"), costTable()) : null));
  if (store.audits) add(main, ...audits(store.audits, width));
  const steps = overSteps(rows);
  add(main, el("h2", {}, "Over training steps"), steps.length ? [el("p", { class: "note" }, "Shaded: the interval of the mean (95 %, by group)."), figures(width, steps)]
    : el("p", { class: "empty" }, "The ledger names no steps, or one only. Hosts tag them; in Python: run(rollouts, tags={\"step\": …})."));
  const toReward = (from, to, last) => toRollouts(`status=scored reward>=${from} reward${last ? "<=" : "<"}${to}`);
  add(main, el("h2", {}, "Scores"), figures(width, [histogram("reward of the scored", scored, { onpick: toReward }),
    ...[...store.graders].map(([grader, column]) => histogram(plain(grader), scoresOf(column, rows), {
      bounds: boundsOf(grader), onpick: (from, to, last) => toRollouts(`${quoted(grader)}>=${from} ${quoted(grader)}${last ? "<=" : "<"}${to}`),
    }))]));
  add(main, el("h2", {}, "What the reward goes with"), figures(width, [
    scatter("raw reward against length", rows, lengths(), store.numbers.raw, { onpick: openRollout, xname: store.facts.length }),
    scatter("raw reward against seconds", rows, store.numbers.seconds, store.numbers.raw, { onpick: openRollout, xname: "seconds" })]));
  add(main, el("div", { class: "beside" }, [againstRules(rows), calibration(rows), trees()].filter((part) => part.length).map((part) => el("section", {}, part))));
};
const scoresOf = (column, rows) => rows.map((row) => column.score[row]).filter(known);
const tally = (values) => { const found = new Map(); for (const value of values) found.set(value, (found.get(value) ?? 0) + 1); return [...found].sort((a, b) => b[1] - a[1]); };

// Signals, alarms, failures by their cause, and kinds of rollouts that deserve a look; each leads to its rollouts.
const wrong = (rows) => {
  const raised = store.signals.filter((signal) => signal.raised), within = store.signals.filter((signal) => !signal.raised);
  const item = (kind, words, limit, search) => el("li", { class: kind }, el("span", {}, words, limit ? [" ", el("small", {}, limit)] : null),
    search ? el("button", { type: "button", onclick: () => toRollouts(search) }, "show") : null);
  const signal = (one) => item(one.raised ? "raised" : "", plain(one.text), `limit ${short(one.limit)}`, null);
  const failures = [...store.graders].flatMap(([grader, column]) => tally(rows.filter((row) => column.state[row] === 3).map((row) => column.error[row])).map(([code, n]) => {
    const [error, cause] = store.names.error[code];
    return item("failed", plain(`${grader}: ${error} (${cause}) × ${count(n)}`), `${share(n, rows.length)} of the rollouts`, `${quoted(grader)}.failed error=${quoted(error)}`);
  }));
  const kinds = tally(rows.flatMap((row) => suspicions(row).map((one) => one.kind)).filter((kind) => kind in SUSPICIOUS));
  const found = [
    ...(store.audits?.alarm ? [item("raised", plain(store.audits.in_words))] : []),
    ...raised.map(signal), ...failures,
    ...kinds.map(([kind, n]) => item("look", `${SUSPICIOUS[kind]}: ${count(n)}`, share(n, rows.length), `look=${quoted(kind)}`)),
  ];
  return [el("h2", {}, "What is wrong"),
    found.length ? el("ul", { class: "signals" }, found) : el("p", { class: "fine" }, store.signals.length ? "Nothing that this page looks for." : "Nothing was found; signals need 64 rewards or 16 groups."),
    within.length ? el("details", {}, el("summary", {}, `${count(within.length)} ${raised.length ? "more signals are" : "signals are all"} within their limits`), el("ul", { class: "signals" }, within.map(signal))) : null];
};

const tiles = (rows, scored) => {
  const ended = rows.filter(finished), flat = flatShare(rows), usage = store.facts.usage ?? {};
  const tile = (figure, words, more) => el("div", { class: "tile" }, el("b", {}, figure), el("span", {}, words), more ? el("small", {}, more) : null);
  return el("div", { class: "tiles" },
    tile(count(rows.length), "rollouts", `${count(groups().size)} groups`),
    tile(fixed(mean(scored)), "mean reward", `std ${fixed(deviation(scored))}`),
    tile(share(ended.filter(missing).length, ended.length), "of rewards missing", rows.length > ended.length ? `${count(rows.length - ended.length)} unfinished` : ""),
    tile(known(flat) ? percent(flat) : "–", "of groups have equal rewards", "no gradient from these"),
    tile(short(mean(rows.map((row) => lengths()[row]).filter(known))), `${store.facts.length} a response`),
    usage.calls ? tile(count(usage.calls), "judge calls", known(store.costs.usd) ? `they cost ${dollars(store.costs.usd)}` : `${short(((usage.prompt_tokens ?? 0) + (usage.completion_tokens ?? 0)) / rows.length)} tokens a rollout`) : null);
};

const graderPanel = (rows) => el("section", {}, el("h2", {}, "Graders"),
  dataTable(["grader", "scores", "mean", "std", "graded", "abstained", "skipped", "failed"], [...store.graders].map(([grader, column]) => {
    const kinds = [0, 0, 0, 0, 0], found = scoresOf(column, rows);
    for (const row of rows) kinds[column.state[row]]++;
    const opens = (code) => (kinds[code] ? el("button", { type: "button", class: "link", onclick: () => toRollouts(`${quoted(grader)}.${STATES[code]}`) }, count(kinds[code])) : "0");
    return [plain(grader), found.length ? spark(found, boundsOf(grader)) : "–", fixed(mean(found)), fixed(deviation(found)), count(kinds[0]), ...[1, 2, 3].map(opens)];
  })));

// What a second grader found: the curve with its interval and its line, the alarm, and the best paid of what it calls wrong.
const audits = (found, width) => {
  const points = found.steps.map((point, at) => [typeof point.step === "number" ? point.step : at, point]).filter(([, point]) => known(point.paid_wrong));
  const rowOf = new Map(shownRows().map((row) => [keyOf(row), row]));
  const text = (value) => el("span", { class: "visible" }, visible(value.length > 300 ? `${value.slice(0, 300)}…` : value));
  return [el("h2", {}, "Audits"),
    el("p", { class: found.alarm ? "" : "fine" }, plain(found.in_words)),
    points.length > 1 ? figures(width, [auditCurve(points)]) : el("p", { class: "empty" }, "A curve takes two audited steps."),
    found.examples.length ? dataTable(["step", plain(found.watch), plain(found.grader), "best paid, though the audit says wrong"], found.examples.map((one) => {
      const row = rowOf.get(`${one.run} ${one.index}`);
      return [plain(one.step), fixed(one.watch.score), fixed(one.grader.score), row === undefined ? text(one.response)
        : el("button", { type: "button", onclick: () => openRollout(row) }, text(one.response || "(empty)"))];
    }), [3]) : null];
};
const auditCurve = (points) => {
  const last = points.at(-1)[1];
  const chart = curves("paid, though wrong", [{ points: points.map(([step, point]) => [step, point.paid_wrong, point.low, point.high]) }], {
    bounds: [0, 1], text: percent, bound: points.filter(([, point]) => known(point.line)).map(([step, point]) => [step, point.line]),
    marks: points.filter(([, point]) => point.alarm).map(([step, point]) => [step, point.paid_wrong, `alarm at step ${step}`]),
  });
  return (width) => add(chart(width), el("p", { class: "note" }, `${fixed(last.paid_wrong, 2)} in the last audits, with its interval; broken: what it may be (${fixed(last.line, 2)}).`));
};

// Tokens, and money where the price of all of them is known.
const costTable = () => {
  const graders = Object.entries(store.costs.graders), lines = graders.length > 1 ? [...graders, ["in all", store.costs]] : graders;
  const priced = graders.some(([, used]) => known(used.usd));
  return [dataTable(["grader", "calls", "prompt tokens", "of them cached", "written", ...(priced ? ["cost"] : [])], lines.map(([grader, used]) =>
    [plain(grader), count(used.calls), count(used.prompt_tokens), count(used.cached_tokens), count(used.completion_tokens), ...(priced ? [dollars(used.usd)] : [])])),
  graders.every(([, used]) => known(used.usd)) ? null : el("p", { class: "note" }, "A cost is shown where the price is known: layers: {price: …} of the judge in reward.yaml, or --price-in and --price-out.")];
};

const flatShare = (rows) => {
  const found = new Map();
  for (const row of rows) {
    const raw = store.numbers.raw[row], key = groupKey(row);
    if (!known(raw)) continue;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(raw);
  }
  const several = [...found.values()].filter((values) => values.length > 1);
  return several.length ? several.filter((values) => values.every((v) => v === values[0])).length / several.length : NaN;
};
// Student's quantile at 97.5 %, from the normal's: within 0.3 %.
const student = (free) => [1.4, 1.593, 2.556, 2.823, 2.372, 1.96].reduce((sum, term) => sum / free + term);
// The mean with its interval, by group: rollouts of a group are alike.
const interval = (rows, value) => {
  const found = new Map();
  let sum = 0, n = 0;
  for (const row of rows) {
    const x = value(row);
    if (!known(x)) continue;
    sum += x; n++;
    const part = found.get(groupKey(row)) ?? [0, 0];
    found.set(groupKey(row), [part[0] + x, part[1] + 1]);
  }
  if (!n) return [NaN];
  const middle = sum / n, parts = [...found.values()];
  if (parts.length < 2) return [middle];
  const half = (student(parts.length - 1) * Math.sqrt((parts.reduce((a, [x, k]) => a + (x - k * middle) ** 2, 0) * parts.length) / (parts.length - 1))) / n;
  return [middle, middle - half, middle + half];
};
const byStep = (rows) => {
  const steps = new Map();
  for (const row of rows) {
    const step = store.numbers.step[row];
    if (!known(step)) continue;
    if (!steps.has(step)) steps.set(step, []);
    steps.get(step).push(row);
  }
  return [...steps].sort((a, b) => a[0] - b[0]);
};
const overSteps = (rows) => {
  const ordered = byStep(rows);
  if (ordered.length < 2) return [];
  const per = (label, figure, options) => curves(label, [{ points: ordered.map(([step, members]) => [step, ...[figure(members)].flat()]) }], options);
  const parts = { bounds: [0, 1], text: percent };
  const of = (key) => (members) => mean(members.map((row) => store.numbers[key][row]).filter(known));
  const failing = [...store.graders].filter(([, column]) => rows.some((row) => column.state[row] === 3));
  return [
    per("reward", (members) => interval(members, scoredReward), { bounds: rewardBounds() }),
    ...[...store.graders].map(([grader, column]) => per(plain(grader), (members) => interval(members, (row) => column.score[row]), { bounds: boundsOf(grader) })),
    per("share of rewards missing", (members) => { const ended = members.filter(finished); return ended.filter(missing).length / ended.length; }, parts),
    ...failing.map(([grader, column]) => per(`${plain(grader)}: share failed`, (members) => members.filter((row) => column.state[row] === 3).length / members.length, parts)),
    per("share of groups with equal rewards", flatShare, parts),
    per(`response length in ${store.facts.length}`, (members) => interval(members, (row) => lengths()[row])),
    store.facts.usage.calls ? per("judge tokens per rollout", of("tokens")) : null,
    curves("judge tokens in a step", [{ points: store.costs.steps.map((used) => [used.step, used.prompt_tokens + used.completion_tokens]) }]),
    curves("US dollars in a step", [{ points: store.costs.steps.map((used) => [used.step, used.usd]) }]),
    Object.keys(store.costs.graders).length < 2 ? null : curves("US dollars in a step, by grader", Object.keys(store.costs.graders).map((grader) =>
      ({ name: plain(grader), points: store.costs.steps.map((used) => [used.step, used.graders[grader]?.usd]) }))),
    per("seconds of grading per rollout", of("seconds")),
  ].filter(Boolean);
};

// A grader's range, or undefined where one of its ends is open.
const boundsOf = (grader) => {
  const range = store.facts.specs.map((spec) => spec.graders[grader]?.range).find(Boolean) ?? [];
  return range.length === 2 && range.every((x) => typeof x === "number" && Number.isFinite(x)) ? range : undefined;
};
// Rewards that all lie within 0 and 1 have a mean that does.
const rewardBounds = () => { const [low, high] = span(shownRows().map(scoredReward).filter(known)); return low >= 0 && high <= 1 ? [0, 1] : [low, high]; };
// The middle of a grader's range, or of the scores seen where the range is open.
const middleOf = (grader) => { const [low, high] = boundsOf(grader) ?? span(store.graders.get(grader).score.filter(known)); return (low + high) / 2; };
const againstRules = (rows) => {
  const judges = store.facts.judges ?? [], rules = [...store.graders.keys()].filter((g) => !judges.includes(g));
  if (!judges.length || !rules.length) return [];
  return [el("h2", {}, "Judge against rule"), el("p", { class: "note" }, "High and low: above and below the middle of the grader's range. The cells open the rollouts."),
    el("div", { class: "several" }, judges.flatMap((judge) => rules.map((rule) => {
      const a = store.graders.get(judge), b = store.graders.get(rule), high = middleOf(judge), top = middleOf(rule);
      const both = rows.filter((row) => known(a.score[row]) && known(b.score[row]));
      const cell = (judgeHigh, ruleHigh) => el("button", { type: "button", class: "link", onclick: () => toRollouts(`${quoted(judge)}${judgeHigh ? ">" : "<="}${high} ${quoted(rule)}${ruleHigh ? ">" : "<="}${top}`) },
        (({ length }) => `${count(length)} (${share(length, both.length)})`)(both.filter((row) => a.score[row] > high === judgeHigh && b.score[row] > top === ruleHigh)));
      return both.length ? dataTable([plain(judge), plain(`${rule} low`), plain(`${rule} high`)], [["high", cell(true, false), cell(true, true)], ["low", cell(false, false), cell(false, true)]]) : null;
    })))];
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
    el("p", { class: "note" }, "AUC: how often a rollout that you marked good has the higher score than one marked bad; 0.5 is chance. ",
      el("code", {}, "judgekit certify"), " says how far a grader can be trusted by them.")];
};

// A reward as it stands in reward.yaml.
const yaml = (value, indent = "") => {
  if (value === null || typeof value !== "object") return typeof value === "string" && !/^[\w ./<>=&|~()-]+$/.test(value) ? JSON.stringify(value) : String(value);
  const entries = Array.isArray(value) ? value.map((item) => ["-", item]) : Object.entries(value);
  if (!entries.length) return Array.isArray(value) ? "[]" : "{}";
  if (Array.isArray(value) && value.every((item) => item === null || typeof item !== "object")) return `[${value.map((item) => yaml(item)).join(", ")}]`;
  return entries.map(([key, item]) => {
    const deep = item !== null && typeof item === "object" && !(Array.isArray(item) && item.every((x) => x === null || typeof x !== "object")) && Object.keys(item).length;
    return `\n${indent}${key === "-" && Array.isArray(value) ? "-" : `${key}:`}${deep ? yaml(item, `${indent}  `) : ` ${yaml(item)}`}`;
  }).join("");
};
const trees = () => store.facts.specs.length ? [el("h2", {}, "How it was graded"), store.facts.specs.map((spec) => el("div", {},
  el("pre", {}, visible(yaml({ reward: spec.reward, transform: spec.transform, missing_reward: spec.missing_reward }).trim())),
  dataTable(["grader", "version", "range"], Object.entries(spec.graders).map(([g, { version, range }]) => [plain(g), plain(version), plain((range ?? []).map((x) => short(x)).join(" … "))]))))] : [];
