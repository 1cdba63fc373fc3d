// Charts: a few kinds, drawn as SVG at the width that they get. A chart is a function of that width.

// Round numbers from *low* to *high*; the first and the last lie outside, or on them.
const ticks = (low, high, wanted = 4) => {
  const raw = (high - low) / wanted || 1, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= raw * 0.999);
  const first = Math.floor(low / step + 1e-6), found = [];
  for (let i = 0; i <= 3 * wanted; i++) { // counted: beyond 2^53 a sum may not grow
    found.push(+((first + i) * step).toPrecision(12));
    if (found.at(-1) >= high - step * 1e-6) break;
  }
  return found;
};
const span = (values) => {
  let low = Infinity, high = -Infinity;
  for (const x of values) { if (x < low) low = x; if (x > high) high = x; }
  return [low, high];
};
// From where to where an axis goes: the values with round ends, and never beyond *bounds*.
const domain = (values, [least, most] = [-Infinity, Infinity], wanted = 4) => {
  let [low, high] = span(values);
  if (low === high) {
    const around = Math.abs(low) > 1 ? Math.abs(low) / 10 : 0.5;
    [low, high] = low === 0 ? [0, Math.min(0.1, most)] : low > 0 && low <= 1 ? [0, 1] : [low - around, high + around];
  }
  return ticks(Math.max(low, least), Math.min(high, most), wanted).filter((tick) => (tick >= least && tick <= most) || !Number.isFinite(least + most));
};
const LEFT = 46, TOP = 8, RIGHT = 8, BOTTOM = 32;
// A picture with its axes: ticks along both, the name of the horizontal one below its end.
const frame = (label, width, xs, ys, { height = width < 420 ? 160 : 190, xname = "", xtext = short, ytext = short } = {}) => {
  const [x0, x1] = [xs[0], xs.at(-1)], [y0, y1] = [ys[0], ys.at(-1)];
  const x = (v) => LEFT + ((v - x0) / (x1 - x0 || 1)) * (width - LEFT - RIGHT), y = (v) => height - BOTTOM - ((v - y0) / (y1 - y0 || 1)) * (height - BOTTOM - TOP);
  const room = Math.max(2, Math.floor((width - LEFT) / 60)), every = Math.ceil(xs.length / room);
  const picture = el("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ys.map((v) => [el("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v) }), el("text", { x: LEFT - 6, y: y(v) + 3.5, "text-anchor": "end" }, ytext(v))]),
    xs.map((v, i) => [el("line", { class: "tick", x1: x(v), x2: x(v), y1: height - BOTTOM, y2: height - BOTTOM + 4 }),
      i % every ? null : el("text", { x: x(v), y: height - BOTTOM + 15, "text-anchor": i === xs.length - 1 && i ? "end" : "middle" }, xtext(v))]),
    xname ? el("text", { class: "axis-name", x: width - RIGHT, y: height - 3, "text-anchor": "end" }, xname) : null);
  return { picture, x, y };
};
const captioned = (picture, ...words) => el("figure", {}, el("figcaption", {}, ...words), picture);
// Charts in rows that are all full: of seven, four and three. Drawn at *width*, and again when they get another one.
const figures = (width, charts) => {
  charts = charts.filter(Boolean);
  if (!charts.length) return [];
  const block = el("div", { class: "charts" });
  const draw = (now) => { width = now; block.replaceChildren(...inRows(width, charts)); };
  draw(width);
  const watching = new ResizeObserver(([{ contentRect }]) => {
    if (!block.isConnected) watching.disconnect();
    else if (contentRect.width && Math.abs(contentRect.width - width) > 24) requestAnimationFrame(() => draw(contentRect.width)); // less is only scaled
  });
  watching.observe(block);
  return block;
};
const inRows = (width, charts) => {
  const rows = Math.ceil(charts.length / Math.max(1, Math.floor(width / 320))), found = [];
  for (let row = 0, at = 0; row < rows; row++) {
    const taken = Math.ceil((charts.length - at) / (rows - row)), each = Math.max(240, Math.floor((width - 24 * (taken - 1)) / taken));
    found.push(el("div", { class: "figures", style: { gridTemplateColumns: `repeat(${taken}, minmax(0, 1fr))` } }, charts.slice(at, at + taken).map((chart) => chart(each))));
    at += taken;
  }
  return found;
};

const edgesOf = (values, bounds, bins = 20) => {
  const axis = domain(values, bounds), [low, high] = [axis[0], axis.at(-1)];
  return { axis, edges: Array.from({ length: bins + 1 }, (_, i) => +(low + (i * (high - low)) / bins).toPrecision(10)) };
};
const binned = (values, edges) => {
  const counts = Array(edges.length - 1).fill(0);
  for (const v of values) {
    let i = Math.max(0, Math.min(counts.length - 1, Math.floor(((v - edges[0]) / (edges.at(-1) - edges[0])) * counts.length)));
    if (v < edges[i] && i) i--; else if (v >= edges[i + 1] && i < counts.length - 1) i++;
    counts[i]++;
  }
  return counts;
};
// *onpick* gets a bar's ends, and whether the upper one belongs to it.
const histogram = (label, values, { onpick = null, bounds } = {}) => (width) => {
  if (!values.length) return captioned(el("p", { class: "empty" }, "none"), el("b", {}, label));
  const { axis, edges } = edgesOf(values, bounds), counts = binned(values, edges), middle = mean(values);
  const { picture, x, y } = frame(`${label}: mean ${fixed(middle)} of ${count(values.length)}`, width, axis, ticks(0, Math.max(...counts), 3));
  counts.forEach((n, i) => {
    if (!n) return;
    const last = i === counts.length - 1, pick = () => onpick?.(edges[i], edges[i + 1], last);
    picture.append(el("rect", {
      class: onpick ? "bar picked" : "bar", x: x(edges[i]) + 0.5, width: Math.max(1, x(edges[i + 1]) - x(edges[i]) - 1), y: y(n), height: y(0) - y(n),
      tabindex: onpick ? 0 : undefined, role: onpick ? "button" : undefined, "aria-label": `${short(edges[i])} to ${short(edges[i + 1])}: ${n}`,
      onclick: pick, onkeydown: (e) => e.key === "Enter" && pick(),
    }, el("title", {}, `${short(edges[i])} … ${short(edges[i + 1])}: ${count(n)}`)));
  });
  picture.append(el("line", { class: "mean", x1: x(middle), x2: x(middle), y1: TOP, y2: y(0) }));
  return captioned(picture, el("b", {}, label), ` · mean ${fixed(middle)}, std ${fixed(deviation(values))}, n ${count(values.length)}`);
};
// A histogram in a line of a table.
const spark = (values, bounds) => {
  const { edges } = edgesOf(values, bounds, 16), counts = binned(values, edges), most = Math.max(...counts);
  return el("svg", { class: "spark", viewBox: "0 0 96 20", role: "img", "aria-label": `from ${short(edges[0])} to ${short(edges.at(-1))}` },
    el("line", { class: "axis", x1: 0, x2: 96, y1: 19.5, y2: 19.5 }),
    counts.map((n, i) => n ? el("rect", { class: "bar", x: i * 6 + 0.5, width: 5, y: 19 - Math.max(1, (18 * n) / most), height: Math.max(1, (18 * n) / most) }) : null));
};

// *lines*: {name, points: [[x, value, low, high], …]}; low and high are the band's ends. Bounds hold for both.
const curves = (label, lines, { bounds, text = short, xname = "step", marks = [], bound = [] } = {}) => {
  lines = lines.map((line) => ({ ...line, points: line.points.filter(([, v]) => known(v)) })).filter((line) => line.points.length > 1);
  if (!lines.length) return null;
  const within = (v) => Math.min(Math.max(v, bounds?.[0] ?? -Infinity), bounds?.[1] ?? Infinity);
  return (width) => {
    const all = lines.flatMap((line) => line.points);
    const ys = domain([...all.flatMap(([, v, low, high]) => [v, low, high].filter(known).map(within)), ...bound.map(([, v]) => v)], bounds);
    const { picture, x, y } = frame(`${label} over ${xname}s`, width, trimmed(all.map(([s]) => s)), ys, { xname, ytext: text });
    const path = (points, at) => points.map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(within(p[at])).toFixed(1)}`).join("");
    lines.forEach(({ name: title, points }, i) => {
      const tone = lines.length > 1 ? `tone-${i % 6}` : "", banded = points.filter(([, , low, high]) => known(low) && known(high));
      if (banded.length > 1) picture.append(el("path", { class: `band ${tone}`, d: `${path(banded, 3)}${path([...banded].reverse(), 2).replace("M", "L")}Z` }));
      picture.append(el("path", { class: `curve ${tone}`, d: path(points, 1) }));
      if (points.length <= 120) points.forEach(([s, v]) => picture.append(el("circle", { class: `dot ${tone}`, cx: x(s), cy: y(within(v)), r: 3 }, el("title", {}, `${title ? `${title}, ` : ""}${xname} ${count(s)}: ${text(v)}`))));
    });
    if (bound.length > 1) picture.append(el("path", { class: "bound", d: path(bound, 1) }));
    marks.forEach(([s, v, title]) => picture.append(el("circle", { class: "alarm", cx: x(s), cy: y(within(v)), r: 4 }, el("title", {}, title))));
    const one = lines.length === 1 && lines[0].points;
    return captioned(picture, el("b", {}, label), one ? ` · ${text(one[0][1])} → ${text(one.at(-1)[1])}` : lines.map((line, i) => [" ", el("span", { class: `key tone-${i % 6}` }, line.name)]));
  };
};
// Ticks that do not go beyond the values: steps of a training do not begin before its first.
const trimmed = (values) => {
  const [low, high] = span(values), inside = ticks(low, high, 5).filter((v) => v > low && v < high), room = (high - low) / 12;
  return low === high ? [low - 1, low, low + 1] : [low, ...inside.filter((v) => v - low > room && high - v > room), high];
};

const scatter = (label, rows, xs, ys, { onpick, xname, bounds }) => {
  rows = rows.filter((row) => known(xs[row]) && known(ys[row]));
  if (rows.length < 2) return null;
  const step = Math.ceil(rows.length / 2000);
  const drawn = rows.filter((_, i) => i % step === 0);
  return (width) => {
    const { picture, x, y } = frame(label, width, domain(rows.map((r) => xs[r])), domain(rows.map((r) => ys[r]), bounds), { xname, height: 220 });
    // a few paths of many dots instead of thousands of circles; several, so that a crowd is darker than one
    const paths = Array.from({ length: 8 }, () => []), said = el("title", {});
    drawn.forEach((row, i) => paths[i % 8].push(`M${x(xs[row]).toFixed(1)} ${y(ys[row]).toFixed(1)}h0`));
    picture.append(...paths.map((path) => el("path", { class: "dots", d: path.join("") })), said);
    const nearest = (e) => {
      const box = picture.getBoundingClientRect(), scale = width / box.width, [at, up] = [(e.clientX - box.left) * scale, (e.clientY - box.top) * scale];
      let best = 8, found = null;
      for (const row of drawn) {
        const away = Math.hypot(x(xs[row]) - at, y(ys[row]) - up);
        if (away < best) { best = away; found = row; }
      }
      return found;
    };
    picture.addEventListener("mousemove", (e) => {
      const row = nearest(e);
      picture.classList.toggle("picked", row !== null);
      said.textContent = row === null ? "" : `${short(xs[row])}, ${short(ys[row])}`;
    });
    picture.addEventListener("click", (e) => { const row = nearest(e); if (row !== null) onpick(row); });
    return captioned(picture, el("b", {}, label), step > 1 ? ` · every ${step}th of ${count(rows.length)} rollouts` : "");
  };
};
