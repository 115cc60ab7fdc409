// Small parts that all pages share. Everything that comes from outside goes through here as text, never as markup.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { t } from "./i18n.js";

/** Letters of the witness's string of states, the worst first. */
export const LETTERS = {
  l: "lost", q: "quarantined", f: "fault", r: "recovering", m: "maintenance", s: "suspect", n: "unstable", i: "silent", u: "unknown",
  p: "spare", h: "healthy",
};

export const text = (value) => (value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));

/** `n7 gpu 3` from a subject's keys. */
export function subjectText(subject) {
  const entries = Object.entries(subject || {});
  return entries.map(([key, value]) => (key === "node" ? text(value) : `${key} ${text(value)}`)).join(" · ");
}

export const link = (page, name) => `#/${page}/${encodeURIComponent(text(name))}`;

export function clock(wall) {
  const date = typeof wall === "number" ? new Date(wall * 1000) : new Date(wall);
  if (!wall || Number.isNaN(date.getTime())) return t("unknown");
  const two = (number) => String(number).padStart(2, "0");
  const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function ago(wall) {
  const date = typeof wall === "number" ? wall * 1000 : Date.parse(wall);
  if (!wall || Number.isNaN(date)) return t("unknown");
  return t("{time} ago", { time: span((Date.now() - date) / 1000) });
}

export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return t("unknown");
  const whole = Math.max(0, seconds);
  if (whole > 0 && whole < 0.1) return `${Math.max(1, Math.round(whole * 1000))} ms`;
  if (whole < 10) return `${whole.toFixed(1)} s`;
  if (whole < 120) return `${Math.round(whole)} s`;
  if (whole < 7200) return `${Math.round(whole / 60)} min`;
  if (whole < 172800) return `${Math.round(whole / 3600)} h`;
  return `${Math.round(whole / 86400)} d`;
}

export const figure = (value, digits = 4) => (typeof value === "number" ? Number(value.toPrecision(digits)).toString() : t("unknown"));

export const Chip = ({ state }) => html`<span class=${`chip s-${text(state)}`}>${t(text(state))}</span>`;

export const NodeLink = ({ name }) => html`<a href=${link("node", name)}>${text(name)}</a>`;

/** The subject with its node and job as links. */
export function Subject({ subject }) {
  return Object.entries(subject || {}).map(([key, value], place) => html`<span key=${key}>${place ? " · " : ""}${
    key === "node" ? html`<${NodeLink} name=${value} />`
    : key === "job" ? html`${t("job")} <a href=${link("job", value)}>${text(value)}</a>`
    : `${key} ${text(value)}`
  }</span>`);
}

/** A table with a caption for those who do not see it. `rows`: arrays of cells; `heads`: titles. */
export const Table = ({ caption, heads, rows, empty }) => rows.length === 0
  ? html`<p class="soft">${empty || t("nothing")}</p>`
  : html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="unseen">${caption}</caption>
    <thead><tr>${heads.map((head) => html`<th scope="col" key=${head}>${head}</th>`)}</tr></thead>
    <tbody>${rows.map((row, place) => html`<tr key=${place}>${row.map((cell, at) => html`<td key=${at} data-head=${heads[at]}>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>`;

/** Fetches again when `key` changes, and each `every` milliseconds if given. Returns [answer, error]. */
export function useAnswer(get, key, every) {
  const [held, hold] = useState([null, ""]);
  useEffect(() => {
    let over = false;
    let timer = 0;
    const go = async () => {
      try {
        const answer = await get();
        if (!over) hold([answer, ""]);
      } catch (error) {
        if (!over) hold(([before]) => [before, error.message || String(error)]);
      }
      if (!over && every) timer = setTimeout(go, every);
    };
    go();
    return () => ((over = true), clearTimeout(timer));
  }, [key]);
  return held;
}

export const Wait = ({ error }) => error ? html`<p class="bad" role="alert">${error}</p>` : html`<p class="soft" role="status">${t("loading ..")}</p>`;
