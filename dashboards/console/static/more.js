// A node's page, the audit, reports of drills, and Outrider itself.
import { html } from "./vendor/preact-htm.js";
import { t } from "./i18n.js";
import { ask, state, useTopics } from "./store.js";
import { Decide, Line, sorted } from "./incidents.js";
import { runs } from "./jobs.js";
import { ago, Chip, clock, figure, LETTERS, link, span, subjectText, Table, text, useAnswer, Wait } from "./ui.js";

export function NodePage({ name }) {
  useTopics("states", "incidents", "status", "fleet");
  const [told, error] = useAnswer(() => ask(`/console/api/node?name=${encodeURIComponent(name)}`), name, 2000);
  const crumb = html`<p class="crumb"><a href="#/">${t("Fleet")}</a> › ${name}</p>`;
  if (!told) return html`${crumb}<h1>${name}</h1><${Wait} error=${error} />`;
  const { node } = told;
  const at = state.fleet ? state.fleet.nodes.indexOf(name) : -1;
  const quarantined = (state.status.quarantined || []).includes(name);
  const resting = (state.status.maintenance || []).includes(name);
  const facts = [
    [t("rack"), node.rack || t("unknown")], [t("switches"), [...new Set([node.switch, ...Object.values(node.nics || {})].filter(Boolean))].join(", ") || t("unknown")],
    [t("GPUs"), node.gpus ?? t("unknown")], [t("address"), node.address || t("unknown")], [t("last heartbeat"), told.heard_s === null ? t("never heard") : t("{time} ago", { time: span(told.heard_s) })],
    [t("spare"), told.spare ? t("yes") : t("no")],
  ];
  const about = sorted([...state.incidents.values()].filter((picture) => picture.subject && picture.subject.node === name));
  const jobs = Object.entries(told.jobs);
  return html`${crumb}<h1><${Chip} state=${LETTERS[state.letters[at]] || "unknown"} /> ${text(name)}</h1>
    ${error ? html`<p class="bad" role="alert">${error}</p>` : null}
    <dl class="facts">${facts.map(([title, value]) => html`<div key=${title}><dt>${title}</dt><dd>${text(value)}</dd></div>`)}</dl>
    ${state.role === "operator" ? html`<div class="buttons">
      ${resting ? html`<${Decide} id="maintenance-off" title=${t("End maintenance")} path="/v1/maintenance" body=${{ node: name, on: false }} what=${t("Actions on {name} are possible again.", { name })} />`
        : html`<${Decide} id="maintenance" title=${t("Maintenance")} path="/v1/maintenance" hours=${true} body=${{ node: name, on: true }} what=${t("Holds back all actions on {name} for a while.", { name })} />`}
      ${quarantined ? html`<${Decide} id="release" title=${t("Release")} path="/v1/release" body=${{ node: name }} what=${t("Ends the quarantine of {name}: it may be given work again.", { name })} />` : null}</div>` : null}
    <section aria-labelledby="node-jobs"><h2 id="node-jobs">${t("Jobs")}</h2>${jobs.length ? html`<ul>${jobs.map(([job, ranks]) => html`<li key=${job}><a href=${link("job", job)}>${job}</a> · ${t("ranks")} ${runs(ranks)}</li>`)}</ul>` : html`<p class="soft">${t("no job holds a slot here")}</p>`}</section>
    <section aria-labelledby="node-incidents"><h2 id="node-incidents">${t("Incidents")}</h2>${about.length ? html`<ul class="lines">${about.slice(0, 20).map((picture) => html`<${Line} key=${picture.incident} picture=${picture} />`)}</ul>` : html`<p class="soft">${t("nothing")}</p>`}</section>
    <section aria-labelledby="events"><h2 id="events">${t("Last events")}</h2><${Table} caption=${t("Last events")} heads=${[t("when"), t("what"), t("where"), t("value"), t("text")]}
      rows=${told.events.map((event) => [clock(event.wall), text(event.kind), part(event.subject), text(event.value), text(event.text) || detail(event.data)])} /></section>
    <section aria-labelledby="readings"><h2 id="readings">${t("Last readings")}</h2><${Table} caption=${t("Last readings")} heads=${[t("when"), t("what"), t("where"), t("value")]}
      rows=${told.readings.map((event) => [ago(event.wall), text(event.kind), part(event.subject), event.value === null ? detail(event.data) : `${text(event.value)} ${detail(event.data)}`])}
      empty=${t("none yet; they come with the next readings of the node's agent")} /></section>`;
}

const part = (subject) => subjectText(Object.fromEntries(Object.entries(subject).filter(([key]) => key !== "node")));

const detail = (data) => Object.entries(data || {}).filter(([key]) => key !== "boot").slice(0, 12)
  .map(([key, value]) => `${key} ${typeof value === "number" ? figure(value, 6) : text(value)}`).join(", ");

export function AuditPage() {
  const [entries, error] = useAnswer(() => ask("/v1/audit?limit=300"), "audit", 4000);
  if (!entries) return html`<h1>${t("Audit")}</h1><${Wait} error=${error} />`;
  const rows = entries.map((entry) => [
    clock(entry.wall), text(entry.who), t(text(entry.what)), text(entry.action || entry.type || (typeof entry.target === "string" ? entry.target : "")),
    entry.incident ? html`<a href=${link("incident", entry.incident)}><code>${text(entry.incident).slice(0, 8)}</code></a>` : "", text(entry.why),
  ]);
  return html`<h1>${t("Audit")}</h1><p class="soft">${t("What was done, refused, said and delivered, the newest first.")}</p>${error ? html`<p class="bad" role="alert">${error}</p>` : null}
    <${Table} caption=${t("Audit")} heads=${[t("when"), t("who"), t("what"), t("about"), t("incident"), t("why")]} rows=${rows} />`;
}

export function DrillsPage() {
  const [reports, error] = useAnswer(() => ask("/console/api/drills"), "drills");
  if (!reports) return html`<h1>${t("Drills")}</h1><${Wait} error=${error} />`;
  const rows = reports.map((report) => [html`<a href=${link("drill", report.name)}>${text(report.name)}</a>`, clock(report.wall), text(report.faults.join(", ")), t("{right} of {all} right", { right: report.right, all: report.faults.length })]);
  return html`<h1>${t("Drills")}</h1><${Table} caption=${t("Drills")} heads=${[t("report"), t("when"), t("faults"), t("result")]} rows=${rows} empty=${t("no report lies in the reports folder of this witness")} />`;
}

const FIGURES = [
  ["detect_s", "detected"], ["confirm_s", "confirmed"], ["snapshot_s", "snapshot"], ["replace_s", "spare in"], ["load_s", "loaded"],
  ["first_step_s", "first step"], ["lost_steps", "steps lost"], ["steps_compared", "steps compared"], ["loss_equal", "losses equal"], ["digest_equal", "digests equal"],
];

function cell(key, value) {
  if (value === null || value === undefined) return "-";
  if (typeof value === "boolean") return value ? t("yes") : t("no");
  return key.endsWith("_s") ? `${Number(value).toFixed(2)} s` : text(value);
}

export function DrillPage({ name }) {
  const [report, error] = useAnswer(() => ask(`/console/api/drill?name=${encodeURIComponent(name)}`), name);
  const crumb = html`<p class="crumb"><a href="#/drills">${t("Drills")}</a> › ${name}</p><h1>${t("Drill")} ${name}</h1>`;
  if (!report) return html`${crumb}<${Wait} error=${error} />`;
  const faults = report.faults.filter((fault) => fault && typeof fault === "object");
  return html`${crumb}<p>${t("All times are seconds after the fault.")}</p>
    <${Table} caption=${t("Drill")} heads=${[t("fault"), t("result"), ...FIGURES.map(([, title]) => t(title))]}
      rows=${faults.map((fault) => [text(fault.fault), html`<span class=${fault.ok ? "good" : "bad"}>${fault.ok ? t("right") : t("wrong")}</span>`, ...FIGURES.map(([key]) => cell(key, fault[key]))])} />
    ${faults.map((fault, place) => html`<section key=${place} aria-labelledby=${`d-${place}`}><h2 id=${`d-${place}`}>${text(fault.fault)}</h2>
      ${(fault.failures || []).length ? html`<ul class="bad">${fault.failures.map((line, at) => html`<li key=${at}>${text(line)}</li>`)}</ul>` : null}
      <ol class="course">${[...(fault.timeline || [])].sort((one, other) => one[0] - other[0]).map(([at, line], number) => html`<li key=${number}><span class="when">${at >= 0 ? "+" : ""}${Number(at).toFixed(3)} s</span> ${text(line)}</li>`)}</ol></section>`)}
    <section aria-labelledby="d-about"><h2 id="d-about">${t("How it was run")}</h2><ul>${Object.entries(report.about || {}).map(([key, value]) => html`<li key=${key}><b>${key}</b>: ${text(value)}</li>`)}</ul></section>`;
}

export function WatchersPage() {
  useTopics("status", "connection");
  const { status } = state;
  const rows = Object.entries(status.witnesses || {}).map(([name, seen]) => [text(name), seen.up === true ? t("there") : seen.up === false ? t("not there") : t("unknown"), name === status.leader ? t("leads") : "", name === status.witness ? t("answers this page") : ""]);
  const facts = [[t("site"), status.site], [t("mode"), t(text(status.mode))], [t("version"), status.version], [t("nodes"), status.nodes], [t("spares"), (status.spares || []).length],
    [t("deliverer"), status.deliverer ? t("there") : t("not there")], [t("fence"), status.fence], [t("heartbeats taken in"), status.heartbeats], [t("lag"), span(status.lag_seconds)], [t("own stalls"), status.stalls]];
  return html`<h1>${t("Outrider itself")}</h1>
    <dl class="facts">${facts.map(([title, value]) => html`<div key=${title}><dt>${title}</dt><dd>${text(value ?? t("unknown"))}</dd></div>`)}</dl>
    ${state.role === "operator" ? html`<div class="buttons">${status.paused
      ? html`<${Decide} id="resume" class="main" title=${t("Resume actions")} path="/v1/pause" body=${{ on: false }} what=${t("Actions are possible again, everywhere.")} />`
      : html`<${Decide} id="pause" title=${t("Pause all actions")} path="/v1/pause" body=${{ on: true }} what=${t("Nothing is done to any job or node before somebody resumes. Judging goes on.")} />`}
      <${Decide} id="reset-brake" title=${t("Let go of the brake")} path="/v1/reset_brake" body=${{}} what=${t("Ends the hold that a mass failure caused.")} /></div>` : null}
    <section aria-labelledby="witnesses"><h2 id="witnesses">${t("Witnesses")}</h2><${Table} caption=${t("Witnesses")} heads=${[t("witness"), t("there?"), t("role"), t("web page")]} rows=${rows} /></section>
    <section aria-labelledby="warnings"><h2 id="warnings">${t("Warnings")}</h2>${(status.warnings || []).length ? html`<ul>${status.warnings.map((line, place) => html`<li key=${place}>${text(line)}</li>`)}</ul>` : html`<p class="good">${t("none")}</p>`}</section>
    <section aria-labelledby="signals"><h2 id="signals">${t("Signals taken in")}</h2><${Table} caption=${t("Signals taken in")} heads=${[t("kind"), t("number")]} rows=${Object.entries(status.signals || {}).sort((one, other) => other[1] - one[1]).map(([kind, count]) => [kind, text(count)])} /></section>`;
}
