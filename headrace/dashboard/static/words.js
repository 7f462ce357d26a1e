// Numbers, durations and instants for people, and small helpers that build elements.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== ""));
  return element;
}

export function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function count(number) {
  return Math.round(number).toLocaleString("en");
}

export function short(number) {
  const size = Math.abs(number);
  if (size >= 1e9) return `${(number / 1e9).toFixed(1)} G`;
  if (size >= 1e6) return `${(number / 1e6).toFixed(1)} M`;
  if (size >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  return size >= 10 || Number.isInteger(number) ? count(number) : number.toFixed(1);
}

export function bytes(number) {
  if (number >= 1e9) return `${(number / 1e9).toFixed(2)} GB`;
  if (number >= 1e5) return `${(number / 1e6).toFixed(1)} MB`;
  return number >= 1000 ? `${(number / 1e3).toFixed(1)} kB` : `${Math.round(number)} B`;
}

export function lasting(seconds) {
  const size = Math.abs(seconds);
  if (size < 0.001) return "0 s";
  if (size < 1) return `${Math.round(seconds * 1000)} ms`;
  if (size < 10) return `${seconds.toFixed(1)} s`;
  if (size < 120) return `${Math.round(seconds)} s`;
  if (size < 7200) return `${Math.round(seconds / 60)} min`;
  return size < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} d`;
}

export function span(ticks, status) {
  return status.ticks_per_second === null ? count(ticks) : lasting(ticks / status.ticks_per_second);
}

export function instant(tick, status, today = true) {
  if (tick === null || Math.abs(tick) >= 4e18) return "–";
  const per = status.ticks_per_second;
  const millis = per === null ? 0 : (tick / per) * 1000;
  if (per === null || Math.abs(millis) < 1e10) return count(tick);
  const text = new Date(millis).toISOString();
  const same = Math.abs(Date.now() - millis) < 43200000;
  return same && today ? text.slice(11, 21) : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// Rows of a table that keep their elements, so that focus and selection survive an update.
export function rows(table, head, lines, empty) {
  if (!table.tHead) {
    table.append(h("thead", {}, h("tr", {}, head.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))), h("tbody"));
  }
  const body = table.tBodies[0];
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = lines.map(({ key, cells }) => {
    let row = known.get(key);
    if (!row) {
      row = h("tr", { "data-key": key }, head.map(([, kind], i) => h(i === 0 ? "td" : "td", { class: kind })));
    }
    cells.forEach((cell, i) => put(row.cells[i], cell));
    return row;
  });
  if (!wanted.length) wanted.push(h("tr", { "data-key": "" }, h("td", { colspan: head.length, class: "empty" }, empty)));
  for (const [i, row] of wanted.entries()) if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] ?? null);
  while (body.rows.length > wanted.length) body.lastElementChild.remove();
}

// A cell is a text, or {id, make}: an element that is made again only if its id changes.
function put(cell, content) {
  if (typeof content === "string") {
    delete cell.dataset.id;
    set(cell, content);
  } else if (cell.dataset.id !== content.id) {
    cell.dataset.id = content.id;
    const focused = [...cell.querySelectorAll("button")].indexOf(document.activeElement);
    cell.replaceChildren(...[content.make()].flat());
    if (focused >= 0) cell.querySelectorAll("button")[focused]?.focus();
  }
}
