// Markdown and formulas as elements. Nothing is parsed as HTML: every text becomes a text node, with what is hidden in it
// shown; links and images are named and lead nowhere. The marks of headings stay: an answer may be behind "####".

// Bounded, each of them: a text of nothing but opening marks must not hold the page up.
const MATH = /\$\$([\s\S]{1,2000}?)\$\$|\\\[([\s\S]{1,2000}?)\\\]|\\\(([\s\S]{1,1000}?)\\\)|\$(?![\s\d])((?:[^$\\\n]|\\.){1,1000}?)(?<!\s)\$(?!\d)|\$(\d(?:[^$\\\n]|\\.){0,500}?[\\^_=+*/<>-](?:[^$\\\n]|\\.){0,500}?)(?<!\s)\$(?!\d)/g;
const CODE = /(?<![\\`])(`{1,10})(?!`)([\s\S]{1,2000}?)(?<!`)\1(?!`)/g;
const INLINE = /\*\*(?=\S)([\s\S]{0,1000}?\S)\*\*|(?<!\w)__(?=\S)([\s\S]{0,1000}?\S)__(?!\w)|\*(?=[^\s*])([^*]{0,1000}?[^\s*])\*(?!\*)|~~(?=\S)([\s\S]{0,1000}?\S)~~|(!?)\[([^\]\n]{0,500})\]\(([^()\s]{0,1000})\)/g;
const LONGEST_MARKDOWN = 100000;
const MATH_ELEMENTS = new Set("math mrow mi mn mo ms mtext mspace msub msup msubsup munder mover munderover mfrac msqrt mroot mtable mtr mtd mstyle mmultiscripts none mprescripts".split(" "));
const MATH_ATTRIBUTES = new Set("display displaystyle mathvariant stretchy fence separator form lspace rspace linethickness columnalign rowspacing columnspacing accent accentunder width movablelimits minsize maxsize".split(" "));

// MathML from the page's data, if it holds nothing but what draws: the converter lets scripts and links through, and what
// hides its contents. Else the formula's source.
const formula = (source, latex, display) => {
  const raw = () => el("code", { class: "math" }, visible(source, needle())), xml = formula.known?.[latex];
  if (!xml || /<(?!\/?(?:m[a-z]+|none)[\s>/])|\s(?:on[a-z]+|style)\s*=/i.test(xml)) return raw(); // not even read
  let fine = true;
  const copied = (node) => {
    if (node.nodeType === 3) return document.createTextNode(plain(node.data));
    const attributes = [...(node.attributes ?? [])].filter(({ name: key }) => key !== "xmlns");
    if (node.nodeType !== 1 || !MATH_ELEMENTS.has(node.localName) || !attributes.every(({ name: key }) => MATH_ATTRIBUTES.has(key))) { fine = false; return null; }
    const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", node.localName);
    for (const { name: key, value } of attributes) made.setAttribute(key, value);
    return add(made, [...node.childNodes].map(copied));
  };
  const made = copied(new DOMParser().parseFromString(xml, "application/xml").documentElement);
  if (!fine) return raw();
  if (display) made.setAttribute("display", "block");
  return el("span", { class: "math", title: plain(source) }, made);
};

const inline = (text, depth = 0) => {
  const nodes = [];
  // code comes before formulas, formulas before the rest
  const parts = (pattern, piece, each, other) => {
    let at = 0;
    for (const match of piece.matchAll(pattern)) {
      if (match.index > at) other(piece.slice(at, match.index));
      each(match);
      at = match.index + match[0].length;
    }
    if (at < piece.length) other(piece.slice(at));
  };
  const words = (piece) => nodes.push(visible(piece, needle()));
  const inner = (piece) => (depth < 8 ? inline(piece, depth + 1) : visible(piece, needle()));
  parts(CODE, text, (code) => nodes.push(el("code", {}, visible(code[2], needle()))),
    (rest) => parts(MATH, rest, (found) => nodes.push(formula(found[0], (found.slice(1).find(known)).trim(), found[1] !== undefined || found[2] !== undefined)),
      (more) => parts(INLINE, more, ([, strong, strong2, soft, gone, image, label, where]) => {
        if (strong ?? strong2) nodes.push(el("strong", {}, inner(strong ?? strong2)));
        else if (soft) nodes.push(el("em", {}, inner(soft)));
        else if (gone) nodes.push(el("del", {}, inner(gone)));
        else nodes.push(image ? el("span", { class: "chip" }, "image") : null, " ", el("span", { class: "linked" }, image ? visible(label, needle()) : inner(label)), el("small", { class: "quiet" }, visible(` (${where}${image ? ", not loaded" : ""})`, needle())));
      }, words)));
  return nodes;
};

// The blocks of *text*: headings, lists, quotes, tables, code, formulas, paragraphs.
const markdown = (text, depth = 0) => {
  const lines = text.split("\n"), blocks = [];
  let at = 0;
  const while_ = (test) => { const from = at; while (at < lines.length && test(lines[at], at)) at++; return lines.slice(from, at); };
  const LIST = /^(\s*)([-*+]|\d{1,9}[.)])\s+/;
  const starts = (line) => /^\s*$|^\s{0,3}(```|~~~|#{1,6}\s|>|([-*_])(\s*\2){2,}\s*$)/.test(line) || LIST.test(line) || /^\s*(\$\$|\\\[)/.test(line);
  while (at < lines.length) {
    const line = lines[at], fence = /^\s{0,3}(```+|~~~+)\s*(.*)$/.exec(line), heading = /^\s{0,3}(#{1,6})\s+(.*)$/.exec(line);
    const display = /^\s*(?:\$\$|\\\[)/.exec(line);
    if (/^\s*$/.test(line)) at++;
    else if (fence) {
      at++;
      const body = while_((one) => !one.trim().startsWith(fence[1]));
      at++;
      blocks.push(el("div", { class: "fenced" }, fence[2] ? el("small", { class: "quiet" }, visible(fence[2], needle())) : null, el("pre", {}, visible(body.join("\n"), needle()))));
    } else if (heading) {
      at++;
      blocks.push(el("p", { class: `heading level-${heading[1].length}` }, el("span", { class: "quiet" }, `${heading[1]} `), inline(heading[2])));
    } else if (/^\s{0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) { at++; blocks.push(el("hr")); }
    else if (/^\s{0,3}>/.test(line) && depth < 8) blocks.push(el("blockquote", {}, markdown(while_((one) => /^\s{0,3}>/.test(one)).map((one) => one.replace(/^\s{0,3}> ?/, "")).join("\n"), depth + 1)));
    else if (LIST.test(line) && depth < 8) {
      const indent = LIST.exec(line)[1].length, numbered = /\d/.test(LIST.exec(line)[2]), items = [];
      while_((one) => {
        const found = LIST.exec(one);
        if (found && found[1].length <= indent + 1) {
          if (/\d/.test(found[2]) !== numbered || found[1].length < indent - 1) return false;
          items.push({ mark: found[2], lines: [one.slice(found[0].length)] });
          return true;
        }
        if (one.trim() && !/^\s/.test(one) && starts(one)) return false;
        if (!one.trim()) { items.at(-1).lines.push(""); return true; }
        if (!/^\s/.test(one) && items.at(-1).lines.at(-1) === "") return false;
        items.at(-1).lines.push(one.replace(/^\s{1,4}/, ""));
        return true;
      });
      blocks.push(el("ul", { class: "listed" }, items.map((item) => el("li", {}, el("span", { class: "quiet mark" }, item.mark), el("div", {}, markdown(item.lines.join("\n").trimEnd(), depth + 1))))));
    } else if (/\|/.test(line) && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[at + 1] ?? "") && /\|/.test(lines[at + 1])) {
      const cells = (one) => one.trim().replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim()));
      const head = cells(line);
      at += 2;
      blocks.push(el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, head.map((cell) => el("th", {}, cell)))),
        el("tbody", {}, while_((one) => /\|/.test(one)).map((one) => el("tr", {}, cells(one).map((cell) => el("td", {}, cell))))))));
    } else {
      const from = at;
      let open = Boolean(display); // a formula of several lines is one block
      const body = while_((one, place) => {
        if (open) { if (place > from || /^\s*(\$\$.*\$\$|\\\[.*\\\])/.test(one)) open = !/(\$\$|\\\])\s*$/.test(one); return true; }
        return place === from || !starts(one);
      });
      blocks.push(el("p", {}, inline(body.join("\n"))));
    }
  }
  return blocks;
};

// A text as a person reads it: rendered, or raw where that was wanted or it is very long.
const shownText = (text) => (state.raw || text.length > LONGEST_MARKDOWN ? el("pre", {}, visible(text, needle())) : el("div", { class: "prose" }, markdown(text)));
