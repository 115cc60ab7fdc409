// The fleet as one canvas: racks as blocks, nodes as cells. 12,500 cells are drawn in a few milliseconds, so each change draws all.
import { html, useEffect, useRef } from "./vendor/preact-htm.js";
import { t } from "./i18n.js";
import { listen, state } from "./store.js";
import { LETTERS } from "./ui.js";

const ROWS_MAX = 16;
const SIZES = [26, 22, 18, 15, 12, 10, 8, 7, 6, 5, 4, 3];
/** Drawn last, so that the worst stands on top. */
const ORDER = Object.keys(LETTERS).reverse();

/** Places of racks and cells for a width; a height that all of it keeps to if it can. */
export function layOut(fleet, width, height) {
  const racks = fleet.racks.map((name) => ({ name, nodes: [] }));
  fleet.rack.forEach((rack, node) => racks[rack].nodes.push(node));
  let made = null;
  for (const size of SIZES) {
    made = tryOut(racks, size, width);
    if (made.height <= height) break;
  }
  const x = new Float32Array(fleet.nodes.length);
  const y = new Float32Array(fleet.nodes.length);
  for (const place of made.places) {
    place.rack.nodes.forEach((node, at) => {
      x[node] = place.x + Math.floor(at / place.rows) * made.size;
      y[node] = place.y + made.head + (at % place.rows) * made.size;
    });
  }
  return { ...made, x, y };
}

function tryOut(racks, size, width) {
  const gap = size >= 12 ? 10 : 5;
  const head = size >= 12 ? 15 : 0;
  const places = [];
  let left = 0;
  let top = 0;
  let tallest = 0;
  for (const rack of racks) {
    const rows = Math.max(1, Math.min(ROWS_MAX, Math.ceil(Math.sqrt(rack.nodes.length))));
    let wide = Math.ceil(rack.nodes.length / rows) * size;
    if (head) wide = Math.max(wide, Math.min(rack.name.length * 6.5, 70));
    if (left && left + wide > width) {
      left = 0;
      top += tallest + gap;
      tallest = 0;
    }
    places.push({ rack, rows, x: left, y: top, wide, high: head + rows * size });
    left += wide + gap;
    tallest = Math.max(tallest, head + rows * size);
  }
  return { size, head, places, height: top + tallest };
}

/** The map. `mark`: a switch whose nodes stand out, or null; `open(node)`: a node was chosen; `point(node)`: looked at. */
export function FleetMap({ mark, open, point }) {
  const place = useRef();
  const held = useRef({ at: -1 });
  held.current.mark = mark;
  useEffect(() => {
    const canvas = place.current;
    const mine = held.current;
    let waiting = 0;
    const draw = () => ((waiting = 0), paint(canvas, mine));
    const soon = () => (waiting = waiting || requestAnimationFrame(draw));
    mine.soon = soon;
    const shape = () => {
      if (!state.fleet) return;
      const width = canvas.parentNode.clientWidth;
      mine.plan = layOut(state.fleet, width, Math.max(260, innerHeight * 0.56));
      const scale = devicePixelRatio || 1;
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round((mine.plan.height + 6) * scale);
      canvas.style.height = `${mine.plan.height + 6}px`;
      mine.scale = scale;
      soon();
    };
    const stop = listen((topic) => (topic === "states" || topic === "theme" ? soon() : topic === "fleet" && shape()));
    const watch = new ResizeObserver(shape);
    watch.observe(canvas.parentNode);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", soon);
    return () => (stop(), watch.disconnect(), dark.removeEventListener("change", soon), cancelAnimationFrame(waiting));
  }, []);
  useEffect(() => held.current.soon && held.current.soon(), [mark]);
  const look = (at) => {
    if (at === held.current.at) return;
    held.current.at = at;
    point(at);
    held.current.soon();
  };
  const under = (event) => {
    const box = place.current.getBoundingClientRect();
    return find(held.current.plan, event.clientX - box.left, event.clientY - box.top);
  };
  const key = (event) => {
    const { plan, at } = held.current;
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (way && plan) {
      event.preventDefault();
      look(at < 0 ? 0 : neighbour(plan, at, way));
    } else if (event.key === "Enter" && at >= 0) open(at);
  };
  return html`<canvas ref=${place} class="map" tabindex="0" role="application" aria-label=${t("Map of all nodes. Arrow keys move, Enter opens a node.")}
    onMouseMove=${(event) => look(under(event))} onMouseLeave=${() => look(-1)}
    onClick=${(event) => { const at = under(event); if (at >= 0) open(at); }} onKeyDown=${key}></canvas>`;
}

function find(plan, x, y) {
  if (!plan) return -1;
  for (const { rack, rows, x: left, y: top, wide, high } of plan.places) {
    if (x < left || x >= left + wide || y < top + plan.head || y >= top + high) continue;
    const at = Math.floor((x - left) / plan.size) * rows + Math.floor((y - top - plan.head) / plan.size);
    return at < rack.nodes.length ? rack.nodes[at] : -1;
  }
  return -1;
}

/** The nearest cell in a direction, also in the next rack. */
function neighbour(plan, at, [dx, dy]) {
  let best = at;
  let least = Infinity;
  for (let node = 0; node < plan.x.length; node += 1) {
    const along = (plan.x[node] - plan.x[at]) * dx + (plan.y[node] - plan.y[at]) * dy;
    if (along <= 0) continue;
    const aside = Math.abs((plan.x[node] - plan.x[at]) * dy) + Math.abs((plan.y[node] - plan.y[at]) * dx);
    if (along + aside * 4 < least) [best, least] = [node, along + aside * 4];
  }
  return best;
}

function paint(canvas, mine) {
  const { plan, mark, scale } = mine;
  if (!plan || !state.fleet) return;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  const side = plan.size - (plan.size > 4 ? 1 : 0.5);
  if (plan.head) {
    pen.fillStyle = colour("--soft");
    pen.font = "11px system-ui, sans-serif";
    for (const { rack, x, y, wide } of plan.places) pen.fillText(rack.name || t("no rack"), x, y + 10, Math.max(wide, 40));
  }
  const groups = new Map(ORDER.map((letter) => [letter, []]));
  for (let node = 0; node < plan.x.length; node += 1) (groups.get(state.letters[node]) || groups.get("u")).push(node);
  const off = mark === null || mark === undefined ? null : (node) => !state.fleet.switch[node].includes(mark);
  for (const [letter, nodes] of groups) {
    pen.fillStyle = colour(`--c-${LETTERS[letter]}`);
    const loud = "lqfrmsn".includes(letter);
    const grown = loud && plan.size < 9 ? 1 : 0;
    for (const node of nodes) {
      pen.globalAlpha = off && off(node) ? 0.18 : 1;
      pen.fillRect(plan.x[node] - grown, plan.y[node] - grown, side + 2 * grown, side + 2 * grown);
    }
    pen.globalAlpha = 1;
    if (plan.size >= 12) signs(pen, letter, nodes, plan, side, colour("--c-sign"));
  }
  if (mine.at >= 0) {
    pen.strokeStyle = colour("--text");
    pen.lineWidth = 2;
    pen.strokeRect(plan.x[mine.at] - 1, plan.y[mine.at] - 1, side + 2, side + 2);
  }
  if (!mine.painted && state.letters.length) {
    mine.painted = true;
    performance.mark("outrider-map");
  }
  performance.mark("outrider-drawn");
}

/** A sign in the cell, for those who do not tell the colours apart. */
function signs(pen, letter, nodes, plan, side, ink) {
  const sign = { l: "×", q: "▪", f: "!", r: "↻", m: "~", s: "?", n: "≈", i: "…", p: "+" }[letter];
  if (!sign) return;
  pen.fillStyle = ink;
  pen.font = `bold ${Math.floor(side * 0.75)}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const node of nodes) pen.fillText(sign, plan.x[node] + side / 2, plan.y[node] + side / 2 + 0.5);
  pen.textAlign = "start";
  pen.textBaseline = "alphabetic";
}
