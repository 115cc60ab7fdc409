// The list of incidents, and one incident with its story, evidence, votes, and what a person may do about it.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { faultText, t } from "./i18n.js";
import { ask, isOpen, keep, OPEN, state, tell, useTopics, who } from "./store.js";
import { nextOf, votesOf, waitsForApproval, whyNot } from "./story.js";
import { ago, Chip, clock, link, span, Subject, subjectText, Table, text, useAnswer, Wait } from "./ui.js";

const PAGE = 100;
const RANK = { confirmed: 0, acting: 0, recovering: 1, suspected: 2, resolved: 3, refuted: 4 };
const HARM = { restart: 0, drain: 1, page: 2, watch: 3, ignore: 4 };

/** Open ones first, the gravest on top, then the newest. */
export function sorted(pictures) {
  const key = (picture) => (RANK[picture.state] ?? 5) * 10 + (isOpen(picture) ? (HARM[picture.response] ?? 5) : 0);
  return pictures.sort((one, other) => key(one) - key(other) || text(other.opened).localeCompare(text(one.opened)));
}

export const Line = ({ picture }) => html`<li class="line">
  <a class="lead" href=${link("incident", picture.incident)}><${Chip} state=${picture.state} />
    <b>${faultText(picture.fault, state.faults)}</b></a>
  <span class="sub"><${Subject} subject=${picture.subject} /> · ${t(text(picture.response))} · ${ago(picture.opened)}${
    picture.acknowledged ? ` · ${t("seen by {who}", { who: text(picture.acknowledged) })}` : ""}</span>
  ${picture.explanation ? html`<span class="tale">${text(picture.explanation)}</span>` : null}
</li>`;

export function IncidentsPage() {
  useTopics("incidents");
  const [filter, setFilter] = useState("open");
  const [words, setWords] = useState("");
  const [shown, setShown] = useState(PAGE);
  const [older, setOlder] = useState("");
  const asked = words.trim().toLowerCase();
  const found = sorted([...state.incidents.values()].filter((picture) =>
    (filter === "all" || (filter === "open" ? isOpen(picture) : picture.state === filter)) && (!asked || haystack(picture).includes(asked))));
  const more = async () => {
    setOlder(t("loading .."));
    try {
      keep(await ask("/console/api/incidents?limit=10000"), true);
      setOlder(t("all are here"));
      tell("incidents");
    } catch (error) {
      setOlder(error.message);
    }
  };
  return html`<h1>${t("Incidents")}</h1>
    <div class="tools">
      <label>${t("State")} <select value=${filter} onChange=${(event) => (setFilter(event.target.value), setShown(PAGE))}>
        <option value="open">${t("open")}</option><option value="all">${t("all")}</option>
        ${[...OPEN, "resolved", "refuted"].map((one) => html`<option key=${one} value=${one}>${t(one)}</option>`)}
      </select></label>
      <label>${t("Search")} <input id="search" type="search" value=${words} onInput=${(event) => (setWords(event.target.value), setShown(PAGE))} /></label>
      <span class="soft" role="status">${t("{n} found", { n: found.length })}</span>
    </div>
    ${found.length ? html`<ul class="lines">${found.slice(0, shown).map((picture) => html`<${Line} key=${picture.incident} picture=${picture} />`)}</ul>`
      : html`<p class=${filter === "open" && !asked ? "good" : "soft"}>${filter === "open" && !asked ? t("no open incident") : t("nothing")}</p>`}
    <p class="tools">${found.length > shown ? html`<button onClick=${() => setShown(shown + PAGE)}>${t("show {n} more", { n: Math.min(PAGE, found.length - shown) })}</button>` : null}
      <button class="quiet" onClick=${more}>${t("load older ones")}</button> <span class="soft" role="status">${older}</span></p>`;
}

const haystack = (picture) => `${picture.incident} ${picture.fault} ${subjectText(picture.subject)} ${picture.explanation}`.toLowerCase();

export function IncidentPage({ name }) {
  useTopics("incidents", "status");
  const [count, again] = useState(0);
  const live = state.incidents.get(name);
  const key = `${name} ${count} ${live ? `${live.wall} ${live.state} ${live.acknowledged} ${live.approved}` : ""}`;
  const [told, error] = useAnswer(() => ask(`/v1/incidents/${encodeURIComponent(name)}`), key, 3000);
  if (!told) return html`<p><a href="#/incidents">${t("Incidents")}</a></p><${Wait} error=${error} />`;
  const history = told.history || [];
  const fault = state.faults[told.fault] || {};
  return html`<p class="crumb"><a href="#/incidents">${t("Incidents")}</a> › <code>${text(told.incident)}</code></p>
    <h1><${Chip} state=${told.state} /> ${faultText(told.fault, state.faults)}</h1>
    <p class="sub"><${Subject} subject=${told.subject} /> · <code>${text(told.fault)}</code> · ${t("response")} ${t(text(told.response))} · ${clock(told.opened)} (${ago(told.opened)})</p>
    ${error ? html`<p class="bad" role="alert">${error}</p>` : null}
    <p class="story">${text(told.explanation)}</p>
    <section class="next" aria-labelledby="next"><h2 id="next">${t("What happens next")}</h2>
      <ul>${nextOf(told, history).map((line, place) => html`<li key=${place}>${line}</li>`)}</ul>
      <${Actions} told=${told} history=${history} done=${() => again(count + 1)} /></section>
    <div class="columns">
      <section aria-labelledby="why"><h2 id="why">${t("Why")}</h2><${Evidence} told=${told} /></section>
      <section aria-labelledby="why-not"><h2 id="why-not">${t("Why not")}</h2><${WhyNot} told=${told} history=${history} fault=${fault} /></section>
    </div>
    <section aria-labelledby="votes"><h2 id="votes">${t("Votes")}</h2><${Votes} told=${told} /></section>
    <section aria-labelledby="course"><h2 id="course">${t("Course of events")}</h2><${Course} history=${history} told=${told} /></section>
    <section aria-labelledby="sent"><h2 id="sent">${t("Messages sent")}</h2><${Sent} rows=${told.actions || []} /></section>
    <${Runbook} fault=${fault} />`;
}

function Evidence({ told }) {
  const pieces = (told.evidence || []).filter((piece) => piece.effect !== "veto");
  if (!pieces.length) return html`<p class="soft">${t("no evidence is recorded")}</p>`;
  return html`<ul class="evidence">${pieces.map((piece, place) => html`<li key=${place} class=${`e-${text(piece.effect)}`}>
    <span class="tag">${t(text(piece.layer))} · ${t(text(piece.effect))}</span> ${text(piece.text)}</li>`)}</ul>`;
}

function WhyNot({ told, history, fault }) {
  const said = whyNot(told, history);
  return html`${said.length ? html`<ul>${said.map((line, place) => html`<li key=${place}>${line}</li>`)}</ul>` : html`<p class="soft">${t("Nothing spoke against it.")}</p>`}
    ${fault.false_alarms && fault.false_alarms.length ? html`<h3>${t("What looks like it and is not")}</h3><ul>${fault.false_alarms.map((line, place) => html`<li key=${place}>${text(line)}</li>`)}</ul>` : null}`;
}

function Votes({ told }) {
  const votes = votesOf(told);
  const names = [...new Set([...Object.keys(state.status.witnesses || {}), ...votes.map(([name]) => name)])];
  const said = Object.fromEntries(votes);
  return html`<ul class="votes">${names.map((name) => html`<li key=${name} class=${`v-${said[name] || "none"}`}><b>${name}</b> ${t(said[name] || "no vote")}</li>`)}</ul>`;
}

function Course({ history, told }) {
  const start = history.length ? history[0].t : 0;
  const parts = (title, split) => split ? html`<p class="soft">${title}: ${span(split.total)} = ${Object.entries(split).filter(([part]) => part !== "total").map(([part, seconds]) => `${t(part)} ${span(seconds)}`).join(" + ")}</p>` : null;
  return html`<ol class="course">${history.map((line, place) => html`<li key=${place}>
      <span class="when">+${(line.t - start).toFixed(2)} s</span> <time>${clock(line.wall)}</time>
      <b>${[line.event === "action_result" ? "" : line.event, line.action, line.outcome].filter(Boolean).map((word) => t(text(word))).join(" · ")}</b>
      ${line.who ? html` ${t("by {who}", { who: text(line.who) })}` : null}
      <span class="because">${text(line.refused || line.explanation || line.reason || "")}</span></li>`)}</ol>
    ${parts(t("detected in"), told.detection)}${parts(t("recovered in"), told.recovery)}`;
}

const Sent = ({ rows }) => html`<${Table} caption=${t("Messages sent")} heads=${[t("message"), t("to"), t("state"), t("attempts"), t("error")]}
  rows=${rows.map((row) => [text(row.type), text(row.target) || t("all"), t(text(row.state)), text(row.attempts), text(row.error)])} />`;

function Runbook({ fault }) {
  if (!fault.meaning) return null;
  const list = (lines) => html`<ul>${(lines || []).map((line, place) => html`<li key=${place}>${text(line)}</li>`)}</ul>`;
  return html`<section aria-labelledby="runbook"><h2 id="runbook">${t("Runbook")}</h2><p>${text(fault.meaning)}</p>
    ${list(fault.advice)}<h3>${t("First commands")}</h3><pre tabindex="0">${(fault.first_commands || []).join("\n")}</pre>
    ${fault.undo ? html`<p><b>${t("Undo")}</b> ${text(fault.undo)}</p>` : null}</section>`;
}

/** The buttons of one incident. Each opens a dialogue that asks why; a viewer sees why there are none. */
function Actions({ told, history, done }) {
  if (state.role !== "operator") return html`<p class="soft">${t("You may look. To decide, log in with an operator's token.")}</p>`;
  const open = isOpen(told);
  const node = told.subject && told.subject.node;
  const quarantined = node && (state.status.quarantined || []).includes(node);
  const incident = { incident: text(told.incident) };
  return html`<div class="buttons">
    ${waitsForApproval(told, history) ? html`<${Decide} id="approve" class="main" title=${t("Approve")} path="/v1/approve" body=${incident} done=${done} what=${t("Carries out what is held back for want of approval.")} />` : null}
    ${open && !told.acknowledged ? html`<${Decide} id="ack" title=${t("Acknowledge")} path="/v1/ack" body=${incident} done=${done} what=${t("Tells everybody that you work on it. Nothing else changes.")} />` : null}
    ${open ? html`<${Decide} id="false-alarm" title=${t("False alarm")} path="/v1/false_alarm" body=${incident} done=${done} what=${t("Closes the incident and counts it as wrong.")} />` : null}
    ${node ? html`<${Decide} id="maintenance" title=${t("Maintenance")} path="/v1/maintenance" hours=${true} body=${{ node: text(node), on: true }} done=${done} what=${t("Holds back all actions on {name} for a while.", { name: text(node) })} />` : null}
    ${quarantined ? html`<${Decide} id="release" title=${t("Release")} path="/v1/release" body=${{ node: text(node) }} done=${done} what=${t("Ends the quarantine of {name}: it may be given work again.", { name: text(node) })} />` : null}
  </div>`;
}

/** A button and its dialogue. `body` is what is sent besides who and why. */
export function Decide({ id, title, path, body, what, done, hours, class: kind }) {
  const [open, setOpen] = useState(false);
  const [said, setSaid] = useState("");
  const [length, setLength] = useState("3600");
  const [told, setTold] = useState("");
  const box = useRef();
  useEffect(() => { if (open && box.current && !box.current.open) box.current.showModal(); }, [open]);
  const send = async (event) => {
    event.preventDefault();
    setTold(t("sending .."));
    try {
      await ask(path, { ...body, ...(hours ? { seconds: Number(length) } : {}), who: who(), reason: said });
      setOpen(false);
      setTold(t("sent: {title}", { title }));
      setSaid("");
      if (done) setTimeout(done, 600);
    } catch (error) {
      setTold(error.message);
    }
  };
  return html`<button id=${`do-${id}`} class=${kind || ""} onClick=${() => (setTold(""), setOpen(true))}>${title}</button>
    ${!open && told ? html`<span class="soft" role="status">${told}</span>` : null}
    ${open ? html`<dialog ref=${box} aria-labelledby=${`t-${id}`} onClose=${() => setOpen(false)}><form onSubmit=${send}>
      <h2 id=${`t-${id}`}>${title}</h2><p>${what}</p>
      ${hours ? html`<label>${t("For")} <select value=${length} onChange=${(event) => setLength(event.target.value)}>
        ${[["1800", "30 min"], ["3600", "1 h"], ["14400", "4 h"], ["28800", "8 h"], ["86400", "24 h"]].map(([seconds, name]) => html`<option key=${seconds} value=${seconds}>${name}</option>`)}</select></label>` : null}
      <label>${t("Why (kept in the audit)")} <input id=${`why-${id}`} maxlength="400" value=${said} onInput=${(event) => setSaid(event.target.value)} /></label>
      ${told ? html`<p class="bad" role="alert">${told}</p>` : null}
      <p class="buttons"><button id=${`send-${id}`} class="main" type="submit">${title}</button>
        <button type="button" onClick=${() => setOpen(false)}>${t("Cancel")}</button></p></form></dialog>` : null}`;
}
