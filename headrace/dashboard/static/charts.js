// Charts with one time axis: lines over the system's clock, heartbeats over the time of the rows.

import { clock, h, instant, s, span } from "./words.js";

const LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 22, HEIGHT = 150;

export class Charts {
  constructor(place) {
    this.place = place;
    this.charts = new Map();
    this.at = null;
  }

  // `charts`: [{name, unit, series: [{name, colour, points: [[t, value]]}], limit}]
  show(charts, from, to) {
    this.from = from;
    this.to = to;
    const names = new Set(charts.map((each) => each.name));
    for (const [name, known] of this.charts) {
      if (!names.has(name)) {
        known.element.remove();
        this.charts.delete(name);
      }
    }
    for (const chart of charts) {
      if (!this.charts.has(chart.name)) this.make(chart.name);
      this.draw(this.charts.get(chart.name), chart);
    }
  }

  make(name) {
    const svg = s("svg", { tabindex: 0, role: "img" });
    const legend = h("div", { class: "legend" });
    const element = h("div", { class: "chart" }, h("h3", {}, name), svg, legend);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      this.point(this.from + ((event.clientX - box.left - LEFT) / Math.max(1, box.width - LEFT - RIGHT)) * (this.to - this.from));
    });
    svg.addEventListener("pointerleave", () => this.point(null));
    svg.addEventListener("blur", () => this.point(null));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.point((this.at ?? this.to) + (step * (this.to - this.from)) / 60);
    });
    this.charts.set(name, { element, svg, legend, chart: null });
    this.place.append(element);
  }

  point(at) {
    this.at = at === null ? null : Math.min(this.to, Math.max(this.from, at));
    for (const known of this.charts.values()) if (known.chart) this.draw(known, known.chart);
  }

  draw(known, chart) {
    known.chart = chart;
    const { svg, legend } = known;
    const width = Math.max(200, svg.clientWidth || 330);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const inner = width - LEFT - RIGHT, low = HEIGHT - BOTTOM;
    const top = nice(Math.max(chart.least ?? 1, chart.limit ?? 0, ...chart.series.flatMap((each) => each.points.map((point) => point[1]))));
    const x = (t) => LEFT + ((t - this.from) / (this.to - this.from)) * inner;
    const y = (value) => low - (Math.max(0, value) / top) * (low - TOP);
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      parts.push(s("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(top * share), y2: y(top * share) }), s("text", { x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, chart.unit(top * share)));
    }
    for (const share of [0, 0.5, 1]) {
      parts.push(s("text", { x: LEFT + inner * share, y: HEIGHT - 6, "text-anchor": ["start", "middle", "end"][share * 2] }, clock(this.from + (this.to - this.from) * share)));
    }
    if (chart.limit) parts.push(s("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: y(chart.limit), y2: y(chart.limit) }));
    for (const each of chart.series) {
      const line = each.points.map(([t, value], i) => `${i ? "L" : "M"}${x(t).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      if (line) parts.push(s("path", { class: "series", d: line, style: `stroke: ${each.colour}` }));
    }
    if (this.at !== null) parts.push(s("line", { class: "cross", x1: x(this.at), x2: x(this.at), y1: TOP, y2: low }));
    svg.replaceChildren(...parts);
    const values = chart.series.map((each) => [each, at(each.points, this.at)]);
    legend.replaceChildren(...values.map(([each, value]) => h("span", {}, h("span", { class: "swatch", style: `background: ${each.colour}` }), `${each.name} `, h("b", {}, value === null ? "–" : chart.unit(value)))));
    const when = this.at === null ? "now" : `at ${clock(this.at)}`;
    svg.setAttribute("aria-label", `${chart.name}, ${when}: ${values.map(([each, value]) => `${each.name} ${value === null ? "unknown" : chart.unit(value)}`).join(", ") || "no values"}. Arrow keys move along the time axis.`);
  }
}

function at(points, time) {
  if (!points.length) return null;
  if (time === null) return points[points.length - 1][1];
  let found = null;
  for (const [t, value] of points) if (t <= time + 1) found = value;
  return found;
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.9999);
}

// One lane for each stream, on a common axis of the times of rows: filled as far as the stream is complete.
export function beats(place, status, colours, wrong) {
  const streams = Object.entries(status.streams);
  const width = Math.max(300, place.clientWidth), narrow = width < 620;
  const left = narrow ? 8 : 150, right = 14, lane = narrow ? 44 : 34, top = 18;
  const known = (each) => !each.ended && each.heartbeat !== null && Math.abs(each.heartbeat) < 4e18;
  const live = streams.filter(([, each]) => known(each)).map(([, each]) => each.heartbeat);
  const stuck = new Set(wrong.flatMap((each) => each.operators));
  const due = status.waiting.filter((each) => each.streams.length && stuck.has(each.operator));
  const sensible = Math.abs(status.now) < 4e18;
  const ends = [...live, ...due.map((each) => each.wanted), ...(sensible ? [status.now] : [])].filter((each) => Math.abs(each) < 4e18);
  if (!ends.length) {
    place.replaceChildren(h("p", { class: "empty" }, "No stream has a heartbeat yet."));
    return;
  }
  const last = Math.max(...ends), first = Math.min(...ends);
  const whole = Math.max(last - first, (status.ticks_per_second ?? 1) * 2);
  const begin = last - whole * 1.25, x = (t) => left + ((Math.max(begin, t) - begin) / (last - begin)) * (width - left - right);
  const height = top + streams.length * lane + 26;
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  const said = [];
  const shortest = (text, room) => (text.length * 6.4 > room ? `${text.slice(0, Math.max(3, Math.floor(room / 6.4) - 1))}…` : text);
  streams.forEach(([name, each], i) => {
    const y = top + i * lane, bar = narrow ? y + 18 : y + 6, tall = narrow ? 16 : 20;
    const end = each.ended ? width - right : known(each) ? x(each.heartbeat) : left;
    const text = each.ended ? "ended" : known(each) ? `${instant(each.heartbeat, status)}${each.lag === null ? "" : `, ${span(Math.max(0, each.lag), status)} behind`}` : "no heartbeat yet";
    const room = width - right - left;
    const inside = end - left > text.length * 6.6 + 16;
    svg.append(
      s("text", { class: "name", x: narrow ? left : 0, y: narrow ? y + 12 : y + 20 }, shortest(name, narrow ? room : 140)),
      s("rect", { class: "lane", x: left, y: bar, width: room, height: tall, rx: 4 }),
      s("rect", { x: left, y: bar, width: Math.max(2, end - left), height: tall, rx: 4, style: `fill: ${colours(name)}`, opacity: 0.35 }),
      s("rect", { x: end - 3, y: bar - 2, width: 4, height: tall + 4, rx: 2, style: `fill: ${colours(name)}` }),
      s("text", { x: inside ? end - 8 : end + 8, y: bar + tall / 2 + 4, "text-anchor": inside ? "end" : "start", style: "fill: var(--ink)" }, text));
    said.push(`${name}: ${text}`);
  });
  const drawn = new Set();
  for (const each of due) {
    for (const stream of each.streams) {
      const i = streams.findIndex(([name]) => name === stream);
      const key = `${i} ${each.wanted}`;
      if (i < 0 || drawn.has(key)) continue;
      drawn.add(key);
      const y = top + i * lane + (narrow ? 14 : 2);
      svg.append(s("line", { class: "want", x1: x(each.wanted), x2: x(each.wanted), y1: y, y2: y + lane - 8 }));
    }
    said.push(`${each.query} needs ${each.streams.join(", ")} to reach ${instant(each.wanted, status)}`);
  }
  if (due.length) {
    const labels = [...new Set(due.map((each) => each.query))];
    svg.append(s("text", { class: "wanttext", x: left, y: 11 }, shortest(`┆ needed by ${labels.join(", ")}`, width - left - 70)));
  }
  if (sensible) svg.append(s("line", { class: "now", x1: x(status.now), x2: x(status.now), y1: top - 4, y2: height - 22 }), s("text", { x: x(status.now), y: 11, "text-anchor": "end" }, "now"));
  for (const share of narrow ? [0, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    const t = begin + (last - begin) * share;
    svg.append(s("text", { x: x(t), y: height - 6, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" }, instant(t, status)));
  }
  svg.setAttribute("aria-label", `Heartbeats. ${said.join(". ")}.`);
  place.replaceChildren(svg);
}

// The sizes of a window over the times of rows, as steps.
export function steps(place, quality, status, colour) {
  const width = Math.max(240, place.clientWidth), height = 84, left = 60, right = 8;
  const sane = Math.abs(status.now) < 4e18 ? status.now : quality.history.at(-1)[0];
  const changes = quality.history.filter(([t]) => Math.abs(t) < 4e18).map(([t]) => t);
  const oldest = Math.min(sane, ...changes), room = Math.max(sane - oldest, (status.ticks_per_second ?? 1) * 10);
  const begin = sane - room * 1.1;
  const x = (t) => left + ((Math.min(sane, Math.max(begin, t)) - begin) / (sane - begin)) * (width - left - right);
  const y = (value) => height - 22 - (value / quality.most) * (height - 32);
  let line = "";
  quality.history.forEach(([t, value], i) => {
    const next = i + 1 < quality.history.length ? quality.history[i + 1][0] : sane;
    line += `${i ? "L" : "M"}${x(t).toFixed(1)} ${y(value).toFixed(1)}L${x(next).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  const shown = (value) => quality.rows ? `${value} rows` : span(value, status);
  const label = `${quality.what}: ${shown(quality.value)} now; ${quality.history.length - 1} changes`;
  place.replaceChildren(s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    [quality.least, quality.most].map((value) => [s("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }), s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, shown(value))]),
    s("path", { class: "series", d: line, style: `stroke: ${colour}` }),
    s("text", { x: left, y: height - 6 }, instant(begin, status)), s("text", { x: width - right, y: height - 6, "text-anchor": "end" }, instant(sane, status))));
}

