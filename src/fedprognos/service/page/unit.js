// One unit: verdict, trend with forecast, history, sensors.
const UnitPage = (function () {
  "use strict";
  const { TITLES, FLAGS, number, value, atCap, distrusted, doubts, range, dateOf, place, age, health, day, cycleOf, $, node } = Words;
  let fleet = null;
  let drawn = null;

  function expectation(unit) {
    const f = unit.forecast;
    if (unit.status === "ended") return "This life has ended; the machine goes on in a later one.";
    if (fleet.threshold === null || !unit.health || unit.health.value === null) return "";
    if (unit.status === "due") return `Maintenance is due: at or below ${number(fleet.threshold)} ${fleet.target_measure}.`;
    if (distrusted(unit.health)) return "The value is not to be trusted, so no interval and no date are shown. Inspect the machine and its sensors.";
    if (atCap(unit.health)) return `${number(unit.health.value)} is the most that this model can say. When maintenance is due cannot be told yet.`;
    if (!f) return "Too few values for a forecast.";
    if (f.due === null) return "No decline visible, so no forecast of when maintenance is due.";
    const measure = fleet.cyclic ? "cycles" : fleet.time_measure;
    const unitOf = (n) => (n === 1 && measure.endsWith("s") ? measure.slice(0, -1) : measure);
    const left = (p) => Math.max(0, Math.round(p - unit.health.position));
    const least = f.due_low === null ? 0 : left(f.due_low);
    const bounds = f.due_low === null && f.due_high === null ? "" : f.due_high === null ? ` (at least ${least})` : ` (${least} to ${left(f.due_high)})`;
    const unsure = fleet.coverage === null ? ` No interval: ${fleet.no_intervals}.` : "";
    return `Maintenance due in about ${left(f.due)} ${unitOf(left(f.due))}${bounds}, around ${place(dateOf(f.due) ? f.due : Math.round(f.due), fleet.position_name)}; ${f.basis}.${byCalendar(unit)}${unsure}`;
  }
  function byCalendar(unit) {
    const due = unit.due_date;
    if (!due || dateOf(unit.forecast.due)) return "";
    if (due.date === null) return ` No date: ${due.reason}.`;
    const bounds = due.earliest && due.latest ? ` (${day(due.earliest)} to ${day(due.latest)})` : "";
    return ` That is about ${day(due.date)}${bounds}, at ${Number(due.per_day.toPrecision(2))} ${fleet.cyclic ? "cycles" : fleet.time_measure} a day as lately.`;
  }
  // The best moment to replace, and a table of what other moments cost.
  function replacement(unit) {
    const r = unit.replacement;
    if (!r) return [];
    const money = (x) => Number(x.toPrecision(3)).toLocaleString();
    const chance = (x) => (x < 0.005 ? "under 1 %" : `${Math.round(100 * x)} %`);
    const when = (moment) => place(dateOf(moment.position) ? moment.position : Math.round(moment.position), fleet.position_name) + (moment.date && !dateOf(moment.position) ? ` (about ${day(moment.date)})` : "");
    const words = r.best === null ? "The best moment to replace it is later than the model can say."
      : r.best.position <= unit.health.position ? "By the costs given, the best moment to replace it is now."
      : `By the costs given, the best moment to replace it is ${when(r.best)}; the chance that it fails before is ${chance(r.best.breakdown)}. To replace it now costs ${money(r.waiting[0].cost)} more.`;
    const table = node("table");
    const head = node("tr");
    head.append(...["replaced at", "fails before", "costs more"].map((title) => Object.assign(node("th", title), { scope: "col" })));
    table.createTHead().append(head);
    const body = table.createTBody();
    for (const moment of r.waiting) {
      const line = node("tr");
      line.append(node("td", when(moment)), node("td", chance(moment.breakdown)), node("td", money(moment.cost)));
      body.append(line);
    }
    const details = node("details");
    const scroll = node("div", undefined, "scroll");
    scroll.append(table);
    details.append(node("summary", "What another moment costs"), scroll);
    details.open = Boolean($("verdict").querySelector("details[open]"));
    return [node("p", words), details];
  }
  function show(unit, itsFleet) {
    fleet = itsFleet;
    const verdict = $("verdict");
    verdict.className = "verdict " + unit.status;
    const big = node("p", undefined, "big");
    const known = unit.health && unit.health.value !== null;
    big.append(known ? `${value(unit.health)} ${fleet.target_measure} ` : "– ");
    if (unit.end_date) big.append(node("small", `until ${unit.end_date.slice(0, 16).replace("T", " ")} `));
    if (known && range(unit.health)) big.append(node("small", `${range(unit.health)} in ${Math.round(100 * fleet.coverage)} % of cases `));
    big.append(node("span", TITLES[unit.status], "status " + unit.status));
    const aged = node("p", undefined, "note");
    aged.dataset.before = `At ${place(cycleOf(unit), fleet.position_name)}. Last row `;
    aged.dataset.after = " ago.";
    aged.dataset.received = unit.received;
    aged.textContent = aged.dataset.before + age(unit.received) + aged.dataset.after;
    verdict.replaceChildren(big, node("p", expectation(unit)), ...replacement(unit), aged);
    const reasons = node("ul");
    if (unit.silent_since !== null) reasons.append(node("li", "Silent since " + new Date(1000 * unit.silent_since).toLocaleString() + "."));
    if (unit.health) {
      for (const flag of doubts(unit.health)) reasons.append(node("li", FLAGS[flag] || flag));
      if (unit.health.reason) reasons.append(node("li", unit.health.reason));
    }
    if (known && doubts(unit.health).length) verdict.append(node("p", "Less trustworthy than usual:", "doubted"));
    if (reasons.children.length) verdict.append(reasons);
    if (unit.lives.length > 1) {
      const lives = node("p", "Lives of this machine: ");
      unit.lives.forEach((name) => {
        const link = node("a", name);
        link.href = "#unit=" + encodeURIComponent(name);
        lives.append(link, " ");
      });
      verdict.append(lives);
    }
    $("acknowledge").hidden = !distrusted(unit.health);
    $("maintain").hidden = unit.status === "ended";
    Maintenance.setSensors(fleet.sensors);
    showTrend(unit);
    showHistory(unit);
    showSensors(unit);
  }
  function showTrend(unit) {
    drawn = unit;
    const known = unit.history.filter((h) => h.value !== null);
    const text = known.length
      ? `${known.length} values, ${place(known[0].position, fleet.position_name)} to ${dateOf(known.at(-1).position) || known.at(-1).position}.`
      : "No value yet: " + (unit.health ? unit.health.reason : "waiting for rows") + ".";
    $("trend-text").textContent = text;
    $("trend").setAttribute("aria-label", `Trend of health. ${text} ${expectation(unit)}`);
    Chart.trend($("trend"), unit, fleet, $("readout"), health);
    const keys = [["", "health"]];
    if (known.some((h) => h.low !== null || h.high !== null)) keys.push(["key-band", `interval, ${Math.round(100 * fleet.coverage)} %`]);
    if (unit.forecast && unit.forecast.slope < 0) keys.push(["key-ahead", fleet.coverage === null ? "forecast" : "forecast with its band"]);
    if (known.some(distrusted)) keys.push(["key-distrusted", "health, not to be trusted"]);
    if (fleet.threshold !== null) keys.push(["key-limit", "maintenance due"]);
    $("legend").replaceChildren(...(known.length ? keys.map(([key, words]) => node("li", words, key)) : []));
  }
  function showHistory(unit) {
    const table = $("history");
    const titles = [fleet.position_name, "value", "low", "high", "notes"];
    const heads = titles.map((title) => Object.assign(node("th", title), { scope: "col" }));
    const head = node("tr");
    head.append(...heads);
    table.tHead.replaceChildren(head);
    const rows = unit.history.slice(-100).reverse().map((h) => {
      const row = node("tr");
      row.append(...[dateOf(h.position) || String(h.position), value(h), number(h.low), number(h.high), doubts(h).join(", ") || h.reason].map((t) => node("td", t)));
      return row;
    });
    table.tBodies[0].replaceChildren(...rows);
  }
  // What each sensor changed, the most telling first; asked for apart, because it takes as long as a prediction.
  function awaitWhy() {
    $("why").hidden = false; // its place is kept, so that nothing below moves while somebody aims at a button
    $("why-text").textContent = "Being worked out …";
    $("causes").replaceChildren();
  }
  function showWhy(explained) {
    const measure = fleet.target_measure;
    const signed = (x, digits) => (x < 0 ? "−" : "+") + Math.abs(x).toPrecision(digits);
    const most = Math.max(...explained.causes.map((cause) => Math.abs(cause.effect)), 1e-9);
    const broken = new Set(explained.causes.filter((cause) => cause.broken).map((cause) => cause.sensor));
    for (const item of $("sensors").children) item.classList.toggle("marked", broken.has(item.dataset.sensor));
    const doubt = broken.size >= 3 ? "unlike training; " : "seems broken; "; // so many at once are the machine's wear
    $("why").hidden = false;
    $("why-text").textContent = `Since ${place(explained.since, fleet.position_name)} the sensors changed the health by ${signed(explained.total, 3)} ${measure}. The largest shares:`;
    $("causes").replaceChildren(...explained.causes.slice(0, 5).map((cause) => {
      const item = node("li");
      const since = cause.since === null ? "" : ` since ${place(cause.since, fleet.position_name)}`;
      const words = `${cause.broken ? doubt : cause.odd ? "not as the other sensors say; " : ""}level ${signed(cause.moved, 2)} deviations${since}`;
      const name = node("span", cause.sensor.replaceAll("_", " "), "cause");
      name.title = cause.sensor;
      item.append(name, Chart.effect(cause.effect / most, 120), node("span", `${signed(cause.effect, 2)} ${measure}`, "amount"), node("span", words, cause.broken ? "doubted note" : "note"));
      return item;
    }));
  }
  function showSensors(unit) {
    const samples = unit.samples;
    $("sensors-text").textContent = samples.length ? `The last ${samples.length} rows as they were received.` + (fleet.normal ? " The band holds the levels of all training machines over their lives." : "") : "";
    const items = [...fleet.sensors.map((name) => [name, "sensors"]), ...fleet.settings.map((name) => [name, "settings"])];
    $("sensors").replaceChildren(...(samples.length ? items : []).map(([name, kind]) => {
      const values = samples.map((sample) => sample[kind][name]).filter((value) => value !== null);
      const item = node("li");
      const text = node("p");
      text.append(node("span", name.replaceAll("_", " ")), node("span", values.length ? String(Number(values.at(-1).toPrecision(5))) : "blank"));
      text.firstChild.title = name;
      const band = fleet.normal && kind === "sensors" ? fleet.normal[name] : null;
      item.dataset.sensor = name;
      item.append(text, Chart.spark(values, 230, 40, "", band));
      return item;
    }));
  }
  function clear() {
    $("why").hidden = true;
    for (const id of ["verdict", "trend", "legend", "sensors"]) $(id).replaceChildren();
    for (const id of ["trend-text", "sensors-text"]) $(id).textContent = "";
    $("verdict").className = "verdict";
    $("history").tBodies[0].replaceChildren();
    drawn = null;
  }
  function redraw() {
    if (drawn) Chart.trend($("trend"), drawn, fleet, $("readout"), health);
  }
  return { show, awaitWhy, showWhy, clear, redraw };
})();
