"use strict";
// Shows what /status.json and /slots.json tell, twice a second. Names in them come from workers:
// whatever is shown becomes text (textContent), never markup.

const PERIOD_MS = 500;     // between looks
const PATIENCE_MS = 5000;  // for an answer
const RATE_S = 2;          // rates are those of so long a time
const WAIT_S = 1;          // shorter waits are ordinary
const TREND_LOOKS = 120;
const TREND_FIRST = 24;    // looks that a trend has room for at first
const TREND_LEAST = 4;     // looks that its line is long, from the first on
const MOST_JOBS = 50;
const SCHEMA = 1;
const COLOURS = 8;         // of jobs
const MOST_PITCH = 26;     // pixels from a square of the map to the next
const AGES = [[1e3, "below 1 ms"], [1e4, "1 to 10 ms"], [1e5, "10 to 100 ms"],
              [1e6, "100 ms to 1 s"], [Infinity, "1 s and more"]];
const STATES = [["filling", "filling"], ["complete", "complete, kept for repetition"],
                ["answered", "answered by the fallback, kept"], ["frozen", "sum on its way to the fallback"]];
const WAITING = new Set(["filling", "frozen"]);  // the others hold a result for who lost it

const $ = (id) => document.getElementById(id);
let paused = false;
let looks = [];            // statuses of the last RATE_S, the oldest first
let slots = null;          // the last of /slots.json
let chosen = -1;           // cell
const trends = new Map();  // by job id: fragments/s
const problems = new Map();  // by what they are: since when
const colours = new Map(); // by job id

// ---- words

const count = (number) => Math.round(number).toLocaleString("en");
// Characters that are not seen, and change what is seen, stand as their numbers.
const shown = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu,
  (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
const rate = (number) => number === null ? "–" : number > 0 && number < 10 ? number.toFixed(1) : count(number);
// Of many, those that follow each other are "0-63", as everywhere.
function ranks(list) {
  const runs = [];
  for (const rank of list)
    if (list.length > 16 && runs.at(-1)?.[1] === rank - 1) runs.at(-1)[1] = rank;
    else runs.push([rank, rank]);
  return (list.length === 1 ? "rank " : "ranks ") + runs.map(([first, last]) => first === last ? first : `${first}-${last}`).join(", ");
}

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

function put(element, words) {
  const text = shown(words);
  if (element.textContent !== text) element.textContent = text;
}

function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  put(made, text);
  made.className = name;
  return made;
}

// Children of `parent`: as many as `items`, those that are there first.
function match(parent, items, make, set) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(make());
  items.forEach((item, i) => set(parent.children[i], item));
}

// Rows of cells: a text, or a function that draws into the cell. Columns look like their heads,
// which narrow screens show before each value.
function table(id, rows) {
  const heads = [...$(id).tHead.rows[0].cells];
  const cell = (row) => {
    const head = heads[row.children.length];
    const made = element("td", "", head.className);
    made.dataset.head = head.textContent;
    return made;
  };
  match($(id).tBodies[0], rows, () => element("tr"), (row, cells) =>
    match(row, cells, () => cell(row), (cell, content) => {
      if (typeof content === "function") content(cell); else put(cell, content);
    }));
  $(id).parentElement.hidden = rows.length === 0;
  const none = $(id).closest("section").querySelector(".none");
  if (!none) return;
  put(none, none.dataset.none);
  none.hidden = rows.length !== 0;
}

function drawing(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// The first look is a line, too.
function trend(values) {
  return (cell) => {
    if (!cell.firstElementChild) {
      const svg = drawing("svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
      svg.append(drawing("polygon", {}), drawing("polyline", {}));
      cell.replaceChildren(svg);
    }
    const seen = [...Array(Math.max(0, values.length && TREND_LEAST - values.length)).fill(values[0]), ...values];
    const most = Math.max(1, ...seen);
    const end = Math.max(TREND_FIRST, seen.length);
    const first = end - seen.length + 1;
    cell.firstElementChild.setAttribute("viewBox", `0 0 ${end} 20`);
    const line = seen.map((value, i) => `${first + i},${(19 - 18 * value / most).toFixed(1)}`);
    cell.querySelector("polyline").setAttribute("points", line.join(" "));
    cell.querySelector("polygon").setAttribute(
      "points", line.length ? [`${first},20`, ...line, `${end},20`].join(" ") : "");
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
    ["Slots in use", count(aggregator.slots_used), `of ${count(aggregator.slots)}`],
    ["Jobs", count(jobs.filter((job) => job.group_of === undefined).length), ""],
    ["Fragments/s", rate(rates.of(completed(before), completed(aggregator))), ""],
    ["Contributions in slots", bytes(rates.of(before.absorbed_bytes, aggregator.absorbed_bytes)), ""],
    ["Preempted/s", rate(rates.of(before.preemptions, aggregator.preemptions)), `${count(aggregator.preemptions)} in all`],
    ["Drops/s", rate(rates.of(allDrops(rates.then), drops)), `${count(drops)} in all`],
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
  put($("host"), now.host ?? "");
  put($("about"), [`version ${now.version}`, `policy ${aggregator.policy}`, `up ${time(now.uptime_s)}`,
                   ...(now.draining ? ["drained: no new jobs"] : [])].join(" · "));
}

function remember(id, fragments) {
  const seen = trends.get(id) ?? [];
  if (fragments !== null) seen.push(fragments);
  trends.set(id, seen.slice(-TREND_LOOKS));
  return trends.get(id);
}

const mean = (values) => values.reduce((all, one) => all + one, 0) / Math.max(1, values.length);

// Rows keep their places: they are ordered by name, and of many jobs those are shown that were the
// busiest for a minute.
function showJobs(now, rates) {
  const before = new Map(rates.then.jobs.map((job) => [job.id, job]));
  const rows = now.jobs.map((job) => {
    const then = before.get(job.id);
    const of = (key) => then ? rates.of(then[key], job[key]) : null;
    const fragments = then ? rates.of(completed(then), completed(job)) : null;
    const seen = remember(job.id, fragments);
    const absorbed = of("absorbed"), contributions = absorbed + of("bypassed");
    return { label: label(job), id: job.id, busy: mean(seen), cells: [
      label(job), job.state, `${job.joined.length} of ${job.world_size}`, rate(fragments),
      bytes(fragments === null ? null : fragments * now.aggregator.slot_bytes), trend(seen),
      contributions > 0 ? `${count(100 * absorbed / contributions)} %` : "–", count(job.slots_held),
      rate(of("preempted")), count(job.preempted)] };
  });
  rows.sort((a, b) => b.busy - a.busy);
  const most = rows.slice(0, MOST_JOBS).sort((a, b) => a.label.localeCompare(b.label) || a.id - b.id);
  table("jobs", most.map((row) => row.cells));
  const more = document.querySelector(".more");
  more.hidden = rows.length <= MOST_JOBS;
  put(more, `and ${count(rows.length - MOST_JOBS)} more, which have done less in the last minute`);
  const present = new Set(now.jobs.map((job) => job.id));
  for (const map of [trends, colours])
    for (const id of map.keys()) if (!present.has(id)) map.delete(id);
}

// The other switches of jobs in trees.
function showTrees(now) {
  const rows = now.jobs.flatMap((job) => [
    ...(job.tree?.above ? [[label(job), "above", job.tree.above.url, "–", job.tree.above.state]] : []),
    ...(job.tree?.below ?? []).map((below) => [label(job), "below", below.peer || "–", ranks(below.ranks), below.state])]);
  table("trees", rows.slice(0, MOST_JOBS));
  $("trees-section").hidden = rows.length === 0;
}

function whomFor(job) {
  if (!job.waiting_for.length) return "the fallback";
  const states = job.waiting_for_processes ?? [];
  const peers = job.waiting_for_peers.map((peer, i) => [peer, ...(["", "runs", undefined].includes(states[i]) ? [] : [states[i]])].join(", "));
  return `${ranks(job.waiting_for)} (${peers.join("; ")})`;
}

// [key, waits for, because]; a problem with another key is another problem. Nothing: none.
function problemOf(job) {
  const unheard = (job.unheard ?? []).map((worker) => worker.text).join("; ");
  if (job.tree?.above?.state === "away")
    return ["above", `the switch above (${job.tree.above.url})`, job.tree.above.text];
  const away = (job.tree?.below ?? []).filter((below) => below.state === "away");
  if (away.length)
    return ["below", `the switch below with ${ranks(away.flatMap((below) => below.ranks))}`, "it is away"];
  if (job.oldest_fragment !== undefined)
    return [`fragment ${job.oldest_fragment}`, whomFor(job),
            unheard || `${job.oldest_operation ?? "an operation"}, fragment ${count(job.oldest_fragment)}`];
  if (job.missing.length && job.state !== "leaving") return ["join", `${ranks(job.missing)} to join`, job.state];
  if (job.fallback_missing) return ["fallback", "the fallback server to join", job.state];
  return unheard ? ["unheard", "–", unheard] : null;
}

function problemsOf(now) {
  const found = [];
  if (now.configuration?.failure)
    found.push(["configuration", "the switch", "another configuration", now.configuration.failure]);
  for (const port of now.ports) {
    const where = `port ${port.name}`;
    if (port.blocked) found.push([`loop ${port.name}`, where, "the end of a loop", port.blocked.text]);
    else if (port.link === "down") found.push([`link ${port.name}`, where, "its link", "the link is down"]);
  }
  for (const job of now.jobs) {
    const problem = problemOf(job);
    if (problem) found.push([`${job.id} ${problem[0]}`, label(job), problem[1], problem[2]]);
  }
  return found;
}

// What lasts for a second is a problem, and comes first; its number is in the title.
function showProblems(now) {
  const found = problemsOf(now);
  const present = new Set(found.map(([key]) => key));
  for (const key of problems.keys()) if (!present.has(key)) problems.delete(key);
  const rows = [];
  for (const [key, where, what, because] of found) {
    if (!problems.has(key)) problems.set(key, now.uptime_s);
    const since = now.uptime_s - problems.get(key);
    if (since >= WAIT_S) rows.push([where, what, time(since), because]);
  }
  table("stragglers", rows.slice(0, MOST_JOBS));
  $("problems").classList.toggle("some", rows.length !== 0);
  document.title = shown(`${rows.length ? `(${rows.length}) ` : ""}${now.host ? `${now.host} · ` : ""}INA switch`);
}

const received = (port) => port.rx_bytes + (port.forwarded_bytes ?? 0);
const sent = (port) => port.tx_bytes + (port.bridged_sent_bytes ?? 0);

function showPorts(now, rates) {
  const before = new Map(rates.then.ports.map((port) => [port.name, port]));
  table("ports", now.ports.map((port) => {
    const then = before.get(port.name) ?? port;
    const of = (key) => port[key] === undefined ? "–" : rate(rates.of(then[key], port[key]));
    return [port.name, port.blocked ? "blocked" : port.link ?? port.type, bytes(rates.of(received(then), received(port))),
            bytes(rates.of(sent(then), sent(port))), of("forwarded"), of("flooded"), of("bridged_lost"),
            of("learned"), of("moved"),
            rate(rates.of(sum(then.drops), sum(port.drops)))];
  }));
  const { bridge } = now;
  $("bridge").hidden = !bridge;
  if (bridge) {
    const of = (key) => `${rate(rates.of(rates.then.bridge?.[key] ?? bridge[key], bridge[key]))}/s`;
    put($("bridge"), `${count(bridge.mac_entries)} of ${count(bridge.mac_capacity)} addresses known · ` +
      `learned ${of("learned")}, ${count(bridge.learned)} in all · moved ${of("moved")}, ${count(bridge.moved)} in all`);
  }
}

function showLoops(now, rates) {
  table("loops", now.lcores.map((loop, i) => {
    const then = rates.then.lcores[i] ?? loop;
    return [`${loop.lcore}`, share(rates.of(then.busy_s, loop.busy_s)), rate(rates.of(then.packets, loop.packets))];
  }));
}

function showDrops(now, rates) {
  const before = new Map(rates.then.ports.map((port) => [port.name, port]));
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
  if (by === "age") return WAITING.has(slot.state) ? `age${ageOf(slot.age_us)}` : "kept";
  return jobOf(slot.job) ? colourOf(slot.job) : "other";
}

// [class, words] of each colour.
function legendOf(at, by) {
  if (by === "state") return STATES;
  if (by === "age") return [["kept", "kept, nobody waits"], ...AGES.map(([, words], i) => [`age${i}`, `waits ${words}`])];
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
  const since = `${WAITING.has(slot.state) ? "waits for" : "kept, begun"} ${time(slot.age_us / 1e6)}${WAITING.has(slot.state) ? "" : " ago"}`;
  put($("detail"), `${place}: ${slot.state}, ${since}, ${slot.contributions} ${whose}`);
}

// The map's height is given: its squares are as large as all of them have room.
function fit(map) {
  const area = map.clientWidth * map.clientHeight;
  let pitch = Math.min(MOST_PITCH, Math.floor(Math.sqrt(area / slots.cells)));
  const rows = () => Math.ceil(slots.cells / Math.floor(map.clientWidth / pitch));
  while (pitch > 3 && rows() * pitch > map.clientHeight) --pitch;
  map.style.setProperty("--pitch", `${pitch}px`);
}

function showSlots() {
  if (!slots) return;
  const by = document.querySelector("#colouring :checked").value;
  const at = used();
  const map = $("map");
  const counts = new Map();
  match(map, Array(slots.cells).fill(0), () => element("i"), () => {});
  fit(map);
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
  if (last && (last.boots !== status.boots || last.uptime_s > status.uptime_s)) {
    looks = [];
    problems.clear();  // their times were the last switch's
  }
  if (last?.uptime_s === status.uptime_s) return;
  looks.push(status);
  // The oldest is RATE_S ago or longer, as soon as there is one.
  while (looks.length > 2 && status.uptime_s - looks[1].uptime_s >= RATE_S) looks.shift();
  const then = looks[0];
  const seconds = status.uptime_s - then.uptime_s;
  const rates = { then, of: (before, after) => seconds > 0 ? Math.max(0, after - before) / seconds : null };
  showFigures(status, rates);
  showProblems(status);
  showJobs(status, rates);
  showTrees(status);
  showPorts(status, rates);
  showLoops(status, rates);
  showDrops(status, rates);
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
addEventListener("resize", showSlots);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const by = { a: "age", j: "job", s: "state" }[event.key];
  if (event.key === "p") pause();
  if (!by) return;
  document.querySelector(`#colouring [value=${by}]`).checked = true;
  showSlots();
});
look();
