(function () {
  "use strict";
  const SHOWN = 200;
  const NAMES = { due: "due", soon: "soon", unknown: "unknown", ok: "fine", "warming-up": "warming up" };
  const TITLES = {
    due: "maintenance due", soon: "may be due soon", unknown: "cannot say", ok: "fine", "warming-up": "warming up",
  };
  const ORDER = Object.keys(NAMES);
  const FLAGS = {
    "unseen-condition": "In an operating condition that the model never saw in training.",
    "out-of-range": "A sensor is far outside what the model saw in training.",
    drift: "Sensors have moved away from the training data, or are stuck.",
    gap: "Rows are missing within the window.",
    padded: "Fewer rows than a window; the first one was repeated.",
    stretched: "The cycle ended before the part that the model looks at did.",
  };
  const $ = (id) => document.getElementById(id);
  const units = new Map();
  const lines = new Map();
  let fleet = null;
  let total = 0;
  let skew = 0;
  let open = null;
  let cameFrom = null;
  let loadedUnit = null;

  // --- words ---------------------------------------------------------------------------------
  function number(value) {
    if (value === null || value === undefined) return "–";
    if (fleet && fleet.task === "rul") return value < 9.95 ? value.toFixed(1) : String(Math.round(value));
    return value.toFixed(3);
  }
  function range(health) {
    if (!health || (health.low === null && health.high === null)) return "";
    if (health.high === null) return "≥ " + number(health.low);
    return number(health.low === null ? 0 : health.low) + "–" + number(health.high);
  }
  function age(seconds) {
    const s = Math.max(0, seconds);
    if (s < 90) return Math.round(s) + " s";
    if (s < 5400) return Math.round(s / 60) + " min";
    if (s < 129600) return Math.round(s / 3600) + " h";
    return Math.round(s / 86400) + " d";
  }
  const now = () => Date.now() / 1000 - skew;
  const cycleOf = (unit) => (unit.cycle === null ? unit.position : unit.cycle);
  function node(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  function say(text) {
    if ($("news").textContent !== text) $("news").textContent = text;
  }

  // --- talking to the service ----------------------------------------------------------------
  function authorised() {
    const token = sessionStorage.getItem("token");
    return token ? { Authorization: "Bearer " + token } : {};
  }
  async function ask(path) {
    const answer = await fetch(path, { headers: authorised(), cache: "no-store" });
    if (answer.status === 401) {
      login();
      throw new Error("a token is needed");
    }
    if (!answer.ok) throw Object.assign(new Error((await answer.json().catch(() => ({}))).detail || answer.statusText), { status: answer.status });
    return answer.json();
  }
  function login() {
    if ($("login").open) return;
    if (sessionStorage.getItem("token")) $("login-text").textContent = "That token was not accepted. Try another.";
    $("login").showModal();
  }
  $("login-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", $("token").value.trim());
    $("token").value = "";
    $("login").close();
    start();
  });

  function connection(state, text) {
    $("connection").className = "pill " + state;
    if ($("connection").textContent !== text) $("connection").textContent = text;
  }

  // Events are read with fetch rather than EventSource, which cannot show a token.
  let following = 0;
  async function follow() {
    const mine = ++following;
    let wait = 1000;
    while (mine === following) {
      try {
        const answer = await fetch("/v1/events", { headers: authorised(), cache: "no-store" });
        if (answer.status === 401) return login();
        if (!answer.ok) throw new Error(answer.statusText);
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        connection("live", "live");
        if (wait > 1000) await load();
        wait = 1000;
        let text = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done || mine !== following) break;
          text += value;
          const parts = text.split("\n\n");
          text = parts.pop();
          parts.forEach(receive);
        }
      } catch (error) {
        // fall through: try again
      }
      if (mine !== following) return;
      connection("lost", "not connected, trying again");
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, 15000);
    }
  }
  function receive(part) {
    const event = /^event: (.*)$/m.exec(part);
    const data = /^data: (.*)$/m.exec(part);
    if (!event || !data) return;
    const message = JSON.parse(data[1]);
    if (event[1] === "reload") return load();
    const search = $("search").value.trim().toLocaleLowerCase();
    for (const unit of message.units) {
      if (!search || unit.unit.toLocaleLowerCase().includes(search)) {
        if (!units.has(unit.unit)) total += 1;
        units.set(unit.unit, unit);
      }
      if (unit.unit === open) loadUnit();
    }
    showCounts(message.counts);
    showTable(message.units.map((unit) => unit.unit));
  }

  async function load() {
    try {
      fleet = await ask("/v1/fleet");
      skew = Date.now() / 1000 - fleet.now;
      const name = fleet.target.toUpperCase() === "RUL" ? "RUL" : fleet.target;
      $("health-name").textContent = fleet.target_unit ? `${name}, ${fleet.target_unit}` : name;
      $("model").textContent =
        (fleet.task === "rul" ? "Remaining useful life" : "State of health: " + fleet.target) +
        (fleet.target_unit ? " in " + fleet.target_unit : "") +
        (fleet.threshold === null ? "" : ` · maintenance due at ${number(fleet.threshold)}`) +
        ` · intervals hold ${Math.round(100 * fleet.coverage)} %`;
      const search = $("search").value.trim();
      const found = await ask(`/v1/units?limit=${SHOWN}&q=${encodeURIComponent(search)}`);
      total = found.total;
      units.clear();
      for (const unit of found.units) units.set(unit.unit, unit);
      showCounts(fleet.counts);
      showTable([]);
    } catch (error) {
      connection("lost", "not connected: " + error.message);
    }
  }

  // --- the fleet -----------------------------------------------------------------------------
  function showCounts(counts) {
    const list = $("counts");
    for (const status of ORDER) {
      let box = list.querySelector("." + status);
      if (!box) {
        box = node("div", undefined, status);
        box.append(node("dt", TITLES[status]), node("dd"));
        list.append(box);
      }
      box.lastElementChild.textContent = String(counts[status]);
    }
    say(`${counts.due} units due for maintenance, ${counts.soon} may be due soon.`);
    document.title = counts.due ? `(${counts.due}) Fleet` : "Fleet";
  }
  function before(a, b) {
    const value = (u) => (u.health && u.health.value !== null ? u.health.value : Infinity);
    const places = ORDER.indexOf(a.status) - ORDER.indexOf(b.status);
    if (places) return places;
    if (value(a) !== value(b)) return value(a) - value(b);
    return a.unit < b.unit ? -1 : 1;
  }
  function scale() {
    const seen = Array.from(units.values(), (u) => (u.health && u.health.value !== null ? Math.max(u.health.value, u.health.high || 0) : 0));
    return fleet && fleet.cap ? fleet.cap * 1.3 : Math.max(...seen, 1e-9) * 1.05;
  }
  function line(name) {
    let row = lines.get(name);
    if (row) return row;
    row = node("tr");
    const head = node("th");
    head.scope = "row";
    const link = node("a", name);
    link.href = "#unit=" + encodeURIComponent(name);
    link.title = name;
    head.append(link);
    const cells = ["", "number", "span", "", "number minor", "number age", "trust"].map((c) => node("td", undefined, c));
    row.append(head, ...cells);
    row.addEventListener("click", (event) => {
      if (event.target.closest("a") || String(getSelection())) return;
      location.hash = link.hash;
    });
    lines.set(name, row);
    return row;
  }
  function fill(row, unit, most) {
    const [, status, value, picture, trend, cycle, old, trust] = row.children;
    status.replaceChildren(node("span", NAMES[unit.status], "status " + unit.status));
    const health = unit.health;
    value.replaceChildren(document.createTextNode(number(health && health.value)), node("span", range(health), "range"));
    picture.replaceChildren(Chart.span(health, fleet.threshold, most, 180));
    const values = unit.spark;
    const words = values.length > 1 ? `from ${number(values[0])} to ${number(values.at(-1))}` : "no trend yet";
    trend.replaceChildren(Chart.spark(values, 96, 26, words));
    cycle.textContent = String(cycleOf(unit));
    old.dataset.received = unit.received;
    old.textContent = age(now() - unit.received);
    trust.textContent = health ? (health.flags.join(", ") || (health.value === null ? health.reason : "")) : "";
  }
  function showTable(changed) {
    if (!fleet) return;
    const shown = Array.from(units.values()).sort(before).slice(0, SHOWN);
    const names = new Set(shown.map((unit) => unit.unit));
    for (const name of Array.from(units.keys())) if (!names.has(name)) units.delete(name);
    for (const [name, row] of lines) {
      if (!names.has(name)) {
        row.remove();
        lines.delete(name);
      }
    }
    const body = $("rows");
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    const most = scale();
    const fresh = new Set(changed);
    shown.forEach((unit, k) => {
      const row = line(unit.unit);
      if (!row.isConnected || fresh.has(unit.unit) || !changed.length) fill(row, unit, most);
      if (body.children[k] !== row) body.insertBefore(row, body.children[k] || null);
      if (fresh.has(unit.unit)) {
        row.classList.remove("fresh");
        requestAnimationFrame(() => row.classList.add("fresh"));
      }
    });
    if (focused && focused.isConnected) focused.focus({ preventScroll: true }); // a row that moves loses it
    const searching = $("search").value.trim();
    $("shown").textContent = total > shown.length ? `${shown.length} most urgent of ${total} units` : `${total} units`;
    $("empty").hidden = shown.length > 0;
    $("empty").textContent = searching ? `No unit's name contains “${searching}”.` : "No rows yet. Units appear here when their first row is posted to /v1/rows.";
  }
  let typing = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(load, 200);
  });
  setInterval(() => {
    document.querySelectorAll("[data-received]").forEach((cell) => {
      cell.textContent = (cell.dataset.before || "") + age(now() - Number(cell.dataset.received)) + (cell.dataset.after || "");
    });
  }, 5000);

  // --- one unit ------------------------------------------------------------------------------
  let waiting = 0;
  function loadUnit() {
    if (waiting) return;
    waiting = setTimeout(async () => {
      waiting = 0;
      const name = open;
      if (name === null) return;
      try {
        const unit = await ask("/v1/units/" + encodeURIComponent(name));
        if (name === open) showUnit(unit);
      } catch (error) {
        if (name === open) $("verdict").replaceChildren(node("p", error.message));
      }
    }, loadedUnit === open ? 700 : 0);
  }
  function health(h) {
    return h.value === null ? h.reason : number(h.value) + (range(h) ? ` (${range(h)})` : "");
  }
  function expectation(unit) {
    const f = unit.forecast;
    if (fleet.threshold === null || !unit.health || unit.health.value === null) return "";
    if (unit.status === "due") return `Maintenance is due: at or below ${number(fleet.threshold)} ${fleet.target_unit}.`;
    if (!f) return "Too few values for a forecast.";
    if (f.due === null) return "No decline visible, so no forecast of when maintenance is due.";
    const left = (p) => Math.max(0, Math.round(p - unit.health.position));
    const bounds = f.due_low === null && f.due_high === null ? "" :
      ` (${f.due_low === null ? 0 : left(f.due_low)} to ${f.due_high === null ? "unknown" : left(f.due_high)})`;
    return `Maintenance due in about ${left(f.due)} cycles${bounds}, around ${fleet.position_name} ${Math.round(f.due)}; ${f.basis}.`;
  }
  function showUnit(unit) {
    loadedUnit = unit.unit;
    skew = Date.now() / 1000 - unit.now;
    const verdict = $("verdict");
    verdict.className = "verdict " + unit.status;
    const big = node("p", undefined, "big");
    const known = unit.health && unit.health.value !== null;
    big.append(known ? `${number(unit.health.value)} ${fleet.target_unit} ` : "– ");
    if (known && range(unit.health)) big.append(node("small", `${range(unit.health)} in ${Math.round(100 * fleet.coverage)} % of cases `));
    big.append(node("span", TITLES[unit.status], "status " + unit.status));
    const aged = node("p", undefined, "note");
    aged.dataset.before = `At ${fleet.position_name} ${cycleOf(unit)}. Last row `;
    aged.dataset.after = " ago.";
    aged.dataset.received = unit.received;
    aged.textContent = aged.dataset.before + age(now() - unit.received) + aged.dataset.after;
    verdict.replaceChildren(big, node("p", expectation(unit)), aged);
    const reasons = node("ul");
    if (unit.health) {
      for (const flag of unit.health.flags) reasons.append(node("li", FLAGS[flag] || flag));
      if (unit.health.reason) reasons.append(node("li", unit.health.reason));
    }
    if (reasons.children.length) verdict.append(reasons);
    showTrend(unit);
    showHistory(unit);
    showSensors(unit);
  }
  let drawn = null;
  function showTrend(unit) {
    drawn = unit;
    const known = unit.history.filter((h) => h.value !== null);
    const text = known.length
      ? `${known.length} values, ${fleet.position_name} ${known[0].position} to ${known.at(-1).position}.`
      : "No value yet: " + (unit.health ? unit.health.reason : "waiting for rows") + ".";
    $("trend-text").textContent = text;
    $("trend").setAttribute("aria-label", `Trend of health. ${text} ${expectation(unit)}`);
    Chart.trend($("trend"), unit, fleet, $("readout"), health);
    const keys = [["", "health"]];
    if (known.some((h) => h.low !== null || h.high !== null)) keys.push(["key-band", `interval, ${Math.round(100 * fleet.coverage)} %`]);
    if (unit.forecast && unit.forecast.slope < 0) keys.push(["key-ahead", "forecast with its band"]);
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
      row.append(...[String(h.position), number(h.value), number(h.low), number(h.high), h.flags.join(", ") || h.reason].map((t) => node("td", t)));
      return row;
    });
    table.tBodies[0].replaceChildren(...rows);
  }
  function showSensors(unit) {
    const samples = unit.samples;
    $("sensors-text").textContent = samples.length ? `The last ${samples.length} rows as they were received.` : "";
    const items = [...fleet.sensors.map((name) => [name, "sensors"]), ...fleet.settings.map((name) => [name, "settings"])];
    $("sensors").replaceChildren(...(samples.length ? items : []).map(([name, kind]) => {
      const values = samples.map((sample) => sample[kind][name]);
      const item = node("li");
      const text = node("p");
      text.append(node("span", name.replaceAll("_", " ")), node("span", String(Number(values.at(-1).toPrecision(5)))));
      text.firstChild.title = name;
      item.append(text, Chart.spark(values, 230, 40));
      return item;
    }));
  }
  addEventListener("resize", () => {
    if (open !== null && drawn) Chart.trend($("trend"), drawn, fleet, $("readout"), health);
  });

  // --- where we are --------------------------------------------------------------------------
  function route() {
    const found = /^#unit=(.+)$/.exec(location.hash);
    let name = null;
    try {
      name = found ? decodeURIComponent(found[1]) : null;
    } catch (error) {
      name = null;
    }
    if (name === null && open !== null) cameFrom = open;
    open = name;
    $("fleet").hidden = open !== null;
    $("unit").hidden = open === null;
    if (open === null) {
      const row = cameFrom === null ? null : lines.get(cameFrom);
      if (row) row.querySelector("a").focus();
      return;
    }
    if (loadedUnit !== open) {
      for (const id of ["verdict", "trend", "legend", "sensors"]) $(id).replaceChildren();
      $("history").tBodies[0].replaceChildren();
      drawn = null;
    }
    loadedUnit = null;
    $("unit-name").textContent = open;
    $("unit-name").focus();
    scrollTo(0, 0);
    clearTimeout(waiting);
    waiting = 0;
    if (fleet) loadUnit();
  }
  $("back").addEventListener("click", (event) => {
    event.preventDefault();
    location.hash = "";
  });
  addEventListener("hashchange", route);

  async function start() {
    await load();
    if (fleet === null) {
      if (!$("login").open) setTimeout(start, 3000);
      return;
    }
    follow();
    route();
  }
  start();
})();
