// What an incident's record means, in plain words: why not sooner, what is held back, what comes next.
import { t } from "./i18n.js";
import { state } from "./store.js";
import { span, text } from "./ui.js";

/** Actions in the order in which they are carried out. */
const STEPS = ["snapshot", "quarantine", "drain", "restart", "agent_restart", "page", "release"];

export const votesOf = (picture) => Object.entries(picture.votes || {}).map(([name, verdict]) => [text(name), text(verdict)]);

/** The last word on each action: asked, refused, done, failed or timed out. */
export function lastWords(history) {
  const words = new Map();
  for (const line of history || []) {
    if (line.event === "action") words.set(line.action, { state: line.dry_run ? "dry run" : "asked", line });
    if (line.event === "refused") words.set(line.action, { state: "refused", line });
    if (line.event === "action_result") words.set(line.action, { state: text(line.outcome).replace("_", " "), line });
  }
  return [...words].sort(([one], [other]) => STEPS.indexOf(one) - STEPS.indexOf(other));
}

/** Whether a person's yes is what it waits for. */
export function waitsForApproval(picture, history) {
  if (!["confirmed", "acting"].includes(picture.state) || picture.approved) return false;
  return lastWords(history).some(([, word]) => word.state === "refused" && text(word.line.refused).startsWith("mode advise"));
}

/** What will happen next: sentences, the most important first. */
export function nextOf(picture, history) {
  const said = [];
  const words = lastWords(history);
  const refusal = words.map(([, word]) => (word.state === "refused" ? text(word.line.refused) : "")).find(Boolean) || "";
  const refused = words.filter(([, word]) => word.state === "refused").map(([action]) => t(action));
  const running = words.filter(([, word]) => word.state === "asked").map(([action]) => t(action));
  const failed = words.filter(([, word]) => ["failed", "timed out"].includes(word.state)).map(([action]) => t(action));
  if (state.status.paused) said.push(t("All actions are paused by a person; nothing is done until somebody resumes."));
  switch (picture.state) {
    case "suspected": {
      const faulty = votesOf(picture).filter(([, verdict]) => verdict === "faulty").length;
      const all = Object.keys(state.status.witnesses || {}).length;
      said.push(t("Waits until a majority agrees: {faulty} of {all} witnesses say faulty. Nothing is done before that.", { faulty, all: all || "?" }));
      said.push(t("If the signs go away it is refuted by itself, and copies made early are let go."));
      break;
    }
    case "confirmed":
    case "acting":
      if (waitsForApproval(picture, history)) {
        const left = (state.status.approvals || {})[picture.incident];
        said.push(t("Waits for an operator's approval of: {actions}.", { actions: refused.join(", ") }));
        if (left !== undefined) said.push(t("If nobody answers within {time}, the site's default holds.", { time: span(left) }));
      }
      if (refusal.startsWith("mode observe")) said.push(t("Nothing: this site only observes. It would have done: {actions}.", { actions: refused.join(", ") }));
      else if (refusal && !refusal.startsWith("mode advise")) said.push(t("Held back: {why}", { why: refusal }));
      if (running.length) said.push(t("Under way: {actions}.", { actions: running.join(", ") }));
      if (failed.length) said.push(t("Did not succeed: {actions}. A person must look.", { actions: failed.join(", ") }));
      if (!words.length && picture.response === "page") said.push(t("A person is told; the job is not touched."));
      if (!words.length && ["watch", "ignore"].includes(picture.response)) said.push(t("It is watched; nobody is woken."));
      break;
    case "recovering":
      said.push(t("The job starts again from the newest complete snapshot. It is over when steps are finished again."));
      break;
    case "resolved":
      said.push(t("It is over."));
      break;
    case "refuted":
      said.push(t("It was unfounded; nothing was done to any job."));
      break;
    default:
      said.push(t("unknown"));
  }
  const node = picture.subject && picture.subject.node;
  if (node && (state.status.quarantined || []).includes(node))
    said.push(t("{node} stays in quarantine until a person releases it.", { node }));
  if (picture.extra && picture.extra.approval) said.push(t("Approval: {what}", { what: text(picture.extra.approval) }));
  if (picture.repair && picture.repair !== "none" && picture.state !== "refuted")
    said.push(t("Repair afterwards: {repair}.", { repair: t(picture.repair) }));
  return said;
}

/** What spoke against it, and what was left undone and why. */
export function whyNot(picture, history) {
  const said = [];
  for (const piece of picture.evidence || []) if (piece.effect === "veto") said.push(text(piece.text));
  for (const [name, verdict] of votesOf(picture)) {
    if (verdict === "clear") said.push(t("{witness} says clear: it sees no fault.", { witness: name }));
    if (verdict === "abstain") said.push(t("{witness} abstains: it cannot tell.", { witness: name }));
  }
  for (const [action, word] of lastWords(history))
    if (word.state === "refused") said.push(t("{action} was not done: {why}", { action: t(action), why: text(word.line.refused) }));
  const layers = picture.layers || [];
  if (layers.length === 1 && picture.state === "suspected") said.push(t("Only one layer ({layer}) tells of it so far; a second must confirm.", { layer: t(layers[0]) }));
  return said;
}
