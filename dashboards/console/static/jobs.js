// Jobs: a list, and one job with its loss and steps, snapshots and starts marked, and who holds which slot.
import { html, useEffect, useRef } from "./vendor/preact-htm.js";
import { t } from "./i18n.js";
import { ask, isOpen, listen, state, useTopics } from "./store.js";
import { Line, sorted } from "./incidents.js";
import { ago, clock, figure, link, NodeLink, span, Table, text, useAnswer, Wait } from "./ui.js";
import { Decide } from "./incidents.js";

const EVERY_MS = 2000;
const NODES_MAX = 200;

export function JobsPage() {
  const [jobs, error] = useAnswer(() => ask("/console/api/jobs"), "jobs", EVERY_MS);
  if (!jobs) return html`<h1>${t("Jobs")}</h1><${Wait} error=${error} />`;
  const rows = jobs.map((job) => [
    html`<a href=${link("job", job.job)}>${text(job.job)}</a>`, t(text(job.phase) || "unknown"), job.step === null ? t("unknown") : text(job.step),
    figure(job.loss), job.step_s === null ? t("unknown") : span(job.step_s), text(job.attempt), text(job.ranks), text(job.nodes),
  ]);
  return html`<h1>${t("Jobs")}</h1>${error ? html`<p class="bad" role="alert">${error}</p>` : null}
    <${Table} caption=${t("Jobs")} heads=${[t("job"), t("phase"), t("step"), t("loss"), t("step time"), t("attempt"), t("ranks"), t("nodes")]} rows=${rows} empty=${t("this witness has heard of no job")} />`;
}

/** Follows a job's course: only what is new is asked for. */
function follower(name) {
  const held = { points: [], next: 0, shed: 0, base: "" };
  return async () => {
    const told = await ask(`/console/api/job?name=${encodeURIComponent(name)}&after=${held.next}`);
    const fresh = held.base !== state.base || told.shed !== held.shed || told.next < held.next;
    if (fresh && held.next) {
      Object.assign(held, { points: [], next: 0, shed: told.shed, base: state.base });
      const whole = await ask(`/console/api/job?name=${encodeURIComponent(name)}`);
      Object.assign(held, { points: whole.points, next: whole.next, shed: whole.shed });
      return { ...whole, points: held.points };
    }
    held.points = [...held.points, ...told.points];
    Object.assign(held, { next: told.next, shed: told.shed, base: state.base });
    return { ...told, points: held.points };
  };
}

export function JobPage({ name }) {
  useTopics("incidents", "states");
  const get = useRef(null);
  if (!get.current || get.current.name !== name) get.current = { name, ask: follower(name) };
  const [job, error] = useAnswer(() => get.current.ask(), name, EVERY_MS);
  if (!job) return html`<p class="crumb"><a href="#/jobs">${t("Jobs")}</a> › ${name}</p><h1>${name}</h1><${Wait} error=${error} />`;
  const facts = [
    [t("phase"), t(text(job.phase) || "unknown")], [t("step"), job.step === null ? t("unknown") : job.step], [t("loss"), figure(job.loss)],
    [t("step time"), job.step_s === null ? t("unknown") : span(job.step_s)], [t("attempt"), job.attempt], [t("ranks"), job.ranks],
    [t("last step"), job.wall ? ago(job.wall) : t("unknown")],
  ];
  const about = sorted([...state.incidents.values()].filter((picture) => concerns(picture, job)));
  return html`<p class="crumb"><a href="#/jobs">${t("Jobs")}</a> › ${text(job.job)}</p><h1>${t("Job")} ${text(job.job)}</h1>
    ${error ? html`<p class="bad" role="alert">${error}</p>` : null}
    <dl class="facts">${facts.map(([title, value]) => html`<div key=${title}><dt>${title}</dt><dd>${text(value)}</dd></div>`)}</dl>
    ${state.role === "operator" ? html`<div class="buttons"><${Decide} id="maintenance" title=${t("Maintenance")} path="/v1/maintenance" hours=${true} body=${{ job: text(job.job), on: true }} what=${t("Holds back all actions on {name} for a while.", { name: text(job.job) })} /></div>` : null}
    ${about.length ? html`<section aria-labelledby="about"><h2 id="about">${t("Incidents")}</h2><ul class="lines">${about.slice(0, 10).map((picture) => html`<${Line} key=${picture.incident} picture=${picture} />`)}</ul></section>` : null}
    <section aria-labelledby="loss"><h2 id="loss">${t("Loss")}</h2><${Plot} points=${job.points} marks=${job.marks} column=${2} title=${t("Loss")} colour="--plot-a" /></section>
    <section aria-labelledby="steps"><h2 id="steps">${t("Steps")}</h2><${Plot} points=${job.points} marks=${job.marks} column=${1} title=${t("step")} colour="--plot-b" />
      <${Plot} points=${job.points} marks=${job.marks} column=${3} title=${t("step time, seconds")} colour="--plot-c" /></section>
    <p class="soft">${t("Lines: solid = a start, dotted = a snapshot. The course begins with this witness's own start.")}</p>
    <section aria-labelledby="snapshots"><h2 id="snapshots">${t("Snapshots and restarts")}</h2><${Marks} marks=${job.marks} /></section>
    <section aria-labelledby="slots"><h2 id="slots">${t("Slots")}</h2><${Slots} slots=${job.slots} /></section>`;
}

function concerns(picture, job) {
  const subject = picture.subject || {};
  if (subject.job === job.job || (picture.restarts && job.job in picture.restarts)) return true;
  return isOpen(picture) && subject.node !== undefined && job.slots.some(([node]) => node === subject.node);
}

const Marks = ({ marks }) => html`<${Table} caption=${t("Snapshots and restarts")} heads=${[t("when"), t("what"), t("step"), t("detail")]}
  rows=${[...marks].reverse().slice(0, 60).map((mark) => [clock(mark.wall), mark.kind === "attempt" ? t("start {n}", { n: text(mark.text) }) : `${t(text(mark.kind))} ${t(text(mark.text))}`,
    text(mark.step), [text(mark.cause), mark.rank === null ? "" : `${t("rank")} ${mark.rank}`, mark.count > 1 ? t("told {n} times", { n: mark.count }) : ""].filter(Boolean).join(" · ")])} />`;

function Slots({ slots }) {
  const nodes = new Map();
  slots.forEach(([node, gpu], rank) => nodes.has(node) ? nodes.get(node).push([rank, gpu]) : nodes.set(node, [[rank, gpu]]));
  const rows = [...nodes].slice(0, NODES_MAX).map(([node, held]) => [
    html`<${NodeLink} name=${node} />`, runs(held.map(([rank]) => rank)), runs(held.map(([, gpu]) => gpu)),
  ]);
  return html`<${Table} caption=${t("Slots")} heads=${[t("node"), t("slots (= ranks)"), t("GPUs")]} rows=${rows} empty=${t("the job has not told its members")} />
    ${nodes.size > NODES_MAX ? html`<p class="soft">${t("{n} more are not listed", { n: nodes.size - NODES_MAX })}</p>` : null}`;
}

/** `0-7, 9` from numbers in order. */
export function runs(numbers) {
  const said = [];
  for (let at = 0; at < numbers.length; ) {
    let end = at;
    while (end + 1 < numbers.length && numbers[end + 1] === numbers[end] + 1) end += 1;
    said.push(end > at ? `${numbers[at]}-${numbers[end]}` : `${numbers[at]}`);
    at = end + 1;
  }
  return said.join(", ");
}

/** One column of the course over time, with starts and snapshots as lines. */
function Plot({ points, marks, column, title, colour }) {
  const place = useRef();
  const held = useRef({});
  held.current.marks = marks;
  useEffect(() => {
    const mine = held.current;
    const make = () => {
      if (mine.plot) mine.plot.destroy();
      mine.plot = new uPlot(options(place.current, mine, title, colour), mine.data || [[], []], place.current);
    };
    make();
    const watch = new ResizeObserver(() => mine.plot.setSize({ width: place.current.clientWidth, height: 200 }));
    watch.observe(place.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    const stop = listen((topic) => topic === "theme" && make());
    return () => (watch.disconnect(), dark.removeEventListener("change", make), stop(), mine.plot.destroy());
  }, [title]);
  useEffect(() => {
    held.current.data = [points.map((point) => point[0]), points.map((point) => point[column])];
    held.current.plot.setData(held.current.data);
  }, [points, marks]);
  const last = points.length ? points[points.length - 1][column] : null;
  return html`<div class="plot" ref=${place} role="img" aria-label=${t("{title} over time, {n} points, last {last}", { title, n: points.length, last: figure(last) })}></div>`;
}

function options(box, mine, title, colour) {
  const style = getComputedStyle(document.documentElement);
  const ink = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line"), width: 1 } };
  return {
    width: box.clientWidth || 600, height: 200, legend: { show: false }, cursor: { y: false },
    // A start or snapshot after the last step is what people look for: the picture reaches it.
    scales: { x: { time: true, range: (_, low, high) => [low, Math.max(high, ...mine.marks.map((mark) => mark.wall))] } },
    padding: [null, 34, null, null],
    axes: [{ ...axis, space: 75, values: (_, times) => times.map((time) => clock(time).slice(6)) }, { ...axis, label: title, size: 64, labelSize: 20 }],
    series: [{}, { label: title, stroke: ink(colour), width: 1.6, points: { show: false }, spanGaps: false }],
    hooks: { draw: [(plot) => lines(plot, mine.marks, ink)] },
  };
}

function lines(plot, marks, ink) {
  const { ctx: pen, bbox: box } = plot;
  for (const mark of marks) {
    const start = mark.kind === "attempt";
    if (!start && !(mark.kind === "snapshot" && mark.text === "committed")) continue;
    const x = Math.round(plot.valToPos(mark.wall, "x", true));
    if (x < box.left || x > box.left + box.width) continue;
    pen.save();
    pen.strokeStyle = ink(start ? "--c-lost" : "--soft");
    pen.lineWidth = devicePixelRatio * (start ? 2 : 1);
    pen.setLineDash(start ? [] : [2 * devicePixelRatio, 3 * devicePixelRatio]);
    pen.beginPath();
    pen.moveTo(x, box.top);
    pen.lineTo(x, box.top + box.height);
    pen.stroke();
    pen.restore();
  }
}
