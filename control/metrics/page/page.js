"use strict";
// Shows what /status.json and /slots.json tell, twice a second. Names in them come from workers:
// whatever is shown becomes text (textContent), never markup.

const PERIOD_MS = 500;     // between looks
const PATIENCE_MS = 5000;  // for an answer
const RATE_S = 2;          // rates are those of so long a time
const WAIT_S = 1;          // shorter waits are ordinary
const TREND_LOOKS = 120;
const MOST_JOBS = 50;
const SCHEMA = 1;
const COLOURS = 8;         // of jobs
const AGES = [[1e3, "below 1 ms"], [1e4, "1 to 10 ms"], [1e5, "10 to 100 ms"],
              [1e6, "100 ms to 1 s"], [Infinity, "1 s and more"]];
const STATES = [["filling", "filling"], ["complete", "complete, kept for repetition"],
                ["answered", "answered by the fallback"], ["frozen", "sum on its way to the fallback"]];

const $ = (id) => document.getElementById(id);
let paused = false;
let looks = [];            // statuses of the last RATE_S, the oldest first
let slots = null;          // the last of /slots.json
let chosen = -1;           // cell
const trends = new Map();  // by job id: fragments/s
const waits = new Map();   // by job id: {fragment, since}
const colours = new Map(); // by job id

// ---- words

const count = (number) => Math.round(number).toLocaleString("en");
const rate = (number) => number === null ? "–" : number > 0 && number < 10 ? number.toFixed(1) : count(number);
const ranks = (list) => (list.length === 1 ? "rank " : "ranks ") + list.join(", ");

function bytes(number) {
  if (number === null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; number >= 1000 && unit < units.length - 1; ++unit) number /= 1000;
  return `${unit && number < 100 ? number.toFixed(1) : count(number)} ${units[unit]}/s`;
}

function time(seconds) {
  if (seconds < 1e-3) return `${count(seconds * 1e6)} µs`;
  if (seconds < 1) return `${count(seconds * 1e3)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.floor(minutes / 1440)} days`;
}

const label = (job) => `${job.owner}/${job.name}`;
const completed = (job) => job.results + job.fallback_results + (job.parker_results ?? 0);
const sum = (drops) => Object.values(drops).reduce((all, one) => all + one, 0);
const allDrops = (status) =>
  [status.aggregator, ...status.ports].reduce((all, place) => all + sum(place.drops), 0);

// ---- elements

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = name;
  return made;
}

// Children of `parent`: as many as `items`, those that are there first.
function match(parent, items, make, set) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(make());
  items.forEach((item, i) => set(parent.children[i], item));
}

// Rows of cells: a text, or a function that draws into the cell. Columns look like their heads.
function table(id, rows) {
  const heads = [...$(id).tHead.rows[0].cells];
  match($(id).tBodies[0], rows, () => element("tr"), (row, cells) =>
    match(row, cells, () => element("td", "", heads[row.children.length].className), (cell, content) => {
      if (typeof content === "function") content(cell); else put(cell, content);
    }));
  $(id).parentElement.hidden = rows.length === 0;
  const none = $(id).closest("section").querySelector(".none");
  if (none) none.hidden = rows.length !== 0;
}

function trend(values) {
  return (cell) => {
    if (!cell.firstElementChild) {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", `0 0 ${TREND_LOOKS - 1} 20`);
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("aria-hidden", "true");
      svg.append(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
      cell.replaceChildren(svg);
    }
    const most = Math.max(1, ...values);
    const first = TREND_LOOKS - values.length;
    cell.querySelector("polyline").setAttribute(
      "points", values.map((value, i) => `${first + i},${(19 - 18 * value / most).toFixed(1)}`).join(" "));
  };
}

function share(value) {
  return (cell) => {
    if (!cell.firstElementChild) cell.replaceChildren(element("meter"), element("span"));
    cell.firstElementChild.value = value ?? 0;
    put(cell.lastElementChild, value === null ? "–" : `${count(100 * value)} %`);
  };
}

// ---- what is shown

function showFigures(now, rates) {
  const { aggregator, jobs } = now;
  const before = rates.then.aggregator;
  const drops = allDrops(now);
  const figures = [
    ["Slots in use", count(aggregator.slots_used), ` of ${count(aggregator.slots)}`],
    ["Jobs", count(jobs.filter((job) => job.group_of === undefined).length), ""],
    ["Fragments/s", rate(rates.of(completed(before), completed(aggregator))), ""],
    ["Contributions in slots", bytes(rates.of(before.absorbed_bytes, aggregator.absorbed_bytes)), ""],
    ["Preempted/s", rate(rates.of(before.preemptions, aggregator.preemptions)), ` ${count(aggregator.preemptions)} in all`],
    ["Drops/s", rate(rates.of(allDrops(rates.then), drops)), ` ${count(drops)} in all`],
  ];
  match($("figures"), figures, () => {
    const box = element("div");
    const value = element("dd");
    value.append(element("span"), element("small"));
    box.append(element("dt"), value);
    return box;
  }, (box, [name, value, rest]) => {
    put(box.firstElementChild, name);
    put(box.querySelector("span"), value);
    put(box.querySelector("small"), rest);
  });
  put($("about"), [`version ${now.version}`, `policy ${aggregator.policy}`, `up ${time(now.uptime_s)}`,
                   ...(now.draining ? ["drained: no new jobs"] : [])].join(" · "));
}

function showJobs(now, rates) {
  const before = new Map(rates.then.jobs.map((job) => [job.id, job]));
  const rows = now.jobs.map((job) => {
    const then = before.get(job.id);
    const of = (key) => then ? rates.of(then[key], job[key]) : null;
    const fragments = then ? rates.of(completed(then), completed(job)) : null;
    const seen = trends.get(job.id) ?? [];
    if (fragments !== null) seen.push(fragments);
    trends.set(job.id, seen.slice(-TREND_LOOKS));
    const absorbed = of("absorbed"), contributions = absorbed + of("bypassed");
    return { fragments, cells: [
      label(job), job.state, `${job.joined.length} of ${job.world_size}`, rate(fragments),
      bytes(fragments === null ? null : fragments * now.aggregator.slot_bytes), trend(trends.get(job.id)),
      contributions > 0 ? `${count(100 * absorbed / contributions)} %` : "–", count(job.slots_held),
      rate(of("preempted")), count(job.preempted)] };
  });
  rows.sort((a, b) => (b.fragments ?? 0) - (a.fragments ?? 0));
  table("jobs", rows.slice(0, MOST_JOBS).map((row) => row.cells));
  const more = document.querySelector(".more");
  more.hidden = rows.length <= MOST_JOBS;
  put(more, `and ${count(rows.length - MOST_JOBS)} more, which have done less`);
  const present = new Set(now.jobs.map((job) => job.id));
  for (const map of [trends, waits, colours])
    for (const id of map.keys()) if (!present.has(id)) map.delete(id);
}

function waitingSince(job, uptime) {
  if (job.oldest_fragment === undefined) {
    waits.delete(job.id);
    return null;
  }
  const known = waits.get(job.id);
  if (known?.fragment === job.oldest_fragment) return uptime - known.since;
  waits.set(job.id, { fragment: job.oldest_fragment, since: uptime });
  return 0;
}

function whomFor(job) {
  if (!job.waiting_for.length) return "the fallback";
  return `${ranks(job.waiting_for)} (${job.waiting_for_peers.join("; ")})`;
}

function showStragglers(now) {
  const rows = [];
  for (const job of now.jobs) {
    const waited = waitingSince(job, now.uptime_s);
    const unheard = (job.unheard ?? []).map((worker) => worker.text).join("; ");
    if (waited >= WAIT_S)
      rows.push([label(job), whomFor(job), time(waited),
                 unheard || `${job.oldest_operation ?? "an operation"}, fragment ${count(job.oldest_fragment)}`]);
    else if (job.missing.length && job.state !== "leaving")
      rows.push([label(job), `${ranks(job.missing)} to join`, "–", job.state]);
    else if (job.fallback_missing)
      rows.push([label(job), "the fallback server to join", "–", job.state]);
    else if (unheard)
      rows.push([label(job), "–", "–", unheard]);
  }
  table("stragglers", rows.slice(0, MOST_JOBS));
}

function showPorts(now, rates) {
  const before = new Map(rates.then.ports.map((port) => [port.name, port]));
  table("ports", now.ports.map((port) => {
    const then = before.get(port.name) ?? port;
    return [port.name, port.link ?? port.type, bytes(rates.of(then.rx_bytes, port.rx_bytes)),
            bytes(rates.of(then.tx_bytes, port.tx_bytes)), rate(rates.of(sum(then.drops), sum(port.drops)))];
  }));
  table("loops", now.lcores.map((loop, i) => {
    const then = rates.then.lcores[i] ?? loop;
    return [`${loop.lcore}`, share(rates.of(then.busy_s, loop.busy_s)), rate(rates.of(then.packets, loop.packets))];
  }));
  const rows = (where, drops, then) => Object.entries(drops).map(
    ([reason, number]) => [where, reason, count(number), rate(rates.of(then[reason] ?? 0, number))]);
  table("drops", [
    ...rows("aggregator", now.aggregator.drops, rates.then.aggregator.drops),
    ...now.ports.flatMap((port) => rows(port.name, port.drops, before.get(port.name)?.drops ?? {}))]);
}

// ---- the slots

function used() {
  const at = new Map();
  for (const row of slots.used) at.set(row[0], Object.fromEntries(slots.columns.map((name, i) => [name, row[i]])));
  return at;
}

function jobOf(id) {
  return looks.at(-1).jobs.find((job) => job.id === id);
}

function colourOf(id) {
  if (!colours.has(id)) {
    const taken = new Set(colours.values());
    colours.set(id, [...Array(COLOURS).keys()].find((colour) => !taken.has(colour)) ?? null);
  }
  const colour = colours.get(id);
  return colour === null ? "other" : `job${colour}`;
}

const ageOf = (age_us) => AGES.findIndex(([end]) => age_us < end);

function classOf(slot, by) {
  if (!slot) return "";
  if (by === "state") return slot.state;
  if (by === "age") return `age${ageOf(slot.age_us)}`;
  return jobOf(slot.job) ? colourOf(slot.job) : "other";
}

// [class, words] of each colour.
function legendOf(at, by) {
  if (by === "state") return STATES;
  if (by === "age") return AGES.map(([, words], i) => [`age${i}`, words]);
  const held = [...new Set([...at.values()].map((slot) => slot.job))].map(jobOf).filter(Boolean)
    .sort((a, b) => a.id - b.id);
  const own = held.map((job) => [colourOf(job.id), label(job)]).filter(([name]) => name !== "other");
  return [...own, ...(own.length < held.length ? [["other", "other jobs"]] : [])];
}

function describe(at) {
  if (chosen < 0 || chosen >= slots.cells) return;
  const per_loop = slots.cells / slots.lanes;
  const loop = slots.lanes > 1 ? ` of loop ${Math.floor(chosen / per_loop)}` : "";
  const place = `Slot ${count((chosen % per_loop) * slots.slots_per_cell)}${loop}`;
  const slot = at.get(chosen);
  if (!slot) return put($("detail"), `${place}: empty`);
  const job = jobOf(slot.job);
  const whose = job ? `of ${job.world_size} contributions, job ${label(job)}` : "contributions, of a job that has ended";
  put($("detail"), `${place}: ${slot.state}, begun ${time(slot.age_us / 1e6)} ago, ${slot.contributions} ${whose}`);
}

function showSlots() {
  if (!slots) return;
  const by = document.querySelector("#colouring :checked").value;
  const at = used();
  const map = $("map");
  const counts = new Map();
  match(map, Array(slots.cells).fill(0), () => element("i"), () => {});
  for (let cell = 0; cell < slots.cells; ++cell) {
    const name = classOf(at.get(cell), by);
    counts.set(name, (counts.get(name) ?? 0) + 1);
    const full = cell === chosen ? `${name} chosen` : name;
    if (map.children[cell].className !== full) map.children[cell].className = full;
  }
  match($("legend"), [["", "empty"], ...legendOf(at, by)], () => {
    const item = element("li");
    item.append(element("i"), element("span"), element("b"));
    return item;
  }, (item, [name, words]) => {
    item.children[0].className = name;
    put(item.children[1], words);
    put(item.children[2], count(counts.get(name) ?? 0));
  });
  put($("sample"), slots.slots_per_cell === 1
    ? `Each square is one of ${count(slots.slots)} slots.`
    : `Each square is one slot of every ${count(slots.slots_per_cell)}: ${count(slots.cells)} of ${count(slots.slots)}.`);
  describe(at);
}

function choose(cell) {
  chosen = Math.min(Math.max(cell, 0), slots.cells - 1);
  showSlots();
}

function onMapKey(event) {
  if (!slots) return;
  const across = getComputedStyle($("map")).gridTemplateColumns.split(" ").length;
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across,
                  Home: -slots.cells, End: slots.cells };
  if (!(event.key in steps)) return;
  event.preventDefault();
  const next = chosen + steps[event.key];
  if (chosen < 0) choose(0);
  else if (Math.abs(steps[event.key]) !== across || (next >= 0 && next < slots.cells)) choose(next);
}

// ---- looking

function say(text, name) {
  put($("state"), text);
  $("state").className = name;
}

async function get(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const json = await answer.json();
  if (json.schema !== SCHEMA) throw new Error("the switch is of another version: load the page again");
  return json;
}

function take(status) {
  const last = looks.at(-1);
  if (last && (last.boots !== status.boots || last.uptime_s > status.uptime_s)) looks = [];
  if (last?.uptime_s === status.uptime_s) return;
  looks.push(status);
  // The oldest is RATE_S ago or longer, as soon as there is one.
  while (looks.length > 2 && status.uptime_s - looks[1].uptime_s >= RATE_S) looks.shift();
  const then = looks[0];
  const seconds = status.uptime_s - then.uptime_s;
  const rates = { then, of: (before, after) => seconds > 0 ? Math.max(0, after - before) / seconds : null };
  showFigures(status, rates);
  showJobs(status, rates);
  showStragglers(status);
  showPorts(status, rates);
}

async function look() {
  if (!paused && !document.hidden) {
    try {
      const [status, map] = await Promise.all([get("status.json"), get("slots.json")]);
      if (!paused) {
        slots = map;
        take(status);
        showSlots();
        say("live", "live-now");
      }
    } catch (error) {
      say(`no answer: ${error.message}`, "alarm");
    }
  }
  setTimeout(look, PERIOD_MS);
}

function pause() {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", `${paused}`);
  put($("pause").firstChild, paused ? "Go on " : "Pause ");
  say(paused ? "paused" : "asking…", "");
}

$("pause").addEventListener("click", pause);
$("map").addEventListener("keydown", onMapKey);
$("map").addEventListener("pointerover", (event) => {
  if (event.target.parentElement === $("map")) choose([...$("map").children].indexOf(event.target));
});
$("colouring").addEventListener("change", showSlots);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const by = { a: "age", j: "job", s: "state" }[event.key];
  if (event.key === "p") pause();
  if (!by) return;
  document.querySelector(`#colouring [value=${by}]`).checked = true;
  showSlots();
});
look();
