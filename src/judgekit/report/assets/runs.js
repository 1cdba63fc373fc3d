// Several ledgers together: a row for each, their curves over each other, and two compared.

const runs = { all: [], chosen: new Set(), sort: { key: "ended", down: true }, compared: null, still: null }; // still: what a page without a server holds
const MOST_CURVES = 6; // that the eye keeps apart

const runsChosen = () => {
  const chosen = runs.all.filter((run) => runs.chosen.has(run.number));
  return (chosen.length ? chosen : runsSorted()).slice(0, MOST_CURVES);
};
const runsSorted = () => {
  const { key, down } = runs.sort, sign = down ? -1 : 1;
  return [...runs.all].sort((a, b) => (!known(a[key]) || !known(b[key]) ? (known(a[key]) ? -1 : known(b[key]) ? 1 : 0) : (a[key] < b[key] ? -1 : a[key] > b[key] ? 1 : 0) * sign) || a.number - b.number);
};
const openRun = (run, row = null) => (runs.still ? say("This page holds no rollouts: judgekit view shows them.") : location.assign(`${run.number}/#${token}${row === null ? "" : `&tab=Rollouts&row=${row}`}`));
const sparkLine = (points) => {
  points = points.filter(([, v]) => known(v));
  if (points.length < 2) return "";
  const [x0, x1] = span(points.map(([x]) => x)), [y0, y1] = span(points.map(([, y]) => y));
  return el("svg", { class: "spark", viewBox: "0 0 96 20", role: "img", "aria-label": `reward over steps: ${fixed(points[0][1])} to ${fixed(points.at(-1)[1])}` },
    el("path", { class: "curve", d: points.map(([x, y], i) => `${i ? "L" : "M"}${(2 + (92 * (x - x0)) / (x1 - x0 || 1)).toFixed(1)} ${(18 - (16 * (y - y0)) / (y1 - y0 || 1)).toFixed(1)}`).join("") }));
};
const RUN_COLUMNS = [
  ["name", "run"], ["rollouts", "rollouts", (run) => count(run.rollouts)], ["groups", "groups", (run) => count(run.groups)], ["reward", "mean reward", (run) => fixed(run.reward)],
  ["steps", "over its steps", (run) => sparkLine(run.steps.map((one) => [one.step, one.reward]))],
  ["missing", "missing", (run) => percent(run.missing)], ["flat", "equal groups", (run) => percent(run.flat)], ["length", "length", (run) => `${short(run.length)} ${run.unit}`],
  ["tokens", "judge tokens", (run) => count(run.tokens)], ["usd", "cost", (run) => dollars(run.usd)], ["ended", "last written", (run) => (known(run.ended) ? new Date(run.ended * 1000).toISOString().slice(0, 16).replace("T", " ") : "–")],
];
const runsTable = () => {
  const shown = RUN_COLUMNS.filter(([key]) => key !== "usd" || runs.all.some((run) => known(run.usd)));
  const head = ([key, label]) => el("button", { type: "button", class: "link", "aria-label": `sort by ${label}`, onclick: () => { runs.sort = { key, down: runs.sort.key === key ? !runs.sort.down : key !== "name" }; drawRuns(); } },
    label + (runs.sort.key === key ? (runs.sort.down ? " ↓" : " ↑") : ""));
  return dataTable([...shown.map((column) => (column[0] === "steps" ? column[1] : head(column))), "what is wrong"], runsSorted().map((run) => [
    ...shown.map(([key, , text]) => (key !== "name" ? text(run) : [
      el("input", { type: "checkbox", "aria-label": plain(`choose ${run.name}`), checked: runs.chosen.has(run.number), onchange: () => { runs.chosen[runs.chosen.has(run.number) ? "delete" : "add"](run.number); drawRuns(); } }),
      " ", runs.still ? plain(run.name) : el("button", { type: "button", class: "link", onclick: () => openRun(run) }, plain(run.name))])),
    [run.problem ? el("span", { class: "chip failed" }, plain(run.problem)) : null, run.caught_up ? null : el("span", { class: "chip look" }, "reading …"),
      ...Object.entries(run.failed).map(([grader, n]) => el("span", { class: "chip failed" }, plain(`${grader} failed × ${count(n)}`))),
      ...run.signals.map((text) => el("span", { class: "chip look" }, plain(text)))],
  ]), [shown.length]);
};
const drawRuns = () => {
  const main = $("main"), top = main.scrollTop, focused = main.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null, width = Math.max(280, main.clientWidth - 32), chosen = runsChosen(), pair = runs.all.filter((run) => runs.chosen.has(run.number));
  $("title").textContent = `${count(runs.all.length)} runs`;
  document.title = `${count(runs.all.length)} runs · judgekit`;
  $("facts").textContent = `${count(runs.all.reduce((sum, run) => sum + run.rollouts, 0))} rollouts; choose ${runs.still && !runs.still.compared ? "some" : "two to compare them, more"} for their curves`;
  const graders = [...new Set(chosen.flatMap((run) => run.steps.flatMap((one) => Object.keys(one.graders))))];
  const over = (label, value) => curves(plain(label), chosen.map((run) => ({ name: plain(run.name), points: run.steps.map((one) => [one.step, value(one)]) })));
  const drawn = [over("reward", (one) => one.reward), ...graders.map((grader) => over(grader, (one) => one.graders[grader]))].filter(Boolean);
  main.replaceChildren(el("h2", {}, "Runs"), runsTable());
  if (drawn.length) add(main, el("h2", {}, "Over training steps"), chosen.length < (runs.chosen.size || runs.all.length) ? el("p", { class: "note" }, `The first ${MOST_CURVES} of them are drawn: choose others.`) : null, figures(width, drawn));
  if (runs.still) {
    if (pair.length === 2) {
      if (runs.still.compared) compare(main, runs.still.compared, (row) => openRun(pair[1], row));
      else add(main, el("p", { class: "empty" }, "Two of several are compared by ", el("code", {}, "judgekit view"), "."));
    }
  } else if (pair.length === 2) {
    // asked at once, which the server answers when both are read; and again when one of them has grown
    const numbers = pair.map((run) => run.number), key = pair.map((run) => (run.caught_up ? run.rollouts : "…")).join();
    if (String(runs.compared?.numbers) === String(numbers)) compare(main, runs.compared.found, (row) => openRun(pair[1], row));
    else add(main, el("p", { class: "empty" }, "Comparing …"));
    const stale = String(runs.compared?.numbers) !== String(numbers) || (!key.includes("…") && key !== runs.compared.key);
    if (stale && !runs.comparing) {
      runs.comparing = true;
      asked(`api/comparison?before=${numbers[0]}&after=${numbers[1]}`)
        .then((found) => { runs.compared = { numbers, key: [found.before.rollouts, found.after.rollouts].join(), found }; }, (error) => say(error.message))
        .finally(() => { runs.comparing = false; drawRuns(); });
    }
  }
  main.scrollTop = top;
  if (focused) [...main.querySelectorAll("[aria-label]")].find((one) => one.getAttribute("aria-label") === focused)?.focus({ preventScroll: true });
};
const startRuns = async () => {
  startTheme();
  $("help-open").remove();
  if ($("runs").textContent) runs.still = await unpack("runs");
  for (let before = ""; ;) {
    try {
      const found = runs.still?.runs ?? await asked("api/runs"), now = JSON.stringify(found);
      say("");
      if (now !== before) {
        if (!before && found.length === 2) runs.chosen = new Set([0, 1]); // in the order of the command: before, after
        runs.all = found.map((run, number) => ({ ...run, number }));
        drawRuns();
        before = now;
        document.documentElement.dataset.ready = "true";
      }
      if (runs.still) return;
    } catch (error) { say(error instanceof TypeError ? `The server does not answer: ${error.message}` : error.message); }
    await new Promise((resolve) => setTimeout(resolve, runs.all.every((run) => run.caught_up) && runs.all.length ? 2000 : 200));
  }
};
