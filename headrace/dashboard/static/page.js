// The page: listens to the events of the server, shows what they say, and sends commands.

import { beats, Charts, steps } from "./charts.js";
import { Graph } from "./graph.js";
import { bytes, count, h, instant, lasting, plural, rows, set, short, span } from "./words.js";

const $ = (id) => document.getElementById(id);
const page = { status: null, why: null, setup: null, answers: {}, points: [], chosen: null, selected: null };

// --- colours

const colourOf = new Map();
function colour(name) {
  if (!colourOf.has(name)) colourOf.set(name, `var(--s${colourOf.size % 8})`);
  return colourOf.get(name);
}

const dark = matchMedia("(prefers-color-scheme: dark)");
function paint() {
  const chosen = $("theme").value;
  document.documentElement.dataset.theme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
}
try {
  $("theme").value = localStorage.getItem("headrace.theme") ?? "auto";
} catch {
  // private windows may have no storage
}
$("theme").addEventListener("change", () => {
  try {
    localStorage.setItem("headrace.theme", $("theme").value);
  } catch {
    // the choice lasts until the page is closed
  }
  paint();
});
dark.addEventListener("change", paint);
paint();

// --- events

const source = new EventSource("/api/events");
const hear = (name, act) => source.addEventListener(name, (event) => act(JSON.parse(event.data)));
source.addEventListener("open", () => connected(true));
source.addEventListener("error", () => connected(false));
hear("figures", (points) => {
  page.points = points;
});
hear("now", (now) => {
  $("problem").hidden = !now.problem;
  if (now.problem) {
    set($("problem"), now.problem.text);
    return;
  }
  Object.assign(page, now);
  remember(now.status);
  later();
});
hear("setup", (setup) => {
  page.setup = setup.problem ? null : setup;
  if (setup.problem) set($("problem"), setup.problem.text);
  later();
});
hear("answers", (answers) => {
  page.answers = answers;
  later();
});
hear("read_only", (readOnly) => {
  page.readOnly = readOnly;
  later();
});

function connected(yes) {
  $("link").className = `link ${yes ? "live" : "lost"}`;
  set($("link"), yes ? "live" : "no connection: the page or the run has ended");
}

function remember(status) {
  const last = page.points.at(-1);
  if (last && status.written - last.at < 0.9) return;
  const streams = Object.fromEntries(Object.entries(status.streams).map(([name, each]) => [name, [each.rows_in, each.lag === null ? null : each.lag / (status.ticks_per_second ?? 1e6)]]));
  const queries = Object.fromEntries(Object.entries(status.queries).map(([name, each]) => [name, each.rows_out]));
  page.points.push({ at: status.written, streams, queries, bytes: status.bytes, spilled: status.spilled_bytes });
  if (page.points.length > 900) page.points.shift();
}

let waiting = false;
function later() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    show();
  });
}
new ResizeObserver(later).observe($("main"));
$("span").addEventListener("change", later);

// --- what is shown

const graph = new Graph($("graph"), (id) => {
  page.selected = id;
  showDetail();
});
const charts = new Charts($("charts"));

function show() {
  const { status, setup } = page;
  if (setup) showSetup();
  if (!status) return;
  for (const name of [...Object.keys(status.streams), ...Object.keys(status.queries)]) colour(name);
  showTop(status);
  showWhy();
  showTiles(status);
  const wrong = page.why.causes.filter((each) => !each.normal);
  graph.show(status, colour, wrong);
  showDetail();
  beats($("beats"), status, colour, wrong);
  showCharts(status);
  showStreams(status);
  showQueries(status, wrong);
  showMemory(status);
  showWindows(status);
  showLost(status);
  document.documentElement.dataset.ready = "yes";
}

function showTop(status) {
  set($("name"), status.pipeline);
  document.title = `${status.pipeline} ${status.state} · Headrace`;
  set($("state"), status.state);
  $("state").className = `pill ${status.state}`;
  const facts = [["on", status.runtime], ["for", lasting(status.elapsed)], ["clock", `${status.clock} ${instant(status.now, status)}`]];
  facts.push(status.batch === null ? ["checkpoints", count(status.checkpoints)] : ["micro-batch", count(status.batch)]);
  const key = JSON.stringify(facts);
  if ($("facts").dataset.key !== key) {
    $("facts").dataset.key = key;
    $("facts").replaceChildren(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }
  const ended = !["running", "starting"].includes(status.state);
  $("stop").disabled = ended || Boolean(page.readOnly);
  $("add").disabled = $("budget").disabled = Boolean(page.readOnly);
}

const BAD = ["failed", "killed", "budget too small", "stalled"];

function showWhy() {
  const { causes, notes, nothing } = page.why;
  const wrong = causes.filter((each) => !each.normal);
  const shown = wrong.length ? wrong : causes;
  const lines = shown.map((each) => ({ kind: each.normal ? "plain" : BAD.includes(each.cause) ? "bad" : "wrong", ...each }));
  if (!lines.length) lines.push({ kind: "good", cause: "", sentence: nothing, hint: "" });
  lines.push(...notes.map((note) => ({ kind: "plain", cause: "", sentence: note, hint: "" })));
  const key = JSON.stringify(lines.map((each) => [each.kind, each.cause, each.sentence, each.hint]));
  if ($("causes").dataset.key === key) return;
  $("causes").dataset.key = key;
  $("causes").replaceChildren(...lines.map((each) => h("li", { class: each.kind, "data-cause": each.cause }, each.cause ? h("strong", {}, each.cause) : "", each.sentence, each.hint ? h("span", { class: "helps" }, each.hint) : "")));
}

function showTiles(status) {
  const streams = Object.values(status.streams), queries = Object.values(status.queries);
  const sum = (all, name) => all.reduce((total, each) => total + each[name], 0);
  const lags = Object.entries(status.streams).filter(([, each]) => each.lag !== null && !each.ended);
  const worst = lags.sort((a, b) => b[1].lag - a[1].lag)[0];
  const held = streams.reduce((total, each) => total + each.held_rows, 0) + Object.values(status.graph).reduce((total, each) => total + each.queued, 0);
  const late = sum(streams, "rows_late"), rejected = sum(streams, "rows_rejected"), all = sum(streams, "rows_in");
  const share = (number) => (number ? `${((100 * number) / all).toFixed(2)} % of rows` : "none");
  const over = status.budget !== null && status.bytes > status.budget;
  const tiles = [
    ["Rows in", `${short(sum(streams, "rows_per_second"))}/s`, `${count(all)} in all`],
    ["Answers", `${short(sum(queries, "rows_per_second"))}/s`, `${count(sum(queries, "rows_out"))} in all`],
    ["Furthest behind", worst ? span(Math.max(0, worst[1].lag), status) : "–", worst ? worst[0] : "no stream"],
    ["In queues", short(held), "rows between operators"],
    ["Memory", bytes(status.bytes), status.budget === null ? "no budget" : `of ${bytes(status.budget)}`, over ? "bad" : ""],
    ["Late", short(late), share(late), late ? "warn" : ""],
    ["Rejected", short(rejected), share(rejected), rejected ? "warn" : ""],
  ];
  if ($("tiles").children.length !== tiles.length) {
    $("tiles").replaceChildren(...tiles.map(([what]) => h("div", { class: "tile" }, h("div", { class: "what" }, what), h("div", { class: "value" }), h("div", { class: "more" }))));
  }
  tiles.forEach(([, value, more, kind = ""], i) => {
    const tile = $("tiles").children[i];
    tile.className = `tile ${kind}`;
    set(tile.children[1], value);
    set(tile.children[2], more);
  });
}

function showDetail() {
  const found = page.selected && page.status ? Graph.describe(page.selected, page.status) : null;
  $("detail").hidden = !found;
  if (!found) return;
  const key = JSON.stringify(found);
  if ($("detail").dataset.key === key) return;
  $("detail").dataset.key = key;
  const sql = page.selected.startsWith("query ") ? page.setup?.queries.find((each) => `query ${each.name}` === page.selected)?.sql : null;
  const facts = sql ? [...found.facts, ["Text", h("code", {}, sql)]] : found.facts;
  $("detail").replaceChildren(h("strong", {}, found.title), h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}

function showCharts(status) {
  const length = Number($("span").value), to = Math.max(status.written, page.points.at(-1)?.at ?? 0), from = to - length;
  const points = page.points.filter((each) => each.at >= from - 2);
  const rates = (of) => points.slice(1).flatMap((each, i) => {
    const [now, before] = [of(each), of(points[i])];
    return now === undefined || before === undefined ? [] : [[Math.max(from, each.at), Math.max(0, now - before) / (each.at - points[i].at)]];
  });
  const streams = Object.keys(status.streams), queries = Object.keys(status.queries);
  const rate = (value) => `${short(value)}/s`;
  charts.show([
    { name: "Rows in", unit: rate, series: streams.map((name) => ({ name, colour: colour(name), points: rates((each) => each.streams[name]?.[0]) })) },
    { name: "Answers", unit: rate, series: queries.map((name) => ({ name, colour: colour(name), points: rates((each) => each.queries[name]) })) },
    { name: "Heartbeat behind the clock", unit: lasting, series: streams.map((name) => ({ name, colour: colour(name), points: points.filter((each) => (each.streams[name]?.[1] ?? null) !== null).map((each) => [Math.max(from, each.at), each.streams[name][1]]) })) },
    { name: status.budget === null ? "Memory" : "Memory and budget", unit: bytes, least: 1000, limit: status.budget, series: [{ name: "in memory", colour: "var(--s0)", points: points.map((each) => [Math.max(from, each.at), each.bytes]) }, ...(points.some((each) => each.spilled) ? [{ name: "on disk", colour: "var(--s1)", points: points.map((each) => [Math.max(from, each.at), each.spilled]) }] : [])] },
  ], from, to);
}

function named(name, sub) {
  return { id: `${name} ${sub}`, make: () => [h("span", { class: "swatch", style: `background: ${colour(name)}` }), name, sub ? h("span", { class: "sub" }, sub) : ""] };
}

function buttons(...made) {
  return { id: made.map(([text, , label]) => `${text} ${label}`).join() + String(page.readOnly), make: () => made.map(([text, act, label]) => h("button", { type: "button", class: "small", "aria-label": label, onclick: act, disabled: page.readOnly }, text)) };
}

function showStreams(status) {
  const head = [["stream"], ["rows/s", "n"], ["rows", "n"], ["heartbeat", "n"], ["behind", "n"], ["queue", "n"], ["late", "n"], ["rejected", "n"], ["", "acts"]];
  rows($("streams"), head, Object.entries(status.streams).map(([name, each]) => ({
    key: name,
    cells: [named(name, each.source), short(each.rows_per_second), count(each.rows_in), each.ended ? "ended" : instant(each.heartbeat, status), each.lag === null ? "–" : span(Math.max(0, each.lag), status), count(each.held_rows), count(each.rows_late), count(each.rows_rejected),
      page.setup?.streams[name]?.external ? buttons(["Bounds", () => askBounds(name), `Change the bounds of ${name}`]) : ""],
  })), "no stream has been read yet");
}

function showQueries(status, wrong) {
  const waits = new Map(status.waiting.map((each) => [each.query, each]));
  const head = [["query"], ["answers/s", "n"], ["answers", "n"], ["memory", "n"], ["waits"], ["", "acts"]];
  rows($("queries"), head, Object.entries(status.queries).map(([name, each]) => {
    const known = page.setup?.queries.find((one) => one.name === name), wait = waits.get(name);
    const stuck = wrong.find((one) => one.queries.includes(name));
    const waited = wait ? `for ${wait.streams[0] ?? "its inputs"}, ${span(Math.max(0, status.now - wait.since), status)}` : "–";
    const made = known ? [["Remove", () => askRemove(name), `Remove query ${name}`]] : [];
    if (known && page.setup.runtime === "embedded") made.unshift(known.paused ? ["Resume", () => tell({ kind: "resume", query: name }), `Resume query ${name}`] : ["Pause", () => tell({ kind: "pause", query: name }), `Pause query ${name}`]);
    if (known?.windows.length) made.unshift(["Resize", () => askResize(known), `Resize a window of ${name}`]);
    if (each.paused) return { key: name, cells: [named(name, each.streams.join(", ")), short(each.rows_per_second), count(each.rows_out), bytes(each.bytes), `paused, ${plural(each.held, "answer", "answers")} held`, buttons(...made)] };
    return { key: name, cells: [named(name, each.streams.join(", ")), short(each.rows_per_second), count(each.rows_out), bytes(each.bytes), stuck ? { id: `${stuck.cause} ${waited}`, make: () => h("span", { class: "warntext" }, wait ? waited : stuck.cause) } : waited, buttons(...made)] };
  }), "there are no queries");
}

function showMemory(status) {
  const share = status.budget ? Math.min(1, status.bytes / status.budget) : 0;
  const text = status.budget === null ? `${bytes(status.bytes)}, no budget` : `${bytes(status.bytes)} of ${bytes(status.budget)} (${((100 * status.bytes) / status.budget).toFixed(0)} %)`;
  const disk = status.spilled_bytes ? `, ${bytes(status.spilled_bytes)} on disk` : "";
  const largest = Object.entries(status.operators).sort((a, b) => b[1] - a[1]).slice(0, 8);
  if (!$("memory").children.length) $("memory").append(h("p"), h("div", { class: "bar", "aria-hidden": "true" }, h("i")), h("table"));
  const [line, bar, table] = $("memory").children;
  set(line, text + disk);
  bar.hidden = status.budget === null;
  bar.firstChild.style.width = `${100 * share}%`;
  bar.firstChild.className = share >= 1 ? "over" : "";
  rows(table, [["operator"], ["does"], ["state", "n"]], largest.map(([name, held]) => ({ key: name, cells: [name, status.graph[name] ? `${status.graph[name].kind} ${status.graph[name].detail}`.slice(0, 70) : "", bytes(held)] })), "no operator keeps state");
}

function showWindows(status) {
  const all = Object.entries(status.quality);
  if (!all.length) {
    if (!$("windows").querySelector(".empty")) $("windows").replaceChildren(h("p", { class: "empty" }, "No query has a window with MIN and MAX, or a granularity with COARSEST and FINEST."));
    return;
  }
  const key = all.map(([name]) => name).join();
  if ($("windows").dataset.key !== key) {
    $("windows").dataset.key = key;
    $("windows").replaceChildren(...all.map(() => h("div", { class: "window" }, h("div", { class: "row" }, h("strong"), h("span", { class: "hint" })), h("div"))));
  }
  all.forEach(([, each], i) => {
    const [row, place] = $("windows").children[i].children;
    set(row.children[0], `${span(each.value, status)} now`);
    set(row.children[1], `${each.what}; ${each.queries.join(", ")}; ${plural(each.changes, "change", "changes")}`);
    if (each.history.length) steps(place, each, status, "var(--s2)");
  });
}

function showLost(status) {
  const head = [["stream"], ["rows", "n"], ["why"]];
  rows($("lost"), head, status.reasons.map((each) => {
    const why = each.kind === "late" ? (each.first ? `late: ${each.first}` : `late by up to ${span(each.worst, status)}`) : `rejected: ${each.code} ${each.first}`;
    return { key: `${each.kind} ${each.stream} ${each.code} ${each.first}`, cells: [named(each.stream, each.kind), count(each.rows), { id: JSON.stringify([why, each.samples]), make: () => [why, ...each.samples.map((one) => h("span", { class: "sample" }, one))] }] };
  }), "none so far");
}

function showSetup() {
  const { setup, answers } = page;
  const queries = setup.queries.map((each) => each.name);
  if (!queries.includes(page.chosen)) page.chosen = queries[0] ?? null;
  const key = JSON.stringify([queries, page.chosen]);
  if ($("tabs").dataset.key !== key) {
    $("tabs").dataset.key = key;
    const focused = document.activeElement?.closest?.("#tabs") ? true : false;
    $("tabs").replaceChildren(...queries.map((name) => h("button", { type: "button", role: "tab", class: "small", id: `tab-${name}`, "aria-selected": String(name === page.chosen), "aria-controls": "answers", tabindex: name === page.chosen ? 0 : -1, onclick: () => choose(name), onkeydown: (event) => turn(event, queries) }, name)));
    if (focused) $("tabs").querySelector('[aria-selected="true"]')?.focus();
  }
  const of = page.chosen ? (answers[page.chosen] ?? {}) : {};
  const known = setup.queries.find((each) => each.name === page.chosen);
  const written = JSON.stringify([page.chosen, of]);
  if ($("answers").dataset.key !== written) {
    $("answers").dataset.key = written;
    $("answers").replaceChildren(...shownTail(of.sink, known, 10), ...["late", "rejected"].flatMap((what) => (of[what]?.rows.length ? [h("h3", {}, `${what} rows`), ...shownTail(of[what], known, 4)] : [])));
  }
  const applied = page.status?.runtime === "embedded" ? page.status.commands : null;
  rows($("log"), [["command"], ["written"], ["what"], ["state"]], [...setup.commands].reverse().map((each) => ({
    key: String(each.number),
    cells: [String(each.number), each.written.replace("T", " ").slice(0, 19), each.what, each.refused ? `refused: ${each.refused}` : applied === null ? "written" : each.number <= applied ? "applied" : "not applied yet"],
  })), "nothing was changed so far");
}

function shownTail(tail, query, most) {
  if (!tail) return [h("p", { class: "empty" }, query ? `The answers go to ${query.sink}, which this page cannot read.` : "There is no query.")];
  if (!tail.rows.length) return [h("p", { class: "empty" }, `No rows in ${tail.path} yet.`)];
  const numeric = tail.columns.map((_, i) => tail.rows.every((row) => row[i] === "" || !Number.isNaN(Number(row[i]))));
  const cells = [...tail.rows].reverse().slice(0, most).map((row) => h("tr", {}, row.map((value, i) => h("td", { class: numeric[i] ? "n" : "" }, value))));
  return [h("p", { class: "hint" }, `the newest rows of ${tail.path}, the newest first`), h("table", {}, h("thead", {}, h("tr", {}, tail.columns.map((name, i) => h("th", { scope: "col", class: numeric[i] ? "n" : "" }, name)))), h("tbody", {}, cells))];
}

function choose(name) {
  page.chosen = name;
  show();
}

function turn(event, queries) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  event.preventDefault();
  choose(queries[(queries.indexOf(page.chosen) + step + queries.length) % queries.length]);
}

// --- commands

function ask({ title, text = "", fields, ok, danger = false, make }) {
  set($("dialog-title"), title);
  set($("dialog-text"), text);
  $("error").hidden = true;
  $("ok").textContent = ok;
  $("ok").className = danger ? "danger" : "primary";
  $("fields").replaceChildren(...fields.map((each) => {
    const id = `field-${each.name}`, about = each.hint ? `${id}-hint` : null;
    const input = each.options ? h("select", { id, name: each.name, "aria-describedby": about }, each.options.map(([value, shown]) => h("option", { value }, shown))) : h(each.lines ? "textarea" : "input", { id, name: each.name, spellcheck: "false", autocomplete: "off", placeholder: each.placeholder, "aria-describedby": about });
    if (each.value !== undefined && each.value !== null) input.value = each.value;
    return h("div", { class: "field" }, h("label", { for: id }, each.label), input, each.hint ? h("span", { class: "hint", id: about }, each.hint) : "");
  }));
  $("form").onsubmit = async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData($("form")));
    $("ok").disabled = true;
    const failed = await send(make(values));
    $("ok").disabled = false;
    $("error").hidden = !failed;
    if (failed) set($("error"), failed);
    else $("dialog").close();
  };
  $("dialog").showModal();
}
$("cancel").addEventListener("click", () => $("dialog").close());

async function send(command) {
  try {
    const response = await fetch("/api/commands", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(command) });
    const answer = await response.json();
    if (!response.ok) return answer.error.text;
    toast(answer.said);
    return null;
  } catch (error) {
    return `cannot reach the page's server: ${error.message}`;
  }
}

// A command without a dialog: it can be taken back at once.
async function tell(command) {
  const failed = await send(command);
  if (failed) toast(failed);
}

let hiding = 0;
function toast(text) {
  set($("toast"), text);
  $("toast").hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => {
    $("toast").hidden = true;
  }, 6000);
}

$("add").addEventListener("click", () => ask({
  title: "Add a query", ok: "Add query", text: "It covers rows that are read from now on.",
  fields: [
    { name: "name", label: "Name", placeholder: "per_minute" },
    { name: "sql", label: "Query", lines: true, placeholder: "SELECT item, count(*) AS n\nFROM clicks [RANGE 1 MINUTE SLIDE 1 MINUTE]\nGROUP BY item", hint: `Streams: ${Object.keys(page.setup?.streams ?? {}).join(", ")}` },
    { name: "sink", label: "Results go to", placeholder: "per_minute.jsonl", hint: "A file: .jsonl, .csv, .parquet or .arrow, beside the pipeline file." },
  ],
  make: ({ name, sql, sink }) => ({ kind: "add_query", name, sql, sink }),
}));

$("stop").addEventListener("click", () => ask({ title: "Stop the run?", ok: "Stop run", danger: true, text: "It stops with a checkpoint; the next run continues from there.", fields: [], make: () => ({ kind: "stop" }) }));

$("budget").addEventListener("click", () => ask({
  title: "Set the memory budget", ok: "Set budget",
  fields: [
    { name: "budget", label: "Budget", placeholder: "64 MB", value: page.setup?.budget ?? "", hint: "Such as 64 MB or 25 %; leave it empty for no budget." },
    { name: "policy", label: "If the smallest windows do not fit", options: [["fail", "fail"], ["spill", "spill to disk"]], value: page.setup?.policy },
  ],
  make: ({ budget, policy }) => ({ kind: "budget", budget: budget.trim() || null, policy }),
}));

function askRemove(name) {
  ask({ title: `Remove query ${name}?`, ok: "Remove query", danger: true, text: "What it has written stays.", fields: [], make: () => ({ kind: "remove_query", name }) });
}

function askResize(query) {
  const options = query.windows.map((each) => [each.name, `${each.name}: ${each.least} to ${each.most}`]);
  ask({
    title: `Resize a window of ${query.name}`, ok: "Resize",
    fields: [{ name: "of", label: "Window", options }, { name: "size", label: "New size", placeholder: "30 seconds", hint: "Within the bounds of the query." }],
    make: ({ of, size }) => ({ kind: "resize", query: query.name, of, size }),
  });
}

function askBounds(stream) {
  const known = page.setup.streams[stream];
  const words = (value) => (value === null || value === undefined ? "" : String(value));
  ask({
    title: `Bounds of ${stream}`, ok: "Set bounds", text: "How late its rows may be. An empty field removes a bound.",
    fields: [
      { name: "disorder", label: "Behind the newest row (disorder)", placeholder: "5 seconds", value: words(known.disorder) },
      { name: "latency", label: "Behind the clock (latency)", placeholder: "10 seconds", value: words(known.latency) },
      { name: "guard", label: "Ahead of the clock (guard)", placeholder: "1 minute", value: words(known.guard) },
    ],
    make: (values) => ({ kind: "bounds", stream, bounds: Object.fromEntries(Object.entries(values).filter(([name, value]) => value.trim() !== words(known[name])).map(([name, value]) => [name, value.trim() || null])) }),
  });
}
