// The graph of streams, operators and queries: laid out once for each shape, then only its texts change.

import { bytes, count, s, set, short, span } from "./words.js";

const WIDTH = 178, HEIGHT = 64, ACROSS = 62, DOWN = 22;

export class Graph {
  constructor(place, onselect) {
    this.place = place;
    this.onselect = onselect;
    this.shape = "";
    this.boxes = new Map();
    this.selected = null;
  }

  // `wrong` are the causes of `why` that are not normal.
  show(status, colours, wrong) {
    const nodes = parts(status);
    const upright = this.place.clientWidth < 620;
    const shape = JSON.stringify([upright, nodes.map((n) => [n.id, n.inputs, n.title])]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.draw(nodes, upright, colours);
    }
    const waits = waitsOf(status);
    const stuck = new Set(wrong.flatMap((each) => each.operators));
    const holding = new Set(wrong.flatMap((each) => (each.stream ? [each.stream, ...each.also] : [])));
    for (const node of nodes) this.update(node, status, waits, stuck, holding);
  }

  draw(nodes, upright, colours) {
    const placed = layout(nodes, upright);
    const room = this.place.clientWidth, scale = placed.width > room ? Math.max(0.74, room / placed.width) : 1;
    const svg = s("svg", { class: "graph", width: placed.width * scale, height: placed.height * scale, viewBox: `0 0 ${placed.width} ${placed.height}` });
    this.arcs = [];
    const focused = document.activeElement?.dataset?.node;
    for (const node of nodes) {
      for (const input of node.inputs) {
        if (!placed.at.has(input)) continue;
        const path = s("path", { class: "arc", d: curve(placed.at.get(input), placed.at.get(node.id), upright) });
        this.arcs.push({ path, input, target: node.id });
        svg.append(path);
      }
    }
    this.boxes.clear();
    for (const node of nodes) {
      const { x, y } = placed.at.get(node.id);
      const texts = { title: s("text", { class: "title", x: 12, y: 20 }), detail: s("text", { x: 12, y: 37 }), figure: s("text", { class: "figure", x: 12, y: 54 }) };
      const box = s("g", { class: `box ${node.kind}`, transform: `translate(${x} ${y})`, tabindex: 0, role: "button", "aria-pressed": "false", "data-node": node.id },
        s("rect", { class: "body", width: WIDTH, height: HEIGHT, rx: node.kind === "operator" ? 8 : 16 }),
        node.kind === "stream" ? s("rect", { x: 0, y: 14, width: 4, height: HEIGHT - 28, rx: 2, style: `fill: ${colours(node.name)}` }) : null,
        Object.values(texts));
      box.addEventListener("click", () => this.select(node.id));
      box.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          this.select(node.id);
        }
      });
      this.boxes.set(node.id, { box, texts });
      svg.append(box);
    }
    this.place.replaceChildren(svg);
    if (focused && this.boxes.has(focused)) this.boxes.get(focused).box.focus();
    if (this.selected && !this.boxes.has(this.selected)) this.select(null);
  }

  select(id) {
    this.selected = this.selected === id ? null : id;
    for (const [each, { box }] of this.boxes) box.setAttribute("aria-pressed", String(each === this.selected));
    this.onselect(this.selected);
  }

  update(node, status, waits, stuck, holding) {
    const { box, texts } = this.boxes.get(node.id);
    const wait = waits.get(node.id);
    const late = wait ? status.now - wait.since : 0;
    const waiting = Boolean(wait) && stuck.has(node.id);
    box.classList.toggle("waiting", waiting);
    box.classList.toggle("holding", node.kind === "stream" && holding.has(node.name));
    set(texts.title, cut(node.title, 24));
    set(texts.detail, cut(node.detail, 24));
    const figure = waiting ? `waits for ${wait.streams[0] ?? "its inputs"}, ${span(Math.max(0, late), status)}` : node.figure;
    set(texts.figure, cut(figure, 28));
    box.setAttribute("aria-label", `${node.says} ${node.title}: ${node.detail}. ${figure}`);
    for (const arc of this.arcs) {
      if (arc.input !== node.id) continue;
      arc.path.classList.toggle("flow", node.rate > 0);
      arc.path.classList.toggle("blocked", node.kind === "stream" && (waits.get(arc.target)?.streams ?? []).includes(node.name) && box.classList.contains("holding"));
      arc.path.style.strokeWidth = String(Math.min(5, 1.4 + Math.log10(1 + node.rate) * 0.7));
    }
  }

  static describe(id, status) {
    const node = parts(status).find((each) => each.id === id);
    if (!node) return null;
    const facts = [["What it does", node.full]];
    if (node.kind === "operator") {
      const each = status.graph[node.name];
      facts.push(["Rows out", `${count(each.rows_out)} (${short(each.rows_per_second)}/s)`], ["Queue", `${count(each.queued)} rows wait in its inputs`], ["State", bytes(status.operators[node.name] ?? 0)]);
      const wait = status.waiting.find((one) => one.operator === node.name);
      if (wait) facts.push(["Waits for", `${wait.streams.join(", ")} since ${span(Math.max(0, status.now - wait.since), status)}; ${count(wait.rows)} rows held`]);
    }
    return { title: `${node.says} ${node.title}`, facts };
  }
}

function waitsOf(status) {
  return new Map(status.waiting.map((each) => [each.operator, each]));
}

function parts(status) {
  const found = [];
  for (const [name, each] of Object.entries(status.streams)) {
    const lag = each.ended ? "ended" : each.lag === null ? "no heartbeat yet" : `${span(Math.max(0, each.lag), status)} behind`;
    found.push({ id: `stream ${name}`, kind: "stream", says: "Stream", name, title: name, detail: each.source || "stream", full: each.source || "a stream", figure: `${short(each.rows_per_second)}/s · ${lag}`, rate: each.rows_per_second, inputs: [] });
  }
  const tables = new Set(Object.values(status.graph).flatMap((each) => each.inputs).filter((each) => each.startsWith("table ")));
  for (const id of tables) found.push({ id, kind: "table", says: "Table", name: id.slice(6), title: id.slice(6), detail: "table", full: "rows of a file, joined with streams", figure: "", rate: 0, inputs: [] });
  const answered = new Map();
  for (const [name, each] of Object.entries(status.graph)) {
    for (const query of each.answers) answered.set(query, name);
    const queue = each.queued ? ` · ${short(each.queued)} queued` : "";
    const held = status.operators[name] ? ` · ${bytes(status.operators[name])}` : "";
    found.push({ id: name, kind: "operator", says: "Operator", name, title: each.kind, detail: each.detail, full: `${each.kind} ${each.detail}`, figure: `${short(each.rows_per_second)}/s${queue || held}`, rate: each.rows_per_second, inputs: each.inputs });
  }
  for (const [name, each] of Object.entries(status.queries)) {
    const inputs = answered.has(name) ? [answered.get(name)] : each.streams.map((one) => `stream ${one}`);
    found.push({ id: `query ${name}`, kind: "query", says: "Query", name, title: name, detail: `${count(each.rows_out)} answers`, full: `a query over ${each.streams.join(", ")}`, figure: `${short(each.rows_per_second)}/s · ${bytes(each.bytes)}`, rate: each.rows_per_second, inputs });
  }
  return found;
}

// Layers by the longest path; within a layer, boxes stand near the middle of their inputs.
function layout(nodes, upright) {
  const byId = new Map(nodes.map((each) => [each.id, each]));
  const depth = new Map();
  const deep = (id) => {
    if (!depth.has(id)) {
      depth.set(id, 0);
      depth.set(id, 1 + Math.max(-1, ...byId.get(id).inputs.filter((one) => byId.has(one)).map(deep)));
    }
    return depth.get(id);
  };
  nodes.forEach((each) => deep(each.id));
  const deepest = Math.max(1, ...depth.values());
  const layers = Array.from({ length: deepest + 1 }, () => []);
  for (const node of nodes) layers[node.kind === "query" ? deepest : depth.get(node.id)].push(node);
  const order = new Map();
  layers.forEach((layer, at) => {
    const middle = (node) => {
      const known = node.inputs.filter((one) => order.has(one)).map((one) => order.get(one));
      return known.length ? known.reduce((a, b) => a + b, 0) / known.length : 0;
    };
    if (at) layer.sort((a, b) => middle(a) - middle(b));
    layer.forEach((node, i) => order.set(node.id, i - (layer.length - 1) / 2));
  });
  const widest = Math.max(...layers.map((layer) => layer.length));
  const across = upright ? WIDTH + 16 : HEIGHT + DOWN, along = upright ? HEIGHT + 34 : WIDTH + ACROSS;
  const at = new Map();
  layers.forEach((layer, i) => {
    for (const node of layer) {
      const side = (order.get(node.id) + (widest - 1) / 2) * across + 4;
      at.set(node.id, upright ? { x: side, y: i * along + 4 } : { x: i * along + 4, y: side });
    }
  });
  const long = layers.length * along - (upright ? 34 : ACROSS) + 8, wide = widest * across + 8;
  return { at, width: upright ? wide : long, height: upright ? long : wide };
}

function curve(from, to, upright) {
  if (upright) {
    const [x, y, u, v] = [from.x + WIDTH / 2, from.y + HEIGHT, to.x + WIDTH / 2, to.y];
    return `M${x} ${y} C${x} ${(y + v) / 2} ${u} ${(y + v) / 2} ${u} ${v}`;
  }
  const [x, y, u, v] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
  return `M${x} ${y} C${(x + u) / 2} ${y} ${(x + u) / 2} ${v} ${u} ${v}`;
}

function cut(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
