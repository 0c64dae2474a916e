"use strict";
// Filters the examples in #data and shows them, a page at a time. Texts are only ever set as text.
const { systems, rows } = JSON.parse(document.getElementById("data").textContent);
const filters = document.getElementById("filters");
const list = document.getElementById("examples");
const PAGE = 20;

function make(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function choice(label, values) {
  const select = make("select");
  select.setAttribute("aria-label", label);
  select.append(new Option(label, ""), ...[...new Set(values)].sort().map((value) => new Option(value, value)));
  select.addEventListener("input", show);
  filters.append(select);
  return select;
}

const bucket = choice("every bucket", rows.map((row) => row.bucket));
const tool = choice("every tool", rows.flatMap((row) => row.called));
const side = choice("both sides", rows.map((row) => row.side));
const search = make("input");
search.type = "search";
search.placeholder = "search in messages and ids";
search.setAttribute("aria-label", search.placeholder);
search.addEventListener("input", show);
filters.append(search);

function textOf(row) {
  row.text ??= [row.id, ...row.about, JSON.stringify(row.messages)].join(" ").toLowerCase();
  return row.text;
}

function isChosen(row, word) {
  return (
    (!bucket.value || row.bucket === bucket.value) &&
    (!side.value || row.side === side.value) &&
    (!tool.value || row.called.includes(tool.value)) &&
    (!word || textOf(row).includes(word))
  );
}

function argument([name, value]) {
  return `  ${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`;
}

function message(one) {
  const node = make("div", undefined, one.trained ? "message trained" : "message");
  node.append(make("div", one.trained ? `${one.role}, trained` : one.role, "role"));
  if (one.think) node.append(make("div", one.think, "think"));
  const text = one.role === "system" ? systems[one.system] : one.text;
  if (text) node.append(make("div", text));
  for (const [name, args] of one.calls ?? [])
    node.append(make("pre", [name, ...Object.entries(args).map(argument)].join("\n")));
  return node;
}

function example(row) {
  const node = make("details");
  const asked = row.messages.find((one) => one.role === "user");
  const summary = make("summary");
  summary.append(make("code", row.id), ` ${asked ? asked.text.slice(0, 120) : ""}`);
  node.append(summary);
  node.addEventListener("toggle", () => {
    if (node.childElementCount > 1) return;
    const tokens = row.tokens.map(([all, trained]) => `${all} tokens, ${trained} trained`).join("; ");
    node.append(make("p", [row.side, row.bucket, ...row.about, tokens].join(" · "), "soft"));
    if (row.shown.length) node.append(make("p", `tools shown: ${row.shown.join(", ")}`, "soft"));
    node.append(...row.messages.map(message));
  });
  return node;
}

function show() {
  const word = search.value.trim().toLowerCase();
  const chosen = rows.filter((row) => isChosen(row, word));
  list.replaceChildren(make("p", `${chosen.length} of ${rows.length}`, "soft"));
  let shown = 0;
  const more = make("button", "more");
  more.addEventListener("click", () => {
    more.remove();
    list.append(...chosen.slice(shown, (shown += PAGE)).map(example));
    if (shown < chosen.length) list.append(more);
  });
  more.click();
}

show();
