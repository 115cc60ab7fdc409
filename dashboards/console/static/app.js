// The frame: log-in, what page the address names, keys, theme and language, and how the line to the witnesses stands.
import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { choose, current, languages, t } from "./i18n.js";
import { logIn, logOut, run, state, tell, token, useTopics, who } from "./store.js";
import { FleetPage } from "./fleet.js";
import { IncidentPage, IncidentsPage } from "./incidents.js";
import { JobPage, JobsPage } from "./jobs.js";
import { AuditPage, DrillPage, DrillsPage, NodePage, WatchersPage } from "./more.js";
import { span, text } from "./ui.js";

/** Page -> [component, title, key, page it belongs to]. */
const PAGES = {
  "": [FleetPage, "Fleet", "f"], incidents: [IncidentsPage, "Incidents", "i"], incident: [IncidentPage, "Incident", null, "incidents"],
  jobs: [JobsPage, "Jobs", "j"], job: [JobPage, "Job", null, "jobs"], node: [NodePage, "Node", null, ""],
  audit: [AuditPage, "Audit", "a"], drills: [DrillsPage, "Drills", "d"], drill: [DrillPage, "Drill", null, "drills"],
  outrider: [WatchersPage, "Outrider", "o"],
};
const MENU = Object.entries(PAGES).filter(([, page]) => page[2]);

function place() {
  const [, page = "", name = ""] = location.hash.replace(/^#/, "").split("/");
  try {
    return { page, name: decodeURIComponent(name) };
  } catch {
    return { page: "unknown", name: "" };
  }
}

function App() {
  useTopics("connection", "language");
  const [at, go] = useState(place());
  const [help, setHelp] = useState(false);
  useEffect(() => {
    const moved = () => (go(place()), scrollTo(0, 0));
    addEventListener("hashchange", moved);
    const stop = keys(() => setHelp((shown) => !shown));
    return () => (removeEventListener("hashchange", moved), stop());
  }, []);
  const [Page, title, , parent] = PAGES[at.page] || [Missing, "Not found", null, null];
  useEffect(() => { document.title = `${at.name ? `${at.name} · ` : ""}${t(title)} · Outrider`; }, [at.page, at.name, current()]);
  if (state.phase === "login") return html`<${LogIn} />`;
  const section = parent === undefined ? at.page : parent;
  return html`<a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.getElementById("main").focus())}>${t("Skip to content")}</a>
    <${Header} section=${section} help=${() => setHelp(!help)} />
    <${Banner} />
    ${help ? html`<${Help} close=${() => setHelp(false)} />` : null}
    <main id="main" tabindex="-1">${state.fleet ? html`<${Page} key=${`${at.page}/${at.name}`} name=${at.name} />` : html`<p class="boot" role="status">${t("connecting ..")}</p>`}</main>`;
}

const Missing = () => html`<h1>${t("Not found")}</h1><p><a href="#/">${t("Fleet")}</a></p>`;

function Header({ section, help }) {
  useTopics("status", "incidents");
  const { status } = state;
  const open = [...state.incidents.values()].filter((picture) => ["confirmed", "acting", "recovering"].includes(picture.state)).length;
  return html`<header>
    <a class="brand" href="#/"><b>Outrider</b> <span>${text(status.site)}</span></a>
    <nav aria-label=${t("Pages")}>${MENU.map(([page, [, title, key]]) => html`<a key=${page} href=${`#/${page}`} aria-current=${page === section ? "page" : undefined} title=${`g ${key}`}>${t(title)}${
      page === "incidents" && open ? html` <span class="count" aria-label=${t("{n} confirmed", { n: open })}>${open}</span>` : null}</a>`)}</nav>
    <div class="who">
      <span class=${`mode m-${text(status.mode)}`}>${t(text(status.mode) || "unknown")}</span>
      <span class="wide"><${Language} /> <${Theme} /></span>
      <button class="quiet" aria-label=${t("Keys and settings")} onClick=${help}>?</button>
      <button class="quiet" onClick=${() => logOut("")}>${t("Log out")} <span class="soft">${who() || t(state.role)}</span></button>
    </div></header>`;
}

const Language = () => html`<select aria-label=${t("Language")} value=${current()} onChange=${(event) => (choose(event.target.value), tell("language"))}>${
  Object.entries(languages).map(([key, name]) => html`<option key=${key} value=${key}>${name}</option>`)}</select>`;

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("outrider-theme") || "");
  const set = (name) => {
    if (name) localStorage.setItem("outrider-theme", name);
    else localStorage.removeItem("outrider-theme");
    setTheme(name);
    dress(name);
    tell("theme");
  };
  return html`<select aria-label=${t("Theme")} value=${theme} onChange=${(event) => set(event.target.value)}>
    <option value="">${t("as the system")}</option><option value="light">${t("light")}</option><option value="dark">${t("dark")}</option></select>`;
}

function dress(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** How the line stands, whenever it is not simply well. */
function Banner() {
  useTopics("connection", "status");
  const said = [];
  if (state.phase === "lost") said.push(["bad", t("The witness does not answer. What you see is old; another try is under way, at all witnesses.")]);
  else if (state.phase === "connecting") said.push(["soft", t("connecting ..")]);
  else if (state.base) said.push(["warn", t("This page's own witness does not answer; {witness} answers in its place.", { witness: state.base })]);
  if (state.trouble) said.push(["bad", t("The witness has trouble: {why}", { why: state.trouble })]);
  if (state.stale) said.push(["warn", t("This page is older than the witness. Load it again.")]);
  if (state.status.paused) said.push(["warn", t("All actions are paused.")]);
  if (state.status.hold_s > 0) said.push(["warn", t("The mass-failure brake holds all actions for {time} more.", { time: span(state.status.hold_s) })]);
  if (state.status.blind) said.push(["bad", t("Outrider is blind: too many nodes are suspect at once. Nothing is done to any node.")]);
  if (state.phase === "live" && state.status.leader === null) said.push(["bad", t("No witness leads now: nothing is decided.")]);
  for (const [name, seen] of Object.entries(state.status.witnesses || {})) if (seen.up === false) said.push(["warn", t("Witness {name} is not there.", { name })]);
  return html`<div id="banner" role="status" aria-live="polite">${said.map(([kind, line]) => html`<p key=${line} class=${`banner b-${kind}`}>${line}</p>`)}</div>`;
}

function LogIn() {
  const [secret, setSecret] = useState("");
  const [name, setName] = useState(who());
  const send = (event) => (event.preventDefault(), secret.trim() && logIn(secret.trim(), name.trim().slice(0, 80)));
  return html`<main class="login"><h1>Outrider</h1><form onSubmit=${send}>
    <p>${t("Type the token that you were given: a viewer's to look, an operator's to decide. It stays in this tab.")}</p>
    <label>${t("Token")} <input id="token" type="password" autocomplete="off" required value=${secret} onInput=${(event) => setSecret(event.target.value)} /></label>
    <label>${t("Your name (for the audit)")} <input id="name" autocomplete="name" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    ${state.error ? html`<p class="bad" role="alert">${state.error === "refused" ? t("This token is not known here.") : state.error}</p>` : null}
    <button class="main" id="enter" type="submit">${t("Log in")}</button></form></main>`;
}

const Help = ({ close }) => html`<section class="help" aria-labelledby="keys"><h2 id="keys">${t("Keys and settings")}</h2>
  <p class="narrow"><${Language} /> <${Theme} /></p><dl>
  ${MENU.map(([page, [, title, key]]) => html`<div key=${page}><dt><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${t(title)}</dd></div>`)}
  <div><dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>${t("next and previous line")}</dd></div><div><dt><kbd>Enter</kbd></dt><dd>${t("open")}</dd></div>
  <div><dt><kbd>/</kbd></dt><dd>${t("Search")}</dd></div><div><dt><kbd>a</kbd></dt><dd>${t("Acknowledge")}</dd></div><div><dt><kbd>?</kbd></dt><dd>${t("this list")}</dd></div>
  </dl><button onClick=${close}>${t("Close")}</button></section>`;

/** Keys, while nothing is being typed. Returns how to stop listening. */
function keys(help) {
  let before = "";
  const heard = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
    const key = event.key;
    const first = before;
    before = key;
    if (first === "g") {
      const to = MENU.find(([, page]) => page[2] === key);
      if (to) return void (location.hash = `#/${to[0]}`);
    }
    if (key === "?") help();
    else if (key === "/") { event.preventDefault(); location.hash = "#/incidents"; setTimeout(() => document.getElementById("search")?.focus(), 50); }
    else if (key === "a" && first !== "g") document.getElementById("do-ack")?.click();
    else if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
  };
  addEventListener("keydown", heard);
  return () => removeEventListener("keydown", heard);
}

function step(by) {
  const lines = [...document.querySelectorAll(".line .lead")];
  const at = lines.indexOf(document.activeElement);
  lines[Math.max(0, Math.min(lines.length - 1, at + by))]?.focus();
}

dress(localStorage.getItem("outrider-theme") || "");
const box = document.getElementById("app");
box.textContent = "";
render(html`<${App} />`, box);
if (token()) run();
