// The first page: the map, what the colours mean, and every node that is not well as a list.
import { html, useState } from "./vendor/preact-htm.js";
import { t } from "./i18n.js";
import { isOpen, state, useTopics } from "./store.js";
import { FleetMap } from "./map.js";
import { Line, sorted } from "./incidents.js";
import { Chip, LETTERS, link, NodeLink, Table, text, Wait } from "./ui.js";

const UNWELL = Object.keys(LETTERS).filter((letter) => !"ph".includes(letter)).join("");
const ROWS_MAX = 100;

export function FleetPage() {
  useTopics("fleet", "states", "incidents");
  const [mark, setMark] = useState("");
  const [at, setAt] = useState(-1);
  const fleet = state.fleet;
  if (!fleet) return html`<${Wait} />`;
  const name = at >= 0 ? fleet.nodes[at] : null;
  return html`<h1>${t("Fleet")}</h1>
    <${Counts} />
    <div class="tools">
      <label>${t("Show switch")} <select value=${mark} onChange=${(event) => setMark(event.target.value)}>
        <option value="">${t("none")}</option>
        ${switches(fleet).map(([place, unwell]) => html`<option key=${place} value=${place}>${
          unwell ? t("{name}: {n} nodes not well", { name: text(fleet.switches[place]), n: unwell }) : text(fleet.switches[place])}</option>`)}
      </select></label>
      <span class="under" role="status" aria-live="polite">${name === null ? t("Point at a node, or use the arrow keys.")
        : `${text(name)} · ${t(LETTERS[state.letters[at]] || "unknown")} · ${text(fleet.racks[fleet.rack[at]]) || t("no rack")}${
          fleet.switch[at].length ? ` · ${fleet.switch[at].map((one) => text(fleet.switches[one])).join(", ")}` : ""}`}</span>
    </div>
    ${fleet.nodes.length === 0 ? html`<p class="soft">${t("The configuration names no node.")}</p>`
      : html`<div class="mapbox"><${FleetMap} mark=${mark === "" ? null : Number(mark)} point=${setAt}
          open=${(node) => (location.hash = link("node", fleet.nodes[node]))} /></div>`}
    <section aria-labelledby="open-now"><h2 id="open-now">${t("Open incidents")}</h2><${OpenNow} /></section>
    <${Unwell} />`;
}

/** Places of the switches and how many of their nodes are not well, most first. */
function switches(fleet) {
  const counts = fleet.switches.map(() => 0);
  state.letters.forEach((letter, node) => UNWELL.includes(letter) && fleet.switch[node].forEach((one) => (counts[one] += 1)));
  return counts.map((count, place) => [place, count]).sort((one, other) => other[1] - one[1] || one[0] - other[0]);
}

function Counts() {
  const counts = {};
  for (const letter of state.letters) counts[letter] = (counts[letter] || 0) + 1;
  return html`<ul class="legend" aria-label=${t("Nodes by state")}>${Object.entries(LETTERS).map(([letter, name]) =>
    html`<li key=${letter} class=${counts[letter] ? "" : "zero"}><span class=${`dot d-${name}`} aria-hidden="true"></span>${t(name)} <b>${counts[letter] || 0}</b></li>`)}</ul>`;
}

function OpenNow() {
  const open = sorted([...state.incidents.values()].filter(isOpen));
  if (!open.length) return html`<p class="good">${t("no open incident")}</p>`;
  return html`<ul class="lines">${open.slice(0, 12).map((picture) => html`<${Line} key=${picture.incident} picture=${picture} />`)}</ul>
    ${open.length > 12 ? html`<p><a href="#/incidents">${t("all {n} open incidents", { n: open.length })}</a></p>` : null}`;
}

function Unwell() {
  const rows = [];
  let count = 0;
  for (const letter of UNWELL) {
    state.letters.forEach((one, node) => {
      if (one !== letter) return;
      count += 1;
      if (rows.length < ROWS_MAX) rows.push(node);
    });
  }
  const fleet = state.fleet;
  const lines = rows.map((node) => [
    html`<${NodeLink} name=${fleet.nodes[node]} />`, html`<${Chip} state=${LETTERS[state.letters[node]]} />`,
    text(fleet.racks[fleet.rack[node]]), fleet.switch[node].map((one) => text(fleet.switches[one])).join(", "),
  ]);
  return html`<section aria-labelledby="unwell"><h2 id="unwell">${t("Nodes that are not well")} <span class="soft">${count}</span></h2>
    <${Table} caption=${t("Nodes that are not well")} heads=${[t("node"), t("state"), t("rack"), t("switches")]} rows=${lines} empty=${t("all nodes are well")} />
    ${count > rows.length ? html`<p class="soft">${t("{n} more are not listed", { n: count - rows.length })}</p>` : null}</section>`;
}
