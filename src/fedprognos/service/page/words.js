// How numbers, ages and states are said; small makers of elements. Text goes in as text only.
const Words = (function () {
  "use strict";
  const NAMES = { due: "due", soon: "soon", unknown: "unknown", ok: "fine", "warming-up": "warming up" };
  const TITLES = {
    due: "maintenance due", soon: "may be due soon", unknown: "cannot say", ok: "fine", "warming-up": "warming up",
  };
  const FLAGS = {
    "unseen-condition": "In an operating condition that the model never saw in training.",
    "out-of-range": "A sensor is far outside what the model saw in training.",
    drift: "Sensors have moved away from the training data, or are stuck.",
    gap: "Rows are missing within the window.",
    padded: "Fewer rows than a window; the first one was repeated.",
    stretched: "The cycle ended before the part that the model looks at did.",
  };
  let whole = true; // RUL is told in whole cycles
  let skew = 0; // this clock against the service's

  function setFleet(fleet) {
    whole = fleet.task === "rul";
  }
  function setNow(seconds) {
    skew = Date.now() / 1000 - seconds;
  }
  function number(value) {
    if (value === null || value === undefined) return "–";
    if (whole) return value < 9.95 ? value.toFixed(1) : String(Math.round(value));
    return value.toFixed(3);
  }
  function range(health) {
    if (!health || (health.low === null && health.high === null)) return "";
    if (health.high === null) return "≥ " + number(health.low);
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
    return h.value === null ? h.reason : number(h.value) + (range(h) ? ` (${range(h)})` : "");
  }
  const cycleOf = (unit) => (unit.cycle === null ? unit.position : unit.cycle);
  const $ = (id) => document.getElementById(id);
  function node(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  return { NAMES, TITLES, FLAGS, setFleet, setNow, number, range, age, health, cycleOf, $, node };
})();
