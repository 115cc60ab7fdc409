// What the page knows, and its line to the witnesses. One stream brings everything; when it breaks, the next witness is tried.
import { useEffect, useReducer } from "./vendor/preact-htm.js";
import { t } from "./i18n.js";

export const build = document.querySelector("meta[name=outrider-build]").content;
/** A stream that is silent for this long is dead: the witness sends each second. */
const SILENT_MS = 5000;
/** How often a page that another witness keeps alive looks whether its own is back. */
const HOME_MS = 3000;
const AGAIN_MS = [300, 500, 1000, 2000, 3000];
/** Incidents the page holds; the list asks for older ones. */
const INCIDENTS_MAX = 10000;

export const state = {
  phase: "login", // login, connecting, live, lost
  error: "",
  trouble: "",
  role: "viewer",
  home: "", // this page's witness is the empty address
  base: "",
  witnesses: [],
  fleet: null,
  letters: [],
  incidents: new Map(),
  status: {},
  faults: {},
  stale: false, // another version of the page is served, and a reload did not help
};

const listeners = new Set();

export function tell(topic) {
  for (const listener of listeners) listener(topic);
}

/** Calls `heard(topic)` at each change; returns how to stop it. */
export function listen(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

/** Draws the component again when one of `topics` changes. */
export function useTopics(...topics) {
  const [, again] = useReducer((count) => count + 1, 0);
  useEffect(() => listen((topic) => topics.includes(topic) && again()), []);
}

export const token = () => sessionStorage.getItem("outrider-token") || "";
export const who = () => localStorage.getItem("outrider-who") || "";

export function logIn(secret, name) {
  sessionStorage.setItem("outrider-token", secret);
  localStorage.setItem("outrider-who", name);
  state.error = "";
  run();
}

export function logOut(error) {
  sessionStorage.removeItem("outrider-token");
  generation += 1;
  if (controller) controller.abort();
  Object.assign(state, { phase: "login", error: error || "", incidents: new Map(), letters: [], fleet: null, status: {} });
  tell("connection");
}

/** One question to the witness that answers now. Throws an Error whose text is for people. */
export async function ask(path, body) {
  const headers = { Authorization: `Bearer ${token()}` };
  const options = { headers, cache: "no-cache", signal: AbortSignal.timeout(10000) };
  if (body) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  const answer = await fetch(state.base + path, options).catch(() => {
    throw new Error(t("No answer from the witness."));
  });
  let told = null;
  try {
    told = await answer.json();
  } catch {
    told = null;
  }
  if (!answer.ok) throw new Error((told && told.error) || `${answer.status} ${answer.statusText}`);
  return told;
}

let generation = 0;
let controller = null;
let goHome = false;

/** Connects, and goes on connecting, until the reader logs out. */
export async function run() {
  const mine = ++generation;
  let tries = 0;
  state.phase = "connecting";
  tell("connection");
  while (mine === generation) {
    const bases = [...new Set([state.base, "", ...others()])];
    const base = bases[tries % bases.length];
    const outcome = await follow(base, mine, () => (tries = 0));
    if (mine !== generation) return;
    if (outcome === "refused") return logOut("refused");
    if (goHome) {
      goHome = false;
      tries = 0;
      continue;
    }
    state.phase = state.fleet ? "lost" : "connecting";
    tell("connection");
    tries += 1;
    await new Promise((done) => setTimeout(done, AGAIN_MS[Math.min(tries, AGAIN_MS.length) - 1]));
  }
}

function others() {
  return state.witnesses.filter((url) => url !== location.origin);
}

/** Leaves a strange witness when our own answers again: only it can bring a new version of the page. */
function homeward(base, abort) {
  if (!base) return 0;
  return setInterval(async () => {
    const answer = await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(HOME_MS) }).catch(() => null);
    if (!answer || !answer.ok || abort.signal.aborted) return;
    state.base = "";
    goHome = true;
    abort.abort();
  }, HOME_MS);
}

/** Follows one witness's stream until it breaks. */
async function follow(base, mine, connected) {
  controller = new AbortController();
  const abort = controller;
  const home = homeward(base, abort);
  let timer = setTimeout(() => abort.abort(), SILENT_MS);
  try {
    const answer = await fetch(`${base}/console/api/stream`, {
      headers: { Authorization: `Bearer ${token()}` }, cache: "no-store", signal: abort.signal,
    });
    if (answer.status === 401 || answer.status === 403) return "refused";
    if (!answer.ok) return "broken";
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    while (mine === generation) {
      const { done, value } = await reader.read();
      if (done) return "broken";
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENT_MS);
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        if (!part.startsWith("data: ")) continue;
        await take(JSON.parse(part.slice(6)), base);
        connected();
      }
    }
  } catch (error) {
    if (error instanceof SyntaxError) console.warn("outrider: a message that is no JSON");
    return "broken";
  } finally {
    clearTimeout(timer);
    clearInterval(home);
    abort.abort();
  }
  return "broken";
}

async function take(message, base) {
  if (message.hello) await greet(message.hello, base);
  if (message.trouble !== undefined) {
    state.trouble = String(message.trouble);
    return tell("connection");
  }
  if (state.trouble) {
    state.trouble = "";
    tell("connection");
  }
  performance.mark("outrider-told");
  if (typeof message.states === "string") {
    state.letters = [...message.states];
    tell("states");
  } else if (message.states.length) {
    for (const [place, letter] of message.states) state.letters[place] = letter;
    tell("states");
  }
  if (message.hello) state.incidents = new Map();
  if (message.incidents.length || message.hello) {
    keep(message.incidents);
    tell("incidents");
  }
  state.status = message.status;
  tell("status");
  if (state.phase !== "live") {
    state.phase = "live";
    tell("connection");
  }
}

/** Takes incidents in, the newest change first, as many as the page may hold. */
export function keep(pictures, older = false) {
  for (const picture of pictures) {
    const name = String(picture.incident);
    if (older && state.incidents.has(name)) continue;
    state.incidents.set(name, picture);
  }
  for (const [name, picture] of state.incidents) {
    if (state.incidents.size <= INCIDENTS_MAX) break;
    if (!isOpen(picture)) state.incidents.delete(name);
  }
}

export const OPEN = ["suspected", "confirmed", "acting", "recovering"];
export const isOpen = (picture) => OPEN.includes(picture.state);

async function greet(hello, base) {
  state.base = base;
  state.role = hello.role;
  state.witnesses = hello.witnesses.map(String);
  if (base === "" && hello.build !== build) renew(hello.build);
  if (!state.fleet || state.fleet.digest !== hello.fleet) {
    const fleet = await ask("/console/api/fleet");
    fleet.digest = hello.fleet;
    state.fleet = fleet;
    ask("/console/api/faults").then((faults) => ((state.faults = faults), tell("incidents")), () => {});
    tell("fleet");
  }
}

/** This tab is older than the witness: it loads itself again, once for each new version. */
function renew(theirs) {
  if (sessionStorage.getItem("outrider-renewed") === theirs) {
    state.stale = true;
    return;
  }
  sessionStorage.setItem("outrider-renewed", theirs);
  location.reload();
}
