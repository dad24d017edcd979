// How numbers, ages and states are said; small makers of elements. Text goes in as text only.
const Words = (function () {
  "use strict";
  const NAMES = { due: "due", unknown: "check", soon: "soon", ok: "fine", "warming-up": "warming up" };
  const TITLES = {
    due: "maintenance due", unknown: "to be checked", soon: "may be due soon", ok: "fine", "warming-up": "warming up",
    ended: "an earlier life",
  };
  // Flags under which a value has no interval and no date.
  const DISTRUSTED = ["out-of-range", "drift", "stuck", "missing", "unknown-wear"];
  const FLAGS = {
    "unseen-condition": "In an operating condition that the model never saw in training.",
    "out-of-range": "A sensor is far outside what the model saw in training.",
    drift: "A sensor's level is outside the range of all training machines, or not as the other sensors say.",
    stuck: "A sensor has not changed, or hardly, for longer than it ever did in training.",
    missing: "A sensor is blank for longer than it stayed the same in training.",
    "unknown-wear": "The machine wears in a way that no training machine did. Inspect it.",
    worn: "The end of life is reached: the health is below its threshold.",
    "mid-life": "The model reads whole lives, but the beginning of this one is missing.",
    gap: "Rows are missing within the window.",
    padded: "Fewer rows than a window; the first one was repeated.",
    stretched: "The cycle ended before the part that the model looks at did.",
  };
  let whole = true; // RUL is shown in whole cycles
  let skew = 0; // this clock against the service's

  let timeInS = null; // seconds in one step of a position that may be a date
  function setFleet(fleet) {
    timeInS = fleet.time_in_s;
    whole = fleet.task === "rul";
    if (fleet.threshold === null) NAMES.ok = TITLES.ok = "no threshold"; // nobody said what is fine
  }
  function setNow(seconds) {
    skew = Date.now() / 1000 - seconds;
  }
  function number(value) {
    if (value === null || value === undefined) return "–";
    if (whole) return value < 9.95 ? value.toFixed(1) : String(Math.round(value));
    return value.toFixed(3);
  }
  const atCap = (health) => Boolean(health && health.flags.includes("at-cap"));
  const distrusted = (health) => Boolean(health && health.flags.some((flag) => DISTRUSTED.includes(flag)));
  const doubts = (health) => (health ? health.flags.filter((flag) => flag !== "at-cap" && flag !== "worn") : []);
  // A value at the cap stands for as much or more, unless it is not to be trusted: then it promises nothing.
  function value(health) {
    if (!health) return "–";
    if (health.flags.includes("worn")) return "worn";
    if (distrusted(health) && health.value !== null) return number(health.value) + "?";
    return number(health.value) + (atCap(health) ? " or more" : "");
  }
  // Why a value is doubted, in one line: the first reason, and how many there are beside it.
  function doubt(health) {
    if (!health || (health.value !== null && !doubts(health).length)) return "";
    const [first, ...rest] = (health.reason || doubts(health).join("; ")).split("; ");
    return first + (rest.length ? ` (+${rest.length} more)` : "");
  }
  function dateOf(position) {
    const seconds = position * (timeInS || 0);
    if (seconds < 9.4e8 || seconds > 4.1e9) return null;
    return new Date(1000 * seconds).toISOString().slice(0, 16).replace("T", " ");
  }
  // Where a unit is in its life: a date, or a number with what it counts.
  function place(position, name) {
    return dateOf(position) || `${name} ${Number(Number(position).toPrecision(12))}`;
  }
  function range(health) {
    if (!health || (health.low === null && health.high === null)) return "";
    if (health.high === null) return number(health.low) + " or more";
    return number(health.low === null ? 0 : health.low) + "–" + number(health.high);
  }
  function age(received) {
    const s = Math.max(0, Date.now() / 1000 - skew - received);
    if (s < 90) return Math.round(s) + " s";
    if (s < 5400) return Math.round(s / 60) + " min";
    if (s < 129600) return Math.round(s / 3600) + " h";
    return Math.round(s / 86400) + " d";
  }
  function health(h) {
    return h.value === null ? h.reason : value(h) + (range(h) ? ` (${range(h)})` : "");
  }
  // A date of the service, which is in UTC, as a day here.
  const day = (date) => new Date(date + "Z").toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
  // A moment as short as it can be: of today only the time.
  function moment(seconds) {
    const date = new Date(1000 * seconds);
    const today = date.toDateString() === new Date().toDateString();
    return today ? date.toLocaleTimeString(undefined, { hour: "numeric", minute: "2-digit" }) : day(date.toISOString().slice(0, -1));
  }
  const cycleOf = (unit) => (unit.cycle === null ? unit.position : unit.cycle);
  const $ = (id) => document.getElementById(id);
  function node(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  return { NAMES, TITLES, FLAGS, setFleet, setNow, number, value, atCap, distrusted, doubts, doubt, range, dateOf, place, age, health, day, moment, cycleOf, $, node };
})();
