// The search language. All terms must hold:  reward<0.3  judge.failed  status=masked  text~/regex/  "a phrase"  -words
// Words that follow each other are one text, with the spaces between them.

const NUMBERS = {
  reward: (row) => store.numbers.reward[row], raw: (row) => store.numbers.raw[row], step: (row) => store.numbers.step[row],
  length: (row) => lengths()[row], tokens: (row) => store.numbers.tokens[row], calls: (row) => store.numbers.calls[row],
  seconds: (row) => store.numbers.seconds[row], index: (row) => store.numbers.index[row],
  score: (row) => markOf(row)?.score, advantage: (row) => store.numbers.raw[row] - groupMean(groupKey(row)),
};
const errorsOf = (row) => [...store.graders.values()].filter((column) => column.state[row] === 3).map((column) => store.names.error[column.error[row]][0]);
const NAMES = {
  status: (row) => name("status", row), source: (row) => name("source", row), phase: (row) => name("phase", row), finish: (row) => name("finish", row),
  run: (row) => name("run", row), group: (row) => name("group", row).id, id: (row) => store.id[row], error: errorsOf,
  look: (row) => suspicions(row).map((one) => one.kind), mark: (row) => markOf(row)?.mark ?? "", note: (row) => markOf(row)?.note ?? "",
};
const TEXTS = ["text", "prompt", "response", "reason"];

// A field by its name; a grader comes before a column of its name, which is still there as rollout.length, say.
const fieldOf = (given) => {
  const plainly = given.replace(/^rollout\./, "");
  if (store.graders.has(given)) { const column = store.graders.get(given); return { number: (row) => column.score[row] }; }
  if (Object.hasOwn(NUMBERS, plainly)) return { number: NUMBERS[plainly] };
  if (Object.hasOwn(NAMES, plainly)) return { name: NAMES[plainly] };
  return TEXTS.includes(plainly) ? { text: plainly } : null;
};
const fieldNames = () => [...store.graders.keys(), ...Object.keys(NUMBERS), ...Object.keys(NAMES), ...TEXTS];
// A name or a value as it is written in a search.
const quoted = (text) => (/^[\p{L}\p{N}_.+-]+$/u.test(text) ? text : `"${text.replace(/["\\]/g, "\\$&")}"`);

class QueryError extends Error {}

const OPERATORS = /(!~|~|!=|<=|>=|=|<|>)/y;
const WORD = /[\p{L}_][\p{L}\p{N}_.-]*/uy;
const STRING = /"((?:[^"\\]|\\.)*)"/sy;
const EXPRESSION = /\/((?:[^/\\\n]|\\.)+)\/(i?)(?=\s|$)/y;
const BARE = /\S+/y;

// The terms of a search: {not, rows: (row) => boolean} over columns, {not, text: {text, field, regex}} over texts. Throws a QueryError.
const parseQuery = (given) => {
  const terms = [];
  let at = 0, words = null;
  const take = (pattern) => { pattern.lastIndex = at; const found = pattern.exec(given); if (found) at += found[0].length; return found; };
  const flush = () => { if (words) terms.push({ not: words.not, text: { text: given.slice(words.from, words.to), field: "text", regex: false } }); words = null; };
  while (take(/\s*/y), at < given.length) {
    const from = at, not = /-(?=[\p{L}"/_])/uy;
    const negated = take(not) !== null, begin = at;
    const string = take(STRING);
    if (!string && given[at] === '"' && given.indexOf('"', at + 1) < 0) throw new QueryError('A quote is not closed: put " at its end.');
    const word = string ? null : take(WORD);
    const key = string ? string[1].replace(/\\(.)/gs, "$1") : word?.[0];
    const operator = key === undefined ? null : take(OPERATORS);
    if (operator) { flush(); terms.push({ not: negated, ...comparisonOf(key, operator[0], valueAt(take)) }); continue; }
    if (string && (at === given.length || /\s/.test(given[at]))) { flush(); terms.push({ not: negated, text: { text: key, field: "text", regex: false } }); continue; }
    const state = word && (at === given.length || /\s/.test(given[at])) && stateTerm(key);
    if (state) { flush(); terms.push({ not: negated, rows: state }); continue; }
    at = begin;
    const expression = take(EXPRESSION);
    if (expression) { flush(); terms.push({ not: negated, text: textOf(expression, "text") }); continue; }
    take(BARE);
    if (words && !negated) words.to = at;
    else { flush(); words = { not: negated, from: negated ? begin : from, to: at }; }
  }
  flush();
  return terms.filter((term) => term.rows || term.text.text);
};
const valueAt = (take) => {
  const expression = take(EXPRESSION);
  if (expression) return { expression };
  const string = take(STRING);
  return { text: string ? string[1].replace(/\\(.)/gs, "$1") : take(BARE)?.[0] ?? "" };
};
const stateTerm = (word) => {
  const dot = word.lastIndexOf("."), code = STATES.indexOf(word.slice(dot + 1)), grader = word.slice(0, dot);
  if (dot < 0 || code < 0) return null;
  if (grader === "any") return (row) => [...store.graders.values()].some((column) => column.state[row] === code);
  const column = store.graders.get(grader);
  if (!column) throw new QueryError(`No grader is called '${grader}'. There are ${[...store.graders.keys(), "any"].join(", ")}.`);
  return (row) => column.state[row] === code;
};
const textOf = ([whole, source, flag], field) => {
  try { new RegExp(source); } catch { throw new QueryError(`${whole} is no regular expression.`); }
  return { text: (flag ? "(?i)" : "") + source, field, regex: true };
};
const comparisonOf = (key, operator, { expression, text }) => {
  const field = fieldOf(key), said = `${key}${operator}${expression?.[0] ?? text}`;
  if (!field && STATES.includes(text) && operator === "=") throw new QueryError(`No grader is called '${key}'.`);
  if (!field) throw new QueryError(`No field is called '${key}'. There are ${fieldNames().join(", ")}. To search for the text, write "${said}".`);
  const matches = operator.endsWith("~"), sign = operator[0] === "!";
  if (!expression && !text) throw new QueryError(`${said} lacks what comes after ${operator}.`);
  if (expression && !matches) throw new QueryError(`A regular expression goes with ~, as in ${key}~${expression[0]}.`);
  if (field.text) {
    if (!matches) throw new QueryError(`${key} is a text: write ${key}~word or ${key}~/expression/.`);
    return { opposite: sign, text: expression ? textOf(expression, field.text) : { text, field: field.text, regex: false } };
  }
  if (field.number) {
    if (matches) throw new QueryError(`${key} is a number: write ${key}<0.5, say.`);
    if (text === "none") {
      if (!/^!?=$/.test(operator)) throw new QueryError(`${said}: none goes with = and !=.`);
      return { rows: (row) => known(field.number(row)) === sign };
    }
    const x = Number(text);
    if (Number.isNaN(x)) {
      const state = operator === "=" && STATES.includes(text);
      throw new QueryError(state ? `Write ${key}.${text}.` : `${said}: '${text}' is no number.`);
    }
    const compare = { "<": (y) => y < x, ">": (y) => y > x, "<=": (y) => y <= x, ">=": (y) => y >= x, "=": (y) => y === x, "!=": (y) => y !== x }[operator];
    return { rows: (row) => { const y = field.number(row); return known(y) ? compare(y) : sign; } };
  }
  if (/[<>]/.test(operator)) throw new QueryError(`${key} is no number: write ${key}=${text} or ${key}~${text}.`);
  let holds;
  if (expression) {
    const pattern = new RegExp(textOf(expression, "").text.replace(/^\(\?i\)/, ""), expression[2]);
    holds = (found) => pattern.test(found);
  } else if (matches) { const lower = text.toLowerCase(); holds = (found) => found.toLowerCase().includes(lower); }
  else holds = (found) => found === text;
  return { rows: (row) => [field.name(row)].flat().some(holds) !== sign };
};

// The search with a term set to another value, or without it: what a choice in a menu does. *name* and operator are the term's.
const withTerm = (given, begin, value) => {
  const terms = given.match(/(?:"(?:[^"\\]|\\.)*"|[^\s"])+/g) ?? [];
  const kept = terms.filter((term) => !term.startsWith(begin));
  return [...kept, ...(value === null ? [] : [begin + quoted(value)])].join(" ");
};
const termOf = (given, begin) => {
  const term = (given.match(/(?:"(?:[^"\\]|\\.)*"|[^\s"])+/g) ?? []).find((one) => one.startsWith(begin));
  if (term === undefined) return "";
  const value = term.slice(begin.length);
  return value.startsWith('"') ? value.slice(1, -1).replace(/\\(.)/g, "$1") : value;
};
